"""The installed program under systemd, as docs/operations.md and docs/isolation.md tell people to run it: the unit, and a
user's daemon to which systemd gives a cgroup. Runs in the machine only."""
import http.client
import os
import pwd
import shutil
import subprocess
import unittest

from caisson import ApiError, Client, wait_until

INSTALLED = "/tree/installed/usr/local"
SERVED = "/run/caisson/caisson.sock"
ENFORCED = {"cpu", "memory", "pids", "files"}
DISK = {"disk", "inodes"}


def command(*words, **options):
    result = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, **options)
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def attempt(request):
    """What it answers; None while nobody does, or one that is just ending."""
    try:
        return request()
    except (OSError, http.client.HTTPException, ApiError):
        return None


def answers(path, user=None):
    return attempt(lambda: Client(socket_path=path, user=user).get("/healthz"))


def enforced(record):
    return {name for name, limit in record["limits"].items() if limit["enforced"]}


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.copytree(INSTALLED, "/usr/local", dirs_exist_ok=True, symlinks=True)
        shutil.copy("/usr/local/lib/systemd/system/caisson.service", "/etc/systemd/system")
        command("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "caisson")
        command("systemctl", "daemon-reload")

    def check_limits(self, client, also=()):
        """They are said to hold, and do."""
        record = client.create(memory_mb=64, pids=32, cpu=0.5)
        box = record["id"]
        self.assertEqual(enforced(record), ENFORCED | set(also), record["limits"])
        self.assertTrue(client.exec(box, ["python3", "-c", "x = bytearray(200 << 20)"])["oom_killed"])
        self.assertRegex(client.exec(box, "for i in $(seq 60); do sleep 1000 & done")["stderr"], "(?i)fork|resource")
        self.assertEqual(client.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
        self.assertEqual(client.post(f"/v1/sandboxes/{box}/resume")["status"], "running")
        client.delete("/v1/sandboxes/" + box)

    def main_pid(self):
        return int(command("systemctl", "show", "-P", "MainPID", "caisson"))

    def test_unit(self):
        command("systemctl", "enable", "--now", "caisson")
        wait_until(lambda: answers(SERVED), 60, what="the daemon's first answer")
        client = Client(socket_path=SERVED)
        self.check_limits(client, DISK)
        groups = open(f"/proc/{self.main_pid()}/cgroup").read()
        self.assertIn("/system.slice/caisson.service", groups)
        box = client.create()["id"]
        client.sh(box, "echo kept > /workspace/kept")
        client.exec(box, ["sleep", "1000"], background=True)

        before = self.main_pid()
        command("systemctl", "restart", "caisson")
        self.assertNotEqual(self.main_pid(), before)
        wait_until(lambda: answers(SERVED), 60, what="an answer after the restart")
        self.assertEqual(client.get("/v1/sandboxes/" + box)["status"], "running")
        self.assertEqual(client.sh(box, "cat /workspace/kept; pgrep -cx sleep"), "kept\n1\n")

        before = self.main_pid()
        command("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "caisson")
        wait_until(lambda: self.main_pid() not in (0, before) and answers(SERVED), 60, what="its own start anew")
        # The killed one's daemon answers until it notices.
        self.assertEqual(wait_until(lambda: attempt(lambda: client.sh(box, "cat /workspace/kept")), 60), "kept\n")
        command("systemctl", "reload", "caisson")
        self.assertEqual(client.sh(box, "echo on"), "on\n")
        self.assertEqual(command("/usr/local/bin/caisson", "run", "--", "echo", "from the command line"), "from the command line\n")

        client.delete("/v1/sandboxes/" + box)
        command("systemctl", "disable", "--now", "caisson")
        self.assertIsNone(answers(SERVED))
        wait_until(lambda: not os.path.exists("/sys/fs/cgroup/system.slice/caisson.service"), 30, what="the end of its cgroup")

    def test_a_users_daemon(self):
        command("useradd", "--create-home", "--shell", "/bin/sh", "agent")
        entry = pwd.getpwnam("agent")
        command("loginctl", "enable-linger", "agent")
        runtime = f"/run/user/{entry.pw_uid}"
        wait_until(lambda: os.path.exists(runtime + "/bus"), 60, what="the user's own systemd")
        as_user = ["runuser", "-u", "agent", "--", "env", "XDG_RUNTIME_DIR=" + runtime]
        command(*as_user, "systemd-run", "--user", "--unit=caisson", "-p", "Delegate=yes", "-p", "KillMode=process",
                "/usr/local/bin/caisson", "serve")
        path = runtime + "/caisson/caisson.sock"

        class User:
            uid, gid = entry.pw_uid, entry.pw_gid
        client = Client(socket_path=path, user=User)
        wait_until(lambda: answers(path, User), 60, what="the user's daemon")
        self.check_limits(client)
        command(*as_user, "systemctl", "--user", "stop", "caisson")
