"""`caisson mcp`: MCP on standard input and output. Both eras on one pipe, requests beside each other, cancellation, the
end of the input, lines that are too long, a client that does not read, a daemon that dies, sandboxes that end with it."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import unittest

from caisson import Client, DaemonTest, OwnDaemons, PROGRAM, parent_of, wait_until
from mcp import Mcp, meta
from ports import free_port
from stdio import Stdio

LINE_MAX = 4 * 1024 * 1024


class Lines(DaemonTest):
    def bridge(self, *arguments, environment=None):
        bridge = Stdio([PROGRAM, "mcp", *arguments], {**os.environ, **self.daemon.client_environment(), **(environment or {})})
        self.addCleanup(bridge.close)
        return bridge

    def boxes(self):
        return {record["id"] for record in self.api.get("/v1/sandboxes", limit=200)["items"]}

    def commands(self, box):
        return self.api.exec(box, "ps -eo args")["stdout"].splitlines()

    def kill_daemon(self):
        self.daemon.kill_daemon(ready=False)  # it is the bridge that waits for the next one

    # --- lines ---

    def test_both_eras_on_one_pipe(self):
        bridge = self.bridge()
        probe = bridge.request("server/discover", modern=True)
        self.assertEqual(probe["supportedVersions"], ["2026-07-28"])
        self.assertEqual(bridge.initialize("2025-06-18")["protocolVersion"], "2025-06-18")
        legacy = bridge.request("tools/list")
        self.assertNotIn("resultType", legacy)
        modern = bridge.request("tools/list", modern=True)
        self.assertEqual((modern["resultType"], len(modern["tools"])), ("complete", len(legacy["tools"])))
        self.assertEqual(bridge.request("ping"), {})
        # A modern request in between has pinned nothing, and an initialize is taken again.
        self.assertEqual(bridge.answer(bridge.begin("ping", modern=True))["error"]["code"], -32601)
        self.assertEqual(bridge.initialize("2024-11-05")["protocolVersion"], "2024-11-05")
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_everything_that_is_asked_is_answered(self):
        bridge = self.bridge()
        # Before any initialize, and things that nobody knows.
        self.assertIn("error", bridge.answer(bridge.begin("no/such/method")))
        self.assertIn("error", bridge.answer(bridge.begin("no/such/method", modern=True)))
        self.assertEqual(bridge.answer(bridge.begin("tools/list", modern=True, version="v999"))["error"]["code"], -32022)
        for line, code in ((b"garbage", -32700), (b'{"jsonrpc":"2.0","id":1,', -32700), (b"\xff\xfe{}", -32700), (b"7", None), (b"{}", -32600),
                           (b'{"a":' * 100000, -32700)):
            bridge.write(line + b"\n")
            answer = bridge.next()
            self.assertNotIn("id", answer)
            self.assertIn(answer["error"]["code"], (code,) if code else (-32600, -32700), line[:20])
        bridge.write(b"\n  \r\n\r\n")  # nothing is said to nothing
        bridge.notify("notifications/nobody-knows")
        self.assertEqual(bridge.request("tools/list", modern=True)["resultType"], "complete")
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_last_line_without_its_end(self):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}}
        result = subprocess.run([PROGRAM, "mcp"], input=json.dumps(message).encode(), capture_output=True, timeout=60,
                                env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual((result.returncode, json.loads(result.stdout)["id"], result.stdout[-1:], result.stderr), (0, 1, b"\n", b""))

    def test_all_that_was_said_before_the_end_is_answered(self):
        lines = b"".join(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": meta()}}).encode() + b"\n"
                         for number in range(500))
        result = subprocess.run([PROGRAM, "mcp"], input=lines, capture_output=True, timeout=60, env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual((result.returncode, [json.loads(line)["id"] for line in result.stdout.splitlines()]), (0, list(range(500))))

    def test_long_lines_are_skipped(self):
        bridge = self.bridge()
        for size in (LINE_MAX + 1, 3 * LINE_MAX):
            # By its id, where that is the outermost one, before what is too long or behind it.
            for head, number in (('"id":5', 5), ('"params":{"id":7, "x":["}"]}, "id" : "a\\"b"', 'a"b'), ('"params":{"id":7}', None), ('"id":1.5', None),
                                 ('"id":{}', None), ('"id":' + "7" * 40, None)):
                for parts in (('"method":"x"', head, '"x":"%s"'), ('"method":"x"', '"x":{"id":3,"y":"%s"}', head), (head, '"x":"%s"', '"method":"x"')):
                    bridge.write(("{" + ",".join(parts) % ("x" * size) + "}\n").encode())
                    answer = bridge.next()
                    self.assertEqual((answer["error"]["code"], answer.get("id"), "id" in answer), (-32600, number, number is not None))
                    for word in (str(LINE_MAX), "write_file", "append"):
                        self.assertIn(word, answer["error"]["message"])
            # The answer to a request of ours would be taken for one of the client's own.
            bridge.write(b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * size + b'"}\n')
            self.assertNotIn("id", bridge.next())
        # One of almost that length is read, away from the loop, and those behind it wait their turn.
        number = bridge.begin("x" * (LINE_MAX - 1000))
        after = bridge.begin("tools/list", modern=True)
        self.assertEqual(bridge.next()["id"], number)
        self.assertEqual(bridge.next()["id"], after)
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_long_last_line_without_its_end(self):
        line = b'{"method":"x","params":{"x":"' + b"x" * LINE_MAX + b'"},"id":7}'
        result = subprocess.run([PROGRAM, "mcp"], input=line, capture_output=True, timeout=60, env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual((result.returncode, json.loads(result.stdout)["id"]), (0, 7))

    UNREADABLE = [
        (rb'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"x","content":"a\u0000b"}}}', b"content_base64"),
        (rb'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"write_file","arguments":{"path":"x","content":"\ud83d"}},"id":%s}', b"content_base64"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"x":"' + b"y" * 100000 + rb'\udc00"},"id":%s}', b"content_base64"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"x":"\xe9"},"id":%s}', b"content_base64"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"a":1,"a":2},"id":%s}', b"duplicate"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":' + b"[" * 40 + b"]" * 40 + b',"id":%s}', b"nested"),
    ]

    def test_what_cannot_be_read_is_answered_by_its_id(self):
        """A client that gets no answer with its id waits until it gives up."""
        bridge = self.bridge()
        for number, (line, word) in enumerate(self.UNREADABLE):
            for text in (b"%d" % number, b'"n\\"%d"' % number):
                bridge.write(line % text + b"\n")
                answer = bridge.next()
                self.assertEqual(answer.get("id"), json.loads(text), line[:80])
                self.assertIn(answer["error"]["code"], (-32700, -32602))
                self.assertIn(word.decode(), answer["error"]["message"])
        self.assertEqual(bridge.request("tools/list", modern=True)["resultType"], "complete")
        # A daemon that is gone leaves none of them waiting either.
        os.kill(self.daemon.daemon_pid(), signal.SIGSTOP)
        for number, (line, word) in enumerate(self.UNREADABLE):
            bridge.write(line % (b"%d" % number) + b"\n")
        self.kill_daemon()
        self.assertEqual({bridge.next()["id"] for _ in self.UNREADABLE}, set(range(len(self.UNREADABLE))))
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_long_line_to_the_daemon_itself(self):
        """Whoever speaks to it without the bridge is told the same."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as raw:
            raw.settimeout(60)
            raw.connect(self.api.socket_path)
            raw.sendall(b"POST /mcp/lines HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: caisson-mcp/1\r\n\r\n")
            lines = raw.makefile("rb")
            while lines.readline() != b"\r\n":
                pass
            for tail in (b'","id":8}\n', b'","x":{"id":1},"id":8}\n'):
                raw.sendall(b'{"method":"x","y":"' + b"x" * LINE_MAX + tail)
                answer = json.loads(lines.readline())
                self.assertEqual((answer["id"], answer["error"]["code"], "append" in answer["error"]["message"]), (8, -32600, True))
            raw.sendall(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"_meta": meta()}}).encode() + b"\n")
            self.assertEqual(json.loads(lines.readline())["id"], 9)

    def test_requests_beside_each_other_and_cancelled(self):
        box = self.sandbox()
        bridge = self.bridge()
        bridge.initialize()
        slow = {"name": "run_shell", "arguments": {"sandbox_id": box, "command": "sleep 1234 & sleep 1235"}}
        legacy, modern = bridge.begin("tools/call", slow), bridge.begin("tools/call", slow, modern=True)
        wait_until(lambda: self.commands(box).count("sleep 1235") == 2, 20, what="the commands")
        # Nobody waits for them.
        self.assertIn("tools", bridge.request("tools/list"))
        self.assertIn("hi", bridge.text("run_shell", {"sandbox_id": box, "command": "echo hi"}))
        for number in (legacy, modern):
            bridge.notify("notifications/cancelled", {"requestId": number, "reason": "test"})
        wait_until(lambda: not {"sleep 1234", "sleep 1235"} & set(self.commands(box)), what="the end of all they started")
        bridge.notify("notifications/cancelled", {"requestId": 4711})  # nobody's
        self.assertEqual(bridge.request("ping"), {})
        self.assertTrue(bridge.silent(0.2))
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_end_of_input_cancels(self):
        box = self.sandbox()
        bridge = self.bridge()
        bridge.begin("tools/call", {"name": "run_shell", "arguments": {"sandbox_id": box, "command": "sleep 1236"}}, modern=True)
        wait_until(lambda: "sleep 1236" in self.commands(box), 20, what="the command")
        self.assertEqual(bridge.end(), (0, [], ""))
        wait_until(lambda: "sleep 1236" not in self.commands(box), what="its end")

    def test_client_that_does_not_read(self):
        """What waits for it is bounded, in the daemon too, and nothing is lost."""
        bridge = self.bridge()
        wanted = 600
        os.set_blocking(bridge.process.stdin.fileno(), False)
        lines = b"".join(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": meta()}}).encode() + b"\n"
                         for number in range(wanted))
        sent = bridge.process.stdin.write(lines[:65536]) or 0
        got = 0
        while got < wanted:
            if sent < len(lines):
                sent += bridge.process.stdin.write(lines[sent:sent + 65536]) or 0
            message = bridge.next()
            self.assertEqual(message["id"], got)
            got += 1
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_progress_to_a_client_that_asked(self):
        box = self.sandbox()
        bridge = self.bridge()
        number = bridge.begin("tools/call", {"name": "run_shell", "arguments": {
            "sandbox_id": box, "command": "echo begun; until [ -e /tmp/go ]; do sleep 0.02; done; echo over"}}, modern=True, token=0)
        message = bridge.next()  # it ends only after this
        self.assertEqual((message["method"], message["params"]["progressToken"]), ("notifications/progress", 0))
        self.api.sh(box, "touch /tmp/go")
        self.assertIn("begun\nover\n", bridge.answer(number)["result"]["content"][0]["text"])

    def test_options(self):
        def names(*arguments):
            return [tool["name"] for tool in self.bridge(*arguments).request("tools/list", modern=True)["tools"]]
        usual, everything, reading = names(), names("--toolsets", "all"), names("--read-only")
        self.assertLess(set(usual), set(everything))
        self.assertLess(set(reading), set(usual))
        self.assertNotIn("run_shell", reading)
        self.assertEqual(len(names("--dialect", "opensandbox")), 19)
        code, out, err = self.daemon.cli("mcp", "--list-tools", "--json")
        self.assertEqual((code, [tool["name"] for tool in json.loads(out)]), (0, usual), err)
        code, out, err = self.daemon.cli("mcp", "--list-tools", "--toolsets", "files")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"(?m)^run_shell +\S")
        for arguments, words in ((("--toolsets", "files,nothing"), "nothing"), (("--dialect", "klingon"), "klingon"), (("--domain", "x:1"), "opensandbox"),
                                 (("--dialect", "opensandbox", "--toolsets", "files"), "one set"), (("config", "cursor", "--dialect", "admin", "--toolsets", "files"), "one set"),
                                 (("--dialect", "opensandbox", "--transport", "pigeon"), "pigeon"), (("config", "emacs"), "emacs"), (("serve",), "serve")):
            code, out, err = self.daemon.cli("mcp", *arguments, stdin="")
            self.assertEqual((code, out), (125, ""))
            self.assertIn(words, err)

    def test_with_a_token_over_tcp(self):
        token, other = self.daemon.token(), self.daemon.token(workspace="other")
        read = self.daemon.token(scopes=("sandboxes:read",))
        box = self.sandbox()
        at = {"CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}"}
        self.assertIn(box, self.bridge(environment={**at, "CAISSON_TOKEN": token}).text("list_sandboxes"))
        self.assertNotIn(box, self.bridge(environment={**at, "CAISSON_TOKEN": other}).text("list_sandboxes"))
        names = [tool["name"] for tool in self.bridge(environment={**at, "CAISSON_TOKEN": read}).request("tools/list", modern=True)["tools"]]
        self.assertNotIn("run_shell", names)
        code, out, err = self.daemon.cli("mcp", stdin="", environment={**at, "CAISSON_TOKEN": "csn_nonsense"})
        self.assertEqual((code, out), (125, ""))
        self.assertIn("token", err)
        self.assertNotIn("nonsense", err)
        self.assertNotIn(token, self.daemon.log())

    # --- a daemon that dies ---

    def test_daemon_dies_in_the_middle(self):
        box = self.sandbox()
        bridge = self.bridge()
        bridge.initialize("2025-06-18")
        number = bridge.begin("tools/call", {"name": "run_shell", "arguments": {"sandbox_id": box, "command": "sleep 1237"}})
        wait_until(lambda: "sleep 1237" in self.commands(box), 20, what="the command")
        self.kill_daemon()
        answer = bridge.answer(number)
        self.assertEqual(answer["error"]["code"], -32603)
        for word in ("list_sandboxes", "read_job", "lost"):
            self.assertIn(word, answer["error"]["message"])
        # It goes on as the session that it was, and the client sees nothing of that.
        self.assertNotIn("resultType", bridge.request("tools/list"))
        self.assertIn("again", bridge.text("run_shell", {"sandbox_id": box, "command": "echo again"}, modern=False))
        self.assertEqual([message for message in bridge.seen if "id" in message], [])
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_daemon_dies_before_it_answers_initialize(self):
        bridge = self.bridge()
        self.assertEqual(bridge.request("server/discover", modern=True)["resultType"], "complete")
        os.kill(self.daemon.daemon_pid(), signal.SIGSTOP)
        number = bridge.begin("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}})
        self.kill_daemon()
        self.assertEqual(bridge.answer(number)["result"]["protocolVersion"], "2025-06-18")
        self.assertEqual(bridge.request("ping"), {})
        self.assertEqual(bridge.end(), (0, [], ""))

    def test_restarts_while_nothing_is_asked(self):
        bridge = self.bridge()
        bridge.initialize()
        bridge.request("resources/subscribe", {"uri": "sandboxes://all"})
        for _ in range(2):
            self.kill_daemon()
            self.assertEqual(bridge.request("ping"), {})
        # What it had subscribed to it is told of still.
        self.sandbox()
        self.assertEqual(bridge.next().get("method"), "notifications/resources/updated")
        # One change may be told of twice: its parts may come apart.
        code, left, said = bridge.end()
        others = [message for message in left if message.get("method") != "notifications/resources/updated"]
        self.assertEqual((code, others, said), (0, [], ""))

    # --- sandboxes that end with it ---

    def make(self, bridge):
        before = self.boxes()
        bridge.text("create_sandbox")
        made = self.boxes() - before
        self.assertEqual(len(made), 1)
        return made.pop()

    def gone(self, box):
        wait_until(lambda: box not in self.boxes(), 20, what="the sandbox's end")

    def test_ends_with_its_client(self):
        stays = self.bridge()
        kept = self.make(stays)
        self.addCleanup(self.remove, kept)
        other = self.make(self.bridge("--ephemeral"))
        for end in (lambda bridge: bridge.end(), lambda bridge: bridge.kill(), lambda bridge: bridge.kill(signal.SIGTERM)):
            bridge = self.bridge("--ephemeral")
            box = self.make(bridge)
            end(bridge)
            self.gone(box)
            tombstone = self.api.get("/v1/sandboxes/" + box)["end"]
            self.assertEqual((tombstone["reason"], "client" in tombstone["message"]), ("user", True), tombstone)
        self.assertLessEqual({kept, other}, self.boxes())
        stays.end()
        self.assertIn(kept, self.boxes())

    def test_ephemeral_is_for_who_may_write(self):
        def answer(token):
            with socket.create_connection(("127.0.0.1", self.daemon.port), 20) as raw:
                raw.sendall(f"POST /mcp/lines?ephemeral=true&connection={'a' * 16} HTTP/1.1\r\nHost: 127.0.0.1:{self.daemon.port}\r\n"
                            f"Authorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: caisson-mcp/1\r\n\r\n".encode())
                return int(raw.makefile("rb").readline().split()[1])
        self.assertEqual(answer(self.daemon.token(scopes=["sandboxes:read"])), 403)
        self.assertEqual(answer(self.daemon.token()), 101)

    def test_restart_of_the_daemon_ends_nothing(self):
        bridge = self.bridge("--ephemeral")
        box = self.make(bridge)
        self.kill_daemon()
        self.assertIn(box, bridge.text("list_sandboxes"))
        self.assertEqual(bridge.text("run_shell", {"sandbox_id": box, "command": "echo on"}).count("on"), 1)
        self.assertEqual(bridge.end()[0], 0)
        self.gone(box)

    # --- under the name and with the flags of OpenSandbox's server ---

    def alias(self):
        """Made by the build; it stands beside the program where that is installed, too."""
        return os.path.join(os.path.dirname(PROGRAM), "opensandbox-mcp")

    def start(self, *arguments, **environment):
        bridge = Stdio([self.alias(), *arguments], {**os.environ, **self.daemon.client_environment(), **environment})
        self.addCleanup(bridge.close)
        return bridge

    def test_its_name_and_flags(self):
        domain, key = f"127.0.0.1:{self.daemon.port}", self.daemon.token()
        other = self.daemon.token(workspace="other")
        nowhere = {"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1", "OPEN_SANDBOX_API_KEY": other}
        for bridge in (self.start(), self.start("--domain", domain, "--api-key", key, "--protocol", "http", "--request-timeout-seconds", "30", **nowhere),
                       self.start(OPEN_SANDBOX_DOMAIN=domain, OPEN_SANDBOX_API_KEY=key)):
            self.assertEqual(len(bridge.request("tools/list", modern=True)["tools"]), 19)
        box = self.sandbox(metadata={"who": "stdio"})
        self.assertIn(box, self.start("--domain", domain, "--api-key", key, **nowhere).text("sandbox_list"))
        self.assertNotIn(box, self.start("--domain", domain, OPEN_SANDBOX_API_KEY=other).text("sandbox_list"))

    def relay(self, *arguments, **environment):
        port = free_port()
        relay = self.start("--transport", "streamable-http", "--port", str(port), *arguments, **environment)
        said = relay.process.stderr.readline().decode()
        self.assertIn(f"http://127.0.0.1:{port}/mcp", said)
        return port, relay

    def test_streamable_http(self):
        port, relay = self.relay()
        client = Mcp(Client(port=port), "/mcp")
        self.assertEqual(len(client.modern("tools/list")["tools"]), 19)
        session = client.session("2025-11-25")
        self.assertEqual(len(session.request("tools/list")["tools"]), 19)
        # A modern request whose client goes is cancelled, as on the daemon itself.
        box = self.sandbox()
        answer = client.modern_send("tools/call", {"name": "command_run", "arguments": {
            "sandbox_id": box, "command": "sleep 1238", "connect_if_missing": True}}, token="t")
        wait_until(lambda: "sleep 1238" in self.commands(box), 20, what="the command")
        answer.response.close()
        answer.close()
        wait_until(lambda: "sleep 1238" not in self.commands(box), 20, what="its end")
        self.assertIn(box, json.dumps(client.call("sandbox_list")))
        for headers, path, status in (({"Host": "evil.example"}, "/mcp", 403), ({"Origin": "http://evil.example"}, "/mcp", 403),
                                      ({"Origin": f"http://localhost:{port}"}, "/mcp", 200), ({}, "/mcp/admin", 404), ({}, "/v1/sandboxes", 404),
                                      ({"Host": f"localhost:{port}"}, "/mcp", 200)):
            answer = Mcp(Client(port=port), path).modern_send("tools/list", headers=headers)
            self.assertEqual(answer.status, status, (headers, path))
        for head in (b"GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n", b"POST /mcp HTTP/1.1\r\n\r\n", b"POST /mcp HTTP/1.1\nHost: localhost\n\n\r\n\r\n",
                     b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
                     b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"x" * 20000):
            with socket.create_connection(("127.0.0.1", port), 20) as raw:
                raw.sendall(head)
                self.assertRegex(raw.recv(100), rb"^HTTP/1.1 400 ", head[:60])
        # Another user of this host is not this one.
        stranger = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "curl", "-sS", "-d", "{}", f"http://127.0.0.1:{port}/mcp"],
                                  capture_output=True, text=True, timeout=60)
        self.assertIn("another user's", stranger.stdout)
        relay.kill(signal.SIGTERM)

    def test_nobody_hides_by_going(self):
        """A socket that was closed is nobody's to the kernel; what came over it is not taken for this user's."""
        upstream = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(upstream.close)
        upstream.settimeout(20)
        port, relay = self.relay("--domain", f"127.0.0.1:{upstream.getsockname()[1]}", "--api-key", "k")
        upstream.accept()[0].close()  # it looked whether anybody is there
        pid = relay.process.pid
        request = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

        def children():
            # The kernel's own list of them may lack one while another ends (proc(5)).
            return [int(child) for child in os.listdir("/proc") if child.isdigit() and parent_of(child) == pid]

        def state(process):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
            return "Z"

        def nothing_came():
            wait_until(lambda: all(state(child) == "Z" for child in children()), 20, what="the end of what was served")
            upstream.setblocking(False)
            self.assertRaises(BlockingIOError, upstream.accept)
            upstream.settimeout(20)
        # A stranger who has gone before anybody looks.
        relay.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state(pid) == "T", 20, what="the stop")
        leave = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.sendall({request!r})"
        for end in ("", "; s.shutdown(socket.SHUT_WR)"):
            subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", leave + end], check=True, timeout=60)
        relay.process.send_signal(signal.SIGCONT)
        # Ours comes behind them, and is the only one that is passed on.
        with socket.create_connection(("127.0.0.1", port), 20) as raw:
            raw.sendall(request)
            with upstream.accept()[0] as passed:
                self.assertIn(b"POST /mcp/opensandbox", passed.recv(1000))
        nothing_came()
        # And one who goes between the first look and the request's end.
        before = set(children())
        with socket.create_connection(("127.0.0.1", port), 20) as raw:
            wait_until(lambda: set(children()) - before, 20, what="its process")
            child = max(set(children()) - before)
            wait_until(lambda: state(child) == "S", 20, what="its wait")
            os.kill(child, signal.SIGSTOP)
            raw.sendall(request)
        os.kill(child, signal.SIGCONT)
        nothing_came()
        relay.kill(signal.SIGTERM)

    def test_streamable_http_with_a_key(self):
        port, relay = self.relay("--domain", f"127.0.0.1:{self.daemon.port}", "--api-key", self.daemon.token(workspace="other"))
        box = self.sandbox()
        self.assertNotIn(box, json.dumps(Mcp(Client(port=port), "/mcp").call("sandbox_list")))
        # Whoever brings a key of one's own means that.
        self.assertIn(box, json.dumps(Mcp(Client(port=port, token=self.daemon.token()), "/mcp").call("sandbox_list")))
        relay.kill(signal.SIGTERM)
        code, out, err = self.daemon.cli("mcp", "--dialect", "opensandbox", "--transport", "streamable-http", "--host", "0.0.0.0")
        self.assertEqual(code, 125)
        self.assertIn("acts as", err)


class Nobody(OwnDaemons):
    """No daemon runs."""

    def setUp(self):
        self.daemon = self.client_daemon()
        self.environment = {**os.environ, **self.daemon.client_environment()}

    def test_started_ten_times_at_once(self):
        bridges = [Stdio([PROGRAM, "mcp"], self.environment) for _ in range(10)]
        for bridge in bridges:
            self.addCleanup(bridge.close)
        for bridge in bridges:
            self.assertEqual(bridge.request("server/discover", modern=True)["resultType"], "complete")
        # What it forks has its command line for a moment.
        wait_until(lambda: len(self.daemon.started()) == 1, 20, what="that there is one daemon")
        for bridge in bridges:
            self.assertEqual(bridge.end(), (0, [], ""))

    def test_ended_while_connected(self):
        bridge = Stdio([PROGRAM, "mcp"], self.environment)
        self.addCleanup(bridge.close)
        bridge.initialize()
        self.assertEqual(bridge.request("ping"), {})  # all that was said has been carried
        os.kill(int(open(os.path.join(self.daemon.state, "lock")).read().split()[0]), signal.SIGTERM)
        wait_until(lambda: not self.daemon.started(), 20, what="its end")
        # Whoever ended it may have meant it: it comes back for a request alone.
        self.assertTrue(bridge.silent(0.3))
        self.assertEqual(self.daemon.started(), [])
        self.assertEqual(bridge.request("ping"), {})
        self.assertEqual(bridge.end(), (0, [], ""))


if __name__ == "__main__":
    unittest.main()
