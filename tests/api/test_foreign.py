"""Strangers: every operation of docs/openapi is tried with tokens that must not get through. Made of the document,
so that an operation is tried as soon as it is described."""
import json
import re
import time
import unittest

from caisson import ApiError, DaemonTest, wait_until
from contract import OPERATIONS, resolved
from generate import NOWHERE, Requests
from wire import Wire

READ, WRITE, ADMIN = "sandboxes:read", "sandboxes:write", "admin"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
NAME = "victim-of-strangers"
# Where a parameter names the same thing as another.
ALIASES = {"job": "exec", "session": "context", "sid": "context", "id": "sandbox"}


def guarded():
    return [(method, path, operation) for (method, path), operation in OPERATIONS.items() if operation.get("security") != []]


def streams(operation):
    return any("text/event-stream" in resolved(answer).get("content", {}) for answer in operation["responses"].values())


class Foreign(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.victim = cls.api.create(name=NAME, timeout_seconds=3600, memory_mb=128, metadata={"secret": "metadata-of-the-victim"})["id"]
        cls.job = cls.api.exec(cls.victim, "echo secret-output; cat", background=True, stdin=True)["exec_id"]
        # What it says is counted in its record, which must not change later.
        wait_until(lambda: cls.api.get(f"/v1/sandboxes/{cls.victim}/execs/{cls.job}/output") == b"secret-output\n",
                   what="its output")
        cls.api.write(cls.victim, "/workspace/secret", b"secret-content")
        cls.values = {"sandbox": cls.victim, "exec": cls.job, "workspace": "default", **cls.context()}
        cls.other = cls.api.create(timeout_seconds=3600, memory_mb=128)["id"]
        cls.tokens = {
            "another workspace": cls.daemon.token("strangers", scopes=[READ, WRITE]),
            "another workspace's admin": cls.daemon.token("strangers", scopes=[READ, WRITE, ADMIN]),
            "another sandbox": cls.daemon.token(scopes=[READ, WRITE], sandbox=cls.other),
            "read only": cls.daemon.token(scopes=[READ]),
            "write": cls.daemon.token(scopes=[READ, WRITE]),
            "expired": cls.daemon.token(scopes=[READ, WRITE, ADMIN], expires_seconds=1),
        }
        made = cls.api.post("/v1/tokens", {"workspace": "default", "scopes": [READ, WRITE, ADMIN]})
        cls.api.delete("/v1/tokens/" + made["id"])
        cls.tokens["revoked"] = made["token"]
        cls.tokens["garbage"] = "csn_" + "A" * 43
        cls.wires = {name: Wire(port=cls.daemon.port, token=token) for name, token in cls.tokens.items()}
        cls.wires["none"] = Wire(port=cls.daemon.port)
        wait_until(lambda: cls.wires["expired"].ask("GET", "/v1/sandboxes").status == 401, what="the end of a token")

    @classmethod
    def tearDownClass(cls):
        for wire in cls.wires.values():
            wire.close()

    @classmethod
    def context(cls):
        """A code context of the victim's, where there are some."""
        path = next((path for path in ("/v1/sandboxes/{sandbox}/contexts", "/v1/sandboxes/{sandbox}/repl/sessions")
                     if ("POST", path) in OPERATIONS), None)
        if path is None:
            return {}
        made = cls.api.post(path.replace("{sandbox}", cls.victim), {"language": "bash"})
        return {"context": made.get("id") or made.get("context_id")}

    def value(self, name):
        return self.values.get(ALIASES.get(name, name) if name not in self.values else name, NOWHERE)

    def requests(self, method, path, **values):
        names = {name: self.value(name) for name in re.findall(r"\{(\w+)\}", path)}
        return Requests(method, path, {**names, **values})

    def ask(self, who, method, path, upgrade=False, **values):
        case = self.requests(method, path, **values).plain()
        return self.wires[who].ask(method, case.target, case.body, UPGRADE if upgrade else None)

    def expect(self, who, method, path, statuses, **values):
        operation = OPERATIONS[method, path]
        for upgrade in (False, True) if "101" in operation["responses"] else (False,):
            answer = self.ask(who, method, path, upgrade, **values)
            self.assertIn(answer.status, statuses, f"{who}{', upgrading' if upgrade else ''}: {answer.body[:300]}")
            self.assertEqual(answer.json()["request_id"], answer.headers["x-request-id"])
            for secret in ("secret", self.job if "{exec}" not in path else "\0"):
                self.assertNotIn(secret, answer.body.decode().replace(NAME, ""), who)
        return answer

    def record(self):
        """All that can be seen of the victim."""
        seen = {"record": self.api.get("/v1/sandboxes/" + self.victim), "execs": self.api.get(f"/v1/sandboxes/{self.victim}/execs"),
                "tokens": sorted(token["id"] for token in self.api.get("/v1/tokens")["tokens"])}
        for name in ("contexts", "labels", "lifecycle"):
            if ("GET", "/v1/sandboxes/{sandbox}/" + name) in OPERATIONS:
                seen[name] = self.api.get(f"/v1/sandboxes/{self.victim}/{name}")
        text = json.dumps(seen)
        # What time alone changes.
        return json.loads(re.sub(r'"(\w*(?:idle|age|uptime|duration|expires_in|cpu|seconds_left|alive)\w*)": [\d.]+', r'"\1": 0', text))

    def each(self, who, statuses, operations):
        """Tries them, and sees that nothing has become of it."""
        before = self.record()
        for method, path, operation in operations:
            with self.subTest(operation=f"{method} {path}", who=who):
                self.expect(who, method, path, statuses)
        self.assertEqual(self.record(), before)
        self.assertEqual(self.api.read(self.victim, "/workspace/secret"), b"secret-content")
        return len(list(operations))

    def test_without_a_good_token(self):
        for who in ("none", "garbage", "revoked", "expired"):
            self.each(who, {401}, guarded())
        answer = self.ask("none", "GET", "/v1/sandboxes")
        self.assertTrue(answer.headers["www-authenticate"].startswith("Bearer"))

    def test_another_workspace(self):
        inside = [one for one in guarded() if "{sandbox}" in one[1]]
        for who in ("another workspace", "another workspace's admin", "another sandbox"):
            tried = [one for one in inside if who != "another workspace" or one[2].get("x-caisson-scope") != ADMIN]
            self.assertGreater(self.each(who, {404}, tried), 25)

    def test_another_workspace_by_name(self):
        before = self.record()
        for method, path, operation in guarded():
            if "{sandbox}" in path and operation.get("x-caisson-scope") != ADMIN:
                with self.subTest(operation=f"{method} {path}"):
                    self.expect("another workspace", method, path, {404}, sandbox=NAME)
        self.assertEqual(self.record(), before)

    def test_what_is_in_a_sandbox_is_not_found_in_another(self):
        """One's own sandbox, and the exec or the context of somebody else."""
        mine = self.daemon.tcp(self.tokens["another workspace"]).create(timeout_seconds=600, memory_mb=128)["id"]
        before = self.record()
        for method, path, operation in guarded():
            names = re.findall(r"\{(\w+)\}", path)
            if names[:1] == ["sandbox"] and any(self.value(name) in (self.job, self.values.get("context")) for name in names[1:]):
                with self.subTest(operation=f"{method} {path}"):
                    answer = self.ask("another workspace", method, path, "101" in operation["responses"], sandbox=mine)
                    # A delete that swallows what is not there is as good.
                    self.assertIn(answer.status, {404, 204} if method == "DELETE" else {404}, answer.body[:300])
        self.assertEqual(self.record(), before)
        self.daemon.tcp(self.tokens["another workspace"]).delete("/v1/sandboxes/" + mine)

    def test_read_only(self):
        tried = [one for one in guarded() if one[2]["x-caisson-scope"] in (WRITE, ADMIN)]
        self.each("read only", {403}, tried)
        answer = self.ask("read only", "POST", "/v1/sandboxes")
        self.assertIn('error="insufficient_scope", scope="sandboxes:write"', answer.headers["www-authenticate"])
        self.each("write", {403}, [one for one in guarded() if one[2]["x-caisson-scope"] == ADMIN])

    def test_lists_show_nothing_of_others(self):
        for who in ("another workspace", "another sandbox"):
            for method, path, operation in guarded():
                if method != "GET" or "{sandbox}" in path or streams(operation) or operation["x-caisson-scope"] == ADMIN:
                    continue
                with self.subTest(operation=f"{method} {path}", who=who):
                    answer = self.ask(who, method, path)
                    for secret in (self.victim, NAME, self.job, "metadata-of-the-victim"):
                        self.assertNotIn(secret.encode(), answer.body)

    def test_events_show_nothing_of_others(self):
        client = self.daemon.tcp(self.tokens["another workspace"], timeout=30)
        for method, path, operation in guarded():
            if method != "GET" or "{" in path or not streams(operation):
                continue
            with self.subTest(operation=f"{method} {path}"):
                response, connection = client.raw("GET", self.requests(method, path).plain().target)
                self.api.sh(self.victim, "true")
                mine = client.create(timeout_seconds=600, memory_mb=128)["id"]
                seen, end = "", time.monotonic() + 20
                while mine not in seen:
                    self.assertLess(time.monotonic(), end, seen)
                    line = response.readline().decode()
                    self.assertTrue(line, "the stream has ended: " + seen)
                    seen += line
                connection.close()
                client.delete("/v1/sandboxes/" + mine)
                for secret in (self.victim, NAME, self.job):
                    self.assertNotIn(secret, seen)

    def test_a_bound_token_gets_no_further_than_its_sandbox(self):
        client = self.daemon.tcp(self.tokens["another sandbox"])
        self.assertEqual(client.get("/v1/sandboxes/" + self.other)["id"], self.other)
        self.assertEqual([item["id"] for item in client.get("/v1/sandboxes")["items"]], [self.other])
        before = {item["id"] for item in self.api.get("/v1/sandboxes")["items"]}
        with self.assertRaises(ApiError) as caught:
            client.create()
        self.assertIn(caught.exception.status, (403, 404))
        self.assertEqual({item["id"] for item in self.api.get("/v1/sandboxes")["items"]}, before)


if __name__ == "__main__":
    unittest.main()
