"""What a newcomer meets first: errors that say what was meant, examples of the README that run as they stand, a watch
that shows files and not how they are written, the command line over TLS."""
import json
import os
import re
import shutil
import subprocess
import threading
import types
import unittest

import contract
from caisson import DaemonTest, OwnDaemons, make_certificate, wait_until

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Hints(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api = cls.daemon.client()
        cls.box = cls.api.create(name="hints", timeout_seconds=600)["id"]
        cls.base = f"/v1/sandboxes/{cls.box}"

    def says(self, words, status, code, *request):
        error = self.refused(status, code, self.api.call, *request)
        for word in words:
            self.assertIn(word, error.body["error"])

    def test_no_key_twice(self):
        with self.assertRaises(ValueError):
            json.loads('{"a":{"b":1,"b":2}}', object_pairs_hook=contract.no_twice)
        response, connection = self.api.raw("POST", "/v1/run", {"cmd": "echo x"})
        answer = json.loads(response.read(), object_pairs_hook=contract.no_twice)
        connection.close()
        self.assertEqual(answer["stdout"], "x\n")

    def test_the_field_that_was_meant(self):
        for given, meant in (("timeout", "timeout_seconds"), ("memroy_mb", "memory_mb"), ("templateID", "template"), ("envs", "env"),
                             ("Labels", "labels"), ("internet_access", "network")):
            with self.subTest(given):
                self.says([f"unknown field `{given}`; did you mean `{meant}`?"], 400, "request.invalid", "POST", "/v1/sandboxes", {given: 1})
        for given in ("nonsense", "x" * 200, "", "né"):
            error = self.refused(400, "request.invalid", self.api.post, "/v1/sandboxes", {given: 1})
            self.assertNotIn("did you mean", error.body["error"])

    def test_what_there_is_is_said(self):
        self.says(["`off`"], 400, "request.invalid", "POST", "/v1/sandboxes", {"network": "on"})
        self.says(["running, ", "ended"], 400, "request.invalid", "GET", "/v1/sandboxes?state=foo")
        limits = self.api.get("/v1/limits")
        self.says([f"to {limits['maximum']['memory_mb']}"], 400, "request.invalid", "POST", "/v1/sandboxes", {"memory_mb": 10 ** 9})
        for size in limits["sizes"]:
            if not size["fits"]:
                self.says([f"size `{size['name']}`", "on this host"], 422, "limit.exceeded", "POST", "/v1/sandboxes", {"size": size["name"]})

    def test_archives_of_other_kinds(self):
        path = self.base + "/files/archive?path=/workspace/no"
        tar = subprocess.run(["tar", "c", "-C", TOP, "README.md"], capture_output=True, check=True).stdout
        self.says(["gzip"], 422, "archive.invalid", "PUT", path, b"\x1f\x8b" + bytes(2000))
        self.says(["format=tar.zst"], 422, "archive.invalid", "PUT", path, b"\x28\xb5\x2f\xfd" + bytes(2000))
        self.says(["plain tar"], 422, "archive.invalid", "PUT", path + "&format=tar.zst", tar)
        self.assertEqual(self.api.call("PUT", path, tar)["entries"], 1)

    def test_both_names(self):
        self.api.write(self.box, "/workspace/one", b"1")
        self.assertEqual(self.api.post(self.base + "/files/rename", {"from": "/workspace/one", "to": "/workspace/two"}),
                         {"path": "/workspace/one", "to": "/workspace/two"})
        self.assertEqual(self.api.post(self.base + "/files/copy", {"from": "/workspace/two", "to": "/workspace/one"}),
                         {"path": "/workspace/two", "to": "/workspace/one", "bytes": 1})

    def test_a_long_signature(self):
        self.api.write(self.box, "/workspace/signed", b"1")
        url = self.api.post(self.base + "/files/sign", {"path": "/workspace/signed"})["url"]
        self.assertEqual(self.api.call("GET", url), b"1")
        self.refused(403, "url.invalid", self.api.call, "GET", url + "x" * 100)

    def test_ages(self):
        self.assertTrue(self.api.get(self.base + "/activity", since="1h")["items"])
        self.assertEqual(self.api.get(self.base + "/activity", until="1h")["items"], [])
        self.assertIn("items", self.api.get("/v1/usage", **{"from": "6h"}))

    def test_a_watch_shows_no_temporary_files(self):
        self.api.sh(self.box, "mkdir -p /workspace/w; echo old > /workspace/w/there")
        response, connection = self.api.raw("GET", self.base + "/files/watch?path=/workspace/w")
        events, ended = [], threading.Event()

        def reader():
            for line in iter(response.fp.readline, b""):
                if line.startswith(b"data:"):
                    events.append(json.loads(line[5:]))
                    if events[-1]["path"].endswith("/last"):
                        break
            ended.set()
        thread = threading.Thread(target=reader)
        thread.start()
        wait_until(lambda: events, what="the watch's start")
        for name in ("new", "there"):
            self.api.write(self.box, f"/workspace/w/{name}", b"x")
        self.api.sh(self.box, "mv /workspace/w/new /workspace/w/moved; touch /workspace/w/last")
        self.assertTrue(ended.wait(30), events)
        connection.close()
        thread.join(10)
        self.assertEqual({os.path.basename(event["path"]) for event in events[1:]}, {"new", "there", "moved", "last"}, events)
        kinds = {(event["event"], os.path.basename(event["path"])) for event in events}
        for one in (("created", "new"), ("modified", "there"), ("renamed_from", "new"), ("renamed_to", "moved")):
            self.assertIn(one, kinds, events)

    def example(self, language, command):
        text = re.search(rf"```{language}\n(.*?)```", open(os.path.join(TOP, "README.md"), encoding="utf-8").read(), re.S).group(1)
        path = os.path.join(self.daemon.top, "demo" + (".mjs" if language == "js" else ".py"))
        with open(path, "w") as file:
            file.write(text)
        result = subprocess.run([*command, path], capture_output=True, text=True, timeout=60, env={
            **os.environ, "CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}", "CAISSON_TOKEN": self.daemon.token()})
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "0 hello"), result.stderr)

    def test_the_example_in_python(self):
        self.example("python", ["/usr/bin/python3"])

    def test_the_example_in_node(self):
        self.example("js", [shutil.which("node") or self.fail("there is no node")])


class CommandLine(DaemonTest):
    def cli(self, *arguments, **options):
        return types.SimpleNamespace(**dict(zip(("returncode", "stdout", "stderr"), self.daemon.cli(*arguments, **options))))

    def test_budgets_with_an_ordinary_token(self):
        result = self.cli("budget", "list", environment={"CAISSON_TOKEN": self.daemon.token(), "CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}"})
        self.assertEqual((result.returncode, result.stdout), (0, "No budgets.\n"), result.stderr)

    def test_nothing_matches(self):
        result = self.cli("stop", "--label", "nosuch=1")
        self.assertEqual(result.returncode, 0)
        self.assertIn("no sandbox matches", result.stderr)

    def test_no_receipt(self):
        path = os.path.join(self.daemon.top, "no.json")
        with open(path, "w") as file:
            file.write("{}")
        result = self.cli("verify", path)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)

    def test_names(self):
        record = self.daemon.client().create(name="named")
        self.addCleanup(self.remove, record["id"])
        self.assertEqual(self.cli("ls", "--names").stdout, f"{record['id']}\nnamed\n")

    def test_completion_of_values(self):
        script = self.cli("completion", "bash").stdout
        for words, wanted in ((["caisson", "create", "--size", "m"], "medium"), (["caisson", "wait", "--for", "i"], "idle"),
                              (["caisson", "logs", "--source", "stde"], "stderr")):
            result = subprocess.run(["bash", "-c", script + f"\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD=3; _caisson_words; echo ${{COMPREPLY[@]}}"],
                                    capture_output=True, text=True, timeout=20)
            self.assertEqual(result.stdout.strip(), wanted, result.stderr)


class Tls(OwnDaemons):
    def test_the_command_line(self):
        daemon = self.new_daemon()
        certificate, key = make_certificate(daemon.top, host="another", addresses="IP:127.0.0.1")
        daemon.configure(f"[server]\ntls_certificate = {certificate}\ntls_key = {key}\n")
        daemon.start()
        self.assertIn(f"https://127.0.0.1:{daemon.port}", daemon.log())
        environment = {"CAISSON_URL": f"https://127.0.0.1:{daemon.port}", "CAISSON_CA_FILE": certificate,
                       "CAISSON_TOKEN": daemon.token(scopes=["admin"]), "SSL_CERT_FILE": "/dev/null"}

        def cli(*arguments, data=None, **changes):
            return daemon.cli(*arguments, stdin=data, binary=True, environment={**environment, **changes})
        data = os.urandom(1_000_000)
        status, output, problems = cli("run", "--", "cat", data=data)
        self.assertEqual((status, output == data), (0, True), problems)
        shown = json.loads(cli("welcome", "--json")[1])
        self.assertEqual(shown["url"], environment["CAISSON_URL"])
        other = make_certificate(daemon.top, name="other")[0]
        for changes, words in [
                ({"CAISSON_CA_FILE": ""}, b"set CAISSON_CA_FILE to a file"),
                ({"CAISSON_CA_FILE": other}, b"in the file that CAISSON_CA_FILE names"),
                # A certificate for another's name: no other authority helps.
                ({"CAISSON_URL": f"https://localhost:{daemon.port}"}, b"CAISSON_URL must have a name"),
                # The scheme is wrong.
                ({"CAISSON_URL": f"http://127.0.0.1:{daemon.port}"}, b"set CAISSON_URL=https://127.0.0.1:%d" % daemon.port)]:
            status, output, problems = cli("ls", **changes)
            self.assertEqual(status, 125)
            self.assertIn(words, problems)
            self.assertEqual(b"cannot be trusted" in problems, words[:21] != b"set CAISSON_URL=https")
            for misleading in (b"caisson serve", b"comes back"):
                self.assertNotIn(misleading, problems)
            self.assertEqual(json.loads(cli("ls", "--json", **changes)[2])["code"], "daemon.tls")
        self.assertIn(b"no certificates", cli("ls", CAISSON_CA_FILE="/dev/null")[2])


if __name__ == "__main__":
    unittest.main()
