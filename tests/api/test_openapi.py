"""The API against its own description: every operation of docs/openapi.json is driven against a real
daemon, and each request and each answer is validated by the document."""
import json
import os
import re
import socket
import unittest
import urllib.parse

import jsonschema

from caisson import TOP, DaemonTest, wait_until

DOCUMENT = json.load(open(os.path.join(TOP, "docs/openapi.json")))
METHODS = ("get", "put", "post", "patch", "delete")
OPERATIONS = {(method.upper(), path): operation for path, item in DOCUMENT["paths"].items()
              for method, operation in item.items() if method in METHODS}
# Routes that say that there is nothing yet.
UNDOCUMENTED = {(method, path) for method in ("POST", "PUT") for path in ("/mcp", "/api/sandboxes/mcp")}


def resolved(node):
    while "$ref" in node:
        place = DOCUMENT
        for key in node["$ref"].removeprefix("#/").split("/"):
            place = place[key.replace("~1", "/")]
        node = place
    return node


def validate(value, schema, what):
    resolver = jsonschema.RefResolver("", DOCUMENT)
    validator = jsonschema.Draft202012Validator(schema, resolver=resolver,
                                                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    errors = [f"{what}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
              for error in validator.iter_errors(value)]
    if errors:
        raise AssertionError("\n".join(errors))


def parameters(path, operation):
    """By (where, name)."""
    found = {}
    for parameter in DOCUMENT["paths"][path].get("parameters", []) + operation.get("parameters", []):
        parameter = resolved(parameter)
        found[parameter["in"], parameter["name"]] = parameter
    return found


def typed(text, schema):
    return int(text) if schema.get("type") == "integer" else text


class Described(DaemonTest):
    """A client that believes the document, not the daemon."""

    def setUp(self):
        self.seen = set()

    def check_request(self, method, path, values, query, body):
        operation = OPERATIONS[method, path]
        known = parameters(path, operation)
        for name, value in values.items():
            validate(value, known["path", name]["schema"], f"{method} {path}: {name}")
        for name, value in query.items():
            self.assertIn(("query", name), known, f"{method} {path}")
            schema = known["query", name]["schema"]
            validate(typed(str(value), schema), schema, f"{method} {path}: {name}")
        for (where, name), parameter in known.items():
            if parameter.get("required"):
                self.assertIn(name, {"path": values, "query": query}[where], f"{method} {path}: {name} is required")
        contents = operation.get("requestBody", {}).get("content", {})
        if isinstance(body, dict):
            validate(body, contents["application/json"]["schema"], f"body of {method} {path}")
        elif body is not None:
            self.assertIn("application/octet-stream", contents, f"{method} {path}")
        self.assertFalse(operation.get("requestBody", {}).get("required") and body is None, f"{method} {path} needs a body")

    def check_answer(self, method, path, response, data):
        responses = OPERATIONS[method, path]["responses"]
        what = f"{response.status} of {method} {path}"
        described = responses.get(str(response.status))
        if described is None:
            self.assertGreaterEqual(response.status, 400, f"{what} is not described: {data[:300]}")
            described = responses["default"]
        described = resolved(described)
        self.seen.add((method, path, response.status))
        self.assertTrue(response.getheader("X-Request-Id"), what)
        contents = described.get("content", {})
        kind = (response.getheader("Content-Type") or "").split(";")[0]
        if not contents:
            self.assertEqual((kind, data), ("", b""), what)
            return None
        self.assertIn(kind, contents, what)
        if kind != "application/json":
            return data
        value = json.loads(data)
        validate(value, contents[kind]["schema"], what)
        return value

    def url(self, path, values, query):
        for name, value in values.items():
            path = path.replace("{" + name + "}", urllib.parse.quote(value))
        self.assertNotIn("{", path)
        return path + ("?" + urllib.parse.urlencode(query) if query else "")

    def ask(self, method, path, status, body=None, /, headers=None, checked=True, client=None, **values):
        """`values` are of the path where it has such a parameter, else of the query. The answer."""
        inside = {name: value for name, value in values.items() if "{" + name + "}" in path}
        query = {name: value for name, value in values.items() if name not in inside}
        if checked:
            self.check_request(method, path, inside, query, body)
        response, connection = (client or self.api).raw(method, self.url(path, inside, query), body, headers)
        data = response.read()
        connection.close()
        self.assertEqual(response.status, status, f"{method} {path}: {data[:500]}")
        return self.check_answer(method, path, response, data)


SANDBOX = "/v1/sandboxes/{sandbox}"
EXEC = SANDBOX + "/execs/{exec}"
FILES = SANDBOX + "/files"


class Everything(Described):
    def test_every_operation(self):
        self.drive_daemon()
        self.drive_sandboxes()
        self.drive_execs()
        self.drive_files()
        self.drive_tokens()
        wanted = {(method, path, int(status)) for (method, path), operation in OPERATIONS.items()
                  for status in operation["responses"] if status != "default"}
        self.assertEqual(sorted(wanted - self.seen), [], "described but not driven")

    def drive_daemon(self):
        self.ask("GET", "/healthz", 200)
        self.assertEqual(self.ask("GET", "/v1/openapi.json", 200), DOCUMENT)
        self.ask("GET", "/v1/version", 200)

    def create(self, **body):
        record = self.ask("POST", "/v1/sandboxes", 201, body)
        self.addCleanup(self.remove, record["id"])
        return record["id"]

    def drive_sandboxes(self):
        self.ask("POST", "/v1/sandboxes", 400, {"nonsense": 1}, checked=False)
        self.ask("POST", "/v1/sandboxes", 501, {"network": "open"}, checked=False)
        box = self.create()
        full = self.create(name="full", template="host", isolation="namespace", cpu=0.5, memory_mb=256, disk_mb=512, pids=64,
                           timeout_seconds=100, idle_timeout_seconds=50, env={"A": "b"}, metadata={"k": "v"}, network="off",
                           nested_userns=True)
        record = self.ask("GET", SANDBOX, 200, sandbox="full")
        self.assertEqual((record["id"], record["metadata"], record["idle_timeout_seconds"]), (full, {"k": "v"}, 50))
        self.assertIn("expires_in_s", record)
        page = self.ask("GET", "/v1/sandboxes", 200, limit=1, all="1")
        self.assertEqual(page["items"][0]["id"], full)
        self.ask("GET", "/v1/sandboxes", 200, cursor=page["next_cursor"], state="running", name="full")
        self.ask("GET", "/v1/sandboxes", 400, cursor="x", checked=False)
        self.ask("PATCH", SANDBOX, 200, {"timeout_seconds": 0}, sandbox=box)
        for field, value in (("name", "new"), ("metadata", {}), ("cpu", 1), ("memory_mb", 64), ("idle_timeout_seconds", 1)):
            self.ask("PATCH", SANDBOX, 501, {field: value}, sandbox=box)
        for verb, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")):
            self.assertEqual(self.ask("POST", f"{SANDBOX}/{verb}", 200, sandbox=box)["state"], state)
        self.ask("GET", SANDBOX + "/metrics", 200, sandbox=box)
        self.ask("DELETE", SANDBOX, 204, sandbox=box)
        self.assertEqual(self.ask("GET", SANDBOX, 200, sandbox=box)["end"]["reason"], "user")
        self.ask("DELETE", SANDBOX, 410, sandbox=box)
        self.ask("GET", "/v1/sandboxes", 200, state="ended")

    def drive_execs(self):
        box = self.create()
        run = SANDBOX + "/exec"
        for body in ({"cmd": "echo out; echo err >&2; exit 3"},
                     {"argv": ["cat"], "stdin": "text", "cwd": "/", "user": "root", "env": {"A": "b"}, "timeout_seconds": 9.5},
                     {"cmd": "head -c 3000000 /dev/zero", "max_output_bytes": 1000, "output": {"head_bytes": 100000, "tail_bytes": 100000}},
                     {"cmd": "printf '\\377'; printf '\\377' >&2"}, {"cmd": "kill -9 $$"}, {"cmd": "sleep 9", "timeout_seconds": 0.1},
                     {"cmd": "tty", "tty": True, "rows": 10, "cols": 20}, {"cmd": "sleep 60 & echo left"},
                     {"cmd": "ulimit -n", "limits": {"nofile": 64, "core": {"soft": 0, "hard": 0}}},
                     {"argv": ["cat"], "stdin_base64": "AAEC"}):
            self.ask("POST", run, 200, body, sandbox=box)
        self.ask("POST", run, 422, {"argv": ["/nowhere"]}, sandbox=box)
        self.ask("POST", run, 400, {}, sandbox=box, checked=False)
        exec_id = self.ask("POST", run, 202, {"cmd": "cat", "background": True, "stdin": True}, sandbox=box)["exec_id"]
        self.ask("POST", EXEC + "/stdin", 200, b"hello", sandbox=box, exec=exec_id)
        self.ask("POST", EXEC + "/stdin", 200, b"!", sandbox=box, exec=exec_id, close="1")
        wait_until(lambda: self.ask("GET", EXEC, 200, sandbox=box, exec=exec_id)["state"] == "ended", what="the end of cat")
        self.assertEqual(self.ask("GET", EXEC + "/output", 200, sandbox=box, exec=exec_id, follow="1"), b"hello!")
        self.assertEqual(self.ask("GET", EXEC + "/output", 200, sandbox=box, exec=exec_id, stream="stdout",
                                  **{"from": 1}, limit=2), b"el")
        exec_id = self.ask("POST", run, 202, {"cmd": "sleep 100", "background": True, "lossless": True}, sandbox=box)["exec_id"]
        self.ask("POST", EXEC + "/signal", 200, {"signal": "TERM", "tree": True}, sandbox=box, exec=exec_id)
        self.ask("POST", EXEC + "/signal", 400, {"signal": 1000}, sandbox=box, exec=exec_id, checked=False)
        self.ask("DELETE", EXEC, 204, sandbox=box, exec=exec_id)
        self.ask("GET", EXEC, 404, sandbox=box, exec="abcdefghijklmnop")
        self.assertGreater(len(self.ask("GET", SANDBOX + "/execs", 200, sandbox=box, limit=1000)["execs"]), 10)
        self.upgrade(box)

    def upgrade(self, box):
        body = json.dumps({"argv": ["true"]})
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(self.api.socket_path)
            connection.sendall((f"POST /v1/sandboxes/{box}/exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                                f"Upgrade: caisson-exec/1\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 101 "))
            self.seen.add(("POST", SANDBOX + "/exec", 101))

    def drive_files(self):
        box = self.create()
        data = bytes(range(256))
        self.ask("PUT", FILES, 200, data, sandbox=box, path="/workspace/dir/file", mode="0600", parents="1", user="root")
        self.ask("PUT", FILES, 200, b"more", sandbox=box, path="/workspace/dir/file", append="1")
        self.ask("PUT", FILES, 409, b"", sandbox=box, path="/workspace/dir/file", no_replace="1")
        self.ask("POST", FILES, 200, {"path": "/workspace/text", "content": "one\ntwo\n", "mode": "0644", "parents": True}, sandbox=box)
        self.ask("POST", FILES, 200, {"path": "/workspace/dir/file", "content_base64": "AAE=", "append": True}, sandbox=box)
        self.assertEqual(self.ask("GET", FILES, 200, sandbox=box, path="/workspace/dir/file", offset=1, length=2), data[1:3])
        self.assertEqual(self.ask("GET", FILES, 206, sandbox=box, path="/workspace/dir/file", headers={"Range": "bytes=256-257"}), b"mo")
        self.ask("GET", FILES, 416, sandbox=box, path="/workspace/dir/file", headers={"Range": "bytes=900-"})
        self.ask("GET", FILES, 404, sandbox=box, path="/nowhere")
        self.assertEqual(self.ask("GET", FILES, 200, sandbox=box, path="/workspace/dir")["count"], 1)
        self.ask("POST", FILES + "/symlink", 200, {"path": "/workspace/link", "target": "text"}, sandbox=box)
        self.api.sh(box, "mkfifo /workspace/fifo; printf '' > \"$(printf '/workspace/\\377')\"")
        self.ask("GET", FILES + "/stat", 200, sandbox=box, path="/workspace/link", follow="0")
        self.assertEqual(self.ask("GET", FILES + "/list", 200, sandbox=box, path="/workspace")["count"], 5)
        self.assertTrue(self.ask("GET", FILES + "/list", 200, sandbox=box, path="/workspace", limit=1)["truncated"])
        self.ask("GET", FILES + "/readlink", 200, sandbox=box, path="/workspace/link")
        self.ask("GET", FILES + "/glob", 200, sandbox=box, path="/workspace", pattern="**", hidden="1", limit=10)
        found = self.ask("GET", FILES + "/grep", 200, sandbox=box, path="/workspace", pattern="^T", regex="1", ignore_case="1",
                         glob="te*", limit=5)
        self.assertEqual(found["count"], 1)
        self.ask("POST", FILES + "/mkdir", 200, {"path": "/workspace/a/b", "mode": "0700", "parents": True}, sandbox=box)
        self.ask("POST", FILES + "/rename", 200, {"from": "/workspace/a", "to": "/workspace/c", "no_replace": True}, sandbox=box)
        self.ask("POST", FILES + "/copy", 200, {"from": "/workspace/dir", "to": "/workspace/copy", "recursive": True}, sandbox=box)
        self.ask("POST", FILES + "/chmod", 200, {"path": "/workspace/text", "mode": "0640"}, sandbox=box)
        self.ask("POST", FILES + "/chown", 200, {"path": "/workspace/text", "owner": "1:1"}, sandbox=box)
        self.ask("POST", FILES + "/replace", 200, {"path": "/workspace/text", "old": "one", "new": "1", "limit": 1}, sandbox=box)
        self.assertGreater(self.ask("DELETE", FILES, 200, sandbox=box, path="/workspace/copy", recursive="1")["removed"], 1)
        self.ask("DELETE", FILES, 400, sandbox=box, path="/workspace/dir", recursve="1", checked=False)
        self.watch(box)

    def watch(self, box):
        path, values = FILES + "/watch", {"sandbox": box}
        query = {"path": "/workspace", "recursive": "1"}
        self.check_request("GET", path, values, query, None)
        response, connection = self.api.raw("GET", self.url(path, values, query))
        kind = response.getheader("Content-Type")
        self.assertIn(kind, resolved(OPERATIONS["GET", path]["responses"]["200"])["content"])
        events = []
        self.api.write(box, "/workspace/new", b"x")
        while "created" not in events:
            line = response.readline().decode()
            if line.startswith("data: "):
                event = json.loads(line[6:])
                self.assertEqual(set(event), {"event", "path"})
                events.append(event["event"])
        self.assertEqual(events[0], "ready")
        connection.close()
        self.seen.add(("GET", path, response.status))

    def drive_tokens(self):
        made = self.ask("POST", "/v1/tokens", 201, {"scopes": ["sandboxes:read", "admin"], "workspace": "other", "label": "a test's",
                                                    "expires_seconds": 100})
        self.ask("POST", "/v1/tokens", 400, {"scopes": []}, checked=False)
        listed = self.ask("GET", "/v1/tokens", 200)["tokens"]
        self.assertIn(made["id"], [token["id"] for token in listed])
        self.ask("DELETE", "/v1/tokens/{token}", 204, token=made["id"])
        self.ask("DELETE", "/v1/tokens/{token}", 404, token="abcdefghijklmnop")


class Document(Described):
    def test_its_schemas_are_schemas(self):
        def walk(node, where):
            if isinstance(node, dict):
                if "$ref" in node:
                    resolved(node)
                if "schema" in node and isinstance(node["schema"], dict):
                    jsonschema.Draft202012Validator.check_schema(node["schema"])
                for key, value in node.items():
                    walk(value, where + "/" + key)
            elif isinstance(node, list):
                for value in node:
                    walk(value, where)
        walk(DOCUMENT, "")
        for schema in DOCUMENT["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)
        self.assertEqual(DOCUMENT["openapi"][:4], "3.1.")

    def test_it_has_the_routes_that_there_are(self):
        source = open(os.path.join(TOP, "src/api/router.c")).read()
        names = {name: value for name, value in re.findall(r'#define (SB|EX) (.*)', source)}
        routes = set()
        for method, pattern in re.findall(r'\{"([A-Z]+)", ((?:SB |EX |SB|EX|"[^"]*"| )+),', source):
            pattern = re.sub(r"\bEX\b", names["EX"], pattern)
            pattern = re.sub(r"\bSB\b", names["SB"], pattern)
            routes.add((method, "".join(re.findall(r'"([^"]*)"', pattern))))
        self.assertGreater(len(routes), 40)
        self.assertEqual(routes, set(OPERATIONS) | UNDOCUMENTED)

    def values_of(self, path, **values):
        return {name: values.get(name, "abcdefghijklmnop") for name in re.findall(r"\{(\w+)\}", path)}

    def required(self, method, path):
        """A query and a body that get past the checks of form."""
        query = {name: "/x" for (where, name), parameter in parameters(path, OPERATIONS[method, path]).items()
                 if where == "query" and parameter.get("required")}
        return query, ({} if "requestBody" in OPERATIONS[method, path] else None)

    def test_every_operation_asks_for_its_scope(self):
        """No token, too small a one, and the right one (which then finds no such sandbox)."""
        tokens = {scope: self.daemon.tcp(self.daemon.token("strangers", scopes=[scope]))
                  for scope in ("sandboxes:read", "sandboxes:write", "admin")}
        smaller = {"sandboxes:write": "sandboxes:read", "admin": "sandboxes:write"}
        for (method, path), operation in OPERATIONS.items():
            with self.subTest(operation=f"{method} {path}"):
                query, body = self.required(method, path)
                values = {**self.values_of(path), **query}
                if operation.get("security") == []:
                    self.ask(method, path, 200, body, checked=False, client=self.daemon.tcp(), **values)
                    continue
                self.ask(method, path, 401, body, checked=False, client=self.daemon.tcp(), **values)
                scope = operation["x-caisson-scope"]
                if scope in smaller:
                    self.ask(method, path, 403, body, checked=False, client=tokens[smaller[scope]], **values)
                if "{sandbox}" in path:
                    self.ask(method, path, 404, body, checked=False, client=tokens[scope], **values)

    def test_no_operation_takes_what_it_does_not_describe(self):
        box = self.sandbox()
        for method, path in OPERATIONS:
            with self.subTest(operation=f"{method} {path}"):
                query, body = self.required(method, path)
                values = {**self.values_of(path, sandbox=box), **query}
                self.ask(method, path, 400, body, checked=False, nonsense="1", **values)
                if body is not None and "application/json" in OPERATIONS[method, path]["requestBody"]["content"]:
                    self.ask(method, path, 400, {"nonsense": 1}, checked=False, **values)
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], "running")


if __name__ == "__main__":
    unittest.main()
