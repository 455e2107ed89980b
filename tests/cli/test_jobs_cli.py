"""`caisson jobs`, `attach`, `logs` and `exec -d`: commands that outlive the command line that began them."""
import json
import os
import select
import subprocess
import time
import unittest

from caisson import PROGRAM, DaemonTest, wait_until


class Jobs(DaemonTest):
    def setUp(self):
        self.box = self.sandbox(timeout_seconds=600)

    def good(self, *arguments, **fields):
        code, out, err = self.daemon.cli(*arguments, **fields)
        self.assertEqual(code, 0, err)
        return out

    def test_list_kill_and_forget(self):
        job = self.good("exec", "-d", self.box, "--", "sleep", "630").strip()
        self.assertIn(job, self.good("jobs", "--state", "running", self.box))
        self.assertIn("sleep 630", self.good("jobs", self.box))
        self.good("jobs", "--kill", job, self.box)
        wait_until(lambda: "SIGKILL" in self.good("jobs", "-s", "ended", self.box), what="its end")
        records = json.loads(self.good("jobs", "--json", self.box))
        self.assertEqual([(record["exec_id"], record["state"]) for record in records], [(job, "ended")])
        self.good("jobs", "--rm", job, self.box)
        self.assertEqual(json.loads(self.good("jobs", "--json", self.box)), [])
        code, _, err = self.daemon.cli("jobs", "--rm", job, self.box)
        self.assertNotEqual(code, 0)
        self.assertIn("no exec", err)
        self.assertNotEqual(self.daemon.cli("jobs", "--state", "odd", self.box)[0], 0)

    def test_logs_by_line(self):
        self.good("exec", self.box, "--", "sh", "-c", "echo one; echo two >&2")
        self.good("exec", self.box, "--", "echo", "three")
        self.assertEqual(self.good("logs", "--all", self.box), "one\ntwo\nthree\n")
        self.assertEqual(self.good("logs", "-n", "1", self.box), "three\n")
        self.assertEqual(self.good("logs", "--source", "stderr", self.box), "two\n")
        self.assertEqual(self.good("logs", "-g", "t", "--source", "stdout", self.box), "three\n")
        self.assertEqual(self.good("logs", "--since", "1h", "--until", "0s", self.box), "one\ntwo\nthree\n")
        said = [json.loads(line)["line"] for line in self.good("logs", "--json", "--source", "exec", self.box).splitlines()]
        self.assertEqual(said[-1], "ended: exit code 0")
        self.assertEqual(self.good("logs", self.box), "three\n")
        code, _, err = self.daemon.cli("logs", "-n", "1", "--from", "5", self.box)
        self.assertNotEqual(code, 0)
        self.assertIn("--source", err)

    def test_logs_follow(self):
        process = subprocess.Popen([PROGRAM, "logs", "-n", "0", "-f", self.box], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **self.daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0"},
                                   **self.daemon.identity())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        # Until it follows, a line may be before it.
        def line():
            self.api.exec(self.box, "echo live")
            return select.select([process.stdout], [], [], 0.2)[0]
        wait_until(line, 30, what="a line")
        self.assertEqual(process.stdout.readline(), "live\n")
        self.api.delete("/v1/sandboxes/" + self.box)
        process.stdout.read()
        self.assertEqual(process.wait(30), 0)

    def test_attach(self):
        job = self.good("exec", "-d", "--tty", self.box, "--", "sh", "-c", "echo ready; read x; echo got $x; exit 6").strip()
        wait_until(lambda: b"ready" in self.api.get(f"/v1/sandboxes/{self.box}/jobs/{job}/output"), what="ready")
        code, out, err = self.daemon.cli("attach", self.box, stdin="word\n")
        self.assertEqual(code, 6, err)
        self.assertIn("ready", out)
        self.assertIn("got word", out)
        code, _, err = self.daemon.cli("attach", self.box)
        self.assertNotEqual(code, 0)
        self.assertIn("no command with a terminal runs", err)

    def terminal(self, *arguments):
        """A command line on a terminal: the process and our end of the terminal."""
        ours, theirs = os.openpty()
        process = subprocess.Popen([PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
                                   env={**os.environ, **self.daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0"},
                                   **self.daemon.identity())
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, ours

    def see(self, ours, word, times=1):
        seen, end = b"", time.monotonic() + 30
        while seen.count(word) < times and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 4096)
        self.assertGreaterEqual(seen.count(word), times, seen)

    def leave(self, process, ours):
        """Types into `cat`, which says it again, and leaves it; what is said of that."""
        os.write(ours, b"typed\r")
        self.see(ours, b"typed", 2)
        os.write(ours, b"\x1d")
        self.assertEqual(process.wait(30), 0)
        said = process.stderr.read().decode()
        self.assertIn("keeps running", said)
        return said

    def running(self, box):
        return [job["exec_id"] for job in self.api.get(f"/v1/sandboxes/{box}/jobs?state=running")["jobs"]]

    def test_leaving_a_terminal(self):
        job = self.good("exec", "-d", "--tty", self.box, "--", "cat").strip()
        self.leave(*self.terminal("attach", self.box, job))
        self.assertEqual(self.running(self.box), [job])

    def test_leaving_what_one_began(self):
        """The same key in exec, shell and run; each comes back with attach."""
        said = self.leave(*self.terminal("exec", self.box, "--", "cat"))
        job = self.running(self.box)[0]
        self.assertIn(f"caisson attach {self.box} {job}", said)
        self.leave(*self.terminal("attach", self.box, job))
        self.assertEqual(self.running(self.box), [job])
        process, ours = self.terminal("shell", self.box)
        os.write(ours, b"exec cat\r")
        self.see(ours, b"exec cat")
        self.leave(process, ours)
        self.assertEqual(len(self.running(self.box)), 2)
        for verb in ("attach", "exec", "shell", "run"):
            self.assertIn("On a terminal Ctrl-] detaches from the command; `caisson attach` attaches again.", self.good(verb, "--help"))

    def test_leaving_a_fresh_sandbox(self):
        """It does not end with the client any more, and the command has a terminal still."""
        self.leave(*self.terminal("run", "--name", "left", "--", "cat"))
        self.addCleanup(self.daemon.cli, "rm", "-f", "left")
        self.assertNotIn("caisson.connection", self.api.get("/v1/sandboxes/left")["labels"])
        self.leave(*self.terminal("attach", "left"))
        self.assertEqual(len(self.running("left")), 1)

    def test_a_command_that_was_left_does_not_wait_for_a_reader(self):
        """Its output was lossless as long as somebody read it; more than is kept comes afterwards."""
        script = "until [ -e /workspace/go ]; do sleep 0.1; done; head -c 60000000 /dev/zero; touch /workspace/through; sleep 1000"
        process, ours = self.terminal("exec", self.box, "--", "sh", "-c", "echo ready; " + script)
        self.see(ours, b"ready")
        os.write(ours, b"\x1d")
        self.assertEqual(process.wait(30), 0)
        self.api.sh(self.box, "touch /workspace/go")
        wait_until(lambda: "through" in self.api.sh(self.box, "ls /workspace"), 60, what="all of its output")


if __name__ == "__main__":
    unittest.main()
