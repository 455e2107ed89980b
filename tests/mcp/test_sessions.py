"""Legacy sessions over HTTP: whose they are, how they end, their streams and what is replayed of them; and in both eras
what a cancel or a disconnect does to what runs."""
import contextlib
import http.client
import json
import re
import select
import socket

from caisson import MCP_FIXTURES, Background, wait_until
from mcp import LEGACY, Mcp, McpError, McpTest


class Case(McpTest):
    def session(self, version=LEGACY, mcp=None):
        session = (mcp or self.mcp).session(version)
        self.addCleanup(session.end)
        return session

    def status(self, session, mcp=None, method="ping"):
        """Of a ping with the session's id, sent by whoever `mcp` is."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method}
        with (mcp or session.mcp).send(body, session.headers()) as answer:
            return answer.status

    def running(self, box, word):
        return word in self.api.sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    def begin_sleep(self, box, word, begin):
        """Starts a command that names itself `word` and goes on for ever, and waits until it does; its answer."""
        answer = begin("tools/call", {"name": "run_shell", "arguments": {
            "sandbox_id": box, "command": f"sh -c 'sleep 1000; :' {word} & sh -c 'sleep 1000; :' {word}"}})
        self.addCleanup(answer.close)
        wait_until(lambda: self.running(box, word), what="the command's start")
        return answer


class Owners(Case):
    def test_a_session_is_its_principals_alone(self):
        tokens = [self.daemon.token() for _ in range(2)] + [self.daemon.token(workspace="other")]
        clients = [Mcp(self.daemon.tcp(token)) for token in tokens] + [self.mcp]
        sessions = [self.session(mcp=client) for client in clients]
        for session in sessions:
            for client in clients:
                own = client is session.mcp
                self.assertEqual(self.status(session, client), 200 if own else 404)
                for method in ("GET", "DELETE"):
                    if not own:
                        with client.send(None, session.headers(), method) as answer:
                            self.assertEqual(answer.status, 404, method)
            self.assertEqual(self.status(session), 200)
        # The same token through another door, and on another face.
        self.assertEqual(self.status(sessions[0], Mcp(self.daemon.client())), 404)
        for path in ("/mcp/readonly", "/mcp/admin", "/mcp/x/all"):
            self.assertEqual(self.status(sessions[3], Mcp(self.api, path)), 404, path)

    def test_delete(self):
        session = self.mcp.session()
        self.assertEqual(session.end(), 204)
        self.assertEqual(self.status(session), 404)
        self.assertEqual(session.end(), 404)
        with session.stream() as answer:
            self.assertEqual(answer.status, 404)

    def test_a_session_ends_with_its_token(self):
        made = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read", "sandboxes:write"]})
        mcp = Mcp(self.daemon.tcp(made["token"]))
        session = mcp.session()
        with session.stream() as events, mcp.modern_send("subscriptions/listen", {"notifications": {}}) as listen:
            self.assertEqual(listen.next()["method"], "notifications/subscriptions/acknowledged")
            self.api.delete("/v1/tokens/" + made["id"])
            for stream in (events, listen):
                with contextlib.suppress(ConnectionError, http.client.IncompleteRead):  # it may be cut
                    self.assertEqual(stream.rest(), [])
        self.assertEqual(self.status(session), 401)

    def test_too_many_sessions(self):
        """The one that nobody has used for longest makes room."""
        token = self.daemon.token(workspace="crowded")
        mcp = Mcp(self.daemon.tcp(token))
        first, second = mcp.session(initialized=False), mcp.session(initialized=False)
        for _ in range(62):
            mcp.session(initialized=False)
        self.assertEqual(self.status(first), 200)
        last = mcp.session(initialized=False)
        self.assertEqual([self.status(session) for session in (first, second, last)], [200, 404, 200])

    def test_too_many_busy_sessions(self):
        """Of one token: its own oldest ends, and nobody else of its workspace notices."""
        box = self.sandbox()
        job = self.mcp.call("start_job", {"sandbox_id": box, "command": "sleep 4811"})["content"][0]["text"]
        job = re.search(r"job_id ([a-z0-9]{16})", job).group(1)
        other = self.session(mcp=Mcp(self.daemon.tcp(self.daemon.token())))
        mcp = Mcp(self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])))
        sessions = []
        for _ in range(65):
            sessions.append(mcp.session(initialized=False))
            waiting = sessions[-1].begin("tools/call", {"name": "read_job", "arguments": {"job_id": job, "wait_seconds": 50}},
                                         1, {"Accept": "text/event-stream"})
            self.addCleanup(waiting.close)
        self.assertEqual([self.status(session, method="none") == 404 for session in sessions[:2]], [True, False])
        self.assertEqual(self.status(other), 200)

    def test_too_many_requests(self):
        """Of one session; others are not concerned."""
        session, box = self.session(), self.sandbox()
        answers = []
        for number in range(64):
            answers.append(session.begin("tools/call", {"name": "run_shell", "arguments": {
                "sandbox_id": box, "command": "exec sleep 1000"}}, number, {"Accept": "text/event-stream"}))
            self.addCleanup(answers[-1].close)
        with self.assertRaises(McpError) as caught:
            session.request("ping", number=64)
        self.assertIn("64", caught.exception.message)
        self.assertEqual(self.session().request("ping"), {})
        session.notify("notifications/cancelled", {"requestId": 0})
        self.assertEqual(session.request("ping", number=65), {})
        self.assertEqual(session.end(), 204)
        self.assertEqual([answer.rest() for answer in answers], [[]] * 64)
        wait_until(lambda: not self.running(box, "1000"), what="the commands' end")

    def test_an_id_is_used_once_at_a_time(self):
        session, box = self.session(), self.sandbox()
        self.begin_sleep(box, "twice", lambda *request: session.begin(*request, number="x"))
        with self.assertRaises(McpError) as caught:
            session.request("ping", number="x")
        self.assertEqual(caught.exception.code, -32600)
        self.assertTrue(self.running(box, "twice"))


class Memory(Case):
    """What messages take is bounded for a workspace, whatever they come over."""
    COUNT, HALF = 9, b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"x" * 4_000_000

    def first_answer(self, head):
        """Of so many that each have sent half a message: of the one that had no room."""
        raws = []
        for _ in range(self.COUNT):
            raws.append(socket.create_connection(("127.0.0.1", self.daemon.port), 30))
            self.addCleanup(raws[-1].close)
            raws[-1].sendall(head)
            if b"Upgrade" in head:
                self.assertIn(b" 101 ", self.head(raws[-1]))
            with contextlib.suppress(ConnectionError):
                raws[-1].sendall(self.HALF)
        ready, _, _ = select.select(raws, [], [], 60)
        self.assertEqual(len(ready), 1)
        return raws, ready[0]

    def head(self, raw):
        got = b""
        while b"\r\n\r\n" not in got:
            got += raw.recv(1)
        return got

    def check_others(self, token, raws):
        small = {"jsonrpc": "2.0", "id": 1, "method": "nothing"}
        large = dict(small, params={"x": "x" * 4_000_000})

        def status(token, message):
            with contextlib.suppress(ConnectionError), Mcp(self.daemon.tcp(token)).send(message) as answer:
                return answer.status
        self.assertNotEqual(status(token, small), 503)
        self.assertNotIn(status(self.daemon.token(workspace="sated"), large), (503, None))
        for raw in raws:
            raw.close()
        wait_until(lambda: status(token, large) not in (503, None), what="room")

    def test_bodies(self):
        token = self.daemon.token(workspace="hungry")
        raws, refused = self.first_answer(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.daemon.port}\r\nAuthorization: Bearer {token}\r\n"
                                          "Content-Type: application/json\r\nContent-Length: 4100000\r\n\r\n".encode())
        head = self.head(refused)
        self.assertIn(b" 503 ", head.splitlines()[0])
        self.assertIn(b"retry-after: 1", head.lower())
        self.check_others(token, raws)

    def test_lines(self):
        token = self.daemon.token(workspace="famished")
        raws, refused = self.first_answer(f"POST /mcp/lines HTTP/1.1\r\nHost: 127.0.0.1:{self.daemon.port}\r\nAuthorization: Bearer {token}\r\n"
                                          "Connection: Upgrade\r\nUpgrade: caisson-mcp/1\r\n\r\n".encode())
        answer = json.loads(refused.makefile("rb").readline())
        self.assertEqual((answer["id"], answer["error"]["code"], answer["error"]["data"]), (7, -32603, {"retryable": True}))
        # The rest of that line is passed over; what follows is served.
        refused.sendall(b'"}}\n{"jsonrpc":"2.0","id":8,"method":"ping"}\n')
        self.assertEqual(json.loads(refused.makefile("rb").readline())["id"], 8)
        self.check_others(token, raws)


class Streams(Case):
    def test_get_stream(self):
        session = self.session()
        with session.stream() as events:
            self.assertEqual((events.status, events.kind), (200, "text/event-stream"))
            self.assertEqual(events.event()[1], "")  # primed: an id to come back with
            self.assertRegex(events.events[0][0], r"^\d+-0$")
            self.assertGreater(events.retry, 0)
            with session.stream() as second:
                self.assertEqual(second.status, 409)
            session.request("resources/subscribe", {"uri": "sandboxes://all"})
            self.sandbox()
            message = events.next()
            self.assertEqual((message["method"], message["params"]), ("notifications/resources/updated", {"uri": "sandboxes://all"}))
        wait_until(lambda: self.reopened(session), what="room for another stream")

    def reopened(self, session):
        with session.stream() as events:
            return events.status == 200

    def test_older_revisions_are_not_primed(self):
        session = self.session("2025-06-18")
        session.request("resources/subscribe", {"uri": "sandboxes://all"})
        with session.stream() as events:
            self.sandbox()
            self.assertEqual(events.next()["method"], "notifications/resources/updated")
            self.assertRegex(events.events[0][0], r"^\d+-1$")

    def test_missed_events_come_again(self):
        session = self.session()
        session.request("resources/subscribe", {"uri": "sandboxes://all"})
        with session.stream() as events:
            events.event()
            self.sandbox()
            events.next()
            last = events.events[-1][0]
        self.sandbox()
        wait_until(lambda: self.replayed(session, last), what="the replay")

    def replayed(self, session, last):
        with session.stream(after=last) as events:
            self.assertEqual(events.status, 200)
            message = events.next()
            self.assertEqual(events.events[0][0], last.split("-")[0] + "-" + str(int(last.split("-")[1]) + 1))
            return message["method"] == "notifications/resources/updated"

    def test_bad_event_ids(self):
        session = self.session()
        for name in ("nonsense", "1", "99-1", "1-", "-1", "1-1-1", "18446744073709551616-1", "x" * 3000):
            with session.stream(after=name) as answer:
                self.assertEqual(answer.status, 400, name)

    def test_nothing_follows_a_cancelled_request(self):
        """The official clients come back for its answer. 405 they take; at anything else they try again and complain."""
        session, box = self.session(), self.sandbox()
        for progress in ({}, {"_meta": {"progressToken": 1}}):
            answer = session.begin("tools/call", {"name": "run_shell", "arguments": {
                "sandbox_id": box, "command": "echo begun; sleep 4861"}, **progress}, number=99)
            self.assertEqual(answer.event()[1], "")
            if progress:
                self.assertEqual(answer.next()["params"]["message"], "begun")
            wait_until(lambda: "sleep 4861" in self.api.sh(box, "ps -eo args"), what="the command")
            session.notify("notifications/cancelled", {"requestId": 99})
            self.assertEqual(answer.rest(), [])
            first, last = answer.events[0][0], answer.events[-1][0]
            with session.stream(after=last) as events:
                self.assertEqual((events.status, events.headers["Allow"]), (405, "POST"))
            if progress:  # what it has missed it is given
                with session.stream(after=first) as events:
                    self.assertEqual((events.status, len(events.rest())), (200, 1))
        with session.stream(after="99-1") as events:
            self.assertEqual(events.status, 400)

    def begin_slow(self, session, box, word):
        """A command that goes on until release()."""
        answer = session.begin("tools/call", {"name": "run_shell", "arguments": {
            "sandbox_id": box, "command": f"echo begin {word}; until [ -e /tmp/{word} ]; do sleep 0.05; done; echo end {word}"},
            "_meta": {"progressToken": word}})
        self.assertTrue(answer.streams)
        self.assertEqual(answer.event()[1], "")
        return answer

    def release(self, box, *words):
        self.api.sh(box, "cd /tmp && touch " + " ".join(words))

    def test_a_request_outlives_its_connection(self):
        """And what is replayed is of its own stream, whatever happens on others."""
        session, box = self.session(), self.sandbox()
        answers = {word: self.begin_slow(session, box, word) for word in ("one", "two")}
        primed = {word: answer.events[0][0] for word, answer in answers.items()}
        self.assertNotEqual(primed["one"].split("-")[0], primed["two"].split("-")[0])
        for answer in answers.values():
            answer.response.close()
            answer.close()
        self.release(box, *answers)
        for word, number in primed.items():
            with session.stream(after=number) as events:
                messages = events.rest()
            text = json.dumps(messages)
            self.assertIn(f"end {word}", messages[-1]["result"]["content"][0]["text"])
            self.assertNotIn({"one": "two", "two": "one"}[word], text)
            self.assertEqual({event[0].split("-")[0] for event in events.events}, {number.split("-")[0]})
            # And once more, as it is kept; and from its end on nothing.
            with session.stream(after=number) as events:
                self.assertEqual(events.rest(), messages)
            with session.stream(after=events.events[-1][0]) as events:
                self.assertEqual(events.rest(), [])

    def test_a_connection_that_comes_back_takes_over(self):
        session, box = self.session(), self.sandbox()
        answer = self.begin_slow(session, box, "over")
        with session.stream(after=answer.events[0][0]) as events:
            self.release(box, "over")
            self.assertIn("end over", events.rest()[-1]["result"]["content"][0]["text"])
        self.assertFalse(any("result" in message for message in answer.rest()))

    def test_what_is_kept_is_bounded(self):
        session, box = self.session(), self.sandbox()
        firsts = []
        for _ in range(5):
            with session.begin("tools/call", {"name": "run_shell", "arguments": {
                    "sandbox_id": box, "max_output_bytes": 400_000, "command": "head -c 390000 /dev/zero | tr '\\0' x"}},
                    headers={"Accept": "text/event-stream"}) as answer:
                self.assertIn("result", answer.rest()[-1])
                firsts.append(answer.events[0][0])
        answers = []
        for number in firsts:
            with session.stream(after=number) as events:
                answers.append(events.status)
        self.assertEqual((answers[0], answers[-1]), (400, 200), answers)

    def test_levels_of_the_log(self):
        session = self.session()
        for level in ("debug", "emergency"):
            self.assertEqual(session.request("logging/setLevel", {"level": level}), {})
        for level in ("loud", "", 3, None):
            with self.assertRaises(McpError) as caught:
                session.request("logging/setLevel", {"level": level})
            self.assertEqual(caught.exception.code, -32602)


class Cancelling(Case):
    def test_cancel(self):
        """The whole tree dies, nothing is answered, and only the one that was named."""
        session, other, box = self.session(), self.session(), self.sandbox()
        answer = self.begin_sleep(box, "cancelled", lambda *request: session.begin(*request, number=7))
        self.begin_sleep(box, "stays", lambda *request: session.begin(*request, number="7"))
        for who, number in ((other, 7), (session, 7.5), (session, True), (session, 8)):
            who.notify("notifications/cancelled", {"requestId": number})
        self.assertTrue(self.running(box, "cancelled"))
        session.notify("notifications/cancelled", {"requestId": 7, "reason": "enough"})
        self.assertEqual(answer.rest(), [])
        wait_until(lambda: not self.running(box, "cancelled"), what="the command's end")
        self.assertTrue(self.running(box, "stays"))

    def test_cancel_without_a_stream(self):
        session, box = self.session(), self.sandbox()
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_shell", "arguments": {
            "sandbox_id": box, "command": "sh -c 'sleep 1000; :' quiet"}}}
        call = Background(session.send, body, {"Accept": "application/json"})
        wait_until(lambda: self.running(box, "quiet"), what="the command's start")
        session.notify("notifications/cancelled", {"requestId": 1})
        self.assertEqual((call.result().status, call.result().text), (202, ""))
        wait_until(lambda: not self.running(box, "quiet"), what="the command's end")

    def test_a_modern_disconnect_cancels(self):
        box = self.sandbox()
        answer = self.begin_sleep(box, "modern", self.mcp.modern_send)
        self.assertTrue(answer.streams)
        answer.response.close()
        answer.close()
        wait_until(lambda: not self.running(box, "modern"), what="the command's end")

    def test_a_modern_disconnect_before_the_stream_cancels(self):
        box = self.sandbox()
        client = self.daemon.client(timeout=2)
        with self.assertRaises(OSError):
            Mcp(client).modern_send("tools/call", {"name": "run_shell", "arguments": {
                "sandbox_id": box, "command": "sh -c 'sleep 1000; :' early"}}, headers={"Accept": "application/json"})
        wait_until(lambda: not self.running(box, "early"), what="the command's end")

    def test_a_legacy_disconnect_does_not(self):
        session, box = self.session(), self.sandbox()
        answer = self.begin_sleep(box, "legacy", lambda *request: session.begin(*request, number=7))
        answer.response.close()
        answer.close()
        self.assertEqual(session.request("ping"), {})
        self.assertTrue(self.running(box, "legacy"))
        session.notify("notifications/cancelled", {"requestId": 7})
        wait_until(lambda: not self.running(box, "legacy"), what="the command's end")

    def test_delete_ends_what_is_under_way(self):
        session, box = self.mcp.session(), self.sandbox()
        answer = self.begin_sleep(box, "ended", session.begin)
        self.assertEqual(session.end(), 204)
        self.assertEqual(answer.rest(), [])
        wait_until(lambda: not self.running(box, "ended"), what="the command's end")

    def test_revoking_a_token_ends_what_is_under_way(self):
        for begin in (lambda mcp: mcp.modern_send, lambda mcp: mcp.session().begin):
            made = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read", "sandboxes:write"]})
            box = self.sandbox()
            self.begin_sleep(box, "revoked", begin(Mcp(self.daemon.tcp(made["token"]))))
            self.api.delete("/v1/tokens/" + made["id"])
            wait_until(lambda: not self.running(box, "revoked"), what="the command's end")


class Questions(Case):
    """Requests of the server to a legacy client, and a stream that the server closes: tools of the fixtures."""
    SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "mine"}, "model": "x"}
    ASK = {"name": "test_sampling", "arguments": {"prompt": "hi"}}

    program = MCP_FIXTURES

    def asked(self):
        session = self.mcp.session(capabilities={"sampling": {}})
        answer = session.begin("tools/call", self.ASK, 7)
        self.addCleanup(answer.close)
        question = answer.next()
        self.assertEqual((question["method"], question["params"]["maxTokens"]), ("sampling/createMessage", 100))
        return session, answer, question["id"]

    def test_only_the_one_who_was_asked_can_answer(self):
        session, answer, number = self.asked()
        self.mcp.session().respond(number, {**self.SAMPLE, "content": {"type": "text", "text": "stolen"}})
        session.respond(number + 1, {**self.SAMPLE, "content": {"type": "text", "text": "guessed"}})
        session.respond(str(number), {**self.SAMPLE, "content": {"type": "text", "text": "typed"}})
        session.respond(number, self.SAMPLE)
        session.respond(number, self.SAMPLE)
        (message,) = answer.rest()
        self.assertEqual((message["id"], message["result"]["content"][0]["text"]), (7, "LLM response: mine"))

    def test_a_question_ends_with_its_request(self):
        session, answer, number = self.asked()
        session.notify("notifications/cancelled", {"requestId": 7})
        self.assertEqual(answer.rest(), [])
        session.respond(number, self.SAMPLE)
        session, answer, number = self.asked()
        self.assertEqual((session.end(), answer.rest()), (204, []))

    def test_a_client_that_takes_no_stream_cannot_be_asked(self):
        session = self.session()
        with session.begin("tools/call", self.ASK, headers={"Accept": "application/json"}) as answer:
            self.assertTrue(answer.next()["result"]["isError"])

    def test_the_server_may_close_a_stream_before_the_answer(self):
        session = self.session()
        with session.begin("tools/call", {"name": "test_reconnection", "arguments": {}}, 7) as answer:
            self.assertEqual((answer.rest(), len(answer.events), answer.events[0][1]), ([], 1, ""))
            self.assertGreater(answer.retry, 0)
        with session.stream(after=answer.events[0][0]) as events:
            (message,) = events.rest()
        self.assertEqual((message["id"], "result" in message), (7, True))

    def test_lists_that_change(self):
        session, other = self.session(), self.session()
        with session.stream() as events, other.stream() as others:
            self.mcp.call("test_trigger_tool_change")
            for stream in (events, others):
                self.assertEqual(stream.next(), {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def test_arguments_as_headers(self):
        for header, status in ((None, 400), ("us", 200), ("=?base64?dXM=?=", 200), ("eu", 400), ("=?base64?dXM?=", 400), ("US", 400)):
            with self.mcp.modern_send("tools/call", {"name": "test_x_mcp_header", "arguments": {"region": "us"}},
                                      headers={"Mcp-Param-Region": header}) as answer:
                self.assertEqual(answer.status, status, header)
        with self.mcp.modern_send("tools/call", {"name": "test_x_mcp_header", "arguments": {}}) as answer:
            self.assertEqual(answer.status, 200)
