"""The tools on sandboxes and files, as a model uses them: what each answers, which sandbox is meant when none is named,
and that every error says what was wrong and what to do instead."""
import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

from caisson import PROGRAM, Daemon, wait_until
from mcp import Mcp, McpError, McpTest, meta

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


class Case(McpTest):
    def text(self, tool, mcp=None, **arguments):
        return (mcp or self.mcp).text(tool, arguments)

    def wrong(self, tool, mcp=None, **arguments):
        """The text of a result that is an error."""
        result = (mcp or self.mcp).call(tool, arguments)
        self.assertTrue(result.get("isError"), result)
        return "\n".join(block["text"] for block in result["content"])

    def create(self, **arguments):
        text = self.text("create_sandbox", **arguments)
        sandbox = re.search(r"sandbox_id: (\w+)", text)[1]
        self.addCleanup(self.remove, sandbox)
        return sandbox, text


class Sandboxes:
    def test_create(self):
        sandbox, text = self.create(name="made", cpu=0.5, memory_mb=256, timeout_seconds=300, env={"A": "b", "N": 1},
                                    metadata={"purpose": "test"}, network="off")
        record = self.api.get("/v1/sandboxes/" + sandbox)
        self.assertEqual((record["name"], record["cpu"], record["memory_mb"], record["timeout_seconds"], record["metadata"]),
                         ("made", 0.5, 256, 300, {"purpose": "test"}))
        self.assertEqual(self.api.post(f"/v1/sandboxes/{sandbox}/exec", {"cmd": "echo $A$N"})["stdout"], "b1\n")
        self.assertIn("name: made\n", text)
        self.assertIn("0.5 cpu, 256 MiB memory", text)
        self.assertNotIn("Warning", text)

    def test_sizes(self):
        sandbox, _ = self.create(size="small")
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["memory_mb"], 512)

    def test_template_of_another_service(self):
        """It is made all the same, and the answer says what it really is."""
        _, text = self.create(template="python-3.12", region="fsn1")
        self.assertIn("Warning: template `python-3.12` is not installed; `host` stands for it", text)
        self.assertIn("region `fsn1` was not used", text)
        self.assertIn("template host", text)

    def test_what_models_write(self):
        """Numbers, truths and objects as text are what they say."""
        sandbox, _ = self.create(cpu="0.5", memory_mb="128", timeout_seconds=60.0, env='{"A": "1"}')
        record = self.api.get("/v1/sandboxes/" + sandbox)
        self.assertEqual((record["cpu"], record["memory_mb"], record["timeout_seconds"]), (0.5, 128, 60))
        self.assertEqual(self.api.post(f"/v1/sandboxes/{sandbox}/exec", {"cmd": "echo $A"})["stdout"], "1\n")
        for bad in ({"cpu": "much"}, {"memory_mb": "1e3x"}, {"env": '{"A":1}}'}, {"env": '1,"v":2'}, {"env": "[]"},
                    {"timeout_seconds": "-1"}, {"timeout_seconds": 60.5}, {"name": 5}, {"cpu": True}):
            self.assertIn(f"`{next(iter(bad))}`", self.wrong("create_sandbox", **bad), bad)

    def test_refusals(self):
        for arguments, words in (
                ({"size": "huge"}, "small, medium or large"),
                ({"network": "open"}, "network `open` is not available"),
                ({"network": "restricted"}, "no network"),
                ({"network": "lan"}, "must be `off`"),
                ({"timeout_seconds": 5}, "10 to"),
                ({"cpu": 0}, "`cpu` must be 0.01 to 256"),
                ({"memory_mb": 1}, "16 to"),
                ({"memory_mb": 4000000}, "memory_mb is 4000000; it must be 16 to"),
                ({"name": "No Name"}, "`name`"),
                ({"template": "windows"}, "template `windows` is not known; known are host"),
                ({"env": {"A=B": "c"}}, "cannot be a variable's name"),
                ({"env": {"A": [1]}}, "must be a string"),
                ({"metadata": {str(i): "" for i in range(65)}}, "at most 64"),
                ({"timeout": 60}, "unknown field `timeout`; did you mean `timeout_seconds`?"),
                ({"image": "x"}, "Accepted arguments: template, size, cpu")):
            text = self.wrong("create_sandbox", **arguments)
            self.assertIn(words, text)
            self.assertTrue("Example: create_sandbox {" in text, text)
        self.assertEqual(self.text("list_sandboxes").strip(), "No sandbox is live.")

    def test_disk(self):
        """What the advice for a full disk names is taken."""
        sandbox, text = self.create(disk_mb=64)
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["disk_mb"], 64)
        self.assertIn("64 MiB disk", text)
        self.assertIn("`disk_mb`", self.wrong("create_sandbox", disk_mb=1))
        self.assertIn("stands for a fresh sandbox", self.wrong("create_sandbox", name="new"))

    def test_extend(self):
        """One of the default tools; in its last two minutes a sandbox names the call."""
        api = self.daemon.tcp(self.daemon.token("extended"))
        more = Mcp(api)
        sandbox = re.search(r"sandbox_id: (\w+)", self.text("create_sandbox", mcp=more, timeout_seconds=60, name="short"))[1]
        self.addCleanup(api.delete, "/v1/sandboxes/" + sandbox)
        told = self.text("run_shell", mcp=more, command="true")
        self.assertRegex(told, rf"sandbox {sandbox} ends in \d+ s with its files; for more time: extend_sandbox ")
        self.text("extend_sandbox", mcp=more, **{**json.loads(re.search(r"extend_sandbox (\{.*\})", told)[1]), "timeout_seconds": 1800})
        self.assertNotIn("ends in", self.text("run_shell", mcp=more, command="true"))
        text = self.text("extend_sandbox", mcp=more, timeout_seconds=3600, name="long", labels={"a": "b"})
        self.assertRegex(text, rf"sandbox {sandbox} \(long\): running, .*, ends in (59|60) min")
        record = api.get("/v1/sandboxes/" + sandbox)
        self.assertEqual((record["timeout_seconds"], record["name"], record["labels"]), (3600, "long", {"a": "b"}))
        for arguments, words in (({}, "`timeout_seconds`"), ({"sandbox_id": "long"}, "`timeout_seconds`"),
                                 ({"sandbox_id": "long", "timeout_seconds": -1}, "`timeout_seconds`"),
                                 ({"sandbox_id": "long", "name": "new"}, "another name"),
                                 ({"sandbox_id": "long", "name": "No"}, "a-z"),
                                 ({"sandbox_id": "long", "labels": {"": "x"}}, "label"),
                                 ({"sandbox_id": "none", "timeout_seconds": 5}, "no sandbox `none`")):
            self.assertIn(words, self.wrong("extend_sandbox", mcp=more, **arguments), arguments)
        self.assertEqual(api.get("/v1/sandboxes/" + sandbox)["timeout_seconds"], 3600)
        self.assertNotIn("ends in", self.text("extend_sandbox", mcp=more, sandbox_id="long", timeout_seconds=0))
        self.assertIsNone(api.get("/v1/sandboxes/" + sandbox)["timeout_seconds"])

    def test_name_taken(self):
        self.create(name="mine")
        self.assertIn("Work in it by that name", self.wrong("create_sandbox", name="mine"))

    def made(self, began, pattern, text):
        """An age is said that is true: no more than the time since `began`."""
        self.assertRegex(text, pattern)
        self.assertLessEqual(int(re.search(pattern, text)[1]), time.monotonic() - began)

    def test_life(self):
        began = time.monotonic()
        sandbox, _ = self.create(name="living")
        self.made(began, rf"{sandbox} \(living\): paused, made (\d+) s ago, its time stands still",
                  self.text("pause_sandbox", sandbox_id="living"))
        self.assertIn("paused", self.text("pause_sandbox", sandbox_id=sandbox))
        self.assertIn("running", self.text("resume_sandbox", sandbox_id="living"))
        self.text("pause_sandbox", sandbox_id="living")
        self.assertIn("wrote", self.text("write_file", path="x", content="y"))  # it wakes
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["state"], "running")
        self.api.post(f"/v1/sandboxes/{sandbox}/stop")
        self.assertIn("running", self.text("resume_sandbox", sandbox_id="living"))
        self.assertIn("is terminated", self.text("terminate_sandbox", sandbox_id="living"))
        self.assertIn("nothing was left to terminate", self.text("terminate_sandbox", sandbox_id="living"))
        self.assertIn("ended at", self.wrong("pause_sandbox", sandbox_id=sandbox))

    def test_must_be_named(self):
        """Not even the only one is terminated, paused or resumed without a name."""
        sandbox, _ = self.create()
        for tool in ("terminate_sandbox", "pause_sandbox", "resume_sandbox"):
            for arguments in ({}, {"sandbox_id": ""}, {"sandbox_id": None}):
                self.assertIn(sandbox, self.wrong(tool, **arguments))
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["state"], "running")

    def test_limits(self):
        text = self.text("get_sandbox_limits")
        for words in ("sizes: small (1 cpu, 512 MiB)", "default: ", "maximum: ", "templates: host", "network: off", "regions: local"):
            self.assertIn(words, text)
        self.assertIn("Accepted arguments: none", self.wrong("get_sandbox_limits", verbose=True))

    def test_list(self):
        began = time.monotonic()
        ids = [self.create(name=f"listed-{number}")[0] for number in range(2)]
        lines = self.text("list_sandboxes").splitlines()
        self.assertEqual([line.split(":")[0] for line in lines], [f"{ids[0]} (listed-0)", f"{ids[1]} (listed-1)"])
        self.made(began, r"running, made (\d+) s ago, ends in (?:10|9) min", lines[0])  # ten, less what has passed
        self.text("terminate_sandbox", sandbox_id=ids[0])
        text = self.text("list_sandboxes", ended=True)
        self.assertRegex(text, rf"{ids[0]} \(listed-0\): ended \S+ \(user\)")
        self.assertNotIn(ids[0], self.text("list_sandboxes"))

    def test_budget(self):
        self.api.put("/v1/workspaces/default/budgets", {"budgets": [{"what": "sandboxes", "period": "now", "maximum": 1}]})
        self.addCleanup(self.api.delete, "/v1/workspaces/default/budgets")
        self.create()
        self.assertIn("sandboxes", self.wrong("create_sandbox"))
        self.assertIn("budget sandboxes/now: 1 of 1 used", self.text("get_sandbox_limits"))


class Which:
    """Which sandbox is meant."""

    def test_none(self):
        text = self.wrong("read_file", path="x")
        self.assertIn("No sandbox is live. Make one with create_sandbox {}.", text)

    def test_only_one(self):
        sandbox, _ = self.create(name="alone")
        self.assertIn(f"[sandbox {sandbox} (alone)]", self.text("write_file", path="x", content="1"))
        self.assertIn(f"sandbox {sandbox} (alone)", self.text("read_file", path="x"))
        self.assertIn(f"sandbox {sandbox} (alone)", self.text("read_file", path="x", sandbox_id=""))
        for name in (sandbox, "alone"):
            self.assertEqual(self.text("read_file", path="x", sandbox_id=name), "1")

    def test_several(self):
        ids = [self.create()[0] for _ in range(2)]
        text = self.wrong("read_file", path="x")
        self.assertIn("there are 2 sandboxes: say in `sandbox_id` which is meant. Live sandboxes:\n", text)
        for sandbox in ids:
            self.assertIn(f"\n{sandbox}: running", text)
        # The call as it came, with what it lacked.
        self.assertEqual(text.splitlines()[-1], 'Example: read_file {"path":"x","sandbox_id":"%s"}' % ids[-1])
        # Other examples too name one that is there: the one that was meant, if one was.
        for tool in ("terminate_sandbox", "pause_sandbox"):
            for arguments in ({}, {"sandbox_id": "typo"}):
                self.assertIn(f'Example: {tool} {{"sandbox_id":"{ids[-1]}"}}', self.wrong(tool, **arguments))
        for tool, example, arguments in (
                ("run_shell", {"command": "ls -la /workspace"}, {"command": "true", "cwd": "/missing"}),
                ("run_shell", {"command": "ls -la /workspace"}, {"command": "true", "nonsense": 1}),
                ("run_code", {"language": "python", "code": "print(6 * 7)"}, {"language": "cobol", "code": "x"})):
            for sandbox in ids:
                text = self.wrong(tool, **arguments, sandbox_id=sandbox)
                self.assertEqual(json.loads(text.split(f"Example: {tool} ")[1]), {**example, "sandbox_id": sandbox})
        text = self.wrong("run_shell", command="true", nonsense=1)
        self.assertEqual(json.loads(text.split("Example: run_shell ")[1])["sandbox_id"], ids[-1])
        self.text("run_shell", **json.loads(text.split("Example: run_shell ")[1]))
        text = self.wrong("write_file", path="x", content="y" * 5000)
        self.assertEqual(text.splitlines()[-1], f'Example: the same with "sandbox_id":"{ids[-1]}"')

    def test_unknown(self):
        sandbox, _ = self.create()
        for name in ("nobody", "aaaaaaaaaaaaaaaa", "No Such", "x" * 64, "x" * 5000, "../../etc", "\x01"):
            text = self.wrong("read_file", path="x", sandbox_id=name)
            self.assertIn(f"Live sandboxes:\n{sandbox}: running", text)
            self.assertLess(len(text), 1000)

    def test_ended(self):
        sandbox, _ = self.create(name="gone")
        self.remove(sandbox)
        for name in (sandbox, "gone"):
            text = self.wrong("read_file", path="x", sandbox_id=name)
            self.assertRegex(text, r"ended at \d{4}-\S+Z \(user\)\. Its files and processes are gone\.")
            self.assertIn("create_sandbox {}", text)

    def test_bound_token(self):
        """It works in its own, says so, and sees no other."""
        mine, other = self.create(name="bound")[0], self.create(name="other")[0]
        token = self.daemon.token(sandbox=mine)
        bound = Mcp(self.daemon.tcp(token))
        self.assertIn(f"[sandbox {mine} (bound)]", self.text("write_file", mcp=bound, path="x", content="1"))
        self.assertEqual(self.text("list_sandboxes", mcp=bound).count("\n"), 1)
        for name in (other, "other"):
            text = self.wrong("read_file", mcp=bound, path="x", sandbox_id=name)
            self.assertIn(f"This token is for sandbox {mine} alone", text)
            self.assertNotIn(f'"{other}"', text.split("Example:")[1])
        self.assertIn("cannot make another", self.wrong("create_sandbox", mcp=bound))
        self.assertIn("`sandbox_id` is missing", self.wrong("terminate_sandbox", mcp=bound))

    def test_another_workspace(self):
        """What is another's is not there: not in lists, not in errors, not by id or name."""
        theirs, _ = self.create(name="theirs")
        stranger = Mcp(self.daemon.tcp(self.daemon.token(workspace="strangers")))
        self.assertEqual(self.text("list_sandboxes", mcp=stranger, ended=True).splitlines()[0], "No sandbox is live.")
        for tool, more in (("read_file", {"path": "x"}), ("terminate_sandbox", {}), ("pause_sandbox", {})):
            for name in (theirs, "theirs"):
                text = self.wrong(tool, mcp=stranger, sandbox_id=name, **more)
                self.assertIn(f"there is no sandbox `{name}`. No sandbox is live.", text)
        self.assertEqual(self.api.get("/v1/sandboxes/" + theirs)["state"], "running")

    def ephemeral(self):
        """What calls a tool through a connection whose sandboxes end with it; after it, and so before the next test."""
        made = set()

        def gone():
            wait_until(lambda: not made & {item["id"] for item in self.api.get("/v1/sandboxes")["items"]}, what="their end")
        self.addCleanup(gone)
        process = subprocess.Popen([PROGRAM, "mcp", "--ephemeral"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **self.daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0"},
                                   **self.daemon.identity())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.stdin.close)

        def call(tool, **arguments):
            params = {"name": tool, "arguments": arguments, "_meta": meta()}
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n")
            process.stdin.flush()
            result = json.loads(process.stdout.readline())["result"]
            made.update(re.findall(r"sandbox_id: (\w+)", result["content"][0]["text"]))
            return result
        return call

    def test_anothers_connection(self):
        """What ends with a connection is not meant by another one that names none, whichever it is."""
        first, second = self.ephemeral(), self.ephemeral()
        theirs = re.search(r"sandbox_id: (\w+)", first("create_sandbox")["content"][0]["text"])[1]
        for call in (second, lambda tool, **arguments: self.mcp.call(tool, arguments)):
            result = call("write_file", path="x", content="1")
            self.assertTrue(result.get("isError"), result)
            self.assertIn("by another connection", result["content"][0]["text"])
            self.assertIn(theirs, result["content"][0]["text"])
            self.assertIn("gone now", call("run_shell", command="echo fresh")["content"][0]["text"])
        self.assertIn(f"[sandbox {theirs}]", first("write_file", path="x", content="1")["content"][0]["text"])
        # Beside it the one that nobody's connection ends is meant.
        shared, _ = self.create()
        self.assertIn(f"[sandbox {shared}]", second("write_file", path="x", content="1")["content"][0]["text"])
        self.assertIn(f"[sandbox {theirs}]", first("write_file", path="x", content="1")["content"][0]["text"])

    def test_a_new_one(self):
        """A fresh sandbox can be asked for while one lives."""
        self.create()
        self.assertIn("gone now", self.text("run_shell", command="ls", sandbox_id="new"))
        self.assertIn("gone now", self.text("run_code", language="bash", code="ls", sandbox_id="new"))
        self.assertIn("context_id", self.wrong("run_code", language="bash", code="ls", sandbox_id="new", context_id="x"))
        self.assertIn("no sandbox `new`", self.wrong("read_file", path="x", sandbox_id="new"))

    def test_own_of_a_connection(self):
        """Where sandboxes end with the connection, the one that was made through it is meant."""
        for name in ("before-1", "before-2"):
            self.create(name=name)
        call = self.ephemeral()
        self.assertTrue(call("write_file", path="x", content="1")["isError"])
        made = call("create_sandbox")["content"][0]["text"]
        self.assertIn("or with this connection", made)
        own = re.search(r"sandbox_id: (\w+)", made)[1]
        self.assertIn(f"[sandbox {own}]", call("write_file", path="x", content="1")["content"][0]["text"])

    def test_one_shots_are_not_meant(self):
        """A sandbox that a one-shot run made for itself is nobody else's."""
        client = Mcp(self.daemon.client())
        with client.modern_send("tools/call", {"name": "run_shell", "arguments": {"command": "sleep 1000"}}) as answer:
            wait_until(lambda: self.api.get("/v1/sandboxes")["items"], 20, what="the one-shot's sandbox")
            self.assertIn("No sandbox is live", self.wrong("read_file", path="x"))
        wait_until(lambda: not self.api.get("/v1/sandboxes")["items"], what="its end")


class Interrupted:
    """The sandbox goes, or the client does, while a tool is at it."""

    def test_sandbox_deleted_under_a_search(self):
        box = self.sandbox()
        self.api.post(f"/v1/sandboxes/{box}/exec", {"cmd": "for i in $(seq 60); do head -c 1000000 /dev/urandom > f$i; done"})
        with self.mcp.modern_send("tools/call", {"name": "search_files", "arguments": {
                "pattern": "(a|b|c)*d(e|f)*zzzz", "sandbox_id": box}}) as answer:
            self.remove(box)
            result = answer.rest()[-1]
        self.assertIn("result", result)
        self.assertEqual(self.text("list_sandboxes").strip(), "No sandbox is live.")

    def test_client_gone(self):
        """A client that goes while a sandbox is woken, or a file is read: nothing is left of it, and the next works."""
        box = self.sandbox()
        for _ in range(10):
            wait_until(lambda: not self.mcp.call("pause_sandbox", {"sandbox_id": box}).get("isError"), 20, what="the pause")
            for tool, arguments in (("read_file", {"path": "/etc/passwd"}), ("search_files", {"pattern": "x", "path": "/usr/share"}),
                                    ("write_file", {"path": "x", "content": "y"})):
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                    "name": tool, "arguments": {**arguments, "sandbox_id": box}, "_meta": {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}
                self.begin_and_leave(message, tool)
        self.assertIn("root", self.text("read_file", path="/etc/passwd", sandbox_id=box))

    def begin_and_leave(self, message, tool):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(os.path.join(self.daemon.runtime, "caisson.sock"))
        body = json.dumps(message).encode()
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
                           b"Mcp-Method: tools/call\r\nMcp-Name: " + tool.encode() +
                           b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        connection.close()

    def test_sandbox_ends_while_it_is_woken(self):
        box = self.sandbox()
        self.text("pause_sandbox", sandbox_id=box)
        with self.mcp.modern_send("tools/call", {"name": "read_file", "arguments": {"path": "/etc/passwd", "sandbox_id": box}}) as answer:
            self.remove(box)
            self.assertIn("result", answer.rest()[-1])


class Calls:
    """tools/call itself."""

    def refused(self, params):
        with self.assertRaises(McpError) as caught:
            self.mcp.modern("tools/call", params, headers={"Mcp-Name": params.get("name") if isinstance(params.get("name"), str) else None})
        self.assertEqual((caught.exception.code, caught.exception.status), (-32602, 200), caught.exception)
        return caught.exception.message

    def test_unknown(self):
        self.assertIn("unknown tool `nope`; there are: run_shell, run_code", self.refused({"name": "nope"}))
        self.assertLess(len(self.refused({"name": "n" * 2000})), 1000)

    def test_arguments(self):
        for arguments in ([], "x", 1, True):
            self.assertIn("`arguments` must be an object", self.refused({"name": "list_sandboxes", "arguments": arguments}))
        for params in ({"name": "list_sandboxes"}, {"name": "list_sandboxes", "arguments": None}):
            self.assertEqual(self.mcp.modern("tools/call", params)["content"][0]["text"], "No sandbox is live.\n")

    def test_legacy(self):
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            session = self.mcp.session(version)
            result = session.call("list_sandboxes")
            self.assertEqual(result, {"content": [{"type": "text", "text": "No sandbox is live.\n"}]})
            self.assertTrue(session.call("read_file", {"path": "x"})["isError"])
            with self.assertRaises(McpError) as caught:
                session.call("nope")
            self.assertEqual(caught.exception.code, -32602)
            session.end()


class Tools(Sandboxes, Which, Interrupted, Calls, Case):
    """With one daemon, where no sandbox is live between two tests."""


class Files(Case):
    box_fields = {"name": "files"}

    def put(self, path, content):
        data = content if isinstance(content, bytes) else content.encode()
        self.mcp.text("write_file", {"path": path, "content_base64": base64.b64encode(data).decode(), "sandbox_id": self.box})

    def blocks(self, **arguments):
        result = self.mcp.call("read_file", {**arguments, "sandbox_id": self.box})
        self.assertFalse(result.get("isError"), result)
        return result["content"]

    def read(self, **arguments):
        """The text, and the note behind it."""
        blocks = self.blocks(**arguments)
        return blocks[0]["text"], "".join(block["text"] for block in blocks[1:] if block["type"] == "text")

    def test_write(self):
        self.assertEqual(self.text("write_file", path="deep/er/a.txt", content="hällo\n", sandbox_id="files"),
                         "wrote 7 bytes to /workspace/deep/er/a.txt (new)")
        self.assertEqual(self.text("write_file", path="/workspace/deep/er/a.txt", content="x", append=True, sandbox_id="files"),
                         "appended 1 bytes to /workspace/deep/er/a.txt")
        self.assertEqual(self.read(path="deep/er/a.txt")[0], "hällo\nx")
        self.text("write_file", path="deep/er/a.txt", content="", sandbox_id="files")
        self.assertEqual(self.read(path="deep/er/a.txt"), ("", "[the file is empty]"))
        data = bytes(range(256)) * 10
        self.put("deep/bytes", data)
        self.assertEqual(self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "sha256sum < deep/bytes"})["stdout"].split()[0],
                         hashlib.sha256(data).hexdigest())
        for arguments, words in (({}, "field `path` is missing"), ({"path": "x"}, "one of them"),
                                 ({"path": "x", "content": "a", "content_base64": "YQ=="}, "not both"),
                                 ({"path": "x", "content_base64": "?"}, "not base64"),
                                 ({"path": "x", "content_base64": "YQ"}, "not base64"),
                                 ({"path": "x", "content": {"a": 1}}, "`content` must be a string"),
                                 ({"path": "x" * 5000, "content": "a"}, "longer than 4095"),
                                 ({"path": "/proc/nope/x", "content": "a"}, "/proc/nope"),
                                 ({"path": "deep", "content": "a"}, "directory")):
            self.assertIn(words, self.wrong("write_file", sandbox_id="files", **arguments))

    def test_read_on(self):
        """The whole of a long file by following what the answers say."""
        lines = "".join(f"line {number} {'é' * (number % 50)}\n" for number in range(3000))
        self.put("long.txt", lines)
        got, arguments, rounds = "", {"path": "long.txt"}, 0
        while arguments:
            text, note = self.read(**arguments)
            self.assertLessEqual(len(text.encode()), 16384)
            self.assertTrue(text.endswith("\n"))
            got += text
            rounds += 1
            found = re.search(r"go on with read_file (\{.*\})", note)
            arguments = json.loads(found[1]) if found else None
        self.assertEqual(got, lines)
        self.assertGreater(rounds, 5)
        self.assertIn("to the end", note)

    def test_lines(self):
        self.put("lines.txt", "".join(f"{number}\n" for number in range(1, 200001)))
        self.assertEqual(self.read(path="lines.txt", line=150000, lines=2)[0], "150000\n150001\n")
        text, note = self.read(path="lines.txt", line=5, lines=3)
        self.assertEqual((text, note.split(" of ")[0]), ("5\n6\n7\n", "[lines 5 to 7"))
        self.assertIn('go on with read_file {"path": "lines.txt", "line": 8, "lines": 3, "sandbox_id": "%s"}' % self.box, note)
        self.assertEqual(self.read(path="lines.txt", lines=1)[0], "1\n")
        self.assertEqual(self.read(path="lines.txt", line="200000")[0], "200000\n")
        self.assertIn("no line 200002: the file has 200000 line ends",
                      self.wrong("read_file", path="lines.txt", line=200002, sandbox_id="files"))
        self.assertEqual(self.read(path="lines.txt", offset=2, limit=4)[0], "2\n3\n")
        self.assertIn("not both", self.wrong("read_file", path="lines.txt", line=1, offset=1, sandbox_id="files"))
        self.assertIn("nothing there", self.read(path="lines.txt", offset=99999999)[1])
        for bad in ({"line": 0}, {"limit": 0}, {"limit": 10 ** 9}, {"offset": -1}, {"lines": "x"}):
            self.assertIn(f"`{next(iter(bad))}`", self.wrong("read_file", path="lines.txt", sandbox_id="files", **bad))

    def test_never_inside_a_character(self):
        self.put("wide.txt", "€" * 20000)
        text, note = self.read(path="wide.txt")
        self.assertEqual(set(text), {"€"})
        rest, _ = self.read(path="wide.txt", offset=json.loads(re.search(r"read_file (\{.*\})", note)[1])["offset"])
        self.assertEqual(set(rest), {"€"})
        self.assertEqual(set(self.read(path="wide.txt", offset=1, limit=100)[0]), {"€"})

    def test_binary(self):
        self.put("binary", b"\x7fELF\0\1\2")
        self.assertIn("not text: 7 bytes of application/x-elf", self.read(path="binary")[0])
        self.put("noise", bytes(range(128, 256)) * 4)
        self.assertIn("not UTF-8", self.read(path="noise")[0])
        # What edit_file edits is shown.
        self.put("latin", "grün\nweiß\n".encode("latin-1"))
        self.assertEqual(self.read(path="latin"), ("gr\\xfcn\nwei\\xdf\n", "[2 bytes are not UTF-8: shown as \\xNN]"))
        self.text("edit_file", path="latin", old_text="gr", new_text="d", sandbox_id="files")
        self.assertEqual(self.read(path="latin", line=1, lines=1)[0], "d\\xfcn\n")

    def test_images(self):
        self.put("dot.png", PNG)
        blocks = self.blocks(path="dot.png")
        self.assertEqual([block["type"] for block in blocks], ["text", "image"])
        self.assertEqual((blocks[1]["mimeType"], base64.b64decode(blocks[1]["data"])), ("image/png", PNG))
        # One that is larger than a page of text comes whole too; one that is too large is told.
        self.put("large.png", PNG + bytes(100000))
        self.assertEqual(len(base64.b64decode(self.blocks(path="large.png")[1]["data"])), len(PNG) + 100000)
        self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "cp dot.png huge.png; truncate -s 3M huge.png"})
        self.assertIn("bytes of image/png", self.read(path="huge.png")[0])
        for magic, kind in ((b"\xff\xd8\xff\xe0", "jpeg"), (b"GIF89a", "gif"), (b"RIFF\0\0\0\0WEBP", "webp")):
            self.put("other", magic + b"\0" * 10)
            self.assertEqual(self.blocks(path="other")[1]["mimeType"], "image/" + kind)

    def test_no_such_thing(self):
        self.put("is/file", "x")
        box = ', "sandbox_id": "files"}'  # the next call needs it as this one did
        self.assertIn('list_files {"path": "is"' + box, self.wrong("read_file", path="is/nothing", sandbox_id="files"))
        self.assertIn('list_files {"path": "/workspace"' + box, self.wrong("read_file", path="nothing", sandbox_id="files"))
        self.assertIn('list_files {"path": "/"' + box, self.wrong("read_file", path="/nothing", sandbox_id="files"))
        self.assertIn('To list a directory: list_files {"path": "is"' + box, self.wrong("read_file", path="is", sandbox_id="files"))
        text = self.wrong("read_file", path='q"u\\o\n', sandbox_id="files")
        self.assertIn("no such file", text)
        self.assertIn('read_file {"path": "is/file"' + box, self.text("list_files", path="is/file", sandbox_id="files"))

    def test_the_next_call(self):
        """It is the same call, further on: with the sandbox and the sizes that were asked for."""
        self.put("long", "".join(f"{i}\n" for i in range(1000)))
        for arguments, expected in (({"lines": 10}, {"line": 11, "lines": 10}), ({"limit": 100}, {"offset": 98, "limit": 100}),
                                    ({"line": 5, "lines": 2, "limit": 500}, {"line": 7, "lines": 2, "limit": 500})):
            _, note = self.read(path="long", **arguments)
            told = json.loads(re.search(r"read_file (\{.*\})", note)[1])
            self.assertEqual(told, {"path": "long", "sandbox_id": self.box, **expected})

    def test_list(self):
        self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "mkdir -p many/sub && cd many && ln -s target link && mkfifo pipe && echo hi > .dot && head -c 50000 /dev/zero > big && echo x > sub/inner"})
        self.assertEqual(self.text("list_files", path="many", sandbox_id="files"),
                         ".dot  3 B\nbig  49 KiB\nlink -> target\npipe  (fifo)\nsub/\n\n[/workspace/many: 5 entries]")
        self.assertIn("sub/inner  2 B\n", self.text("list_files", path="many", depth=2, sandbox_id="files"))
        self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "mkdir -p crowd && cd crowd && seq -f 'file-with-a-rather-long-name-%05.0f' 1 3000 | xargs touch"})
        text = self.text("list_files", path="crowd", sandbox_id="files")
        self.assertLess(len(text), 20000)
        self.assertRegex(text, r"\[/workspace/crowd: 3000 entries, the first \d+ shown; ")
        self.assertEqual(self.text("list_files", path="", sandbox_id="files"), self.text("list_files", sandbox_id="files"))
        self.assertIn("no such file", self.wrong("list_files", path="/none", sandbox_id="files"))
        self.assertIn("`depth`", self.wrong("list_files", depth=99, sandbox_id="files"))

    def test_what_cannot_be_shown_can_be_fetched(self):
        data = b"%PDF-1.7\n\0\1\2" + bytes(range(256))
        self.put("a report's.pdf", data)
        over_tcp = Mcp(self.daemon.tcp(self.daemon.token()))
        for mcp in (self.mcp, over_tcp):
            content = mcp.call("read_file", {"path": "a report's.pdf", "sandbox_id": "files"})["content"]
            url = re.search(r"For people, good for an hour: (http://127\.0\.0\.1:\d+/v1/signed/\S+)", content[0]["text"])[1]
            self.assertEqual((content[1]["type"], content[1]["uri"], content[1]["mimeType"]), ("resource_link", url, "application/pdf"))
            with urllib.request.urlopen(url, timeout=30) as answer:
                self.assertEqual(answer.read(), data)
        self.assertIn("file.url_signed", [item["kind"] for item in self.api.get(f"/v1/sandboxes/{self.box}/activity", order="desc")["items"]])

    def test_search(self):
        for name, content in (("s/a.py", "import os\ndef main():\n    pass\n"), ("s/b.py", "x = 'Main'\n"), ("s/c.txt", "main\n"),
                              ("s/wide.txt", "needle " + "ü" * 1000 + "\n")):
            self.put(name, content)
        find = lambda **arguments: self.text("search_files", path="s", sandbox_id="files", **arguments)
        self.assertEqual(find(pattern="ma.n", glob="*.py"), "s/a.py:2: def main():\n")
        self.assertEqual(find(pattern="main", ignore_case=True), "s/a.py:2: def main():\ns/b.py:1: x = 'Main'\ns/c.txt:1: main\n")
        self.assertEqual(find(glob="*.py"), "s/a.py\ns/b.py\n")
        # As beside a pattern: without a slash it is for names at any depth.
        self.put("s/deep/er/d.pyx", "main\n")
        self.assertEqual((find(glob="*.pyx"), find(glob="d*"), find(pattern="main", glob="*.pyx")),
                         ("s/deep/er/d.pyx\n", "s/deep\ns/deep/er/d.pyx\n", "s/deep/er/d.pyx:1: main\n"))
        named = "; .git and node_modules are searched where path or glob names them]"
        self.assertEqual(find(glob="./*.pyx"), "[no names found in /workspace/s" + named)
        self.assertEqual(find(pattern="nowhere"), "[no lines found in /workspace/s" + named)
        self.assertEqual(find(glob="*.rs"), "[no names found in /workspace/s" + named)
        self.assertTrue(find(pattern="needle").rstrip().endswith("ü ..."))
        self.assertIn("the first 1 lines; there are more", find(pattern="a", limit=1))
        self.assertEqual(self.text("search_files", pattern="def", path="s/a.py", sandbox_id="files"), "s/a.py:2: def main():\n")
        self.assertIn("regular expression", self.wrong("search_files", pattern="(", sandbox_id="files"))
        self.assertIn("Give `pattern`", self.wrong("search_files", sandbox_id="files"))
        self.assertIn("no such file", self.wrong("search_files", pattern="x", path="/none", sandbox_id="files"))

    def test_search_is_sorted_and_of_sources(self):
        names = [f"p/{name}" for name in ("z.js", "b/2.js", "a.js", "b/10.js", "m/deep/x.js", ".hidden.js", "b.js")]
        for name in names + ["p/node_modules/left/pad.js", "p/m/node_modules/n.js", "p/.git/config.js"]:
            self.put(name, "needle\n")
        def find(path="p", **arguments):
            return [line.split(":")[0] for line in self.text("search_files", path=path, sandbox_id="files", **arguments).splitlines()]
        wanted = ["p/.hidden.js", "p/a.js", "p/b/10.js", "p/b/2.js", "p/b.js", "p/m/deep/x.js", "p/z.js"]
        self.assertEqual(find(pattern="needle"), wanted)
        self.assertEqual(find(pattern="needle", limit=3)[:3], wanted[:3])
        self.assertEqual(find(glob="*.js"), wanted[1:])
        # What is named is searched.
        self.assertEqual(find(pattern="needle", glob="**/node_modules/**"), ["p/m/node_modules/n.js", "p/node_modules/left/pad.js"])
        self.assertEqual(find(glob="node_modules/**/*.js"), ["p/node_modules/left/pad.js"])
        self.assertEqual(find(pattern="needle", path="p/.git"), ["p/.git/config.js"])

    def test_search_is_bounded(self):
        self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "yes 'a line that is found' | head -n 100000 > found.txt"})
        text = self.text("search_files", pattern="found", path="found.txt", limit=1000, sandbox_id="files")
        self.assertLess(len(text), 18000)
        self.assertIn("there are more", text)

    def test_edit(self):
        self.put("e.txt", "one\ntwo\n  three\nfour two\n")
        edit = {"path": "e.txt", "sandbox_id": "files"}
        self.assertEqual(self.text("edit_file", old_text="one\ntwo", new_text="1\n2", **edit), "replaced 1 place in /workspace/e.txt")
        self.assertEqual(self.read(path="e.txt")[0], "1\n2\n  three\nfour two\n")
        self.assertEqual(self.text("edit_file", old_text="o", new_text="0", replace_all=True, **edit), "replaced 2 places in /workspace/e.txt")
        self.assertEqual(self.text("edit_file", old_text=" tw0", new_text="", **edit), "replaced 1 place in /workspace/e.txt")
        self.assertEqual(self.read(path="e.txt")[0], "1\n2\n  three\nf0ur\n")

    def test_edit_keeps_line_ends(self):
        edit = {"path": "crlf.txt", "sandbox_id": "files"}
        def content():
            return self.api.sh(self.box, "od -An -c crlf.txt | tr -d ' \\n'")
        self.put("crlf.txt", "one\r\ntwo\r\nthree\r\n")
        self.assertIn("replaced 1 place", self.text("edit_file", old_text="one\ntwo\n", new_text="1\n2\n", **edit))
        self.assertEqual(content(), r"1\r\n2\r\nthree\r\n")
        # New lines too, of an edit whose old text has none.
        self.assertIn("replaced 1 place", self.text("edit_file", old_text="three", new_text="3\n4", **edit))
        self.assertEqual(content(), r"1\r\n2\r\n3\r\n4\r\n")
        # Who says how they end is taken at their word.
        self.assertIn("replaced 1 place", self.text("edit_file", old_text="1\r\n2", new_text="x\ny", **edit))
        self.assertEqual(content(), r"x\ny\r\n3\r\n4\r\n")
        # Where they end in both ways it is taken as it is there.
        self.put("crlf.txt", "a\r\nb\nc\n")
        self.assertIn("replaced 1 place", self.text("edit_file", old_text="b\nc", new_text="B\nC", **edit))
        self.assertEqual(content(), r"a\r\nB\nC\n")

    def test_edit_explains(self):
        self.put("n.txt", "alpha\n\tbeta gamma\nalpha\r\n" + "x\n" * 20)
        edit = {"path": "n.txt", "sandbox_id": "files"}
        wrong = lambda **arguments: self.wrong("edit_file", **{**edit, **arguments})
        self.assertIn("more than once in /workspace/n.txt; nothing was changed. It begins at line 1, 3.", wrong(old_text="alpha", new_text="a"))
        self.assertIn("4, 5, 6, 7, 8, 9, 10, 11, ...", wrong(old_text="x", new_text="a"))
        self.assertIn("is line 2: \tbeta gamma", wrong(old_text="    beta gamma\nalpha", new_text="a"))
        self.assertIn("This file has mixed line ends, \\r\\n and \\n: ", wrong(old_text="    beta gamma\nalpha", new_text="a"))
        self.put("crlf.txt", "alpha\r\nbeta\r\n")
        self.assertIn("The lines of this file end with \\r\\n.", wrong(path="crlf.txt", old_text="alpha\ngamma", new_text="a"))
        self.assertIn("The most like its first line is line 2", wrong(old_text="beta gammon", new_text="a"))
        # Whatever of it is like that, not its beginning alone.
        self.assertIn("The most like its first line is line 2: \tbeta gamma", wrong(old_text="// the gamma\nof it", new_text="a"))
        self.assertIn("are the same", wrong(old_text="alpha", new_text="alpha"))
        self.assertIn("`old_text` must not be empty", wrong(old_text="", new_text="alpha"))
        self.assertIn("is not in", wrong(old_text="zzz", new_text="y", replace_all=True))
        self.assertIn("no such file", self.wrong("edit_file", path="none", old_text="a", new_text="b", sandbox_id="files"))
        self.assertEqual(self.read(path="n.txt")[0].count("alpha"), 2)

    def test_special_files(self):
        """What has no size is read, what would hang is refused."""
        self.assertIn("Linux", self.read(path="/proc/version")[0])
        self.assertIn("fifo", self.wrong("read_file", path=self.fifo(), sandbox_id="files").lower())
        for path in (self.fifo(), "/dev/zero"):
            text = self.wrong("read_file", path=path, sandbox_id="files")
            self.assertIn("with a program inside", text)
            self.assertNotIn("list_files", text)

    def fifo(self):
        self.api.post(f"/v1/sandboxes/{self.box}/exec", {"cmd": "test -p fifo || mkfifo fifo"})
        return "fifo"

    def test_full_disk(self):
        box = self.sandbox(disk_mb=16)
        self.api.post(f"/v1/sandboxes/{box}/exec", {"cmd": "head -c 30000000 /dev/zero > fill"})
        text = self.wrong("write_file", path="more", content="x" * 500000, sandbox_id=box)
        self.assertIn("disk is full", text)


class Slow(Case):
    config = "[mcp]\nblock_seconds = 1\n"

    def test_search_that_takes_long(self):
        """It is stopped before a client gives up, and says so."""
        box = self.sandbox()
        self.api.sh(box, "yes 'ababababababcbcbcabcab a line' | head -c 200000000 > large; echo needle > a")
        # It takes many seconds of a processor, of which there may be little.
        self.api.call("PATCH", "/v1/sandboxes/" + box, {"cpu": 0.05})
        text = self.text("search_files", pattern="((a|b|c)*d)*(e|f)*needle$", sandbox_id=box)
        self.assertRegex(text, r"stopped after 1 s with \d lines found")
        self.api.call("PATCH", "/v1/sandboxes/" + box, {"cpu": 1})
        wait_until(lambda: "a:1: needle" in self.text("search_files", pattern="needle", path="a", sandbox_id=box), what="what is found soon")


class NoTcp(McpTest):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(arguments=("--listen", "none"))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.runtime = os.path.join(cls.daemon.top, "it's run")
        cls.daemon.start()
        cls.api = cls.daemon.client()
        cls.box = cls.api.create()["id"]
        cls.mcp = Mcp(cls.api)

    def test_a_link_is_a_command(self):
        self.mcp.text("write_file", {"path": "it's.pdf", "content_base64": base64.b64encode(b"%PDF-\0").decode()})
        content = self.mcp.call("read_file", {"path": "it's.pdf"})["content"]
        command = re.search(r"good for an hour: (curl --unix-socket .*)", content[0]["text"])[1]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["sh", "-c", command], cwd=folder, check=True, capture_output=True, timeout=60)
            self.assertEqual([open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)], [b"%PDF-\0"])
