"""What a tool asks of its client in the middle of a call (src/mcp/questions.c), in both eras and in a task, and what a client
may answer that it should not. The fixtures' tools ask (`caisson-mcp-fixtures serve`), the usual ones never do."""
import unittest

from caisson import MCP_FIXTURES, Daemon, wait_until
from marks import long
from mcp import META, Mcp, McpError, McpTest

INVALID, CAPABILITY = -32602, -32021
TASKS = {"extensions": {META + "tasks": {}}}
ALL = {"elicitation": {}, "sampling": {}, "roots": {}}
PREFIX = "test_input_required_result_"


def accept(**content):
    return {"action": "accept", "content": content}


SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "Good day"}, "model": "m", "stopReason": "endTurn"}
ROOTS = {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}


class FixtureTest(McpTest):
    program = MCP_FIXTURES

    def text(self, result, is_error=False):
        self.assertEqual(bool(result.get("isError")), is_error, result)
        return result["content"][0]["text"]


class Modern(FixtureTest):
    def round(self, tool, responses=None, state=None, mcp=None, capabilities=None, **params):
        params = {"name": PREFIX + tool, "arguments": {}, **params}
        if responses is not None:
            params["inputResponses"] = responses
        if state is not None:
            params["requestState"] = state
        return (mcp or self.mcp).modern("tools/call", params, capabilities=ALL if capabilities is None else capabilities)

    def refused(self, code, *arguments, **options):
        with self.assertRaises(McpError) as caught:
            self.round(*arguments, **options)
        self.assertEqual((caught.exception.code, caught.exception.status), (code, 400 if code == CAPABILITY else 200),
                         caught.exception)
        return caught.exception

    def state(self, mcp=None):
        result = self.round("request_state", mcp=mcp)
        self.assertEqual(result["resultType"], "input_required")
        return result["requestState"]

    def test_answers_are_kept_from_round_to_round(self):
        first = self.round("multiple_inputs")
        self.assertEqual(set(first["inputRequests"]), {"user_name", "greeting", "client_roots"})
        second = self.round("multiple_inputs", {"user_name": accept(name="Ada")}, first["requestState"])
        self.assertEqual(set(second["inputRequests"]), {"greeting", "client_roots"})
        third = self.round("multiple_inputs", {"greeting": SAMPLE, "user_name": 5}, second["requestState"])
        self.assertEqual(set(third["inputRequests"]), {"client_roots"})
        last = self.round("multiple_inputs", {"client_roots": ROOTS}, third["requestState"])
        self.assertEqual(self.text(last), "Good day Ada, of 2 roots")

    def test_an_answer_of_the_wrong_kind_is_asked_for_again(self):
        for wrong in (None, 1, "x", [], {}, {"action": "yes"}, {"action": "accept", "content": []}, ROOTS, SAMPLE,
                      accept(), accept(name=1), accept(name="x" * 5000), accept(other="x")):
            result = self.round("elicitation", {"user_name": wrong})
            self.assertEqual((result["resultType"], list(result["inputRequests"])), ("input_required", ["user_name"]), wrong)

    def test_who_declines_is_not_asked_again(self):
        for action in ("decline", "cancel"):
            self.assertIn(action, self.text(self.round("elicitation", {"user_name": {"action": action}})))

    def test_a_state_is_for_the_one_who_got_it(self):
        state, answer = self.state(), {"confirm": accept(ok=True)}
        tokens = [self.daemon.token(), self.daemon.token("elsewhere")]
        for token in tokens:
            other = Mcp(self.daemon.tcp(token))
            self.refused(INVALID, "request_state", answer, state, mcp=other)
            self.assertIn("state-ok", self.text(self.round("request_state", answer, self.state(other), mcp=other)))
        self.assertIn("state-ok", self.text(self.round("request_state", answer, state)))

    def test_a_state_is_for_its_call(self):
        state, answer = self.state(), {"confirm": accept(ok=True)}
        self.refused(INVALID, "tampered_state", answer, state)
        self.refused(INVALID, "request_state", answer, state, arguments={"a": 1})
        with self.assertRaises(McpError) as caught:
            self.mcp.modern("prompts/get", {"name": PREFIX + "prompt", "requestState": state}, capabilities=ALL)
        self.assertEqual(caught.exception.code, INVALID)

    def test_a_state_that_is_not_ours(self):
        state = self.state()
        for wrong in ("", "x", state[:-4], state[4:], state + "AAAA", state + "=", state.swapcase(), "A" * 100000, 1, None, {},
                      [state]):
            params = {"name": PREFIX + "request_state", "requestState": wrong, "inputResponses": {"confirm": accept(ok=True)}}
            with self.assertRaises(McpError) as caught:
                self.mcp.modern("tools/call", params, capabilities=ALL)
            self.assertIn(caught.exception.code, (INVALID, -32700, -32600), wrong)

    def test_answers_without_the_state(self):
        """Where a state was given it has to come back: it is asked for anew."""
        self.assertEqual(self.round("request_state", {"confirm": accept(ok=True)})["resultType"], "input_required")

    def test_a_restart_comes_between(self):
        state = self.state()
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.round("request_state", {"confirm": accept(ok=True)}, state)["resultType"], "complete")

    def test_answers_that_are_no_object(self):
        for wrong in ([], "x", 1, True):
            self.refused(INVALID, "elicitation", wrong)

    def test_too_much_to_keep(self):
        state = self.round("multi_round")["requestState"]
        large = {"step1": {"action": "accept", "content": {"name": "n", "more": "x" * 60000}}}
        self.refused(INVALID, "multi_round", large, state)

    def test_no_end_of_rounds(self):
        state, rounds = None, 0
        while True:
            rounds += 1
            self.assertLess(rounds, 20)
            result = self.round("request_state", {}, state)
            if result["resultType"] != "input_required":
                break
            state = result["requestState"]
        self.assertIn("too often", self.text(result, True))

    def test_what_the_client_cannot_do(self):
        error = self.refused(CAPABILITY, "elicitation", capabilities={"sampling": {}})
        self.assertEqual(error.data["requiredCapabilities"], {"elicitation": {}})
        error = self.refused(CAPABILITY, "multiple_inputs", capabilities={"elicitation": {}})
        self.assertEqual(error.data["requiredCapabilities"], {"sampling": {}, "roots": {}})
        self.assertEqual(set(self.round("capabilities", capabilities={"roots": {}})["inputRequests"]), {"client_roots"})

    def test_tasks_ask_as_well(self):
        capabilities = {**ALL, **TASKS}
        task = self.mcp.call("multi_input", capabilities=capabilities)["taskId"]

        def get():
            return self.mcp.modern("tasks/get", {"taskId": task}, capabilities=capabilities)

        def update(**responses):
            return self.mcp.modern("tasks/update", {"taskId": task, "inputResponses": responses}, capabilities=capabilities)
        self.assertEqual(set(get()["inputRequests"]), {"first", "second"})
        update(first=accept(confirm=True), third=accept(confirm=True))
        self.assertEqual((get()["status"], set(get()["inputRequests"])), ("input_required", {"second"}))
        update(second={"action": "decline"})
        record = wait_until(lambda: (record := get())["status"] != "working" and record, what="its end")
        self.assertEqual((record["status"], self.text(record["result"])), ("completed", "Confirmed: 1 of 2"))

    @long
    def test_a_client_that_leaves_ends_the_call(self):
        """Many calls that would take an hour, each left at once: the daemon forgets them (and is well)."""
        for _ in range(20):
            body = {"name": "slow_compute", "arguments": {"seconds": 3600}}
            connection = self.mcp.modern_send("tools/call", body)
            connection.response.close()
            connection.close()
        self.assertEqual(self.text(self.mcp.call("test_simple_text")), "This is a simple text response for testing.")


class Legacy(FixtureTest):
    def session(self, capabilities=None, version="2025-11-25"):
        session = self.mcp.session(version, ALL if capabilities is None else capabilities)
        self.addCleanup(session.end)
        return session

    def asked(self, session, tool, arguments=None):
        """The answer under way, and the first question in it."""
        answer = session.begin("tools/call", {"name": tool, "arguments": arguments or {}}, 77)
        self.addCleanup(answer.close)
        question = answer.next()
        self.assertIn("method", question)
        return answer, question

    def end(self, answer):
        message = answer.next()
        self.assertEqual(message["id"], 77)
        return message["result"]

    def test_every_kind_of_question_at_once(self):
        answers = {"elicitation/create": lambda _: accept(name="Ada"), "sampling/createMessage": lambda _: SAMPLE,
                   "roots/list": lambda _: ROOTS}
        result = self.session().call(PREFIX + "multiple_inputs", answers=answers)
        self.assertEqual(self.text(result), "Good day Ada, of 2 roots")

    def test_one_after_the_other(self):
        said = []

        def say(params):
            said.append(params["message"])
            return accept(name="Ada", color="red")
        self.assertEqual(self.text(self.session().call(PREFIX + "multi_round", answers={"elicitation/create": say})),
                         "Ada likes red")
        self.assertEqual(len(said), 2)

    def test_prompts_ask_as_well(self):
        result = self.session().request("prompts/get", {"name": PREFIX + "prompt"},
                                        answers={"elicitation/create": lambda _: accept(context="the sea")})
        self.assertEqual(result["messages"][0]["content"]["text"], "the sea")

    def test_an_answer_that_is_none(self):
        for wrong in ({}, [], 5, {"action": "perhaps"}, ROOTS, None):
            session = self.session()
            answer, question = self.asked(session, PREFIX + "elicitation")
            session.respond(question["id"], wrong)
            self.assertIn("something else than an answer", self.text(self.end(answer), True))

    def test_an_error_for_an_answer(self):
        session = self.session()
        answer, question = self.asked(session, PREFIX + "elicitation")
        with session.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "nobody is here"}}) as sent:
            self.assertEqual(sent.status, 202)
        self.assertIn("nobody is here", self.text(self.end(answer), True))

    def test_an_answer_that_never_fits_is_not_asked_for_for_ever(self):
        result = self.session().call(PREFIX + "elicitation", answers={"elicitation/create": lambda _: accept(name=1)})
        self.assertIn("too often", self.text(result, True))

    def test_another_sessions_answer(self):
        one, other = self.session(), self.session()
        answer, question = self.asked(one, PREFIX + "elicitation")
        other.respond(question["id"], accept(name="Eve"))
        one.respond(9999, accept(name="Eve"))
        one.respond(str(question["id"]), accept(name="Eve"))
        one.respond(question["id"], accept(name="Ada"))
        self.assertEqual(self.text(self.end(answer)), "Hello, Ada!")
        one.respond(question["id"], accept(name="Eve"))

    def test_cancelled_while_it_waits(self):
        session = self.session()
        answer, question = self.asked(session, PREFIX + "elicitation")
        session.notify("notifications/cancelled", {"requestId": 77})
        self.assertEqual(answer.rest(), [])
        session.respond(question["id"], accept(name="Ada"))
        self.assertEqual(session.request("ping"), {})

    def test_the_session_ends_while_it_waits(self):
        session = self.mcp.session(capabilities=ALL)
        answer, _ = self.asked(session, PREFIX + "multiple_inputs")
        self.assertIn(session.end(), (200, 204))
        answer.rest()
        self.assertEqual(self.text(self.mcp.call("test_simple_text")), "This is a simple text response for testing.")

    def test_what_the_client_cannot_do(self):
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            session = self.session({}, version)
            for tool in ("test_elicitation_sep1034_defaults", PREFIX + "sampling", PREFIX + "list_roots"):
                self.assertIn("needs a client", self.text(session.call(tool), True))
            with self.assertRaises(McpError) as caught:
                session.request("prompts/get", {"name": PREFIX + "prompt"})
            self.assertEqual(caught.exception.code, INVALID)


class WhereFixturesAre(unittest.TestCase):
    def test_in_no_other_server(self):
        with Daemon(program=MCP_FIXTURES) as daemon:
            api = daemon.client()
            fixtures = {tool["name"] for tool in Mcp(api).modern("tools/list")["tools"]}
            prompts = {prompt["name"] for prompt in Mcp(api).modern("prompts/list")["prompts"]}
        self.assertGreater(len(fixtures), 30)
        with Daemon() as daemon:
            for path in ("/mcp", "/mcp/admin", "/mcp/x/all", "/mcp/readonly", "/mcp/opensandbox", "/api/sandboxes/mcp"):
                mcp = Mcp(daemon.client(), path)
                self.assertFalse(fixtures & {tool["name"] for tool in mcp.modern("tools/list")["tools"]}, path)
                with self.assertRaises(McpError):
                    mcp.call("test_simple_text")
            mcp = Mcp(daemon.client())
            usual = mcp.modern("prompts/list")["prompts"]
            self.assertFalse(prompts & {prompt["name"] for prompt in usual})
            self.prompts(mcp, usual)

    def prompts(self, mcp, usual):
        """Those of the usual server."""
        self.assertEqual([prompt["name"] for prompt in usual], ["try_in_sandbox", "look_into_sandbox"])
        result = mcp.modern("prompts/get", {"name": "try_in_sandbox", "arguments": {"task": "count to ten \u00fc"}})
        self.assertIn("count to ten \u00fc", result["messages"][0]["content"]["text"])
        for arguments in ({}, {"task": 1}, {"task": "x" * 20000}):
            with self.assertRaises(McpError) as caught:
                mcp.modern("prompts/get", {"name": "try_in_sandbox", "arguments": arguments})
            self.assertEqual(caught.exception.code, INVALID)
        result = mcp.modern("completion/complete", {"ref": {"type": "ref/prompt", "name": "look_into_sandbox"},
                                                    "argument": {"name": "sandbox", "value": ""}})
        self.assertEqual(result["completion"]["values"], [])


if __name__ == "__main__":
    unittest.main()
