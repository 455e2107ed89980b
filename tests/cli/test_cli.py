"""The command line, as a person or a script uses it."""
import fcntl
import json
import os
import re
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time
import unittest

import escape
from columns import User
from caisson import PROGRAM, DaemonTest, OwnDaemons, at_once, wait_until
from marks import long
from ports import free_port


def on_a_terminal(daemon, *arguments):
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**os.environ, **daemon.client_environment(), "ASAN_OPTIONS": "detect_leaks=0"}, **daemon.identity())
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    return process.wait(30), shown.decode()


class CommandLine(DaemonTest):
    def cli(self, *arguments, **options):
        return self.daemon.cli(*arguments, **options)

    def test_run_passes_everything_through(self):
        code, out, err = self.cli("run", "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="in")
        self.assertEqual((code, out, err), (7, "in", "err\n"))

    def test_run_is_binary_safe_and_lossless(self):
        data = os.urandom(3_000_000)
        code, out, err = self.cli("run", "--", "cat", stdin=data, binary=True)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, data)

    def test_large_output_is_not_lost(self):
        code, out, err = self.cli("run", "--", "head", "-c", "120000000", "/dev/zero", binary=True)
        self.assertEqual((code, len(out)), (0, 120000000), err)

    def test_broken_pipe_ends_it(self):
        result = subprocess.run(["sh", "-c", f"{PROGRAM} run -- yes | head -n 1"], capture_output=True, text=True, timeout=30,
                                env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual((result.stdout, result.stderr), ("y\n", ""))
        wait_until(lambda: self.cli("ls", "-q")[1] == "", 30, what="the sandbox's end")

    def test_closed_standard_descriptors(self):
        result = subprocess.run(["sh", "-c", f"{PROGRAM} run -- cat <&-; echo $?; {PROGRAM} run -- echo hi >&-; echo $?"], capture_output=True,
                                text=True, timeout=30, env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual(result.stdout, "0\n0\n", result.stderr)

    def test_full_output_is_an_error(self):
        result = subprocess.run(["sh", "-c", f"{PROGRAM} help > /dev/full"], capture_output=True, text=True, timeout=30)
        self.assertEqual(result.returncode, 125)

    def test_options_that_cannot_be_sent_are_refused(self):
        box = self.sandbox()
        for option in ("-u", "-w"):
            result = subprocess.run([PROGRAM, "exec", option, b"\xff", box, "--", "id"], capture_output=True, timeout=30,
                                    env={**os.environ, **self.daemon.client_environment()})
            self.assertEqual(result.returncode, 125, result)
            self.assertIn(b"UTF-8", result.stderr)

    @long
    def test_sandbox_that_ends_under_a_command(self):
        for end, word, code in ((lambda box: self.api.delete("/v1/sandboxes/" + box), "user", 125), (None, "time", 124)):
            box = self.sandbox(timeout_seconds=600 if end else 6)
            process = subprocess.Popen([PROGRAM, "exec", box, "--", "sleep", "1000"], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                       env={**os.environ, **self.daemon.client_environment()})
            if end:
                wait_until(lambda: "sleep" in self.api.exec(box, "ps -eo comm")["stdout"], 30)
                end(box)
            self.assertEqual(process.wait(30), code)
            self.assertIn(word, process.stderr.read())
            process.stderr.close()

    def test_exit_codes(self):
        self.assertEqual(self.cli("run", "--", "no-such-program")[0], 127)
        self.assertEqual(self.cli("run", "--", "/etc/passwd")[0], 126)
        self.assertEqual(self.cli("run", "--timeout", "1", "--", "sleep", "100")[0], 124)
        self.assertEqual(self.cli("run", "--", "sh", "-c", "kill -9 $$")[0], 137)
        self.assertEqual(self.cli("run", "--template", "no-such", "--", "true")[0], 125)

    def test_run_leaves_nothing(self):
        self.cli("run", "--", "true")
        self.assertEqual(self.cli("ls", "-q")[1], "")

    def test_signal_reaches_the_command(self):
        process = subprocess.Popen([PROGRAM, "run", "--", "sh", "-c", "trap 'echo got; exit 9' INT; echo ready; while :; do sleep 0.1; done"],
                                   stdout=subprocess.PIPE, text=True, env={**os.environ, **self.daemon.client_environment()})
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "got\n")
        self.assertEqual(process.wait(30), 9)
        process.stdout.close()

    def test_killed_client_leaves_no_command(self):
        process = subprocess.Popen([PROGRAM, "run", "--name", "victim", "--", "sleep", "1234"], env={**os.environ, **self.daemon.client_environment()})
        wait_until(lambda: "victim" in self.cli("ls")[1] and
                   "1234" in self.cli("exec", "victim", "--", "ps", "-eo", "args")[1], 30)
        process.kill()
        process.wait()
        # Long before it would be idle: as its client's connection ends.
        wait_until(lambda: "victim" not in self.cli("ls")[1], 40, what="the sandbox's end")
        process = subprocess.Popen([PROGRAM, "run", "--keep", "--name", "kept", "--", "sleep", "1234"], env={**os.environ, **self.daemon.client_environment()})
        wait_until(lambda: "1234" in self.cli("exec", "kept", "--", "ps", "-eo", "args")[1], 30)
        process.kill()
        process.wait()
        wait_until(lambda: "1234" not in self.cli("exec", "kept", "--", "ps", "-eo", "args")[1], 30, what="the command's end")
        self.assertEqual(self.cli("rm", "kept")[0], 0)

    def test_time_is_over_in_a_terminal(self):
        """What is said of it is said when the terminal is as it was: lines begin at its left."""
        master, slave = pty.openpty()
        process = subprocess.Popen([PROGRAM, "run", "-T", "2s", "--", "sh", "-c", "printf prompt; sleep 1000"], stdin=slave, stdout=slave,
                                   stderr=slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                   env={**os.environ, **self.daemon.client_environment()})
        os.close(slave)
        self.seen = b""
        self.read_until(master, b"prompt\r\ncaisson: the command was ended by its time-out\r\n")
        self.assertEqual(process.wait(30), 124)
        os.close(master)

    def test_terminal(self):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 99, 0, 0))
        # What is typed may be there before the new size is.
        script = "stty size; read line; echo got $line; until stty size | grep '50 120'; do sleep 0.05; done"
        process = subprocess.Popen([PROGRAM, "run", "--", "sh", "-c", script],
                                   stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                   env={**os.environ, **self.daemon.client_environment()})
        os.close(slave)
        self.seen = b""
        self.read_until(master, b"41 99")
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        os.kill(process.pid, signal.SIGWINCH)
        os.write(master, b"hello\r")
        self.read_until(master, b"got hello")
        self.read_until(master, b"50 120")
        self.assertEqual(process.wait(30), 0)
        os.close(master)

    def read_until(self, fd, word, seconds=30):
        """Waits for a word in what the terminal shows; what comes behind it is kept for the next."""
        end = time.monotonic() + seconds
        while word not in self.seen:
            self.assertLess(time.monotonic(), end, self.seen)
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(fd, 4096)
                except OSError:
                    break
        self.assertIn(word, self.seen)
        self.seen = self.seen[self.seen.index(word) + len(word):]

    def test_create_exec_ls_inspect_rm(self):
        code, out, err = self.cli("create", "--name", "box", "--memory", "300M", "--metadata", "k=v")
        self.assertEqual(code, 0, err)
        box = out.strip()
        self.assertEqual(self.cli("exec", "box", "--", "hostname")[1], box + "\n")
        self.assertEqual(self.cli("exec", "-e", "X=1", "-w", "/tmp", "-u", "1000", box, "--", "sh", "-c", "echo $X; pwd; id -u")[1], "1\n/tmp\n1000\n")
        self.assertIn("box", self.cli("ls")[1])
        record = json.loads(self.cli("inspect", "box")[1])
        self.assertEqual((record["id"], record["limits"]["memory"]["value"], record["metadata"]), (box, 300 << 20, {"k": "v"}))
        code, out, err = self.cli("create", "--name", "box")
        self.assertEqual(code, 125)
        self.assertIn("box", err)
        self.assertEqual(self.cli("rm", "box")[0], 0)
        self.assertEqual(json.loads(self.cli("inspect", box)[1])["end"]["reason"], "user")
        self.assertEqual(self.cli("rm", "box")[0], 125)
        self.assertEqual(self.cli("rm", "-f", "box")[0], 0)

    def test_stop_start_pause_resume(self):
        box = self.sandbox(name="life")
        self.cli("exec", "life", "--", "sh", "-c", "echo 1 > /workspace/x")
        self.assertEqual(self.cli("stop", "life")[0], 0)
        self.assertIn("stopped", self.cli("ls")[1])
        self.assertEqual(self.cli("start", "life")[0], 0)
        self.assertEqual(self.cli("exec", "life", "--", "cat", "/workspace/x")[1], "1\n")
        self.assertEqual(self.cli("pause", "life")[0], 0)
        self.assertIn("paused", self.cli("ls")[1])
        self.assertEqual(self.cli("resume", "life")[0], 0)
        self.assertEqual(self.cli("exec", "life", "--", "echo", "on")[1], "on\n")
        del box

    def test_detached_exec_and_logs(self):
        box = self.sandbox()
        code, out, err = self.cli("exec", "-d", box, "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done; echo e >&2")
        exec_id = out.strip()
        self.assertEqual(self.cli("logs", "-f", "-x", exec_id, box)[1], "1\n2\n3\n")
        self.assertEqual(self.cli("logs", "--stderr", "-x", exec_id, box)[1], "e\n")
        self.assertEqual(self.cli("logs", "--from", "2", box)[1], "2\n3\n")

    def test_cp(self):
        top = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, top)
        box = self.sandbox()
        os.makedirs(os.path.join(top, "tree/sub"))
        data = os.urandom(200000)
        open(os.path.join(top, "tree/sub/data"), "wb").write(data)
        open(os.path.join(top, "tree/run.sh"), "w").write("echo ran")
        os.chmod(os.path.join(top, "tree/run.sh"), 0o755)
        os.symlink("sub/data", os.path.join(top, "tree/link"))
        os.mkfifo(os.path.join(top, "tree/fifo"))
        code, out, err = self.cli("cp", os.path.join(top, "tree"), f"{box}:/workspace")
        self.assertEqual(code, 1, err)
        self.assertIn("fifo", err)
        self.assertEqual(self.cli("cp", os.path.join(top, "tree"), f"{box}:/workspace")[0], 1)  # again, over what is there
        self.assertEqual(self.cli("exec", box, "--", "sh", "-c", "cd tree; sh run.sh; readlink link; stat -c %a run.sh")[1], "ran\nsub/data\n755\n")
        code, out, err = self.cli("cp", f"{box}:/workspace/tree", os.path.join(top, "back"))
        self.assertEqual(code, 0, err)
        self.assertEqual(open(os.path.join(top, "back/sub/data"), "rb").read(), data)
        self.assertEqual(os.readlink(os.path.join(top, "back/link")), "sub/data")
        self.assertEqual(os.stat(os.path.join(top, "back/run.sh")).st_mode & 0o777, 0o755)
        code, out, err = self.cli("cp", f"{box}:/workspace/nothing", top)
        self.assertEqual(code, 125)
        self.assertIn("/workspace/nothing", err)

    def test_cp_shows_its_progress(self):
        """On a terminal, of what takes a while; it is gone in the end. (The daemon stands still for a moment.)"""
        box = self.sandbox()
        with tempfile.TemporaryDirectory() as top:
            os.chmod(top, 0o755)
            with open(os.path.join(top, "large"), "wb") as file:
                file.truncate(30 << 20)
            for name in ("large", "small"):
                open(os.path.join(top, name), "ab").close()
            os.mkdir(os.path.join(top, "tree"))
            os.link(os.path.join(top, "large"), os.path.join(top, "tree/large"))
            pid = self.daemon.daemon_pid()
            for source, expected in (("large", r"\rcp \[#* *\] +[0-9]+% [0-9.]+ [KM]iB of 30 MiB, [0-9.]+ [KM]?i?B/s"),
                                     ("tree", r"\rcp [0-9.]+ [KM]iB, [0-9.]+ [KM]?i?B/s"), ("small", None)):
                os.kill(pid, signal.SIGSTOP)
                timer = threading.Timer(1, os.kill, (pid, signal.SIGCONT))
                timer.start()
                code, shown = on_a_terminal(self.daemon, "cp", os.path.join(top, source), f"{box}:/workspace")
                timer.join()
                self.assertEqual(code, 0, shown)
                if expected:
                    self.assertRegex(shown, expected)
                    # Nothing but spaces is the last that stands there.
                    self.assertRegex(shown, r"\r +\r$")
                else:
                    self.assertEqual(shown, "")
            self.assertEqual(self.cli("cp", os.path.join(top, "large"), f"{box}:/workspace"), (0, "", ""))

    def test_cp_standard_input_and_output(self):
        box = self.sandbox()
        data = os.urandom(200000)
        with tempfile.TemporaryDirectory() as top:
            self.assertEqual(self.cli("cp", "-", f"{box}:/tmp/new/f", stdin=data, binary=True, cwd=top), (0, b"", b""))
            self.assertEqual(self.cli("cp", f"{box}:/tmp/new/f", "-", binary=True, cwd=top), (0, data, b""))
            self.assertEqual(self.cli("cp", "--json", f"{box}:/tmp/new/f", "-", binary=True, cwd=top)[1], data)
            self.assertEqual(os.listdir(top), [])
            self.assertEqual(self.cli("cp", f"{box}:/tmp/new/f", "./-", cwd=top)[0], 0)
            self.assertEqual(os.listdir(top), ["-"])
        for arguments, words in [(("-", f"{box}:/tmp"), "no name"), ((f"{box}:/tmp", "-"), "not a regular file"),
                                 ((f"{box}:/tmp/new/f", f"{box}:/tmp/new/f", "-"), "one file"), (("-", "-"), "SANDBOX:PATH")]:
            code, out, err = self.cli("cp", *arguments, stdin="text")
            self.assertEqual((code, out), (125, ""), err)
            self.assertIn(words, err)

    def test_cp_keeps_times_and_modes(self):
        box = self.sandbox()
        with tempfile.TemporaryDirectory() as top:
            path = lambda name: os.path.join(top, name)
            os.mkdir(path("tree"), 0o700)
            for name, moment in [("tree/one", 1_000_000_000_123_456_789), ("two", 1_100_000_000_000_000_000)]:
                open(path(name), "w").close()
                os.utime(path(name), ns=(moment, moment))
            os.symlink("one", path("tree/link"))
            os.utime(path("tree/link"), (1_200_000_000,) * 2, follow_symlinks=False)
            os.utime(path("tree"), (1_300_000_000,) * 2)
            self.assertEqual(self.cli("cp", path("tree"), path("two"), f"{box}:/tmp/")[0], 0)
            self.assertEqual(self.cli("cp", path("tree/one"), f"{box}:/tmp/three")[0], 0)
            times = self.api.sh(box, "cd /tmp; TZ=UTC stat -c %.9Y tree tree/one tree/link two three").split()
            self.assertEqual([text.split(".")[0] for text in times], ["1300000000", "1000000000", "1200000000", "1100000000", "1000000000"])
            self.assertEqual([times[1], times[4]], ["1000000000.123456789"] * 2)
            os.mkdir(path("back"))
            self.assertEqual(self.cli("cp", "-r", f"{box}:/tmp/tree", f"{box}:/tmp/two", path("back"))[0], 0)
            back = [os.stat(path("back/" + name), follow_symlinks=False) for name in ("tree", "tree/one", "tree/link", "two")]
            self.assertEqual([stat.st_mtime_ns for stat in back],
                             [1_300_000_000_000_000_000, 1_000_000_000_123_000_000, 1_200_000_000_000_000_000, 1_100_000_000_000_000_000])
            self.assertEqual(back[0].st_mode & 0o777, 0o700)

    def test_cp_of_several(self):
        box, other = self.sandbox(), self.sandbox()
        with tempfile.TemporaryDirectory() as top:
            for name in "ab":
                with open(os.path.join(top, name), "w") as file:
                    file.write(name)
            self.api.sh(box, "echo c > /tmp/c")
            code, out, err = self.cli("cp", "--json", "a", "b", f"{box}:/tmp/c", f"{other}:/tmp/new/", cwd=top)
            self.assertEqual((code, json.loads(out)["files"]), (0, 3), err)
            self.assertEqual(self.api.sh(other, "cd /tmp/new; cat *"), "abc\n")
            for arguments in [("a", "b", f"{box}:/tmp/c"), ("a", "b", f"{box}:/tmp/none"), (f"{box}:/tmp/c", f"{other}:/tmp/new/a", "a")]:
                code, out, err = self.cli("cp", *arguments, cwd=top)
                self.assertEqual(code, 125)
                self.assertIn("need a directory", err)

    def test_cp_between_sandboxes(self):
        left, right = self.sandbox(), self.sandbox()
        self.api.sh(left, "mkdir -p /workspace/tree/sub; echo 1 > /workspace/tree/sub/one; ln -s sub/one /workspace/tree/link; echo 2 > /workspace/two; "
                          "touch -d '2001-02-03 04:05:06.123456789 UTC' /workspace/two /workspace/tree/sub/one")
        code, out, err = self.cli("cp", f"{left}:/workspace/tree", f"{right}:/workspace")
        self.assertEqual((code, out), (0, ""), err)
        self.assertEqual(self.cli("cp", f"{left}:/workspace/two", f"{right}:/workspace/new/dir/zwei")[0], 0)
        self.assertEqual(self.api.sh(right, "cat /workspace/tree/link /workspace/new/dir/zwei"), "1\n2\n")
        self.assertEqual(self.api.sh(right, "stat -c %.9Y /workspace/tree/sub/one /workspace/new/dir/zwei"), "981173106.123456789\n" * 2)
        code, out, err = self.cli("cp", f"{left}:/workspace/none", f"{right}:/workspace")
        self.assertEqual(code, 125)
        self.assertIn("in the source sandbox", err)

    def test_sign(self):
        box = self.sandbox()
        code, out, err = self.cli("sign", box, "up", "--put", "--expires", "5m", "--max-bytes", "1K")
        self.assertEqual(code, 0, err)
        self.assertIn("&max_bytes=1024&", out)
        server = f"http://127.0.0.1:{self.daemon.port}"
        curl = lambda *arguments: subprocess.run(["curl", "-sS", *arguments], capture_output=True, input=b"signed", timeout=60).stdout
        self.assertTrue(out.startswith(server + "/v1/signed/"), out)
        curl("-T", "-", out.strip())
        code, out, err = self.cli("sign", "--json", box, "/workspace/up")
        self.assertEqual(curl(json.loads(out)["url"]), b"signed")
        # Over TCP it is the address that was asked, with its port.
        code, out, err = self.cli("sign", box, "up", environment={"CAISSON_URL": server, "CAISSON_TOKEN": self.daemon.token()})
        self.assertTrue(out.startswith(server + "/v1/signed/"), out)
        self.assertEqual(curl(out.strip()), b"signed")
        self.assertEqual(self.cli("sign", box, "up", "--expires", "soon")[0], 125)
        self.assertEqual(self.cli("sign", box)[0], 125)

    def test_a_letter_means_one_thing(self):
        """In every verb: -n is how many, whatever of; but -f follows where one reads and forces where one removes, as everywhere."""
        meanings = {}
        for verb in re.findall(r"^  ([a-z]+)  +[A-Z]", self.cli("help")[1], re.MULTILINE):
            for letter, name in re.findall(r"^  -(.), --([a-z-]+)", self.cli(verb, "--help")[1], re.MULTILINE):
                meanings.setdefault(letter, set()).add(name)
        self.assertEqual(meanings.pop("f"), {"follow", "force"})
        self.assertEqual(meanings.pop("n"), {"last", "limit", "tail"})
        self.assertEqual({letter: names for letter, names in meanings.items() if len(names) > 1}, {})

    def test_a_shell_where_no_command_is_given(self):
        for arguments in (("run",), ("shell",)):
            self.assertEqual(self.cli(*arguments, "--no-tty", stdin="echo $((6 * 7)); exit 3")[:2], (3, "42\n"), arguments)
        code, _, err = self.cli("shell", "mybox", "ls")
        self.assertEqual(code, 125)
        self.assertIn("caisson exec mybox -- ls", err)

    def test_times_in_lists(self):
        box = self.sandbox(timeout_seconds=7190)
        self.api.sh(box, "true")
        self.assertRegex(self.cli("ls")[1], rf"AGE  EXPIRES\n(.*\n)*{box} .* \d+s  1h5\dm\n")
        self.assertRegex(self.cli("jobs", box)[1], r"START +DURATION .*\n\S+ +ended +exit 0 +\d\d:\d\d:\d\d +\d+s ")

    def test_habits_and_slips(self):
        box = self.sandbox()
        for arguments, words in (
                (("ps",), "here it is `caisson ls`"), (("list",), "here it is `caisson ls`"), (("kill", box), "here it is `caisson jobs --kill ID SANDBOX` for a command, `caisson stop SANDBOX` for a sandbox"), (("craete",), "did you mean `caisson create`?"),
                (("zzzz",), "`caisson help` lists them"), (("create", "--rm"), "only a sandbox of `run` is"), (("run", "-p", "80:80", "--", "true"), "no network yet"),
                (("create", "--memroy=1G"), "did you mean --memory?"), (("create", "-t", "x"), "--template"), (("create", "--zzzz"), "there is no option --zzzz\n")):
            code, _, err = self.cli(*arguments)
            self.assertEqual(code, 125, err)
            self.assertIn(words, err)
        for words in (("-it", "debian-not-there", "bash"), ("--rm", "nothing", "ls"), ("ubuntu", "ls"), ("--", "python:3.12", "ls")):
            code, _, err = self.cli("run", *words)
            self.assertEqual(code, 127, err)
            self.assertIn("there are no images yet", err)
        self.assertNotIn("images", self.cli("run", "--", "mistyped")[2])
        self.assertEqual(self.cli("run", "-i", "--", "cat", stdin="in")[:2], (0, "in"))

    def test_manual(self):
        """A page for each verb, with every option that --help has."""
        verbs = re.findall(r"^  ([a-z]+)  +[A-Z]", self.cli("help")[1], re.MULTILINE)
        self.assertIn("run", verbs)
        with tempfile.TemporaryDirectory() as top:
            self.assertEqual(self.cli("_man", top), (0, "", ""))
            self.assertEqual(sorted(os.listdir(top)), sorted(["caisson.1", *(f"caisson-{verb}.1" for verb in verbs)]))
            for verb in verbs:
                with open(f"{top}/caisson-{verb}.1") as file:
                    page = file.read().replace("\\-", "-")
                for option in re.findall(r"^ {2}(?:-., |    )(--[a-z0-9-]+)", self.cli(verb, "--help")[1], re.MULTILINE):
                    self.assertIn(f"\\fB{option}\\fR", page, verb)
            self.assertEqual(self.cli("_man", top + "/none")[0], 125)

    def test_names_do_not_drive_the_terminal(self):
        """A file's name, in a message of ours: escape sequences in it are shown, not sent."""
        box = self.sandbox()
        evil = "\x1b]0;owned\x07\x1b[31m\u009b5m\u202egpj.exe\u2066"
        self.api.sh(box, ["sh", "-c", 'mkdir /tmp/d && mkfifo "/tmp/d/$0"', evil])
        with tempfile.TemporaryDirectory() as top:
            results = [self.daemon.cli("cp", f"{box}:/tmp/d", top), self.daemon.cli("cp", f"{box}:/{evil}", top),
                       self.daemon.cli("cp", f"{box}:/tmp/d/{evil}", top), self.daemon.cli(evil)]
        for code, out, err in results:
            self.assertNotRegex(out + err, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", err)
            self.assertIn("[31m\\xc2\\x9b5m", err)
        _, _, err = self.daemon.cli("cp", "--json", f"{box}:/{evil}", "x")
        self.assertNotRegex(err, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", err)
        self.assertIn("\u009b5m\u202egpj.exe\u2066", json.loads(err)["error"])

    def test_cp_down_cannot_be_led_astray(self):
        """A hostile sandbox: links in place of directories must not be written through."""
        top = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, top)
        outside = os.path.join(top, "outside")
        os.mkdir(outside)
        target = os.path.join(top, "target")
        os.mkdir(target)
        box = self.sandbox()
        self.api.sh(box, f"mkdir -p /workspace/t/evil; echo pwned > /workspace/t/evil/file")
        os.mkdir(os.path.join(target, "t"))
        os.symlink(outside, os.path.join(target, "t/evil"))
        code, out, err = self.cli("cp", f"{box}:/workspace/t", target)
        self.assertNotEqual(code, 0)
        self.assertEqual(os.listdir(outside), [])

    def test_errors_say_what_to_do(self):
        for arguments, words in [
            (("run", "--template", "nope", "--", "true"), ("nope", "host")),
            (("run", "--isolation", "vm", "--", "true"), ("vm", "doctor")),
            (("exec", "nobody-here", "--", "true"), ("nobody-here", "caisson ls")),
            (("exec", "Bad_Name", "--", "true"), ("Bad_Name",)),
            (("run", "--memory", "lots", "--", "true"), ("lots", "512M")),
            (("run", "-w", "/no/such", "--", "true"), ("/no/such",)),
            (("run", "-u", "nosuchuser", "--", "true"), ("nosuchuser",)),
            (("run", "-v", "/tmp:/", "--", "true"), ("`/` is no place for a folder", "below")),
            (("selftest",), ("--escape", "--help")),
            (("frobnicate",), ("frobnicate", "help")),
            (("ls", "--nope"), ("--nope",)),
        ]:
            with self.subTest(arguments=arguments):
                code, out, err = self.cli(*arguments)
                self.assertEqual(code, 125, err)
                for word in words:
                    self.assertIn(word, err)

    def test_errors_name_flags(self):
        """What the API says of a field is said of the flag that was typed."""
        box = self.sandbox(name="cpu")
        for arguments, expected in [
            (("create", "--memory", "1M"), "--memory (in MiB) is 1; "),
            (("create", "--disk", "1M"), "--disk (in MiB) is 1; "),
            (("run", "--cpu", "0.001", "--", "true"), "--cpu must be "),
            (("create", "--name", "Bad_Name"), "--name: 1 to 63 of a-z, "),
            (("create", "--isolation", "strong"), "--isolation must be auto, "),
            (("create", "--label", "bad key=1"), "--label: a key "),
            (("set", "--memory", "1M", box), "--memory (in MiB) is 1; "),
            (("jobs", "--limit", "many", box), "--limit must be a number "),
            (("run", "--timeout", "soon", "--", "true"), "--timeout: invalid time `soon`; "),
            (("create", "--idle-timeout", "soon"), "--idle-timeout: invalid time `soon`; "),
            (("create", "--memory", "lots"), "--memory: invalid size `lots`; "),
        ]:
            with self.subTest(arguments=arguments):
                code, out, err = self.cli(*arguments)
                self.assertEqual(code, 125, err)
                self.assertTrue(err.startswith(f"caisson {arguments[0]}: {expected}"), err)
        self.assertTrue(json.loads(self.cli("create", "--json", "--memory", "1M")[2])["error"].startswith("--memory (in MiB) is 1"))
        # A sandbox whose name is a field's is a sandbox.
        self.cli("rm", "cpu")
        self.assertIn("`cpu`", self.cli("set", "--cpu", "1", "cpu")[2])

    def test_json_errors(self):
        code, out, err = self.cli("inspect", "--json", "nobody-here")
        self.assertEqual(json.loads(err)["code"], "sandbox.not_found")

    def test_help_of_every_verb(self):
        out = self.cli("help")[1]
        for verb in ("run", "create", "exec", "shell", "cp", "sign", "ls", "logs", "stop", "start", "extend", "rm", "inspect", "top", "doctor", "token", "serve", "version"):
            self.assertRegex(out, rf"(?m)^  {verb} ")
            code, text, err = self.cli(verb, "--help")
            self.assertEqual(code, 0)
            self.assertIn("Usage: caisson " + verb, text)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            code, out, err = self.cli("completion", shell)
            self.assertEqual(code, 0)
            self.assertIn("inspect", out)
        result = subprocess.run(["bash", "-c", f"source <({PROGRAM} completion bash); COMP_WORDS=(caisson ins); COMP_CWORD=1; _caisson_words; echo ${{COMPREPLY[@]}}"],
                                capture_output=True, text=True)
        self.assertEqual(result.stdout.strip(), "inspect")
        box = self.sandbox()
        job, other = (self.cli("exec", "-d", sandbox, "--", "true")[1].strip() for sandbox in (box, self.sandbox(name="beside")))
        for words, expected in (("state ba", "backup"), ("token ''", "create list revoke"), ("completion f", "fish"), ("rm " + box[:5], box),
                                ("exec " + box[:15], box), ("serve zz", ""), ("state backup /etc/host", "/etc/host"),
                                # An exec, of the sandbox that the line names, wherever; else of any.
                                (f"attach {box} ''", job), ("attach besi", "beside"), (f"receipt beside {other[:8]}", other),
                                (f"logs {box} -x ''", job), ("logs -n 5 --exec '' beside", other), (f"logs --exec {job[:10]}", job),
                                (f"jobs {box} --kill ''", job), (f"jobs --rm '' {box}", job), (f"jobs {box[:10]}", box)):
            at = words.split().index("''") + 1 if "''" in words else len(words.split())
            script = (f"source <({PROGRAM} completion bash); PATH={os.path.dirname(PROGRAM)}:$PATH; COMP_WORDS=(caisson {words}); "
                      f"COMP_CWORD={at}; _caisson_words; echo ${{COMPREPLY[@]}}")
            result = subprocess.run([*self.daemon.become(), "bash", "-c", script], capture_output=True, text=True, timeout=30,
                                    env={**os.environ, **self.daemon.client_environment()})
            self.assertEqual(result.stderr, "", words)
            if expected.startswith("/"):
                self.assertIn(expected, result.stdout)
            else:
                self.assertEqual(result.stdout.strip(), expected, words)
        fish = self.cli("completion", "fish")[1]
        self.assertIn("from attach' -a '(__caisson_sandbox_then_execs)'", fish)
        self.assertRegex(fish, r"(?m)from logs' -l exec -s x -r -f -a '\(__caisson_execs\)'$")
        # Single quotes of fish.
        self.assertIn("'Print the shell\\'s completion script'", self.cli("completion", "fish")[1])

    def test_extend(self):
        box = self.sandbox(name="longer", timeout_seconds=30)
        code, out, err = self.cli("extend", "longer", "2h")
        self.assertEqual(code, 0, err)
        record = self.api.get("/v1/sandboxes/" + box)
        self.assertEqual(record["timeout_seconds"], 7200)
        self.assertEqual(out, f"longer {record['expires_at']}\n")
        self.assertEqual(self.cli("extend", box, "0")[1], f"{box} never\n")
        self.assertIsNone(json.loads(self.cli("extend", "--json", box, "0")[1])[0]["expires_at"])
        self.assertEqual(self.cli("stop", box)[0], 0)
        self.assertEqual(self.cli("extend", box, "10m")[0], 0)
        for arguments in (("extend",), ("extend", box), ("extend", box, "soon"), ("extend", box, "9999d")):
            code, out, err = self.cli(*arguments)
            self.assertEqual(code, 125)
            self.assertIn("extend --help", err)

    def test_an_ended_one_is_found_by_its_name(self):
        for end in ("first", "second"):
            box = self.sandbox(name="was-here", metadata={"end": end})
            self.assertEqual(json.loads(self.cli("rm", "--json", "was-here")[1]), ["was-here"])
        for verb in (("exec", "was-here", "--", "true"), ("rm", "was-here"), ("stop", "was-here")):
            code, out, err = self.cli(*verb)
            self.assertEqual(code, 125)
            self.assertIn("ended at", err)
            self.assertIn("(user", err)
        record = json.loads(self.cli("inspect", "was-here")[1])
        self.assertEqual((record["id"], record["end"]["reason"], record["metadata"]), (box, "user", {"end": "second"}))
        self.assertEqual(self.cli("rm", "-f", "was-here")[0], 0)
        # The name is free, and means the new one.
        again = self.sandbox(name="was-here")
        self.assertEqual(json.loads(self.cli("inspect", "was-here")[1])["id"], again)

    def test_top_and_doctor(self):
        box = self.sandbox()
        self.assertIn(box, self.cli("top", "--once")[1])
        listed = json.loads(self.cli("top", "--json")[1])
        self.assertEqual([record["id"] for record in listed], [box])
        self.assertIn("memory_bytes", listed[0]["usage"])
        code, out, err = self.cli("doctor")
        self.assertEqual(code, 0, out + err)
        self.assertIn("a sandbox ran", out)
        self.assertIn("checks", json.loads(self.cli("doctor", "--json")[1]))

    def test_tokens(self):
        code, out, err = self.cli("token", "create", "--workspace", "team", "--scope", "sandboxes:read,sandboxes:write", "--expires", "1h")
        token = out.strip()
        self.assertEqual((code, out), (0, token + "\n"), err)
        environment = {"CAISSON_URL": f"http://127.0.0.1:{self.daemon.port}", "CAISSON_TOKEN": token}
        self.assertEqual(self.cli("run", "--", "echo", "over tcp", environment=environment)[1], "over tcp\n")
        listed = json.loads(self.cli("token", "list", "--json")[1])
        entry = [t for t in listed if t["workspace"] == "team"][0]
        self.assertNotIn(token, json.dumps(listed))
        self.assertEqual(self.cli("token", "revoke", entry["id"])[0], 0)
        code, out, err = self.cli("ls", environment=environment)
        self.assertEqual(code, 125)
        code, out, err = self.cli("token", "create", "--scope", "everything")
        self.assertIn("everything", err)
        for name in ("Team One", "-x", "x" * 64):
            code, out, err = self.cli("token", "create", "--workspace", name)
            self.assertIn(f"--workspace: invalid workspace name `{name}`; use 1 to 63 characters of a-z, 0-9, '-', '_' and '.', the first", err)
            self.assertIn("; use 1 to 63 characters of a-z", self.cli("budget", "list", "--workspace", name)[2])
            self.assertIn("; use 1 to 63 characters of a-z", self.cli("usage", "--workspace", name)[2])


class InterruptedSelftest(DaemonTest):
    def test_it_ends_soon_and_leaves_nothing(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([PROGRAM, "selftest", "--escape", "--isolation", "namespace"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, env={**os.environ, **self.daemon.client_environment()}, group=escape.GROUP)
            wait_until(lambda: len(self.api.get("/v1/sandboxes")["items"]) >= 3, 60, what="its sandboxes")
            made = escape.selftest_folders()
            self.assertTrue(made)
            # Other users may pass through it, if they know where to.
            self.assertEqual([oct(os.stat(path).st_mode & 0o7777) for path in made], ["0o711"] * len(made))
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            self.assertEqual((process.returncode, out), (code, ""), err)
            self.assertIn("interrupted", err)
            self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])
            self.assertEqual(escape.selftest_folders(), set())


class RefusedServe(DaemonTest):
    def test_leaves_no_directory_that_it_made(self):
        top = tempfile.mkdtemp(prefix="caisson-test-", dir=self.daemon.top)
        os.chmod(top, 0o755)
        if self.daemon.user:
            os.chown(top, self.daemon.user.uid, self.daemon.user.gid)
        port = f"127.0.0.1:{self.daemon.port}"
        for state, runtime, listen, word in ((top + "/a", top + "/b", port, "in use by another Caisson"), (top + "/a", self.daemon.runtime, "none", "runtime directory"),
                                             (self.daemon.state, top + "/b", "none", "state directory")):
            for _ in range(5):
                code, out, err = self.daemon.cli("serve", "--state", state, "--runtime", runtime, "--listen", listen)
                self.assertEqual(code, 125)
                self.assertEqual(os.listdir(top), [])
                # Whoever has the address is asked who it is, and has a second to say so (src/spawner/listeners.c).
                if "in use by another program" not in err:
                    break
            self.assertIn(word, err)
        # One that was there stays, with what is in it.
        os.mkdir(top + "/a", 0o711)
        os.chown(top + "/a", os.stat(top).st_uid, os.stat(top).st_gid)
        self.assertEqual(self.daemon.cli("serve", "--state", top + "/a", "--runtime", top + "/b", "--listen", port)[0], 125)
        self.assertEqual(os.listdir(top), ["a"])
        self.assertIn("A", self.api.sh(self.sandbox(), "echo A"))


class OrdinaryUser(OwnDaemons):
    def test_what_is_not_enforced_or_counted_is_said(self):
        user = User(False, "l")
        self.addCleanup(user.remove)
        daemon = self.start_daemon(user=user)
        code, box, err = daemon.cli("create", "--disk", "64M")
        self.assertRegex(err, r"^caisson create: --disk 64M is not enforced: \S")
        code, out, err = daemon.cli("run", "--disk", "64M", "--", "echo", "hi")
        self.assertEqual((code, out), (0, "hi\n"))
        self.assertIn("--disk 64M is not enforced", err)
        # Nobody asked for it.
        self.assertEqual(daemon.cli("run", "--", "echo", "hi"), (0, "hi\n", ""))
        # So do the log of `serve`, and `ls` on a terminal alone.
        self.assertRegex(daemon.log(), r"limits that are not enforced on this host: [a-z, ]*disk, inodes: \S")
        self.assertNotIn("enforced", daemon.cli("ls")[1])
        code, shown = on_a_terminal(daemon, "ls")
        self.assertEqual(code, 0, shown)
        self.assertRegex(shown, rf"(?m)^{box.strip()} .* \*\r$")
        self.assertRegex(shown, r"(?m)^\* not enforced: [a-z, ]*disk, inodes: \S")
        usage = json.loads(daemon.cli("top", "--json")[1])[0]["usage"]
        row = daemon.cli("top", "--once")[1].splitlines()[1].split()
        self.assertEqual(row[0], box.strip())
        self.assertEqual(row[4] == "-", usage["cpu_seconds"] is None)
        self.assertEqual(row[5].startswith("-/"), usage["memory_bytes"] is None)


class AutoStart(OwnDaemons):
    def setUp(self):
        self.daemon = self.client_daemon()
        self.top = self.daemon.top
        self.environment = {**os.environ, **self.daemon.client_environment(), "CAISSON_LISTEN": "none",
                            "SECRET": "do not inherit", "ASAN_OPTIONS": "detect_leaks=0"}

    def cli(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env=self.environment, stdin=subprocess.DEVNULL)

    def test_a_client_starts_one_and_two_at_once_get_one(self):
        results = at_once(lambda _: self.cli("run", "--", "echo", "hi"), range(4))
        self.assertEqual([(r.returncode, r.stdout, r.stderr) for r in results], [(0, "hi\n", "")] * 4)
        # Workers that erase files are copies of it for a moment.
        pid, = wait_until(lambda: (lambda found: len(found) == 1 and found)(self.daemon.started()), 30, what="one daemon alone")
        self.assertNotIn(b"do not inherit", open(f"/proc/{pid}/environ", "rb").read())
        self.assertEqual(os.getsid(pid) != os.getsid(0), True)
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")

    def test_it_says_why_it_could_not(self):
        self.environment["CAISSON_STATE"] = "/proc/none"
        result = self.cli("ls")
        self.assertEqual(result.returncode, 125)
        self.assertIn("/proc/none", result.stderr)

    def test_what_an_earlier_one_said_is_kept(self):
        os.mkdir(self.top + "/run", 0o755)
        with open(self.top + "/run/serve.log", "w") as log:
            log.write("last words of a crashed one\n")
        self.assertEqual(self.cli("ls").returncode, 0)
        lines = open(self.top + "/run/serve.log").read().splitlines()
        self.assertEqual(lines[0], "last words of a crashed one")
        self.assertGreater(len(lines), 1)

    def test_the_socket_of_a_killed_spawner_is_no_daemon(self):
        """A worker of it may hold the socket for a moment. What is sent there would be lost."""
        os.mkdir(self.top + "/run", 0o755)
        held = socket.socket(socket.AF_UNIX)
        self.addCleanup(held.close)
        held.bind(self.top + "/run/caisson.sock")
        pid = os.fork()
        if pid == 0:
            held.listen(512)
            os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual(self.cli("run", "--", "echo", "hi").stdout, "hi\n")

    def test_no_daemon_is_started_where_none_is_wanted(self):
        self.environment["CAISSON_START"] = "no"
        result = self.cli("ls")
        self.assertEqual(result.returncode, 125)
        self.assertIn("no daemon answers", result.stderr)
        del self.environment["CAISSON_START"]
        script = f"source <({PROGRAM} completion bash); PATH={os.path.dirname(PROGRAM)}:$PATH; COMP_WORDS=(caisson rm ''); COMP_CWORD=2; _caisson_words"
        self.assertEqual(subprocess.run(["bash", "-c", script], timeout=30, env=self.environment).returncode, 0)
        self.assertEqual((self.daemon.started(), os.listdir(self.top)), ([], ["caisson.conf"]))

    def test_a_lost_connection_is_no_missing_daemon(self):
        os.mkdir(self.top + "/run", 0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.top + "/run/caisson.sock")
            listener.listen()

            def answer():
                connection = listener.accept()[0]
                connection.recv(65536)
                connection.close()
            thread = threading.Thread(target=answer)
            thread.start()
            result = self.cli("ls", "--json")
            thread.join(10)
        self.assertEqual(result.returncode, 125)
        self.assertEqual(json.loads(result.stderr)["code"], "daemon.restarting")

    def test_it_listens_where_somebody_has_said_so(self):
        """The usual port is for a daemon that is served on purpose, perhaps another user's."""
        port = free_port()
        del self.environment["CAISSON_LISTEN"]
        for text, url in (("", None), (f"[server]\nlisten = 127.0.0.1:{port}\n", f"http://127.0.0.1:{port}")):
            self.daemon.configure(text)
            result = self.cli("welcome", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["url"], url)
            if not url:
                refused = self.cli("mcp", "config", "cursor", "--http", "--token", "csn_x")
                self.assertEqual(refused.returncode, 125, refused.stdout)
                self.assertIn("`caisson serve`", refused.stderr)
            self.daemon.end_started()

    def test_without_a_port_a_signed_link_is_a_command(self):
        """What `sign` prints is what fetches, or writes, the file; the socket's path may need quotes."""
        self.environment["CAISSON_RUNTIME"] = self.top + "/run/it's here"
        os.mkdir(self.top + "/run", 0o755)
        self.assertEqual(self.cli("create", "--name", "box").returncode, 0)
        run = lambda line, data="": subprocess.run(["sh", "-c", line], input=data, capture_output=True, text=True, timeout=60, env=os.environ)
        line = self.cli("sign", "box", "/tmp/f", "--put").stdout
        self.assertIn("--unix-socket", line)
        self.assertEqual(run(line, "written").returncode, 0)
        self.assertEqual(run(self.cli("sign", "box", "/tmp/f").stdout).stdout, "written")
        self.assertNotEqual(run(self.cli("sign", "box", "/tmp/none").stdout).returncode, 0)
        self.assertEqual(self.cli("rm", "box").returncode, 0)

    def test_remote_is_not_started(self):
        self.environment["CAISSON_URL"] = "http://127.0.0.1:1"
        result = self.cli("ls")
        self.assertEqual(result.returncode, 125)
        self.assertIn("127.0.0.1:1", result.stderr)


if __name__ == "__main__":
    unittest.main()
