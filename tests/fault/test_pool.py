"""Sandboxes that are ready before anybody asks: used, refilled, never in anybody's way, never left behind."""
import glob
import os
import signal
import threading
import time
import unittest

from caisson import ApiError, OwnDaemons, at_once, best_of, inits_of, parent_of, wait_until
from marks import alone, busy

POOLED = "[pool]\nsize = 2\nmax = 6\n"


def members(daemon):
    """The pool's, by what their files say."""
    found = []
    for path in glob.glob(daemon.state + "/sandboxes/*/slot"):
        try:
            if "prepared" in open(path).read():
                found.append(path.split("/")[-2])
        except OSError:
            pass
    return found


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


def ready(daemon, count):
    """Each has an init, and no worker is there whose word the spawner has not heard yet: the files are there before that."""
    return len(members(daemon)) >= count and \
        all(os.path.exists(f"{daemon.runtime}/guests/{member}/boot") for member in members(daemon)) and \
        set(children(daemon)) <= inits_of(daemon.state).keys()


class Pool(OwnDaemons):
    def filled(self, daemon, count=2):
        wait_until(lambda: ready(daemon, count), 30, what=f"a pool of {count}")

    def test_used_and_refilled(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        before = set(members(daemon))
        record = api.create(name="first")
        self.assertEqual(record["boot_mode"], "pool")
        self.assertNotIn(record["id"], before)
        self.assertEqual(api.sh("first", "hostname; echo $$; id -u; cat /proc/1/comm").split()[2], "0")
        self.assertEqual(api.sh("first", "cat /proc/self/cgroup | grep -c " + record["id"] + " || true").strip(), "0")
        self.filled(daemon)
        self.assertEqual([item["id"] for item in api.get("/v1/sandboxes")["items"]], [record["id"]])
        # What depends on the request is the request's.
        record = api.create(memory_mb=200, cpu=0.5, pids=70)
        self.assertEqual(record["boot_mode"], "pool")
        self.assertEqual(record["memory_mb"], 200)
        self.assertEqual(api.sh(record["id"], "nproc").strip(), "1")
        total = int(api.sh(record["id"], "awk '/MemTotal/ {print $2}' /proc/meminfo"))
        self.assertEqual(total // 1024, 200)
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
        self.assertEqual(api.create(disk_mb=300)["boot_mode"], "cold")
        # And the pool learns what is asked for.

        def learnt():
            record = api.create(disk_mb=300)
            api.delete("/v1/sandboxes/" + record["id"])
            return record["boot_mode"] == "pool"
        wait_until(learnt, 30, every=0.5, what="a pool of the new size")

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

    def test_survives_the_daemon(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        before = set(members(daemon))
        daemon.kill_daemon()
        self.assertEqual(set(members(daemon)), before)
        self.assertEqual(daemon.client().create()["boot_mode"], "pool")

    def test_adopted_with_its_place(self):
        """One from the pool has a cgroup of another name: the next spawner finds it all the same."""
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        box = daemon.client().create()["id"]
        daemon.client().sh(box, "sleep 1000 & until pgrep -x sleep; do :; done")
        daemon.kill()
        daemon.start()
        self.assertEqual(daemon.client().sh(box, "pgrep -c sleep"), "1\n")
        daemon.client().post(f"/v1/sandboxes/{box}/pause")
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "paused")

    def test_drained_with_the_daemon(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        daemon.stop()
        self.assertEqual(members(daemon), [])
        daemon.wait_clean()  # what the kernel lets go by itself

    def test_killed_spawner_leaves_no_process(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        pids = children(daemon)
        self.assertGreaterEqual(len(pids), 2)
        old = set(members(daemon))
        daemon.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 30, what="the end of the pool")
        daemon.start()
        self.assertFalse(old & set(members(daemon)))
        self.filled(daemon)

    @busy
    def test_grows_with_demand_and_no_further(self):
        daemon = self.start_daemon(POOLED)
        api = daemon.client()
        self.filled(daemon)
        # At once: demand is what is asked for within ten seconds, and fades after ten more.
        boxes = at_once(lambda _: daemon.client().create()["id"], range(10))
        wait_until(lambda: len(members(daemon)) == 6, 20, what="a pool of its maximum")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.assertLessEqual(len(members(daemon)), 6)
            time.sleep(0.02)
        for box in boxes:
            api.delete("/v1/sandboxes/" + box)

    def test_off(self):
        daemon = self.start_daemon("[pool]\nsize = 0\n")
        self.assertEqual(daemon.client().create()["boot_mode"], "cold")
        time.sleep(0.5)
        self.assertEqual(members(daemon), [])

    def test_switched_off_by_a_reload(self):
        daemon = self.start_daemon(POOLED)
        self.filled(daemon)
        daemon.reload("[pool]\nsize = 0\n")
        wait_until(lambda: not members(daemon), 30, what="the end of the pool")
        daemon.reload("[pool]\nsize = 4\n")
        wait_until(lambda: len(members(daemon)) == 4, 30, what="a larger pool")

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
