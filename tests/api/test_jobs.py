"""Jobs: commands in the background, which outlive their request, their client and the daemon."""
import time
import unittest

from caisson import ApiError, Background, Daemon, DaemonTest, wait_until
from marks import long


class Jobs(DaemonTest):
    box_fields = {"timeout_seconds": 600}

    def job(self, command, **fields):
        record = self.api.post(self.path("/jobs"), {"cmd": command, **fields})
        self.assertIn(record["state"], ("starting", "running"))
        return record["exec_id"]

    def record(self, job):
        return self.api.get(self.path("/jobs/" + job))

    def ended(self, job):
        return wait_until(lambda: self.record(job)["state"] in ("ended", "failed") and self.record(job), what="its end")

    def output(self, job, **query):
        return self.api.get(self.path(f"/jobs/{job}/output"), **query)

    def test_begin_look_end(self):
        job = self.job("echo hello; read line; echo $line; exit 5", stdin=True)
        wait_until(lambda: self.output(job) == b"hello\n")
        # What it prints is in its log before the init's word that it runs.
        wait_until(lambda: self.record(job)["state"] == "running", what="its start")
        self.assertEqual(self.api.call("POST", self.path(f"/jobs/{job}/stdin"), b"word\n"), {"written": 5, "closed": False})
        record = self.ended(job)
        self.assertEqual((record["exit_code"], record["timed_out"], record["stdout_bytes"]), (5, False, 11))
        self.assertEqual(self.output(job, **{"from": 6}), b"word\n")
        # The same thing under its other name.
        self.assertEqual(self.api.get(self.path("/execs/" + job)), record)

    def test_several_at_once(self):
        jobs = [self.job(f"echo {i}; exec sleep 613") for i in range(10)]
        for i, job in enumerate(jobs):
            wait_until(lambda: self.output(job) == f"{i}\n".encode())
        running = {job["exec_id"] for job in self.api.get(self.path("/jobs"), state="running")["jobs"]}
        self.assertTrue(set(jobs) <= running)
        for job in jobs:
            self.api.delete(self.path("/jobs/" + job))
        for job in jobs:
            self.assertTrue(self.ended(job)["cancelled"])

    def test_list_in_pages(self):
        jobs = [self.job(f"exit {i}") for i in range(7)]
        for job in jobs:
            self.ended(job)
        seen, cursor = [], {}
        while True:
            page = self.api.get(self.path("/jobs"), limit=3, state="ended", **cursor)
            seen += [job["exec_id"] for job in page["jobs"]]
            self.assertEqual(page["truncated"], page["next_cursor"] is not None)
            if not page["next_cursor"]:
                break
            self.assertEqual(len(page["jobs"]), 3)
            cursor = {"cursor": page["next_cursor"]}
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual([job for job in seen if job in jobs], jobs[::-1])
        failed = self.api.post(self.path("/jobs"), {"argv": ["/no/such"]})["exec_id"]
        self.assertEqual(self.ended(failed)["failure"]["code"], "exec.program_not_found")
        self.assertIn(failed, [job["exec_id"] for job in self.api.get(self.path("/jobs"), state="failed")["jobs"]])
        self.refused(400, "request.invalid", self.api.get, self.path("/jobs"), state="odd")
        self.refused(400, "request.invalid", self.api.get, self.path("/jobs"), cursor="odd")
        self.refused(410, "cursor.gone", self.api.get, self.path("/jobs"), cursor="a" * 16)

    def test_signals_before_the_start(self):
        # Some of them are `starting` when the signal comes; wherever they are, none is lost.
        for i in range(20):
            job = self.job(["sleep", "613"])
            record = self.api.post(self.path(f"/jobs/{job}/signal"), {"signal": ("TERM", "KILL")[i % 2], "tree": i % 4 == 0})
            self.assertIn(record["state"], ("starting", "running"))
            record = self.ended(job)
            self.assertEqual((record["signal"], record["exit_code"]), ((15, 143), (9, 137))[i % 2])

    def test_signal_and_resize(self):
        job = self.job("trap 'stty size; exit 0' USR1; echo ready; while :; do sleep 0.05; done", tty=True, rows=20, cols=60)
        wait_until(lambda: b"ready" in self.output(job))
        record = self.api.post(self.path(f"/jobs/{job}/resize"), {"rows": 33, "cols": 77})
        self.assertEqual(record["exec_id"], job)
        self.assertEqual(self.api.post(self.path(f"/execs/{job}/resize"), {"rows": 33, "cols": 77})["exec_id"], job)
        self.api.post(self.path(f"/jobs/{job}/signal"), {"signal": "USR1"})
        self.assertEqual(self.ended(job)["exit_code"], 0)
        self.assertIn(b"33 77", self.output(job))
        self.refused(409, "sandbox.wrong_state", self.api.post, self.path(f"/jobs/{job}/resize"), {"rows": 1, "cols": 1})
        plain = self.job("sleep 614")
        self.refused(400, "request.invalid", self.api.post, self.path(f"/jobs/{plain}/resize"), {"rows": 1, "cols": 1})
        self.refused(400, "request.invalid", self.api.post, self.path(f"/jobs/{plain}/resize"), {"rows": 0, "cols": 1})
        self.refused(400, "request.invalid", self.api.post, self.path(f"/jobs/{plain}/signal"), {"signal": "NONE"})
        self.api.delete(self.path("/jobs/" + plain))

    def test_waiting_for_output(self):
        job = self.job("read x; echo late; sleep 615", stdin=True)
        # Nothing comes: an empty answer when the time is over.
        self.assertEqual(self.output(job, wait_ms=50), b"")
        began = time.monotonic()
        reading = Background(self.output, job, wait_ms=30000)
        self.api.call("POST", self.path(f"/jobs/{job}/stdin"), b"\n")
        self.assertEqual(reading.result(), b"late\n")
        self.assertLess(time.monotonic() - began, 25)
        # Its end ends the wait.
        reading = Background(self.output, job, wait_ms=30000, **{"from": 5})
        self.api.delete(self.path("/jobs/" + job))
        self.assertEqual(reading.result(), b"")
        self.refused(400, "request.invalid", self.output, job, wait_ms=60001)

    def test_forgetting(self):
        job = self.job("echo kept")
        self.ended(job)
        self.api.delete(self.path("/jobs/" + job))
        self.refused(404, "exec.not_found", self.api.get, self.path("/jobs/" + job))
        self.refused(404, "exec.not_found", self.output, job)
        self.refused(404, "exec.not_found", self.api.delete, self.path("/jobs/" + job))
        # One that runs is killed and kept, or killed and forgotten.
        job = self.job("sleep 616")
        self.api.delete(self.path("/jobs/" + job))
        self.assertTrue(self.ended(job)["cancelled"])
        job = self.job("sleep 617")
        self.api.delete(self.path("/jobs/" + job), purge=1)

        def forgotten():
            try:
                return self.record(job) is None
            except ApiError as error:
                return error.status == 404
        wait_until(forgotten, what="its record's end")

    def test_of_another_workspace(self):
        job = self.job("sleep 618", stdin=True, tty=True)
        stranger = self.daemon.tcp(self.daemon.token("elsewhere"))
        for method, rest, body in (("GET", "/jobs", None), ("GET", f"/jobs/{job}", None), ("GET", f"/jobs/{job}/output", None),
                                   ("POST", f"/jobs/{job}/signal", {"signal": 9}), ("POST", f"/jobs/{job}/stdin", b"x"),
                                   ("POST", f"/jobs/{job}/resize", {"rows": 1, "cols": 1}), ("DELETE", f"/jobs/{job}", None),
                                   ("POST", "/jobs", {"cmd": "true"}), ("GET", "/logs", None), ("GET", f"/jobs/{job}/tty", None)):
            self.refused(404, "sandbox.not_found", stranger.call, method, self.path(rest), body)
        # Another sandbox of ours knows nothing of it either.
        other = self.sandbox()
        self.refused(404, "exec.not_found", self.api.get, f"/v1/sandboxes/{other}/jobs/{job}")
        wait_until(lambda: self.record(job)["state"] == "running", what="the init's word that it has started")
        self.api.delete(self.path("/jobs/" + job))

    def test_what_is_refused(self):
        self.refused(400, "request.invalid", self.api.post, self.path("/jobs"), {})
        self.refused(400, "request.invalid", self.api.post, self.path("/jobs"), {"cmd": "true", "unknown": 1})
        self.refused(400, "id.malformed", self.api.get, self.path("/jobs/nothing"))
        self.refused(404, "exec.not_found", self.api.get, self.path("/jobs/" + "a" * 16))
        self.refused(405, "route.method_not_allowed", self.api.call, "PUT", self.path("/jobs"), {})


class Restart(unittest.TestCase):
    @long
    def test_a_job_outlives_the_daemon(self):
        with Daemon() as daemon:
            api = daemon.client()
            box = api.create(timeout_seconds=600)["id"]
            path = f"/v1/sandboxes/{box}/jobs"
            job = api.post(path, {"cmd": "echo before; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo after"})["exec_id"]
            timed = api.post(path, {"cmd": "echo timed; sleep 619", "timeout_seconds": 5})["exec_id"]
            wait_until(lambda: api.get(f"{path}/{job}/output") == b"before\n")
            wait_until(lambda: api.get(f"{path}/{timed}/output") == b"timed\n")
            daemon.kill()
            daemon.start()
            api = daemon.client()
            self.assertIn(api.get(f"{path}/{job}")["state"], ("starting", "running"))
            api.sh(box, "touch /tmp/go")
            record = wait_until(lambda: api.get(f"{path}/{job}")["state"] == "ended" and api.get(f"{path}/{job}"), what="its end")
            self.assertEqual(record["exit_code"], 0)
            self.assertEqual(api.get(f"{path}/{job}/output"), b"before\nafter\n")
            record = wait_until(lambda: api.get(f"{path}/{timed}")["state"] == "ended" and api.get(f"{path}/{timed}"), 30, what="the time-out")
            self.assertTrue(record["timed_out"])
            lines = [line["line"] for line in api.get(f"/v1/sandboxes/{box}/logs")["lines"]]
            self.assertEqual(lines, ["before", "after", "timed"])


if __name__ == "__main__":
    unittest.main()
