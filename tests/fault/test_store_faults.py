"""What the host does to the daemon: a disk that is full at the very moment of a write, a database that somebody else
holds locked or that is damaged, a spawner that is late. Requests fail with a typed error, nothing is half done, and all
goes on when the cause is gone."""
import concurrent.futures
import os
import signal
import subprocess
import tempfile
import time
import unittest

import caisson
from caisson import ApiError, best_of, wait_until
from explain import wait_explained
from faults import DAEMON, PROGRAM, FaultTest, armable, list_points, use_fault_build
from marks import alone, busy
from test_kill_points import COUNTER, Call, line, not_passed

use_fault_build()
RUNS_ON = "fault"
DISK_MB = 96
# Until a request is refused for a lock. Only test-all measures it; elsewhere the client's time-out is the limit.
LOCKED_SECONDS = 2 if caisson.THOROUGH else float("inf")
# What the pool makes and gives back would take the room, or make some, at any time.
NO_POOL = "[usage]\ninterval = 1h\n[pool]\nsize = 0\nmax = 0\n"


def outcome(function, *arguments, **fields):
    """(status, code) of a refusal, or the answer."""
    try:
        return function(*arguments, **fields)
    except ApiError as error:
        return error.status, error.code


class StoreTest(FaultTest):
    mounts = ()

    def explained(self):
        wait_explained(self.daemon, self.mounts)

    def survivor(self):
        api = self.daemon.client(timeout=50)
        box = api.create(name="survivor")["id"]
        counter = api.exec(box, COUNTER, background=True)["exec_id"]
        return box, counter

    def check_survivor(self, box, counter, whole=True):
        api = self.daemon.client(timeout=50)
        self.assertEqual(api.sh(box, "echo 1"), "1\n")
        data = api.get(f"/v1/sandboxes/{box}/execs/{counter}/output", stream="stdout", **{"from": 0})
        if whole:
            count = len(data) // 16
            self.assertEqual(data[:count * 16], b"".join(line(n) for n in range(count)))


@busy
class DiskFull(StoreTest):
    """The state directory is on a disk of its own, which is filled while the daemon stands before a write."""

    def world(self, **options):
        daemon = super().world(**{"config": NO_POOL, **options})
        os.mkdir(daemon.state)
        # Not below the daemon's directories: whoever makes a mount namespace meanwhile holds the disk after we let it go.
        file, image = tempfile.mkstemp(prefix="caisson-disk-")
        self.addCleanup(os.unlink, image)
        os.truncate(file, DISK_MB << 20)
        os.close(file)
        # Without a journal: what is freed can be used, and be filled, at once.
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True, timeout=60)
        subprocess.run(["mount", "-o", "loop", image, daemon.state], check=True, timeout=60)
        os.rmdir(os.path.join(daemon.state, "lost+found"))
        self.mounts = (daemon.state,)
        return daemon

    def finish(self, daemon):
        """The disk is unmounted before its directory is removed, and after everything in it has ended."""
        failed = self.has_failed()
        if failed:
            daemon.print_log()
        self.free()
        try:
            if not failed:
                daemon.remove_sandboxes()
                self.explained()
            daemon.stop()
        finally:
            subprocess.run(["umount", "-l", daemon.state], timeout=60, capture_output=True)
            daemon.close(check=not failed)

    @property
    def ballast(self):
        return os.path.join(self.daemon.state, "ballast")

    def fill(self):
        """To the last block, as root."""
        with open(self.ballast, "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 512, 1):
                block = b"x" * size
                try:
                    while True:
                        file.write(block)
                except OSError:
                    pass
            try:
                os.fsync(file.fileno())
            except OSError:
                pass

    def sync(self):
        """What the sandboxes' disks hold back, then the file system that their images are on; nothing else of the host."""
        for device in caisson.loop_devices(self.daemon.state):
            # They are mounted in the sandboxes' namespaces alone. Mounted once more it is the same file system. Writing back
            # may fail: the host's disk is full.
            subprocess.run(["unshare", "--mount", "sh", "-c", 'mount "$1" /mnt || exit 99; sync -f /mnt 2>/dev/null; exit 0', "sh", device],
                           check=True, timeout=60)
        subprocess.run(["sync", "-f", self.daemon.state], timeout=60, stderr=subprocess.DEVNULL)

    def free(self):
        try:
            os.unlink(self.ballast)
        except FileNotFoundError:
            pass

    def full_at(self, point, request, skip=0):
        """Runs the request; at the point the disk is full, and free again when it has been answered."""
        self.explained()  # what is still being erased would make room again
        self.faults.arm(point, skip)
        call = Call(request)
        self.assertTrue(self.faults.held(20), f"nobody came to {point}")
        self.fill()
        self.faults.go_on()
        call.check(False)
        self.free()
        return (call.value.status, call.value.code) if call.outcome == "error" else call.value

    def test_every_write(self):
        daemon = self.world().start()
        api = daemon.client(timeout=50)
        box, counter = self.survivor()
        subject = api.create(name="subject")["id"]
        api.sh(subject, "echo kept > /workspace/x; sync")
        seen = set()
        full = (507, "host.no_space")

        def status():
            return api.get(f"/v1/sandboxes/{subject}")["status"]

        def refused(point, request, skip=0, answer=full):
            seen.add(point)
            self.assertEqual(self.full_at(point + ":before", request, skip), answer, point)
            self.explained()
            self.check_survivor(box, counter, whole=False)  # its log has no room either, and says so

        def post(what):
            return lambda: api.post(f"/v1/sandboxes/{subject}/{what}")

        refused("store.sandbox_insert", lambda: api.create(name="other"))
        # The row, a boot, and then its state cannot be written: it is undone.
        refused("store.sandbox_update", lambda: api.create(name="other"))
        self.assertEqual([record["name"] for record in api.get("/v1/sandboxes")["items"] if record["name"] == "other"
                          and record["status"] != "ended"], [])
        api.delete("/v1/sandboxes/" + api.create(name="other")["id"])
        refused("store.sandbox_update", post("pause"))
        self.assertEqual(status(), "running")
        # Where there is no way back it is true, and is written when there is space.
        paused = self.full_at("store.sandbox_update:before", post("pause"), skip=1)
        self.assertEqual(status(), "paused")
        # What it has not written has no room, and is not written for the host's memory's sake.
        self.assertIn("too full", paused["pause"]["reclaim_failure"])
        wait_until(lambda: self.stored_state(subject) == 4, 30, what="the row of a paused sandbox")
        refused("store.sandbox_update", post("resume"))
        self.assertEqual(status(), "paused")
        post("resume")()
        refused("store.sandbox_update", post("stop"))
        self.assertEqual(status(), "running")
        post("stop")()
        refused("store.sandbox_update", post("start"))
        self.assertEqual(status(), "stopped")
        post("start")()
        self.assertEqual(api.sh(subject, "cat /workspace/x"), "kept\n")
        # It runs, and that cannot be written: it is ended again. Its disk is unmounted while there is no room for it on
        # the host's, so that it may need e2fsck afterwards, and says so.
        victim = api.create()["id"]
        api.post(f"/v1/sandboxes/{victim}/stop")
        refused("store.sandbox_update", lambda: api.post(f"/v1/sandboxes/{victim}/start"), skip=1)
        self.assertEqual(api.get(f"/v1/sandboxes/{victim}")["status"], "stopped")
        again = outcome(api.post, f"/v1/sandboxes/{victim}/start")
        self.assertTrue(isinstance(again, dict) or again == (500, "sandbox.disk_damaged"), again)
        api.delete(f"/v1/sandboxes/{victim}")
        refused("store.exec_insert", lambda: api.exec(subject, "true"))
        self.assertEqual(api.sh(subject, "echo 1"), "1\n")
        seen.add("store.exec_update")
        # The command has run: that is told, and written later.
        result = self.full_at("store.exec_update:before", lambda: api.exec(subject, "echo 1; exit 3"))
        self.assertEqual((result["exit_code"], result["stdout"]), (3, "1\n"), result)
        wait_until(lambda: daemon.rows(f"select state, code from execs where id = '{result['exec_id']}'") == [(3, 3)], 30,
                   what="the row of an exec that ended when the disk was full")
        # What happened is written when there is space, and nothing of it is missing. It is written soon, at the end of the
        # command as a rule: where that was before it printed, there was no room for what it printed.
        for point in ("store.activity_insert", "store.commit"):
            seen.add(point)
            result = self.full_at(point + ":before", lambda: api.exec(subject, "echo 2; exit 4"))
            self.assertEqual(result["exit_code"], 4, result)
            self.assertRegex(result["stdout"], r"\A(2\n|(\n\[2 bytes of output were lost: the host's disk was full\]\n)?)\Z")
            wait_until(lambda: daemon.rows(f"select count(*) from activity where exec = '{result['exec_id']}'") == [(2,)], 30,
                       what="the activity of an exec that ended when the disk was full")
            self.assertEqual(daemon.rows(f"select max(number) - min(number) + 1 - count(*) from activity where sandbox = '{subject}'"), [(0,)])
        refused("store.token_insert", lambda: daemon.token())
        made = api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read"]})
        refused("store.token_revoke", lambda: api.delete("/v1/tokens/" + made["id"]))
        daemon.tcp(made["token"]).get("/v1/sandboxes")
        api.delete("/v1/tokens/" + made["id"])
        budgets = "/v1/workspaces/team/budgets"
        refused("store.budget_put", lambda: api.put(budgets, {"budgets": [{"what": "creates", "period": "day", "maximum": 9}]}))
        self.assertEqual(api.get(budgets)["budgets"], [])
        api.put(budgets, {"budgets": [{"what": "creates", "period": "day", "maximum": 9}]})
        refused("store.budget_delete", lambda: api.delete(budgets))
        self.assertEqual(len(api.get(budgets)["budgets"]), 1)
        api.delete(budgets)
        signing = f"/v1/sandboxes/{subject}/files/sign"
        refused("store.secret_insert", lambda: api.post(signing, {"path": "/workspace/x"}))
        self.assertEqual(api.call("GET", api.post(signing, {"path": "/workspace/x"})["url"]), b"kept\n")

        def keyed(name):
            return api.post("/v1/sandboxes", {"name": name}, **{"Idempotency-Key": "key-" + name})
        # Removing old keys comes to nothing, and nothing comes of it; that the disk is full is seen before a create begins.
        refused("store.request_prune", lambda: keyed("keyed"), answer=(503, "host.capacity"))
        self.when_there_is_room(keyed, "room")
        api.delete("/v1/sandboxes/room")
        refused("store.request_put", lambda: keyed("keyed"))
        made = keyed("keyed")["id"]
        self.assertEqual(keyed("keyed")["id"], made)
        # A key of what was refused that cannot be removed is nobody's.
        seen.add("store.request_delete")
        taken = api.create(name="taken")["id"]
        self.assertEqual(self.full_at("store.request_delete:before", lambda: keyed("taken")), (409, "sandbox.name_taken"))
        api.delete("/v1/sandboxes/" + taken)
        api.delete("/v1/sandboxes/" + keyed("taken")["id"])
        api.delete("/v1/sandboxes/" + made)
        contexts = f"/v1/sandboxes/{subject}/contexts"
        refused("store.context_insert", lambda: api.post(contexts, {"language": "bash"}))
        self.assertEqual(api.get(contexts)["contexts"], [])
        context = f"{contexts}/{api.post(contexts, {'language': 'bash'})['id']}"
        refused("store.context_update", lambda: api.post(context + "/run", {"code": "echo 1"}))
        self.assertEqual(api.post(context + "/run", {"code": "echo 1"})["stdout"], "1\n")
        # It is gone, whatever its row says; that it ended, a later daemon finds.
        seen.add("store.context_delete")
        self.full_at("store.context_delete:before", lambda: api.delete(context))
        self.assertEqual(api.get(contexts)["contexts"], [])
        # Deleting works on a full disk, too; its tombstone comes when there is space.
        for writes in (0, 1):  # the disk is full before both of its writes, and before the tombstone alone
            answer = self.full_at("store.sandbox_update:before", lambda: api.delete(f"/v1/sandboxes/{subject}"), writes)
            self.assertNotIsInstance(answer, tuple, "deleted, and answered with an error")
            wait_until(lambda: self.stored_state(subject) == 10, 30, what="a tombstone")
            subject = api.create()["id"]
        api.delete(f"/v1/sandboxes/{subject}")
        self.explained()
        self.check_survivor(box, counter, whole=False)
        writes = {point.rsplit(":", 1)[0] for point in list_points() if point.startswith("store.") and not not_passed(point)}
        # The pool's have a test of their own. Nobody waits for these: what was used and spent, prune and exec_delete are tried again later, a token that is
        # bound to a sandbox finds nothing without it, and the others are a start's, below.
        self.assertEqual(writes - seen, {"store.pool_put", "store.pool_delete", "store.sandbox_prune", "store.sandbox_prune_execs", "store.exec_delete",
                                         "store.activity_prune", "store.activity_mark_pruned", "store.usage_put", "store.usage_prune", "store.spent_put", "store.token_revoke_sandbox",
                                         "store.build", "store.install", "store.migration"})

    def test_the_pool(self):
        daemon = self.world(config="[usage]\ninterval = 1h\n[pool]\nsize = 1\nmax = 1\n").start()
        api = daemon.client(timeout=50)

        def filled():
            wait_until(lambda: len(daemon.pool_ready()) == daemon.pool_connected() == 1, 60, what="a pool")
        filled()
        before = daemon.pool_ready()
        # Nobody gets it, and the next one does.
        self.assertEqual(self.full_at("store.pool_delete:before", lambda: api.create(name="other")), (507, "host.no_space"))
        self.assertEqual(daemon.pool_ready(), before)
        record = self.when_there_is_room(api.create, name="other")
        self.assertEqual((record["boot_mode"], {record["id"]}), ("pool", before))
        filled()
        # One that cannot be written down is not made, or destroyed again, and is tried later.
        for skip in (0, 1):
            box = self.full_at("store.pool_put:before", api.create, skip)["id"]
            self.assertEqual(api.sh(box, "echo 1"), "1\n")
            filled()
            self.explained()
            api.delete("/v1/sandboxes/" + box)
            api.delete("/v1/sandboxes/" + self.when_there_is_room(api.create)["id"])
            filled()

    def when_there_is_room(self, function, *arguments, **fields):
        """The daemon looks at the disk once in a while."""
        def made():
            answer = outcome(function, *arguments, **fields)
            return answer != (503, "host.capacity") and answer
        return wait_until(made, 30, what="that the daemon sees the room")

    def stored_state(self, box):
        return self.daemon.rows(f"select state from sandboxes where id = '{box}'")[0][0]

    def first_start(self, point, fails):
        """A database that cannot be made is not there by halves, and is made when there is space."""
        daemon = self.world()
        self.faults.arm(point)
        daemon.start(wait=False)
        self.assertTrue(self.faults.held(20), f"nobody came to {point}")
        self.fill()
        self.faults.go_on()
        if fails:
            wait_until(lambda: "no space left" in daemon.log(), 30, what="a word about it")
            self.assertNotIn("caisson.db", os.listdir(os.path.join(daemon.state, "db")))
        self.free()
        daemon.wait_ready()
        box = daemon.client().create()["id"]
        self.assertEqual(daemon.client().sh(box, "echo 1"), "1\n")

    def test_first_start_building(self):
        self.first_start("store.build:before", True)

    def test_first_start_migrating(self):
        self.first_start("store.migration:before", True)

    def test_first_start_installing(self):
        """It is whole by then, and a name needs no room."""
        self.first_start("store.install:before", False)

    def test_output_and_images(self):
        """What a command prints and what a sandbox writes has no room: the daemon and the others go on."""
        daemon = self.world().start()
        api = daemon.client(timeout=30)
        box = api.create(disk_mb=256)["id"]
        other = api.create()["id"]
        api.sh(other, "echo 1 > /workspace/x")
        # On the host: a sync inside is none (the root is volatile), and what the kernel writes back while there is no room
        # makes this one's disk read-only too.
        self.sync()
        printing = api.exec(box, "i=0; while [ $i -lt 200 ]; do head -c 100000 /dev/zero | tr '\\0' x; i=$((i+1)); sleep 0.01; done; exit 5",
                            background=True)
        path = f"/v1/sandboxes/{box}/execs/{printing['exec_id']}"
        wait_until(lambda: api.get(path)["stdout_bytes"] > 0, 30)
        self.fill()
        # The command is not held up by its log.
        record = wait_until(lambda: (lambda record: record if record["state"] == "ended" else None)(api.get(path)), 30,
                            what="the end of a command whose output has no room")
        self.assertEqual(record["exit_code"], 5, record)
        self.degraded()
        self.assertEqual(daemon.client().read(other, "/workspace/x"), b"1\n")
        self.free()
        wait_until(lambda: isinstance(outcome(api.get, "/healthz"), dict), 30, what="a daemon that is well again")
        self.sync()
        # A sandbox's image that cannot grow. Its root is mounted volatile: an fsync inside does not write, but fails from
        # the first write on that did.
        self.fill()
        self.leave_room_for_an_exec()
        api.exec(box, "dd if=/dev/zero of=/workspace/big bs=1M count=64", timeout_seconds=60)
        self.sync()
        self.leave_room_for_an_exec()
        written = api.exec(box, "dd if=/dev/zero of=/workspace/small bs=1 count=1 conv=fsync", timeout_seconds=60)
        self.assertNotEqual(written["exit_code"], 0, written)
        self.assertRegex(written["stderr"], "Input/output error|Read-only file system")
        self.free()
        wait_until(lambda: isinstance(outcome(api.get, "/healthz"), dict), 30, what="a daemon that is well again")
        self.assertEqual(api.sh(other, "cat /workspace/x; echo 2 > /workspace/y; cat /workspace/y"), "1\n2\n")
        self.assertEqual(api.get(f"/v1/sandboxes/{box}")["status"], "running")
        api.delete(f"/v1/sandboxes/{box}")
        self.explained()

    def degraded(self):
        """The daemon is there, and says what it cannot do: from the first write on that fails. Before that there may be
        room in the journal, which is written anew from its beginning."""
        error = None
        for _ in range(3000):
            if outcome(self.daemon.token) == (507, "host.no_space"):
                try:
                    self.daemon.client().get("/healthz")
                except ApiError as refusal:
                    error = refusal
                    break
        self.assertIsNotNone(error, "the daemon says that it is well")
        self.assertEqual((error.status, error.code, error.body["status"], error.body["reasons"]),
                         (503, "store.failed", "degraded", ["the store cannot be written"]))

    def leave_room_for_an_exec(self):
        """It needs some for its row and its logs."""
        with open(self.ballast, "r+b") as file:
            file.truncate(os.path.getsize(self.ballast) - (1 << 20))


class Locked(StoreTest):
    def hold(self):
        """Another process that has the database for itself, until it is let go."""
        script = "c.execute('begin immediate'); print('held', flush=True); sys.stdin.read(); c.execute('rollback')"
        holder = subprocess.Popen(self.daemon.as_database_owner(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(holder.stdout.readline(), "held\n")
        holder.stdout.close()
        return holder

    def let_go(self, holder):
        holder.stdin.close()
        self.assertEqual(holder.wait(20), 0)

    def refusal(self, request):
        """How long it took until it was refused for the lock."""
        began = time.monotonic()
        with self.assertRaises(ApiError) as caught:
            request()
        self.assertEqual(caught.exception.code, "store.failed", caught.exception.body)
        self.assertTrue(caught.exception.body["retryable"], caught.exception.body)
        return time.monotonic() - began

    @alone
    def test_locked_by_another_process(self):
        daemon = self.world().start()
        api = daemon.client(timeout=50)
        box, counter = self.survivor()
        running = api.exec(box, "sleep 0.7; exit 3", background=True)["exec_id"]
        holder = self.hold()
        try:
            for request in (lambda: api.create(), lambda: api.exec(box, "true"), lambda: api.post(f"/v1/sandboxes/{box}/pause"),
                            lambda: daemon.token()):
                best_of(3, lambda: self.refusal(request), LOCKED_SECONDS)
            # What needs no write goes on.
            self.assertEqual(api.get(f"/v1/sandboxes/{box}")["status"], "running")
            api.write(box, "/workspace/x", b"1")
            self.assertEqual(daemon.client().read(box, "/workspace/x"), b"1")
            wait_until(lambda: api.get(f"/v1/sandboxes/{box}/execs/{running}")["state"] == "ended", 30, what="its end")
        finally:
            self.let_go(holder)
        # An exec that ended meanwhile is written down now, and nothing is half made.
        record = api.get(f"/v1/sandboxes/{box}/execs/{running}")
        self.assertEqual(record["exit_code"], 3)
        self.explained()
        self.check_survivor(box, counter)
        other = api.create()["id"]
        self.assertEqual(api.sh(other, "echo 1"), "1\n")
        daemon.kill_daemon()
        wait_until(lambda: api.get(f"/v1/sandboxes/{box}/execs/{running}").get("exit_code") == 3, 30, what="its end")
        self.explained()

    def test_locked_while_the_daemon_starts(self):
        daemon = self.world().start()
        box, counter = self.survivor()
        holder = self.hold()
        os.kill(daemon.daemon_pid(), signal.SIGKILL)
        said = len(daemon.log())
        wait_until(lambda: "database is locked" in daemon.log()[said:], 30, what="the next daemon at the lock")
        self.let_go(holder)
        daemon.wait_ready()
        self.check_survivor(box, counter)
        self.explained()


class Damaged(StoreTest):
    def test_damage_is_refused_and_nothing_is_touched(self):
        """Sandboxes run on while their database is not to be trusted; with the right one everything is as before."""
        daemon = self.world().start()
        box, counter = self.survivor()
        pid = daemon.init_of(box)
        daemon.stop()
        path = os.path.join(daemon.state, "db", "caisson.db")
        good = open(path, "rb").read()
        # The root page of a table; a page in the middle; all but the header; cut short.
        damages = [good[:4096] + b"\xff" * 4096 + good[8192:], good[:len(good) // 2] + b"\0" * 5000 + good[len(good) // 2 + 5000:],
                   good[:100] + os.urandom(len(good) - 100), good[:5000], b""]
        for number, damage in enumerate(damages):
            with self.subTest(number=number):
                with open(path, "r+b") as file:
                    file.truncate(0)
                    file.write(damage)
                before = sorted(os.listdir(os.path.dirname(path)))
                said = len(daemon.log())
                daemon.start(wait=False)
                self.assertNotEqual(daemon.process.wait(30), 0)
                text = daemon.log()[said:]
                self.assertIn("cannot start", text)
                self.assertIn("caisson.db", text)
                self.assertEqual(open(path, "rb").read(), damage)
                self.assertEqual(sorted(os.listdir(os.path.dirname(path))), before)
                self.assertTrue(os.path.exists(f"/proc/{pid}"), "a sandbox was ended")
        with open(path, "r+b") as file:
            file.truncate(0)
            file.write(good)
        daemon.start()
        self.check_survivor(box, counter)
        self.explained()


class Late(unittest.TestCase):
    """The spawner comes too late with its answer. In the test build it has 3 s, and 5 s for a boot: once they pass in real
    time, else the daemon's clocks are moved over them."""

    def late(self, what, faults, request):
        """What the client of a request gets whose time-out is over before the spawner begins with it."""
        kind = {"stop": "kill", "pause": "freeze", "resume": "thaw", "delete": "destroy"}.get(what, what)
        if what == "pause":
            faults.arm(f"spawner.request.{kind}:before", delay=4.5)
            return outcome(request)
        faults.arm(f"spawner.request.{kind}:before")
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            asked = client.submit(outcome, request)
            try:
                if not faults.held(30):
                    raise AssertionError(f"{what}: the spawner was not asked")
                faults.advance(5 if what in ("create", "start") else 3, of=(DAEMON,))
                return asked.result(30)
            finally:
                faults.go_on()

    def one(self, what):
        daemon, faults = armable(config=NO_POOL)  # one from the pool asks the spawner nothing
        with daemon:
            api = daemon.client(timeout=40)
            box = api.create(name="survivor")["id"]
            counter = api.exec(box, COUNTER, background=True)["exec_id"]
            subject = None if what == "create" else api.create(name="subject")["id"]
            before = {"resume": "pause", "start": "stop"}.get(what)
            if before:
                api.post(f"/v1/sandboxes/{subject}/{before}")
            began = time.monotonic()
            got = self.late(what, faults, lambda: (
                api.create(name="subject") if what == "create" else api.delete(f"/v1/sandboxes/{subject}") if what == "delete"
                else api.post(f"/v1/sandboxes/{subject}/{what}")))
            took = time.monotonic() - began
            if got != (504, "timeout"):
                raise AssertionError(f"{what}: {got}")
            if took > 12:
                raise AssertionError(f"{what}: it took {took:.1f} s")
            wait_until(lambda: not faults.page.held, 30, what="the spawner's return")
            self.check_settled(what, daemon, api)
            data = api.get(f"/v1/sandboxes/{box}/execs/{counter}/output", stream="stdout", **{"from": 0})
            count = len(data) // 16
            if data[:count * 16] != b"".join(line(n) for n in range(count)) or api.sh(box, "echo 1") != "1\n":
                raise AssertionError(f"{what}: the survivor's output is not whole")
            wait_explained(daemon)

    def settle(self, condition, what, text):
        try:
            wait_until(condition, 30, 0.1)
        except AssertionError:
            raise AssertionError(f"{what}: {text()}") from None

    def check_settled(self, what, daemon, api):
        def status():
            try:
                return api.get("/v1/sandboxes/subject")["status"]
            except ApiError as error:
                return error.code
        gone = ("ended", "sandbox.not_found")  # its tombstone, or not even that yet
        wanted = {"create": gone, "delete": gone, "stop": ("stopped",),
                  "start": ("stopped",), "pause": ("running",), "resume": ("running",)}[what]
        self.settle(lambda: status() in wanted, what, status)
        if what in ("stop", "start"):
            api.post("/v1/sandboxes/subject/start")
        if what in ("create", "delete"):
            api.create(name="subject")
        # Whatever the spawner did late: it answers, and is what the record says.
        self.settle(lambda: outcome(api.exec, "subject", "echo 1", timeout_seconds=5).__class__ is dict, what, status)
        if api.sh("subject", "echo 1") != "1\n":
            raise AssertionError(f"{what}: the subject does not answer")

    def test_late_answers(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for _ in pool.map(self.one, ("create", "start", "pause", "resume", "stop", "delete")):
                pass


class NormalBuild(unittest.TestCase):
    def test_has_no_fault_points(self):
        """The program that people run knows nothing of all this."""
        program = open(os.path.join(caisson.BUILD, "caisson"), "rb").read()
        faulty = open(PROGRAM, "rb").read()
        for text in (b"CAISSON_FAULTS", b"_fault-points", b"fault_point", b"clock_advance", b"spawner.request", b"sandbox_prune_execs"):
            self.assertIn(text, faulty)
            self.assertNotIn(text, program)


if __name__ == "__main__":
    unittest.main()
