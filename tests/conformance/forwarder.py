"""A way in for a client that can send no token: a port on loopback that passes every byte on to a daemon's port and
adds an Authorization header to each request. All else, Host and Origin above all, arrives as it was sent; who closes
one side closes the other."""
import socket
import threading

PIECE = 1 << 16


class Forwarder:
    def __init__(self, port, token):
        self.target, self.token = port, token
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock, self.open, self.ended = threading.Lock(), set(), False
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.lock:
            self.ended = True
            left = list(self.open)
        self.shut(self.listener)
        for each in left:
            self.shut(each)

    @staticmethod
    def shut(each):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        each.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # of this one only
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                if self.ended:
                    self.shut(client)
                    self.shut(server)
                    return
                self.open |= {client, server}
            for work in (self.requests, self.answers):
                threading.Thread(target=self.pass_on, args=(work, client, server), daemon=True).start()

    def pass_on(self, work, client, server):
        try:
            work(client, server)
        except OSError:
            pass
        for each in (client, server):
            self.shut(each)
        with self.lock:
            self.open -= {client, server}

    @staticmethod
    def answers(client, server):
        while piece := server.recv(PIECE):
            client.sendall(piece)

    def requests(self, client, server):
        """One head after the other; what is between them is a body of a known length or in chunks."""
        stream = client.makefile("rb")
        while head := self.head(stream):
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
            server.sendall(head[0] + b"".join(head[1:]) + b"Authorization: Bearer " + self.token.encode() + b"\r\n\r\n")
            if fields.get(b"transfer-encoding") == b"chunked":
                self.chunks(stream, server)
            self.body(stream, server, int(fields.get(b"content-length", 0)))

    @staticmethod
    def head(stream):
        lines = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            lines.append(line)
        return lines

    @staticmethod
    def body(stream, server, size):
        while size > 0 and (piece := stream.read1(min(size, PIECE))):
            server.sendall(piece)
            size -= len(piece)

    def chunks(self, stream, server):
        size = None
        while size != 0:
            line = stream.readline()
            size = int(line.split(b";")[0] or b"0", 16)
            server.sendall(line)
            self.body(stream, server, size + 2)
