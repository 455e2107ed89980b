"""What tests/run decides by holds: which failures are never tried again, that a crashed daemon is seen, that marks stand on
tests, that what must always run is not moved, what a run may take, what is kept of downloads. And the scheduler does what
every result depends on: it keeps to its tokens, leaves alone what asked for it, ends what takes too long, sees what is left
behind by a job and by a whole run, and runs nothing whose build failed."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import types

from gate import TOP, fail

sys.path.insert(0, os.path.join(TOP, "tests/lib"))
import cache  # noqa: E402 (its place is known now)
import caisson  # noqa: E402
import census  # noqa: E402
import host  # noqa: E402
import jobs as kinds_of_jobs  # noqa: E402
import marks  # noqa: E402
import schedule  # noqa: E402
import times  # noqa: E402

schedule.GRACE_SECONDS = 0.3


class Count:
    def __init__(self):
        self.wrong = {}

    def bad(self, name, text=""):
        self.wrong[name] = text


class Shell(schedule.Job):
    """Remembers when it ran."""

    def __init__(self, name, line, load="waits", kind="suite", **options):
        super().__init__(name, ["sh", "-c", line], load, **options)
        self.kind, self.lines = kind, []

    def take_line(self, count, line):
        self.lines.append((time.monotonic(), line))

    def finish(self, count, output):
        self.output = output


def overlap(one, other):
    return one.lines[0][0] < other.lines[-1][0] and other.lines[0][0] < one.lines[-1][0]


sleeps = "echo begin; sleep 0.5; echo end"
jobs = [Shell("build good", "true", kind="build"), Shell("build bad", "exit 3", kind="build"),
        Shell("one", sleeps, after=["build good"]), Shell("two", sleeps), Shell("busy one", sleeps, "busy"), Shell("busy two", sleeps, "busy"),
        Shell("alone", sleeps, "alone", seconds=100), Shell("never", "echo ran", after=["build bad"]),
        Shell("endless", "echo begin; sleep 60", limit=1), Shell("litters", 'touch "$TMPDIR/file"; setsid sleep 61 & TMPDIR= setsid sh -c "sleep 5; true" "$TMPDIR" & sleep 62 &')]
polite = Shell("polite", "nice; cat /proc/self/autogroup 2>/dev/null || echo nice 7", nice=7)
jobs.append(polite)
count = Count()
with tempfile.TemporaryDirectory() as logs:
    scheduler = schedule.Scheduler(count, TOP, logs, tokens=5)
    for job in jobs:
        scheduler.add(job)
    scheduler.run()
by_name = {job.name: job for job in jobs}
wrong = []


def expect(true, text):
    if not true:
        wrong.append(text)


expect(by_name["never"].lines == [] and "build bad failed" in count.wrong.get("never", ""), "a job ran whose build had failed")
expect(by_name["endless"].code == 124 and "timed out after 1 s" in by_name["endless"].output, "a job that takes too long was not ended")
expect(polite.output.split("\n")[0] == str(min(os.nice(0) + 7, 19)) and polite.output.strip().endswith("nice 7"), f"a job does not step back: {polite.output}")
litter = count.wrong.get("litters: left behind", "").splitlines()
expect(len(litter) == 4 and litter[-1] == "file file", f"litter was not seen: {litter}")
expect(not any(overlap(by_name["alone"], job) for job in jobs if job.lines and job.name != "alone"), "a job that must be alone was not")
expect(not all(overlap(by_name["busy one"], by_name[name]) for name in ("busy two", "one", "two")), "more ran than there are tokens for")
expect(any(overlap(by_name[name], by_name["busy one"]) for name in ("busy two", "one", "two")), "nothing ran beside anything else")
expect(set(count.wrong) == {"never", "litters: left behind"}, f"something else failed: {count.wrong}")
expect(not os.path.exists(scheduler.prefix + "0"), "a slot's folder is left")

# With one token everything runs, one after the other.
few = [Shell("one", sleeps), Shell("busy", sleeps, "busy"), Shell("alone", sleeps, "alone")]
with tempfile.TemporaryDirectory() as logs:
    scheduler = schedule.Scheduler(count, TOP, logs, tokens=1)
    for job in few:
        scheduler.add(job)
    scheduler.run()
expect(all(len(job.lines) == 2 for job in few) and not overlap(few[0], few[1]) and not overlap(few[1], few[2]), "one token is not enough")

# What a whole run leaves: a process below its folders, and the folder.
place = scheduler.prefix + "left"
os.makedirs(place + "/state/init")
shutil.copy("/bin/sleep", place + "/state/init/0123")
process = subprocess.Popen([place + "/state/init/0123", "60"])
kinds = [text.split()[0] for text in host.left("/no/builds", scheduler.prefix, host.cgroups() | host.users())]
process.kill()
process.wait()
shutil.rmtree(place)
expect(kinds == ["file", "process"], f"what a run leaves was not seen: {kinds}")
expect(host.left("/no/builds", scheduler.prefix, host.cgroups() | host.users()) == [], "something is seen that is not there")

# What is never tried again.
may_try = kinds_of_jobs.may_try_again
for name, text, may in (
        ("api jobs Jobs.test_one", "AssertionError: 1 != 2", True), ("escape escape Selftest.test_words", "", False),
        ("sandbox gvisor Gvisor.test_files", "", True), ("sandbox gvisor Gvisor.test_the_manifest_of_escapes", "", False),
        ("sandbox volumes Programs.test_ordinary_work", "", True), ("sandbox volumes Programs.test_the_probe_in_a_read_write_folder", "", False),
        ("api jobs Jobs.test_one", "AssertionError: the daemon ended with -11:", False),
        ("api jobs Jobs.test_one", "the daemon ended (signal 6); it is started again in 10 ms", False)):
    expect(may_try(name, text) == may, f"wrong about trying again: {name}: {text}")


def has_crashed(log, code=None):
    process = None if code is None else types.SimpleNamespace(poll=lambda: code, returncode=code)
    try:
        caisson.Daemon.check_crashes(types.SimpleNamespace(log=lambda: log, process=process))
    except AssertionError as error:
        return not may_try("api jobs Jobs.test_one", str(error))
    return False


found = [has_crashed(f"warning: the daemon ended ({how}); it is started again in 100 ms\n") for how in ("signal 6", "signal 11", "signal 9", "status 1")]
expect(found + [has_crashed("", code) for code in (-11, -9, 0)] == [True, True, False, False, True, False, False], f"crashes: {found}")

# Marks on what is no test.
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/test_x.py", "w", encoding="utf-8") as file:
        file.write("class A(unittest.TestCase):\n @long\n def test_a(self): pass\n @alone\n def helper(self): pass\n@busy\nclass B: pass\n"
                   "@long\nclass C(A): pass\n@long\ndef test_d(): pass\n")
    found = [text.split(" is ")[0].split(": ")[1] for text in marks.Source(folder + "/test_x.py").misplaced]
expect(sorted(found) == ["B", "helper", "test_d"], f"marks that say nothing: {found}")

# What must always run is seen when it is moved, even from one build or column to fewer.
lines = census.lines(TOP)
for prefix, old, new in (("api foreign ", "| asan |", "| normal |"), ("sandbox isolation ", " one-id", ""), ("fault init_killed ", "| asan |", "| - |"),
                         ("sandbox gvisor Gvisor.test_the_manifest_of_escapes", " enosys", ""), ("fault store_faults ", "| fault |", "| - |")):
    moved = [line.replace(old, new) if line.startswith(prefix) else line for line in lines]
    expect(moved != lines and census.moved_away(moved), f"nobody saw that {prefix}was moved")
    expect(prefix in census.moved_away([line for line in lines if not line.startswith(prefix)]), f"nobody saw that {prefix}is gone")

# Times: remembered, also as older runs wrote them; areas; what a whole run may take.
took = [types.SimpleNamespace(name=name, wall=wall, processor=processor) for name, wall, processor in (
    ("api code [asan] busy", 40.4, 45.2), ("api code", 20, 25), ("api jobs", 90, 50), ("unit json", 1, 40), ("unit url", 1, 61))]
with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:
    file.write("# a comment\n7 api old\n9 api jobs\n")
    file.flush()
    times.remember(file.name, took)
    found = times.read(file.name)
expect(found == {"api code [asan] busy": (40, 45), "api code": (20, 25), "api jobs": (90, 50), "api old": (7, None)}, f"remembered times: {found}")
found = [name for name, _ in times.large_areas(took)]
expect(found == ["api code", "unit url"], f"areas above a processor minute: {found}")
said, is_failure = times.slowness(took, 21 * 60, 2)
expect(said.startswith("slower than 20 minutes: 21.0; slowest: api jobs 90 s") and not is_failure, f"a slow run: {said}")
expect([times.slowness(took, minutes * 60, processors)[1] for minutes, processors in ((31, 2), (31, 1), (19, 2))] == [True, False, False], "what is too slow")

# Kept things: of one name, what nobody has used for a week makes room for what is new.
with tempfile.TemporaryDirectory() as folder:
    os.environ["CAISSON_TEST_CACHE"] = folder
    kept = [cache.kept("name", mark, lambda work: None) for mark in ("recent", "old", "used")]
    for path in kept[1:]:
        os.utime(path, (0, 0))
    cache.kept("name", "used", lambda work: fail("it was there"))
    cache.kept("name", "new", lambda work: None)
    found = sorted(os.listdir(folder))
expect(found == ["name-new", "name-recent", "name-used", "name.lock"], f"kept: {found}")
if wrong:
    fail(*wrong)
