"""Each limit, exceeded: it holds, is reported as what it is, and the sandbox lives on."""
import os
import unittest

from caisson import ApiError, DaemonTest, best_of, end_commands, wait_until
from marks import alone, busy, column_independent, heavy, long, thorough
from columns import NOT_ENFORCED


class Limits(DaemonTest):
    def enforced(self, box, limit):
        """Is it, for this user on this host? Where it is not, the record has to say so and why."""
        record = self.api.get("/v1/sandboxes/" + box)["limits"][limit]
        self.assertEqual(record["enforced"], limit not in NOT_ENFORCED, record)
        self.assertEqual(record.get("reason"), NOT_ENFORCED.get(limit))
        return record["enforced"]

    def test_record_says_what_is_enforced(self):
        record = self.api.create()
        self.addCleanup(self.remove, record["id"])
        self.assertEqual({name: limit["enforced"] for name, limit in record["limits"].items()},
                         {name: name not in NOT_ENFORCED for name in ("cpu", "memory", "pids", "disk", "inodes", "files")})
        for name, reason in NOT_ENFORCED.items():
            self.assertEqual(record["limits"][name]["reason"], reason)
        self.assertEqual(record["limits"]["memory"]["value"], 512 << 20)
        self.assertEqual(record["limits"]["disk"]["value"], 1024 << 20)
        self.assertEqual(record["isolation"], "namespace")
        self.assertGreater(record["boot_ms"], 0)
        self.assertIn(record["boot_mode"], ("cold", "pool"))
        self.assertTrue(record["phases"])

    def test_memory(self):
        box = self.sandbox(memory_mb=64)
        if not self.enforced(box, "memory"):
            return
        result = self.api.exec(box, ["python3", "-c", "x = bytearray(200 << 20); print(len(x))"])
        self.assertTrue(result["oom_killed"], result)
        wait_until(lambda: self.alive(box), what="its going on")
        result = self.api.exec(box, "kill -9 $$")
        self.assertFalse(result["oom_killed"], result)

    @busy
    def test_memory_of_sockets(self):
        """What waits in sockets is the host's memory. They are opened first: from then on nothing is asked for that
        the kernel could refuse, and what arrives it takes in (docs/isolation.md)."""
        limit = 96 << 20
        box = self.sandbox(memory_mb=limit >> 20)
        if not self.enforced(box, "memory"):
            return
        code = """
import socket, struct, time
receivers = []
for _ in range(900):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    receiver.bind(("127.0.0.1", 0))
    receivers.append(receiver)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setblocking(False)
data = bytes(32000)
for address in [receiver.getsockname() for receiver in receivers]:
    for _ in range(14):
        try:
            sender.sendto(data, address)
        except OSError:
            pass
SO_MEMINFO = 55
end = time.monotonic() + 20
held = LIMIT
while held >= LIMIT and time.monotonic() < end:  # who holds too much has a moment to be stopped
    time.sleep(1)
    held = sum(struct.unpack("9I", receiver.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[0] for receiver in receivers)
print(held)
""".replace("LIMIT", str(limit))
        # Whom the kernel kills in this sandbox is the kernel's choice; in another it has none.
        other = self.sandbox(memory_mb=limit >> 20)
        beside = self.api.exec(other, ["sleep", "600"], background=True)["exec_id"]
        result = self.api.exec(box, ["python3", "-c", code], timeout_seconds=120)
        if not result["oom_killed"]:
            self.assertLess(int(result["stdout"]), limit, result)
        peak = self.api.get(f"/v1/sandboxes/{box}/metrics")["memory_peak_bytes"]
        if peak is not None:  # before Linux 5.19
            self.assertLess(peak, limit + (32 << 20))
        self.assertEqual(self.api.get(f"/v1/sandboxes/{other}/execs/{beside}")["state"], "running")
        wait_until(lambda: self.alive(box), what="its going on")

    def alive(self, box):
        """Does it run a command? While it is full one is refused with a word of its own, and one that the kernel has
        killed a helper of says so."""
        try:
            result = self.api.exec(box, "echo alive", timeout_seconds=30)
        except ApiError as error:
            self.assertEqual((error.status, error.code), (422, "exec.resource_limit"), error.body)
            return False
        self.assertTrue(result["lost"] or result["stdout"] == "alive\n", result)
        return not result["lost"]

    @busy
    @heavy
    def test_full_disk_is_not_an_oom(self):
        box = self.sandbox(memory_mb=512, disk_mb=1024)
        if not self.enforced(box, "disk"):
            return
        result = self.api.exec(box, "dd if=/dev/zero of=/workspace/fill bs=1M; echo code $?", timeout_seconds=120)
        self.assertIn("No space left", result["stderr"])
        self.assertIn("code 1", result["stdout"])
        self.assertFalse(result["oom_killed"])
        self.assertEqual(self.api.sh(box, "rm /workspace/fill; echo alive"), "alive\n")

    @long
    @busy
    @heavy
    def test_inodes(self):
        box = self.sandbox(disk_mb=64)
        if not self.enforced(box, "inodes"):
            return
        result = self.api.exec(box, ["python3", "-c", "import os\nos.mkdir('/tmp/i'); n = 0\ntry:\n  while True: open(f'/tmp/i/{n}', 'w').close(); n += 1\n"
                                     "except OSError as error: print(n, error.strerror)"], timeout_seconds=300)
        made = int(result["stdout"].split()[0])
        value = self.api.get("/v1/sandboxes/" + box)["limits"]["inodes"]["value"]
        self.assertLessEqual(made, value)
        self.assertGreater(made, value // 2)
        self.assertIn("No space left", result["stdout"])

    def test_pids(self):
        box = self.sandbox(pids=32)
        if not self.enforced(box, "pids"):
            return
        seconds = f"1000.{os.getpid()}"
        result = self.api.exec(box, f"i=0; while [ $i -lt 100 ]; do sleep {seconds} & i=$((i + 1)); done; echo $i",
                               timeout_seconds=60)
        self.assertRegex(result["stderr"], "(?i)fork|resource")
        # While it is full a command is refused with a word of its own; then it goes on.
        self.alive(box)
        end_commands("sleep", seconds)
        wait_until(lambda: self.alive(box), what="room for a process")

    @busy
    @heavy
    def test_fork_bomb(self):
        """It is ended, and nothing else of the sandbox. Known by its rate, which an emulated machine does not reach."""
        box = self.sandbox(pids=64)
        if not self.enforced(box, "pids"):
            return
        other = self.api.exec(box, f"sleep 1000.{os.getpid()}", background=True)["exec_id"]
        result = self.api.exec(box, ["perl", "-e", "fork while 1"], timeout_seconds=60)
        self.assertEqual((result["too_many_processes"], result["timed_out"], result["signal"], result["exit_code"]),
                         (True, False, 9, 137))
        wait_until(lambda: self.alive(box), what="room for a process")
        self.assertEqual(self.api.get(f"/v1/sandboxes/{box}/execs/{other}")["state"], "running")
        entries = self.api.get(f"/v1/sandboxes/{box}/activity")["items"]
        self.assertIn("too_many_processes", [entry["details"].get("outcome") for entry in entries])

    @busy
    @heavy
    def test_fork_bomb_that_pauses(self):
        """One that keeps quiet for half of the time is ended too."""
        box = self.sandbox(pids=32)
        if not self.enforced(box, "pids"):
            return
        code = ("import os, time\nwhile True:\n  if time.monotonic() % 0.75 > 0.4: time.sleep(0.01); continue\n"
                "  try: os.fork()\n  except OSError: pass")
        result = self.api.exec(box, ["python3", "-c", code], timeout_seconds=30)
        self.assertEqual((result["too_many_processes"], result["timed_out"]), (True, False))

    @long
    @busy
    @heavy
    def test_fork_bomb_in_several_commands(self):
        """Each has ended before a fork bomb is looked for: what was refused before counts for the next one."""
        box = self.sandbox(pids=32)
        if not self.enforced(box, "pids"):
            return
        code = ("import os, time\nend = time.monotonic() + 0.2\nwhile time.monotonic() < end:\n"
                "  try: os.fork()\n  except OSError: pass")
        wait_until(lambda: self.api.exec(box, ["python3", "-c", code], timeout_seconds=30)["too_many_processes"], 60,
                   what="the end of one")

    @long
    def test_one_that_is_refused_now_and_then_goes_on(self):
        """Thirty times a second at most, for longer than a bomb is given."""
        box = self.sandbox(pids=64)
        if not self.enforced(box, "pids"):
            return
        code = ("import os, time\nrefused = 0\nwhile refused < 60:\n"
                "  try:\n    if os.fork() == 0: time.sleep(300); os._exit(0)\n"
                "  except OSError: refused += 1; time.sleep(0.03)\nprint(refused)")
        result = self.api.exec(box, ["python3", "-c", code], timeout_seconds=120)
        self.assertEqual((result["stdout"], result["too_many_processes"]), ("60\n", False))

    @thorough
    @alone
    def test_cpu(self):
        box = self.sandbox(cpu=0.25)
        if not self.enforced(box, "cpu"):
            return
        code = ("import time\nused=time.process_time()\ne=time.monotonic()+2\nwhile time.monotonic()<e: pass\n"
                "print(time.process_time()-used)")
        # What the machine stands still while it runs counts as used.
        best_of(5, lambda: float(self.api.sh(box, ["python3", "-c", code])), 2 * 0.25 + 0.35)

    def test_open_files(self):
        box = self.sandbox()
        out = self.api.sh(box, ["python3", "-c",
                                "import os\nn=0\ntry:\n  while True: os.open('/dev/null',0); n+=1\nexcept OSError as e: print(n, e.errno)"])
        self.assertEqual(out, "4093 24\n")

    def test_sees_its_own_size(self):
        box = self.sandbox(cpu=1, memory_mb=256, disk_mb=300)
        self.assertEqual(self.api.sh(box, "nproc"), "1\n")
        total = int(self.api.sh(box, "free -m | awk '/^Mem:/ {print $2}'"))
        self.assertEqual(total, 256)
        if not self.enforced(box, "disk"):
            return
        size = int(self.api.sh(box, "df -m --output=size / | tail -1"))
        self.assertTrue(200 <= size <= 310, size)

    def test_meminfo_follows_use(self):
        box = self.sandbox(memory_mb=256)
        if not self.enforced(box, "memory"):
            return
        free = int(self.api.sh(box, ["python3", "-c",
                                     "x=bytearray(b'x')*(100<<20)\nimport time,re\nfree=1<<30\ne=time.monotonic()+20\n"
                                     "while free >= 170 << 10 and time.monotonic() < e:\n  time.sleep(0.5)\n"
                                     "  free=int(re.search(r'MemFree: +(\\d+)', open('/proc/meminfo').read()).group(1))\n"
                                     "print(free)"]))
        self.assertLess(free, 170 << 10)

    @column_independent
    def test_over_limit_requests(self):
        for fields, word in [({"memory_mb": 1}, "memory"), ({"memory_mb": 10**9}, "memory"), ({"cpu": 0}, "cpu"),
                             ({"cpu": 100000}, "cpu"), ({"disk_mb": 1}, "disk"), ({"pids": 1}, "pids")]:
            with self.subTest(**fields):
                error = None
                try:
                    self.sandbox(**fields)
                except Exception as caught:
                    error = caught
                self.assertIsNotNone(error)
                self.assertIn(error.status, (400, 422))
                self.assertIn(word, error.body["error"])

    @busy
    @column_independent
    @heavy
    def test_output_flood_does_not_fill_the_host(self):
        box = self.sandbox()
        result = self.api.exec(box, "head -c 300000000 /dev/zero", timeout_seconds=120, max_output_bytes=1024)
        self.assertEqual(result["stdout_bytes"], 300000000)
        size = 0
        for directory, _, names in os.walk(os.path.join(self.daemon.state, "logs", box)):
            size += sum(os.stat(os.path.join(directory, name)).st_blocks * 512 for name in names)
        self.assertLess(size, 40 << 20)


if __name__ == "__main__":
    unittest.main()
