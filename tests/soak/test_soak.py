"""The soak in its short form, with the same bounds as the long one."""
import json
import os
import subprocess
import tempfile
import unittest

from caisson import BUILD, TOP

MARKS = ("alone", "thorough")
# The sanitized build keeps what is freed.
RUNS_ON = "normal"


class Soak(unittest.TestCase):
    def test_short_form(self):
        with tempfile.TemporaryDirectory() as top:
            path = os.path.join(top, "soak.json")
            result = subprocess.run([os.path.join(TOP, "tests/soak/run"), BUILD, "--cycles", "300", "--seconds", "20", "--json", path],
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800)
            self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-2000:])
            data = json.load(open(path))
        self.assertEqual((data["grows"], data["wrong"]), ([], []))
        self.assertEqual(data["counts"]["cycles"]["delete"], data["counts"]["cycles"]["create"])
        self.assertGreater(data["counts"]["mixed"].get("kill -9 of the daemon", 0), 0)


if __name__ == "__main__":
    unittest.main()
