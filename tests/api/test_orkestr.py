"""The routes and fields that clients of orkestr's sandboxes use, as far as they are known: ten routes, create with every
field, exec, files in base64, errors with `detail`."""
import base64
import json
import unittest

from caisson import ApiError, DaemonTest

CREATE = {"template": "python-3.12", "cpu": 1.0, "memory_mb": 256, "network": "off", "timeout_seconds": 600, "env": {"GIVEN": "value"},
          "metadata": {"owner": "a test"}}


class Orkestr(DaemonTest):
    config = "[templates]\nsubstitute = yes\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.daemon.tcp(cls.daemon.token(scopes=["sandboxes:read", "sandboxes:write"]))

    def made(self, **fields):
        record = self.client.post("/v1/sandboxes", {**CREATE, **fields})
        self.addCleanup(self.remove, record["id"])
        return record

    def test_create(self):
        record = self.made()
        self.assertEqual(record["status"], "running")
        self.assertEqual((record["cpu"], record["memory_mb"], record["network"], record["timeout_seconds"], record["metadata"]),
                         (1.0, 256, "off", 600, {"owner": "a test"}))
        self.assertEqual(self.client.sh(record["id"], "echo $GIVEN"), "value\n")

    def test_create_from_each_template(self):
        for template in ("python-3.12", "python-3.12-bare", "node-22", "ubuntu-24.04"):
            with self.subTest(template):
                self.assertEqual(self.made(template=template)["status"], "running")

    def test_create_by_size(self):
        for size in ("small", "medium", "large"):
            body = {key: value for key, value in CREATE.items() if key not in ("cpu", "memory_mb")}
            with self.subTest(size):
                try:
                    record = self.client.post("/v1/sandboxes", {**body, "size": size})
                except ApiError as error:
                    # A size that this host is too small for.
                    self.assertEqual((error.status, error.code), (422, "limit.exceeded"), error.body)
                    continue
                self.remove(record["id"])
        self.refused(400, "request.invalid", self.client.post, "/v1/sandboxes", {**body, "size": "gigantic"})

    def test_region(self):
        """null means wherever there is room; there are no others than this host."""
        self.assertEqual(self.made(region=None)["status"], "running")
        for region in ("fsn1", "hel1"):
            with self.subTest(region):
                try:
                    record = self.client.post("/v1/sandboxes", {**CREATE, "region": region})
                    self.remove(record["id"])
                except ApiError as error:
                    self.assertEqual((error.status, error.code), (501, "feature.unsupported"), error.body)

    def test_networks(self):
        for network in ("restricted", "open"):
            with self.subTest(network):
                self.refused(501, "feature.unsupported", self.client.post, "/v1/sandboxes", {**CREATE, "network": network})
        self.refused(400, "request.invalid", self.client.post, "/v1/sandboxes", {**CREATE, "network": "allowlist"})

    def test_timeouts(self):
        for seconds in (10, 3600):
            self.assertEqual(self.made(timeout_seconds=seconds)["timeout_seconds"], seconds)

    def test_list_and_get(self):
        box = self.made()["id"]
        self.assertIn(box, [item["id"] for item in self.client.get("/v1/sandboxes")["items"]])
        record = self.client.get("/v1/sandboxes/" + box)
        self.assertEqual((record["id"], record["status"]), (box, "running"))

    def test_exec(self):
        box = self.made()["id"]
        for field in ("cmd", "command"):
            result = self.client.post(f"/v1/sandboxes/{box}/exec", {field: "echo out; echo err >&2; exit 3", "timeout_seconds": 20})
            self.assertEqual((result["stdout"], result["stderr"], result["exit_code"]), ("out\n", "err\n", 3))
            self.assertIsInstance(result["duration_ms"], (int, float))

    def test_files(self):
        box = self.made()["id"]
        data = bytes(range(256))
        self.client.post(f"/v1/sandboxes/{box}/files", {"path": "/workspace/deep/file", "content_base64": base64.b64encode(data).decode()})
        self.assertEqual(self.client.read(box, "/workspace/deep/file"), data)
        listed = self.client.get(f"/v1/sandboxes/{box}/files", path="/workspace/deep")
        self.assertEqual([entry["name"] for entry in listed["entries"]], ["file"])
        self.client.delete(f"/v1/sandboxes/{box}/files", path="/workspace/deep/file")
        self.refused(404, "file.not_found", self.client.read, box, "/workspace/deep/file")

    def test_pause_and_resume(self):
        box = self.made()["id"]
        self.client.sh(box, "echo kept > /tmp/file")
        self.assertEqual(self.client.post(f"/v1/sandboxes/{box}/pause")["status"], "paused")
        self.assertEqual(self.client.post(f"/v1/sandboxes/{box}/resume")["status"], "running")
        self.assertEqual(self.client.sh(box, "cat /tmp/file"), "kept\n")

    def test_terminate(self):
        box = self.made()["id"]
        self.assertFalse(self.client.delete("/v1/sandboxes/" + box))
        self.assertNotIn(box, [item["id"] for item in self.client.get("/v1/sandboxes")["items"]])

    def test_limits(self):
        limits = self.client.get("/v1/limits")
        self.assertLessEqual({"small", "medium", "large"}, set(json.dumps(limits).replace('"', " ").split()))

    def test_scopes(self):
        reader = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))
        box = self.made()["id"]
        self.assertEqual(reader.get("/v1/sandboxes/" + box)["id"], box)
        for method, path in (("POST", "/v1/sandboxes"), ("DELETE", "/v1/sandboxes/" + box), ("POST", f"/v1/sandboxes/{box}/pause")):
            self.refused(403, "auth.forbidden", reader.call, method, path, {} if method == "POST" else None)

    def test_errors_have_a_detail(self):
        error = self.refused(404, "sandbox.not_found", self.client.get, "/v1/sandboxes/abcdefghijklmnop")
        self.assertIsInstance(error.body["detail"], str)
        error = self.refused(401, "auth.required", self.daemon.tcp("ork_wrong").get, "/v1/sandboxes")
        self.assertIsInstance(error.body["detail"], str)


if __name__ == "__main__":
    unittest.main()
