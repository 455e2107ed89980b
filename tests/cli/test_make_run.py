"""What `make run` does once everything is built: tools/run."""
import glob
import os
import re
import signal
import subprocess
import tempfile
import unittest

from columns import User
from caisson import ApiError, BUILD, OwnDaemons, TOP, processes_of, wait_until
from mcp import Mcp


class MakeInstall(unittest.TestCase):
    def test_what_is_installed_is_stripped(self):
        commands = subprocess.run(["make", "--dry-run", "install", "BUILD=" + os.path.relpath(BUILD, TOP)], cwd=TOP, capture_output=True,
                                  text=True, check=True, timeout=60).stdout
        command = re.search(r"^meson install .*$", commands, re.MULTILINE)[0]
        with tempfile.TemporaryDirectory() as top:
            subprocess.run(command + " --no-rebuild", shell=True, cwd=TOP, env={**os.environ, "DESTDIR": top}, check=True,
                           capture_output=True, timeout=120)
            installed = glob.glob(top + "/**/bin/caisson", recursive=True)
            self.assertEqual(len(installed), 1)
            sections = subprocess.run(["readelf", "--wide", "--sections", installed[0]], capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertIn(".dynsym", sections)
        self.assertNotIn(".symtab", sections)


class MakeRun(OwnDaemons):
    def start(self, daemon):
        """What it prints, and the daemon with it, until it says that it runs."""
        before = len(daemon.log())
        with open(daemon.log_path, "a") as log:
            daemon.process = subprocess.Popen(
                [*daemon.become(), TOP + "/tools/run", os.path.relpath(BUILD, TOP)], cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0",
                     **({"HOME": daemon.user.home} if daemon.user else {})}, start_new_session=True)
        wait_until(lambda: "foreground" in daemon.log()[before:] or daemon.process.poll() is not None, 60, what="the welcome")
        return daemon.log()[before:]

    def stop(self, daemon):
        daemon.process.send_signal(signal.SIGINT)
        self.assertEqual(daemon.process.wait(30), 0)
        # Whoever erases what was removed last ends a moment later.
        wait_until(lambda: not processes_of(daemon.state, daemon.runtime), 20, what="the end of all")

    def test_it_proves_itself_and_the_token_works(self):
        daemon = self.new_daemon()
        out = self.start(daemon)
        self.assertRegex(out, r"A sandbox said:  Hello from [a-z0-9]{16}, ")
        self.assertIn("Isolation:       namespace", out)
        self.assertRegex(out, r"It took: +[0-9.]+ ms")
        for word in (f"http://127.0.0.1:{daemon.port}/mcp", "claude mcp add", "mcp.json", "curl -sS"):
            self.assertIn(word, out)
        token = re.search(r"Token:   (\S+)", out).group(1)
        client = daemon.tcp(token)
        box = client.create()["id"]
        self.assertEqual(client.sh(box, "echo over tcp"), "over tcp\n")
        client.delete("/v1/sandboxes/" + box)
        self.assertIn("run_shell", [tool["name"] for tool in Mcp(client).modern("tools/list")["tools"]])
        self.assertIn("mcp config", out)
        self.stop(daemon)
        # The next run has a token of its own, and the last one's is good for nothing.
        out = self.start(daemon)
        with self.assertRaises(ApiError) as caught:
            client.get("/v1/sandboxes")
        self.assertEqual(caught.exception.status, 401)
        again = re.search(r"Token:   (\S+)", out).group(1)
        daemon.tcp(again).get("/v1/sandboxes")
        self.stop(daemon)

    def test_one_that_is_killed_is_no_success(self):
        daemon = self.new_daemon()
        self.start(daemon)
        spawner = open(daemon.state + "/lock").read().split()[0]
        os.kill(int(spawner), signal.SIGKILL)
        self.assertEqual(daemon.process.wait(30), 137)
        wait_until(lambda: all("caisson-init" in command for _, command in processes_of(daemon.state, daemon.runtime)), 30,
                   what="the daemon's end")
        # The pool is left: the next one finds it, and takes it away at its end.
        self.start(daemon)
        self.stop(daemon)

    def test_as_an_ordinary_user(self):
        user = User(True, "m")
        self.addCleanup(user.remove)
        daemon = self.new_daemon(user=user)
        out = self.start(daemon)
        self.assertRegex(out, r"A sandbox said:  Hello from [a-z0-9]{16}, ")
        self.assertRegex(out, r"(?m)^NOT enforced: +[a-z, ]*disk, inodes: \S")
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
