"""An MCP client of a process that serves MCP on its standard input and output: `caisson mcp`, or a server under
`caisson wrap`. Every wait is bounded. Every line on standard output must be one JSON object."""
import itertools
import json
import os
import select
import signal
import subprocess
import time

from mcp import LEGACY, meta


class Stdio:
    def __init__(self, command, environment, timeout=60, pass_fds=(), cwd=None):
        self.timeout = timeout
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**environment, "ASAN_OPTIONS": "detect_leaks=0"}, bufsize=0, cwd=cwd, pass_fds=pass_fds)
        self.ids = itertools.count(1)
        self.rest = b""
        self.seen = []  # messages that arrived and were not requested yet

    # --- lines ---

    def write(self, data):
        self.process.stdin.write(data)

    def send(self, message):
        self.write(json.dumps(message).encode() + b"\n")

    def line(self):
        """The next line; None at the end."""
        end = time.monotonic() + self.timeout
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"nothing came within {self.timeout} s; before it {self.rest!r}")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                assert not self.rest, f"half a line: {self.rest!r}"
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def next(self):
        line = self.line()
        if line is None:
            return None
        message = json.loads(line.decode())
        assert isinstance(message, (dict, list)) and (isinstance(message, list) or message["jsonrpc"] == "2.0"), line
        return message

    def silent(self, seconds):
        """Checks that nothing arrives for this time."""
        assert not self.rest and not self.seen, (self.rest, self.seen)
        return not select.select([self.process.stdout], [], [], seconds)[0]

    # --- messages ---

    def begin(self, method, params=None, modern=False, **around):
        """Sends a request and returns its id."""
        number = next(self.ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        if modern:
            message["params"] = {**(params or {}), "_meta": meta(**around)}
        elif params is not None or around:
            message["params"] = {**(params or {}), **({"_meta": around} if around else {})}
        self.send(message)
        return number

    def answer(self, number):
        """The answer to that request; other messages are kept for later calls."""
        for message in self.seen:
            if message.get("id", self) == number and "method" not in message:
                self.seen.remove(message)
                return message
        while True:
            message = self.next()
            if message is None:
                raise AssertionError(f"it ended without an answer to {number}: {self.process.stderr.read()!r}")
            if message.get("id", self) == number and "method" not in message:
                return message
            self.seen.append(message)

    def request(self, method, params=None, modern=False, **around):
        message = self.answer(self.begin(method, params, modern, **around))
        assert "result" in message, message
        return message["result"]

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})})

    def initialize(self, version=LEGACY, capabilities=None):
        result = self.request("initialize", {"protocolVersion": version, "capabilities": capabilities or {},
                                             "clientInfo": {"name": "tests", "version": "1"}})
        self.notify("notifications/initialized")
        return result

    def call(self, name, arguments=None, modern=True):
        return self.request("tools/call", {"name": name, "arguments": arguments or {}}, modern)

    def text(self, name, arguments=None, modern=True):
        result = self.call(name, arguments, modern)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        assert not result.get("isError"), text
        return text

    # --- its end ---

    def end(self):
        """Closes its standard input. Returns (exit code, remaining output, standard error)."""
        self.process.stdin.close()
        left = list(iter(self.next, None))
        return self.process.wait(self.timeout), left, self.process.stderr.read().decode()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(self.timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
