"""Daemons of ordinary users: what each may do with which cgroups, what parts its processes, and that
nothing is lost or left. Most of it is tried by the other suites, run as such users (tests/lib/columns.py);
this is the rest of the table in docs/isolation.md."""
import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from caisson import (BUILD, PROGRAM, ApiError, Client, Daemon, best_of, daemon_of, end_commands, has_ended, inits_of,
                     processes_of, status_of, wait_until)
from columns import DELEGATED, NO_LOOP, NOT_GIVEN, User, end_processes, has_version_1, ids_of, run_tool, users_locked
from marks import alone, thorough

# It makes the users that it needs.
RUNS_AS = "root"
NEEDS_VERSION_1 = unittest.skipUnless(has_version_1(), "this host has no cgroup v1")
users = {}


def user(kind):
    """One of each, for all tests."""
    if kind not in users:
        users[kind] = User(with_range=kind == "subuid")
    return users[kind]


def first_subuid(owner):
    return int(re.search(rf"^{owner.name}:(\d+):", open("/etc/subuid").read(), re.MULTILINE).group(1))


class Cells(unittest.TestCase):
    """ordinary user x cgroups: a limit holds, or the record says that it does not and why."""

    def check(self, kind, delegated, unenforced, pauses):
        with Daemon(user=user(kind), delegated=delegated) as daemon:
            api = daemon.client()
            record = api.create(memory_mb=64, pids=32, cpu=0.5)
            box = record["id"]
            said = {name: limit["reason"] for name, limit in record["limits"].items() if not limit["enforced"]}
            self.assertEqual(said, {"disk": NO_LOOP, "inodes": NO_LOOP, **{name: NOT_GIVEN for name in unenforced}})
            if "memory" not in unenforced:
                self.assertTrue(api.exec(box, ["python3", "-c", "x = bytearray(200 << 20)"])["oom_killed"])
            if "pids" not in unenforced:
                seconds = f"1000.{os.getpid()}"
                self.assertRegex(api.exec(box, f"for i in $(seq 60); do sleep {seconds} & done")["stderr"], "(?i)fork|resource")
                end_commands("sleep", seconds)
                wait_until(lambda: self.has_room(api, box), what="room for a process")
            self.assertEqual(api.sh(box, "ulimit -n"), "4096\n")
            self.check_pause(api, box, pauses)
            api.exec(box, "sleep 1000", background=True)
            api.delete("/v1/sandboxes/" + box)

    @thorough
    @alone
    def test_processor_time(self):
        delegated = DELEGATED if has_version_1() else ("cgroup2",)
        for kind in ("subuid", "one-id"):
            with self.subTest(kind=kind), Daemon(user=user(kind), delegated=delegated) as daemon:
                box = daemon.client().create(cpu=0.5)["id"]
                # What the machine stands still while it runs counts as used.
                best_of(6, lambda: float(daemon.client().sh(box, ["python3", "-c", self.BUSY])), 0.75)

    BUSY = ("import time\nused = time.process_time()\ne = time.monotonic() + 1\nwhile time.monotonic() < e: pass\n"
            "print(time.process_time() - used)")

    def has_room(self, api, box):
        """While it is full a command is refused with a word of its own."""
        try:
            return api.exec(box, "true")["exit_code"] == 0
        except ApiError as error:
            self.assertEqual((error.status, error.code), (422, "exec.resource_limit"), error.body)
            return False

    def check_pause(self, api, box, pauses):
        if not pauses:
            with self.assertRaises(ApiError) as caught:
                api.post(f"/v1/sandboxes/{box}/pause")
            self.assertEqual((caught.exception.status, caught.exception.code), (501, "feature.unsupported"))
            self.assertEqual(api.sh(box, "echo on"), "on\n")
            return
        api.exec(box, "while :; do date +%s%N > /workspace/now; sleep 0.02; done", background=True)
        wait_until(lambda: api.exec(box, "test -s /workspace/now")["exit_code"] == 0)
        self.assertEqual(api.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
        self.assertEqual(api.get("/v1/sandboxes/" + box)["status"], "paused")
        self.assertEqual(api.post(f"/v1/sandboxes/{box}/resume")["status"], "running")
        self.assertEqual(api.sh(box, "echo on"), "on\n")

    def test_root_without_cgroups(self):
        hide = ["unshare", "--mount", "sh", "-c", 'umount -l -R /sys/fs/cgroup && exec "$@"', "sh"]
        with Daemon(wrapper=hide) as daemon:
            api = daemon.client()
            record = api.create(disk_mb=64)
            said = {name: limit["reason"] for name, limit in record["limits"].items() if not limit["enforced"]}
            self.assertEqual(said, {name: "the kernel has no cgroup controller for it, or it is not mounted" for name in self.LIMITED})
            self.assertIn("No space left", api.exec(record["id"], "head -c 100M /dev/zero > /workspace/x")["stderr"])
            self.check_pause(api, record["id"], False)
            daemon.kill()
            daemon.start()
            self.assertEqual(daemon.client().sh(record["id"], "echo on"), "on\n")

    LIMITED = ("cpu", "memory", "pids")

    def test_subuid_without_cgroups(self):
        self.check("subuid", [], self.LIMITED, False)

    @NEEDS_VERSION_1
    def test_subuid_with_version_1(self):
        self.check("subuid", DELEGATED, (), True)

    @NEEDS_VERSION_1
    def test_one_id_with_version_1(self):
        self.check("one-id", DELEGATED, (), True)

    @NEEDS_VERSION_1
    def test_one_id_with_a_part_of_version_1(self):
        self.check("one-id", ("memory",), ("cpu", "pids"), False)

    def check_version_2(self, kind):
        """Its controllers where the host has them there; freezer and kill belong to it anyway."""
        offered = next(open(os.path.join(line.split()[1], "cgroup.controllers")).read().split()
                       for line in open("/proc/self/mounts") if line.split()[2] == "cgroup2")
        self.check(kind, ("cgroup2",), [name for name in self.LIMITED if name not in offered], True)

    def test_subuid_with_version_2(self):
        self.check_version_2("subuid")

    def test_one_id_with_version_2(self):
        self.check_version_2("one-id")


class Life(unittest.TestCase):
    """In the directories that an ordinary user has by default, in a home that is closed to others."""

    def cli(self, owner, *arguments, **options):
        environment = {"HOME": owner.home, "PATH": os.environ["PATH"], "CAISSON_LISTEN": "none",
                       "ASAN_OPTIONS": "detect_leaks=0"}
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, user=owner.uid,
                              group=owner.gid, extra_groups=[], env=environment, cwd="/", **options)

    def check(self, kind):
        owner = user(kind)
        state = os.path.join(owner.home, ".local/state/caisson")
        runtime = os.path.join(state, "run")
        self.addCleanup(lambda: end_processes(ids_of(pwd.getpwnam(owner.name))))
        # Nothing runs: the client starts it.
        result = self.cli(owner, "run", "--", "id")
        self.assertEqual((result.returncode, result.stdout), 
                         (0, "uid=0(root) gid=0(root) groups=0(root)\n"), result.stderr)
        spawner = int(open(os.path.join(runtime, "lock")).read().split()[0])
        self.assertEqual(os.stat(state).st_uid, owner.uid)
        self.assertEqual(os.stat(state).st_mode & 0o7, 0)
        box = self.cli(owner, "create", "--name", "kept").stdout.strip()
        self.cli(owner, "exec", box, "--", "sh", "-c", "echo kept > /workspace/file; mkdir -m 0 /workspace/closed; touch /tmp/x")
        self.check_who(kind, owner, state, spawner, box)
        self.check_folder(kind, owner)
        # Both are killed; the next client starts them again, and they find the sandbox.
        killed = (spawner, daemon_of(spawner))
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):  # the daemon ends without its spawner, too
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(has_ended(pid) for pid in killed), what="the end of both")
        result = self.cli(owner, "exec", box, "--", "cat", "/workspace/file")
        self.assertEqual((result.returncode, result.stdout), (0, "kept\n"), result.stderr)
        self.assertEqual(self.cli(owner, "stop", box).returncode, 0)
        self.assertEqual(self.cli(owner, "start", box).returncode, 0)
        self.assertEqual(self.cli(owner, "exec", box, "--", "cat", "/workspace/file").stdout, "kept\n")
        self.assertEqual(self.cli(owner, "rm", box).returncode, 0)
        # Erased behind everybody's back; what has not begun when it ends is the next one's.
        wait_until(lambda: box not in os.listdir(os.path.join(state, "sandboxes")) and
                   not os.listdir(os.path.join(state, "trash")), what="the end of its files")
        spawner = int(open(os.path.join(runtime, "lock")).read().split()[0])
        os.kill(spawner, signal.SIGTERM)
        wait_until(lambda: not processes_of(state, runtime), what="the end of all its processes")
        for name in ("sandboxes", "trash"):
            left = os.path.join(state, name)
            self.assertEqual(os.listdir(left) if os.path.exists(left) else [], [])
        self.assertFalse([line for line in open("/proc/self/mountinfo") if owner.home in line])
        shutil.rmtree(state)

    def check_who(self, kind, owner, state, spawner, box):
        """Who the processes and files are on the host."""
        daemon = status_of(daemon_of(spawner))
        self.assertEqual(int(status_of(spawner)["Uid"].split()[0]), owner.uid)
        self.assertEqual([int(daemon[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")], [0] * 5)
        self.assertEqual((daemon["NoNewPrivs"], daemon["Seccomp"]), ("1", "2"))
        file = os.path.join(state, "sandboxes", box, "files/upper/workspace/file")
        self.assertEqual(os.stat(os.path.join(state, "sandboxes")).st_mode & 0o777, 0o700)
        # One that is being made for the pool becomes its user a moment later.
        wanted = first_subuid(owner) if kind == "subuid" else owner.uid
        try:
            wait_until(lambda: self.init_uids(state) == {wanted})
        except AssertionError:
            pass
        uids = self.init_uids(state)
        if kind == "subuid":
            first = first_subuid(owner)
            self.assertEqual(int(daemon["Uid"].split()[0]), first + 65535)
            self.assertEqual(os.stat(file).st_uid, first)
            self.assertEqual(uids, {first})
        else:
            self.assertEqual(uids, {owner.uid})
            result = self.cli(owner, "exec", "--user", "1000", box, "--", "true")
            self.assertIn("one id", result.stderr)

    def init_uids(self, state):
        """Whose the processes of the sandboxes' init are."""
        statuses = map(status_of, inits_of(state + "/init/"))
        return {int(status["Uid"].split()[0]) for status in statuses if status}

    def check_folder(self, kind, owner):
        """A folder in the closed home; and one of somebody else's, and one that only a group may read."""
        folder = os.path.join(owner.home, "project")
        os.mkdir(folder, 0o700)
        os.chown(folder, owner.uid, owner.gid)
        script = "echo new > /data/{0}; cat /data/{0}; stat -c %u /data/{0}"
        for mode, expected in (("rw", "new\n0\n"), ("cow", "new\n0\n")):
            result = self.cli(owner, "run", "-v", f"{folder}:/data:{mode}", "--", "sh", "-c", script.format(mode))
            self.assertEqual((result.returncode, result.stdout), (0, expected), result.stderr)
        result = self.cli(owner, "run", "-v", f"{folder}:/data:ro", "--", "sh", "-c", "cat /data/rw; touch /data/x")
        self.assertEqual(result.stdout, "new\n")
        self.assertIn("Read-only", result.stderr)
        self.assertEqual(os.listdir(folder), ["rw"])
        self.assertEqual(os.stat(os.path.join(folder, "rw")).st_uid, owner.uid)
        shutil.rmtree(folder)
        with tempfile.TemporaryDirectory(prefix="caisson-folder-") as foreign:
            os.chmod(foreign, 0o755)
            result = self.cli(owner, "run", "-v", f"{foreign}:/data:rw", "--", "true")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("may not write", result.stderr)

    def test_subuid(self):
        self.check("subuid")

    def test_one_id(self):
        self.check("one-id")


class Strangers(unittest.TestCase):
    def test_only_the_user_needs_no_token(self):
        with Daemon(user=user("subuid"), delegated=[]) as daemon:
            self.assertTrue(daemon.client().get("/v1/sandboxes")["items"] == [])
            # The host's root has no id in the daemon's namespace: to it, root is anybody.
            with self.assertRaises(ApiError) as caught:
                Client(socket_path=os.path.join(daemon.runtime, "caisson.sock")).get("/v1/sandboxes")
            self.assertEqual(caught.exception.status, 401)
            self.assertEqual(daemon.tcp(daemon.token()).get("/v1/sandboxes")["items"], [])
            # And other users do not even get that far.
            other = user("one-id")
            with self.assertRaises(PermissionError):
                Client(socket_path=os.path.join(daemon.runtime, "caisson.sock"), user=other).get("/v1/sandboxes")

    def test_descriptors_in_flight_are_not_one_sandboxs_alone(self):
        """The kernel counts them per user, against the limit of who sends one more."""
        fill = ("import os, socket, time\nkept = []\nnull = os.open('/dev/null', os.O_RDONLY)\ntry:\n    while True:\n"
                "        kept.append(socket.socketpair())\n        for _ in range(3): socket.send_fds(kept[-1][0], [b'x'], [null] * 250)\n"
                "except OSError: open('/tmp/full', 'w')\ntime.sleep(1000)\n")
        for kind in ("subuid", "one-id"):
            with self.subTest(kind), Daemon(user=user(kind), delegated=[], wrapper=["prlimit", "--nofile=1024:4096"]) as daemon:
                api = daemon.client()
                one, two = api.create(), api.create()["id"]
                self.assertEqual(one["limits"]["files"]["value"], 1024)
                self.assertEqual(api.sh(two, "ulimit -Hn"), "1024\n")
                api.exec(one["id"], ["python3", "-c", fill], background=True)
                wait_until(lambda: api.exec(one["id"], "test -e /tmp/full")["exit_code"] == 0, 60, what="a full user")
                self.assertEqual(api.sh(two, "echo on"), "on\n")
                self.assertEqual(api.sh(api.create(disk_mb=256)["id"], "echo on"), "on\n")

    def test_a_socket_of_somebody_elses(self):
        """Below /tmp another user may have been there first: nothing is sent to it."""
        victim, other = user("one-id"), user("subuid")
        runtime = f"/tmp/caisson-{victim.uid}"
        listen = ("import os, socket, sys\nd, = sys.argv[1:]\nos.mkdir(d, 0o755)\ns = socket.socket(socket.AF_UNIX)\n"
                  "s.bind(d + '/caisson.sock')\nos.chmod(d + '/caisson.sock', 0o666)\ns.listen()\ns.settimeout(20)\n"
                  "print('ready', flush=True)\nc, _ = s.accept()\nc.settimeout(20)\nprint(len(c.recv(100)), flush=True)\n")
        program = subprocess.Popen(["/usr/bin/python3", "-c", listen, runtime], user=other.uid, group=other.gid, extra_groups=[],
                                   stdout=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(shutil.rmtree, runtime, ignore_errors=True)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")

        def run():
            result = subprocess.run([PROGRAM, "ls"], user=victim.uid, group=victim.gid, extra_groups=[], text=True, timeout=30,
                                    env={"PATH": os.environ["PATH"]}, capture_output=True, cwd="/")
            self.assertEqual(result.returncode, 125)
            return result.stderr
        self.assertIn(f"{runtime} belongs to uid {other.uid}", run())
        self.assertEqual(program.communicate(timeout=30)[0], "0\n")

    def test_two_users_and_root_side_by_side(self):
        with Daemon(user=user("subuid"), delegated=[]) as one, Daemon(user=user("one-id"), delegated=[]) as two, Daemon() as three:
            for daemon in (one, two, three):
                self.assertEqual(daemon.client().sh(daemon.client().create()["id"], "echo on"), "on\n")


class Starts(unittest.TestCase):
    """What keeps a daemon from starting is said, with what helps."""

    def start(self, *arguments, owner=None, wrapper=()):
        top = tempfile.mkdtemp(prefix="caisson-test-")
        self.addCleanup(shutil.rmtree, top)
        identity = {}
        if owner:
            os.chown(top, owner.uid, owner.gid)
            identity = {"user": owner.uid, "group": owner.gid, "extra_groups": []}
        result = subprocess.run([*wrapper, PROGRAM, "serve", "--state", top + "/s", "--runtime", top + "/r", "--listen", "none",
                                 *arguments], capture_output=True, text=True, timeout=60, cwd="/",
                                env={"PATH": os.environ["PATH"], "HOME": top}, **identity)
        return result.returncode, result.stdout + result.stderr

    def test_a_user_that_is_not_there(self):
        code, said = self.start("--user", "nobody-of-that-name")
        self.assertNotEqual(code, 0)
        self.assertIn("there is no user nobody-of-that-name", said)
        code, said = self.start("--user", "daemon", owner=user("one-id"))
        self.assertNotEqual(code, 0)
        self.assertIn("only root can run the daemon as another user", said)

    def test_no_user_namespaces(self):
        code, said = self.start(owner=user("one-id"), wrapper=[os.path.join(BUILD, "tests/lib/enosys"), "unshare", "--"])
        self.assertNotEqual(code, 0)
        self.assertIn("start `caisson serve` as root", said)

    def test_a_runtime_directory_of_somebody_elses(self):
        with tempfile.TemporaryDirectory(prefix="caisson-test-") as foreign:
            os.chmod(foreign, 0o755)
            code, said = self.start("--runtime", foreign, owner=user("one-id"))
        self.assertNotEqual(code, 0)
        self.assertIn("belongs to somebody else", said)

    def test_another_runtime_directory_while_sandboxes_run(self):
        """A new user namespace has no power over them, and would run a second copy of each over the same files."""
        for kind in ("subuid", "one-id"):
            with self.subTest(kind), Daemon("[pool]\nsize = 0\nmax = 0\n", user=user(kind), delegated=[],
                                            arguments=["--idle-exit", "60"]) as daemon:
                box = daemon.client().create()["id"]
                init, other = daemon.init_of(box), os.path.join(daemon.top, "run2")
                arguments = ("--state", daemon.state, "--runtime", other)
                said = f"are running from the runtime directory {daemon.runtime}, not from {other}"
                code, log = self.start(*arguments, owner=user(kind))
                self.assertEqual(code, 125, log)
                self.assertIn(said, log)
                self.assertNotIn("asking it to quit", log)
                self.assertEqual(daemon.client().sh(box, "echo on"), "on\n")
                daemon.kill()
                self.assertIn(said, self.start(*arguments, owner=user(kind))[1])
                self.assertFalse(has_ended(init))
                os.kill(init, signal.SIGKILL)
                wait_until(lambda: has_ended(init), what="its end")
                daemon.runtime = other
                daemon.start()
                self.assertEqual(daemon.client().sh(box, "echo on"), "on\n")

    def test_a_range_that_is_granted_later(self):
        """A sandbox that was made with one id starts again when there are more."""
        owner = User(with_range=False, tag="later")
        self.addCleanup(owner.remove)
        daemon = Daemon(user=owner, delegated=[])
        try:
            daemon.start()
            box = daemon.client().create(timeout_seconds=0)["id"]
            daemon.client().write(box, "/workspace/file", b"kept")
            daemon.client().post(f"/v1/sandboxes/{box}/stop")
            daemon.stop()
            # Nobody else's: above what useradd grants, and below the ids of root's daemons (UID_RANGE_BASE).
            first = 1_000_000_000 + os.getpid() % 10_000 * 65536
            with users_locked():
                run_tool(["usermod", "--add-subuids", f"{first}-{first + 65535}", "--add-subgids", f"{first}-{first + 65535}", owner.name])
            daemon.start()
            api = daemon.client()
            api.post(f"/v1/sandboxes/{box}/start")
            self.assertEqual(api.read(box, "/workspace/file"), b"kept")
            self.assertEqual(api.sh(box, "id -u", user="1000"), "1000\n")
            self.assertEqual(api.sh(api.create()["id"], "id -u", user="1000"), "1000\n")
            daemon.close()
        finally:
            daemon.close(check=False)
            end_processes(ids_of(pwd.getpwnam(owner.name)))


if __name__ == "__main__":
    unittest.main()
