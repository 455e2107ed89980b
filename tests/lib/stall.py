"""Simulates a machine that stalls. While a suite runs, one of its processes after the other (the suite itself, its
daemons, their spawners, the inits of its sandboxes, its clients) is stopped for two seconds at a random moment."""
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

STOPPED_SECONDS = 2
BETWEEN_SECONDS = 1.5


def start(pid):
    """Stalls the family of the process `pid` until it ends. Runs in a separate process, because it must be able to stop
    that one too."""
    subprocess.Popen([sys.executable, os.path.abspath(__file__), str(pid)], stdin=subprocess.DEVNULL, start_new_session=True)


def parents():
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{entry}/stat", "rb") as file:
                found[int(entry)] = int(file.read().rsplit(b")", 1)[1].split()[1])
    return found


def family(root):
    """`root` and all of its descendants, except this process."""
    parent_of, found, more = parents(), {root}, True
    while more:
        more = {pid for pid, parent in parent_of.items() if parent in found} - found
        found |= more
    return sorted(found - {os.getpid()})


def is_alive(pid):
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    return False


def main(root):
    while is_alive(root):
        time.sleep(random.uniform(0, 2 * BETWEEN_SECONDS))
        victim = random.choice(family(root))
        # A process that is already stopped was stopped by a test and must stay so.
        with contextlib.suppress(OSError):
            with open(f"/proc/{victim}/stat", "rb") as file:
                if file.read().rsplit(b")", 1)[1].split()[0] in (b"T", b"t"):
                    continue
            descriptor = os.pidfd_open(victim)
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
            finally:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGCONT)
                os.close(descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]))
