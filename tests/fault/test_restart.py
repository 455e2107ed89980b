"""Any process may die: what must go on does, what must not stay does not."""
import os
import shutil
import signal
import subprocess
import time
import unittest

from caisson import PROGRAM, ApiError, Background, OwnDaemons, inits_of, wait_until
from marks import busy, long

# In the background, and there when the shell ends.
SLEEP = "sleep 1000 & until pgrep -x sleep > /dev/null; do :; done"


def line(n):
    return b"%015d\n" % (n * 16)


class Restart(OwnDaemons):
    def test_daemon_killed_is_restarted_and_adopts(self):
        daemon = self.start_daemon()
        box = daemon.client().create(name="keeper")["id"]
        daemon.client().sh(box, "echo 1 > /workspace/x; " + SLEEP)
        daemon.kill_daemon()
        self.assertEqual(daemon.client().get("/v1/sandboxes/keeper")["status"], "running")
        self.assertEqual(daemon.client().sh(box, "cat /workspace/x; pgrep -c sleep"), "1\n1\n")

    def test_everything_killed_is_adopted_by_the_next(self):
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        daemon.client().sh(box, "echo 1 > /workspace/x; " + SLEEP)
        daemon.kill()
        daemon.start()
        self.assertEqual(daemon.client().sh(box, "cat /workspace/x; pgrep -c sleep"), "1\n1\n")

    def test_spawner_killed_while_a_command_runs(self):
        self.check_command_goes_on(lambda daemon: daemon.process.kill())

    @long
    def test_graceful_restart_while_a_command_runs(self):
        """It has three seconds to end; then it goes on without its client."""
        self.check_command_goes_on(lambda daemon: daemon.process.terminate())

    @long
    def test_graceful_restart_of_a_daemon_that_stood_still(self):
        """When it goes on, all its three seconds are over: whoever waits is told all the same."""
        def end(daemon):
            pid = daemon.daemon_pid()
            daemon.process.terminate()
            wait_until(lambda: "asked to end" in daemon.log(), what="its hearing of it")
            os.kill(pid, signal.SIGSTOP)
            time.sleep(3.2)  # the three seconds themselves
            os.kill(pid, signal.SIGCONT)
        self.check_command_goes_on(end)

    def check_command_goes_on(self, end):
        """Who waits for it is told that it goes on, and it does."""
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        command = Background(daemon.client().exec, box, "echo begun; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo ended")

        def begun():
            execs = daemon.client().get(f"/v1/sandboxes/{box}/execs")["execs"]
            return next((record for record in execs if record["stdout_bytes"] > 0), None)
        record = wait_until(begun, 30)
        end(daemon)
        with self.assertRaises(ApiError) as caught:
            command.result()
        daemon.process.wait(30)
        self.assertEqual((caught.exception.status, caught.exception.code, caught.exception.body["retryable"]),
                         (503, "daemon.restarting", False))
        daemon.start()
        path = f"/v1/sandboxes/{box}/execs/{record['exec_id']}"
        wait_until(lambda: daemon.client().get(path)["state"] == "running", 30, what="what the init tells of it")
        daemon.client().sh(box, "touch /tmp/go")
        wait_until(lambda: daemon.client().get(path)["state"] == "ended", 30, what="the end of the command")
        self.assertEqual(daemon.client().get(path)["exit_code"], 0)
        self.assertEqual(daemon.client().get(path + "/output", stream="stdout"), b"begun\nended\n")

    def test_graceful_restart_keeps_sandboxes(self):
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        daemon.client().sh(box, SLEEP)
        daemon.stop()
        daemon.start()
        self.assertEqual(daemon.client().sh(box, "pgrep -c sleep"), "1\n")

    @busy
    @long
    def test_daemon_away_until_a_process_has_printed(self):
        """100 MB printed while nobody listens: nothing stalls, every kept byte is at its offset."""
        daemon = self.start_daemon()
        box = daemon.client().create(memory_mb=256)["id"]
        lines = 100_000_000 // 16
        marker = f"printing.{os.getpid()}"
        script = f": {marker}; awk 'BEGIN {{ for (i = 0; i < {lines}; i++) printf(\"%015d\\n\", i * 16) }}'; date +%s > /workspace/done"
        answer = daemon.client().exec(box, script, background=True)
        path = f"/v1/sandboxes/{box}/execs/{answer['exec_id']}"
        # One that was not begun when the daemon dies has failed.
        wait_until(lambda: daemon.client().get(path)["state"] != "starting", what="its start")
        daemon.kill()
        wait_until(lambda: not subprocess.run(["pgrep", "-f", marker], capture_output=True).stdout, 120, what="the end of the printing")
        daemon.start()
        record = wait_until(lambda: (lambda r: r if r["state"] == "ended" else None)(daemon.client().get(path)), 120,
                            what="the end of the printing")
        self.assertEqual((record["exit_code"], record["stdout_bytes"]), (0, lines * 16))
        head = daemon.client().get(path + "/output", stream="stdout", **{"from": 0, "limit": 8 << 20})
        self.assertEqual(head, b"".join(line(n) for n in range(len(head) // 16)))
        tail_start = lines * 16 - (24 << 20)
        tail = daemon.client().get(path + "/output", stream="stdout", **{"from": tail_start})
        self.assertEqual(len(tail), 24 << 20)
        self.assertEqual(tail, b"".join(line(tail_start // 16 + n) for n in range(len(tail) // 16)))

    @long
    def test_timeouts_hold_without_a_daemon(self):
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create(timeout_seconds=7)["id"]
        client.exec(box, f"sleep 1000.{os.getpid()}", background=True)

        def runs():
            return subprocess.run(["pgrep", "-f", f"^sleep 1000[.]{os.getpid()}$"], capture_output=True).stdout
        wait_until(runs, 7, what="its command")
        daemon.kill()
        wait_until(lambda: not runs(), 20, what="the end of its processes")
        daemon.start()
        record = wait_until(lambda: (lambda r: r if r["status"] == "ended" else None)(
            daemon.client().get("/v1/sandboxes/" + box)), 30, what="the end of the sandbox")
        self.assertEqual(record["end"]["reason"], "timeout")

    def test_init_killed(self):
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create()["id"]
        client.sh(box, "echo kept > /workspace/x")
        answer = client.exec(box, "sleep 1000", background=True)
        self.assertTrue(inits_of(daemon.state))
        daemon.kill_inits()
        wait_until(lambda: client.get("/v1/sandboxes/" + box)["status"] == "stopped", 30)
        record = client.get(f"/v1/sandboxes/{box}/execs/{answer['exec_id']}")
        self.assertEqual(record["state"], "ended")
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")

    def test_init_killed_while_paused(self):
        """Frozen processes keep a killed PID 1 from ending: the rest is ended for it."""
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create()["id"]
        client.sh(box, "echo kept > /workspace/x; sync; sleep 1000 &")
        client.post(f"/v1/sandboxes/{box}/pause")
        daemon.kill_inits()
        wait_until(lambda: client.get("/v1/sandboxes/" + box)["status"] == "stopped", 30)
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")

    def test_host_reboot(self):
        """All processes gone, state kept: stopped with their files, and start again on demand."""
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        daemon.client().sh(box, "echo kept > /workspace/x; sync")
        daemon.kill()
        daemon.kill_inits()
        shutil.rmtree(daemon.runtime)
        daemon.start()
        # What was killed may still be ending: until then it is there.
        wait_until(lambda: daemon.client().get("/v1/sandboxes/" + box)["status"] == "stopped", 30, what="stopped")
        daemon.client().post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(daemon.client().sh(box, "cat /workspace/x"), "kept\n")

    def test_second_daemon_on_the_same_state(self):
        daemon = self.start_daemon()
        result = subprocess.run([PROGRAM, "serve", "--config", daemon.config, "--state", daemon.state, "--runtime", daemon.runtime + "2",
                                 "--listen", "none"], capture_output=True, text=True, timeout=30)
        self.assertEqual(result.returncode, 125, result.stderr)
        self.assertIn(str(daemon.process.pid), result.stderr)
        self.assertEqual(daemon.client().get("/healthz")["status"], "ok")

    def test_several_daemons_side_by_side(self):
        first, second = self.start_daemon(), self.start_daemon()
        one, two = first.client().create()["id"], second.client().create()["id"]
        self.assertEqual(first.client().sh(one, "echo 1"), "1\n")
        self.assertEqual(second.client().sh(two, "echo 2"), "2\n")
        with self.assertRaises(ApiError):
            first.client().get("/v1/sandboxes/" + two)
        # A command that nobody else on this host runs.
        seconds = f"1001.{os.getpid()}"
        for daemon, box in ((first, one), (second, two)):
            daemon.client().exec(box, ["sleep", seconds], background=True)

        def uids():
            found = []
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        if file.read() == b"sleep\0" + seconds.encode() + b"\0":
                            found.append(os.stat(f"/proc/{entry}").st_uid)
                except OSError:
                    continue
            return len(found) == 2 and found
        self.assertEqual(len(set(wait_until(uids, 30, what="both commands"))), 2, "each instance has uid ranges of its own")

    def test_corrupt_and_newer_databases_are_refused_untouched(self):
        for change, word in ((b"garbage" * 1000, "database"), (None, "9999")):
            daemon = self.start_daemon(check=False)  # it must not start again
            daemon.stop()
            path = os.path.join(daemon.state, "db", "caisson.db")
            if change:
                open(path, "wb").write(change)
            else:
                subprocess.run(["/usr/bin/python3", "-c", "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('pragma user_version=9999'); c.commit(); c.close()",
                                path], check=True)
            before, said = open(path, "rb").read(), len(daemon.log())
            daemon.start(wait=False)
            wait_until(lambda: word in daemon.log()[said:], 30, what=f"a word about the {word}")
            self.assertEqual(open(path, "rb").read(), before)
            daemon.process.kill()
            daemon.process.wait()


if __name__ == "__main__":
    unittest.main()
