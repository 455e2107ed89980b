"""The administration at /mcp/admin: for the scope admin alone, in no other list, and what it makes works."""
import re

from caisson import ApiError, DaemonTest, clear_of_midnight
from mcp import Mcp, McpError

TOOLS = ["create_token", "list_tokens", "revoke_token", "get_workspace_usage", "get_health", "get_budgets", "set_budget",
         "remove_budget"]


class Admin(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.admin = Mcp(cls.api, "/mcp/admin")

    def wrong(self, tool, **arguments):
        result = self.admin.call(tool, arguments)
        self.assertTrue(result.get("isError"), result)
        return result["content"][0]["text"]

    def make(self, **arguments):
        text = self.admin.text("create_token", arguments)
        return re.search(r"token: (csn_\S+)", text)[1], re.search(r"^(\w{16}): workspace", text, re.M)[1], text

    def test_list(self):
        self.assertEqual([tool["name"] for tool in self.admin.modern("tools/list")["tools"]], TOOLS)
        discover = self.admin.modern("server/discover")
        self.assertEqual(discover["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "caisson-admin")
        self.assertEqual(set(discover["capabilities"]), {"tools"})

    def test_for_admins_alone(self):
        for scopes in (["sandboxes:read"], ["sandboxes:read", "sandboxes:write"]):
            client = Mcp(self.daemon.tcp(self.daemon.token(scopes=scopes)), "/mcp/admin")
            for method, params in (("tools/list", None), ("tools/call", {"name": "list_tokens"}), ("server/discover", None)):
                with client.modern_send(method, params) as answer:
                    self.assertEqual(answer.status, 403)
                    self.assertIn('scope="admin"', answer.headers["WWW-Authenticate"])
                    self.assertNotIn("create_token", answer.text)
        with Mcp(self.daemon.tcp(), "/mcp/admin").modern_send("tools/list") as answer:
            self.assertEqual(answer.status, 401)
        admin = Mcp(self.daemon.tcp(self.daemon.token(scopes=["admin"])), "/mcp/admin")
        self.assertEqual(len(admin.modern("tools/list")["tools"]), len(TOOLS))

    def test_not_for_one_that_is_bound(self):
        box = self.sandbox()
        bound = self.daemon.token(scopes=["admin"], sandbox=box)
        with Mcp(self.daemon.tcp(bound), "/mcp/admin").modern_send("tools/call", {"name": "list_tokens"}) as answer:
            self.assertEqual(answer.status, 403)

    def test_tokens(self):
        token, number, text = self.make(scopes=["sandboxes:write"], workspace="team", label="an agent", expires_seconds=600)
        self.assertIn("shown this once", text)
        self.assertIn(f"{number}: workspace team, scopes sandboxes:write, label an agent, expires ", text)
        listed = self.admin.text("list_tokens")
        self.assertIn(number, listed)
        self.assertNotIn(token, listed)
        client = self.daemon.tcp(token)
        self.assertEqual(client.get("/v1/sandboxes")["items"], [])
        self.assertEqual(self.admin.text("revoke_token", {"token_id": number}), f"token {number} is revoked")
        with self.assertRaises(ApiError):
            client.get("/v1/sandboxes")
        self.assertNotIn(number, self.admin.text("list_tokens"))
        self.assertNotIn(token, self.daemon.log())

    def test_bound_token(self):
        box = self.sandbox(name="given")
        token, _, text = self.make(scopes=["sandboxes:read"], sandbox_id="given")
        self.assertIn(f"for sandbox {box} alone", text)
        self.assertEqual([item["id"] for item in self.daemon.tcp(token).get("/v1/sandboxes")["items"]], [box])

    def test_bad_tokens(self):
        for arguments, words in (({}, "`scopes` is missing"), ({"scopes": []}, "must not be empty"), ({"scopes": ["all"]}, "unknown scope"),
                                 ({"scopes": [1]}, "must hold strings"), ({"scopes": "admin"}, "`scopes` must be an array"),
                                 ({"scopes": ["admin"], "workspace": "A B"}, "use 1 to 63 characters"),
                                 ({"scopes": ["admin"], "label": "x" * 5000}, "label"),
                                 ({"scopes": ["admin"], "sandbox_id": "nobody"}, "nobody")):
            self.assertIn(words, self.wrong("create_token", **arguments))
        token, _, _ = self.make(scopes=["sandboxes:read"])
        # Somebody gives the token where its id is meant: it is not repeated.
        text = self.wrong("revoke_token", token_id=token)
        self.assertNotIn(token, text)
        self.assertIn("no token", self.wrong("revoke_token", token_id="aaaaaaaaaaaaaaaa"))

    def test_budgets(self):
        clear_of_midnight()
        self.assertIn("no budgets", self.admin.text("get_budgets", {"workspace": "poor"}))
        self.admin.text("set_budget", {"workspace": "poor", "what": "creates", "period": "day", "maximum": 1})
        text = self.admin.text("set_budget", {"workspace": "poor", "what": "memory_mb", "period": "now", "maximum": "1024"})
        self.assertIn("memory_mb/now: 0 used of 1024 (its own)", text)
        self.assertIn("creates/day: 0 used of 1, resets ", text)
        client = self.daemon.tcp(self.daemon.token(workspace="poor"))
        box = client.create()["id"]
        client.delete("/v1/sandboxes/" + box)
        with self.assertRaises(ApiError) as caught:
            client.create()
        self.assertEqual(caught.exception.code, "quota.exceeded")
        self.assertIn("creates/day: 1 used of 1", self.admin.text("get_budgets", {"workspace": "poor"}))
        self.assertIn("creates/day: 1 used of no maximum", self.admin.text("set_budget", {"workspace": "poor", "what": "creates", "period": "day"}))
        self.assertNotIn("memory_mb", self.admin.text("remove_budget", {"workspace": "poor", "what": "memory_mb", "period": "now"}))
        self.assertIn("no budgets", self.admin.text("remove_budget", {"workspace": "poor"}))

    def test_bad_budgets(self):
        budget = {"workspace": "poor", "what": "creates", "period": "day"}
        for change, words in (({"what": "gold"}, "there are sandboxes, vcpus"), ({"period": "year"}, "now, minute, day and month"),
                              ({"what": "vcpus"}, "has the period now, not day"), ({"workspace": "no/pe"}, "use 1 to 63 characters"),
                              ({"maximum": -1}, "`maximum` must be a number"), ({"maximum": 1e18}, "too large"),
                              ({"what": "sandboxes", "period": "now", "maximum": 2.5}, "must be a whole number"),
                              ({"maximum": "many"}, "`maximum`"), ({"workspace": None}, "`workspace` is missing")):
            self.assertIn(words, self.wrong("set_budget", **{**budget, **change}))
        self.assertIn("Give `what` and `period`", self.wrong("remove_budget", workspace="poor", what="creates"))
        self.assertTrue(self.wrong("remove_budget", workspace="poor", what="creates", period="month"))

    def test_health_and_usage(self):
        text = self.admin.text("get_health")
        for words in ("store: ok", "sandboxes: ", "memory: ", "isolation namespace: "):
            self.assertIn(words, text)
        self.sandbox()
        self.assertRegex(self.admin.text("get_workspace_usage", {"days": 1}), r"workspace default: alive ")

    def test_in_no_other_list(self):
        for path in ("/mcp", "/mcp/x/all", "/api/sandboxes/mcp", "/mcp/opensandbox"):
            mcp = Mcp(self.api, path)
            self.assertFalse(set(TOOLS) & {tool["name"] for tool in mcp.modern("tools/list")["tools"]}, path)
            with self.assertRaises(McpError):
                mcp.call("create_token", {"scopes": ["admin"]})
