"""@pandastack/sdk, unmodified, as npm has it, against a real daemon; pandastack.mjs has the steps."""
import json
import os
import subprocess
import unittest

from caisson import DaemonTest
from npm import installed

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = "tests/compat"
MARKS = ("busy", "long")
STALLED = True
LIMIT = 240


class Pandastack(DaemonTest):
    config = "[templates]\nsubstitute = yes\n"

    def test_everything(self):
        environment = {**os.environ, "COMPAT_MODULES": installed(PACKAGES), "PANDASTACK_API": f"http://127.0.0.1:{self.daemon.port}",
                       "PANDASTACK_API_KEY": self.daemon.token(), "HOME": self.daemon.top}
        steps = open(os.path.join(HERE, "pandastack.mjs")).read().count("\n  async ")
        result = subprocess.run(["node", os.path.join(HERE, "pandastack.mjs")], capture_output=True, text=True, timeout=LIMIT,
                                env=environment)
        seen = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        for step in seen:
            with self.subTest(step["step"]):
                self.assertTrue(step["ok"], step.get("error"))
        self.assertEqual((result.returncode, len(seen)), (0, steps), result.stdout + result.stderr)
        print(f"= {len(seen)} steps of the SDK")


if __name__ == "__main__":
    unittest.main()
