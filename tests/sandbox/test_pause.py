"""Pause and resume of real sandboxes: what stands still, what the host gets back, what wakes one and what does not, the
two clocks, limits of one that is there; across restarts of the daemon and of all."""
import threading
import time
import unittest

from caisson import ApiError, Daemon, DaemonTest, at_once, wait_until
from marks import column_independent

MIB = 1024 * 1024
# So much is on disk that most of it must go, whatever else the sandbox has in memory.
FILE = 24 * MIB


class Pause(DaemonTest):
    def path(self, box, rest=""):
        return f"/v1/sandboxes/{box}{rest}"

    def state(self, box):
        return self.api.get(self.path(box))["status"]

    def pause(self, box):
        record = self.api.post(self.path(box, "/pause"))
        self.assertEqual(record["status"], "paused")
        return record["pause"]

    def reader(self):
        return self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))

    def test_memory_goes_back_and_nothing_is_lost(self):
        box = self.sandbox(memory_mb=256)
        digest = self.api.sh(box, f"head -c {FILE} /dev/urandom > /workspace/f; sha256sum < /workspace/f")
        before = self.api.get(self.path(box, "/metrics"))["memory_bytes"]
        pause = self.pause(box)
        self.assertGreater(before, FILE // 2)
        self.assertGreater(pause["reclaimed_bytes"], FILE // 2, pause)
        self.assertEqual(pause["memory_before_bytes"] - pause["memory_after_bytes"], pause["reclaimed_bytes"])
        self.assertEqual(self.api.get(self.path(box))["pause"], pause)
        after = self.api.get(self.path(box, "/metrics"))
        self.assertEqual(after["status"], "paused")
        self.assertLess(after["memory_bytes"], before - FILE // 2)
        self.assertEqual(self.api.sh(box, "sha256sum < /workspace/f"), digest)
        self.assertNotIn("pause", self.api.get(self.path(box)))

    def test_what_wakes_it_and_what_does_not(self):
        box = self.sandbox()
        self.api.write(box, "/workspace/f", b"content")
        self.pause(box)
        reader = self.reader()
        active = self.api.get(self.path(box))["active_at"]
        for rest in ("", "/metrics", "/execs", "/metrics?samples=3"):
            reader.get(self.path(box, rest))
        reader.get("/v1/sandboxes")
        reader.get("/v1/metrics")
        self.refused(409, "sandbox.paused", reader.read, box, "/workspace/f")
        record = self.api.get(self.path(box))
        self.assertEqual((record["status"], record["active_at"]), ("paused", active))
        self.assertEqual(self.api.read(box, "/workspace/f"), b"content")
        self.assertEqual(self.state(box), "running")
        self.pause(box)
        self.assertEqual(self.api.sh(box, "echo awake"), "awake\n")
        self.assertEqual(self.state(box), "running")

    @column_independent
    def test_a_reader_wakes_one_that_allows_it(self):
        box = self.sandbox(wake_on_read=True)
        self.api.write(box, "/workspace/f", b"content")
        self.pause(box)
        self.assertEqual(self.reader().read(box, "/workspace/f"), b"content")
        self.assertEqual(self.state(box), "running")

    def test_processes_stand_still(self):
        box = self.sandbox()
        self.api.post(self.path(box, "/exec"), {"cmd": "while :; do date +%s%N > /workspace/t; sleep 0.01; done",
                                                "background": True})
        wait_until(lambda: self.api.sh(box, "cat /workspace/t 2>/dev/null || true"), what="its first word")
        self.pause(box)

        # Its last moments may be counted a little later.
        def still():
            cpu = self.api.get(self.path(box, "/metrics"))["cpu_seconds"]
            time.sleep(0.3)
            return self.api.get(self.path(box, "/metrics"))["cpu_seconds"] == cpu
        wait_until(still, what="its standing still")
        paused_at = time.time_ns()
        self.api.post(self.path(box, "/resume"))
        wait_until(lambda: int(self.api.sh(box, "cat /workspace/t").strip() or 0) > paused_at, what="its going on")

    @column_independent
    def test_no_request_is_lost_against_a_pause(self):
        """Each round a pause and a command at once. A command that ran before stands still with the rest until it is
        resumed; any other has its answer."""
        box = self.sandbox()
        for round in range(25):
            done = []
            thread = threading.Thread(target=lambda: done.append(self.daemon.client().sh(box, f"echo {round}")))
            thread.start()
            try:
                self.assertIn(self.api.post(self.path(box, "/pause"))["status"], ("paused", "resuming", "running"))
            except ApiError as error:  # it was given up for the command
                self.assertEqual(error.code, "request.conflict")
            wait_until(lambda: done or (self.state(box) == "paused" and self.ran(box, round)), 30, what="its answer")
            if not done:
                self.api.post(self.path(box, "/resume"))
            thread.join(30)
            self.assertEqual(done, [f"{round}\n"])

    def ran(self, box, round):
        return any(f"echo {round}" in item["command"] for item in self.api.get(self.path(box, "/execs"))["execs"])

    @column_independent
    def test_pauses_and_resumes_at_once(self):
        box = self.sandbox()

        def ask(verb):
            try:
                return self.daemon.client(timeout=20).post(self.path(box, "/" + verb))["status"]
            except ApiError as error:
                return error.code
        for round in range(8):
            outcomes = at_once(ask, ("pause", "resume", "pause", "resume"))
            self.assertLessEqual(set(outcomes), {"paused", "running", "pausing", "resuming", "request.conflict"})
            wait_until(lambda: self.state(box) in ("paused", "running"), what="an end of it")
        self.assertEqual(self.api.sh(box, "echo well"), "well\n")

    def test_deleted_while_paused_and_while_pausing(self):
        paused = self.sandbox()
        self.pause(paused)
        self.api.delete(self.path(paused))
        self.assertEqual(self.state(paused), "ended")
        for _ in range(4):
            box = self.sandbox()
            thread = threading.Thread(target=lambda: self.daemon.client(timeout=20).raw(
                "POST", self.path(box, "/pause"), {}, checked=False)[0].read())
            thread.start()
            self.api.delete(self.path(box))
            thread.join(25)
            self.assertEqual(self.state(box), "ended")

    def test_one_that_forks_all_the_time(self):
        box = self.sandbox(pids=64)
        self.api.post(self.path(box, "/exec"), {"cmd": "while :; do (sleep 0.001 &) ; done", "background": True})
        try:
            self.assertEqual(self.api.post(self.path(box, "/pause"))["status"], "paused")
        except ApiError as error:  # the kernel did not manage to: then it runs on
            self.assertEqual(error.code, "timeout")
            self.assertEqual(self.state(box), "running")
        self.api.delete(self.path(box))

    # Limits.

    def test_limits_of_one_that_runs_is_paused_is_stopped(self):
        box = self.sandbox(memory_mb=128, cpu=1)
        self.api.call("PATCH", self.path(box), {"memory_mb": 256, "cpu": 0.5, "pids": 100})
        record = self.api.get(self.path(box))
        self.assertEqual((record["memory_mb"], record["cpu"], record["limits"]["pids"]["value"]), (256, 0.5, 100))
        # More than it had, less than it has.
        self.api.sh(box, "python3 -c 'bytearray(180000000)'")
        # Too little for what it holds: refused, and all is as before.
        self.api.post(self.path(box, "/exec"), {"background": True, "cmd":
                      "python3 -c 'x = bytearray(60000000); print(1, flush=True); import time; time.sleep(600)'"})
        wait_until(lambda: self.api.get(self.path(box, "/metrics"))["memory_bytes"] > 60000000, what="its memory")
        error = self.refused(422, "limit.exceeded", self.api.call, "PATCH", self.path(box),
                             {"memory_mb": 32, "cpu": 2})
        self.assertIn("uses more", str(error))
        record = self.api.get(self.path(box))
        self.assertEqual((record["memory_mb"], record["cpu"]), (256, 0.5))
        self.pause(box)
        self.api.call("PATCH", self.path(box), {"memory_mb": 192})
        self.assertEqual(self.state(box), "paused")
        self.api.post(self.path(box, "/stop"))
        self.api.call("PATCH", self.path(box), {"memory_mb": 64})
        self.api.post(self.path(box, "/start"))
        self.assertEqual(self.api.get(self.path(box))["memory_mb"], 64)
        self.assertEqual(self.limit_of(box), 64 * MIB)

    def limit_of(self, box):
        """What a sandbox believes is what the init reads of its cgroup."""
        return self.api.get(self.path(box, "/metrics"))["memory_limit_bytes"]


class Clocks(DaemonTest):
    config = "[sandbox]\nauto_pause_seconds = 1\n"

    @column_independent
    def test_who_is_idle_is_paused(self):
        """One that says nothing, one whose idle time would end it, one that works, one that is watched."""
        busy, watched = self.sandbox(), self.sandbox()

        def state(box):
            return self.api.get("/v1/sandboxes/" + box)["status"]
        response, connection = self.api.raw("GET", f"/v1/sandboxes/{watched}/files/watch?path=/workspace", checked=False)
        response.readline()
        self.api.post(f"/v1/sandboxes/{busy}/exec", {"cmd": "sleep 600", "background": True})
        # They are idle for less long than the two above were: when they are paused, those would have been.
        plain, persistent = self.sandbox(), self.sandbox(idle_timeout_seconds=1, persistent=True, auto_pause_seconds=60)
        for box in (plain, persistent):
            wait_until(lambda: state(box) == "paused", what="its pause")
        self.assertEqual([state(box) for box in (busy, watched)], ["running", "running"])
        connection.close()
        response.close()
        wait_until(lambda: state(watched) == "paused", what="its pause")
        self.assertEqual(self.api.sh(plain, "echo awake"), "awake\n")
        # It would not stay awake for long without something to do.
        self.api.post(f"/v1/sandboxes/{plain}/exec", {"cmd": "sleep 600", "background": True})
        wait_until(lambda: state(plain) == "running", what="its going on")
        self.assertEqual([state(box) for box in (persistent, plain, busy)], ["paused", "running", "running"])


class Restarts(unittest.TestCase):
    """With a daemon of its own, which is killed."""

    def test_the_pause_survives(self):
        """Its clocks too: tests/fault/test_clocks.py."""
        with Daemon() as daemon:
            api = daemon.client()
            box = api.create()["id"]
            self.assertEqual(api.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
            daemon.kill_daemon()
            self.assertEqual(api.get(f"/v1/sandboxes/{box}")["status"], "paused")
            daemon.kill()
            daemon.start()
            self.assertEqual(api.get(f"/v1/sandboxes/{box}")["status"], "paused")
            self.assertEqual(api.sh(box, "echo on"), "on\n")
