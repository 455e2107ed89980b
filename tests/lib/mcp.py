"""A small raw client of the MCP server, for the suites of tests/mcp: it shows exactly what is on the wire.

    client = Mcp(daemon.client())                    # over the Unix socket; daemon.tcp(token) is the other way
    client.modern("tools/list")                      # one request of 2026-07-28: its result, or McpError
    client.call("run_shell", {"command": "true"})    # tools/call: the result
    session = client.session("2025-11-25")           # initialize: a legacy session
    session.request("tools/list"); session.notify("notifications/initialized")
    with session.stream() as events: ...             # its GET stream

`send()` returns any answer unchanged (an Answer: status, headers, messages, events). The Answer of a stream is read as
it arrives: `next()` waits for one message, `rest()` for all. Every wait is bounded by the client's timeout."""
import itertools
import json
import os
import re
import select
import time

import caisson

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId",
         "tasks/update": "taskId", "tasks/cancel": "taskId"}


class McpError(Exception):
    def __init__(self, error, status=None):
        super().__init__(f"{status}: {error}")
        self.code, self.message, self.data, self.status = error.get("code"), error.get("message"), error.get("data"), status


class Answer:
    """The answer to one HTTP request."""

    def __init__(self, response, connection):
        self.response, self.connection = response, connection
        self.status, self.headers = response.status, response.headers
        self.kind = response.getheader("Content-Type", "")
        self.events = []    # read from a stream so far: (id or None, data)
        self.comments = []  # read from a stream so far
        self.retry = None
        self.body = None
        if not self.streams:
            data = response.read()
            self.text = data.decode()
            if self.kind.startswith("application/json") and data:
                self.body = json.loads(data)
            self.close()

    @property
    def streams(self):
        return self.kind.startswith("text/event-stream")

    def event(self):
        """The next event of a stream, (id, data); None at its end."""
        number, data, seen = None, [], False
        end = time.monotonic() + self.connection.timeout
        while True:
            # Keep-alive comments come too often for a read to time out, so check the time here.
            if time.monotonic() > end:
                raise TimeoutError(f"no event within {self.connection.timeout} s, only comments")
            line = self.response.readline()
            if not line:
                self.close()
                return None
            line = line.decode().rstrip("\n")
            if line == "":
                if seen:
                    self.events.append((number, "\n".join(data)))
                    return self.events[-1]
                continue
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            seen = True
            if field == "id":
                number = value
            elif field == "data":
                data.append(value)
            elif field == "retry":
                self.retry = int(value)

    def next(self):
        """The next message; None at the end. A priming event is not a message."""
        if not self.streams:
            body, self.body = self.body, None
            return body
        while True:
            event = self.event()
            if event is None:
                return None
            if event[1]:
                return json.loads(event[1])

    def rest(self):
        """All remaining messages, up to the end."""
        return list(iter(self.next, None))

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.response.close()
        self.close()


def meta(capabilities=None, version=MODERN, token=None, level=None, **more):
    value = {META + "protocolVersion": version, META + "clientCapabilities": capabilities or {}, **more}
    if token is not None:
        value["progressToken"] = token
    if level is not None:
        value[META + "logLevel"] = level
    return value


def seconds_to_die(word, give_up):
    """Measures how long the processes whose command lines contain `word` (a word that nothing else on this host uses)
    live after give_up() was called. The kernel reports each end, so no search for processes adds to the time."""
    watched = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(entry) != os.getpid() and word in open(f"/proc/{entry}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace"):
                watched.append(os.pidfd_open(int(entry)))
        except OSError:  # the process has just ended
            pass
    assert watched, f"nothing runs that is called {word}"
    poll = select.poll()
    for descriptor in watched:
        poll.register(descriptor, select.POLLIN)
    began, left = time.monotonic(), set(watched)
    try:
        give_up()
        while left:
            ended = poll.poll(60_000)
            assert ended, f"{len(left)} processes of {word} live on"
            for descriptor, _ in ended:
                poll.unregister(descriptor)
                left.discard(descriptor)
        return time.monotonic() - began
    finally:
        for descriptor in watched:
            os.close(descriptor)


def untimed(text):
    """The output of a run without its duration. A duration is printed from one second on, and a stalled machine can
    cause that."""
    return re.sub(r"(exit code \d+) after [1-9]\d*\.\d s(?=[],;])", r"\1", text)


def answer_of(messages, number, status=None):
    for message in messages:
        if isinstance(message, dict) and message.get("id") == number and "method" not in message:
            if "error" in message:
                raise McpError(message["error"], status)
            return message["result"]
    raise AssertionError(f"no answer to {number!r} (status {status}) among {messages}")


class Mcp:
    def __init__(self, client, path="/mcp"):
        """`client` is a Client of caisson.py."""
        self.client, self.path, self.ids = client, path, itertools.count(1)

    def send(self, body, headers=None, method="POST"):
        """Sends one HTTP request. `body`: text or bytes, sent unchanged, or a value to send as JSON."""
        headers = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        response, connection = self.client.raw(method, self.path, body, headers, checked=False)
        return Answer(response, connection)

    # --- 2026-07-28 ---

    def modern_headers(self, message):
        params = message.get("params") or {}
        headers = {"MCP-Protocol-Version": (params.get("_meta") or {}).get(META + "protocolVersion", MODERN),
                   "Mcp-Method": message["method"]}
        name = params.get(NAMED.get(message["method"]))
        if isinstance(name, str):
            headers["Mcp-Name"] = name
        return headers

    def modern_send(self, method, params=None, number=None, headers=None, **around):
        """The answer to a request with a valid envelope, unchanged; `around` goes to meta()."""
        message = {"jsonrpc": "2.0", "id": next(self.ids) if number is None else number, "method": method,
                   "params": {**(params or {}), "_meta": meta(**around)}}
        return self.send(message, {**self.modern_headers(message), **(headers or {})})

    def leave(self, method, params=None, after=0, **around):
        """Sends such a request and disconnects `after` seconds later, without reading an answer. When this returns, the
        daemon has read the request."""
        message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": {**(params or {}), "_meta": meta(**around)}}
        headers = {"Content-Type": "application/json", "Accept": BOTH, **self.modern_headers(message)}
        if self.client.token:
            headers["Authorization"] = "Bearer " + self.client.token
        connection = self.client.connection()
        connection.checked = False
        connection.request("POST", self.path, json.dumps(message), headers)
        time.sleep(after)
        connection.close()
        # The daemon reads the earlier request before these.
        for _ in range(2):
            self.client.get("/healthz")

    def modern(self, method, params=None, number=None, headers=None, **around):
        """The result; the notifications before it are in `self.notes`."""
        number = next(self.ids) if number is None else number
        with self.modern_send(method, params, number, headers, **around) as answer:
            messages = answer.rest()
        self.notes = [message for message in messages if "method" in message]
        return answer_of(messages, number, answer.status)

    def call(self, tool, arguments=None, **around):
        params = {"name": tool}
        if arguments is not None:
            params["arguments"] = arguments
        return self.modern("tools/call", params, **around)

    def text(self, tool, arguments=None, **around):
        """The texts of a tool's result, which must not be an error."""
        result = self.call(tool, arguments, **around)
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        if result.get("isError"):
            raise AssertionError(f"{tool}: {text}")
        return text

    # --- legacy ---

    def session(self, version=LEGACY, capabilities=None, initialized=True):
        return Session(self, version, capabilities or {}, initialized)


class Session:
    """The session of one legacy client: initialize, then requests with the session's id."""

    def __init__(self, mcp, version, capabilities, initialized):
        self.mcp, self.ids, self.version = mcp, itertools.count(1), version
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}}
        with mcp.send(message) as answer:
            self.result = answer_of(answer.rest(), 0, answer.status)
            self.id = answer.headers.get("Mcp-Session-Id")
        self.version = self.result["protocolVersion"]
        self.notes = []
        if initialized:
            self.notify("notifications/initialized")

    def headers(self, more=None):
        headers = {"Mcp-Session-Id": self.id}
        if self.version >= "2025-06-18":
            headers["MCP-Protocol-Version"] = self.version
        return {**headers, **(more or {})}

    def send(self, body, headers=None, method="POST"):
        return self.mcp.send(body, self.headers(headers), method)

    def begin(self, method, params=None, number=None, headers=None):
        """The answer to a request, unchanged."""
        message = {"jsonrpc": "2.0", "id": next(self.ids) if number is None else number, "method": method}
        if params is not None:
            message["params"] = params
        return self.send(message, headers)

    def request(self, method, params=None, number=None, answers=None):
        """The result. `answers` (method -> function of params) answers requests that the server sends before it."""
        number = next(self.ids) if number is None else number
        self.notes = []
        with self.begin(method, params, number) as answer:
            while (message := answer.next()) is not None:
                if "method" in message and "id" in message:
                    self.respond(message["id"], answers[message["method"]](message.get("params")))
                elif "method" in message:
                    self.notes.append(message)
                else:
                    return answer_of([message], number, answer.status)
        raise AssertionError(f"{method}: no answer (status {answer.status}), after {self.notes}")

    def call(self, tool, arguments=None, **options):
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}}, **options)

    def respond(self, number, result):
        with self.send({"jsonrpc": "2.0", "id": number, "result": result}) as answer:
            if answer.status != 202:
                raise AssertionError(f"a response gave {answer.status}")

    def notify(self, method, params=None):
        message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        with self.send(message) as answer:
            if answer.status != 202:
                raise AssertionError(f"{method} gave {answer.status}: {answer.body}")

    def stream(self, after=None):
        """The GET stream, or with `after` the events that followed that event."""
        return self.mcp.send(None, self.headers({"Accept": "text/event-stream", "Content-Type": None,
                                                 "Last-Event-ID": after}), "GET")

    def end(self):
        with self.send(None, method="DELETE") as answer:
            return answer.status


class McpTest(caisson.DaemonTest):
    """One daemon for all tests of a class, and a client of its MCP server."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mcp = Mcp(cls.api)

    def error(self, tool, **arguments):
        """The text of a result that must be an error."""
        result = Mcp(self.api).call(tool, arguments)
        self.assertTrue(result.get("isError"), result)
        return result["content"][0]["text"]
