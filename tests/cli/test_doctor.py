"""`caisson doctor`: the right line and remedy for what is really missing, in namespaces where it is made to be; bounded in
time; the same as JSON."""
import ctypes
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from columns import User, controllers_to_give, has_version_1
from caisson import Daemon, DaemonTest, PROGRAM, processes_of, wait_until
from marks import long

NAMES = ["kernel", "system calls", "user", "subordinate ids", "namespaces", "restrictions", "proc", "cgroups", "delegation", "overlayfs",
         "idmapped mounts", "disk limit", "seccomp", "landlock", "nftables", "virtualization", "runsc", "state directory", "host limits",
         "clock", "daemon"]
KERNEL = tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups()))


def without_calls(errnum, *numbers):
    """For preexec_fn: these system calls (x86-64) answer an error."""
    def install():
        code = struct.pack("HBBI", 0x20, 0, 0, 0)
        for at, number in enumerate(numbers):
            code += struct.pack("HBBI", 0x15, len(numbers) - at, 0, number)
        code += struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000) + struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | errnum)
        buffer = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
            os._exit(99)
    return install


class Doctor(DaemonTest):
    def run_doctor(self, prepare="", user=None, environment=None, timeout=60, preexec=None, namespaces="-m"):
        """In a mount namespace of its own, after a shell command in it: (exit code, report)."""
        doctor = f"exec {PROGRAM} doctor --json"
        if user:
            doctor = f"exec setpriv --reuid {user} --regid {user} --clear-groups {PROGRAM} doctor --json"
        result = subprocess.run(["unshare", *namespaces.split(), "sh", "-e", "-c", prepare + "\n" + doctor], capture_output=True, text=True,
                                timeout=timeout, preexec_fn=preexec,
                                env={**os.environ, **self.daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0", **(environment or {})})
        try:
            return result.returncode, json.loads(result.stdout)
        except ValueError:
            raise AssertionError(result)

    def check(self, report, name):
        return next(check for check in report["checks"] if check["name"] == name)

    def expect(self, report, name, status, words, remedy=None):
        check = self.check(report, name)
        self.assertEqual(check["status"], status, check)
        for word in words if isinstance(words, tuple) else (words,):
            self.assertIn(word, check["text"])
        if remedy:
            self.assertIn(remedy, check.get("remedy", ""))

    def test_this_host(self):
        code, report = self.run_doctor()
        self.assertEqual(code, 0)
        self.assertEqual(sorted(report), ["caisson", "checks", "report_version", "tiers", "works"])
        self.assertEqual([check["name"] for check in report["checks"]], NAMES)
        for check in report["checks"]:
            self.assertLessEqual(set(check), {"name", "status", "text", "ms", "remedy"})
            self.assertIn(check["status"], ("ok", "info", "warning"), check)
            self.assertTrue(check["text"])
        tiers = {tier["name"]: tier for tier in report["tiers"]}
        self.assertEqual(list(tiers), ["namespace", "gvisor", "vm"])
        self.assertTrue(report["works"])
        self.assertTrue(tiers["namespace"]["proven"])
        self.assertEqual(set(tiers["namespace"]["limits"]), {"cpu", "memory", "pids", "disk", "inodes", "files"})
        self.assertGreater(tiers["namespace"]["total_ms"], tiers["namespace"]["create_ms"])
        self.assertFalse(tiers["vm"]["proven"])
        self.assertTrue(tiers["vm"]["missing"])
        self.assertNotIn("", [tier.get("remedy") for tier in report["tiers"]])
        user = self.check(report, "user")
        self.assertNotIn("no user  ", user["text"])
        self.assertNotRegex(user.get("remedy", ""), r" $")
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])

    def test_text_for_people(self):
        code, out, err = self.daemon.cli("doctor")
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("\x1b", out)
        lines = out.splitlines()
        for name in NAMES:
            self.assertEqual(len([line for line in lines if re.match(rf"(ok  |info|warn|FAIL)  {name} *", line[:23])]), 1, name)
        # Texts begin in one column; remedies are below, further in.
        for line in lines[:-2]:
            self.assertRegex(line, r"^((ok  |info|warn|FAIL)  .{17}\S| {23}-> \S| {26}((NOT )?enforced: |used when asked for by name))", line)
        self.assertIn("tier namespace   a sandbox ran", out)

    def test_colour_on_a_terminal_only(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "doctor"], {**os.environ, **self.daemon.client_environment(), "TERM": "xterm", "ASAN_OPTIONS": "detect_leaks=0"})
        out, end = b"", time.monotonic() + 60
        while time.monotonic() < end and select.select([terminal], [], [], 60)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            out += data
        os.close(terminal)
        os.waitpid(pid, 0)
        self.assertIn(b"\x1b[32mok", out)

    def test_without_programs(self):
        hide = "for p in mke2fs runsc newuidmap; do for d in /sbin /usr/sbin /usr/bin; do test ! -e $d/$p || mount --bind /dev/null $d/$p; done; done"
        code, report = self.run_doctor(hide)
        self.assertEqual(code, 0, "warnings do not fail")
        self.expect(report, "disk limit", "warning", "mke2fs", "apt-get install e2fsprogs")
        self.expect(report, "runsc", "info", "not installed", "current release of gVisor's runsc")

    @long
    def test_a_hung_program_is_ended(self):
        with tempfile.NamedTemporaryFile("w", suffix="-hung", delete=False) as script:
            script.write(f"#!/bin/sh\nsetsid sleep 987654.{os.getpid()} &\nexec sleep 987654.{os.getpid()}\n")
        self.addCleanup(os.unlink, script.name)
        os.chmod(script.name, 0o755)
        began = time.monotonic()
        code, report = self.run_doctor(f"test -e /usr/bin/runsc || touch /usr/bin/runsc; mount --bind {script.name} /usr/bin/runsc")
        self.assertEqual(code, 0)
        self.expect(report, "runsc", "warning", "hung and was ended")
        self.assertLess(time.monotonic() - began, 30)
        wait_until(lambda: not subprocess.run(["pgrep", "-f", f"sleep 987654[.]{os.getpid()}$"], capture_output=True).stdout, 10,
                   what="the end of all that it started")

    def test_user_namespaces_used_up(self):
        code, report = self.run_doctor("echo 0 > /proc/sys/user/max_user_namespaces", namespaces="-U -r -m -p -f --mount-proc")
        self.expect(report, "namespaces", "failed", "No space left", "sysctl -w user.max_user_namespaces=15000")
        self.expect(report, "restrictions", "failed", "max_user_namespaces is 0")
        self.expect(report, "overlayfs", "failed", "cannot be mounted")

    @unittest.skipUnless(os.uname().machine == "x86_64", "the filter's numbers are those of x86-64")
    def test_calls_forbidden(self):
        pidfd_open, openat2, clone3 = 434, 437, 435
        code, report = self.run_doctor(preexec=without_calls(38, pidfd_open, clone3))
        self.expect(report, "system calls", "failed", ("pidfd_open", "clone3"), "seccomp=unconfined")
        code, report = self.run_doctor(preexec=without_calls(1, openat2))
        self.expect(report, "system calls", "warning", "openat2")
        self.assertEqual(code, 0)

    @unittest.skipUnless(os.uname().machine == "x86_64", "the filter's numbers are those of x86-64")
    def test_seccomp_forbidden(self):
        code, report = self.run_doctor(preexec=without_calls(22, 317))
        self.expect(report, "seccomp", "failed", "Invalid argument", "CONFIG_SECCOMP_FILTER")

    def test_masked_proc(self):
        code, report = self.run_doctor("mount -t tmpfs none /proc/sys/fs; mount --bind /dev/null /proc/keys")
        self.expect(report, "proc", "failed", ("not permitted", "masked"), "systempaths=unconfined")

    def test_read_only_cgroups(self):
        code, report = self.run_doctor("mount -o remount,bind,ro /sys/fs/cgroup; for d in /sys/fs/cgroup/*/; do mount -o remount,bind,ro $d 2>/dev/null || true; done")
        self.expect(report, "delegation", "warning", "no cgroup can be made", "writable")

    def test_no_cgroups(self):
        code, report = self.run_doctor("umount -R -l /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup")
        self.expect(report, "cgroups", "warning", "cpu memory pids", "hierarchies")

    def test_state_on_a_read_only_disk(self):
        code, report = self.run_doctor(f"mkdir -p {self.daemon.top}/ro; mount -t tmpfs -o ro none {self.daemon.top}/ro",
                                       environment={"CAISSON_STATE": self.daemon.top + "/ro/state"})
        self.expect(report, "state directory", "failed", "read-only", "--state")

    def test_state_on_a_full_disk(self):
        code, report = self.run_doctor(f"mkdir -p {self.daemon.top}/small; mount -t tmpfs -o size=1m none {self.daemon.top}/small",
                                       environment={"CAISSON_STATE": self.daemon.top + "/small"})
        self.expect(report, "state directory", "warning", "left", "free some space")
        self.expect(report, "idmapped mounts", "ok" if KERNEL >= (6, 3) else "failed", "small")  # a tmpfs

    def test_another_instance(self):
        with tempfile.TemporaryDirectory() as other:
            code, report = self.run_doctor(environment={"CAISSON_RUNTIME": other + "/run"})
            self.expect(report, "daemon", "warning", f"pid {self.daemon.process.pid}", f"CAISSON_RUNTIME={self.daemon.runtime}")
            self.assertNotIn("kill", self.check(report, "daemon")["remedy"], "it does no harm where it is")
            self.assertEqual((code, report["works"]), (1, False))
            self.assertIn("another caisson", report["tiers"][0]["missing"])
        code, report = self.run_doctor()
        self.expect(report, "daemon", "ok", f"pid {self.daemon.process.pid} serves")
        # By its runtime directory alone it is found as by every other verb, its state directory with it.
        code, report = self.run_doctor(prepare="unset CAISSON_STATE")
        self.expect(report, "daemon", "ok", f"pid {self.daemon.process.pid} serves {self.daemon.state} and {self.daemon.runtime}")
        self.assertIn(self.daemon.state, self.check(report, "state directory")["text"])
        with tempfile.TemporaryDirectory() as other:
            code, report = self.run_doctor(environment={"CAISSON_STATE": other})
            self.expect(report, "daemon", "warning", (f"pid {self.daemon.process.pid}", self.daemon.state, other), "unset CAISSON_STATE")

    def test_virtualization_is_tried(self):
        code, report = self.run_doctor()
        check, flags = self.check(report, "virtualization"), re.search(r"\b(vmx|svm)\b", open("/proc/cpuinfo").read())
        if os.uname().machine == "x86_64" and not flags:
            self.assertNotEqual(check["status"], "ok", check)
            self.assertIn("neither VMX nor SVM", check["text"])
        code, report = self.run_doctor("test ! -e /dev/kvm || { mount --bind /dev /mnt; mount -t tmpfs none /dev; mount --bind /mnt/null /dev/null 2>/dev/null || mknod -m 666 /dev/null c 1 3; }")
        self.expect(report, "virtualization", "info", "no /dev/kvm")

    def test_an_ordinary_user(self):
        with tempfile.TemporaryDirectory() as home:
            environment = {"HOME": home, "XDG_RUNTIME_DIR": home, "XDG_STATE_HOME": home + "/state", "CAISSON_RUNTIME": home + "/run",
                           "CAISSON_STATE": home + "/state", "CAISSON_LISTEN": "none", "CAISSON_CONFIG": home + "/conf"}
            open(home + "/conf", "w").close()
            os.chown(home, 65534, 65534)
            code, report = self.run_doctor(user=65534, environment=environment)
            self.expect(report, "user", "ok", "without root")
            self.expect(report, "subordinate ids", "warning", "/etc/subuid", "usermod --add-subuids")
            self.expect(report, "disk limit", "info", "loop devices are root's")
            namespace = report["tiers"][0]
            self.assertTrue(namespace["proven"], namespace)
            self.assertEqual(code, 0)
            self.assertFalse(namespace["limits"]["disk"]["enforced"])
            self.assertTrue(namespace["limits"]["disk"]["reason"])
            for pid, command in processes_of(home + "/state", home + "/run"):
                try:
                    if " serve " in command:
                        os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            wait_until(lambda: not processes_of(home + "/state", home + "/run"), 30, what="the daemon's end")

    def test_delegated_cgroups(self):
        user = User(with_range=True)
        self.addCleanup(user.remove)
        with Daemon(user=user, delegated=controllers_to_give()) as daemon:
            # Of version 2 a cgroup that has passed its controllers on takes no process.
            inside = daemon.cgroups.join() if has_version_1() else []
            result = subprocess.run([*inside, *daemon.become(), PROGRAM, "doctor", "--json"], capture_output=True, text=True, timeout=60,
                                    env={**os.environ, **daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0"})
            report = json.loads(result.stdout)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.expect(report, "subordinate ids", "ok", "65536 uids")
            if os.path.exists("/sys/fs/cgroup/memory/cgroup.procs"):
                self.expect(report, "delegation", "ok", "can be made")
            limits = report["tiers"][0]["limits"]
            self.assertEqual([limits[name]["enforced"] for name in ("memory", "pids", "disk")], [True, True, False])

    def test_a_token_that_may_only_read(self):
        token = self.daemon.token(scopes=["sandboxes:read"])
        environment = {"CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}", "CAISSON_TOKEN": token}
        code, report = self.run_doctor(environment=environment)
        self.assertEqual((code, report["works"]), (0, True))
        self.assertEqual((report["tiers"][0]["proven"], report["tiers"][0]["probed"]), (False, True))
        self.assertTrue(report["tiers"][0]["limits"]["memory"]["enforced"])
        self.expect(report, "daemon", "info", "CAISSON_URL")
        self.assertIn("this token may not", self.daemon.cli("doctor", environment=environment)[1])
        code, report = self.run_doctor(environment={**environment, "CAISSON_TOKEN": "wrong"})
        self.assertEqual((code, report["tiers"][0]["unknown"]), (1, True))

    def test_nothing_works(self):
        code, report = self.run_doctor(user=65534, environment={"CAISSON_RUNTIME": "/nowhere/run", "CAISSON_STATE": "/nowhere/state"})
        self.assertEqual((code, report["works"]), (1, False))
        self.assertEqual([tier["proven"] for tier in report["tiers"]], [False] * 3)
        self.expect(report, "state directory", "failed", "cannot be made")

    def test_usage(self):
        self.assertEqual(self.daemon.cli("doctor", "x")[0], 125)
        self.assertIn("doctor", self.daemon.cli("completion", "bash")[1])


class Stuck(unittest.TestCase):
    @long
    def test_a_daemon_that_does_not_answer(self):
        with Daemon() as daemon:
            os.kill(daemon.daemon_pid(), signal.SIGSTOP)
            try:
                code, out, err = daemon.cli("doctor", timeout=50)
            finally:
                os.kill(daemon.daemon_pid(), signal.SIGCONT)
            self.assertEqual(code, 1)
            self.assertIn("FAIL  tiers", out)
            self.assertIn("did not answer", out)


if __name__ == "__main__":
    unittest.main()
