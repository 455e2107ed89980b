"""Terminals over WebSocket: several clients on one, replay, resize, who may, and hostile frames."""
import base64
import contextlib
import fcntl
import struct
import termios
import unittest

from caisson import DaemonTest, wait_until
from websocket import BINARY, CLOSE, PING, PONG, TEXT, Refused, WebSocket


class Terminals(DaemonTest):
    box_fields = {"timeout_seconds": 600}

    def open(self, rest, client=None, headers=None):
        socket = WebSocket(client or self.api, self.path(rest), headers)
        self.addCleanup(socket.close)
        return socket

    def ended(self, job):
        def look():
            record = self.api.get(self.path("/jobs/" + job))
            return record["state"] == "ended" and record
        return wait_until(look, what="its end")

    def refusal(self, status, code, *arguments, **fields):
        with self.assertRaises(Refused) as caught:
            self.open(*arguments, **fields)
        self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception.body)
        return caught.exception

    def test_a_shell(self):
        for route in ("/exec/pty", "/ssh"):
            socket = self.open(route + "?rows=31&cols=101")
            socket.send("stty size; echo $((20 + 3))xyz\n")
            self.assertIn(b"31 101", socket.until(b"23xyz"))
            socket.send({"resize": {"rows": 40, "cols": 120}})
            socket.send({"stdin": "stty size; echo $((30 + 4))ö\n"})
            self.assertIn(b"40 120", socket.until("34ö".encode()))
            socket.send("exit 7\n")
            message = socket.message()
            self.assertEqual((message["exit"], message["exec_id"]), (7, socket.headers["x-exec-id"]))
            self.assertEqual(socket.closing(), 1000)

    def test_a_command(self):
        socket = self.open("/exec/pty?cmd=tty%20-s%20%26%26%20pwd&cwd=/tmp")
        self.assertIn(b"/tmp\r\n", socket.until(b"/tmp\r\n"))
        self.assertEqual(socket.message()["exit"], 0)
        self.refusal(422, "exec.bad_cwd", "/exec/pty?cwd=/no/such")
        self.refusal(422, "exec.bad_user", "/exec/pty?user=nobodyknows")

    def test_two_clients_and_a_replay(self):
        first = self.open("/exec/pty?cmd=sh")
        job = first.headers["x-exec-id"]
        first.send("echo fir''st\n")
        first.until(b"first")
        second = self.open(f"/execs/{job}/tty")
        self.assertIn(b"first", second.until(b"first"))
        second.send("echo sec''ond\n")
        first.until(b"second")
        second.until(b"second")
        third = self.open(f"/exec/pty?job={job}&readonly=1")
        self.assertIn(b"first", third.until(b"second"))
        third.send("echo thi''rd\n")
        self.assertEqual(third.message()["code"], "auth.forbidden")
        # The window is as the last of them said.
        second.send({"resize": {"rows": 12, "cols": 34}})
        second.send("stty size\n")
        first.until(b"12 34")
        # Who begins it goes, and others stay: it goes on.
        first.close()
        second.send("echo still''there\n")
        second.until(b"stillthere")
        second.send("exit 3\n")
        for socket in (second, third):
            self.assertEqual(socket.message()["exit"], 3)

    def test_replay_is_bounded_and_begins_at_a_line(self):
        job = self.api.post(self.path("/jobs"), {"cmd": "seq 1 50000; echo done; read x", "tty": True, "stdin": True})["exec_id"]
        wait_until(lambda: self.api.get(self.path(f"/jobs/{job}/output"), **{"from": 330000}).endswith(b"done\r\n"), what="all of it")
        for query, most in (("", 65536), ("?replay=1000", 1000)):
            data = self.open(f"/jobs/{job}/tty{query}").until(b"done\r\n")
            self.assertLessEqual(len(data), most)
            self.assertGreater(len(data), most - 100)
            numbers = [int(line) for line in data.split()[:-1]]
            self.assertEqual(numbers, list(range(numbers[0], 50001)))
        none = self.open(f"/jobs/{job}/tty?replay=0")
        none.send("x\n")
        self.assertNotIn(b"50000", none.until(b"x"))
        self.assertEqual(none.message()["exit"], 0)

    def test_the_last_one_to_leave_hangs_up(self):
        socket = self.open("/exec/pty?cmd=" + "trap%20'echo%20hup%20>%20/tmp/hup;%20exit'%20HUP;%20echo%20on;%20while%20:;%20do%20sleep%200.05;%20done")
        job = socket.headers["x-exec-id"]
        socket.until(b"on")
        socket.close()
        self.ended(job)
        self.assertEqual(self.api.sh(self.box, "cat /tmp/hup"), "hup\n")

    def test_detached_it_goes_on(self):
        socket = self.open("/exec/pty?cmd=sh&detach=1")
        job = socket.headers["x-exec-id"]
        socket.send("echo on''e\n")
        socket.until(b"one")
        socket.close()
        again = self.open(f"/jobs/{job}/tty?detach=0")
        again.until(b"one")
        again.send("echo tw''o\n")
        again.until(b"two")
        again.close()
        self.ended(job)

    def test_attaching_to_what_has_ended(self):
        job = self.api.post(self.path("/jobs"), {"cmd": "echo over; exit 9", "tty": True})["exec_id"]
        self.ended(job)
        socket = self.open(f"/jobs/{job}/tty")
        socket.until(b"over")
        self.assertEqual(socket.message()["exit"], 9)
        plain = self.api.post(self.path("/jobs"), {"cmd": "true"})["exec_id"]
        self.refusal(400, "request.invalid", f"/jobs/{plain}/tty")
        self.refusal(404, "exec.not_found", "/jobs/" + "a" * 16 + "/tty")

    def test_a_signal_from_outside(self):
        socket = self.open("/exec/pty?cmd=echo%20on;%20exec%20sleep%20620")
        socket.until(b"on")
        socket.send({"signal": "TERM"})
        self.assertEqual(socket.message()["exit"], 143)

    def test_a_signal_reaches_what_has_the_terminal(self):
        """And not the shell that waits for it."""
        socket = self.open("/exec/pty?cmd=bash%20--norc%20-i")
        exec_id = socket.headers["x-exec-id"]
        for number, interrupt in enumerate((lambda: socket.send({"signal": "INT"}),
                                            lambda: self.api.post(self.path(f"/execs/{exec_id}/signal"), {"signal": "INT"}))):
            socket.send(f"sh -c 'echo fore$(({number}+1))ground; exec sleep 620'\n".encode())
            socket.until(f"fore{number + 1}ground".encode())
            interrupt()
            socket.send(b"echo ended with $?\n")
            socket.until(b"ended with 130")
        # What waits in the background is not meant.
        socket.send(b"sleep 621 & echo behind$((1+1)); sh -c 'echo fore$((2+2)); exec sleep 622'\n")
        socket.until(b"fore4")
        socket.send({"signal": "KILL"})
        socket.send(b"echo ended with $?; jobs; kill %1; exit 7\n")
        self.assertIn(b"Running", socket.until(b"Running"))
        self.assertEqual(socket.message()["exit"], 7)

    def test_a_large_paste_and_much_output(self):
        socket = self.open("/exec/pty?cmd=stty%20raw%20-echo;%20echo%20ready;%20head%20-c%201000000%20|%20wc%20-c")
        socket.until(b"ready")
        for _ in range(10):
            socket.send(b"x" * 100000)
        self.assertIn(b"1000000", socket.until(b"1000000"))
        socket = self.open("/exec/pty?cmd=stty%20raw;head%20-c%205000000%20/dev/zero")
        total = 0
        while True:
            opcode, data = socket.receive()
            if opcode == TEXT:
                break
            total += len(data)
        self.assertEqual(total, 5000000)

    # --- who may ---

    def test_tokens(self):
        tcp = self.daemon.tcp()
        token = self.daemon.token()
        self.refusal(401, "auth.required", "/exec/pty", client=tcp)
        error = self.refusal(401, "auth.required", "/exec/pty?access_token=" + token, client=tcp)
        self.assertIn("not taken from a URL", error.body["error"])
        self.assertNotIn(token, str(error.body))
        offered = {"Sec-WebSocket-Protocol": f"caisson.v1, caisson.bearer.{token}"}
        socket = self.open("/exec/pty?cmd=echo%20hi", client=tcp, headers=offered)
        self.assertEqual(socket.headers["sec-websocket-protocol"], "caisson.v1")
        self.assertEqual(socket.message()["exit"], 0)
        self.refusal(401, "auth.required", "/exec/pty", client=tcp, headers={"Sec-WebSocket-Protocol": "caisson.bearer.x" + token})
        self.refusal(404, "sandbox.not_found", "/exec/pty", client=self.daemon.tcp(self.daemon.token("elsewhere")))
        # A reader only looks on.
        reader = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))
        job = self.api.post(self.path("/jobs"), {"cmd": "echo look; read x", "tty": True, "stdin": True})["exec_id"]
        self.refusal(403, "auth.forbidden", "/exec/pty", client=reader)
        self.refusal(403, "auth.forbidden", f"/jobs/{job}/tty", client=reader)
        self.open(f"/jobs/{job}/tty?readonly=1", client=reader).until(b"look")
        self.api.delete(self.path("/jobs/" + job))

    def test_a_revoked_token_closes(self):
        record = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:write"]})
        socket = self.open("/exec/pty?cmd=echo%20on;exec%20sleep%20621", client=self.daemon.tcp(record["token"]))
        job = socket.headers["x-exec-id"]
        socket.until(b"on")
        self.api.delete("/v1/tokens/" + record["id"])
        with self.assertRaises((EOFError, ConnectionError)):
            socket.closing()
        self.ended(job)

    def test_pages_of_another_origin(self):
        tcp, host = self.daemon.tcp(self.daemon.token()), f"127.0.0.1:{self.daemon.port}"
        for origin in ("http://evil.example", "null"):
            for route in ("/exec/pty?cmd=true", "/exec/ws"):
                self.refusal(403, "origin.forbidden", route, client=tcp, headers={"Origin": origin, "Host": host})
        self.open("/exec/ws", client=tcp, headers={"Origin": "http://" + host, "Host": host})

    # --- frames that nobody should send ---

    def test_hostile_frames(self):
        frame = WebSocket.frame
        long = b"y" * 200000
        for data, code in ((frame(BINARY, b"x", masked=False), 1002), (frame(BINARY, b"x", reserved=0x40), 1002),
                           (frame(3, b""), 1002), (frame(11, b""), 1002), (frame(PING, b"x" * 126), 1002),
                           (frame(PING, b"x", final=False), 1002), (frame(0, b"x"), 1002),
                           (frame(TEXT, b"{", final=False) + frame(TEXT, b"}"), 1002), (frame(TEXT, b"\xff"), 1007),
                           (b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"mask", 1009),
                           (b"\x82\xff" + struct.pack(">Q", (1 << 64) - 1) + b"mask", 1009),
                           (frame(BINARY, long, final=False) + frame(0, long), 1009),
                           (frame(CLOSE, b"\x03"), 1002), (frame(CLOSE, struct.pack(">H", 1005)), 1002),
                           (frame(CLOSE, struct.pack(">H", 1000) + b"\xff"), 1007)):
            socket = self.open("/exec/pty?cmd=sh")
            job = socket.headers["x-exec-id"]
            with contextlib.suppress(ConnectionError):  # it may be refused before all is sent
                socket.socket.sendall(data)
            self.assertEqual(socket.closing(), code, data[:20])
            socket.close()
            self.ended(job)

    def test_polite_frames(self):
        socket = self.open("/exec/pty?cmd=cat")
        for data in (b"", b"x" * 125):
            socket.send(data, PING)
            self.assertEqual(socket.receive(), (PONG, data))
        socket.send(b"unasked", PONG)
        # A message in pieces, with a ping between, byte by byte.
        data = (socket.frame(BINARY, b"in ", final=False) + socket.frame(PING, b"p") + socket.frame(0, b"", final=False) +
                socket.frame(0, b"pieces\n"))
        for i in range(len(data)):
            socket.socket.sendall(data[i:i + 1])
        self.assertEqual(socket.receive(), (PONG, b"p"))
        socket.until(b"in pieces")
        # Text that is not what it should be is told, and goes on.
        for text in (b"no json", b"[]", b'{"odd":1}', b'{"resize":{"rows":0,"cols":1}}', b'{"stdin":1}', b'{"signal":"ODD"}'):
            socket.send(text, TEXT)
            self.assertIn("error", socket.message())
        socket.send(struct.pack(">H", 4000) + b"bye", CLOSE)
        self.assertEqual(socket.closing(), 4000)

    def test_handshakes(self):
        for headers in ({"Sec-WebSocket-Key": None}, {"Sec-WebSocket-Key": "short"}, {"Sec-WebSocket-Version": None},
                        {"Sec-WebSocket-Version": "12"}, {"Upgrade": "other"}, {"Upgrade": None},
                        {"Sec-WebSocket-Key": base64.b64encode(b"x" * 15).decode()}):
            self.refusal(400, "request.invalid", "/exec/pty", headers=headers)

    def test_pings_without_reading_cost_nothing(self):
        """A client that pings and does not read is answered once, when it reads."""
        socket = self.open("/exec/pty?cmd=stty%20raw;echo%20on;%20exec%20cat%20/dev/zero")
        job = socket.headers["x-exec-id"]
        socket.until(b"on")

        def unread():
            return struct.unpack("i", fcntl.ioctl(socket.socket, termios.FIONREAD, bytes(4)))[0]
        seen = [0]  # its buffer is full when no more comes

        def full():
            seen.append(unread())
            return 0 < seen[-1] == seen[-2]
        wait_until(full, every=0.05, what="a buffer full of what it does not read")
        pings = socket.frame(PING, b"z" * 100) * 500
        for _ in range(20):
            socket.socket.sendall(pings)
        socket.close()
        self.ended(job)


if __name__ == "__main__":
    unittest.main()
