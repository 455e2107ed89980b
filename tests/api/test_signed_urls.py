"""Signed URLs: one file, one method, until a time; ended by the token's end and the sandbox's; nothing in them can be
changed; what a browser gets cannot run."""
import unittest
import urllib.parse

from caisson import ApiError, DaemonTest, is_closed, wait_until


class Signed(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600)["id"]
        cls.api.write(cls.box, "/workspace/a b&ü.html", b"<script>alert(1)</script>")

    def sign(self, path="/workspace/a b&ü.html", client=None, box=None, **fields):
        return (client or self.tcp()).post(f"/v1/sandboxes/{box or self.box}/files/sign", {"path": path, **fields})

    def tcp(self, **fields):
        return self.daemon.tcp(self.daemon.token(**fields))

    def use(self, url, method="GET", body=None, headers=None):
        """As a stranger, over TCP, without any authority."""
        parts = urllib.parse.urlsplit(url)
        response, connection = self.daemon.tcp().raw(method, parts.path + "?" + parts.query, body, headers)
        data = response.read()
        connection.close()
        if response.status >= 400:
            raise ApiError(response.status, __import__("json").loads(data) if data else {}, dict(response.getheaders()))
        return response, data

    def test_a_download(self):
        answer = self.sign(expires_seconds=60)
        self.assertEqual((answer["method"], answer["path"]), ("GET", "/workspace/a b&ü.html"))
        self.assertTrue(answer["url"].startswith(f"http://127.0.0.1:{self.daemon.port}/v1/signed/{self.box}?"), answer["url"])
        response, data = self.use(answer["url"])
        self.assertEqual(data, b"<script>alert(1)</script>")
        self.assertEqual(response.getheader("Content-Type"), "application/octet-stream")
        self.assertEqual(response.getheader("Content-Disposition"), "attachment; filename*=UTF-8''a%20b%26%C3%BC.html")
        self.assertEqual(response.getheader("X-Content-Type-Options"), "nosniff")
        self.assertTrue(response.getheader("Content-Security-Policy").startswith("sandbox"))
        response, data = self.use(answer["url"], headers={"Range": "bytes=1-6"})
        self.assertEqual((response.status, data), (206, b"script"))
        response, data = self.use(answer["url"], "HEAD")
        self.assertEqual((response.getheader("Content-Length"), data), ("25", b""))
        # Over the Unix socket it is that of the TCP port.
        local = self.sign(client=self.api)["url"]
        self.assertTrue(local.startswith(f"http://127.0.0.1:{self.daemon.port}/v1/signed/"), local)
        self.assertEqual(self.use(local)[1], data or b"<script>alert(1)</script>")

    def test_an_upload(self):
        url = self.sign("/workspace/new/up", method="PUT", max_bytes=10)["url"]
        self.assertEqual(self.use(url, "PUT", b"0123456789")[0].status, 200)
        self.assertEqual(self.api.read(self.box, "/workspace/new/up"), b"0123456789")
        self.refused(413, "request.too_large", self.use, url, "PUT", b"0123456789X")
        self.assertEqual(self.api.read(self.box, "/workspace/new/up"), b"0123456789")
        # It is for one method.
        self.refused(403, "url.invalid", self.use, url)
        self.refused(403, "url.invalid", self.use, self.sign()["url"], "PUT", b"x")

    def test_nothing_in_it_can_be_changed(self):
        self.api.write(self.box, "/workspace/other", b"other")
        url = self.sign("/workspace/up", method="PUT", max_bytes=10, user="root")["url"]
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        other = self.sandbox()
        changes = [{"path": "/workspace/other"}, {"user": "1000"}, {"user": ""}, {"expires": str(int(query["expires"]) + 1)}, {"max_bytes": "11"},
                   {"by": "aaaaaaaaaaaaaaaa"}, {"by": ""}, {"signature": "A" * 43}, {"signature": query["signature"][:-1] + "!"}]
        for change in changes:
            with self.subTest(change=change):
                changed = urllib.parse.urlencode({**query, **change})
                self.refused(403, "url.invalid", self.use, f"{parts.path}?{changed}", "PUT", b"x")
        for gone in ("user", "max_bytes", "by"):
            left = urllib.parse.urlencode({key: value for key, value in query.items() if key != gone})
            self.refused(403, "url.invalid", self.use, f"{parts.path}?{left}", "PUT", b"x")
        self.refused(403, "url.invalid", self.use, f"/v1/signed/{other}?{parts.query}", "PUT", b"x")
        self.refused(403, "url.invalid", self.use, f"/v1/signed/bbbbbbbbbbbbbbbb?{parts.query}", "PUT", b"x")
        self.refused(403, "url.invalid", self.use, f"/v1/signed/no-id?{parts.query}", "PUT", b"x")
        self.use(url, "PUT", b"x")

    def test_it_expires(self):
        url = self.sign(expires_seconds=1)["url"]

        def expired():
            try:
                self.use(url)
            except ApiError as error:
                self.assertEqual((error.status, error.code), (403, "url.expired"))
                return True
        wait_until(expired, every=0.2)

    def test_it_ends_with_its_token(self):
        made = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read"], "label": "maker"})
        reader = self.daemon.tcp(made["token"])
        url = self.sign(client=reader)["url"]
        self.use(url)
        self.assertNotIn(made["token"], url)
        self.refused(403, "auth.forbidden", self.sign, "/workspace/x", reader, method="PUT")
        self.api.delete("/v1/tokens/" + made["id"])
        self.refused(403, "url.invalid", self.use, url)

    def test_what_is_under_way_ends_with_its_token(self):
        made = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:write"]})
        by_token = self.begin_upload(self.sign("/workspace/cut", self.daemon.tcp(made["token"]), method="PUT")["url"])
        local = self.begin_upload(self.sign("/workspace/whole", self.api, method="PUT")["url"])
        self.api.delete("/v1/tokens/" + made["id"])
        self.assertTrue(is_closed(by_token))
        # One that it does not concern goes on.
        local.sendall(b"x" * 99000)
        self.assertIn(b"HTTP/1.1 200", local.recv(100))
        with self.assertRaises(ApiError):
            self.api.read(self.box, "/workspace/cut")

    def test_it_ends_with_the_sandbox(self):
        box = self.api.create()["id"]
        url = self.sign("/etc/hostname", box=box)["url"]
        self.use(url)
        self.api.delete("/v1/sandboxes/" + box)
        self.refused(410, "sandbox.ended", self.use, url)

    def test_it_wakes_if_its_maker_could(self):
        box = self.sandbox()
        self.api.write(box, "/workspace/f", b"f")
        reading, writing = (self.sign("/workspace/f", self.tcp(scopes=[scope]), box)["url"] for scope in ("sandboxes:read", "sandboxes:write"))
        self.api.post(f"/v1/sandboxes/{box}/pause")
        with self.assertRaises(ApiError) as caught:
            self.use(reading)
        self.assertEqual(caught.exception.status, 409)
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["status"], "paused")
        self.assertEqual(self.use(writing)[1], b"f")

    def test_what_is_refused(self):
        self.refused(400, "request.invalid", self.sign, method="DELETE")
        self.refused(400, "request.invalid", self.sign, expires_seconds=7 * 86400 + 1)
        self.refused(400, "request.invalid", self.sign, expires_seconds=0)
        self.refused(400, "request.invalid", self.sign, max_bytes=5)
        self.refused(404, "sandbox.not_found", self.sign, "/etc/passwd", self.tcp(workspace="elsewhere"))
        self.refused(422, "file.wrong_type", self.use, self.sign("/workspace")["url"])
        self.refused(404, "file.not_found", self.use, self.sign("/workspace/none")["url"])
        self.refused(400, "request.invalid", self.use, "/v1/signed/" + self.box + "?path=x&expires=5")

    def test_it_survives_a_restart(self):
        url = self.sign()["url"]
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.use(url)[1], b"<script>alert(1)</script>")


if __name__ == "__main__":
    unittest.main()
