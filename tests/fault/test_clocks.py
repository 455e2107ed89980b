"""Times that the daemon keeps: its clocks are moved to shortly before one, and over it. Of each mechanism there is a test
elsewhere that waits for real time (docs/testing.md)."""
import os
import signal
import unittest

from caisson import ApiError, Background, is_closed, wait_until
from faults import ClockTest, use_fault_build

use_fault_build()
RUNS_ON = "fault"

OVERDUE_GRACE = 5  # of src/core/core_private.h


class Sandboxes(ClockTest):
    def test_absolute_timeout(self):
        box = self.sandbox(timeout_seconds=600)
        self.faults.advance(590)
        self.assertLessEqual(self.api.exec(box, "echo $$")["expires_in_s"], 10)
        self.faults.advance(10)
        self.assertEqual(self.ended(box), "timeout")
        error = self.refused(410, "sandbox.ended", self.api.exec, box, "true")
        self.assertIn("time", error.body["error"])

    def test_idle_timeout(self):
        box = self.sandbox(timeout_seconds=0, idle_timeout_seconds=600)
        busy = self.api.exec(box, "while [ ! -e /tmp/go ]; do sleep 0.05; done", background=True, timeout_seconds=3600)["exec_id"]
        self.faults.advance(700)
        self.assertEqual(self.status(box), "running")  # busy is not idle
        self.api.write(box, "/tmp/go", b"")
        wait_until(lambda: self.api.get(f"/v1/sandboxes/{box}/execs/{busy}")["state"] == "ended", what="the command's end")
        self.faults.advance(500)
        self.assertEqual(self.status(box), "running")
        self.faults.advance(100)
        self.assertEqual(self.ended(box), "idle")

    def test_idle_contexts_are_no_activity(self):
        box = self.sandbox(timeout_seconds=0, idle_timeout_seconds=600)
        self.api.post(f"/v1/sandboxes/{box}/contexts", {"language": "bash"})
        self.faults.advance(500)
        self.assertEqual(self.status(box), "running")
        self.faults.advance(100)
        self.assertEqual(self.ended(box), "idle")

    def paused(self, **fields):
        box = self.sandbox(**fields)
        self.assertEqual(self.api.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
        return box

    def test_both_clocks_survive_a_pause_and_restarts(self):
        timed, idle = self.paused(timeout_seconds=800), self.paused(timeout_seconds=0, idle_timeout_seconds=600)
        self.daemon.kill_daemon()
        self.daemon.kill()
        self.daemon.start()
        self.faults.advance(900)
        for box in (timed, idle):
            self.assertEqual(self.status(box), "paused")
        for box in (timed, idle):
            self.assertEqual(self.api.sh(box, "echo on"), "on\n")
        self.faults.advance(500)
        for box in (timed, idle):
            self.assertEqual(self.status(box), "running")
        self.faults.advance(100)
        self.assertEqual(self.ended(idle), "idle")
        self.assertEqual(self.status(timed), "running")
        self.faults.advance(200)
        self.assertEqual(self.ended(timed), "timeout")

    def test_paused_outlives_its_timeout_however_it_ends(self):
        stopped, rebooted = self.paused(timeout_seconds=600), self.paused(timeout_seconds=600)
        self.faults.advance(700)
        self.api.post(f"/v1/sandboxes/{stopped}/stop")
        self.assertEqual(self.status(stopped), "stopped")
        self.daemon.kill()
        self.daemon.kill_inits()
        self.daemon.start()
        # Its killed processes may still be leaving the freezer: until then it is there.
        wait_until(lambda: self.status(rebooted) == "stopped")
        for box in (stopped, rebooted):
            self.api.post(f"/v1/sandboxes/{box}/start")
            self.assertEqual(self.api.sh(box, "echo alive"), "alive\n")

    def test_an_init_that_does_not_keep_the_time(self):
        """Who waits for a command is answered a moment after its time-out; an init that goes on is kept."""
        box = self.sandbox(timeout_seconds=0)
        init = self.daemon.init_of(box)
        command = Background(self.daemon.client(timeout=60).exec, box, "echo said; sleep 1000", timeout_seconds=5)
        path = f"/v1/sandboxes/{box}/execs"
        wait_until(lambda: any(record["stdout_bytes"] for record in self.api.get(path)["execs"]), 5, what="its output")
        os.kill(init, signal.SIGSTOP)
        try:
            self.faults.advance(5)
            self.assertTrue(command.is_alive())  # the init may say so still
            self.faults.advance(OVERDUE_GRACE)
            done = command.result()
        finally:
            os.kill(init, signal.SIGCONT)
        self.assertEqual((done["timed_out"], done["exit_code"], done["stdout"]), (True, 124, "said\n"), done)
        # It ends the command by its own clock, which nobody moves.
        wait_until(lambda: self.api.sh(box, "pgrep -c sleep || true") == "0\n", what="the command's end")
        self.assertEqual(self.status(box), "running")


class Code(ClockTest):
    def test_one_that_does_not_listen(self):
        box = self.sandbox(timeout_seconds=0)
        context = f"/v1/sandboxes/{box}/contexts/" + self.api.post(f"/v1/sandboxes/{box}/contexts", {"language": "python"})["id"]

        def run_cell(code):
            return self.api.post(context + "/run", {"code": code, "timeout_seconds": 600})
        waiting = Background(run_cell, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: pass")
        wait_until(lambda: [line["line"] for line in self.api.get(f"/v1/sandboxes/{box}/logs")["lines"]] == ["deaf"], what="its output")
        queued = Background(run_cell, "1")
        wait_until(lambda: self.api.get(context)["waiting"] == 1)
        self.faults.advance(500)
        self.assertEqual(self.api.get(context)["state"], "busy")
        # It is interrupted; then all that it has begun; then it is ended.
        for seconds in (100, 0.5, 2):
            self.faults.advance(seconds)
        result = waiting.result()
        self.assertEqual((result["timed_out"], result["context_ended"], result["stdout"]), (True, True, "deaf\n"))
        self.refused(410, "context.ended", queued.result)
        self.assertEqual(self.api.get(context)["state"], "ended")
        restarted = self.api.post(context + "/restart")
        self.assertEqual((restarted["state"], restarted["ended_reason"]), ("idle", None))
        self.assertEqual(run_cell("print(2)")["stdout"], "2\n")


class Tokens(ClockTest):
    def test_an_expired_token(self):
        client = self.daemon.tcp(self.daemon.token(expires_seconds=600))
        client.get("/v1/sandboxes")
        self.faults.advance(500)
        client.get("/v1/sandboxes")
        self.faults.advance(100)
        self.refused(401, "auth.required", client.get, "/v1/sandboxes")

    def sign(self, client, box, **fields):
        return client.post(f"/v1/sandboxes/{box}/files/sign", {"path": "/workspace/signed", **fields})["url"]

    def use(self, url):
        return self.daemon.tcp().call("GET", url[url.index("/v1/"):])

    def test_a_signed_url_ends_with_its_token(self):
        box = self.sandbox(timeout_seconds=0)
        self.api.write(box, "/workspace/signed", b"1")
        url = self.sign(self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"], expires_seconds=600)), box, expires_seconds=3600)
        self.faults.advance(500)
        self.assertEqual(self.use(url), b"1")
        self.faults.advance(100)
        self.refused(403, "url.invalid", self.use, url)

    def test_an_upload_ends_with_its_signed_url(self):
        box = self.sandbox(timeout_seconds=0)
        tcp = self.daemon.tcp(self.daemon.token())
        cut = self.begin_upload(self.sign(tcp, box, method="PUT", path="/workspace/cut", expires_seconds=100))
        other = self.begin_upload(self.sign(tcp, box, method="PUT", path="/workspace/whole", expires_seconds=3600))
        # A body may pause for 30 s.
        for _ in range(5):
            self.faults.advance(20)
            for upload in (cut, other):
                try:
                    upload.sendall(b"x")
                except OSError:
                    pass  # the last time
        self.assertTrue(is_closed(cut))
        other.sendall(b"x" * (99000 - 5))
        self.assertIn(b"HTTP/1.1 200", other.recv(100))
        with self.assertRaises(ApiError):
            self.api.read(box, "/workspace/cut")


if __name__ == "__main__":
    unittest.main()
