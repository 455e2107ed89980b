"""The fault points of a build with -Dfault_points=true (src/base/fault.h). A test shares a page of memory with the
daemon and the spawner and arms a point in it. A process that reaches the point is held until the test releases it.
Through the page the test also moves the clocks of both processes, to skip a time-out."""
import ctypes
import mmap
import os
import subprocess
import time

import caisson

BUILD = os.environ.get("CAISSON_FAULT_BUILD") or os.path.join(caisson.TOP, "build-fault")
PROGRAM = os.path.join(BUILD, "caisson")

POINTS_MAX = 2000
HOLD, DELAY = 1, 2
DAEMON, SPAWNER = 0, 1  # enum fault_role


class Page(ctypes.Structure):
    """struct fault_page of src/base/fault.c"""
    _fields_ = [("armed", ctypes.c_uint32), ("skip", ctypes.c_uint32), ("action", ctypes.c_uint32),
                ("milliseconds", ctypes.c_uint32), ("held", ctypes.c_uint32), ("go_on", ctypes.c_uint32),
                ("advance", ctypes.c_uint64), ("acknowledged", ctypes.c_uint64 * 2),
                ("reserved", ctypes.c_uint32 * 12), ("hits", ctypes.c_uint32 * POINTS_MAX)]


def use_fault_build():
    """After this, caisson.Daemon starts the build with fault points."""
    caisson.PROGRAM = PROGRAM


def list_points():
    """The number of every built-in point, by its name."""
    output = subprocess.run([PROGRAM, "_fault-points"], capture_output=True, text=True, check=True, timeout=20).stdout
    return {name: int(number) for number, name in (line.split() for line in output.splitlines())}


class Faults:
    def __init__(self, path):
        self.path, self.points = path, list_points()
        with open(path, "wb") as file:
            file.truncate(ctypes.sizeof(Page))
        os.chmod(path, 0o666)  # the daemon runs as another user
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), ctypes.sizeof(Page))
        self.page = Page.from_buffer(self.memory)

    def arm(self, point, skip=0, delay=None):
        page = self.page
        page.armed = page.held = page.go_on = 0
        page.skip, page.action, page.milliseconds = skip, DELAY if delay else HOLD, int((delay or 0) * 1000)
        page.armed = self.points[point] + 1

    def disarm(self):
        self.page.armed = 0

    def held(self, seconds=5):
        """The pid of the process that is held at the point; 0 if none came within that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.page.held:
                return self.page.held
            time.sleep(0.001)
        return 0

    def go_on(self):
        self.page.armed = 0
        self.page.go_on = 1

    def advance(self, seconds, of=(DAEMON, SPAWNER), limit=30):
        """Moves the clocks of the daemon and the spawner forward. Returns when they have done everything that is due
        then, except work that waits for another process. of: the processes that can acknowledge it, so not one that is
        held at a point or killed."""
        self.page.advance += int(seconds * 1e9)
        caisson.wait_until(lambda: all(self.page.acknowledged[role] >= self.page.advance for role in of), limit,
                           what="the moved clocks seen", every=0.002)

    def hits(self):
        """How often each point was passed so far."""
        return {name: self.page.hits[number] for name, number in self.points.items()}


def armable(**options):
    """Makes a daemon, not started yet, and its faults. Its periodic work is switched off, because that would reach
    points at any time."""
    daemon = caisson.Daemon(**{"config": "[usage]\ninterval = 1h\n", **options})
    faults = Faults(os.path.join(daemon.top, "faults"))
    daemon.environment["CAISSON_FAULTS"] = faults.path
    return daemon, faults


class FaultTest(caisson.OwnDaemons):
    def world(self, **options):
        """Makes a daemon for this test, not started yet, and its faults. At the end a process that is held at a point
        is released."""
        self.daemon, self.faults = armable(**options)
        self.addCleanup(self.finish, self.daemon)
        self.addCleanup(self.faults.go_on)
        return self.daemon


class ClockTest(caisson.DaemonTest):
    """One daemon for all tests of a class, whose clocks are moved. It has no pool: members in the making when time
    jumps would exceed their time-out."""
    config = "[usage]\ninterval = 1h\n[pool]\nsize = 0\nmax = 0\n"

    @classmethod
    def setUpClass(cls):
        cls.daemon, cls.faults = armable(config=cls.config)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.api = cls.daemon.client()

    def status(self, box):
        return self.api.get("/v1/sandboxes/" + box)["status"]

    def ended(self, box):
        """Waits until the sandbox has ended, and returns the reason."""
        caisson.wait_until(lambda: self.status(box) == "ended", what="its end")
        return self.api.get("/v1/sandboxes/" + box)["end"]["reason"]
