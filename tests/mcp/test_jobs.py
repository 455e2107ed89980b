"""start_job, read_job and stop_job, and the two run tools as tasks: jobs by their id alone, pages by offset, waiting,
searching, ends; what an unknown job is told."""
import json
import re
import threading
import time

from caisson import Background, at_once, best_of, wait_until
from marks import alone, busy, long, thorough
from mcp import META, Mcp, McpTest, untimed

TASKS = {"extensions": {META + "tasks": {}}}
# How stop_job has ended a job: where nothing moved for three seconds it was killed.
ENDED = r"\[killed by SIGTERM, exit code 143|\[killed, exit code 137"


class Case(McpTest):
    box_fields = {}

    def text(self, tool, **arguments):
        return untimed(Mcp(self.api).text(tool, arguments))

    def start(self, command, ready=None, **arguments):
        """A job, once it has said `ready`."""
        text = self.text("start_job", command=command, sandbox_id=self.box, **arguments)
        job = re.search(r"job_id (\w{16})", text).group(1)
        if ready:
            wait_until(lambda: ready in self.read(job, wait_seconds=2), what="its first words")
        return job

    def read(self, job, **arguments):
        return self.text("read_job", job_id=job, **arguments)

    def end(self, job):
        """Its output and end, once it has ended."""
        return wait_until(lambda: (lambda text: "status: running" not in text and text)(
            self.read(job, wait_seconds=5)), what="its end")

    def over(self, command):
        """A job that has ended."""
        job = self.start(command)
        self.end(job)
        return job

    def alive(self, words):
        return words in self.api.sh(self.box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true")


class Start(Case):
    def test_it_goes_on(self):
        text = self.text("start_job", command="echo up; sleep 4801")
        self.assertRegex(text, r"\A(up\n)?\[status: running for \d+ s, job_id \w{16}; next: read_job \{.*?\}, or stop_job \{.*?\}; "
                               rf"sandbox {self.box}\]\Z")
        job = re.search(r"job_id (\w{16})", text).group(1)
        self.assertIn("status: running", self.read(job))
        self.text("stop_job", job_id=job)

    def test_an_early_end_is_seen(self):
        text = self.text("start_job", command="echo no such port >&2; exit 7", sandbox_id=self.box)
        if "status: running" not in text:  # a machine may be slow
            self.assertRegex(text, r"\A\[stderr\]\nno such port\n\[exit code 7; job_id \w{16}\]\Z")
        self.assertIn("/nowhere", self.error("start_job", command="true", cwd="/nowhere", sandbox_id=self.box))

    def test_environment_and_time(self):
        job = self.start("echo $A $B; pwd", env={"A": "b", "B": 8080}, cwd="/tmp")
        self.assertRegex(self.end(job), r"\Ab 8080\n/tmp\n\[exit code 0")
        self.assertRegex(self.end(self.start("sleep 999", timeout_seconds=1)), r"\A\[timed out after 1 s")

    def test_without_a_sandbox(self):
        other = Mcp(self.daemon.tcp(self.daemon.token("nobody")))
        result = other.call("start_job", {"command": "true"})
        self.assertTrue(result["isError"])
        self.assertIn("create_sandbox", result["content"][0]["text"])


class Read(Case):
    def test_pages_make_the_whole(self):
        job = self.over("seq 1 5000; seq 1 300 >&2")
        whole, offset, pages = "", 0, 0
        while True:
            text = self.read(job, stream="stdout", offset=offset, max_bytes=3000)
            match = re.fullmatch(r"(?s)(.*?)(\[\.\.\. \d+ bytes more; next: read_job (\{.*?\})\]\n)?\[exit code 0\]", text)
            whole, pages = whole + match.group(1), pages + 1
            if not match.group(3):
                break
            following = json.loads(match.group(3))
            self.assertEqual((following["job_id"], following["stream"]), (job, "stdout"))
            self.assertEqual(following["offset"], len(whole))
            offset = following["offset"]
        self.assertEqual(whole, "".join(f"{n}\n" for n in range(1, 5001)))
        self.assertGreater(pages, 7)
        both = self.read(job, offset=len(whole) - 10, stderr_offset=1092 - 8)
        self.assertEqual(both, "4999\n5000\n[stderr]\n299\n300\n[exit code 0]")
        self.assertEqual(self.read(job, offset=-10, stream="stdout"), "4999\n5000\n[exit code 0]")
        for same in ("-10", -10.0, " -10"):
            found = self.mcp.call("read_job", {"job_id": job, "offset": same, "stream": "stdout"})
            self.assertEqual(found.get("isError", False), same == " -10", found)
            self.assertEqual(untimed(found["content"][0]["text"]) == "4999\n5000\n[exit code 0]", same != " -10", found)
        for same in (len(whole) - 10, str(len(whole) - 10), float(len(whole) - 10)):
            self.assertEqual(self.read(job, offset=same, stderr_offset="1084"), both)
        self.assertEqual(self.read(job, offset=len(whole), stream="stdout"), "[exit code 0]")
        self.assertEqual(self.read(job, offset=10**9, stream="stdout"), f"[offset 1000000000 is past the end: stdout has {len(whole)} bytes]\n[exit code 0]")
        self.assertEqual(self.read(job, offset=len(whole), stderr_offset=1093), "[offset 1093 is past the end: stderr has 1092 bytes]\n[exit code 0]")
        self.assertEqual(self.read(job, offset=10**9, pattern="5000", stream="stdout").split("\n")[1:],
                         [f"[offset 1000000000 is past the end: stdout has {len(whole)} bytes]", "[exit code 0]"])
        self.assertEqual(self.read(job, offset=-10**9, stream="stdout", max_bytes=4).split("\n")[:2], ["1", "2"])
        self.assertIn("left out", self.read(job))
        self.assertNotIn("[stderr]", self.read(job, stream="stdout"))

    def test_pages_never_cut_a_character(self):
        job = self.over("printf 'ä€😀ä€😀ä€😀'")
        for size in range(1, 12):
            whole, offset = "", 0
            while True:
                text = self.read(job, stream="stdout", offset=offset, max_bytes=size)
                self.assertNotIn("\ufffd", text)
                if size >= 4:
                    self.assertNotIn("\\x", text)
                whole += text.split("\n")[0] if not text.startswith("[") else ""
                match = re.search(r'"offset":(\d+)', text)
                if not match:
                    break
                self.assertGreater(int(match.group(1)), offset)
                offset = int(match.group(1))
            if size >= 4:
                self.assertEqual(whole, "ä€😀ä€😀ä€😀")

    def test_waiting_for_output(self):
        job = self.start("echo one; while [ ! -e /tmp/two ]; do sleep 0.02; done; echo two; sleep 4810", "one\n")
        reading = Background(self.read, job, offset=4, wait_seconds=20)
        self.api.sh(self.box, "touch /tmp/two")
        self.assertRegex(reading.result(), r"\Atwo\n\[status: running .*\"offset\":8,")
        began = time.monotonic()
        self.assertRegex(self.read(job, offset=8, wait_seconds=0.3), r"\A\[status: running")
        self.assertGreaterEqual(time.monotonic() - began, 0.29)
        self.text("stop_job", job_id=job)

    def test_a_batch_is_waited_for(self):
        """Not a turn of the model for each line: what comes without a long pause comes together."""
        job = self.start("for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done")
        self.assertEqual(self.read(job, offset=0, stderr_offset=0, wait_seconds=50), "1\n2\n3\n4\n5\n6\n[exit code 0]")

    def test_until_the_end(self):
        command = "echo one; echo two >&2; while [ ! -e /tmp/%s ]; do sleep 0.02; done; echo three; exit 3"
        for arguments, output in (({"offset": 0}, "one\nthree\n[stderr]\ntwo\n"), ({}, "one\nthree\n[stderr]\ntwo\n"),
                                  ({"pattern": "^t"}, None)):
            job = self.start(command % ("end" + str(len(arguments)) + "".join(arguments)))
            reading = Background(self.read, job, until="end", **arguments)
            wait_until(lambda: "two" in self.read(job), what="its output")
            self.api.sh(self.box, "touch /tmp/end" + str(len(arguments)) + "".join(arguments))
            if output:
                self.assertEqual(reading.result(), output + "[exit code 3]")
                continue
            # As they came: all of stdout first where all of it was there at the first look.
            lines = reading.result().replace("[stderr]\n0:two\n[stdout]\n4:three\n", "4:three\n[stderr]\n0:two\n")
            self.assertEqual(lines, "4:three\n[stderr]\n0:two\n[matching lines: 2, each behind its byte offset]\n[exit code 3]")
        job = self.start("echo one; sleep 4812", "one")
        began = time.monotonic()
        self.assertRegex(self.read(job, until="end", offset=0, wait_seconds=1), r"\Aone\n\[status: running")
        self.assertGreaterEqual(time.monotonic() - began, 0.99)
        self.text("stop_job", job_id=job)
        self.assertIn("`end`, `output`", self.error("read_job", job_id=job, until="over"))

    def test_one_offset_alone_waits_too(self):
        """What the other stream said before is not new."""
        job = self.start("echo one; echo two >&2; sleep 4813", "two")
        for arguments in ({"offset": 4}, {"stderr_offset": 4}, {"offset": 4, "stderr_offset": 4}, {"offset": 99}):
            began = time.monotonic()
            text = self.read(job, wait_seconds=1, **arguments)
            self.assertGreaterEqual(time.monotonic() - began, 0.99, arguments)
            self.assertEqual("[offset 99 is past the end: stdout has 4 bytes so far]" in text, "offset" in arguments and arguments["offset"] == 99)
            self.assertIn('"offset":4,"stderr_offset":4,', text)
        self.text("stop_job", job_id=job)

    def test_waiting_for_the_end(self):
        job = self.start("sleep 0.3; exit 5")
        self.assertEqual(self.end(job), "[exit code 5, no output]")

    def test_searching(self):
        job = self.over("seq 1 3000 | sed 's/^/line /'; echo an error here >&2; printf 'last without end'")
        text = self.read(job, pattern="^line (7|299[89])$|error|without end$")
        self.assertRegex(text, r"\A42:line 7\n\d+:line 2998\n\d+:line 2999\n\d+:last without end\n\[stderr\]\n0:an error here\n"
                               r"\[matching lines: 5, each behind its byte offset\]\n\[exit code 0\]\Z")
        offset = int(re.search(r"(\d+):line 2998", text).group(1))
        self.assertTrue(self.read(job, offset=offset, stream="stdout", max_bytes=20).startswith("line 2998\n"))
        self.assertEqual(self.read(job, pattern="nothing like it"), "[matching lines: 0]\n[exit code 0]")
        text = self.read(job, pattern="line", max_bytes=500)
        self.assertIn("there may be more", text)
        following = json.loads(re.search(r"read_job (\{.*?\})", text).group(1))
        self.assertGreater(following["offset"], 300)
        self.assertIn(f"\n{following['offset']}:line", "\n" + self.read(job, pattern="line", offset=following["offset"], max_bytes=500))

    def test_waiting_for_a_line(self):
        job = self.start("while [ ! -e /tmp/three ]; do sleep 0.02; done; echo noise; echo listening on 80; sleep 4811")
        reading = Background(self.read, job, pattern="listening on [0-9]+", wait_seconds=50)
        self.api.sh(self.box, "touch /tmp/three")
        self.assertRegex(reading.result(), r"\A6:listening on 80\n\[matching lines: 1")
        self.text("stop_job", job_id=job)

    def test_hostile_patterns(self):
        job = self.over("head -c 200000 /dev/zero | tr '\\0' 'a'; echo; seq 1 100000")
        for pattern in ("(a*)*b", "(a|aa)+$", "((((a{0,100}){0,100})*)*)*x", ".{1000}b", "(.*)(.*)(.*)(.*)(.*)[^a]z"):
            Mcp(self.api).call("read_job", {"job_id": job, "pattern": pattern})
        for pattern in ("(", "a{5,2}", "[", "\\1", "x" * 1000):
            self.assertIn("`pattern`", self.error("read_job", job_id=job, pattern=pattern))

    @thorough
    @alone
    def test_nobody_waits_for_a_hostile_pattern(self):
        job = self.over("head -c 200000 /dev/zero | tr '\\0' 'a'; echo; seq 1 100000")
        for pattern in ("(a*)*b", "((((a{0,100}){0,100})*)*)*x"):
            best_of(5, lambda: self.slowest_beside(job, pattern), 1)

    @thorough
    @alone
    def test_a_search_that_would_take_minutes(self):
        """Line by line it is cheap enough: it stops in between and can be gone on with, and others are served."""
        job = self.over("seq 1 200000")
        best_of(3, lambda: self.slowest_beside(job, "(.?.?.?.?.?.?){900}y", 2), 1)
        self.assertIn("there may be more", self.read(job, pattern="(.?.?.?.?.?.?){900}y"))

    def slowest_beside(self, job, pattern, readers=1):
        """Of others' requests while that is searched for: how long it took."""
        taken, done = [0.0], threading.Event()

        def other():
            while not done.is_set():
                began = time.monotonic()
                self.api.get("/healthz")
                taken.append(time.monotonic() - began)
        thread = threading.Thread(target=other)
        thread.start()
        try:
            at_once(lambda _: Mcp(self.daemon.client()).call("read_job", {"job_id": job, "pattern": pattern}), range(readers))
        finally:
            done.set()
            thread.join(60)
        self.assertGreater(len(taken), 1)
        return max(taken)

    @busy
    def test_what_is_not_kept(self):
        job = self.over("head -c 60000000 /dev/zero | tr '\\0' '\\n' | head -c 50000000; echo end")
        text = self.read(job, offset=20_000_000, stream="stdout", max_bytes=100)
        self.assertRegex(text, r"\A\[\d+ bytes are no longer kept\]\n")
        self.assertRegex(self.read(job), r"(?s)\[\.\.\. \d+ bytes, over \d+ lines left out")

    def test_wrong_arguments(self):
        for arguments, words in (({}, "`job_id`"), ({"stream": "stdin"}, "`stdout`, `stderr`"), ({"offset": "x"}, "`offset`"),
                                 ({"stderr_offset": 1.5}, "`stderr_offset`"), ({"wait_seconds": -1}, "`wait_seconds`"),
                                 ({"max_bytes": 0}, "`max_bytes`"), ({"nonsense": 1}, "`nonsense`")):
            text = self.error("read_job", **({"job_id": "aaaaaaaaaaaaaaaa"} if arguments else {}), **arguments)
            self.assertIn(words, text)
            self.assertIn("Example: read_job", text)


class Find(Case):
    def test_an_unknown_one_lists_the_newest(self):
        job = self.over("echo 1")
        for wrong in ("aaaaaaaaaaaaaaaa", "nonsense", "../../x", "x" * 5000):
            text = self.error("read_job", job_id=wrong, offset=0)
            self.assertIn("there is no job", text)
            self.assertIn(f"{job} in sandbox {self.box}: exited: echo 1", text)
            # The example is a call that works.
            self.assertTrue(text.endswith('\nExample: read_job {"job_id":"%s","offset":0}' % job), text)
            self.assertIn("there is no job", self.error("stop_job", job_id=wrong))

    def test_code_is_listed_by_its_first_line(self):
        self.text("run_code", language="python", code="\n  \nimport sys\nprint(1)", sandbox_id=self.box)
        self.text("run_code", language="bash", code="echo two; true", sandbox_id=self.box)
        self.text("run_code", language="node", code="const three = 3", context_id="listed", sandbox_id=self.box)
        text = self.error("read_job", job_id="nonsense")
        listed = Mcp(self.api, "/mcp/x/jobs").text("list_jobs", {"sandbox_id": self.box})
        for words in (": python: import sys\n", ": bash: echo two; true\n", ": node context: const three = 3\n"):
            self.assertIn(words, text)
            self.assertIn(words, listed)
        self.assertNotIn("CAISSON_DRIVER", text + listed)

    def test_the_sandbox_may_be_named(self):
        job = self.over("echo 2")
        other = self.sandbox()
        self.assertIn("2\n", self.read(job, sandbox_id=self.box))
        self.assertIn("there is no job", self.error("read_job", job_id=job, sandbox_id=other))
        self.assertIn(self.box, self.error("read_job", job_id=job, sandbox_id="nosuchthing"))
        self.assertIn("2\n", self.read(job))

    def test_of_a_sandbox_that_has_ended(self):
        box = self.sandbox()
        text = self.text("start_job", command="sleep 4820", sandbox_id=box)
        job = re.search(r"job_id (\w{16})", text).group(1)
        self.remove(box)
        text = self.error("read_job", job_id=job)
        self.assertRegex(text, rf"job `{job}` is gone with its sandbox: sandbox `{box}` ended at ")

    def test_a_foreign_one_is_not_there(self):
        job = self.over("echo 3")
        foreign = Mcp(self.daemon.tcp(self.daemon.token("foreign")))
        for tool in ("read_job", "stop_job"):
            result = foreign.call(tool, {"job_id": job})
            self.assertTrue(result["isError"])
            self.assertIn("There are no jobs", result["content"][0]["text"])
        bound = Mcp(self.daemon.tcp(self.daemon.token(sandbox=self.sandbox())))
        self.assertTrue(bound.call("read_job", {"job_id": job})["isError"])
        reader = Mcp(self.daemon.tcp(self.daemon.token(scopes=("sandboxes:read",))))
        self.assertIn("3\n", reader.text("read_job", {"job_id": job}))

    def test_a_paused_sandbox_is_not_woken_to_read(self):
        box = self.sandbox()
        text = self.text("start_job", command="echo here; sleep 4821", sandbox_id=box)
        job = re.search(r"job_id (\w{16})", text).group(1)
        wait_until(lambda: "here" in self.read(job), what="its first words")
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.assertTrue(self.read(job).startswith("here\n[status: running"))
        self.assertEqual(self.api.get("/v1/sandboxes/" + box)["state"], "paused")
        self.assertRegex(self.text("stop_job", job_id=job), ENDED)


class Stop(Case):
    @long
    def test_term_then_kill(self):
        for _ in range(5):
            job = self.start("echo up; sleep 4830 & sleep 4831", "up")
            text = self.text("stop_job", job_id=job)
            if "exit code 137" not in text:  # where nothing moved for three seconds it was killed
                break
        self.assertRegex(text, r"\Aup\n\[killed by SIGTERM, exit code 143")
        wait_until(lambda: not (self.alive("sleep 4830") or self.alive("sleep 4831")), what="the end of both")
        self.assertRegex(self.text("stop_job", job_id=job), r"had ended already: killed, exit code 143")
        job = self.start("trap '' TERM; setsid sleep 4832 & echo up; while :; do sleep 0.1; done", "up")
        self.assertIn("[killed, exit code 137", self.text("stop_job", job_id=job))
        wait_until(lambda: not self.alive("sleep 4832"), what="the end of all it started")

    @long
    def test_a_signal(self):
        job = self.start("trap 'echo got it' USR1; echo up; while :; do :; done", "up")
        self.assertRegex(self.text("stop_job", job_id=job, signal="USR1"), r"\Aup\n(got it\n)?\[status: running")
        wait_until(lambda: self.read(job).startswith("up\ngot it\n[status: running"), what="its words")
        self.assertRegex(self.text("stop_job", job_id=job, signal="SIGKILL"), r"exit code 137|status: running")
        self.assertIn("exit code 137", self.end(job))
        self.assertIn("`signal`", self.error("stop_job", job_id=job, signal="NOPE"))

    def test_the_last_lines_alone(self):
        job = self.start("seq 1 3000; echo bad >&2; echo last; sleep 4834", "last\n")
        text = self.text("stop_job", job_id=job)
        self.assertTrue(text.startswith(f'[the last lines; all of it: read_job {{"job_id":"{job}"}}]\n'), text[:200])
        self.assertRegex(text, r"(?s)\n2999\n3000\nlast\n\[stderr\]\nbad\n\[killed")
        self.assertLess(len(text), 1500)
        self.assertNotIn("left out", text)
        self.assertEqual(int(text.split("\n")[1]) + 1, int(text.split("\n")[2]))  # no line is cut

    def test_what_it_left_running(self):
        job = self.over("sleep 4833 >/dev/null 2>&1 &")
        wait_until(lambda: self.alive("sleep 4833"), what="what it has left running")
        self.assertIn("what it had left running was sent SIGKILL", self.text("stop_job", job_id=job))
        wait_until(lambda: not self.alive("sleep 4833"), what="its end")


class Tasks(Case):
    """run_shell and run_code as tasks: no time limit of the call's, cancelled as a whole."""

    def begin(self, tool, arguments):
        made = self.mcp.call(tool, {**arguments, "sandbox_id": self.box}, capabilities=TASKS)
        self.assertEqual((made["resultType"], made["status"]), ("task", "working"))
        return made["taskId"]

    def task(self, task):
        return self.mcp.modern("tasks/get", {"taskId": task}, capabilities=TASKS)

    def test_to_the_end(self):
        task = self.begin("run_shell", {"command": "echo begun; while [ ! -e /tmp/four ]; do sleep 0.05; done; echo over; exit 4"})
        wait_until(lambda: self.task(task).get("statusMessage", "").endswith("begun"), what="its progress")
        self.api.sh(self.box, "touch /tmp/four")
        done = wait_until(lambda: (lambda now: now["status"] != "working" and now)(self.task(task)), what="its end")
        self.assertEqual(done["status"], "completed")
        self.assertRegex(done["result"]["content"][0]["text"], r"\Abegun\nover\n\[exit code 4")
        task = self.begin("run_code", {"language": "python", "code": "6 * 7"})
        done = wait_until(lambda: (lambda now: now["status"] != "working" and now)(self.task(task)), what="its end")
        self.assertEqual(untimed(done["result"]["content"][0]["text"]), "[result]\n42\n[exit code 0]")

    def test_cancelling_kills(self):
        for tool, arguments in (("run_shell", {"command": "setsid sleep 4840 & sleep 4841"}),
                                ("run_code", {"language": "bash", "code": "setsid sleep 4840 & sleep 4841"})):
            task = self.begin(tool, arguments)
            wait_until(lambda: self.alive("sleep 4840") and self.alive("sleep 4841"), what="the command")
            self.mcp.modern("tasks/cancel", {"taskId": task}, capabilities=TASKS)
            wait_until(lambda: not (self.alive("sleep 4840") or self.alive("sleep 4841")), what="the end of the tree")
            self.assertEqual(self.task(task)["status"], "cancelled")


class Restart(Case):
    @long
    def test_a_job_outlives_the_daemon(self):
        job = self.start("echo before; while [ ! -e /tmp/five ]; do sleep 0.05; done; echo after; sleep 4850")
        call = Background(Mcp(self.api).call, "run_shell", {"command": "echo mine; sleep 4851", "sandbox_id": self.box})
        wait_until(lambda: self.alive("sleep 4851"), what="the command")
        self.daemon.stop()
        call.join(60)
        self.daemon.start()
        wait_until(lambda: self.alive("sleep 4851"), what="the command, which goes on")
        if not call.error:  # the connection may be cut first
            self.assertIn("job_id", call.result()["content"][0]["text"])
        self.api.sh(self.box, "touch /tmp/five")
        wait_until(lambda: self.read(job, wait_seconds=2).startswith("before\nafter\n"), what="its output")
        self.assertRegex(self.text("stop_job", job_id=job), ENDED)
