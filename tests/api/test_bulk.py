"""The same for many sandboxes at once: who is selected, that each has its own result, and that nothing is
touched that was not meant."""
import unittest

from caisson import ApiError, DaemonTest


class Bulk(DaemonTest):
    def setUp(self):
        self.red = [self.sandbox(name=f"red-{i}", labels={"team": "red", "n": str(i)}) for i in range(3)]
        self.blue = self.sandbox(name="blue", labels={"team": "blue"})

    def bulk(self, action, selector=None, **fields):
        body = {"action": action, **fields}
        if selector is not None:
            body["selector"] = selector
        return self.api.post("/v1/sandboxes/bulk", body)

    def status(self, box):
        return self.api.get("/v1/sandboxes/" + box)["status"]

    def test_by_label(self):
        answer = self.bulk("pause", {"labels": {"team": "red"}})
        self.assertEqual((answer["matched"], answer["succeeded"], answer["failed"]), (3, 3, 0))
        self.assertEqual({result["id"] for result in answer["results"]}, set(self.red))
        self.assertEqual({result["status"] for result in answer["results"]}, {"paused"})
        self.assertEqual(self.status(self.blue), "running")
        answer = self.bulk("resume", {"labels": {"team": "red", "n": "1"}})
        self.assertEqual([result["name"] for result in answer["results"]], ["red-1"])
        answer = self.bulk("stop", {"labels": {"team": "red"}, "status": "paused"})
        self.assertEqual({result["id"] for result in answer["results"]}, {self.red[0], self.red[2]})
        self.assertEqual(self.bulk("start", {"status": "stopped"})["succeeded"], 2)
        self.assertEqual(self.bulk("stop", {"labels": {"team": "green"}})["matched"], 0)

    def test_each_has_its_own_error(self):
        self.api.post(f"/v1/sandboxes/{self.red[1]}/stop")
        answer = self.bulk("pause", {"names": ["red-0", "red-1", "nobody", "Not A Name"], "ids": [self.red[0], self.red[2], "abcdefghijklmnop"]})
        results = {result["id"] or result["name"]: result for result in answer["results"]}
        self.assertEqual((answer["matched"], answer["missing"], answer["succeeded"], answer["failed"]), (3, 3, 2, 4))
        self.assertTrue(results[self.red[0]]["ok"] and results[self.red[2]]["ok"])
        self.assertEqual((results[self.red[1]]["code"], results[self.red[1]]["status"]), ("sandbox.wrong_state", "stopped"))
        self.assertEqual(results["nobody"]["code"], "sandbox.not_found")
        self.assertEqual(results["Not A Name"]["code"], "id.malformed")
        self.assertEqual(results["abcdefghijklmnop"]["code"], "sandbox.not_found")

    def test_dry_run_and_delete(self):
        answer = self.bulk("delete", all=True, dry_run=True)
        self.assertEqual((answer["matched"], answer["failed"]), (4, 0))
        self.assertEqual({result["status"] for result in answer["results"]}, {"running"})
        self.assertEqual(self.status(self.blue), "running")
        answer = self.bulk("delete", {"labels": {"team": "red"}})
        self.assertEqual({result["status"] for result in answer["results"]}, {"ended"})
        self.assertEqual([record["id"] for record in self.api.get("/v1/sandboxes")["items"]], [self.blue])
        self.assertEqual(self.bulk("delete", all=True)["succeeded"], 1)

    def test_drain(self):
        self.api.exec(self.red[0], "sleep 1000", background=True)
        answer = self.bulk("drain", {"labels": {"team": "red"}}, timeout_seconds=0, then="delete")
        self.assertEqual({result["status"] for result in answer["results"]}, {"ended"})

    def test_what_is_refused(self):
        for body, status, code in [
                ({}, 400, "request.invalid"), ({"action": "dance", "all": True}, 400, "request.invalid"), ({"action": "stop"}, 400, "request.invalid"),
                ({"action": "stop", "selector": {}}, 400, "request.invalid"), ({"action": "stop", "selector": {"ids": []}}, 400, "request.invalid"),
                ({"action": "stop", "selector": {"labels": {}}}, 400, "request.invalid"), ({"action": "stop", "selector": {"odd": 1}}, 400, "request.invalid"),
                ({"action": "stop", "selector": {"status": "odd"}}, 400, "request.invalid"), ({"action": "stop", "selector": {"ids": [1]}}, 400, "request.invalid"),
                ({"action": "stop", "selector": {"ids": ["x"] * 1001}}, 422, "limit.exceeded"), ({"action": "drain", "all": True, "then": "dance"}, 400, "request.invalid")]:
            with self.subTest(body=str(body)[:60]):
                with self.assertRaises(ApiError) as caught:
                    self.api.call("POST", "/v1/sandboxes/bulk", body, checked=False)
                self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception.body)
        for box in self.red + [self.blue]:
            self.assertEqual(self.status(box), "running")

    def test_others_sandboxes(self):
        other = self.daemon.tcp(self.daemon.token("other"))
        answer = other.post("/v1/sandboxes/bulk", {"action": "delete", "all": True})
        self.assertEqual(answer["matched"], 0)
        answer = other.post("/v1/sandboxes/bulk", {"action": "delete", "selector": {"ids": self.red, "names": ["blue"]}})
        self.assertEqual({result["code"] for result in answer["results"]}, {"sandbox.not_found"})
        bound = self.daemon.tcp(self.daemon.token(sandbox=self.blue))
        answer = bound.post("/v1/sandboxes/bulk", {"action": "pause", "all": True})
        self.assertEqual([result["id"] for result in answer["results"]], [self.blue])
        reader = self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"]))
        self.refused(403, "auth.forbidden", reader.post, "/v1/sandboxes/bulk", {"action": "pause", "all": True})
        for box in self.red:
            self.assertEqual(self.status(box), "running")


if __name__ == "__main__":
    unittest.main()
