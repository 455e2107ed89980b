"""The gvisor tier: a kernel of its own, the same init, the same API. What is different is said here."""
import glob
import json
import os
import signal
import subprocess
import time
import unittest

from caisson import PROGRAM, ApiError, DaemonTest, OwnDaemons, has_ended, parent_of, read_process, status_of, wait_until
from columns import COLUMN, NOT_ENFORCED, user_of_column
from marks import busy, column_independent, long, thorough
from runsc import needs_gvisor

# The sanitized init does not run on gVisor's kernel.
RUNS_ON = "normal"


def processes(daemon, sandbox):
    """Everything of a sandbox that the host has: its shim, and all that is below it: {pid: command line}."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    commands = {pid: read_process(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in pids}
    parents = {pid: parent_of(pid) for pid in pids}
    found = {pid for pid, command in commands.items() if "_shim" in command and sandbox in command}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return {pid: commands[pid] for pid in found}
        found |= more


def shim_of(daemon, sandbox):
    [pid] = [pid for pid, command in processes(daemon, sandbox).items() if "_shim" in command]
    return pid


def alive(pids):
    """Those that run still: who was killed may wait for somebody to take note of it."""
    return [pid for pid in pids if not has_ended(pid)]


@needs_gvisor
class Gvisor(DaemonTest):
    """One sandbox for all that does not end it."""

    box_fields = {"isolation": "gvisor"}

    def run_in(self, command, **fields):
        return self.api.exec(self.box, command, **fields)

    def exec_path(self, answer):
        return f"/v1/sandboxes/{self.box}/execs/{answer['exec_id']}"

    def ended(self, answer, seconds=30):
        path = self.exec_path(answer)
        return wait_until(lambda: (lambda r: r if r["state"] == "ended" else None)(self.api.get(path)), seconds,
                          what="the end of an exec")

    def test_record_says_what_it_is(self):
        record = self.api.get("/v1/sandboxes/" + self.box)
        self.assertEqual(record["isolation"], "gvisor")
        limits = record["limits"]
        for limit in ("cpu", "memory", "disk", "inodes", "files"):
            self.assertEqual(limits[limit]["enforced"], limit not in NOT_ENFORCED, limits)
        self.assertFalse(limits["pids"]["enforced"])
        self.assertIn(NOT_ENFORCED.get("pids", "kernel of its own"), limits["pids"]["reason"])

    def test_auto_does_not_choose_an_old_or_slow_one(self):
        [tier] = [tier for tier in self.api.get("/v1/version")["isolation"] if tier["name"] == "gvisor"]
        self.assertTrue(tier["available"])
        if not tier["by_name_only"]:
            self.skipTest("this host's gVisor is one that `auto` chooses")
        self.assertIn("by name", tier["missing"])
        self.assertEqual({limit for limit, what in tier["limits"].items() if not what["enforced"]}, {"pids", *NOT_ENFORCED})
        self.assertEqual(self.api.get("/v1/sandboxes/" + self.sandbox())["isolation"], "namespace")

    @column_independent
    def test_its_kernel_is_its_own(self):
        code, out, error = self.daemon.cli("run", "--isolation", "gvisor", "--", "dmesg")
        self.assertEqual(code, 0, error)
        self.assertIn("Starting gVisor", out)

    @column_independent
    def test_output_exit_code_and_environment(self):
        result = self.run_in("echo out; echo err >&2; echo $GIVEN; pwd; exit 7", env={"GIVEN": "value"})
        self.assertEqual((result["exit_code"], result["stdout"], result["stderr"]), (7, "out\nvalue\n/workspace\n", "err\n"))
        self.assertEqual(self.run_in(["/bin/true"])["exit_code"], 0)
        with self.assertRaises(ApiError) as caught:
            self.run_in(["/nowhere"])
        self.assertEqual(caught.exception.code, "exec.program_not_found")

    @busy
    @column_independent
    def test_much_output_arrives_whole(self):
        lines = 400_000
        result = self.run_in(f"awk 'BEGIN {{ for (i = 0; i < {lines}; i++) printf(\"%015d\\n\", i) }}'", background=True)
        record = self.ended(result, 60)
        self.assertEqual((record["exit_code"], record["stdout_bytes"]), (0, lines * 16))
        data = self.api.get(self.exec_path(result) + "/output", stream="stdout", **{"from": 0, "limit": 8 << 20})
        self.assertEqual(data, b"".join(b"%015d\n" % n for n in range(lines)))

    @column_independent
    def test_lossless_waits_for_who_follows(self):
        answer = self.run_in("head -c 3000000 /dev/zero | tr '\\0' x", background=True, lossless=True,
                             output={"head_bytes": 4096, "tail_bytes": 1 << 19})
        wait_until(lambda: self.api.get(self.exec_path(answer))["stdout_bytes"] >= 1 << 18)
        # As much that does not wait is through meanwhile.
        self.assertEqual(self.run_in("head -c 3000000 /dev/zero | tr '\\0' x")["exit_code"], 0)
        self.assertLess(self.api.get(self.exec_path(answer))["stdout_bytes"], 3000000)
        data = self.api.get(self.exec_path(answer) + "/output", stream="stdout", follow=1)
        self.assertEqual(data, b"x" * 3000000)
        answer = self.run_in("true", background=True, lossless=True, output={"head_bytes": 4096, "tail_bytes": 65536})
        record = wait_until(lambda: (lambda r: r if r["state"] == "failed" else None)(
            self.api.get(self.exec_path(answer))), what="the refusal of a log that is too small")
        self.assertEqual(record["failure"]["code"], "feature.unsupported")

    @column_independent
    def test_standard_input(self):
        self.assertEqual(self.run_in("wc -c", stdin="x" * 300000)["stdout"].strip(), "300000")

    @column_independent
    def test_terminal(self):
        result = self.run_in("test -t 0 && test -t 1 && stty size", tty=True, rows=30, cols=90)
        self.assertEqual((result["exit_code"], result["stdout"].strip()), (0, "30 90"))

    @column_independent
    def test_signal(self):
        answer = self.run_in("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.1; done", background=True)
        wait_until(lambda: self.api.get(self.exec_path(answer))["stdout_bytes"] > 0)
        self.api.post(self.exec_path(answer) + "/signal", {"signal": signal.SIGTERM})
        self.assertEqual(self.ended(answer)["exit_code"], 5)
        result = self.run_in("kill -SEGV $$")
        self.assertEqual(result["signal"], signal.SIGSEGV)

    def test_timeout_kills_the_tree(self):
        """Also what has left it: forked twice, with a session of its own."""
        result = self.run_in("sh -c 'setsid sleep 4321 & exit'; sleep 4321 & sleep 4321", timeout_seconds=1)
        self.assertTrue(result["timed_out"])
        wait_until(lambda: self.run_in("pgrep -c 'slee[p]' || true")["stdout"].strip() == "0",
                   what="the end of what was started")

    @column_independent
    def test_files(self):
        path = "/workspace/files/a.txt"
        self.api.write(self.box, path, b"hello\n", parents="true")
        self.assertEqual(self.api.read(self.box, path), b"hello\n")
        self.assertEqual(self.run_in(f"cat {path}")["stdout"], "hello\n")
        listed = self.api.get(f"/v1/sandboxes/{self.box}/files/list", path="/workspace/files")
        self.assertEqual([(entry["name"], entry["size"]) for entry in listed["entries"]], [("a.txt", 6)])
        self.assertEqual(self.api.get(f"/v1/sandboxes/{self.box}/files/stat", path=path)["size"], 6)
        big = os.urandom(3 << 20)
        self.api.write(self.box, "/workspace/files/big", big)
        self.assertEqual(self.api.read(self.box, "/workspace/files/big"), big)
        self.api.delete(f"/v1/sandboxes/{self.box}/files", path="/workspace/files", recursive="true")
        with self.assertRaises(ApiError) as caught:
            self.api.read(self.box, path)
        self.assertEqual(caught.exception.code, "file.not_found")

    def test_only_a_loopback(self):
        names = self.run_in("python3 -c 'import socket; print([n for _, n in socket.if_nameindex()])'")["stdout"]
        self.assertEqual(names.strip(), "['lo']")
        server = ("import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); "
                  "c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b\"x\"); print(a.recv(1))")
        self.assertEqual(self.run_in(["python3", "-c", server])["stdout"].strip(), "b'x'")

    def test_size_shows_and_holds(self):
        """One cpu, and a disk that ends where it should."""
        self.assertEqual(self.run_in("nproc")["stdout"].strip(), "1")
        box = self.sandbox(isolation="gvisor", disk_mb=32)
        result = self.api.exec(box, "head -c 100000000 /dev/zero > /workspace/full; echo $?; rm /workspace/full")
        self.assertEqual("No space left" in result["stderr"], "disk" not in NOT_ENFORCED)
        if "disk" not in NOT_ENFORCED:
            self.assertLess(0, self.api.get(f"/v1/sandboxes/{box}/metrics")["disk_bytes"])

    def test_tmp_is_on_its_disk(self):
        """Where bytes and inodes are counted: no tmpfs of runsc's, also where /tmp is a link to an empty directory."""
        look = ["python3", "-c", "import os; print(os.stat('/').st_dev == os.stat('/tmp/').st_dev, os.statvfs('/tmp/').f_files > 0)"]
        box = self.sandbox(isolation="gvisor")
        self.assertEqual(self.api.exec(box, look)["stdout"], "True True\n")
        self.api.sh(box, "echo kept > /tmp/kept; mkfifo /tmp/fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/tmp/s')\"")
        for change, wanted in (("true", "kept\n"), ("rm -rf /tmp; mkdir /opt/empty; ln -s /opt/empty /tmp", "")):
            self.api.sh(box, change)
            self.api.post(f"/v1/sandboxes/{box}/stop")
            self.api.post(f"/v1/sandboxes/{box}/start")
            self.assertEqual(self.api.exec(box, look)["stdout"], "True True\n")
            self.assertEqual(self.api.exec(box, "cat /tmp/kept")["stdout"], wanted)

    @thorough
    @busy
    def test_the_manifest_of_escapes(self):
        """All of it, in every column; tests/escape has it without the slow floods."""
        code, out, error = self.daemon.cli("selftest", "--escape", "--json", "--isolation", "gvisor", timeout=600)
        self.assertTrue(out, error)
        items = json.loads(out)["gvisor"]["items"]
        self.assertEqual({name: item["failures"] for name, item in items.items() if item["failures"]}, {})
        self.assertEqual(code, 0)

    def test_pause_and_resume(self):
        answer = self.run_in("while :; do echo tick; sleep 0.05; done", background=True)
        path = self.exec_path(answer)
        wait_until(lambda: self.api.get(path)["stdout_bytes"] > 0)
        self.api.post(f"/v1/sandboxes/{self.box}/pause")

        # What was printed before may be on its way still; nothing follows it.
        def still():
            before = self.api.get(path)["stdout_bytes"]
            time.sleep(1)
            return self.api.get(path)["stdout_bytes"] == before
        wait_until(still, what="its standing still")
        self.assertEqual(self.api.get(f"/v1/sandboxes/{self.box}")["status"], "paused")
        now = self.api.get(path)["stdout_bytes"]
        self.api.post(f"/v1/sandboxes/{self.box}/resume")
        wait_until(lambda: self.api.get(path)["stdout_bytes"] > now)
        self.api.post(path + "/signal", {"signal": signal.SIGKILL})
        self.ended(answer)

    def test_what_it_cannot_do_is_said(self):
        self.refused(501, "feature.unsupported", self.api.create, isolation="gvisor", nested_userns=True)
        error = self.refused(422, "limit.exceeded", self.api.create, isolation="gvisor", memory_mb=64)
        self.assertIn("`gvisor` needs at least 128", error.body["error"])
        code, _, error = self.daemon.cli("run", "--isolation", "gvisor", "-v", "/usr/share/doc:/doc:ro", "--", "true")
        self.assertNotEqual(code, 0)
        self.assertIn("folders", error)

    def test_privileges(self):
        """Nothing of it is the host's root; the shim has no rights at all."""
        found = processes(self.daemon, self.box)
        self.assertEqual(sum("runsc-sandbox" in command for command in found.values()), 1)
        owner = user_of_column().uid if user_of_column() else None
        for pid, command in found.items():
            try:
                places = open(f"/proc/{pid}/cgroup").read().split()
                status = status_of(pid)
                [core_limits] = [line for line in open(f"/proc/{pid}/limits") if line.startswith("Max core file size")]
            except OSError:
                continue
            if status.get("State", "X")[0] in "ZX":  # it has just ended, and is nowhere any more
                continue
            uid = int(status["Uid"].split()[0])
            shim = "_shim" in command
            self.assertNotEqual(uid, 0, command)
            if COLUMN == "root":
                owner = owner or uid >> 16
                self.assertEqual(uid >> 16, owner, command)
                self.assertGreaterEqual(uid, 0x70000000, command)
                self.assertIn(f"/{self.box}/{'init' if shim else 'work'}", " ".join(places), command)
            if COLUMN == "one-id":
                self.assertEqual(uid, owner, command)
            self.assertEqual(status["NoNewPrivs"], "1", command)
            self.assertEqual(status["Seccomp"], "2", command)
            if not shim:  # at another limit the kernel would start the host's core_pattern helper
                self.assertEqual(core_limits.split()[4:6], ["1", "1"], command)
            if shim:
                self.assertEqual([status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")],
                                 ["0000000000000000"] * 4)
        # No right over mounts, modules, devices, other users' processes, the network.
        [sentry] = [pid for pid, command in found.items() if "runsc-sandbox" in command]
        self.assertEqual(int(status_of(sentry)["CapEff"], 16) & (1 << 21 | 1 << 16 | 1 << 17 | 1 << 12 | 1 << 27), 0)


@needs_gvisor
class Life(OwnDaemons):
    """What ends a sandbox, a daemon, a spawner."""

    def test_stop_and_start_keep_files_and_delete_leaves_nothing(self):
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create(isolation="gvisor")["id"]
        client.sh(box, "echo kept > /workspace/x; mkdir -p /opt/made; ln -s /workspace/x /opt/made/link")
        client.post(f"/v1/sandboxes/{box}/stop")
        self.assertEqual(processes(daemon, box), {})
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /opt/made/link"), "kept\n")
        client.delete("/v1/sandboxes/" + box)
        wait_until(lambda: not os.path.exists(f"{daemon.state}/sandboxes/{box}") and
                   not os.listdir(f"{daemon.state}/trash"), what="the end of its files")
        self.assertFalse(os.path.exists(f"{daemon.runtime}/guests/{box}"))
        self.assertEqual(processes(daemon, box), {})

    @long
    @busy
    def test_daemon_killed_while_output_is_written(self):
        """Daemon and spawner are gone for a while; no byte is lost or doubled, input goes on."""
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create(isolation="gvisor")["id"]
        lines = 60_000
        script = (f"import time\nfor i in range({lines}):\n    print('%015d' % i, flush=i % 100 == 0)\n"
                  "    if i % 1000 == 0: time.sleep(0.05)\n")
        client.write(box, "/workspace/print.py", script.encode())
        answer = client.exec(box, "python3 /workspace/print.py", background=True)
        path = f"/v1/sandboxes/{box}/execs/{answer['exec_id']}"
        wait_until(lambda: client.get(path)["stdout_bytes"] > 0)
        daemon.kill_daemon()
        before = client.get(path)["stdout_bytes"]
        wait_until(lambda: client.get(path)["stdout_bytes"] > before, what="more of it with the next daemon")
        daemon.kill()
        log = f"{daemon.state}/logs/{box}/{answer['exec_id']}.out"
        size = os.path.getsize(log)
        wait_until(lambda: os.path.getsize(log) > size, what="more of it without one")
        daemon.start()
        client = daemon.client()
        record = wait_until(lambda: (lambda r: r if r["state"] == "ended" else None)(client.get(path)), 60,
                            what="the end of the printing")
        self.assertEqual((record["exit_code"], record["stdout_bytes"]), (0, lines * 16))
        data = client.get(path + "/output", stream="stdout", **{"from": 0, "limit": 8 << 20})
        self.assertEqual(data, b"".join(b"%015d\n" % n for n in range(lines)))
        self.assertEqual(client.sh(box, "echo again"), "again\n")
        self.assertEqual(client.read(box, "/workspace/print.py"), script.encode())

    def test_paused_while_the_daemon_is_away(self):
        daemon = self.start_daemon()
        box = daemon.client().create(isolation="gvisor")["id"]
        daemon.client().post(f"/v1/sandboxes/{box}/pause")
        daemon.kill()
        daemon.start()
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "paused")
        daemon.client().post(f"/v1/sandboxes/{box}/resume")
        self.assertEqual(daemon.client().sh(box, "echo awake"), "awake\n")

    def test_shim_killed(self):
        """All of it ends at once; its files are kept and it starts again."""
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create(isolation="gvisor")["id"]
        client.sh(box, "echo kept > /workspace/x; sync")
        answer = client.exec(box, "sleep 1000", background=True)
        pids = list(processes(daemon, box))
        os.kill(shim_of(daemon, box), signal.SIGKILL)
        wait_until(lambda: client.get("/v1/sandboxes/" + box)["status"] == "stopped")
        self.assertEqual(alive(pids), [])
        self.assertEqual(glob.glob(f"/sys/fs/cgroup/*/{daemon.instance()}/{box}"), [])
        self.assertEqual(client.get(f"/v1/sandboxes/{box}/execs/{answer['exec_id']}")["state"], "ended")
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")

    def test_shim_killed_while_nobody_looks(self):
        daemon = self.start_daemon()
        box = daemon.client().create(isolation="gvisor")["id"]
        pids = list(processes(daemon, box))
        shim = shim_of(daemon, box)
        daemon.kill()
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: not alive(set(pids) - {shim}), what="the end of runsc")
        daemon.start()
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "stopped")

    @long
    def test_timeout_holds_without_a_daemon(self):
        daemon = self.start_daemon()
        box = daemon.client().create(isolation="gvisor", timeout_seconds=8)["id"]
        pids = list(processes(daemon, box))
        daemon.kill()
        wait_until(lambda: not alive(pids), what="its end")
        daemon.start()
        record = wait_until(lambda: (lambda r: r if r["status"] == "ended" else None)(
            daemon.client().get("/v1/sandboxes/" + box)), what="the end of the sandbox")
        self.assertEqual(record["end"]["reason"], "timeout")

    @long
    def test_a_stopped_init_keeps_no_time_out_off(self):
        """Root inside may stop PID 1: who waits is answered, and what should have ended is ended with all else."""
        daemon = self.start_daemon()
        client = daemon.client()
        box = client.create(isolation="gvisor")["id"]
        began = time.monotonic()
        done = client.exec(box, "kill -STOP 1; sleep 1000", timeout_seconds=1)
        self.assertEqual((done["state"], done["timed_out"], done["exit_code"]), ("ended", True, 124))
        self.assertLess(time.monotonic() - began, 30)
        wait_until(lambda: client.get("/v1/sandboxes/" + box)["status"] == "stopped", 60, what="the end of its processes")
        self.assertEqual(processes(daemon, box), {})
        client.post(f"/v1/sandboxes/{box}/start")
        self.assertEqual(client.sh(box, "echo on"), "on\n")

    def test_more_memory_than_it_has_ends_it(self):
        """The limit is the host's, and its kernel is in it: the sandbox ends and keeps its files."""
        daemon = self.start_daemon()
        client = daemon.client()
        record = client.create(isolation="gvisor", memory_mb=128)
        box = record["id"]
        self.assertEqual(record["limits"]["memory"]["enforced"], "memory" not in NOT_ENFORCED)
        if "memory" in NOT_ENFORCED:
            return
        client.sh(box, "echo kept > /workspace/x; sync")
        client.exec(box, ["python3", "-c", "b = bytearray(400 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"],
                    background=True)
        wait_until(lambda: client.get("/v1/sandboxes/" + box)["status"] == "stopped", 60)
        self.assertEqual(client.sh(box, "cat /workspace/x"), "kept\n")


class Without(unittest.TestCase):
    @column_independent
    def test_shim_is_not_for_people(self):
        """Neither with root's rights nor with none does it do anything outside its place."""
        result = subprocess.run([PROGRAM, "_shim", "ptrace", "a" * 16], capture_output=True, text=True, timeout=10)
        self.assertEqual(result.returncode, 1)
        self.assertIn("not by people", result.stderr)


if __name__ == "__main__":
    unittest.main()
