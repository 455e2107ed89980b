"""What the bench compares with, and what it measures with: programs that are driven line by line, so that
their own start is in no figure."""
import contextlib
import glob
import json
import os
import shutil
import subprocess
import time

from caisson import BUILD, inits_of
from ports import free_port

TOOLS = os.path.join(BUILD, "tests/bench")
COMMAND = ["/bin/echo", "ready"]
EXEC = json.dumps({"argv": COMMAND})


def tool(name):
    return os.path.join(TOOLS, "bench-" + name)


class Lines:
    """A program that answers each line with a line of JSON (or several)."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def close(self):
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


class Client(Lines):
    """bench-client on the daemon's Unix socket, or on TCP with a token."""

    def __init__(self, daemon=None, port=None, token=None):
        address = ["--unix", os.path.join(daemon.runtime, "caisson.sock")] if daemon else ["--tcp", str(port)]
        super().__init__([tool("client"), *address, *(["--token", token] if token else [])])

    def repeat(self, count, method, path, body=None):
        return self.ask("repeat", count, method, path, *([body] if body else []))["times"]


class Floor(Lines):
    """bench-floor on the template and the empty disk of a daemon that has made one sandbox."""

    def __init__(self, daemon, *options):
        image = max(glob.glob(daemon.state + "/disk-templates/*.img"), key=os.path.getsize)
        self.directory = os.path.join(daemon.top, "floor")
        os.makedirs(self.directory, exist_ok=True)
        super().__init__([tool("floor"), "--layer", os.path.realpath(daemon.state + "/templates/host/current"),
                          "--image", image, "--directory", self.directory, *options, "--serve", "--", *COMMAND])

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def rounds(self, count):
        self.send("rounds", count)
        return [self.receive() for _ in range(count)]


def spawn(count, command, how="spawn"):
    """Times of `count` runs of a command, started by a small static program."""
    result = subprocess.run([tool("inside"), how, str(count), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=120)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


def works(command):
    """Is it installed, and does it run here?"""
    if not shutil.which(command[0]):
        return False
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def bwrap():
    command = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
               "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", *COMMAND]
    return command if works(command) else None


class Runc:
    """A bundle over the host's /usr, for `runc run`, and a container of it that stays, for `runc exec`."""

    def __init__(self, top):
        self.bundle, self.root = os.path.join(top, "bundle"), os.path.join(top, "runc")
        self.program = shutil.which("runc")
        self.name = f"caisson-bench-{os.getpid()}"
        self.container = False
        self.available = bool(self.program) and self.prepare() and works(self.run_command())

    def prepare(self):
        for directory in ("rootfs/usr", "rootfs/proc", "rootfs/dev", "rootfs/sys"):
            os.makedirs(os.path.join(self.bundle, directory))
        for name in ("bin", "lib", "lib64"):
            os.symlink("usr/" + name, os.path.join(self.bundle, "rootfs", name))
        if subprocess.run([self.program, "spec"], cwd=self.bundle).returncode != 0:
            return False
        self.configure(COMMAND)
        return True

    def configure(self, command):
        path = os.path.join(self.bundle, "config.json")
        spec = json.load(open(path))
        spec["process"].update(terminal=False, args=command)
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != "/usr"]
        spec["mounts"].append({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]})
        json.dump(spec, open(path, "w"))

    def run_command(self):
        return [self.program, "--root", self.root, "run", "--bundle", self.bundle, self.name]

    def start_container(self):
        if not self.available:
            return None
        self.configure(["/bin/sleep", "3600"])
        command = [self.program, "--root", self.root, "run", "--detach", "--bundle", self.bundle, self.name + "-kept"]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        self.configure(COMMAND)
        self.container = result.returncode == 0
        command = [self.program, "--root", self.root, "exec", self.name + "-kept", *COMMAND]
        return command if self.container and works(command) else None

    def close(self):
        if self.container:
            subprocess.run([self.program, "--root", self.root, "delete", "--force", self.name + "-kept"], timeout=30)
        self.container = False


@contextlib.contextmanager
def constant_server(name, size, cpu):
    """bench-http or bench-microhttpd on a free port, on one cpu: its port and pid."""
    if not os.path.exists(tool(name)):
        yield None, None
        return
    port = free_port()
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    process = subprocess.Popen([*pin, tool(name), str(port), str(size)], stdin=subprocess.PIPE)
    try:
        time.sleep(0.3)
        if process.poll() is not None:
            raise RuntimeError(f"bench-{name} does not start")
        yield port, process.pid
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def two_cores(daemon):
    """(a core for a server alone, one for the client), (None, None) where there is one only. The client's is the one that
    the daemon's only sandbox may use: what is compared, a constant, has no sandbox on the server's core either."""
    cpus = os.sched_getaffinity(0)
    used = {cpu for pid in inits_of(daemon.state) for cpu in os.sched_getaffinity(pid)} & cpus
    free = sorted(cpus - used) or sorted(cpus)
    others = sorted(cpus - {free[0]})
    return (free[0], others[0]) if others else (None, None)


@contextlib.contextmanager
def socat_pair(top, file, writing):
    """One socat from TCP to a Unix socket, one from there to the file (or the other way): the TCP port."""
    port, path = free_port(), os.path.join(top, "socat.sock")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    tcp = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"
    if writing:
        commands = [["socat", "-u", f"UNIX-LISTEN:{path}", f"OPEN:{file},creat,trunc,wronly"],
                    ["socat", "-u", tcp, f"UNIX-CONNECT:{path}"]]
    else:
        commands = [["socat", "-u", f"OPEN:{file},rdonly", f"UNIX-LISTEN:{path}"],
                    ["socat", "-u", f"UNIX-CONNECT:{path}", tcp]]
    processes = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.15)
        yield port
        for process in processes:
            process.wait(30)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
