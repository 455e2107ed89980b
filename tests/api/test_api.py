"""The API's edges: who may, what is refused and how, what the document promises."""
import json
import os
import socket
import threading
import time
import unittest

from caisson import ApiError, Client, Daemon, DaemonTest, wait_until


class Edges(DaemonTest):
    def test_health_needs_no_token(self):
        self.assertEqual(self.daemon.tcp().get("/healthz")["status"], "ok")

    def test_tcp_needs_a_token(self):
        error = self.refused(401, "auth.required", self.daemon.tcp().get, "/v1/sandboxes")
        self.assertIn("Bearer", error.headers["WWW-Authenticate"])
        self.refused(401, "auth.required", self.daemon.tcp("csn_wrong").get, "/v1/sandboxes")

    def test_scopes(self):
        reader = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))
        reader.get("/v1/sandboxes")
        self.refused(403, "auth.forbidden", reader.create)
        writer = self.daemon.tcp(self.daemon.token())
        self.refused(403, "auth.forbidden", writer.get, "/v1/tokens")
        admin = self.daemon.tcp(self.daemon.token(scopes=["admin"]))
        admin.get("/v1/tokens")

    def test_expired_and_revoked_tokens(self):
        token = self.daemon.token(expires_seconds=1)
        self.daemon.tcp(token).get("/v1/sandboxes")
        time.sleep(1.2)
        self.refused(401, "auth.required", self.daemon.tcp(token).get, "/v1/sandboxes")

    def test_workspaces_do_not_see_each_other(self):
        one, two = self.daemon.tcp(self.daemon.token("one")), self.daemon.tcp(self.daemon.token("two"))
        box = one.create(name="same-name")["id"]
        other = two.create(name="same-name")["id"]
        try:
            for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("POST", "/exec"), ("GET", "/files?path=/etc/passwd"),
                                 ("GET", "/execs"), ("GET", "/metrics")]:
                with self.assertRaises(ApiError) as caught:
                    two.call(method, f"/v1/sandboxes/{box}{path}", {"cmd": "true"} if path == "/exec" else None)
                self.assertEqual((caught.exception.status, caught.exception.code), (404, "sandbox.not_found"))
            self.assertEqual(two.get("/v1/sandboxes/same-name")["id"], other)
        finally:
            one.delete("/v1/sandboxes/" + box)
            two.delete("/v1/sandboxes/" + other)

    def test_bound_token(self):
        box, other = self.sandbox(), self.sandbox()
        bound = self.daemon.tcp(self.daemon.token(sandbox=box))
        self.assertEqual(bound.sh(box, "echo 1"), "1\n")
        with self.assertRaises(ApiError):
            bound.get("/v1/sandboxes/" + other)

    def test_bad_bodies(self):
        for body, status in [("{", 400), ("[]", 400), ('{"a":1,"a":2}', 400), ('{"unknown":1}', 400), ('{"name":5}', 400),
                             ('{"name":"UPPER"}', 400), ("[" * 10000, 400), ('{"template":"' + "x" * 2_000_000 + '"}', 413),
                             ('{"env":{"A=B":"1"}}', 400), ('{"env":{"A":"x\\u0000y"}}', 400), ("\xff\xfe", 400), ('{"cpu":1e999}', 400),
                             ('{"timeout_seconds":-1}', 400), ('{"network":"open"}', 501)]:
            with self.subTest(body=body[:40]):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("POST", "/v1/sandboxes", body.encode("latin-1"), {"Content-Type": "application/json"})
                self.assertEqual(caught.exception.status, status, caught.exception.body)
                for key in ("error", "code", "request_id", "retryable"):
                    self.assertIn(key, caught.exception.body)
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])

    def test_unknown_routes_and_methods(self):
        self.refused(404, "route.not_found", self.api.get, "/v1/nothing")
        self.refused(405, "route.method_not_allowed", self.api.call, "PUT", "/v1/sandboxes")

    def test_ids(self):
        self.refused(400, "id.malformed", self.api.get, "/v1/sandboxes/Not_An_Id")
        self.refused(400, "request.malformed", self.api.get, "/v1/sandboxes/..%2f..%2fetc")
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/abcdefghijklmnop")

    def test_names(self):
        self.sandbox(name="a-name")
        error = self.refused(409, "sandbox.name_taken", self.sandbox, name="a-name")
        self.assertIn("a-name", error.body["error"])
        self.assertEqual(self.api.sh("a-name", "hostname"), "a-name\n")

    def test_templates_and_tiers(self):
        error = self.refused(422, "template.unavailable", self.sandbox, template="python-3.12")
        self.assertIn("python-3.12", error.body["error"])
        self.refused(422, "isolation.unavailable", self.sandbox, isolation="vm")
        self.refused(422, "isolation.unavailable", self.sandbox, isolation="gvisor")
        self.refused(400, "request.invalid", self.sandbox, isolation="strong")

    def test_tombstone(self):
        box = self.api.create()["id"]
        self.api.delete("/v1/sandboxes/" + box)
        record = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual((record["status"], record["end"]["reason"]), ("ended", "user"))
        self.assertNotIn(box, [r["id"] for r in self.api.get("/v1/sandboxes")["items"]])
        self.assertIn(box, [r["id"] for r in self.api.get("/v1/sandboxes", all=1)["items"]])
        self.refused(410, "sandbox.ended", self.api.exec, box, "true")

    def test_pages(self):
        made = [self.sandbox() for _ in range(5)]
        seen, cursor = [], None
        for _ in range(10):
            page = self.api.get("/v1/sandboxes", limit=2, **({"cursor": cursor} if cursor else {}))
            seen += [record["id"] for record in page["items"]]
            cursor = page.get("next_cursor")
            if not cursor:
                break
        self.assertEqual(sorted(seen), sorted(made))

    def test_dns_rebinding(self):
        for host, status in (("evil.example", 421), ("localhost", 200), (f"127.0.0.1:{self.daemon.port}", 200)):
            with socket.create_connection(("127.0.0.1", self.daemon.port), 5) as connection:
                connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                self.assertEqual(int(connection.recv(4096).split()[1]), status, host)

    def test_openapi(self):
        document = self.api.get("/v1/openapi.json")
        self.assertTrue(document["openapi"].startswith("3.1"))
        for path in ("/v1/sandboxes", "/v1/sandboxes/{sandbox}", "/v1/sandboxes/{sandbox}/exec"):
            self.assertIn(path, document["paths"])

    def test_burst_of_creates(self):
        records, errors = [], []

        def one():
            try:
                records.append(self.daemon.client(timeout=120).create())
            except Exception as error:
                errors.append(error)
        threads = [threading.Thread(target=one) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for record in records:
            self.addCleanup(self.remove, record["id"])
        self.assertEqual((len(records), errors), (30, []))
        self.assertEqual(len({record["id"] for record in records}), 30)

    def test_slow_client_delays_nobody(self):
        box = self.sandbox()
        self.api.sh(box, "head -c 50000000 /dev/zero > /workspace/big")
        slow = []
        for _ in range(5):
            response, connection = self.api.raw("GET", f"/v1/sandboxes/{box}/files?path=/workspace/big")
            response.read(10)
            slow.append((response, connection))
        began = time.monotonic()
        for _ in range(20):
            self.api.get("/healthz")
            self.api.sh(box, "true")
        self.assertLess(time.monotonic() - began, 10)
        for response, connection in slow:
            connection.close()

    def test_daemon_memory_stays_flat_over_large_files(self):
        box = self.sandbox(disk_mb=1024)
        status = f"/proc/{self.daemon.daemon_pid()}/status"

        def anonymous():
            return next(int(line.split()[1]) for line in open(status) if line.startswith("RssAnon"))
        self.api.write(box, "/workspace/a", b"x" * 1000)
        before = anonymous()
        self.api.write(box, "/workspace/big", b"x" * (200 << 20))
        self.assertEqual(len(self.api.read(box, "/workspace/big")), 200 << 20)
        from caisson import SANITIZED
        if not SANITIZED:
            self.assertLess(anonymous() - before, 8 << 10)


class Configuration(unittest.TestCase):
    def test_unknown_keys_are_errors(self):
        daemon = Daemon(config="[server]\nlisten = 127.0.0.1:0\nnonsense = 1\n")
        try:
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(10), 125)
            self.assertIn("nonsense", daemon.log())
            self.assertIn("3", daemon.log())
            daemon.process = None
        finally:
            daemon.close(check=False)

    def test_address_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = Daemon()
            daemon.port = taken.getsockname()[1]
            try:
                daemon.start(wait=False)
                self.assertEqual(daemon.process.wait(10), 125)
                self.assertIn(str(daemon.port), daemon.log())
                self.assertIn("--listen", daemon.log())
                daemon.process = None
            finally:
                daemon.close(check=False)

    def test_limits_from_the_file_and_reload(self):
        daemon = Daemon(config="[sandbox]\nmemory = 64M\nmemory_max = 128M\n")
        try:
            daemon.start()
            record = daemon.client().create()
            self.assertEqual(record["limits"]["memory"]["value"], 64 << 20)
            with self.assertRaises(ApiError) as caught:
                daemon.client().create(memory_mb=256)
            self.assertEqual(caught.exception.code, "limit.exceeded")
            with open(daemon.config, "w") as file:
                file.write("[sandbox]\nmemory = 64M\nmemory_max = 512M\n")
            daemon.process.send_signal(1)

            def created():
                try:
                    return daemon.client().create(memory_mb=256)
                except ApiError:
                    return None
            wait_until(created, 5, what="the reload")
        finally:
            daemon.close()

    def test_json_logs(self):
        daemon = Daemon(arguments=["--log-json", "--log-level", "debug"])
        try:
            daemon.start()
            daemon.client().create()
            for line in daemon.log().splitlines():
                json.loads(line)
        finally:
            daemon.close()


if __name__ == "__main__":
    unittest.main()
