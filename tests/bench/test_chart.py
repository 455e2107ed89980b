"""The latency chart: made of a result, it is well-formed and shows that result's values, also those that do not flatter us."""
import copy
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

from caisson import TOP

sys.path.insert(0, os.path.join(TOP, "tests/bench"))
import chart  # noqa: E402 (its place is known now)

RUNS_ON = "normal"
SVG = "{http://www.w3.org/2000/svg}"
# A result as tests/bench/run writes it, with a few of its values: microseconds.
RESULT = {
    "format": "caisson-bench 1", "rows": [],
    "machine": {"time": "2026-11-18T10:00:00Z", "kernel": "6.1.0-41-amd64", "architecture": "x86_64", "cpu": "A <fast> & \"new\" one", "cpus": 2,
                "commit": "0123abc", "runc": "runc version 1.1.5", "bwrap": "bubblewrap 0.8.0"},
    "samples": {"from the pool": [7000, 6000, 9000], "pool: delete": [2500, 2600, 2400],
                "cycle: create": [15000, 11000, 13000], "cycle: exec": [2000, 2000, 2000], "cycle: delete": [3000, 3000, 3000],
                "runc run": [60000, 50000, 70000], "bwrap (pool)": [4000, 5000, 6000],
                "exec over REST": [2000, 1800, 1900], "runc exec": [40000, 30000, 35000], "fork+exec+wait": [700, 800, 900]}}


class Chart(unittest.TestCase):
    def setUp(self):
        self.result = copy.deepcopy(RESULT)

    def draw(self):
        root = tree.fromstring(chart.draw(self.result))
        return root, [item.text for item in root.iter(SVG + "text")]

    def test_values_are_shown(self):
        root, texts = self.draw()
        labels = {name: texts[texts.index(name) + 1] for name in texts if texts.index(name) + 1 < len(texts)}
        self.assertEqual("7.0 ms (p99 9.0), delete 2.5", labels["Caisson: create and exec, from the pool"])
        self.assertEqual("15.0 ms (p99 17.0), delete 3.0", labels["Caisson: create and exec, no pool"])
        self.assertEqual("60.0 ms (p99 70.0)", labels["runc run"])
        self.assertEqual("5.0 ms (p99 6.0)", labels["bwrap --unshare-all"])
        self.assertEqual("1.9 ms (p99 2.0)", labels["Caisson: exec"])
        self.assertEqual("35.0 ms (p99 40.0)", labels["runc exec"])
        self.assertEqual("0.8 ms (p99 0.9)", labels["fork, exec, wait"])
        all_text = " ".join(texts)
        for part in ("2026-11-18", "0123abc", "6.1.0-41-amd64", '2 x A <fast> & "new" one', "runc version 1.1.5", "bubblewrap 0.8.0"):
            self.assertIn(part, all_text)
        self.assertNotIn("Not measured", all_text)

    def test_bars_have_one_scale(self):
        root, _ = self.draw()
        bars = [float(item.get("width")) for item in root.iter(SVG + "rect") if item.get("class") in ("caisson", "peer")]
        medians = [7000, 15000, 60000, 5000, 1900, 35000, 800]
        self.assertEqual(len(medians), len(bars))
        for bar, value in zip(bars, medians):
            self.assertAlmostEqual(value / 60000, bar / max(bars), delta=0.001)

    def test_nothing_overlaps_or_leaves_the_picture(self):
        # The longest bar with the longest label, and a processor with a long name.
        self.result["samples"]["cycle: create"] = [123456, 234567]
        self.result["machine"]["cpu"] = "A Processor With A Long Name " * 5
        root, _ = self.draw()
        width, height = map(float, root.get("viewBox").split()[2:])
        lines = {}
        for item in root.iter(SVG + "text"):
            # DejaVu Sans, a wide font, is at most 0.6 em wide on average.
            size, x, y = 0.6 * (12 if "small" in item.get("class", "") else 13) * len(item.text), float(item.get("x")), float(item.get("y"))
            left = x - {"end": size, "middle": size / 2}.get(item.get("text-anchor"), 0)
            self.assertTrue(0 <= left and left + size <= width and 0 < y < height, item.text)
            lines.setdefault(y, []).append((left, left + size))
        for spans in lines.values():
            spans.sort()
            for before, after in zip(spans, spans[1:]):
                self.assertLessEqual(before[1], after[0])
        self.assertTrue(all(later - earlier >= 13 for earlier, later in zip(sorted(lines), sorted(lines)[1:])), sorted(lines))

    def test_what_was_not_measured(self):
        for name in ("runc run", "runc exec"):
            del self.result["samples"][name]
        self.result["machine"].update(runc=None, commit=None)
        _, texts = self.draw()
        self.assertIn("Not measured: runc run, runc exec.", texts)
        self.assertIn("commit unknown", " ".join(texts))
        self.assertNotIn("runc run", texts)
        self.result["samples"] = {"runc run": [1000]}
        with self.assertRaises(ValueError):
            chart.draw(self.result)

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as top:
            result = subprocess.run([os.path.join(TOP, "tests/bench/chart.py"), top + "/none.json", top + "/chart.svg"], capture_output=True, text=True)
            self.assertEqual((1, True), (result.returncode, "make bench" in result.stderr), result.stderr)
            self.assertEqual([], os.listdir(top))

    def test_pictures_of_the_documentation(self):
        for name in ("architecture.svg", "latency.svg"):
            path = os.path.join(TOP, "docs", name)
            self.assertEqual(SVG + "svg", tree.parse(path).getroot().tag)
            self.assertLess(os.path.getsize(path), 10 * 1024, name)
        with open(os.path.join(TOP, "docs/latency.svg"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\d{4}-\d\d-\d\d, commit [0-9a-f]{7}")


if __name__ == "__main__":
    unittest.main()
