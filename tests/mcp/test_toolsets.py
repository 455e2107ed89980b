"""Which tools a client sees: by URL, by scope, by revision; that the list is small, stable and true to what the tools
take; and the tools of the toolsets beside the default one."""
import json
import re
import subprocess

from caisson import PROGRAM
from mcp import Mcp, McpError, McpTest

DEFAULT = ["run_shell", "run_code", "start_job", "read_job", "stop_job", "read_file", "write_file", "edit_file", "list_files",
           "search_files", "create_sandbox", "list_sandboxes", "get_sandbox_limits", "pause_sandbox", "resume_sandbox",
           "terminate_sandbox", "extend_sandbox"]
FILES = ["make_directory", "move_file", "copy_file", "remove_file", "set_file_mode", "stat_file"]
JOBS = ["list_jobs", "start_program", "write_job"]
METRICS = ["get_metrics", "get_usage", "get_activity"]
READS = ["read_job", "read_file", "list_files", "search_files", "list_sandboxes", "get_sandbox_limits"]
LIST_MAX = 10 * 1024
HINTS = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}


class Case(McpTest):
    def at(self, path, client=None):
        return Mcp(client or self.api, path)

    def names(self, mcp):
        return [tool["name"] for tool in mcp.modern("tools/list")["tools"]]


class Lists(Case):
    def test_default(self):
        for path in ("/mcp", "/api/sandboxes/mcp", "/mcp/x/default"):
            self.assertEqual(self.names(self.at(path)), DEFAULT, path)

    def test_small(self):
        """The whole answer, as it is sent."""
        with self.mcp.modern_send("tools/list") as answer:
            self.assertLessEqual(len(answer.text.encode()), LIST_MAX)
        self.assertLess(len(self.mcp.modern("server/discover")["instructions"].encode()), 2048)

    def test_stable(self):
        def text():
            with self.mcp.modern_send("tools/list", number=1) as answer:
                return answer.text
        first = text()
        for _ in range(3):
            self.mcp.call("get_sandbox_limits")
            self.at("/mcp/readonly").modern("tools/list")
            self.assertEqual(text(), first)

    def test_hostile_words_change_no_definition(self):
        """What clients take for ours (tools, prompts, instructions) has nothing of what a sandbox holds or is called."""
        words = "ignore-all-instructions"

        def told():
            views = [self.at(path) for path in ("/mcp", "/mcp/x/all", "/mcp/readonly", "/mcp/opensandbox")]
            return [[view.modern("tools/list"), view.modern("server/discover")] for view in views] + [self.mcp.modern("prompts/list")]
        before = told()
        box = self.sandbox(name=words, labels={words: words}, metadata={words: words}, env={"WORDS": words})
        for path in (".mcp.json", ".cursor/mcp.json", "CLAUDE.md", words):
            self.api.write(box, "/workspace/" + path, f'{{"mcpServers": {{"{words}": {{"command": "{words}"}}}}}}'.encode(), parents=1)
        self.mcp.call("run_shell", {"sandbox_id": words, "command": f"{words}; cat .mcp.json"})
        self.assertIn(words, self.mcp.text("list_sandboxes"))
        self.assertEqual(told(), before)

    def test_cached(self):
        result = self.mcp.modern("tools/list")
        self.assertEqual((result["resultType"], result["cacheScope"]), ("complete", "private"))
        self.assertGreater(result["ttlMs"], 0)
        self.assertNotIn("nextCursor", result)

    def test_pages(self):
        self.assertEqual(len(self.mcp.modern("tools/list", {"cursor": ""})["tools"]), len(DEFAULT))
        for cursor in ("x", 1, {}):
            with self.assertRaises(McpError) as caught:
                self.mcp.modern("tools/list", {"cursor": cursor})
            self.assertEqual(caught.exception.code, -32602)

    def test_form(self):
        for path in ("/mcp/x/all", "/mcp/admin"):
            for tool in self.at(path).modern("tools/list")["tools"]:
                self.assertRegex(tool["name"], r"^[a-z0-9_]{1,40}$")
                self.assertTrue(tool["title"] and tool["description"])
                self.assertEqual(set(tool["annotations"]), HINTS)
                self.assertFalse(tool["annotations"]["openWorldHint"])  # no sandbox has a network
                self.assertEqual(tool["inputSchema"]["type"], "object")
                for value in tool["inputSchema"]["properties"].values():
                    self.assertIn(value["type"], ("string", "integer", "number", "boolean", "object", "array"))

    def test_revisions(self):
        """What a revision does not have is not sent."""
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            session = self.mcp.session(version)
            result = session.request("tools/list")
            self.assertEqual(set(result), {"tools"})
            self.assertEqual([tool["name"] for tool in result["tools"]], DEFAULT)
            tool = result["tools"][DEFAULT.index("read_file")]
            expected = {"name", "description", "inputSchema"}
            if version >= "2025-03-26":
                expected.add("annotations")
            if version >= "2025-06-18":
                expected.add("title")
            self.assertEqual(set(tool), expected, version)
            if version == "2025-03-26":
                self.assertEqual(tool["annotations"]["title"], "Read a file")
            session.end()

    def test_schemas_are_true(self):
        """Every tool takes what its schema lists, and nothing else: as it says itself."""
        for path in ("/mcp/x/all", "/mcp/admin"):
            mcp = self.at(path)
            for tool in mcp.modern("tools/list")["tools"]:
                result = mcp.call(tool["name"], {"no_such_argument": 1})
                text = result["content"][0]["text"]
                self.assertTrue(result.get("isError"), tool["name"])
                accepted = re.search(r"Accepted arguments: (.*)\.\n", text)[1]
                accepted = set() if accepted == "none" else {word.split()[0] for word in accepted.split(", ")}
                self.assertEqual(accepted, set(tool["inputSchema"]["properties"]), tool["name"])
                self.assertIn(f"Example: {tool['name']} {{", text)


class Views(Case):
    def test_toolsets(self):
        for path, more in (("files", FILES), ("jobs", JOBS), ("metrics", METRICS), ("jobs,files", FILES + JOBS),
                           ("default,metrics", METRICS), ("sandboxes", []),
                           ("all", FILES + JOBS + METRICS)):
            self.assertEqual(self.names(self.at("/mcp/x/" + path)), DEFAULT + more, path)

    def test_no_such_toolset(self):
        for path in ("nope", "files,nope", "files,", "Files"):
            mcp = self.at("/mcp/x/" + path)
            with mcp.modern_send("tools/list") as answer:
                self.assertEqual(answer.status, 404)
                self.assertIn("there are default, files, jobs, metrics, ", answer.text)

    def test_names_are_told(self):
        """What an error lists is what there is, and the command's help has every name of it."""
        with self.at("/mcp/nope").modern_send("tools/list") as answer:
            self.assertEqual(answer.status, 404)
            faces = re.findall(r"/mcp/(\w+)(?=[,\"])", answer.text.split("/mcp/x/TOOLSETS")[1])
        with self.at("/mcp/x/nope").modern_send("tools/list") as answer:
            toolsets = re.search(r"there are ([a-z, ]+), with commas", answer.text)[1].split(", ")
        self.assertIn("opensandbox", faces)
        for face in faces:
            self.assertTrue(self.names(self.at("/mcp/" + face)), face)
        text = subprocess.run([PROGRAM, "mcp", "--help"], capture_output=True, text=True, timeout=30).stdout
        for name in faces + toolsets:
            self.assertRegex(text, rf"\b{name}\b")

    def test_not_shown_is_not_there(self):
        for path, tool in (("/mcp", "stat_file"), ("/mcp/x/files", "list_jobs"), ("/mcp/readonly", "create_sandbox"),
                           ("/mcp/x/all", "create_token"), ("/mcp/admin", "run_shell")):
            with self.assertRaises(McpError) as caught:
                self.at(path).call(tool, {})
            self.assertEqual(caught.exception.code, -32602)
            self.assertIn(f"unknown tool `{tool}`; there are: ", caught.exception.message)

    def test_read_only(self):
        self.assertEqual(self.names(self.at("/mcp/readonly")), READS)
        mcp = self.at("/mcp/x/all/readonly")
        self.assertEqual(self.names(mcp), READS + ["stat_file", "list_jobs"] + METRICS)
        self.assertTrue(all(tool["annotations"]["readOnlyHint"] for tool in mcp.modern("tools/list")["tools"]))
        instructions = mcp.modern("server/discover")["instructions"]
        self.assertIn("changes nothing", instructions)
        self.assertNotIn("create_sandbox", instructions)
        self.assertNotIn("create_sandbox", mcp.call("read_file", {"path": "x"})["content"][0]["text"])

    def test_scopes(self):
        """A token that may only read sees what reads; another tool is refused with what it lacks."""
        token = self.daemon.token(scopes=["sandboxes:read"])
        for client in (self.daemon.tcp(token),):
            reader = Mcp(client, "/mcp/x/all")
            self.assertEqual(self.names(reader), READS + ["stat_file", "list_jobs"] + METRICS)
            with reader.modern_send("tools/call", {"name": "create_sandbox", "arguments": {}}) as answer:
                self.assertEqual(answer.status, 403)
                self.assertIn('error="insufficient_scope", scope="sandboxes:write"', answer.headers["WWW-Authenticate"])
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])
        writer = Mcp(self.daemon.tcp(self.daemon.token()))
        self.assertEqual(self.names(writer), DEFAULT)

    def test_reading_wakes_nothing(self):
        box = self.sandbox()
        self.api.post(f"/v1/sandboxes/{box}/pause")
        reader = Mcp(self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])))
        result = reader.call("read_file", {"path": "/etc/passwd"})
        self.assertTrue(result["isError"])
        self.assertIn("paused", result["content"][0]["text"])
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], "paused")

    def test_a_read_only_view_wakes_nothing(self):
        """Whatever the token may do elsewhere, in both eras."""
        box = self.sandbox()
        calls = [(tool, {"sandbox_id": box, "path": "/etc"}) for tool in ("list_files", "stat_file", "read_file")]
        for state, action in (("paused", "pause"), ("stopped", "stop")):
            self.api.post(f"/v1/sandboxes/{box}/{action}")
            for client in (self.api, self.daemon.tcp(self.daemon.token())):
                mcp = Mcp(client, "/mcp/x/all/readonly")
                for tool, arguments in calls:
                    self.assertTrue(mcp.call(tool, arguments)["isError"], tool)
                with self.assertRaises(McpError):
                    mcp.modern("resources/read", {"uri": f"sandbox://{box}/files/etc/passwd"})
                session = mcp.session()
                self.assertTrue(session.request("tools/call", {"name": "list_files", "arguments": calls[0][1]})["isError"])
                session.end()
            self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], state)
            self.assertIn("passwd", self.at("/mcp").text("list_files", calls[0][1]))

    def test_legacy_sessions_have_their_view(self):
        session = self.at("/mcp/x/files").session()
        self.assertEqual([tool["name"] for tool in session.request("tools/list")["tools"]], DEFAULT + FILES)
        self.assertIn("move, copy, remove", session.result["instructions"])
        session.end()


class Further(Case):
    """The tools of the other toolsets."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mcp = Mcp(cls.api, "/mcp/x/all")
        cls.box = cls.api.create(name="box")["id"]

    def call(self, tool, **arguments):
        return self.mcp.text(tool, {"sandbox_id": "box", **arguments})

    def wrong(self, tool, **arguments):
        result = self.mcp.call(tool, {"sandbox_id": "box", **arguments})
        self.assertTrue(result.get("isError"), result)
        return result["content"][0]["text"]

    def run_in(self, command, box=None):
        return self.api.post(f"/v1/sandboxes/{box or self.box}/exec", {"cmd": command})["stdout"]

    def test_files(self):
        self.assertEqual(self.call("make_directory", path="a/b/c"), "made /workspace/a/b/c")
        self.assertEqual(self.call("make_directory", path="a/b/c"), "made /workspace/a/b/c")
        self.call("write_file", path="a/x", content="1")
        self.assertEqual(self.call("move_file", **{"from": "a/x", "to": "n/e/w"}), "moved /workspace/a/x to /workspace/n/e/w")
        self.call("write_file", path="a/x", content="2")
        self.assertIn("exists already", self.wrong("move_file", **{"from": "a/x", "to": "n/e/w"}))
        self.call("move_file", **{"from": "a/x", "to": "n/e/w", "replace": True})
        self.assertEqual(self.run_in("cat n/e/w"), "2")
        self.assertIn("recursive", self.wrong("copy_file", **{"from": "n", "to": "m"}))
        self.call("copy_file", **{"from": "n", "to": "m", "recursive": True})
        self.assertEqual(self.run_in("cat m/e/w"), "2")
        self.call("set_file_mode", path="m/e/w", mode="0640")
        self.assertRegex(self.call("stat_file", path="m/e/w"), r"^/workspace/m/e/w: file, 1 bytes, mode 0640, owner 0:0, changed \d{4}-")
        self.assertIn("not empty", self.wrong("remove_file", path="m"))
        self.assertEqual(self.call("remove_file", path="m", recursive=True), "removed /workspace/m")
        self.assertIn("no such file", self.wrong("stat_file", path="m"))
        self.run_in("ln -sf nowhere dangling")
        self.assertIn("symlink", self.call("stat_file", path="dangling"))
        for mode in ("999", "", "10000", "u+x", "07777777"):
            self.assertIn("mode", self.wrong("set_file_mode", path="n", mode=mode))

    def test_between_sandboxes(self):
        other = self.sandbox(name="other")
        self.call("write_file", path="share/one", content="1")
        self.assertIn(f"in sandbox {other}, 1 bytes",
                      self.call("copy_file", **{"from": "share", "to": "got", "recursive": True, "to_sandbox_id": "other"}))
        self.assertEqual(self.run_in("cat got/one", other), "1")
        self.assertIn("source", self.wrong("copy_file", **{"from": "none", "to": "x", "to_sandbox_id": "other"}))
        self.assertIn("there is no sandbox", self.wrong("copy_file", **{"from": "share", "to": "x", "to_sandbox_id": "nobody"}))
        self.api.post(f"/v1/sandboxes/{other}/pause")
        self.call("copy_file", **{"from": "share/one", "to": "again", "to_sandbox_id": "other"})
        self.assertEqual(self.run_in("cat again", other), "1")

    def test_programs(self):
        text = self.call("start_program", command="while read line; do echo \"got $line\"; done; echo over", env={"A": "1"})
        job = re.search(r"job_id: (\w+)", text)[1]
        told = self.mcp.text("write_job", {"job_id": job, "text": "hello\n"})
        arguments = json.loads(re.search(r"read_job (\{.*\})", told)[1])
        self.assertIn("got hello\n", self.mcp.text("read_job", arguments))
        self.assertIn(f"{job}: running, for ", self.call("list_jobs", running=True))
        told = self.mcp.text("write_job", {"job_id": job, "close": True})
        self.assertIn("standard input is closed", told)
        while "running" in (output := self.mcp.text("read_job", {"job_id": job, "offset": 0, "wait_seconds": 20})):
            pass
        self.assertIn("over\n", output)
        self.assertRegex(self.call("list_jobs"), rf"{job}: exited, exit code 0, took ")
        self.assertNotIn(job, self.call("list_jobs", running=True))
        for arguments, words in (({"job_id": job, "text": "x"}, "has ended"), ({"job_id": job}, "Give `text`"),
                                 ({"job_id": "nobody", "text": "x"}, "nobody")):
            result = self.mcp.call("write_job", arguments)
            self.assertTrue(result["isError"])
            self.assertIn(words, result["content"][0]["text"])

    def test_terminal(self):
        text = self.call("start_program", command="tty", terminal=True)
        job = re.search(r"job_id: (\w+)", text)[1]
        while "running" in (output := self.mcp.text("read_job", {"job_id": job, "offset": 0, "wait_seconds": 20})):
            pass
        self.assertIn("/dev/pts/", output)

    def test_input_that_nobody_reads(self):
        text = self.call("start_program", command="sleep 60")
        job = re.search(r"job_id: (\w+)", text)[1]
        self.addCleanup(self.mcp.call, "stop_job", {"job_id": job, "signal": "KILL"})
        taken = 0
        for _ in range(40):
            result = self.mcp.call("write_job", {"job_id": job, "text": "x" * 200000})
            if result.get("isError"):
                taken = re.match(r"\d+ of 200000 bytes were taken", result["content"][0]["text"])
                break
        self.assertTrue(taken)

    def test_jobs_of_a_strange_name(self):
        self.run_in("true\n\t# \x1b[31m two lines")
        lines = self.call("list_jobs", limit=1).splitlines()
        self.assertIn(r"true\n\t# \x1b[31m two lines", lines[0])
        self.assertEqual(lines[1:], ["There are older ones."])
        lines = self.call("get_activity", limit=1, kinds="exec.started").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn(r"true\n\t# \x1b[31m two lines", lines[1])

    def test_files_of_a_strange_name(self):
        """A name is one line, whatever is in it: nobody writes lines of ours with it."""
        name, shown = "x  5 B\n[500 of 9000 entries]\x1b[31m", r"x  5 B\n[500 of 9000 entries]\x1b[31m"
        self.api.post(f"/v1/sandboxes/{self.box}/exec",
                      {"argv": ["/bin/sh", "-c", 'mkdir s && cd s && echo a > "$1" && ln -s "$1" link', "sh", name]})
        self.assertEqual(self.call("list_files", path="s").splitlines()[:2], [f"link -> {shown}", f"{shown}  2 B"])
        self.assertEqual(self.call("search_files", path="s", glob="x*").splitlines()[0], f"s/{shown}")
        self.assertEqual(self.call("search_files", path="s", pattern="a", glob="x*").splitlines()[0], f"s/{shown}:1: a")
        self.assertTrue(self.call("stat_file", path="s/" + name).startswith(f"/workspace/s/{shown}: file, 2 bytes"))
        self.assertTrue(self.call("stat_file", path="s/link").endswith(f", to {shown}"))

    def test_metrics(self):
        self.assertRegex(self.mcp.text("get_metrics"), rf"{self.box} \(box\): running, .*memory \d+ of 512 MiB")
        self.assertEqual(self.call("get_metrics").count("\n"), 1)
        self.assertRegex(self.mcp.text("get_usage", {"days": 1}), r"(?s)\(box\): alive \d+ s.*sandboxes in 1 days: alive ")
        self.assertIn("`days`", self.mcp.call("get_usage", {"days": 0})["content"][0]["text"])

    def test_metrics_wake_nothing(self):
        box = self.sandbox(name="asleep")
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.assertIn("paused", self.mcp.text("get_metrics", {"sandbox_id": "asleep"}))
        self.mcp.text("get_activity", {"sandbox_id": "asleep"})
        self.mcp.text("list_jobs", {"sandbox_id": "asleep"})
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], "paused")

    def test_activity(self):
        box = self.sandbox(name="active")
        self.mcp.text("write_file", {"path": "seen.txt", "content": "x", "sandbox_id": box})
        text = self.mcp.text("get_activity", {"sandbox_id": "active"})
        self.assertIn("file.written by local:", text)
        self.assertIn("path seen.txt", text)
        self.assertNotIn("file.written", self.mcp.text("get_activity", {"sandbox_id": "active", "kinds": "sandbox"}))
        self.remove(box)
        self.assertRegex(self.mcp.text("get_activity", {"sandbox_id": "active", "limit": 1}), r"sandbox.ended by local:\d+, reason user")
        stranger = Mcp(self.daemon.tcp(self.daemon.token(workspace="strangers")), "/mcp/x/all")
        for tool in ("get_activity", "get_metrics", "list_jobs"):
            self.assertTrue(stranger.call(tool, {"sandbox_id": box})["isError"])
        self.assertEqual(stranger.text("get_metrics"), "No sandbox is live.")
