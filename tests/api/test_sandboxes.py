"""Sandboxes over the API: every field of a create, templates, lists and their filters, changes, waiting,
draining, one-shot runs, what other services' clients send, and what a restart of the daemon keeps."""
import json
import unittest
import urllib.parse

from caisson import ApiError, Background, DaemonTest, wait_until
from marks import long


def patch(api, sandbox, body, rest=""):
    return api.call("PATCH", f"/v1/sandboxes/{sandbox}{rest}", body)


class Create(DaemonTest):
    def test_every_field(self):
        fields = {"template": "host", "name": "full", "size": "medium", "cpu": 0.5, "disk_mb": 64, "pids": 64, "timeout_seconds": 900,
                  "idle_timeout_seconds": 800, "auto_pause_seconds": 700, "labels": {"team": "red", "a.b/c-d_E": ""},
                  "metadata": {"owner": "me", "secret.key": "hidden"}, "env": {"A": "b"}, "network": "off", "isolation": "namespace",
                  "region": None, "wake_on_read": True, "persistent": True, "nested_userns": False, "allow_substitute": False,
                  "volumes": [], "from_snapshot": None, "image": None, "ports": []}
        box = self.sandbox(**fields)
        record = self.api.get("/v1/sandboxes/full")
        self.assertEqual(record["id"], box)
        # The explicit number wins over the size, the rest of the size holds.
        self.assertEqual((record["cpu"], record["memory_mb"], record["disk_mb"]), (0.5, 2048, 64))
        self.assertEqual(record["limits"]["pids"]["value"], 64)
        self.assertEqual((record["timeout_seconds"], record["idle_timeout_seconds"], record["auto_pause_seconds"]), (900, 800, 700))
        self.assertEqual(record["labels"], {"team": "red", "a.b/c-d_E": ""})
        self.assertEqual(record["metadata"], {"owner": "me"})
        self.assertEqual((record["wake_on_read"], record["persistent"], record["guest_ip"], record["region"]), (True, True, None, "local"))
        self.assertEqual(self.api.sh(box, "echo $A"), "b\n")

    def test_what_is_refused(self):
        for body, status, word in [
                ({"labels": {"bad key": "x"}}, 400, "labels"), ({"labels": {"": "x"}}, 400, "labels"),
                ({"labels": {"k" * 64: "x"}}, 400, "labels"), ({"labels": {"k": "v" * 64}}, 400, "k"),
                ({"labels": {f"k{i}": "v" for i in range(33)}}, 400, "32"), ({"labels": {"k": 1}}, 400, "string"),
                ({"size": "huge"}, 400, "size"), ({"cpu": 0}, 400, "cpu"), ({"memory_mb": 1}, 400, "memory_mb"),
                ({"disk_mb": 64, "disk_gb": 1}, 400, "disk"), ({"ttl_seconds": 5, "idle_timeout_seconds": 5}, 400, "ttl_seconds"),
                ({"auto_pause_seconds": -1}, 400, "auto_pause_seconds"), ({"region": "fsn1"}, 501, "region"),
                ({"network": "open"}, 501, "network"), ({"network": "some"}, 400, "network"),
                ({"from_snapshot": "x"}, 501, "snapshots"), ({"volumes": [{"name": "v"}]}, 501, "volumes"),
                ({"image": "debian"}, 501, "images"), ({"ports": [80]}, 501, "network"), ({"network_policy": {"allow": ["a"]}}, 501, "network"),
                ({"persistent": "yes"}, 400, "persistent"), ({"metadata": {"": "x"}}, 400, "metadata")]:
            with self.subTest(body=body):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("POST", "/v1/sandboxes", body, checked=False)
                self.assertEqual(caught.exception.status, status, caught.exception.body)
                self.assertIn(word, caught.exception.body["error"])
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])

    def test_a_persistent_one_has_no_time_out(self):
        # What @pandastack/sdk and orkestr's clients send.
        box = self.sandbox(template="host", ttl_seconds=300, persistent=True, metadata={"a": "b"})
        record = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual((record["timeout_seconds"], record["expires_at"], record["idle_timeout_seconds"]), (None, None, 300))
        other = self.sandbox(template="host", cpu=1.0, memory_mb=512, network="off", timeout_seconds=600, env={}, metadata={}, region=None)
        self.assertEqual(self.api.get("/v1/sandboxes/" + other)["timeout_seconds"], 600)


class Templates(DaemonTest):
    def test_list(self):
        listed = self.api.get("/v1/templates")
        names = {entry["name"]: entry for entry in listed}
        for name in ("host", "python-3.12", "python-3.12-bare", "node-22", "ubuntu-24.04", "base", "code-interpreter", "agent",
                     "claude-agent", "browser", "postgres-16"):
            self.assertIn(name, names)
        self.assertEqual((names["host"]["available"], names["host"]["resolved_to"]), (True, "host"))
        self.assertEqual((names["node-22"]["available"], names["node-22"]["resolved_to"]), (False, None))
        self.assertEqual(self.api.get("/v1/templates/node-22"), names["node-22"])
        self.refused(404, "template.not_found", self.api.get, "/v1/templates/nothing")

    def test_not_installed(self):
        error = self.refused(422, "template.unavailable", self.api.create, template="python-3.12")
        self.assertIn("--allow-substitute", error.body["error"])
        self.assertIn("substitute = yes", error.body["error"])
        error = self.refused(422, "template.unavailable", self.api.create, template="nothing", allow_substitute=True)
        self.assertIn("ubuntu-24.04", error.body["error"])

    def test_substitute_and_boot_survive_a_restart(self):
        box = self.sandbox(template="python-3.12", allow_substitute=True)
        plain = self.sandbox()
        before = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual((before["template"], before["template_resolved"]), ("python-3.12", "host"))
        self.assertIn("python-3.12", before["warnings"][0])
        self.daemon.kill_daemon()
        after = self.api.get("/v1/sandboxes/" + box)
        for key in ("template", "template_resolved", "warnings", "boot_ms", "boot_mode", "labels"):
            self.assertEqual(after[key], before[key], key)
        self.assertNotIn("template_resolved", self.api.get("/v1/sandboxes/" + plain))


class Substituted(DaemonTest):
    config = "[templates]\nsubstitute = yes\n"

    def test_the_installation_allows_it(self):
        record = self.api.get("/v1/sandboxes/" + self.sandbox(template="ubuntu-24.04"))
        self.assertEqual((record["template"], record["template_resolved"]), ("ubuntu-24.04", "host"))
        self.assertEqual(self.api.get("/v1/templates/ubuntu-24.04")["resolved_to"], "host")
        self.refused(422, "template.unavailable", self.api.create, template="nothing")


class Lists(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api = cls.daemon.tcp(cls.daemon.token("lists"))
        cls.made = [cls.api.create(name=name, labels=labels, metadata=metadata)["id"] for name, labels, metadata in [
            ("red-one", {"team": "red", "n": "1"}, {"owner": "me"}), ("red-two", {"team": "red", "n": "2"}, {"owner": "you"}),
            ("blue-one", {"team": "blue", "n": "1"}, {"owner": "me", "secret.x": "y"})]]
        cls.api.post(f"/v1/sandboxes/{cls.made[1]}/pause")

    @classmethod
    def tearDownClass(cls):
        for box in cls.made:
            cls.api.delete("/v1/sandboxes/" + box)

    def names(self, *query):
        url = "/v1/sandboxes?" + urllib.parse.urlencode(query)
        seen, cursor = [], None
        for _ in range(20):
            page = self.api.call("GET", url + (f"&cursor={cursor}" if cursor else ""))
            seen += [record["name"] for record in page["items"]]
            cursor = page["next_cursor"]
            if not cursor:
                return seen
        raise AssertionError("the pages do not end")

    def test_filters(self):
        for query, wanted in [
                ([("label", "team=red")], ["red-two", "red-one"]), ([("label", "team=red"), ("label", "n=1")], ["red-one"]),
                ([("label", "team=red"), ("label", "team=blue")], []), ([("label", "none=x")], []),
                ([("metadata", "owner=me")], ["blue-one", "red-one"]), ([("metadata", "owner=me"), ("label", "team=blue")], ["blue-one"]),
                ([("name_prefix", "red-")], ["red-two", "red-one"]), ([("name", "red-one")], ["red-one"]), ([("name", "red-")], []),
                ([("state", "paused")], ["red-two"]), ([("status", "running")], ["blue-one", "red-one"]),
                ([("label", "team=red"), ("state", "running")], ["red-one"]), ([("label", "team=red"), ("limit", 1)], ["red-two", "red-one"])]:
            with self.subTest(query=query):
                self.assertEqual(self.names(*query), wanted)

    def test_bad_filters(self):
        for query in ("label=team", "label==x", "label=", "label", "metadata=secret.x%3Dy", "state=odd", "state=running&status=running",
                      "label=%zz%3Dx", "&".join("label=a%3Db" for _ in range(17)), "unknown=1", "name=a&name=b"):
            with self.subTest(query=query):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("GET", "/v1/sandboxes?" + query, checked=False)
                self.assertEqual((caught.exception.status, caught.exception.code), (400, "request.invalid"))

    def test_a_secret_is_nowhere(self):
        text = json.dumps(self.api.get("/v1/sandboxes")) + json.dumps(self.api.get("/v1/sandboxes/blue-one"))
        self.assertNotIn("secret.x", text)


class Changes(DaemonTest):
    def test_everything_at_once(self):
        box = self.sandbox(name="before", labels={"a": "1", "b": "2"}, metadata={"x": "1", "secret.s": "2"})
        record = patch(self.api, box, {"name": "after", "labels": {"a": None, "c": "3"}, "metadata": {"x": None, "y": "z"},
                                       "timeout_seconds": 1000, "idle_timeout_seconds": 500, "auto_pause_seconds": 400, "wake_on_read": True,
                                       "cpu": 0.5, "memory_mb": 256, "pids": 100})
        self.assertEqual((record["name"], record["labels"], record["metadata"]), ("after", {"b": "2", "c": "3"}, {"y": "z"}))
        self.assertEqual((record["timeout_seconds"], record["idle_timeout_seconds"], record["auto_pause_seconds"], record["wake_on_read"]),
                         (1000, 500, 400, True))
        self.assertEqual((record["cpu"], record["memory_mb"], record["limits"]["pids"]["value"]), (0.5, 256, 100))
        self.assertEqual(self.api.get("/v1/sandboxes/after")["id"], box)
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/before")
        self.daemon.kill_daemon()
        again = self.api.get("/v1/sandboxes/after")
        for key in ("name", "labels", "metadata", "timeout_seconds", "idle_timeout_seconds", "auto_pause_seconds", "cpu", "memory_mb"):
            self.assertEqual(again[key], record[key], key)
        # The name is free, and can be taken away.
        self.assertIsNone(patch(self.api, "after", {"name": None})["name"])
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/after")

    def test_all_or_nothing(self):
        self.sandbox(name="taken")
        box = self.sandbox(name="mine", labels={"a": "1"})
        before = self.api.get("/v1/sandboxes/" + box)
        for body, status, code in [
                ({"name": "taken", "labels": {"a": "2"}}, 409, "sandbox.name_taken"),
                ({"labels": {"a": "2", "bad key": "x"}}, 400, "request.invalid"),
                ({"labels": {"a": "2"}, "name": "Bad"}, 400, "request.invalid"),
                ({"labels": {"a": "2"}, "cpu": 10000}, 400, "request.invalid"),
                ({"labels": {"a": "2"}, "memory_mb": 4194304}, 422, "limit.exceeded"),
                ({"labels": {"a": "2"}, "disk_mb": 100}, 501, "feature.unsupported"),
                ({"labels": {"a": "2"}, "template": "host"}, 400, "request.invalid"),
                ({"labels": {"a": 2}}, 400, "request.invalid"),
                ({"labels": {"a": "2"}, "ttl_seconds": 5, "idle_timeout_seconds": 6}, 400, "request.invalid"),
                ({"metadata": {f"k{i}": "v" * 1000 for i in range(20)}, "name": "other"}, 422, "limit.exceeded")]:
            with self.subTest(body=str(body)[:80]):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("PATCH", "/v1/sandboxes/" + box, body, checked=False)
                self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception.body)
        after = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual({**after, "active_at": None}, {**before, "active_at": None})
        self.assertEqual(patch(self.api, box, {"name": "mine"})["name"], "mine")
        self.assertEqual(patch(self.api, box, {})["id"], box)

    def test_limits_hold(self):
        box = self.sandbox(pids=512)
        if not self.api.get("/v1/sandboxes/" + box)["limits"]["pids"]["enforced"]:
            self.skipTest("this host does not limit processes")
        patch(self.api, box, {"pids": 24})
        result = self.api.exec(box, "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done; echo made", timeout_seconds=20)
        self.assertTrue("fork" in result["stderr"].lower() or result["exit_code"] != 0, result)

    def test_lifecycle(self):
        box = self.sandbox(ttl_seconds=100)
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}/lifecycle")["ttl_seconds"], 100)
        changed = patch(self.api, box, {"ttl_seconds": 200, "persistent": True}, "/lifecycle")
        self.assertEqual((changed["ttl_seconds"], changed["persistent"]), (200, True))
        self.assertEqual(patch(self.api, box, {"persistent": False}, "/lifecycle")["ttl_seconds"], 200)
        self.refused(400, "request.invalid", self.api.call, "PATCH", f"/v1/sandboxes/{box}/lifecycle", {"ttl_seconds": -1}, checked=False)


    def test_any_life_that_is_given_replaces_the_default(self):
        timeout = lambda box: self.api.get("/v1/sandboxes/" + box)["timeout_seconds"]
        given = self.sandbox(timeout_seconds=600)
        for body in ({"ttl_seconds": 3600}, {"idle_timeout_seconds": 30}, {"persistent": True}):
            record = self.api.get("/v1/sandboxes/" + self.sandbox(**body))
            self.assertEqual((record["timeout_seconds"], record["expires_at"]), (None, None), body)
            for path in ("", "/lifecycle"):
                if "idle_timeout_seconds" in body and path:
                    continue
                box = self.sandbox()
                self.assertEqual(timeout(box), 600)
                patch(self.api, box, {"persistent": False}, path)
                self.assertEqual(timeout(box), 600, "it is not said that it stays")
                patch(self.api, box, body, path)
                self.assertIsNone(timeout(box), (body, path))
                patch(self.api, given, body, path)
                self.assertEqual(timeout(given), 600, "one that was asked for stays")
        # One that is given later is one that was asked for.
        box = self.sandbox()
        patch(self.api, box, {"timeout_seconds": 700})
        patch(self.api, box, {"ttl_seconds": 3600}, "/lifecycle")
        self.assertEqual(timeout(box), 700)
        # What says nothing of a life leaves it alone.
        for body in ({"ttl_seconds": 0}, {"auto_pause_seconds": 50}, {"wake_on_read": True}):
            box = self.sandbox()
            patch(self.api, box, body)
            self.assertEqual((timeout(self.sandbox(**body)), timeout(box)), (600, 600), body)


class LifeWithinMaximum(DaemonTest):
    config = "[sandbox]\ntimeout_max = 5000\n"

    def test_no_life_is_longer_than_allowed(self):
        made, changed = self.sandbox(ttl_seconds=3600), self.sandbox()
        patch(self.api, changed, {"persistent": True}, "/lifecycle")
        for box in (made, changed):
            self.assertEqual(self.api.get("/v1/sandboxes/" + box)["timeout_seconds"], 5000)


class Life(DaemonTest):
    def test_wait(self):
        box = self.sandbox()
        wait = f"/v1/sandboxes/{box}/wait"
        self.assertEqual(self.api.get(wait, **{"for": "running"})["id"], box)
        self.assertEqual(self.api.call("POST", wait + "?for=idle")["id"], box)
        error = self.refused(408, "wait.timed_out", self.api.get, wait, **{"for": "stopped", "timeout_seconds": 0})
        self.assertIn("running", error.body["error"])
        self.refused(400, "request.invalid", self.api.call, "GET", wait + "?for=odd", checked=False)
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/none/wait", **{"for": "ended"})
        waits = {what: Background(self.api.get, wait, **{"for": what, "timeout_seconds": 60}) for what in ("stopped", "ended", "paused")}
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.assertEqual(waits["paused"].result()["status"], "paused")
        self.api.post(f"/v1/sandboxes/{box}/stop")
        self.assertEqual(waits["stopped"].result()["status"], "stopped")
        self.api.delete("/v1/sandboxes/" + box)
        self.assertEqual(waits["ended"].result()["status"], "ended")
        self.assertEqual(self.api.get(wait, **{"for": "ended"})["end_reason"], "user")
        self.refused(410, "sandbox.ended", self.api.get, wait, **{"for": "running"})

    def test_wait_for_idle_and_a_client_that_goes(self):
        box = self.sandbox()
        job = self.api.exec(box, "cat", background=True, stdin=True)["exec_id"]
        connection = self.api.connection()
        connection.request("GET", f"/v1/sandboxes/{box}/wait?for=idle&timeout_seconds=60")
        self.refused(408, "wait.timed_out", self.api.get, f"/v1/sandboxes/{box}/wait", **{"for": "idle", "timeout_seconds": 0})
        connection.close()
        self.api.call("DELETE", f"/v1/sandboxes/{box}/execs/{job}")
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}/wait", **{"for": "idle"})["id"], box)

    def begin_drain(self, box):
        drain = Background(self.api.post, f"/v1/sandboxes/{box}/drain", {})
        wait_until(lambda: "draining_until" in self.api.get("/v1/sandboxes/" + box), what="the drain")
        return drain

    def test_drain(self):
        box = self.sandbox()
        job = self.api.exec(box, "cat >/workspace/got; echo done", background=True, stdin=True)["exec_id"]
        drain = self.begin_drain(box)
        self.refused(409, "sandbox.draining", self.api.exec, box, "true")
        self.api.call("POST", f"/v1/sandboxes/{box}/execs/{job}/stdin?close=1", b"text", {"Content-Type": "application/octet-stream"})
        record = drain.result()
        self.assertEqual(record["status"], "stopped")
        self.assertNotIn("draining_until", record)
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}/execs/{job}")["exit_code"], 0)
        # It can be used again.
        self.assertEqual(self.api.sh(box, "cat /workspace/got"), "text")

    def test_drain_then_delete_and_time_out(self):
        box = self.sandbox()
        self.api.exec(box, "sleep 1000", background=True)
        record = self.api.post(f"/v1/sandboxes/{box}/drain", {"timeout_seconds": 0, "then": "delete"})
        self.assertEqual((record["status"], record["end_reason"]), ("ended", "user"))
        self.refused(400, "request.invalid", self.api.call, "POST", f"/v1/sandboxes/{self.sandbox()}/drain", {"then": "dance"}, checked=False)

    def test_drain_taken_back(self):
        box = self.sandbox()
        self.api.exec(box, "sleep 1000", background=True)
        drain = self.begin_drain(box)
        self.api.post(f"/v1/sandboxes/{box}/drain", {"cancel": True})
        with self.assertRaises(ApiError) as caught:
            drain.result()
        self.assertEqual(caught.exception.code, "cancelled")
        self.assertEqual(self.api.sh(box, "echo 1"), "1\n")

    def test_drain_goes_on_after_a_restart(self):
        box = self.sandbox()
        job = self.api.exec(box, "cat", background=True, stdin=True)["exec_id"]
        # One that was not begun when the daemon dies has failed, and nothing is waited for.
        wait_until(lambda: self.api.get(f"/v1/sandboxes/{box}/execs/{job}")["state"] == "running", what="its start")
        drain = self.begin_drain(box)
        self.daemon.kill_daemon()
        drain.join(30)  # its connection is lost with the daemon
        self.refused(409, "sandbox.draining", self.api.exec, box, "true")
        self.api.call("DELETE", f"/v1/sandboxes/{box}/execs/{job}")
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}/wait", **{"for": "stopped"})["status"], "stopped")

    def test_other_services_words(self):
        box = self.sandbox()
        for action, status, state in [("hibernate", "hibernated", "paused"), ("wake", "running", "running")]:
            answer = self.api.call("POST", f"/v1/sandboxes/{box}/{action}", "", {"Content-Type": "text/plain;charset=UTF-8"})
            self.assertEqual((answer["status"], answer["state"]), (status, state))
        for action, state in [("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("wake", "running")]:
            answer = self.api.call("POST", f"/v1/sandboxes/{box}/{action}", "", {"Content-Type": "text/plain;charset=UTF-8"})
            self.assertEqual(answer["status"], state)

    def test_tombstone(self):
        box = self.api.create(name="gone", labels={"a": "b"}, metadata={"c": "d"})["id"]
        self.api.delete("/v1/sandboxes/" + box)
        for record in (self.api.get("/v1/sandboxes/" + box), self.api.get("/v1/sandboxes/gone")):
            self.assertEqual((record["status"], record["end_reason"], record["labels"]), ("ended", "user", {"a": "b"}))
        listed = self.api.call("GET", "/v1/sandboxes?state=ended&label=a%3Db")["items"]
        self.assertEqual([record["id"] for record in listed], [box])

    def test_what_is_not_there_yet(self):
        box = self.sandbox()
        for method, path in [("POST", "/fork"), ("POST", "/fork-tree"), ("POST", "/promote"), ("POST", "/snapshots"), ("GET", "/ports"),
                             ("POST", "/preview-token"), ("GET", "/proxy/80")]:
            self.refused(501, "feature.unsupported", self.api.call, method, f"/v1/sandboxes/{box}{path}")
            self.refused(404, "sandbox.not_found", self.api.call, method, f"/v1/sandboxes/abcdefghijklmnop{path}")
        for method, path in [("GET", "snapshots"), ("GET", "volumes"), ("POST", "volumes"), ("GET", "functions"), ("POST", "templates/build"),
                             ("GET", "templates/builds"), ("DELETE", "templates/host"), ("POST", "databases"), ("GET", "images")]:
            self.refused(501, "feature.unsupported", self.api.call, method, "/v1/" + path)

    def test_below_what_is_not_there_yet(self):
        # Paths and methods without a route of their own, at any depth, with any query.
        box, other, stranger = self.sandbox(), self.daemon.tcp(self.daemon.token("strangers")), self.daemon.tcp(None)
        for method, path in [("GET", "/proxy/80/"), ("POST", "/proxy/80/a/b%20c/d?x=1&y"), ("OPTIONS", "/proxy/80/x"), ("GET", "/proxy"),
                             ("PUT", "/ports/80"), ("GET", "/ports?all=1"), ("DELETE", "/snapshots/x"), ("POST", "/fork?warm=1"), ("GET", "/fork"),
                             ("GET", "/volumes"), ("PUT", "/network"), ("GET", "/network-policy"), ("PATCH", "/egress/policy"), ("GET", "/lsp")]:
            with self.subTest(method=method, path=path):
                target = f"/v1/sandboxes/{box}{path}"
                self.refused(501, "feature.unsupported", self.api.call, method, target, checked=False)
                self.refused(404, "sandbox.not_found", other.call, method, target, checked=False)
                self.refused(401, "auth.required", stranger.call, method, target, checked=False)
        for method, path in [("GET", "snapshots?sandbox_id=x"), ("PUT", "volumes/x"), ("POST", "images/x/pull"), ("GET", "p/token/a/b"),
                             ("GET", "functions/x/runs?period=24"), ("PATCH", "databases/x"), ("POST", "databases/x/failover"), ("DELETE", "schedules/x"),
                             ("GET", "apps/x/deploys/y/logs"), ("POST", "repos/x/preview-env"), ("GET", "preview-repos"), ("PUT", "templates/builds/x/y"),
                             ("GET", "network-policies"), ("GET", "me"), ("DELETE", "me/tokens/x"), ("GET", "audit"), ("GET", "stats/boot"),
                             ("GET", "metrics/overview?step=1m"), ("GET", "metrics/sandbox/x")]:
            with self.subTest(method=method, path=path):
                self.refused(501, "feature.unsupported", self.api.call, method, "/v1/" + path, checked=False)
                self.refused(401, "auth.required", stranger.call, method, "/v1/" + path, checked=False)
        # What only begins like them, and what is there, is what it was.
        for method, path, status, code in [("GET", f"sandboxes/{box}/proxying", 404, "route.not_found"), ("GET", f"sandboxes/{box}/x/proxy", 404, "route.not_found"),
                                           ("GET", "volumesque", 404, "route.not_found"), ("GET", "sandboxes//proxy/80", 404, "route.not_found"),
                                           ("PUT", "templates/host", 405, "route.method_not_allowed"), ("PUT", "metrics", 405, "route.method_not_allowed")]:
            with self.subTest(method=method, path=path):
                self.refused(status, code, self.api.call, method, "/v1/" + path, checked=False)


class OneShot(DaemonTest):
    def gone(self, api=None):
        wait_until(lambda: not (api or self.api).get("/v1/sandboxes")["items"], 20, what="the sandbox's end")

    def test_run(self):
        answer = self.api.post("/v1/run", {"cmd": "cat; echo $A >&2; exit 3", "stdin": "text", "env": {"A": "b"}, "labels": {"x": "y"}})
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exit_code"]), ("text", "b\n", 3))
        self.assertGreater(answer["timings"]["create_ms"], 0)
        # It is in no list when the answer comes, and is removed then.
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])
        path = "/v1/sandboxes/" + answer["sandbox_id"]
        record = wait_until(lambda: (lambda one: one if one["status"] == "ended" else None)(self.api.get(path)), what="its end")
        self.assertEqual((record["status"], record["labels"]), ("ended", {"x": "y"}))
        self.assertEqual(self.api.post("/v1/run", {"argv": ["echo", "a b"], "memory_mb": 64})["stdout"], "a b\n")

    def test_unhappy_runs(self):
        for body, status, code in [
                ({"argv": ["/nowhere"]}, 422, "exec.program_not_found"), ({}, 400, "request.invalid"), ({"cmd": "true", "cwd": "/nowhere"}, 422, "exec.bad_cwd"),
                ({"cmd": "true", "tty": True}, 400, "request.invalid"), ({"cmd": "true", "background": True}, 400, "request.invalid"),
                ({"cmd": "cat", "stdin": True}, 400, "request.invalid"), ({"cmd": "true", "template": "node-22"}, 422, "template.unavailable"),
                ({"cmd": "true", "argv": ["true"]}, 400, "request.invalid"), ({"cmd": "true", "memory_mb": 4194304}, 422, "limit.exceeded")]:
            with self.subTest(body=body):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("POST", "/v1/run", body, checked=False)
                self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception.body)
                self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])

    @long
    def test_time_out(self):
        answer = self.api.post("/v1/run", {"cmd": "echo first; sleep 1000", "timeout_seconds": 4.5})
        self.assertEqual((answer["timed_out"], answer["exit_code"], answer["stdout"]), (True, 124, "first\n"))
        self.gone()

    def begin(self):
        connection = self.api.connection()
        connection.request("POST", "/v1/run", json.dumps({"cmd": "sleep 1000"}), {"Content-Type": "application/json"})
        wait_until(lambda: [record for record in self.api.get("/v1/sandboxes")["items"] if record["status"] == "running"], what="the run")
        return connection

    def test_a_client_that_goes(self):
        connection = self.begin()
        connection.close()
        self.gone()

    def test_a_daemon_that_is_killed(self):
        connection = self.begin()
        self.daemon.kill_daemon()
        connection.close()
        self.gone()
        record = wait_until(lambda: next((one for one in self.api.get("/v1/sandboxes", all=1, limit=1)["items"] if one["status"] == "ended"), None),
                            what="its end")
        self.assertIn("one-shot", record["end"]["message"])

    def test_stopped_by_somebody_else(self):
        """Its command is lost then: it is deleted while the stop is under way, and both come to an end."""
        self.meddled(lambda: self.api.post("/v1/sandboxes/short/stop"))

    def test_deleted_by_somebody_else(self):
        self.meddled(lambda: self.api.delete("/v1/sandboxes/short"))

    def meddled(self, meddle):
        run = Background(self.api.post, "/v1/run", {"cmd": "sleep 1000", "name": "short"})
        wait_until(lambda: [r for r in self.api.get("/v1/sandboxes")["items"] if r["status"] == "running"], what="the run")
        try:
            meddle()
        except ApiError as error:
            self.assertIn(error.code, ("cancelled", "sandbox.ended"))
        run.join(30)
        self.assertTrue(run.answer or isinstance(run.error, ApiError), run.error)
        self.gone()


class CommandLine(DaemonTest):
    def run_cli(self, *arguments, code=0):
        status, out, err = self.daemon.cli(*arguments)
        self.assertEqual(status, code, (arguments, out, err))
        return out if code == 0 else err

    def test_verbs(self):
        box = self.run_cli("create", "--label", "team=red", "--size", "small", "--auto-pause", "10m", "--name", "cli-box").strip()
        self.addCleanup(self.remove, box)
        self.assertEqual(self.run_cli("ls", "-q", "--label", "team=red", "--state", "running").split(), [box])
        self.assertEqual(self.run_cli("ls", "-q", "--label", "team=blue").split(), [])
        self.run_cli("set", "--label", "team-", "--label", "stage=test", "--memory", "256M", "--name", "other", "cli-box")
        record = json.loads(self.run_cli("inspect", "other"))
        self.assertEqual((record["labels"], record["memory_mb"], record["auto_pause_seconds"]), ({"stage": "test"}, 256, 600))
        self.run_cli("wait", "--for", "idle", "other")
        self.run_cli("wait", "--for", "stopped", "--timeout", "0", "other", code=124)
        self.assertEqual(self.run_cli("drain", "other"), "other stopped\n")
        self.assertIn("python-3.12", self.run_cli("templates"))
        self.assertIn("--allow-substitute", self.run_cli("create", "--template", "python-3.12", code=125))
        self.assertEqual(self.run_cli("rm", "--label", "stage=test").split(), [box])
        self.run_cli("rm", code=125)
        self.run_cli("rm", "--all", "some-box", code=125)
        self.run_cli("rm", "--all")


if __name__ == "__main__":
    unittest.main()
