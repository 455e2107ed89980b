"""A new version takes over while sandboxes run: they keep the init they were started with."""
import contextlib
import os
import shutil
import socket
import struct
import tempfile
import threading
import unittest
from unittest import mock

import caisson
import older
from caisson import ApiError, Daemon, OwnDaemons, inits_of, status_of, wait_until

HELLO, HELLO_REPLY, REFUSED = 1, 2, 5
GUEST_PROTOCOL_ADVICE = "stop and start"


def frame(kind, payload=b"", number=0):
    return struct.pack("<IHHQ", len(payload), kind, 0, number) + payload


def receive(connection):
    """(type, payload) of the next frame; None at the end."""
    def exactly(size):
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data
    header = exactly(16)
    if header is None:
        return None
    size, kind, _, _ = struct.unpack("<IHHQ", header)
    return kind, exactly(size) if size else b""


def first_processes(daemon):
    """PID 1 of each sandbox: {host pid: its executable}."""
    return {pid: program for pid, program in inits_of(daemon.state).items() if status_of(pid).get("NSpid", "").endswith("\t1")}


class Upgrade(OwnDaemons):
    def daemon(self):
        return self.start_daemon("[pool]\nsize = 0\n")  # whose init is whose is what this is about

    def other_version(self):
        """The same programs elsewhere, the init with other bytes at its end."""
        directory = tempfile.mkdtemp(prefix="caisson-new-")
        self.addCleanup(shutil.rmtree, directory)
        return older.with_other_init(caisson.BUILD, directory)

    def check_taken_over(self, end):
        daemon = self.daemon()
        client = daemon.client()
        box = client.create(name="old")["id"]
        client.sh(box, "echo kept > /workspace/x; sleep 1000 & until pgrep -x sleep; do :; done")
        running = client.exec(box, "read line; echo got $line", background=True, stdin=True)["exec_id"]
        (old_init, old_program), = first_processes(daemon).items()
        end(daemon)
        program = self.other_version()
        with mock.patch.object(caisson, "PROGRAM", program):
            daemon.start()
        client = daemon.client()
        self.assertEqual(os.readlink(f"/proc/{daemon.daemon_pid()}/exe"), program)
        self.assertEqual(client.sh(box, "cat /workspace/x; pgrep -c sleep"), "kept\n1\n")
        self.assertEqual(client.get(f"/v1/sandboxes/{box}/execs/{running}")["state"], "running")
        client.write(box, "/workspace/y", b"new")
        self.assertEqual(client.read(box, "/workspace/y"), b"new")
        # The old one has lost its name, not its file; what starts now is the new one.
        self.assertEqual(first_processes(daemon), {old_init: old_program + " (deleted)"})
        fresh = client.create()["id"]
        self.assertEqual(client.sh(fresh, "echo 1"), "1\n")
        client.post(f"/v1/sandboxes/{box}/stop")
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")
        programs = set(first_processes(daemon).values())
        self.assertEqual(len(programs), 1)
        self.assertFalse(any("deleted" in name or name == old_program for name in programs))

    def test_stopped_and_started_from_another_path(self):
        self.check_taken_over(Daemon.stop)

    def test_killed_and_started_from_another_path(self):
        self.check_taken_over(Daemon.kill)

    def test_the_init_names_both_ranges(self):
        daemon = self.daemon()
        box = daemon.client().create()["id"]
        path = os.path.join(daemon.runtime, "guests", box, "init.sock")
        kind, payload = wait_until(lambda: self.greet(path, 70, then_closed=True), 30, what="an answer")
        self.assertEqual(kind, REFUSED)
        self.assertIn(b"versions 1 to ", payload)
        self.assertIn(b"the daemon 70 to 90", payload)
        # A newer daemon that still knows the old version gets the highest that both know.
        kind, payload = wait_until(lambda: self.greet(path, 1), 30, what="an answer")
        self.assertEqual(kind, HELLO_REPLY)
        spoken = daemon.client().get("/v1/version")["init_protocol"]
        self.assertEqual(struct.unpack("<IIQ", payload)[:2], (spoken, 1))
        # The real daemon comes back by itself.
        wait_until(lambda: self.runs(daemon, box), 30, what="the daemon's new connection")

    def greet(self, path, oldest, then_closed=False):
        """The init's answer; None where the real daemon, which connects again meanwhile, came between: the newest counts."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(path)
            try:
                connection.sendall(frame(HELLO, struct.pack("<II", oldest, 90)))
                answer = receive(connection)
            except (BrokenPipeError, ConnectionResetError):
                return None
            if answer and then_closed:
                self.assertIsNone(receive(connection))
            return answer

    @staticmethod
    def runs(daemon, box):
        try:
            return daemon.client().exec(box, "true")["exit_code"] == 0
        except ApiError:
            return False

    def test_no_common_version_is_a_typed_error_with_advice(self):
        """An init from the future in the place of the real one: a stop and a start mend it."""
        daemon = self.daemon()
        box = daemon.client().create(name="future")["id"]
        daemon.client().sh(box, "echo kept > /workspace/x")
        path = os.path.join(daemon.runtime, "guests", box, "init.sock")
        status = os.stat(path)
        os.unlink(path)
        future = socket.socket(socket.AF_UNIX)
        self.addCleanup(future.close)
        future.bind(path)
        os.chown(path, status.st_uid, status.st_gid)
        os.chmod(path, status.st_mode & 0o777)
        future.listen(8)
        kinds = []
        threading.Thread(target=self.refuse_all, args=(future, kinds), daemon=True).start()
        daemon.kill_daemon()
        client = daemon.client()
        with self.assertRaises(ApiError) as caught:
            client.exec(box, "true")
        error = caught.exception
        self.assertEqual((error.status, error.code), (502, "sandbox.protocol"), error.body)
        self.assertIn("7 to 9", error.body["error"])
        self.assertIn(GUEST_PROTOCOL_ADVICE, str(error.body))
        self.assertEqual(kinds[0], (HELLO, 8))
        future.close()
        client.post(f"/v1/sandboxes/{box}/stop")
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")

    @staticmethod
    def refuse_all(listener, kinds):
        text = b"this init speaks versions 7 to 9 of the protocol, the daemon 1 to 1"
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                got = receive(connection)
                kinds.append(got and (got[0], len(got[1])))
                protocol = next(number for number, line in enumerate(
                    line for line in open(os.path.join(caisson.TOP, "src/base/error_kinds.def"))
                    if line.startswith("KIND(")) if line.startswith("KIND(GUEST_PROTOCOL,"))
                with contextlib.suppress(OSError):  # who asked may be gone
                    connection.sendall(frame(REFUSED, struct.pack("<III", protocol, 0, len(text)) + text))


if __name__ == "__main__":
    unittest.main()
