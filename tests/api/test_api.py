"""The API's edges: who may, what is refused and how, what the document promises."""
import base64
import hashlib
import html
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import time
import unittest

from caisson import ApiError, DaemonTest, OwnDaemons, at_once, make_certificate, wait_until
from marks import alone, busy, long


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
        box = self.sandbox(name="a-name")
        error = self.refused(409, "sandbox.name_taken", self.sandbox, name="a-name")
        self.assertIn("a-name", error.body["error"])
        self.assertEqual(self.api.sh("a-name", "hostname"), box + "\n")

    def test_templates_and_tiers(self):
        error = self.refused(422, "template.unavailable", self.sandbox, template="python-3.12")
        self.assertIn("python-3.12", error.body["error"])
        self.refused(422, "isolation.unavailable", self.sandbox, isolation="vm")
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

    def pages(self, api, **query):
        """All pages of a list: the ids in order, and how many pages."""
        seen, cursor, count = [], None, 0
        while count < 50:
            page = api.get("/v1/sandboxes", **query, **({"cursor": cursor} if cursor else {}))
            seen += [record["id"] for record in page["items"]]
            cursor, count = page["next_cursor"], count + 1
            self.assertLessEqual(len(page["items"]), query.get("limit", 100))
            if not cursor:
                return seen, count
        raise AssertionError("the pages do not end")

    def test_pages_with_tombstones_and_filters(self):
        # A workspace of its own: the others leave tombstones too.
        api = self.daemon.tcp(self.daemon.token("paging"))
        ended = []
        for i in range(5):
            box = api.create(**({"name": "again"} if i % 2 else {}))["id"]
            api.delete("/v1/sandboxes/" + box)
            ended.append(box)
        live = [api.create(name="again")["id"], api.create()["id"]]
        try:
            newest_first = (ended + live)[::-1]
            self.assertEqual(self.pages(api, all=1, limit=2), (newest_first, 4))
            self.assertEqual(self.pages(api, all=1, limit=7), (newest_first, 1))
            self.assertEqual(self.pages(api, limit=1), (live[::-1], 2))
            self.assertEqual(self.pages(api, state="ended", limit=2), (ended[::-1], 3))
            self.assertEqual(self.pages(api, state="running", limit=5), (live[::-1], 1))
            self.assertEqual(self.pages(api, all=1, name="again", limit=1)[0], [live[0], ended[3], ended[1]])
            self.assertEqual(self.pages(api, name="again"), ([live[0]], 1))
            self.assertEqual(self.pages(api, state="paused"), ([], 1))
            # What comes and goes between two pages moves nothing.
            page = api.get("/v1/sandboxes", all=1, limit=3)
            api.delete("/v1/sandboxes/" + live.pop())
            rest = api.get("/v1/sandboxes", all=1, cursor=page["next_cursor"])["items"]
            self.assertEqual([record["id"] for record in page["items"] + rest], newest_first)
            # One that is bound to a sandbox sees that one.
            bound = self.daemon.tcp(self.daemon.token("paging", sandbox=live[0]))
            self.assertEqual(self.pages(bound, all=1), ([live[0]], 1))
            self.assertEqual(self.pages(bound, name="other"), ([], 1))
        finally:
            for box in live:
                api.delete("/v1/sandboxes/" + box)
        for cursor in ("1", "x", "1-", "-abcdefghijklmnop", "0-abcdefghijklmnop", "1-ABC", "9" * 30 + "-abcdefghijklmnop"):
            self.refused(400, "request.invalid", api.get, "/v1/sandboxes", cursor=cursor)

    def test_execs_are_listed_up_to_the_limit(self):
        box = self.sandbox()
        ids = [self.api.exec(box, "true")["exec_id"] for _ in range(5)]
        page = self.api.get(f"/v1/sandboxes/{box}/execs", limit=3)
        self.assertEqual(([record["exec_id"] for record in page["execs"]], page["truncated"]), (ids[:1:-1], True))
        self.assertFalse(self.api.get(f"/v1/sandboxes/{box}/execs", limit=5)["truncated"])
        self.refused(400, "request.invalid", self.api.get, f"/v1/sandboxes/{box}/execs", limit=1001)

    def test_tokens_have_limits(self):
        year = 366 * 86400
        for fields in ({"label": "x" * 63}, {"label": "ü" * 31}, {"expires_seconds": 100 * year}):
            self.daemon.token(**fields)
        for fields in ({"label": "x" * 64}, {"label": ""}, {"label": "a\nb"}, {"expires_seconds": 100 * year + 1},
                       {"expires_seconds": -1}):
            self.refused(400, "request.invalid", self.daemon.token, **fields)

    def get_file(self, box, path):
        response, connection = self.api.raw("GET", f"/v1/sandboxes/{box}/files?path={path}")
        self.addCleanup(connection.close)
        self.assertEqual(response.status, 200)
        return response

    def test_long_files_have_a_length(self):
        box = self.sandbox()
        for size in (0, 1, 200_000, 262_143, 262_144, 262_145, 400_000, 5_000_000):
            with self.subTest(size=size):
                data = os.urandom(size)
                self.api.write(box, "/workspace/file", data)
                response = self.get_file(box, "/workspace/file")
                self.assertEqual(response.getheader("Content-Length"), str(size))
                self.assertEqual(response.getheader("X-File-Size"), str(size))
                self.assertIsNone(response.getheader("Transfer-Encoding"))
                self.assertEqual(response.read(), data)
        self.assertEqual(self.api.read(box, "/workspace/file", offset=1000, length=4_000_000), data[1000:4_001_000])
        self.assertEqual(self.api.read(box, "/workspace/file", offset=1000, length=9_000_000), data[1000:])

    def test_files_without_a_size_are_chunked(self):
        box = self.sandbox()
        # The environment of a process: as long as it likes, and of size 0. (One string has at most 128 KiB.)
        record = self.api.exec(box, "for i in 1 2 3 4 5; do export V$i=$(head -c 100000 /dev/zero | tr '\\0' x); done; exec sleep 60",
                               background=True)
        # It has its name a moment before its environment.
        look = "for pid in $(pgrep -x sleep); do [ $(wc -c < /proc/$pid/environ) -gt 500000 ] && echo $pid; done; true"
        pid = wait_until(lambda: self.api.exec(box, look)["stdout"].strip(), what="sleep")
        response = self.get_file(box, f"/proc/{pid.split()[0]}/environ")
        self.assertEqual((response.getheader("Content-Length"), response.getheader("Transfer-Encoding")), (None, "chunked"))
        self.assertGreater(len(response.read()), 500_000)
        self.api.delete(f"/v1/sandboxes/{box}/execs/{record['exec_id']}")

    def test_a_file_that_changes_while_it_is_read(self):
        box = self.sandbox()
        size = 60_000_000
        # What grows is what it was when it was measured.
        self.api.sh(box, f"head -c {size} /dev/zero > /workspace/log")
        response = self.get_file(box, "/workspace/log")
        response.read(10)
        self.api.sh(box, "head -c 1000000 /dev/zero >> /workspace/log")
        self.assertEqual(int(response.getheader("Content-Length")), size)
        self.assertEqual(len(response.read()), size - 10)
        # What shrinks is broken off: the client sees that it has not all.
        response = self.get_file(box, "/workspace/log")
        response.read(10)
        self.api.sh(box, "truncate -s 1000 /workspace/log")
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            response.read()

    def test_the_daemon_can_never_have_a_capability(self):
        status = open(f"/proc/{self.daemon.daemon_pid()}/status").read()
        for line in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertRegex(status, rf"(?m)^{line}:\s+0+$")

    def test_dns_rebinding(self):
        for host, status in (("evil.example", 421), ("localhost", 200), (f"127.0.0.1:{self.daemon.port}", 200)):
            with socket.create_connection(("127.0.0.1", self.daemon.port), 20) as connection:
                connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                self.assertEqual(int(connection.recv(4096).split()[1]), status, host)

    def test_openapi(self):
        document = self.api.get("/v1/openapi.json")
        self.assertEqual(document["servers"], [{"url": f"http://127.0.0.1:{self.daemon.port}"}])
        response, connection = self.daemon.tcp().raw("GET", "/v1/openapi.json", headers={"Host": "localhost:4321"})
        self.assertEqual(json.loads(response.read())["servers"], [{"url": "http://localhost:4321"}])
        connection.close()
        self.assertTrue(document["openapi"].startswith("3.1"))
        for path in ("/v1/sandboxes", "/v1/sandboxes/{sandbox}", "/v1/sandboxes/{sandbox}/exec"):
            self.assertIn(path, document["paths"])

    def page(self, client, method="GET", **headers):
        response, connection = client.raw(method, "/", headers=headers)
        self.assertEqual(response.status, 200)
        self.assertEqual(response.getheader("Content-Type"), "text/html; charset=utf-8")
        text = response.read().decode()
        connection.close()
        return response, text

    def test_page_for_a_browser(self):
        """Without a token; it can load and run nothing, and tells nothing of what is here."""
        box = self.sandbox(name="hidden")
        response, text = self.page(self.daemon.tcp(), Accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
        policy = dict(part.split(" ", 1) for part in response.getheader("Content-Security-Policy").split("; "))
        style = re.search("<style>(.*?)</style>", text, re.S).group(1)
        self.assertEqual(policy, {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
                                  "style-src": f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"})
        self.assertEqual((response.getheader("X-Content-Type-Options"), response.getheader("Referrer-Policy")), ("nosniff", "no-referrer"))
        self.assertNotRegex(text, r"(?i)<script|<form|<img|<link|javascript:| on[a-z]+=|src=")
        for word in (box, "hidden", "csn_", self.daemon.state, self.daemon.runtime):
            self.assertNotIn(word, text)
        self.assertIn("caisson token create", text)
        self.assertIn(f"<pre>http://127.0.0.1:{self.daemon.port}/mcp</pre>", text)
        self.assertIn("<pre>http://localhost:4321/mcp</pre>", self.page(self.daemon.tcp(), Host="localhost:4321")[1])
        head, nothing = self.page(self.daemon.tcp(), "HEAD")
        self.assertEqual((nothing, head.getheader("Content-Length")), ("", str(len(text))))
        self.assertIn(f"http://127.0.0.1:{self.daemon.port}/mcp", self.page(self.api)[1])
        self.refused(405, "route.method_not_allowed", self.api.post, "/", {})

    def test_snippets_of_the_page_are_those_of_the_command_line(self):
        text = self.page(self.daemon.tcp())[1]
        shown = {html.unescape(title): html.unescape(code) for title, code in re.findall(r"<h3>(.*?)</h3>.*?<pre>(.*?)</pre>", text, re.S)}
        for client in json.loads(self.daemon.cli("mcp", "config", "--list", "--json")[1]):
            printed = self.daemon.cli("mcp", "config", client["name"], "--http", "--token", "TOKEN")[1]
            self.assertIn(client["name"], text)
            if "mcp-remote" in printed:  # takes no URL
                self.assertNotIn(client["title"], shown)
            elif printed.startswith("{"):
                self.assertEqual(json.loads(shown.pop(client["title"])), json.loads(printed))
            else:
                self.assertEqual(shown.pop(client["title"]).strip(), printed.strip())
        self.assertEqual(shown, {})

    def test_burst_of_creates(self):
        records = at_once(lambda _: self.daemon.client(timeout=120).create(), range(30))
        for record in records:
            self.addCleanup(self.remove, record["id"])
        self.assertEqual(len({record["id"] for record in records}), 30)

    @alone
    def test_slow_client_delays_nobody(self):
        box = self.sandbox()
        self.api.sh(box, "head -c 50000000 /dev/zero > /workspace/big")
        slow = []
        for _ in range(5):
            response, connection = self.api.raw("GET", f"/v1/sandboxes/{box}/files?path=/workspace/big")
            response.read(10)
            slow.append((response, connection))
        times = []
        for _ in range(20):
            began = time.monotonic()
            self.api.get("/healthz")
            self.api.sh(box, "true")
            times.append(time.monotonic() - began)
        # The machine may stall for one or the other; who waits for the slow ones does so every time.
        self.assertLess(sorted(times)[10], 0.5)
        for response, connection in slow:
            connection.close()

    @busy
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


class Configuration(OwnDaemons):
    def test_unknown_keys_are_errors(self):
        daemon = self.new_daemon("[server]\nlisten = 127.0.0.1:0\nnonsense = 1\n", check=False)
        daemon.start(wait=False)
        self.assertEqual(daemon.process.wait(30), 125)
        self.assertIn("nonsense", daemon.log())
        self.assertIn("3", daemon.log())

    def test_address_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = self.new_daemon(check=False)
            daemon.port = taken.getsockname()[1]
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(30), 125)
            self.assertIn(str(daemon.port), daemon.log())
            self.assertIn("--listen", daemon.log())
            self.assertIn("in use by another program", daemon.log())

    def test_limits_from_the_file_and_reload(self):
        daemon = self.start_daemon("[sandbox]\nmemory = 64M\nmemory_max = 128M\n")
        record = daemon.client().create()
        self.assertEqual(record["limits"]["memory"]["value"], 64 << 20)
        with self.assertRaises(ApiError) as caught:
            daemon.client().create(memory_mb=256)
        self.assertEqual(caught.exception.code, "limit.exceeded")
        daemon.reload("[sandbox]\nmemory = 64M\nmemory_max = 512M\n")

        def created():
            try:
                return daemon.client().create(memory_mb=256)
            except ApiError:
                return None
        wait_until(created, what="the reload")

    @long
    def test_json_logs(self):
        daemon = self.start_daemon(arguments=["--log-json", "--log-level", "debug"])
        daemon.client().create()
        # The last one may be half written.
        for line in daemon.log().rpartition("\n")[0].splitlines():
            json.loads(line)

    def test_the_log_level_of_a_flag_survives_a_reload(self):
        daemon = self.start_daemon("[server]\nlog_level = info\n", arguments=["--log-level", "debug"])
        daemon.reload("[server]\nlog_level = error\n")
        wait_until(lambda: "the configuration was read again" in daemon.log(), what="the reload")
        before = daemon.log().count("/healthz: 200")
        daemon.client().get("/healthz")
        wait_until(lambda: daemon.log().count("/healthz: 200") > before, what="a line of level debug")

    def test_the_log_level_of_the_file_is_read_again(self):
        daemon = self.start_daemon("[server]\nlog_level = info\n")
        daemon.client().get("/healthz")
        self.assertNotIn("/healthz: 200", daemon.log())
        daemon.reload("[server]\nlog_level = debug\n")

        def told():
            daemon.client().get("/healthz")
            return "/healthz: 200" in daemon.log()
        wait_until(told, what="a line of level debug")

    def test_tls(self):
        daemon = self.new_daemon()
        certificate, key = make_certificate(daemon.top)
        daemon.configure(f"[server]\ntls_certificate = {certificate}\ntls_key = {key}\n")
        daemon.start()
        url = f"https://127.0.0.1:{daemon.port}"
        token = daemon.token()
        # Somebody else's client, without and with the certificate checked.
        for option in (["-k"], ["--cacert", certificate]):
            result = subprocess.run(["curl", "-sS", "--max-time", "20", *option, "-H", f"Authorization: Bearer {token}",
                                     "-X", "POST", "-d", "{}", url + "/v1/sandboxes"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            box = json.loads(result.stdout)["id"]
        result = subprocess.run(["curl", "-sS", "--max-time", "20", url + "/healthz"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 60, result.stdout)
        # A large file both ways.
        connection = http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=60,
                                                 context=ssl.create_default_context(cafile=certificate))
        data, headers = os.urandom(3_000_000), {"Authorization": "Bearer " + token}
        path = f"/v1/sandboxes/{box}/files?path=/workspace/file"
        connection.request("PUT", path, data, headers)
        self.assertEqual((response := connection.getresponse()).status, 200, response.read())
        response.read()
        connection.request("GET", path, headers=headers)
        self.assertEqual(connection.getresponse().read(), data)
        connection.close()
        # No token is none here either, and plain HTTP is not answered.
        with self.assertRaises((http.client.HTTPException, OSError)):
            daemon.tcp(token, timeout=10).get("/healthz")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with self.assertRaises(OSError):
            with socket.create_connection(("127.0.0.1", daemon.port), 10) as plain:
                old.wrap_socket(plain)
        # The Unix socket stays as it is.
        self.assertEqual(daemon.client().get("/healthz")["status"], "ok")

    def test_tls_files_that_cannot_be_used(self):
        daemon = self.new_daemon(check=False)
        certificate, key = make_certificate(daemon.top)
        for certificate, key, wrong in ((certificate, certificate, f"key {certificate}"), ("/nowhere/server.pem", key, "certificate /nowhere/server.pem")):
            daemon.configure(f"[server]\ntls_certificate = {certificate}\ntls_key = {key}\n")
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(30), 125, daemon.log())
            self.assertIn("TLS: " + wrong, daemon.log())


if __name__ == "__main__":
    unittest.main()
