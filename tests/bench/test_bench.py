"""The bench in its quick form: does it work at all, and is nothing far off its goals? Not a gate on noise: a
goal may be missed several times over here; `make bench` on an idle machine is what counts."""
import json
import os
import subprocess
import tempfile
import unittest

from caisson import BUILD, TOP

MARKS = ("alone", "thorough")
RUNS_ON = "normal"
# Of the goal. Other tests may run beside this, on few processors.
FACTOR = "6"


class Bench(unittest.TestCase):
    def test_quick_form(self):
        with tempfile.TemporaryDirectory() as top:
            path = os.path.join(top, "bench.json")
            result = subprocess.run([os.path.join(TOP, "tests/bench/run"), BUILD, "--quick", "--json", path, "--check", FACTOR],
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
            self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-2000:])
            data = json.load(open(path))
        self.assertEqual(data["format"], "caisson-bench 1")
        rows = {row["id"]: row for row in data["rows"]}
        for name in ("cold", "exec", "burst", "burst-up", "get", "http", "read", "files", "memory", "idle", "output", "output-whole",
                     "streams-events-memory", "streams-events", "streams-output-memory", "streams-output", "load-errors", "load-leaks",
                     "load-create", "load-exec", "load-write", "load-read", "load-list", "load-delete", "metrics-one", "metrics-all",
                     "mcp-list", "mcp-list-spread", "mcp-read", "mcp-run", "mcp-list-size", "mcp-seq-size",
                     "bomb-exec-C", "bomb-exec-Python", "bomb-exec-pausing", "bomb-exec-shell",
                     "bomb-fork-C", "bomb-fork-Python", "bomb-fork-pausing", "bomb-fork-shell"):
            self.assertIsNotNone(rows[name]["p50"], f"{name} has no value")
        self.assertEqual(0, rows["load-errors"]["p50"] + rows["load-leaks"]["p50"], rows["load-leaks"]["notes"])
        self.assertTrue(all(peer["ratio"] for peer in rows["cold"]["peers"] if peer["name"] == "floor"))


if __name__ == "__main__":
    unittest.main()
