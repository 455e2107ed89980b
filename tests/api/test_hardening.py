"""What guards the TCP door besides tokens: the names it answers to, the web pages it listens to, request ids, TLS by
flag; and that one client neither holds up another nor leaves anything running when it goes."""
import json
import os
import socket
import ssl
import struct
import subprocess
import time
import unittest

from caisson import DaemonTest, OwnDaemons, at_once, best_of, make_certificate, wait_until
from marks import alone, thorough
from columns import User
from wire import Wire

PAGE = "https://console.example:8443"


class Door(DaemonTest):
    config = f"[server]\nhosts = caisson.internal, [fd00::1]\norigins = {PAGE} http://localhost:3000\nlog_level = debug\n"

    def setUp(self):
        self.token = getattr(type(self), "kept", None) or self.daemon.token()
        type(self).kept = self.token

    def ask(self, method, path, host=None, connect="127.0.0.1", token=True, **headers):
        """(status, headers, body) of a request of which every header is ours."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.daemon.port}'}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if token:
            lines.append(f"Authorization: Bearer {self.token}")
        with socket.create_connection((connect, self.daemon.port), 20) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            data = b""
            while piece := connection.recv(65536):
                data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        return int(first.split(" ")[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}, body

    def test_names(self):
        port = self.daemon.port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", "LOCALHOST", f"[::1]:{port}", "[::1]", "caisson.internal",
                     f"caisson.internal:{port}", "[fd00::1]:443"):
            with self.subTest(host):
                self.assertEqual(self.ask("GET", "/v1/sandboxes", host)[0], 200)
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2", "[::2]",
                     "xlocalhost", "localhost."):
            with self.subTest(host):
                status, headers, body = self.ask("GET", "/v1/sandboxes", host)
                self.assertEqual((status, json.loads(body)["code"]), (421, "request.invalid"))
                self.assertEqual(json.loads(body)["request_id"], headers["x-request-id"])

    def test_pages_of_others(self):
        for origin in ("https://evil.example", "null", "http://evil.example:3000", "http://localhost:3001", "https://localhost:3000",
                       PAGE + ".evil.example", PAGE + "/", "file://", "http://127.0.0.1", f"https://127.0.0.1:{self.daemon.port}", ""):
            for method, path, extra in (("GET", "/v1/sandboxes", {}), ("GET", "/healthz", {}), ("POST", "/v1/sandboxes", {"Content_Length": "0"}),
                                        ("OPTIONS", "/v1/sandboxes", {"Access_Control_Request_Method": "POST"}),
                                        ("GET", "/v1/sandboxes/x/exec", {"Upgrade": "websocket", "Connection": "Upgrade"}),
                                        ("POST", "/v1/sandboxes/x/exec", {"Upgrade": "caisson-exec/1", "Content_Length": "0"})):
                with self.subTest(origin=origin, request=f"{method} {path}"):
                    status, headers, body = self.ask(method, path, Origin=origin, **extra)
                    self.assertEqual((status, json.loads(body)["code"]), (403, "origin.forbidden"))
                    self.assertFalse([name for name in headers if name.startswith("access-control")])
        self.assertEqual(self.ask("GET", "/healthz", Origin="https://evil.example", token=False)[0], 403)

    def test_its_own_pages(self):
        for host in (f"127.0.0.1:{self.daemon.port}", f"localhost:{self.daemon.port}", "caisson.internal"):
            status, headers, _ = self.ask("GET", "/v1/sandboxes", host, Origin="http://" + host)
            self.assertEqual(status, 200)
            self.assertNotIn("access-control-allow-origin", headers)

    def test_listed_pages(self):
        for origin in (PAGE, "http://localhost:3000"):
            for method, path, wanted in (("GET", "/v1/sandboxes", 200), ("GET", "/v1/sandboxes/abcdefghijklmnop", 404), ("GET", "/nowhere", 404)):
                status, headers, _ = self.ask(method, path, Origin=origin)
                self.assertEqual((status, headers["access-control-allow-origin"], headers["vary"]), (wanted, origin, "Origin"))
                self.assertNotIn("access-control-allow-credentials", headers)
                self.assertIn("X-Request-Id", headers["access-control-expose-headers"])
        # Without a token it is 401, and the page may see that.
        status, headers, _ = self.ask("GET", "/v1/sandboxes", Origin=PAGE, token=False)
        self.assertEqual((status, headers["access-control-allow-origin"]), (401, PAGE))
        # A stream likewise.
        box = self.sandbox()
        response, connection = self.daemon.tcp(self.token).raw("GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace", headers={"Origin": PAGE})
        self.assertEqual((response.status, response.getheader("Access-Control-Allow-Origin")), (200, PAGE))
        connection.close()

    def test_preflight(self):
        status, headers, body = self.ask("OPTIONS", "/v1/sandboxes", token=False, Origin=PAGE, Access_Control_Request_Method="DELETE",
                                         Access_Control_Request_Headers="authorization, content-type")
        self.assertEqual((status, body, headers["access-control-allow-origin"], headers["vary"]), (204, b"", PAGE, "Origin"))
        self.assertIn("DELETE", headers["access-control-allow-methods"])
        self.assertIn("authorization", headers["access-control-allow-headers"].lower())
        self.assertIn("idempotency-key", headers["access-control-allow-headers"].lower())
        self.assertNotIn("access-control-allow-credentials", headers)
        # One that is none, and one of nobody's page.
        self.assertEqual(self.ask("OPTIONS", "/v1/sandboxes", Origin=PAGE)[0], 405)
        self.assertEqual(self.ask("OPTIONS", "/v1/sandboxes", Access_Control_Request_Method="GET")[0], 405)

    def test_unix_sockets_have_no_pages(self):
        response, connection = self.api.raw("GET", "/v1/sandboxes", headers={"Origin": "https://evil.example"})
        self.assertEqual((response.status, response.getheader("Access-Control-Allow-Origin")), (200, None))
        connection.close()

    def test_request_ids(self):
        for given in ("a", "0123-ABC_x.y:z", "x" * 64):
            status, headers, _ = self.ask("GET", "/v1/sandboxes", X_Request_Id=given)
            self.assertEqual((status, headers["x-request-id"]), (200, given))
            status, headers, body = self.ask("GET", "/v1/sandboxes/abcdefghijklmnop", X_Request_Id=given)
            self.assertEqual((status, headers["x-request-id"], json.loads(body)["request_id"]), (404, given, given))
        for given in ("x" * 65, "a b", "a\tb", "a;b", 'a"b', "<a>", "a/b", "{}", ""):
            seen = {self.ask("GET", "/v1/sandboxes", X_Request_Id=given)[1]["x-request-id"] for _ in range(2)}
            self.assertEqual(len(seen), 2, given)
            self.assertNotIn(given, seen)
            for one in seen:
                self.assertRegex(one, "^[0-9a-f]{18}$")
        self.ask("GET", "/v1/sandboxes", X_Request_Id="look-for-me-in-the-log")
        wait_until(lambda: "request look-for-me-in-the-log: GET /v1/sandboxes" in self.daemon.log(), what="its line in the log")
        self.assertNotIn(self.token, self.daemon.log())

    def test_refusals_of_the_lowest_layer_have_ids(self):
        with socket.create_connection(("127.0.0.1", self.daemon.port), 10) as connection:
            connection.sendall(b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = b""
            while piece := connection.recv(65536):
                data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        self.assertIn(b"X-Request-Id: " + json.loads(body)["request_id"].encode(), head)


class Clients(DaemonTest):
    def test_a_slow_client_delays_nobody(self):
        """One that drips its request, one that does not read its answer, one that does not send its body."""
        box, token = self.sandbox(), self.daemon.token()
        self.api.write(box, "/workspace/large", os.urandom(1 << 20) * 32)
        head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
        slow = []
        for text in (f"GET /v1/sandboxes HTTP/1.1\r\nHost: loc", f"GET /v1/sandboxes/{box}/files?path=/workspace/large HTTP/1.1\r\n{head}\r\n",
                     f"PUT /v1/sandboxes/{box}/files?path=/workspace/x HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\nx",
                     f"POST /v1/sandboxes HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{"):
            for _ in range(8):
                connection = socket.create_connection(("127.0.0.1", self.daemon.port), 10)
                self.addCleanup(connection.close)
                connection.sendall(text.encode())
                slow.append(connection)
        wire = Wire(port=self.daemon.port, token=token, limit=20)
        self.addCleanup(wire.close)
        times = []
        for _ in range(100):
            began = time.monotonic()
            self.assertEqual(wire.ask("GET", "/v1/sandboxes/" + box).status, 200)
            times.append(time.monotonic() - began)
        # The machine may be busy with others; a client that waits for the slow ones would wait for seconds.
        self.assertLess(sorted(times)[50], 1)
        self.assertEqual(self.api.sh(box, "echo on"), "on\n")

    def test_a_client_that_goes_ends_its_command(self):
        """Nothing is being written to it meanwhile. On both sockets, and behind what it sent ahead."""
        self.check_client_goes(lambda end: end())

    @thorough
    @alone
    def test_a_client_that_goes_ends_its_command_soon(self):
        self.check_client_goes(lambda end: best_of(3, end, 5))

    def check_client_goes(self, check):
        box, token = self.sandbox(), self.daemon.token()

        def count():
            return self.api.sh(box, "pgrep -xc sleep || true").strip()

        def end(family, ahead):
            """The seconds that its end takes."""
            with socket.socket(family) as connection:
                connection.settimeout(20)
                connection.connect(self.api.socket_path if family == socket.AF_UNIX else ("127.0.0.1", self.daemon.port))
                body = json.dumps({"cmd": "sleep 301 & sleep 302"})
                connection.sendall(f"POST /v1/sandboxes/{box}/exec HTTP/1.1\r\nHost: localhost\r\n"
                                   f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode() + ahead)
                wait_until(lambda: count() == "2", what="its start")
            began = time.monotonic()
            wait_until(lambda: count() == "0", what="its end")
            return time.monotonic() - began

        for ahead in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            for family in (socket.AF_UNIX, socket.AF_INET):
                with self.subTest(ahead=bool(ahead), family=family.name):
                    check(lambda: end(family, ahead))

    def test_answers_to_clients_that_have_gone(self):
        """A connection breaks while its answer is being made, in every moment of it; the daemon stays the same."""
        box, pid = self.sandbox(), self.daemon.daemon_pid()
        head = f"Host: localhost\r\nAuthorization: Bearer {self.daemon.token()}\r\n"
        download = f"GET /v1/sandboxes/{box}/files?path=/usr/bin/bash HTTP/1.1\r\n{head}\r\n".encode()
        early = f"GET /v1/usage HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}".encode()
        for i in range(400):
            with socket.create_connection(("127.0.0.1", self.daemon.port), 20) as connection:
                connection.sendall(download if i % 2 else early)
                if i % 2:
                    connection.recv((1, 70000)[i // 2 % 2])
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.assertEqual(self.api.get("/healthz")["status"], "ok")
        self.assertEqual(self.daemon.daemon_pid(), pid)

    def test_many_at_once(self):
        """Requests of many connections are answered, each its own."""
        box, token = self.sandbox(), self.daemon.token()

        def one(number):
            wire = Wire(port=self.daemon.port, token=token)
            for turn in range(10):
                answer = wire.ask("GET", "/v1/sandboxes/" + box, headers={"X-Request-Id": f"n{number}-{turn}"})
                self.assertEqual((answer.status, answer.headers["x-request-id"]), (200, f"n{number}-{turn}"), answer.headers)
            wire.close()
        at_once(one, range(40))


class Tls(OwnDaemons):
    def shown(self, port):
        """The certificate that the door shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secure:
            self.assertIn(secure.version(), ("TLSv1.2", "TLSv1.3"))
            return ssl.DER_cert_to_PEM_cert(secure.getpeercert(True))

    def test_by_flag_and_a_new_certificate(self):
        daemon = self.new_daemon()
        # Certificates come as links to the newest, and are renewed by turning the link.
        first, second = make_certificate(daemon.top, "first"), make_certificate(daemon.top, "second")
        links = [os.path.join(daemon.top, name) for name in ("live.pem", "live.key")]
        for link, path in zip(links, first):
            os.symlink(path, link)
        daemon.arguments += ["--tls-certificate", links[0], "--tls-key", links[1]]
        daemon.start()
        result = subprocess.run(["curl", "-sS", "--max-time", "20", "--cacert", first[0], "-H", f"Authorization: Bearer {daemon.token()}",
                                 "-H", f"Origin: https://127.0.0.1:{daemon.port}", f"https://127.0.0.1:{daemon.port}/v1/sandboxes"],
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, json.loads(result.stdout)["items"]), (0, []), result.stderr)
        self.assertEqual(self.shown(daemon.port).strip(), open(first[0]).read().strip())
        for link, path in zip(links, second):
            os.symlink(path, link + ".new")
            os.rename(link + ".new", link)
        daemon.process.send_signal(1)
        wait_until(lambda: self.shown(daemon.port).strip() == open(second[0]).read().strip(), what="the new certificate")
        # One that cannot be used changes nothing.
        with open(second[0], "w") as file:
            file.write("nonsense")
        daemon.process.send_signal(1)
        wait_until(lambda: "the configuration stays as it was: TLS" in daemon.log(), what="a complaint")
        self.shown(daemon.port)


    def test_files_of_the_caller(self):
        """Named from where `serve` was started, and readable by who started it alone."""
        daemon = self.new_daemon()
        folder = os.path.join(daemon.top, "secret")
        os.mkdir(folder, 0o700)
        files = make_certificate(folder)
        os.chmod(files[1], 0o600)
        for path in (folder, *files) if daemon.user else ():
            os.chown(path, daemon.user.uid, daemon.user.gid)
        daemon.wrapper = [*daemon.wrapper, "env", "-C", folder]
        daemon.arguments += ["--tls-certificate", "server.pem", "--tls-key", "server.key"]
        daemon.start()
        self.assertEqual(self.shown(daemon.port).strip(), open(files[0]).read().strip())
        make_certificate(folder)  # over the same names
        os.chmod(files[1], 0o600)
        second = open(files[0]).read().strip()
        daemon.process.send_signal(1)
        wait_until(lambda: self.shown(daemon.port).strip() == second, what="the new certificate")
        # A reload that finds no files, and a daemon that is started again, have those there were.
        os.unlink(files[1])
        daemon.process.send_signal(1)
        wait_until(lambda: f"stays as it was: TLS: key {files[1]}, as user " in daemon.log(), what="a complaint")
        daemon.kill_daemon()
        self.assertEqual(self.shown(daemon.port).strip(), second)

    def test_errors_name_file_and_user(self):
        user = User(False, "t")
        self.addCleanup(user.remove)
        daemon = self.new_daemon(user=user, check=False)
        files = make_certificate(daemon.top)
        os.chmod(files[1], 0o600)  # root's
        for arguments, words in (((files[0], files[1]), f"TLS: key {files[1]}, as user {user.name}: Permission denied"),
                                 ((files[0], files[0]), f"TLS: key {files[0]}: "), ((daemon.top, files[1]), f"TLS: certificate {daemon.top} is not a regular file")):
            daemon.arguments = ["--tls-certificate", arguments[0], "--tls-key", arguments[1]]
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(60), 125, daemon.log())
            self.assertIn(words, daemon.log())
            os.chmod(files[1], 0o644)


class Configured(OwnDaemons):
    def test_lists_that_are_not_understood(self):
        """All of them are in tests/unit/test_tcp_access.c."""
        for text in ("hosts = a/b", "origins = *"):
            with self.subTest(text):
                daemon = self.new_daemon(f"[server]\n{text}\n", check=False)
                daemon.start(wait=False)
                self.assertEqual(daemon.process.wait(30), 125, daemon.log())
                self.assertIn("[server] " + text.split(" ")[0], daemon.log())

    def test_lists_are_read_again(self):
        daemon = self.start_daemon("[server]\norigins = https://one.example\n")
        wire = Wire(port=daemon.port, token=daemon.token())

        def status(origin):
            return wire.ask("GET", "/v1/sandboxes", headers={"Origin": origin}).status
        self.assertEqual((status("https://one.example"), status("https://two.example")), (200, 403))
        daemon.reload("[server]\norigins = https://two.example\n")
        wait_until(lambda: (status("https://one.example"), status("https://two.example")) == (403, 200), what="the reload")
        wire.close()


if __name__ == "__main__":
    unittest.main()
