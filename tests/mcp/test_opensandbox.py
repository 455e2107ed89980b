"""/mcp/opensandbox: OpenSandbox's nineteen tools, each with live arguments and with bad ones, in the shapes that its own
server answers in. SCHEMAS are the facts of its tools/list: what a tool takes and what it returns."""
import base64
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from caisson import ApiError, DaemonTest, PROGRAM, wait_until  # noqa: E402
from marks import long
from mcp import Mcp, McpError  # noqa: E402
from stdio import Stdio  # noqa: E402

# name! is required, ?: or null (which is the default), =value the default.
ID, CIM = "sandbox_id!:string ", " connect_if_missing:boolean=false"
HEALTH = "health_check_polling_interval_ms:integer=200 skip_health_check:boolean=false"
SCHEMAS = {
    "sandbox_create": (
        "image!:string auth_username:string? auth_password:string? timeout_seconds:number=600 ready_timeout_seconds:number=30 "
        + HEALTH + " env:object? metadata:object? resource:object? network_policy:NetworkPolicy? extensions:object? "
        "entrypoint:array?", "sandbox_id! info!"),
    "sandbox_connect": (ID + "connect_timeout_seconds:number=30 " + HEALTH, "sandbox_id! info!"),
    "sandbox_kill": (ID, "status!"),
    "sandbox_get_info": (ID, "id! status! entrypoint! expires_at created_at! image snapshot_id platform metadata"),
    "sandbox_list": ("filter:SandboxFilter?", "sandbox_infos! pagination!"),
    "sandbox_renew": (ID + "timeout_seconds!:number", "expires_at!"),
    "sandbox_get_metrics": (
        ID + CIM, "cpu_count! cpu_used_percentage! memory_total_in_mib! memory_used_in_mib! timestamp!"),
    "sandbox_healthcheck": (ID + CIM, "sandbox_id! healthy!"),
    "command_run": (ID + "command!:string background:boolean=false working_directory:string?" + CIM,
                    "id execution_count result error complete exit_code logs"),
    "command_interrupt": (ID + "execution_id!:string" + CIM, "status!"),
    "file_read": (ID + 'path!:string encoding:string="utf-8" range_header:string?' + CIM, "path! content!"),
    "file_write": (ID + 'path!:string content!:string encoding:string="utf-8" mode:integer=755 owner:string? group:string?'
                   + CIM, "status!"),
    "file_delete": (ID + "paths!:array" + CIM, "status!"),
    "file_search": (ID + "path!:string pattern!:string" + CIM, "result!"),
    "file_create_directories": (ID + "entries!:array" + CIM, "status!"),
    "file_delete_directories": (ID + "paths!:array" + CIM, "status!"),
    "file_move": (ID + "entries!:array" + CIM, "status!"),
    "file_replace_contents": (ID + "entries!:array" + CIM, "result!"),
    "sandbox_get_endpoint": (ID + "port!:integer" + CIM, "endpoint! headers"),
}
# What entries of lists and objects within arguments have.
DEFINITIONS = {
    ("sandbox_create", "NetworkRule"): "action!:string target!:string",
    ("sandbox_list", "SandboxFilter"): "states:array? metadata:object? page_size:integer? page:integer?",
    ("file_create_directories", "DirectoryEntryInput"): "path!:string mode:integer=755 owner:string? group:string?",
    ("file_move", "MoveEntry"): "source!:string destination!:string",
    ("file_replace_contents", "ContentReplaceEntry"): "path!:string old_content!:string new_content!:string",
}
READS = ["sandbox_connect", "sandbox_get_info", "sandbox_list", "sandbox_get_metrics", "sandbox_healthcheck", "file_read",
         "file_search", "sandbox_get_endpoint"]


def sleepers(api, sandbox, seconds):
    """How many processes in the sandbox sleep for just so long."""
    return int(api.sh(sandbox, f"grep -lza '^{seconds}$' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"))


def fact(name, schema, required):
    """One property as a word of the tables above."""
    inner = schema["anyOf"][0] if "anyOf" in schema else schema
    kind = inner.get("type") or inner["$ref"].split("/")[-1]
    if kind == "array":
        assert "items" in inner, (name, schema)
    word = name + ("!" if name in required else "") + ":" + kind
    if "anyOf" in schema:
        assert schema["anyOf"][1:] == [{"type": "null"}] and schema["default"] is None, (name, schema)
        return word + "?"
    return word + ("=" + json.dumps(schema["default"]) if "default" in schema else "")


def facts(schema):
    assert schema["type"] == "object", schema
    return [fact(name, value, schema.get("required", [])) for name, value in schema["properties"].items()]


TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
         "null": type(None)}


def fits(value, schema, root):
    """Whether a value is as a schema says: what clients refuse a result for."""
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].split("/")[-1]], root)
    if "anyOf" in schema:
        return any(fits(value, choice, root) for choice in schema["anyOf"])
    if not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list):
        return all(fits(element, schema["items"], root) for element in value)
    if not isinstance(value, dict):
        return True
    rest = schema.get("additionalProperties", {"anyOf": []})
    return all(name in value for name in schema.get("required", [])) and all(
        fits(member, schema.get("properties", {}).get(name, rest), root) for name, member in value.items())


class OpenSandbox(DaemonTest):
    def setUp(self):
        self.mcp = Mcp(self.api, "/mcp/opensandbox")
        self.outputs = {tool["name"]: tool["outputSchema"] for tool in self.mcp.modern("tools/list")["tools"]}

    def good(self, tool, mcp=None, **arguments):
        """structuredContent, after a look at the whole result's form."""
        result = (mcp or self.mcp).call(tool, arguments)
        self.assertNotIn("isError", result, result["content"])
        data = result["structuredContent"]
        elements = data["result"] if SCHEMAS[tool][1] == "result!" else [data]
        self.assertEqual(result["content"], [
            {"type": "text", "text": json.dumps(element, indent=2, ensure_ascii=False)} for element in elements])
        self.assertTrue(fits(data, self.outputs[tool], self.outputs[tool]), data)
        known = [word.rstrip("!") for word in SCHEMAS[tool][1].split()]
        self.assertEqual(list(data), known)
        return data

    def bad(self, tool, word, code=None, mcp=None, **arguments):
        result = (mcp or self.mcp).call(tool, arguments)
        text = result["content"][0]["text"]
        self.assertTrue(result.get("isError"), (tool, arguments, text))
        self.assertNotIn("structuredContent", result)
        self.assertIn(word, text)
        if code:
            self.assertEqual(result["_meta"]["caisson/error"]["code"], code)
        return text

    def create(self, **arguments):
        data = self.good("sandbox_create", **{"image": "host", **arguments})
        self.addCleanup(self.remove, data["sandbox_id"])
        return data

    def run_command(self, sandbox, command, **arguments):
        return self.good("command_run", sandbox_id=sandbox, command=command, **arguments)

    def lines(self, execution, stream="stdout"):
        return [line["text"] for line in execution["logs"][stream]]

    def sleepers(self, sandbox, seconds):
        return sleepers(self.api, sandbox, seconds)

    # --- the list ---

    def test_tools_list(self):
        tools = self.mcp.modern("tools/list")["tools"]
        self.assertEqual([tool["name"] for tool in tools], list(SCHEMAS))
        for tool in tools:
            takes, returns = SCHEMAS[tool["name"]]
            self.assertEqual(facts(tool["inputSchema"]), takes.split(), tool["name"])
            required = tool["outputSchema"].get("required", [])
            self.assertEqual([name + "!" * (name in required) for name in tool["outputSchema"]["properties"]],
                             returns.split(), tool["name"])
            self.assertNotIn("annotations", tool)
            for (name, definition), takes in DEFINITIONS.items():
                if name == tool["name"]:
                    self.assertEqual(facts(tool["inputSchema"]["$defs"][definition]), takes.split())
        policy = tools[0]["inputSchema"]["$defs"]["NetworkPolicy"]["properties"]
        self.assertEqual(policy["defaultAction"]["default"], "deny")
        self.assertEqual(policy["egress"]["anyOf"][0]["items"], {"$ref": "#/$defs/NetworkRule"})

    def test_only_tools(self):
        found = self.mcp.modern("server/discover")
        self.assertEqual(found["capabilities"], {"tools": {}})
        self.assertLess(len(found["instructions"]), 2048)
        for method in ("resources/list", "prompts/list"):
            with self.assertRaises(McpError) as caught:
                self.mcp.modern(method)
            self.assertEqual(caught.exception.code, -32601)

    def test_read_only(self):
        pipe = Stdio([PROGRAM, "mcp", "--dialect", "opensandbox", "--read-only"],
                     {**os.environ, **self.daemon.client_environment()})
        self.addCleanup(pipe.close)
        self.assertEqual([tool["name"] for tool in pipe.request("tools/list", modern=True)["tools"]], READS)
        self.assertEqual(pipe.end(), (0, [], ""))

    def test_a_legacy_session(self):
        session = self.mcp.session("2025-06-18")
        self.assertEqual(list(session.result["capabilities"]), ["tools"])
        self.assertEqual(len(session.request("tools/list")["tools"]), 19)
        made = session.request("tools/call", {"name": "sandbox_create", "arguments": {"image": "host"},
                                              "_meta": {"progressToken": 7}})["structuredContent"]
        self.addCleanup(self.remove, made["sandbox_id"])
        steps = [note["params"]["progress"] for note in session.notes if note["method"] == "notifications/progress"]
        self.assertEqual(steps, [0.1, 0.3, 0.8, 1])
        result = session.call("command_run", {"sandbox_id": made["sandbox_id"], "command": "echo hi"})
        self.assertEqual(self.lines(result["structuredContent"]), ["hi"])

    # --- sandboxes ---

    def test_life(self):
        made = self.create(image="python:3.12", metadata={"team": "a b"}, env='{"GREETING": "hi"}', timeout_seconds=120.5,
                           resource={"cpu": "500m", "memory": "256Mi"}, skip_health_check="true", extensions={"x": "y"},
                           auth_username="u", auth_password="p", ready_timeout_seconds=10, entrypoint=["sleep", "4700"])
        box, info = made["sandbox_id"], made["info"]
        self.assertEqual((info["id"], info["status"]["state"], info["metadata"]), (box, "Running", {"team": "a b"}))
        self.assertEqual(info["image"], {"image": "python:3.12", "auth": None})
        self.assertEqual(info["entrypoint"], ["sleep", "4700"])
        self.assertIn("`host` stands for it", info["status"]["message"])
        self.assertEqual((info["snapshot_id"], info["platform"]["os"]), (None, "linux"))
        wait_until(lambda: self.sleepers(box, 4700) == 1, what="the entrypoint")
        record = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual((record["cpu"], record["memory_mb"], record["timeout_seconds"]), (0.5, 256, 121))
        self.assertEqual(self.lines(self.run_command(box, "echo $GREETING")), ["hi"])
        self.assertEqual(self.good("sandbox_get_info", sandbox_id=box), info)
        self.assertEqual(self.good("sandbox_connect", sandbox_id=box), made)
        self.assertEqual(self.good("sandbox_healthcheck", sandbox_id=box), {"sandbox_id": box, "healthy": True})
        metrics = self.good("sandbox_get_metrics", sandbox_id=box, connect_if_missing=True)
        self.assertEqual((metrics["cpu_count"], metrics["memory_total_in_mib"]), (0.5, 256))
        self.assertGreater(metrics["memory_used_in_mib"], 0)
        renewed = self.good("sandbox_renew", sandbox_id=box, timeout_seconds="3600")
        self.assertGreater(renewed["expires_at"], info["expires_at"])
        self.assertEqual(self.good("sandbox_get_info", sandbox_id=box)["expires_at"], renewed["expires_at"])
        self.assertEqual(self.good("sandbox_kill", sandbox_id=box), {"status": "killed"})
        self.bad("sandbox_get_info", "ended", sandbox_id=box)
        self.bad("sandbox_kill", "ended", sandbox_id=box)

    def test_defaults(self):
        made = self.create()
        self.assertEqual(made["info"]["entrypoint"], ["tail", "-f", "/dev/null"])
        self.assertEqual((made["info"]["metadata"], made["info"]["status"]["message"]), ({}, None))
        record = self.api.get("/v1/sandboxes/" + made["sandbox_id"])
        self.assertEqual((record["cpu"], record["memory_mb"], record["timeout_seconds"]), (1, 2048, 600))

    def test_images(self):
        for image, asked in (("ubuntu", "ubuntu-24.04"), ("docker.io/library/node:22-slim", "node-22"),
                             ("registry.example:5000/opensandbox/code-interpreter:v1.0.2", "code-interpreter")):
            made = self.create(image=image)
            self.assertEqual(made["info"]["image"]["image"], image)
            self.assertIn(f"`{asked}`", made["info"]["status"]["message"])
        for image in ("nginx", "python:2.7", "python:3.120", "ubuntu:20.04", "python@sha256:" + "0" * 64, "node:220"):
            self.bad("sandbox_create", "not available", "template.unavailable", image=image)

    def test_what_is_not_there(self):
        before = len(self.api.get("/v1/sandboxes")["items"])
        for policy in ({"defaultAction": "deny"}, {"egress": [{"action": "allow", "target": "example.com"}]}, {}):
            self.bad("sandbox_create", "network_policy", "feature.unsupported", image="host", network_policy=policy)
        self.bad("sandbox_create", "poolRef", "feature.unsupported", image="host", extensions={"poolRef": "p"})
        self.bad("sandbox_create", "gpu", "feature.unsupported", image="host", resource={"gpu": "1"})
        self.bad("sandbox_create", "entrypoint", "exec.program_not_found", image="host", entrypoint=["/nope"])
        wait_until(lambda: len(self.api.get("/v1/sandboxes")["items"]) == before, what="no sandbox is left")
        # One that the pool does not have: it takes some time.
        self.bad("sandbox_create", "ready_timeout_seconds", "timeout", image="host", resource={"memory": "123Mi"}, ready_timeout_seconds=0)
        wait_until(lambda: len(self.api.get("/v1/sandboxes")["items"]) == before, what="no sandbox is left")
        box = self.create()["sandbox_id"]

        def too_late():
            """It may be awake in no time at all."""
            self.api.post(f"/v1/sandboxes/{box}/pause")
            try:
                self.bad("sandbox_connect", "connect_timeout_seconds", "timeout", sandbox_id=box, connect_timeout_seconds=0)
            except AssertionError:
                return False
            return True
        wait_until(too_late, what="a time-out of nothing is over first")
        self.assertEqual(self.good("sandbox_connect", sandbox_id=box)["info"]["status"]["state"], "Running")
        self.bad("sandbox_get_endpoint", "no network", "feature.unsupported", sandbox_id=box, port=8080)

    def test_list(self):
        boxes = [self.create(metadata={"list": "yes", "n": str(n)})["sandbox_id"] for n in range(3)]
        self.api.post(f"/v1/sandboxes/{boxes[0]}/pause")

        def listed(**filter):
            page = self.good("sandbox_list", filter={"metadata": {"list": "yes"}, **filter})
            return [info["id"] for info in page["sandbox_infos"]], page["pagination"]
        self.assertEqual(listed(), (boxes[::-1], {"page": 1, "page_size": 20, "total_items": 3, "total_pages": 1,
                                                  "has_next_page": False}))
        self.assertEqual(listed(page_size=2), (boxes[:0:-1], {"page": 1, "page_size": 2, "total_items": 3,
                                                              "total_pages": 2, "has_next_page": True}))
        self.assertEqual(listed(page_size=2, page=2)[0], boxes[:1])
        self.assertEqual(listed(page=9)[0], [])
        self.assertEqual(listed(states=["Paused"])[0], boxes[:1])
        self.assertEqual(listed(states=["Running", "Paused"])[0], boxes[::-1])
        self.assertEqual(listed(metadata={"list": "yes", "n": "1"})[0], [boxes[1]])
        self.assertEqual(listed(metadata={"list": "no"})[0], [])
        self.assertGreaterEqual(self.good("sandbox_list")["pagination"]["total_items"], 3)
        # A paused one: looked at as it is, woken by work.
        self.assertEqual(self.good("sandbox_healthcheck", sandbox_id=boxes[0])["healthy"], False)
        self.assertEqual(self.good("sandbox_connect", sandbox_id=boxes[0], skip_health_check=True)["info"]["status"]["state"],
                         "Paused")
        self.good("sandbox_get_metrics", sandbox_id=boxes[0])
        self.assertEqual(self.lines(self.run_command(boxes[0], "echo awake")), ["awake"])
        self.assertEqual(self.good("sandbox_get_info", sandbox_id=boxes[0])["status"]["state"], "Running")

    def test_killing_one_leaves_the_others(self):
        one, other = (self.create()["sandbox_id"] for _ in range(2))
        results = {}

        def run(box):
            results[box] = Mcp(self.api, "/mcp/opensandbox").call(
                "command_run", {"sandbox_id": box, "command": "touch on; while [ ! -e off ]; do sleep 0.02; done; echo done"})
        threads = [threading.Thread(target=run, args=(box,)) for box in (one, other)]
        for thread in threads:
            thread.start()
        for box in (one, other):
            wait_until(lambda: self.api.exec(box, "test -e on")["exit_code"] == 0, what="the command")
        self.good("sandbox_kill", sandbox_id=one)
        self.api.sh(other, "touch off")
        for thread in threads:
            thread.join(60)
        lost = results[one]["structuredContent"]
        self.assertEqual((lost["exit_code"], lost["complete"]), (None, None))
        self.assertIn("its sandbox ended", lost["error"]["value"])
        self.assertEqual(self.lines(results[other]["structuredContent"]), ["done"])

    # --- commands ---

    def test_command_run(self):
        box = self.create()["sandbox_id"]
        done = self.run_command(box, r"printf 'a\n\nb\r\nc\rd'; echo e >&2; pwd", working_directory="/tmp")
        self.assertEqual(self.lines(done), ["a", "\n", "b", "c", "d/tmp"])
        self.assertEqual(self.lines(done, "stderr"), ["e"])
        self.assertEqual([line["is_error"] for line in done["logs"]["stdout"] + done["logs"]["stderr"]], [False] * 5 + [True])
        self.assertEqual((done["exit_code"], done["error"], done["result"], done["execution_count"]), (0, None, [], None))
        self.assertLessEqual(done["logs"]["stdout"][0]["timestamp"], done["complete"]["timestamp"])
        failed = self.run_command(box, "[[ 1 == 1 ]] && exit 7")  # a bash, as its own server runs
        self.assertEqual((failed["exit_code"], failed["complete"]), (7, None))
        self.assertEqual({**failed["error"], "timestamp": 0},
                         {"name": "CommandExecError", "value": "7", "timestamp": 0, "traceback": ["exit status 7"]})
        self.assertEqual(self.run_command(box, "kill -9 $$")["exit_code"], 137)
        self.bad("command_run", "/nope", "exec.bad_cwd", sandbox_id=box, command="true", working_directory="/nope")

    def test_a_sandbox_without_bash(self):
        box = self.create(env={"PATH": "/nothing"})["sandbox_id"]
        self.assertEqual(self.lines(self.run_command(box, "echo $0")), ["/bin/sh"])

    def test_timestamps_are_of_the_lines(self):
        box = self.create()["sandbox_id"]
        call = {"name": "command_run", "arguments": {"sandbox_id": box, "command": "echo a; while [ ! -e go ]; do sleep 0.02; done; echo b"}}
        with self.mcp.modern_send("tools/call", call, number=1, token="p") as answer:
            self.assertEqual(answer.next()["params"]["message"], "a")
            time.sleep(0.1)
            self.api.sh(box, "touch go")
            lines = answer.rest()[-1]["result"]["structuredContent"]["logs"]["stdout"]
        self.assertEqual([line["text"] for line in lines], ["a", "b"])
        self.assertGreaterEqual(lines[1]["timestamp"] - lines[0]["timestamp"], 90)

    def test_long_output(self):
        box = self.create()["sandbox_id"]
        self.assertEqual(self.lines(self.run_command(box, "seq 1 1000")), [str(n) for n in range(1, 1001)])
        lines = self.lines(self.run_command(box, "seq 1 100000"))
        self.assertEqual((lines[0], lines[-1]), ("1", "100000"))
        self.assertLess(len(lines), 4100)
        self.assertEqual(sum("left out here" in line for line in lines), 1)
        lines = self.lines(self.run_command(box, "yes '' | head -n 20000"))
        self.assertIn("16000 lines left out here", lines[1500])
        lines = self.lines(self.run_command(box, "head -c 3000000 /dev/zero | tr '\\0' x"))
        self.assertEqual(len(lines), 3)
        self.assertLess(sum(map(len, lines)), 150000)

    @long
    def test_background_and_interrupt(self):
        box = self.create()["sandbox_id"]
        begun = self.run_command(box, "echo out; sleep 4701 & setsid sleep 4701", background=True)
        self.assertEqual((begun["exit_code"], begun["error"], begun["logs"]), (None, None, {"stdout": [], "stderr": []}))
        self.assertIsNotNone(begun["complete"])
        wait_until(lambda: self.sleepers(box, 4701) == 2, what="the command")
        self.assertEqual(self.good("command_interrupt", sandbox_id=box, execution_id=begun["id"]), {"status": "interrupted"})
        wait_until(lambda: self.sleepers(box, 4701) == 0, what="the end of both")
        self.bad("command_interrupt", "ended already", sandbox_id=box, execution_id=begun["id"])
        self.bad("command_interrupt", "not the id", "id.malformed", sandbox_id=box, execution_id="nope")
        self.bad("command_interrupt", "a" * 16, "exec.not_found", sandbox_id=box, execution_id="a" * 16)
        deaf = self.run_command(box, "trap '' TERM; touch deaf; while :; do sleep 0.1; done", background=True)
        wait_until(lambda: self.api.exec(box, "test -e deaf")["exit_code"] == 0, what="the trap")
        self.good("command_interrupt", sandbox_id=box, execution_id=deaf["id"])
        self.bad("command_interrupt", "ended already", sandbox_id=box, execution_id=deaf["id"])

    def test_what_was_printed_is_told_while_it_runs(self):
        """Also what comes right after a message, when another may not be sent yet, and is the last for long."""
        box = self.create()["sandbox_id"]
        call = {"name": "command_run", "arguments": {
            "sandbox_id": box, "command": "echo a; sleep 0.03; echo b; for i in {1..500}; do [ -e go ] || sleep 0.02; done"}}
        with self.mcp.modern_send("tools/call", call, number=1, token="p") as answer:
            said = ""
            while "b" not in said:
                message = answer.next()
                self.assertIn("method", message)
                said += message["params"]["message"]
            self.api.sh(box, "touch go")
            answer.rest()

    def test_an_interrupt_that_nobody_waits_for(self):
        box = self.create()["sandbox_id"]
        deaf = self.run_command(box, "trap '' TERM; sleep 4704", background=True)
        wait_until(lambda: self.sleepers(box, 4704) == 1, what="the command")
        call = {"name": "command_interrupt", "arguments": {"sandbox_id": box, "execution_id": deaf["id"]}}
        answer = self.mcp.modern_send("tools/call", call)
        self.assertTrue(answer.streams)  # it does not hear, and so the answer does not come at once
        answer.__exit__()
        wait_until(lambda: self.sleepers(box, 4704) == 0, what="the command's end")

    def test_a_disconnect_ends_the_command(self):
        box = self.create()["sandbox_id"]
        call = {"name": "command_run", "arguments": {"sandbox_id": box, "command": "setsid sleep 4702 & sleep 4702"}}
        answer = self.mcp.modern_send("tools/call", call)
        wait_until(lambda: self.sleepers(box, 4702) == 2, what="the command")
        answer.__exit__()
        wait_until(lambda: self.sleepers(box, 4702) == 0, what="the end of all that it started")

    def test_a_cancel_ends_the_command(self):
        box = self.create()["sandbox_id"]
        session = self.mcp.session()
        call = {"name": "command_run", "arguments": {"sandbox_id": box, "command": "setsid sleep 4703 & sleep 4703"}}
        with session.begin("tools/call", call, number="long"):
            wait_until(lambda: self.sleepers(box, 4703) == 2, what="the command")
            session.notify("notifications/cancelled", {"requestId": "long"})
            wait_until(lambda: self.sleepers(box, 4703) == 0, what="the end of all that it started")

    # --- files ---

    def test_read_and_write(self):
        box = self.create()["sandbox_id"]

        def write(path, content, **more):
            self.assertEqual(self.good("file_write", sandbox_id=box, path=path, content=content, **more), {"status": "written"})

        def read(path, **more):
            data = self.good("file_read", sandbox_id=box, path=path, **more)
            self.assertEqual(data["path"], path)
            return data["content"]
        write("/workspace/d/a.txt", "häß\n\x01\"", owner="1000", group="1001")
        self.assertEqual(read("/workspace/d/a.txt"), "häß\n\x01\"")
        self.assertEqual(self.api.sh(box, "stat -c '%a %u %g' /workspace/d/a.txt"), "755 1000 1001\n")
        write("/workspace/l", "\xe4\xff", encoding="latin-1", mode=600)
        self.assertEqual(self.api.read(box, "/workspace/l"), b"\xe4\xff")
        self.assertEqual(self.api.sh(box, "stat -c '%a %u' /workspace/l"), "600 0\n")
        self.assertEqual(read("/workspace/l", encoding="ISO_8859_1"), "\xe4\xff")
        self.bad("file_read", "is not UTF-8", sandbox_id=box, path="/workspace/l")
        self.bad("file_read", "is not ASCII", sandbox_id=box, path="/workspace/l", encoding="ascii")
        data = bytes(range(256))
        write("/workspace/b", base64.b64encode(data).decode(), encoding="base64")
        self.assertEqual(base64.b64decode(read("/workspace/b", encoding="base64")), data)
        write("/workspace/r", "0123456789é")
        for header, content in (("bytes=0-3", "0123"), ("bytes=8-", "89é"), ("bytes=-4", "89é"), ("bytes=-99", "0123456789é"),
                                ("bytes=9-10", "9\ufffd"), ("bytes=3-3", "3"), ("bytes=8-99", "89é"), (None, "0123456789é")):
            self.assertEqual(read("/workspace/r", range_header=header), content, header)
        write("/workspace/long", "x" * 3000000)
        self.assertEqual(self.api.sh(box, "wc -c < /workspace/long"), "3000000\n")
        write("/workspace/empty", "")
        self.assertEqual(read("/workspace/empty"), "")
        self.bad("file_read", "12 bytes", sandbox_id=box, path="/workspace/r", range_header="bytes=12-")
        self.api.sh(box, "head -c 1500000 /dev/zero | tr '\\0' x > /workspace/big")
        self.bad("file_read", '"bytes=0-1048575"', sandbox_id=box, path="/workspace/big")
        self.assertEqual(len(read("/workspace/big", range_header="bytes=0-1048575")), 1 << 20)
        self.assertEqual(len(read("/workspace/big", range_header="bytes=1048576-")), 1500000 - (1 << 20))

    def test_trees(self):
        box = self.create()["sandbox_id"]

        def did(tool, status, **arguments):
            self.assertEqual(self.good(tool, sandbox_id=box, **arguments), {"status": status})
        did("file_create_directories", "created", entries=[
            {"path": "/workspace/a/b", "mode": 700, "owner": "1000"}, {"path": "/workspace/c"}, {"path": "/workspace/a"}])
        self.assertEqual(self.api.sh(box, "cd /workspace; stat -c '%n %a %u' a a/b c"), "a 755 0\na/b 700 1000\nc 755 0\n")
        did("file_create_directories", "created", entries='[{"path": "/workspace/s"}]')
        self.api.sh(box, "cd /workspace; touch a/x.py a/b/y.py; echo 1234 > z.txt; chmod 640 z.txt; ln -s z.txt link.txt")
        found = self.good("file_search", sandbox_id=box, path="/workspace", pattern="*.py")["result"]
        self.assertEqual(sorted(entry["path"] for entry in found), ["/workspace/a/b/y.py", "/workspace/a/x.py"])
        found = {entry["path"]: entry for entry in
                 self.good("file_search", sandbox_id=box, path="/workspace", pattern="*.txt")["result"]}
        self.assertEqual(found["/workspace/link.txt"]["type"], "symlink")
        entry = found["/workspace/z.txt"]
        self.assertEqual([entry[key] for key in ("type", "mode", "owner", "group", "size")], ["file", 640, "root", "root", 5])
        self.assertEqual(list(entry), ["path", "type", "mode", "owner", "group", "size", "modified_at", "created_at"])
        self.assertEqual(self.good("file_search", sandbox_id=box, path="/workspace", pattern="a/**/*.py")["result"][0]["type"],
                         "file")
        self.assertEqual(self.good("file_search", sandbox_id=box, path="/workspace", pattern="nope"), {"result": []})
        did("file_move", "moved", entries=[{"source": "/workspace/z.txt", "destination": "/workspace/n/e/w.txt"},
                                           {"src": "/workspace/a", "dest": "/workspace/A"}])
        text = self.bad("file_move", "/workspace/A", sandbox_id=box, entries=[
            {"source": "/workspace/n", "destination": "/workspace/N"}, {"source": "/workspace/c", "destination": "/workspace/A"}])
        self.assertIn("operation 2 of 2", text)
        self.assertEqual(self.api.sh(box, "cd /workspace; find A N -type f | sort"), "A/b/y.py\nA/x.py\nN/e/w.txt\n")
        did("file_delete", "deleted", paths=["/workspace/A/x.py", "/workspace/nope"])
        self.bad("file_delete", "/workspace/A", sandbox_id=box, paths=["/workspace/A"])
        did("file_delete_directories", "deleted", paths=["/workspace/A", "/workspace/N", "/workspace/nope"])
        self.assertEqual(self.api.sh(box, "ls /workspace"), "c\nlink.txt\ns\n")
        # A `~` is the home of the sandbox's user.
        self.good("file_write", sandbox_id=box, path="~/deep/x", content="1")
        did("file_move", "moved", entries=[{"source": "~/deep/x", "destination": "~/y"}])
        self.assertEqual(self.api.sh(box, "cat ~/y; ls ~/deep"), "1")
        did("file_delete", "deleted", paths=["~/y", "~nobody"])
        self.assertEqual(self.api.exec(box, "test -e ~/y")["exit_code"], 1)

    def test_replace(self):
        box = self.create()["sandbox_id"]
        self.api.write(box, "/workspace/a", b"x y x")
        self.api.write(box, "/workspace/b", b"none")
        data = self.good("file_replace_contents", sandbox_id=box, entries=[
            {"path": "/workspace/a", "old_content": "x", "new_content": "long"},
            {"path": "/workspace/b", "old_content": "x", "new_content": ""}])
        self.assertEqual(data, {"result": [{"path": "/workspace/a", "replaced_count": 2},
                                           {"path": "/workspace/b", "replaced_count": 0}]})
        self.assertEqual(self.api.read(box, "/workspace/a"), b"long y long")
        self.assertEqual(self.good("file_replace_contents", sandbox_id=box, entries=[]), {"result": []})
        self.bad("file_replace_contents", "entry 2 of 2", sandbox_id=box, entries=[
            {"path": "/workspace/a", "old_content": "y", "new_content": "z"},
            {"path": "/nope", "old_content": "y", "new_content": "z"}])

    # --- what is refused ---

    def test_bad_arguments(self):
        box = self.create()["sandbox_id"]
        at = {"sandbox_id": box}
        for tool, arguments, word in (
                ("sandbox_create", {}, "image"), ("sandbox_create", {"image": 7}, "image"),
                ("sandbox_create", {"image": "host", "timeout_seconds": 0}, "timeout_seconds"),
                ("sandbox_create", {"image": "host", "timeout_seconds": "soon"}, "timeout_seconds"),
                ("sandbox_create", {"image": "host", "auth_username": "u"}, "auth_password"),
                ("sandbox_create", {"image": "host", "env": {"A": 1}}, "env"),
                ("sandbox_create", {"image": "host", "env": {"A=B": "1"}}, "env"),
                ("sandbox_create", {"image": "host", "metadata": {"opensandbox.io/x": "1"}}, "reserved"),
                ("sandbox_create", {"image": "host", "resource": {"cpu": "lots"}}, "cpu"),
                ("sandbox_create", {"image": "host", "resource": {"memory": "2Qi"}}, "memory"),
                ("sandbox_create", {"image": "host", "resource": {"memory": "99999Gi"}}, "memory"),
                ("sandbox_create", {"image": "host", "entrypoint": []}, "entrypoint"),
                ("sandbox_create", {"image": "host", "entrypoint": "tail"}, "entrypoint"),
                ("sandbox_renew", at, "timeout_seconds"), ("sandbox_renew", {**at, "timeout_seconds": -1}, "timeout_seconds"),
                ("sandbox_renew", {**at, "timeout_seconds": 1e12}, "timeout_seconds"),
                ("sandbox_list", {"filter": 7}, "filter"), ("sandbox_list", {"filter": {"page_size": 0}}, "page_size"),
                ("sandbox_list", {"filter": {"states": "Running"}}, "states"),
                ("sandbox_list", {"filter": {"metadata": {"a": 1}}}, "metadata"),
                ("sandbox_get_metrics", {**at, "connect_if_missing": "perhaps"}, "connect_if_missing"),
                ("command_run", at, "command"), ("command_run", {**at, "command": ["ls"]}, "command"),
                ("command_interrupt", at, "execution_id"),
                ("file_read", at, "path"), ("file_read", {**at, "path": "/nope"}, "/nope"),
                ("file_read", {**at, "path": "/workspace"}, "directory"),
                ("file_read", {**at, "path": "/etc/passwd", "encoding": "utf-7"}, "latin-1"),
                ("file_read", {**at, "path": "/etc/passwd", "range_header": "bytes=9-1"}, "range_header"),
                ("file_read", {**at, "path": "/etc/passwd", "range_header": "lines=1-2"}, "range_header"),
                ("file_read", {**at, "path": "/etc/passwd", "range_header": "bytes=0-99999999"}, "range_header"),
                ("file_write", {**at, "path": "/workspace/x"}, "content"),
                ("file_write", {**at, "path": "/workspace/x", "content": "", "mode": 789}, "mode"),
                ("file_write", {**at, "path": "/workspace/x", "content": "€", "encoding": "latin-1"}, "Latin-1"),
                ("file_write", {**at, "path": "/workspace/x", "content": "?", "encoding": "base64"}, "base64"),
                ("file_write", {**at, "path": "/workspace/x", "content": "", "owner": "nobody-there"}, "nobody-there"),
                ("file_delete", at, "paths"), ("file_delete", {**at, "paths": "/a"}, "paths"),
                ("file_delete", {**at, "paths": [7]}, "paths"), ("file_delete_directories", {**at, "paths": [""]}, "paths"),
                ("file_search", {**at, "path": "/workspace"}, "pattern"),
                ("file_search", {**at, "path": "/nope", "pattern": "*"}, "/nope"),
                ("file_create_directories", {**at, "entries": [{}]}, "entries[0]"),
                ("file_create_directories", {**at, "entries": [{"path": "/proc/x"}]}, "/proc"),
                ("file_move", {**at, "entries": [{"source": "/a"}]}, "destination"),
                ("file_move", {**at, "entries": [{"source": "/nope", "destination": "/b"}]}, "/nope"),
                ("file_replace_contents", {**at, "entries": [7]}, "entries[0]"),
                ("file_replace_contents", {**at, "entries": [{"path": "/a", "old_content": "", "new_content": "b"}]}, "empty"),
                ("sandbox_get_endpoint", {**at, "port": 0}, "port"), ("sandbox_get_endpoint", at, "port")):
            with self.subTest(tool=tool, arguments=arguments):
                self.bad(tool, word, **arguments)
        for tool in SCHEMAS:
            if tool not in ("sandbox_create", "sandbox_list"):
                with self.subTest(tool=tool):
                    self.bad(tool, "sandbox_id", **self.live(tool, None))
                    self.bad(tool, "neither the id nor the name", **self.live(tool, "No Such Thing"))
        self.assertEqual(self.run_command(box, "true", nothing="of the kind")["exit_code"], 0)

    def live(self, tool, sandbox):
        """Arguments with which the tool works."""
        more = {"sandbox_renew": {"timeout_seconds": 60}, "command_run": {"command": "true"},
                "command_interrupt": {"execution_id": "x"}, "file_read": {"path": "/etc/passwd"},
                "file_write": {"path": "/workspace/x", "content": "x"}, "file_search": {"path": "/", "pattern": "x"},
                "sandbox_get_endpoint": {"port": 80}}.get(tool, {})
        if "paths!" in SCHEMAS[tool][0]:
            more = {"paths": ["/workspace/x"]}
        if "entries!" in SCHEMAS[tool][0]:
            more = {"entries": []}
        return {**more, "sandbox_id": sandbox} if sandbox else more

    def test_other_workspaces(self):
        box = self.create()["sandbox_id"]
        self.api.write(box, "/workspace/x", b"kept")
        other = Mcp(self.daemon.tcp(self.daemon.token(workspace="other")), "/mcp/opensandbox")
        for tool in SCHEMAS:
            if tool not in ("sandbox_create", "sandbox_list"):
                with self.subTest(tool=tool):
                    self.bad(tool, "no sandbox", mcp=other, **self.live(tool, box))
        self.assertEqual(self.good("sandbox_list", mcp=other)["sandbox_infos"], [])
        self.assertEqual(self.api.read(box, "/workspace/x"), b"kept")
        self.assertEqual(self.good("sandbox_get_info", sandbox_id=box)["status"]["state"], "Running")

    def test_tokens(self):
        box = self.create()["sandbox_id"]
        reader = Mcp(self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])), "/mcp/opensandbox")
        names = [tool["name"] for tool in reader.modern("tools/list")["tools"]]
        self.assertEqual(names, READS)
        self.assertIn("root", self.good("file_read", mcp=reader, sandbox_id=box, path="/etc/passwd")["content"])
        with self.assertRaises((McpError, AssertionError)):
            self.good("command_run", mcp=reader, sandbox_id=box, command="touch /workspace/no")
        bound = Mcp(self.daemon.tcp(self.daemon.token(sandbox=box)), "/mcp/opensandbox")
        self.bad("sandbox_create", "one sandbox only", "auth.forbidden", mcp=bound, image="host")
        page = self.good("sandbox_list", mcp=bound)
        self.assertEqual([info["id"] for info in page["sandbox_infos"]], [box])
        with self.assertRaises(ApiError):
            self.api.read(box, "/workspace/no")


class ShortLives(DaemonTest):
    config = "[sandbox]\ntimeout = 200\ntimeout_max = 300\n"

    def made(self, path, tool, arguments):
        result = Mcp(self.api, path).call(tool, arguments)
        self.assertNotIn("isError", result, result["content"])
        record, = self.api.get("/v1/sandboxes")["items"]
        self.remove(record["id"])
        return record["timeout_seconds"]

    def test_a_default_above_the_hosts_maximum(self):
        """The schema's default is the peer's; nobody who leaves it out is refused for it."""
        self.assertEqual(self.made("/mcp/opensandbox", "sandbox_create", {"image": "host"}), 300)
        told = Mcp(self.api, "/mcp/opensandbox").call("sandbox_create", {"image": "host", "timeout_seconds": 600})
        self.assertIn("1 to 300", told["content"][0]["text"])
        # The other tools know the configured default, and tell it.
        self.assertEqual(self.made("/mcp", "create_sandbox", {}), 200)
        text = Mcp(self.api).text("get_sandbox_limits")
        self.assertRegex(text, r"default: .*timeout_seconds 200\nmaximum: .*timeout_seconds 300\n")


class Restart(DaemonTest):
    def test_commands_go_on(self):
        """A session's command whose client is gone goes on; the end of the daemon is no reason to end it either."""
        box = self.sandbox()
        call = {"name": "command_run", "arguments": {"sandbox_id": box, "command": "sleep 4705"}}
        answer = Mcp(self.api, "/mcp/opensandbox").session().begin("tools/call", call)
        wait_until(lambda: sleepers(self.api, box, 4705) == 1, what="the command")
        answer.__exit__()
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(sleepers(self.api, box, 4705), 1)
