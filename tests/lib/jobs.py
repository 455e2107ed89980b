"""The jobs that tests/run starts, one class for each kind, and the count of their results."""
import json
import os
import re
import threading

import plan
from schedule import LIMIT, Job

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = "/usr/bin/python3"
BUILDS = {"normal": "build", "asan": "build-asan", "fault": "build-fault", "aarch64": "build-aarch64", "fuzz": "build-fuzz"}
LIMITS = {"fault kill_points": 1800, "soak soak": 1800, "bench bench": 1800}
MACHINE_LIMIT = 2700  # level all took 1757 s beside other work
# The most useful line of a failure's output: Python's last, a sanitizer's, a failed check of a unit test.
REASON = re.compile(r"\w*(Error|Exception|Failure)\b.*: |.*(Sanitizer|runtime error:)|# \S+:\d+: |timed out after")
SANITIZER = re.compile(r"\w+Sanitizer|runtime error:")
# A failure of these is never retried: it must not happen even once.
NEVER_AGAIN = re.compile(r"(escape|fault|conformance|bench|soak) |sandbox isolation |.*(store|upgrade)"
                         r"|sandbox gvisor \S*manifest_of_escapes|sandbox volumes Programs\.test_the_probe_")
LEFT = re.compile(r"cleaning up; left|not explained|a sanitizer complained|crashed: SIG|ended (with -\d|\(signal)|" + SANITIZER.pattern)
AGAIN_TIMES, AGAIN_NEEDED = 10, 8


def may_try_again(name, text):
    """True if a test ("kind file Class.test") that failed with this output may be retried. Some failures must not
    happen even once."""
    return "." in name and not NEVER_AGAIN.match(name) and not LEFT.search(text)


class Count:
    """The results of all jobs. Jobs report from threads of their own."""

    def __init__(self):
        self.lock = threading.RLock()
        self.passed, self.failed, self.skipped, self.unsteady = 0, [], [], []
        self.driven = set()  # "METHOD path status" of docs/openapi
        self.seen = set()    # names of tests, for the census

    def ok(self, name, seconds=None):
        with self.lock:
            self.passed += 1
            self.seen.add(name)
            print(f"ok {name}" + (f" ({seconds:.1f} s)" if seconds and seconds > 1 else ""), flush=True)

    def bad(self, name, text=""):
        """Prints the output of a failure, and repeats its main line beside the name: the reader's view may have lost
        the rest."""
        lines = text.strip().splitlines()
        reason = next((line for line in reversed(lines) if REASON.match(line)), lines[-1] if lines else "")[:400]
        with self.lock:
            self.seen.add(name)
            self.failed.append(f"{name}: {reason}" if reason else name)
            for line in lines[-60:]:
                print("#", line)
            print(f"not ok {name}\n# {name}: {reason}" if reason else f"not ok {name}", flush=True)

    def skip(self, name, why):
        with self.lock:
            self.skipped.append((name, why))
            self.seen.add(name)
            print(f"skip {name}: {why}", flush=True)

    def say(self, text):
        with self.lock:
            print(text, flush=True)


class Check(Job):
    """Passes if it exits with 0 and no sanitizer reports anything: a gate, a replay, a fuzzer, a build."""
    counts = True

    def finish(self, count, output):
        if self.code != 0 or SANITIZER.search(output):
            self.code = self.code or 1
            count.bad(self.name, output)
        elif self.counts:
            count.ok(self.name, self.wall)
        else:
            count.say(f"# {self.name}: {self.wall:.0f} s")


class Behind(Check):
    """A gate or a fuzzer. No job waits for it, and it may keep a processor busy all the time."""
    nice = 15


class Build(Check):
    """A build or a download that other jobs need."""
    kind, nice, counts = "build", 5, False


class Unit(Job):
    """One program that prints a line for each test."""

    def __init__(self, kind, program, label, command, **options):
        super().__init__(f"{kind} {program}{label}", command, **options)
        self.words, self.label, self.seen, self.bad = f"{kind} {program}", label, 0, []

    def take_line(self, count, line):
        match = re.fullmatch(r"(ok|not ok|skip) (\S+)(?:: (.*))?", line)
        if not match:
            return
        self.seen += 1
        name = f"{self.words} {match.group(2)}{self.label}"
        if match.group(1) == "ok":
            count.ok(name)
        elif match.group(1) == "skip":
            count.skip(name, match.group(3) or "it does not say why")
        else:
            self.bad.append(name)

    def finish(self, count, output):
        for name in self.bad:
            count.bad(name, output)
        if self.code not in (0, 1) or self.seen == 0 or SANITIZER.search(output):
            count.bad(f"{self.words} (exit {self.code}, {self.seen} tests){self.label}", output)


class Records:
    """Counts the results that tests/lib/suite.py prints for one suite."""

    def __init__(self, suite, label):
        self.suite, self.label, self.seen, self.bad = suite, label, 0, []

    def take(self, count, line):
        if line.startswith("= "):
            count.say(f"{self.suite}{self.label}: {line[2:]}")
        elif line.startswith("%["):
            with count.lock:
                count.driven.update(json.loads(line[1:]))
        elif line.startswith("@{"):
            self.seen += 1
            record = json.loads(line[1:])
            name = f"{self.suite} {record['name']}{self.label}"
            with count.lock:  # a subtest's name begins with that of its test
                count.seen.add(f"{self.suite} {record['name'].split(' ')[0]}{self.label}")
            if record["outcome"] == "ok":
                count.ok(name, record["seconds"])
            elif record["outcome"] == "skip":
                count.skip(name, record["text"])
            else:
                self.bad.append((record["name"], record["text"]))

    def finish(self, count, code, output):
        if code not in (0, 1) or self.seen == 0:
            count.bad(f"{self.suite} (exit {code}, {self.seen} tests){self.label}", output)


class Suite(Job):
    """The tests of one file with one load, on one build, in one column."""

    def __init__(self, run, suite, build, column, load, leave_out):
        path = "tests/" + suite.replace(" ", "/test_") + ".py"
        self.label = plan.label(build, column)
        self.suite, self.again = suite, run.again
        name = suite + self.label + ("" if load == "waits" else f" {load}")
        super().__init__(name, [PYTHON, "tests/lib/suite.py", path, "--load", load, "--leave-out", ",".join(sorted(leave_out))],
                         load, environment(build, column, run.level), after=["build normal", f"build {build}", *run.needs(suite)],
                         limit=LIMITS.get(suite, LIMIT))
        self.records = Records(suite, self.label)

    def take_line(self, count, line):
        self.records.take(count, line)

    def finish(self, count, output):
        for test, text in self.records.bad:
            if not self.again(self, test, text):
                count.bad(f"{self.suite} {test}{self.label}", text)
        self.records.finish(count, self.code, output)


class Again(Job):
    """Runs a failed test ten more times, to see whether it is broken or unsteady. Only tests in tests/unsteady can
    still pass."""

    def __init__(self, job, test, text, listed):
        super().__init__(f"{job.name} {test} again", [*job.command, "--times", str(AGAIN_TIMES), "--stall", "--only", test.split(" ")[0]],
                         job.load, job.environment, seconds=10**6)
        self.test, self.text, self.listed = f"{job.suite} {test}{job.label}", text, listed
        self.passed = self.tried = 0

    def take_line(self, count, line):
        if line.startswith("@{"):
            self.tried += 1
            self.passed += json.loads(line[1:])["outcome"] == "ok"

    def finish(self, count, output):
        said = f"{self.test}: again under stalls, {self.passed} of {self.tried} passed"
        if self.listed and self.passed >= AGAIN_NEEDED and not SANITIZER.search(output):
            with count.lock:
                count.unsteady.append(f"{said} ({self.listed})")
                count.passed += 1
                count.seen.add(self.test)
                print(f"unsteady {said}", flush=True)
        else:
            count.bad(self.test, f"{said}\n{self.text}")


class Machine(Job):
    """Suites in a virtual machine: Debian 12's kernel, systemd, cgroup version 2. Lines are "N> TEXT" and "N< CODE"."""
    nice = 5

    def __init__(self, name, chosen, level):
        items = [{"words": [PYTHON, "tests/lib/suite.py", "tests/" + suite.replace(" ", "/test_") + ".py",
                            "--leave-out", ",".join(sorted(plan.left_out(level, column, True)))],
                  "environment": {"CAISSON_BUILD": "/tree/build", "CAISSON_COLUMN": column, "CAISSON_EMULATED": "1"}, "seconds": LIMIT}
                 for suite, column in chosen]
        super().__init__(name, [PYTHON, "tests/machine/machine.py", os.path.join(TOP, BUILDS["normal"]), json.dumps(items), str(MACHINE_LIMIT)],
                         "busy", after=["build normal", "download machine"], limit=MACHINE_LIMIT + 60)
        self.records = [Records(suite, plan.label("normal", column, True)) for suite, column in chosen]
        self.output = [""] * len(chosen)

    def take_line(self, count, line):
        match = re.fullmatch(r"(\d+)([<>]) (.*)", line)
        if not match:
            return
        number, text = int(match.group(1)), match.group(3)
        records = self.records[number]
        if match.group(2) == ">":
            self.output[number] += text + "\n"
            records.take(count, text)
            return
        for test, why in records.bad:
            count.bad(f"{records.suite} {test}{records.label}", why)
        records.finish(count, int(text), self.output[number])
        self.output[number] = None

    def finish(self, count, output):
        for records, text in zip(self.records, self.output):
            if text is not None:
                count.bad(f"{self.name}: {records.suite}{records.label} did not end (QEMU: {self.code})", output + text)


def environment(build, column, level):
    return {"CAISSON_BUILD": os.path.join(TOP, BUILDS["normal" if build == "fault" else build]),
            "CAISSON_FAULT_BUILD": os.path.join(TOP, BUILDS["fault"]),
            "CAISSON_COLUMN": column, "CAISSON_LEVEL": level, "CAISSON_SANITIZED": "1" if build == "asan" else ""}
