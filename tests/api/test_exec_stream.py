"""Commands whose output is streamed: server-sent events, lines of JSON, the multiplexed WebSocket; and what the
blocking route takes and answers."""
import json
import time
import unittest

from caisson import ApiError, DaemonTest, wait_until
from marks import long
from websocket import Refused, WebSocket


def events(response):
    """(name, data) of each event, as they come; comments are left out."""
    name, data = "message", []
    for line in response:
        line = line.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
        elif line == "" and data:
            yield name, json.loads("\n".join(data))
            name, data = "message", []


class Streams(DaemonTest):
    box_fields = {"timeout_seconds": 600}

    def stream(self, body, query="", accept="text/event-stream", route="/exec/stream"):
        response, connection = self.api.raw("POST", self.path(route) + query, body, {"Accept": accept})
        self.addCleanup(connection.close)
        if response.status != 200:
            raise ApiError(response.status, json.loads(response.read()), dict(response.getheaders()))
        return response

    def record(self, exec_id):
        return self.api.get(self.path("/execs/" + exec_id))

    def ended(self, exec_id):
        return wait_until(lambda: self.record(exec_id)["state"] == "ended" and self.record(exec_id), what="its end")

    # --- events ---

    def test_events(self):
        for route in ("/exec/stream", "/exec"):
            response = self.stream({"cmd": "echo out; echo err >&2; exit 3"}, route=route)
            self.assertEqual(response.getheader("Content-Type"), "text/event-stream")
            found = list(events(response))
            self.assertEqual(found[0][0], "start")
            self.assertEqual("".join(data["chunk"] for name, data in found if name == "stdout"), "out\n")
            self.assertEqual("".join(data["chunk"] for name, data in found if name == "stderr"), "err\n")
            self.assertEqual([name for name, _ in found if name in ("exit", "error")], ["exit"])
            name, last = found[-1]
            self.assertEqual((name, last["exit_code"], last["stdout_bytes"], last["left_running"]), ("exit", 3, 4, []))
            self.assertEqual(last["exec_id"], found[0][1]["exec_id"])

    def test_what_it_left_running_waits_for_no_reader(self):
        """The client has gone after the exit: nobody reads what comes then, and it does not block."""
        found = list(events(self.stream({"cmd": "(until [ -e /tmp/go ]; do sleep 0.05; done; yes | head -c 600000; touch /tmp/through) & exit 0",
                                         "output": {"head_bytes": 4096, "tail_bytes": 65536}})))
        self.assertEqual((found[-1][0], found[-1][1]["left_running_count"] > 0), ("exit", True))
        self.api.sh(self.box, "touch /tmp/go")
        record = wait_until(lambda: (one := self.record(found[-1][1]["exec_id"]))["left_running_count"] == 0 and one, 30, what="its end")
        self.assertEqual(record["stdout_bytes"], 600000)
        self.api.sh(self.box, "test -e /tmp/through")

    def test_chunks_are_cut_between_characters(self):
        response = self.stream({"cmd": r"printf 'a\303'; sleep 0.3; printf '\244b'; sleep 0.3; printf '\343\201'"})
        chunks = [data for name, data in events(response) if name == "stdout"]
        whole = "".join(chunk["chunk"] for chunk in chunks if "data_base64" not in chunk)
        self.assertEqual(whole, "aäb")
        for chunk in chunks[:-1]:
            self.assertNotIn("�", chunk["chunk"])
        # Half a character that never became one: as it is.
        self.assertEqual((chunks[-1]["data_base64"], chunks[-1]["offset"]), ("44E=", 4))

    def test_bytes_that_are_no_text(self):
        response = self.stream({"cmd": r"printf '\377\000x'"})
        chunk = next(data for name, data in events(response) if name == "stdout")
        self.assertEqual(chunk["data_base64"], "/wB4")
        self.assertIn("�", chunk["chunk"])

    def test_large_output_is_whole_and_in_order(self):
        response = self.stream({"cmd": "seq 1 200000"})
        found = list(events(response))
        text = "".join(data["chunk"] for name, data in found if name == "stdout")
        self.assertEqual(text, "".join(f"{i}\n" for i in range(1, 200001)))
        self.assertEqual(found[-1][0], "exit")
        offset = 0
        for name, data in found:
            if name == "stdout":
                self.assertEqual(data["offset"], offset)
                offset += len(data["chunk"])

    @long
    def test_a_timeout_is_an_error_with_the_output_so_far(self):
        began = time.monotonic()
        # Time enough to say it on a machine that stalls.
        found = list(events(self.stream({"cmd": "echo begun; sleep 60 & sleep 60", "timeout_seconds": 4.5})))
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn(("stdout", {"chunk": "begun\n", "offset": 0}), found)
        name, last = found[-1]
        self.assertEqual(name, "error")
        self.assertEqual(last["error"], "command timeout after 4.5s")
        self.assertEqual((last["code"], last["timed_out"], last["exit_code"]), ("timeout", True, 124))
        self.assertEqual(last["left_running_count"], 0)

    def test_what_cannot_start_has_a_status(self):
        self.refused(422, "exec.program_not_found", self.stream, {"argv": ["/no/such"]})
        self.refused(400, "request.invalid", self.stream, {})
        self.refused(400, "request.invalid", self.stream, {"cmd": "true", "background": True})
        self.refused(400, "request.invalid", self.stream, {"cmd": "true"}, query="?format=xml")
        self.refused(400, "request.invalid", self.stream, {"cmd": "true"}, query="?frmat=events")
        with self.assertRaises(ApiError) as caught:
            self.api.call("POST", "/v1/sandboxes/nosuchbox/exec/stream", {"cmd": "true"})
        self.assertEqual(caught.exception.status, 404)

    def test_a_client_that_goes_cancels(self):
        response, connection = self.api.raw("POST", self.path("/exec/stream"), {"cmd": "echo x; sleep 600"})
        exec_id = next(events(response))[1]["exec_id"]
        response.close()
        connection.close()
        record = self.ended(exec_id)
        self.assertEqual((record["cancelled"], record["exit_code"]), (True, 137))

    def test_detached_it_goes_on(self):
        response, connection = self.api.raw("POST", self.path("/exec/stream?detach=1"),
                                            {"cmd": "echo x; read line; echo got $line", "stdin": True})
        exec_id = next(events(response))[1]["exec_id"]
        response.close()
        connection.close()
        self.api.call("POST", self.path(f"/execs/{exec_id}/stdin?close=1"), b"word\n")
        self.assertEqual(self.ended(exec_id)["exit_code"], 0)
        self.assertEqual(self.api.get(self.path(f"/jobs/{exec_id}/output")), b"x\ngot word\n")

    def test_standard_input(self):
        found = list(events(self.stream({"cmd": "cat; echo end", "stdin": "line\n"})))
        self.assertEqual("".join(data["chunk"] for name, data in found if name == "stdout"), "line\nend\n")

    def test_a_slow_client_holds_up_its_own_command_only(self):
        """The client reads nothing: the command blocks when what is in flight is full, and goes on when it reads."""
        response = self.stream({"cmd": "head -c 20000000 /dev/zero | tr '\\0' x", "output": {"head_bytes": 4096, "tail_bytes": 65536}})
        found = events(response)
        exec_id = next(found)[1]["exec_id"]
        self.assertEqual(self.api.sh(self.box, "echo beside"), "beside\n")
        self.assertEqual(self.record(exec_id)["state"], "running")
        total = sum(len(data["chunk"]) for name, data in found if name == "stdout")
        self.assertEqual(total, 20000000)

    # --- orkestr's form ---

    def test_lines_of_json(self):
        response = self.stream({"command": "echo out; echo err >&2; exit 4"}, accept="application/x-ndjson", route="/exec")
        self.assertEqual(response.getheader("Content-Type"), "application/x-ndjson")
        lines = [json.loads(line) for line in response.read().splitlines()]
        self.assertEqual({(line["stream"], line["data"]) for line in lines[:-1]}, {("stdout", "out\n"), ("stderr", "err\n")})
        self.assertTrue(all(not line["is_final"] and line["exit_code"] is None for line in lines[:-1]))
        self.assertEqual((lines[-1]["is_final"], lines[-1]["exit_code"]), (True, 4))
        self.assertGreater(lines[-1]["duration_ms"], 0)

    def test_chunks_as_events(self):
        found = list(events(self.stream({"command": "echo out"}, query="?format=orkestr")))
        self.assertEqual([name for name, _ in found], ["message"] * len(found))
        self.assertEqual((found[0][1]["data"], found[-1][1]["is_final"], found[-1][1]["exit_code"]), ("out\n", True, 0))

    # --- following one that is there ---

    def test_follow_by_events(self):
        job = self.api.post(self.path("/jobs"), {"cmd": "echo one; echo bad >&2; read x; echo two", "stdin": True})["exec_id"]
        response, connection = self.api.raw("GET", self.path(f"/jobs/{job}/output?follow=1"), headers={"Accept": "text/event-stream"})
        self.addCleanup(connection.close)
        found = events(response)
        seen = []
        while {name for name, _ in seen} != {"start", "stdout", "stderr"}:
            seen.append(next(found))
        self.api.call("POST", self.path(f"/jobs/{job}/stdin?close=1"), b"\n")
        seen += list(found)
        self.assertEqual("".join(data["chunk"] for name, data in seen if name == "stdout"), "one\ntwo\n")
        self.assertEqual(seen[-1][0], "exit")
        # From the middle, one stream only.
        response, connection = self.api.raw("GET", self.path(f"/execs/{job}/output?follow=1&stream=stdout&from=4"),
                                            headers={"Accept": "text/event-stream"})
        self.addCleanup(connection.close)
        again = list(events(response))
        self.assertEqual([data for name, data in again if name in ("stdout", "stderr")], [{"chunk": "two\n", "offset": 4}])

    # --- the blocking route ---

    def test_every_spelling_of_a_command(self):
        for body, output in (({"cmd": "echo $((1+1))"}, "2\n"), ({"command": "echo $((1+1))"}, "2\n"),
                             ({"argv": ["echo", "$x"]}, "$x\n"), ({"cmd": ["echo", "a b"]}, "a b\n"),
                             ({"command": ["echo", "a b"]}, "a b\n"), ({"cmd": "echo", "args": ["a b", "c"]}, "a b c\n")):
            self.assertEqual(self.api.post(self.path("/exec"), body)["stdout"], output, body)
        for body in ({"cmd": "a", "argv": ["b"]}, {"cmd": "a", "command": "b"}, {"args": ["a"]}, {"cmd": ["a"], "args": ["b"]},
                     {"cmd": ""}, {"cmd": 5}, {"cmd": []}, {"argv": [1]}, {"cmd": "a", "timeout_seconds": 1, "timeout_ms": 1}):
            self.refused(400, "request.invalid", self.api.post, self.path("/exec"), body)

    @long
    def test_a_timeout_kills_the_tree(self):
        result = self.api.post(self.path("/exec"), {"cmd": "echo begun; (sleep 600 & sleep 600) & sleep 600", "timeout_ms": 4500})
        self.assertEqual((result["timed_out"], result["exit_code"], result["stdout"]), (True, 124, "begun\n"))
        self.assertEqual(result["left_running_count"], 0)

    def test_output_is_cut_at_lines(self):
        result = self.api.post(self.path("/exec"), {"cmd": "seq 1 100000", "max_output_bytes": 2000})
        head, rest = result["stdout"].split("\n[... ", 1)
        gap, tail = rest.split(" bytes are not shown ...]\n", 1)
        self.assertEqual(result["stdout_gap"], {"offset": len(head), "bytes": int(gap)})
        self.assertEqual(result["stdout_bytes"], len(head) + int(gap) + len(tail))
        self.assertTrue(head.endswith("\n") and tail.endswith("\n100000\n"))
        self.assertEqual([int(line) for line in head.split()], list(range(1, len(head.split()) + 1)))
        self.assertEqual(int(tail.split()[0]), 100001 - len(tail.split()))

    # --- many over one socket ---

    def test_multiplexed(self):
        with WebSocket(self.api, self.path("/exec/ws")) as socket:
            socket.send({"id": "a", "cmd": "echo one; read x; echo never", "stdin": ""})
            socket.send({"id": "b", "cmd": "sleep 600"})
            socket.send({"id": "c", "argv": ["/no/such"]})
            socket.send({"id": "b", "cmd": "echo twice"})
            socket.send({"id": "x", "cancel": True})
            socket.send({"cmd": "true"})
            seen = {}
            def take():
                message = socket.message()
                seen.setdefault(message["id"], []).append(message)
            while not all((seen.get(""), seen.get("x"), seen.get("c"), seen.get("b"), "exit" in seen.get("a", [{}])[-1])):
                take()
            self.assertEqual("".join(message.get("data", "") for message in seen["a"]), "one\nnever\n")
            self.assertEqual(seen["a"][0]["stream"], "stdout")
            self.assertEqual(seen["a"][-1]["exit"], 0)
            self.assertEqual(seen["c"][0]["code"], "exec.program_not_found")
            self.assertEqual(seen["b"][0]["code"], "request.invalid")
            self.assertEqual(seen["x"][0]["code"], "exec.not_found")
            socket.send({"id": "b", "cancel": True})
            while "exit" not in seen["b"][-1]:
                take()
            self.assertTrue(seen["b"][-1]["cancelled"])
            socket.send({"id": "t", "cmd": "echo so; sleep 60", "timeout_seconds": 0.3})
            while "exit" not in seen.get("t", [{}])[-1]:
                take()
            self.assertEqual((seen["t"][-1]["error"], seen["t"][-1]["exit"]), ("command timeout after 0.3s", 124))

    def test_a_multiplexed_client_that_goes_cancels_all(self):
        with WebSocket(self.api, self.path("/exec/ws")) as socket:
            for name in ("a", "b"):
                socket.send({"id": name, "cmd": "echo $$; sleep 612"})
            self.assertEqual({socket.message()["id"], socket.message()["id"]}, {"a", "b"})
        wait_until(lambda: not [job for job in self.api.get(self.path("/execs"), state="running")["execs"]
                                if "sleep 612" in job["command"]], what="the end of both")

    def test_only_as_a_websocket(self):
        error = self.refused(400, "request.invalid", self.api.get, self.path("/exec/ws"))
        self.assertIn("Upgrade: websocket", error.body["error"])
        with self.assertRaises(Refused) as caught:
            WebSocket(self.api, self.path("/exec/ws"), {"Sec-WebSocket-Version": "8"})
        self.assertEqual(caught.exception.status, 400)


if __name__ == "__main__":
    unittest.main()
