"""`caisson mcp config`: what it prints is parsed and connected with, exactly as it stands there; --write creates files and
changes none."""
import concurrent.futures
import json
import os
import shutil
import stat
import subprocess
import tempfile
import tomllib
import unittest

from caisson import Client, Daemon, DaemonTest, PROGRAM
from marks import busy, long
from mcp import Mcp
from npm import installed
from stdio import Stdio

PACKAGES = "tests/mcp/npm"
# Where each client has its servers, how a URL stands there, and its file below HOME.
CLIENTS = {
    "claude-code": ("mcpServers", "url", ".claude.json"),
    "claude-desktop": ("mcpServers", None, ".config/Claude/claude_desktop_config.json"),
    "cursor": ("mcpServers", "url", ".cursor/mcp.json"),
    "vscode": ("servers", "url", ".config/Code/User/mcp.json"),
    "windsurf": ("mcpServers", "serverUrl", ".codeium/windsurf/mcp_config.json"),
    "zed": ("context_servers", "url", ".config/zed/settings.json"),
    "codex": ("mcp_servers", "url", ".codex/config.toml"),
    "gemini": ("mcpServers", "httpUrl", ".gemini/settings.json"),
    "generic": ("mcpServers", "url", None),
}


def parsed(client, text):
    return tomllib.loads(text) if client == "codex" else json.loads(text)


class Config(DaemonTest):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="caisson-test-")
        self.addCleanup(shutil.rmtree, self.home)

    def asked(self, *arguments, code=0, **environment):
        got, out, err = self.daemon.cli("mcp", "config", *arguments, environment={"HOME": self.home, "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": "", **environment})
        self.assertEqual(got, code, err)
        return out, err

    def path(self, client):
        return os.path.join(self.home, CLIENTS[client][2])

    def put(self, client, text):
        os.makedirs(os.path.dirname(self.path(client)), exist_ok=True)
        with open(self.path(client), "w", newline="") as file:
            file.write(text)

    def read(self, client):
        with open(self.path(client), newline="") as file:
            return file.read()

    def left_alone(self, client, *arguments):
        """An existing file is not changed, not replaced and gets no neighbours; what to add and where is printed."""
        key, _, _ = CLIENTS[client]
        before, folder = os.lstat(self.path(client)), os.listdir(os.path.dirname(self.path(client)))
        out, err = self.asked(client, "--write", *arguments, code=1)
        self.assertIn("caisson", parsed(client, out)[key])
        self.assertIn(f"{self.path(client)} exists and was not changed", err)
        self.assertIn(key, err)
        after = os.lstat(self.path(client))
        self.assertEqual((after.st_ino, after.st_mtime_ns, after.st_mode), (before.st_ino, before.st_mtime_ns, before.st_mode))
        self.assertEqual(os.listdir(os.path.dirname(self.path(client))), folder)

    def connect_stdio(self, entry, path=None):
        """As a client does: with the command, its arguments and the entry's environment, and little else."""
        process = Stdio([entry["command"], *entry["args"]], {"PATH": path or "/usr/bin:/bin", "HOME": self.home, **entry.get("env", {})})
        self.addCleanup(process.close)
        return process

    def test_every_snippet_connects(self):
        for client, (key, _, _) in CLIENTS.items():
            with self.subTest(client):
                out, err = self.asked(client)
                entry = parsed(client, out)[key]["caisson"]
                self.assertTrue(os.path.isabs(entry["command"]))
                self.assertIn(os.path.basename(self.path(client)) if CLIENTS[client][2] else "your client", err)
                process = self.connect_stdio(entry)
                self.assertEqual(process.initialize()["serverInfo"]["name"], "caisson")
                self.assertEqual(process.end(), (0, [], ""))

    def test_every_url_connects(self):
        token = self.daemon.token()
        for client, (key, member, _) in CLIENTS.items():
            with self.subTest(client):
                entry = parsed(client, self.asked(client, "--http", "--token", token)[0])[key]["caisson"]
                if member is None:
                    self.assertEqual((entry["command"], entry["args"][:2]), ("npx", ["-y", "mcp-remote"]))
                    url, header = entry["args"][2], entry["args"][4]
                    self.assertEqual(entry["args"][3], "--header")
                    self.assertEqual(header, "Authorization:${CAISSON_AUTHORIZATION}")
                    headers = {"Authorization": entry["env"]["CAISSON_AUTHORIZATION"]}
                else:
                    url, headers = entry[member], entry.get("headers") or entry["http_headers"]
                self.assertEqual(url, f"http://127.0.0.1:{self.daemon.port}/mcp")
                client_of = Client(port=self.daemon.port)
                answer = Mcp(client_of).modern_send("tools/list", headers=headers)
                self.assertEqual(answer.status, 200)
                self.assertEqual(Mcp(client_of).modern_send("tools/list").status, 401)

    def test_the_url_is_the_daemons_own(self):
        """Not what the configuration says meanwhile: that may be anybody's port, and a token would go there."""
        token = self.daemon.token()
        entry = json.loads(self.asked("cursor", "--http", "--token", token, CAISSON_LISTEN="127.0.0.1:9")[0])["mcpServers"]["caisson"]
        self.assertEqual(entry["url"], f"http://127.0.0.1:{self.daemon.port}/mcp")
        self.assertEqual(self.api.get("/v1/version")["url"], f"http://127.0.0.1:{self.daemon.port}")
        other = Daemon(arguments=("--listen", "none"))
        self.addCleanup(other.close)
        other.start()
        self.assertIsNone(other.client().get("/v1/version")["url"])
        code, out, err = other.cli("mcp", "config", "cursor", "--http", "--token", token, environment={"CAISSON_LISTEN": f"127.0.0.1:{self.daemon.port}"})
        self.assertEqual((code, out), (125, ""))
        self.assertIn("--listen", err)
        code, out, err = other.cli("welcome")
        self.assertEqual(code, 0, err)
        self.assertIn("--listen", out)
        self.assertNotIn("http://", out)
        self.assertNotIn("Bearer", out)
        self.assertEqual(other.client().get("/v1/tokens")["tokens"], [])

    @long
    @busy
    def test_through_mcp_remote(self):
        """The snippet for a client that starts commands only, with the package as npm has it."""
        modules = installed(PACKAGES)
        entry = json.loads(self.asked("claude-desktop", "--http", "--token", self.daemon.token())[0])["mcpServers"]["caisson"]
        # What `npx -y` would fetch is where it runs.
        process = Stdio([entry["command"], *entry["args"]], {"PATH": os.environ["PATH"], "HOME": self.home, **entry["env"]}, cwd=modules)
        self.addCleanup(process.close)
        self.assertEqual(process.initialize("2025-06-18")["serverInfo"]["name"], "caisson")
        self.assertIn("sandbox", process.text("list_sandboxes", modern=False))
        process.process.stdin.close()
        process.process.wait(60)

    def test_options_are_passed_on(self):
        out, _ = self.asked("generic", "--name", "my-box", "--toolsets", "files,jobs", "--read-only", "--ephemeral")
        entry = json.loads(out)["mcpServers"]["my-box"]
        self.assertEqual(entry["args"], ["mcp", "--toolsets", "files,jobs", "--read-only", "--ephemeral"])
        names = [tool["name"] for tool in self.connect_stdio(entry).request("tools/list", modern=True)["tools"]]
        self.assertNotIn("run_shell", names)
        token = self.daemon.token()
        for arguments, path in ((("--toolsets", "files,jobs"), "/mcp/x/files,jobs"), (("--read-only",), "/mcp/readonly"),
                                (("--toolsets", "files", "--read-only"), "/mcp/x/files/readonly"), (("--dialect", "opensandbox"), "/mcp/opensandbox")):
            entry = json.loads(self.asked("generic", "--http", *arguments, CAISSON_TOKEN=token)[0])["mcpServers"]["caisson"]
            self.assertEqual(entry["url"], f"http://127.0.0.1:{self.daemon.port}{path}")
            answer = Mcp(Client(port=self.daemon.port), path).modern_send("tools/list", headers=entry["headers"])
            self.assertEqual(answer.status, 200)

    def test_refusals(self):
        for arguments, word in ((("emacs",), "claude-code"), ((), "client"), (("generic", "--write"), "printed"), (("cursor", "--http"), "token"),
                                (("cursor", "--name", "a b"), "--name"), (("cursor", "--http", "--token", "x", "--ephemeral"), "--ephemeral"),
                                (("cursor", "--http", "--token", 'a"b'), "token")):
            out, err = self.asked(*arguments, code=125)
            self.assertEqual(out, "")
            self.assertIn(word, err)
        out, _ = self.asked("--list")
        for client in CLIENTS:
            self.assertRegex(out, rf"(?m)^{client} ")
        self.assertEqual([row["name"] for row in json.loads(self.asked("--list", "--json")[0])], list(CLIENTS))

    def test_written_where_nothing_was(self):
        token = self.daemon.token()
        for client, (key, _, _) in CLIENTS.items():
            if client == "generic":
                continue
            for arguments in ((), ("--http", "--token", token)):
                with self.subTest(client, arguments=arguments):
                    out, err = self.asked(client, "--write", *arguments)
                    self.assertEqual((out, err), ("", f"{self.path(client)} was created.\n"))
                    self.assertEqual(parsed(client, self.read(client)), parsed(client, self.asked(client, *arguments)[0]))
                    self.assertIn("caisson", parsed(client, self.read(client))[key])
                    self.assertEqual(stat.S_IMODE(os.stat(self.path(client)).st_mode), 0o600)
                    self.assertIn("already", self.asked(client, "--write", *arguments)[1])
                    folder = os.path.dirname(self.path(client))
                    self.assertEqual([name for name in os.listdir(folder) if "caisson" in name], [])
                    os.remove(self.path(client))
        # Where the client itself looks.
        other = os.path.join(self.home, "elsewhere")
        self.asked("codex", "--write", CODEX_HOME=other)
        with open(os.path.join(other, "config.toml"), "rb") as file:
            self.assertIn("caisson", tomllib.load(file)["mcp_servers"])

    def test_an_existing_file_is_not_changed(self):
        for client, text in (("cursor", '{"mcpServers":{"other":{"command":"x"}}}'), ("cursor", '{"mcpServers":{"caisson":{"command":"mine"}}}'),
                             ("vscode", '{\n  // mine\n  "a": 1\n}\n'), ("zed", ""), ("gemini", "no"), ("windsurf", '{"mcpServers": 7}'), ("vscode", "[]"),
                             ("claude-code", '{"a": 1, "a": 2}'), ("codex", '# my settings\n[mcp_servers.caisson]\ncommand = "mine"\n'), ("codex", "")):
            with self.subTest(client, text=text):
                self.put(client, text)
                os.chmod(self.path(client), 0o644)
                self.left_alone(client)
                self.assertEqual(self.read(client), text)

    def test_an_entry_that_is_there(self):
        """However the file is laid out, as long as it is strict JSON."""
        entry = json.loads(self.asked("cursor")[0])["mcpServers"]["caisson"]
        whole = {"z": 1.5, "mcpServers": {"other": {"command": "x"}, "caisson": dict(reversed(entry.items()))}}
        for indent in (None, 4):
            text = json.dumps(whole, indent=indent)
            self.put("cursor", text)
            out, err = self.asked("cursor", "--write")
            self.assertEqual((out, err), ("", f"{self.path('cursor')} already has this entry.\n"))
            self.assertEqual(self.read("cursor"), text)
        self.left_alone("cursor", "--toolsets", "all")
        self.put("cursor", "// mine\n" + text)
        self.left_alone("cursor")

    def test_links_are_not_followed(self):
        target = os.path.join(self.home, "dotfiles.json")
        os.makedirs(os.path.dirname(self.path("cursor")))
        os.symlink(target, self.path("cursor"))
        self.left_alone("cursor")
        self.assertFalse(os.path.exists(target))
        with open(target, "w") as file:
            file.write('{"mine": true}')
        self.left_alone("cursor")
        with open(target) as file:
            self.assertEqual(file.read(), '{"mine": true}')

    def test_two_at_once(self):
        """One of them creates the file, whole; none replaces it."""
        names = [f"caisson-{number}" for number in range(8)]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            codes = list(pool.map(lambda name: self.daemon.cli("mcp", "config", "cursor", "--write", "--name", name, environment={"HOME": self.home})[0], names))
        self.assertEqual(sorted(codes), [0] + [1] * 7)
        self.assertEqual(list(json.loads(self.read("cursor"))["mcpServers"]), [names[codes.index(0)]])
        self.assertEqual(os.listdir(os.path.dirname(self.path("cursor"))), ["mcp.json"])

    @unittest.skipUnless(os.geteuid() == 0, "it is about root")
    def test_what_root_writes_is_the_users(self):
        os.chown(self.home, 65534, 65533)
        self.asked("vscode", "--write")
        owners = {}
        for folder, _, names in os.walk(self.home):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                owners[os.path.relpath(path, self.home)] = (os.stat(path).st_uid, os.stat(path).st_gid)
        self.assertEqual(owners, dict.fromkeys((".", ".config", ".config/Code", ".config/Code/User", ".config/Code/User/mcp.json"), (65534, 65533)))

    def test_no_room(self):
        """A directory in the file's place, a file in the directory's place, no home."""
        os.makedirs(self.path("cursor"))
        self.left_alone("cursor")
        with open(os.path.join(self.home, ".gemini"), "w"):
            pass
        self.assertIn("Not a directory", self.asked("gemini", "--write", code=125)[1])
        result = subprocess.run([PROGRAM, "mcp", "config", "zed", "--write"], capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(result.returncode, 125)
        self.assertIn("HOME", result.stderr)


if __name__ == "__main__":
    unittest.main()
