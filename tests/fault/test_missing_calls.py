"""Kernels and container runtimes that answer ENOSYS to newer system calls: what Caisson can do without, one
at a time (all at once: the column `enosys` of the sandbox suites), and what it says where it cannot."""
import os
import unittest

from caisson import BUILD, Daemon

ENOSYS = os.path.join(BUILD, "tests/lib/enosys")


def without(calls):
    return Daemon(wrapper=[ENOSYS, calls, "--"])


class Missing(unittest.TestCase):
    def test_each_with_a_fallback(self):
        """A sandbox with a name and a folder, a command with a clean set of descriptors, a file."""
        for call in ("openat2", "clone3", "execveat", "close_range", "statx", "layers-by-fd",
                     "landlock_create_ruleset,landlock_add_rule,landlock_restrict_self"):
            with self.subTest(call=call), without(call) as daemon:
                api = daemon.client()
                box = api.create(name="old-kernel")["id"]
                text = api.sh(box, f"cat /etc/hostname; grep -c {box} /etc/hosts; ls /proc/self/fd | wc -l")
                # Three, and that of ls itself.
                self.assertEqual(text.split(), [box, "1", "4"])
                api.write(box, "/workspace/deep/er/file", b"text", parents="true")
                self.assertEqual(api.read(box, "/workspace/deep/er/file"), b"text")

    def test_each_that_is_needed_is_named(self):
        for call in ("fsopen", "mount_setattr", "pidfd_open"):
            with self.subTest(call=call), without(call) as daemon:
                code, _, err = daemon.cli("run", "--", "true")
                self.assertNotEqual(code, 0)
                self.assertIn(f"the system call {call} (", err)


if __name__ == "__main__":
    unittest.main()
