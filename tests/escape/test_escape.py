"""The manifest of escapes: that it is whole, that everything in it is tried, that everything holds, and
that something which does not hold is seen."""
import glob
import json
import os
import platform
import re
import resource
import subprocess
import tempfile
import threading
import unittest

import escape
from caisson import TOP, DaemonTest, wait_until
from marks import busy, long
from runsc import needs_gvisor

RUNS_ON = "normal"
SIDES = {
    "inside": {"users", "expect"},
    "files": {"expect"},
    "client": {"expect"},
    "limit": {"expect"},
    "suite": set(),
}
KNOWN = {"id", "side", "tiers", "attempt", "users", "expect", "expect_as", "nested", "folder", "rights", "machine",
         "limit", "slow", "gvisor", "test", "not_yet", "source"}
OUTCOME = r"done|held|stopped|ended|\*|refused( E[A-Z0-9]+)?|killed (SIGSYS|\d+)"


class Manifest(unittest.TestCase):
    def test_form(self):
        with open(escape.MANIFEST, encoding="utf-8") as file:
            manifest = json.load(file)
        seen = set()
        for item in manifest["items"]:
            with self.subTest(item["id"]):
                self.assertNotIn(item["id"], seen)
                seen.add(item["id"])
                self.assertLessEqual(set(item), KNOWN)
                self.assertGreaterEqual(set(item), {"id", "side", "tiers", "attempt", "source"} | SIDES[item["side"]])
                self.assertTrue(item["attempt"] and item["source"])
                self.assertTrue(item["tiers"] or item["not_yet"])
                wanted = [item.get(key, []) for key in ("expect", "nested", "folder")]
                wanted += [*item.get("expect_as", {}).values(), *item.get("rights", {}).values()]
                differs = item.get("gvisor", {})
                self.assertLessEqual(set(differs), {"expect", "limit"})
                self.assertTrue("gvisor" in item["tiers"] or not differs)
                wanted.append(differs.get("expect", []))
                for value in wanted:
                    for one in value if isinstance(value, list) else [value]:
                        self.assertRegex(one, f"^({OUTCOME})$")

    def test_named_tests_exist(self):
        for name, item in escape.items("suite").items():
            with self.subTest(name):
                path, _, test = item["test"].partition(":")
                with open(os.path.join(TOP, path), encoding="utf-8") as file:
                    self.assertRegex(file.read(), f"def {test}\\(" if path.endswith(".py") else f"TEST\\({test}\\)")

    def test_every_item_has_an_attempt_and_every_attempt_an_item(self):
        """Of the probe; `caisson selftest` says the same of what is tried from outside."""
        out = subprocess.run([escape.PROBE, "--list"], capture_output=True, text=True, timeout=20, check=True).stdout
        tried = {"flood_" + line[6:] if line.startswith("flood ") else line for line in out.splitlines()}
        listed = {name for name, item in escape.items("inside", "limit").items()
                  if item.get("machine", platform.machine()) == platform.machine()}
        self.assertEqual(len(tried), len(out.splitlines()), "a name is there twice")
        self.assertEqual((tried - listed, listed - tried), (set(), set()))

    def test_the_probe_sees_a_breach(self):
        """Outside there is no sandbox: a file of the host's is there, and RLIMIT_CORE can be changed."""
        names = ["marker_of_host", "core_limit", "inherited_descriptors", "fifo"]
        with tempfile.TemporaryDirectory() as top:
            out = subprocess.run([escape.PROBE, *names], capture_output=True, text=True, timeout=60, check=True,
                                 cwd=top, env={"PROBE_MARKER": escape.MANIFEST},
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))).stdout
        self.assertEqual(out.splitlines(), ["core_limit done", "inherited_descriptors refused ENOENT",
                                            "marker_of_host done", "fifo done"])
        wrong, count = escape.breaches(out)
        self.assertEqual((len(wrong), count), (2, 4), wrong)


class Selftest(DaemonTest):
    maxDiff = None

    def selftest(self, *arguments, tier="namespace"):
        code, out, err = self.daemon.cli("selftest", "--escape", "--json", "--isolation", tier, *arguments, timeout=600, group=escape.GROUP)
        self.assertTrue(out, err)
        found = json.loads(out)[tier]
        self.assertFalse(os.path.exists(os.path.dirname(os.path.dirname(found["marker"]))))
        self.assertEqual(self.api.get("/v1/sandboxes")["items"], [])
        return code, found

    def plant(self, planted, failed):
        """Puts the marker of a selftest that has just begun into its sandboxes, each as soon as it runs, as if they showed
        the host."""
        def four():
            for box in self.api.get("/v1/sandboxes")["items"]:
                if box["status"] != "running" or box["id"] in planted:
                    continue
                for marker in [path for folder in escape.selftest_folders() for path in glob.glob(folder + "/*/marker")]:
                    with open(marker, "rb") as file:
                        self.api.write(box["id"], marker, file.read(), parents=1)
                planted.add(box["id"])
            return len(planted) >= 4
        try:
            wait_until(four, 60, what="four sandboxes")
        except Exception as error:  # of a thread: told where it counts
            failed.append(error)

    def holds(self, tier, listed, *arguments):
        code, found = self.selftest(*arguments, tier=tier)
        failed = {name: item["failures"] for name, item in found["items"].items() if item["failures"]}
        self.assertEqual(failed, {})
        untried = {name: item["untried"] for name, item in found["items"].items() if not item["tried"]}
        for name, why in untried.items():
            self.assertIn(why, ("another kind of processor", "this host does not enforce that limit",
                                "a sandbox has one id only here"), name)
        self.assertEqual(set(found["items"]), set(listed))
        self.assertEqual((code, found["held"] + found["untried"]), (0, len(listed)))

    @long
    @busy
    def test_everything_holds(self):
        self.holds("namespace", escape.items("inside", "files", "client", "limit"))

    @needs_gvisor
    @long
    @busy
    def test_everything_holds_in_gvisor(self):
        """Without what is slow: tests/sandbox/test_gvisor.py tries that too."""
        with open(escape.MANIFEST, encoding="utf-8") as file:
            manifest = json.load(file)
        for item in manifest["items"]:
            if item.get("slow"):
                item["tiers"] = ["namespace"]
        listed = [item["id"] for item in manifest["items"] if "gvisor" in item["tiers"] and item["side"] != "suite"]
        self.assertGreater(len(listed), 200)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(manifest, file)
            file.flush()
            os.chmod(file.name, 0o644)
            self.holds("gvisor", listed, "--manifest", file.name)

    @busy
    @long
    def test_a_breach_is_reported(self):
        """With a manifest that expects something else, that lacks items and has some that nothing tries; and
        with sandboxes in which the file can be read that lies on the host."""
        with open(escape.MANIFEST, encoding="utf-8") as file:
            manifest = json.load(file)
        kept = [item for item in manifest["items"] if item["side"] in ("inside", "files") and item["id"] != "pidfd"]
        for item in kept:
            if item["id"] == "fifo":
                item["expect"] = "refused EPERM"
            if item["id"] == "bpf":
                item["expect"] = "done"
        invented = {"tiers": ["namespace"], "attempt": "-", "expect": "held", "source": "-"}
        kept += [{**invented, "id": "not_tried_inside", "side": "inside", "users": [0]},
                 {**invented, "id": "not_tried_outside", "side": "client"},
                 {**invented, "id": "flood_not_there", "side": "limit"}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"items": kept}, file)
            file.flush()
            os.chmod(file.name, 0o644)
            planted, wrong = set(), []
            planting = threading.Thread(target=self.plant, args=(planted, wrong))
            planting.start()
            code, found = self.selftest("--manifest", file.name)
            planting.join(90)
        self.assertEqual((wrong, len(planted)), ([], 4))
        failed = {name for name, item in found["items"].items() if item["failures"]}
        self.assertEqual(code, 1)
        self.assertLessEqual({"fifo", "bpf", "pidfd", "not_tried_inside", "not_tried_outside", "flood_not_there",
                              "kill_everything", "flood_memory", "file_read", "file_list", "file_grep"},
                             failed)
        self.assertNotIn("mount", failed)

    def test_words(self):
        code, _, err = self.daemon.cli("selftest")
        self.assertEqual(code, 125)
        self.assertIn("--escape", err)
        code, _, err = self.daemon.cli("selftest", "--escape", "--isolation", "vm")
        self.assertNotEqual(code, 0)
        self.assertIn("vm", err)


if __name__ == "__main__":
    unittest.main()
