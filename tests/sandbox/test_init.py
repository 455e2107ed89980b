"""PID 1 of a sandbox as the host sees it: what its processes hold, what a client that does not read
costs it, what the sandbox is called inside."""
import contextlib
import os
import shutil
import socket
import struct
import tempfile
import time
import unittest

from caisson import DaemonTest, OwnDaemons, inits_of, own, read_process, status_of, wait_until
from marks import long

OPERATION = 1 << 63
HELLO, HELLO_REPLY, PING, PONG = 1, 2, 7, 8
FILE, DATA, RESULT, FAILED, METRICS = 50, 51, 54, 55, 58
FILE_WRITE = 4


def frame(kind, payload=b"", number=0):
    return struct.pack("<IHHQ", len(payload), kind, 0, number) + payload


def text(value):
    return struct.pack("<I", len(value)) + value


def file_request(operation, path):
    return (struct.pack("<BIIQQI", operation, 0, 0, 0, 0, 0) + text(b"") + text(path) + text(b"") +
            text(b"") + text(b""))


class Link:
    """A connection of our own to an init, in the place of the daemon's."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.send(HELLO, struct.pack("<II", 1, 1))
        assert self.receive()[0] == HELLO_REPLY

    def send(self, kind, payload=b"", number=0):
        self.socket.sendall(frame(kind, payload, number))

    def receive(self):
        header = self.exactly(16)
        size, kind, _, number = struct.unpack("<IHHQ", header)
        return kind, number, self.exactly(size)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise AssertionError("the init closed the connection")
            data += piece
        return data


def processes(daemon):
    """What runs the init's program: [(host pid, pid inside, name)]."""
    statuses = {pid: status_of(pid) for pid in inits_of(daemon.state)}
    return [(pid, int(status["NSpid"].split()[-1]), status["Name"]) for pid, status in statuses.items() if status]


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid):
    found = {}
    with contextlib.suppress(OSError):  # it has just ended, or closed one
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
    return found


class Descriptors(DaemonTest):
    config = "[pool]\nsize = 0\n"  # one of the pool has a launcher too

    def test_nothing_of_pid_1_is_held_by_others(self):
        folder = own(tempfile.mkdtemp(prefix="caisson-folder-"))
        self.addCleanup(shutil.rmtree, folder)
        code, out, err = self.daemon.cli("create", "--volume", f"{folder}:/data")
        self.assertEqual(code, 0, err)
        box = out.split()[0]
        self.addCleanup(self.remove, box)
        unlike_others = f"1000.{os.getpid()}"
        self.api.exec(box, "sleep " + unlike_others, background=True)
        watch, connection = self.api.raw("GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace")
        self.addCleanup(connection.close)
        self.assertEqual(watch.status, 200)
        leader = wait_until(lambda: self.leader(f"sleep\0{unlike_others}\0".encode()), what="the command")

        # Each begins with what who forked it held, and drops it.
        def settled():
            found = [(inside, name, descriptors(pid)) for pid, inside, name in processes(self.daemon)]
            others[:] = [(name, held) for inside, name, held in found if inside != 1]
            return (sorted(name for name, _ in others) == ["launcher"] + ["runner"] * 4 and
                    all(len(held) == (5 if "anon_inode:inotify" in held.values() else 4) for _, held in others))
        others = []
        try:
            wait_until(settled)
        except AssertionError:
            pass  # what it is not is said below
        init, = [pid for pid, inside, _ in processes(self.daemon) if inside == 1]
        names = sorted(name for name, _ in others)
        self.assertEqual(names, ["launcher"] + ["runner"] * 4, "two at work, two spare")
        for name, held in others:
            # Of the host's /dev, which was left: the kernel may have cut it off from what it was mounted on.
            self.assertLessEqual({held.pop(fd) for fd in (0, 1, 2)}, {"/dev/null", "/null"})
            kinds = sorted(value.split(":[")[0] for value in held.values())
            self.assertIn(kinds, (["socket"], ["anon_inode:inotify", "socket"]), name)
        sockets = [value for _, held in others for value in held.values() if value.startswith("socket")]
        self.assertEqual(len(set(sockets)), len(sockets), "each has a socket of its own")
        # PID 1 keeps no folder of the user's, nor the way it was set up by.
        self.assertFalse([value for value in descriptors(init).values() if value in ("/", folder, "/data")])
        self.assertEqual(sorted(descriptors(leader)), [0, 1, 2])

    @staticmethod
    def leader(command):
        return next((pid for pid in os.listdir("/proc") if pid.isdigit() and read_process(pid, "cmdline") == command), None)


class Name(DaemonTest):
    def test_name_resolves(self):
        """A new one has its id, whether it came from the pool or not; a name is its host name from the next start on."""
        look = "cat /etc/hostname; hostname; getent hosts $(hostname)"
        for fields in ({}, {"name": "by-name"}, {"name": "made-cold", "memory_mb": 123}):
            box = self.sandbox(**fields)
            self.assertEqual(self.api.sh(box, look).split(), [box, box, "127.0.1.1", box])
            self.api.post(f"/v1/sandboxes/{box}/stop")
            self.api.post(f"/v1/sandboxes/{box}/start")
            name = fields.get("name", box)
            self.assertEqual(self.api.sh(box, look).split(), [name, name, "127.0.1.1", name])

    def test_start_keeps_what_users_wrote(self):
        box = self.sandbox(name="kept-name")
        self.api.sh(box, "printf '10.0.0.1 mine' >> /etc/hosts")
        for _ in range(2):
            self.api.post(f"/v1/sandboxes/{box}/stop")
            self.api.post(f"/v1/sandboxes/{box}/start")
        hosts = self.api.sh(box, "cat /etc/hosts")
        self.assertEqual(hosts.count("kept-name"), 1)
        self.assertTrue(hosts.endswith("10.0.0.1 mine\n127.0.1.1\tkept-name\n"), hosts)
        self.api.sh(box, "printf '10.0.0.1 my-kept-name-2' > /etc/hosts; echo other-and-longer > /etc/hostname")
        self.api.post(f"/v1/sandboxes/{box}/stop")
        self.api.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(self.api.sh(box, "cat /etc/hosts /etc/hostname"),
                         "10.0.0.1 my-kept-name-2\n127.0.1.1\tkept-name\nkept-name\n")

    def test_nothing_is_written_through_a_link(self):
        for command in ("rm /etc/hosts /etc/hostname; ln -s /workspace/x /etc/hosts; ln -s /workspace/x /etc/hostname",
                        "mv /etc /workspace/etc; rm /workspace/etc/host*; ln -s /workspace/etc /etc",
                        "rm /etc/hosts /etc/hostname; mkfifo /etc/hosts /etc/hostname", "rm -r /etc", "rm -r /etc; touch /etc"):
            with self.subTest(command=command):
                box = self.sandbox()
                self.api.sh(box, command)
                self.api.post(f"/v1/sandboxes/{box}/stop")
                self.api.post(f"/v1/sandboxes/{box}/start")
                self.assertEqual(self.api.sh(box, "ls /workspace; ls /workspace/etc 2>/dev/null | grep host || true")
                                 .replace("etc\n", ""), "")

    def test_a_folder_over_etc_is_not_written(self):
        folder = own(tempfile.mkdtemp(prefix="caisson-folder-"))
        self.addCleanup(shutil.rmtree, folder)
        code, out, err = self.daemon.cli("create", "--volume", f"{folder}:/etc:rw")
        self.assertEqual(code, 0, err)
        self.addCleanup(self.remove, out.split()[0])
        self.assertEqual(os.listdir(folder), [])


def freezer_of(pid):
    """The cgroup's own file, and what thaws it: there is no daemon to ask."""
    for line in open(f"/proc/{pid}/cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        for top, name, value in (("/sys/fs/cgroup/freezer", "freezer.state", "THAWED"),
                                 ("/sys/fs/cgroup", "cgroup.freeze", "0"), ("/sys/fs/cgroup/unified", "cgroup.freeze", "0")):
            file = os.path.join(top + path, name)
            if controllers in ("freezer", "") and os.path.exists(file):
                return file, value
    raise AssertionError("no freezer")


class Client(OwnDaemons):
    """A client that does not read, and one that goes away, cost PID 1 nothing. The sandbox is frozen
    meanwhile, so that its runners do nothing until they are let."""

    def setUp(self):
        self.daemon = self.start_daemon("[pool]\nsize = 0\nmax = 0\n")
        self.began = time.monotonic_ns()
        self.box = self.daemon.client().create()["id"]
        # A process takes its name a moment after it is there.
        wait_until(lambda: len(self.runners()) == 2 and len(processes(self.daemon)) == 4, what="two spare runners")
        self.init, = [pid for pid, inside, _ in processes(self.daemon) if inside == 1]
        runner = self.runners()[0]
        self.daemon.client().post(f"/v1/sandboxes/{self.box}/pause")
        self.freezer = freezer_of(runner)
        self.daemon.kill()
        self.link = Link(os.path.join(self.daemon.runtime, "guests", self.box, "init.sock"))
        self.addCleanup(self.link.socket.close)

    def runners(self):
        return [pid for pid, _, name in processes(self.daemon) if name == "runner"]

    def thaw(self):
        with open(self.freezer[0], "w") as file:
            file.write(self.freezer[1])

    def check_idle(self):
        """What it still had to do is soon done; one that waits by asking again and again is never idle."""
        def idle():
            before = cpu_seconds(self.init)
            time.sleep(1)
            return cpu_seconds(self.init) - before < 0.1
        wait_until(idle, what="an idle init")

    def send_until_full(self, kind, payload, numbers):
        """Until the init takes no more, and did not only stand still with the machine; how many went."""
        self.link.socket.settimeout(4)
        sent = 0
        try:
            for number in numbers:
                self.link.send(kind, payload, number)
                sent += 1
        except TimeoutError:
            return sent
        raise AssertionError("the init takes everything")

    @long
    def test_an_answer_waits_for_a_client_that_does_not_read(self):
        # More data than the frozen runner's socket holds: the rest is owed.
        self.link.send(FILE, file_request(FILE_WRITE, b"/nowhere/at/all"), OPERATION | 1)
        for _ in range(3000):
            self.link.send(DATA, b"x", OPERATION | 1)
        # Answers that nobody reads, until there is no room for more.
        self.send_until_full(PING, b"12345678", [0] * 1000000)
        self.thaw()
        self.check_idle()
        # The half-sent frame stays half-sent; what was answered arrives.
        self.link.socket.settimeout(20)
        while True:
            kind, number, _ = self.link.receive()
            if kind != PONG:
                break
        self.assertEqual((kind, number), (FAILED, OPERATION | 1))

    @long
    def test_a_client_that_goes_while_all_is_full(self):
        sent = self.send_until_full(FILE, file_request(FILE_WRITE, b"/nowhere/at/all"),
                                    [OPERATION | number for number in range(1, 100000)])
        self.assertGreater(sent, 1000)
        self.link.socket.close()
        self.check_idle()
        self.thaw()

    def test_metrics(self):
        self.link.send(METRICS, b"", OPERATION | 1)
        kind, _, payload = self.link.receive()
        self.assertEqual(kind, RESULT)
        count, uptime = struct.unpack("<IQ", payload)
        self.assertTrue(2 <= count < 10 and 0 < uptime < time.monotonic_ns() - self.began, (count, uptime))


if __name__ == "__main__":
    unittest.main()
