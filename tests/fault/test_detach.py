"""A one-shot run that takes too long stays, with its sandbox, as a job: all of that or nothing of it, whenever the
daemon is killed. Before it is written the next daemon removes the sandbox; from then on it goes on, and nothing of
its output is lost."""
import os
import re
import signal
import threading

from caisson import wait_until
from explain import wait_explained
from faults import SPAWNER, FaultTest, use_fault_build
from mcp import Mcp

use_fault_build()
RUNS_ON = "fault"

# As long as a busy machine may take until the first line is printed, and for a run that ends at once: then it is jumped over.
BLOCK_SECONDS = 50
CONFIG = f"[usage]\ninterval = 1h\n[pool]\nsize = 0\nmax = 0\n[mcp]\nblock_seconds = {BLOCK_SECONDS}\n"
# Each prints two lines, the second when it is told to.
RUNS = {
    "shell": ("run_shell", {"command": "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo over"}),
    "bash": ("run_code", {"language": "bash", "code": "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo over"}),
    "python": ("run_code", {"language": "python", "code": "import os, time\nprint('begun', flush=True)\n"
                            "while not os.path.exists('/tmp/go'): time.sleep(.05)\nprint('over')\n6 * 7"}),
}


class Detach(FaultTest):
    def setUp(self):
        self.api = self.world(config=CONFIG).start().client()

    def live(self):
        return [box["id"] for box in self.daemon.client().get("/v1/sandboxes")["items"]]

    def printed(self, api):
        return any(api.get(f"/v1/sandboxes/{box['id']}/logs")["lines"] for box in api.get("/v1/sandboxes")["items"])

    def kill_daemon(self):
        os.kill(self.daemon.daemon_pid(), signal.SIGKILL)
        self.faults.go_on()
        self.daemon.wait_ready()

    def killed_while_it_is_written(self, point):
        tool, arguments = RUNS["python"]
        self.faults.arm(point)
        call = threading.Thread(target=self.call_quietly, args=(tool, arguments), daemon=True)
        call.start()
        wait_until(lambda: self.printed(self.api), 30, what="the first line")
        self.faults.advance(BLOCK_SECONDS, of=(SPAWNER,))
        self.assertTrue(self.faults.held(30), f"nobody came to {point}")
        self.kill_daemon()
        call.join(30)
        self.assertFalse(call.is_alive())
        wait_until(lambda: not self.live(), 30, what="the end of its sandbox")
        wait_explained(self.daemon)

    def call_quietly(self, tool, arguments):
        try:
            Mcp(self.daemon.client(timeout=25)).call(tool, arguments)
        except Exception:  # the connection goes with the daemon
            pass

    def test_killed_before_it_is_written(self):
        self.killed_while_it_is_written("store.context_insert:before")

    def test_killed_before_all_of_it_is_written(self):
        self.killed_while_it_is_written("store.context_insert:after")

    def test_killed_afterwards(self):
        jobs = {}
        tokens = {name: self.daemon.token(name) for name in RUNS}  # each has a workspace of its own, and so no sandbox
        calls = []
        for name, (tool, arguments) in RUNS.items():
            def call(name=name, tool=tool, arguments=arguments):
                jobs[name] = Mcp(self.daemon.tcp(tokens[name])).text(tool, arguments)
            calls.append(threading.Thread(target=call, daemon=True))
            calls[-1].start()
        for token in tokens.values():
            wait_until(lambda: self.printed(self.daemon.tcp(token)), 30, what="the first line")
        self.faults.advance(BLOCK_SECONDS)
        for call in calls:
            call.join(60)
        self.assertEqual(set(jobs), set(RUNS))
        self.kill_daemon()
        for name, text in jobs.items():
            with self.subTest(name):
                self.goes_on(self.daemon.tcp(tokens[name]), text)
        wait_explained(self.daemon)

    def goes_on(self, api, text):
        job = re.search(r"job_id ([a-z0-9]{16})", text).group(1)
        box = re.search(r"in sandbox (\w+), which was made for this", text).group(1)
        self.assertTrue(text.startswith("begun\n"), text)
        self.assertEqual([item["id"] for item in api.get("/v1/sandboxes")["items"]], [box])
        mcp = Mcp(api)
        self.assertIn("status: running", mcp.text("read_job", {"job_id": job}))
        # The next daemon knows what it was for: who names none does not mean it, and it ends by itself.
        self.assertIn("gone now", mcp.text("run_shell", {"command": "true"}))
        self.assertEqual(api.get("/v1/sandboxes/" + box)["idle_timeout_seconds"], 600)
        api.sh(box, "touch /tmp/go")
        text = wait_until(lambda: (lambda text: "exit code" in text and text)(
            mcp.text("read_job", {"job_id": job, "wait_seconds": 5})), 30, what="its end")
        self.assertRegex(text, r"\Abegun\nover\n(\[result\]\n42\n)?\[exit code 0")
        # Its context has ended with it.
        wait_until(lambda: all(context["state"] == "ended" for context in
                               api.get(f"/v1/sandboxes/{box}/contexts")["contexts"]), 30, what="the end of its context")
        api.delete("/v1/sandboxes/" + box)
