"""Sandboxes that are ready before anybody asks: used, refilled, never in anybody's way, never left behind."""
import datetime
import glob
import os
import signal
import threading
import time
import unittest

from caisson import ApiError, OwnDaemons, at_once, best_of, parent_of, wait_until
from marks import alone, busy, thorough

POOLED = "[pool]\nsize = 2\nmax = 6\n"


def children(daemon):
    """Processes that are children of the spawner and no daemon: inits, workers."""
    ours = daemon.daemon_pid()
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    return [pid for pid in pids if pid != ours and parent_of(pid) == daemon.process.pid]


def newest(daemon):
    """The same, from the kernel's list: at once, but one may be missing while another ends (proc(5))."""
    ours = daemon.daemon_pid()
    pids = open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read().split()
    return {int(pid) for pid in pids if int(pid) != ours}


class Pool(OwnDaemons):
    def filled(self, daemon, count=2):
        wait_until(lambda: len(daemon.pool_ready()) >= count and daemon.pool_connected() >= count, 30, what=f"a pool of {count}")

    def test_used_and_refilled(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        before, inits = daemon.pool_ready(), {box: daemon.init_of(box) for box in daemon.pool_ready()}
        record = api.create(name="first", env={"OF_THE_SANDBOX": "1"}, timeout_seconds=100)
        box = record["id"]
        self.assertEqual(record["boot_mode"], "pool")
        self.assertIn(box, before)
        self.assertEqual(daemon.init_of(box), inits[box])
        # Its id is what it was made with; its name comes with the next start.
        self.assertEqual(api.sh("first", "hostname; id -u; cat /etc/hostname").split(), [box, "0", box])
        self.assertEqual(api.sh("first", "echo $OF_THE_SANDBOX $OF_THE_EXEC", env={"OF_THE_EXEC": "2"}), "1 2\n")
        self.assertEqual(api.sh("first", "echo $OF_THE_SANDBOX", env={"OF_THE_SANDBOX": "3"}), "3\n")
        self.assertLessEqual(api.get("/v1/sandboxes/first")["expires_in_s"], 100)
        self.filled(daemon)
        self.assertNotIn(box, daemon.pooled())
        self.assertEqual([item["id"] for item in api.get("/v1/sandboxes")["items"]], [box])
        api.post("/v1/sandboxes/first/stop")
        api.post("/v1/sandboxes/first/start")
        self.assertEqual(api.sh("first", "hostname; echo $OF_THE_SANDBOX"), "first\n1\n")

    def test_the_activity_begins_with_its_owner(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        began = time.time()
        record = api.create()
        self.assertEqual(record["boot_mode"], "pool")
        entries = api.get(f"/v1/sandboxes/{record['id']}/activity")["items"]
        kinds = [(entry["kind"], entry["number"]) for entry in sorted(entries, key=lambda entry: entry["number"])]
        self.assertEqual(kinds, [("sandbox.created", 1), ("sandbox.running", 2)])
        # Nothing is older than the request, though the sandbox is.
        created = datetime.datetime.fromisoformat(record["created_at"].replace("Z", "+00:00")).timestamp()
        self.assertGreaterEqual(created, began - 1)

    def test_what_may_differ(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        record = api.create(cpu=0.5, pids=70)
        self.assertEqual(record["boot_mode"], "pool")
        self.assertEqual((record["cpu"], record["limits"]["pids"]["value"]), (0.5, 70))
        self.assertEqual(api.sh(record["id"], "nproc").strip(), "1")
        limit = api.exec(record["id"], "for i in $(seq 100); do sleep 1000 & done", timeout_seconds=60)
        self.assertRegex(limit["stderr"], "fork|Resource")

    def test_as_many_cpus_as_asked_for(self):
        """What runs inside is forked by a process that was there before the request."""
        ours = len(os.sched_getaffinity(0))
        for prepared, asked in ((1, 2), (2, 1)):
            daemon = self.start_daemon(POOLED + f"[sandbox]\ncpu = {prepared}\n")
            self.filled(daemon)
            api = daemon.client()
            record = api.create(cpu=asked)
            self.assertEqual(record["boot_mode"], "pool")
            self.assertEqual(int(api.sh(record["id"], "nproc")), min(asked, ours))
            self.assertEqual(int(api.sh(record["id"], "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'")), min(asked, ours))

    def test_what_does_not_fit_is_made_from_nothing(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        record = api.create(memory_mb=200)
        self.assertEqual(record["boot_mode"], "cold")
        total = int(api.sh(record["id"], "awk '/MemTotal/ {print $2}' /proc/meminfo"))
        self.assertEqual(total // 1024, 200)
        self.assertEqual(api.create(disk_mb=300)["boot_mode"], "cold")
        # And the pool learns what is asked for.

        def learnt():
            record = api.create(disk_mb=300)
            api.delete("/v1/sandboxes/" + record["id"])
            return record["boot_mode"] == "pool"
        wait_until(learnt, 30, every=0.5, what="a pool of the new size")

    def test_as_much_environment_as_ever(self):
        """What a frame has no room for beside the longest command is not given to one of the pool."""
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        fits = {f"K{n}": "x" * 60 for n in range(50)}
        record = api.create(env=fits)
        self.assertEqual(record["boot_mode"], "pool")
        long = "y" * (100 * 1024)
        self.assertEqual(api.sh(record["id"], "echo $K49; echo ${#LONG}", env={"LONG": long}), "x" * 60 + f"\n{len(long)}\n")
        record = api.create(env={f"K{n}": "x" * 60 for n in range(500)})
        self.assertEqual(record["boot_mode"], "cold")
        self.assertEqual(api.sh(record["id"], "env | grep -c ^K"), "500\n")

    def test_idempotent_create_and_run(self):
        """A key stands for the id that the pool had chosen."""
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        first = api.post("/v1/sandboxes", {}, **{"Idempotency-Key": "k1"})
        self.assertEqual(first["boot_mode"], "pool")
        self.assertEqual(api.post("/v1/sandboxes", {}, **{"Idempotency-Key": "k1"})["id"], first["id"])
        daemon.kill_daemon()
        self.assertEqual(daemon.client().post("/v1/sandboxes", {}, **{"Idempotency-Key": "k1"})["id"], first["id"])
        self.filled(daemon)
        self.assertEqual(daemon.client().post("/v1/run", {"command": "echo once"})["stdout"], "once\n")
        self.assertEqual([item["id"] for item in daemon.client().get("/v1/sandboxes")["items"]], [first["id"]])

    def test_stop_and_start_of_one_from_the_pool(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        box = api.create()["id"]
        api.sh(box, "echo kept > /workspace/file")
        api.post(f"/v1/sandboxes/{box}/stop")
        record = api.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(api.sh(box, "cat /workspace/file"), "kept\n")
        api.post(f"/v1/sandboxes/{box}/pause")
        api.post(f"/v1/sandboxes/{box}/resume")
        self.assertEqual(api.sh(box, "cat /workspace/file"), "kept\n")
        self.assertEqual(record["id"], box)

    def test_survives_the_daemon_and_the_spawner(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        before = daemon.pool_ready()
        daemon.kill_daemon()
        self.filled(daemon)
        self.assertEqual(daemon.pool_ready(), before)
        daemon.kill()
        daemon.start()
        self.filled(daemon)
        self.assertEqual(daemon.pool_ready(), before)
        record = daemon.client().create()
        self.assertEqual(record["boot_mode"], "pool")
        self.assertIn(record["id"], before)
        self.assertEqual(daemon.client().sh(record["id"], "echo 1"), "1\n")
        daemon.kill_daemon()
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + record["id"])["boot_ms"], record["boot_ms"])

    def test_adopted_by_the_next_spawner(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        box = daemon.client().create()["id"]
        daemon.client().sh(box, "sleep 1000 & until pgrep -x sleep; do :; done")
        daemon.kill()
        daemon.start()
        self.assertEqual(daemon.client().sh(box, "pgrep -c sleep"), "1\n")
        daemon.client().post(f"/v1/sandboxes/{box}/pause")
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "paused")

    def test_not_kept_by_another_configuration(self):
        """A daemon with other defaults makes its own, and so does one whose host has changed."""
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        before = daemon.pool_ready()
        daemon.kill()
        daemon.configure(POOLED + "[sandbox]\nmemory = 300M\n")
        daemon.start()
        wait_until(lambda: len(daemon.pool_ready() - before) >= 2, 30, what="another pool")
        self.assertFalse(daemon.pooled() & before)
        self.assertEqual(daemon.client().create()["memory_mb"], 300)

    def test_not_kept_with_other_layers(self):
        """A spawner makes the layers anew when a file of /etc has changed: members have the old copy of it."""
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        before = daemon.pool_ready()
        daemon.kill()
        daemon.sql(f"update pool set rootfs_digest = '{'0' * 64}'")
        daemon.start()
        wait_until(lambda: len(daemon.pool_ready() - before) >= 2, 30, what="another pool")
        self.assertFalse(daemon.pooled() & before)

    def test_destroyed_with_the_daemon(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        daemon.stop()
        self.assertEqual(daemon.pooled(), set())
        self.assertEqual(os.listdir(daemon.state + "/sandboxes") if os.path.exists(daemon.state + "/sandboxes") else [], [])
        self.assertEqual(os.listdir(daemon.state + "/trash"), [])
        daemon.wait_clean()  # what the kernel lets go by itself

    @busy
    def test_grows_with_demand_and_no_further(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        # At once: demand is what is asked for within ten seconds, and fades after ten more.
        boxes = at_once(lambda _: daemon.client().create()["id"], range(10))
        wait_until(lambda: len(daemon.pool_ready()) == 6, 20, what="a pool of its maximum")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.assertLessEqual(len(daemon.pool_ready()), 6)
            time.sleep(0.02)
        for box in boxes:
            api.delete("/v1/sandboxes/" + box)

    def test_switched_off_by_a_reload(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        daemon.reload("[pool]\nsize = 0\n")
        wait_until(lambda: not daemon.pooled(), 30, what="the end of the pool")
        daemon.reload("[pool]\nsize = 4\n")
        wait_until(lambda: len(daemon.pool_ready()) == 4, 30, what="a larger pool")

    @thorough
    @alone
    def test_a_hundred_at_once(self):
        """Each is made, each answers; nobody waits for a boot who wants something else."""
        daemon = self.start_daemon("[pool]\nsize = 0\n[sandbox]\ncount_max = 200\nmemory = 64M\ndisk = 64M\n")
        quiet = daemon.client().create()["id"]
        best_of(3, lambda: self.hundred(daemon, quiet), 2.0)

    def hundred(self, daemon, quiet):
        """How long somebody else waited at most."""
        api, answers, boxes, slowest = daemon.client(), [], [], 0.0

        def one():
            client = daemon.client(timeout=120)
            box = client.create()["id"]
            boxes.append(box)
            answers.append(client.sh(box, "echo first"))
        threads = [threading.Thread(target=one) for _ in range(100)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            began = time.monotonic()
            api.get("/v1/sandboxes/" + quiet + "/metrics")
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        self.assertEqual(answers, ["first\n"] * 100)
        for box in boxes:
            api.delete("/v1/sandboxes/" + box)
        return slowest

    def test_deleted_while_it_is_made(self):
        daemon = self.start_daemon("[pool]\nsize = 0\n")
        api = daemon.client()
        for turn in range(10):
            name, outcome = f"short-{turn}", []

            def deleted():
                answered = bool(outcome)
                try:
                    api.delete("/v1/sandboxes/" + name)
                    return True
                except ApiError as error:
                    self.assertIn(error.status, (404, 409, 410))
                    return answered and outcome != ["made"]
            thread = threading.Thread(target=self.try_create, args=(daemon, name, outcome))
            thread.start()
            wait_until(deleted, 30, 0, what="a delete")
            thread.join()
            self.assertIn(outcome[0], ("made", 404, 409, 410, 503))
        wait_until(lambda: not glob.glob(daemon.state + "/sandboxes/*"), 30, what="the end of all")
        wait_until(lambda: not children(daemon), 30, what="the end of their processes")

    @busy
    def test_workers_killed(self):
        """A worker that dies at any moment of a boot is one failed create, and leaves nothing."""
        daemon = self.start_daemon("[pool]\nsize = 0\n")
        api, outcomes = daemon.client(), []

        def one():
            try:
                outcomes.append(daemon.client().create()["id"])
            except Exception as error:  # looked at below
                outcomes.append(error)
        for turn in range(40):
            before = newest(daemon)
            thread = threading.Thread(target=one)
            thread.start()
            end = time.monotonic() + 1
            while time.monotonic() < end and not newest(daemon) - before:
                pass
            time.sleep((turn % 10) * 0.001)
            # The first child that is new is the worker; the init comes after it.
            for pid in sorted(newest(daemon) - before)[:1]:
                try:
                    if open(f"/proc/{pid}/comm").read().strip() == "caisson":
                        os.kill(pid, signal.SIGKILL)
                except (OSError, ProcessLookupError):
                    pass
            thread.join()
        refused = [error for error in outcomes if not isinstance(error, str)]
        self.assertEqual({getattr(error, "code", repr(error)) for error in refused}, {"internal"}, "no worker was killed in time")
        made = [box for box in outcomes if isinstance(box, str)]
        self.assertEqual(len(refused) + len(made), 40)
        self.assertEqual(sorted(item["id"] for item in api.get("/v1/sandboxes", limit=100)["items"]), sorted(made))
        for box in made:
            self.assertEqual(api.sh(box, "echo 1"), "1\n")
            api.delete("/v1/sandboxes/" + box)
        wait_until(lambda: not glob.glob(daemon.state + "/sandboxes/*") and not children(daemon), 30, what="the end of all")

    def try_create(self, daemon, name, outcome):
        try:
            daemon.client().create(name=name)
            outcome.append("made")
        except Exception as error:  # looked at by who waits for it
            outcome.append(getattr(error, "status", repr(error)))


if __name__ == "__main__":
    unittest.main()
