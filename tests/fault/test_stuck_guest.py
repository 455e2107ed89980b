"""A sandbox can draw out its own end and its own pause: thousands of processes, hundreds of thousands of
deleted files that the kernel has to let go. Nobody else may wait for it."""
import os
import signal
import subprocess
import threading
import time
import unittest

from caisson import SANITIZED, ApiError, OwnDaemons, best_of, wait_until
from marks import alone, busy, long, thorough

# Files that are deleted and open: the kernel erases each as its process ends.
HOLD_FILES = """
import os, resource, sys
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
wanted = int(sys.argv[1])
os.mkdir("/workspace/held")
while wanted > 0:
    share = min(wanted, limit - 64)
    wanted -= share
    reading, writing = os.pipe()
    if os.fork() == 0:
        for n in range(share):
            path = f"/workspace/held/{os.getpid()}-{n}"
            fd = os.open(path, os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"x")
            os.unlink(path)
        os.write(writing, b"x")
        import time
        time.sleep(10000)
    os.read(reading, 1)
print("held", flush=True)
"""

# Each process in a session of its own, and followed by another when it ends. When there are as many as may
# be they try on, but not all the time: the init would end them (sandbox/test_limits.py).
BOMB = """
import os, time
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(60)
"""

WAIT = 1.0 if not SANITIZED else 4.0
ATTEMPTS = 3


class Others(threading.Thread):
    """Another client: makes a sandbox, runs something in it, deletes it, again and again."""

    def __init__(self, daemon):
        super().__init__()
        self.api, self.enough, self.times, self.failure = daemon.client(), threading.Event(), [], None

    def run(self):
        try:
            while not self.enough.is_set():
                began = time.monotonic()
                box = self.api.create()["id"]
                self.api.sh(box, "true")
                self.api.delete("/v1/sandboxes/" + box)
                self.times.append((began, time.monotonic() - began))
        except Exception as failure:  # told by stop()
            self.failure = failure

    def stop(self, began, ended):
        """How long they took, those that were under way between two moments."""
        self.enough.set()
        self.join()
        if self.failure:
            raise self.failure
        return [took for at, took in self.times if at < ended and at + took > began]


class StuckGuest(OwnDaemons):
    def setUp(self):
        self.daemon = self.start_daemon("[sandbox]\nfiles = 131072\n")
        self.addCleanup(self.remove_sandboxes)
        self.api = self.daemon.client()

    def remove_sandboxes(self):
        """Also after a failure: a bomb that is frozen would outlive everything that is killed around it."""
        if self.daemon.process is None:
            self.daemon.start()
        self.daemon.remove_sandboxes()

    def files(self, count):
        box = self.api.create(memory_mb=6144, disk_mb=8192, pids=256)["id"]
        self.api.write(box, "/workspace/hold.py", HOLD_FILES.encode())
        result = self.api.exec(box, f"setsid python3 /workspace/hold.py {count}", timeout_seconds=100)
        self.assertEqual(result["stdout"], "held\n", result)
        return box

    def bomb(self, count):
        box = self.api.create(memory_mb=4096, pids=count, cpu=1)["id"]
        self.api.write(box, "/workspace/bomb.py", BOMB.encode())
        self.api.exec(box, ["python3", "/workspace/bomb.py"], background=True)
        wait_until(lambda: max(map(int, self.of_cgroup(box, "pids.current")), default=0) >= count * 9 // 10, 60, what="the bomb")
        return box

    def others_meanwhile(self, what, action):
        """How long somebody else waited at most."""
        others = Others(self.daemon)
        others.start()
        try:
            wait_until(lambda: others.times or others.failure, 60)
            began = time.monotonic()
            action()
            ended = time.monotonic()
        finally:
            others.enough.set()
        times = others.stop(began, ended)
        print(f"# {what}: {ended - began:.2f} s; others {len(times)}, slowest {max(times):.3f} s", flush=True)
        return max(times)

    def patiently(self, request, box, status):
        """The kernel takes as long as it takes: on a busy machine more than a request waits, which says so then."""
        try:
            request()
        except ApiError as error:
            self.assertEqual(error.code, "timeout")
            wait_until(lambda: self.api.get("/v1/sandboxes/" + box)["status"] == status, 120, what=status)

    def delete(self, box):
        self.patiently(lambda: self.api.delete("/v1/sandboxes/" + box), box, "ended")

    def stop(self, box):
        self.patiently(lambda: self.api.post(f"/v1/sandboxes/{box}/stop"), box, "stopped")

    @thorough
    @long
    @alone
    def test_delete_with_many_open_files(self):
        def attempt():
            box = self.files(200_000)
            slowest = self.others_meanwhile("delete, 200000 files", lambda: self.delete(box))
            self.assertEqual(self.api.get("/v1/sandboxes/" + box)["status"], "ended")
            return slowest
        best_of(ATTEMPTS, attempt, WAIT)

    @thorough
    @long
    @alone
    def test_stop_and_start_with_many_open_files(self):
        def attempt():
            box = self.files(100_000)
            slowest = self.others_meanwhile("stop, 100000 files", lambda: self.stop(box))
            self.api.post(f"/v1/sandboxes/{box}/start")
            self.assertEqual(self.api.sh(box, "ls /workspace/held | wc -l"), "0\n")
            self.delete(box)
            return slowest
        best_of(ATTEMPTS, attempt, WAIT)

    def pause(self, box):
        """It comes about, or is taken back: both are true of the sandbox then."""
        try:
            self.assertEqual(self.api.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
        except ApiError as error:
            self.assertEqual(error.code, "timeout")
            self.assertEqual(self.api.get("/v1/sandboxes/" + box)["status"], "running")

    @thorough
    @long
    @alone
    def test_pause_and_delete_of_a_fork_bomb(self):
        def attempt():
            box = self.bomb(2000)
            return max(self.others_meanwhile("pause, 2000 processes", lambda: self.pause(box)),
                       self.others_meanwhile("delete, 2000 processes", lambda: self.delete(box)))
        best_of(ATTEMPTS, attempt, WAIT)

    def ended_in_time(self, box):
        wait_until(lambda: self.daemon.client().get("/v1/sandboxes/" + box)["status"] == "ended", 120,
                   what="the end of the sandbox")

    def begin_delete(self):
        """A sandbox that is ending: its client has asked and goes away. (One that had ended before we looked was none.)"""
        for _ in range(ATTEMPTS):
            box = self.files(100_000)
            connection = self.api.connection()
            connection.request("DELETE", "/v1/sandboxes/" + box)
            status = wait_until(lambda: (lambda status: status != "running" and status)(
                self.api.get("/v1/sandboxes/" + box)["status"]), 30, 0.001, what="a delete")
            connection.close()
            if status == "deleting":
                return box
        self.fail("each had ended before it was seen to be ending")

    @long
    @busy
    def test_daemon_dies_while_one_is_ending(self):
        box = self.begin_delete()
        self.daemon.kill_daemon()
        self.ended_in_time(box)

    @long
    @busy
    def test_everything_dies_while_one_is_ending(self):
        box = self.begin_delete()
        self.daemon.kill()
        self.daemon.start()
        self.assertTrue(self.daemon.client().create()["id"])
        self.ended_in_time(box)

    @long
    @busy
    def test_quitting_while_one_is_ending(self):
        box = self.begin_delete()
        self.daemon.stop()
        self.daemon.start()
        self.ended_in_time(box)

    @busy
    def test_daemon_dies_while_one_is_being_paused(self):
        box = self.bomb(1000)
        asking = threading.Thread(target=self.ask_pause, args=(box,))
        asking.start()
        wait_until(lambda: self.api.get("/v1/sandboxes/" + box)["status"] != "running", 30, 0.001, "its pause")
        os.kill(self.daemon.daemon_pid(), signal.SIGKILL)
        asking.join()
        self.daemon.wait_ready()
        record = self.daemon.client().get("/v1/sandboxes/" + box)
        self.assertIn(record["status"], ("running", "paused"))
        states = self.freezer_states(box)
        self.assertEqual(states, {"FROZEN" if record["status"] == "paused" else "THAWED"})

    def ask_pause(self, box):
        try:
            self.api.post(f"/v1/sandboxes/{box}/pause")
        except Exception:  # the daemon is killed under it
            pass

    def of_cgroup(self, box, name):
        """What a file of its work cgroup says, in each hierarchy that has it."""
        found = subprocess.run(["find", "/sys/fs/cgroup", "-path", f"*/{box}/work/{name}"], capture_output=True,
                               text=True).stdout.split()
        return [open(path).read().strip() for path in found]

    def freezer_states(self, box):
        texts = self.of_cgroup(box, "freezer.state") or self.of_cgroup(box, "cgroup.freeze")
        return {{"0": "THAWED", "1": "FROZEN"}.get(text, text) for text in texts}


if __name__ == "__main__":
    unittest.main()
