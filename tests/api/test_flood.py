"""A local user without any right, who takes what the socket gives to everybody: connections and passed
descriptors. Root must not notice. And the same over loopback TCP."""
import array
import contextlib
import os
import resource
import select
import signal
import socket
import time

from caisson import SANITIZED, DaemonTest, best_of, wait_until
from marks import alone, thorough

NOBODY = 65534
SECONDS = 6
PATIENCE = 5 if SANITIZED else 1  # seconds that root may wait for an answer
ROUNDS = 5  # the quietest counts: a machine that stalls makes root wait now and then, an attacker does in every round
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: local"
PER_UID, DESCRIPTORS_PER_UID = 128, 64  # http_default_settings


class Flood(DaemonTest):
    def attack(self, function):
        """The function in a child process that is nobody's, until the test ends. It is given a socket
        address and a pipe to say on, with one byte, that it is under way."""
        before = self.open_files()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                function(lambda: os.write(writer, b"x"))
            finally:
                os._exit(1)
        os.close(writer)
        self.addCleanup(self.end, pid, before)
        with os.fdopen(reader, "rb") as said:
            self.assertEqual(said.read(1), b"x", "the attacker did not get under way")

    def end(self, pid, before):
        """The next test begins where this one did: not while the daemon still closes hundreds of connections."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until(lambda: self.open_files() < before + 32, what="the end of the attacker's connections")

    def path(self):
        return os.path.join(self.daemon.runtime, "caisson.sock")

    def connect_unix(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.path())
        return client

    def connect_tcp(self):
        return socket.create_connection(("127.0.0.1", self.daemon.port))

    def half_heads(self, connect, count):
        """Keeps as many half heads open as it can, and opens new ones for those that were closed."""
        def run(started):
            held, opened = [], 0
            while True:
                try:
                    client = connect()
                    client.send(HALF_HEAD)
                    held.append(client)
                except OSError:
                    time.sleep(0.001)
                opened += 1
                if opened == count:
                    started()
                if len(held) > count:
                    held.pop(0).close()
        return run

    def hoard(self, started):
        """Descriptors with half heads, again and again."""
        null = os.open("/dev/null", os.O_RDONLY)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 16))]
        held, sent = [], 0
        while True:
            try:
                client = self.connect_unix()
                client.sendmsg([HALF_HEAD], passed)
                held.append(client)
            except OSError:
                time.sleep(0.001)
            sent += 1
            if sent == 1000:
                started()
            if len(held) > 4000:
                held.pop(0).close()

    def open_files(self):
        return len(os.listdir(f"/proc/{self.daemon.daemon_pid()}/fd"))

    def patiently(self, call):
        """A client with a time-out connects without blocking, and is told to try again while the kernel's
        queue is full; one without waits in the kernel. The time counts in both cases."""
        end = time.monotonic() + 10
        while True:
            try:
                return call()
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def root_is_served(self, sandbox):
        best_of(ROUNDS, lambda: self.slowest_answer(sandbox), PATIENCE)

    def slowest_answer(self, sandbox):
        slowest = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for call in (lambda: self.api.get("/healthz"), lambda: self.api.sh(sandbox, "echo here")):
                began = time.monotonic()
                self.patiently(call)
                slowest = max(slowest, time.monotonic() - began)
        return slowest

    def warnings(self):
        return [line for line in self.daemon.log().splitlines() if " http: " in line and "warning" in line]

    @thorough
    @alone
    def test_half_heads_over_the_unix_socket(self):
        box, before = self.sandbox(), self.open_files()
        self.attack(self.half_heads(self.connect_unix, 9000))
        self.root_is_served(box)
        self.assertLess(self.open_files(), before + PER_UID + 32)
        # They are told of, but the log does not grow with them: the warning may have to wait for one of another attack.
        wait_until(lambda: any(f"uid {NOBODY}" in line for line in self.warnings()), what="a warning")
        self.assertLess(len(self.warnings()), 30)

    @thorough
    @alone
    def test_half_heads_over_loopback(self):
        box = self.sandbox()
        self.attack(self.half_heads(self.connect_tcp, 8300))
        self.root_is_served(box)
        # Whoever comes by TCP with a request is served too: the oldest half heads make room.
        def answer():
            began = time.monotonic()
            self.assertEqual(self.daemon.tcp().get("/healthz")["status"], "ok")
            return time.monotonic() - began
        best_of(ROUNDS, answer, PATIENCE)

    @thorough
    @alone
    def test_passed_descriptors(self):
        box, before = self.sandbox(), self.open_files()
        self.attack(self.hoard)
        self.root_is_served(box)
        self.assertLess(self.open_files(), before + PER_UID + DESCRIPTORS_PER_UID + 32)

    def held(self, pipe):
        """How many of the daemon's descriptors are the pipe: what else it opens and closes does not count."""
        folder, name, count = f"/proc/{self.daemon.daemon_pid()}/fd", f"pipe:[{os.fstat(pipe).st_ino}]", 0
        for entry in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                count += os.readlink(os.path.join(folder, entry)) == name
        return count

    def test_what_was_taken_comes_back(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        # Again where the machine has stalled: before they were seen in the daemon, or before its answer.
        self.assertTrue(any(self.taken_and_back(writer) for _ in range(ROUNDS)))

    def taken_and_back(self, writer):
        """Were the descriptors seen in the daemon, and was it through with them in time?"""
        with self.connect_unix() as client:
            client.settimeout(30)
            client.sendmsg([HALF_HEAD], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writer] * 16))])
            wait_until(lambda: self.held(writer) == 16 or select.select([client], [], [], 0)[0], what="the daemon's taking them")
            taken, began = not select.select([client], [], [], 0)[0], time.monotonic()
            # A head with descriptors has two seconds, also root's.
            self.assertIn(b" 408 ", client.recv(4096))
            quick = time.monotonic() - began < 5
            wait_until(lambda: self.held(writer) == 0, what="the descriptors' end")
            return taken and quick
