"""The rows about many at once: open streams, clients that do everything, counters of all sandboxes. Called by
`run`, which gives each the report and says whether it is the quick form."""
import contextlib
import os
import re
import time

from caisson import Daemon, wait_until
from explain import wait_explained
from peers import EXEC, Client
from report import Series, interleave, median, p99

KIB = 1024
STREAMS = 1000
TICKING = {"cmd": "while :; do echo tick; sleep 1; done"}
DESCRIPTORS = 8  # that may be open more than before: something that is just being done
OF_MEMBER = 4    # that each of the two holds for a sandbox made ahead; after many creates there are more of these


def status_kib(pid, name):
    return int(re.search(name + r":\s*(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def part(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# --- streams ---

class Streams:
    """Streams on one path of a daemon, open or not, and execs beside them."""

    def __init__(self, daemon, box, path):
        self.pid, self.path = daemon.daemon_pid(), path
        token = daemon.token()
        self.holder = Client(port=daemon.port, token=token)
        self.client = Client(port=daemon.port, token=token)
        self.exec_path = f"/v1/sandboxes/{box}/exec"
        self.bytes = self.rss = 0
        self.processor = self.opening = []

    def execs(self, count):
        return self.client.repeat(count, "POST", self.exec_path, EXEC)

    def beside(self, count):
        before, closed = status_kib(self.pid, "VmRSS"), descriptors(self.pid)
        with open(f"/proc/{self.pid}/clear_refs", "w") as file:
            file.write("5")  # its highest RSS is counted from here
        self.opening = [*self.opening, self.holder.ask("hold", STREAMS, self.path)["time"] / STREAMS]
        times = self.execs(count)
        # Memory that was used once is used again: what counts is the first time, at its highest.
        self.rss = self.rss or max(status_kib(self.pid, "VmHWM") - before, 1)
        answer = self.holder.ask("release")
        if answer["ended"] or answer["closed"] != STREAMS:
            raise RuntimeError(f"{answer['ended']} of {STREAMS} streams were ended by the daemon")
        self.bytes += answer["bytes"]
        self.processor = [*self.processor, answer["processor_seconds"]]
        wait_until(lambda: descriptors(self.pid) <= closed + DESCRIPTORS, 30, what="the streams' end")
        return times

    def close(self):
        self.client.close()
        self.holder.close()


def streams_of(report, quick, kind, what, path_of):
    beside, alone = Series(f"exec beside {kind}"), Series(f"exec without {kind}")
    count = 100 if quick else 400  # for longer than the daemon collects events before it tells of them
    with Daemon("[pool]\nsize = 0\n") as daemon, contextlib.ExitStack() as stack:
        api = daemon.client()
        box = api.create(timeout_seconds=3600)["id"]
        streams = Streams(daemon, box, path_of(api))
        stack.callback(streams.close)
        streams.execs(2 * count)
        interleave(2 if quick else 10, {beside: lambda: streams.beside(count), alone: lambda: streams.execs(count)})
    report.value(f"streams-{kind}-memory", f"highest RSS of the daemon per open stream, of {STREAMS} ({what})", streams.rss / STREAMS, "KiB", 24,
                 [f"opening one took {median(streams.opening):.0f} us; their reader took {sum(streams.processor):.2f} s of processor "
                  f"for {streams.bytes / KIB / KIB:.1f} MiB"])
    report.row(f"streams-{kind}", f"exec beside {STREAMS} streams ({what})", beside, "us", [(alone, "without them", 1.5)])


def streams(report, quick):
    """1,000 open streams: memory each, and exec beside them"""
    streams_of(report, quick, "events", "GET /v1/events", lambda api: "/v1/events?follow=1")

    def output(api):
        """Of a command that prints a line each second, in a sandbox of its own."""
        box = api.create(timeout_seconds=3600)["id"]
        job = api.post(f"/v1/sandboxes/{box}/jobs", TICKING)["exec_id"]
        return f"/v1/sandboxes/{box}/jobs/{job}/output?follow=1"
    streams_of(report, quick, "output", "output of a command", output)


# --- clients that do everything ---

class Before:
    """What a daemon and its spawner hold while no sandbox is there."""

    def __init__(self, daemon):
        wait_explained(daemon)
        self.pids = {"daemon": daemon.daemon_pid(), "spawner": daemon.process.pid}
        self.pool = len(daemon.pooled())
        self.descriptors = {name: descriptors(pid) for name, pid in self.pids.items()}
        self.processor = {name: processor_seconds(pid) for name, pid in self.pids.items()}

    def leaks(self, daemon):
        """Lines about what is there now and was not."""
        found = []
        try:
            wait_explained(daemon, seconds=30)
        except AssertionError as error:
            found.append(str(error))
        alive = [item["id"] for item in daemon.client().get("/v1/sandboxes", limit=200)["items"] if item["status"] != "ended"]
        found += [f"sandbox {box} lives" for box in alive]
        pool = OF_MEMBER * max(len(daemon.pooled()) - self.pool, 0)
        for name, pid in self.pids.items():
            grown = descriptors(pid) - self.descriptors[name]
            if grown > DESCRIPTORS + pool:
                found.append(f"the {name} holds {grown} descriptors more")
        return found


def load(report, quick):
    """clients that each create, run ten commands, use files and delete, all the time"""
    clients, seconds = (20, 10) if quick else (100, 60)
    with Daemon() as daemon:
        client = Client(port=daemon.port, token=daemon.token())
        try:
            client.ask("load", 1, 4, "{}", EXEC)
            before = Before(daemon)
            answer = client.ask("load", seconds, clients, "{}", EXEC)
            used = {name: processor_seconds(pid) - before.processor[name] for name, pid in before.pids.items()}
            leaks = before.leaks(daemon)
        finally:
            client.close()
    used["client"] = answer["processor_seconds"]
    capacity = answer["seconds"] * len(os.sched_getaffinity(0))
    notes = [f"{answer['cycles']} sandboxes in {answer['seconds']:.0f} s; of all processor time: "
             + ", ".join(f"{name} {100 * value / capacity:.1f} %" for name, value in used.items())]
    report.value("load-errors", f"errors, {clients} clients for {seconds} s", answer["failures"], "", 0, notes)
    report.value("load-leaks", "things left by them", len(leaks), "", 0, leaks)
    for name in ("create", "exec", "write", "read", "list", "delete"):
        series = Series(f"load: {name}")
        series.add(answer[name])
        report.row(f"load-{name}", f"{name}, {clients} clients", series, "us", notes=[
            f"p95 {report.number(part(series.values, 0.95), 'us')}, longest {report.number(max(series.values), 'us')}"])
        report.value(f"load-{name}-spread", f"{name}: p99 / p50", p99(series.values) / median(series.values), "x", 5)


# --- counters ---

def metrics(report, quick):
    """metrics of one sandbox and of all"""
    boxes, count, blocks = (20, 20, 3) if quick else (100, 50, 10)
    with Daemon("[pool]\nsize = 0\n") as daemon:
        api = daemon.client()
        names = [api.create(timeout_seconds=3600)["id"] for _ in range(boxes)]
        client = Client(port=daemon.port, token=daemon.token())
        one, everything = Series("metrics of one"), Series("metrics of all")
        try:
            for box in names:
                client.repeat(1, "POST", f"/v1/sandboxes/{box}/exec", EXEC)
            time.sleep(1)
            interleave(blocks, {one: lambda: client.repeat(count, "GET", f"/v1/sandboxes/{names[0]}/metrics"),
                                everything: lambda: client.repeat(count, "GET", "/v1/metrics")})
        finally:
            client.close()
    for series, identity, what in ((one, "metrics-one", f"metrics of one sandbox of {boxes}"),
                                   (everything, "metrics-all", f"metrics of all {boxes} sandboxes")):
        report.row(identity, what, series, "us")
        report.value(identity + "-p99", what + ", p99", p99(series.values), "us", 5000)
