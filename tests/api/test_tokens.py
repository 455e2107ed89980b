"""Tokens: shown once, hashed at rest, gone at once when they are revoked, also for what is open with them."""
import contextlib
import glob
import json
import os
import socket
import threading
import time

from caisson import ApiError, DaemonTest, wait_until
from marks import long


class Stream:
    """An open answer: what came so far, and when it ended."""

    def __init__(self, api, method, path, body=None, headers=None):
        self.response, self.connection = None, None
        self.data, self.ended = b"", threading.Event()
        self.api, self.request = api, (method, path, body, headers)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            self.response, self.connection = self.api.raw(*self.request)
            while True:
                piece = self.response.read1(65536)
                if not piece:
                    break
                self.data += piece
        except Exception as error:  # the connection is cut
            self.error = error
        self.ended.set()

    def wait_begun(self):
        wait_until(lambda: self.response is not None or self.ended.is_set(), what="the answer's head")
        return self

    def close(self):
        """A close alone would wait for the thread that reads."""
        if not self.ended.is_set() and self.connection and self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.ended.wait(20)
        if self.connection:
            self.connection.close()


class Tokens(DaemonTest):
    config = "[server]\nlog_level = debug\n"

    def make(self, workspace="default", scopes=("sandboxes:read", "sandboxes:write"), **fields):
        return self.api.post("/v1/tokens", {"workspace": workspace, "scopes": list(scopes), **fields})

    def streams(self, token, box):
        """One of each kind of answer that goes on."""
        api = self.daemon.tcp(token)
        job = self.api.exec(box, "echo begun; sleep 1000", background=True)["exec_id"]
        found = [
            Stream(api, "GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace"),
            Stream(api, "GET", f"/v1/sandboxes/{box}/execs/{job}/output?follow=1"),
            Stream(api, "GET", "/v1/events"),
        ]
        for stream in found:
            stream.wait_begun()
            self.addCleanup(stream.close)
            self.assertEqual(stream.response.status, 200)
        found.append(Stream(api, "POST", f"/v1/sandboxes/{box}/exec", {"cmd": "touch /workspace/waiting; sleep 1000"}))
        wait_until(lambda: self.api.sh(box, "ls /workspace").split().count("waiting"), what="a command that is waited for")
        return found

    def upgraded(self, token, box, path, upgrade, body=b"", *headers):
        """A connection that left HTTP."""
        connection = socket.create_connection(("127.0.0.1", self.daemon.port), timeout=30)
        self.addCleanup(connection.close)
        lines = [f"{'POST' if body else 'GET'} /v1/sandboxes/{box}{path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}",
                 "Connection: Upgrade", f"Upgrade: {upgrade}", *headers, f"Content-Length: {len(body)}" if body else "X-None: 1", "", ""]
        connection.sendall("\r\n".join(lines).encode() + body)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(4096)
            if not piece:
                break
            head += piece
        self.assertIn(b" 101 ", head.split(b"\r\n")[0], head)
        return connection

    def closes(self, connection):
        connection.settimeout(20)
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass

    def open_all(self, token, box):
        websocket = ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        command = json.dumps({"argv": ["sleep", "1000"]}).encode()
        return self.streams(token, box), [
            self.upgraded(token, box, "/exec", "caisson-exec/1", command),
            self.upgraded(token, box, "/exec/pty", "websocket", b"", *websocket),
            self.upgraded(token, box, "/exec/ws", "websocket", b"", *websocket)]

    def all_end(self, streams, connections):
        for stream in streams:
            self.assertTrue(stream.ended.wait(20), stream.request)
        for connection in connections:
            self.closes(connection)

    def test_revoked_streams_end(self):
        box = self.sandbox()
        made, other = self.make(), self.make()
        opened = self.open_all(made["token"], box)
        kept = Stream(self.daemon.tcp(other["token"]), "GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace").wait_begun()
        self.addCleanup(kept.close)
        began = time.monotonic()
        self.api.delete("/v1/tokens/" + made["id"])
        self.refused(401, "auth.required", self.daemon.tcp(made["token"]).get, "/v1/sandboxes")
        self.all_end(*opened)
        self.assertLess(time.monotonic() - began, 10)  # a second on a machine that has nothing else to do
        self.assertFalse(kept.ended.is_set())
        # The command that was waited for is cancelled as if its client had gone.
        wait_until(lambda: "sleep 1000" not in str([e for e in self.api.get(f"/v1/sandboxes/{box}/execs")["execs"]
                                                    if e["state"] == "running" and "touch" in e["command"]]), what="the command's end")

    @long
    def test_expired_streams_end(self):
        box = self.sandbox()
        made = self.make(expires_seconds=5)  # the stream begins before, also on a machine that stalls
        stream = Stream(self.daemon.tcp(made["token"]), "GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace").wait_begun()
        self.addCleanup(stream.close)
        self.assertEqual(stream.response.status, 200)
        self.assertTrue(stream.ended.wait(20))
        self.refused(401, "auth.required", self.daemon.tcp(made["token"]).get, "/v1/sandboxes")

    def test_a_bound_token_ends_with_its_sandbox(self):
        box, other = self.sandbox(), self.sandbox()
        made = self.make(sandbox=box)
        bound = self.daemon.tcp(made["token"])
        self.assertEqual(bound.sh(box, "echo 1"), "1\n")
        self.refused(404, "sandbox.not_found", bound.get, "/v1/sandboxes/" + other)
        self.refused(403, "auth.forbidden", bound.create)
        events = Stream(bound, "GET", "/v1/events").wait_begun()
        self.addCleanup(events.close)
        self.api.delete("/v1/sandboxes/" + box)
        self.refused(401, "auth.required", bound.get, "/v1/sandboxes/" + box)
        self.assertTrue(events.ended.wait(20))
        self.assertNotIn(made["id"], [token["id"] for token in self.api.get("/v1/tokens")["tokens"]])
        self.refused(410, "sandbox.ended", self.make, sandbox=box)

    def test_who_is_told_what(self):
        """RFC 6750: no error without a token, invalid_token with a bad one, insufficient_scope with too small a one."""
        error = self.refused(401, "auth.required", self.daemon.tcp().get, "/v1/sandboxes")
        self.assertEqual(error.headers["WWW-Authenticate"], 'Bearer realm="caisson"')
        for bad in ("csn_wrong", "csn_" + "A" * 43, "x" * 500):
            error = self.refused(401, "auth.required", self.daemon.tcp(bad).get, "/v1/sandboxes")
            self.assertEqual(error.headers["WWW-Authenticate"], 'Bearer realm="caisson", error="invalid_token"')
            self.assertNotIn(bad, json.dumps(error.body))
        reader, writer = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])), self.daemon.tcp(self.daemon.token())
        for function, scope in ((reader.create, "sandboxes:write"), (lambda: reader.get("/v1/tokens"), "admin"), (lambda: writer.get("/v1/tokens"), "admin")):
            error = self.refused(403, "auth.forbidden", function)
            self.assertEqual(error.headers["WWW-Authenticate"], f'Bearer realm="caisson", error="insufficient_scope", scope="{scope}"')
        bound = self.daemon.tcp(self.make(sandbox=self.sandbox())["token"])
        self.assertNotIn("WWW-Authenticate", self.refused(403, "auth.forbidden", bound.create).headers)
        for header in ("Basic abc", "Bearer", "bearer  "):
            with self.assertRaises(ApiError) as caught:
                self.daemon.tcp().call("GET", "/v1/sandboxes", None, {"Authorization": header})
            self.assertEqual(caught.exception.status, 401)

    def test_admin(self):
        """It administers tokens and budgets of every workspace, and sees sandboxes of its own alone."""
        admin = self.daemon.tcp(self.make("one", ["admin"])["token"])
        box = self.sandbox()
        self.refused(404, "sandbox.not_found", admin.get, "/v1/sandboxes/" + box)
        self.refused(404, "sandbox.not_found", admin.exec, box, "true")
        self.assertEqual(admin.get("/v1/sandboxes")["items"], [])
        made = admin.post("/v1/tokens", {"workspace": "two", "scopes": ["sandboxes:read"], "label": "of two"})
        self.assertIn(made["id"], [token["id"] for token in admin.get("/v1/tokens")["tokens"]])
        admin.delete("/v1/tokens/" + made["id"])
        self.refused(404, "token.not_found", admin.delete, "/v1/tokens/abcdefghijklmnop")
        bound = self.daemon.tcp(self.make(scopes=["admin"], sandbox=box)["token"])
        self.refused(403, "auth.forbidden", bound.get, "/v1/tokens")
        self.refused(403, "auth.forbidden", bound.post, "/v1/tokens", {"scopes": ["admin"]})
        self.refused(403, "auth.forbidden", bound.call, "GET", "/metrics")
        self.refused(403, "auth.forbidden", bound.get, "/v1/workspaces/default/budgets")

    def test_bad_requests(self):
        for fields in ({}, {"scopes": []}, {"scopes": ["root"]}, {"scopes": "admin"}, {"scopes": [1]}, {"scopes": ["admin"], "workspace": "Not One"},
                       {"scopes": ["admin"], "expires_seconds": -1}, {"scopes": ["admin"], "label": "x" * 64}, {"scopes": ["admin"], "token": "mine"}):
            with self.subTest(fields=fields):
                self.refused(400, "request.invalid", self.api.post, "/v1/tokens", fields)
        for name in ("Not One", "", "x" * 64, ".x"):
            refusal = self.refused(400, "request.invalid", self.make, name)
            self.assertIn("use 1 to 63 characters of a-z, 0-9, '-', '_' and '.', the first a letter or digit", str(refusal))
        self.refused(404, "sandbox.not_found", self.make, sandbox="abcdefghijklmnop")
        self.refused(404, "sandbox.not_found", self.make, "another", sandbox=self.sandbox())

    def test_the_command_line(self):
        box = self.sandbox()
        code, text, _ = self.daemon.cli("token", "create", "--workspace", "default", "--scope", "sandboxes:read,sandboxes:write",
                                        "--expires", "1h", "--sandbox", box, "--label", "for a test")
        token = text.strip()
        self.assertEqual(code, 0)
        self.assertEqual(self.daemon.tcp(token).sh(box, "echo 1"), "1\n")
        code, text, _ = self.daemon.cli("token", "list")
        line = next(line for line in text.splitlines() if "for a test" in line)
        self.assertIn(box, line)
        self.assertNotIn(token, text)
        self.assertEqual(self.daemon.cli("token", "revoke", line.split()[0])[0], 0)
        self.refused(401, "auth.required", self.daemon.tcp(token).get, "/v1/sandboxes/" + box)

    def test_it_is_nowhere(self):
        """Neither in what the daemon stores, nor in what it logs, says or records."""
        box = self.sandbox()
        token = self.make()["token"]
        api = self.daemon.tcp(token)
        api.sh(box, "echo hello")
        secret = token[len("csn_"):].encode()
        answers = [api.get("/v1/sandboxes/" + box), api.get(f"/v1/sandboxes/{box}/execs"), api.get(f"/v1/sandboxes/{box}/activity"),
                   api.get("/v1/limits"), self.api.get("/v1/tokens")]
        with self.assertRaises(ApiError) as caught:
            api.get("/v1/sandboxes", token=token)
        answers.append(caught.exception.body)
        self.assertNotIn(secret.decode(), json.dumps(answers))
        self.assertNotIn(secret.decode(), self.daemon.log())
        for path in glob.glob(self.daemon.state + "/**", recursive=True):
            if os.path.isfile(path) and "/sandboxes/" not in path and "/disk-templates/" not in path:
                with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                    self.assertNotIn(secret, open(path, "rb").read(), path)
