"""kill -9 of a sandbox's PID 1 from outside, whatever it is doing: its processes, mounts, cgroups, namespaces and its
loop device are gone, its files are kept, others do not notice; and after a delete nothing is left but a tombstone."""
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from caisson import ApiError, DaemonTest, own, wait_until
from explain import prepared_of, wait_explained


class InitKilled(DaemonTest):
    def setUp(self):
        self.other = self.sandbox()
        self.api.sh(self.other, "echo other > /workspace/x")

    def explained(self):
        wait_explained(self.daemon)

    def kill_init(self, box):
        record = open(os.path.join(self.daemon.runtime, "guests", box, "boot")).read()
        os.kill(int(record.split("pid ")[1].split()[0]), signal.SIGKILL)

    def stopped(self, box):
        wait_until(lambda: self.api.get("/v1/sandboxes/" + box)["status"] == "stopped", 10, what="its end")
        self.explained()
        self.assertEqual(self.api.sh(self.other, "cat /workspace/x"), "other\n")

    def starts_again(self, box, kept="kept\n"):
        self.api.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(self.api.sh(box, "cat /workspace/x"), kept)
        self.tombstone(box)

    def tombstone(self, box):
        self.api.delete("/v1/sandboxes/" + box)
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["status"], "ended")
        self.explained()

    def made(self, **fields):
        box = self.sandbox(**fields)
        self.api.sh(box, "echo kept > /workspace/x; sleep 1000 & setsid sleep 1000 &")
        return box

    def test_idle(self):
        box = self.made()
        self.kill_init(box)
        self.stopped(box)
        self.starts_again(box)

    def test_during_an_exec(self):
        """Who waits for the command is told; what it printed is kept."""
        box, answer = self.made(), {}

        def run():
            try:
                answer["result"] = self.api.exec(box, "echo printed; sleep 1000")
            except ApiError as error:
                answer["error"] = error
        client = threading.Thread(target=run, daemon=True)
        client.start()

        def printed():
            execs = self.api.get(f"/v1/sandboxes/{box}/execs")["execs"]
            return next((record for record in execs if "printed" in record["command"] and record["stdout_bytes"] > 0), None)
        record = wait_until(printed, 10)
        self.kill_init(box)
        client.join(15)
        self.assertFalse(client.is_alive(), "the client was left waiting")
        if "result" in answer:
            self.assertTrue(answer["result"]["lost"], answer)
        else:
            self.assertTrue(answer["error"].code, answer)
        self.stopped(box)
        path = f"/v1/sandboxes/{box}/execs/{record['exec_id']}"
        self.assertTrue(self.api.get(path)["lost"])
        self.assertEqual(self.api.get(path + "/output", stream="stdout"), b"printed\n")
        self.starts_again(box)

    def test_paused(self):
        box = self.made()
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.kill_init(box)
        self.stopped(box)
        self.starts_again(box)

    def test_while_it_is_paused_resumed_and_stopped(self):
        for what in ("pause", "resume", "stop"):
            with self.subTest(what=what):
                box = self.made()
                if what == "resume":
                    self.api.post(f"/v1/sandboxes/{box}/pause")
                client = threading.Thread(target=lambda: self.refused_or_done(box, what), daemon=True)
                client.start()
                self.kill_init(box)
                client.join(15)
                self.assertFalse(client.is_alive(), "the client was left waiting")
                self.stopped(box)
                self.starts_again(box)

    def refused_or_done(self, box, what):
        try:
            self.api.post(f"/v1/sandboxes/{box}/{what}")
        except ApiError as error:
            self.assertTrue(error.code, error)

    def test_during_file_operations(self):
        box = self.made()
        self.api.write(box, "/workspace/x", b"kept\n")
        outcome = []
        client = threading.Thread(target=lambda: outcome.append(self.write_slowly(box)), daemon=True)
        client.start()
        time.sleep(0.3)
        self.kill_init(box)
        client.join(20)
        self.assertFalse(client.is_alive(), "the client was left waiting")
        self.assertNotEqual(outcome, ["done"])
        self.stopped(box)
        self.starts_again(box)

    def write_slowly(self, box):
        """A file whose contents take seconds to come."""
        def body():
            for _ in range(500):
                yield b"x" * 50_000
                time.sleep(0.01)
        try:
            self.api.call("PUT", f"/v1/sandboxes/{box}/files?path=/workspace/big", body(), {"Transfer-Encoding": "chunked"})
        except ApiError as error:
            return error.code
        except OSError:
            return "closed"
        return "done"

    def test_with_folders(self):
        """The folders of the user's are untouched, and are given to it again when it starts."""
        for mode in ("ro", "rw", "cow"):
            with self.subTest(mode=mode), tempfile.TemporaryDirectory() as folder:
                own(folder)
                os.chmod(folder, 0o755)
                with open(os.path.join(folder, "mine"), "w") as file:
                    file.write("mine\n")
                own(os.path.join(folder, "mine"))
                code, out, err = self.daemon.cli("create", "-v", f"{folder}:/data:{mode}")
                self.assertEqual(code, 0, err)
                box = out.split()[0]
                self.api.sh(box, "echo kept > /workspace/x; cd /data && sleep 1000 &")
                self.kill_init(box)
                self.stopped(box)
                mounts = subprocess.run(["grep", "-c", folder, "/proc/self/mountinfo"], capture_output=True, text=True)
                self.assertEqual(mounts.stdout, "0\n")
                self.assertEqual(open(os.path.join(folder, "mine")).read(), "mine\n")
                self.api.post(f"/v1/sandboxes/{box}/start")
                self.assertEqual(self.api.sh(box, "cat /data/mine /workspace/x"), "mine\nkept\n")
                self.tombstone(box)

    def test_of_a_member_of_the_pool(self):
        """Nobody's yet: another takes its place, and nothing of it stays."""
        member = wait_until(lambda: next(iter(prepared_of(self.daemon.state)), None), 10, what="a pool")
        wait_until(lambda: os.path.exists(os.path.join(self.daemon.runtime, "guests", member, "boot")), 10)
        self.kill_init(member)
        wait_until(lambda: member not in prepared_of(self.daemon.state), 10, what="the end of a member of the pool")
        box = self.sandbox()
        self.assertEqual(self.api.sh(box, "echo 1"), "1\n")
        self.explained()


if __name__ == "__main__":
    unittest.main()
