"""Resources of the usual server: what is listed and read, in both eras; what is not there; completion; and what reading
and watching must not do to a sandbox."""
import base64
import json

from caisson import wait_until
from mcp import Mcp, McpError, McpTest

PARAMS, MISSING = -32602, -32002


class Case(McpTest):
    def read(self, uri, mcp=None):
        result = (mcp or self.mcp).modern("resources/read", {"uri": uri})
        self.assertEqual((result["resultType"], result["ttlMs"], result["cacheScope"]), ("complete", 0, "private"))
        self.assertEqual({content["uri"] for content in result["contents"]}, {uri})
        return result["contents"]

    def missing(self, uri, mcp=None):
        with self.assertRaises(McpError) as caught:
            (mcp or self.mcp).modern("resources/read", {"uri": uri})
        self.assertEqual((caught.exception.code, caught.exception.status, caught.exception.data), (PARAMS, 200, {"uri": uri}))
        return caught.exception.message

    def state(self, sandbox):
        return self.api.get("/v1/sandboxes/" + sandbox)["state"]


class Lists(Case):
    def test_pages(self):
        ids = [self.sandbox(name=f"listed-{number}") for number in range(3)]
        result = self.mcp.modern("resources/list")
        uris = [resource["uri"] for resource in result["resources"]]
        self.assertEqual(uris, ["sandboxes://all"] + [f"sandbox://{sandbox}" for sandbox in ids])
        self.assertEqual([resource["name"] for resource in result["resources"]][1], "listed-0")
        self.assertNotIn("nextCursor", result)
        self.assertEqual(result["cacheScope"], "private")
        self.assertEqual(self.mcp.modern("resources/list", {"cursor": ""})["resources"], result["resources"])

    def test_cursors(self):
        for cursor in ("x", "====", base64.b64encode(b"page:").decode(), base64.b64encode(b"page:x:").decode(), 5, None,
                       base64.b64encode(b"page:0:" + b"y" * 200).decode(), "A" * 4000, base64.b64encode(b"page:0:\0").decode()):
            for method in ("resources/list", "resources/templates/list"):
                with self.assertRaises(McpError) as caught:
                    self.mcp.modern(method, {"cursor": cursor})
                self.assertEqual(caught.exception.code, PARAMS, cursor)
        # One that is ours in form, but behind everything, is an empty page.
        behind = base64.b64encode(b"page:99:").decode()
        self.assertEqual(self.mcp.modern("resources/list", {"cursor": behind})["resources"], [])

    def test_templates(self):
        found = {template["uriTemplate"]: template for template in
                 self.mcp.modern("resources/templates/list")["resourceTemplates"]}
        self.assertEqual(set(found), {"sandbox://{sandbox}", "sandbox://{sandbox}/files/{+path}",
                                      "job://{sandbox}/{job}/{stream}"})
        for template in found.values():
            self.assertTrue(template["name"] and template["description"] and template["title"])

    def test_legacy(self):
        sandbox = self.sandbox()
        session = self.mcp.session("2024-11-05")
        result = session.request("resources/list")
        self.assertEqual(set(result), {"resources"})
        self.assertNotIn("title", result["resources"][0])
        result = session.request("resources/read", {"uri": f"sandbox://{sandbox}"})
        self.assertEqual(set(result), {"contents"})
        with self.assertRaises(McpError) as caught:
            session.request("resources/read", {"uri": "sandbox://nowhere"})
        self.assertEqual((caught.exception.code, caught.exception.data), (MISSING, {"uri": "sandbox://nowhere"}))
        session.end()


class Reading(Case):
    def test_inventory_and_record(self):
        sandbox = self.sandbox(name="recorded", labels={"team": "blue"})
        content, = self.read("sandboxes://all")
        self.assertEqual(content["mimeType"], "application/json")
        mine = [entry for entry in json.loads(content["text"])["sandboxes"] if entry["id"] == sandbox]
        self.assertEqual((mine[0]["name"], mine[0]["state"], mine[0]["uri"]), ("recorded", "running", f"sandbox://{sandbox}"))
        job = self.api.exec(sandbox, ["sh", "-c", "exit 7"])["exec_id"]
        record = json.loads(self.read("sandbox://recorded")[0]["text"])
        self.assertEqual((record["id"], record["labels"]), (sandbox, {"team": "blue"}))
        self.assertEqual([(entry["job"], entry["exit_code"]) for entry in record["jobs"]], [(job, 7)])

    def test_ended(self):
        sandbox = self.sandbox()
        self.remove(sandbox)
        record = json.loads(self.read(f"sandbox://{sandbox}")[0]["text"])
        self.assertEqual((record["state"], record["end_reason"]), ("ended", "user"))
        self.assertIn("ended at", self.missing(f"sandbox://{sandbox}/files/etc/passwd"))

    def test_files(self):
        sandbox = self.sandbox()
        self.api.write(sandbox, "/tmp/notes.md", "# grüße\n".encode())
        self.api.write(sandbox, "/tmp/data.bin", b"\0\1\2\xff")
        self.api.write(sandbox, "/tmp/a b?c#d%", b"odd")
        self.api.write(sandbox, "/tmp/empty", b"")
        for path in ("tmp/notes.md", "/tmp/notes.md", "%2Ftmp/notes%2emd"):
            content, = self.read(f"sandbox://{sandbox}/files/{path}")
            self.assertEqual((content["text"], content["mimeType"]), ("# grüße\n", "text/markdown"))
        content, = self.read(f"sandbox://{sandbox}/files/tmp/data.bin")
        self.assertEqual((base64.b64decode(content["blob"]), content["mimeType"]), (b"\0\1\2\xff", "application/octet-stream"))
        for path in ("tmp/a b?c#d%25", "tmp/a%20b%3Fc%23d%25"):
            self.assertEqual(self.read(f"sandbox://{sandbox}/files/{path}")[0]["text"], "odd")
        self.assertEqual(self.read(f"sandbox://{sandbox}/files/tmp/empty")[0]["text"], "")
        content, = self.read(f"sandbox://{sandbox}/files/tmp")
        listed = {entry["name"]: entry for entry in json.loads(content["text"])["entries"]}
        self.assertEqual((listed["notes.md"]["type"], listed["notes.md"]["size"]), ("file", 10))
        self.assertIn("tmp", [entry["name"] for entry in json.loads(self.read(f"sandbox://{sandbox}/files/")[0]["text"])["entries"]])

    def test_large(self):
        sandbox = self.sandbox()
        self.api.write(sandbox, "/tmp/large", b"x" * (2**20 - 1) + "ü".encode() * 10)
        content, note = self.read(f"sandbox://{sandbox}/files/tmp/large")
        self.assertEqual(content["text"], "x" * (2**20 - 1))  # not half of the character
        self.assertIn(f"{2**20 + 19} bytes", note["text"])
        job = self.api.exec(sandbox, ["sh", "-c", "seq 1 100000"])["exec_id"]
        content, note = self.read(f"job://{sandbox}/{job}/stdout")
        self.assertTrue(content["text"].endswith("\n100000\n"))
        self.assertLessEqual(len(content["text"]), 256 * 1024)
        self.assertIn("588895 bytes", note["text"])

    def test_jobs(self):
        sandbox = self.sandbox(name="worker")
        job = self.api.exec(sandbox, ["sh", "-c", r"echo out; printf '\377\0' >&2"])["exec_id"]
        self.assertEqual(self.read(f"job://{sandbox}/{job}/stdout")[0]["text"], "out\n")
        self.assertEqual(self.read(f"job://worker/{job}/stderr")[0]["blob"], base64.b64encode(b"\xff\0").decode())
        for uri in (f"job://{sandbox}/{job}/stdin", f"job://{sandbox}/{job}", f"job://{sandbox}/nojob/stdout",
                    f"job://{sandbox}/{'a' * 16}/stdout"):
            self.missing(uri)

    def test_missing(self):
        sandbox = self.sandbox()
        for uri in ("", "x", "sandbox://", "sandbox://a/b", "http://localhost/", "sandbox://" + "a" * 16, "sandboxes://all/",
                    f"sandbox://{sandbox}/files", f"sandbox://{sandbox}/files/no/such", f"sandbox://{sandbox}/files/a%00b",
                    f"sandbox://{sandbox}/files/a%0ab", f"sandbox://{sandbox}/files/%ff", f"sandbox://{sandbox}/files/%4",
                    f"sandbox://{sandbox}/files/" + "a/" * 3000, f"sandbox://{sandbox}/files/" + "a" * 20000,
                    "sandbox://..%2f..%2fetc", f"sandbox://{sandbox}%2ffiles/etc/passwd"):
            if len(uri) < 8000:  # longer ones do not fit the header Mcp-Name
                self.missing(uri)
        with self.assertRaises(McpError) as caught:
            self.mcp.session().request("resources/read", {"uri": f"sandbox://{sandbox}/files/" + "a" * 20000})
        self.assertEqual(caught.exception.code, MISSING)
        with self.assertRaises(McpError) as caught:
            self.mcp.session().request("resources/read", {"uri": 5})
        self.assertEqual(caught.exception.code, PARAMS)

    def test_foreign(self):
        sandbox = self.sandbox(name="private")
        self.api.write(sandbox, "/tmp/secret", b"secret")
        job = self.api.exec(sandbox, ["true"])["exec_id"]
        other = Mcp(self.daemon.tcp(self.daemon.token(workspace="other")))
        unknown = self.missing("sandbox://" + "a" * 16, other).replace("a" * 16, sandbox)
        self.assertEqual(self.missing(f"sandbox://{sandbox}", other), unknown)
        for uri in ("sandbox://private", f"sandbox://{sandbox}/files/tmp/secret", f"job://{sandbox}/{job}/stdout"):
            self.missing(uri, other)
        self.assertEqual(json.loads(self.read("sandboxes://all", other)[0]["text"]), {"sandboxes": []})
        self.assertEqual(len(other.modern("resources/list")["resources"]), 1)
        bound = Mcp(self.daemon.tcp(self.daemon.token(sandbox=sandbox)))
        also = self.sandbox()
        self.missing(f"sandbox://{also}", bound)
        self.assertEqual(len(json.loads(self.read("sandboxes://all", bound)[0]["text"])["sandboxes"]), 1)

    def test_paused(self):
        """A record and a job's output are read as it sleeps; a file wakes it."""
        sandbox = self.sandbox()
        self.api.write(sandbox, "/tmp/file", b"here")
        job = self.api.exec(sandbox, ["echo", "done"])["exec_id"]
        self.api.post(f"/v1/sandboxes/{sandbox}/pause")
        self.read("sandboxes://all")
        self.read(f"sandbox://{sandbox}")
        self.assertEqual(self.read(f"job://{sandbox}/{job}/stdout")[0]["text"], "done\n")
        self.assertEqual(self.state(sandbox), "paused")
        reader = Mcp(self.daemon.tcp(self.daemon.token(scopes=["sandboxes:read"])))
        with self.assertRaises(McpError) as caught:
            reader.modern("resources/read", {"uri": f"sandbox://{sandbox}/files/tmp/file"})
        self.assertIn("paused", caught.exception.message)
        self.assertEqual(self.read(f"sandbox://{sandbox}/files/tmp/file")[0]["text"], "here")
        self.assertEqual(self.state(sandbox), "running")


class Completion(Case):
    def complete(self, uri, name, value, **chosen):
        params = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": name, "value": value}}
        if chosen:
            params["context"] = {"arguments": chosen}
        return self.mcp.modern("completion/complete", params)["completion"]

    def test_values(self):
        sandbox = self.sandbox(name="finished")
        files, jobs = "sandbox://{sandbox}/files/{+path}", "job://{sandbox}/{job}/{stream}"
        self.api.write(sandbox, "/tmp/first.txt", b"")
        self.api.write(sandbox, "/tmp/fir/st", b"", parents="1")
        job = self.api.exec(sandbox, ["true"])["exec_id"]
        self.assertEqual(self.complete("sandbox://{sandbox}", "sandbox", "fini")["values"], ["finished"])
        self.assertEqual(self.complete(files, "sandbox", sandbox[:9])["values"], [sandbox])
        for prefix in ("/tmp/fi", "tmp/fi"):
            found = self.complete(files, "path", prefix, sandbox=sandbox)
            self.assertEqual(sorted(found["values"]), [prefix[:-2] + "fir/", prefix[:-2] + "first.txt"])
            self.assertEqual((found["total"], found["hasMore"]), (2, False))
        self.assertIn("tmp/", self.complete(files, "path", "")["values"])  # the only one there is
        self.assertEqual(self.complete(files, "path", "no/such/", sandbox=sandbox)["values"], [])
        self.assertEqual(self.complete(jobs, "job", job[:4], sandbox="finished")["values"], [job])
        self.assertEqual(self.complete(jobs, "stream", "std")["values"], ["stdout", "stderr"])
        self.assertEqual(self.complete(jobs, "job", "", sandbox="nowhere")["values"], [])
        self.assertEqual(self.complete("sandboxes://all", "x", "")["values"], [])
        self.api.sh(sandbox, "cd /tmp && mkdir many && cd many && seq -f n%g 1 150 | xargs touch")
        many = self.complete(files, "path", "/tmp/many/n", sandbox=sandbox)
        self.assertEqual((len(many["values"]), many["total"], many["hasMore"]), (100, 150, True))
        self.api.post(f"/v1/sandboxes/{sandbox}/pause")
        self.assertEqual(self.complete(files, "path", "/tmp/", sandbox=sandbox)["values"], [])
        self.assertEqual(self.state(sandbox), "paused")

    def test_refused(self):
        good = {"name": "sandbox", "value": ""}
        for params in ({}, {"ref": {}}, {"ref": {"type": "ref/resource"}, "argument": good},
                       {"ref": {"type": "ref/x", "uri": "x"}, "argument": good},
                       {"ref": {"type": "ref/prompt", "name": "none"}, "argument": good},
                       {"ref": {"type": "ref/resource", "uri": "sandbox://x"}, "argument": good},
                       {"ref": {"type": "ref/resource", "uri": "sandbox://{sandbox}"}, "argument": {"name": "x", "value": ""}},
                       {"ref": {"type": "ref/resource", "uri": "sandbox://{sandbox}"}, "argument": {"name": "sandbox"}}):
            with self.assertRaises(McpError) as caught:
                self.mcp.modern("completion/complete", params)
            self.assertEqual(caught.exception.code, PARAMS, params)


class Sessions(Case):
    """Subscriptions of a legacy session, on its GET stream."""

    def updated(self, stream):
        message = stream.next()
        self.assertEqual(message["method"], "notifications/resources/updated")
        return message["params"]["uri"]

    def test_subscribe(self):
        sandbox = self.sandbox()
        session = self.mcp.session()
        with session.stream() as stream:
            uri = f"sandbox://{sandbox}/files/tmp/watched"
            self.assertEqual(session.request("resources/subscribe", {"uri": uri}), {})
            self.assertEqual(session.request("resources/subscribe", {"uri": uri}), {})
            self.api.write(sandbox, "/tmp/watched", b"1")
            self.assertEqual(self.updated(stream), uri)
            self.assertEqual(session.request("resources/unsubscribe", {"uri": uri}), {})
            self.assertEqual(session.request("resources/unsubscribe", {"uri": uri}), {})
            self.assertEqual(session.request("resources/subscribe", {"uri": "sandboxes://all"}), {})
            self.api.write(sandbox, "/tmp/watched", b"2")
            self.remove(sandbox)
            # One change may be told of twice, the second time just before the end of the subscription.
            while (told := self.updated(stream)) != "sandboxes://all":
                self.assertEqual(told, f"sandbox://{sandbox}/files/tmp/watched")
        for uri, code in (("sandbox://nowhere", MISSING), ("x", MISSING), (f"sandbox://{sandbox}", MISSING), (1, PARAMS)):
            with self.assertRaises(McpError) as caught:
                session.request("resources/subscribe", {"uri": uri})
            self.assertEqual(caught.exception.code, code, uri)
        session.end()

    def test_idle(self):
        """A watch does not keep its sandbox from being idle."""
        sandbox = self.sandbox(timeout_seconds=600)
        session = self.mcp.session()
        for uri in (f"sandbox://{sandbox}/files/tmp/watched", f"sandbox://{sandbox}"):
            session.request("resources/subscribe", {"uri": uri})
        with session.stream() as stream:
            # Not sooner: a slow machine may take that second for what is above.
            self.api.call("PATCH", "/v1/sandboxes/" + sandbox, {"idle_timeout_seconds": 1})
            wait_until(lambda: self.state(sandbox) == "ended", 30)
            self.assertTrue(self.updated(stream).startswith(f"sandbox://{sandbox}"))
        session.end()
