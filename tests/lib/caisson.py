"""Shared by the suites: daemons of their own in fresh directories, a client of the API, and a check for leftovers on
the host when a daemon has ended."""
import concurrent.futures
import contextlib
import copy
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

import contract
from columns import COLUMN, Cgroups, connect_as, user_of_column, wrapper_of_column
from ports import free_port

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CAISSON_BUILD") or os.path.join(TOP, "build")
PROGRAM = os.path.join(BUILD, "caisson")
MCP_FIXTURES = PROGRAM + "-mcp-fixtures"  # with the fixtures of the conformance suite (tests/mcp/fixtures)
THOROUGH = os.environ.get("CAISSON_LEVEL") == "all"
SANITIZED = bool(os.environ.get("CAISSON_SANITIZED"))
# Signals of a crash. No test sends them: tests kill daemons with SIGKILL.
CRASHES = (signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS)
UIDS_SECONDS = 300  # how long to retry a daemon's start while other suites use all uids


def own(path):
    """Gives a file or directory of the test's to the user that daemons and clients run as."""
    if user_of_column():
        os.chown(path, user_of_column().uid, user_of_column().gid, follow_symlinks=False)
    return path


def owner_uid():
    return user_of_column().uid if user_of_column() else os.getuid()


def read_process(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # the process has just ended
        return b""


def parent_of(pid):
    fields = read_process(pid, "stat").rsplit(b")", 1)[-1].split()
    return int(fields[1]) if fields else 0


def has_ended(pid):
    """True if the process has also closed its descriptors. One that is just exiting has no program any more, but still
    its sockets."""
    fields = read_process(pid, "stat").rsplit(b")", 1)[-1].split()
    return not fields or fields[0] in (b"Z", b"X")


def end_commands(*words):
    """Kills all processes with exactly this command line, also in sandboxes."""
    command = b"".join(word.encode() + b"\0" for word in words)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if read_process(pid, "cmdline") == command:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def daemon_of(spawner):
    """Returns the pid of the API process, a child of the spawner. The kernel's list of children may miss one while
    another ends (proc(5)). So if it is not in that list, all processes are searched."""
    for pids in (lambda: read_process(spawner, f"task/{spawner}/children").decode().split(), lambda: os.listdir("/proc")):
        for pid in filter(str.isdigit, pids()):
            if b"_daemon" in read_process(pid, "cmdline") and parent_of(pid) == spawner:
                return int(pid)
    raise AssertionError("the spawner has no daemon")


def wait_until(condition, seconds=30, every=0.02, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise AssertionError(f"{what} did not happen within {seconds} s")


class Background(threading.Thread):
    """Runs a slow call in a thread, and keeps its answer or its error."""

    def __init__(self, function, *arguments, **fields):
        super().__init__(daemon=True)
        self.function, self.arguments, self.fields = function, arguments, fields
        self.answer = self.error = None
        self.start()

    def run(self):
        try:
            self.answer = self.function(*self.arguments, **self.fields)
        except Exception as error:  # raised by result()
            self.error = error

    def failure(self):
        """The error, or None."""
        self.join(60)
        if self.is_alive():
            raise AssertionError("it was left waiting")
        return self.error

    def result(self):
        if self.failure():
            raise self.error
        return self.answer


def at_once(function, inputs):
    """Calls the function for each input in a thread of its own. Returns the answers in the order of the inputs."""
    with concurrent.futures.ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(function, inputs))


def best_of(times, measure, bound):
    """Returns the first measurement below the bound, of at most `times`. Several are made, because the machine itself
    may stall."""
    found = []
    while not found or found[-1] >= bound:
        if len(found) == times:
            raise AssertionError(f"none is below {bound}: {found}")
        found.append(measure())
    return found[-1]


def loop_devices(path):
    """The loop devices whose files are below a directory."""
    lines = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, timeout=60).stdout
    return [line.split()[0] for line in lines.splitlines() if path in line]


def make_certificate(directory, name="server", host="localhost", addresses="DNS:localhost,IP:127.0.0.1"):
    """Makes a self-signed certificate. Returns the paths of the certificate and its key."""
    files = [os.path.join(directory, f"{name}.{kind}") for kind in ("pem", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=" + host, "-addext", "subjectAltName=" + addresses, "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True, timeout=60)
    for path in files:
        os.chmod(path, 0o644)
    return files


def clear_of_midnight():
    """Waits if midnight (UTC) is near: days and months end then, and their counts start again."""
    while time.time() % 86400 > 86400 - 60:
        time.sleep(1)


def is_closed(sock):
    """True if the other side closes the connection without sending anything."""
    try:
        return sock.recv(100) == b""
    except ConnectionError:
        return True


class ApiError(Exception):
    def __init__(self, status, body, headers):
        super().__init__(f"{status}: {body}")
        self.status, self.body, self.headers = status, body, headers
        self.code = body.get("code") if isinstance(body, dict) else None


class Response(http.client.HTTPResponse):
    """Passes everything that is read from it to its exchange (contract.py)."""
    exchange = None
    inside = False

    def shown(self, read, *arguments):
        if self.exchange is None or self.inside:
            return read(*arguments)
        self.inside = True  # some read methods call others
        try:
            data = read(*arguments)
        finally:
            self.inside = False
        self.exchange.data(data)
        if self.isclosed() or (not data and arguments[:1] != (0,)):
            self.exchange.end()
        return data

    def read(self, amt=None):
        return self.shown(super().read, amt)

    def read1(self, n=-1):
        return self.shown(super().read1, n)

    def readline(self, limit=-1):
        return self.shown(super().readline, limit)


class Connection(http.client.HTTPConnection):
    """Passes each exchange to the contract, unless `checked` is False."""
    response_class = Response
    checked = True

    def request(self, method, url, body=None, headers=(), **options):
        headers = dict(headers)
        kinds = {name.lower(): value for name, value in headers.items()}
        self.exchange = contract.Exchange(method, url, body, kinds.get("content-type"))
        super().request(method, url, body, headers, **options)

    def getresponse(self):
        response = super().getresponse()
        if self.checked and contract.ENABLED and getattr(self, "exchange", None):
            response.exchange = self.exchange
            self.exchange.begin(response.status, response.headers)
            if response.isclosed():
                self.exchange.end()
        return response


class UnixConnection(Connection):
    def __init__(self, path, timeout, user=None):
        super().__init__("localhost", timeout=timeout)
        self.path, self.user = path, user

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        connect_as(self.user, lambda: self.sock.connect(self.path))


class Client:
    """The API over the Unix socket, or over TCP with a token. Every exchange is checked against docs/openapi
    (contract.py), unless `checked` is False, here or for one request."""

    def __init__(self, socket_path=None, port=None, token=None, timeout=60, user=None, checked=True):
        self.socket_path, self.port, self.token, self.timeout = socket_path, port, token, timeout
        self.user, self.checked = user, checked

    def connection(self):
        if self.socket_path:
            return UnixConnection(self.socket_path, self.timeout, self.user)
        return Connection("127.0.0.1", self.port, timeout=self.timeout)

    def raw(self, method, path, body=None, headers=None, checked=None):
        """Returns the response object, unread, and its connection."""
        connection = self.connection()
        connection.checked = self.checked if checked is None else checked
        headers = dict(headers or {})
        if self.token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server answered and closed early: read the answer, or get the error again
        return connection.getresponse(), connection

    def call(self, method, path, body=None, headers=None, checked=None):
        response, connection = self.raw(method, path, body, headers, checked)
        data = response.read()
        connection.close()
        if response.getheader("Content-Type", "").startswith("application/json"):
            data = json.loads(data) if data else None
        if response.status >= 400:
            raise ApiError(response.status, data, dict(response.getheaders()))
        return data

    def get(self, path, /, **query):
        return self.call("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))

    def post(self, path, body=None, /, **headers):
        return self.call("POST", path, {} if body is None else body, headers)

    def put(self, path, body, /, **query):
        return self.call("PUT", path + ("?" + urllib.parse.urlencode(query) if query else ""), body)

    def delete(self, path, /, **query):
        return self.call("DELETE", path + ("?" + urllib.parse.urlencode(query) if query else ""))

    # Sandboxes.
    def create(self, **fields):
        return self.post("/v1/sandboxes", fields)

    def exec(self, sandbox, command, **fields):
        key = "cmd" if isinstance(command, str) else "argv"
        seconds, client = fields.get("timeout_seconds"), self
        if isinstance(seconds, (int, float)) and self.timeout < 2 * seconds < 7200:
            client = copy.copy(self)  # wait at least as long as the command may take
            client.timeout = max(self.timeout, seconds + 30)
        return client.post(f"/v1/sandboxes/{sandbox}/exec", {key: command, **fields})

    def sh(self, sandbox, command, **fields):
        """Returns the standard output of a command that must succeed."""
        result = self.exec(sandbox, command, **fields)
        if result["exit_code"] != 0:
            raise AssertionError(f"{command!r}: {result}")
        return result["stdout"]

    def write(self, sandbox, path, data, /, **query):
        return self.put(f"/v1/sandboxes/{sandbox}/files", data, path=path, **query)

    def read(self, sandbox, path, /, **query):
        response, connection = self.raw("GET", f"/v1/sandboxes/{sandbox}/files?" +
                                        urllib.parse.urlencode({"path": path, **query}))
        data = response.read()
        connection.close()
        if response.status >= 400:
            raise ApiError(response.status, json.loads(data), dict(response.getheaders()))
        return data


def host_things(instance):
    """The cgroups of a daemon's instance."""
    found = []
    for pattern in ("", "*/", "*/caisson-test-*/"):
        found += glob.glob(f"/sys/fs/cgroup/{pattern}{instance}")
    return ["cgroup " + directory for directory in found]


def remove_cgroups(instance):
    """Used after a failed test: ends all processes in the cgroups, also frozen ones, and removes the cgroups."""
    if not instance:
        return
    tops = glob.glob(f"/sys/fs/cgroup/*/{instance}") + glob.glob(f"/sys/fs/cgroup/{instance}")
    groups = [place for top in tops for place, _, _ in os.walk(top, topdown=False)]
    for _ in range(50):
        for group in groups:
            for name, text in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                with contextlib.suppress(OSError):
                    if os.path.exists(os.path.join(group, name)):
                        open(os.path.join(group, name), "w").write(text)
            with contextlib.suppress(OSError):
                for pid in open(os.path.join(group, "cgroup.procs")).read().split():
                    with contextlib.suppress(OSError):
                        os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.rmdir(group)
        groups = [group for group in groups if os.path.isdir(group)]
        if not groups:
            return
        time.sleep(0.02)


def processes_of(state, runtime):
    """The processes whose command line names the directories, or whose executable is in the state."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = open(f"/proc/{entry}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")
            program = os.readlink(f"/proc/{entry}/exe")
        except OSError:
            continue
        if state in command or runtime in command or program.startswith(state):
            found.append((int(entry), command or program))
    return found


def inits_of(state):
    """The processes that run the init's program, including its runners: {pid: path of the program}."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has just ended
            if (program := os.readlink(f"/proc/{pid}/exe")).startswith(state):
                found[int(pid)] = program
    return found


def status_of(pid):
    """/proc/PID/status as a dictionary; empty if the process has ended."""
    lines = read_process(pid, "status").decode(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


class NoUids(AssertionError):
    """The host has uids for a limited number of instances (UID_BLOCKS), and other suites use all of them at the
    moment."""


class Daemon:
    """`caisson serve` in directories of its own. Use it as a context manager: leaving it checks that nothing of the
    daemon is left on the host."""

    def __init__(self, config=None, arguments=(), environment=None, user=None, delegated=None, wrapper=None, program=None):
        """`user`, `delegated` (the controllers that are delegated to it) and `wrapper` default to those of the
        column."""
        self.user = user or user_of_column()
        self.wrapper = wrapper_of_column() if wrapper is None else wrapper
        self.top = tempfile.mkdtemp(prefix="caisson-test-")
        os.chmod(self.top, 0o755)
        self.cgroups = None
        if self.user:
            os.chown(self.top, self.user.uid, self.user.gid)
            if delegated is None and COLUMN == "subuid":
                self.cgroups = Cgroups(self.user, os.path.basename(self.top))
            elif delegated:
                self.cgroups = Cgroups(self.user, os.path.basename(self.top), delegated)
        self.state, self.runtime = os.path.join(self.top, "state"), os.path.join(self.top, "run")
        self.config = os.path.join(self.top, "caisson.conf")
        self.configure(config or "")
        self.port = free_port()
        self.arguments, self.environment, self.program = list(arguments), dict(environment or {}), program
        self.log_path = os.path.join(self.top, "log")
        self.process = None

    def configure(self, text):
        with open(self.config, "w") as file:
            file.write(text)

    def reload(self, text):
        self.configure(text)
        self.process.send_signal(signal.SIGHUP)

    def start(self, wait=True):
        end = time.monotonic() + UIDS_SECONDS
        while True:
            self.launch()
            try:
                if wait:
                    self.wait_ready()
                return self
            except NoUids:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def launch(self):
        log = open(self.log_path, "ab")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CAISSON_")}
        environment.update({"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
                            "UBSAN_OPTIONS": "print_stacktrace=1"})
        environment.update(self.environment)
        if self.user:
            environment = {"PATH": environment["PATH"], "HOME": self.user.home, **{
                key: value for key, value in environment.items() if key.endswith("_OPTIONS") or key in self.environment}}
        self.process = subprocess.Popen(
            [*(self.cgroups.join() if self.cgroups else []), *self.become(), *self.wrapper, self.program or PROGRAM, "serve", "--config", self.config, "--state", self.state, "--runtime", self.runtime,
             "--listen", f"127.0.0.1:{self.port}", *self.arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)
        log.close()

    def wait_ready(self, seconds=60):
        def ready():
            if self.process.poll() is not None:
                kind = NoUids if "blocks of uids are taken" in self.log()[-1000:] else AssertionError
                raise kind(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
            try:
                return self.client(timeout=10).get("/healthz")
            except (OSError, http.client.HTTPException, ApiError):
                return False
        wait_until(ready, seconds, what="the daemon's start")

    def become(self):
        """The start of a command line that runs the rest as the user. (Root joins the cgroups first: with version 2
        only root may.)"""
        if not self.user:
            return []
        return ["setpriv", "--reuid", str(self.user.uid), "--regid", str(self.user.gid), "--clear-groups"]

    def identity(self):
        """Arguments for subprocess: the user of the daemon's and its clients' processes."""
        if not self.user:
            return {}
        return {"user": self.user.uid, "group": self.user.gid, "extra_groups": []}

    def client(self, timeout=60):
        return Client(socket_path=os.path.join(self.runtime, "caisson.sock"), timeout=timeout, user=self.user)

    def tcp(self, token=None, timeout=60):
        return Client(port=self.port, token=token, timeout=timeout)

    def token(self, workspace="default", scopes=("sandboxes:read", "sandboxes:write"), **fields):
        return self.client().post("/v1/tokens", {"workspace": workspace, "scopes": list(scopes), **fields})["token"]

    def cli(self, *arguments, stdin=None, timeout=120, environment=None, binary=False, cwd=None, group=None):
        """Runs the command line with this daemon: (exit code, stdout, stderr). `group`: run as a member of this
        group."""
        result = subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, timeout=timeout, cwd=cwd,
                                text=not binary, **{"group": group, **self.identity()}, env={**os.environ, **self.client_environment(),
                                                      "ASAN_OPTIONS": "detect_leaks=0", **(environment or {})})
        return result.returncode, result.stdout, result.stderr

    def client_environment(self):
        return {"CAISSON_RUNTIME": self.runtime, "CAISSON_STATE": self.state, "CAISSON_CONFIG": self.config,
                "CAISSON_LISTEN": f"127.0.0.1:{self.port}"}

    def log(self):
        try:
            return open(self.log_path, errors="replace").read()
        except OSError:
            return ""

    def started(self):
        """The pids of the daemon that a client has started for these directories. It forks, so for a moment there is
        one more."""
        return [pid for pid, command in processes_of(self.state, self.runtime) if " serve " in command]

    def end_started(self):
        """Ends the daemon that a client has started. It is not our child, so we wait until its processes are gone."""
        for pid in self.started():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not processes_of(self.state, self.runtime), 30, what="the daemon's end")

    def daemon_pid(self):
        return daemon_of(self.process.pid)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the daemon did not end on SIGTERM:\n" + self.log())
            self.check_crashes()
        self.process = None

    def kill_daemon(self, ready=True):
        """kill -9 of the daemon alone. Waits for the daemon that the spawner then starts, so that no request reaches
        the old one."""
        old = self.daemon_pid()
        os.kill(old, signal.SIGKILL)

        def another():
            with contextlib.suppress(AssertionError, OSError):
                return self.daemon_pid() != old
        wait_until(another, what="the next daemon")
        if ready:
            self.wait_ready()

    def kill(self):
        """kill -9 of the spawner and the daemon; sandboxes keep running."""
        pids = [self.process.pid]
        try:
            pids.append(self.daemon_pid())
        except (AssertionError, OSError):
            pass
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process = None

    def rows(self, text):
        """Returns the rows of a query of the daemon's database."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/db/caisson.db?mode=ro", uri=True, timeout=10)) as database:
            return database.execute(text).fetchall()

    def as_database_owner(self, script):
        """The command that runs a Python script with the database as `c`, as its owner: its journal must belong to the
        daemon."""
        path = os.path.join(self.state, "db", "caisson.db")
        owner = os.stat(path)
        return ["/usr/bin/python3", "-c", f"import os, sqlite3, sys; os.setgid({owner.st_gid}); os.setuid({owner.st_uid});"
                f"c = sqlite3.connect({path!r}, timeout=10, isolation_level=None);" + script]

    def sql(self, *statements):
        """Changes the database from outside."""
        script = "c.execute('pragma foreign_keys = off'); c.execute('begin'); [c.execute(text) for text in sys.argv[1:]]; c.execute('commit')"
        subprocess.run([*self.as_database_owner(script), *statements], check=True, timeout=30)

    def boot_record(self, sandbox, key):
        with open(os.path.join(self.runtime, "guests", sandbox, "boot")) as file:
            return re.search(rf"^{key} (\S+)", file.read(), re.M).group(1)

    def pooled(self):
        """The sandboxes of the pool, including those that are being made or destroyed."""
        return {name for name, in self.rows("select id from pool")}

    def pool_ready(self):
        return {name for name, in self.rows("select id from pool where ready")}

    def pool_connected(self):
        """How many sandboxes of the pool a create can use. A daemon that has just started reads their rows before it
        connects to them."""
        try:
            text = self.client(timeout=10).call("GET", "/metrics", checked=False).decode()
        except (OSError, ApiError):
            return 0  # the daemon is restarting
        return int(re.search(r'^caisson_pool_sandboxes{state="ready"} (\d+)$', text, re.MULTILINE).group(1))

    def init_of(self, sandbox):
        """The pid of a sandbox's PID 1."""
        return int(self.boot_record(sandbox, "pid"))

    def kill_inits(self):
        for pid in inits_of(self.state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def instance(self):
        """The name of the cgroup above all of the daemon's cgroups."""
        names = re.findall(r"instance (caisson-[0-9a-f]+)", self.log())
        return names[-1] if names else None

    def leftovers(self):
        found = []
        for pid, command in processes_of(self.state, self.runtime):
            found.append(f"process {pid} {command}")
        for line in open("/proc/self/mountinfo"):
            if self.top in line:
                found.append("mount " + line.strip())
        found += ["loop " + device for device in loop_devices(self.top)]
        if self.process is None:  # the pool ends with the daemon
            found += ["pooled " + path for path in self.pooled_files()]
        if not self.instance():
            raise AssertionError("the daemon's log does not name its instance:\n" + self.log()[-2000:])
        return found + host_things(self.instance())

    def pooled_files(self):
        found = []
        for path in glob.glob(os.path.join(self.state, "sandboxes/*/slot")):
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                found += [path] if file.read().endswith(" pooled\n") else []
        return found

    def wait_clean(self):
        left = []

        def clean():
            left[:] = self.leftovers()
            return not left
        try:
            wait_until(clean, 30)
        except AssertionError as error:
            raise AssertionError("cleaning up; left: " + "; ".join(left) if left else str(error)) from None

    def remove_sandboxes(self):
        client = self.client()
        for record in client.get("/v1/sandboxes", limit=200)["items"]:
            try:
                client.delete("/v1/sandboxes/" + record["id"])
            except ApiError as error:
                if error.status not in (404, 410):
                    raise

    def check_crashes(self):
        """Looks for crashes in the log: the spawner restarts a crashed daemon, so clients may not notice."""
        ends = [int(number) for number in re.findall(r"the daemon ended \(signal (\d+)\)", self.log())]
        if self.process and self.process.poll() is not None:
            ends.append(-self.process.returncode)
        found = [signal.Signals(number).name for number in ends if number in CRASHES]
        if found:
            raise AssertionError(f"a daemon or its spawner crashed: {', '.join(found)}\n{self.log()[-8000:]}")

    def close(self, check=True):
        try:
            if self.process and self.process.poll() is None:
                if check:
                    self.remove_sandboxes()
                self.stop()
            # After kill -9 of everything, the next daemon keeps or destroys the pool.
            if check and self.process is None and self.pooled_files():
                self.start()
                self.stop()
            if check:
                self.wait_clean()
            for word in ("AddressSanitizer", "runtime error:", "LeakSanitizer"):
                if word in self.log():
                    raise AssertionError("a sanitizer complained:\n" + self.log()[-8000:])
            self.check_crashes()
        finally:
            for pid, _ in processes_of(self.state, self.runtime):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            remove_cgroups(self.instance())
            shutil.rmtree(self.top, ignore_errors=True)
            if self.cgroups:
                self.cgroups.remove()

    def print_log(self):
        print("# daemon log:\n# " + "\n# ".join(self.log().splitlines()[-40:]), flush=True)

    def __enter__(self):
        return self if self.process else self.start()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.print_log()
        self.close(check=kind is None)


class OwnDaemons(unittest.TestCase):
    """Each test has daemons of its own. At the end nothing of them may be left on the host. If a test has failed, the
    end of their logs is printed instead."""

    def start_daemon(self, config=None, **options):
        return self.new_daemon(config, **options).start()

    def new_daemon(self, config=None, check=True, **options):
        """Makes a daemon, not started yet. check=False: it must not start at all, or the test closes it itself."""
        daemon = Daemon(config, **options)
        self.addCleanup(self.finish, daemon, check)
        return daemon

    def client_daemon(self):
        """Makes the directories of a daemon that clients start, or do not start."""
        daemon = Daemon()
        self.addCleanup(self.finish_started, daemon)
        return daemon

    def finish_started(self, daemon):
        daemon.end_started()
        for log in glob.glob(daemon.runtime + "/**/serve.log", recursive=True):
            shutil.copy(log, daemon.log_path)
        if self.has_failed():
            daemon.print_log()
        daemon.close(check=bool(daemon.instance()) and not self.has_failed())

    def has_failed(self):
        """Uses the recorded results: during a clean-up, unittest's `success` is only about the clean-up."""
        recorded = self._outcome.result.failures + self._outcome.result.errors
        return any(getattr(test, "test_case", test) is self for test, _ in recorded)

    def finish(self, daemon, check=True):
        if self.has_failed():
            daemon.print_log()
        try:
            if check and daemon.process is None:
                daemon.start()  # to remove leftovers of the previous one
        finally:
            daemon.close(check=check and not self.has_failed())


class DaemonTest(unittest.TestCase):
    """One daemon for all tests of a class, and one sandbox, `box`, if the class has `box_fields` for it."""
    config, arguments, box_fields, program = "", (), None, None

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.config, cls.arguments, program=cls.program)
        cls.addClassCleanup(cls.daemon.close)  # runs even if the rest of setUpClass fails, also in a subclass
        cls.daemon.start()
        cls.api = cls.daemon.client()
        if cls.box_fields is not None:
            cls.box = cls.api.create(**cls.box_fields)["id"]

    def path(self, rest):
        return f"/v1/sandboxes/{self.box}{rest}"

    def sandbox(self, **fields):
        record = self.api.create(**fields)
        self.addCleanup(self.remove, record["id"])
        return record["id"]

    def remove(self, sandbox):
        try:
            self.api.delete("/v1/sandboxes/" + sandbox)
        except ApiError as error:
            if error.status not in (404, 410):
                raise

    def begin_upload(self, url):
        """Starts a PUT to a signed URL and returns its socket. The end of the body is never sent."""
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30)
        self.addCleanup(connection.close)
        connection.putrequest("PUT", parts.path + "?" + parts.query)
        connection.putheader("Content-Length", "100000")
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        self.assertIn(b"100 Continue", connection.sock.recv(100))
        connection.sock.sendall(b"x" * 1000)
        return connection.sock

    def refused(self, status, code, function, *arguments, **fields):
        with self.assertRaises(ApiError) as caught:
            function(*arguments, **fields)
        self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception.body)
        return caught.exception
