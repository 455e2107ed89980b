"""The API against its own description: every operation of docs/openapi is driven against a real
daemon, and each request and each answer is validated by the document."""
import glob
import json
import os
import re
import socket
import unittest
import urllib.parse

import jsonschema

import contract
import generate
from caisson import TOP, DaemonTest, wait_until
from contract import DOCUMENT, OPERATIONS, parameters, resolved, typed


def validate(value, schema, what):
    errors = [f"{what}: {error}" for error in contract.errors_of(value, schema)]
    if errors:
        raise AssertionError("\n".join(errors))


class Described(DaemonTest):
    """A client that believes the document, not the daemon."""

    def setUp(self):
        self.seen = set()

    def check_request(self, method, path, values, query, body):
        operation = OPERATIONS[method, path]
        known = parameters(method, path)
        for name, value in values.items():
            validate(value, known["path", name]["schema"], f"{method} {path}: {name}")
        for name, value in query.items():
            self.assertIn(("query", name), known, f"{method} {path}")
            schema = known["query", name]["schema"]
            validate(typed(str(value), schema), schema, f"{method} {path}: {name}")
        for (where, name), parameter in known.items():
            if parameter.get("required"):
                self.assertIn(name, {"path": values, "query": query}.get(where, {name}), f"{method} {path}: {name} is required")
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
        response, connection = (client or self.api).raw(method, self.url(path, inside, query), body, headers, checked)
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

    def drive_daemon(self):
        self.ask("GET", "/healthz", 200)
        here = [{"url": f"http://127.0.0.1:{self.daemon.port}"}]  # over the Unix socket too
        self.assertEqual(self.ask("GET", "/v1/openapi.json", 200), {**DOCUMENT, "servers": here})
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
        self.ask("PATCH", SANDBOX, 501, {"disk_mb": 64}, sandbox=box)
        self.ask("PATCH", SANDBOX, 200, {"metadata": {"k": None}, "idle_timeout_seconds": 0, "name": None}, sandbox=box)
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
        self.drive_archives(box)
        self.watch(box)

    def drive_archives(self, box):
        archive = self.ask("GET", FILES + "/archive", 200, sandbox=box, path="/workspace/dir", format="tar.zst", user="root")
        self.ask("PUT", FILES + "/archive", 200, archive, {"Content-Type": "application/zstd"}, sandbox=box, path="/workspace/un", format="tar.zst")
        self.ask("PUT", FILES + "/archive", 422, b"nonsense", {"Content-Type": "application/x-tar"}, sandbox=box, path="/workspace/un")
        for method, body in (("PUT", b"signed"), ("GET", None)):
            made = self.ask("POST", FILES + "/sign", 200, {"path": "/workspace/signed", "method": method, "expires_seconds": 60, "user": ""}, sandbox=box)
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(made["url"]).query))
            query["expires"] = int(query["expires"])
            self.ask(method, "/v1/signed/{sandbox}", 200, body, sandbox=box, **query)
            self.ask(method, "/v1/signed/{sandbox}", 403, body, sandbox=box, **{**query, "signature": "A" * 43})
        self.ask("PUT", SANDBOX + "/fs", 200, b"12", sandbox=box, path="/workspace/fs/deep/file")
        self.assertEqual(self.ask("GET", SANDBOX + "/fs", 200, sandbox=box, path="/workspace/fs/deep/file"), b"12")
        self.assertEqual(self.ask("GET", SANDBOX + "/fs", 206, headers={"Range": "bytes=1-1"}, sandbox=box,
                                  path="/workspace/fs/deep/file"), b"2")
        self.ask("GET", SANDBOX + "/fs", 404, sandbox=box, path="/workspace/fs/none")
        self.ask("GET", SANDBOX + "/fs", 422, sandbox=box, path="/workspace/fs")
        (entry,) = self.ask("GET", SANDBOX + "/fs/dir", 200, sandbox=box, path="/workspace/fs")["entries"]
        self.assertEqual((entry["name"], entry["is_dir"]), ("deep", True))
        self.api.sh(box, "ln -s . /workspace/fs/circle")
        entry = self.ask("GET", SANDBOX + "/fs/stat", 200, sandbox=box, path="/workspace/fs/circle")
        self.assertEqual((entry["is_dir"], type(entry["mode"]), type(entry["mtime"])), (False, str, int))
        self.ask("GET", SANDBOX + "/fs/stat", 404, sandbox=box, path="/workspace/none")
        self.ask("DELETE", SANDBOX + "/fs", 204, sandbox=box, path="/workspace/fs")
        self.ask("DELETE", SANDBOX + "/fs", 204, sandbox=box, path="/workspace/fs")

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


class Contract(unittest.TestCase):
    """tests/lib/contract.py itself: it must see what is wrong."""

    def setUp(self):
        self.addCleanup(contract.violations.clear)

    def exchange(self, method, target, status, body=None, answer=b"", kind="application/json"):
        """What is noted of one exchange."""
        exchange = contract.Exchange(method, target, body, None)
        exchange.begin(status, {"X-Request-Id": "x", **({"Content-Type": kind} if answer else {})})
        exchange.data(answer)
        exchange.end()
        return contract.take()

    def test_what_is_right(self):
        self.assertEqual(self.exchange("GET", "/healthz", 200, None, b'{"status": "ok"}'), [])
        self.assertEqual(self.exchange("GET", "/nowhere", 404, None, b'{"error":"e","code":"c","request_id":"x","retryable":false,"detail":"e"}'), [])

    def test_what_is_wrong(self):
        for case in (("GET", "/healthz", 200, None, b'{"status": 1}'), ("GET", "/healthz", 200, None, b"nonsense"), ("GET", "/healthz", 201, None, b"{}"),
                     ("GET", "/healthz?x=1", 200, None, b'{"status": "ok"}'), ("GET", "/nowhere", 200, None, b"{}"),
                     ("GET", "/healthz", 200, None, b"text", "text/plain"), ("GET", "/healthz", 404, None, b'{"error": "e"}'),
                     ("POST", "/v1/tokens", 201, b'{"scopes": ["everything"]}', b"{}"),
                     ("GET", "/healthz", 404, None, b'{"error":"e","code":"c","request_id":"y","retryable":false,"detail":"e"}')):
            with self.subTest(case):
                self.assertNotEqual(self.exchange(*case), [])

    def test_the_quick_check_is_jsonschema_s(self):
        """Every request's schema with values that it may allow: what the quick one takes, the slow one takes."""
        taken = 0
        for method, path in sorted(OPERATIONS):
            requests = generate.Requests(method, path, {})
            if requests.base is None:
                continue
            quick = contract.compiled(requests.schema)
            slow = jsonschema.Draft202012Validator(requests.schema, resolver=jsonschema.RefResolver("", DOCUMENT))
            for case in list(requests.of_body())[::7]:
                value = json.loads(case.body)
                if quick(value):
                    self.assertEqual([error.message for error in slow.iter_errors(value)], [], case.body[:300])
                    taken += 1
        self.assertGreater(taken, 100)


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

    def test_no_optional_field_has_a_default(self):
        """Generators take a field with `default` for one that is always there, and ask every caller for it: a default is
        told in words."""
        def properties(node, where):
            if isinstance(node, dict):
                for name, schema in (node.get("properties") or {}).items():
                    yield f"{where}.{name}", schema, name in node.get("required", ())
                for key, value in node.items():
                    yield from properties(value, f"{where}/{key}")
            elif isinstance(node, list):
                for value in node:
                    yield from properties(value, where)
        found = list(properties(DOCUMENT, ""))
        self.assertGreater(len(found), 300)
        self.assertEqual([where for where, schema, required in found if "default" in schema and not required], [])
        self.assertIn("Default: 300.", DOCUMENT["components"]["schemas"]["Drain"]["properties"]["timeout_seconds"]["description"])

    def test_it_has_the_routes_that_there_are(self):
        routes = set()
        folder = os.path.join(TOP, "src/api")
        shared = dict(re.findall(r'#define (\w+) (.*)', open(os.path.join(folder, "routes.h")).read()))
        for path in sorted(glob.glob(os.path.join(folder, "**/*.c"), recursive=True)):
            source = open(path).read()
            for table in re.findall(r'const struct route \w+\[\] = \{(.*?)\n\};', source, re.S):
                names = {**shared, **dict(re.findall(r'#define (\w+) (.*)', source))}
                for method, pattern in re.findall(r'\{"([A-Z]+)",\s*((?:[A-Z]+ |[A-Z]+|"[^"]*"|\s)+),', table):
                    while re.search(r"\b[A-Z]+\b(?=[^\"]*(?:\"|$))", re.sub(r'"[^"]*"', '""', pattern)):
                        pattern = re.sub(r'"[^"]*"|\b([A-Z]+)\b', lambda m: names[m[1]] if m[1] else m[0], pattern)
                    routes.add((method, "".join(re.findall(r'"([^"]*)"', pattern))))
        self.assertGreater(len(routes), 40)
        self.assertEqual(routes, set(OPERATIONS))

    def values_of(self, path, **values):
        return {name: values.get(name, "abcdefghijklmnop") for name in re.findall(r"\{(\w+)\}", path)}

    def required(self, method, path):
        """A query and a body that get past the checks of form."""
        query = {name: "/x" for (where, name), parameter in parameters(method, path).items()
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
                    # A signed URL is its own authority, and this is none.
                    self.ask(method, path, 400 if path.startswith("/v1/signed/") else 200, body, checked=False, client=self.daemon.tcp(), **values)
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
                # Of what is to come nothing is taken, whatever it is asked.
                later = OPERATIONS[method, path]["tags"] == ["later"]
                self.ask(method, path, 501 if later else 400, body, checked=False, nonsense="1", **values)
                if body is not None and "application/json" in OPERATIONS[method, path]["requestBody"]["content"]:
                    self.ask(method, path, 400, {"nonsense": 1}, checked=False, **values)
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], "running")


if __name__ == "__main__":
    unittest.main()
