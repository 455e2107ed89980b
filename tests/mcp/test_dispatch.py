"""Which message gets which answer and status, in both eras: the order of the checks of docs/mcp.md, each rung of it,
and what is refused before any method sees it."""
import base64
import json
import socket

from caisson import ApiError
from mcp import LEGACY, META, MODERN, Mcp, McpError, McpTest, meta

PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
MISMATCH, CAPABILITY, VERSION = -32020, -32021, -32022


def request(method="server/discover", number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta(), **params}}


class Case(McpTest):
    def answer(self, body, headers=None, mcp=None, method="POST"):
        with (mcp or self.mcp).send(body, headers, method) as answer:
            return answer.status, answer.next(), answer

    def refused(self, status, code, body, headers=None, number=1, mcp=None):
        got, message, answer = self.answer(body, headers, mcp)
        self.assertEqual((got, (message or {}).get("error", {}).get("code")), (status, code), message)
        self.assertEqual(message["jsonrpc"], "2.0")
        if number is None:
            self.assertNotIn("id", message)
        else:
            self.assertEqual((message["id"], type(message["id"])), (number, type(number)))
        return message["error"]

    def modern_refused(self, status, code, body, **headers):
        names = {"version": "MCP-Protocol-Version", "method": "Mcp-Method", "name": "Mcp-Name"}
        sent = {**self.mcp.modern_headers(body), **{names[name]: value for name, value in headers.items()}}
        return self.refused(status, code, body, sent)


class Form(Case):
    """What is wrong in either era."""

    def test_content_type(self):
        for kind in ("text/plain", "application/jsonx", "application/json-rpc", "", None):
            self.assertEqual(self.answer(request(), {"Content-Type": kind})[0], 415, kind)
        headers = self.mcp.modern_headers(request())
        for kind in ("application/json; charset=utf-8", "Application/JSON"):
            self.assertEqual(self.answer(request(), {**headers, "Content-Type": kind})[0], 200, kind)

    def test_json(self):
        for body in (b"", b"{", b'{"a":1}}', b"nonsense", b"[" * 10000, b'{"a":' * 33 + b"1" + b"}" * 33,
                     b'{"id":99999999999999999999,"jsonrpc":"2.0","method":"ping"}', b'\xef\xbb\xbf{}',
                     b"[" + b"1," * 60000 + b"1]", b"{}\0"):
            self.refused(400, PARSE, body, number=None)
        self.refused(400, PARSE, b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}')
        for text in (b"a\xff", b"a\\u0000b", b"\\ud800"):
            self.assertIn("content_base64", self.refused(400, PARAMS, b'{"jsonrpc":"2.0","id":1,"method":"%s"}' % text)["message"])

    def test_a_long_message_is_read_in_a_thread(self):
        body = request("tools/call", 7, name="nothing", arguments={"text": "x" * 300_000})
        self.assertEqual(self.refused(200, PARAMS, body, self.mcp.modern_headers(body), number=7)["code"], PARAMS)
        self.refused(400, PARSE, b'{"jsonrpc":' + b" " * 100_000, number=None)

    def test_too_long(self):
        body = json.dumps(request(text="x" * (4 << 20)))
        self.assertIn("append", self.refused(413, PARSE, body, number=None)["message"])
        chunks = (b"x" * 65536 for _ in range(80))
        self.refused(413, PARSE, b"".join(chunks), number=None)
        # In pieces, of a length that nobody said before.
        response, connection = self.api.raw("POST", "/mcp", (b" " * 65536 for _ in range(65)),
                                            {"Content-Type": "application/json"}, checked=False)
        self.assertEqual((response.status, json.loads(response.read())["error"]["code"]), (413, PARSE))
        connection.close()

    def test_shape(self):
        for body in ("1", "null", '"text"', "true", "{}", '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","method":"ping"}',
                     '{"jsonrpc":2.0,"method":"ping"}', '{"method":"ping"}', '{"jsonrpc":"2.0","method":7}',
                     '{"jsonrpc":"2.0","result":{}}', "[]", "[" + ",".join(["{}"] * 33) + "]"):
            self.refused(400, REQUEST, body, number=None)
        for body in ('{"jsonrpc":"2.0","id":1}', '{"jsonrpc":"1.0","id":1,"method":"ping"}',
                     '{"jsonrpc":"2.0","id":1,"method":null}', '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
                     '{"jsonrpc":"2.0","id":1,"error":1}'):
            self.refused(400, REQUEST, body)
        for params in ("[]", "null", "1", '"x"'):
            self.refused(400, PARAMS, '{"jsonrpc":"2.0","id":1,"method":"ping","params":' + params + "}")

    def test_ids(self):
        headers = self.mcp.modern_headers(request())
        for number in (0, 1, -1, 2**53, 2**63 - 1, -(2**63), "", "a", "ü\U0001f600\"\\\n", "1", "x" * 1024):
            status, message, _ = self.answer(request(number=number), headers)
            self.assertEqual((status, message["id"], type(message["id"])), (200, number, type(number)))
        for number in (None, 1.5, 1.0, True, False, [], {}, "x" * 1025):
            self.refused(400, REQUEST, request(number=number), headers, number=None)


class Modern(Case):
    def test_discover(self):
        result = self.mcp.modern("server/discover")
        self.assertEqual((result["supportedVersions"], result["resultType"]), ([MODERN], "complete"))
        self.assertEqual(result["_meta"][META + "serverInfo"]["name"], "caisson")
        self.assertIn(result["cacheScope"], ("public", "private"))
        self.assertGreaterEqual(result["ttlMs"], 0)
        self.assertLess(len(result["instructions"]), 2048)
        self.assertIn("tools", result["capabilities"])
        self.assertNotIn("tasks", result["capabilities"])

    def test_every_result_says_what_it_is(self):
        for method, params in (("tools/list", {}), ("tools/call", {"name": "list_sandboxes"}), ("resources/list", {})):
            result = self.mcp.modern(method, params)
            self.assertEqual(result["resultType"], "complete", method)
            self.assertIn(META + "serverInfo", result["_meta"])

    def test_no_session_is_given_or_wanted(self):
        with self.mcp.modern_send("tools/list", headers={"Mcp-Session-Id": "x", "Last-Event-ID": "1-1"}) as answer:
            self.assertEqual((answer.status, answer.headers.get("Mcp-Session-Id")), (200, None))

    def test_envelope(self):
        headers = self.mcp.modern_headers(request())
        for wrong in ({"jsonrpc": "2.0", "id": 1, "method": "server/discover"},
                      {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}},
                      request(_meta=1), request(_meta={}), request(_meta={META + "clientCapabilities": {}}),
                      request(_meta={META + "protocolVersion": MODERN}),
                      request(_meta={**meta(), META + "clientCapabilities": []}),
                      request(_meta={**meta(), META + "protocolVersion": 7}),
                      request(_meta={**meta(), META + "logLevel": "loud"}),
                      request(_meta={**meta(), META + "logLevel": 3})):
            error = self.refused(400, PARAMS, wrong, headers)
            self.assertIn(META, error["message"])
        with self.mcp.modern_send("server/discover", **{META + "clientInfo": {"name": "x", "version": "1"}}) as answer:
            self.assertEqual(answer.status, 200)

    def test_versions(self):
        for version in ("v999.0.0", LEGACY, "2024-11-05", "", "\x01" * 200):
            body = request(_meta=meta(version=version))
            error = self.refused(400, VERSION, body, {"MCP-Protocol-Version": None, "Mcp-Method": "server/discover"})
            if len(version) < 64:
                self.assertEqual(error["data"], {"supported": [MODERN], "requested": version})
        self.modern_refused(400, VERSION, request(_meta=meta(version="v999.0.0")))
        self.modern_refused(400, MISMATCH, request(_meta=meta(version="v999.0.0")), version=MODERN)
        self.modern_refused(400, MISMATCH, request(), version=LEGACY)
        self.modern_refused(400, MISMATCH, request(), version="v999.0.0")

    def test_standard_headers(self):
        self.modern_refused(400, MISMATCH, request(), version=None)
        self.modern_refused(400, MISMATCH, request(), method=None)
        self.modern_refused(400, MISMATCH, request(), method="tools/list")
        self.modern_refused(400, MISMATCH, request(), method="Server/Discover")
        call = request("tools/call", name="list_sandboxes")
        self.modern_refused(400, MISMATCH, call, name=None)
        self.modern_refused(400, MISMATCH, call, name="list_sandboxe")
        self.modern_refused(400, MISMATCH, request("resources/read", uri="sandboxes://all"), name="sandboxes://al")
        self.modern_refused(400, MISMATCH, request("tasks/get", taskId="x"), name="y")
        # The name of an unknown method is looked at first, too.
        self.modern_refused(400, MISMATCH, request("no/such"), method="none/such")

    def test_names_in_base64(self):
        call = request("tools/call", name="list_sandboxes")
        good = base64.b64encode(b"list_sandboxes").decode()
        headers = {**self.mcp.modern_headers(call), "Mcp-Name": f"=?base64?{good}?="}
        self.assertEqual(self.answer(call, headers)[0], 200)
        for wrong in (good.rstrip("="), "SGVs!!!bG8=", "", good + "=", "bGlzdA=="):
            self.modern_refused(400, MISMATCH, call, name=f"=?base64?{wrong}?=")
        # Without one of its ends it is a name like any other.
        self.modern_refused(400, MISMATCH, call, name=f"=?base64?{good}")
        odd = request("tools/call", name="=?base64?x")
        self.modern_refused(200, PARAMS, odd, name="=?base64?x")

    def test_headers_that_were_sent_twice(self):
        body = json.dumps(request())
        for name in ("Mcp-Method: server/discover", f"MCP-Protocol-Version: {MODERN}"):
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(20)
                link.connect(self.api.socket_path)
                link.sendall((f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: server/discover\r\n"
                              f"MCP-Protocol-Version: {MODERN}\r\n{name}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode())
                answer = b"".join(iter(lambda: link.recv(65536), b""))
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)

    def test_methods(self):
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
                       "unknown/method", "tasks/result", "tasks/list", "", "tools", "notifications/x"):
            self.modern_refused(404, METHOD, request(method))

    def test_a_face_has_the_methods_that_it_declares(self):
        for path in ("/mcp", "/mcp/admin", "/mcp/opensandbox"):
            mcp = Mcp(self.api, path)
            capabilities = mcp.modern("server/discover")["capabilities"]
            for method, capability in (("tools/list", "tools"), ("prompts/list", "prompts"), ("resources/list", "resources"),
                                       ("resources/templates/list", "resources")):
                with mcp.modern_send(method) as answer:
                    self.assertEqual(answer.status, 200 if capability in capabilities else 404, (path, method))
            session = mcp.session()
            self.assertEqual(set(session.result["capabilities"]), set(capabilities) - {"extensions"})

    def test_errors_of_handlers_are_part_of_a_good_answer(self):
        self.modern_refused(200, PARAMS, request("tools/call", name="no_such_tool"))
        self.modern_refused(200, PARAMS, request("tools/call"))
        self.modern_refused(200, PARAMS, request("tools/call", name="list_sandboxes", arguments=[1]))
        error = self.modern_refused(200, PARAMS, request("resources/read", uri="sandbox://nonesuch"))
        self.assertEqual(error["data"]["uri"], "sandbox://nonesuch")

    def test_missing_capability(self):
        error = self.modern_refused(400, CAPABILITY, request("tasks/get", taskId="x"))
        self.assertIn(META + "tasks", error["data"]["requiredCapabilities"]["extensions"])

    def test_no_batches_and_no_responses(self):
        headers = self.mcp.modern_headers(request())
        self.refused(400, REQUEST, [request()], headers, number=None)
        self.refused(400, REQUEST, [request()], number=None)
        self.refused(400, REQUEST, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, request()], number=None)
        self.refused(400, REQUEST, {"jsonrpc": "2.0", "id": 1, "result": {}}, headers)

    def test_notifications(self):
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "_meta": meta()}}
        status, message, _ = self.answer(note, {"MCP-Protocol-Version": MODERN})
        self.assertEqual((status, message), (202, None))
        self.refused(400, PARAMS, {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": {
            META + "protocolVersion": MODERN}}}, {"MCP-Protocol-Version": MODERN}, number=None)

    def test_get_and_delete(self):
        for method in ("GET", "DELETE"):
            for headers in ({}, {"MCP-Protocol-Version": MODERN}, {"MCP-Protocol-Version": MODERN, "Mcp-Session-Id": "x"}):
                status, _, answer = self.answer(None, {**headers, "Content-Type": None}, method=method)
                self.assertEqual((status, answer.headers["Allow"]), (405, "POST"))
        for method in ("PUT", "PATCH", "OPTIONS"):
            status, message, answer = self.answer(b"{}", method=method)
            self.assertEqual((status, "POST" in answer.headers["Allow"]), (405, True))
            self.assertEqual((message["jsonrpc"], message["error"]["code"]), ("2.0", REQUEST))

    def test_urls_that_are_almost_right(self):
        token = self.daemon.token()
        for path, status, words in (("/mcp/", 404, "/mcp"), ("/mcp/sse", 404, "/mcp"), ("/mcp?token=" + token, 400, "Authorization: Bearer"),
                                    ("/mcp?access_token=x", 400, "Authorization: Bearer"), ("/mcp?other=x", 400, "other")):
            got, message, _ = self.answer(request(), mcp=Mcp(self.daemon.tcp(token), path))
            self.assertEqual((got, message["jsonrpc"]), (status, "2.0"), path)
            self.assertIn(words, message["error"]["message"])
            self.assertNotIn(token, json.dumps(message))
        # No URL of ours, and so in the form of the others.
        for path in ("/sse", "/v1/sse"):
            with self.assertRaises(ApiError) as caught:
                self.daemon.tcp(token).get(path)
            self.assertEqual((caught.exception.status, "/mcp" in str(caught.exception)), (404, True))

    def test_json_where_no_stream_is_wanted(self):
        for accept in ("application/json", None, "text/html", "*/*", "text/*"):
            with self.mcp.modern_send("tools/call", {"name": "run_shell", "arguments": {"command": "sleep 0.5; echo done"}},
                                      token=1, headers={"Accept": accept}) as answer:
                self.assertEqual((answer.status, answer.kind), (200, "application/json"))
                self.assertIn("done", answer.next()["result"]["content"][0]["text"])

    def test_a_stream_where_no_json_is_wanted(self):
        with self.mcp.modern_send("tools/list", headers={"Accept": "text/event-stream"}) as answer:
            self.assertTrue(answer.streams)
            self.assertEqual(len(answer.rest()), 1)

    def test_what_takes_long_becomes_a_stream(self):
        box = self.sandbox()
        command = "until [ -e /tmp/go ]; do sleep 0.02; done; echo done"  # it has not ended before the stream begins
        call = {"name": "run_shell", "arguments": {"sandbox_id": box, "command": command}}
        with self.mcp.modern_send("tools/call", call) as answer:
            self.assertTrue(answer.streams)
            self.assertEqual((answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]), ("no-cache, no-transform", "no"))
            self.api.sh(box, "touch /tmp/go")
            messages = answer.rest()
        self.assertEqual(answer.comments[0], "open")
        self.assertIn("done", messages[-1]["result"]["content"][0]["text"])
        self.assertEqual([number for number, _ in answer.events], [None] * len(answer.events))

    def test_progress_tokens_come_back_as_they_were(self):
        box = self.sandbox()
        for count, token in enumerate((0, "0", 2**53, "", "ü")):
            command = f"echo one; until [ -e /tmp/{count} ]; do sleep 0.02; done; echo two"
            with self.mcp.modern_send("tools/call", {"name": "run_shell", "arguments": {"sandbox_id": box, "command": command}},
                                      token=token) as answer:
                messages = [answer.next()]
                self.api.sh(box, f"touch /tmp/{count}")
                messages += answer.rest()
            self.assertIn("result", messages.pop())
            for note in messages:
                self.assertEqual((note["method"], note["params"]["progressToken"]), ("notifications/progress", token))
                self.assertIs(type(note["params"]["progressToken"]), type(token))
            steps = [note["params"]["progress"] for note in messages]
            self.assertEqual(steps, sorted(set(steps)))
        self.mcp.call("run_shell", {"command": "echo one; sleep 0.3; echo two"})
        self.assertEqual(self.mcp.notes, [])


class Urls(Case):
    def names(self, path):
        return {tool["name"] for tool in Mcp(self.api, path).modern("tools/list")["tools"]}

    def test_faces(self):
        usual = self.names("/mcp")
        for path in ("/api/sandboxes/mcp", "/v1/mcp"):
            self.assertEqual(self.names(path), usual)
        self.assertLess(self.names("/mcp/readonly"), usual)
        self.assertNotIn("run_shell", self.names("/mcp/readonly"))
        self.assertFalse(self.names("/mcp/admin") & usual)
        self.assertGreater(self.names("/mcp/x/all"), usual)
        self.assertTrue(self.names("/mcp/x/files,jobs/readonly") < self.names("/mcp/x/files,jobs"))
        self.assertIn("command_run", self.names("/mcp/opensandbox"))

    def test_what_there_is_not(self):
        for path in ("/mcp/x/nonsense", "/mcp/x/files,nonsense"):
            status, message, _ = self.answer(request(), mcp=Mcp(self.api, path))
            self.assertEqual(status, 404)
            for word in ("nonsense", "files", "jobs", "metrics"):
                self.assertIn(word, message["error"]["message"])
        for path in ("/mcp/nonsense", "/mcp/x", "/mcp/x/", "/v1/sandboxes/nonesuch/mcp"):
            self.assertEqual(self.answer(request(), mcp=Mcp(self.api, path))[0], 404, path)


class Legacy(Case):
    def legacy(self, method, number=1, **params):
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def test_initialize(self):
        for asked, given in (("2024-10-07", "2024-11-05"), ("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"),
                             ("2025-06-18", "2025-06-18"), (LEGACY, LEGACY), (MODERN, LEGACY), ("nonsense", LEGACY)):
            session = self.mcp.session(asked)
            self.assertEqual(session.version, given)
            self.assertRegex(session.id, r"^[\x21-\x7e]{32,}$")
            self.assertEqual(session.result["serverInfo"]["name"], "caisson")
            self.assertEqual("title" in session.result["serverInfo"], given >= "2025-06-18")
            self.assertNotIn("resultType", session.result)
            self.assertEqual(session.end(), 204)
        self.refused(200, PARAMS, self.legacy("initialize"))
        self.refused(200, PARAMS, self.legacy("initialize", protocolVersion=7))
        # A header that names the modern revision does not make an initialize modern; a claim in it does.
        status, message, _ = self.answer(self.legacy("initialize", protocolVersion=LEGACY), {"MCP-Protocol-Version": MODERN})
        self.assertEqual((status, message["result"]["protocolVersion"]), (200, LEGACY))
        self.modern_refused(404, METHOD, request("initialize", protocolVersion=LEGACY))

    def test_sessions_are_needed(self):
        self.refused(400, REQUEST, self.legacy("tools/list"))
        self.refused(400, REQUEST, {"jsonrpc": "2.0", "method": "notifications/initialized"}, number=None)
        for name in ("x", "x" * 43, ""):
            self.refused(404, REQUEST, self.legacy("tools/list"), {"Mcp-Session-Id": name})

    def test_version_header(self):
        session = self.mcp.session()
        self.refused(400, REQUEST, self.legacy("ping"), session.headers({"MCP-Protocol-Version": "1999-01-01"}))
        self.assertEqual(self.answer(self.legacy("ping"), session.headers({"MCP-Protocol-Version": None}))[0], 200)

    def test_results_are_bare(self):
        session = self.mcp.session()
        self.assertEqual(session.request("ping"), {})
        self.assertEqual(session.request("logging/setLevel", {"level": "debug"}), {})
        for result in (session.request("tools/list"), session.call("list_sandboxes")):
            self.assertFalse({"resultType", "ttlMs", "cacheScope", "_meta"} & set(result))

    def test_errors_are_part_of_a_good_answer(self):
        session = self.mcp.session()
        for method, code in (("no/such", METHOD), ("server/discover", METHOD), ("subscriptions/listen", METHOD),
                             ("tasks/get", METHOD), ("logging/setLevel", PARAMS),
                             ("tools/call", PARAMS)):
            self.refused(200, code, self.legacy(method), session.headers())
        error = self.refused(200, -32002, self.legacy("resources/read", uri="sandbox://nonesuch"), session.headers())
        self.assertEqual(error["data"]["uri"], "sandbox://nonesuch")

    def test_what_needs_no_answer(self):
        session = self.mcp.session()
        for body in ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
                     {"jsonrpc": "2.0", "method": "notifications/cancelled"},
                     {"jsonrpc": "2.0", "method": "notifications/nonsense"},
                     {"jsonrpc": "2.0", "id": 99, "result": {}},
                     {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}}):
            status, message, answer = self.answer(body, session.headers())
            self.assertEqual((status, message, answer.text), (202, None, ""))

    def test_batches(self):
        session = self.mcp.session("2025-03-26")
        batch = [self.legacy("ping", 1), {"jsonrpc": "2.0", "method": "notifications/x"}, self.legacy("no/such", "b"),
                 self.legacy("initialize", 3, protocolVersion=LEGACY), 7, self.legacy("tools/list", 4)]
        status, answers, _ = self.answer(batch, session.headers())
        self.assertEqual(status, 200)
        found = {answer.get("id"): answer for answer in answers}
        self.assertEqual(set(found), {1, "b", 3, 4, None})
        self.assertEqual(found[1]["result"], {})
        self.assertEqual([found[key]["error"]["code"] for key in ("b", 3, None)], [METHOD, REQUEST, REQUEST])
        self.assertEqual(self.answer([{"jsonrpc": "2.0", "method": "notifications/x"}], session.headers())[0], 202)
        slow = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "run_shell", "arguments": {"command": f"sleep {wait}; echo done {number}"}}} for number, wait in ((1, 0.6), (2, 0))]
        with session.send(slow) as answer:
            messages = [part for message in answer.rest() for part in (message if isinstance(message, list) else [message])]
        self.assertEqual({message["id"] for message in messages}, {1, 2})
        for message in messages:
            self.assertIn(f"done {message['id']}", message["result"]["content"][0]["text"])

    def test_no_batches_in_other_revisions(self):
        for version in ("2025-06-18", LEGACY):
            session = self.mcp.session(version)
            self.refused(400, REQUEST, [self.legacy("ping")], session.headers(), number=None)
        self.refused(400, REQUEST, [self.legacy("ping")], number=None)

    def test_both_eras_on_one_url(self):
        session = self.mcp.session()
        with self.mcp.modern_send("tools/list", headers={"Mcp-Session-Id": session.id}) as answer:
            self.assertIn("resultType", answer.next()["result"])
        self.assertNotIn("resultType", session.request("tools/list"))

    def test_an_error_says_what_is_wrong(self):
        with self.assertRaises(McpError) as caught:
            self.mcp.session().request("tools/call", {"name": "nonsense"})
        self.assertIn("run_shell", caught.exception.message)
