"""What sandboxes use, of one and of all; /metrics for Prometheus against a strict reading of its format; /healthz."""
import math
import os
import re
import sqlite3
import unittest

from caisson import ApiError, Daemon, DaemonTest, wait_until

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def parse_prometheus(text):
    """{family: (type, {(name, labels): value})}; AssertionError for whatever is not text format 0.0.4."""
    assert text.endswith("\n"), "no line end at the end"
    families, current, helped = {}, None, set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, words = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line).groups()
            assert name not in helped, f"{name} is explained twice"
            helped.add(name)
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line).groups()
            assert name not in families and name in helped, f"{name}: its type comes twice, or before its help"
            current, families[name] = name, (kind, {})
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"not a sample: {line!r}"
            name, labels, value = match.groups()
            kind, samples = families[current]
            base = re.sub("_(bucket|sum|count)$", "", name) if kind == "histogram" else name
            assert base == current, f"{name} stands below {current}"
            labels = tuple(sorted(re.findall(LABEL, labels or "")))
            assert (name, labels) not in samples, f"{line} stands there twice"
            samples[name, labels] = float(value)
    for name, (kind, samples) in families.items():
        assert samples or name == "caisson_http_errors_total", f"{name} has no sample"
        if kind == "counter":
            assert name.endswith("_total"), name
            assert all(value >= 0 for value in samples.values())
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def check_histogram(family, samples):
    series = {}
    for (name, labels), value in samples.items():
        rest = tuple(label for label in labels if not label.startswith("le="))
        series.setdefault(rest, {})[name, next((label for label in labels if label.startswith("le=")), "")] = value
    for rest, values in series.items():
        buckets = sorted((float(le[4:-1]), value) for (name, le), value in values.items() if name == family + "_bucket")
        counts = [value for _, value in buckets]
        assert buckets[-1][0] == math.inf and counts == sorted(counts), f"{family} {rest}: {buckets}"
        assert values[family + "_count", ""] == counts[-1], f"{family} {rest}"
        assert values[family + "_sum", ""] >= 0


class Metrics(DaemonTest):
    def one(self, box, **query):
        return self.api.get(f"/v1/sandboxes/{box}/metrics", **query)

    def sandbox_with_memory(self):
        """Nothing need be charged to a sandbox that has run no command yet; what it has read and written is."""
        box = self.sandbox()
        self.api.sh(box, "head -c 1000000 /dev/zero > /workspace/f")
        return box

    def test_of_one(self):
        box = self.sandbox(name="busy", memory_mb=200, cpu=0.5, pids=77, disk_mb=64)
        before = self.one(box)
        self.api.sh(box, "head -c 20000000 /dev/zero > /workspace/f")
        # By its own account: how long that takes is the machine's business.
        self.api.sh(box, ["python3", "-c", "import time\nwhile time.process_time() < 0.6: pass"], timeout_seconds=60)
        after = self.one(box)
        self.assertEqual((after["id"], after["name"], after["status"]), (box, "busy", "running"))
        self.assertGreater(after["cpu_seconds"], before["cpu_seconds"] + 0.1)
        self.assertGreater(after["cpu_percent"], 0)
        self.assertAlmostEqual(after["cpu_percent_of_limit"], after["cpu_percent"] * 2, delta=0.01)
        self.assertGreater(after["memory_peak_bytes"], 10000000)
        self.assertGreaterEqual(after["disk_bytes"], before["disk_bytes"] + 20000000)
        self.assertEqual((after["memory_limit_bytes"], after["processes_limit"], after["disk_limit_bytes"],
                          after["cpu_limit"]), (200 << 20, 77, 64 << 20, 0.5))
        self.assertEqual((after["network"], after["network_rx_bytes"], after["network_tx_bytes"]), ("off", 0, 0))
        self.assertGreater(after["uptime_seconds"], 0.5)

    def test_of_all_and_of_nobody_elses(self):
        own = {self.sandbox_with_memory(), self.sandbox_with_memory()}
        listed = self.api.get("/v1/metrics")
        self.assertEqual(listed["count"], len(listed["items"]))
        self.assertLessEqual(own, {item["id"] for item in listed["items"]})
        for item in listed["items"]:
            if item["id"] in own:
                self.assertGreater(item["memory_bytes"], 0)
        other = self.daemon.tcp(self.daemon.token(workspace="other"))
        self.assertEqual(other.get("/v1/metrics"), {"items": [], "count": 0})
        box = own.pop()
        self.refused(404, "sandbox.not_found", other.get, f"/v1/sandboxes/{box}/metrics")
        bound = self.daemon.tcp(self.daemon.token(sandbox=box))
        self.assertEqual([item["id"] for item in bound.get("/v1/metrics")["items"]], [box])

    def test_samples(self):
        box = self.sandbox_with_memory()
        self.assertNotIn("samples", self.one(box))
        # The daemon's own first look may have come before the command; the next is ten seconds later.
        wait_until(lambda: self.one(box, samples=120)["samples"][0]["memory_bytes"] > 0, 60, 0.2, what="a sample with memory")
        self.assertEqual(len(self.one(box, samples=1, interval_ms=20000)["samples"]), 1)
        for query in ({"samples": 0}, {"samples": 121}, {"samples": "x"}, {"interval_ms": 9999}, {"sample": 1}):
            with self.assertRaises(ApiError) as caught:
                self.api.call("GET", f"/v1/sandboxes/{box}/metrics?" + "&".join(f"{k}={v}" for k, v in query.items()),
                              checked=False)
            self.assertEqual((caught.exception.status, caught.exception.code), (400, "request.invalid"), query)

    def test_one_that_does_not_run(self):
        box = self.sandbox()
        self.api.sh(box, "head -c 5000000 /dev/zero > /workspace/f")
        used = self.one(box)
        self.api.post(f"/v1/sandboxes/{box}/stop")
        stopped = self.one(box)
        self.assertEqual((stopped["status"], stopped["uptime_seconds"], stopped["cpu_percent"]), ("stopped", None, None))
        self.assertGreaterEqual(stopped["cpu_seconds"], used["cpu_seconds"])
        self.assertGreaterEqual(stopped["disk_bytes"], 5000000)
        self.api.delete(f"/v1/sandboxes/{box}")
        self.refused(410, "sandbox.ended", self.one, box)


class Prometheus(DaemonTest):
    def text(self, client=None):
        response, connection = (client or self.api).raw("GET", "/metrics", checked=client is None)
        body = response.read().decode()
        connection.close()
        return response.status, response.getheader("Content-Type"), body

    def families(self):
        status, kind, text = self.text()
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        return parse_prometheus(text)

    def value(self, families, name, *labels, family=None):
        return families[family or name][1].get((name, tuple(sorted(labels))), 0)

    def test_it_counts_what_happens(self):
        before = self.families()
        box = self.api.create()["id"]
        self.api.sh(box, "true")
        self.api.sh(box, "true")
        running = self.value(self.families(), "caisson_sandboxes", 'state="running"')
        self.assertGreaterEqual(running, 1)
        self.api.post(f"/v1/sandboxes/{box}/pause")
        self.api.delete(f"/v1/sandboxes/{box}")
        self.refused(404, "sandbox.not_found", self.api.get, "/v1/sandboxes/nobody")
        after = self.families()

        def more(name, *labels, family=None):
            return self.value(after, name, *labels, family=family) - self.value(before, name, *labels, family=family)
        create = "caisson_sandbox_create_seconds"
        self.assertEqual(sum(more(create + "_count", f'boot_mode="{mode}"', family=create) for mode in ("cold", "pool")), 1)
        self.assertEqual(more("caisson_sandbox_ends_total", 'reason="user"'), 1)
        self.assertEqual(more("caisson_sandbox_pauses_total"), 1)
        self.assertEqual(more("caisson_execs_total", 'end="exited"'), 2)
        self.assertEqual(more("caisson_exec_seconds_count", family="caisson_exec_seconds"), 2)
        route = 'route="/v1/sandboxes/{sandbox}"'
        self.assertEqual(more("caisson_http_requests_total", 'method="GET"', route, 'status="4xx"'), 1)
        self.assertEqual(more("caisson_http_request_seconds_count", 'method="DELETE"', route,
                              family="caisson_http_request_seconds"), 1)
        self.assertEqual(more("caisson_http_errors_total", 'code="sandbox.not_found"'), 1)
        self.assertGreater(more("caisson_store_write_seconds_count", family="caisson_store_write_seconds"), 0)
        self.assertGreater(self.value(after, "process_resident_memory_bytes"), 1 << 20)
        self.assertGreater(self.value(after, "caisson_uptime_seconds"), 0)
        self.assertGreaterEqual(self.value(after, "caisson_http_connections"), 1)
        self.assertNotIn(box, self.text()[2])

    def test_streams_are_counted_while_they_are_open(self):
        box = self.sandbox()

        def streams():
            return self.value(self.families(), "caisson_http_event_streams")
        before = streams()
        response, connection = self.api.raw("GET", f"/v1/sandboxes/{box}/files/watch?path=/workspace", checked=False)
        response.readline()
        self.assertEqual(streams(), before + 1)
        connection.close()
        response.close()
        wait_until(lambda: streams() == before, what="its end")

    def test_for_whom(self):
        self.assertEqual(self.text(self.daemon.tcp())[0], 401)
        self.assertEqual(self.text(self.daemon.tcp(self.daemon.token()))[0], 403)
        self.assertEqual(self.text(self.daemon.tcp(self.daemon.token(scopes=["admin"])))[0], 200)
        self.assertEqual(self.api.call("HEAD", "/metrics", checked=False), b"")


class Open(unittest.TestCase):
    def test_metrics_open_and_a_store_that_fails(self):
        with Daemon(config="[server]\nmetrics_open = yes\n") as daemon:
            response, connection = daemon.tcp().raw("GET", "/metrics", checked=False)
            parse_prometheus(response.read().decode())
            connection.close()
            api = daemon.client()
            self.assertEqual(api.get("/healthz"), {"status": "ok"})
            # Somebody holds the database: nothing can be written, and it is said so for as long as that is so.
            lock = sqlite3.connect(os.path.join(daemon.state, "db", "caisson.db"), timeout=10, isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")
            try:
                with self.assertRaises(ApiError):
                    api.create()
                with self.assertRaises(ApiError) as caught:
                    api.get("/healthz")
                body = caught.exception.body
                self.assertEqual((caught.exception.status, caught.exception.code), (503, "store.failed"))
                self.assertEqual((body["status"], body["reasons"]), ("degraded", ["the store cannot be written"]))
            finally:
                lock.rollback()
                lock.close()

            def well():
                try:
                    return api.get("/healthz") == {"status": "ok"}
                except ApiError:
                    return False
            wait_until(well, what="a store that is well again")
