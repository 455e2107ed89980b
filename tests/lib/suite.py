"""Runs one unittest file and prints a line "@{json}" per test, which tests/run counts."""
import importlib.util
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def say(self, test, outcome, text=""):
        name = test.id().split(".", 1)[-1] if hasattr(test, "id") else str(test)
        print("@" + json.dumps({"name": name, "outcome": outcome, "text": text,
                                "seconds": time.monotonic() - getattr(self, "began", time.monotonic())}),
              flush=True)

    def addSuccess(self, test):
        self.say(test, "ok")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say(test, "bad", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.say(test, "bad", self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skip", reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.say(subtest, "bad", (self.failures + self.errors)[-1][1])


path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
loader = unittest.TestLoader()
if len(sys.argv) > 2:
    loader.testNamePatterns = [f"*{word}*" for word in sys.argv[2:]]
result = Result()
loader.loadTestsFromModule(module).run(result)
sys.exit(0 if result.wasSuccessful() else 1)
