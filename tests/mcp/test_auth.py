"""Who may use the MCP server: tokens, scopes and their challenges, RFC 9728, pages of other origins."""
import json
import re

from caisson import DaemonTest
from mcp import Mcp, meta

PATHS = ("/mcp", "/api/sandboxes/mcp", "/v1/mcp", "/mcp/readonly", "/mcp/admin", "/mcp/x/files,jobs", "/mcp/x/all/readonly",
         "/mcp/opensandbox", "/v1/sandboxes/abcdefghijklmnop/mcp", "/mcp/nonsense")
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta()}}
METADATA = "/.well-known/oauth-protected-resource"


class Auth(DaemonTest):
    config = "[server]\norigins = https://console.example\n"

    def ask(self, client, path="/mcp", body=DISCOVER, method="POST", **headers):
        mcp = Mcp(client, path)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with mcp.send(body, {**mcp.modern_headers(body or DISCOVER), **names}, method) as answer:
            return answer

    def challenge(self, answer, status):
        self.assertEqual(answer.status, status, answer.text)
        text = answer.headers["WWW-Authenticate"]
        self.assertTrue(text.startswith("Bearer "), text)
        self.assertNotIn("id", answer.body)
        return dict(re.findall(r'(\w+)="([^"]*)"', text))

    def test_no_token(self):
        for path in PATHS:
            for method in ("POST", "GET", "DELETE"):
                given = self.challenge(self.ask(self.daemon.tcp(), path, DISCOVER if method == "POST" else None, method), 401)
                self.assertEqual(given, {"realm": "caisson", "resource_metadata":
                                         f"http://127.0.0.1:{self.daemon.port}{METADATA}{path}"})

    def test_bad_tokens(self):
        made = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read"]})
        self.assertEqual(self.ask(self.daemon.tcp(made["token"])).status, 200)
        self.api.delete("/v1/tokens/" + made["id"])
        for token in ("nonsense", made["token"], "csn_" + "x" * 43):
            answer = self.ask(self.daemon.tcp(token))
            self.assertEqual(self.challenge(answer, 401)["error"], "invalid_token")
            self.assertNotIn(token, answer.text)
        for header in ("Basic dXNlcjpwYXNz", "Bearer", "nonsense", ""):
            self.assertEqual(self.ask(self.daemon.tcp(), Authorization=header).status, 401, header)

    def test_a_token_in_the_url_is_refused(self):
        token = self.daemon.token()
        for name in ("access_token", "token", "api_key"):
            answer = self.ask(self.daemon.tcp(), f"/mcp?{name}={token}")
            self.assertIn(answer.status, (400, 401))
            self.assertNotIn(token, answer.text)

    def test_scopes(self):
        reads = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))
        writes = self.daemon.tcp(self.daemon.token())
        names = {kind: {tool["name"] for tool in Mcp(client).modern("tools/list")["tools"]}
                 for kind, client in (("reads", reads), ("writes", writes))}
        self.assertLess(names["reads"], names["writes"])
        self.assertIn("list_sandboxes", names["reads"])
        self.assertNotIn("run_shell", names["reads"])
        self.assertEqual(Mcp(reads).modern("tools/list")["cacheScope"], "private")
        # What is not in the list cannot be called either, in any era, and the challenge says what it takes.
        for tool in sorted(names["writes"] - names["reads"]):
            call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": {}, "_meta": meta()}}
            answer = self.ask(reads, body=call)
            self.assertEqual((answer.status, answer.body["id"]), (403, 7), tool)
            self.assertIn("error", answer.body)
            given = dict(re.findall(r'(\w+)="([^"]*)"', answer.headers["WWW-Authenticate"]))
            self.assertEqual((given["error"], given["scope"]), ("insufficient_scope", "sandboxes:write"))
            self.assertTrue(given["resource_metadata"].endswith(METADATA + "/mcp"))
        session = Mcp(reads).session()
        with session.begin("tools/call", {"name": "run_shell", "arguments": {"command": "true"}}) as answer:
            self.assertEqual(answer.status, 403)
            self.assertIn("insufficient_scope", answer.headers["WWW-Authenticate"])
        self.assertIn("content", Mcp(reads).call("list_sandboxes"))

    def test_administration_needs_its_own_scope(self):
        for client in (self.daemon.tcp(self.daemon.token()), self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))):
            given = self.challenge(self.ask(client, "/mcp/admin"), 403)
            self.assertEqual((given["error"], given["scope"]), ("insufficient_scope", "admin"))
            listed = {tool["name"] for tool in Mcp(client).modern("tools/list")["tools"]}
            self.assertFalse([name for name in listed if "token" in name])
        admin = self.daemon.tcp(self.daemon.token(scopes=["admin"]))
        self.assertTrue(Mcp(admin, "/mcp/admin").modern("tools/list")["tools"])

    def test_a_token_of_one_sandbox(self):
        box, other = self.sandbox(), self.sandbox()
        token = self.daemon.token(sandbox=box)
        mcp = Mcp(self.daemon.tcp(token))
        self.assertIn(box, mcp.text("list_sandboxes"))
        self.assertNotIn(other, mcp.text("list_sandboxes"))
        self.assertTrue(mcp.call("run_shell", {"sandbox_id": other, "command": "true"})["isError"])
        self.assertEqual(self.ask(self.daemon.tcp(token), f"/v1/sandboxes/{other}/mcp").status, 404)
        self.assertEqual(self.ask(self.daemon.tcp(token), f"/v1/sandboxes/{box}/mcp").status, 200)
        bound = self.daemon.tcp(self.daemon.token(sandbox=box, scopes=["admin"]))
        self.assertEqual(self.ask(bound, "/mcp/admin").status, 403)

    def test_another_workspaces_sandbox_is_not_there(self):
        box = self.sandbox()
        stranger = self.daemon.tcp(self.daemon.token(workspace="stranger"))
        self.assertEqual(self.ask(stranger, f"/v1/sandboxes/{box}/mcp").status, 404)
        self.assertNotIn(box, json.dumps(Mcp(stranger).call("list_sandboxes")))

    # --- metadata ---

    def test_metadata(self):
        base = f"http://127.0.0.1:{self.daemon.port}"
        for path in ("", *PATHS):
            answer = self.ask(self.daemon.tcp(), METADATA + path, None, "GET")
            self.assertEqual((answer.status, answer.kind), (200, "application/json"), path)
            self.assertEqual(answer.body["resource"], base + (path or "/mcp"))
            self.assertEqual(answer.body["bearer_methods_supported"], ["header"])
            wanted = ["admin"] if path == "/mcp/admin" else ["sandboxes:read", "sandboxes:write"]
            self.assertEqual(answer.body["scopes_supported"], wanted)
            # There is none, and naming one would send clients nowhere.
            self.assertNotIn("authorization_servers", answer.body)
        self.assertIn(self.ask(self.daemon.tcp(), METADATA + "/nonsense", None, "GET").status, (401, 404))

    # --- pages ---

    def test_foreign_pages(self):
        """By their Origin alone, before any token is looked at, on every URL and every door."""
        for path in PATHS:
            for client in (self.daemon.tcp(), self.daemon.tcp(self.daemon.token()), self.api):
                for origin in ("http://evil.example", "null", "https://console.example.evil", f"http://127.0.0.1:{self.daemon.port + 1}"):
                    answer = self.ask(client, path, Origin=origin)
                    self.assertEqual((answer.status, answer.headers.get("WWW-Authenticate")), (403, None), (path, origin))
                    self.assertNotIn("id", answer.body)
                    self.assertEqual((answer.body["jsonrpc"], answer.body["error"]["code"]), ("2.0", -32003))
        for method in ("GET", "DELETE"):
            self.assertEqual(self.ask(self.daemon.tcp(), "/mcp", None, method, Origin="http://evil.example").status, 403)
        # The lines of `caisson mcp` are no way round it.
        for client in (self.daemon.tcp(self.daemon.token()), self.api):
            for origin in ("http://evil.example", "null"):
                answer = self.ask(client, "/mcp/lines", None, Origin=origin, Upgrade="caisson-mcp/1", Connection="Upgrade")
                self.assertEqual(answer.status, 403, (answer.text, origin))

    def test_own_and_listed_pages(self):
        client = self.daemon.tcp(self.daemon.token())
        for origin in (f"http://127.0.0.1:{self.daemon.port}", "https://console.example"):
            self.assertEqual(self.ask(client, Origin=origin).status, 200, origin)
        self.assertEqual(self.ask(self.api, Origin="http://localhost").status, 200)
        answer = self.ask(client, Origin="https://console.example")
        self.assertEqual(answer.headers["Access-Control-Allow-Origin"], "https://console.example")
        self.assertIn("Mcp-Session-Id", answer.headers["Access-Control-Expose-Headers"])

    def test_foreign_hosts(self):
        client = self.daemon.tcp(self.daemon.token())
        for host in ("evil.example", f"evil.example:{self.daemon.port}", "127.0.0.1.evil.example"):
            self.assertEqual(self.ask(client, Host=host).status, 421, host)
        # A page that has made its name point here is no page of ours, not even behind somebody's proxy.
        self.assertEqual(self.ask(self.api, Host="evil.example", Origin="http://evil.example").status, 403)
        for host in ("localhost", f"localhost:{self.daemon.port}", "127.0.0.1"):
            self.assertEqual(self.ask(client, Host=host).status, 200, host)

    def test_preflight(self):
        response, connection = self.daemon.tcp().raw("OPTIONS", "/mcp", headers={
            "Origin": "https://console.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,mcp-protocol-version,mcp-method"}, checked=False)
        response.read()
        connection.close()
        self.assertEqual(response.status, 204)
        allowed = {name.strip().lower() for name in response.headers["Access-Control-Allow-Headers"].split(",")}
        self.assertLessEqual({"authorization", "content-type", "last-event-id", "mcp-protocol-version", "mcp-session-id",
                              "mcp-method", "mcp-name", "*"}, allowed)
        for method in ("GET", "POST", "DELETE"):
            self.assertIn(method, response.headers["Access-Control-Allow-Methods"])

    def test_nothing_of_a_token_is_logged(self):
        token = self.daemon.token()
        self.ask(self.daemon.tcp(token))
        self.ask(self.daemon.tcp(token + "x"))
        self.assertNotIn(token, self.daemon.log())
