"""What somebody who comes from Docker, and has read nothing, types and is told."""
import os
import subprocess
import tempfile
import unittest

from caisson import PROGRAM, DaemonTest, wait_until


class Newcomer(DaemonTest):
    def cli(self, *arguments, **options):
        return self.daemon.cli(*arguments, **options)

    def refused(self, *arguments, **options):
        """What it says; nothing of it may be called a defect."""
        code, out, err = self.cli(*arguments, **options)
        self.assertEqual((code, out), (125, ""), err)
        self.assertNotIn("defect", err)
        return err

    def test_a_sandbox_of_run_lives_as_long_as_its_client(self):
        process = subprocess.Popen([PROGRAM, "run", "--name", "held", "--", "sleep", "1000"], stdin=subprocess.DEVNULL,
                                   env={**os.environ, **self.daemon.client_environment()}, **self.daemon.identity())
        record = wait_until(lambda: next((box for box in self.api.get("/v1/sandboxes")["items"] if box["name"] == "held"), None), 30)
        self.assertEqual((record["expires_at"], record["idle_timeout_seconds"]), (None, None))
        process.terminate()
        process.wait(30)
        wait_until(lambda: self.api.get("/v1/sandboxes/" + record["id"])["status"] == "ended", 30)
        text = self.cli("run", "--help")[1]
        self.assertNotIn("default: 10m", text)
        self.assertIn("or 15m (default: no end)", text)

    def test_a_template_that_is_not_installed(self):
        for verb, rest in (("create", ()), ("run", ("--", "true"))):
            self.assertIn(f"`caisson {verb} --template ubuntu-24.04 --allow-substitute`", self.refused(verb, "--template", "ubuntu-24.04", *rest))
            self.assertEqual(self.cli(verb, "--template", "ubuntu-24.04", "--allow-substitute", *rest)[0], 0)

    def test_the_manual_has_no_place(self):
        self.assertIn("/no/such/caisson.1: No such file or directory", self.refused("_man", "/no/such"))

    def test_verbs_that_need_no_configuration(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("[nonsense]\nkey = 1\n")
            file.flush()
            os.chmod(file.name, 0o644)
            for wrong in ("/no/such.conf", file.name):
                environment = {"CAISSON_CONFIG": wrong}
                for verb in (("--help",), ("help", "run"), ("version",), ("--version",), ("completion", "bash"), ("ls", "--help")):
                    self.assertEqual(self.cli(*verb, environment=environment)[0], 0, verb)
                self.assertIn(wrong, self.refused("ls", environment=environment))
                remote = {**environment, "CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}", "CAISSON_TOKEN": self.daemon.token()}
                self.assertEqual(self.cli("ls", "-q", environment=remote)[0], 0)
                # These are about this machine.
                self.assertIn(wrong, self.refused("state", "remove", environment=remote))

    def test_the_logs_of_an_exec(self):
        box = self.sandbox(name="demo")
        first, second = (self.cli("exec", "-d", box, "--", "echo", word)[1].strip() for word in ("first", "second"))
        self.cli("wait", "--for", "idle", box)
        for arguments, expected in ((("demo", first), "first\n"), (("-f", "demo", first), "first\n"), (("demo", "-n", "5", second), "second\n"),
                                    (("demo",), "second\n")):
            self.assertEqual(self.cli("logs", *arguments), (0, expected, ""), arguments)
        self.assertIn("logs needs a sandbox: ", self.refused("logs"))
        self.assertIn(f'and one exec of it, not "{second}" too', self.refused("logs", "demo", first, second))
        self.assertIn(f'and one exec of it, not "{second}" too', self.refused("logs", "-x", first, "demo", second))
        self.assertIn("to end a command: caisson jobs --kill ID demo", self.refused("jobs", "demo", "kill", first))

    def test_words_of_docker(self):
        box = self.sandbox()
        background = "a command in the background is `caisson create`, then `caisson exec -d SANDBOX -- COMMAND`"
        for arguments, words in [
            (("run", "-d", "nginx"), background),
            (("run", "--detach", "nginx"), background),
            (("pull", "debian"), "there are no images yet; `caisson templates`"),
            (("kill", box), "`caisson jobs --kill ID SANDBOX` for a command, `caisson stop SANDBOX` for a sandbox"),
            (("rename", box, "other"), "`caisson set --name NEW SANDBOX`"),
            (("rn", "--", "true"), "did you mean `caisson run` or `caisson rm`?"),
            (("help", "nope"), "`caisson help` lists them"),
            (("help", "rnu"), "did you mean `caisson run`?"),
            (("help", "rename"), "`caisson set --name NEW SANDBOX`"),
            (("run", "--rm", "--keep", "--", "true"), "--keep and --rm contradict each other"),
        ]:
            self.assertIn(words, self.refused(*arguments), arguments)
        # What it names works.
        self.assertEqual(self.cli("set", "--name", "other", box)[0], 0)
        job = self.cli("exec", "-d", "other", "--", "sleep", "1000")[1].strip()
        self.assertEqual(self.cli("jobs", "--kill", job, "other"), (0, "", ""))
        self.assertEqual(self.cli("run", "--rm", "-it", "--no-tty", "--", "echo", "hi"), (0, "hi\n", ""))

    def test_ids_of_execs_and_tokens(self):
        box = self.sandbox()
        for arguments in (("logs", box, "nope"), ("logs", "--tail", "5", box, "nope"), ("jobs", "--kill", "nope", box), ("attach", box, "nope"), ("receipt", box, "nope")):
            err = self.refused(*arguments)
            self.assertIn("not the id of an exec, which is 16 characters a-z, 0-9; `caisson jobs SANDBOX` lists them\n", err, arguments)
            self.assertNotIn("name", err)
        err = self.refused("token", "revoke", "nope")
        self.assertIn('"nope" is not the id of a token, which is 16 characters a-z, 0-9; `caisson token list` lists them\n', err)
        self.assertNotIn("name", err)
        # A sandbox has both.
        self.assertIn("an id is 16 characters a-z, 0-9; a name is 1 to 63", self.refused("exec", "Bad_Name", "--", "true"))

    def test_a_limit_that_was_reached(self):
        bomb = ["python3", "-c", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"]
        box = self.sandbox(memory_mb=64, pids=64)
        limits = self.api.get("/v1/sandboxes/" + box)["limits"]
        for name, command, option in (("memory", ["tail", "/dev/zero"], ("--memory", "64M", "2G")), ("pids", bomb, ("--pids", "64", "2000"))):
            if not limits[name]["enforced"]:
                continue
            flag, small, large = option
            # A sandbox of run is gone.
            code, _, err = self.cli("run", flag, small, "--", *command)
            self.assertEqual(code, 137, err)
            self.assertIn(f"; `caisson run {flag} {large}` gives it more", err)
            code, _, err = self.cli("exec", box, "--", *command)
            self.assertEqual(code, 137, err)
            self.assertIn(f"; `caisson set {box} {flag} {large}` gives it more", err)
            self.assertEqual(self.cli("set", box, flag, large)[0], 0)

    def test_which_out_of_memory_kill_is_reported(self):
        if not self.api.get("/v1/sandboxes/" + self.sandbox(memory_mb=64))["limits"]["memory"]["enforced"]:
            return
        for script, code, said in (("tail /dev/zero", 137, True), ("true; tail /dev/zero", 137, True), ("tail /dev/zero; echo on", 0, False)):
            result, _, err = self.cli("run", "-m", "64M", "--", "sh", "-c", script)
            self.assertEqual((result, "memory limit was reached" in err), (code, said), script)

    def test_cp_without_a_path(self):
        box = self.sandbox()
        with tempfile.TemporaryDirectory() as top:
            os.chmod(top, 0o777)
            with open(os.path.join(top, "a.txt"), "w") as file:
                file.write("text")
            os.chmod(file.name, 0o644)
            self.assertEqual(self.cli("cp", "a.txt", box + ":", cwd=top), (0, "", ""))
            self.assertEqual(self.api.sh(box, "cat /workspace/a.txt"), "text")
            self.assertEqual(self.cli("cp", box + ":", ".", cwd=top)[0], 0)
            with open(os.path.join(top, "workspace/a.txt")) as file:
                self.assertEqual(file.read(), "text")

    def test_folders_that_cannot_be_given(self):
        self.assertIn("/etc/hostname is not a folder, and only folders can be given; a file is copied: caisson cp /etc/hostname SANDBOX:/etc/name",
                      self.refused("run", "-v", "/etc/hostname:/etc/name", "--", "true"))
        above = os.path.dirname(self.daemon.state)
        self.assertRegex(self.refused("run", "-v", above + ":/workspace", "--", "true"),
                         f"the folder {above} cannot be given to a sandbox: Caisson's (state|runtime) directory {above}/[a-z/]+ is in it")
        self.assertIn(f"the folder {self.daemon.state} cannot be given to a sandbox: Caisson's state directory {self.daemon.state} is this folder, or",
                      self.refused("create", "-v", self.daemon.state + ":/workspace"))

    def test_one_kind_of_name_and_of_bounds(self):
        for given, missing in (("--tls-certificate", "--tls-key"), ("--tls-key", "--tls-certificate")):
            self.assertIn("caisson serve: --tls-certificate and --tls-key must be given together", self.refused("serve", given, "/no/such"))
        for state, words in (("/no/such", "state directory /no/such: No such file"), ("relative", "absolute path")):
            err = self.refused("state", "remove", environment={"CAISSON_STATE": state, "CAISSON_RUNTIME": "/no/such"})
            self.assertIn(words, err)
            self.assertNotIn("--state", err)
        box = self.sandbox()
        for arguments in (("create", "--memory", "1M"), ("create", "--memory", "9999999M"), ("set", "--memory", "9999999M", box)):
            self.assertRegex(self.refused(*arguments), r"--memory \(in MiB\) is [0-9]+; it must be 16 to [0-9]+\n", arguments)


if __name__ == "__main__":
    unittest.main()
