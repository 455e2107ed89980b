"""Copies from one sandbox into another: files and directories, both directions, what fails on which side, and whom
it is refused."""
import hashlib
import os
import unittest

from caisson import DaemonTest, wait_until


class CopyBetween(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.left = cls.api.create(timeout_seconds=3600, name="left")["id"]
        cls.right = cls.api.create(timeout_seconds=3600, name="right", disk_mb=64)["id"]

    def copy(self, sandbox, client=None, **fields):
        return (client or self.api).post(f"/v1/sandboxes/{sandbox}/files/copy", fields)

    def test_a_file_there_and_back(self):
        data = os.urandom(3_000_000)
        self.api.write(self.left, "/workspace/a", data, mode="0751")
        result = self.copy(self.left, **{"from": "/workspace/a", "to": "/workspace/new/dir/b", "to_sandbox": "right", "parents": True})
        self.assertEqual(result, {"path": "/workspace/a", "to": "/workspace/new/dir/b", "bytes": len(data)})
        self.assertEqual(self.api.read(self.right, "/workspace/new/dir/b"), data)
        self.assertEqual(self.api.sh(self.right, "stat -c %a /workspace/new/dir/b"), "751\n")
        # The same asked of the other side.
        self.copy(self.left, **{"from": "/workspace/new/dir/b", "to": "/workspace/c", "from_sandbox": self.right})
        self.assertEqual(self.api.read(self.left, "/workspace/c"), data)
        # Its own name is a copy inside.
        self.copy(self.left, **{"from": "/workspace/c", "to": "/workspace/d", "to_sandbox": "left"})
        self.assertEqual(self.api.read(self.left, "/workspace/d"), data)

    def test_a_directory(self):
        self.api.sh(self.left, "mkdir -p /workspace/tree/sub/empty; cd /workspace/tree; for i in $(seq 50); do echo $i > sub/$i; done; "
                    "ln -s sub/7 link; ln sub/8 hard; chmod 711 sub; touch -d '2011-11-11 11:11:11.5' sub/9")
        what = {"from": "/workspace/tree", "to": "/workspace/tree", "to_sandbox": "right"}
        self.refused(422, "file.wrong_type", self.copy, self.left, **what)
        self.copy(self.left, **what, recursive=True)
        look = "cd /workspace/tree; find . | sort; cat sub/50 link hard; stat -c '%a %h' sub sub/8; stat -c %Y.%y sub/9"
        self.assertEqual(self.api.sh(self.right, look), self.api.sh(self.left, look))
        self.refused(409, "file.exists", self.copy, self.left, **what, recursive=True, no_replace=True)

    def test_each_side_is_told_apart(self):
        self.api.write(self.left, "/workspace/x", b"x")
        error = self.refused(404, "file.not_found", self.copy, self.left, **{"from": "/workspace/none", "to": "/workspace/x", "to_sandbox": "right"})
        self.assertIn(f"in the source sandbox {self.left}", error.body["error"])
        error = self.refused(404, "file.not_found", self.copy, self.left, **{"from": "/workspace/x", "to": "/none/at/all", "to_sandbox": "right"})
        self.assertIn(f"in the target sandbox {self.right}", error.body["error"])
        error = self.refused(422, "file.wrong_type", self.copy, self.left, **{"from": "/workspace/x", "to": "/workspace", "to_sandbox": "right"})
        self.assertIn("target", error.body["error"])
        self.refused(422, "file.wrong_type", self.copy, self.left, **{"from": "/dev/zero", "to": "/workspace/zero", "to_sandbox": "right"})

    def test_a_file_that_does_not_fit_never_appears(self):
        self.api.sh(self.left, "head -c 100000000 /dev/zero > /workspace/large")
        error = self.refused(507, "file.no_space", self.copy, self.left, **{"from": "/workspace/large", "to": "/workspace/large", "to_sandbox": "right"})
        self.assertIn("target", error.body["error"])
        self.assertEqual(self.api.sh(self.right, "ls -A /workspace | grep -e large -e caisson || echo none"), "none\n")
        self.api.sh(self.left, "rm /workspace/large")

    def test_what_is_refused(self):
        both = {"from": "/workspace/x", "to": "/workspace/x"}
        self.refused(400, "request.invalid", self.copy, self.left, **both, to_sandbox="right", from_sandbox="right")
        self.refused(404, "sandbox.not_found", self.copy, self.left, **both, to_sandbox="nobody")
        self.refused(400, "request.invalid", self.copy, self.left, **both, to_sandbox="")
        self.refused(422, "exec.bad_user", self.copy, self.left, **both, to_sandbox="right", user="nobody-there")

    def test_only_within_the_workspace_and_the_token(self):
        other = self.daemon.tcp(self.daemon.token("elsewhere"))
        theirs = other.create(name="theirs")["id"]
        self.addCleanup(other.delete, "/v1/sandboxes/" + theirs)
        both = {"from": "/etc/hostname", "to": "/workspace/x"}
        self.refused(404, "sandbox.not_found", self.copy, self.left, **both, to_sandbox=theirs)
        self.refused(404, "sandbox.not_found", self.copy, theirs, other, **both, from_sandbox=self.left)
        bound = self.daemon.tcp(self.daemon.token(sandbox=self.left))
        self.refused(404, "sandbox.not_found", self.copy, self.left, bound, **both, to_sandbox=self.right)

    def test_a_paused_one_is_woken(self):
        self.api.write(self.left, "/workspace/p", b"paused")
        self.api.post(f"/v1/sandboxes/{self.right}/pause")
        self.copy(self.left, **{"from": "/workspace/p", "to": "/workspace/p", "to_sandbox": "right"})
        self.assertEqual(self.api.read(self.right, "/workspace/p"), b"paused")

    def test_a_client_that_leaves_ends_both_sides(self):
        self.api.sh(self.left, "mkdir -p /workspace/parts; for i in $(seq 40); do head -c 1000000 /dev/urandom > /workspace/parts/part$i; done")
        connection = self.api.connection()
        connection.request("POST", f"/v1/sandboxes/{self.left}/files/copy",
                           '{"from": "/workspace/parts", "to": "/workspace/gone", "to_sandbox": "right", "recursive": true}',
                           {"Content-Type": "application/json"})
        wait_until(lambda: self.api.sh(self.right, "ls /workspace/gone 2>/dev/null | wc -l") != "0\n")
        connection.close()

        def still():
            first = self.api.sh(self.right, "ls /workspace/gone | wc -l; ls -A /workspace/gone | grep -c caisson || true; sleep 0.1; ls /workspace/gone | wc -l").split()
            return first[0] == first[2] and first[1] == "0"
        wait_until(still)
        self.api.sh(self.right, "rm -rf /workspace/gone")
        # Both are free for more.
        self.copy(self.left, **{"from": "/workspace/parts/part1", "to": "/workspace/part1", "to_sandbox": "right"})
        sums = [hashlib.sha256(self.api.read(box, path)).hexdigest() for box, path in
                ((self.left, "/workspace/parts/part1"), (self.right, "/workspace/part1"))]
        self.assertEqual(sums[0], sums[1])


if __name__ == "__main__":
    unittest.main()
