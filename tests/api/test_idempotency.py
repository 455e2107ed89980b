"""Idempotency-Key: the same request comes to the same thing, once, also after a restart of the daemon."""
import json
import unittest

from caisson import ApiError, Background, DaemonTest, at_once, wait_until


class Idempotency(DaemonTest):
    def ask(self, path, body, key, api=None):
        """Status, body, and whether it was told again."""
        response, connection = (api or self.api).raw("POST", path, body, {"Idempotency-Key": key})
        data = json.loads(response.read())
        connection.close()
        return response.status, data, response.getheader("Idempotent-Replayed") == "true"

    def create(self, body, key, api=None):
        status, data, again = self.ask("/v1/sandboxes", body, key, api)
        if status == 201 and not again:
            self.addCleanup(self.remove if api is None else lambda box: api.delete("/v1/sandboxes/" + box), data["id"])
        return status, data, again

    def test_create(self):
        body = {"labels": {"a": "b"}, "timeout_seconds": 900}
        status, first, again = self.create(body, "create-1")
        self.assertEqual((status, again), (201, False))
        # Written differently, it is the same request; the record is the present one.
        self.api.post(f"/v1/sandboxes/{first['id']}/pause")
        status, second, again = self.create(dict(reversed(body.items())), "create-1")
        self.assertEqual((status, second["id"], second["status"], again), (201, first["id"], "paused", True))
        status, error, _ = self.create({"labels": {"a": "c"}, "timeout_seconds": 900}, "create-1")
        self.assertEqual((status, error["code"]), (422, "request.idempotency_mismatch"))
        # Another workspace's keys are its own.
        other = self.daemon.tcp(self.daemon.token("other"))
        status, third, again = self.create(body, "create-1", other)
        self.assertEqual((status, again), (201, False))
        self.assertNotEqual(third["id"], first["id"])
        self.daemon.kill_daemon()
        status, fourth, again = self.create(body, "create-1")
        self.assertEqual((status, fourth["id"], again), (201, first["id"], True))
        self.api.delete("/v1/sandboxes/" + first["id"])
        status, fifth, again = self.create(body, "create-1")
        self.assertEqual((fifth["id"], fifth["status"], again), (first["id"], "ended", True))

    def test_a_failure_is_not_kept(self):
        name = {"name": "wanted"}
        taken = self.api.create(**name)["id"]
        status, error, _ = self.create(name, "failed-1")
        self.assertEqual((status, error["code"]), (409, "sandbox.name_taken"))
        self.api.delete("/v1/sandboxes/" + taken)
        status, record, again = self.create(name, "failed-1")
        self.assertEqual((status, record["name"], again), (201, "wanted", False))

    def test_keys(self):
        for key in ("", "x" * 256, "a b", "caf\u00e9"):
            with self.subTest(key=key):
                try:
                    status, error, _ = self.ask("/v1/sandboxes", {}, key)
                except UnicodeEncodeError:
                    continue
                self.assertEqual(status, 400, error)
        status, _, again = self.create({}, "x" * 255)
        self.assertEqual((status, again), (201, False))

    def test_at_the_same_time(self):
        answers = at_once(lambda _: self.create({"labels": {"same": "time"}}, "together"), range(6))
        made = {data["id"] for status, data, _ in answers if status == 201}
        self.assertEqual(len(made), 1)
        self.assertEqual({data["code"] for status, data, _ in answers if status != 201} - {"request.idempotency_pending"}, set())
        self.assertEqual(len(self.api.call("GET", "/v1/sandboxes?label=same%3Dtime")["items"]), 1)

    def test_a_client_that_went_gets_its_sandbox(self):
        connection = self.api.connection()
        connection.request("POST", "/v1/sandboxes", json.dumps({"name": "patient"}),
                           {"Idempotency-Key": "gone-1", "Content-Type": "application/json"})
        wait_until(lambda: self.api.get("/v1/sandboxes", name="patient")["items"], what="the create")
        connection.close()
        wait_until(lambda: [r for r in self.api.get("/v1/sandboxes", name="patient")["items"] if r["status"] == "running"], what="the sandbox")
        status, record, again = self.create({"name": "patient"}, "gone-1")
        self.addCleanup(self.remove, record["id"])
        self.assertEqual((status, record["status"], again), (201, "running", True))

    def test_exec(self):
        box = self.sandbox()
        path = f"/v1/sandboxes/{box}/exec"
        body = {"cmd": "echo x >>/workspace/log; wc -l </workspace/log"}
        status, first, again = self.ask(path, body, "exec-1")
        self.assertEqual((status, first["stdout"].strip(), again), (200, "1", False))
        status, second, again = self.ask(path, body, "exec-1")
        self.assertEqual((status, second["exec_id"], second["stdout"], again), (200, first["exec_id"], first["stdout"], True))
        status, error, _ = self.ask(path, {"cmd": "true"}, "exec-1")
        self.assertEqual((status, error["code"]), (422, "request.idempotency_mismatch"))
        # A token that is bound to another sandbox has keys of its own: the same one is new there.
        other = self.sandbox()
        bound = self.daemon.tcp(self.api.post("/v1/tokens", {"scopes": ["sandboxes:write"], "sandbox": other})["token"])
        for expected in (False, True):
            status, third, again = self.ask(f"/v1/sandboxes/{other}/exec", body, "exec-1", bound)
            self.assertEqual((status, third["stdout"].strip(), again), (200, "1", expected))
        # Another sandbox, another request; so is what the key stood for in a create.
        status, error, _ = self.ask(f"/v1/sandboxes/{self.sandbox()}/exec", body, "exec-1")
        self.assertEqual(status, 422)
        self.daemon.kill_daemon()
        status, third, again = self.ask(path, body, "exec-1")
        self.assertEqual((status, third["exec_id"], third["stdout"], again), (200, first["exec_id"], first["stdout"], True))
        self.assertEqual(self.api.sh(box, "wc -l </workspace/log").strip(), "1")

    def test_exec_in_the_background(self):
        box = self.sandbox()
        path = f"/v1/sandboxes/{box}/exec"
        body = {"cmd": "echo x >>/workspace/log; cat", "background": True, "stdin": True}
        status, first, again = self.ask(path, body, "job-1")
        self.assertEqual((status, again), (202, False))
        status, second, again = self.ask(path, body, "job-1")
        self.assertEqual((status, second["exec_id"], again), (202, first["exec_id"], True))
        wait_until(lambda: self.api.exec(box, "test -s /workspace/log")["exit_code"] == 0, what="the command")
        self.api.call("DELETE", f"/v1/sandboxes/{box}/execs/{first['exec_id']}")
        self.assertEqual(self.api.sh(box, "wc -l </workspace/log").strip(), "1")

    def test_a_blocking_exec_waits_for_the_same_one(self):
        box = self.sandbox()
        self.api.sh(box, "mkfifo /workspace/pipe")
        body = {"cmd": "cat /workspace/pipe; echo ran"}
        first = self.api.connection()
        first.request("POST", f"/v1/sandboxes/{box}/exec", json.dumps(body), {"Idempotency-Key": "wait-1", "Content-Type": "application/json"})
        wait_until(lambda: [e for e in self.api.get(f"/v1/sandboxes/{box}/execs")["execs"] if "pipe; echo" in e["command"]], what="the command")
        second = Background(self.ask, f"/v1/sandboxes/{box}/exec", body, "wait-1")
        # The first client goes; with a key the command goes on.
        first.close()
        self.api.sh(box, "echo text >/workspace/pipe")
        status, answer, again = second.result()
        self.assertEqual((status, answer["stdout"], again), (200, "text\nran\n", True))
        self.assertEqual(len([e for e in self.api.get(f"/v1/sandboxes/{box}/execs")["execs"] if "pipe; echo" in e["command"]]), 1)

    def test_exec_that_cannot_start_is_not_kept(self):
        box = self.sandbox()
        path = f"/v1/sandboxes/{box}/exec"
        body = {"argv": ["/workspace/later"]}
        status, error, _ = self.ask(path, body, "none-1")
        self.assertEqual((status, error["code"]), (422, "exec.program_not_found"))
        self.api.sh(box, "printf '#!/bin/sh\\necho here' >/workspace/later; chmod +x /workspace/later")
        status, answer, again = self.ask(path, body, "none-1")
        self.assertEqual((status, answer["stdout"], again), (200, "here\n", False))

    def test_run(self):
        body = {"cmd": "echo $$; date +%N"}
        status, first, again = self.ask("/v1/run", body, "run-1")
        self.assertEqual((status, again), (200, False))
        self.daemon.kill_daemon()
        status, second, again = self.ask("/v1/run", body, "run-1")
        self.assertEqual((status, second, again), (200, first, True))
        status, error, _ = self.ask("/v1/run", {"cmd": "true"}, "run-1")
        self.assertEqual(status, 422)
        # What another's run came to is not for a token that is bound to one sandbox.
        bound = self.daemon.tcp(self.api.post("/v1/tokens", {"scopes": ["sandboxes:write"], "sandbox": self.sandbox()})["token"])
        status, error, again = self.ask("/v1/run", body, "run-1", bound)
        self.assertEqual((status, error["code"], again), (403, "auth.forbidden", False))
        # What is too long to be kept says so.
        body = {"cmd": "head -c 400000 /dev/zero | tr '\\0' x"}
        status, _, again = self.ask("/v1/run", body, "run-2")
        self.assertEqual((status, again), (200, False))
        with self.assertRaises(ApiError) as caught:
            self.api.call("POST", "/v1/run", body, {"Idempotency-Key": "run-2"})
        self.assertEqual((caught.exception.status, caught.exception.code), (410, "sandbox.ended"))


if __name__ == "__main__":
    unittest.main()
