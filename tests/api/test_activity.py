"""The activity of sandboxes: its chain, verified by the documentation alone; events that are resumed; receipts that
are checked offline; who sees what; what is left out; what is kept."""
import copy
import hashlib
import json
import os
import signal
import struct
import subprocess
import tempfile

from caisson import PROGRAM, ApiError, Daemon, DaemonTest, wait_until

ZERO = "0" * 64


def text(value):
    data = value.encode()
    return struct.pack(">I", len(data)) + data


def entry_hash(entry, sandbox):
    """As docs/activity.md says it."""
    details = entry["details"]
    pairs = list(details.items()) if isinstance(details, dict) else [tuple(pair) for pair in details]
    data = b"caisson-activity-1\0" + bytes.fromhex(entry["previous"]) + text(sandbox)
    data += struct.pack(">QQ", entry["number"], int(entry["time_ns"]))
    data += text(entry["kind"]) + text(entry["actor"]) + text(entry["exec_id"] or "")
    data += struct.pack(">I", len(pairs))
    for key, value in pairs:
        data += text(key) + text(value)
    return hashlib.sha256(data).hexdigest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Stream:
    """Server-sent events, read by hand."""

    def __init__(self, client, path, headers=None):
        self.response, self.connection = client.raw("GET", path, headers=headers)
        if self.response.status != 200:
            data = json.loads(self.response.read())
            self.connection.close()
            raise ApiError(self.response.status, data, dict(self.response.getheaders()))

    def next(self):
        """(id, name, data) of the next event; None at the end."""
        event = {}
        while True:
            line = self.response.readline()
            if not line:
                return None
            line = line.decode().rstrip("\n")
            if not line and "data" in event:
                return int(event.get("id", 0)), event.get("event"), json.loads(event["data"])
            name, _, value = line.partition(": ")
            if name:
                event[name] = value

    def until(self, kind):
        found = []
        while True:
            event = self.next()
            if event is None:
                raise AssertionError(f"the stream ended before {kind}")
            found.append(event)
            if event[1] == kind:
                return found

    def close(self):
        self.connection.close()


class ActivityTest(DaemonTest):
    def all(self, sandbox, client=None, **query):
        client, entries, cursor = client or self.api, [], {}
        while True:
            page = client.get(f"/v1/sandboxes/{sandbox}/activity", **query, **cursor)
            entries += page["items"]
            if page["next_cursor"] is None:
                return entries
            cursor = {"cursor": page["next_cursor"]}

    def verify_chain(self, entries, sandbox, previous=ZERO, number=1):
        for entry in entries:
            self.assertEqual(entry["number"], number)
            self.assertEqual(entry["previous"], previous)
            self.assertEqual(entry["hash"], entry_hash(entry, sandbox), entry)
            previous, number = entry["hash"], number + 1
        return previous

    def of_kind(self, entries, kind):
        return [entry for entry in entries if entry["kind"] == kind]


class Timeline(ActivityTest):
    def test_everything_is_there_and_chained(self):
        box = self.sandbox(name="timeline")
        self.api.exec(box, "echo out; echo error >&2; exit 3")
        self.api.exec(box, "kill -9 $$")
        self.api.exec(box, "sleep 30", timeout_seconds=0.2)
        with self.assertRaises(ApiError) as failed:
            self.api.exec(box, ["/no/such/program"])
        self.assertEqual(failed.exception.code, "exec.program_not_found")
        self.api.write(box, "/tmp/a file", b"x" * 1234)
        self.api.post(f"/v1/sandboxes/{box}/files/rename", {"from": "/tmp/a file", "to": "/tmp/b"})
        self.api.delete(f"/v1/sandboxes/{box}/files", path="/tmp/b")
        self.api.read(box, "/etc/passwd")
        for step in ("pause", "resume", "stop", "start"):
            self.api.post(f"/v1/sandboxes/{box}/{step}")
        self.api.call("PATCH", f"/v1/sandboxes/{box}", {"timeout_seconds": 900})
        self.api.delete(f"/v1/sandboxes/{box}")
        entries = self.all(box, limit=7)
        self.verify_chain(entries, box)
        kinds = [entry["kind"] for entry in entries]
        self.assertEqual(kinds[:4], ["sandbox.created", "sandbox.running", "exec.started", "exec.ended"])
        self.assertEqual([kind for kind in kinds if kind.startswith("file.")],
                         ["file.written", "file.changed", "file.removed"])
        self.assertEqual([kind for kind in kinds if kind.startswith("sandbox.")],
                         ["sandbox.created", "sandbox.running", "sandbox.paused", "sandbox.resumed", "sandbox.stopped",
                          "sandbox.started", "sandbox.changed", "sandbox.ended"])
        first, killed, timed_out = self.of_kind(entries, "exec.ended")
        self.assertEqual((first["details"]["outcome"], first["details"]["exit_code"]), ("exited", "3"))
        self.assertEqual(first["details"]["stdout_sha256"], hashlib.sha256(b"out\n").hexdigest())
        self.assertEqual(first["details"]["stderr_sha256"], hashlib.sha256(b"error\n").hexdigest())
        self.assertEqual((killed["details"]["outcome"], killed["details"]["signal"]), ("signaled", "9"))
        self.assertEqual(timed_out["details"]["outcome"], "timed_out")
        self.assertEqual(self.of_kind(entries, "exec.failed")[0]["details"]["code"], "exec.program_not_found")
        written = self.of_kind(entries, "file.written")[0]["details"]
        self.assertEqual((written["path"], written["bytes"]), ("/tmp/a file", "1234"))
        self.assertEqual(self.of_kind(entries, "sandbox.ended")[0]["details"]["reason"], "user")

    def test_pages_filters_and_what_is_refused(self):
        box = self.sandbox()
        self.api.exec(box, "true")
        path = f"/v1/sandboxes/{box}/activity"
        everything = self.all(box)
        self.assertEqual([entry["kind"] for entry in self.all(box, kind="exec.started,sandbox.*", limit=1)],
                         ["sandbox.created", "sandbox.running", "exec.started"])
        newest = self.api.get(path, order="desc", limit=2)
        self.assertEqual([entry["number"] for entry in newest["items"]], [4, 3])
        self.assertEqual([entry["number"] for entry in self.api.get(path, order="desc", cursor=newest["next_cursor"])["items"]], [2, 1])
        self.assertEqual(self.api.get(path, until="2020-01-01T00:00:00+01:00")["items"], [])
        self.assertEqual(len(self.api.get(path, since="1577836800")["items"]), len(everything))
        for query in ({"order": "up"}, {"kind": "nonsense"}, {"limit": 0}, {"limit": 1001}, {"since": "yesterday"},
                      {"cursor": "x"}, {"unknown": 1}):
            self.refused(400, "request.invalid", self.api.get, path, **query)
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/no-such-one/activity")

    def test_a_long_one_comes_whole(self):
        """It is read in pieces, of 250 entries, of 32 KiB, and of 32 of a receipt."""
        box = self.sandbox()
        done = self.api.exec(box, "true")["exec_id"]
        count = len(wait_until(lambda: (lambda items: items if items[-1]["kind"] == "exec.ended" else None)(self.all(box))))
        columns = "workspace, wall, actor, details, previous, hash"
        self.daemon.sql(f"update activity set number = number + 900 where sandbox = '{box}' and kind = 21",
                        f"with recursive n(i) as (select 1 union all select i + 1 from n where i < 900) insert into activity (sandbox, number, kind, {columns}) "
                        f"select sandbox, number + i, iif(i % 2, 4, 40), {columns} from n join activity where sandbox = '{box}' and kind = 20")
        count += 900
        path = f"/v1/sandboxes/{box}/activity?limit="

        def numbers(query):
            page = self.api.get(path + query)
            return [entry["number"] for entry in page["items"]], page["next_cursor"]
        self.assertEqual(numbers("1000"), (list(range(1, count + 1)), None))
        self.assertEqual(numbers(f"{count}&order=desc"), (list(range(count, 0, -1)), None))
        self.assertEqual(numbers(f"{count - 1}"), (list(range(1, count)), str(count - 1)))
        self.assertEqual(numbers("10&since=2099-01-01T00:00:00Z"), ([], None))
        self.assertEqual(numbers("10&order=desc&kind=sandbox.created"), ([1], None))
        self.assertEqual(numbers("450&kind=sandbox.resumed")[1], None)
        self.assertNotEqual(numbers("449&kind=sandbox.resumed")[1], None)
        query = f"follow=0&sandbox={box}&kind=sandbox.resumed&limit="
        page = self.api.get(f"/v1/events?{query}449")
        self.assertEqual((len(page["items"]), page["more"]), (449, True))
        page = self.api.get(f"/v1/events?{query}449&after={page['after']}")
        self.assertEqual((len(page["items"]), page["more"]), (1, False))
        events = self.api.get(f"/v1/sandboxes/{box}/events?tail=440")["events"]
        self.assertEqual([event["type"] for event in events], ["sandbox.resumed"] * 440)
        self.assertEqual(len(self.api.get(f"/v1/sandboxes/{box}/events?tail=0")["events"]), 0)
        receipt = self.api.get(f"/v1/sandboxes/{box}/execs/{done}/receipt")["receipt"]
        self.assertEqual(len(receipt["chain"]["entries"]), 902)
        self.assertEqual(len(receipt["api_file_changes"]), 450)

    def test_who_did_it(self):
        record = self.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:write"]})
        box = self.sandbox()
        self.daemon.tcp(record["token"]).exec(box, "true")
        self.daemon.tcp(record["token"]).write(box, "/tmp/x", b"x")
        self.daemon.tcp(record["token"]).post(f"/v1/sandboxes/{box}/stop")
        entries = self.all(box)
        by = {entry["kind"]: entry["actor"] for entry in entries}
        token = "token:" + record["id"]
        self.assertTrue(by["sandbox.created"].startswith("local:"), by)
        self.assertEqual((by["exec.started"], by["file.written"], by["sandbox.stopped"], by["exec.ended"]),
                         (token, token, token, "system"))
        self.assertNotIn(record["token"], json.dumps(entries))

    def test_whoever_asked_is_named_where_it_is_done_later(self):
        """In steps, when the spawner has answered, or on a connection that is open already."""
        record = self.api.post("/v1/tokens", {"workspace": "asked", "scopes": ["sandboxes:read", "sandboxes:write"]})
        client, actor = self.daemon.tcp(record["token"]), "token:" + record["id"]
        environment = {"CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}", "CAISSON_TOKEN": record["token"]}

        def cli(*arguments):
            code, _, said = self.daemon.cli(*arguments, environment=environment)
            self.assertEqual(code, 0, said)

        def named(box, *kinds):
            found = wait_until(lambda: set(kinds) <= {entry["kind"] for entry in self.all(box, client)} and self.all(box, client))
            self.assertEqual({entry["actor"] for entry in found if entry["kind"] in kinds}, {actor}, found)

        boxes = [client.create(name=f"asked-{i}")["id"] for i in range(2)]
        self.addCleanup(client.post, "/v1/sandboxes/bulk", {"action": "delete", "all": True})
        script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done"
        command = subprocess.Popen([PROGRAM, "exec", boxes[0], "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **self.daemon.client_environment(), **environment})
        self.assertEqual(command.stdout.readline(), "ready\n")
        command.send_signal(signal.SIGINT)
        self.assertEqual(command.wait(30), 9)
        command.stdout.close()
        named(boxes[0], "exec.signalled")
        cli("set", boxes[0], "--memory", "300M")
        named(boxes[0], "sandbox.changed")
        job = client.exec(boxes[0], "sleep 1000", background=True)["exec_id"]
        client.delete(f"/v1/sandboxes/{boxes[0]}/execs/{job}", purge=1)
        named(boxes[0], "exec.deleted", "exec.signalled")
        cli("pause", "--all")
        for action in ("resume", "drain", "start"):
            client.post("/v1/sandboxes/bulk", {"action": action, "all": True})
        cli("stop", "--all")
        cli("rm", "--all")
        for box in boxes:
            named(box, "sandbox.paused", "sandbox.resumed", "sandbox.started", "sandbox.stopped", "sandbox.ended")

    def test_secrets_are_left_out(self):
        box = self.sandbox()
        token = self.daemon.token()
        commands = ["MY_SECRET=abcdef123 true", "true --password hunter2 --user me", "true https://me:hunter2@host/x",
                    'true -H "Authorization: Bearer abcdef123"', f"true {token}", "true --api-key=abcdef123"]
        for command in commands:
            self.api.exec(box, command)
        self.api.write(box, f"/tmp/{token}", b"")
        said = json.dumps(self.all(box))
        for secret in ("abcdef123", "hunter2", token, token[4:20]):
            self.assertNotIn(secret, said)
        for kept in ("MY_SECRET=***", "--password *** --user me", "https://me:***@host/x", "Bearer ***", "csn_***"):
            self.assertIn(kept, said.replace('\\"', '"'))

    def test_large_output_and_output_that_is_not_kept(self):
        box = self.sandbox()
        self.api.exec(box, "head -c 300000 /dev/zero", max_output_bytes=1000)
        self.api.exec(box, "head -c 300000 /dev/zero", max_output_bytes=1000, output={"head_bytes": 4096, "tail_bytes": 4096})
        whole, cut = wait_until(lambda: len(ends := self.all(box, kind="exec.ended")) == 2 and ends)
        whole, cut = sorted((whole, cut), key=lambda entry: "stdout_sha256" not in entry["details"])
        self.assertEqual(whole["details"]["stdout_sha256"], hashlib.sha256(bytes(300000)).hexdigest())
        self.assertEqual(cut["details"]["stdout_bytes"], "300000")
        self.assertNotIn("stdout_sha256", cut["details"])
        self.verify_chain(self.all(box), box)

    def test_as_pandastack_has_it(self):
        box = self.sandbox()
        stream = Stream(self.api, f"/v1/sandboxes/{box}/events?tail=50&follow=1")
        self.api.exec(box, "true")
        self.api.delete(f"/v1/sandboxes/{box}")
        seen = []
        while (event := stream.next()) is not None:
            self.assertEqual(event[1], "event")
            seen.append(event[2]["type"])
        stream.close()
        self.assertEqual(seen, ["sandbox.created", "sandbox.running", "sandbox.deleted"])
        events = self.api.get(f"/v1/sandboxes/{box}/events", tail=2)["events"]
        self.assertEqual([event["type"] for event in events], ["sandbox.running", "sandbox.deleted"])
        self.assertEqual(events[0]["sandbox_id"], box)
        self.assertIn("time", events[0])


class Events(ActivityTest):
    def test_workspaces_and_bound_tokens_see_their_own(self):
        one, two = self.daemon.tcp(self.daemon.token("one")), self.daemon.tcp(self.daemon.token("two"))
        mine, other = one.create()["id"], one.create()["id"]
        theirs = two.create()["id"]
        try:
            seen = {entry["sandbox_id"] for entry in one.get("/v1/events", follow=0, limit=1000)["items"]}
            self.assertEqual(seen, {mine, other})
            stream = Stream(one, "/v1/events?after=0&kind=exec.started")
            two.exec(theirs, "true")
            one.exec(mine, "true")
            self.assertEqual(stream.next()[2]["sandbox_id"], mine)
            stream.close()
            bound = self.daemon.tcp(self.daemon.token("one", sandbox=mine))
            self.assertEqual({entry["sandbox_id"] for entry in bound.get("/v1/events", follow=0)["items"]}, {mine})
            self.refused(404, "sandbox.not_found", bound.get, "/v1/events", follow=0, sandbox=other)
            self.refused(404, "sandbox.not_found", two.get, "/v1/events", follow=0, sandbox=mine)
            for path in ("/activity", "/events", "/execs/aaaaaaaaaaaaaaaa/receipt"):
                self.refused(404, "sandbox.not_found", two.get, f"/v1/sandboxes/{mine}{path}")
        finally:
            for client, box in ((one, mine), (one, other), (two, theirs)):
                client.delete("/v1/sandboxes/" + box)

    def test_where_it_begins(self):
        box = self.sandbox()
        last = self.api.get("/v1/events", follow=0, sandbox=box)["after"]
        self.refused(410, "cursor.gone", Stream, self.api, f"/v1/events?after={last + 1000}")
        self.refused(400, "request.invalid", Stream, self.api, "/v1/events", {"Last-Event-ID": "x"})
        stream = Stream(self.api, "/v1/events?kind=exec", {"Last-Event-ID": str(last)})
        self.api.exec(box, "true")
        events = stream.until("exec.ended")
        stream.close()
        self.assertEqual([event[1] for event in events], ["exec.started", "exec.ended"])
        self.assertEqual(events[0][0], events[0][2]["sequence"])
        page = self.api.get("/v1/events", follow=0, after=events[0][0], kind="exec", limit=1)
        self.assertEqual([entry["sequence"] for entry in page["items"]], [events[1][0]])
        # `after` counts more than the header.
        stream = Stream(self.api, f"/v1/events?after={events[0][0]}", {"Last-Event-ID": "1"})
        self.assertEqual(stream.next()[0], events[1][0])
        stream.close()

    def test_a_slow_reader_is_told(self):
        box = self.sandbox()
        last = self.api.get("/v1/events", follow=0, limit=1000)["after"]
        slow = Stream(self.api, f"/v1/events?after={last}&kind=file")
        quick = self.api.connection()
        folder = "/tmp/" + "d" * 200 + "/" + "e" * 200 + "/" + "f" * 200 + "/" + "g" * 200
        wait_until(lambda: "too slowly" in self.flood(quick, box, folder), 60, what="a slow reader's end")
        quick.close()
        events = []
        while (event := slow.next()) is not None:
            events.append(event)
        slow.close()
        self.assertEqual((events[-1][1], events[-1][2]["reason"]), ("dropped", "the client reads too slowly"))
        # It goes on where it was, without a hole.
        numbers = [event[0] for event in events[:-1]]
        self.assertEqual(events[-1][2]["after"], numbers[-1])
        self.assertEqual(numbers, sorted(set(numbers)))
        rest = self.api.get("/v1/events", follow=0, after=numbers[-1], kind="file", limit=1)["items"]
        self.assertGreater(rest[0]["sequence"], numbers[-1])

    def flood(self, connection, box, folder):
        for _ in range(200):
            connection.request("POST", f"/v1/sandboxes/{box}/files/mkdir", json.dumps({"path": folder, "parents": True}),
                               {"Content-Type": "application/json"})
            connection.getresponse().read()
        return self.daemon.log()

    def test_nothing_is_lost_or_doubled_across_a_restart(self):
        with Daemon() as daemon:
            api = daemon.client()
            box = api.create()["id"]
            start = api.get("/v1/events", follow=0)["after"]
            seen, started = [], []
            stream = Stream(api, f"/v1/events?after={start}")
            for round in range(3):
                for _ in range(5):
                    started.append(api.exec(box, "true")["exec_id"])
                # One whose end the next daemon is told by the init.
                started.append(api.exec(box, "sleep 0.3", background=True)["exec_id"])
                wait_until(lambda: api.get(f"/v1/sandboxes/{box}/execs/{started[-1]}")["state"] != "starting", what="its start")
                while len(seen) < 5 * (round + 1):
                    seen.append(stream.next())
                stream.close()
                daemon.kill()
                daemon.start()
                stream = Stream(api, "/v1/events", {"Last-Event-ID": str(seen[-1][0])})
            api.delete("/v1/sandboxes/" + box)
            seen += stream.until("sandbox.ended")
            stream.close()
            kept = api.get(f"/v1/sandboxes/{box}/activity", limit=1000)["items"]
            self.verify_chain(kept, box)
            self.assertEqual([event[0] for event in seen], [entry["sequence"] for entry in kept if entry["sequence"] > start])
            for kind in ("exec.started", "exec.ended"):
                self.assertEqual(sorted(entry["exec_id"] for entry in self.of_kind(kept, kind)), sorted(started))
                self.assertEqual(len(self.of_kind(kept, kind)), len(started))


class Receipts(ActivityTest):
    def receipt(self, box, exec_id):
        return wait_until(lambda: self.ready(box, exec_id))

    def ready(self, box, exec_id):
        try:
            return self.api.get(f"/v1/sandboxes/{box}/execs/{exec_id}/receipt")
        except ApiError as error:
            if error.code != "receipt.unavailable":
                raise
            return None

    def verify(self, data, *arguments):
        with tempfile.NamedTemporaryFile("wb", suffix=".json", delete=False) as file:
            file.write(data if isinstance(data, bytes) else json.dumps(data).encode())
        os.chmod(file.name, 0o644)
        try:
            return self.daemon.cli("verify", *arguments, file.name)
        finally:
            os.unlink(file.name)

    def make(self):
        box = self.sandbox(name=None)
        started = self.api.exec(box, "read line; printf 'line one\\n'; printf bad >&2; exit 4", background=True, stdin=True)
        self.refused(409, "receipt.unavailable", self.api.get, f"/v1/sandboxes/{box}/execs/{started['exec_id']}/receipt")
        self.api.write(box, "/tmp/during", b"12345")
        self.api.call("POST", f"/v1/sandboxes/{box}/execs/{started['exec_id']}/stdin?close=1", b"go\n")
        return box, started["exec_id"], self.receipt(box, started["exec_id"])

    def test_it_says_what_happened_and_verifies(self):
        box, exec_id, document = self.make()
        receipt = document["receipt"]
        self.assertEqual((receipt["exec"]["id"], receipt["exec"]["exit_code"], receipt["exec"]["outcome"]), (exec_id, 4, "exited"))
        self.assertEqual(receipt["output"]["stdout"], {"bytes": 9, "sha256": hashlib.sha256(b"line one\n").hexdigest(), "log_whole": True})
        self.assertEqual(receipt["egress"], [])
        self.assertEqual([dict(map(tuple, change["details"]))["path"] for change in receipt["api_file_changes"]], ["/tmp/during"])
        self.assertNotIn("file_changes", receipt, "a command's own changes are not known")
        self.assertEqual(receipt["sandbox"]["limits"]["memory"]["value"], 512 << 20)
        self.verify_chain(receipt["chain"]["entries"], box, receipt["chain"]["anchor"], receipt["chain"]["entries"][0]["number"])
        code, out, error = self.verify(document)
        self.assertEqual((code, error), (0, ""), out)
        self.assertIn(exec_id, out)
        # Indented, and with the key that is known to be this installation's.
        key = self.api.get("/v1/receipts/key")["key"]
        self.assertEqual(self.verify(json.dumps(document, indent=3).encode(), "--key", key)[0], 0)
        code, _, error = self.verify(document, "--key", "ab" * 32)
        self.assertEqual(code, 1)
        self.assertIn("another key", error)
        # Also when the sandbox is gone; and with the signature checked by others.
        self.api.delete("/v1/sandboxes/" + box)
        later = self.receipt(box, exec_id)
        self.assertEqual(later["receipt"]["chain"], receipt["chain"])
        self.assertEqual(self.verify(later)[0], 0)
        self.independent_signature(document)

    def independent_signature(self, document):
        """With openssl's own program, over what the documentation says is signed."""
        signature = document["signature"]
        with tempfile.TemporaryDirectory() as folder:
            def put(name, data):
                path = os.path.join(folder, name)
                open(path, "wb").write(data)
                return path
            key = put("key", bytes.fromhex("302a300506032b6570032100" + signature["key"]))
            signed = put("signed", b"caisson-receipt-1\n" + canonical(document["receipt"]))
            value = put("value", bytes.fromhex(signature["value"]))
            result = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-keyform", "DER", "-rawin",
                                     "-in", signed, "-sigfile", value], capture_output=True, text=True, timeout=30)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_what_a_stranger_signed_does_not_drive_the_terminal(self):
        """Anybody can sign a receipt with a key of their own: what it says is shown, not sent."""
        _, _, document = self.make()
        document["receipt"]["exec"]["started_at"] = "\u009b31m\u202e"
        with tempfile.TemporaryDirectory() as folder:
            key, signed = os.path.join(folder, "key"), os.path.join(folder, "signed")
            with open(signed, "wb") as file:
                file.write(b"caisson-receipt-1\n" + canonical(document["receipt"]))
            for command in (["genpkey", "-algorithm", "ed25519", "-out", key], ["pkey", "-in", key, "-pubout", "-outform", "DER"],
                            ["pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", signed]):
                result = subprocess.run(["openssl", *command], capture_output=True, timeout=30, check=True)
                document["signature"]["key"] = document["signature"]["value"]
                document["signature"]["value"] = result.stdout.hex()
        document["signature"]["key"] = document["signature"]["key"][-64:]
        code, out, error = self.verify(document)
        self.assertEqual((code, error), (0, ""), out)
        self.assertIn("\\xc2\\x9b31m\\xe2\\x80\\xae", out)

    def test_the_first_format_is_still_read(self):
        _, _, document = self.make()
        receipt = document["receipt"]
        receipt["format"], receipt["file_changes"] = "caisson-receipt/1", receipt.pop("api_file_changes")
        said = lambda: self.verify(document)[2].splitlines()[1:]
        # Nobody but the daemon can sign it anew; the rest is as it should be.
        self.assertEqual([line.split(":")[0].strip() for line in said()], ["signature"])
        receipt["format"] = "caisson-receipt/2"
        self.assertTrue(any("api_file_changes[0] does not match" in line for line in said()), said())

    def test_output_is_compared(self):
        _, _, document = self.make()
        with tempfile.NamedTemporaryFile("wb") as file:
            os.chmod(file.name, 0o644)
            file.write(b"line one\n")
            file.flush()
            self.assertEqual(self.verify(document, "--output-file", file.name)[0], 0)
            code, _, error = self.verify(document, "--output-file", file.name, "--stream", "stderr")
            self.assertEqual(code, 1)
            self.assertIn("output.stderr", error)

    def test_whatever_is_changed_is_found(self):
        _, _, document = self.make()
        places = list(self.places(document))
        self.assertGreater(len(places), 80)
        # Every value of it once, all of them in as few runs as the command line allows.
        for path in places[::3]:
            changed = copy.deepcopy(document)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            value = holder[path[-1]]
            holder[path[-1]] = (not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else
                                "x" if value is None else value[:-1] + ("0" if value[-1:] != "0" else "1"))
            code, out, error = self.verify(changed)
            self.assertEqual(code, 1, (path, out, error))
            self.assertIn("does not", error, path)
        data = canonical(document)
        for at in range(0, len(data), len(data) // 40):
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
            code, out, error = self.verify(changed)
            self.assertEqual(code, 1, (at, changed[max(at - 20, 0):at + 20], out, error))
        dropped = copy.deepcopy(document)
        del dropped["receipt"]["chain"]["entries"][1]
        code, _, error = self.verify(dropped)
        self.assertEqual(code, 1)
        self.assertIn("is not linked to", error)
        self.assertEqual(self.verify(b"{}")[0], 1)
        self.assertEqual(self.verify(b"not json")[0], 1)

    def places(self, value, path=()):
        if isinstance(value, dict):
            for key, part in value.items():
                yield from self.places(part, path + (key,))
        elif isinstance(value, list):
            for at, part in enumerate(value):
                yield from self.places(part, path + (at,))
        else:
            yield path

    def test_the_command_line(self):
        box = self.sandbox()
        exec_id = self.api.exec(box, "echo hi")["exec_id"]
        self.receipt(box, exec_id)
        code, out, _ = self.daemon.cli("activity", "--kind", "exec", box)
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[1] for line in out.splitlines()], ["exec.started", "exec.ended"])
        code, out, _ = self.daemon.cli("activity", "--json", "-n", "1", box)
        self.assertEqual(json.loads(out)[0]["kind"], "exec.ended")
        code, out, _ = self.daemon.cli("events", "--sandbox", box, "--json")
        self.assertEqual([json.loads(line)["kind"] for line in out.splitlines()],
                         ["sandbox.created", "sandbox.running", "exec.started", "exec.ended"])
        code, out, _ = self.daemon.cli("receipt", box, exec_id)
        self.assertEqual(code, 0)
        self.assertEqual(self.verify(out.encode())[0], 0)
        code, out, _ = self.verify(out.encode(), "--json")
        self.assertEqual((code, json.loads(out)["verified"]), (0, True))
        code, _, error = self.daemon.cli("receipt", box, "aaaaaaaaaaaaaaaa")
        self.assertEqual(code, 125)
        self.assertIn("no activity", error)


class Retention(ActivityTest):
    config = "[activity]\nentries = 40\nreads = yes\nredact = *HIDDEN*\n"

    def test_the_front_goes_and_the_rest_verifies(self):
        box = self.sandbox()
        self.api.write(box, "/tmp/a", b"x")
        self.api.read(box, "/tmp/a")
        self.assertEqual([entry["kind"] for entry in self.all(box, kind="file")], ["file.written", "file.read"])
        self.api.exec(box, "IS_HIDDEN=1 MY_TOKEN=seen true")
        command = self.all(box, kind="exec.started")[0]["details"]["command"]
        self.assertIn("IS_HIDDEN=*** MY_TOKEN=seen", command)
        for number in range(60):
            self.api.post(f"/v1/sandboxes/{box}/files/mkdir", {"path": f"/tmp/d{number}"})
        # It goes on for a moment behind the last of them: until both ways to look say the same.
        entries = wait_until(lambda: (found := self.all(box))[0]["number"] == self.first(box) > 1 and len(found) <= 50 and found,
                             what="pruning")
        self.verify_chain(entries, box, entries[0]["previous"], entries[0]["number"])
        self.refused(410, "cursor.gone", Stream, self.api, "/v1/events?after=1")
        self.refused(410, "cursor.gone", self.api.get, "/v1/events", follow=0, after=1)

    def first(self, box):
        return self.api.get("/v1/events", follow=0, after=0, limit=1, sandbox=box)["items"][0]["number"]
