"""Requests made of docs/openapi (tests/lib/generate.py), every operation in turn: valid ones, such at the edge of
what is allowed, invalid and hostile ones. Whatever is sent, the answer is one that the document has, comes soon, is
never a defect of the daemon's, and leaves it none the worse. What others add to the document is tried without a word
here."""
import collections
import re
import time
import unittest

from caisson import SANITIZED, ApiError, DaemonTest
from contract import DOCUMENT, OPERATIONS, errors_of, parameters, resolved
from generate import KINDS, NOWHERE, Requests
from marks import busy, long
from wire import TooSlow, Wire

# Of each operation at least so many, and of each kind that it can have.
CASES_MIN = 20
# An operation that waits, by its description, is left alone after this, unless it has to be refused; all others must
# have answered by the other.
CUT_AFTER, HANG = {"valid": 0.2, "edge": 0.1, "invalid": None, "hostile": 0.05}, 30
WAITS = re.compile(r"wait|timeout|follow|drain|watch|stream|idle")
# What the daemon may have grown by: sandboxes and execs that were made meanwhile leave records.
GROWTH_MAX = 64 << 20
ERROR = DOCUMENT["components"]["schemas"]["Error"]


def may_wait(method, path):
    operation = OPERATIONS[method, path]
    names = [name for _, name in parameters(method, path)] + [path]
    content = resolved(operation.get("requestBody", {})).get("content", {}).get("application/json")
    if content:
        names += resolved(content["schema"]).get("properties", {})
    streams = any("text/event-stream" in resolved(answer).get("content", {}) for answer in operation["responses"].values())
    return streams or any(WAITS.search(name) for name in names)


def resident(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Generated(DaemonTest):
    config = "[sandbox]\ncount_max = 64\n"
    first = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wire = Wire(socket_path=cls.api.socket_path, limit=HANG)
        cls.values = {}
        cls.prepare()

    @classmethod
    def tearDownClass(cls):
        cls.wire.close()

    @classmethod
    def prepare(cls):
        """A sandbox and an exec for the paths to name; everything else that was made goes."""
        box = cls.values.get("sandbox")
        for record in cls.api.get("/v1/sandboxes", limit=1000)["items"]:
            # A PATCH may have left it with a hundredth of a processor.
            if record["id"] == box and cls.lasting(record) == cls.first:
                continue
            try:
                cls.api.delete("/v1/sandboxes/" + record["id"])
            except ApiError as error:
                if error.status not in (404, 409, 410):
                    raise
            if record["id"] == box:
                box = None
        if box is None or not cls.alive(box):
            record = cls.api.create(timeout_seconds=3600, memory_mb=256)
            box, cls.first = record["id"], cls.lasting(record)
            cls.values = {"sandbox": box, "exec": cls.api.exec(box, "echo text; : > /tmp/generated")["exec_id"], "workspace": "generated"}

    @staticmethod
    def lasting(record):
        """Of a record what does not change by itself."""
        return {key: record.get(key) for key in ("state", "name", "cpu", "memory_mb", "limits", "timeout_seconds", "idle_timeout_seconds",
                                                 "metadata", "labels", "persistent", "auto_pause")}

    @classmethod
    def alive(cls, box):
        try:
            return cls.api.get("/v1/sandboxes/" + box)["state"] == "running" and \
                cls.api.get(f"/v1/sandboxes/{box}/execs/{cls.values['exec']}")["state"] == "ended"
        except ApiError:
            return False

    def faults(self, requests, case, answer):
        operation = requests.operation
        method = case.method or requests.method
        described = operation["responses"]
        # Where no success is described, it is an operation to come.
        to_come = answer.status == 501 and not any(status.startswith("2") for status in described)
        if answer.status >= 500 and answer.status not in (503, 504, 507) and str(answer.status) not in described and not to_come:
            yield f"{answer.status}, which is not described: {answer.body[:300]}"
        if answer.status < 400 and case.kind == "invalid":
            yield f"{answer.status}, although it is not valid: {answer.body[:200]}"
        if case.kind in ("valid", "edge") and answer.status == 400 and b"request.malformed" in answer.body:
            yield f"refused as malformed, although it is valid: {answer.body[:300]}"
        if answer.status < 400 and method == requests.method and str(answer.status) not in described:
            yield f"{answer.status}, which is not described"
        if not answer.headers.get("x-request-id"):
            yield "no request id"
        if answer.status < 400 or method == "HEAD":
            return
        try:
            error = answer.json()
        except ValueError:
            yield f"{answer.status} without the shape of an error: {answer.body[:200]!r}"
            return
        yield from errors_of(error, ERROR)
        if error.get("request_id") != answer.headers.get("x-request-id"):
            yield "the request id of the body is not the header's"

    def drive(self, method, path):
        """(how many of each kind, what went wrong) of one operation."""
        requests, count, wrong = Requests(method, path, self.values), collections.Counter(), []
        waits = may_wait(method, path)
        for case in requests.cases():
            count[case.kind] += 1
            try:
                answer = self.wire.ask(case.method or method, case.target, case.body, case.headers,
                                       CUT_AFTER[case.kind] if waits else None)
            except TooSlow as error:
                wrong.append(f"{case.kind} {case.name}: {error}")
                continue
            except (OSError, ValueError, KeyError) as error:
                wrong.append(f"{case.kind} {case.name}: {error!r}")
                self.wire.close()
                continue
            if answer is not None:
                wrong += [f"{case.kind} {case.name}: {fault}" for fault in self.faults(requests, case, answer)]
        return count, wrong

    @long
    @busy
    def test_every_operation_by_all_kinds_of_requests(self):
        pid, total, slow = self.daemon.daemon_pid(), collections.Counter(), []
        before = resident(pid)
        for (method, path) in sorted(OPERATIONS, key=lambda one: (one[1], one[0])):
            began = time.monotonic()
            with self.subTest(operation=f"{method} {path}"):
                count, wrong = self.drive(method, path)
                total += count
                slow.append((round(time.monotonic() - began, 1), method, path, sum(count.values())))
                self.assertGreaterEqual(sum(count.values()), CASES_MIN)
                self.assertTrue(all(count[kind] for kind in ("valid", "invalid", "hostile")), count)
                self.assertEqual(wrong[:8], [], f"and {max(0, len(wrong) - 8)} more")
            self.prepare()
        print(f"= {len(OPERATIONS)} operations, {sum(total.values())} requests: " + ", ".join(f"{total[kind]} {kind}" for kind in KINDS))
        print("# the slowest: " + "; ".join(f"{seconds} s {method} {path} ({count})" for seconds, method, path, count in sorted(slow, reverse=True)[:5]))
        self.assertEqual(self.daemon.daemon_pid(), pid, "the daemon has ended meanwhile")
        self.assertEqual(self.api.get("/healthz")["status"], "ok")
        if not SANITIZED:
            self.assertLess(resident(pid) - before, GROWTH_MAX, "the daemon grows")

    def test_the_same_document_makes_the_same_requests(self):
        for method, path in list(OPERATIONS)[:5]:
            first, second = ([(case.kind, case.target, case.body) for case in Requests(method, path, {"sandbox": NOWHERE}).cases()] for _ in range(2))
            self.assertEqual(first, second)


if __name__ == "__main__":
    unittest.main()
