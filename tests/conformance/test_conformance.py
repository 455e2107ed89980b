"""The protocol's own conformance suite (@modelcontextprotocol/conformance) against real daemons: one with its fixtures
(`caisson-mcp-fixtures serve`), where everything must pass, and one without, where every scenario passes that asks for
nothing by name. No list of expected failures is given to it; a warning is a failure here, and what it skips is named.
The suite speaks HTTP and can send no token: forwarder.py adds it. It is installed once (npm.py)."""
import glob
import json
import os
import re
import subprocess
import tempfile
import time
import unittest

from caisson import MCP_FIXTURES, Daemon
from forwarder import Forwarder
import npm

PACKAGES = "tests/conformance"
# What it covers of the program tests/mcp covers on the sanitized build.
RUNS_ON = "normal"
MARKS = ("busy", "long")
MAKES_TESTS = True  # one per scenario
LIMIT = 300  # of one run of the suite
SCENARIO_LIMIT_MS = 30000

BOTH_ERAS = """completion-complete tools-list tools-call-simple-text tools-call-image tools-call-audio
    tools-call-embedded-resource tools-call-mixed-content tools-call-error tools-call-with-progress resources-list
    resources-read-text resources-read-binary resources-templates-read prompts-list prompts-get-simple
    prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image""".split()
MODERN = BOTH_ERAS + """server-stateless server-sse-multiple-streams sep-2164-resource-not-found dns-rebinding-protection
    caching input-required-result-basic-elicitation input-required-result-basic-sampling
    input-required-result-basic-list-roots input-required-result-request-state
    input-required-result-multiple-input-requests input-required-result-multi-round
    input-required-result-missing-input-response input-required-result-non-tool-request
    input-required-result-result-type input-required-result-unsupported-methods input-required-result-tampered-state
    input-required-result-capability-check input-required-result-ignore-extra-params
    input-required-result-validate-input""".split()
MODERN_PENDING = ["json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"]
TASKS = """tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal tasks-mrtr-input
    tasks-request-headers tasks-dispatch-and-envelope tasks-status-notifications tasks-required-task-error
    tasks-mrtr-composition""".split()
# Since 2025-06-18, which is the oldest with more than the life of a session.
OLDER = BOTH_ERAS + """server-initialize server-session-lifecycle logging-set-level ping tools-call-with-logging
    tools-call-sampling tools-call-elicitation resources-subscribe resources-unsubscribe""".split()
LEGACY = OLDER + """elicitation-sep1034-defaults elicitation-sep1330-enums server-sse-multiple-streams
    dns-rebinding-protection""".split()
LEGACY_PENDING = ["json-schema-2020-12", "server-sse-polling"]

# Checks that the suite itself leaves out, and why.
SKIPPED = {
    "tasks-status-notifications": {
        "tasks-status-notifications": "the suite's harness for it is not written yet; tests/mcp listens to tasks"},
}

RUNS = {
    "2026-07-28": (["--requirements", "2026-07-28"], MODERN + MODERN_PENDING + TASKS),
    "2025-11-25": (["--requirements", "2025-11-25"], LEGACY + LEGACY_PENDING),
    "2025-06-18": (["--suite", "all", "--spec-version", "2025-06-18"], OLDER),
    "2025-03-26": (["--suite", "all", "--spec-version", "2025-03-26"], ["server-session-lifecycle"]),
}


class Suite(unittest.TestCase):
    """Runs them once for all tests of a class. `checks` is then {(run, scenario): [check]}."""
    program = None

    @classmethod
    def setUpClass(cls):
        modules = npm.installed(PACKAGES)
        command = [npm.node(modules), os.path.join(modules, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
                   "server", "--timeout", str(SCENARIO_LIMIT_MS)]
        cls.exits, cls.said, cls.checks = {}, {}, {}
        began = time.monotonic()
        with Daemon(program=cls.program) as daemon, Forwarder(daemon.port, daemon.token()) as forwarder, \
                tempfile.TemporaryDirectory(prefix="caisson-conformance-") as results:
            url = f"http://127.0.0.1:{forwarder.port}/mcp"
            for name, (options, _) in RUNS.items():
                out = os.path.join(results, name)
                result = subprocess.run([*command, "--url", url, *options, "-o", out], capture_output=True, text=True,
                                        errors="replace", timeout=LIMIT, stdin=subprocess.DEVNULL, cwd=results,
                                        env={"PATH": os.environ["PATH"], "HOME": results, "NO_COLOR": "1"})
                cls.exits[name], cls.said[name] = result.returncode, result.stdout + result.stderr
                for path in glob.glob(os.path.join(out, "server-*/checks.json")):
                    scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[-\d]+Z", os.path.basename(os.path.dirname(path)))
                    cls.checks[name, scenario.group(1)] = json.load(open(path, encoding="utf-8"))
        print(f"= {len(cls.checks)} scenarios in {time.monotonic() - began:.0f} s")

    def passes(self, run, scenario, without=()):
        """Every check of it but `without`, which must be among those that could not be made."""
        checks = self.checks.get((run, scenario))
        self.assertIsNotNone(checks, f"the suite has not run {scenario}:\n{self.said[run][-500:]}")
        untested = {check["id"] for check in checks
                    if check["status"] == "SKIPPED" or check.get("errorMessage", "").startswith("Not testable: ")}
        self.assertEqual(set(without), untested)
        bad = [f"{check['status']} {check['id']}: {check.get('errorMessage')}" for check in checks
               if check["id"] not in without and check["status"] not in ("SUCCESS", "INFO")]
        self.assertEqual([], bad)
        self.assertTrue(without or any(check["status"] == "SUCCESS" for check in checks), "nothing of it was checked")


def add_test(suite, run, scenario, without=()):
    setattr(suite, f"test_{run.replace('-', '_')}_{scenario.replace('-', '_')}",
            lambda self: self.passes(run, scenario, without))


class Fixtures(Suite):
    """Everything."""
    program = MCP_FIXTURES

    def test_every_run_exits_with_0(self):
        self.assertEqual({name: 0 for name in RUNS}, self.exits)

    def test_nothing_else_was_run(self):
        self.assertEqual({(run, scenario) for run, (_, scenarios) in RUNS.items() for scenario in scenarios},
                         set(self.checks))


class Usual(Suite):
    """The server that users have: all that asks for nothing by name."""


# On the usual server, the scenarios that ask for nothing by name; of one of them a few checks do.
UNNAMED = """server-initialize server-session-lifecycle ping logging-set-level tools-list resources-list prompts-list
    server-sse-multiple-streams sep-2164-resource-not-found dns-rebinding-protection caching http-header-validation
    input-required-result-unsupported-methods server-stateless""".split()
UNNAMED_BUT = {
    "server-stateless": ["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                         "sep-2575-http-server-no-independent-requests-on-stream",
                         "sep-2575-server-no-log-without-loglevel",
                         # Its lists never change, and it does not say they would.
                         "sep-2575-server-sends-prompts-list-changed-on-subscription",
                         "sep-2575-server-sends-tools-list-changed-on-subscription"],
}
# The others, and what they cannot do without.
LEFT_OUT = {
    "tools called test_...": [name for name in MODERN + LEGACY if name.startswith(
        ("tools-call-", "elicitation-sep", "input-required-result-")) and name not in UNNAMED],
    "the tool test_reconnection": ["server-sse-polling"],
    "the tool json_schema_2020_12_tool": ["json-schema-2020-12"],
    "a tool with an argument that is also a header": ["http-custom-header-server-validation"],
    "tools called greet, slow_compute, failing_job, ...": TASKS,
    "resources at test://...": ["resources-read-text", "resources-read-binary", "resources-templates-read",
                                "resources-subscribe", "resources-unsubscribe"],
    "prompts called test_...": ["prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource",
                                "prompts-get-with-image", "completion-complete"],
}

for run_name, (_, names) in RUNS.items():
    for each in names:
        add_test(Fixtures, run_name, each, SKIPPED.get(each, {}).keys())
        if each in UNNAMED:
            add_test(Usual, run_name, each, UNNAMED_BUT.get(each, ()))
        elif not any(each in left_out for left_out in LEFT_OUT.values()):
            raise AssertionError(f"{each}: nothing says why it is left out on the usual server")

if __name__ == "__main__":
    unittest.main()
