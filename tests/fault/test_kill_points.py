"""Nothing is lost: kill -9 of the daemon, of the spawner and of both at every fault point there is.

The points are those that the program itself lists: every message between daemon and spawner on both sides, every
write to the store, before and after. Which of them a scenario passes, and how often, a dry run of it tells. At each,
whoever comes there is held, the victims are killed, and what a service manager would start is started. Then: the
client had an answer or a typed error; the host has exactly what the sandboxes explain; one that had nothing to do with
it answers, and its output has no lost and no doubled byte; the same request can be made again. A point that no scenario
passes is a failure unless NOT_PASSED says why.

`make test-all` kills each of the three at each point; `make test` kills one, which the commit and the point choose: other
commits choose others, and the same commit always the same."""
import hashlib
import http.client
import os
import queue
import re
import signal
import subprocess
import threading
import time
import unittest
import urllib.parse
import uuid

from caisson import THOROUGH, TOP, ApiError, OwnDaemons, read_process, wait_until
from explain import wait_explained
from faults import armable, list_points, use_fault_build

use_fault_build()
RUNS_ON = "fault"
POOL = 2  # as many as there may be: then nothing is made or destroyed but right after a create
COLD_DISK_MB = 64

NOT_PASSED = {
    "store.token_revoke_label": "nothing calls it",
}
KILLS = ("daemon", "spawner", "both")
WORLDS = 2
PASSES_MAX = 2  # of one point in one scenario; more are the same again
FAILURES_MAX = 6  # of one world's; the rest would only take long

EPOLL_WAIT = (b"232", b"281", b"22")  # epoll_wait and epoll_pwait of x86-64, epoll_pwait of 64-bit ARM

# Each line is its number, at its place: a lost or a doubled byte shows.
COUNTER = "i=0; while :; do printf '%015d\\n' $i; i=$((i+1)); sleep 0.02; done"


def commit():
    """What is tested, as far as git knows; the same text where it knows nothing."""
    result = subprocess.run(["git", "-c", "safe.directory=*", "rev-parse", "HEAD"], cwd=TOP, capture_output=True, text=True, timeout=20)
    return result.stdout.strip() or "no commit"


def victims_at(scenario, point, skip):
    """Who is killed there: all three, one after the other, or the one that this commit has chosen."""
    if THOROUGH:
        return KILLS
    name = f"{scenario}, {point} ({skip + 1})"
    chosen = KILLS[hashlib.sha256(f"{commit_tested} {name}".encode()).digest()[0] % len(KILLS)]
    print(f"{name}: {chosen}", flush=True)
    return (chosen,)


commit_tested = commit()


def line(number):
    return b"%015d\n" % number


def not_passed(point):
    name = point.rsplit(":", 1)[0]
    return any(name == entry or name.endswith("." + entry) for entry in NOT_PASSED)


class Call(threading.Thread):
    """A request in a thread of its own: what came of it."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function, self.outcome, self.value = function, "nothing", None
        self.start()

    def run(self):
        try:
            self.value = self.function()
            self.outcome = "answer"
        except ApiError as error:
            self.outcome, self.value = ("error" if error.code else "untyped"), error
        except TimeoutError as error:
            self.outcome, self.value = "hang", error
        except (OSError, http.client.HTTPException) as error:
            self.outcome, self.value = "closed", error
        except Exception as error:  # of the test's own
            self.outcome, self.value = "broken", error

    def check(self, daemon_killed):
        self.join(60)
        if self.is_alive() or self.outcome == "hang":
            raise AssertionError("the client was left waiting")
        if self.outcome in ("broken", "nothing"):
            raise AssertionError(f"the request could not be made: {self.value!r}")
        if self.outcome == "untyped" or (self.outcome == "closed" and not daemon_killed):
            raise AssertionError(f"the client got no typed error: {self.outcome} {self.value!r}")


class World:
    """A daemon with a sandbox that has nothing to do with what happens to the others."""

    def __init__(self):
        self.daemon, self.faults = armable(config=f"[usage]\ninterval = 1h\n[pool]\nsize = {POOL}\nmax = {POOL}\n")
        self.daemon.start()
        self.api = self.daemon.client(timeout=50)
        self.survivor = self.api.create(name="survivor", timeout_seconds=0)["id"]
        self.counter = self.api.exec(self.survivor, COUNTER, background=True)["exec_id"]
        self.read = 0
        self.subject = None

    def make_subject(self):
        self.subject = self.api.create(name="subject")["id"]
        self.api.sh(self.subject, "echo kept > /workspace/x; sync")

    def subject_answers(self):
        text = self.api.sh("subject", "cat /workspace/x 2>/dev/null; echo alive")
        if not text.endswith("alive\n"):
            raise AssertionError(f"the subject says {text!r}")

    def subject_status(self):
        try:
            status = self.api.get("/v1/sandboxes/subject")["status"]
            return "gone" if status == "ended" else status
        except ApiError as error:
            if error.status in (404, 410):
                return "gone"
            raise

    def remove_subject(self):
        try:
            self.api.delete("/v1/sandboxes/subject")
        except ApiError as error:
            if error.status not in (404, 410):
                raise

    def count(self, text):
        return self.daemon.rows(text)[0][0]

    def check_chains(self):
        """No entry of any sandbox's activity is missing between two others, and each is linked to the one before."""
        before, rows = None, self.daemon.rows("select sandbox, number, previous, hash from activity order by sandbox, number")
        for row in rows:
            if before and before[0] == row[0] and (before[1] + 1, before[3]) != (row[1], row[2]):
                raise AssertionError(f"the activity of {row[0]} has a hole before entry {row[1]}")
            before = row
        return len(rows)

    def halt_daemon(self):
        """Whatever it is still doing, it comes to no point any more, nor does the spawner for it: a spawner that waits
        has read all that it was sent."""
        pid, spawner = self.daemon.daemon_pid(), self.daemon.process.pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: b") T " in read_process(pid, "stat"), 10, 0.0005, "the halt of the daemon")
        wait_until(lambda: read_process(spawner, "syscall").split(b" ")[0] in EPOLL_WAIT, 10, 0.0005, "a spawner that waits")

    def kill(self, victims):
        """Real SIGKILLs; then what a service manager does."""
        pids = []
        if victims in ("spawner", "both"):
            pids.append(self.daemon.process.pid)
        if victims in ("daemon", "both"):
            pids.append(self.daemon.daemon_pid())
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if victims in ("spawner", "both"):
            self.daemon.process.wait()
        self.faults.go_on()

    def restart(self, ends):
        """The spawner starts its daemon itself; the spawner is started by us, when it has ended."""
        try:
            self.daemon.process.wait(30 if ends else 0.01)
        except subprocess.TimeoutExpired:
            self.daemon.wait_ready()
            return
        self.daemon.start()

    def check_survivor(self):
        api = self.api
        if api.sh(self.survivor, "echo 1") != "1\n":
            raise AssertionError("the survivor does not answer")
        path, began = f"/v1/sandboxes/{self.survivor}/execs/{self.counter}/output", self.read

        def goes_on():
            data = api.get(path, stream="stdout", **{"from": self.read})
            whole = len(data) // 16 * 16
            wanted = b"".join(line(self.read // 16 + n) for n in range(whole // 16))
            if data[:whole] != wanted:
                raise AssertionError(f"the survivor's output from {self.read} on is {data[:200]!r}")
            self.read += whole
            return self.read > began
        wait_until(goes_on, 30, what="more output of the survivor")


class Scenario:
    """What is done, and how to see that it can be done again. `request` is run in a thread of its own. `through`: a point
    that is passed on account of it, where it is a signal, which nobody answers."""

    def __init__(self, name, request, prepare=None, again=None, subject=True, only="", through=None):
        self.name, self.request, self.again, self.subject, self.through = name, request, again, subject, through
        self.prepare_more, self.only = prepare, only  # points: those with this in their name

    def prepare(self, world):
        if self.subject:
            world.make_subject()
        if self.prepare_more:
            self.prepare_more(world)

    def check_again(self, world):
        if self.again:
            self.again(world)
        else:
            self.request(world)
        if self.subject and world.subject_status() != "gone":
            world.subject_answers()


def post(what):
    return lambda world: world.api.post(f"/v1/sandboxes/{world.subject}/{what}")


def create_again(world):
    """It was made though the client never heard of it, or its name is free."""
    try:
        world.api.create(name="subject")
    except ApiError as error:
        if error.code != "sandbox.name_taken":
            raise
    world.subject_answers()


def stop_again(world):
    world.api.post(f"/v1/sandboxes/{world.subject}/stop")
    if world.subject_status() != "stopped":
        raise AssertionError(f"after a stop it is {world.subject_status()}")
    world.api.post(f"/v1/sandboxes/{world.subject}/start")


def delete_again(world):
    world.remove_subject()
    if world.api.get(f"/v1/sandboxes/{world.subject}")["status"] != "ended":
        raise AssertionError("there is no tombstone")


def end_init(world):
    os.kill(world.daemon.init_of(world.subject), signal.SIGKILL)


def init_ended(world):
    wait_until(lambda: world.subject_status() == "stopped", 30, what="the end of a sandbox whose init was killed")
    world.api.post(f"/v1/sandboxes/{world.subject}/start")


def start_up(world):
    os.kill(world.daemon.daemon_pid(), signal.SIGKILL)
    world.daemon.client(timeout=50).get("/healthz")


def stop_spawner(world):
    world.daemon.process.terminate()


def reload(world):
    world.daemon.process.send_signal(signal.SIGHUP)


def patch(world):
    return world.api.call("PATCH", f"/v1/sandboxes/{world.subject}", {"timeout_seconds": 1234, "cpu": 0.5, "memory_mb": 300})


def patch_again(world):
    record = patch(world)
    if (record["timeout_seconds"], record["cpu"], record["memory_mb"]) != (1234, 0.5, 300):
        raise AssertionError(f"not all was changed: {record}")


def killed_command(world):
    """Its end is one that the kernel's OOM killer might have brought: the spawner is asked for its counters."""
    return world.api.exec(world.subject, "echo 1; kill -9 $$")


def exec_again(world):
    if killed_command(world)["stdout"] != "1\n":
        raise AssertionError("an exec after it has no output")


def make_token(world):
    return world.daemon.token()


def token_again(world):
    world.daemon.tcp(make_token(world)).get("/v1/sandboxes")


def prepare_revoke(world):
    answer = world.api.post("/v1/tokens", {"workspace": "default", "scopes": ["sandboxes:read"]})
    world.token, world.token_id = answer["token"], answer["id"]


def revoke(world):
    return world.api.delete(f"/v1/tokens/{world.token_id}")


def revoke_again(world):
    revoke(world)
    try:
        world.daemon.tcp(world.token).get("/v1/sandboxes")
    except ApiError as error:
        if error.status == 401:
            return
    raise AssertionError("a revoked token is good")


def prepare_old_tombstone(world):
    """One with an exec, that ended long ago."""
    world.api.delete(f"/v1/sandboxes/{world.subject}")
    world.daemon.sql("update sandboxes set ended_wall = 1000 where state = 10", "update activity set wall = 1000")


def pruned(world):
    wait_until(lambda: world.count("select count(*) from sandboxes where ended_wall = 1000") == 0, 30, what="pruning")


def prepare_many_execs(world):
    """More rows than are kept, as if they had been run one after the other."""
    world.daemon.sql("with recursive n(i) as (select 1 union all select i + 1 from n where i < 4200) insert into execs "
                     "(key, id, sandbox, command, state, flags, head, tail, started_wall, ended_wall, end, code, oom_killed, "
                     "out_total, err_total, wall_ns, cpu_ns, peak_memory, left_running, error_kind) "
                     f"select (select max(key) from execs) + i, printf('%s%04d', substr('{world.subject}', 1, 12), i), "
                     f"'{world.subject}', 'x', 3, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 from n")
    world.daemon.kill_daemon()


def many_execs_again(world):
    world.api.sh(world.subject, "true")
    wait_until(lambda: world.count(f"select count(*) from execs where sandbox = '{world.subject}'") < 4200, 30,
               what="the end of the oldest execs")


def budgets(world, maximum=7):
    return world.api.put("/v1/workspaces/team/budgets", {"budgets": [{"what": "creates", "period": "month", "maximum": maximum}]})


def budgets_again(world):
    """All of it or nothing of it, and the next is as good."""
    found = [budget["maximum"] for budget in world.api.get("/v1/workspaces/team/budgets")["budgets"]]
    if found not in ([], [7], [8]):
        raise AssertionError(f"half a budget: {found}")
    budgets(world, 8)


def prepare_key(world):
    """Old keys, and a daemon that has not looked for any yet."""
    world.key = uuid.uuid4().hex
    world.daemon.sql("update requests set created_wall = 1000")
    world.daemon.kill_daemon()


def keyed(world, path, body, part):
    return world.api.post(path, body, **{"Idempotency-Key": f"{world.key}-{part}"})


def keyed_create(world):
    return keyed(world, "/v1/sandboxes", {"name": "subject"}, "create")["id"]


def keyed_create_again(world):
    """It came to something once, however often it is asked for."""
    first, second = keyed_create(world), keyed_create(world)
    if first != second:
        raise AssertionError(f"the same request came to {first} and to {second}")
    world.subject_answers()
    if world.count("select count(*) from requests where created_wall = 1000") != 0:
        raise AssertionError("old keys are kept")


def keyed_exec(world):
    return keyed(world, f"/v1/sandboxes/{world.subject}/exec", {"command": "echo 1 >> /workspace/y"}, "exec")["exec_id"]


def keyed_exec_again(world):
    first, second = keyed_exec(world), keyed_exec(world)
    text = world.daemon.client().read(world.subject, "/workspace/y")
    if first != second or text != b"1\n":
        raise AssertionError(f"the same request came to {first} and to {second}, and ran as {text!r}")


def keyed_refusal(world):
    return keyed(world, "/v1/sandboxes", {"name": "subject"}, "create")


def keyed_refusal_again(world):
    """What was refused is not kept: when its cause is gone it can be done."""
    try:
        keyed_refusal(world)
        raise AssertionError("a name was given twice")
    except ApiError as error:
        if error.code != "sandbox.name_taken":
            raise
    world.remove_subject()
    if keyed_refusal(world)["name"] != "subject":
        raise AssertionError("it is not what was asked for")


def sign(world):
    """Its path: where the daemon listens is not what is asked here."""
    url = urllib.parse.urlsplit(world.api.post(f"/v1/sandboxes/{world.subject}/files/sign", {"path": "/workspace/x"})["url"])
    return f"{url.path}?{url.query}"


def sign_again(world):
    first = sign(world)
    world.daemon.kill_daemon()
    for url in (first, sign(world)):
        if world.api.call("GET", url) != b"kept\n":
            raise AssertionError("a signed URL is not good")


def contexts(world):
    return f"/v1/sandboxes/{world.subject}/contexts"


def make_context(world):
    world.context = f"{contexts(world)}/{world.api.post(contexts(world), {'language': 'bash'})['id']}"


def run_cell(world):
    return world.api.post(world.context + "/run", {"code": "echo 1", "timeout_seconds": 20})


def end_context(world):
    return world.api.delete(world.context)


def context_again(world):
    """Those that are told of can be used and removed, and so can another."""
    make_context(world)
    for context in world.api.get(contexts(world))["contexts"]:
        world.context = f"{contexts(world)}/{context['id']}"
        if run_cell(world)["stdout"] != "1\n":
            raise AssertionError("a context that is there does not answer")
        end_context(world)
    if world.api.get(contexts(world))["contexts"]:
        raise AssertionError("a context that was removed is there")


def pool_filled(world):
    """With sandboxes of the default size."""
    wait_until(lambda: world.count(f"select count(*) from pool where ready and disk <> {COLD_DISK_MB} << 20") ==
               world.daemon.pool_connected() == POOL, 30, what="the pool")


def prepare_pool(world):
    """The pool is full, with the default size as what was asked for last."""
    world.api.delete("/v1/sandboxes/" + world.api.create()["id"])
    pool_filled(world)


def hand_out(world):
    record = world.api.create(name="subject")
    if record["boot_mode"] != "pool":
        raise AssertionError("it did not come from the pool")


def refill(world):
    hand_out(world)
    pool_filled(world)


def refilled(world):
    create_again(world)
    pool_filled(world)
    members = world.daemon.pool_ready()
    if members & set(record["id"] for record in world.api.get("/v1/sandboxes", limit=200)["items"]):
        raise AssertionError("a member of the pool is somebody's")


SCENARIOS = [
    Scenario("hand-out", hand_out, prepare=prepare_pool, subject=False, again=create_again),
    Scenario("refill", refill, prepare=prepare_pool, subject=False, again=refilled),
    # Of a size that the pool does not have: it destroys its members and makes some of this size.
    Scenario("create a cold one", lambda world: world.api.create(name="subject", disk_mb=COLD_DISK_MB), prepare=prepare_pool,
             subject=False, again=create_again),
    Scenario("exec", killed_command, again=exec_again),
    Scenario("patch", patch, again=patch_again),
    Scenario("pause", post("pause"), again=lambda world: post("pause")(world) and post("resume")(world)),
    Scenario("resume", post("resume"), prepare=post("pause")),
    Scenario("stop", post("stop"), again=stop_again),
    Scenario("stop a paused one", post("stop"), prepare=post("pause"), again=stop_again),
    Scenario("start", post("start"), prepare=post("stop")),
    Scenario("delete", lambda world: world.api.delete(f"/v1/sandboxes/{world.subject}"), again=delete_again),
    Scenario("end of an init", end_init, again=init_ended, through="daemon.notice.ended:after"),
    Scenario("start-up", start_up, again=lambda world: None),
    # Both destroy the members of the pool.
    Scenario("quit", stop_spawner, prepare=pool_filled, again=lambda world: None, through="daemon.notice.quit:after"),
    Scenario("reload", reload, prepare=pool_filled, through="daemon.notice.reload:after"),
    Scenario("token", make_token, subject=False, again=token_again),
    Scenario("revoke", revoke, prepare=prepare_revoke, subject=False, again=revoke_again),
    Scenario("budgets", budgets, subject=False, again=budgets_again),
    Scenario("keyed create", keyed_create, prepare=prepare_key, subject=False, again=keyed_create_again, only="store.request"),
    Scenario("keyed exec", keyed_exec, prepare=prepare_key, again=keyed_exec_again, only="store.request_put"),
    Scenario("keyed refusal", keyed_refusal, prepare=prepare_key, again=keyed_refusal_again, only="store.request_delete"),
    Scenario("signed URL", sign, prepare=lambda world: world.daemon.sql("delete from secrets"), again=sign_again, only="store.secret"),
    Scenario("context", make_context, again=context_again, only="store.context"),
    Scenario("cell", run_cell, prepare=make_context, again=context_again, only="store.context"),
    Scenario("end of a context", end_context, prepare=make_context, again=context_again, only="store.context"),
    Scenario("metrics of all", lambda world: world.api.get("/v1/metrics")),
    Scenario("prune", start_up, prepare=prepare_old_tombstone, again=pruned, only="prune"),
    Scenario("many execs", lambda world: world.api.exec(world.subject, "true"), prepare=prepare_many_execs,
             again=many_execs_again, only="exec_delete"),
]


# What a daemon does right after its start may still be under way when the next scenario begins.
OF_A_START = re.compile(r"^store\.(sandbox|usage|activity)_\w*prune")


def settled_hits(world):
    """How often each point was passed, when none has been for a while: what was done has passed its points."""
    hits, still, end = world.faults.hits(), 0, time.monotonic() + 20
    while still < 5 and time.monotonic() < end:
        time.sleep(0.05)
        now = world.faults.hits()
        hits, still = now, still + 1 if now == hits else 0
    return hits


def dry_run(world, scenario):
    """Which points it passes, and how often."""
    scenario.prepare(world)
    before = settled_hits(world)
    call = Call(lambda: scenario.request(world))
    call.check(True)
    if scenario.through:
        wait_until(lambda: world.faults.hits()[scenario.through] > before[scenario.through], 30, what=scenario.through)
    after = settled_hits(world)
    world.restart(scenario.request is stop_spawner)
    scenario.check_again(world)
    world.remove_subject()
    return {point: after[point] - before[point] for point in after
            if after[point] > before[point] and scenario.only in point and
            (scenario.request is start_up or not OF_A_START.search(point))}


def kill_at(world, scenario, point, skip, victims):
    """False: nobody came there this time."""
    scenario.prepare(world)
    # An earlier command's end is written after its answer: not as a point of this request. (A read of the events flushes it.)
    world.api.get("/v1/events", follow=0)
    if scenario.request is start_up:  # it is the next one that is meant
        world.halt_daemon()
    world.faults.arm(point, skip)
    call = Call(lambda: scenario.request(world))
    held = world.faults.held(5 if skip else 15)
    if held:
        world.kill(victims)
    else:
        world.faults.disarm()
    world.restart(scenario.request is stop_spawner)
    call.check(victims != "spawner" or scenario.request in (start_up, stop_spawner))
    wait_explained(world.daemon)
    world.check_survivor()
    scenario.check_again(world)
    world.remove_subject()
    world.check_chains()
    return bool(held)


def kill_after(world, scenario, delay, victims):
    """Between the points, too: so long after the request was sent."""
    scenario.prepare(world)
    call = Call(lambda: scenario.request(world))
    time.sleep(delay)
    world.kill(victims)
    world.restart(False)
    call.check(True)  # its connection may not have been accepted yet
    wait_explained(world.daemon)
    world.check_survivor()
    scenario.check_again(world)
    world.remove_subject()


class Runner(threading.Thread):
    """Takes cases from a queue, with a world of its own that lasts as long as nothing fails in it."""

    def __init__(self, cases):
        super().__init__(daemon=True)
        self.cases, self.hit, self.count, self.failures, self.world = cases, set(), 0, [], None

    def run(self):
        while len(self.failures) < FAILURES_MAX:
            try:
                case = self.cases.get_nowait()
            except queue.Empty:
                break
            for victims in victims_at(case[0].name, case[1], case[2]):
                self.run_case(*case, victims)
        try:
            if self.world:
                self.world.daemon.close()
        except AssertionError as error:
            self.failures.append(f"at the end: {error}")

    def run_case(self, scenario, point, skip, every_time, victims):
        name = f"{scenario.name}, {point} ({skip + 1}), {victims} killed"
        try:
            if not self.world:
                self.world = World()
            self.count += 1
            if kill_at(self.world, scenario, point, skip, victims):
                self.hit.add(point)
            elif skip == 0 and every_time:
                self.failures.append(f"{name}: nobody came there")
        except Exception as error:  # told at the end, with the others
            log = self.world.daemon.log().splitlines()[-30:] if self.world else []
            self.failures.append("\n  ".join([f"{name}: {error!r}", *log]))
            if self.world:
                self.world.faults.go_on()
                self.world.daemon.close(check=False)
            self.world = None


def find_cases(only=()):
    """Every point that a scenario passes, in that scenario; and which are passed at all. What is not passed every time
    was something else's, under way beside it."""
    world, cases, passed = World(), [], set()
    with world.daemon:
        for scenario in SCENARIOS:
            if only and scenario.name not in only:
                continue
            first, second = dry_run(world, scenario), dry_run(world, scenario)
            for point in first.keys() | second.keys():
                passed.add(point)
                least, most = sorted((first.get(point, 0), second.get(point, 0)))
                cases += [(scenario, point, skip, skip < least) for skip in range(min(most, PASSES_MAX))]
    return cases, passed


def run_cases(cases):
    waiting = queue.Queue()
    for case in cases:
        waiting.put(case)
    runners = [Runner(waiting) for _ in range(WORLDS)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    return (set().union(*(runner.hit for runner in runners)), sum(runner.count for runner in runners),
            [failure for runner in runners for failure in runner.failures])


class KillPoints(OwnDaemons):
    def test_every_kill_point(self):
        points = set(list_points())
        cases, _ = find_cases()
        hit, count, failures = run_cases(cases)
        first_hit, first_count, first_failures = self.first_start(points)
        hit |= first_hit
        failures += first_failures
        left_out = {point for point in points if not_passed(point)}
        print(f"= {len(points) - len(left_out)} kill points, {len(hit)} hit; killed {count + first_count} times; "
              f"{len(left_out)} points cannot be passed; {'every victim' if THOROUGH else 'victims chosen by ' + commit_tested[:12]}", flush=True)
        if failures:
            heads = " | ".join(failure.split("\n")[0] for failure in failures)
            self.fail(f"{len(failures)} of {count + first_count}: {heads}\n" + "\n".join(failures[:20]))
        self.assertEqual(sorted(points - hit - left_out), [], "points that were not hit")
        self.assertEqual(sorted(hit & left_out), [], "points that NOT_PASSED says cannot be")

    def test_any_moment(self):
        """What a boot and an end do between two messages: killed after a time that grows by half a millisecond."""
        scenarios = [scenario for scenario in SCENARIOS if scenario.name in ("hand-out", "create a cold one", "start", "delete")]
        world = World()
        self.addCleanup(self.finish, world.daemon)
        for n in range(48):
            scenario, victims = scenarios[n % 4], ("spawner", "both", "spawner")[n // 4 % 3]
            with self.subTest(scenario=scenario.name, milliseconds=n / 2, killed=victims):
                kill_after(world, scenario, n / 2000, victims)

    def first_start(self, points):
        """A state directory that is made: whatever is killed then, the next start has a whole database."""
        hit, count, failures = set(), 0, []
        for point in sorted(point for point in points if point.startswith(("store.build", "store.install", "store.migration"))):
            for skip in range(2 if "migration" in point else 1):
                for victims in victims_at("first start", point, skip):
                    count += 1
                    try:
                        self.kill_first_start(point, skip, victims)
                        hit.add(point)
                    except Exception as error:
                        failures.append(f"first start, {point} ({skip + 1}), {victims} killed: {error!r}")
        return hit, count, failures

    def kill_first_start(self, point, skip, victims):
        daemon, faults = armable(config="[pool]\nsize = 0\nmax = 0\n")
        try:
            faults.arm(point, skip)
            daemon.start(wait=False)
            if not faults.held(10):
                raise AssertionError("nobody came there")
            if victims in ("spawner", "both"):
                daemon.process.kill()
            if victims in ("daemon", "both"):
                os.kill(daemon.daemon_pid() if victims == "daemon" else faults.page.held, signal.SIGKILL)
            faults.go_on()
            if victims != "daemon":
                daemon.process.wait()
                daemon.start()
            daemon.wait_ready()
            api = daemon.client()
            box = api.create()["id"]
            self.assertEqual(api.sh(box, "echo 1"), "1\n")
            wait_explained(daemon)
        finally:
            faults.go_on()
            daemon.close()


if __name__ == "__main__":
    unittest.main()
