"""Template `host`: this machine's /usr, nothing of its secrets; and a place to work in."""
import os
import secrets
import textwrap
import time
import unittest

from caisson import Daemon, DaemonTest
from columns import COLUMN, user_of_column
from marks import busy, column_independent, long

WALK = textwrap.dedent(r"""
    import os, sys
    marker, since = sys.argv[1].encode(), float(sys.argv[2])
    left_out = ['proc', 'sys'] + sys.argv[3:]
    found, looked = [], 0
    for top, directories, names in os.walk('/', followlinks=False):
        if top == '/':
            directories[:] = [d for d in directories if d not in left_out]
        if top == '/usr' and len(sys.argv) > 3:
            directories[:] = ['local', 'sbin']
        for name in names:
            path = os.path.join(top, name)
            try:
                if os.stat(path).st_ctime < since:  # no file that is older than the marker has it
                    looked += 1
                    continue
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                continue
            try:
                if not os.path.isfile(path) or os.fstat(fd).st_size > 4 << 20:
                    continue
                looked += 1
                if marker in os.read(fd, 65536):
                    found.append(path)
            except OSError:
                pass
            finally:
                os.close(fd)
    for entry in os.listdir('/proc'):
        for name in ('environ', 'cmdline'):
            try:
                if entry.isdigit() and int(entry) != os.getpid() and marker in open(f'/proc/{entry}/{name}', 'rb').read():
                    found.append(f'/proc/{entry}/{name}')
            except OSError:
                pass
    print(looked, found)
""")


class HostTemplate(unittest.TestCase):
    @long
    @busy
    def test_no_secret_of_the_host_is_seen(self):
        marker = "marker" + secrets.token_hex(16)
        planted = []
        # All of /usr, which is the same for all, is gone through once.
        walk = ["python3", "/tmp/walk.py", marker, str(time.time() - 10)] + ([] if COLUMN == "root" else ["boot"])
        users = ("0",) if COLUMN == "one-id" else ("0", "1000")
        for directory in ("/usr/local", "/etc", "/opt", "/root", "/home"):
            for mode in (0o600, 0o640):
                path = os.path.join(directory, f"caisson-test-{mode:o}-{os.getpid()}")
                with open(path, "w") as file:
                    file.write(marker)
                os.chmod(path, mode)
                planted.append(path)
        if user_of_column():
            # The user's own: a sandbox whose root is the user must not see them either.
            path = os.path.join(user_of_column().home, "private")
            with open(path, "w") as file:
                file.write(marker)
            os.chown(path, user_of_column().uid, user_of_column().gid)
            planted.append(path)
        try:
            with Daemon(environment={"SECRET_OF_THE_HOST": marker}) as daemon:
                api = daemon.client(timeout=300)
                box = api.create(env={"CONTROL": "control" + marker[::-1]})["id"]
                api.write(box, "/tmp/walk.py", WALK.encode())
                for user in users:
                    out = api.sh(box, walk, user=user, timeout_seconds=280)
                    looked, found = out.split(" ", 1)
                    self.assertEqual(found.strip(), "[]", f"as uid {user}")
                    self.assertGreater(int(looked), 1000 if COLUMN == "root" else 100)
                # The walk finds what is there.
                api.write(box, "/tmp/planted", marker.encode())
                self.assertIn("/tmp/planted", api.sh(box, walk, timeout_seconds=280))
        finally:
            for path in planted:
                os.unlink(path)


class Workplace(DaemonTest):
    def test_writable_places(self):
        box = self.sandbox()
        for place in ("/home", "/tmp", "/var", "/root", "/workspace", "/var/tmp", "/dev/shm"):
            self.api.sh(box, f"echo 1 > {place}/file && cat {place}/file")
        self.assertEqual(self.api.sh(box, "id -u; touch /tmp/u /home/user/u", user="user"), "1000\n")
        result = self.api.exec(box, "echo 1 > /usr/file")
        self.assertIn("Read-only", result["stderr"])

    def test_absent_places(self):
        box = self.sandbox()
        for path in ("/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/machine-id.host", "/boot", "/lost+found"):
            self.assertNotEqual(self.api.exec(box, ["test", "-e", path])["exit_code"], 0, path)

    @busy
    @column_independent
    def test_pip_install_of_a_local_package(self):
        box = self.sandbox()
        self.api.write(box, "/workspace/p/setup.py", b"from setuptools import setup\nsetup(name='greet', version='1', py_modules=['greet'], "
                       b"entry_points={'console_scripts': ['greet=greet:main']})\n", parents=1)
        self.api.write(box, "/workspace/p/greet.py", b"def main():\n    print('hello from pip')\n")
        self.api.sh(box, "pip install --no-index --no-build-isolation ./p", timeout_seconds=300)
        self.assertEqual(self.api.sh(box, "greet"), "hello from pip\n")
        self.assertEqual(self.api.sh(box, ["python3", "-c", "import greet; greet.main()"]), "hello from pip\n")

    @busy
    @column_independent
    def test_npm_install_of_a_local_package(self):
        box = self.sandbox(memory_mb=1024)
        self.api.write(box, "/workspace/n/package.json", b'{"name":"greet","version":"1.0.0","bin":{"ngreet":"./greet.js"}}', parents=1)
        self.api.write(box, "/workspace/n/greet.js", b"#!/usr/bin/env node\nconsole.log('hello from npm')\n", mode="0755")
        self.api.sh(box, "npm install -g --offline --no-audit --no-fund ./n", timeout_seconds=300)
        self.assertEqual(self.api.sh(box, "ngreet"), "hello from npm\n")

    @busy
    def test_tools_work(self):
        box = self.sandbox(memory_mb=1024)
        self.api.write(box, "/workspace/a.c", b"#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n")
        self.assertEqual(self.api.sh(box, "gcc -o a a.c && ./a", timeout_seconds=120), "compiled\n")
        self.assertEqual(self.api.sh(box, ["node", "-e", "console.log(6 * 7)"]), "42\n")
        self.api.sh(box, "git init -q r && cd r && git -c user.name=n -c user.email=e@e commit -q --allow-empty -m m && git log --oneline")
        self.assertIn("exit_group", self.api.sh(box, "strace -f /bin/true 2>&1"))
        self.assertEqual(self.api.sh(box, "tar c -C /usr/share/common-licenses . | tar t | wc -l | xargs test 3 -lt && echo tar"), "tar\n")

    def test_nothing_of_one_sandbox_in_another(self):
        first, second = self.sandbox(), self.sandbox()
        self.api.sh(first, "echo private > /workspace/x; echo private > /dev/shm/x")
        self.assertNotEqual(self.api.exec(second, "cat /workspace/x /dev/shm/x")["exit_code"], 0)

    def test_no_network(self):
        box = self.sandbox()
        out = self.api.sh(box, ["python3", "-c",
                                "import socket,errno\ns=socket.socket()\nprint(errno.errorcode[s.connect_ex(('192.0.2.1',80))])\n"
                                "s=socket.socket(); print(errno.errorcode[s.connect_ex(('127.0.0.1',%d))])" % self.daemon.port])
        self.assertEqual(out, "ENETUNREACH\nECONNREFUSED\n")
        self.assertEqual(self.api.sh(box, "ls /sys/class/net 2>/dev/null || awk -F: 'NR>2 {print $1}' /proc/net/dev | tr -d ' '").strip(), "lo")


if __name__ == "__main__":
    unittest.main()
