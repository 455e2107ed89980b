"""What `make run` does once everything is built: tools/run."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from columns import User
from caisson import ApiError, BUILD, Client, TOP, processes_of, wait_until
from mcp import Mcp
from ports import free_port


class MakeRun(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="caisson-test-")
        os.chmod(self.top, 0o755)
        self.port = free_port()
        self.addCleanup(shutil.rmtree, self.top, True)

    def start(self, user=None):
        environment = {**os.environ, "CAISSON_STATE": self.top + "/state", "CAISSON_RUNTIME": self.top + "/run",
                       "CAISSON_LISTEN": f"127.0.0.1:{self.port}", "ASAN_OPTIONS": "detect_leaks=0",
                       **({"HOME": user.home} if user else {})}
        log = open(self.top + "/out", "w")
        become = ["setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"] if user else []
        process = subprocess.Popen([*become, TOP + "/tools/run", os.path.relpath(BUILD, TOP)], cwd=TOP, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, env=environment, start_new_session=True)
        log.close()
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        wait_until(lambda: "foreground" in open(self.top + "/out").read() or process.poll() is not None, 60, what="the welcome")
        return process, open(self.top + "/out").read()

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 0)
        # Whoever erases what was removed last ends a moment later.
        wait_until(lambda: not processes_of(self.top + "/state", self.top + "/run"), 20, what="the end of all")

    def test_it_proves_itself_and_the_token_works(self):
        process, out = self.start()
        self.assertRegex(out, r"A sandbox said:  Hello from [a-z0-9]{16}, ")
        self.assertIn("Isolation:       namespace", out)
        self.assertRegex(out, r"It took: +[0-9.]+ ms")
        for word in (f"http://127.0.0.1:{self.port}/mcp", "claude mcp add", "mcp.json", "curl -sS"):
            self.assertIn(word, out)
        token = re.search(r"Token:   (\S+)", out).group(1)
        client = Client(port=self.port, token=token)
        box = client.create()["id"]
        self.assertEqual(client.sh(box, "echo over tcp"), "over tcp\n")
        client.delete("/v1/sandboxes/" + box)
        self.assertIn("run_shell", [tool["name"] for tool in Mcp(client).modern("tools/list")["tools"]])
        self.assertIn("mcp config", out)
        self.stop(process)
        # The next run has a token of its own, and the last one's is good for nothing.
        process, out = self.start()
        with self.assertRaises(ApiError) as caught:
            client.get("/v1/sandboxes")
        self.assertEqual(caught.exception.status, 401)
        again = re.search(r"Token:   (\S+)", out).group(1)
        Client(port=self.port, token=again).get("/v1/sandboxes")
        self.stop(process)

    def test_one_that_is_killed_is_no_success(self):
        process, out = self.start()
        spawner = open(self.top + "/state/lock").read().split()[0]
        os.kill(int(spawner), signal.SIGKILL)
        self.assertEqual(process.wait(30), 137)
        wait_until(lambda: all("caisson-init" in command for _, command in processes_of(self.top + "/state", self.top + "/run")), 30,
                   what="the daemon's end")
        # The pool is left: the next one finds it, and takes it away at its end.
        process, out = self.start()
        self.stop(process)

    def test_as_an_ordinary_user(self):
        user = User(True, "m")
        self.addCleanup(user.remove)
        os.chown(self.top, user.uid, user.gid)
        process, out = self.start(user)
        self.assertRegex(out, r"A sandbox said:  Hello from [a-z0-9]{16}, ")
        self.assertRegex(out, r"(?m)^NOT enforced: +[a-z, ]*disk, inodes: \S")
        self.stop(process)


if __name__ == "__main__":
    unittest.main()
