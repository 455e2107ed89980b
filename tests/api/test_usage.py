"""Metering: the sums against a known workload.

What is known is measured from outside, with the clock of the test around each step: alive time lies between what must
be in it and what can be. So the bounds hold on a machine that is as loaded as it likes."""
import time

from caisson import DaemonTest, wait_until

# Burns cpu time until so many seconds of it were used by its own account, and says how much it was.
BURN = ("import time\n"
        "while time.process_time() < {0}: pass\n"
        "print(time.process_time())\n")


class Stretch:
    """A stretch of time whose ends the test knows within bounds."""

    def __init__(self):
        self.least = self.most = 0.0

    def begin_before(self, request):
        """It began during the request: the longest from before it, the shortest from after."""
        self.first = time.monotonic()
        value = request()
        self.second = time.monotonic()
        return value

    def end_during(self, request):
        self.least += max(time.monotonic() - self.second, 0)
        value = request()
        self.most += time.monotonic() - self.first
        return value


class Usage(DaemonTest):
    config = "[usage]\ninterval = 1s\n"

    def usage(self, box, api=None, **query):
        api = api or self.api
        return next((item for item in api.get("/v1/usage", **query)["items"] if item["sandbox"] == box), None)

    def fresh(self, box, what, value):
        """The item once it says at least so much (a look is taken at most twice a second)."""
        return wait_until(lambda: (self.usage(box) or {what: -1})[what] >= value and self.usage(box), 20,
                          what=f"{what} of {value}: {self.usage(box)}")

    def between(self, value, least, most, slack=0.05):
        """The meter's clock and the test's are the same; a look may come a little before its answer."""
        self.assertGreaterEqual(value, least - slack)
        self.assertLessEqual(value, most + slack)

    def burn(self, box, seconds):
        return float(self.api.sh(box, ["python3", "-c", BURN.format(seconds)], timeout_seconds=60))

    def test_a_known_workload(self):
        """Cpu, sleep, a paused stretch, a kill -9 of daemon and spawner in the middle, and the end."""
        alive, paused = Stretch(), Stretch()
        box = alive.begin_before(lambda: self.api.create(name="worker"))["id"]
        self.addCleanup(self.remove, box)
        burnt = self.burn(box, 0.4)
        self.api.sh(box, "sleep 0.3")
        # The pause: the one ends and the other begins during the same request.
        paused.first = time.monotonic()
        alive.end_during(lambda: self.api.post(f"/v1/sandboxes/{box}/pause"))
        paused.second = time.monotonic()
        time.sleep(0.5)  # the stretch that is measured
        alive.first = time.monotonic()
        paused.end_during(lambda: self.api.post(f"/v1/sandboxes/{box}/resume"))
        alive.second = time.monotonic()
        job = self.api.exec(box, ["python3", "-c", BURN.format(0.5)], background=True)["exec_id"]
        # One that was not begun when the daemon dies has failed.
        wait_until(lambda: self.api.get(f"/v1/sandboxes/{box}/execs/{job}")["state"] != "starting", what="the job's start")
        self.daemon.kill()
        time.sleep(0.3)  # it burns on without a daemon
        self.daemon.start()
        ended = wait_until(lambda: self.api.get(f"/v1/sandboxes/{box}/execs/{job}")["state"] == "ended", 60, what="the job's end")
        self.assertTrue(ended)
        burnt += 0.5
        alive.end_during(lambda: self.api.delete("/v1/sandboxes/" + box))
        item = self.usage(box)
        self.assertEqual((item["name"], item["workspace"]), ("worker", "default"))
        self.between(item["alive_seconds"], alive.least, alive.most)
        self.between(item["paused_seconds"], paused.least, paused.most)
        # What the interpreters and the sandbox's own processes need comes on top; on a loaded machine that is more.
        self.between(item["cpu_seconds"], burnt, burnt + 2, slack=0.02)
        # Counts of the last interval may be lost with a kill; no more than that.
        self.assertIn(item["execs"], (2, 3))
        # A Python of at least 4 MiB for the burnt seconds; never more than the limit for all the time.
        self.assertGreater(item["memory_byte_seconds"], 0.2 * (4 << 20))
        self.assertLess(item["memory_byte_seconds"], alive.most * (512 << 20))
        self.assertGreater(item["disk_byte_seconds"], 0)
        self.assertEqual(item["snapshot_byte_hours"], 0)
        later = self.usage(box)
        self.assertEqual(item, later)  # what has ended uses nothing any more

    def test_paused_time_is_free_of_compute(self):
        box = self.sandbox()
        self.api.post(f"/v1/sandboxes/{box}/pause")
        before = self.usage(box)
        time.sleep(0.7)  # time that must not be counted
        began = time.monotonic()
        self.api.post(f"/v1/sandboxes/{box}/resume")
        self.api.post(f"/v1/sandboxes/{box}/pause")
        awake = time.monotonic() - began
        after = self.usage(box)
        self.assertGreaterEqual(after["paused_seconds"], before["paused_seconds"] + 0.7 - 0.05)
        self.between(after["alive_seconds"] - before["alive_seconds"], 0, awake)
        self.assertLessEqual(after["memory_byte_seconds"] - before["memory_byte_seconds"], (awake + 0.05) * (512 << 20))

    def test_a_stop_and_a_start(self):
        """The counters of a new boot begin at zero: nothing is lost, nothing counted twice."""
        box = self.sandbox()
        burnt = self.burn(box, 0.2)
        self.api.post(f"/v1/sandboxes/{box}/stop")
        stopped = self.usage(box)
        self.between(stopped["cpu_seconds"], burnt, burnt + 1, slack=0.02)
        self.api.post(f"/v1/sandboxes/{box}/start")
        burnt += self.burn(box, 0.1)
        item = self.fresh(box, "cpu_seconds", burnt - 0.02)
        self.between(item["cpu_seconds"], burnt, burnt + 2, slack=0.02)

    def test_short_lives_count_whole(self):
        """One that no sample ever saw: its end brings what it used."""
        box = self.api.create()["id"]
        burnt = self.burn(box, 0.1)
        self.api.delete("/v1/sandboxes/" + box)
        item = self.usage(box)
        self.between(item["cpu_seconds"], burnt, burnt + 1, slack=0.02)
        self.assertGreater(item["memory_byte_seconds"], 0)
        self.assertEqual(item["execs"], 1)

    def test_by_workspace_and_who_may(self):
        one, two = self.daemon.tcp(self.daemon.token("one")), self.daemon.tcp(self.daemon.token("two"))
        boxes = [one.create()["id"], one.create()["id"], two.create()["id"]]
        for api, box in zip((one, one, two), boxes):
            api.delete("/v1/sandboxes/" + box)
        self.assertEqual({item["sandbox"] for item in one.get("/v1/usage")["items"]}, set(boxes[:2]))
        total = one.get("/v1/usage", by="workspace")["items"]
        self.assertEqual([item["workspace"] for item in total], ["one"])
        self.assertNotIn("sandbox", total[0])
        self.assertAlmostEqual(total[0]["alive_seconds"], sum(item["alive_seconds"] for item in one.get("/v1/usage")["items"]), 2)
        self.refused(403, "auth.forbidden", one.get, "/v1/usage", workspace="two")
        self.refused(403, "auth.forbidden", one.get, "/v1/usage", workspace="*")
        self.assertEqual([item["sandbox"] for item in self.api.get("/v1/usage", workspace="two")["items"]], boxes[2:])
        everybody = {item["workspace"] for item in self.api.get("/v1/usage", workspace="*", by="workspace")["items"]}
        self.assertLessEqual({"one", "two"}, everybody)
        page = self.api.get("/v1/usage", workspace="*", limit=1)
        following = self.api.get("/v1/usage", workspace="*", limit=1, cursor=page["next_cursor"])
        self.assertNotEqual(page["items"][0]["sandbox"], following["items"][0]["sandbox"])
        code, text, _ = self.daemon.cli("usage", "--workspace", "one")
        self.assertEqual((code, boxes[0] in text, boxes[2] in text), (0, True, False))

    def test_ranges(self):
        box = self.api.create()["id"]
        self.api.delete("/v1/sandboxes/" + box)
        now = int(time.time())
        whole = self.api.get("/v1/usage", **{"from": now - 7200, "to": now + 3600})
        self.assertIn(box, [item["sandbox"] for item in whole["items"]])
        self.assertEqual(self.api.get("/v1/usage", **{"from": "2020-01-01", "to": "2020-02-01T00:00:00Z"})["items"], [])
        self.assertEqual(self.api.get("/v1/usage", **{"from": "2020-01-01T10:20:30.5Z", "to": "2020-01-01T10:20:31Z"})["from"],
                         "2020-01-01T10:00:00.000Z")
        for query in ({"from": "yesterday"}, {"from": "2020-13-01"}, {"from": "2021-01-01", "to": "2020-01-01"}, {"by": "colour"},
                      {"limit": 0}, {"limit": 1001}, {"from": "-1"}, {"to": "99999999999999"}, {"unknown": 1}):
            with self.subTest(query=query):
                self.refused(400, "request.invalid", self.api.get, "/v1/usage", **query)
