"""The rows about MCP: requests per second of tools/list and of a small read_file on one core, run_shell beside the
same command over REST, and the sizes that a model has to read. The peer is a server on the official TypeScript SDK
(mcp_peer.mjs), with the same list of tools and a read_file in its own process. Called by `run`."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from npm import installed
from peers import Client, constant_server, two_cores
from ports import free_port
from report import Series, interleave, median, p99

HERE = os.path.dirname(os.path.abspath(__file__))
REVISION = "2026-07-28"
CONNECTIONS = 64
# As their notes have it: characters of tools/list, and of the answer to `seq 1 1000`.
PEERS_LIST = {"microsandbox": 61821, "OpenSandbox": 48800}
PEERS_SEQ = {"OpenSandbox": 166_000}


def body(method, **params):
    meta = {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})


def headers(method, name=None):
    lines = ["Accept: application/json, text/event-stream", "MCP-Protocol-Version: " + REVISION, "Mcp-Method: " + method]
    return "|".join(lines + (["Mcp-Name: " + name] if name else []))


def call(tool, **arguments):
    return body("tools/call", name=tool, arguments=arguments), headers("tools/call", tool)


def ask(bench, request):
    """One request; its result."""
    text, lines = request
    pairs = dict(line.split(": ", 1) for line in lines.split("|"))
    connection = bench.api.connection()
    try:
        connection.request("POST", "/mcp", text, {**pairs, "Content-Type": "application/json",
                                                  "Authorization": "Bearer " + bench.daemon.token()})
        answer = connection.getresponse().read()
    finally:
        connection.close()
    return json.loads(answer)["result"]


@contextlib.contextmanager
def peer(tools, cpu):
    """The port of a server on the official SDK, and its pid; (None, None) without node."""
    node = shutil.which("node")
    if not node:
        yield None, None
        return
    modules = installed("tests/mcp/npm")
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tools, file)
        file.flush()
        process = subprocess.Popen([node, os.path.join(HERE, "mcp_peer.mjs"), str(port), file.name], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env={**os.environ, "MODULES": modules})
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the server on the official SDK did not start")
            if cpu is not None:
                for task in os.listdir(f"/proc/{process.pid}/task"):
                    os.sched_setaffinity(int(task), {cpu})
            yield port, process.pid
        finally:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
            process.stdout.close()


class Rates:
    """Requests per second of several servers, whose core is one and whose client's is another."""

    def __init__(self, stack, cpu, seconds):
        self.stack, self.cpu, self.seconds = stack, cpu, seconds
        self.times = {}

    def of(self, series, port, path, request=(None, None), token=None, connections=16, verb="rate-awake"):
        client = Client(port=port, token=token)
        self.stack.callback(client.close)
        if self.cpu is not None and verb == "rate-awake":
            os.sched_setaffinity(client.process.pid, {self.cpu})
        words = [word for word in request if word]

        def once():
            answer = client.ask(verb, self.seconds, connections, path, *words)
            self.times.setdefault(series.name, []).extend(answer["times"])
            return [answer["per_second"]]
        return once


def rates(bench, report, quick, pinned):
    box = bench.api.create(timeout_seconds=3600)["id"]
    cpu, client_cpu = two_cores(bench.daemon)
    bench.api.write(box, "/workspace/small", b"x" * 100)
    small = os.path.join(bench.top, "small")
    with open(small, "w") as file:
        file.write("x" * 100)
    list_request = body("tools/list"), headers("tools/list")
    read_request = call("read_file", sandbox_id=box, path="/workspace/small")
    tools = ask(bench, list_request)["tools"]
    token = bench.daemon.token()
    size = Client(port=bench.daemon.port, token=token)
    length = size.ask("repeat", 1, "POST", "/mcp", *list_request)["bytes"]
    size.close()
    ours, read = Series("tools/list"), Series("read_file")
    many = Series("tools/list on 64 connections")
    constant, constant_small = Series("a constant of that size"), Series("a constant of 100 bytes (MCP)")
    with contextlib.ExitStack() as stack:
        http, _ = stack.enter_context(constant_server("http", length, cpu))
        little, _ = stack.enter_context(constant_server("http", 100, cpu))
        other, _ = stack.enter_context(peer(tools, cpu))
        stack.enter_context(pinned(bench.daemon.daemon_pid(), cpu))
        by = Rates(stack, client_cpu, 0.3 if quick else 1)
        work = {ours: by.of(ours, bench.daemon.port, "/mcp", list_request, token),
                many: by.of(many, bench.daemon.port, "/mcp", list_request, token, CONNECTIONS),
                constant: by.of(constant, http, "/"),
                # Three on two cores, with a sandbox: the client is where the scheduler puts it, the constant's too.
                read: by.of(read, bench.daemon.port, "/mcp", read_request, token, verb="rate"),
                constant_small: by.of(constant_small, little, "/", verb="rate")}
        other_list, other_read = Series("official SDK: tools/list"), Series("official SDK: read_file")
        if other:
            work[other_list] = by.of(other_list, other, "/mcp", list_request)
            work[other_read] = by.of(other_read, other, "/mcp", call("read_file", path=small), verb="rate")
        interleave(2 if quick else 8, work)
    bench.remove(box)
    missing = [] if other else ["node is not installed: nothing on the official SDK to compare with"]
    report.row("mcp-list", "MCP tools/list, requests per second on one core", ours, "1/s",
               [(constant, "our HTTP layer, a constant of that size", 0.7, "at least"),
                (other_list if other else None, "a server on the official TypeScript SDK", 5, "at least")],
               [f"{length} bytes", *missing])
    spread = p99(by.times[many.name]) / median(by.times[many.name])
    report.value("mcp-list-spread", f"MCP tools/list on {CONNECTIONS} connections: p99 over p50", spread, "x", 3)
    report.row("mcp-read", "MCP read_file of a small file (two process hops)", read, "1/s",
               [(constant_small, "our HTTP layer, a constant", 0.15, "at least"),
                (other_read if other else None, "a server on the official TypeScript SDK", 5, "at least")])


def run_shell(bench, report, quick):
    box = bench.api.create(timeout_seconds=3600)["id"]
    client = Client(port=bench.daemon.port, token=bench.daemon.token())
    over_mcp, over_rest = Series("run_shell true"), Series("true over REST")
    request = call("run_shell", sandbox_id=box, command="true")
    path, command = f"/v1/sandboxes/{box}/exec", json.dumps({"cmd": "true"})
    try:
        interleave(3 if quick else 20, {
            over_mcp: lambda: client.ask("repeat", 10, "POST", "/mcp", *request)["times"],
            over_rest: lambda: client.ask("repeat", 10, "POST", path, command)["times"]})
    finally:
        client.close()
        bench.remove(box)
    report.row("mcp-run", "MCP run_shell true", over_mcp, "us", [(over_rest, "the same over REST", 1.3)])


def sizes(bench, report):
    listed = len(json.dumps(ask(bench, (body("tools/list"), headers("tools/list")))["tools"], separators=(",", ":")))
    theirs = [f"{name}: {value:,} (its notes; {value / listed:.1f} x ours)" for name, value in PEERS_LIST.items()]
    report.value("mcp-list-size", "bytes of tools/list", listed, "bytes", 10 * 1024, theirs)
    box = bench.api.create(timeout_seconds=600)["id"]
    result = ask(bench, call("run_shell", sandbox_id=box, command="seq 1 1000"))
    bench.remove(box)
    size = len(json.dumps(result["content"], separators=(",", ":")))
    theirs = [f"{name}: {value:,} (its notes; {value / size:.1f} x ours)" for name, value in PEERS_SEQ.items()]
    report.value("mcp-seq-size", "bytes of the answer to `seq 1 1000` (3,893 bytes of output)", size, "bytes", None, theirs)


def rows(bench, report, quick, pinned):
    rates(bench, report, quick, pinned)
    run_shell(bench, report, quick)
    sizes(bench, report)
