"""What a process inside may do, and, in every column, what it may not. tests/escape tries more of that."""
import unittest

import escape
from caisson import DaemonTest
from marks import heavy
from columns import COLUMN

RIGHTS = COLUMN if COLUMN in ("subuid", "one-id") else "root"


class Isolation(DaemonTest):
    def probe(self, nested):
        box = self.sandbox(nested_userns=nested)
        with open(escape.PROBE, "rb") as file:
            self.api.write(box, "/tmp/probe", file.read(), mode="0755")
        for user in ("0",) if RIGHTS == "one-id" else ("0", "1000"):
            result = self.api.exec(box, ["/tmp/probe"], user=user, timeout_seconds=120)
            wrong, count = escape.breaches(result["stdout"], user, nested=nested, rights=RIGHTS)
            self.assertEqual((wrong, result["exit_code"]), ([], 0), result["stderr"])
            self.assertGreater(count, 280)
        # PID 1 has seen it all and still answers.
        self.assertEqual(self.api.sh(box, ["echo", "alive"]), "alive\n")

    def test_the_probe(self):
        self.probe(nested=False)

    def test_the_probe_with_nested_user_namespaces(self):
        self.probe(nested=True)

    def test_nested_user_namespaces(self):
        box = self.sandbox(nested_userns=True)
        self.assertEqual(self.api.sh(box, "unshare -Urm sh -c 'mount -t tmpfs x /mnt && echo mounted'"), "mounted\n")

    @heavy
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
