"""Folders of the user's: read-only, read-write, copy-on-write."""
import os
import shutil
import tempfile
import unittest

from caisson import DaemonTest


class Volumes(DaemonTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="caisson-volume-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        with open(os.path.join(self.folder, "file"), "w") as file:
            file.write("original")
        os.chmod(os.path.join(self.folder, "file"), 0o600)

    def run_with(self, mode, command, *more):
        return self.daemon.cli("run", "-v", f"{self.folder}:/data:{mode}", *more, "--", "sh", "-c", command)

    def test_read_only(self):
        code, out, err = self.run_with("ro", "cat /data/file; echo x > /data/new")
        self.assertEqual(out, "original")
        self.assertIn("Read-only", err)
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_read_write(self):
        code, out, err = self.run_with("rw", "cat /data/file; echo changed > /data/file; echo new > /data/new; stat -c %u /data/new")
        self.assertEqual((code, out), (0, "original0\n"), err)
        self.assertEqual(open(os.path.join(self.folder, "file")).read(), "changed\n")
        self.assertEqual(os.stat(os.path.join(self.folder, "new")).st_uid, os.getuid())

    def test_copy_on_write(self):
        code, out, err = self.run_with("cow", "echo changed > /data/file; echo new > /data/new; cat /data/file /data/new; rm /data/file; ls /data")
        self.assertEqual((code, out), (0, "changed\nnew\nnew\n"), err)
        self.assertEqual(os.listdir(self.folder), ["file"])
        self.assertEqual(open(os.path.join(self.folder, "file")).read(), "original")

    def test_other_users_files_stay_closed(self):
        """The mount maps the caller's uid alone: another user's private file is out of reach."""
        path = os.path.join(self.folder, "foreign")
        with open(path, "w") as file:
            file.write("foreign")
        os.chmod(path, 0o600)
        os.chown(path, 12345, 12345)
        code, out, err = self.run_with("rw", "cat /data/foreign")
        self.assertNotIn("foreign", out)
        self.assertNotEqual(code, 0)

    def test_root_gives_a_users_folder_as_that_user(self):
        os.chown(self.folder, 12345, 12345)
        os.chown(os.path.join(self.folder, "file"), 12345, 12345)
        secret = os.path.join(self.folder, "roots")
        with open(secret, "w") as file:
            file.write("of root")
        os.chmod(secret, 0o600)
        code, out, err = self.run_with("rw", "cat /data/file; echo new > /data/new; cat /data/roots")
        self.assertEqual(out, "original", err)
        self.assertIn("ermission denied", err)
        self.assertEqual(os.stat(os.path.join(self.folder, "new")).st_uid, 12345)

    def test_into_the_workspace(self):
        code, out, err = self.daemon.cli("run", "-v", f"{self.folder}:/workspace:rw", "--", "sh", "-c", "pwd; ls")
        self.assertEqual(out, "/workspace\nfile\n", err)

    def test_mount_point_through_a_link_stays_inside(self):
        code, out, err = self.daemon.cli("run", "-v", f"{self.folder}:/bin/../data/deep:ro", "--", "ls", "/data/deep")
        self.assertIn(code, (0, 125), err)

    def test_refusals(self):
        for word, text in [(f"{self.folder}:relative:ro", "GUEST"), (f"{self.folder}:/x:bad", "mode"),
                           ("/no/such:/x", "/no/such"), (f"{self.folder}/file:/x", "file")]:
            code, out, err = self.daemon.cli("run", "-v", word, "--", "true")
            self.assertEqual(code, 125)
            self.assertIn(text, err)

    def test_survives_stop_and_start_or_says_so(self):
        code, out, err = self.daemon.cli("create", "-v", f"{self.folder}:/data:ro")
        self.assertEqual(code, 0, err)
        box = out.strip()
        self.addCleanup(self.remove, box)
        self.assertEqual(self.api.sh(box, "cat /data/file"), "original")


if __name__ == "__main__":
    unittest.main()
