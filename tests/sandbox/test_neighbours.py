"""What one sandbox uses up is its own: the host's and its neighbours' limits are not touched."""
import ctypes
import os
import unittest

from caisson import DaemonTest, wait_until

EXHAUST = r"""
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
instances = 0
while libc.inotify_init1(0) >= 0:
    instances += 1
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
signals = 0
while libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(0)) == 0:
    signals += 1
terminals = 0
try:
    while True:
        os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
        terminals += 1
except OSError:
    pass
print(instances, signals, terminals, flush=True)
time.sleep(1000)
"""


def inotify_instances():
    """How many inotify instances this process can still get (and gives back)."""
    libc = ctypes.CDLL(None, use_errno=True)
    held = []
    while len(held) < 20:
        fd = libc.inotify_init1(0)
        if fd < 0:
            break
        held.append(fd)
    for fd in held:
        os.close(fd)
    return len(held)


class Neighbours(DaemonTest):
    def test_per_user_limits_of_the_kernel(self):
        before = inotify_instances()
        greedy, other = self.sandbox(), self.sandbox()
        answer = self.api.exec(greedy, ["python3", "-c", EXHAUST], background=True)
        path = f"/v1/sandboxes/{greedy}/execs/{answer['exec_id']}/output"
        out = wait_until(lambda: self.api.get(path, stream="stdout"), 60, what="the exhaustion")
        instances, signals, terminals = map(int, out.split())
        self.assertGreater(instances, 25)  # of a user's 128 a sandbox without root has a quarter
        self.assertLessEqual(terminals, 256)
        self.assertEqual(inotify_instances(), before, "the host's root has as many as before")
        self.assertEqual(self.api.sh(other, ["python3", "-c", "import ctypes; l = ctypes.CDLL(None); print(sum(l.inotify_init1(0) >= 0 for _ in range(20)))"]), "20\n")
        self.assertEqual(self.api.exec(other, "test -t 0", tty=True)["exit_code"], 0)

    def test_they_do_not_see_each_other(self):
        one, two = self.sandbox(), self.sandbox()
        self.api.exec(one, "sleep 4321", background=True)
        self.assertNotIn("4321", self.api.sh(two, "ps -eo args"))
        # The same abstract name in both: a network namespace each.
        listen = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0name'); s.listen(); time.sleep(1000)"
        self.api.exec(one, ["python3", "-c", listen], background=True)
        wait_until(lambda: self.api.exec(one, "grep '@name$' /proc/net/unix")["exit_code"] == 0, what="the listener")
        out = self.api.sh(two, ["python3", "-c", "import socket, errno; print(errno.errorcode[socket.socket(socket.AF_UNIX).connect_ex('\\0name')])"])
        self.assertEqual(out, "ECONNREFUSED\n")


if __name__ == "__main__":
    unittest.main()
