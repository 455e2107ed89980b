"""`caisson wrap`: a server of somebody else's in a sandbox, with its standard descriptors passed through."""
import json
import os
import signal
import subprocess
import tempfile
import unittest

from caisson import DaemonTest, PROGRAM, wait_until
from marks import busy, long
from npm import installed
from stdio import Stdio

PACKAGES = "tests/mcp/npm"


CLIENT = """
import { createRequire } from 'node:module';
const require = createRequire(process.env.MODULES + '/package.json');
const { Client } = await import(require.resolve('@modelcontextprotocol/sdk/client/index.js'));
const { StdioClientTransport } = await import(require.resolve('@modelcontextprotocol/sdk/client/stdio.js'));
const [command, ...args] = JSON.parse(process.env.COMMAND);
const client = new Client({ name: 'tests', version: '1.0.0' }, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const result = await client.callTool({ name: 'echo', arguments: { message: 'hello' } });
console.log(tools.find((name) => name === 'echo'), result.content[0].text);
await client.close();
"""


class Wrap(DaemonTest):
    def environment(self, **more):
        return {**os.environ, **self.daemon.client_environment(), **more}

    def wrap(self, *arguments, **options):
        process = Stdio([PROGRAM, "wrap", *arguments], self.environment(), **options)
        self.addCleanup(process.close)
        return process

    def run_wrap(self, *arguments, **options):
        return subprocess.run([PROGRAM, "wrap", *arguments], capture_output=True, timeout=120, env=self.environment(**options.pop("environment", {})), **options)

    def boxes(self):
        return [record["id"] for record in self.api.get("/v1/sandboxes", limit=200)["items"]]

    def nothing_left(self):
        wait_until(lambda: not self.boxes(), 20, what="the sandbox's end")

    def test_everything_is_passed_through(self):
        data = os.urandom(1_000_000)
        result = self.run_wrap("--", "sh", "-c", "cat; echo $WORD >&2; exit 7", input=data)
        self.assertEqual((result.returncode, result.stdout == data, result.stderr), (7, True, b"\n"))
        result = self.run_wrap("-e", "WORD=one", "-e", "OTHER", "--", "sh", "-c", "echo $WORD $OTHER; kill -9 $$", input=b"", environment={"OTHER": "two"})
        self.assertEqual((result.returncode, result.stdout, result.stderr), (137, b"one two\n", b""))
        self.assertEqual(self.run_wrap("--", "no-such-program").returncode, 127)
        self.nothing_left()

    def test_unbuffered_and_without_an_end_of_its_time(self):
        process = self.wrap("--", "cat")
        for word in (b"a\n", b"b\n"):
            process.write(word)
            self.assertEqual(process.line() + b"\n", word)
        record = self.api.get("/v1/sandboxes")["items"][0]
        self.assertIsNone(record.get("expires_at"))
        self.assertIsNone(record["timeout_seconds"])
        process.process.stdin.close()
        self.assertEqual((process.line(), process.process.wait(60)), (None, 0))
        self.nothing_left()

    def test_limits_folders_and_no_network(self):
        folder = tempfile.mkdtemp(prefix="caisson-test-")
        self.addCleanup(subprocess.run, ["rm", "-rf", folder], check=True)
        open(os.path.join(folder, "seen"), "w").write("yes\n")
        result = self.run_wrap("-m", "64M", "--pids", "32", "-v", f"{folder}:/given", "-w", "/given", "--", "sh", "-c",
                               "cat seen; touch new 2>/dev/null || echo read-only; ls /sys/class/net 2>/dev/null; cat /proc/net/route | wc -l; ls /work /home", input=b"")
        self.assertEqual(result.stdout.splitlines()[:2], [b"yes", b"read-only"], result)
        self.assertIn(b"1", result.stdout.splitlines())
        self.assertFalse(os.path.exists(os.path.join(folder, "new")))
        help_text = self.daemon.cli("wrap", "--help")[1]
        self.assertIn("no network", help_text)

    def test_whatever_ends_it_ends_the_sandbox(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            process = self.wrap("--", "sh", "-c", "trap 'echo caught; exit 9' TERM INT; echo up; while :; do sleep 0.05; done")
            self.assertEqual(process.line(), b"up")
            process.process.send_signal(number)
            if number != signal.SIGKILL:
                self.assertEqual(process.line(), b"caught")
            self.assertEqual(process.process.wait(60), -9 if number == signal.SIGKILL else 9)
            self.nothing_left()

    def test_daemon_dies(self):
        process = self.wrap("--", "sh", "-c", "echo up; sleep 1000")
        self.assertEqual(process.line(), b"up")
        os.kill(self.daemon.daemon_pid(), signal.SIGKILL)
        self.assertEqual(process.process.wait(60), 125)
        self.assertIn(b"lost", process.process.stderr.read())
        self.nothing_left()

    def test_usage(self):
        for arguments, word in (((), "command"), (("-v", "nothing", "--", "true"), "HOST:GUEST"), (("-m", "1000000G", "--", "true"), "memory")):
            code, out, err = self.daemon.cli("wrap", *arguments, stdin="")
            self.assertEqual((code, out), (125, ""))
            self.assertIn(word, err)
        self.nothing_left()


class Everything(DaemonTest):
    """A real server from npm, in a sandbox that sees its packages and nothing else."""

    @long
    @busy
    def test_server_everything(self):
        modules = installed(PACKAGES)
        server = "/server/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
        command = [PROGRAM, "wrap", "-m", "512M", "-v", f"{modules}:/server:ro", "--", "node", server, "stdio"]
        process = Stdio(command, {**os.environ, **self.daemon.client_environment()}, timeout=120)
        self.addCleanup(process.close)
        self.assertIn("serverInfo", process.initialize("2025-06-18"))
        names = [tool["name"] for tool in process.request("tools/list")["tools"]]
        self.assertIn("echo", names)
        self.assertIn("through and back", process.text("echo", {"message": "through and back"}, modern=False))
        box = self.api.get("/v1/sandboxes")["items"][0]["id"]
        self.assertIn(server, self.api.exec(box, "ps -eo args")["stdout"])
        process.process.stdin.close()
        process.process.wait(60)
        self.nothing_left()
        # The same with the official client.
        script = os.path.join(self.daemon.top, "client.mjs")
        with open(script, "w") as file:
            file.write(CLIENT)
        result = subprocess.run(["node", script], capture_output=True, text=True, timeout=120, env={
            **os.environ, **self.daemon.client_environment(), "MODULES": modules, "COMMAND": json.dumps(command)})
        self.assertEqual((result.returncode, result.stdout), (0, "echo Echo: hello\n"), result.stderr)
        self.nothing_left()

    def nothing_left(self):
        wait_until(lambda: not self.api.get("/v1/sandboxes")["items"], 20, what="the sandbox's end")


if __name__ == "__main__":
    unittest.main()
