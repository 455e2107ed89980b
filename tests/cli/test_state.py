"""`caisson state`: what a backup holds, that a restore brings it back on another instance, and that nothing
damaged, hostile or cut short is ever put in place."""
import glob
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import time
import unittest

from columns import User
from caisson import PROGRAM, ApiError, Daemon, OwnDaemons, wait_until
from marks import busy, long

MARK = b"a line that is nowhere else in the backup\n"


def state(daemon, *arguments, stdin=None):
    return daemon.cli("state", *arguments, stdin=stdin, timeout=60)


def digest_of(data):
    """As docs/operations.md has it."""
    digest = hashlib.sha256()
    for at in range(0, len(data), 4096):
        block = data[at:at + 4096].ljust(4096, b"\0")
        if block.strip(b"\0"):
            digest.update(at.to_bytes(8, "little") + block)
    digest.update(len(data).to_bytes(8, "little"))
    return digest.hexdigest()


def unpacked(path):
    return subprocess.run(["zstd", "-q", "-dc", path], capture_output=True, check=True, timeout=60).stdout


def packed(data, path):
    subprocess.run(["zstd", "-q", "-f", "-o", path], input=data, check=True, timeout=60)


@busy
class Backup(OwnDaemons):
    """One daemon with two sandboxes and a backup of it, made once."""

    @classmethod
    def setUpClass(cls):
        cls.old = Daemon().start()
        api = cls.old.client()
        cls.token = cls.old.token()
        cls.ids = [api.create(name=name, disk_mb=64, timeout_seconds=seconds)["id"] for name, seconds in (("one", 5000), ("two", 0))]
        api.write(cls.ids[0], "/root/file", MARK * 3000)
        api.write(cls.ids[1], "/root/noise", os.urandom(2_000_000))
        api.sh(cls.ids[0], "chown 1000:7 /root/file; chmod 640 /root/file; ln -s file /root/link; rm /etc/protocols; echo said")
        cls.exec = api.get(f"/v1/sandboxes/{cls.ids[0]}/execs")["execs"][0]["exec_id"]
        cls.file = os.path.join(cls.old.top, "backup.tar.zst")
        cls.refused = state(cls.old, "backup", cls.file)
        cls.database = os.path.join(cls.old.top, "database.tar.zst")
        cls.while_running = state(cls.old, "backup", "--database-only", cls.database)
        cls.made = state(cls.old, "backup", "--stop", cls.file)

    @classmethod
    def tearDownClass(cls):
        cls.old.close()

    def fresh(self):
        return self.new_daemon(check=False)  # most are refused and never start

    def assert_untouched(self, daemon):
        there = os.listdir(daemon.state) if os.path.exists(daemon.state) else []
        self.assertEqual([name for name in there if name != "lock"], [])

    def assert_refused(self, file, word, *arguments):
        daemon = self.fresh()
        code, out, err = state(daemon, "restore", file, *arguments)
        self.assertEqual(code, 125, (out, err))
        self.assertIn(word, err)
        self.assert_untouched(daemon)

    def test_running_sandboxes_are_named(self):
        code, out, err = self.refused
        self.assertEqual(code, 125)
        for word in (*self.ids, "--stop", "--database-only"):
            self.assertIn(word, err)

    def test_what_is_in_it(self):
        self.assertEqual(self.made[0], 0, self.made)
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertLess(os.path.getsize(self.file), 4_000_000)
        self.assertEqual(glob.glob(self.old.state + "/db/.copy*") + glob.glob(self.old.top + "/*.part*"), [])
        listing = subprocess.run(["tar", "--zstd", "-tf", self.file], capture_output=True, text=True, check=True, timeout=30).stdout.split()
        self.assertEqual((listing[0], listing[1], listing[-1]), ("manifest.json", "db/caisson.db", "digests.json"))
        for box in self.ids:
            self.assertIn(f"sandboxes/{box}/disk.img", listing)
        self.assertNotIn(self.token.encode(), unpacked(self.file))
        # What is documented of the digests.
        manifest = json.loads(subprocess.run(["tar", "--zstd", "-xOf", self.file, "digests.json"], capture_output=True, check=True, timeout=30).stdout)
        data = subprocess.run(["tar", "--zstd", "-xOf", self.file, "db/caisson.db"], capture_output=True, check=True, timeout=30).stdout
        self.assertEqual(manifest["db/caisson.db"], digest_of(data))

    def test_restored_elsewhere(self):
        new = self.fresh()
        code, out, err = state(new, "restore", self.file)
        self.assertEqual(code, 0, err)
        new.start()
        api = new.client()
        # The uid ranges are others than they were: both instances live.
        self.assertNotEqual(*(open(daemon.state + "/uid-block").read() for daemon in (self.old, new)))
        records = {record["id"]: record for record in api.get("/v1/sandboxes")["items"]}
        self.assertEqual({box: records[box]["status"] for box in self.ids}, {box: "stopped" for box in self.ids})
        self.assertEqual(api.get("/v1/sandboxes/one")["id"], self.ids[0])
        self.assertEqual(api.get(f"/v1/sandboxes/{self.ids[0]}/execs/{self.exec}/output"), b"said\n")
        for box in self.ids:
            api.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(api.read(self.ids[0], "/root/file"), MARK * 3000)
        self.assertEqual(api.sh("one", "stat -c '%u %g %a' /root/file; readlink /root/link; test -e /etc/protocols || echo gone; id -u; touch /root/new /tmp/new"),
                         "1000 7 640\nfile\ngone\n0\n")
        self.assertEqual(new.tcp(self.token).get("/v1/sandboxes/one")["id"], self.ids[0])
        # And from there again, whatever its ids have become.
        second, third = os.path.join(new.top, "second.tar.zst"), self.fresh()
        self.assertEqual(state(new, "backup", "--stop", second)[0], 0)
        self.assertEqual(state(third, "restore", second)[0], 0)
        third.start().client().post("/v1/sandboxes/one/start")
        self.assertEqual(third.client().sh("one", "stat -c '%u %g %a' /root/file; ls /root/new"), "1000 7 640\n/root/new\n")
        self.assertEqual(state(third, "restore", self.file)[0], 125)
        for daemon in (new, third):
            daemon.close()

    def test_time_between_is_no_time(self):
        new = self.fresh()
        data = unpacked(self.file)
        wall = int(re.search(rb'"created_wall": (\d+)', data).group(1))
        earlier = str(wall - 4000 * 10**9).encode()
        file = os.path.join(new.top, "older.tar.zst")
        packed(data.replace(str(wall).encode(), earlier, 1), file)
        self.assertEqual(state(new, "restore", file)[0], 0)
        api = new.start().client()
        left = time.mktime(time.strptime(api.get("/v1/sandboxes/one")["expires_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())
        self.assertGreater(left, 8000)
        self.assertLess(left, 9100)
        self.assertIsNone(api.get("/v1/sandboxes/two")["expires_at"])
        new.close()

    def test_standard_streams(self):
        new = self.fresh()
        code, out, err = self.old.cli("state", "backup", "-", "--database-only", binary=True)
        self.assertEqual(code, 0, err)
        code, _, err = self.old.cli("state", "restore", "-", "--state", new.state, stdin=out, binary=True)
        self.assertEqual(code, 0, err)
        api = new.start().client()
        # Their files were left out: what the records say is true, and others' are untouched.
        wait_until(lambda: api.get("/v1/sandboxes")["items"] == [], 30, what="the sandboxes' tombstones")
        self.assertEqual(api.get("/v1/sandboxes/" + self.ids[0])["end"]["reason"], "host")
        self.assertEqual(new.tcp(self.token).get("/v1/sandboxes")["items"], [])
        new.close()

    def test_database_only_while_they_run(self):
        self.assertEqual(self.while_running[0], 0, self.while_running)
        listing = subprocess.run(["tar", "--zstd", "-tf", self.database], capture_output=True, text=True, check=True, timeout=30).stdout.split()
        self.assertEqual(listing, ["manifest.json", "db/caisson.db", "digests.json"])

    def test_what_is_there_is_kept(self):
        new = self.fresh().start()
        box = new.client().create()["id"]
        code, _, err = state(new, "restore", self.file, "--force")
        self.assertEqual(code, 125)
        self.assertIn("daemon", err)
        # Sandboxes outlive the daemon: the files of one that runs are not replaced.
        new.stop()
        code, _, err = state(new, "restore", self.file, "--force")
        self.assertEqual(code, 125)
        self.assertRegex(err, f"still run: {box}")
        new.start()
        self.assertEqual(new.client().sh(box, "echo here"), "here\n")
        new.client().post(f"/v1/sandboxes/{box}/stop")
        new.stop()
        code, _, err = state(new, "restore", self.file)
        self.assertEqual(code, 125)
        self.assertIn("--force", err)
        new.start()
        self.assertEqual(new.client().get("/v1/sandboxes/" + box)["status"], "stopped")
        new.stop()
        self.assertEqual(state(new, "restore", self.file, "--force")[0], 0)
        api = new.start().client()
        self.assertEqual({record["id"] for record in api.get("/v1/sandboxes")["items"]}, set(self.ids))
        self.assertFalse(os.path.exists(f"{new.state}/sandboxes/{box}"))
        new.close()

    @long
    def test_held_while_it_is_copied(self):
        # The archive is a pipe that nobody reads from: the copying stands still.
        reader, writer = os.pipe()
        random = os.path.join(self.old.top, "random")
        backup = None
        try:
            api = self.old.client()
            api.post("/v1/sandboxes/two/start")
            api.sh("two", "head -c 8000000 /dev/urandom > /root/random")
            api.post("/v1/sandboxes/two/stop")
            backup = subprocess.Popen([PROGRAM, "state", "backup", "-"], stdout=writer, stderr=subprocess.PIPE, env={**os.environ, **self.old.client_environment()})
            os.close(writer)
            os.read(reader, 1)
            with self.assertRaises(ApiError) as caught:
                api.post("/v1/sandboxes/two/start")
            self.assertEqual(caught.exception.code, "host.busy")
            self.assertEqual(state(self.old, "backup", random)[0], 125)
        finally:
            os.close(reader)
            if backup:
                self.assertNotEqual(backup.wait(30), 0)
                backup.stderr.close()
        wait_until(lambda: self.old.client().get("/v1/sandboxes/two")["status"] == "stopped", 30)
        self.assertEqual(self.old.client().post("/v1/sandboxes/two/start")["status"], "running")
        self.old.client().post("/v1/sandboxes/two/stop")

    def test_what_else_is_among_the_logs(self):
        """The directory is the daemon's, and so may be a file that blocks who opens it."""
        directory = f"{self.old.state}/logs/{self.ids[1]}"
        path = f"{directory}/{'a' * 16}.out"
        made = not os.path.exists(directory)
        os.makedirs(directory, exist_ok=True)
        os.mkfifo(path)
        try:
            code, _, err = state(self.old, "backup", os.path.join(self.old.top, "fifo.tar.zst"))
        finally:
            os.unlink(path)
            if made:
                os.rmdir(directory)
        self.assertEqual(code, 0, err)

    def test_interrupted_backup(self):
        reader, writer = os.pipe()
        target = os.path.join(self.old.top, "interrupted")
        strangled = subprocess.Popen(["sh", "-c", f"exec {PROGRAM} state backup {target}"], stderr=subprocess.PIPE, env={**os.environ, **self.old.client_environment()})
        os.close(reader)
        os.close(writer)
        strangled.send_signal(signal.SIGTERM)
        strangled.communicate(timeout=20)
        wait_until(lambda: glob.glob(target + ".part*") == [], 30)

        def again():
            """The lock of the one that was ended is its copying process's too, which ends a moment later."""
            code, _, err = state(self.old, "backup", target)
            self.assertTrue(code == 0 or "another backup" in err, err)
            return code == 0
        wait_until(again, 30, what="another backup")
        self.assertEqual(glob.glob(self.old.state + "/db/.copy*"), [])

    def test_tampered(self):
        data = unpacked(self.file)
        file = os.path.join(self.old.top, "tampered.tar.zst")
        for old, word in ((MARK, "SHA-256"), (b'"slot": ', "manifest"), (b"SQLite format 3", "SHA-256")):
            self.assertIn(old, data)
            packed(data.replace(old, old[:-1] + b"\x01", 1), file)
            with self.subTest(old=old):
                self.assert_refused(file, word)

    def test_truncated(self):
        whole, file = open(self.file, "rb").read(), os.path.join(self.old.top, "short.tar.zst")
        for part in (0, 1, 100, len(whole) // 3, len(whole) - 300, len(whole) - 1):
            open(file, "wb").write(whole[:part])
            with self.subTest(part=part):
                self.assert_refused(file, "")
        data = unpacked(self.file)
        for part in (512, len(data) // 2, len(data) - 4096):
            packed(data[:part], file)
            with self.subTest(plain=part):
                self.assert_refused(file, "")

    def test_newer(self):
        data, file = unpacked(self.file), os.path.join(self.old.top, "newer.tar.zst")
        for old, new in ((b'"format": 1', b'"format": 9'), (b'"schema": ', b'"schema":9')):
            packed(data.replace(old, new, 1), file)
            with self.subTest(new=new):
                self.assert_refused(file, "up to")

    def tar(self, entries, owner=0, mode=0o644, headers={}):
        """Of (name, type, data, link)."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, kind, data, extra in entries:
                member = tarfile.TarInfo(name)
                member.type, member.size = kind, len(data) if kind == tarfile.REGTYPE else 0
                member.linkname = extra
                member.devmajor, member.devminor = 1, 3
                member.uid = member.gid = owner
                member.mode, member.pax_headers = mode, headers
                archive.addfile(member, io.BytesIO(data) if data else None)
        return stream.getvalue()

    def hostile(self, entries):
        path = os.path.join(self.old.top, "hostile.tar.zst")
        packed(self.tar(entries), path)
        return path

    def manifest(self, *files, sandboxes=()):
        return json.dumps({"format": 1, "caisson": "0", "schema": 1, "created": "", "created_wall": 1, "rights": "root", "database_only": False, "sandboxes": list(sandboxes),
                           "files": [{"path": path, "size": size, "data": data} for path, size, data in files]}).encode()

    def test_hostile(self):
        file, link, hard, device = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
        first, outside = ("db/caisson.db", 4096, 4096), f"/tmp/caisson-hostile-{os.getpid()}"
        box = {"id": "abcdefghijklmnop", "tier": "namespace", "slot": 1, "owner": 1879048192}
        image = ("sandboxes/abcdefghijklmnop/disk.img", 1 << 20, 4096)
        listed = lambda *files, **more: ("manifest.json", file, self.manifest(*files, **more), "")
        tree = ("sandboxes/abcdefghijklmnop/files.tar", 1, 1)
        cases = {
            "no manifest": ("manifest.json should be", [("db/caisson.db", file, b"x" * 4096, "")]),
            "dots in the manifest": ("not a file of a backup", [listed(first, ("../x", 1, 1))]),
            "absolute in the manifest": ("not a file of a backup", [listed(first, ("/etc/x", 1, 1))]),
            "another name": ("../../x", [listed(first), ("../../x", file, b"x", "")]),
            "absolute name": (outside, [listed(first), (outside, file, b"x", "")]),
            "symbolic link": ("not a regular file", [listed(first), ("db/caisson.db", link, b"", "/etc/passwd")]),
            "hard link": ("not a regular file", [listed(first), ("db/caisson.db", hard, b"", "manifest.json")]),
            "device": ("not a regular file", [listed(first), ("db/caisson.db", device, b"", "")]),
            "directory link": ("db/caisson.db should be", [listed(first), ("db", link, b"", "/tmp"), ("db/caisson.db", file, b"x" * 4096, "")]),
            "larger than said": ("does not have the size", [listed(first), ("db/caisson.db", file, b"x" * 8192, "")]),
            "more data than said": ("larger than its manifest says", [listed(("db/caisson.db", 8192, 4096)), ("db/caisson.db", file, b"x" * 8192, "")]),
            "larger than the disk": ("more than is free", [listed(("db/caisson.db", 1 << 43, 1 << 43)), ("db/caisson.db", file, b"x", "")]),
            "an image of no sandbox": ("an image of no sandbox", [listed(first, image)]),
            "a tree of no sandbox": ("an image of no sandbox", [listed(first, tree)]),
            "two in one slot": ("named twice", [listed(first, sandboxes=(box, {**box, "id": "bbcdefghijklmnop"}))]),
            "ids that are none": ("a sandbox", [listed(first, image, sandboxes=({**box, "owner": -1},))]),
            "a tier that is a path": ("a sandbox", [listed(first, sandboxes=({**box, "tier": "../../x"},))]),
            "twice": ("a file", [listed(first, first)]),
            "no database": ("digests", [listed(first), ("db/caisson.db", file, b"x" * 4096, ""), ("digests.json", file, b"{}", "")]),
            "more after the end": ("SHA-256", [listed(first), ("db/caisson.db", file, b"x" * 4096, ""), ("digests.json", file, b'{"db/caisson.db": "00"}', "")]),
            "no list": ("not a manifest", [("manifest.json", file, b"[" * 100000, "")]),
        }
        for name, (word, entries) in cases.items():
            with self.subTest(name):
                self.assert_refused(self.hostile(entries), word)
        self.assertFalse(os.path.exists(outside))
        self.assert_refused("/dev/null", "")
        self.assert_refused("/no/such/file", "No such file")

    def test_hostile_trees(self):
        """What is whole by its digests and still is nobody's backup."""
        file, link, hard, device, directory = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE
        database = subprocess.run(["tar", "--zstd", "-xOf", self.database, "db/caisson.db"], capture_output=True, check=True, timeout=30).stdout
        box = {"id": "abcdefghijklmnop", "tier": "namespace", "slot": 1, "owner": 1879048192}
        outside = f"/tmp/caisson-hostile-tree-{os.getpid()}"

        def backup(tree, database=database):
            name = "sandboxes/abcdefghijklmnop/files.tar"
            digests = {"db/caisson.db": digest_of(database), name: digest_of(tree)}
            manifest = self.manifest(("db/caisson.db", len(database), len(database)), (name, len(tree), len(tree)), sandboxes=(box,))
            return self.hostile([("manifest.json", file, manifest, ""), ("db/caisson.db", file, database, ""), (name, file, tree, ""),
                                 ("digests.json", file, json.dumps(digests).encode(), "")])
        good = [("./upper", directory, b"", ""), ("./upper/file", file, b"x", "")]
        daemon = self.fresh()
        code, _, err = state(daemon, "restore", backup(self.tar(good, box["owner"], 0o755)))
        self.assertEqual(code, 0, err)
        self.assertEqual(open(f"{daemon.state}/sandboxes/abcdefghijklmnop/files/upper/file").read(), "x")
        for name, entries in {
                "dots": [("../../../../.." + outside, file, b"x", "")],
                "a device": [("./upper/null", device, b"", "")],
                "through a link": [("./upper/up", link, b"", "/tmp"), ("./upper/up/" + os.path.basename(outside), file, b"x", "")],
                "a link to a file outside": [("./upper/passwd", hard, b"", "/etc/passwd")],
                "no tar": None}.items():
            with self.subTest(name):
                self.assert_refused(backup(self.tar(good + entries, box["owner"]) if entries else b"x" * 5000), "its files")
        for owner in (0, 1000, box["owner"] - 1, box["owner"] + 65536):
            with self.subTest(owner=owner):
                self.assert_refused(backup(self.tar(good, owner, 0o4755)), "does not belong to the sandbox")
        # Capabilities of the second version are the host's.
        headers = {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02" + "\x01" * 16}
        self.assert_refused(backup(self.tar(good, box["owner"], headers=headers)), "does not belong to the sandbox")
        # In there an absolute name is one of the tree's own.
        self.assert_refused(backup(self.tar([(outside, file, b"x", "")], box["owner"])), "its files")
        self.assertFalse(os.path.exists(outside))
        self.assert_refused(backup(self.tar(good, box["owner"]), b"x" * 4096), "database")
        # The ids that the manifest names must be a sandbox's, too.
        box["owner"] = 1
        self.assert_refused(backup(self.tar(good, 1000)), "belong to uid 1")

    def link(self, pid, name):
        try:
            return os.readlink(f"/proc/{pid}/{name}")
        except OSError:  # it is gone
            return None

    def inside(self, directory):
        """The processes whose root it is."""
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self.link(pid, "root") == directory]

    def test_killed_while_unpacking(self):
        new = self.fresh()
        whole = open(self.file, "rb").read()
        process = subprocess.Popen([PROGRAM, "state", "restore", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, **new.client_environment()})
        process.stdin.write(whole[:len(whole) // 2])
        process.stdin.flush()
        inside = new.state + "/restore/unpacked"
        wait_until(lambda: glob.glob(inside + "/db/*"), 30, what="unpacking")
        # Another process of nobody's does not get there, and the one that does has nothing else.
        self.assertEqual([(os.stat(path).st_uid, os.stat(path).st_mode & 0o777) for path in (new.state + "/restore", inside)],
                         [(0, 0o700), (65534, 0o700)])
        worker, = self.inside(inside)
        self.assertNotEqual(os.readlink(f"/proc/{worker}/ns/pid"), os.readlink("/proc/self/ns/pid"))
        self.assertNotEqual(os.readlink(f"/proc/{worker}/ns/net"), os.readlink("/proc/self/ns/net"))
        opened = [self.link(worker, f"fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd") if int(fd) > 2]
        self.assertEqual([path for path in opened if path and not path.startswith(("pipe:", inside))], [])
        process.kill()
        process.wait()
        # Whoever unpacked went with it; a daemon would find an empty state.
        wait_until(lambda: not self.inside(inside), 30, what="the end of who unpacked")
        process.stdin.close()
        process.stderr.close()
        self.assertEqual([name for name in os.listdir(new.state) if name not in ("lock", "restore")], [])
        new.start()
        self.assertEqual(new.client().get("/v1/sandboxes")["items"], [])
        new.stop()
        shutil.rmtree(new.state)
        self.assertEqual(state(new, "restore", self.file)[0], 0)
        new.start().client().post("/v1/sandboxes/one/start")
        self.assertEqual(new.client().read("one", "/root/file"), MARK * 3000)
        new.close()

    def test_killed_while_putting_in_place(self):
        for done in (0, 2):
            new = self.fresh()
            self.assertEqual(state(new, "restore", self.file)[0], 0)
            # As it is after the first `done` of its steps.
            os.mkdir(new.state + "/restore")
            for part in ("db", "logs", "sandboxes")[done:]:
                os.rename(f"{new.state}/{part}", f"{new.state}/restore/{part}")
            open(new.state + "/restore/ready", "w").close()
            new.start(wait=False)
            self.assertNotEqual(new.process.wait(30), 0)
            self.assertIn("cut short", new.log())
            code, _, err = state(new, "restore", self.file)
            self.assertEqual(code, 125)
            self.assertIn("complete now", err)
            self.assertFalse(os.path.exists(new.state + "/restore"))
            new.start().client().post("/v1/sandboxes/one/start")
            self.assertEqual(new.client().read("one", "/root/file"), MARK * 3000)
            new.close()

    def test_usage(self):
        for arguments in (("state",), ("state", "backup"), ("state", "restore", "a", "b"), ("state", "backup", "x", "--force"), ("state", "restore", "x", "--stop"),
                          ("state", "backup", "x", "--state", "relative")):
            code, _, err = self.old.cli(*arguments)
            self.assertEqual(code, 125, arguments)
            self.assertIn("--help", err)
        code, _, err = self.old.cli("state", "backup", "/no/such/directory/x", "--database-only")
        self.assertEqual(code, 125)
        self.assertNotIn("defect", err)
        code, _, err = state(self.old, "remove", "--state", self.old.top)
        self.assertIn("is not a state directory", err)
        self.assertTrue(os.path.exists(self.old.state))
        other = self.fresh()
        for arguments in (("restore", "/no/such/file"), ("backup", os.path.join(other.top, "x")), ("restore", "/etc/passwd")):
            code, _, err = state(other, *arguments)
            self.assertEqual(code, 125)
            self.assertNotIn("defect", err)
            self.assertFalse(os.path.exists(other.state))
        pipe = os.path.join(self.old.top, "pipe")
        os.mkfifo(pipe)
        self.assertEqual(state(self.old, "backup", pipe, "--database-only")[0], 125)
        full = subprocess.run([PROGRAM, "state", "backup", "-", "--database-only"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, timeout=60,
                              env={**os.environ, **self.old.client_environment()})
        self.assertEqual(full.returncode, 125)
        self.assertIn(b"No space", full.stderr)


class WhichDaemon(OwnDaemons):
    """Of two daemons the one that is meant: by the runtime directory as with every verb, or by --state."""

    def setUp(self):
        self.mine, self.other = self.start_daemon(), self.start_daemon()
        self.boxes = {daemon: daemon.client().create(disk_mb=64)["id"] for daemon in (self.mine, self.other)}
        self.file = os.path.join(self.mine.top, "backup.tar.zst")

    def backup(self, *arguments, **environment):
        """With this environment alone."""
        result = subprocess.run([PROGRAM, "state", "backup", "--stop", *arguments, self.file], capture_output=True, text=True, timeout=60,
                                **self.mine.identity(), env={"PATH": os.environ["PATH"], "HOME": self.mine.top, "ASAN_OPTIONS": "detect_leaks=0",
                                     "CAISSON_CONFIG": self.mine.config, **environment})
        return result.returncode, result.stderr

    def assert_backed_up(self, daemon, answer):
        self.assertEqual(answer[0], 0, answer)
        manifest = json.loads(tarfile.open(fileobj=io.BytesIO(unpacked(self.file))).extractfile("manifest.json").read())
        self.assertEqual([sandbox["id"] for sandbox in manifest["sandboxes"]], [self.boxes[daemon]])
        os.unlink(self.file)

    def assert_status(self, daemon, status):
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + self.boxes[daemon])["status"], status)

    def test_another_than_that_of_the_environment(self):
        url = {"CAISSON_URL": f"http://127.0.0.1:{self.mine.port}", "CAISSON_TOKEN": self.mine.token()}
        self.assert_backed_up(self.other, self.backup("--state", self.other.state, **self.mine.client_environment()))
        self.assert_status(self.other, "stopped")
        self.assert_backed_up(self.other, self.backup("--state", self.other.state, **url))
        # Also when nobody serves it.
        self.other.stop()
        self.assert_backed_up(self.other, self.backup("--state", self.other.state, **self.mine.client_environment()))
        # Of one that is reached over the network nothing is known here.
        code, said = self.backup(**url)
        self.assertEqual(code, 125)
        self.assertIn("CAISSON_URL", said)
        self.assert_status(self.mine, "running")

    def test_by_the_runtime_directory_alone(self):
        code, said = self.backup(CAISSON_RUNTIME=self.other.runtime, CAISSON_STATE=self.mine.state)
        self.assertEqual(code, 125)
        for part in (self.other.runtime, self.other.state, self.mine.state):
            self.assertIn(part, said)
        for daemon in (self.mine, self.other):
            self.assert_status(daemon, "running")
        self.assert_backed_up(self.other, self.backup(CAISSON_RUNTIME=self.other.runtime))
        self.assert_status(self.mine, "running")


class Workspaces(OwnDaemons):
    """A backup holds the sandboxes of every workspace, and so --stop stops them all."""

    def setUp(self):
        self.daemon = self.start_daemon()
        self.apis = [self.daemon.client(), *(self.daemon.tcp(self.daemon.token(workspace=name)) for name in ("team", "other"))]
        self.boxes = [api.create(disk_mb=64)["id"] for api in self.apis]
        for api, box in zip(self.apis, self.boxes):
            self.addCleanup(api.delete, "/v1/sandboxes/" + box)
        self.file = os.path.join(self.daemon.top, "backup.tar.zst")

    def statuses(self):
        return [api.get("/v1/sandboxes/" + box)["status"] for api, box in zip(self.apis, self.boxes)]

    def tokens(self):
        return sorted(token["id"] for token in self.daemon.client().get("/v1/tokens")["tokens"])

    def test_all_are_stopped(self):
        before = self.tokens()
        foreign = {"CAISSON_TOKEN": self.daemon.token(workspace="team", scopes=["sandboxes:read"])}
        after = self.tokens()
        self.assertEqual(len(after), len(before) + 1)
        code, out, err = self.daemon.cli("state", "backup", "--stop", self.file, environment=foreign, timeout=60)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.statuses(), ["stopped"] * 3)
        self.assertEqual(self.tokens(), after)
        manifest = json.loads(tarfile.open(fileobj=io.BytesIO(unpacked(self.file))).extractfile("manifest.json").read())
        self.assertEqual(sorted(sandbox["id"] for sandbox in manifest["sandboxes"]), sorted(self.boxes))

    def test_none_is_stopped_if_one_cannot_be(self):
        database = sqlite3.connect(self.daemon.state + "/db/caisson.db", timeout=30)
        self.addCleanup(database.close)
        with database:
            database.execute("CREATE TRIGGER no_tokens BEFORE INSERT ON tokens BEGIN SELECT RAISE(ABORT, 'no'); END")
        code, out, err = state(self.daemon, "backup", "--stop", self.file)
        self.assertEqual(code, 125, err)
        for words in ("nothing was stopped", "1 in default", "1 in team", "1 in other", "tokens of these workspaces"):
            self.assertIn(words, err)
        self.assertEqual(self.statuses(), ["running"] * 3)
        self.assertFalse(os.path.exists(self.file))
        with database:
            database.execute("DROP TRIGGER no_tokens")


class Rootless(OwnDaemons):
    """Without root a sandbox's files are a directory, which belongs to ids of the user's own."""

    def carry(self, with_range):
        user = User(with_range)
        self.addCleanup(user.remove)
        # What is left is looked for below: the new one has no state to start with then.
        old, new = (self.new_daemon(user=user, check=False) for _ in range(2))
        api = old.start().client()
        api.create(name="one", timeout_seconds=0)
        own = "chown 1000:7 /root/file" if with_range else "true"
        api.write("one", "/root/file", MARK)
        api.sh("one", f"cd /root; {own}; chmod 640 file; ln file hard; ln -s file link; mkfifo pipe; truncate -s 1G hole; rm /etc/protocols; rm -r /opt/npm; "
                      "mkdir /opt/npm; touch 'odd\nname'; python3 -c 'import os, socket; os.setxattr(\"file\", \"user.x\", b\"y\"); "
                      "socket.socket(socket.AF_UNIX).bind(\"socket\")'")
        look = "cd /root; stat -c '%n %F %u %g %a %h %s %b' *; ls -A /opt/npm /etc/protocols 2>&1; python3 -c 'import os; print(os.getxattr(\"file\", \"user.x\"))'"
        before = api.exec("one", look)["stdout"]
        file = os.path.join(user.home, "backup.tar.zst")
        code, _, err = state(old, "backup", file)
        self.assertEqual(code, 125)
        self.assertIn("--stop", err)
        code, _, err = state(old, "backup", "--stop", file)
        self.assertEqual(code, 0, err)
        code, _, err = state(new, "restore", file)
        self.assertEqual(code, 0, err)
        api = new.start().client()
        self.assertEqual(api.get("/v1/sandboxes/one")["status"], "stopped")
        api.post("/v1/sandboxes/one/start")
        # Sockets are not taken along.
        self.assertEqual(api.exec("one", look)["stdout"], re.sub(r"socket socket.*\n", "", before))
        self.assertEqual(api.read("one", "/root/link"), MARK)
        root = self.new_daemon(check=False)
        code, _, err = state(root, "restore", file)
        self.assertEqual(code, 125)
        self.assertIn("restore it as such a user", err)
        self.assertFalse(os.path.exists(root.state))
        # What belongs to ids that are the user's in a namespace only goes too.
        code, _, err = state(new, "remove", "--force")
        self.assertEqual(code, 125)
        self.assertIn("a daemon serves", err)
        self.assertNotIn("systemctl", err)
        api.post("/v1/sandboxes/one/stop")
        new.stop()
        code, _, err = state(new, "remove")
        self.assertEqual(code, 125)
        self.assertIn("--force", err)
        self.assertEqual(state(new, "remove", "--force")[0], 0)
        self.assertFalse(os.path.exists(new.state))
        for daemon in (new, old):
            daemon.close()

    @long
    def test_with_a_range_of_ids(self):
        self.carry(True)

    @long
    def test_with_one_id(self):
        self.carry(False)


if __name__ == "__main__":
    unittest.main()
