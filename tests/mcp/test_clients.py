"""The official clients as npm has them, unmodified: SDK v1 and v2, in both eras, over HTTP and stdio, the Inspector's
command line, and mcp-remote as a bridge from stdio to HTTP. clients.mjs has the steps."""
import json
import os
import re
import subprocess
import unittest

from caisson import BUILD, DaemonTest, wait_until
from mcp import seconds_to_die
from npm import installed, node
from stdio import Stdio

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = "tests/mcp/npm"
# What it covers of the program the rest of tests/mcp covers on the sanitized build.
RUNS_ON = "normal"
MARKS = ("busy", "long")
STALLED = True
LIMIT = 180


class Clients(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.modules = installed(PACKAGES)
        cls.node = node(cls.modules)
        cls.token = cls.daemon.token()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.daemon.port}/mcp"

    @property
    def environment(self):
        """Of a process that is to reach this daemon, and to write nothing elsewhere."""
        return {**os.environ, **self.daemon.client_environment(), "HOME": self.daemon.top, "MODULES": self.modules}

    def package(self, path):
        return os.path.join(self.modules, "node_modules", path)

    def stdio(self, *arguments):
        return {"command": os.path.join(BUILD, "caisson"), "args": ["mcp", *arguments], "env": self.daemon.client_environment()}

    def http(self):
        return {"url": self.url, "token": self.token}

    def drive(self, **way):
        script = os.path.join(HERE, "clients.mjs")
        steps = open(script).read().count("\n  async ")
        name = self._testMethodName.replace("test_", "").replace("_", "-")
        result = subprocess.run([self.node, script], capture_output=True, text=True, timeout=LIMIT,
                                env={**self.environment, "WAY": json.dumps(way), "BOX": name})
        seen = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        for step in seen:
            with self.subTest(step["step"]):
                self.assertTrue(step["ok"], step.get("error"))
        self.assertEqual((result.returncode, len(seen)), (0, steps), result.stdout + result.stderr)

    def test_v1_http(self):
        self.drive(sdk="v1", era="legacy", **self.http())

    def test_v1_stdio(self):
        self.drive(sdk="v1", era="legacy", **self.stdio())

    def test_v2_http_legacy(self):
        self.drive(sdk="v2", era="legacy", **self.http())

    def test_v2_http_modern(self):
        self.drive(sdk="v2", era="modern", **self.http())

    def test_v2_http_auto(self):
        self.drive(sdk="v2", era="auto", **self.http())

    def test_v2_stdio_legacy(self):
        self.drive(sdk="v2", era="legacy", **self.stdio())

    def test_v2_stdio_modern(self):
        self.drive(sdk="v2", era="modern", **self.stdio())

    def test_v2_stdio_auto(self):
        self.drive(sdk="v2", era="auto", **self.stdio())

    def test_mcp_remote(self):
        self.drive(sdk="v1", era="legacy", command=self.node, env=self.environment,
                   args=[self.package("mcp-remote/dist/proxy.js"), self.url, "--allow-http", "--transport", "http-only",
                         "--header", f"Authorization: Bearer {self.token}"])

    def refused_streams(self):
        """How many streams of the server were asked for and not given."""
        metrics = self.api.call("GET", "/metrics").decode()
        found = re.search(r'^caisson_http_requests_total\{method="GET",route="/mcp",status="4xx"\} (\d+)', metrics, re.M)
        return int(found.group(1)) if found else 0

    def test_cancel_through_mcp_remote(self):
        """The command ends, and the bridge, which comes back for the answer, is told that there is none."""
        box = self.sandbox()
        bridge = Stdio([self.node, self.package("mcp-remote/dist/proxy.js"), self.url, "--allow-http", "--transport", "http-only",
                        "--header", f"Authorization: Bearer {self.token}"], self.environment)
        self.addCleanup(bridge.close)
        bridge.initialize("2025-11-25")
        word = f"sleep 4871.{os.getpid()}"
        number = bridge.begin("tools/call", {"name": "run_shell", "arguments": {"sandbox_id": box, "command": "exec " + word}})
        wait_until(lambda: word in self.api.sh(box, "ps -eo args"), what="the command")
        refused = self.refused_streams()
        seconds_to_die(word, lambda: bridge.notify("notifications/cancelled", {"requestId": number}))
        wait_until(lambda: self.refused_streams() > refused, what="the bridge, which asks for the answer")
        # It has complained by now if the refusal was none that it expects.
        self.assertIn("tools", bridge.request("tools/list"))
        bridge.process.stdin.close()
        self.assertNotRegex(bridge.process.stderr.read().decode(), "(?i)SSE|reconnect|error")

    def inspect(self, server, *arguments):
        """What the Inspector's command line answers, and how it ends."""
        manifest = json.load(open(self.package("@modelcontextprotocol/inspector/package.json")))
        program = self.package("@modelcontextprotocol/inspector/" + manifest["bin"]["mcp-inspector"])
        config = os.path.join(self.daemon.top, "inspector.json")
        headers = {"Authorization": f"Bearer {self.token}"}
        with open(config, "w") as file:
            json.dump({"mcpServers": {
                "modern": {"type": "streamable-http", "url": self.url, "headers": headers, "protocolEra": "modern"},
                "legacy": {"type": "streamable-http", "url": self.url, "headers": headers, "protocolEra": "legacy"},
                "stdio": {**self.stdio(), "protocolEra": "auto"}}}, file)
        return subprocess.run([self.node, program, "--cli", "--config", config, "--server", server, *arguments],
                              capture_output=True, text=True, timeout=LIMIT, env=self.environment)

    def test_inspector(self):
        for server in ("modern", "legacy", "stdio"):
            with self.subTest(server):
                listed = self.inspect(server, "--method", "tools/list", "--format", "json")
                self.assertEqual(listed.returncode, 0, listed.stdout + listed.stderr)
                self.assertIn('"run_shell"', listed.stdout)
                ran = self.inspect(server, "--method", "tools/call", "--tool-name", "run_shell", "--tool-arg", "command=echo from-$((40+2))",
                                   "--format", "json")
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
                self.assertIn("from-42", ran.stdout)
        bad = self.inspect("modern", "--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "sandbox_id=nosuchthing",
                           "--tool-arg", "path=/x", "--format", "json")
        self.assertEqual(bad.returncode, 5, bad.stdout + bad.stderr)


if __name__ == "__main__":
    unittest.main()
