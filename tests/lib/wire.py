"""A client that sends exactly the given bytes, for requests that no library would make. Connections are kept."""
import json
import socket
import time


class Answer:
    def __init__(self, status, headers, body, whole):
        self.status, self.headers, self.body, self.whole = status, headers, body, whole

    def json(self):
        return json.loads(self.body)


class TooSlow(Exception):
    pass


class Wire:
    def __init__(self, socket_path=None, port=None, token=None, limit=20):
        self.socket_path, self.port, self.token, self.limit = socket_path, port, token, limit
        self.socket, self.rest = None, b""

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket, self.rest = None, b""

    def connect(self):
        if self.socket_path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(self.limit)
            self.socket.connect(self.socket_path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", self.port), self.limit)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method, target, body=None, headers=None, limit=None):
        """Returns the answer. For a stream: its head and the data that came with it, then the connection is closed.
        None: nothing arrived within `limit` seconds (without `limit`: TooSlow)."""
        headers = dict(headers or {})
        head = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        if self.token and "Authorization" not in headers:
            head.append(f"Authorization: Bearer {self.token}")
        if body is not None or method in ("POST", "PUT", "PATCH"):
            head.append(f"Content-Length: {len(body or b'')}")
        head += [f"{name}: {value}" for name, value in headers.items()]
        data = ("\r\n".join(head) + "\r\n\r\n").encode("utf-8", "surrogateescape") + (body or b"")
        for again in (True, False):
            fresh = self.socket is None
            if fresh:
                self.connect()
            try:
                return self.exchange(method, data, limit)
            except (ConnectionError, BrokenPipeError):
                # A kept connection may have been closed after the previous answer.
                self.close()
                if fresh or not again:
                    raise
        return None

    def exchange(self, method, data, limit):
        self.deadline = time.monotonic() + (limit or self.limit)
        try:
            self.socket.settimeout(self.limit)
            try:
                self.socket.sendall(data)
            except (ConnectionError, BrokenPipeError):
                pass  # the server may refuse before everything is sent
            return self.receive(method)
        except (TimeoutError, TooSlow):
            self.close()
            if limit:
                return None
            raise TooSlow(f"no answer in {self.limit} s") from None

    def more(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TooSlow
        self.socket.settimeout(left)
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("closed without an answer")
        self.rest += data

    def until(self, mark):
        while mark not in self.rest:
            self.more()
        part, self.rest = self.rest.split(mark, 1)
        return part

    def count(self, size):
        while len(self.rest) < size:
            self.more()
        part, self.rest = self.rest[:size], self.rest[size:]
        return part

    def receive(self, method):
        while True:
            lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status == 101 or status >= 200:
                break
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        body, whole = b"", True
        if status == 101 or headers.get("content-type", "").startswith("text/event-stream"):
            body, whole = self.rest, False
            self.close()
        elif method == "HEAD" or status in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while True:
                size = int(self.until(b"\r\n").split(b";")[0], 16)
                body += self.count(size)
                self.count(2)
                if size == 0:
                    break
        else:
            body = self.count(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body, whole)
