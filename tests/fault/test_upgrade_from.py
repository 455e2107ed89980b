"""An upgrade from the program of an earlier landing (tests/upgrade-from): its sandboxes go on under this build's, whatever
made them, and this build's can be left to it again without a loss."""
import os
import shutil
import tempfile
import unittest

import older
from caisson import BUILD, ApiError, Daemon, OwnDaemons, wait_until
from explain import wait_explained
from marks import long
from runsc import needs_gvisor

RUNS_ON = "normal"  # the older program is none of the sanitized
OLDER_PROGRAM = True
POOLED = "[pool]\nsize = 2\nmax = 2\n"
# Each line is its number, at its place: a lost or a doubled byte shows.
COUNTER = "i=0; while [ ! -e /workspace/enough ]; do printf '%015d\\n' $i; i=$((i+1)); sleep 0.1; done"


def unchecked(daemon):
    """For the older program: docs/openapi.json describes this build's answers."""
    client = daemon.client()
    client.checked = False
    return client


def executable(daemon, box):
    return os.readlink(f"/proc/{daemon.init_of(box)}/exe")


class Kept:
    """A sandbox with a file, a command that prints and perhaps a code context. `check` sees that nothing of it is lost."""

    def __init__(self, test, api, name, context=False, **fields):
        self.test, self.name, self.record = test, name, api.create(name=name, labels={"made": "before"}, **fields)
        self.box = self.record["id"]
        self.path = f"/v1/sandboxes/{self.box}"
        self.status = "running"
        api.write(self.box, "/workspace/file", name.encode())
        self.context = None
        if context:
            made = api.post(self.path + "/contexts", {"language": "python"})
            self.context = f"{self.path}/contexts/{made['id']}"
            api.post(self.context + "/run", {"code": "number = 41", "timeout_seconds": 60})
        self.counter = f"{self.path}/execs/{api.exec(self.box, COUNTER, background=True)['exec_id']}"
        self.bytes = 0
        self.check_printing(api)

    def check_output(self, api):
        data = api.get(self.counter + "/output", stream="stdout", **{"from": 0})
        self.test.assertEqual(data, b"".join(b"%015d\n" % number for number in range(len(data) // 16)), self.name)
        self.test.assertGreaterEqual(len(data), self.bytes, self.name)
        return len(data)

    def check_printing(self, api):
        """It prints more than when it was last looked at."""
        began = self.bytes
        self.bytes = wait_until(lambda: (lambda size: size if size > began else 0)(self.check_output(api)), 30,
                                what=f"more output of {self.name}")

    def become(self, api, verb, status):
        api.post(f"{self.path}/{verb}")
        self.status = status
        self.bytes = self.check_output(api)

    def check(self, api):
        record = api.get(self.path)
        for key in ("id", "name", "isolation", "labels", "created_at", "memory_mb"):
            self.test.assertEqual(record[key], self.record[key], self.name)
        self.test.assertEqual(record["status"], self.status, self.name)
        if self.status == "running":
            self.check_living(api)
        else:
            self.check_output(api)

    def check_living(self, api):
        self.test.assertEqual(api.sh(self.box, "cat /workspace/file"), self.name)
        self.check_printing(api)
        api.write(self.box, "/workspace/another", b"new")
        self.test.assertEqual(api.read(self.box, "/workspace/another"), b"new")
        if self.context:
            result = api.post(self.context + "/run", {"code": "number + 1", "timeout_seconds": 60})
            self.test.assertEqual([each.get("text/plain") for each in result["results"]], ["42"], result)

    def end_counter(self, api):
        """All that it ever printed is there."""
        api.sh(self.box, "touch /workspace/enough")
        record = wait_until(lambda: (lambda r: r if r["state"] == "ended" else None)(api.get(self.counter)), 30, what="the counter's end")
        self.test.assertEqual((record["exit_code"], record["stdout_bytes"]), (0, self.check_output(api)))


@long
class UpgradeFrom(OwnDaemons):
    def setUp(self):
        reason = older.reason_without()
        if reason:
            self.skipTest(reason)
        self.older = os.path.join(older.folder(), "caisson")
        # Its init differs from the older one's wherever nothing in it was changed since.
        directory = tempfile.mkdtemp(prefix="caisson-new-")
        self.addCleanup(shutil.rmtree, directory)
        self.newer = older.with_other_init(BUILD, directory)

    def daemon_of(self, program):
        return self.start_daemon(POOLED, program=program)

    @staticmethod
    def fill(daemon):
        wait_until(lambda: len(daemon.pool_ready()) == daemon.pool_connected() == 2, 60, what="a pool")

    def use(self, daemon, program, end):
        """The next start is of the other program, on the same directories."""
        end(daemon)
        daemon.program = program

    def some(self, daemon, api):
        """One from the pool, one made from nothing, a paused and a stopped one."""
        self.fill(daemon)
        pooled = Kept(self, api, "pooled", context=True)
        self.assertEqual(pooled.record["boot_mode"], "pool")
        cold = Kept(self, api, "cold", context=True, disk_mb=300)
        self.assertEqual(cold.record["boot_mode"], "cold")
        paused, stopped = Kept(self, api, "paused"), Kept(self, api, "stopped")
        paused.become(api, "pause", "paused")
        stopped.become(api, "stop", "stopped")
        return [pooled, cold, paused, stopped]

    def check_taken_over(self, end, keeps_pool):
        daemon = self.daemon_of(self.older)
        kept = self.some(daemon, unchecked(daemon))
        inits = {one.box: daemon.init_of(one.box) for one in kept[:3]}
        self.fill(daemon)
        members = daemon.pool_ready()
        self.use(daemon, self.newer, end)
        self.assertEqual(daemon.pooled(), members if keeps_pool else set())
        daemon.start()
        api = daemon.client()
        self.assertEqual(os.readlink(f"/proc/{daemon.daemon_pid()}/exe"), self.newer)
        # The older program's filters and limits are not given to anybody new.
        fresh = api.create()
        self.assertNotIn(fresh["id"], members)
        api.delete("/v1/sandboxes/" + fresh["id"])
        wait_until(lambda: not daemon.pooled() & members, 30, what="the end of the older program's pool")
        found = {item["id"] for item in api.get("/v1/sandboxes")["items"] if item["status"] != "ended"}
        self.assertEqual(found, {one.box for one in kept})
        for one in kept:
            one.check(api)
        self.assertEqual({box: daemon.init_of(box) for box in inits}, inits)
        self.check_afterwards(daemon, kept)

    def check_afterwards(self, daemon, kept):
        """Resumed, started and restarted under this build; deleted without a trace."""
        api = daemon.client()
        pooled, cold, paused, stopped = kept
        self.assertTrue(executable(daemon, cold.box).endswith(" (deleted)"))
        paused.become(api, "resume", "running")
        paused.check(api)
        for one in (pooled, cold, paused):
            one.end_counter(api)
        for one in (cold, pooled):
            api.post(one.path + "/stop")
        for one in (stopped, cold, pooled):
            api.post(one.path + "/start")
            self.assertFalse(executable(daemon, one.box).endswith(" (deleted)"), one.name)
            self.assertEqual(api.sh(one.box, "cat /workspace/file"), one.name)
            one.check_output(api)
        for one in kept:
            api.delete(one.path)
        wait_explained(daemon)

    def test_stopped_as_by_a_package_upgrade(self):
        """KillMode=process: `serve` alone is told to end, and ends its daemon and its pool."""
        self.check_taken_over(Daemon.stop, keeps_pool=False)

    def test_killed_with_its_pool_left(self):
        self.check_taken_over(Daemon.kill, keeps_pool=True)

    def test_the_pool_of_another_program_with_the_same_init(self):
        """The spawner makes filters, cgroups and mounts too: a new one follows none of the old one's."""
        newer = older.with_init_of(BUILD, os.path.dirname(self.older), os.path.dirname(self.newer))
        daemon = self.daemon_of(self.older)
        self.fill(daemon)
        members = daemon.pool_ready()
        self.use(daemon, newer, Daemon.kill)
        daemon.start()
        api = daemon.client()
        fresh = api.create()
        self.assertNotIn(fresh["id"], members)
        api.delete("/v1/sandboxes/" + fresh["id"])
        wait_until(lambda: not daemon.pooled() & members, 30, what="the end of the older program's pool")

    @needs_gvisor
    def test_gvisor(self):
        daemon = self.daemon_of(self.older)
        one = Kept(self, unchecked(daemon), "gvisor", context=True, isolation="gvisor")
        self.use(daemon, self.newer, Daemon.stop)
        daemon.start()
        api = daemon.client()
        one.check(api)
        one.end_counter(api)
        api.post(one.path + "/stop")
        api.post(one.path + "/start")
        self.assertEqual(api.sh(one.box, "cat /workspace/file"), one.name)
        one.check_output(api)
        api.delete(one.path)
        wait_explained(daemon)

    def test_the_way_back(self):
        """The older program takes over what this build made, or says why it does not; this build then finds all of it."""
        daemon = self.daemon_of(self.newer)
        kept = self.some(daemon, daemon.client())
        self.use(daemon, self.older, Daemon.stop)
        daemon.start(wait=False)
        if self.takes_over(daemon):
            api = unchecked(daemon)
            self.assertEqual({one.box: api.get(one.path)["status"] for one in kept}, {one.box: one.status for one in kept})
            for one in kept[:2]:
                self.check_answer(api, one)
            daemon.stop()
        daemon.process = None
        daemon.program = self.newer
        daemon.start()
        for one in kept:
            one.check(daemon.client())

    def takes_over(self, daemon):
        """False: it ended, and its log says that what it found is newer."""
        wait_until(lambda: daemon.process.poll() is not None or self.is_ready(daemon), 60, what="its start or its end")
        if daemon.process.poll() is None:
            return True
        self.assertRegex(daemon.log(), r"schema version \d+, this caisson knows up to \d+")
        return False

    @staticmethod
    def is_ready(daemon):
        try:
            return unchecked(daemon).get("/healthz")
        except (OSError, ApiError):
            return False

    def check_answer(self, api, one):
        """A command runs, or an init that is too new is named, with what to do."""
        try:
            self.assertEqual(api.sh(one.box, "cat /workspace/file"), one.name)
        except ApiError as error:
            self.assertEqual(error.code, "sandbox.protocol", error)
            self.assertIn("stop and start", str(error.body))


if __name__ == "__main__":
    unittest.main()
