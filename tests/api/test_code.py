"""Code: run in a fresh interpreter and in contexts, for python, node and bash. Results, errors, interrupts,
contexts that die, daemons that do, and the same under another API's names."""
import base64
import json
import os
import re
import signal
import unittest

from caisson import Background, DaemonTest, wait_until
from marks import busy, long

LANGUAGES = ("python", "node", "bash")
PNG = b"\x89PNG\r\n\x1a\n"


class Code(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600, memory_mb=512)["id"]
        cls.base = f"/v1/sandboxes/{cls.box}"
        cls.shared = {}

    def context(self, language="python", box=None, **fields):
        base = f"/v1/sandboxes/{box or self.box}/contexts"
        made = self.api.post(base, {"language": language, **fields})
        self.addCleanup(self.gone, f"{base}/{made['id']}")
        return f"{base}/{made['id']}"

    def gone(self, path):
        try:
            self.api.delete(path)
        except Exception as error:
            if getattr(error, "status", 0) not in (404, 410):
                raise

    def common(self, language):
        """One context for all tests that leave theirs as it was."""
        if language not in self.shared:
            made = self.api.post(self.base + "/contexts", {"language": language})
            self.shared[language] = f"{self.base}/contexts/{made['id']}"
        return self.shared[language]

    def run_cell(self, path, code, **fields):
        return self.api.post(path + "/run", {"code": code, "timeout_seconds": 60, **fields})

    def cell(self, language, code, **fields):
        return self.run_cell(self.common(language), code, **fields)

    def once(self, language, code, **fields):
        return self.api.post(self.base + "/code", {"language": language, "code": code, "timeout_seconds": 60, **fields})

    def plain(self, result):
        self.assertIsNone(result["error"], result)
        return [bundle.get("text/plain") for bundle in result["results"]]

    def events(self, path, body):
        response, connection = self.api.raw("POST", path, body, {"Accept": "text/event-stream"})
        text = response.read().decode()
        connection.close()
        self.assertEqual(response.status, 200, text)
        found = []
        for block in text.split("\n\n"):
            match = re.fullmatch(r"event: (\w+)\ndata: (.*)", block)
            if match:
                found.append((match[1], json.loads(match[2])))
        return found

    def marker(self, path):
        """A file that a cell touches when it has come so far."""
        wait_until(lambda: self.api.exec(self.box, ["test", "-e", path])["exit_code"] == 0, 30, what=path)

    # --- one piece ---

    def test_once(self):
        for language, code, plain, out in (
                ("python", "print('hällo', end='')\nx = 20\nx + 22", "42", "hällo"),
                ("py", "1", "1", ""),
                ("node", "console.log('hällo'); const x = 20; x + 22", "42", "hällo\n"),
                ("javascript", "await Promise.resolve(3)", "3", ""),
                ("bash", "printf hällo", None, "hällo"),
                ("sh", "cat; printf x", None, "x")):
            with self.subTest(language=language, code=code):
                result = self.once(language, code)
                self.assertEqual((result["stdout"], result["stderr"], result["exit_code"]), (out, "", 0), result)
                self.assertEqual(self.plain(result), [plain] if plain else [])
                self.assertIsNone(result["context_id"])

    def test_once_ends(self):
        for language, code, status in (
                ("python", "import sys; sys.exit(3)", 3), ("python", "import os; os._exit(4)", 4),
                ("python", "raise SystemExit", 0), ("node", "process.exit(3)", 3), ("node", "process.exitCode = 5", 5),
                ("bash", "exit 3", 3), ("bash", "set -e; false; echo no", 1),
                ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137)):
            with self.subTest(language=language, code=code):
                result = self.once(language, code)
                self.assertEqual((result["exit_code"], result["stdout"]), (status, ""), result)

    def test_once_waits_for_what_it_began(self):
        result = self.once("node", "setTimeout(() => console.log('late'), 50); 'now'")
        self.assertEqual((result["stdout"], self.plain(result)), ("late\n", ["'now'"]))
        code = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()\n'now'"
        result = self.once("python", code)
        self.assertEqual((result["stdout"], self.plain(result)), ("late\n", ["'now'"]))

    def test_once_options(self):
        result = self.once("python", "import os; print(os.environ['A'], os.getcwd(), os.getuid())",
                           env={"A": "é"}, cwd="/tmp", user="1000")
        self.assertEqual(result["stdout"], "é /tmp 1000\n")
        for language, code in (("python", "while True: pass"), ("node", "while (true);"), ("bash", "sleep 60")):
            result = self.once(language, code, timeout_seconds=0.4)
            self.assertTrue(result["timed_out"], result)
            self.assertEqual(result["exit_code"], 124)

    def test_refusals(self):
        code = self.base + "/code"
        self.refused(422, "language.unavailable", self.api.post, code, {"language": "ruby", "code": ""})
        self.refused(400, "request.invalid", self.api.call, "POST", code, {"language": "python"}, checked=False)
        self.refused(400, "request.invalid", self.api.call, "POST", code, {"code": "", "colour": 1}, checked=False)
        self.refused(400, "request.invalid", self.api.post, code, {"code": "", "timeout_ms": 1, "timeout_seconds": 1})
        self.refused(404, "context.not_found", self.api.post, code, {"code": "", "context": "aaaaaaaaaaaaaaaa"})
        self.refused(400, "id.malformed", self.api.call, "GET", self.base + "/contexts/x", checked=False)
        context = self.common("python").rsplit("/", 1)[1]
        self.refused(400, "request.invalid", self.api.post, code, {"code": "", "context": context, "cwd": "/tmp"})
        self.refused(422, "exec.bad_cwd", self.api.post, code, {"code": "", "cwd": "/nowhere"})
        for language, program in (("python", "python3"), ("bash", "bash")):
            error = self.refused(422, "language.unavailable", self.api.post, code,
                                 {"language": language, "code": "", "env": {"PATH": "/nowhere"}})
            self.assertIn(f"`{program}`", error.body["error"])
            self.assertRegex(error.body["error"], "there: python node bash")
        self.refused(422, "language.unavailable", self.api.post, self.base + "/contexts",
                     {"language": "python", "env": {"PATH": "/nowhere"}})

    def test_another_workspace(self):
        stranger = self.daemon.tcp(self.daemon.token(workspace="other"))
        context = self.common("python")
        for method, path in (("GET", context), ("POST", context + "/run"), ("DELETE", context), ("POST", self.base + "/code")):
            body = {"code": "1"} if method == "POST" else None
            self.refused(404, "sandbox.not_found", stranger.call, method, path, body)
        reader = self.daemon.tcp(self.daemon.token(scopes=("sandboxes:read",)))
        self.refused(403, "auth.forbidden", reader.post, context + "/run", {"code": "1"})
        other = self.sandbox()
        self.refused(404, "context.not_found", self.api.get, f"/v1/sandboxes/{other}/contexts/{context.rsplit('/', 1)[1]}")

    # --- what stays, what comes back ---

    def test_state_stays(self):
        for language, first, second, out in (
                ("python", "import math\nkept = [1]\ndef f(): return math.pi", "kept.append(2); print(kept, f())", "[1, 2] 3.14"),
                ("node", "const kept = [1]; let n = 1; function f() { return n }", "kept.push(2); n++; console.log(kept, f())", "[ 1, 2 ] 2"),
                ("bash", "kept=1; f() { echo f$1; }; cd /tmp; export E=x", 'echo $kept $(f 2) $PWD; env | grep ^E=', "1 f2 /tmp\nE=x")):
            with self.subTest(language=language):
                context = self.context(language)
                self.assertEqual(self.run_cell(context, first)["exit_code"], 0)
                result = self.run_cell(context, second)
                self.assertTrue(result["stdout"].startswith(out), result)
                self.assertEqual((result["cell"], self.api.get(context)["cells"]), (2, 2))

    def test_declared_anew(self):
        self.assertEqual(self.plain(self.cell("node", "const again = 1; let more = 2; again")), ["1"])
        self.assertEqual(self.plain(self.cell("node", "const again = 5; let more = 6; again + more")), ["11"])

    def test_results(self):
        rich = ("class Rich:\n def _repr_html_(self): return '<b>é</b>'\n def _repr_svg_(self): return '<svg/>'\n"
                " def _repr_png_(self): return b'\\x89PNG'\n def _repr_json_(self): return {'a': 1}\n"
                " def _repr_markdown_(self): return '*m*'\n def _repr_latex_(self): return '$x$'\n"
                " def __repr__(self): return 'Rich'\nRich()")
        self.assertEqual(self.cell("python", rich)["results"], [{
            "text/html": "<b>é</b>", "image/svg+xml": "<svg/>", "image/png": base64.b64encode(b"\x89PNG").decode(),
            "application/json": '{"a": 1}', "text/markdown": "*m*", "text/latex": "$x$", "text/plain": "Rich"}])
        result = self.cell("python", "display(1, 'é')\n{'a': [1, None]}")
        self.assertEqual(self.plain(result), ["1", "'é'", "{'a': [1, None]}"])
        self.assertEqual(json.loads(result["results"][2]["application/json"]), {"a": [1, None]})
        self.assertEqual(self.cell("python", "x = 1")["results"], [])
        self.assertEqual(self.cell("python", "None")["results"], [])
        self.assertEqual(self.plain(self.cell("python", "7; _ = 8; 9")), ["9"])
        self.assertEqual(self.plain(self.cell("python", "_ + 1")), ["10"])
        self.assertNotIn("application/json", self.cell("python", "[float('nan'), {1: 2}]")["results"][0])
        result = self.cell("node", "({a: [1, 'é']})")
        self.assertEqual(result["results"], [{"application/json": '{"a":[1,"é"]}', "text/plain": "{ a: [ 1, 'é' ] }"}])
        self.assertEqual(self.plain(self.cell("node", "display(1); 10n ** 20n")), ["1", "100000000000000000000n"])

    def test_results_too_large(self):
        result = self.cell("python", "'é' * 3_000_000")
        self.assertEqual(result["results_omitted"], [{"result": 0, "type": "text/plain", "bytes": 6_000_002}])
        self.assertLessEqual(len(result["results"][0]["text/plain"].encode()), 1 << 20)
        result = self.cell("python", "class Big:\n def _repr_png_(self): return b'x' * 9_000_000\n def __repr__(self): return 'big'\nBig()")
        self.assertEqual(result["results"], [{"text/plain": "big"}])
        self.assertEqual(result["results_omitted"], [{"result": 0, "type": "image/png", "bytes": 9_000_000}])
        result = self.cell("python", "for i in range(70): display(i)")
        self.assertEqual((len(result["results"]), result["results_omitted"]), (64, [{"count": 6}]))
        result = self.cell("node", "'x'.repeat(3_000_000)")
        self.assertEqual(result["results_omitted"][0]["type"], "text/plain")

    def test_figures(self):
        code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.figure(); plt.plot([3]);\nprint(plt.get_backend())"
        result = self.cell("python", code)
        self.assertIsNone(result["error"], result)
        self.assertEqual(result["stdout"].lower(), "agg\n", result)
        figures = [bundle["image/png"] for bundle in result["results"] if "image/png" in bundle]
        self.assertEqual(len(figures), 2, result)
        self.assertTrue(base64.b64decode(figures[0]).startswith(PNG))
        self.assertEqual(self.cell("python", "plt.get_fignums()")["results"][0]["text/plain"], "[]")

    def test_errors(self):
        result = self.cell("python", "def inner():\n    return 1 / 0  # hé\n\ninner()")
        error = result["error"]
        self.assertEqual((error["name"], error["value"], result["exit_code"]), ("ZeroDivisionError", "division by zero", 1))
        self.assertIn("return 1 / 0  # hé", error["traceback"])
        self.assertIn(f'File "<cell {result["cell"]}>", line 2, in inner', error["traceback"])
        self.assertNotIn("<caisson>", error["traceback"])
        error = self.cell("python", "x = (1,\n  2")["error"]
        self.assertEqual(error["name"], "SyntaxError")
        self.assertIn("x = (1,", error["traceback"])
        error = self.cell("python", "try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('é') from e")["error"]
        self.assertEqual((error["name"], error["value"]), ("ValueError", "é"))
        self.assertIn("KeyError: 'a'", error["traceback"])
        error = self.cell("node", "function inner() { throw new TypeError('é') }\ninner()")["error"]
        self.assertEqual((error["name"], error["value"]), ("TypeError", "é"))
        self.assertRegex(error["traceback"], r"TypeError: é\n\s+at inner \(cell-\d+\.js:1:\d+\)\n\s+at cell-\d+\.js:2:1$")
        self.assertEqual(self.cell("node", "let (")["error"]["name"], "SyntaxError")
        result = self.cell("bash", "nosuchcommand")
        self.assertEqual((result["exit_code"], result["error"]), (127, None))
        self.assertIn("nosuchcommand", result["stderr"])

    def test_exits_end_the_cell_only(self):
        for language, code in (("python", "raise SystemExit(3)"), ("node", "process.exit(3)"), ("bash", "f() { exit 3; }; f; echo no")):
            result = self.cell(language, code)
            self.assertEqual((result["exit_code"], result["error"], result["stdout"], result["stderr"]), (3, None, "", ""), language)
        result = self.cell("python", "import sys; sys.exit('why é')")
        self.assertEqual((result["exit_code"], result["stderr"]), (1, "why é\n"))

    def test_await(self):
        self.assertEqual(self.plain(self.cell("python", "import asyncio\nawait asyncio.sleep(0.01, 'done')")), ["'done'"])
        self.cell("python", "async def later():\n  await asyncio.sleep(0)\n  return 5\ntask = asyncio.get_event_loop().create_task(later())")
        self.assertEqual(self.plain(self.cell("python", "await task")), ["5"])
        self.assertEqual(self.plain(self.cell("node", "const waited = await new Promise(r => setTimeout(() => r(7), 10)); waited")), ["7"])

    def test_input(self):
        for code in ("input('? ')", "import sys; sys.stdin.readline()"):
            error = self.cell("python", code)["error"]
            self.assertEqual(error["name"], "EOFError")
            self.assertIn("no standard input", error["value"])
        self.assertEqual(self.plain(self.cell("python", "import os; os.read(0, 10)")), ["b''"])
        self.assertEqual(self.cell("python", "import subprocess; subprocess.run(['cat'])")["exit_code"], 0)
        self.assertEqual(self.plain(self.cell("node", "require('fs').readFileSync(0).length")), ["0"])
        self.assertEqual(self.plain(self.cell("node", "require('child_process').spawnSync('cat', {stdio: 'inherit'}).status")), ["0"])
        self.assertEqual(self.cell("bash", "read line; echo $?; cat")["stdout"], "1\n")

    def test_source(self):
        self.assertEqual(self.cell("python", "größe = '€𝄞'\nprint(größe, len(größe))")["stdout"], "€𝄞 2\n")
        self.assertEqual(self.cell("node", "const größe = '€𝄞'; console.log(größe)")["stdout"], "€𝄞\n")
        self.assertEqual(self.cell("bash", "x='€ \\\\ %41 $'\"'\"'a'\nprintf '%s\\n' \"$x\"")["stdout"], "€ \\\\ %41 $'a\n")
        for language, code, out in (("python", "pass\n", ""), ("node", "", ""), ("bash", "", "")):
            self.assertEqual((self.cell(language, code)["exit_code"], out), (0, ""))
        long = "#" + "x" * 900_000 + "\n"
        self.assertEqual(self.cell("python", long + "print('end')")["stdout"], "end\n")

    # --- output ---

    def test_a_hundred_megabytes(self):
        result = self.cell("python", "import sys\nfor i in range(1600): sys.stdout.write('é' * 32768)\nprint('the end')")
        self.assertEqual((result["exit_code"], result["stdout_bytes"], result["stdout_truncated"]), (0, 1600 * 65536 + 8, True))
        self.assertLess(len(result["stdout"]), 1 << 20)
        self.assertTrue(result["stdout"].endswith("é\nthe end\n") or result["stdout"].endswith("ééthe end\n"))
        self.assertIn("bytes are not shown", result["stdout"])
        offset = result["stdout_offset"] + result["stdout_bytes"] - 8
        response, connection = self.api.raw("GET", f"{self.base}/execs/{result['exec_id']}/output?from={offset}")
        self.assertEqual(response.read(), b"the end\n")
        connection.close()
        self.assertEqual(self.plain(self.cell("python", "1 + 1")), ["2"])

    def test_bytes_that_are_no_text(self):
        code = "import os; os.write(1, bytes([0xff, 0xfe, 0x80, 0x41])); os.write(2, b'text')"
        for result in (self.cell("python", code), self.api.post(self.base + "/code", {"language": "python", "code": code})):
            self.assertNotIn("stdout", result)
            self.assertEqual(base64.b64decode(result["stdout_base64"]), b"\xff\xfe\x80A")
            self.assertEqual((result["stdout_bytes"], result["encoding"], result["stderr"]), (4, "base64", "text"))
        # Clients of the compatible routes know text alone.
        result = self.api.post(self.base + "/repl", {"language": "python", "code": code})
        self.assertEqual((result["stdout"], result["stdout_bytes"]), ("\ufffd\ufffd\ufffdA", 4))
        self.assertNotIn("encoding", result)

    def test_cells_have_their_own_output(self):
        for language, code in (("python", "print({0}, flush=True)\nimport os; os.write(2, b'{0}')"),
                               ("node", "console.log({0}); process.stderr.write('{0}')"), ("bash", "echo {0}; printf {0} >&2")):
            for number in range(3):
                result = self.cell(language, code.format(number))
                self.assertEqual((result["stdout"], result["stderr"]), (f"{number}\n", f"{number}"), language)

    def test_streamed_order(self):
        """A result comes behind what was printed before it, and before the cell is over."""
        for language, code in (("python", "for i in range(30):\n  print('<%d>' % i)\n  display(i)"),
                               ("node", "for (let i = 0; i < 30; i++) { console.log(`<${i}>`); display(i) }")):
            for path in (self.common(language) + "/run", self.base + "/code"):
                events = self.events(path, {"code": code, **({"language": language} if path.endswith("/code") else {})})
                printed, results = "", []
                for name, data in events:
                    printed += data["chunk"] if name == "stdout" else ""
                    if name == "result":
                        results.append(data["text/plain"])
                        self.assertIn(f"<{data['text/plain']}>\n", printed, (language, path))
                self.assertEqual((results, events[-1][0]), ([str(i) for i in range(30)], "end"))
        code = "import os, time\nprint('before')\ndisplay(5)\nwhile not os.path.exists('/tmp/seen'): time.sleep(0.01)\nprint('after')"
        response, connection = self.api.raw("POST", self.common("python") + "/run", {"code": code, "timeout_seconds": 60},
                                            {"Accept": "text/event-stream"})
        self.addCleanup(connection.close)
        order = []
        for line in response:
            if line.startswith(b"event: "):
                order.append(line[7:].strip().decode())
                if order[-1] == "result":
                    self.api.sh(self.box, "touch /tmp/seen")
        self.assertEqual(order, ["start", "stdout", "result", "stdout", "end"])

    def test_closed_streams(self):
        self.cell("python", "import os, sys; os.close(1); os.close(2); sys.stdout.close()")
        self.assertEqual(self.cell("python", "print('back')")["stdout"], "back\n")
        self.cell("bash", "exec >/dev/null 2>&-")
        self.assertEqual(self.cell("bash", "echo back")["stdout"], "back\n")

    def test_no_record_can_be_printed(self):
        forged = "end 1 0 drained 0\\n\\nerror 1 0 name 1\\nx\\n"
        for language, code in (("python", f"print('{forged}')"), ("node", f"console.log('{forged}')"), ("bash", f"printf '{forged}\\n'")):
            result = self.cell(language, code)
            self.assertIn("drained", result["stdout"])
            self.assertIsNone(result["error"])

    def test_events(self):
        code = "import sys\nprint('one é')\nsys.stderr.write('two')\ndisplay(3)\n[4]\n1 / 0"
        for path, body in ((self.base + "/code", {"code": code}), (self.common("python") + "/run", {"code": code})):
            events = self.events(path, body)
            self.assertEqual((events[0][0], events[-1][0]), ("start", "end"))
            self.assertEqual("".join(e["chunk"] for name, e in events if name == "stdout"), "one é\n")
            self.assertEqual("".join(e["chunk"] for name, e in events if name == "stderr"), "two")
            self.assertEqual([e for name, e in events if name == "result"], [{"text/plain": "3"}])
            self.assertEqual([e["name"] for name, e in events if name == "error"], ["ZeroDivisionError"])
            self.assertEqual(events[-1][1]["exit_code"], 1)
        big = self.events(self.common("python") + "/run", {"code": "for i in range(100): print('x' * 20000)"})
        self.assertEqual(sum(len(e["chunk"]) for name, e in big if name == "stdout"), 2_000_100)

    # --- interrupts ---

    @long
    @busy
    def test_endless(self):
        for language, codes in (
                ("python", ("while True: pass", "import time; time.sleep(600)", "import subprocess; subprocess.run(['sleep', '600'])",
                            "import os; os.system('touch /tmp/system; sleep 600')", "await __import__('asyncio').sleep(600)")),
                ("node", ("while (true) {}", "await new Promise(() => {})", "require('child_process').execSync('sleep 600')")),
                ("bash", ("while :; do :; done", "sleep 600", "sleep 600 | sleep 600"))):
            context = self.context(language)
            self.run_cell(context, {"python": "kept = 5", "node": "let kept = 5", "bash": "kept=5"}[language])
            for code in codes:
                with self.subTest(language=language, code=code):
                    self.endless(context, code)
            result = self.run_cell(context, {"python": "print(kept)", "node": "console.log(kept)", "bash": "echo $kept"}[language])
            self.assertEqual(result["stdout"], "5\n", result)
            wait_until(lambda: self.api.sh(self.box, "ps -eo args | grep -c '[s]leep 600' || true") == "0\n",
                       what=f"the end of what {language} began")

    def endless(self, context, code):
        """os.system() itself ignores interrupts: its command is ended, and it returns. If the machine stalls it may not
        have come so far: then it is given more time."""
        for seconds in (0.4, 3, 12):
            result = self.run_cell(context, code, timeout_seconds=seconds)
            self.assertTrue(result["timed_out"] and result["interrupted"], result)
            self.assertFalse(result["context_ended"], result)
            if "os.system" not in code or self.api.exec(self.box, ["rm", "/tmp/system"])["exit_code"] == 0:
                break
        self.assertEqual(result["exit_code"] == 0, "os.system" in code, result)

    def test_interrupt_on_request(self):
        context = self.context()
        self.assertEqual(self.api.post(context + "/interrupt")["interrupted"], False)
        result = Background(self.run_cell, context, "open('/tmp/runs', 'w').close()\nwhile True: pass")
        self.marker("/tmp/runs")
        self.assertEqual(self.api.get(context)["state"], "busy")
        self.assertEqual(self.api.post(context + "/interrupt")["interrupted"], True)
        result = result.result()
        self.assertEqual((result["interrupted"], result["timed_out"], result["error"]["name"]), (True, False, "KeyboardInterrupt"))
        self.assertEqual(self.plain(self.run_cell(context, "6 * 7")), ["42"])

    def test_interrupt_spares_earlier_processes(self):
        context = self.context()
        self.run_cell(context, "import subprocess\nserver = subprocess.Popen(['sleep', '601'])")
        quick = True
        for seconds in (0.4, 3, 12):  # if the machine stalls the child may not have been begun
            result = self.run_cell(context, "import time\nchild = subprocess.Popen(['sleep', '602'])\ntime.sleep(600)",
                                   timeout_seconds=seconds)
            self.assertTrue(result["timed_out"])
            quick = quick and result["duration_ms"] < seconds * 1000 + 400
            if self.plain(self.run_cell(context, "'child' in globals()")) == ["True"]:
                break
        self.assertEqual(self.plain(self.run_cell(context, "child.wait(20)")), ["-9"])
        if quick:  # else all of the context was interrupted
            self.assertEqual(self.plain(self.run_cell(context, "str(server.poll())")), ["'None'"])

    def test_client_gone(self):
        context = self.context()
        response = self.api.connection()
        response.request("POST", context + "/run", json.dumps({"code": "open('/tmp/gone', 'w').close()\nwhile True: pass"}))
        self.marker("/tmp/gone")
        response.close()
        wait_until(lambda: self.api.get(context)["state"] == "idle", 30)
        cell = self.api.get(context + "/cell")
        self.assertEqual((cell["cell"], cell["interrupted"], cell["state"]), (1, True, "ended"))

    # --- one at a time, several contexts ---

    def test_queue(self):
        context = self.context()
        first = Background(self.run_cell, context, "import time\nopen('/tmp/first', 'w').close()\n"
                           "import os\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\norder = [0]")
        self.marker("/tmp/first")
        rest = []
        for number in range(1, 17):
            rest.append(Background(self.run_cell, context, f"order.append({number})\nlen(order)"))
            wait_until(lambda: self.api.get(context)["waiting"] == number, 30)
        self.refused(409, "context.busy", self.run_cell, context, "1")
        self.api.sh(self.box, "touch /tmp/go")
        first.result()
        self.assertEqual([self.plain(cell.result())[0] for cell in rest], [str(n + 1) for n in range(1, 17)])

    def test_several(self):
        box = self.sandbox()
        base = f"/v1/sandboxes/{box}/contexts"
        made = [self.api.post(base, {"language": "bash", "env": {"N": str(n)}, "cwd": "/tmp"}) for n in range(8)]
        self.refused(429, "quota.exceeded", self.api.post, base, {"language": "bash"})
        for number, context in enumerate(made):
            self.assertEqual(self.run_cell(f"{base}/{context['id']}", "echo $N $PWD")["stdout"], f"{number} /tmp\n")
        self.assertEqual([c["id"] for c in self.api.get(base)["contexts"]], [c["id"] for c in made])
        self.api.delete(f"{base}/{made[0]['id']}")
        self.refused(404, "context.not_found", self.api.get, f"{base}/{made[0]['id']}")
        self.api.post(base, {"language": "bash"})
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}")["state"], "running")

    def test_fork_and_threads(self):
        code = ("import os\npid = os.fork()\nif pid == 0:\n  print('child', flush=True)\n  raise ValueError('of the child')\n"
                "os.waitpid(pid, 0)[1] >> 8")
        result = self.cell("python", code)
        self.assertEqual((self.plain(result), result["stdout"]), (["1"], "child\n"))
        self.assertIn("of the child", result["stderr"])
        self.assertEqual(self.plain(self.cell("python", "os.getpid() != pid")), ["True"])
        code = "import multiprocessing as m\ndef double(x): return 2 * x\nwith m.Pool(2) as pool: result = pool.map(double, [1, 2, 3])\nresult"
        self.assertEqual(self.plain(self.cell("python", code)), ["[2, 4, 6]"])
        code = "import threading\nt = threading.Thread(target=lambda: print('thread')); t.start(); t.join()"
        self.assertEqual(self.cell("python", code)["stdout"], "thread\n")

    # --- the end of a context ---

    def test_death(self):
        for language, code, how in (
                ("python", "print('last words', flush=True)\nimport os; os._exit(4)", "exited with code 4"),
                ("python", "print('last words', flush=True)\nimport os; os.kill(os.getpid(), 9)", "SIGKILL"),
                ("node", "console.log('last words'); process.abort()", "SIGABRT"),
                ("bash", "echo last words; kill -9 $$", "SIGKILL")):
            with self.subTest(language=language, code=code):
                context = self.context(language)
                result = self.run_cell(context, code)
                self.assertTrue(result["context_ended"], result)
                self.assertEqual(result["stdout"], "last words\n")
                self.assertEqual(result["error"]["name"], "ContextEnded")
                self.assertIn(how, result["error"]["value"])
                self.assertIn(how, self.refused(410, "context.ended", self.run_cell, context, "1").body["error"])
                record = self.api.get(context)
                self.assertEqual(record["state"], "ended")
                self.assertIn(how, record["ended_reason"])
                self.assertIn("last words", self.api.get(context + "/cell")["stdout"])

    def test_out_of_memory(self):
        box = self.sandbox(memory_mb=128)
        context = self.context(box=box)
        result = self.run_cell(context, "x = []\nwhile True: x.append(bytearray(1 << 20))")
        if not result["context_ended"]:
            self.assertEqual(result["error"]["name"], "MemoryError")
        else:
            self.assertIn("memory", self.api.get(context)["ended_reason"])

    def test_restart(self):
        context = self.context("python", env={"KEPT": "yes"}, cwd="/tmp")
        self.run_cell(context, "x = 1")
        before = self.api.get(context)["exec_id"]
        after = self.api.post(context + "/restart")
        self.assertNotEqual(after["exec_id"], before)
        result = self.run_cell(context, "import os\nprint(os.environ['KEPT'], os.getcwd(), 'x' in globals())")
        self.assertEqual((result["stdout"], result["cell"]), ("yes /tmp False\n", 2))
        running = Background(self.run_cell, context, "open('/tmp/again', 'w').close()\nwhile True: pass")
        self.marker("/tmp/again")
        self.api.post(context + "/restart")
        self.assertTrue(running.result()["context_ended"])
        self.assertEqual(self.plain(self.run_cell(context, "3")), ["3"])

    def test_broken_driver(self):
        """The control channel is the user's to break: its own context ends, nothing else."""
        context = self.context()
        code = "import os\nfor fd in range(3, 20):\n  try:\n    if 'pipe' in os.readlink(f'/proc/self/fd/{fd}'): os.write(fd, b'nonsense ' * 40)\n  except OSError: pass"
        result = self.run_cell(context, code)
        self.assertTrue(result["context_ended"], result)
        self.assertIn("control channel", self.api.get(context)["ended_reason"])
        self.assertEqual(self.plain(self.cell("python", "1")), ["1"])

    def test_results_beyond_their_maximum(self):
        """8 MiB of all forms together, whoever speaks in the driver's place."""
        context = self.context()
        code = ("import os\ndef put(fd, data):\n  while data: data = data[os.write(fd, data):]\nfor fd in range(3, 20):\n  try:\n"
                "    if 'pipe' in os.readlink(f'/proc/self/fd/{fd}'):\n"
                "      for i in range(3): put(fd, b'data 1 %d text/plain 3000000\\n' % i + b'a' * 3000000 + b'\\n')\n  except OSError: pass")
        result = self.run_cell(context, code)
        self.assertTrue(result["context_ended"])
        self.assertLessEqual(len(str(result)), 8 << 20)
        self.assertIn("control channel", self.api.get(context)["ended_reason"])

    def test_pause_and_stop(self):
        box = self.sandbox()
        context = self.context(box=box)
        self.run_cell(context, "x = 5")
        base = f"/v1/sandboxes/{box}"
        self.api.post(base + "/pause")
        self.assertEqual(self.api.get(context)["state"], "idle")
        self.assertEqual(self.api.get(base)["state"], "paused")
        self.assertEqual(self.plain(self.run_cell(context, "x")), ["5"])
        self.api.post(base + "/stop")
        wait_until(lambda: self.api.get(context)["state"] == "ended", 30)
        self.assertIn("stopped", self.api.get(context)["ended_reason"])
        self.api.post(base + "/start")
        self.refused(410, "context.ended", self.run_cell, context, "x")

    def test_activity(self):
        box = self.sandbox()
        context = self.context("bash", box=box)
        self.run_cell(context, "true")
        self.api.delete(context)
        self.api.post(f"/v1/sandboxes/{box}/code", {"language": "python", "code": "1"})
        self.refused(422, "language.unavailable", self.api.post, f"/v1/sandboxes/{box}/code",
                     {"language": "python", "code": "", "env": {"PATH": "/nowhere"}})
        self.api.exec(box, "true")
        wait_until(lambda: not self.api.get(f"/v1/sandboxes/{box}/execs", state="running", all=1)["execs"], 30)
        # What was asked for, and nothing of how it is done.
        kinds = lambda: [entry["kind"] for entry in self.api.get(f"/v1/sandboxes/{box}/activity")["items"]
                         if entry["kind"].split(".")[0] in ("code", "exec")]
        wait_until(lambda: len(kinds()) >= 6 and "exec.ended" in kinds(), 30)
        self.assertEqual(sorted(kinds()), ["code.context_created", "code.context_ended", "code.ran", "code.ran", "exec.ended", "exec.started"])

    def test_the_control_channel_is_nobodys(self):
        box = self.sandbox()
        base = f"/v1/sandboxes/{box}"
        context = self.context(box=box)
        ran = self.run_cell(context, "print('of the context')\n5")
        once = self.api.post(base + "/code", {"language": "python", "code": "import sys\nprint('once')\nprint('err', file=sys.stderr)"})
        self.refused(422, "language.unavailable", self.api.post, base + "/code",
                     {"language": "python", "code": "", "env": {"PATH": "/nowhere"}})
        lines = [line["line"] for line in self.api.get(base + "/logs")["lines"]]
        self.assertEqual(lines, ["of the context", "once", "err"])
        for name in ("execs", "jobs"):
            shown = {item["exec_id"]: item["command"] for item in self.api.get(f"{base}/{name}")[name]}
            self.assertTrue({ran["exec_id"], once["exec_id"]} <= set(shown), shown)
            everything = {item["exec_id"]: item["command"] for item in self.api.get(f"{base}/{name}", all=1)[name]}
            hidden = {id: command for id, command in everything.items() if id not in shown}
            self.assertEqual(sorted(command.split()[0] for command in hidden.values()), ["cat", "cat", "cat", "sh"], (shown, hidden))
        control = [id for id, command in hidden.items() if command == "cat"][-1]
        self.assertEqual(self.api.get(f"{base}/execs/{control}")["command"], "cat")
        self.assertTrue(self.api.get(base + "/logs", exec=control)["lines"][0]["line"].startswith("ready "))
        self.api.post(base + "/code", {"language": "python", "code": "print('the last')"})
        self.assertEqual(self.daemon.cli("logs", box), (0, "the last\n", ""))
        jobs = self.daemon.cli("jobs", box)[1]
        self.assertNotRegex(jobs, r"(?m) cat$")
        self.assertRegex(self.daemon.cli("jobs", "--all", box)[1], r"(?m) cat$")

    # --- the other API ---

    def test_sessions(self):
        base = self.base + "/repl/sessions"
        made = self.api.post(base, {"language": "python"})
        self.assertEqual((made["sandbox_id"], made["language"]), (self.box, "python"))
        path = f"{base}/{made['id']}"
        result = self.api.post(path + "/run", {"code": "print('é')\n{'a': 1}", "timeout_ms": 30000})
        self.assertEqual((result["stdout"], result["exit"], result["exit_code"], result["error"]), ("é\n", 0, 0, None))
        self.assertEqual(result["results"], [{"application/json": '{"a": 1}', "text/plain": "{'a': 1}"}])
        sessions = self.api.get(base)
        self.assertEqual([s["cells"] for s in sessions if s["id"] == made["id"]], [1])
        self.assertIsNone(self.api.delete(path) or None)
        self.assertNotIn(made["id"], [s["id"] for s in self.api.get(base)])
        result = self.api.post(self.base + "/repl", {"language": "sh", "code": "echo hi"})
        self.assertEqual((result["language"], result["stdout"], result["exit_code"]), ("bash", "hi\n", 0))
        self.assertEqual(self.api.get("/v1/repl/languages")["languages"], list(LANGUAGES))


    # --- the command line ---

    def test_command_line(self):
        self.assertEqual(self.daemon.cli("code", self.box, stdin="print('é')\n6 * 7"), (0, "é\n42\n", ""))
        self.assertEqual(self.daemon.cli("code", "--language", "bash", self.box, "-", stdin="echo x >&2; exit 3"), (3, "", "x\n"))
        status, _, said = self.daemon.cli("code", "--new-context", self.box, stdin="x = 5")
        self.assertEqual(status, 0, said)
        context = re.fullmatch(r"context (\w+)\n", said)[1]
        self.addCleanup(self.gone, f"{self.base}/contexts/{context}")
        status, out, _ = self.daemon.cli("code", "--json", "-c", context, self.box, stdin="x / 0")
        self.assertEqual((status, json.loads(out)["error"]["name"]), (1, "ZeroDivisionError"))
        self.assertEqual(self.daemon.cli("code", self.box, "/nowhere.py")[0], 125)


class Restart(DaemonTest):
    """kill -9 of the daemon: the interpreters live on, and with them what they know."""

    def ran(self, box):
        return [entry["details"].get("cell") for entry in self.api.get(f"/v1/sandboxes/{box}/activity")["items"]
                if entry["kind"] == "code.ran"]

    def restart_all(self):
        self.daemon.stop()
        self.daemon.start()

    def test_contexts_without_a_cell(self):
        """Just made, with cells and then restarted, between cells: all live on, over any number of daemons."""
        box = self.sandbox()
        base = f"/v1/sandboxes/{box}/contexts"
        words = {"python": ("kept = 5", "print(kept)", "print('here')"), "node": ("let kept = 5", "console.log(kept)", "console.log('here')"),
                 "bash": ("kept=5", "echo $kept", "echo here")}
        new, again = {}, {}
        for language, (code, _, _) in words.items():
            new[language] = f"{base}/{self.api.post(base, {'language': language})['id']}"
            again[language] = f"{base}/{self.api.post(base, {'language': language})['id']}"
            self.api.post(again[language] + "/run", {"code": code})
            self.api.post(again[language] + "/restart")
        records = {path: self.api.get(path) for path in (*new.values(), *again.values())}
        for end in (self.daemon.kill_daemon, self.restart_all):
            end()
            for path, record in records.items():
                self.assertEqual(self.api.get(path), record)
                self.assertTrue(record["version"], record)
        for language, (code, show, here) in words.items():
            self.assertEqual(self.api.post(again[language] + "/run", {"code": here})["stdout"], "here\n")
            self.assertEqual(self.api.post(new[language] + "/run", {"code": code})["cell"], 1)
        ran = sorted(self.ran(box))
        for _ in range(2):
            self.daemon.kill_daemon()
            for language, (_, show, _) in words.items():
                cell = wait_until(lambda: (c := self.api.get(again[language] + "/cell"))["state"] == "ended" and c, 30)
                self.assertEqual((cell["cell"], cell["stdout"]), (2, "here\n"))
        for language, (_, show, _) in words.items():
            result = self.api.post(new[language] + "/run", {"code": show})
            self.assertEqual((result["cell"], result["stdout"]), (2, "5\n"), (language, result))
        # What had ended before is not told once more.
        self.assertEqual(sorted(self.ran(box)), sorted([*ran, "2", "2", "2"]))

    @long
    def test_code_of_its_own(self):
        """Who waits when the daemon is restarted is told that the code goes on, and it does."""
        box = self.sandbox()
        codes = {"bash": "touch /tmp/bash; until [ -e /tmp/go ]; do sleep 0.05; done; echo through",
                 "python": "import os, time\nopen('/tmp/python', 'w').close()\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nprint('through')"}
        calls = [Background(self.api.post, f"/v1/sandboxes/{box}/code", {"language": language, "code": code})
                 for language, code in codes.items()]
        wait_until(lambda: self.api.exec(box, ["test", "-e", "/tmp/bash", "-a", "-e", "/tmp/python"])["exit_code"] == 0, 30)
        self.daemon.stop()
        for call in calls:
            self.refused(503, "daemon.restarting", call.result)
        self.daemon.start()
        contexts = self.api.get(f"/v1/sandboxes/{box}/contexts")["contexts"]
        self.assertEqual(sorted((item["language"], item["ended_reason"]) for item in contexts), [("bash", None), ("python", None)])
        self.api.sh(box, "touch /tmp/go")
        for item in contexts:
            path = f"/v1/sandboxes/{box}/contexts/{item['id']}/cell"
            cell = wait_until(lambda: (found := self.api.get(path))["state"] == "ended" and found, 30)
            self.assertEqual((cell["stdout"], cell["exit_code"]), ("through\n", 0))

    def test_daemon_killed(self):
        box = self.sandbox()
        base = f"/v1/sandboxes/{box}/contexts"
        paths = {}
        for language, code in (("python", "kept = 5"), ("node", "let kept = 5"), ("bash", "kept=5")):
            paths[language] = f"{base}/{self.api.post(base, {'language': language})['id']}"
            self.api.post(paths[language] + "/run", {"code": code})
        code = "import os, time\nopen('/tmp/runs', 'w').close()\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('through')\nkept + 1"
        call = Background(self.api.post, paths["python"] + "/run", {"code": code})  # the daemon is killed meanwhile
        wait_until(lambda: self.api.exec(box, ["test", "-e", "/tmp/runs"])["exit_code"] == 0, 30)
        old = self.daemon.daemon_pid()
        os.kill(old, signal.SIGKILL)
        call.join(60)
        self.daemon.wait_ready()
        self.assertEqual(self.api.get(paths["python"])["cells"], 2)
        self.api.sh(box, "touch /tmp/go")
        cell = wait_until(lambda: (c := self.api.get(paths["python"] + "/cell"))["state"] == "ended" and c, 30)
        self.assertEqual((cell["cell"], cell["stdout"], cell["results"]), (2, "through\n", [{"text/plain": "6"}]))
        for language, code in (("python", "print(kept)"), ("node", "console.log(kept)"), ("bash", "echo $kept")):
            result = self.api.post(paths[language] + "/run", {"code": code})
            self.assertEqual(result["stdout"], "5\n", (language, result))
        self.api.delete(paths["bash"])
        wait_until(lambda: not [e for e in self.api.get(f"/v1/sandboxes/{box}/execs")["execs"]
                                if e["state"] == "running" and "bash" in e["command"]], 30)


class SmallLogs(DaemonTest):
    """What a sandbox may keep leaves a channel its least: a cell's results are at most two thirds of 256 KiB."""
    config = "[sandbox]\nlog_max = 1M\noutput_max = 64K\n"

    def test_results(self):
        box = self.api.create()["id"]
        self.addCleanup(self.api.delete, f"/v1/sandboxes/{box}")
        for language, code in (("python", "'x' * {}"), ("node", "'x'.repeat({})")):
            with self.subTest(language=language):
                context = f"/v1/sandboxes/{box}/contexts/" + self.api.post(f"/v1/sandboxes/{box}/contexts", {"language": language})["id"]
                run = lambda text: self.api.post(context + "/run", {"code": text, "timeout_seconds": 60})  # noqa: E731
                for _ in range(5):  # the ring goes round
                    result = run(code.format(80_000))
                    self.assertEqual(len(result["results"][0]["text/plain"]), 80_002)  # with its quotes
                    self.assertEqual(result["results_omitted"], [])
                result = run(code.format(200_000))
                self.assertEqual([one["type"] for one in result["results_omitted"]], ["text/plain"])
                self.assertLess(80_000, len(result["results"][0]["text/plain"]))
                result = run("raise ValueError('y' * 200_000)" if language == "python" else "throw new Error('y'.repeat(200_000))")
                self.assertEqual(result["error"]["name"], "ValueError" if language == "python" else "Error")
                self.assertLess(len(result["error"]["value"]), 12_000)


if __name__ == "__main__":
    unittest.main()
