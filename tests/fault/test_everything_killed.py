"""kill -9 -1 from inside takes the launcher, the spare runners and the killer's own runner. What is asked for next must
be done all the same: a request that a dying runner was given and had not read goes to another one."""
import unittest

from caisson import DaemonTest

# Root inside may signal everybody but PID 1.
EVERYTHING = "kill -9 -1"


class EverythingKilled(DaemonTest):
    def kill_everything(self, box):
        """Answers with the record of an exec whose supervisor was killed: how it ended nobody knows."""
        result = self.api.exec(box, EVERYTHING, user="root")
        self.assertTrue(result["lost"], result)
        self.assertIn("killed inside the sandbox", result["lost_reason"])

    def test_the_next_exec_runs(self):
        box = self.sandbox()
        for i in range(60):
            self.kill_everything(box)
            result = self.api.exec(box, "echo $((6 * 7))")
            self.assertEqual((result["exit_code"], result["stdout"]), (0, "42\n"), f"try {i}: {result}")

    def test_the_next_exec_gets_its_input(self):
        box = self.sandbox()
        for i in range(20):
            self.kill_everything(box)
            result = self.api.exec(box, "cat", stdin="fed\n")
            self.assertEqual((result["exit_code"], result["stdout"]), (0, "fed\n"), f"try {i}: {result}")

    def test_the_next_file_is_read(self):
        box = self.sandbox()
        self.api.write(box, "/workspace/x", b"kept\n")
        for _ in range(20):
            self.kill_everything(box)
            self.assertEqual(self.api.read(box, "/workspace/x"), b"kept\n")

    def test_spares_killed_alone(self):
        """By name, so that the killer ends in good order, and is told before they are gone."""
        box = self.sandbox()
        others = ("for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in runner|launcher) p=${p#/proc/}; "
                  "[ $p = $PPID ] || kill -9 $p;; esac; done; echo done")
        for i in range(20):
            self.assertEqual(self.api.sh(box, others, user="root"), "done\n")
            result = self.api.exec(box, "echo here")
            self.assertEqual((result["exit_code"], result["stdout"]), (0, "here\n"), f"try {i}: {result}")


if __name__ == "__main__":
    unittest.main()
