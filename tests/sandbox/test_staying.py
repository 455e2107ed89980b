"""A process of the init that has done a small file operation stays for others as the same user: that it is the same
user still, that whoever stops or kills it delays nobody, and that it does not stay for long."""
import os
import unittest

from caisson import DaemonTest, at_once, wait_until
from marks import column_independent


class Staying(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600)["id"]
        cls.api.sh(cls.box, "chmod 777 /workspace; echo data > /workspace/f")

    def staying(self, user=1000):
        """The pids of those that stay, inside."""
        return self.api.sh(self.box, f"pgrep -x runner -u {user} || true").split()

    def test_one_process_serves_many(self):
        def same():
            seen = set()
            for _ in range(5):
                self.assertEqual(self.api.read(self.box, "/workspace/f", user="1000"), b"data\n")
                seen.update(self.staying())
            return len(seen) == 1
        wait_until(same)

    @column_independent
    def test_it_does_not_stay_for_long(self):
        self.api.read(self.box, "/workspace/f", user="1001")
        wait_until(lambda: not self.staying(1001))

    def test_a_name_that_stands_for_another(self):
        for uid in (2001, 2002, 2003):
            self.api.sh(self.box, f"sed -i '/^alice:/d' /etc/passwd; echo 'alice:x:{uid}:{uid}::/:/bin/sh' >> /etc/passwd")
            for turn in range(3):
                self.api.write(self.box, f"/workspace/alice-{uid}-{turn}", b"x", user="alice")
            self.assertEqual(self.api.sh(self.box, f"stat -c %u /workspace/alice-{uid}-*").split(), [str(uid)] * 3)

    @column_independent
    def test_a_refusal_ahead_of_the_data(self):
        """Its process is gone before it has read what was sent to it; what it said is heard all the same."""
        for turn in range(300):
            self.refused(422, "exec.bad_user", self.api.write, self.box, f"/workspace/refused-{turn}", b"x", user="nobody-of-that-name")

    def test_users_are_kept_apart(self):
        self.api.sh(self.box, "echo secret > /workspace/private; chmod 600 /workspace/private")
        for _ in range(10):
            self.assertEqual(self.api.read(self.box, "/workspace/private"), b"secret\n")
            self.refused(403, "file.permission_denied", self.api.read, self.box, "/workspace/private", user="1000")
            self.refused(403, "file.permission_denied", self.api.read, self.box, "/workspace/private", user="1000:1000")

    def test_killed_while_it_waits(self):
        for _ in range(10):
            self.assertEqual(self.api.read(self.box, "/workspace/f", user="1000"), b"data\n")
            self.api.exec(self.box, "pkill -KILL -x runner -u 1000", user="1000")
            self.assertEqual(self.api.read(self.box, "/workspace/f", user="1000"), b"data\n")

    def test_stopped_while_it_waits(self):
        stopped = []

        def stop():
            self.api.read(self.box, "/workspace/f", user="1000")
            stopped[:] = self.api.exec(self.box, "pkill -STOP -x runner -u 1000 && pgrep -x runner -u 1000", user="1000")["stdout"].split()
            return bool(stopped)
        wait_until(stop)
        self.assertEqual(self.api.read(self.box, "/workspace/f", user="1000"), b"data\n")
        wait_until(lambda: not set(stopped) & set(self.staying()))

    @column_independent
    def test_what_hangs_delays_nobody(self):
        self.api.sh(self.box, "mkfifo /workspace/fifo 2>/dev/null || true")
        self.refused(422, "file.wrong_type", self.api.read, self.box, "/workspace/fifo")
        # An upload that does not come is an operation that waits; the others do not.
        connection = self.api.connection()
        connection.putrequest("PUT", f"/v1/sandboxes/{self.box}/files?path=/workspace/slow")
        connection.putheader("Content-Length", "1000")
        connection.endheaders()
        connection.send(b"some")
        for _ in range(20):
            self.assertEqual(self.api.read(self.box, "/workspace/f"), b"data\n")
        connection.close()

    @column_independent
    def test_an_answer_before_the_data_has_come(self):
        """What is still sent for a write that has failed is nothing to the next operation of its process."""
        for size in (10, 100_000, 1_000_000):
            for _ in range(5):
                try:
                    self.api.write(self.box, "/workspace", os.urandom(size))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                except Exception as error:
                    self.assertEqual(getattr(error, "code", None), "file.wrong_type", error)
                self.assertEqual(self.api.read(self.box, "/workspace/f"), b"data\n")

    def test_many_at_once(self):
        def work(number):
            path, user = f"/workspace/many-{number}", str(1000 + number % 3)
            for turn in range(20):
                data = b"%d %d" % (number, turn)
                self.api.write(self.box, path, data, user=user)
                self.assertEqual(self.api.read(self.box, path, user=user), data)
        at_once(work, range(12))


if __name__ == "__main__":
    unittest.main()
