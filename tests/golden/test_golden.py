"""What clients can see, held against golden files (tests/lib/golden.py): the help of each verb, the tools of each MCP
server, how each REST operation and each tool refuses what it cannot take, and what each operation does to a sandbox in
each state. A change that moves walls changes none of them; one that changes a file says why in its commit."""
import json
import re
import subprocess

import golden
from caisson import PROGRAM, DaemonTest
from contract import OPERATIONS
from generate import NOWHERE, Requests, edges, objects, wrong
from mcp import Mcp, McpError, McpTest
from wire import Wire

SERVERS = {"default": "/mcp", "readonly": "/mcp/readonly", "all": "/mcp/x/all", "admin": "/mcp/admin",
           "opensandbox": "/mcp/opensandbox", "sandbox": "/v1/sandboxes/{sandbox}/mcp"}
# Made of the machine, not of the request.
VARIABLE = [(re.compile(pattern), word) for pattern, word in (
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"), (r"made \d+ s ago, ends in \d+ min", "made AGE ago, ends in WHILE"),
    (r"\b(?!abcdefghijklmnop)[a-z2-7]{16}\b", "ANOTHER"))]
LINE_MAX = 600
# Without it, these follow the memory and the processors of the host.
CONFIG = "[sandbox]\nmemory_max = 2G\ncpu_max = 2\n"


class Plain:
    """Texts without what differs from one run to the next."""

    def __init__(self, **names):
        self.names = names  # what -> the word for it

    def __call__(self, text):
        for value, word in self.names.items():
            text = text.replace(value, word)
        for pattern, word in VARIABLE:
            text = pattern.sub(word, text)
        return text if len(text) <= LINE_MAX else text[:LINE_MAX] + f"... ({len(text)})"

    def error(self, status, data):
        """An error of the API in one line; of an answer that is none, its status."""
        if status < 400:
            return str(status)
        body = json.loads(data)
        rest = {key: value for key, value in body.items() if key not in ("request_id", "code", "error")
                and (key, value) not in (("retryable", False), ("detail", body["error"]))}
        return self(f"{status} {body['code']}: {body['error']}" + (f" {json.dumps(rest, ensure_ascii=False)}" if rest else ""))


def grouped(outcomes):
    """(case, outcome) pairs as lines, those with the same outcome on one."""
    cases = {}
    for case, outcome in outcomes:
        cases.setdefault(outcome, []).append(case)
    return [f"  {outcome}\n    {' | '.join(names)}" for outcome, names in cases.items()]


class CompleteRequests(Requests):
    """Bodies also have what is needed by the operation, not by its schema alone."""

    def beside(self, name):
        rest = super().beside(name)
        if "cmd" in self.schema["properties"] and name not in ("cmd", "argv", "command", "args"):
            rest.setdefault("cmd", "true")
        return rest


class Help(DaemonTest):
    config = CONFIG

    def run_program(self, *words):
        result = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False,
                                env={"PATH": "/usr/bin:/bin", "COLUMNS": "100", "CAISSON_RUNTIME": self.daemon.runtime})
        return f"=== caisson {' '.join(words)}: {result.returncode}\n{result.stdout}{result.stderr}"

    def test_help(self):
        top = self.run_program("help")
        verbs = re.findall(r"^  ([a-z]+) {2,}\S", top.partition("Try it")[0], re.MULTILINE)
        self.assertGreater(len(verbs), 30)
        golden.check(self, "help.txt", "\n".join([top, *(self.run_program(verb, "--help") for verb in verbs)]))

    def test_mistakes(self):
        verbs = re.findall(r"^  ([a-z]+) {2,}\S", self.run_program("help").partition("Try it")[0], re.MULTILINE)
        lines = [self.run_program(*words) for verb in verbs for words in ((verb, "--nonsense"), (verb, "-%"))]
        lines += [self.run_program(*words.split()) for words in
                  ("nonsense", "creat", "create --memory x", "create --cpu 0", "create --cpu 257", "create --network on", "create a b",
                   "run -m 1", "run --pids 0 -- true", "exec", "exec nobody -- true", "cp", "cp a b", "cp a: b", "rm", "stop", "logs",
                   "extend", "extend nobody 1y", "set nobody", "set nobody --memory 0", "token create --scopes nonsense", "budget set",
                   "wait nobody --for nonsense", "sign nobody", "inspect nobody", "inspect nobody --json", "wrap")]
        golden.check(self, "mistakes.txt", "\n".join(lines))


class Rest(DaemonTest):
    config = CONFIG
    box_fields = {"timeout_seconds": 3600, "memory_mb": 256}

    def test_refusals(self):
        """Each operation with each field and parameter as it must not be."""
        execution = self.api.exec(self.box, "true")["exec_id"]
        plain = Plain(**{self.box: "SANDBOX", execution: "EXEC"})
        values = {"sandbox": self.box, "exec": execution, "workspace": "generated"}
        wire, lines = Wire(socket_path=self.api.socket_path), []
        self.addCleanup(wire.close)
        for method, path in sorted(OPERATIONS, key=lambda one: (one[1], one[0])):
            cases = [case for case in CompleteRequests(method, path, values).cases()
                     if case.kind == "invalid" or case.name.startswith("body: ")]
            answers = [wire.ask(method, case.target, case.body, case.headers) for case in cases]
            outcomes = [plain.error(answer.status, answer.body) for answer in answers]
            lines += [f"{method} {path}", *grouped(zip((case.name for case in cases), outcomes))]
        golden.check(self, "rest.txt", "\n".join(lines) + "\n")


class Tools(McpTest):
    config = CONFIG
    box_fields = {"timeout_seconds": 3600, "memory_mb": 256}

    def at(self, name):
        return Mcp(self.api, SERVERS[name].format(sandbox=self.box))

    def remove_others(self):
        """What a lenient tool has made."""
        for record in self.api.get("/v1/sandboxes", limit=1000)["items"]:
            if record["id"] != self.box:
                self.remove(record["id"])

    def test_lists(self):
        """What a server says of itself and of its tools, to the newest clients and to older ones."""
        for name in SERVERS:
            answers = {"server/discover": self.at(name).modern("server/discover")}
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                try:
                    answers[method] = self.at(name).modern(method)
                except McpError as error:
                    answers[method] = {"error": error.code, "message": error.message}
            answers["tools/list 2024-11-05"] = self.at(name).session("2024-11-05").request("tools/list")
            text = json.dumps(answers, indent=1, ensure_ascii=False).replace(self.box, "SANDBOX") + "\n"
            golden.check(self, f"tools/{name}.json", re.sub(r'"version": "[^"]*"', '"version": "VERSION"', text))

    def test_refusals(self):
        """Each tool with each argument as its schema does not allow it. The sandbox that is named does not exist, so
        that what is let through does nothing."""
        plain, lines = Plain(**{self.box: "SANDBOX"}), []
        for name in ("all", "admin", "opensandbox"):
            mcp = self.at(name)
            for tool in mcp.modern("tools/list")["tools"]:
                outcomes = [(title, plain(outcome(mcp, tool["name"], arguments))) for title, arguments in refused_arguments(tool)]
                lines += [f"{name} {tool['name']}", *grouped(outcomes)]
                self.remove_others()
        golden.check(self, "tools.txt", "\n".join(lines) + "\n")


def inlined(schema, definitions):
    """Without references to definitions of its own."""
    if isinstance(schema, list):
        return [inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref", "").startswith("#/$defs/"):
        return inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    return {key: inlined(value, definitions) for key, value in schema.items() if key != "$defs"}


def refused_arguments(tool):
    schema = inlined(tool["inputSchema"], tool["inputSchema"].get("$defs", {}))
    properties = schema.get("properties", {})
    base = {**objects(schema)[0], **{name: NOWHERE for name in properties if name in ("sandbox", "sandbox_id")}}
    for name in schema.get("required", []):
        yield f"without {name}", {key: value for key, value in base.items() if key != name}
    yield "nonsense", {**base, "nonsense": 1}
    for name, field in properties.items():
        for value in edges(field)[1] + wrong(field):
            yield f"{name}={value!r:.40}", {**base, name: value}


def outcome(mcp, tool, arguments):
    try:
        result = mcp.call(tool, arguments)
    except McpError as error:
        return f"{error.code} {error.message}" + (f" {json.dumps(error.data)}" if error.data else "")
    return "error: " + result["content"][0]["text"].replace("\n", "\\n") if result.get("isError") else "answered"


class Life(DaemonTest):
    """Each operation on a sandbox in each state: what is answered, and the state that is there afterwards."""
    config = CONFIG
    REACH = {"running": (), "paused": ("pause",), "stopped": ("stop",)}
    OPERATIONS = [("GET", ""), ("PATCH", "", {"labels": {"a": "b"}}), ("PATCH", "", {"timeout_seconds": 60}), ("PATCH", "", {"memory_mb": 512}),
                  ("PATCH", "", {"name": "another"}), ("POST", "/stop", {}), ("POST", "/start", {}), ("POST", "/pause", {}),
                  ("POST", "/resume", {}), ("POST", "/hibernate", {}), ("POST", "/wake", {}), ("POST", "/drain", {"timeout_seconds": 1}),
                  ("POST", "/exec", {"cmd": "echo text"}), ("POST", "/jobs", {"cmd": "true"}), ("POST", "/code", {"language": "bash", "code": "echo 1"}),
                  ("POST", "/contexts", {"language": "bash"}), ("GET", "/execs"), ("GET", "/files/list?path=/"), ("GET", "/files?path=/etc/hostname"),
                  ("PUT", "/files?path=/tmp/a", b"text"), ("GET", "/files/archive?path=/tmp"), ("GET", "/metrics"), ("GET", "/activity"),
                  ("GET", "/lifecycle"), ("PATCH", "/lifecycle", {"auto_pause_seconds": 60}), ("GET", "/wait?for=running&timeout_seconds=0"),
                  ("POST", "/files/sign", {"path": "/tmp/a"}), ("DELETE", "")]

    def answer(self, method, path, body=None):
        response, connection = self.api.raw(method, path, body, checked=False)
        data = response.read()
        connection.close()
        return response.status, data

    def state(self, box):
        status, data = self.answer("GET", "/v1/sandboxes/" + box)
        return json.loads(data)["state"] if status == 200 else str(status)

    def outcome(self, box, method, rest, body=None):
        status, data = self.answer(method, f"/v1/sandboxes/{box}{rest}", body)
        return Plain(**{box: "SANDBOX"}).error(status, data)

    def title(self, method, rest, body=None):
        return f"{method} {rest or '/'} {json.dumps(body) if isinstance(body, dict) and body else ''}".rstrip()

    def test_states(self):
        lines = []
        for state, reach in self.REACH.items():
            for wake_on_read in (True, False):
                for operation in self.OPERATIONS:
                    box = self.api.create(timeout_seconds=3600, memory_mb=256, wake_on_read=wake_on_read)["id"]
                    for verb in reach:
                        self.api.post(f"/v1/sandboxes/{box}/{verb}")
                    self.assertEqual(self.state(box), state)
                    answered = self.outcome(box, *operation)
                    lines.append(f"{state}{', wakes on read' if wake_on_read else ''}: {self.title(*operation)}: {answered} -> {self.state(box)}")
                    self.remove(box)
        box = self.api.create()["id"]
        self.remove(box)
        lines += [f"removed: {self.title(*operation)}: {self.outcome(box, *operation)}" for operation in self.OPERATIONS]
        golden.check(self, "life.txt", "\n".join(lines) + "\n")
