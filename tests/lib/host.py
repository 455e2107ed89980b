"""Looks for leftovers of a whole run on the host. Another run may be active at the same time, so only things that
belong to ours are checked: they have the folders of the run (`prefix`) or of its builds in their paths."""
import glob
import os
import pwd
import re
import subprocess
import time

WAIT_SECONDS = 20  # the last files are erased in the background


def read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def programs():
    """{pid: path} of every process's program."""
    return {pid: read_link(f"/proc/{pid}/exe") for pid in filter(str.isdigit, os.listdir("/proc"))}


def cgroups():
    return {f"cgroup {path}" for pattern in ("", "*/") for path in glob.glob(f"/sys/fs/cgroup/{pattern}caisson-*")}


def users():
    """The test users whose suite has ended: the suite's pid is in the name."""
    names = (re.fullmatch(r"caisson-test-(\d+)-\w+", entry.pw_name) for entry in pwd.getpwall())
    return {f"user {match.group()}" for match in names if match and not os.path.exists(f"/proc/{match.group(1)}")}


def left(builds, prefix, before):
    """`builds` and `prefix`: prefixes of the paths of the run's programs and temporary files. `before`: cgroups() |
    users()."""
    running = programs()
    ours = {pid: path for pid, path in running.items() if path.startswith((builds, prefix))}
    found = [f"process {pid} {path}" for pid, path in ours.items()]
    found += users() - before
    found += [f"file {path}" for path in glob.glob(prefix + "*")]
    loops = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, timeout=60).stdout
    found += [f"loop device {line.strip()}" for line in loops.splitlines() if prefix in line]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        found += [f"mount {line.split()[4]}" for line in file if prefix in line]
    if not any(path.endswith("/caisson") for pid, path in running.items() if pid not in ours):  # a daemon of another run makes cgroups too
        found += cgroups() - before
    return sorted(found)


def wait_left(*arguments):
    end = time.monotonic() + WAIT_SECONDS
    while (found := left(*arguments)) and time.monotonic() < end:
        time.sleep(0.5)
    return found
