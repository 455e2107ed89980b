"""run_shell and run_code: the text that a model reads, how long a call may take and what becomes of what goes on,
what ends with a cancel, one-shot runs, contexts, figures."""
import base64
import json
import os
import random
import re

from caisson import PROGRAM, Background, at_once, best_of, wait_until
from marks import alone, long
from mcp import Mcp, McpTest, seconds_to_die, untimed
from stdio import Stdio

LAST = r"(?s)\A.*\[%s\]\Z"


class Case(McpTest):
    def run_text(self, tool, **arguments):
        return untimed(Mcp(self.api).text(tool, arguments))

    def shell(self, command, **arguments):
        return self.run_text("run_shell", command=command, **arguments)

    def code(self, code, language="python", **arguments):
        return self.run_text("run_code", language=language, code=code, **arguments)

    def processes(self, box, words):
        """Of a sandbox: the command lines that contain them."""
        listed = self.api.sh(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true")
        return [word for word in words if word in listed]

    def sandboxes(self):
        return self.api.get("/v1/sandboxes")["items"]

    def job_of(self, text):
        return re.search(r"job_id ([a-z0-9]{16})", text).group(1)


class Text(Case):
    """In one sandbox, which need not be named."""

    box_fields = {}

    def test_streams_and_exit_code(self):
        note = f"; sandbox {self.box}"
        self.assertEqual(self.shell("echo out; echo err >&2; exit 3"), f"out\n[stderr]\nerr\n[exit code 3{note}]")
        self.assertEqual(self.shell("true"), f"[exit code 0, no output{note}]")
        self.assertEqual(self.shell("printf x", sandbox_id=self.box), "x\n[exit code 0]")
        self.assertEqual(self.shell("cat", stdin="grüße\n", sandbox_id=self.box), "grüße\n[exit code 0]")
        self.assertEqual(self.shell("pwd; echo $A", cwd="/tmp", env={"A": "b c"}, sandbox_id=self.box),
                         "/tmp\nb c\n[exit code 0]")
        self.assertEqual(self.shell("echo $PORT $DEBUG", env={"PORT": 8080, "DEBUG": True}, sandbox_id=self.box),
                         "8080 true\n[exit code 0]")
        self.assertIn("killed by SIGSEGV, exit code 139", self.shell("kill -SEGV $$"))

    def test_how_long_it_took(self):
        """From a second on it is said."""
        text = self.mcp.text("run_shell", {"command": "sleep 1.1", "sandbox_id": self.box})
        self.assertRegex(text, r"\A\[exit code 0 after [1-9]\d*\.\d s, no output\]\Z")
        self.assertEqual(untimed(text), "[exit code 0, no output]")
        text = self.mcp.text("run_code", {"language": "python", "code": "import time\ntime.sleep(1.1)", "sandbox_id": self.box})
        self.assertRegex(text, r"\A\[exit code 0 after [1-9]\d*\.\d s, no output\]\Z")

    def test_small_overhead(self):
        text = self.shell("seq 1 1000", sandbox_id=self.box)
        self.assertEqual(text, "".join(f"{n}\n" for n in range(1, 1001)) + "[exit code 0]")
        result = self.mcp.call("run_shell", {"command": "seq 1 1000", "sandbox_id": self.box})
        self.assertLess(len(json.dumps(result)), 5200)
        self.assertNotIn("structuredContent", result)
        self.assertEqual([block["type"] for block in result["content"]], ["text"])

    def test_long_output_is_cut_in_the_middle(self):
        result = self.mcp.call("run_shell", {"command": "seq 1 100000", "sandbox_id": self.box})
        text, link = result["content"]
        whole = "".join(f"{n}\n" for n in range(1, 100001))
        match = re.fullmatch(r'(?s)(.*)\[\.\.\. (\d+) bytes, (\d+) lines left out; next: read_job '
                             r'\{"job_id":"(\w+)","offset":(\d+)\} \.\.\.\]\n(.*)\[exit code 0\]', untimed(text["text"]))
        head, size, lines, job, offset, tail = match.groups()
        self.assertTrue(whole.startswith(head) and head.endswith("\n") and 5 * 1024 < len(head) <= 6 * 1024)
        self.assertTrue(whole.endswith(tail) and 9 * 1024 < len(tail) <= 10 * 1024)
        middle = whole[len(head):len(whole) - len(tail)]
        self.assertEqual((int(size), int(lines), int(offset)), (len(middle), middle.count("\n"), len(head)))
        self.assertEqual((link["type"], link["uri"]), ("resource_link", f"job://{self.box}/{job}/stdout"))
        page = self.run_text("read_job", job_id=job, offset=int(offset), max_bytes=1000)
        self.assertTrue(page.startswith(middle[:900]), page)
        # Revisions that do not know links get the text alone.
        old = self.mcp.session("2025-03-26")
        content = old.call("run_shell", {"command": "seq 1 100000"})["content"]
        self.assertEqual([block["type"] for block in content], ["text"])

    def test_a_bound_of_ones_own(self):
        text = self.shell("seq 1 1000", max_output_bytes=200)
        self.assertLess(len(text), 500)
        self.assertIn("left out", text)
        self.assertEqual(self.shell("seq 1 20000", max_output_bytes=1 << 20, sandbox_id=self.box).count("\n"), 20000)
        self.assertIn("max_output_bytes", self.error("run_shell", command="true", max_output_bytes=1 << 30))

    def test_characters_are_never_cut(self):
        text = self.shell("i=0; while [ $i -lt 20000 ]; do printf 'ä€😀'; i=$((i+1)); done")
        self.assertNotIn("\\x", text)
        self.assertNotIn("\ufffd", text)
        self.assertRegex(text, r"\A[ä€😀]+\n\[\.\.\. ")

    def test_binary_is_marked(self):
        text = self.shell("head -c 5000 /dev/urandom")
        self.assertRegex(text, r"\A\[binary output on stdout, 5000 bytes, not shown[^\n]*\]\n\[exit code 0")
        self.assertTrue(self.shell("printf 'caf\\351 au lait\\n'").startswith(
            "caf\\xe9 au lait\n[1 byte is no text: shown as \\xNN]\n[exit code 0"))
        self.assertTrue(self.shell("printf 'a-long-name\\0b-long-name\\0'").startswith(
            "a-long-name\\x00b-long-name\\x00\n[2 bytes are no text"))
        # A few bytes can be shown whatever they are.
        self.assertTrue(self.shell("printf 'a\\377\\376bc'").startswith("a\\xff\\xfebc\n[2 bytes are no text"))
        self.assertIn("text\n[stderr]\n[binary output on stderr, 64 bytes",
                      self.shell("echo text; head -c 64 /dev/zero >&2"))

    def test_what_is_left_running(self):
        # Its command line is set a moment after its name.
        text = self.shell("sleep 4711 >/dev/null 2>&1 & until grep -q ^sleep /proc/$!/cmdline; do :; done; echo begun")
        self.assertRegex(text, r"\Abegun\n\[still running in the background: pid \d+ `sleep 4711`\]\n\[exit code 0")
        self.api.sh(self.box, "kill $(pidof sleep)")

    def test_a_timeout_kills_the_tree(self):
        text = self.shell("echo begun; setsid sleep 4712 & sleep 4713", timeout_seconds=0.3)
        self.assertRegex(text, r"\A(begun\n)?\[timed out after 0.3 s and was killed with all it started, exit code 124")
        wait_until(lambda: not self.processes(self.box, ["sleep 4712", "sleep 4713"]), what="the end of the tree")

    def test_what_cannot_be_run(self):
        self.assertIn("cwd `/nowhere`: no such directory", self.error("run_shell", command="true", cwd="/nowhere"))
        self.assertIn("cwd `/workspace/nowhere`: no such directory", self.error("run_shell", command="true", cwd="nowhere", sandbox_id=self.box))
        self.assertIn("unknown field `cmd`; did you mean `command`?", self.error("run_shell", cmd="ls"))
        for arguments, words in (({}, "`command`"), ({"command": ""}, "`command`"), ({"command": 5}, "`command`"),
                                 ({"command": "true", "env": {"A": [5]}}, "`env`"),
                                 ({"command": "true", "env": {"A=B": "5"}}, "`env`"),
                                 ({"command": "true", "timeout_seconds": 1e9}, "`timeout_seconds`"),
                                 ({"command": "true", "timeout_seconds": -1}, "`timeout_seconds`"),
                                 ({"command": "true", "nonsense": 1}, "`nonsense`")):
            text = self.error("run_shell", **arguments)
            self.assertIn(words, text)
            self.assertIn('Example: run_shell {"command"', text)
        self.assertIn("`python`, `node`, `bash`", self.error("run_code", language="cobol", code="x"))
        self.assertIn("`timeout_seconds` must be at most 86400", self.error("run_code", language="bash", code="true", timeout_seconds=86401))

    def test_the_sandbox_in_question(self):
        other = self.sandbox()
        text = self.error("run_shell", command="true")
        self.assertIn(self.box, text)
        self.assertIn(other, text)
        self.assertEqual(self.shell("true", sandbox_id=other), "[exit code 0, no output]")
        text = self.error("run_shell", command="true", sandbox_id="nosuchthing")
        self.assertIn(self.box, text)

    def test_a_paused_one_is_woken(self):
        box = self.sandbox()
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.assertEqual(self.shell("echo up", sandbox_id=box), "up\n[exit code 0]")

    def test_an_ended_one_says_so(self):
        box = self.sandbox()
        self.remove(box)
        self.assertIn("ended", self.error("run_shell", command="true", sandbox_id=box))

    def test_deleted_under_it(self):
        box = self.sandbox()
        call = Background(Mcp(self.api).call, "run_shell", {"command": "echo begun; sleep 4714", "sandbox_id": box})
        wait_until(lambda: self.processes(box, ["sleep 4714"]), what="the command")
        self.remove(box)
        self.assertIn("ended while", call.result()["content"][0]["text"])

    def test_progress_is_live_and_of_whole_lines(self):
        mcp = Mcp(self.api)
        command = "for i in 1 2 3; do echo line $i; printf half; until [ -e /tmp/line$i ]; do sleep 0.02; done; echo; done"
        notes = []
        with mcp.modern_send("tools/call", {"name": "run_shell", "arguments": {"command": command}}, token="t-1") as answer:
            for number in (1, 2, 3):
                # Nothing goes on until it was heard of.
                while not notes or f"line {number}" not in notes[-1]["message"]:
                    notes.append(answer.next()["params"])
                self.api.sh(self.box, f"touch /tmp/line{number}")
            *more, last = answer.rest()
        notes += [note["params"] for note in more]
        text = last["result"]["content"][0]["text"]
        self.assertEqual({note["progressToken"] for note in notes}, {"t-1"})
        self.assertEqual([note["progress"] for note in notes], sorted({note["progress"] for note in notes}))
        for note in notes:
            for line in note["message"].split("\n"):
                self.assertRegex(line, r"\A(line \d|half|)\Z")
        self.assertIn("line 3", text)
        mcp.text("run_shell", {"command": "seq 1 1000"})
        self.assertEqual(mcp.notes, [])


class HandBack(Case):
    """A call waits for two seconds here, and then gives back a job."""
    config, box_fields = "[mcp]\nblock_seconds = 2\n", {}

    def test_said(self):
        self.assertIn("A call answers within 2 s.", self.mcp.modern("server/discover")["instructions"])

    def end(self, job):
        """Its whole output, once it is over."""
        return wait_until(lambda: (lambda text: "status: running" not in text and text)(
            self.run_text("read_job", job_id=job, wait_seconds=2)), seconds=60, what="its end")

    def begun(self, tool, mcp=None, **arguments):
        """The text of a call. In two seconds a slow machine may start nothing at all, and the answer says so: as a model
        does, it is called again then."""
        for _ in range(5):
            result = (mcp or Mcp(self.api)).call(tool, arguments)
            text = result["content"][0]["text"]
            if not result.get("isError"):
                return text
            self.assertRegex(text, r"did not start within 2 s; try again|no sandbox was ready within 2 s")
        self.fail(text)

    def at_once(self, mcp, **arguments):
        """The text of a short command's call. One that a slow machine has handed back is waited for and called again."""
        for _ in range(5):
            text = self.begun("run_shell", mcp, **arguments)
            if "status: running" not in text:
                return text
            wait_until(lambda: "status: running" not in mcp.text("read_job", {"job_id": self.job_of(text), "wait_seconds": 2}),
                       what="its end")
            made = re.search(r"in sandbox (\w+), which was made for this", text)
            if made and "sandbox_id" not in arguments:
                mcp.client.delete("/v1/sandboxes/" + made.group(1))
        return text

    def test_a_command(self):
        result = self.mcp.call("run_shell", {"command": "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo over",
                                             "timeout_seconds": 600, "sandbox_id": self.box})
        self.assertNotIn("isError", result)
        text = result["content"][0]["text"]
        job = self.job_of(text)
        self.assertRegex(text, r"\A(begun\n)?\[status: running for \d+ s, job_id \w+; next: read_job ")
        following = json.loads(re.search(r"next: read_job (\{.*?\})", text).group(1))
        self.assertEqual((following["job_id"], following["offset"]), (job, 6 if "begun" in text else 0))
        self.assertEqual(result["content"][1]["uri"], f"job://{self.box}/{job}/stdout")
        self.api.sh(self.box, "touch /tmp/go")
        self.assertEqual(self.end(job).split(" after")[0].rstrip("]"), "begun\nover\n[exit code 0")
        self.assertRegex(self.run_text("read_job", job_id=job, offset=6), r"\Aover\n\[exit code 0")

    def test_code(self):
        text = self.begun("run_code", language="python", code=(
            "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/gone'): time.sleep(.05)\n6 * 7"))
        self.assertRegex(text, r"\A(begun\n)?\[status: running")
        self.api.sh(self.box, "touch /tmp/gone")
        self.assertRegex(self.end(self.job_of(text)), r"\Abegun\n\[result\]\n42\n\[exit code 0")

    @long
    def test_a_context(self):
        text = self.code("import time\nx = 1\nprint('begun', flush=True)\nwhile True: time.sleep(.05)", context_id="busy")
        job = self.job_of(text)
        wait_until(lambda: self.run_text("read_job", job_id=job).startswith("begun\n"), what="its first words")
        text = self.error("run_code", language="python", code="x", context_id="busy")
        self.assertIn("still busy", text)
        self.assertIn(job, text)
        self.assertIn("KeyboardInterrupt", self.run_text("stop_job", job_id=job))
        text = self.code("x", context_id="busy")
        self.assertIn("[result]\n1\n", self.end(self.job_of(text)) if "status: running" in text else text)

    def not_meant(self, mcp, api, box):
        """What was left of a one-shot run is used by who names it alone, and listed for that."""
        self.assertIn("gone now", self.at_once(mcp, command="echo fresh"))
        refused = mcp.call("read_file", {"path": "x"})
        self.assertTrue(refused["isError"])
        self.assertIn(f"{box}: running, made", refused["content"][0]["text"])
        self.assertRegex(mcp.text("list_sandboxes"), rf"{box}: running, made .* ago for a one-shot run, ends in ")
        own = api.create()["id"]
        self.assertIn(f"; sandbox {own}", self.at_once(mcp, command="true"))
        self.assertIn("[exit code 0", self.at_once(mcp, command="true", sandbox_id=box))
        api.delete("/v1/sandboxes/" + own)
        # Its idle time ends it once nothing runs in it.
        api.call("PATCH", "/v1/sandboxes/" + box, {"idle_timeout_seconds": 1})
        self.assertEqual(api.get("/v1/sandboxes/" + box)["state"], "running")

    @long
    def test_a_one_shot_stays(self):
        other = self.daemon.tcp(self.daemon.token("elsewhere"))
        mcp = Mcp(other)
        text = self.begun("run_shell", mcp, command="echo begun; sleep 4720")
        box = re.search(r"in sandbox (\w+), which was made for this", text).group(1)
        job = self.job_of(text)
        self.assertEqual([item["id"] for item in other.get("/v1/sandboxes")["items"]], [box])
        self.assertRegex(text, r"ends after 10 min in which nothing ran or was asked, in \d+ s at the latest")
        self.assertEqual(other.get("/v1/sandboxes/" + box)["idle_timeout_seconds"], 600)
        self.assertIn("status: running", mcp.text("read_job", {"job_id": job}))
        self.not_meant(mcp, other, box)
        # Another workspace's is not there.
        self.assertIn(f"no job `{job}`", self.error("read_job", job_id=job))
        mcp.text("stop_job", {"job_id": job})
        wait_until(lambda: box not in [item["id"] for item in other.get("/v1/sandboxes")["items"]], 20, what="its end")


class Cancel(Case):
    """The command of a call that is given up is dead within a second."""
    config = ""
    TREE = "sleep 4731 & setsid sleep 4732 & (trap '' TERM INT HUP; sleep 4733) & wait"
    WORDS = ["sleep 4731", "sleep 4732", "sleep 4733"]

    def begin(self, tool, arguments, **around):
        return self.mcp.modern_send("tools/call", {"name": tool, "arguments": arguments}, token=1, **around)

    def leave(self, tool, arguments, after):
        """Is gone before it has seen anything of an answer; the stream, and with it begin(), comes only when it runs."""
        self.mcp.leave("tools/call", {"name": tool, "arguments": arguments}, after, token=1)

    def execs(self, box, word):
        """The records of the commands that contain it, which there may be none of."""
        return [item for item in self.api.get(f"/v1/sandboxes/{box}/execs")["execs"] if word in item["command"]]

    def nothing_goes_on(self, box, word, seconds=30):
        for _ in range(2):
            self.api.sh(box, "true")  # what was asked for before this has begun, if it ever does
        wait_until(lambda: all(item["state"] in ("ended", "failed") for item in self.execs(box, word)), seconds, what=f"the end of {word}")

    def dead_within_a_second(self, begin):
        """`begin` starts a tree of processes that name themselves by a word, and gives back what gives it up."""
        def attempt():
            number = random.randrange(10**8, 10**9)
            box = self.sandbox()
            words = [f"sleep {number}{i}" for i in range(3)]
            give_up = begin(box, f"{words[0]} & setsid {words[1]} & (trap '' TERM INT HUP; {words[2]}) & wait")
            wait_until(lambda: self.sleepers(box, number) == 3, what="the tree")
            return seconds_to_die(str(number), give_up)
        best_of(5, attempt, 1)

    def sleepers(self, box, number):
        """How many have become what they were begun for."""
        listed = self.api.sh(box, "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null; true")
        return len(re.findall(rf"(?m)^sleep {number}\d $", listed))

    @alone
    def test_within_a_second_of_a_disconnect(self):
        def begin(box, command):
            answer = self.begin("run_shell", {"command": command, "sandbox_id": box})
            return answer.__exit__
        self.dead_within_a_second(begin)

    @alone
    def test_within_a_second_of_a_legacy_notification(self):
        def begin(box, command):
            session = self.mcp.session("2025-11-25")
            answer = session.begin("tools/call", {"name": "run_shell", "arguments": {"command": command, "sandbox_id": box}}, number=1)
            self.addCleanup(answer.__exit__)
            return lambda: session.notify("notifications/cancelled", {"requestId": 1})
        self.dead_within_a_second(begin)

    @alone
    def test_within_a_second_on_a_pipe(self):
        def begin(box, command):
            bridge = Stdio([PROGRAM, "mcp"], {**os.environ, **self.daemon.client_environment()})
            self.addCleanup(bridge.close)
            number = bridge.begin("tools/call", {"name": "run_shell", "arguments": {"command": command, "sandbox_id": box}}, modern=True)
            return lambda: bridge.notify("notifications/cancelled", {"requestId": number})
        self.dead_within_a_second(begin)

    def test_disconnect(self):
        box = self.sandbox()
        for tool, arguments in (("run_shell", {"command": self.TREE}), ("run_code", {"language": "bash", "code": self.TREE}),
                                ("run_code", {"language": "python", "code": f"import os\nos.system({self.TREE!r})"})):
            with self.subTest(tool=tool, language=arguments.get("language")):
                answer = self.begin(tool, {**arguments, "sandbox_id": box})
                wait_until(lambda: self.processes(box, self.WORDS) == self.WORDS, what="the tree")
                answer.response.close()
                answer.close()
                wait_until(lambda: not self.processes(box, self.WORDS), what="the end of the tree")

    def test_legacy_notification_cancels_and_disconnect_does_not(self):
        box = self.sandbox()
        session = self.mcp.session("2025-11-25")
        answer = session.begin("tools/call", {"name": "run_shell", "arguments": {"command": self.TREE, "sandbox_id": box},
                                              "_meta": {"progressToken": 1}}, number=77)
        wait_until(lambda: self.processes(box, self.WORDS) == self.WORDS, what="the tree")
        answer.response.close()
        answer.close()
        self.assertEqual(self.shell("sleep 0.3; echo on", sandbox_id=box), "on\n[exit code 0]")
        self.assertEqual(self.processes(box, self.WORDS), self.WORDS)
        session.notify("notifications/cancelled", {"requestId": 77})
        wait_until(lambda: not self.processes(box, self.WORDS), what="the end of the tree")

    def test_one_shots(self):
        for tool, arguments in (("run_shell", {"command": "echo begun; sleep 4734"}),
                                ("run_code", {"language": "python", "code": "print('begun', flush=True)\nimport time\ntime.sleep(999)"})):
            # While it runs, and at moments before that.
            for moment in ("running", 0, 0.001, 0.003, 0.01, 0.03, 0.1):
                with self.subTest(tool=tool, moment=moment):
                    if moment == "running":
                        with self.begin(tool, arguments) as answer:
                            self.assertEqual(answer.next()["params"]["message"], "begun")
                    else:
                        self.leave(tool, arguments, moment)
                    wait_until(lambda: not self.sandboxes(), what="the end of its sandbox")

    def test_while_it_is_woken(self):
        box = self.sandbox()
        for how in ("pause", "stop"):
            for moment in (0, 0.001, 0.003, 0.01, 0.03):
                with self.subTest(how=how, moment=moment):
                    self.api.post(f"/v1/sandboxes/{box}/{how}")
                    self.leave("run_shell", {"command": self.TREE, "sandbox_id": box}, moment)
                    self.nothing_goes_on(box, self.WORDS[0])
                    # Its record ends with its first process: the others were killed with that, and die a moment later.
                    wait_until(lambda: not self.processes(box, self.WORDS), what="the end of the tree")

    def test_a_context_is_interrupted_and_stays(self):
        box, texts = self.sandbox(), []
        # One that does not come to it for most of a second is ended: a slow machine may be so.
        while len(texts) < 5 and texts[-1:] != ["[result]\n5\n[exit code 0]"]:
            context = {"language": "python", "context_id": f"c{len(texts)}", "sandbox_id": box}
            run = lambda code: self.run_text("run_code", code=code, **context)
            run("x = 5")
            with self.begin("run_code", {**context, "code": "import subprocess\nsubprocess.run(['sleep', '4735'])"}):
                wait_until(lambda: self.processes(box, ["sleep 4735"]), what="the command")
            wait_until(lambda: not self.processes(box, ["sleep 4735"]), what="its end")
            try:
                texts.append(run("x"))
            except AssertionError as error:  # it has ended
                texts.append(str(error))
        self.assertEqual(texts[-1], "[result]\n5\n[exit code 0]")

    def test_a_context_that_does_not_listen_is_ended(self):
        box = self.sandbox()
        answer = self.begin("run_code", {"language": "python", "context_id": "c", "sandbox_id": box, "code":
                                         "import signal, subprocess\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                                         "subprocess.run(['sleep', '4737'])"})
        wait_until(lambda: self.processes(box, ["sleep 4737"]), what="the command")
        answer.response.close()
        answer.close()
        wait_until(lambda: not self.processes(box, ["sleep 4737"]), what="its end")

    def test_a_context_that_is_being_made(self):
        box = self.sandbox()
        for moment in (0, 0.003, 0.01, 0.03, 0.1):
            self.leave("run_code", {"language": "python", "context_id": f"c{moment}", "sandbox_id": box,
                                    "code": "import subprocess\nsubprocess.run(['sleep', '4738'])"}, moment)
            # The interpreter is there, and has got all that it ever will, when another that was begun later has.
            Mcp(self.api).text("run_code", {"language": "python", "context_id": f"later{moment}", "sandbox_id": box, "code": "1"})
            wait_until(lambda: not self.processes(box, ["sleep 4738"]), what="the end of its command")
            # The interpreter says that it is through after its command's end.
            wait_until(lambda: "busy" not in [
                item["state"] for item in self.api.get(f"/v1/sandboxes/{box}/contexts")["contexts"]], what="the end of its code")

    def test_start_job_that_nobody_hears_of(self):
        for number in range(5):
            box = self.sandbox()
            self.leave("start_job", {"command": "sleep 4736", "sandbox_id": box}, number * 0.005)
            try:
                self.nothing_goes_on(box, "sleep 4736", 5)
                break
            except AssertionError:
                # A second after its beginning it has been told of, and stays: a machine may have stood still.
                if number == 4:
                    raise


class OneShot(Case):
    """No sandbox at all."""

    def test_they_are_gone(self):
        self.assertEqual(self.shell("echo hi; exit 2"), "hi\n[exit code 2; ran in a fresh sandbox, gone now]")
        self.assertEqual(self.sandboxes(), [])
        self.assertEqual(self.code("print('hi')\n1 + 1"), "hi\n[result]\n2\n[exit code 0; ran in a fresh sandbox, gone now]")
        self.assertEqual(self.sandboxes(), [])
        self.assertIn("gone with the one-shot sandbox", self.shell("seq 1 100000"))
        self.assertIn("create_sandbox", self.error("run_code", language="python", code="1", context_id="main"))
        self.assertIn("timed out after 0.2 s", self.shell("sleep 999", timeout_seconds=0.2))
        self.assertRegex(self.shell("sleep 4714 >/dev/null 2>&1 & until grep -q ^sleep /proc/$!/cmdline; do :; done; echo begun"),
                         r"\Abegun\n\[left in the background and ended with the sandbox: pid \d+ `sleep 4714`\]\n\[exit code 0")
        self.assertEqual(self.sandboxes(), [])

    def test_many_at_once(self):
        texts = at_once(lambda i: self.shell(f"echo {i}") if i % 2 else self.code(f"print({i})"), range(6))
        self.assertEqual(texts, [f"{i}\n[exit code 0; ran in a fresh sandbox, gone now]" for i in range(6)])
        self.assertEqual(self.sandboxes(), [])


class Code(Case):
    box_fields = {}

    def code(self, code, language="python", **arguments):
        return super().code(code, language, sandbox_id=self.box, **arguments)

    def test_languages(self):
        self.assertEqual(self.code("print('a')\n6 * 7"), "a\n[result]\n42\n[exit code 0]")
        self.assertEqual(self.code("console.log('a'); 6 * 7", "node"), "a\n[result]\n42\n[exit code 0]")
        self.assertEqual(self.code("echo a; exit 3", "bash"), "a\n[exit code 3]")

    def test_an_error_is_a_normal_result(self):
        text = self.code("import sys\nprint('so far')\nprint('bad', file=sys.stderr)\n1/0")
        self.assertRegex(text, r"(?s)\Aso far\n\[stderr\]\nbad\n\[error\]\nTraceback .*ZeroDivisionError: .*\n\[exit code 1\]\Z")
        self.assertIn("SyntaxError", self.code("def"))

    def test_contexts_keep_variables(self):
        self.code("x = 41", context_id="main")
        self.assertEqual(self.code("x + 1", context_id="main"), "[result]\n42\n[exit code 0]")
        self.assertIn("NameError", self.code("x"))
        self.assertIn("NameError", self.code("x", context_id="another"))
        # The same name in another language is another context.
        self.assertIn("ReferenceError", self.code("x", "node", context_id="main"))
        # One that was made over REST, by its id.
        made = self.api.post(f"/v1/sandboxes/{self.box}/contexts", {"language": "python"})["id"]
        self.code("y = 1", context_id=made)
        self.assertIn("[result]\n1\n", self.code("y", context_id=made))
        self.assertIn("accepted: language `python`",
                      self.error("run_code", language="node", code="1", context_id=made, sandbox_id=self.box))

    def test_calls_for_a_new_context_queue(self):
        """One of them makes it, the others wait for that: in their order on one connection."""
        count = {"language": "python", "code": "x = globals().get('x', 0) + 1\nx", "sandbox_id": self.box}
        bridge = Stdio([PROGRAM, "mcp"], {**os.environ, **self.daemon.client_environment()})
        self.addCleanup(bridge.close)
        numbers = [bridge.begin("tools/call", {"name": "run_code", "arguments": {**count, "context_id": "queue"}}, modern=True) for _ in range(6)]
        texts = [untimed(bridge.answer(number)["result"]["content"][0]["text"]) for number in numbers]
        self.assertEqual(texts, [f"[result]\n{number}\n[exit code 0]" for number in range(1, 7)])
        # Whoever makes it may go away first.
        count["sandbox_id"] = self.sandbox()
        for moment in (0, 0.003, 0.01, 0.03):
            call = {"name": "run_code", "arguments": {**count, "context_id": f"left{moment}"}}
            gone = Background(Mcp(self.daemon.client()).leave, "tools/call", call, moment)
            texts = at_once(lambda _: untimed(Mcp(self.daemon.client()).text(call["name"], call["arguments"])), range(3))
            gone.result()
            self.assertEqual([text.endswith("\n[exit code 0]") for text in texts], [True] * 3, texts)
            self.assertEqual(len(set(texts)), 3, texts)

    def test_a_context_that_ended_is_made_anew(self):
        self.code("x = 1", context_id="ends")
        self.assertIn("the variables are gone", self.code("import os\nos._exit(3)", context_id="ends"))
        text = self.code("'x' in globals()", context_id="ends")
        self.assertTrue(text.startswith("[result]\nFalse\n"), text)
        self.assertIn("started anew", text)

    def test_figures_are_images(self):
        picture = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
        show = ("import base64\nclass P:\n def __init__(s, d): s.d = d\n def _repr_png_(s): return s.d\n"
                f" def __repr__(s): return 'P'\npicture = base64.b64decode({base64.b64encode(picture).decode()!r})\n")
        result = self.mcp.call("run_code", {"language": "python", "sandbox_id": self.box, "code": show + "print('look')\nP(picture)"})
        text, image = result["content"]
        self.assertEqual(untimed(text["text"]), "look\n[exit code 0]")
        self.assertEqual((image["type"], image["mimeType"], base64.b64decode(image["data"])), ("image", "image/png", picture))
        result = self.mcp.call("run_code", {"language": "python", "sandbox_id": self.box,
                                            "code": show + "for i in range(6): display(P(picture))\ndisplay(P(b'x' * 3_000_000))"})
        self.assertEqual([block["type"] for block in result["content"]], ["text"] + 4 * ["image"])
        self.assertEqual(result["content"][0]["text"].count("is not shown: at most 4"), 3)
        result = self.mcp.call("run_code", {"language": "python", "sandbox_id": self.box, "code": show + "P(b'no picture')"})
        self.assertEqual([untimed(block.get("text", "")) for block in result["content"]],
                         ["[a result that says it is image/png and is not, 10 bytes]\n[exit code 0]"])

    def test_a_long_result_is_cut(self):
        text = self.code("'ä' * 20000")
        self.assertLess(len(text), 9000)
        self.assertRegex(text, r"(?s)\A\[result\]\n'ä+\n\[\.\.\. \d+ bytes more of the result left out")

    def test_out_of_memory(self):
        box = self.sandbox(memory_mb=128)
        run = {"language": "python", "code": "x = []\nwhile True: x.append(bytearray(1 << 20))", "sandbox_id": box}
        text = self.run_text("run_code", **run)
        if "MemoryError" not in text:
            self.assertRegex(text, r"\[exit code 137.*; killed: out of memory")
            self.assertIn("out of memory", self.run_text("run_code", **run, context_id="large"))

    def test_a_timeout(self):
        self.assertIn("timed out", self.code("while True: pass", timeout_seconds=0.4))
        texts = []
        # One that does not come to it for some seconds is ended: a slow machine may be so.
        while len(texts) < 5 and "[result]\n7\n" not in "".join(texts[-1:]):
            context = f"slow{len(texts)}"
            self.code("x = 7", context_id=context)
            self.assertIn("[timed out and was stopped, exit code 124",
                          self.code("while True: pass", context_id=context, timeout_seconds=0.4))
            texts.append(self.code("x", context_id=context))
        self.assertIn("[result]\n7\n", texts[-1])


class Listed(Case):
    def test_the_tools(self):
        tools = {tool["name"]: tool for tool in self.mcp.modern("tools/list")["tools"]}
        ours = [tools[name] for name in ("run_shell", "run_code", "start_job", "read_job", "stop_job")]
        self.assertLessEqual(len(json.dumps(ours, separators=(",", ":"))), 4200)
        for tool in ours:
            self.assertTrue(tool["title"] and len(tool["description"]) < 1500)
            self.assertEqual(set(tool["annotations"]), {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})
            self.assertEqual(tool["inputSchema"]["type"], "object")
        self.assertEqual(tools["run_shell"]["inputSchema"]["required"], ["command"])
        self.assertTrue(tools["read_job"]["annotations"]["readOnlyHint"])

    def test_scopes(self):
        reader = Mcp(self.daemon.tcp(self.daemon.token(scopes=("sandboxes:read",))))
        names = [tool["name"] for tool in reader.modern("tools/list")["tools"]]
        self.assertIn("read_job", names)
        self.assertNotIn("run_shell", names)
