"""One token's flood, and what another token sees of it: the p99 of its small GETs beside that of a quiet daemon. How many
pieces of whom run in a turn of the loop is counted exactly in unit/test_work.c; here clients measure it.

The daemon with its threads has one processor, everything else another, where the flood's client runs only while the victim
does not: so the measure is of the daemon, and not of who gets a processor."""
import contextlib
import json
import os
import select
import signal
import socket
import time

from caisson import DaemonTest, best_of, processes_of, wait_until
from mcp import BOTH, MODERN, meta

MARKS = ("alone", "thorough")
RUNS_ON = "normal"  # it measures; the sanitized daemon answers a fifth as many

GETS = 300
QUIET_GETS = 1000
PAUSE = 0.002  # between two of the victim's
RATIO = 5      # the flooded p99 against the quiet one
ATTEMPTS = 5
LOG_BYTES = 8 << 20
MANY_KEYS = 49000
ENTRIES = 20000  # the default of `[activity] entries`
CHAIN = 500      # entries of a receipt, of at most 2000: a longer one is also sent in one piece
# Of a cell that is over: read, and passed over. The control channel is the one pipe to write to that is no stream of ours.
RECORDS = """
import fcntl, os
streams = [os.fstat(1).st_ino, os.fstat(2).st_ino]
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_WRONLY and os.fstat(fd).st_ino not in streams:
            while True:
                os.write(fd, b"whole 0 0 - 0\\n\\n" * 4096)
    except OSError:
        pass
"""


def request(method, path, token, body=b"", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def whole(data):
    """The length of the answer at the start of the data, or 0 while it is not whole."""
    head, separator, _ = data.partition(b"\r\n\r\n")
    if not separator:
        return 0
    length = 0
    for line in head.split(b"\r\n")[1:]:
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    size = len(head) + 4 + length
    return size if len(data) >= size else 0


def p99(times):
    return sorted(times)[len(times) * 99 // 100]


@contextlib.contextmanager
def first_in_line():
    """This process gets its processor whenever it can run: what it measures is not the wait behind an interpreter of a flood."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Fairness(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        daemon, others = sorted(os.sched_getaffinity(0))[:2]
        cls.addClassCleanup(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, {others})
        for pid, command in processes_of(cls.daemon.state, cls.daemon.runtime):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {daemon if " _daemon " in command else others})
            if " _daemon " in command:
                cls.pid = pid
        cls.token = cls.daemon.token(workspace="one")
        cls.other = cls.daemon.token(workspace="two")
        # Before any flood: afterwards the daemon may still be working off the rest of one.
        cls.quiet = cls.victim(QUIET_GETS)

    @classmethod
    def connect(cls):
        return socket.create_connection(("127.0.0.1", cls.daemon.port), timeout=60)

    def answer(self, asked):
        data = b""
        with self.connect() as client:
            client.sendall(asked)
            while not whole(data):
                data += client.recv(65536)
        return data

    def processor_time(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))

    def wait_idle(self):
        """Until the daemon has worked off what an earlier flood has left: one is measured at a time."""
        def idle():
            before = self.processor_time()
            time.sleep(0.2)
            return self.processor_time() <= before
        wait_until(idle, seconds=60, what="an idle daemon")

    @classmethod
    def victim(cls, gets=GETS):
        """The p99 of small GETs on one connection."""
        asked, times = request("GET", "/v1/sandboxes?limit=1", cls.other), []
        with cls.connect() as client, first_in_line():
            for _ in range(gets):
                time.sleep(PAUSE)
                data, began = b"", time.monotonic()
                client.sendall(asked)
                while not whole(data):
                    data += client.recv(65536)
                times.append(time.monotonic() - began)
                assert b" 200 " in data[:16], data[:200]
        return p99(times)

    def flood(self, asked, connections, ahead=1):
        """A child that keeps so many requests under way on each of its connections, until it is told to end and one was
        answered. It says by a byte that it has begun, and at its end how many were answered."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            answered, told = 0, []
            try:
                signal.signal(signal.SIGTERM, lambda *_: told.append(True))
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                clients = {self.connect(): b"" for _ in range(connections)}
                poll = select.epoll()
                by_fd = {client.fileno(): client for client in clients}
                for client in clients:
                    poll.register(client, select.EPOLLIN)
                    client.sendall(asked * ahead)
                os.write(writer, b"x")
                while not (told and answered):
                    for fd, _ in poll.poll(1):
                        client = by_fd[fd]
                        data = clients[client] + client.recv(1 << 18)
                        count = 0
                        while (size := whole(data)):
                            data, count = data[size:], count + 1
                        clients[client] = data
                        answered += count
                        if count:
                            client.sendall(asked * count)
                os.write(writer, str(answered).encode())
            finally:
                os._exit(0)
        os.close(writer)
        said = os.fdopen(reader, "rb", buffering=0)
        self.assertEqual(said.read(1), b"x", "the flood did not begin")
        return pid, said

    def end(self, pid, said):
        os.kill(pid, signal.SIGTERM)
        with said:
            text = said.read()
        os.waitpid(pid, 0)
        return int(text or 0)

    def measure(self, *requests, connections, ahead=1):
        """How many times as long the victim waits beside a flood of each of the requests."""
        self.wait_idle()
        floods = [self.flood(asked, connections, ahead) for asked in requests]
        try:
            flooded = self.victim()
        finally:
            answered = [self.end(*flood) for flood in floods]
        self.assertGreater(min(answered), 0)
        print(f"# {self.id().rsplit('.')[-1]}: p99 {self.quiet * 1e3:.2f} ms, flooded {flooded * 1e3:.2f} ms, {answered} answers to the flood")
        return flooded / self.quiet

    def logged(self):
        client = self.daemon.tcp(token=self.token)
        box = client.create()["id"]
        self.addCleanup(client.delete, f"/v1/sandboxes/{box}")
        client.sh(box, f"yes 'a line that is searched' | head -c {LOG_BYTES}")
        return box

    def fair(self, *arguments, **options):
        best_of(ATTEMPTS, lambda: self.measure(*arguments, **options), RATIO)

    def test_search(self):
        path = f"/v1/sandboxes/{self.logged()}/logs?grep=nothing"
        self.fair(request("GET", path, self.token), connections=32)

    def with_entries(self, count):
        """A sandbox with an exec, so many entries from its start to its end, and the exec."""
        client = self.daemon.tcp(token=self.token)
        box = client.create()["id"]
        self.addCleanup(client.delete, f"/v1/sandboxes/{box}")
        done = client.exec(box, "true")["exec_id"]
        wait_until(lambda: self.daemon.rows(f"select 1 from activity where sandbox = '{box}' and kind = 21"))
        columns = "workspace, wall, actor, details, previous, hash"
        self.daemon.sql(f"update activity set number = number + {count} where sandbox = '{box}' and kind = 21",
                        f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {count}) insert into activity (sandbox, number, kind, {columns}) "
                        f"select sandbox, number + i, 40, {columns} from n join activity where sandbox = '{box}' and kind = 20")
        return box, done

    def fair_to(self, *paths):
        for path in paths:
            with self.subTest(path):
                self.fair(request("GET", path, self.token), connections=8)

    def test_activity(self):
        box, _ = self.with_entries(ENTRIES)
        self.fair_to(*[f"/v1/sandboxes/{box}/activity?{query}" for query in
                       ("since=2099-01-01T00:00:00Z", "order=desc&kind=exec.deleted", "limit=1000")])

    def test_events(self):
        box, _ = self.with_entries(ENTRIES)
        self.fair_to("/v1/events?follow=0&kind=exec.deleted", "/v1/events?follow=0&limit=1000", f"/v1/sandboxes/{box}/events?tail=1000")

    def test_get_activity(self):
        box, _ = self.with_entries(ENTRIES)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                   "params": {"name": "get_activity", "arguments": {"sandbox_id": box, "kinds": "exec.deleted"}, "_meta": meta()}}
        asked = request("POST", "/mcp/x/metrics", self.token, json.dumps(message).encode(), Content_Type="application/json",
                        Accept=BOTH, Mcp_Protocol_Version=MODERN, Mcp_Method="tools/call", Mcp_Name="get_activity")
        self.assertIn(b"the newest first", self.answer(asked))
        self.fair(asked, connections=8)

    def test_receipts(self):
        box, done = self.with_entries(CHAIN)
        asked = request("GET", f"/v1/sandboxes/{box}/execs/{done}/receipt", self.token)
        self.assertIn(b'"receipt"', self.answer(asked))
        self.fair(asked, connections=8)

    def test_keys(self):
        body = json.dumps({"env": {f"k{i}": "" for i in range(MANY_KEYS)}}).encode()
        self.fair(request("POST", "/v1/sandboxes", self.token, body, Content_Type="application/json"), connections=32)

    def test_unknown_keys(self):
        body = json.dumps({f"k{i}": 1 for i in range(MANY_KEYS)}).encode()
        self.fair(request("POST", "/v1/sandboxes", self.token, body, Content_Type="application/json"), connections=32)

    def test_two_tokens(self):
        """Bodies of two tokens would fill two threads."""
        body = json.dumps({f"k{i}": 1 for i in range(MANY_KEYS)}).encode()
        self.fair(*[request("POST", "/v1/sandboxes", token, body, Content_Type="application/json")
                    for token in (self.token, self.daemon.token(workspace="three"))], connections=16)

    def test_messages(self):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": {"name": "run_command", "arguments": {f"k{i}": 1 for i in range(MANY_KEYS)}}}).encode()
        self.fair(request("POST", "/mcp", self.token, body, Content_Type="application/json",
                          Accept="application/json, text/event-stream"), connections=32)

    def test_code(self):
        """Interpreters whose code writes what reads as records to their control channels, without end."""
        client = self.daemon.tcp(token=self.token)
        box = client.create(pids=256)["id"]
        self.addCleanup(client.delete, f"/v1/sandboxes/{box}")
        body = json.dumps({"language": "python", "code": RECORDS, "timeout_seconds": 2}).encode()
        self.fair(request("POST", f"/v1/sandboxes/{box}/code", self.token, body, Content_Type="application/json"), connections=8)
        execs = client.get(f"/v1/sandboxes/{box}/execs?all=1&limit=200")["execs"]
        self.assertGreater(max(one["stdout_bytes"] for one in execs if one["command"] == "cat"), LOG_BYTES)

    def test_lists(self):
        self.fair(request("GET", "/v1/sandboxes", self.token), connections=64, ahead=32)

    def test_refusals(self):
        self.fair(request("GET", "/v1/nowhere", self.token), connections=64, ahead=32)
