"""Budgets of workspaces, the queue of creates, the host's admission, and what /v1/limits says of all three."""
import json
import socket

from caisson import ApiError, Background, DaemonTest, clear_of_midnight, wait_until


class Budgets(DaemonTest):
    config = "[budget]\nqueue = 3\n[usage]\ninterval = 1s\n"

    def setUp(self):
        clear_of_midnight()
        self.workspace = self.id().rsplit(".", 1)[-1].replace("_", "-")[:40]
        self.team = self.daemon.tcp(self.daemon.token(self.workspace))

    def tearDown(self):
        for record in self.team.get("/v1/sandboxes")["items"]:
            self.team.delete("/v1/sandboxes/" + record["id"])

    def set(self, workspace=None, **budgets):
        """set(sandboxes_now=1): what and period with a `_` before the last word."""
        wishes = [{"what": key.rsplit("_", 1)[0], "period": key.rsplit("_", 1)[1], "maximum": value}
                  for key, value in budgets.items()]
        return self.api.put(f"/v1/workspaces/{workspace or self.workspace}/budgets", {"budgets": wishes})

    def quota(self, limit, function, *arguments, **fields):
        with self.assertRaises(ApiError) as caught:
            function(*arguments, **fields)
        error = caught.exception
        self.assertEqual((error.status, error.code, error.body.get("limit")), (429, "quota.exceeded", limit), error)
        self.assertTrue(error.body["retryable"])
        self.assertGreaterEqual(int(error.headers["Retry-After"]), 1)
        return error

    def used(self, what, period):
        for budget in self.team.get("/v1/budgets")["budgets"]:
            if (budget["what"], budget["period"]) == (what, period):
                return budget["used"]
        raise AssertionError(f"there is no budget {what}/{period}")

    def queue_length(self):
        return self.team.get("/v1/limits")["queue"]["length"]

    def test_at_once(self):
        for budget, fields, fits in [("sandboxes", {}, 1), ("vcpus", {"cpu": 0.5}, 0.5), ("memory_mb", {"memory_mb": 64}, 64),
                                     ("disk_mb", {"disk_mb": 64}, 64)]:
            with self.subTest(budget=budget):
                self.set(**{budget + "_now": fits})
                box = self.team.create(**fields)["id"]
                error = self.quota(budget + "/now", self.team.create, **fields)
                self.assertIn(self.workspace, error.body["error"])
                self.assertIn(f"{fits:g} of {fits:g}", error.body["error"])
                self.team.delete("/v1/sandboxes/" + box)
                self.team.delete("/v1/sandboxes/" + self.team.create(**fields)["id"])

    def test_other_workspaces_have_their_own(self):
        self.set(sandboxes_now=0)
        self.quota("sandboxes/now", self.team.create)
        other = self.daemon.tcp(self.daemon.token("another"))
        other.delete("/v1/sandboxes/" + other.create()["id"])

    def test_paused_and_stopped_ones_make_room(self):
        self.set(sandboxes_now=1)
        first = self.team.create()["id"]
        for sleep, wake in [("pause", "resume"), ("stop", "start")]:
            with self.subTest(sleep=sleep):
                self.team.post(f"/v1/sandboxes/{first}/{sleep}")
                second = self.team.create()["id"]
                self.quota("sandboxes/now", self.team.post, f"/v1/sandboxes/{first}/{wake}")
                self.quota("sandboxes/now", self.team.exec, first, "true")
                self.team.delete("/v1/sandboxes/" + second)
                self.assertEqual(self.team.sh(first, "echo 1"), "1\n")

    def test_creates_and_execs_in_a_period(self):
        self.set(creates_month=2, execs_month=3)
        boxes = [self.team.create()["id"] for _ in range(2)]
        self.team.delete("/v1/sandboxes/" + boxes[1])
        error = self.quota("creates/month", self.team.create)
        self.assertIn("2 of 2", error.body["error"])
        self.assertIn("resets at", error.body["error"])
        self.assertLessEqual(int(error.headers["Retry-After"]), 31 * 86400)
        for _ in range(3):
            self.team.sh(boxes[0], "true")
        self.quota("execs/month", self.team.exec, boxes[0], "true")
        self.quota("execs/month", self.team.exec, boxes[0], "true", background=True)
        budgets = {(b["what"], b["period"]): b for b in self.team.get("/v1/limits")["budgets"]}
        self.assertEqual([budgets["execs", "month"][key] for key in ("maximum", "used", "left", "source")], [3, 3, 0, "workspace"])
        self.assertTrue(budgets["creates", "month"]["resets_at"].endswith("T00:00:00.000Z"))

    def test_contexts_are_execs(self):
        """Their interpreters are commands: with BASH_ENV one runs a script before any code is sent."""
        box = self.team.create()["id"]
        contexts, asked = f"/v1/sandboxes/{box}/contexts", {"language": "bash", "env": {"BASH_ENV": "/workspace/script"}}
        self.team.write(box, "/workspace/script", b"echo ran >> /workspace/proof")
        self.set(execs_month=2)
        context = self.team.post(contexts, asked)["id"]
        self.team.post(f"{contexts}/{context}/restart")
        self.assertEqual(self.used("execs", "month"), 2)
        proof = self.team.read(box, "/workspace/proof")
        self.quota("execs/month", self.team.post, contexts, asked)
        self.quota("execs/month", self.team.post, f"{contexts}/{context}/restart")
        self.assertEqual(self.team.get(f"{contexts}/{context}")["state"], "idle")  # a refused restart ends nothing
        self.assertEqual(self.team.read(box, "/workspace/proof"), proof)

    def test_a_refusal_is_in_the_activity(self):
        box = self.team.create()["id"]
        self.set(execs_month=0)
        self.quota("execs/month", self.team.exec, box, "true")
        entries = self.team.get(f"/v1/sandboxes/{box}/activity")["items"]
        refused = [entry for entry in entries if entry["kind"] == "budget.refused"]
        self.assertEqual(len(refused), 1, entries)
        self.assertIn("execs/month", json.dumps(refused))

    def test_cpu_and_wall_run_out(self):
        """What runs is not ended; new work is refused."""
        box = self.team.create()["id"]
        job = self.team.exec(box, "while :; do :; done", background=True)["exec_id"]
        self.set(cpu_seconds_month=0.2)
        wait_until(lambda: self.used("cpu_seconds", "month") > 0.2, 30, what="using up the cpu")
        self.quota("cpu_seconds/month", self.team.exec, box, "true")
        self.quota("cpu_seconds/month", self.team.create)
        self.assertEqual(self.team.get(f"/v1/sandboxes/{box}")["status"], "running")
        self.assertEqual(self.team.get(f"/v1/sandboxes/{box}/execs/{job}")["state"], "running")
        self.set(wall_seconds_month=0.2)
        wait_until(lambda: self.used("wall_seconds", "month") > 0.2, 30, what="using up the time")
        self.quota("wall_seconds/month", self.team.exec, box, "true")

    def test_limits_of_a_running_one(self):
        self.set(memory_mb_now=128)
        box = self.team.create(memory_mb=64)["id"]
        self.quota("memory_mb/now", self.team.call, "PATCH", f"/v1/sandboxes/{box}", {"memory_mb": 256})
        self.team.call("PATCH", f"/v1/sandboxes/{box}", {"memory_mb": 128})

    def test_set_list_remove(self):
        path = f"/v1/workspaces/{self.workspace}/budgets"
        self.assertEqual(self.api.get(path), {"workspace": self.workspace, "budgets": [], "queue_length": 0})
        answer = self.set(sandboxes_now=5, vcpus_now=2.5, cpu_seconds_day=None)
        self.assertEqual({(b["what"], b["maximum"], b["left"]) for b in answer["budgets"]},
                         {("sandboxes", 5, 5), ("vcpus", 2.5, 2.5), ("cpu_seconds", None, None)})
        self.refused(404, "budget.not_found", self.api.delete, path, what="execs", period="day")
        self.api.delete(path, what="vcpus", period="now")
        self.assertEqual(len(self.api.get(path)["budgets"]), 2)
        self.api.delete(path)
        self.assertEqual(self.api.get(path)["budgets"], [])

    def test_bad_requests(self):
        path = f"/v1/workspaces/{self.workspace}/budgets"
        for budgets in [[{"what": "sandboxes", "period": "day", "maximum": 1}], [{"what": "creates", "period": "now", "maximum": 1}],
                        [{"what": "gold", "period": "now", "maximum": 1}], [{"what": "sandboxes", "period": "week", "maximum": 1}],
                        [{"what": "sandboxes", "period": "now", "maximum": -1}], [{"what": "sandboxes", "period": "now", "maximum": 1.5}],
                        [{"what": "sandboxes", "period": "now", "maximum": "1"}], [{"what": "sandboxes", "period": "now", "maximum": 1e300}],
                        [{"what": "sandboxes", "maximum": 1}], [1], [{"what": "sandboxes", "period": "now", "maximum": 1, "x": 1}],
                        [{"what": "sandboxes", "period": "now", "maximum": 1}] * 2, [{}] * 65]:
            with self.subTest(budgets=str(budgets)[:60]):
                self.refused(400, "request.invalid", self.api.put, path, {"budgets": budgets})
        self.refused(400, "request.invalid", self.api.get, "/v1/workspaces/Not%20One/budgets")
        self.refused(400, "request.invalid", self.api.delete, path, what="sandboxes")
        self.refused(400, "request.invalid", self.api.create, wait_ms=600001)
        self.assertEqual(self.api.get(path)["budgets"], [])

    def test_who_may(self):
        path = f"/v1/workspaces/{self.workspace}/budgets"
        self.refused(403, "auth.forbidden", self.team.get, path)
        self.refused(403, "auth.forbidden", self.team.put, path, {"budgets": []})
        self.refused(403, "auth.forbidden", self.team.delete, path)
        self.assertEqual(self.team.get("/v1/budgets")["workspace"], self.workspace)

    def test_the_queue(self):
        self.set(sandboxes_now=1)
        first = self.team.create()["id"]
        waiting = Background(self.team.create, wait_ms=30000, name="second")
        wait_until(lambda: self.queue_length() == 1, what="the wait")
        self.quota("sandboxes/now", self.team.create)
        behind = Background(self.team.create, wait_ms=30000, name="third")
        wait_until(lambda: self.queue_length() == 2, what="the second wait")
        self.team.delete("/v1/sandboxes/" + first)
        record = waiting.result()
        self.assertEqual((record["name"], record["status"]), ("second", "running"))
        self.assertGreaterEqual(record["queued_ms"], 1)
        self.assertTrue(behind.is_alive())
        self.team.post("/v1/sandboxes/second/pause")
        self.assertEqual(behind.result()["name"], "third")
        self.assertEqual(self.queue_length(), 0)

    def test_the_wait_is_over(self):
        self.set(sandboxes_now=0)
        error = self.quota("sandboxes/now", self.team.create)
        self.assertNotIn("queue_position", error.body)
        self.quota("sandboxes/now", self.team.create, wait_ms=30000)  # never: it does not wait in vain
        self.set(sandboxes_now=1)
        self.team.create()
        first, second = Background(self.team.create, wait_ms=400), Background(self.team.create, wait_ms=400)
        errors = [self.refused(429, "quota.exceeded", one.result) for one in (first, second)]
        self.assertIn(sorted(error.body["queue_position"] for error in errors), ([1, 1], [1, 2]))
        self.assertIn("place", errors[0].body["error"])
        self.assertEqual(self.queue_length(), 0)

    def test_the_queue_is_bounded(self):
        self.set(sandboxes_now=1)
        box = self.team.create()["id"]
        waiting = [Background(self.team.create, wait_ms=30000) for _ in range(3)]
        wait_until(lambda: self.queue_length() == 3, what="three that wait")
        self.refused(429, "queue.full", self.team.create, wait_ms=1000)
        self.set(sandboxes_now=4)
        for one in waiting:
            one.result()
        self.team.delete("/v1/sandboxes/" + box)

    def test_who_goes_away_leaves_the_queue(self):
        self.set(sandboxes_now=1)
        self.team.create()
        body = json.dumps({"wait_ms": 60000, "name": "nobodys"}).encode()
        with socket.create_connection(("127.0.0.1", self.daemon.port)) as connection:
            connection.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
                               % (self.team.token.encode(), len(body), body))
            wait_until(lambda: self.queue_length() == 1, what="the wait")
        wait_until(lambda: self.queue_length() == 0, what="leaving the queue")
        self.assertNotIn("nobodys", [record["name"] for record in self.team.get("/v1/sandboxes")["items"]])

    def test_fair_between_workspaces(self):
        """Who has many that wait does not keep others from their turn."""
        other = self.daemon.tcp(self.daemon.token("fair-other"))
        self.set(sandboxes_now=0)
        self.set("fair-other", sandboxes_now=1)
        self.addCleanup(self.api.delete, "/v1/workspaces/fair-other/budgets")
        self.set(sandboxes_now=1)
        self.team.create()
        mine = [Background(self.team.create, wait_ms=30000) for _ in range(2)]
        wait_until(lambda: self.queue_length() == 2, what="mine that wait")
        box = other.create(wait_ms=30000)
        self.assertNotIn("queued_ms", box)
        other.delete("/v1/sandboxes/" + box["id"])
        self.assertTrue(all(one.is_alive() for one in mine))
        self.set(sandboxes_now=3)
        for one in mine:
            one.result()

    def test_limits(self):
        reader = self.daemon.tcp(self.daemon.token(self.workspace, ["sandboxes:read"], expires_seconds=3600))
        limits = reader.get("/v1/limits")
        self.assertEqual([(size["name"], size["cpu"], size["memory_mb"]) for size in limits["sizes"]],
                         [("small", 1, 512), ("medium", 2, 2048), ("large", 4, 8192)])
        self.assertEqual((limits["regions"], "host" in limits["templates"]), (["local"], True))
        self.assertEqual((limits["token"]["scopes"], limits["token"]["may_create"]), (["sandboxes:read"], False))
        self.assertEqual((limits["token"]["workspace"], limits["token"]["sandbox"]), (self.workspace, None))
        self.assertIsNotNone(limits["token"]["expires_at"])
        self.assertEqual(limits["defaults"]["memory_mb"], 512)
        self.assertTrue(limits["host"]["room"])
        self.assertGreater(limits["host"]["memory_available_mb"], 0)
        box = self.team.create(size="small")
        self.assertEqual((box["cpu"], box["memory_mb"]), (1.0, 512))
        bound = self.daemon.tcp(self.daemon.token(self.workspace, sandbox=box["id"])).get("/v1/limits")["token"]
        self.assertEqual((bound["sandbox"], bound["may_create"]), (box["id"], False))

    def test_the_command_line(self):
        def run(*arguments, code=0):
            result = self.daemon.cli(*arguments)
            self.assertEqual(result[0], code, result)
            return result[1] + result[2]
        run("budget", "set", "--workspace", self.workspace, "sandboxes/now=2", "creates/minute=60")
        run("budget", "set", "--workspace", self.workspace, "creates/minute=61", "cpu_seconds/day=none")
        text = run("budget", "list", "--workspace", self.workspace)
        self.assertRegex(text, r"sandboxes/now +2 +0 +2")
        self.assertRegex(text, r"creates/minute +61 ")
        run("budget", "rm", "--workspace", self.workspace, "creates/minute")
        self.assertNotIn("creates/minute", run("budget", "list", "--workspace", self.workspace))
        run("budget", "rm", "--workspace", self.workspace)
        self.assertIn("No budgets", run("budget", "list", "--workspace", self.workspace))
        self.assertIn("invalid budget", run("budget", "set", "sandboxes=2", code=125))
        self.assertIn("medium (2 cpu", run("limits"))
        self.assertIn("sizes", json.loads(run("limits", "--json")))


class Defaults(DaemonTest):
    config = "[budget]\nsandboxes = 1\nexecs_per_month = 100\n[usage]\ninterval = 1s\n"

    def written(self):
        """Execs of this month, as the store has them."""
        rows = self.daemon.rows("SELECT amount FROM spent WHERE workspace = 'team' AND what = 6 AND period = 4")
        return rows and rows[0][0]

    def test_they_hold_and_can_be_lifted(self):
        clear_of_midnight()
        team = self.daemon.tcp(self.daemon.token("team"))
        box = team.create()["id"]
        self.refused(429, "quota.exceeded", team.create)
        self.assertEqual({(b["what"], b["source"]) for b in team.get("/v1/budgets")["budgets"]},
                         {("sandboxes", "default"), ("execs", "default")})
        self.api.put("/v1/workspaces/team/budgets", {"budgets": [{"what": "sandboxes", "period": "now", "maximum": None}]})
        second = team.create()["id"]
        # What was spent outlives the daemon, also when it is killed.
        team.sh(box, "true")
        api, used = self.daemon.client(), lambda: {b["what"]: b["used"] for b in team.get("/v1/budgets")["budgets"]}
        self.assertEqual(used(), {"sandboxes": 2, "execs": 1})
        wait_until(lambda: api.get("/v1/usage", workspace="team") and self.written() == 1, what="writing what was spent")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(used(), {"sandboxes": 2, "execs": 1})
        for one in (box, second):
            team.delete("/v1/sandboxes/" + one)


class Crash(DaemonTest):
    # Nothing is written by the interval within this test.
    config = "[budget]\nwall_per_day = 1h\ncpu_per_day = 1h\n[usage]\ninterval = 600s\n"

    def test_time_and_cpu_outlive_a_kill(self):
        clear_of_midnight()
        used = lambda: {b["what"]: b["used"] for b in self.api.get("/v1/limits")["budgets"] if b["period"] == "day"}
        box = self.sandbox()
        self.api.sh(box, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
        self.remove(box)
        before = used()
        self.assertGreater(before["wall_seconds"], 0)
        self.assertGreater(before["cpu_seconds"], 0)
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(used(), before)


class Host(DaemonTest):
    config = "[host]\nmemory_overcommit = 1\n"

    def test_commitment(self):
        total = self.api.get("/v1/limits")["host"]["memory_total_mb"]
        size = total // 2 + 64
        box = self.sandbox(memory_mb=size)
        error = self.refused(503, "host.capacity", self.api.create, memory_mb=size)
        self.assertGreaterEqual(int(error.headers["Retry-After"]), 1)
        self.assertIn("memory limits", error.body["error"])
        waiting = Background(self.api.create, memory_mb=size, wait_ms=30000)
        wait_until(lambda: self.api.get("/v1/limits")["queue"]["length"] == 1, what="the wait")
        self.remove(box)
        self.remove(waiting.result()["id"])


class FullHost(DaemonTest):
    config = "[host]\nmemory_reserve = 1000G\n[pool]\nsize = 0\n"

    def test_no_memory(self):
        error = self.refused(503, "host.capacity", self.api.create)
        self.assertIn("memory", error.body["error"])
        self.assertFalse(self.api.get("/v1/limits")["host"]["room"])
        error = self.refused(503, "host.capacity", self.api.create, wait_ms=200)
        self.assertEqual(error.body["queue_position"], 1)


class FullDisk(DaemonTest):
    config = "[host]\ndisk_reserve = 10000G\n[pool]\nsize = 0\n"

    def test_no_disk(self):
        self.assertIn("disk", self.refused(503, "host.capacity", self.api.create).body["error"])
