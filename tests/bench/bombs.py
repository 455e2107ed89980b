"""The row about fork bombs: what neighbours and the host see of one. Called by `run`."""
import os
import threading
import time

from caisson import Daemon
from peers import EXEC, Client, tool
from report import p99

BOMBS = {"C": ["/workspace/bomb"],
         "Python": ["python3", "-c", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"],
         "pausing": ["python3", "-c", "import os, time\nwhile True:\n  if time.monotonic() % 0.75 > 0.4: time.sleep(0.01); continue\n"
                                      "  try: os.fork()\n  except OSError: pass"],
         "shell": ["bash", "-c", "bomb() { bomb | bomb & bomb; }; bomb"]}
PAUSE = 0.002  # between two forks of the host's, so that they do not use up a processor


def fork_times(seconds):
    """Microseconds that forks of this process take, to the end of the child; it has many mappings of shared libraries."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        times.append((time.monotonic() - began) * 1e6)
        time.sleep(PAUSE)
    return times


class Watch(threading.Thread):
    """Execs in a sandbox and forks of the host's for some seconds, beside each other."""

    def __init__(self, client, box, seconds):
        super().__init__()
        self.client, self.path, self.end, self.execs, self.failure = client, f"/v1/sandboxes/{box}/exec", time.monotonic() + seconds, [], None
        self.start()
        self.forks = fork_times(seconds)
        self.join()
        if self.failure:
            raise RuntimeError(f"a neighbour's exec: {self.failure!r}")

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.execs += self.client.repeat(10, "POST", self.path, EXEC)
        except Exception as failure:  # told by the other thread
            self.failure = failure


def bombs(report, quick):
    seconds = 5 if quick else 15
    with open(tool("bomb"), "rb") as file:
        program = file.read()
    with Daemon("[pool]\nsize = 0\n") as daemon:
        api, client = daemon.client(), Client(daemon)
        try:
            neighbour = api.create(timeout_seconds=3600)["id"]
            quiet = Watch(client, neighbour, seconds)
            for name, command in BOMBS.items():
                box = api.create(timeout_seconds=3600)["id"]
                api.write(box, "/workspace/bomb", program, mode="755")
                bomb = api.exec(box, command, background=True)["exec_id"]
                busy = Watch(client, neighbour, seconds)
                record = api.get(f"/v1/sandboxes/{box}/execs/{bomb}")
                note = f"ended after {record['duration_ms'] / 1000:.1f} s" if record["state"] == "ended" else "still running"
                for what, identity, ours, before in (("a neighbour's exec", "exec", busy.execs, quiet.execs), ("the host's fork", "fork", busy.forks, quiet.forks)):
                    report.value(f"bomb-{identity}-{name}", f"{what} beside a fork bomb ({name}), p99 / quiet p99", p99(ours) / p99(before), "x", 3,
                                 [f"p99 {p99(ours) / 1000:.2f} ms, quiet {p99(before) / 1000:.2f} ms; longest {max(ours) / 1000:.0f} ms; the bomb: {note}"])
                api.delete("/v1/sandboxes/" + box)
        finally:
            client.close()
