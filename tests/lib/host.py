"""What a whole run has left on the host, which must be nothing. Somebody else may run tests at the same time: only what can
be told to be ours is looked at, by the folders of the run (`prefix`) and of its builds."""
import glob
import os
import pwd
import re
import subprocess
import time

WAIT_SECONDS = 20  # the last of the erasing is done in the background


def read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def programs():
    """{pid: path} of every process of the product's."""
    found = {pid: read_link(f"/proc/{pid}/exe") for pid in filter(str.isdigit, os.listdir("/proc"))}
    return {pid: path for pid, path in found.items() if re.search(r"/(caisson|caisson-init|init)( \(deleted\))?$", path)}


def cgroups():
    return {path for pattern in ("", "*/") for path in glob.glob(f"/sys/fs/cgroup/{pattern}caisson-*")}


def left(top, prefix, cgroups_before):
    running = programs()
    ours = {pid: path for pid, path in running.items() if path.startswith((top, prefix))}
    found = [f"process {pid} {path}" for pid, path in ours.items()]
    found += [f"user {entry.pw_name}" for entry in pwd.getpwall() if re.fullmatch(rf"caisson-test-{os.getpid()}-\w+", entry.pw_name)]
    found += [f"file {path}" for path in glob.glob(prefix + "*")]
    loops = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, timeout=60).stdout
    found += [f"loop device {line.strip()}" for line in loops.splitlines() if prefix in line]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        found += [f"mount {line.split()[4]}" for line in file if prefix in line]
    if len(running) == len(ours):  # a daemon of somebody else's makes some too
        found += [f"cgroup {path}" for path in cgroups() - cgroups_before]
    return sorted(found)


def wait_left(*arguments):
    end = time.monotonic() + WAIT_SECONDS
    while (found := left(*arguments)) and time.monotonic() < end:
        time.sleep(0.5)
    return found
