"""subscriptions/listen of 2026-07-28: what is acknowledged, what comes, to whom, and how it ends."""
import json
import os
import time

from caisson import Daemon, MCP_FIXTURES, PROGRAM, wait_until
from mcp import META, Mcp, McpError, McpTest
from stdio import Stdio

PARAMS, INTERNAL = -32602, -32603
ID = META + "subscriptionId"
TASKS = {"extensions": {META + "tasks": {}}}


class Case(McpTest):
    def listen(self, number="listen", mcp=None, acknowledged=None, capabilities=None, **filter):
        stream = (mcp or self.mcp).modern_send("subscriptions/listen", {"notifications": filter}, number, capabilities=capabilities)
        self.addCleanup(stream.close)
        message = stream.next()
        self.assertEqual(message["method"], "notifications/subscriptions/acknowledged", message)
        self.assertEqual(message["params"]["_meta"], {ID: number})
        if acknowledged is not None:
            self.assertEqual(message["params"]["notifications"], acknowledged)
        stream.number = number
        return stream

    def updated(self, stream):
        message = stream.next()
        self.assertEqual(message["method"], "notifications/resources/updated", message)
        number = message["params"]["_meta"][ID]
        self.assertEqual((number, type(number)), (stream.number, type(stream.number)))
        return message["params"]["uri"]

    def told(self, stream, *uris):
        """Each of them is told of. One change may be told of twice: its parts may come apart."""
        left = set(uris)
        while left:
            left.discard(self.updated(stream))


class Resources(Case):
    def test_filter(self):
        sandbox = self.sandbox()
        good = [f"sandbox://{sandbox}", "sandboxes://all", f"sandbox://{sandbox}/files/tmp/x"]
        self.listen(toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True, taskIds=["x"],
                    resourceSubscriptions=good + good + ["sandbox://nowhere", "x", f"sandbox://{sandbox}/files/%00"],
                    acknowledged={"resourceSubscriptions": good})
        self.listen(acknowledged={}, number=1763000000000)
        for filter in (None, 5, [], {"toolsListChanged": 1}, {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [5]},
                       {"taskIds": {}}, {"resourceSubscriptions": ["x"] * 129}):
            with self.assertRaises(McpError) as caught:
                self.mcp.modern("subscriptions/listen", {"notifications": filter})
            self.assertEqual(caught.exception.code, PARAMS, filter)
        with self.assertRaises(McpError):
            self.mcp.modern("subscriptions/listen", {"notifications": {}}, headers={"Accept": "application/json"})

    def test_file(self):
        sandbox = self.sandbox()
        uri, other = f"sandbox://{sandbox}/files/tmp/watched", f"sandbox://{sandbox}/files/later/file"
        directory = f"sandbox://{sandbox}/files/tmp/"
        stream = self.listen(resourceSubscriptions=[uri, other])
        self.api.write(sandbox, "/tmp/not-watched", b"")
        self.api.write(sandbox, "/tmp/watched", b"")
        self.told(stream, uri)
        self.api.sh(sandbox, "echo 2 > /tmp/new && mv /tmp/new /tmp/watched")
        self.told(stream, uri)
        # Its directory was not there when it was subscribed to.
        self.api.sh(sandbox, "mkdir /later")
        self.told(stream, other)
        self.api.sh(sandbox, "touch /later/file")
        self.told(stream, other)
        self.api.post(f"/v1/sandboxes/{sandbox}/stop")
        whole = self.listen(number="whole", resourceSubscriptions=[directory])
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["state"], "stopped")
        self.api.post(f"/v1/sandboxes/{sandbox}/start")
        self.told(stream, uri, other)
        self.told(whole, directory)
        self.api.write(sandbox, "/tmp/anything", b"")
        self.told(whole, directory)
        self.remove(sandbox)
        self.told(stream, uri, other)

    def test_paused(self):
        """What is watched sleeps on, and is told of when it is awake."""
        sandbox = self.sandbox()
        uri = f"sandbox://{sandbox}/files/tmp/watched"
        self.api.post(f"/v1/sandboxes/{sandbox}/pause")
        stream = self.listen(resourceSubscriptions=[uri], acknowledged={"resourceSubscriptions": [uri]})
        self.assertEqual(self.api.get("/v1/sandboxes/" + sandbox)["state"], "paused")
        self.api.post(f"/v1/sandboxes/{sandbox}/resume")
        self.assertEqual(self.updated(stream), uri)
        self.api.write(sandbox, "/tmp/watched", b"")
        self.assertEqual(self.updated(stream), uri)

    def test_file_bound(self):
        sandbox = self.sandbox()
        stream = self.mcp.modern_send("subscriptions/listen", {"notifications": {
            "resourceSubscriptions": [f"sandbox://{sandbox}/files/tmp/{number}" for number in range(40)]}})
        with stream:
            self.assertEqual(len(stream.next()["params"]["notifications"]["resourceSubscriptions"]), 16)
            self.api.write(sandbox, "/tmp/file", b"there is room for others")

    def test_job(self):
        sandbox = self.sandbox()
        job = self.api.exec(sandbox, "read x; echo $x; read x", background=True, stdin=True)["exec_id"]
        out, err = f"job://{sandbox}/{job}/stdout", f"job://{sandbox}/{job}/stderr"
        stream, errors = self.listen(1, resourceSubscriptions=[out]), self.listen("1", resourceSubscriptions=[err])
        self.api.call("POST", f"/v1/sandboxes/{sandbox}/execs/{job}/stdin", b"hello\n", {"Content-Type": "application/octet-stream"})
        self.assertEqual(self.updated(stream), out)
        self.assertEqual(self.mcp.modern("resources/read", {"uri": out})["contents"][0]["text"], "hello\n")
        self.api.post(f"/v1/sandboxes/{sandbox}/execs/{job}/signal", {"signal": "KILL"})
        self.assertEqual(self.updated(stream), out)
        self.assertEqual(self.updated(errors), err)  # its end is the first that happens to it

    def test_inventory_and_record(self):
        inventory = self.listen("inventory", resourceSubscriptions=["sandboxes://all"])
        sandbox = self.sandbox()
        self.assertEqual(self.updated(inventory), "sandboxes://all")
        uri = f"sandbox://{sandbox}"
        stream = self.listen("record", resourceSubscriptions=[uri])
        foreign = Mcp(self.daemon.tcp(self.daemon.token(workspace="other")))
        others = self.listen("others", mcp=foreign, resourceSubscriptions=["sandboxes://all", uri],
                             acknowledged={"resourceSubscriptions": ["sandboxes://all"]})
        for change in (lambda: self.api.exec(sandbox, "true"), lambda: self.api.post(f"/v1/sandboxes/{sandbox}/pause"),
                       lambda: self.api.call("PATCH", f"/v1/sandboxes/{sandbox}", {"name": "renamed"}),
                       lambda: self.remove(sandbox)):
            change()
            self.assertEqual(self.updated(stream), uri)
        # The first that the other workspace hears of is its own.
        theirs = foreign.client.create()
        self.assertEqual(self.updated(others), "sandboxes://all")
        listed = json.loads(foreign.modern("resources/read", {"uri": "sandboxes://all"})["contents"][0]["text"])
        self.assertEqual([entry["id"] for entry in listed["sandboxes"]], [theirs["id"]])
        foreign.client.delete("/v1/sandboxes/" + theirs["id"])

    def test_rate(self):
        """What changes all the time is told of now and then."""
        sandbox, other = self.sandbox(), self.sandbox()
        busy = f"sandbox://{sandbox}/files/tmp/busy"
        stream = self.listen(resourceSubscriptions=[busy, f"sandbox://{other}"])
        began = time.monotonic()
        self.api.sh(sandbox, "i=0; while [ $i -lt 500 ]; do echo $i > /tmp/busy; i=$((i+1)); done")
        self.remove(other)
        told = list(iter(lambda: self.updated(stream), f"sandbox://{other}"))
        self.assertEqual(set(told) - {busy}, set())
        self.assertLessEqual(len(told), (time.monotonic() - began) / 0.2 + 2)


class Lines(Case):
    """The same over `caisson mcp`."""

    def test_lines(self):
        bridge = Stdio([PROGRAM, "mcp"], {**os.environ, **self.daemon.client_environment()})
        self.addCleanup(bridge.close)
        filter = {"notifications": {"resourceSubscriptions": ["sandboxes://all"]}}
        first, second = [bridge.begin("subscriptions/listen", filter, modern=True) for _ in range(2)]
        for number in (first, second):
            message = bridge.next()
            self.assertEqual((message["method"], message["params"]["_meta"]),
                             ("notifications/subscriptions/acknowledged", {ID: number}))
        bridge.notify("notifications/cancelled", {"requestId": first})
        self.assertIn("tools", bridge.request("tools/list", modern=True))  # and nothing about the one that was cancelled
        self.assertEqual(bridge.seen, [])
        self.sandbox()
        message = bridge.next()
        self.assertEqual((message["method"], message["params"]),
                         ("notifications/resources/updated", {"_meta": {ID: second}, "uri": "sandboxes://all"}))
        code, left, _ = bridge.end()
        self.assertEqual((code, [message for message in left if "id" in message]), (0, []))


class Ends(Case):
    def test_bound(self):
        streams = [self.listen(number) for number in range(64)]
        with self.assertRaises(McpError) as caught:
            self.mcp.modern("subscriptions/listen", {"notifications": {}})
        self.assertEqual((caught.exception.code, caught.exception.status), (INTERNAL, 200))
        self.assertIn("Subscription limit", caught.exception.message)
        other = Mcp(self.daemon.tcp(self.daemon.token(workspace="other")))
        self.listen(mcp=other).close()
        for stream in streams:
            stream.__exit__()

        def free():
            with self.mcp.modern_send("subscriptions/listen", {"notifications": {}}) as stream:
                return "method" in stream.next()
        wait_until(free, what="room for another")

    def test_token(self):
        token = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read"]})
        stream = self.listen(mcp=Mcp(self.daemon.tcp(token["token"])), resourceSubscriptions=["sandboxes://all"])
        self.api.delete("/v1/tokens/" + token["id"])
        self.sandbox()
        self.assertNotIn("notifications/resources/updated", [message.get("method") for message in stream.rest()])


class Fixtures(Case):
    program = MCP_FIXTURES

    def test_lists(self):
        tools = self.listen("tools", toolsListChanged=True, acknowledged={"toolsListChanged": True})
        prompts = self.listen("prompts", promptsListChanged=True, acknowledged={"promptsListChanged": True})
        self.mcp.call("test_trigger_tool_change")
        self.mcp.call("test_trigger_prompt_change")
        for stream, what in ((tools, "tools"), (prompts, "prompts")):
            message = stream.next()
            self.assertEqual(message["method"], f"notifications/{what}/list_changed")
            self.assertEqual(message["params"]["_meta"], {ID: what})

    def test_graceful(self):
        """The end of the server is the result of every listen."""
        daemon = Daemon(arguments=self.arguments).start()
        self.addCleanup(daemon.close)
        mcp = Mcp(daemon.client())
        streams = [self.listen(number, mcp=mcp, toolsListChanged=True) for number in (7, "seven")]
        daemon.process.terminate()
        for stream in streams:
            message, = stream.rest()
            self.assertEqual((message["id"], message["result"]["resultType"]), (stream.number, "complete"))
            self.assertEqual(message["result"]["_meta"][ID], stream.number)
        daemon.stop()
