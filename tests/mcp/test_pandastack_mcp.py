"""POST /v1/sandboxes/{id}/mcp: one sandbox as a server of its own, with PandaStack's four tools. What is
asserted of its wire is what its clients are known to send and to expect."""
import base64
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from caisson import DaemonTest, wait_until  # noqa: E402
from mcp import Mcp, McpError  # noqa: E402

TOOLS = ["shell", "read_file", "write_file", "list_dir"]


class Panda(DaemonTest):
    def setUp(self):
        self.box = self.sandbox()
        self.mcp = self.at(self.box)

    def at(self, sandbox, client=None):
        return Mcp(client or self.api, f"/v1/sandboxes/{sandbox}/mcp")

    def post(self, method, params=None, number=1, mcp=None, **headers):
        """As its clients do: no session, no version, no stream."""
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        answer = (mcp or self.mcp).send(message, {"Accept": "application/json", **headers})
        self.assertIsNone(answer.headers.get("Mcp-Session-Id"))
        return answer

    def call(self, tool, arguments, mcp=None):
        answer = self.post("tools/call", {"name": tool, "arguments": arguments}, mcp=mcp)
        self.assertEqual(answer.status, 200, answer.text)
        return answer.body["result"]

    def text(self, tool, arguments, mcp=None):
        result = self.call(tool, arguments, mcp)
        self.assertEqual([block["type"] for block in result["content"]], ["text"])
        return result["content"][0]["text"], result.get("structuredContent"), result.get("isError", False)

    def sleepers(self, seconds):
        """How many processes in the sandbox sleep for just so long."""
        return int(self.api.sh(self.box, f"grep -lza '^{seconds}$' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"))

    # --- protocol ---

    def test_initialize_brings_the_catalogue(self):
        for version, answered in (("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
            result = self.post("initialize", {"protocolVersion": version, "capabilities": {},
                                              "clientInfo": {"name": "t", "version": "1"}}).body["result"]
            self.assertEqual(result["protocolVersion"], answered)
            self.assertEqual(result["serverInfo"]["name"], "pandastack-sandbox")
            self.assertEqual(result["capabilities"], {"tools": {}})
            self.assertEqual([tool["name"] for tool in result["tools"]], TOOLS)
        self.assertEqual(self.post("initialize").body["result"]["protocolVersion"], "2024-11-05")
        listed = self.post("tools/list").body["result"]["tools"]
        self.assertEqual(listed, result["tools"])
        for tool in listed:
            self.assertNotIn("annotations", tool)
            self.assertEqual(tool["inputSchema"]["type"], "object")
        self.assertEqual(set(listed[0]["inputSchema"]["properties"]), {"command", "timeout_ms", "cmd", "timeout_seconds"})

    def test_methods(self):
        self.assertEqual(self.post("ping").body["result"], {})
        unknown = self.post("resources/list", number="a")
        self.assertEqual((unknown.status, unknown.body["error"]["code"], unknown.body["id"]), (200, -32601, "a"))
        for name in ("initialized", "cancelled"):
            answer = self.mcp.send({"jsonrpc": "2.0", "method": "notifications/" + name})
            self.assertEqual((answer.status, answer.text), (202, ""))
        broken = self.mcp.send("{", {"Accept": "application/json"})
        self.assertEqual((broken.status, broken.body["error"]["code"]), (400, -32700))
        self.assertEqual(self.mcp.send(None, method="GET").status, 405)

    def test_modern_on_the_same_address(self):
        self.assertEqual([tool["name"] for tool in self.mcp.modern("tools/list")["tools"]], TOOLS)
        result = self.mcp.call("shell", {"command": "echo $((2 + 2))"})
        self.assertEqual(result["content"], [{"type": "text", "text": "4\n"}])
        self.assertEqual(result["structuredContent"], {"stdout": "4\n", "stderr": "", "exit_code": 0})
        with self.assertRaises(McpError) as caught:
            self.mcp.call("nope")
        self.assertEqual(caught.exception.code, -32602)

    # --- tools ---

    def test_shell(self):
        for arguments in ({"command": "echo $((2 + 2))"}, {"cmd": "echo $((2 + 2))", "timeout_seconds": 5},
                          {"command": "echo 4", "timeout_ms": "5000", "unknown": 1}):
            self.assertEqual(self.text("shell", arguments),
                             ("4\n", {"stdout": "4\n", "stderr": "", "exit_code": 0}, False))
        self.assertEqual(self.text("shell", {"command": "echo a; echo b >&2; exit 3"}),
                         ("a\n\n[stderr]\nb\n\n[exit code 3]", {"stdout": "a\n", "stderr": "b\n", "exit_code": 3}, True))
        self.assertEqual(self.text("shell", {"command": "echo warned >&2"}),
                         ("\n[stderr]\nwarned\n", {"stdout": "", "stderr": "warned\n", "exit_code": 0}, False))
        self.assertEqual(self.text("shell", {"command": "pwd; true"})[0], "/workspace\n")
        text, data, _ = self.text("shell", {"command": "head -c 64 /bin/sh"})
        head = base64.b64decode(text.removeprefix("[binary; base64]\n"))
        self.assertEqual((head[:4], len(head)), (b"\x7fELF", 64))
        self.assertEqual(data["stdout"], text)

    def test_time_out_is_real(self):
        for arguments in ({"timeout_ms": 300}, {"timeout_seconds": 0.3}):
            text, data, failed = self.text("shell", {"command": "echo x; setsid sleep 4711 & sleep 4711", **arguments})
            self.assertEqual((data["exit_code"], failed), (124, True))
            self.assertIn(data["stdout"], ("", "x\n"))
            self.assertIn("timed out after 0.3 s", text)
            wait_until(lambda: self.sleepers(4711) == 0, what="the end of all that it started")

    def test_files(self):
        self.assertEqual(self.text("write_file", {"path": "/workspace/d/a.txt", "content": "häy\n"}),
                         ("wrote 5 bytes to /workspace/d/a.txt", {"ok": True, "bytes": 5}, False))
        self.assertEqual(self.text("read_file", {"path": "/workspace/d/a.txt"}), ("häy\n", {"content": "häy\n"}, False))
        self.api.write(self.box, "/workspace/b", b"\xff\x00")
        self.assertEqual(self.text("read_file", {"path": "/workspace/b"}),
                         ("[binary; base64]\n/wA=", {"content": "/wA=", "encoding": "base64"}, False))
        text, data, _ = self.text("list_dir", {})
        entries = {entry["name"]: entry for entry in data["entries"]}
        self.assertEqual(entries["b"], {"name": "b", "is_dir": False, "size": 2})
        self.assertTrue(entries["d"]["is_dir"])
        self.assertEqual(json.loads(text), {"path": "/workspace", "entries": data["entries"]})
        self.assertEqual(text, json.dumps(json.loads(text), indent=2))
        self.assertEqual(self.text("list_dir", {"path": "/workspace/d"})[1]["entries"],
                         [{"name": "a.txt", "is_dir": False, "size": 5}])

    def test_bad_arguments(self):
        for tool, arguments, word in (
                ("shell", {}, "command is required"), ("shell", {"command": 7}, "command"),
                ("shell", {"command": ""}, "empty"), ("shell", {"command": "true", "timeout_ms": -1}, "timeout_ms"),
                ("shell", {"command": "true", "timeout_seconds": 1e9}, "at most"),
                ("read_file", {}, "path"), ("read_file", {"path": "/nope"}, "/nope"),
                ("read_file", {"path": "/workspace"}, "directory"),
                ("write_file", {"path": "/workspace/x"}, "content"), ("write_file", {"content": "x"}, "path"),
                ("write_file", {"path": "/proc/x", "content": ""}, "/proc"),
                ("list_dir", {"path": "/nope"}, "/nope"), ("list_dir", {"path": ["/"]}, "path"),
                ("nope", {}, "unknown tool: nope; there are: ")):
            text, data, failed = self.text(tool, arguments)
            self.assertTrue(failed, (tool, arguments, text))
            self.assertIn(word, text, (tool, arguments))
            self.assertIsNone(data)

    def test_limits(self):
        answer = self.mcp.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "write_file", "arguments": {"path": "/workspace/x", "content": "x" * (1 << 20)}}})
        self.assertEqual(answer.status, 413)
        self.api.sh(self.box, "head -c 2000000 /dev/zero | tr '\\0' x > /workspace/big")
        text, _, failed = self.text("read_file", {"path": "/workspace/big"})
        self.assertTrue(failed)
        self.assertIn("2000000 bytes", text)
        text, _, failed = self.text("shell", {"command": "cat /workspace/big; exit 2"})
        self.assertTrue(failed)
        self.assertIn("exit code 2; its output of 2000000 bytes does not fit into an answer of 4 MiB", text)
        # What fits as it is and not as JSON: an error that names the limit.
        self.api.sh(self.box, "head -c 1200000 /dev/zero | tr '\\0' '\\1' > /workspace/escaped")
        answer = self.post("tools/call", {"name": "read_file", "arguments": {"path": "/workspace/escaped"}})
        self.assertIn("4096 KiB", answer.body["error"]["message"])
        text, _, failed = self.text("shell", {"command": "head -c 1000000 /workspace/big"})
        self.assertEqual((len(text), failed), (1000000, False))

    # --- life ---

    def test_wakes_a_paused_one(self):
        self.api.post(f"/v1/sandboxes/{self.box}/pause")
        self.assertEqual(self.text("shell", {"command": "echo awake"})[0], "awake\n")

    def test_others(self):
        other = self.daemon.tcp(self.daemon.token(workspace="other"))
        answer = self.post("tools/list", mcp=self.at(self.box, other))
        self.assertEqual(answer.status, 404)
        self.assertEqual(self.post("tools/list", mcp=self.at(self.box, self.daemon.tcp())).status, 401)
        reader = self.at(self.box, self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])))
        names = [tool["name"] for tool in self.post("tools/list", mcp=reader).body["result"]["tools"]]
        self.assertEqual(names, ["read_file", "list_dir"])
        self.assertIn("entries", self.call("list_dir", {}, reader)["structuredContent"])
        answer = self.post("tools/call", {"name": "shell", "arguments": {"command": "true"}}, mcp=reader)
        self.assertTrue(answer.status == 403 or answer.body["result"]["isError"], answer.text)
        # A token that is bound to another sandbox does not know this one.
        bound = self.daemon.tcp(self.daemon.token(sandbox=self.sandbox()))
        self.assertEqual(self.post("tools/list", mcp=self.at(self.box, bound)).status, 404)
        self.api.delete("/v1/sandboxes/" + self.box)
        self.assertIn(self.post("tools/list").status, (404, 410))

    def test_a_disconnect_ends_the_command(self):
        """In either era: no session keeps the answer for a client that comes back."""
        call = {"name": "shell", "arguments": {"command": "setsid sleep 4712 & sleep 4712"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        answers = (self.mcp.modern_send("tools/call", call), self.mcp.send(message))
        for answer in answers:
            self.assertTrue(answer.streams)
        wait_until(lambda: self.sleepers(4712) == 4, what="the two commands")
        for answer in answers:
            answer.__exit__()
        wait_until(lambda: self.sleepers(4712) == 0, what="the end of all that they started")

    def test_a_disconnect_ends_a_batch(self):
        """Each of its commands, whether its answer has begun (as a stream) or not."""
        call = {"name": "shell", "arguments": {"command": "sleep 4713", "timeout_seconds": 600}}
        batch = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call} for number in (1, 2)]
        streaming = self.mcp.send(batch)
        self.assertTrue(streaming.streams)
        waiting = self.api.connection()
        waiting.request("POST", self.mcp.path, json.dumps(batch), {"Content-Type": "application/json", "Accept": "application/json"})
        wait_until(lambda: self.sleepers(4713) == 4, what="the commands")
        streaming.__exit__()
        wait_until(lambda: self.sleepers(4713) == 2, what="the end of those whose stream was closed")
        waiting.close()
        wait_until(lambda: self.sleepers(4713) == 0, what="the end of the others")
