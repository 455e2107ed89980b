"""The user that a suite's daemons run as. CAISSON_COLUMN chooses:

  root     the host's root (the default)
  subuid   an ordinary user with a range of ids and delegated cgroups
  one-id   an ordinary user without such a range, and without any cgroup
  enosys   the host's root; system calls that older kernels lack return ENOSYS

Users and cgroups are created for one run of a suite and removed at its end. OTHER_OUTCOME lists the tests that pass as
root but must fail in a column, and how they must fail."""
import atexit
import contextlib
import ctypes
import fcntl
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import time

COLUMN = os.environ.get("CAISSON_COLUMN") or "root"
COLUMNS = ("subuid", "one-id", "enosys")
USER_PREFIX = "caisson-test-"
# useradd and similar tools lock their files, and another may run. Or a killed process has not ended yet.
USER_TOOL_SECONDS = 60
DELEGATED = ("cpu", "cpuacct", "memory", "pids", "freezer", "devices")

# The limits that a record reports as not enforced, with the reason.
NO_LOOP = "a disk of a fixed size needs a loop device, which only root may use"
NOT_GIVEN = "no delegated cgroup controller (see `caisson doctor`)"
NOT_ENFORCED = {
    "subuid": {"disk": NO_LOOP, "inodes": NO_LOOP},
    "one-id": {"disk": NO_LOOP, "inodes": NO_LOOP, "cpu": NOT_GIVEN, "memory": NOT_GIVEN, "pids": NOT_GIVEN},
}.get(COLUMN, {})

# {column: {"file Class.test": (reason, pattern that its failure must match, or a function of its text)}}
ONE_ID = "there is one id, root: nobody else can be asked for"
NO_CGROUP = "no cgroup is given to this user"
# If the sandbox's root is the user who started the daemon, that user owns the files of /proc/1: they can be
# opened, but their contents are protected (docs/isolation.md).
OPENED = {"list_descriptors_of_init", "list_mappings_of_init", "oom_score_of_init", "dump_filter_of_init",
          "references_of_init", "name_of_init", "descriptors_of_runner"}


def only_opened(text):
    outcomes = set(re.findall(r"^- .*?'(?:not ok )?(\w+): ([^']*)'", text, re.MULTILINE))
    return bool(outcomes) and all(name in OPENED and outcome == "done, expected refused" for name, outcome in outcomes)


NUMBERS = ("the sandbox's root is the user who started the daemon", only_opened)
NOT_THE_USERS = ("only root can give a folder that it does not own", "Permission denied")
WITH_FOLDERS = {
    "volumes Programs.test_the_probe_in_a_read_write_folder": NUMBERS,
    "volumes Programs.test_the_probe_with_nested_user_namespaces": NUMBERS,
    "volumes Programs.test_without_a_read_write_folder_they_are_made": NUMBERS,
    "volumes Volumes.test_root_gives_a_users_folder_as_that_user": NOT_THE_USERS,
}
ONE_ID_ONLY = (ONE_ID, "this sandbox has one id, root's")
NO_FREEZER = (NO_CGROUP, "feature.unsupported.*the cgroup freezer is not delegated")
UNLIMITED = (NO_LOOP, "AssertionError: ApiError not raised")
OTHER_OUTCOME = {
    "subuid": {
        **WITH_FOLDERS,
        "files Files.test_disk_full_is_typed": UNLIMITED,
    },
    "one-id": {
        **WITH_FOLDERS,
        "files Files.test_disk_full_is_typed": UNLIMITED,
        "files Files.test_as_user": ONE_ID_ONLY,
        "files Files.test_links_modes_owners": ONE_ID_ONLY,
        "exec Exec.test_users": ONE_ID_ONLY,
        **{f"staying Staying.test_{name}": ONE_ID_ONLY for name in (
            "a_name_that_stands_for_another", "it_does_not_stay_for_long", "killed_while_it_waits",
            "many_at_once", "one_process_serves_many", "stopped_while_it_waits", "users_are_kept_apart")},
        "host_template Workplace.test_writable_places": ONE_ID_ONLY,
        "cgroups VersionOne.test_init_is_apart_from_what_it_runs": (NO_CGROUP, r"\[\] is not true"),
        "cgroups VersionOne.test_limits_are_written": (NO_CGROUP, r"0 != 1 : memory.limit_in_bytes of \w+: \[\]"),
        "volumes Programs.test_the_probe_as_an_ordinary_user": ONE_ID_ONLY,
        "init Client.test_a_client_that_goes_while_all_is_full": NO_FREEZER,
        "init Client.test_an_answer_waits_for_a_client_that_does_not_read": NO_FREEZER,
        "init Client.test_metrics": NO_FREEZER,
        "gvisor Gvisor.test_pause_and_resume": NO_FREEZER,
        "gvisor Life.test_paused_while_the_daemon_is_away": NO_FREEZER,
        **{f"pause Pause.test_{name}": NO_FREEZER for name in (
            "a_reader_wakes_one_that_allows_it", "deleted_while_paused_and_while_pausing",
            "memory_goes_back_and_nothing_is_lost", "no_request_is_lost_against_a_pause",
            "one_that_forks_all_the_time", "processes_stand_still", "what_wakes_it_and_what_does_not")},
        "pause Restarts.test_the_pause_survives": NO_FREEZER,
        "pause Pause.test_pauses_and_resumes_at_once": (NO_CGROUP, "feature.unsupported"),
        "pause Pause.test_limits_of_one_that_runs_is_paused_is_stopped": (NO_CGROUP, "NoneType"),
        "pause Clocks.test_who_is_idle_is_paused": (NO_CGROUP, "its pause did not happen"),
        "neighbours Neighbours.test_per_user_limits_of_the_kernel":
            ("all sandboxes are the same user's, and what the kernel counts per user they share", r"'0\\n' != '20\\n'"),
    },
    "enosys": {},
}


def has_version_1():
    """True if this host has cgroups of version 1."""
    return any(line.split()[2] == "cgroup" for line in open("/proc/self/mounts"))


def controllers_to_give():
    """Names for everything in this host's cgroups that can be delegated to a user."""
    return DELEGATED if has_version_1() else ("cgroup2",)


class User:
    """An ordinary user, created and removed by us."""

    def __init__(self, with_range, tag=""):
        remove_leftovers()
        self.name = f"{USER_PREFIX}{os.getpid()}-{tag or ('s' if with_range else 'o')}"
        self.home = f"/tmp/{self.name}"
        arguments = ["useradd", "--no-log-init", "-d", self.home, "-m", "-s", "/bin/sh"]
        with users_locked():
            run_tool(arguments + (["-K", "SUB_UID_COUNT=65536", "-K", "SUB_GID_COUNT=65536"] if with_range else ["-r"]) +
                     [self.name])
        atexit.register(self.remove)
        entry = pwd.getpwnam(self.name)
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        os.chmod(self.home, 0o700)
        granted = f"{self.name}:" in open("/etc/subuid").read()
        if granted != with_range:
            raise AssertionError(f"{self.name}: /etc/subuid {'has' if granted else 'lacks'} a range")

    def remove(self):
        remove_user(self.name)


@contextlib.contextmanager
def users_locked():
    """Only one suite at a time may create or remove users: a new user can get the ids of one just removed, and
    processes are ended by their ids."""
    directory = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def run_tool(arguments):
    end = time.monotonic() + USER_TOOL_SECONDS
    while time.monotonic() < end:
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        if result.returncode in (0, 6, 12):  # done; no such user; its home was not there
            return
        if "lock" not in result.stderr and "currently used by process" not in result.stderr:
            break
        time.sleep(0.1)
    raise AssertionError(f"{arguments}: {result.stderr}")


def ids_of(entry):
    """The user's uid, and the ids that /etc/subuid grants."""
    ranges = [range(entry.pw_uid, entry.pw_uid + 1)]
    for line in open("/etc/subuid"):
        owner, first, count = line.split(":")
        if owner == entry.pw_name:
            ranges.append(range(int(first), int(first) + int(count)))
    return ranges


def end_processes(ranges):
    """Ends the processes of a test's user that the test has left."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                uid = os.stat("/proc/" + pid).st_uid
                real = int(re.search(r"^Uid:\t(\d+)", open(f"/proc/{pid}/status", errors="replace").read(), re.MULTILINE).group(1))
                if any(uid in ids or real in ids for ids in ranges):
                    os.kill(int(pid), signal.SIGKILL)
                    found.append(pid)
            except (OSError, AttributeError):
                pass
        if not found:
            return
        time.sleep(0.02)


def remove_user(name):
    with users_locked():
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return
        end_processes(ids_of(entry))
        run_tool(["userdel", name])
        shutil.rmtree(entry.pw_dir, ignore_errors=True)


def remove_leftovers():
    """Removes the users of test runs that were killed."""
    for entry in pwd.getpwall():
        match = re.fullmatch(USER_PREFIX + r"(\d+)-\w+", entry.pw_name)
        if match and not os.path.exists(f"/proc/{match.group(1)}"):
            remove_user(entry.pw_name)


class Cgroups:
    """Cgroups that are delegated to a user: every controller of version 1, or one cgroup of version 2."""

    def __init__(self, user, name, controllers=None):
        self.paths = []
        controllers = controllers or controllers_to_give()
        atexit.register(self.remove)  # also if the test fails
        mounts = [line.split() for line in open("/proc/self/mounts")]
        for controller in controllers:
            for _, top, kind, options, *_ in mounts:
                if kind == "cgroup" and controller in options.split(",") or kind == controller == "cgroup2":
                    path = os.path.join(top, name)
                    if path in self.paths:
                        break
                    os.mkdir(path)
                    self.paths.append(path)
                    for file in ("", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"):
                        if os.path.exists(os.path.join(path, file)):
                            os.chown(os.path.join(path, file), user.uid, user.gid)
                    break

    def join(self):
        """The start of a command line that joins the cgroups and runs the rest."""
        files = " ".join(os.path.join(path, "cgroup.procs") for path in self.paths)
        return ["/bin/sh", "-c", f'for f in {files}; do echo 0 > $f || exit 99; done; exec "$@"', "sh"]

    def remove(self):
        for path in self.paths:
            for directory, _, _ in sorted(os.walk(path), reverse=True):
                for _ in range(100):
                    try:
                        os.rmdir(directory)
                    except FileNotFoundError:
                        pass
                    except OSError:
                        time.sleep(0.02)
                        continue
                    break
        self.paths = []


def connect_as(user, function):
    """Calls the function with the user's effective ids, in this thread only: the C library would change all threads."""
    if user is None:
        return function()
    number = {"x86_64": (117, 119), "aarch64": (147, 149)}[platform.machine()]
    libc = ctypes.CDLL(None, use_errno=True)

    def become(uid, gid):
        for call, value in ((number[1], gid), (number[0], uid)):
            if libc.syscall(call, -1, value, -1) != 0:
                raise OSError(ctypes.get_errno(), "setresuid")
    libc.syscall.argtypes = [ctypes.c_long] * 4
    become(user.uid, user.gid)
    try:
        return function()
    finally:
        libc.syscall(number[0], -1, 0, -1)
        libc.syscall(number[1], -1, 0, -1)


column_user = None


def user_of_column():
    """The user that daemons run as; None: root."""
    global column_user
    if COLUMN in ("subuid", "one-id") and column_user is None:
        column_user = User(with_range=COLUMN == "subuid")
    return column_user


def wrapper_of_column():
    """The words before the command of a daemon."""
    if COLUMN == "enosys":
        from caisson import BUILD
        return [os.path.join(BUILD, "tests/lib/enosys"), "fallbacks", "--"]
    return []


def others():
    return OTHER_OUTCOME.get(COLUMN, {})


def other_outcome(name):
    """(reason, pattern) if this test must fail in this column."""
    return OTHER_OUTCOME.get(COLUMN, {}).get(name)
