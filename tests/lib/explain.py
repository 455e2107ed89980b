"""Compares everything on the host with the records of a daemon's sandboxes: processes, mounts, loop devices, cgroups,
network namespaces, files. Nothing may be left over, and nothing may be missing."""
import glob
import http.client
import os
import re
import sqlite3
import subprocess

from caisson import ApiError, processes_of, wait_until
from host import read_link

# Entries of a state directory that do not belong to one sandbox.
LOG_HEADER = 4096
STATE = {"lock", "uid-block", "init", "db", "logs", "templates", "disk-templates", "sandboxes", "trash", "runsc"}
RUNTIME = {"caisson.sock", "lock", "guests"}
DATABASE = {"caisson.db", "caisson.db-wal", "caisson.db-shm"}
OF_SANDBOX = {"slot", "disk.img"}


def names(*path):
    try:
        return set(os.listdir(os.path.join(*path)))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def cgroup_names(instance):
    """The names in our part of each hierarchy, each with the hierarchies that have it."""
    found = {}
    for root in glob.glob(f"/sys/fs/cgroup/*/{instance}") + glob.glob(f"/sys/fs/cgroup/{instance}"):
        for name in os.listdir(root):
            if os.path.isdir(os.path.join(root, name)):
                found.setdefault(name, set()).add(root)
    return found


def cgroup_of(pid, instance):
    match = re.search(rf"/{instance}/([^/\n]+)", read(f"/proc/{pid}/cgroup"))
    return match.group(1) if match else None


class Explanation:
    """`wrong` has a line for each difference from the records."""

    def __init__(self, daemon, mounts_of_test=()):
        self.daemon, self.wrong, self.mounts_of_test = daemon, [], mounts_of_test
        client = daemon.client(timeout=10)
        self.records = {record["id"]: record for record in client.get("/v1/sandboxes", limit=200)["items"]
                        if record["status"] != "ended"}
        self.execs = {}  # the execs whose output is kept
        # From the database itself, because the API lists only a limited number of execs.
        for box, exec_id in self.daemon.rows("select sandbox, id from execs where head + tail > 0"):
            self.execs.setdefault(box, set()).add(exec_id)
        for box, record in self.records.items():
            self.expect(record["status"] in ("running", "paused", "stopped"), f"sandbox {box} is still {record['status']}")
        self.running = {box for box, record in self.records.items() if record["status"] in ("running", "paused")}
        self.pooled = daemon.pooled()
        self.instance = daemon.instance()
        self.check_guests()
        self.check_processes()
        self.check_cgroups()
        self.check_mounts()
        self.check_files()

    def expect(self, true, text):
        if not true:
            self.wrong.append(text)

    def same(self, what, found, wanted):
        for name in sorted(found - wanted):
            self.wrong.append(f"{what}: {name} is there and nothing explains it")
        for name in sorted(wanted - found):
            self.wrong.append(f"{what}: {name} is missing")

    def check_guests(self):
        """Each running sandbox, and each of the pool, has a directory with its init's pid."""
        self.inits = {}
        guests = names(self.daemon.runtime, "guests")
        self.same("guests", guests - self.pooled, self.running)
        for name in guests:
            match = re.search(r"^pid (\d+)$", read(os.path.join(self.daemon.runtime, "guests", name, "boot")), re.M)
            if not match:
                self.expect(name in self.pooled, f"guest {name} has no record of its boot")
                continue
            pid = int(match.group(1))
            self.expect(os.path.exists(f"/proc/{pid}"), f"guest {name}: its init {pid} is not there")
            self.inits[name] = pid
        self.places = {cgroup_of(pid, self.instance): name for name, pid in self.inits.items()}

    def check_processes(self):
        spawner, daemon = self.daemon.process.pid, self.daemon.daemon_pid()
        networks, host_network = {}, read_link("/proc/self/ns/net")
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            place = cgroup_of(entry, self.instance)
            if place is None:
                continue
            self.expect(place in self.places or place in self.pooled, f"process {entry} of {place}: no sandbox has it")
            network = read_link(f"/proc/{entry}/ns/net")
            if network:
                networks.setdefault(network, set()).add(place)
        for network, places in networks.items():
            self.expect(len(places) == 1, f"{network} is shared by {sorted(places)}")
            self.expect(network != host_network, f"{sorted(places)} is in the host's network namespace")
        for pid, command in processes_of(self.daemon.state, self.daemon.runtime):
            if cgroup_of(pid, self.instance) is None:
                self.expect(pid in (spawner, daemon), f"process {pid} {command}: nothing explains it")
        for pid in (spawner, daemon):
            targets = [read_link(f"/proc/{pid}/fd/{fd}") for fd in names(f"/proc/{pid}/fd")]
            namespaces = [target for target in targets if target.startswith(("net:", "mnt:", "user:", "pid:"))]
            self.expect(not namespaces, f"process {pid} holds {namespaces}")

    def check_cgroups(self):
        found = cgroup_names(self.instance)
        wanted = set(self.places) - {None}
        self.same("cgroups", set(found) - self.pooled, wanted - self.pooled)
        most = max((len(roots) for roots in found.values()), default=0)
        for name, roots in found.items():
            self.expect(len(roots) == most or name in self.pooled, f"cgroup {name} is in {sorted(roots)} only")

    def check_mounts(self):
        for line in open("/proc/self/mountinfo"):
            point = line.split()[4]
            if self.daemon.top in line and point not in self.mounts_of_test:
                self.wrong.append("mount " + line.strip())
        loops = subprocess.run(["losetup", "-l", "-n", "-O", "BACK-FILE"], capture_output=True, text=True, timeout=20).stdout
        held = set()
        for line in loops.splitlines():
            if self.daemon.state not in line:
                continue
            parent, name = line.strip().split("/")[-3:-1]
            held.add(name)
            self.expect(parent == "sandboxes" and "(deleted)" not in line, f"loop device of {line}")
        if held:
            self.same("loop devices", held - self.pooled, self.running)

    def check_files(self):
        state = self.daemon.state
        self.expect(names(state) <= STATE, f"the state directory has {sorted(names(state) - STATE)}")
        self.expect(names(self.daemon.runtime) <= RUNTIME, f"the runtime directory has {sorted(names(self.daemon.runtime) - RUNTIME)}")
        self.expect(names(state, "db") <= DATABASE, f"the database's directory has {sorted(names(state, 'db') - DATABASE)}")
        self.same("sandboxes", names(state, "sandboxes") - self.pooled, set(self.records))
        self.same("runsc", names(state, "runsc"), set())
        for box in self.records:
            self.same(f"files of {box}", names(state, "sandboxes", box), OF_SANDBOX)
        self.same("trash", names(state, "trash"), set())
        logs = names(state, "logs") - {"spare"}  # prepared log files
        self.same("logs", logs - set(self.records) - self.pooled, set())
        for box in logs:
            ready = {name for name in names(state, "logs", box) if name.rsplit(".", 1)[0] not in self.execs.get(box, set())}
            # The empty files of the next exec are made ahead.
            empty = {name for name in ready if os.stat(os.path.join(state, "logs", box, name)).st_size <= LOG_HEADER}
            self.same(f"logs of {box}", ready - empty, set())
            self.expect(len({name.rsplit(".", 1)[0] for name in empty}) <= 1, f"logs of {box} without an exec: {sorted(empty)}")


def unexplained(daemon, mounts_of_test=()):
    try:
        return Explanation(daemon, mounts_of_test).wrong
    except (OSError, subprocess.TimeoutExpired, http.client.HTTPException, sqlite3.Error, ApiError) as error:
        return [repr(error)]


def wait_explained(daemon, mounts_of_test=(), seconds=30):
    """Waits until everything is explained: files are erased, and the pool is filled, in the background."""
    wrong = []

    def look():
        try:
            wrong[:] = unexplained(daemon, mounts_of_test)
        except AssertionError as error:  # the daemon has just ended with its spawner, and the next one is not ready yet
            wrong[:] = [str(error)]
        return not wrong
    try:
        wait_until(look, seconds, 0.05)
    except AssertionError:
        raise AssertionError("not explained: " + "; ".join(wrong)) from None
