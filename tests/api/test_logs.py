"""The log of a sandbox: the lines of all its commands, in pages, filtered, followed."""
import json
import os
import time
import unittest
import urllib.parse

from caisson import DaemonTest, wait_until


class Logs(DaemonTest):
    def setUp(self):
        self.box = self.sandbox(timeout_seconds=600)

    def path(self, rest=""):
        return f"/v1/sandboxes/{self.box}/logs{rest}"

    def run_one(self, command, **fields):
        return self.api.exec(self.box, command, **fields)["exec_id"]

    def page(self, **query):
        return self.api.get(self.path(), **query)

    def lines(self, **query):
        return [line["line"] for line in self.page(**query)["lines"]]

    def follow(self, **query):
        """The events' data, as they come, and the connection."""
        response, connection = self.api.raw("GET", self.path("?" + urllib.parse.urlencode({"follow": 1, **query})),
                                            headers={"Accept": "text/event-stream"})
        self.addCleanup(connection.close)
        self.assertEqual((response.status, response.getheader("Content-Type")), (200, "text/event-stream"))

        def data():
            name = None
            for line in response:
                line = line.decode()
                if line.startswith("event: "):
                    name = line[7:].strip()
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])
        return data()

    def test_order_and_fields(self):
        self.assertEqual((self.page()["lines"], self.page()["more"]), ([], False))
        first = self.run_one("echo a1; echo e1 >&2; echo a2")
        second = self.run_one("printf 'b1\\nlast without an end'")
        page = self.page()
        self.assertEqual([(line["line"], line["source"], line["exec_id"], line["offset"]) for line in page["lines"]],
                         [("a1", "stdout", first, 0), ("a2", "stdout", first, 3), ("e1", "stderr", first, 0),
                          ("b1", "stdout", second, 0), ("last without an end", "stdout", second, 3)])
        record = self.api.get(f"/v1/sandboxes/{self.box}/execs/{first}")
        self.assertEqual((page["lines"][0]["not_before"], page["lines"][0]["not_after"]), (record["started_at"], record["ended_at"]))

    def test_sources(self):
        self.run_one("echo out; echo err >&2; exit 3")
        self.assertEqual(self.lines(source="stdout"), ["out"])
        self.assertEqual(self.lines(stream="stderr"), ["err"])
        self.assertEqual(self.lines(source="both"), ["out", "err"])
        said = ["started: /bin/sh -c echo out; echo err >&2; exit 3", "ended: exit code 3"]
        self.assertEqual(self.lines(source="exec"), said)
        self.assertEqual(self.lines(source="all"), [said[0], "out", "err", said[1]])
        for tail in range(1, 5):
            self.assertEqual(self.lines(source="all", tail=tail), [said[0], "out", "err", said[1]][-tail:])

    def test_tail(self):
        for i in range(4):
            self.run_one(f"seq {i}000 {i}999; seq {i}1 {i}3 >&2")
        everything = [str(n) for i in range(4) for n in [*range(i * 1000, i * 1000 + 1000), *range(i * 10 + 1, i * 10 + 4)]]
        self.assertEqual(self.lines(limit=10000), everything)
        for tail in (0, 1, 3, 4, 5, 1002, 1003, 1004, 2500, 4012, 9000):
            self.assertEqual(self.lines(tail=tail), everything[len(everything) - min(tail, len(everything)):], tail)
        self.assertEqual(self.lines(), everything[-1000:])

    def test_more_is_true_when_there_is_more(self):
        self.run_one("seq 1 3")
        for query, lines, more in (({"tail": 2}, ["2", "3"], False), ({"tail": 3}, ["1", "2", "3"], False), ({"limit": 3}, ["1", "2", "3"], False),
                                   ({"cursor": 0, "limit": 3}, ["1", "2", "3"], False), ({"cursor": 0, "limit": 2}, ["1", "2"], True),
                                   ({"cursor": 0, "limit": 1, "grep": "1"}, ["1"], False), ({"tail": 0}, [], False)):
            page = self.page(**query)
            self.assertEqual(([line["line"] for line in page["lines"]], page["more"]), (lines, more), query)
        page = self.page(cursor=0, limit=2)
        rest = self.page(cursor=page["cursor"], limit=2)
        self.assertEqual(([line["line"] for line in rest["lines"]], rest["more"]), (["3"], False))
        self.run_one("seq 4 5")
        page = self.page(cursor=self.page(tail=2)["cursor"])
        self.assertEqual((page["lines"], page["more"]), ([], False))

    def test_tail_over_long_lines_and_holes(self):
        self.run_one("head -c 200000 /dev/zero | tr '\\0' x; echo; echo after", output={"head_bytes": 1000000})
        self.assertEqual(self.lines(tail=1), ["after"])
        lines = self.page(limit=10000)["lines"]
        self.assertEqual("".join(line["line"] for line in lines[:-1]), "x" * 200000)
        self.assertTrue(all(line.get("partial") for line in lines[:-2]))
        # What is not kept is told with the line behind it.
        self.run_one("seq 1 100000", output={"head_bytes": 100, "tail_bytes": 1000})
        lines = self.page(limit=10000)["lines"]
        gaps = [line["gap"] for line in lines if "gap" in line]
        self.assertEqual(len(gaps), 1)
        self.assertEqual(lines[-1]["line"], "100000")
        self.assertEqual(self.lines(tail=2), ["99999", "100000"])
        self.assertIn("1", self.lines(tail=500))

    def test_cursor_goes_on_where_it_was(self):
        job = self.api.post(f"/v1/sandboxes/{self.box}/jobs", {"cmd": "echo j1; read x; echo j2", "stdin": True})["exec_id"]
        wait_until(lambda: self.lines() == ["j1"])
        self.run_one("echo between")
        seen, cursor = [], "0"
        while True:
            page = self.page(cursor=cursor, limit=1)
            seen += [line["line"] for line in page["lines"]]
            cursor = page["cursor"]
            if not page["more"]:
                break
        self.assertEqual(seen, ["j1", "between"])
        self.assertEqual(self.page(cursor=cursor)["lines"], [])
        # An older command says something: it is not lost behind the newer one.
        self.api.call("POST", f"/v1/sandboxes/{self.box}/jobs/{job}/stdin?close=1", b"\n")
        self.run_one("echo newer")
        wait_until(lambda: self.lines(source="exec", exec=job)[-1:] == ["ended: exit code 0"])
        page = self.page(cursor=cursor)
        self.assertEqual([line["line"] for line in page["lines"]], ["j2", "newer"])
        self.assertEqual(self.page(cursor=page["cursor"])["lines"], [])

    def test_filters(self):
        first = self.run_one("echo 'GET /a'; echo 'POST /b'; echo 'GET /c' >&2")
        self.assertEqual(self.lines(grep="GET"), ["GET /a", "GET /c"])
        self.assertEqual(self.lines(grep="GET", tail=1), ["GET /c"])
        self.assertEqual(self.lines(grep=".*"), [])  # a text, not a pattern
        self.assertEqual(self.lines(grep="GET", source="stdout"), ["GET /a"])
        middle = time.time()
        time.sleep(1.1)  # the clock's own: times are asked for in seconds
        second = self.run_one("echo late")
        self.assertEqual(self.lines(exec=second), ["late"])
        self.assertEqual(self.lines(exec=first, source="stdout"), ["GET /a", "POST /b"])
        self.assertEqual(self.lines(since=int(middle) + 1), ["late"])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(middle) + 1))
        self.assertEqual(self.lines(since=stamp), ["late"])
        self.assertEqual(self.lines(until=stamp), ["GET /a", "POST /b", "GET /c"])
        self.assertEqual(self.lines(since="1h"), ["GET /a", "POST /b", "GET /c", "late"])

    def test_what_is_refused(self):
        for query in ({"source": "odd"}, {"tail": 10001}, {"tail": -1}, {"limit": 0}, {"since": "yesterday"}, {"until": "2026-13-01"},
                      {"cursor": "odd!"}, {"cursor": "1."}, {"cursor": "1.aaaaaaaaaaaaaaaa-1"}, {"cursor": "0", "tail": 1},
                      {"source": "stdout", "stream": "stdout"}, {"grep": "x" * 257}, {"odd": 1}, {"follow": "yes"}):
            self.refused(400, "request.invalid", self.page, **query)
        self.refused(400, "id.malformed", self.page, exec="odd")
        self.refused(404, "exec.not_found", self.page, exec="a" * 16)

    def test_plain_text(self):
        self.run_one("echo one; echo zwei ö; echo err >&2")
        response, connection = self.api.raw("GET", self.path(), headers={"Accept": "text/plain"})
        text = response.read().decode()
        connection.close()
        self.assertTrue(response.getheader("Content-Type").startswith("text/plain"))
        self.assertEqual(text, "one\nzwei ö\nerr\n")
        self.assertTrue(response.getheader("X-Next-Cursor"))

    def test_bytes_that_are_no_text(self):
        self.run_one("printf '\\377x\\n'")
        line = self.page()["lines"][0]
        self.assertEqual((line["line"], line["line_base64"]), ("�x", "/3g="))

    def test_follow(self):
        self.run_one("echo old")
        found = self.follow(tail=1)
        self.assertEqual(next(found)[1]["line"], "old\n")
        job = self.api.post(f"/v1/sandboxes/{self.box}/jobs", {"cmd": "printf half; read x; echo ' and half'; echo end", "stdin": True})["exec_id"]
        self.run_one("echo beside >&2")
        # A line is given when it is whole: the other command's came first.
        name, line = next(found)
        self.assertEqual((name, line["line"], line["source"]), ("line", "beside\n", "stderr"))
        self.api.call("POST", f"/v1/sandboxes/{self.box}/jobs/{job}/stdin?close=1", b"\n")
        self.assertEqual([next(found)[1]["line"], next(found)[1]["line"]], ["half and half\n", "end\n"])
        # The end of the sandbox ends it, without another word.
        self.api.delete("/v1/sandboxes/" + self.box)
        self.assertEqual(list(found), [])

    def test_follow_filtered_and_much(self):
        found = self.follow(tail=0, grep="7", source="stdout")
        self.run_one("seq 1 30000")
        wanted = [f"{i}\n" for i in range(1, 30001) if "7" in str(i)]
        self.assertEqual([next(found)[1]["line"] for _ in wanted], wanted)

    def test_reading_wakes_nothing(self):
        self.run_one("echo before")
        self.api.call("POST", f"/v1/sandboxes/{self.box}/pause")
        self.assertEqual(self.lines(), ["before"])
        self.assertEqual(self.api.get("/v1/sandboxes/" + self.box)["state"], "paused")


class SmallLogs(DaemonTest):
    config = "[sandbox]\nlog_max = 4M\n"

    def test_what_commands_leave_running_counts(self):
        """Output that comes after a command's end is kept within the sandbox's maximum too."""
        box = self.sandbox(timeout_seconds=600)
        execs = f"/v1/sandboxes/{box}/execs"
        for i in range(25):
            self.api.exec(box, "(sleep 0.05; yes | head -c 600000) & exit 0")
            wait_until(lambda: not any(one["left_running_count"] for one in self.api.get(execs)["execs"]), 60, what="the end of what it left")

        def size():
            with os.scandir(os.path.join(self.daemon.state, "logs", box)) as files:
                return sum(one.stat().st_size for one in files)
        # A thread removes the files.
        wait_until(lambda: size() <= 4 << 20, 30, what=f"the removal of the oldest logs: there are {size()} bytes")
        newest = self.api.get(execs)["execs"][0]
        self.assertEqual(newest["stdout_bytes"], 600000)
        self.assertEqual(self.api.get(f"{execs}/{newest['exec_id']}/output", stream="stdout", **{"from": 599998}), b"y\n")


if __name__ == "__main__":
    unittest.main()
