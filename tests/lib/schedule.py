"""Runs jobs in parallel. A job is a command with a load. The machine has TOKENS, and the load decides how many a job
takes. Of the jobs that are ready, the longest starts first; a job that must run alone starts when no other is left. A
job's output goes to a file, which is read while it grows, so that a leftover process of a job cannot block the run.

Used by tests/run. Each running job has a thread of its own, which is the only one that reads its output."""
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

TOKENS = 5
LIMIT = 900
STATUS_SECONDS = 60
GRACE_SECONDS = 5  # how long processes may take to end after their parent


def processes_of(session, folder):
    """{pid: command line} of the processes in a session, or with the folder as TMPDIR or among their arguments."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as environment:
                words = words.read().replace(b"\0", b" ").decode(errors="replace")
                mine = os.getsid(int(pid)) == session or folder in words or f"TMPDIR={folder}\0".encode() in environment.read()
            if words and mine:
                found[int(pid)] = words
        except OSError:  # the process has just ended
            pass
    return found


def step_back(nice):
    """Lowers the priority of the process and of its session, which it leads. With autogroup the kernel first divides
    processors between sessions, so niceness counts only within one."""
    os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(nice))


class Job:
    """A command and its needs. Subclasses handle the lines of its output and its end."""
    kind = "suite"
    nice = 0

    def __init__(self, name, command, load="waits", environment=None, after=(), limit=LIMIT, seconds=0, nice=None):
        """`after`: names of jobs that must have succeeded. `seconds`: the expected duration. `nice`: replaces that of
        the class."""
        self.name, self.command, self.load, self.environment = name, command, load, environment or {}
        self.after, self.limit, self.seconds = tuple(after), limit, seconds
        self.nice = self.nice if nice is None else nice
        self.wall = self.processor = 0.0
        self.code = None

    def take_line(self, count, line):
        """Called for each line as it arrives."""

    def finish(self, count, output):
        """Called once, when it has ended; `self.code` is 124 if it has exceeded its time limit."""


class Scheduler:
    def __init__(self, count, top, logs, tokens=TOKENS):
        self.count, self.top, self.logs, self.tokens = count, top, logs, tokens
        self.changed = threading.Condition()
        self.waiting, self.running, self.ended = [], [], {}
        self.planned = set()
        self.slots, self.prefix = set(), f"/tmp/ct{os.getpid()}-"
        os.makedirs(logs, exist_ok=True)

    def add(self, job):
        with self.changed:
            self.waiting.append(job)
            self.planned.add(job.name)
            self.changed.notify()

    def run(self):
        try:
            self.run_all()
        except KeyboardInterrupt:
            self.stop()
            raise

    def stop(self):
        """Starts no more jobs and kills the running ones; each job's thread then cleans up."""
        with self.changed:
            self.waiting = []
            for job in self.running:
                with contextlib.suppress(OSError, AttributeError):
                    os.killpg(job.pid, signal.SIGKILL)
            self.changed.wait_for(lambda: not self.running, 30)

    def run_all(self):
        began = told = time.monotonic()
        with self.changed:
            while self.waiting or self.running:
                self.start_ready()
                self.changed.wait(5)
                if time.monotonic() - told > STATUS_SECONDS:
                    told = time.monotonic()
                    names = ", ".join(job.name for job in self.running)
                    print(f"# {told - began:.0f} s: {len(self.waiting)} jobs wait; running: {names}", flush=True)

    def missing(self, job):
        """The planned jobs that this one needs and that have not succeeded yet."""
        return [name for name in job.after if name in self.planned and self.ended.get(name) != 0]

    def cost(self, job):
        return {"waits": 1, "busy": min(2, self.tokens), "alone": self.tokens}[job.load]

    def start_ready(self):
        for job in [job for job in self.waiting if any(self.ended.get(name, 0) for name in job.after)]:
            self.waiting.remove(job)
            self.ended[job.name] = 1
            self.count.bad(job.name, "not run: " + ", ".join(self.missing(job)) + " failed")
        free = self.tokens - sum(map(self.cost, self.running))
        for job in sorted(self.waiting, key=lambda job: -job.seconds):
            last = job.load == "alone" and any(other.load != "alone" for other in self.waiting)
            if self.cost(job) <= free and not last and not self.missing(job):
                free -= self.cost(job)
                self.waiting.remove(job)
                self.running.append(job)
                threading.Thread(target=self.run_job, args=(job,), daemon=True).start()

    def run_job(self, job):
        try:
            self.run_command(job)
        except Exception as error:  # an error in the runner must not look like a job that never ended
            job.code = job.code or 125
            self.count.bad(job.name, f"the runner failed: {error!r}")
        with self.changed:
            self.running.remove(job)
            self.ended[job.name] = job.code if job.kind == "build" else 0
            self.changed.notify()

    @contextlib.contextmanager
    def slot(self):
        """A folder for temporary files, used by one job only. Its path is short, because sockets are made below it."""
        with self.changed:
            number = min(set(range(len(self.slots) + 1)) - self.slots)
            self.slots.add(number)
        folder = f"{self.prefix}{number}"
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with self.changed:
                self.slots.discard(number)

    def run_command(self, job):
        log = os.path.join(self.logs, job.name.replace("/", "-").replace(" ", "_") + ".log")
        with self.slot() as folder, open(log, "wb") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                job.command, cwd=self.top, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **job.environment, "TMPDIR": folder},
                start_new_session=True, preexec_fn=(lambda: step_back(job.nice)) if job.nice else None)
            job.pid = process.pid
            with open(log, encoding="utf-8", errors="replace") as reader:
                self.follow(job, process, reader, began)
            job.wall = time.monotonic() - began
            left = self.end_leftovers(process.pid, folder)
        with open(log, encoding="utf-8", errors="replace") as reader:
            job.finish(self.count, reader.read() + (f"\ntimed out after {job.limit} s" if job.code == 124 else ""))
        if left:
            self.count.bad(f"{job.name}: left behind", "\n".join(left))

    def follow(self, job, process, reader, began):
        """Passes the lines of its output to the job until it has ended."""
        part = ""
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not pid and time.monotonic() - began > job.limit:
                os.killpg(process.pid, signal.SIGKILL)
                pid, status, usage = os.wait4(process.pid, 0)
                status = 124 << 8
            *lines, part = (part + reader.read()).split("\n")
            for line in lines:
                job.take_line(self.count, line)
            if pid:
                break
            time.sleep(0.05)
        process.returncode = job.code = os.waitstatus_to_exitcode(status)
        job.processor = usage.ru_utime + usage.ru_stime

    def end_leftovers(self, session, folder):
        """Ends the processes that a job should have ended, and returns them and its leftover files."""
        end = time.monotonic() + GRACE_SECONDS
        while (left := processes_of(session, folder)) and time.monotonic() < end:
            time.sleep(0.1)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return [f"process {pid} {words[:200]}" for pid, words in left.items()] + [f"file {name}" for name in sorted(os.listdir(folder))]
