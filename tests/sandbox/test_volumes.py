"""Folders of the user's: read-only, read-write, copy-on-write."""
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import unittest

import escape
from caisson import ApiError, DaemonTest, own, owner_uid
from marks import busy, heavy, long


class Volumes(DaemonTest):
    def setUp(self):
        self.folder = own(tempfile.mkdtemp(prefix="caisson-volume-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        with open(os.path.join(self.folder, "file"), "w") as file:
            file.write("original")
        os.chmod(own(os.path.join(self.folder, "file")), 0o600)

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
        self.assertEqual(os.stat(os.path.join(self.folder, "new")).st_uid, owner_uid())

    def test_copy_on_write(self):
        code, out, err = self.run_with("cow", "echo changed > /data/file; echo new > /data/new; cat /data/file /data/new; rm /data/file; ls /data")
        self.assertEqual((code, out), (0, "changed\nnew\nnew\n"), err)
        self.assertEqual(os.listdir(self.folder), ["file"])
        self.assertEqual(open(os.path.join(self.folder, "file")).read(), "original")

    def test_copy_on_write_passes_no_sockets_on(self):
        """Read-only does, as its documentation says: a socket is no file that is written to."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(self.folder, "socket"))
            listener.listen(4)
            os.mkfifo(os.path.join(self.folder, "fifo"))
            own(os.path.join(self.folder, "socket"))
            own(os.path.join(self.folder, "fifo"))
            reader = os.open(os.path.join(self.folder, "fifo"), os.O_RDONLY | os.O_NONBLOCK)
            self.addCleanup(os.close, reader)
            script = ("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/data/socket\")'; echo $?; "
                      "python3 -c 'import os; os.open(\"/data/fifo\", os.O_WRONLY | os.O_NONBLOCK)'; echo $?")
            code, out, err = self.run_with("cow", script)
        self.assertEqual(out, "1\n1\n", err)
        self.assertIn("ConnectionRefusedError", err)

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

    def test_given_again_after_a_restart_of_the_daemon(self):
        """Nobody but the user can open them: the error names the command, and it works. Others are refused."""
        second = own(tempfile.mkdtemp(prefix="caisson-volume-"))
        self.addCleanup(shutil.rmtree, second, True)
        given = ["-v", f"{self.folder}:/data:rw", "-v", f"{second}:/second:ro"]
        code, out, err = self.daemon.cli("create", *given)
        self.assertEqual(code, 0, err)
        box = out.split()[0]
        self.addCleanup(self.remove, box)
        self.api.sh(box, "echo kept > /workspace/x")
        self.assertEqual(self.daemon.cli("stop", box)[0], 0)
        self.daemon.stop()
        self.daemon.start()
        command = "start " + " ".join(given) + " " + box
        for verb in (["start", box], ["exec", box, "--", "true"]):
            code, out, err = self.daemon.cli(*verb)
            self.assertNotEqual(code, 0)
            self.assertIn(f"`caisson {command}`", err)
        for wrong in (given[:2], [*given[:2], "-v", f"{second}:/second:rw"], [*given[:2], "-v", f"{second}:/elsewhere"],
                      [*given[:2], "-v", f"{self.folder}:/second"], [*given, "-v", f"{second}:/third"]):
            code, out, err = self.daemon.cli("start", *wrong, box)
            self.assertNotEqual(code, 0, wrong)
            self.assertIn("not the folders that", err)
        self.refused(400, "request.invalid", self.api.post, f"/v1/sandboxes/{box}/start", {"mounts": [{"path": "/data", "mode": "rw"}]})
        code, out, err = self.daemon.cli("start", *given[2:], *given[:2], box)  # their order does not matter
        self.assertEqual((code, out), (0, box + "\n"), err)
        self.assertEqual(self.api.sh(box, "cat /workspace/x /data/file; echo changed > /data/file; touch /second/x; echo $?"),
                         "kept\noriginal1\n")
        self.assertEqual(open(os.path.join(self.folder, "file")).read(), "changed\n")
        # Kept from then on, as after a create.
        self.assertEqual(self.daemon.cli("stop", box)[0], 0)
        self.assertEqual(self.daemon.cli("start", box)[0], 0)
        self.assertEqual(self.api.sh(box, "cat /data/file"), "changed\n")

    def test_no_folders_for_one_that_has_none(self):
        box = self.sandbox()
        self.assertEqual(self.daemon.cli("stop", box)[0], 0)
        code, out, err = self.daemon.cli("start", "-v", f"{self.folder}:/data", box)
        self.assertNotEqual(code, 0)
        self.assertIn("was created with: none", err)


class Programs(DaemonTest):
    """Files that would lend their owner's rights to whoever runs them on the host: none can be left in
    a read-write folder."""

    def setUp(self):
        self.folder = own(tempfile.mkdtemp(prefix="caisson-volume-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def box_with(self, mode, *more):
        code, out, err = self.daemon.cli("create", "-v", f"{self.folder}:/data:{mode}", *more)
        self.assertEqual(code, 0, err)
        box = out.strip()
        self.addCleanup(self.remove, box)
        return box

    def probe(self, box, directory="/data", user="0", **setting):
        with open(escape.PROBE, "rb") as file:
            self.api.write(box, "/tmp/probe", file.read(), mode="0755")
        result = self.api.exec(box, ["/tmp/probe"], user=user, timeout_seconds=120, env={"PROBE_DIRECTORY": directory})
        wrong, count = escape.breaches(result["stdout"], user, **setting)
        self.assertEqual((wrong, result["exit_code"]), ([], 0), result["stderr"])
        self.assertGreater(count, 280)

    def on_host(self):
        """(path, status) of all that is in the folder."""
        for top, directories, files in os.walk(self.folder):
            for name in directories + files:
                path = os.path.join(top, name)
                yield path, os.lstat(path)

    def assert_harmless(self, at_least=1):
        found = list(self.on_host())
        self.assertGreaterEqual(len(found), at_least)
        for path, status in found:
            self.assertEqual(status.st_mode & (stat.S_ISUID | stat.S_ISGID), 0, path)
            self.assertFalse(stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode), path)
            self.assertNotIn("security.capability", os.listxattr(path, follow_symlinks=False), path)

    def test_the_probe_in_a_read_write_folder(self):
        self.probe(self.box_with("rw"), folder=True)
        self.assert_harmless(at_least=4)

    def test_the_probe_as_an_ordinary_user(self):
        os.chmod(self.folder, 0o777)
        self.probe(self.box_with("rw"), folder=True, user="1000", directory="/tmp")
        self.assert_harmless(at_least=0)

    def test_the_probe_with_nested_user_namespaces(self):
        self.probe(self.box_with("rw", "--nested-userns"), folder=True, nested=True)
        self.assert_harmless(at_least=4)

    def test_one_of_several_folders(self):
        """One read-write folder is enough, whichever it is."""
        other = own(tempfile.mkdtemp(prefix="caisson-volume-"))
        self.addCleanup(shutil.rmtree, other, True)
        box = self.box_with("ro", "-v", f"{other}:/other:cow", "-v", f"{other}:/third:rw")
        self.assertNotEqual(self.api.exec(box, "touch /third/x; chmod 4755 /third/x")["exit_code"], 0)
        self.assertEqual(os.lstat(os.path.join(other, "x")).st_mode & 0o6000, 0)

    def test_with_the_tools_of_an_attacker(self):
        box = self.box_with("rw")
        script = """
            cp /bin/true a; chmod 4755 a; chmod 2755 a; chmod u+s a; install -m 6755 /bin/true b
            cp /bin/true c; setcap cap_setuid+ep c; cp -a a d; mknod e c 1 3; mknod f b 8 0; mkdir -m 2777 g
            python3 - <<'END'
import os
def attempt(function, *arguments, **more):
    try:
        function(*arguments, **more)
        print("done", function.__name__, arguments)
    except OSError as error:
        print(error.errno)
attempt(os.open, "h", os.O_CREAT | os.O_WRONLY, 0o4755)
attempt(os.open, ".", os.O_TMPFILE | os.O_WRONLY, 0o2755)
attempt(os.mknod, "i", 0o104755)
attempt(os.setxattr, "c", "security.capability", bytes([1, 0, 0, 2, 128] + [0] * 15))
attempt(os.setxattr, "c", "security.capability", bytes([1, 0, 0, 3, 128] + [0] * 19))
attempt(os.mknod, "j", 0o20666, os.makedev(1, 3))
os.mkdir("k", 0o6777)
END
            true"""
        result = self.api.exec(box, script, cwd="/data")
        self.assertEqual(result["stdout"].split(), ["1"] * 6, result)
        self.assert_harmless(at_least=3)

    def test_an_archive_and_a_copy_do_not_bring_them(self):
        """From the sandbox's own disk into the folder is a copy; nothing there can have the bits either."""
        box = self.box_with("rw")
        with tempfile.TemporaryDirectory() as made:
            path = os.path.join(made, "p")
            shutil.copy("/bin/true", path)
            os.chmod(path, 0o4755)
            archive = subprocess.run(["tar", "-C", made, "-c", "p"], capture_output=True, check=True).stdout
        self.api.write(box, "/tmp/a.tar", archive)
        result = self.api.exec(box, "tar -xpf /tmp/a.tar; cp -a p q; mv q r; cp -a p /tmp/p; mv /tmp/p s; ls", cwd="/data")
        self.assertIn("Operation not permitted", result["stderr"])
        self.assertIn("p\nr\ns\n", result["stdout"])
        self.assert_harmless(at_least=3)

    @heavy
    def test_setgid_directories_stay_usable(self):
        """A directory inside inherits the bit from the host's; that lends nobody's rights."""
        top = os.path.join(self.folder, "top")
        os.mkdir(top)
        os.chmod(own(top), 0o2755)
        box = self.box_with("rw")
        self.api.sh(box, "mkdir a && echo x > a/f && cp -r a b && git init -q g && rm -r a", cwd="/data/top")
        self.api.write(box, "/data/top/b/f", b"new")
        self.assertEqual(sorted(os.listdir(top)), ["b", "g"])
        for path, status in self.on_host():
            self.assertTrue(stat.S_ISDIR(status.st_mode) or status.st_mode & 0o6000 == 0, path)

    def test_the_api_does_not_bring_them(self):
        box = self.box_with("rw")
        for mode in ("4755", "2755"):
            with self.assertRaises(ApiError) as caught:
                self.api.write(box, "/data/" + mode, b"x", mode=mode)
            self.assertIn("not permitted", str(caught.exception))
        self.api.write(box, "/data/plain", b"x", mode="0755")
        self.assertEqual(self.api.read(box, "/data/plain"), b"x")
        self.assert_harmless()

    def test_without_a_read_write_folder_they_are_made(self):
        """Packages bring setuid programs and file capabilities. On the host they are of no use: the
        sandbox's disk is mounted nosuid and belongs to its own ids."""
        for mode in ("ro", "cow"):
            box = self.box_with(mode)
            self.probe(box, directory="/tmp")
            out = self.api.sh(box, "cp /bin/true /tmp/a; chmod 4755 /tmp/a; stat -c %a /tmp/a; setcap cap_setuid+ep /tmp/a; getcap /tmp/a")
            self.assertEqual(out, "4755\n/tmp/a cap_setuid=ep\n")

    @long
    @busy
    @heavy
    def test_ordinary_work(self):
        box = self.box_with("rw", "--memory", "1024")
        steps = {
            "git": "git init -q r && cd r && git config user.email a@b && git config user.name c && echo x > f && "
                   "chmod +x f && git add f && git commit -qm m && git clone -q . ../r2 && git -C ../r2 log --oneline | wc -l",
            "tar": "mkdir t && echo x > t/f && chmod 1777 t && tar -cf t.tar t && mkdir u && tar -xpf t.tar -C u && stat -c %a u/t",
            "gcc": "echo 'int main(void) { return 0; }' > a.c && gcc a.c -o a && ./a && strip a && ./a && echo built",
            "npm": "mkdir n && cd n && echo '{\"name\":\"n\",\"version\":\"1.0.0\",\"bin\":\"i.js\"}' > package.json && "
                   "echo '#!/usr/bin/env node' > i.js && npm pack --silent > /dev/null && mkdir ../m && cd ../m && "
                   "npm install --silent --offline ../n/n-1.0.0.tgz && ls node_modules/.bin",
            "pip": "mkdir p && cd p && printf 'from setuptools import setup\\nsetup(name=\"p\", version=\"1\", py_modules=[\"p\"])' > setup.py && "
                   "echo 'x = 7' > p.py && pip install -q --disable-pip-version-check --root-user-action=ignore --target ../site . && "
                   "PYTHONPATH=../site python3 -c 'import p; print(p.x)'",
        }
        expected = {"git": "1\n", "tar": "1777\n", "gcc": "built\n", "npm": "n\n", "pip": "7\n"}
        for name, step in steps.items():
            with self.subTest(name):
                result = self.api.exec(box, step, cwd="/data", timeout_seconds=110)
                self.assertEqual((result["stdout"], result["exit_code"]), (expected[name], 0), result)
        self.assert_harmless(at_least=20)


if __name__ == "__main__":
    unittest.main()
