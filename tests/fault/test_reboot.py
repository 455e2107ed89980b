"""The host goes down and comes up again: all processes of the instance at once, cgroups and the runtime
directory gone, the state kept. And disks that did not survive it."""
import datetime
import os
import shutil
import signal
import subprocess
import unittest

from caisson import ApiError, OwnDaemons, PROGRAM, host_things, loop_devices, processes_of, remove_cgroups, wait_until


class Reboot(OwnDaemons):
    def setUp(self):
        self.daemon = self.start_daemon()
        self.api = self.daemon.client()

    def signal(self, pids, number):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def go_down(self, uids_taken=False):
        """As a power cut leaves it; with another instance that has taken our uids since, if asked."""
        instance, block = self.daemon.instance(), open(self.daemon.state + "/uid-block").read().strip()
        stopped = set()
        # First none of them can do anything any more, then all are gone: at once, to each other.
        while True:
            pids = {pid for pid, _ in processes_of(self.daemon.state, self.daemon.runtime)} - stopped
            if not pids:
                break
            self.signal(pids, signal.SIGSTOP)
            stopped |= pids
        self.assertGreater(len(stopped), 2)
        self.signal(stopped, signal.SIGKILL)
        self.daemon.process.wait()
        self.daemon.process = None

        # One that was forked while the stop was on its way to its parent is killed when it is seen, and one that is frozen
        # dies when it is let go.
        def gone():
            left = [pid for pid, _ in processes_of(self.daemon.state, self.daemon.runtime)]
            self.signal(left, signal.SIGKILL)
            remove_cgroups(instance)
            return not left and not host_things(instance)
        wait_until(gone, 30, what="the end of all processes and cgroups")
        shutil.rmtree(self.daemon.runtime)
        claim = f"/run/caisson-uids/{block}"
        if uids_taken:
            # In one step: another suite takes a block that nobody owns. This owner's is free when its directory is gone.
            other = os.stat(self.daemon.top)
            with open(claim + ".test", "w") as file:
                file.write(f"{other.st_dev:x}:{other.st_ino:x} {self.daemon.top}\n")
            os.rename(claim + ".test", claim)
        else:
            os.unlink(claim)

    def come_up(self):
        self.daemon.start()
        return self.daemon.client()

    def status(self, box):
        return self.api.get("/v1/sandboxes/" + box)["status"]

    def test_everything_is_stopped_and_starts_on_demand(self):
        api = self.api
        boxes = {name: api.create(name=name, timeout_seconds=3600)["id"] for name in ("running", "paused", "stopped", "asleep")}
        record = api.create(timeout_seconds=2)
        short, over = record["id"], datetime.datetime.fromisoformat(record["expires_at"].replace("Z", "+00:00"))
        for name, box in boxes.items():
            api.write(box, "/root/file", name)
        exec_id = api.exec(boxes["running"], "echo begun; sleep 1000", background=True)["exec_id"]
        path = f"/v1/sandboxes/{boxes['running']}/execs/{exec_id}"
        wait_until(lambda: api.get(path + "/output") == b"begun\n", 30)
        expires = {box: api.get("/v1/sandboxes/" + box)["expires_at"] for box in boxes.values()}
        api.post(f"/v1/sandboxes/{boxes['paused']}/pause")
        api.post(f"/v1/sandboxes/{boxes['stopped']}/stop")
        token = self.daemon.token(scopes=["sandboxes:read"])
        self.go_down()
        wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) > over, what="the end of its time")
        api = self.come_up()
        for box in boxes.values():
            self.assertEqual(self.status(box), "stopped")
        # What ran is lost, and says so; what it printed is there.
        record = api.get(path)
        self.assertEqual((record["state"], record["lost"]), ("ended", True), record)
        self.assertIn("host was restarted", record["lost_reason"])
        self.assertEqual(api.get(path + "/output"), b"begun\n")
        # Time went on meanwhile; a paused one's stood still until it was stopped.
        wait_until(lambda: api.get("/v1/sandboxes/" + short).get("end"), 30, what="the time-out")
        self.assertEqual(api.get("/v1/sandboxes/" + short)["end"]["reason"], "timeout")
        for name in ("running", "stopped"):
            self.assertEqual(api.get("/v1/sandboxes/" + boxes[name])["expires_at"], expires[boxes[name]])
        self.assertGreater(api.get("/v1/sandboxes/" + boxes["paused"])["expires_at"], expires[boxes["paused"]])
        # Who may only read is told what to do; whoever may write starts it by asking.
        with self.assertRaises(ApiError) as caught:
            self.daemon.tcp(token).get(f"/v1/sandboxes/{boxes['asleep']}/files", path="/root/file")
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "sandbox.wrong_state"))
        self.assertIn("start it first", caught.exception.body["error"])
        self.assertEqual(self.status(boxes["asleep"]), "stopped")
        self.assertEqual(api.sh(boxes["asleep"], "cat /root/file"), "asleep")
        self.assertEqual(api.post(f"/v1/sandboxes/{boxes['paused']}/start")["status"], "running")
        self.assertEqual(self.daemon.cli("start", "stopped")[0], 0)
        self.assertEqual(self.daemon.cli("start", "running")[0], 0)
        for name, box in boxes.items():
            self.assertEqual(api.read(box, "/root/file"), name.encode())

    def test_down_in_the_middle_of_things(self):
        """Creates, deletes and starts that were under way: all are settled, nothing stays in between."""
        kept = self.api.create()["id"]
        self.api.write(kept, "/file", "kept")
        threads = []
        environment = {**os.environ, **self.daemon.client_environment()}
        for i in range(6):
            threads.append(subprocess.Popen(["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {PROGRAM} run -- true; done"], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
        wait_until(lambda: self.daemon.rows("select count(*) from sandboxes")[0][0] > 10, what="the second run of some of them")
        for thread in threads:
            os.killpg(thread.pid, signal.SIGKILL)
            thread.wait()
        self.go_down()
        api = self.come_up()

        def settled():
            records = api.get("/v1/sandboxes", limit=200)["items"]
            return records if all(record["status"] == "stopped" for record in records) else None
        records = wait_until(settled, 30, what="an end of every transition")
        self.assertIn(kept, [record["id"] for record in records])
        on_disk = set(os.listdir(self.daemon.state + "/sandboxes"))
        self.assertLessEqual({record["id"] for record in records}, on_disk)
        self.assertEqual(api.sh(kept, "cat /file"), "kept")

    def test_another_instance_was_faster(self):
        box = self.api.create(timeout_seconds=3600)["id"]
        self.api.sh(box, "echo mine > /root/file; chown 1000:7 /root/file; chmod 600 /root/file")
        before = open(self.daemon.state + "/uid-block").read()
        for _ in range(2):
            self.go_down(uids_taken=True)
            api = self.come_up()
            self.assertNotEqual(open(self.daemon.state + "/uid-block").read(), before)
            self.assertEqual(api.sh(box, "stat -c '%u %g %a' /root/file; cat /root/file; touch /root/new"), "1000 7 600\nmine\n")
            young = api.create(timeout_seconds=3600)["id"]
            self.assertEqual(api.sh(young, "stat -c %u /root"), "0\n")

    def image(self, box):
        return f"{self.daemon.state}/sandboxes/{box}/disk.img"

    def test_disks_that_were_not_unmounted(self):
        api = self.api
        names = ("cut", "torn", "broken", "empty", "gone", "well")
        boxes = {name: api.create(name=name, disk_mb=64, timeout_seconds=3600)["id"] for name in names}
        for name, box in boxes.items():
            api.sh(box, f"echo {name} > /root/file")
        # From inside nothing can be forced to the disk; from outside all can. As the disk is then: mounted. Not by a sync of
        # the whole host: it would write into disks of another suite that are full on purpose.
        for device in loop_devices(self.daemon.state + "/"):
            subprocess.run(["blockdev", "--flushbufs", device], timeout=60)  # one of the pool may be gone
        copies = {name: open(self.image(boxes[name]), "rb").read() for name in ("cut", "torn", "broken")}
        self.go_down()
        for name, data in copies.items():
            data = bytearray(data)
            self.assertEqual(data[1024 + 58] & 1, 0, "the image was not mounted")
            if name == "broken":
                # The root directory's inode and its neighbours are noise.
                data[8192:1 << 20] = os.urandom((1 << 20) - 8192)
            with open(self.image(boxes[name]), "r+b") as file:
                file.write(data)
            if name == "torn":
                # A count of free blocks that is wrong: e2fsck -p mends that.
                subprocess.run(["/sbin/debugfs", "-w", "-R", "set_super_value free_blocks_count 5", self.image(boxes[name])], check=True,
                               capture_output=True, timeout=20)
        os.truncate(self.image(boxes["empty"]), 0)
        os.unlink(self.image(boxes["gone"]))
        api = self.come_up()
        for name in names:
            self.assertEqual(self.status(name), "stopped")
        for name in ("cut", "torn", "well"):
            self.assertEqual(api.sh(name, "cat /root/file"), name + "\n")
        for name in ("broken", "empty", "gone"):
            for attempt in range(2):
                with self.assertRaises(ApiError) as caught:
                    api.post(f"/v1/sandboxes/{name}/start")
                self.assertEqual(caught.exception.code, "sandbox.disk_damaged", caught.exception.body)
                self.assertIn(boxes[name], caught.exception.body["error"])
                wait_until(lambda: self.status(name) == "stopped", 30, what="stopped again")
            self.assertEqual(api.sh("well", "cat /root/file"), "well\n")
        code, _, err = self.daemon.cli("start", "broken")
        self.assertEqual(code, 125)
        self.assertIn("e2fsck", err)
        code, _, err = self.daemon.cli("start", "gone")
        self.assertIn("only a backup", err)
        self.assertNotIn("e2fsck", err)
        for name in names:
            api.delete("/v1/sandboxes/" + name)


if __name__ == "__main__":
    unittest.main()
