"""Runs one unittest file. Prints a line "@{json}" per test, which tests/run counts, and one "%[json]" with the parts of
docs/openapi that it has used. A violation of that document fails the test that sent or received it (contract.py)."""
import argparse
import importlib.util
import json
import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import columns  # noqa: E402 (after sys.path is set)
import contract  # noqa: E402
import marks  # noqa: E402
import plan  # noqa: E402


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def against_contract(self, test):
        """Fails the test if the exchanges since the last check violate docs/openapi."""
        found = contract.take()
        if found:
            self.failures.append((test, ""))
            self.say(test, "bad", "against docs/openapi:\n" + "\n".join(found))
        return bool(found)

    def say(self, test, outcome, text=""):
        name = test.id().split(".", 1)[-1] if hasattr(test, "id") else str(test)
        print("@" + json.dumps({"name": name, "outcome": outcome, "text": text,
                                "seconds": time.monotonic() - getattr(self, "began", time.monotonic())}),
              flush=True)

    def other(self, test):
        """(reason, pattern) if the test must fail in this column (columns.py)."""
        test = getattr(test, "test_case", test)
        name = test.id().split(".", 1)[-1] if hasattr(test, "id") else ""
        return columns.other_outcome(f"{suite} {name}")

    def addSuccess(self, test):
        other = self.other(test)
        if self.against_contract(test):
            return
        if other:
            self.failures.append((test, ""))
            self.say(test, "bad", f"it must fail in column {columns.COLUMN}: {other[0]}")
        else:
            self.say(test, "ok")

    def failed(self, test, text, places):
        other = self.other(test)
        found = contract.take()
        if found and not other:
            text += "\nagainst docs/openapi:\n" + "\n".join(found)
        if other and (other[1](text) if callable(other[1]) else re.search(other[1], text)):
            places.pop()
            self.say(test, "ok")
        else:
            self.say(test, "bad", text)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed(test, self.failures[-1][1], self.failures)

    def addError(self, test, err):
        super().addError(test, err)
        self.failed(test, self.errors[-1][1], self.errors)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skip", reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            places = self.failures if issubclass(err[0], test.failureException) else self.errors
            self.failed(subtest, places[-1][1], places)


# A process that a shell starts in the background ignores SIGINT, and so would the processes that a test wants to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("path")
parser.add_argument("words", nargs="*", help="only tests that have one of these in their name")
parser.add_argument("--only", metavar="CLASS.TEST", help="this test alone")
parser.add_argument("--leave-out", default="", help="marks whose tests are left out, with commas between")
parser.add_argument("--load", help="only tests of this load: waits, busy or alone")
parser.add_argument("--times", type=int, default=1, help="how often to run them, one after the other")
parser.add_argument("--stall", action="store_true", help="with processes that stand still for two seconds (stall.py)")
options = parser.parse_intermixed_args()
suite = os.path.basename(options.path)[5:-3]
sys.path.insert(0, os.path.dirname(options.path))
spec = importlib.util.spec_from_file_location(os.path.basename(options.path)[:-3], options.path)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
loader = unittest.TestLoader()
if options.words:
    loader.testNamePatterns = [f"*{word}*" for word in options.words]
result = Result()


def each(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def is_chosen(test):
    of_test = marks.of_test(test, module)
    return (not of_test & set(options.leave_out.split(",")) and options.load in (None, plan.load_of(of_test)) and
            options.only in (None, test.id().split(".", 1)[-1]))


def chosen():
    return unittest.TestSuite(filter(is_chosen, each(loader.loadTestsFromModule(module))))


if not options.words and not options.only:
    loaded = {test.id().split(".", 1)[-1] for test in each(loader.loadTestsFromModule(module))}
    # columns.py must not list tests that no longer exist.
    wrong = {name: "columns.py lists it, and there is none" for name in {
        name.split(" ", 1)[1] for name in columns.others() if name.split(" ")[0] == suite} - loaded}
    # The plan and the census only include tests that marks.py can parse.
    if not hasattr(module, "MAKES_TESTS"):
        wrong |= {name: "marks.py does not see that this is a test" for name in loaded - marks.Source(options.path).tests.keys()}
    for name, text in wrong.items():
        print("@" + json.dumps({"name": name, "outcome": "bad", "text": text, "seconds": 0}))
        result.failures.append((None, ""))
if options.stall:
    import stall
    stall.start(os.getpid())
for _ in range(options.times):
    result._previousTestClass = None  # else unittest thinks that its class is set up already
    chosen().run(result)
if contract.violations:
    result.against_contract("the last tearDownClass")
# The operations of the document that were used, for tests/run.
print("%" + json.dumps([f"{method} {path} {status}" for method, path, status in contract.checked]))
sys.exit(0 if result.wasSuccessful() else 1)
