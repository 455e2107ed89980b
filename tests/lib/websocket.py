"""A small WebSocket client for the suites, which can also send invalid frames."""
import base64
import hashlib
import json
import os
import struct
import time

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    def __init__(self, status, body, headers):
        super().__init__(f"{status}: {body}")
        self.status, self.body, self.headers = status, body, headers
        self.code = body.get("code") if isinstance(body, dict) else None


class WebSocket:
    """`client`: a Client of tests/lib/caisson.py."""

    def __init__(self, client, path, headers=None, seconds=30):
        self.connection = client.connection()
        self.connection.timeout = seconds
        self.connection.connect()
        self.socket, self.data = self.connection.sock, b""
        key = base64.b64encode(os.urandom(16)).decode()
        fields = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                  "Sec-WebSocket-Key": key}
        if client.token:
            fields["Authorization"] = "Bearer " + client.token
        fields.update(headers or {})
        lines = [f"GET {path} HTTP/1.1"] + [f"{name}: {value}" for name, value in fields.items() if value is not None]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
        if self.status != 101:
            body = self.exactly(int(self.headers.get("content-length", 0)))
            self.close()
            raise Refused(self.status, json.loads(body) if body else None, self.headers)
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        if self.headers["sec-websocket-accept"] != accept.decode():
            raise AssertionError(f"not the answer to {key}: {self.headers}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()
        self.socket.close()

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the connection was closed")
        self.data += data

    def exactly(self, size):
        while len(self.data) < size:
            self.more()
        part, self.data = self.data[:size], self.data[size:]
        return part

    @staticmethod
    def frame(opcode, data, final=True, masked=True, reserved=0):
        head, size = bytes([(0x80 if final else 0) | reserved | opcode]), len(data)
        mark = 0x80 if masked else 0
        if size < 126:
            head += bytes([mark | size])
        elif size < 65536:
            head += bytes([mark | 126]) + struct.pack(">H", size)
        else:
            head += bytes([mark | 127]) + struct.pack(">Q", size)
        if not masked:
            return head + data
        key = os.urandom(4)
        return head + key + bytes(byte ^ key[i & 3] for i, byte in enumerate(data))

    def send(self, data, opcode=None):
        if isinstance(data, dict):
            data, opcode = json.dumps(data).encode(), TEXT
        if isinstance(data, str):
            data = data.encode()
        self.socket.sendall(self.frame(BINARY if opcode is None else opcode, data))

    def receive(self):
        """(opcode, payload) of the next frame."""
        first, second = self.exactly(2)
        if not first & 0x80 or first & 0x70 or second & 0x80:
            raise AssertionError(f"a server's frame begins with {first:#x} {second:#x}")
        size = second & 127
        if size == 126:
            size = struct.unpack(">H", self.exactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.exactly(8))[0]
        return first & 15, self.exactly(size)

    def message(self):
        """The next JSON message; bytes of a terminal before it are skipped."""
        while True:
            opcode, data = self.receive()
            if opcode == TEXT:
                return json.loads(data)
            if opcode == CLOSE:
                raise EOFError(f"closed with {data}")

    def until(self, text, seconds=20):
        """The bytes of the terminal up to and including a text."""
        seen, end = b"", time.monotonic() + seconds
        while text not in seen:
            if time.monotonic() > end:
                raise AssertionError(f"{text} did not come; seen: {seen}")
            opcode, data = self.receive()
            if opcode == BINARY:
                seen += data
            elif opcode in (TEXT, CLOSE):
                raise AssertionError(f"{opcode} {data} came; seen: {seen}")
        return seen

    def closing(self):
        """The close code that ends the connection; everything before it is skipped."""
        while True:
            opcode, data = self.receive()
            if opcode == CLOSE:
                return struct.unpack(">H", data[:2])[0] if data else None
