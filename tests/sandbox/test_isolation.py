"""What a process inside may do and what not: the probe, run in real sandboxes."""
import os
import unittest

from caisson import BUILD, DaemonTest


class Isolation(DaemonTest):
    def probe(self, box, *arguments, user="0"):
        with open(os.path.join(BUILD, "tests/sandbox/probe"), "rb") as file:
            self.api.write(box, "/tmp/probe", file.read(), mode="0755")
        result = self.api.exec(box, ["/tmp/probe", *arguments], user=user, timeout_seconds=120)
        wrong = [line for line in result["stdout"].splitlines() if not line.startswith("ok ")]
        self.assertEqual((wrong, result["exit_code"]), ([], 0), result["stderr"])
        self.assertGreater(len(result["stdout"].splitlines()), 145)
        # PID 1 has seen it all and still answers.
        self.assertEqual(self.api.sh(box, ["echo", "alive"]), "alive\n")

    def test_as_root(self):
        self.probe(self.sandbox(), "--check")

    def test_as_an_ordinary_user(self):
        self.probe(self.sandbox(), "--check", user="1000")

    def test_with_nested_user_namespaces(self):
        box = self.sandbox(nested_userns=True)
        self.probe(box, "--check", "--nested")
        self.assertEqual(self.api.sh(box, "unshare -Urm sh -c 'mount -t tmpfs x /mnt && echo mounted'"), "mounted\n")

    def test_the_probe_can_fail(self):
        """Outside, without a filter, most of what it checks is not so."""
        box = self.sandbox(nested_userns=True)
        with open(os.path.join(BUILD, "tests/sandbox/probe"), "rb") as file:
            self.api.write(box, "/tmp/probe", file.read(), mode="0755")
        result = self.api.exec(box, ["/tmp/probe", "--check", "unshare_user", "clone3_user"])
        self.assertEqual(result["exit_code"], 1)
        self.assertIn("not ok unshare_user: done", result["stdout"])

    def test_debuggers_work(self):
        box = self.sandbox(memory_mb=1024)
        self.api.write(box, "/workspace/a.c", b"int main(void) { return 7; }\n")
        out = self.api.sh(box, "gcc -g a.c -o a && gdb -nx -batch -ex 'break main' -ex run -ex continue ./a 2>&1", timeout_seconds=120)
        self.assertIn("exited with code 07", out)

    def test_no_core_dump_helper(self):
        """At any other limit than 1 the kernel would start the host's core_pattern helper."""
        box = self.sandbox()
        out = self.api.sh(box, ["python3", "-c", "import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); print(r.getrlimit(r.RLIMIT_CORE))"])
        self.assertEqual(out, "(1, 1)\n")


if __name__ == "__main__":
    unittest.main()
