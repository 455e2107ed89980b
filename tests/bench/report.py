"""Figures: medians, ratios against peers of the same run, a table for people and JSON for programs.

The JSON (`--json FILE`):

  {"format": "caisson-bench 1",
   "machine": {...},                     what it ran on
   "rows": [{"id", "what", "unit", "p50", "p99", "count", "notes": [...],
             "peers": [{"name", "p50", "p99", "count", "ratio", "goal", "at_least", "met"}]}],
   "samples": {"<name>": [...]}}         every single value, in the row's unit, in the order of time

A ratio is the median of the ratios of the blocks: ours and the peers' take turns in short blocks, so that
what disturbs the machine for a while disturbs both. `goal` is the most that the ratio may be, or, with
`at_least`, the least. A row without a peer compares its own value with `goal`; its ratio is null. `met` is
null where there was nothing to compare with, and a note says why."""
import json
import os
import platform
import re
import subprocess
import time


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def p99(values):
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


class Series:
    """Values of one thing, in blocks."""

    def __init__(self, name):
        self.name, self.blocks = name, []

    def add(self, values):
        if values:
            self.blocks.append(list(values))

    @property
    def values(self):
        return [value for block in self.blocks for value in block]

    def ratio(self, peer):
        pairs = list(zip(self.blocks, peer.blocks))
        return median([median(ours) / median(theirs) for ours, theirs in pairs])


def interleave(blocks, series):
    """Runs each of {Series: function that returns values} once per block, each time beginning with another."""
    items = list(series.items())
    for turn in range(blocks):
        at = turn % len(items)
        for one, function in items[at:] + items[:at]:
            one.add(function())


class Report:
    def __init__(self):
        self.rows, self.samples = [], {}

    def row(self, identity, what, ours, unit, peers=(), notes=()):
        """peers: (Series or None, name, goal) or (..., goal, "at least")."""
        row = {"id": identity, "what": what, "unit": unit, "notes": list(notes), "peers": []}
        if ours is not None and ours.blocks:
            row.update(p50=median(ours.values), p99=p99(ours.values), count=len(ours.values))
            self.samples[ours.name] = ours.values
        else:
            row.update(p50=None, p99=None, count=0)
        for series, name, goal, *rest in peers:
            at_least = bool(rest)
            peer = {"name": name, "goal": goal, "at_least": at_least, "ratio": None, "met": None,
                    "p50": None, "p99": None, "count": 0}
            if series is not None and series.blocks:
                self.samples[series.name] = series.values
                peer.update(p50=median(series.values), p99=p99(series.values), count=len(series.values))
                if row["count"]:
                    peer["ratio"] = ours.ratio(series)
                    peer["met"] = peer["ratio"] >= goal if at_least else peer["ratio"] <= goal
            row["peers"].append(peer)
        self.rows.append(row)
        self.show(row)

    def value(self, identity, what, value, unit, goal=None, notes=(), at_least=False):
        """A figure that stands for itself."""
        row = {"id": identity, "what": what, "unit": unit, "p50": value, "p99": None, "count": 1 if value is not None else 0,
               "notes": list(notes), "peers": []}
        if goal is not None:
            met = None if value is None else value >= goal if at_least else value <= goal
            row["peers"].append({"name": "goal", "goal": goal, "at_least": at_least, "ratio": None, "met": met,
                                 "p50": None, "p99": None, "count": 0})
        self.samples[identity] = [value] if value is not None else []
        self.rows.append(row)
        self.show(row)

    @staticmethod
    def number(value, unit):
        if value is None:
            return "-"
        if unit == "us":
            return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"
        return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.2f} {unit}"

    def show(self, row):
        line = f"{row['what']:66} {self.number(row['p50'], row['unit']):>14}"
        if row["p99"] is not None and row["count"] > 1:
            line += f"   p99 {self.number(row['p99'], row['unit'])}"
        print(line)
        for peer in row["peers"]:
            sign = ">=" if peer["at_least"] else "<="
            verdict = {True: "met", False: "NOT MET", None: "not compared"}[peer["met"]]
            if peer["name"] == "goal":
                print(f"    {'':46} goal {sign} {self.number(peer['goal'], row['unit'])}: {verdict}")
                continue
            ratio = "" if peer["ratio"] is None else f"{peer['ratio']:.2f} x "
            print(f"    {peer['name']:46} {self.number(peer['p50'], row['unit']):>14}   {ratio}(goal {sign} {peer['goal']} x): {verdict}")
        for note in row["notes"]:
            print(f"    note: {note}")
        print(flush=True)

    def beyond(self, factor, known=("read",)):
        """What misses its goal by more than that factor, but for rows of which docs/performance.md says why, and for
        those about p99: of few values on a busy machine that is the longest."""
        found = []
        for row in self.rows:
            for peer in row["peers"] if row["id"] not in known and not row["id"].endswith(("-spread", "-p99")) else []:
                value = row["p50"] if peer["name"] == "goal" else peer["ratio"]
                if value is None:
                    continue
                bound = peer["goal"] / factor if peer["at_least"] else peer["goal"] * factor
                if (value < bound) if peer["at_least"] else (value > bound):
                    found.append(f"{row['what']}: {value:.2f} against {peer['name']}, bound {bound:.2f}")
        return found

    def counts(self):
        met = [peer["met"] for row in self.rows for peer in row["peers"]]
        return met.count(True), met.count(False), met.count(None)

    def write(self, path):
        """Returns what it wrote."""
        result = {"format": "caisson-bench 1", "machine": machine(), "rows": self.rows, "samples": self.samples}
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
        return result


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split("\n")[0]
    except OSError:
        return None


def machine():
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo").read())
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(), "architecture": platform.machine(),
        "cpu": model.group(1) if model else None, "cpus": os.cpu_count(),
        "memory_mb": int(memory.group(1)) // 1024 if memory else None,
        "file_system": first_line("stat", "-f", "-c", "%T", "/tmp"),
        "cgroups": sorted(set(re.findall(r" - (cgroup2?) ", open("/proc/self/mountinfo").read()))),
        "load": os.getloadavg(),
        "commit": first_line("git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe", "--always", "--dirty", "--exclude=*"),
        "runc": first_line("runc", "--version"), "bwrap": first_line("bwrap", "--version"),
        "socat": first_line("dpkg-query", "-W", "-f", "${Version}", "socat"),
        "libmicrohttpd": first_line("dpkg-query", "-W", "-f", "${Version}", "libmicrohttpd-dev"),
    }
