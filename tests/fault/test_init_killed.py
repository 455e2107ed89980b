"""kill -9 of a sandbox's PID 1 from outside, whatever it is doing: its processes, mounts, cgroups, namespaces and its
loop device are gone, its files are kept, others do not notice; and after a delete nothing is left but a tombstone."""
import contextlib
import http.client
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from caisson import ApiError, Background, DaemonTest, own, wait_until
from explain import wait_explained


class InitKilled(DaemonTest):
    def setUp(self):
        self.other = self.sandbox()
        self.api.sh(self.other, "echo other > /workspace/x")

    def explained(self):
        wait_explained(self.daemon)

    def kill_init(self, box):
        os.kill(self.daemon.init_of(box), signal.SIGKILL)

    def stopped(self, box):
        wait_until(lambda: self.api.get("/v1/sandboxes/" + box)["status"] == "stopped", 30, what="its end")
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
        box = self.made()
        command = Background(self.api.exec, box, "echo printed; sleep 1000")

        def printed():
            execs = self.api.get(f"/v1/sandboxes/{box}/execs")["execs"]
            return next((record for record in execs if "printed" in record["command"] and record["stdout_bytes"] > 0), None)
        record = wait_until(printed, 30)
        self.kill_init(box)
        if command.failure():
            self.assertTrue(command.error.code, command.error)
        else:
            self.assertTrue(command.answer["lost"], command.answer)
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
                init = os.pidfd_open(self.daemon.init_of(box))
                self.addCleanup(os.close, init)
                call = Background(self.api.post, f"/v1/sandboxes/{box}/{what}")
                with contextlib.suppress(ProcessLookupError):  # a stop may have been faster
                    signal.pidfd_send_signal(init, signal.SIGKILL)
                self.assertTrue(call.failure() is None or getattr(call.error, "code", None), call.error)
                self.stopped(box)
                self.starts_again(box)

    def test_during_file_operations(self):
        box = self.made()
        self.api.write(box, "/workspace/x", b"kept\n")
        under_way = threading.Event()
        writing = Background(self.write_slowly, box, under_way)
        self.assertTrue(under_way.wait(30), writing.answer or writing.error)
        self.kill_init(box)
        self.assertNotIn(writing.result(), ("done", "request.malformed"))
        self.stopped(box)
        self.starts_again(box)

    def write_slowly(self, box, under_way):
        """A file whose contents take seconds to come; more has been taken of it than sockets hold when it is under way."""
        def body():
            for number in range(1000):
                yield b"x" * 50_000
                time.sleep(0.01)
                if number == 30:
                    under_way.set()
        try:
            # In chunks, which http.client makes of it unless a header says that they are made.
            self.api.call("PUT", f"/v1/sandboxes/{box}/files?path=/workspace/big", body())
        except ApiError as error:
            return error.code
        except (OSError, http.client.HTTPException):
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
        def killed():
            """One whose init is there: the pool shrinks too, when little is asked for."""
            for member in self.daemon.pooled():
                with contextlib.suppress(OSError, IndexError):
                    self.kill_init(member)
                    return member
            return None
        member = wait_until(killed, 30, what="a pool")
        wait_until(lambda: member not in self.daemon.pooled(), 30, what="the end of a member of the pool")
        box = self.sandbox()
        self.assertEqual(self.api.sh(box, "echo 1"), "1\n")
        self.explained()


if __name__ == "__main__":
    unittest.main()
