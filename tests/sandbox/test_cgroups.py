"""Which cgroups a sandbox is in, and that they carry its limits; version 1 and version 2."""
import glob
import os
import unittest

from caisson import DaemonTest, wait_until


def controllers_of_two():
    """The controllers that the host's cgroup v2 hierarchy offers."""
    for line in open("/proc/self/mounts"):
        fields = line.split()
        if fields[2] == "cgroup2":
            return open(os.path.join(fields[1], "cgroup.controllers")).read().split()
    return []


WANTED = {"memory", "cpu", "pids"}


class Cgroups(DaemonTest):

    def find(self, box, name):
        found = glob.glob(f"/sys/fs/cgroup/**/{box}/work/{name}", recursive=True)
        self.assertEqual(len(found), 1, f"{name} of {box}: {found}")
        return open(found[0]).read().strip()

    def test_init_is_apart_from_what_it_runs(self):
        """Limits are on `work`; PID 1 is not in it, so that pause, quota and OOM never hit the protocol."""
        box = self.sandbox(name="apart")
        self.api.exec(box, "sleep 1000", background=True)
        inits = glob.glob(f"/sys/fs/cgroup/**/{box}/init/cgroup.procs", recursive=True)
        works = glob.glob(f"/sys/fs/cgroup/**/{box}/work/cgroup.procs", recursive=True)
        self.assertTrue(inits and works)

        # The command is begun after the answer, and the first launcher is born beside PID 1.
        def apart():
            counts = {path: len(open(path).read().split()) for path in inits + works}
            return all(counts[path] == 1 for path in inits) and all(counts[path] >= 2 for path in works)
        wait_until(apart, what="one process in each `init`, more in each `work`")

    def test_inside_it_is_the_root(self):
        box = self.sandbox()
        for line in self.api.sh(box, "cat /proc/self/cgroup").splitlines():
            self.assertNotIn(box, line)
            self.assertNotIn("caisson-", line)

    def test_gone_with_the_sandbox(self):
        box = self.api.create()["id"]
        self.api.delete("/v1/sandboxes/" + box)
        self.assertEqual(glob.glob(f"/sys/fs/cgroup/**/{box}", recursive=True), [])


class VersionOne(Cgroups):
    def setUp(self):
        if WANTED <= set(controllers_of_two()):
            self.skipTest("this host has cgroup v2")

    def test_limits_are_written(self):
        box = self.sandbox(memory_mb=100, cpu=0.5, pids=50)
        self.assertEqual(int(self.find(box, "memory.limit_in_bytes")), 100 << 20)
        quota, period = int(self.find(box, "cpu.cfs_quota_us")), int(self.find(box, "cpu.cfs_period_us"))
        self.assertEqual(quota / period, 0.5)
        self.assertGreaterEqual(int(self.find(box, "pids.max")), 50)


class VersionTwo(Cgroups):
    def setUp(self):
        if not WANTED <= set(controllers_of_two()):
            self.skipTest("this host's cgroup v2 has no memory, cpu and pids controllers")

    def test_limits_are_written(self):
        box = self.sandbox(memory_mb=100, cpu=0.5, pids=50)
        self.assertEqual(int(self.find(box, "memory.max")), 100 << 20)
        quota, period = self.find(box, "cpu.max").split()
        self.assertEqual(int(quota) / int(period), 0.5)
        self.assertEqual(self.find(box, "memory.swap.max"), "0")
        self.assertGreaterEqual(int(self.find(box, "pids.max")), 50)


del Cgroups


if __name__ == "__main__":
    unittest.main()
