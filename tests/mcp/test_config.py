"""`caisson mcp config`: what it prints is parsed and connected with, exactly as it stands there; what it writes loses
nothing that was there."""
import json
import os
import random
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
TOML_GOOD = [
    'a = [\n["x"], # ]\n]\nb = """\n[m]\n"q" """\nc = {d = 1, e = [true]}\nf.g."h i" = 1979-05-27 07:32:00\n',
    'a = 1\n[b]\nc = "x\\u00e9\\n"\n[b.d]\ne = [1, 2, {f = 1}]\n[[g]]\nh = 1\n[[g]]\nh = 2\n[g.i]\nj = 1\n',
    "a.b.c = 1\na.b.d = 2\n[x]\ny.z = 1\n[x.y.q]\nr = 1\n[k.l.m]\n[k.l]\n[k]\n",
    "a = 1979-05-27T07:32:00Z\nb = 1979-05-27t00:32:00.99-07:00\nc = 2024-02-29 # leap\nd = 07:32:00\ne=00:32:00.5\n",
    "n = [0, -0, +99, 1_000, 0xDEAD_beef, 0o755, 0b1101, 1.5, -0.01, 5e+22, 1e06, -2E-2, inf, +inf]\n",
    's = """\\\n  a \\   \n b\\tc"""\nt = \'\'\'a\nb\'\'\'\nu = "\\"\\\\\\b\\U0001F600"\n\'k2\' = 2\n"" = 3\n1234 = 4\n3.14 = 5\nv = """"x"""""\n',
    'e = []\nf = {}\ng = [[], [[]], {}]\nh = [ # c\n 1, # d\n 2, # e\n]\ni = { j.k = 1, j.l = 2, "m n" = [ {o = 1}, {o = 2} ] }\n',
]
TOML_BROKEN = [
    # Values that are none.
    "a = 01\n", "a = 1__0\n", "a = 1_\n", "a = _1\n", "a = 0x\n", "a = 0xg\n", "a = 0X1\n", "a = +0x1\n", "a = 1.\n", "a = .5\n", "a = 1.e5\n", "a = 1e\n", "a = 1e1.5\n",
    "a = truer\n", "a = True\n", "a = tru\n", "a = info\n", "a = nil\n", "a = -true\n", "a = foo\n", "a = 1-2\n", "a = 1:2\n",
    "a = 2023-02-29\n", "a = 2023-13-01\n", "a = 2023-1-1\n", "a = 2023-01-01T\n", "a = 2023-01-01T25:00:00\n", "a = 2023-01-01 7:00:00\n", "a = 07:60:00\n", "a = 07:32\n", "a = 07:32:00.\n",
    "a = 07:32:00Z\n", "a = 2023-01-01T07:32:00+7\n", "a = 2023-01-01 07:32:00 x\n",
    # Strings.
    'a = "\\x"\n', 'a = "\\u12"\n', 'a = "\\ud800"\n', 'a = "\\U00110000"\n', 'a = "\x01"\n', "a = '\x7f'\n", 'a = "x\ry"\n', 'a = """x \\ y"""\n', 'a = """x""""""\n', '"""a""" = 1\n', 'a = "x" "y"\n',
    # Arrays and tables between brackets.
    "a = [,]\n", "a = [1,,2]\n", "a = [1 2]\n", "a = [1, = 2]\n", "a = [b = 1]\n", "a = [.]\n", "a = [foo]\n", "a = {b}\n", "a = {b = }\n", "a = {b = 1,}\n", "a = {,}\n", "a = {b = 1 c = 2}\n",
    "a = {b = 1\n}\n", "a = {\nb = 1}\n", "a = {1, 2}\n", "a = {b = {c = foo}}\n", "a = [1] ]\n", "a = {b = 1}}\n", "a = [{b = 1]}\n", "a = {b = 1 # c\n}\n",
    # Comments and line ends.
    "# x\x01\n", "a = 1 # x\x7f\n", "a = 1\rb = 2\n", "a = [1, # \x02\n]\n", "a = 1 b = 2\n", "[a] [b]\n", "\ufeffa = 1\n",
    # Keys and heads.
    "a b = 1\n", "a. = 1\n", ".a = 1\n", "a..b = 1\n", "\u00e9 = 1\n", "a\n", "a = 1 =\n", "[]\n", "[a.]\n", "[[a]\n", "[a]]\n", "[ [a] ]\n", "[[a] ]\n", "[a\n]\n", "[a=1]\n",
    # Named twice.
    "a = 1\na = 2\n", "a = 1\n'a' = 2\n", 'a = 1\n"\\u0061" = 2\n', "[a]\n[a]\n", "[a]\nb = 1\n[a]\nc = 1\n", "a = 1\n[a]\n", "a.b = 1\n[a]\n", "a.b = 1\na = 2\n", "a = 1\na.b = 2\n", "[a.b]\n[a]\nb.c = 1\n",
    "[a]\nb = 1\n[a.b]\n", "[[a]]\n[a]\n", "[a]\n[[a]]\n", "a = []\n[[a]]\n", "[a.b]\n[[a]]\n", "a = {b = 1}\n[a.c]\n", "a = {b = 1}\na.c = 1\n", "a = {b = 1, b = 2}\n", "a = {b.c = 1, b = 2}\n", "a = [{b = 1, b = 2}]\n",
    "[[a]]\nb = 1\nb = 2\n", "[[a]]\n[a.b]\n[a.b]\n", "[a]\nb.c = 1\n[a.b]\n",
]
JSON_CLIENTS = [name for name in CLIENTS if name not in ("codex", "generic")]


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
        for client, (key, _, _) in CLIENTS.items():
            if client == "generic":
                continue
            with self.subTest(client):
                out, err = self.asked(client, "--write")
                self.assertEqual(out, "")
                self.assertIn("was made", err)
                entry = parsed(client, self.read(client))[key]["caisson"]
                self.assertEqual(entry, parsed(client, self.asked(client)[0])[key]["caisson"])
                self.assertEqual(stat.S_IMODE(os.stat(self.path(client)).st_mode), 0o600)
                self.assertIn("already", self.asked(client, "--write")[1])
                self.assertEqual(os.listdir(os.path.dirname(self.path(client))).count(os.path.basename(self.path(client))), 1)

    def test_other_entries_are_kept(self):
        before = ('{"z":1.5,"a":[1,2,{"deep":null}],"pi":3.141592653589793,"tiny":0.1,"big":9007199254740993,"%s":{"other":{"command":"x"}},'
                  '"text":"\\u00e9\\ud83d\\ude00\\u0000/"}')
        for client in JSON_CLIENTS:
            with self.subTest(client):
                key = CLIENTS[client][0]
                self.put(client, before % key)
                os.chmod(self.path(client), 0o640)
                _, err = self.asked(client, "--write")
                self.assertIn(".caisson-backup", err)
                self.assertEqual(open(self.path(client) + ".caisson-backup").read(), before % key)
                now, was = json.loads(self.read(client)), json.loads(before % key)
                self.assertEqual(list(now), list(was))
                self.assertEqual(list(now[key]), ["other", "caisson"])
                del now[key]["caisson"]
                self.assertEqual(now, was)
                self.only_inserted(before % key, self.read(client))
                self.assertEqual(stat.S_IMODE(os.stat(self.path(client)).st_mode), 0o640)

    def modes(self, client):
        folder = os.path.dirname(self.path(client))
        return {name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}

    def test_others_read_no_token(self):
        for arguments in (("cursor", "--http", "--write"), ("windsurf", "--write"), ("codex", "--http", "--write"), ("claude-desktop", "--http", "--write")):
            with self.subTest(arguments):
                client, name = arguments[0], os.path.basename(CLIENTS[arguments[0]][2])
                self.put(client, "")
                os.chmod(self.path(client), 0o644)
                token = self.daemon.token()
                self.assertIn("others cannot read it any more (mode 600)", self.asked(*arguments, "--token", token)[1])
                self.assertIn(token, self.read(client))
                self.assertEqual(self.modes(client), {name: 0o600, name + ".caisson-backup": 0o600})
                # The one that has it already, and the backup of one that has.
                os.chmod(self.path(client), 0o644)
                self.assertIn("any more", self.asked(*arguments, "--token", token)[1])
                self.assertEqual(self.modes(client), {name: 0o600, name + ".caisson-backup": 0o600})
                self.assertNotIn("any more", self.asked(*arguments, "--token", token)[1])
                os.chmod(self.path(client), 0o644)
                self.asked(client, "--write", "--force", CAISSON_TOKEN="")
                self.assertNotIn(token, self.read(client))
                self.assertEqual(self.modes(client), {name: 0o644, name + ".caisson-backup": 0o600, name + ".caisson-backup.1": 0o600})

    @unittest.skipUnless(os.geteuid() == 0, "it is about root")
    def test_what_root_writes_is_the_users(self):
        os.chown(self.home, 65534, 65533)
        self.put("claude-code", "{}")
        os.chown(self.path("claude-code"), 65532, 65531)
        self.asked("claude-code", "--write")
        self.asked("vscode", "--write")
        owners = {}
        for folder, _, names in os.walk(self.home):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                owners[os.path.relpath(path, self.home)] = (os.stat(path).st_uid, os.stat(path).st_gid)
        user, other = (65534, 65533), (65532, 65531)
        self.assertEqual(owners, {".": user, ".claude.json": other, ".claude.json.caisson-backup": other, ".config": user, ".config/Code": user,
                                  ".config/Code/User": user, ".config/Code/User/mcp.json": user})

    def only_inserted(self, before, after):
        """Every byte that was there is there, in one piece before and one behind what is new."""
        start = len(os.path.commonprefix([before, after]))
        rest = before[start:]
        self.assertTrue(after.endswith(rest), (before, after))

    def test_byte_for_byte(self):
        """Numbers, tabs, line ends, the last newline, and the layout of what is beside it."""
        def value(text):
            return json.loads(text)["mcpServers"]["caisson"]
        wanted = json.loads(self.asked("cursor")[0])["mcpServers"]["caisson"]
        for before, line in (
                ('{\n\t"n": 0.1,\n\t"mcpServers": {\n\t\t"other": {"command": "x}"}\n\t},\n\t"e": 1E5\n}\n', '\n\t\t"caisson": {\n\t\t\t"'),
                ('{\n\t"n": 0.10\n}\n\n', '\n\t"mcpServers": {\n\t\t"caisson": {\n\t\t\t"'),
                ('{\r\n    "mcpServers": {}\r\n}\r\n', '\r\n        "caisson": {\r\n            "'),
                ('  {}\n', '{\n'), ('{ "a" : [ 1.0, {"mcpServers": {"b": 1}} ] }', ', "mcpServers": {"caisson": {"'),
                ('{"mcpServers":{}}', '{"mcpServers":{"caisson":{"'), ('{"n": 123456789012345678901234567890, "x": 1e-7}\n', '"mcpServers": {"'),
                ('{"a\\"b": "}{", "mcp\\u0053ervers": {"c": "\\\\"}}', '"c": "\\\\", "caisson": {"')):
            with self.subTest(before):
                self.put("cursor", before)
                self.asked("cursor", "--write")
                after = self.read("cursor")
                self.only_inserted(before, after)
                self.assertIn(line, after)
                self.assertEqual(value(after), wanted)
                self.assertEqual(value(after.replace("\r", "")), wanted)
                self.assertEqual(after.count("\r\n"), after.count("\n") if "\r" in before else 0)
                self.assertIn("already", self.asked("cursor", "--write")[1])
                self.assertEqual(self.read("cursor"), after)
        # In the place of another one.
        self.put("cursor", '{\n\t"mcpServers": {\n\t\t"caisson": {"command": "mine", "n": 1.10},\n\t\t"other": 1.50\n\t}\n}\n')
        self.asked("cursor", "--write", "--force")
        self.assertTrue(self.read("cursor").startswith('{\n\t"mcpServers": {\n\t\t"caisson": {\n\t\t\t"command"'))
        self.assertTrue(self.read("cursor").endswith('\n\t\t},\n\t\t"other": 1.50\n\t}\n}\n'))
        self.assertEqual(value(self.read("cursor")), wanted)

    def test_the_first_backup_stays(self):
        first = '{"mine": 1.10}\n'
        self.put("cursor", first)
        self.asked("cursor", "--write")
        second = self.read("cursor")
        _, err = self.asked("cursor", "--write", "--name", "two")
        self.assertIn(".caisson-backup.1", err)
        self.assertEqual(open(self.path("cursor") + ".caisson-backup").read(), first)
        self.assertEqual(open(self.path("cursor") + ".caisson-backup.1").read(), second)

    def test_what_cannot_be_kept_is_left_alone(self):
        for text, *words in (('{\n  // mine\n  "a": 1\n}\n', "comment", "line 2, column 3"), ('{"a": "//", /* x */ "b": 1}', "comment", "column 13"),
                             ('{"a": 1,\n}', "not JSON", "line 2"), ('{"a": 1, "a": 2}', "twice", "line 1"), ('[]', "object"),
                             ('{"servers": 7}', '"servers"', "not an object"), ('no', "not JSON"), ('{"n": 1e999}', "too large"),
                             ('\ufeff{}', "byte order mark")):
            self.put("vscode", text)
            out, err = self.asked("vscode", "--write", code=125)
            for word in ("left as it is", *words):
                self.assertIn(word, err)
            self.assertIn("caisson", json.loads(out)["servers"])
            self.assertEqual(self.read("vscode"), text)
            self.assertEqual(os.listdir(os.path.dirname(self.path("vscode"))), ["mcp.json"])

    def test_another_of_that_name(self):
        self.put("cursor", '{"mcpServers":{"caisson":{"command":"mine"}}}')
        out, err = self.asked("cursor", "--write", code=125)
        self.assertIn("--force", err)
        self.assertIn("mine", self.read("cursor"))
        self.asked("cursor", "--write", "--force")
        self.assertIn("mcp", json.loads(self.read("cursor"))["mcpServers"]["caisson"]["args"])

    def test_a_link_stays_one(self):
        real = os.path.join(self.home, "dotfiles.json")
        open(real, "w").write('{"mine": true}')
        os.makedirs(os.path.dirname(self.path("cursor")))
        os.symlink(real, self.path("cursor"))
        self.asked("cursor", "--write")
        self.assertTrue(os.path.islink(self.path("cursor")))
        self.assertEqual(list(json.load(open(real))), ["mine", "mcpServers"])

    def test_toml(self):
        before = '# my settings\nmodel = "o9"\n\n[mcp_servers.other]\ncommand = "x" # kept\n\n[tui]\ntheme = "dark"'
        self.put("codex", before)
        self.asked("codex", "--write")
        text = self.read("codex")
        self.assertTrue(text.startswith(before + "\n"))
        now = tomllib.loads(text)
        self.assertEqual((now["model"], now["mcp_servers"]["other"]["command"], now["tui"]), ("o9", "x", {"theme": "dark"}))
        self.assertEqual(now["mcp_servers"]["caisson"]["args"], ["mcp"])
        self.assertIn("already", self.asked("codex", "--write")[1])
        # Another one of that name, with tables below it, in the middle.
        self.put("codex", '[mcp_servers.caisson]\ncommand = "mine"\n\n[mcp_servers.caisson.env]\nA = "b"\n\n[tui]\ntheme = "dark"\n')
        _, err = self.asked("codex", "--write", code=125)
        self.assertIn("--force", err)
        self.asked("codex", "--write", "--force", "--name", "caisson")
        now = tomllib.loads(self.read("codex"))
        self.assertEqual((now["mcp_servers"]["caisson"]["args"], now["tui"]), (["mcp"], {"theme": "dark"}))
        for text in ("mcp_servers = {}\n", "mcp_servers.caisson.command = 'x'\n", "[mcp_servers]\n"):
            self.put("codex", text)
            out, err = self.asked("codex", "--write", code=125)
            self.assertIn("left as it is", err)
            self.assertIn("caisson", tomllib.loads(out)["mcp_servers"])
            self.assertEqual(self.read("codex"), text)
        # What is no TOML, and with what; a head within a value is none.
        for text, *words in (('a = "x\n', "line 1", "string"), ('b = 1\n[tui\nx = 1\n', "line 2", "head"), ("a = [1,\n2\n", "bracket"), ("a = '''x\n", "string"),
                             ("just words\n", "line 1"), ("a = 1 2\n", "behind"), ("a =\n", "missing"), ("a = [1}\n", "bracket"), ("[a] b\n", "behind"), ("= 1\n", "key")):
            self.put("codex", text)
            with self.assertRaises(tomllib.TOMLDecodeError):
                tomllib.loads(text)
            _, err = self.asked("codex", "--write", code=125)
            for word in ("left as it is", "not TOML", *words):
                self.assertIn(word, err)
            self.assertEqual(self.read("codex"), text)
        good = ('a = [\n["x"], # ]\n]\nb = """\n[mcp_servers.caisson]\n"q" """\nc = {d = 1, e = [true]}\nf.g."h i" = 1979-05-27 07:32:00\n'
                "i = 'x\\'\nj = -inf\nk = 1_000.5e3\n[[l]]\nm = ''''x''''\n[mcp_servers.\"o p\"]\r\ncommand = \"x\"\r\n")
        tomllib.loads(good)
        self.put("codex", good)
        self.asked("codex", "--write")
        with open(self.path("codex"), newline="") as file:
            self.assertTrue(file.read().startswith(good))
        self.assertEqual(tomllib.loads(self.read("codex"))["mcp_servers"]["caisson"]["args"], ["mcp"])
        # What stands behind a server that is replaced is not its own.
        self.put("codex", '[mcp_servers.caisson]\ncommand = "mine"\nargs = [\n["x"],\n]\n\n# of the next\n[tui]\n')
        self.asked("codex", "--write", "--force")
        self.assertTrue(self.read("codex").endswith("\n\n# of the next\n[tui]\n"))
        self.assertNotIn('["x"]', self.read("codex"))
        # Where the client itself looks.
        other = os.path.join(self.home, "elsewhere")
        os.mkdir(other)
        self.asked("codex", "--write", CODEX_HOME=other)
        self.assertIn("caisson", tomllib.load(open(os.path.join(other, "config.toml"), "rb"))["mcp_servers"])

    def tried(self, text):
        """Whether it was written to; what is not TOML, or could not stay it, is left as it is."""
        self.put("codex", text)
        got, _, err = self.daemon.cli("mcp", "config", "codex", "--write", environment={"HOME": self.home, "CODEX_HOME": ""})
        self.assertIn(got, (0, 125), err)
        try:
            before = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            self.assertEqual((got, self.read("codex")), (125, text))
            self.assertIn("not TOML", err)
            return False
        if got == 0:
            now = tomllib.loads(self.read("codex"))
            self.assertEqual(now.pop("mcp_servers")["caisson"]["args"], ["mcp"])
            before.pop("mcp_servers", None)
            self.assertEqual(now, before)
        else:
            self.assertEqual(self.read("codex"), text)
            self.assertNotIn("not TOML", err)
        return got == 0

    def test_toml_that_is_none(self):
        for text in TOML_BROKEN:
            with self.subTest(text=text):
                self.assertRaises(tomllib.TOMLDecodeError, tomllib.loads, text)
                self.assertFalse(self.tried(text))
        for text in TOML_GOOD:
            with self.subTest(text=text):
                self.assertTrue(self.tried(text))
        self.put("codex", "")
        with open(self.path("codex"), "wb") as file:
            file.write(b'a = "\xff"\n')
        self.assertIn("UTF-8", self.asked("codex", "--write", code=125)[1])

    def test_toml_with_servers_in_other_words(self):
        """The entry cannot stand beside them: the result would be no TOML."""
        for text in ('["mcp_servers".caisson]\n', "['mcp_servers'.'caisson']\n", '[mcp_servers . caisson]\n', '[[mcp_servers.caisson]]\n', '[[mcp_servers]]\n',
                     '"mcp\\u005fservers" = 1\n', "[['mcp_servers']]\n", "[mcp_servers.'caisson']\n", '["mcp_servers"]\ncaisson = {}\n'):
            with self.subTest(text=text):
                tomllib.loads(text)
                self.assertFalse(self.tried(text))
        # What is between a server's tables is not its own.
        text = "[mcp_servers.caisson]\ncommand = 'mine'\n[tui]\na = 1\n[mcp_servers.caisson.env]\nA = 'b'\n"
        self.put("codex", text)
        self.assertIn("between", self.asked("codex", "--write", "--force", code=125)[1])
        self.assertEqual(self.read("codex"), text)

    def test_toml_as_another_reads_it(self):
        """Texts with a few bytes changed, the same ones every time: python's parser has the word."""
        choose = random.Random(20)
        pieces = list("\"'\\[]{}=.,#\n\r\t -+_:eExouT01aftn\x7f\x01") + ['"""', "\'\'\'", "[[", "]]", "\n[b]\n", "\n[[b]]\n", "\na = 1\n", "\na.b = 1\n", "{a=1}", "\\u0041", "_1", "e5", "Z"]
        written = 0
        for _ in range(40):
            text = choose.choice(TOML_GOOD)
            for _ in range(choose.choice((1, 1, 2))):
                at = choose.randrange(len(text) + 1)
                text = text[:at] + (choose.choice(pieces) if choose.random() < 0.6 else "") + text[at + choose.choice((0, 1)):]
            with self.subTest(text=text):
                written += self.tried(text)
        self.assertGreater(written, 3)

    def test_no_room(self):
        """A directory that cannot be written to, a file that is none."""
        os.makedirs(self.path("cursor"))
        self.assertIn("no file", self.asked("cursor", "--write", code=125)[1])
        result = subprocess.run([PROGRAM, "mcp", "config", "zed", "--write"], capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(result.returncode, 125)
        self.assertIn("HOME", result.stderr)


if __name__ == "__main__":
    unittest.main()
