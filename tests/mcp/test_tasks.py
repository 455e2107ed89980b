"""The tasks extension: a call that is answered with a handle, what becomes of it, who may ask for it, and that it lives
through the end of its connection and of the daemon."""
import base64
import hmac
import json
import struct
import time

from caisson import MCP_FIXTURES, wait_until
from mcp import META, Mcp, McpError, McpTest

PARAMS, METHOD, MISMATCH, CAPABILITY = -32602, -32601, -32020, -32021
TASKS = {"extensions": {META + "tasks": {}}}
BOTH = {**TASKS, "elicitation": {}}
OVER = ("completed", "failed", "cancelled")
FLAT = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "resultType", "_meta"}

# A command that waits for somebody to open its gate, and then has in $x what was said.
GATE = "mkfifo /tmp/gate; echo begun; read x < /tmp/gate"


class Case(McpTest):
    capabilities = TASKS


    def begin(self, tool, mcp=None, **arguments):
        """The id of the task that a call has become."""
        result = (mcp or self.mcp).call(tool, arguments, capabilities=self.capabilities)
        self.assertEqual(result["resultType"], "task", result)
        self.assertLessEqual(set(result), FLAT | {"statusMessage"})
        self.assertEqual(result["status"], "working")
        self.assertGreaterEqual(len(result["taskId"]), 32)
        for key in ("createdAt", "lastUpdatedAt"):
            self.assertRegex(result[key], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        for key in ("ttlMs", "pollIntervalMs"):
            self.assertTrue(type(result[key]) is int and result[key] > 0)
        return result["taskId"]

    def ask(self, method, task, mcp=None, capabilities=None, **params):
        return (mcp or self.mcp).modern(method, {"taskId": task, **params}, capabilities=capabilities or self.capabilities)

    def get(self, task, **options):
        result = self.ask("tasks/get", task, **options)
        self.assertEqual((result["resultType"], result["taskId"]), ("complete", task))
        return result

    def ended(self, task, **options):
        return wait_until(lambda: (found := self.get(task, **options))["status"] in OVER and found, 30, what="its end")

    def begun(self, task, **options):
        """It has printed something."""
        return wait_until(lambda: (found := self.get(task, **options)).get("statusMessage") and found, 30, what="its beginning")

    def open_gate(self, sandbox, text="x"):
        self.api.sh(sandbox, f"timeout 20 sh -c 'echo {text} > /tmp/gate'")

    def gone(self, sandbox):
        """No `sleep` runs in it."""
        wait_until(lambda: "sleep" not in self.api.sh(sandbox, "cat /proc/[0-9]*/comm 2>/dev/null || true"), what="the end of what slept")

    def sandboxes(self):
        return {item["id"]: item for item in self.api.get("/v1/sandboxes")["items"]}

    def refused(self, code, function, *arguments, **options):
        with self.assertRaises(McpError) as caught:
            function(*arguments, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception

    def text(self, found):
        return "".join(block["text"] for block in found["result"]["content"] if block["type"] == "text")


class Commands(Case):
    def test_life(self):
        sandbox = self.sandbox()
        task = self.begin("run_shell", command=f"{GATE}; echo $x; exit 3", sandbox_id=sandbox)
        self.assertEqual(self.get(task)["status"], "working")
        found = self.begun(task)
        self.assertEqual((found["status"], found["statusMessage"].strip()), ("working", "begun"))
        self.assertFalse({"result", "error", "inputRequests"} & set(found))
        self.open_gate(sandbox, "two")
        found = self.ended(task)
        self.assertEqual((found["status"], found["result"].get("isError", False)), ("completed", False))
        self.assertRegex(self.text(found), r"begun\ntwo\n.*exit code 3")
        self.assertNotIn("io.modelcontextprotocol/related-task", json.dumps(found))
        self.assertGreater(found["lastUpdatedAt"], found["createdAt"])
        self.assertEqual(self.ask("tasks/cancel", task)["resultType"], "complete")
        self.assertEqual(self.get(task)["status"], "completed")

    def test_cancel(self):
        sandbox = self.sandbox()
        task = self.begin("run_shell", command="echo $$; sleep 1000 & sleep 1000", sandbox_id=sandbox)
        self.begun(task)
        ack = self.ask("tasks/cancel", task)
        self.assertEqual(set(ack) - {"_meta"}, {"resultType"})
        found = self.get(task)
        self.assertEqual((found["status"], "result" in found, "error" in found), ("cancelled", False, False))
        self.gone(sandbox)
        self.assertEqual(set(self.ask("tasks/cancel", task)), set(ack))

    def test_failures(self):
        sandbox = self.sandbox()
        found = self.ended(self.begin("run_shell", command="x", sandbox_id="nowhere"))
        self.assertEqual((found["status"], found["result"]["isError"]), ("completed", True))
        found = self.ended(self.begin("run_shell", sandbox_id=sandbox))
        self.assertEqual((found["status"], found["result"]["isError"]), ("completed", True))
        self.assertEqual(self.mcp.call("read_file", {"path": "/etc/hosts", "sandbox_id": sandbox}, capabilities=TASKS)["resultType"],
                         "complete")
        self.assertEqual(self.mcp.call("run_shell", {"command": "true", "sandbox_id": sandbox})["resultType"], "complete")

    def test_end_of_sandbox(self):
        sandbox = self.sandbox()
        task = self.begin("run_shell", command="echo here; sleep 1000", sandbox_id=sandbox)
        self.begun(task)
        self.remove(sandbox)
        self.assertIn(self.ended(task)["status"], ("completed", "failed"))

    def test_disconnect(self):
        """The answer was the handle: what closes the connection then ends nothing."""
        sandbox = self.sandbox()
        with self.mcp.modern_send("tools/call", {"name": "run_shell", "arguments": {
                "command": f"{GATE}; echo survived", "sandbox_id": sandbox}}, capabilities=TASKS) as answer:
            task = answer.next()["result"]["taskId"]
        self.begun(task)
        self.open_gate(sandbox)
        self.assertIn("survived", self.text(self.ended(task)))

    def test_one_shot_and_code(self):
        text = self.text(self.ended(self.begin("run_shell", command="echo fresh")))
        self.assertIn("fresh\n", text)
        text = self.text(self.ended(self.begin("run_code", language="bash", code="echo $((6 * 7))")))
        self.assertIn("42", text)

    def test_unknown(self):
        sandbox = self.sandbox()
        task = self.begin("run_shell", command="sleep 1000", sandbox_id=sandbox)
        same = Mcp(self.daemon.tcp(self.daemon.token()))
        other = Mcp(self.daemon.tcp(self.daemon.token(workspace="other")))
        for method, more in (("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
            for wrong in ("x", task[:-1], task + "x", task[:20] + ("a" if task[20] != "a" else "b") + task[21:]):
                self.refused(PARAMS, self.ask, method, wrong, **more)
            for stranger in (same, other):
                self.refused(PARAMS, self.ask, method, task, mcp=stranger, **more)
            error = self.refused(CAPABILITY, self.ask, method, task, capabilities={"sampling": {}}, **more)
            self.assertEqual((error.status, error.data), (400, {"requiredCapabilities": {"extensions": {META + "tasks": {}}}}))
            error = self.refused(MISMATCH, self.mcp.modern, method, {"taskId": task, **more}, headers={"Mcp-Name": "x"},
                                 capabilities=TASKS)
        for method in ("tasks/result", "tasks/list"):
            self.assertEqual(self.refused(METHOD, self.ask, method, task).status, 404)
        self.assertEqual(self.get(task)["status"], "working")
        self.ask("tasks/cancel", task)

    def test_read_only(self):
        """Where nothing is changed a task is looked at, no more."""
        sandbox = self.sandbox()
        task = self.begin("run_shell", command=f"{GATE}; echo $x", sandbox_id=sandbox)
        self.begun(task)
        reader = Mcp(self.api, "/mcp/readonly")
        self.assertEqual(self.get(task, mcp=reader)["status"], "working")
        for method, more in (("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
            self.assertIn("only read", self.refused(PARAMS, self.ask, method, task, mcp=reader, **more).message)
        self.open_gate(sandbox, "still")
        self.assertIn("still\n", self.text(self.ended(task, mcp=reader)))

    def test_kept_one_shot(self):
        """Who gives the sandbox of a one-shot run a longer life or a name while it runs keeps it."""
        more = Mcp(self.api, "/mcp/x/sandboxes")
        for tool, arguments in (("run_shell", {"command": f"{GATE}; echo $x"}), ("run_code", {"language": "bash", "code": f"{GATE}; echo $x"})):
            before = self.sandboxes()
            task = self.begin(tool, sandbox_id="new", **arguments)
            self.begun(task)
            [mine] = set(self.sandboxes()) - set(before)
            more.call("extend_sandbox", {"sandbox_id": mine, "timeout_seconds": 600})
            self.open_gate(mine, "kept")
            text = self.text(self.ended(task))
            self.assertRegex(text, rf"^begun\nkept\n.*exit code 0.*in sandbox {mine}, which was made for this and is kept")
            self.assertNotIn("gone", text)
            self.assertEqual(self.sandboxes()[mine]["state"], "running")
            self.remove(mine)

    def test_context_deleted(self):
        sandbox = self.sandbox()
        task = self.begin("run_code", language="bash", code="echo begun; exec sleep 1000", sandbox_id=sandbox)
        self.begun(task)
        [context] = self.api.get(f"/v1/sandboxes/{sandbox}/contexts")["contexts"]
        self.api.delete(f"/v1/sandboxes/{sandbox}/contexts/{context['id']}")
        found = self.ended(task)
        self.assertEqual((found["status"], "result" in found), ("failed", False), found)
        self.assertIn("was deleted", found["error"]["message"])
        self.gone(sandbox)

    def test_token(self):
        """The end of its token is the end of the task and of what it runs."""
        sandbox = self.sandbox()
        token = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read", "sandboxes:write"]})
        mine = Mcp(self.daemon.tcp(token["token"]))
        task = self.begin("run_shell", mcp=mine, command="echo here; exec sleep 1000", sandbox_id=sandbox)
        self.begun(task, mcp=mine)
        self.api.delete("/v1/tokens/" + token["id"])
        self.gone(sandbox)

    def test_listen(self):
        sandbox = self.sandbox()
        task = self.begin("run_shell", command=f"{GATE}; echo $x", sandbox_id=sandbox)
        self.begun(task)
        with self.mcp.modern_send("subscriptions/listen", {"notifications": {"taskIds": [task, "x"]}}, "l",
                                  capabilities=TASKS) as stream:
            self.assertEqual(stream.next()["params"]["notifications"], {"taskIds": [task]})
            self.open_gate(sandbox, "told")
            while (message := stream.next())["params"]["status"] == "working":
                pass
            self.assertEqual((message["method"], message["params"]["taskId"]), ("notifications/tasks", task))
            self.assertEqual(message["params"]["_meta"], {META + "subscriptionId": "l"})
            self.assertEqual(message["params"]["status"], "completed")


class Restart(Case):
    def test_restart(self):
        """The command goes on without a daemon; the next one knows it by the task's id."""
        sandbox = self.sandbox()
        going = self.begin("run_shell", command=f"{GATE}; echo $x; exit 5", sandbox_id=sandbox)
        stopped = self.begin("run_shell", command="echo begun; exec sleep 1000", sandbox_id=sandbox)
        done = self.begin("run_shell", command="echo done", sandbox_id=sandbox)
        code = self.begin("run_code", language="bash", code="echo begun; exec sleep 1000", sandbox_id=sandbox)
        self.ended(done)
        for task in (going, stopped, code):
            self.begun(task)
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.get(going)["status"], "working")
        self.open_gate(sandbox, "again")
        self.assertRegex(self.text(self.ended(going)), r"begun\nagain\n.*exit code 5")
        self.assertIn("done\n", self.text(self.ended(done)))
        for task in (stopped, code):
            self.assertEqual(self.get(task)["status"], "working")
            self.ask("tasks/cancel", task)
            self.assertEqual(self.get(task)["status"], "cancelled")
        self.gone(sandbox)
        other = Mcp(self.daemon.tcp(self.daemon.token()))
        self.refused(PARAMS, self.get, going, mcp=other)
        self.daemon.kill()
        self.daemon.start()
        # One that listens need not have asked for it before; and it is what it was.
        with self.mcp.modern_send("subscriptions/listen", {"notifications": {"taskIds": [going, stopped, code]}}, "l",
                                  capabilities=TASKS) as stream:
            self.assertEqual(stream.next()["params"]["notifications"], {"taskIds": [going, stopped, code]})
            told = {}
            while len(told) < 3:
                params = stream.next()["params"]
                told[params["taskId"]] = params["status"]
            self.assertEqual(told, {going: "completed", stopped: "cancelled", code: "cancelled"})
        self.assertRegex(self.text(self.ended(going)), "exit code 5")
        found = self.get(stopped)
        self.assertEqual((found["status"], "result" in found), ("cancelled", False))
        self.remove(sandbox)
        self.daemon.stop()
        self.daemon.start()
        self.lost(going, sandbox)

    def lost(self, task, *words):
        """Nothing of it is left; it says so, and is no unknown task."""
        found = self.get(task)
        self.assertEqual((found["status"], "result" in found, found["error"]["code"]), ("failed", False, -32012), found)
        self.assertEqual(found["error"]["data"]["code"], "daemon.restarting")
        for word in ("restarted", *words):
            self.assertIn(word, found["error"]["message"])

    def restart(self, end):
        getattr(self.daemon, end)()
        self.daemon.start()

    def began_at(self, task, token, began):
        """The id that the token's task would have if it had begun then."""
        [[secret]] = self.daemon.rows("select value from secrets where name = 'mcp-task'")
        exec, call = task.split("-", 2)[:2]
        # base64url has dashes too, but behind these two.
        head = f"{exec}-{int(began * 1000):011x}{call[11:]}-"

        def packed(text):
            return struct.pack("<I", len(text)) + text.encode()
        message = packed("caisson mcp task 2") + packed("default") + packed(token) + struct.pack("<BQ", 0, 0) + packed(head)
        return head + base64.urlsafe_b64encode(hmac.digest(secret, message, "sha256")).decode().rstrip("=")

    def test_hour(self):
        """It is kept as long as without a restart: an hour from its own beginning, and ten minutes after its end."""
        sandbox = self.sandbox()
        token = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read", "sandboxes:write"]})
        mine = Mcp(self.daemon.tcp(token["token"]))
        over = self.begin("run_shell", mcp=mine, command="echo over", sandbox_id=sandbox)
        going = self.begin("run_shell", mcp=mine, command="echo begun; exec sleep 1000", sandbox_id=sandbox)
        self.ended(over, mcp=mine)
        self.begun(going, mcp=mine)
        self.daemon.stop()
        now = time.time()
        self.daemon.sql(f"update execs set ended_wall = ended_wall - {900 * 10**9} where id = '{over.split('-')[0]}'")
        self.daemon.start()
        mine = Mcp(self.daemon.tcp(token["token"]))
        self.assertEqual(self.get(self.began_at(over, token["id"], now - 3000), mcp=mine)["status"], "completed")
        for task in (over, "a" * 16 + over[16:]):
            error = self.refused(PARAMS, self.get, self.began_at(task, token["id"], now - 3700), mcp=mine)
            self.assertIn("not kept any more", error.message)
        late = self.began_at(going, token["id"], now - 7200)
        self.assertEqual(self.get(late, mcp=mine)["status"], "working")
        self.ask("tasks/cancel", late, mcp=mine)
        self.assertEqual(self.get(late, mcp=mine)["status"], "cancelled")
        self.gone(sandbox)

    def test_lost_on_the_way(self):
        """The daemon ended between its word that the code is sent, and the code."""
        sandbox = self.sandbox()
        task = self.begin("run_code", language="python", code="print('begun', flush=True)\nimport time\ntime.sleep(1000)", sandbox_id=sandbox)
        self.begun(task)
        self.daemon.kill()
        self.daemon.sql("update contexts set cells = cells + 1 where once = 1 and ended_wall = 0")
        self.daemon.start()
        wait_until(lambda: self.get(task)["status"] in OVER, 30, what="its end")
        self.lost(task, sandbox, "whether it ran")

    def test_killed_by_another(self):
        """Of one that is followed again somebody else ends the command."""
        sandbox = self.sandbox()
        task = self.begin("run_shell", command="echo begun; exec sleep 1000", sandbox_id=sandbox)
        self.begun(task)
        self.restart("stop")
        self.assertEqual(self.get(task)["status"], "working")
        daemon = self.daemon.daemon_pid()
        job = wait_until(lambda: (jobs := self.api.get(f"/v1/sandboxes/{sandbox}/execs", state="running")["execs"]) and jobs[0], 30)
        self.api.post(f"/v1/sandboxes/{sandbox}/execs/{job['exec_id']}/signal", {"signal": "KILL", "tree": True})
        self.assertEqual(self.ended(task)["status"], "cancelled")
        self.assertEqual(self.daemon.daemon_pid(), daemon)

    def test_most_output(self):
        """How much of the output is shown is as the call has said."""
        sandbox = self.sandbox()
        command = "head -c 40000 /dev/zero | tr '\\0' x"
        tasks = {most: self.begin("run_shell", command=command, sandbox_id=sandbox, max_output_bytes=most) for most in (100, 50000)}
        texts = {most: self.text(self.ended(task)) for most, task in tasks.items()}
        self.assertEqual([text.count("x") > 30000 for text in texts.values()], [False, True])
        self.restart("stop")
        for most, task in tasks.items():
            self.assertEqual(self.text(self.ended(task)).count("x"), texts[most].count("x"))

    def test_code(self):
        """Code goes on too, in an interpreter of its own and in a context, with what it prints and its value."""
        wait = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\n"
        for end in ("stop", "kill"):
            sandbox = self.sandbox()

            def code(language, code, **more):
                return self.begin("run_code", language=language, code=code, sandbox_id=sandbox, **more)
            self.ended(code("python", "kept = 5", context_id="main"))
            bash = code("bash", f"{GATE}; echo $x; exit 4")
            once = code("python", wait + "print('through')\n6 * 7")
            cell = code("python", wait + "print('through')\nkept + 1", context_id="main")
            stopped = code("bash", "echo begun; exec sleep 1000")
            silent = code("bash", "exec sleep 1001")
            queued = code("python", "9", context_id="main")
            for task in (bash, once, cell, stopped):
                self.begun(task)
            wait_until(lambda: self.api.sh(sandbox, "cat /proc/[0-9]*/comm 2>/dev/null || true").count("sleep") >= 2, 30)
            self.restart(end)
            for task in (bash, once, cell, stopped, silent):
                self.assertEqual(self.get(task)["status"], "working")
            self.lost(queued, "sandbox://")
            self.ask("tasks/cancel", stopped)
            self.assertEqual(self.get(stopped)["status"], "cancelled")
            self.ask("tasks/cancel", silent)
            self.gone(sandbox)
            self.open_gate(sandbox, "again")
            self.assertRegex(self.text(self.ended(bash)), r"^begun\nagain\n.*exit code 4")
            self.api.sh(sandbox, "touch /tmp/go")
            self.assertRegex(self.text(self.ended(once)), r"^begun\nthrough\n\[result\]\n42\n.*exit code 0")
            self.assertRegex(self.text(self.ended(cell)), r"^begun\nthrough\n\[result\]\n6\n.*exit code 0")
            self.assertIn("5", self.text(self.ended(code("python", "kept", context_id="main"))))
            self.restart(end)
            # What had ended is as it was, but for values whose interpreter is gone; another call has run where `cell` did.
            self.assertRegex(self.text(self.ended(bash)), r"^begun\nagain\n.*exit code 4")
            self.assertRegex(self.text(self.ended(once)), r"^begun\nthrough\n.*exit code 0")
            self.assertIn("not kept", self.text(self.ended(once)))
            self.lost(cell)
            self.remove(sandbox)

    def test_cancel_in_context(self):
        """Only the cell ends; its interpreter keeps what it knows."""
        sandbox, texts = self.sandbox(), []
        # One that does not come to it for some seconds is ended: a slow machine may be so.
        while len(texts) < 5 and not "".join(texts[-1:]).startswith("[result]\n5\n"):
            main = {"language": "python", "context_id": f"main{len(texts)}", "sandbox_id": sandbox}
            self.ended(self.begin("run_code", code="kept = 5", **main))
            task = self.begin("run_code", code="import time\nprint('begun', flush=True)\ntime.sleep(1000)", **main)
            self.begun(task)
            self.restart("kill")
            self.assertEqual(self.get(task)["status"], "working")
            self.ask("tasks/cancel", task)
            self.assertEqual(self.get(task)["status"], "cancelled")
            texts.append(self.text(self.ended(self.begin("run_code", code="kept", **main))))
        self.assertRegex(texts[-1], r"^\[result\]\n5\n")

    def test_one_shot(self):
        """Its sandbox stays with it, and goes when nothing is asked of it any more."""
        for end in ("stop", "kill"):
            before = self.sandboxes()
            shell = self.begin("run_shell", command=f"{GATE}; echo $x; exit 6", sandbox_id="new")
            code = self.begin("run_code", language="bash", code=f"{GATE}; echo $x; exit 7", sandbox_id="new")
            for task in (shell, code):
                self.begun(task)
            mine = {id: item for id, item in self.sandboxes().items() if id not in before}
            self.assertEqual([item["idle_timeout_seconds"] for item in mine.values()], [600, 600], mine)
            self.restart(end)
            for task in (shell, code):
                self.assertEqual(self.get(task)["status"], "working")
            for id in mine:
                self.open_gate(id, "again")
            for task, exit_code in ((shell, 6), (code, 7)):
                text = self.text(self.ended(task))
                self.assertRegex(text, rf"^begun\nagain\n.*exit code {exit_code}.*which was made for this and ends after 10 min")
                self.assertTrue(any(id in text for id in mine), text)
            for id in mine:
                self.remove(id)

    def test_one_shot_of_a_daemon_that_stays(self):
        """It is gone with its task, as without one."""
        before = self.sandboxes()
        self.ended(self.begin("run_shell", command="echo x", sandbox_id="new"))
        task = self.begin("run_shell", command="echo x; sleep 1000", sandbox_id="new")
        self.begun(task)
        self.ask("tasks/cancel", task)
        wait_until(lambda: set(self.sandboxes()) <= set(before), 30, what="their end")

    def test_not_begun(self):
        """Of what had not begun it is said that nothing is on record."""
        task = self.begin("run_shell", sandbox_id="nowhere", command="x")
        self.ended(task)
        self.restart("stop")
        self.lost(task, "sandbox://")


class Fixtures(Case):
    capabilities = BOTH

    program = MCP_FIXTURES

    def answer(self, task, **answers):
        return self.ask("tasks/update", task, inputResponses=answers)

    def waiting(self, task):
        return wait_until(lambda: (found := self.get(task))["status"] == "input_required" and found["inputRequests"])

    def test_asks(self):
        task = self.begin("multi_input")
        asked = self.waiting(task)
        self.assertEqual({entry["method"] for entry in asked.values()}, {"elicitation/create"})
        self.assertEqual(set(asked), {"first", "second"})
        yes = {"action": "accept", "content": {"confirm": True}}
        for wrong in (None, [], {"first": 5}, {"first": yes, "second": None}):
            self.refused(PARAMS, self.ask, "tasks/update", task, inputResponses=wrong)
        self.assertEqual(set(self.waiting(task)), {"first", "second"})
        self.assertEqual(set(self.answer(task, first=yes, other=yes)) - {"_meta"}, {"resultType"})
        self.assertEqual(set(self.waiting(task)), {"second"})
        self.answer(task, first={"action": "accept", "content": {"confirm": False}})
        self.answer(task, second={"bad": "shape"})
        self.assertEqual(set(self.waiting(task)), {"second"})
        self.answer(task, second=yes)
        found = self.ended(task)
        self.assertEqual(self.text(found), "Confirmed: 2 of 2")
        self.assertNotIn("inputRequests", found)
        self.answer(task, second=yes)

    def test_cancel_while_asking(self):
        task = self.begin("confirm_delete", filename="x")
        self.waiting(task)
        self.ask("tasks/cancel", task)
        found = self.get(task)
        self.assertEqual((found["status"], "inputRequests" in found), ("cancelled", False))

    def test_failed(self):
        found = self.ended(self.begin("protocol_error_job"))
        self.assertEqual((found["status"], found["error"]["code"], "result" in found), ("failed", -32603, False))
        found = self.ended(self.begin("failing_job"))
        self.assertEqual((found["status"], found["result"]["isError"], "error" in found), ("completed", True, False))
        error = self.refused(CAPABILITY, self.mcp.call, "failing_job", {})
        self.assertEqual(error.data, {"requiredCapabilities": {"extensions": {META + "tasks": {}}}})

    def test_bound(self):
        """256 in a workspace; those that are over make room, those that run do not."""
        first = self.begin("slow_compute", seconds=0)
        self.ended(first)
        tasks = [self.begin("slow_compute", seconds=1000, label="x") for _ in range(256)]
        self.refused(PARAMS, self.get, first)
        self.refused(-32603, self.begin, "slow_compute", seconds=1000)
        for task in tasks:
            self.ask("tasks/cancel", task)
        self.begin("slow_compute", seconds=0)
