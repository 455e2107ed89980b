"""Marks beside a test tell the scheduler how to run it (docs/testing.md):

  @long                 takes seconds: left out by `make check`
  @thorough             run only by `make test-all`
  @busy                 keeps a processor busy for seconds
  @alone                needs the machine for itself: it measures, or looks at the whole host
  @column_independent   its outcome does not depend on the daemon's user: other columns only in `make test-all`
  @heavy                left out if the processor is emulated (tests/machine)

A mark belongs on a test or on a class of tests; anywhere else it is an error. For all of its tests a file can set:

  MARKS = ("busy",)            marks
  RUNS_ON = "normal"           the only build that they run on (or "fault")
  RUNS_AS = "root"             the only column
  PACKAGES = "tests/compat"    the folder of the npm packages that they drive
  OLDER_PROGRAM = True         they need the program of an earlier landing (older.py)
  STALLED = True               its busy tests also pass under stalls, and `make test-all` runs them so
  MAKES_TESTS = True           some tests are made at import time, and cannot be found here

This module parses files without importing them, so that tests/run can plan a whole run quickly. So each of these must
be a plain name or a literal."""
import ast
import os

NAMES = ("long", "thorough", "busy", "alone", "column_independent", "heavy")
BASES = ("TestCase", "OwnDaemons", "DaemonTest", "FaultTest", "ClockTest", "McpTest")  # base classes of tests in tests/lib


def mark(name):
    def decorate(target):
        target.marks = frozenset(getattr(target, "marks", ())) | {name}
        return target
    return decorate


long, thorough, busy, alone, column_independent, heavy = map(mark, NAMES)


def of_test(test, module):
    """The marks of a unittest.TestCase that is about to run."""
    marks = set(getattr(module, "MARKS", ()))
    for owner in (*type(test).__mro__, getattr(test, test._testMethodName)):
        marks |= set(vars(owner).get("marks", ()))
    return frozenset(marks)


def decorators(node):
    return {item.id for item in getattr(node, "decorator_list", ()) if isinstance(item, ast.Name) and item.id in NAMES}


def assigned(body, name):
    """The literal that a module or class assigns to a name, or None."""
    for node in body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return ast.literal_eval(node.value)
    return None


class Source:
    """The tests of one file, {"Class.test": marks}, and the settings of the file."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
        self.common = frozenset(assigned(tree.body, "MARKS") or ())
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.tests, takes_marks = {}, set()
        deleted = {target.id for node in tree.body if isinstance(node, ast.Delete) for target in node.targets}  # only a base class
        for name, node in self.classes.items():
            if self.is_test_case(node) and name not in deleted:
                for test, marks in self.methods(node, takes_marks).items():
                    self.tests[f"{name}.{test}"] = marks | self.common
        # Marks without effect: on a helper, or on a class without tests.
        self.misplaced = [f"{path}:{node.lineno}: {node.name} is no test and no class of tests: it takes no mark ({', '.join(sorted(decorators(node)))})"
                          for node in ast.walk(tree) if decorators(node) and node not in takes_marks]
        self.runs_on = assigned(tree.body, "RUNS_ON")    # the only build that it runs on
        self.runs_as = assigned(tree.body, "RUNS_AS")    # the only column
        self.packages = assigned(tree.body, "PACKAGES")  # the folder with the package.json of the clients that it runs
        self.stalled = bool(assigned(tree.body, "STALLED"))
        self.older = bool(assigned(tree.body, "OLDER_PROGRAM"))

    def is_test_case(self, node):
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if name in BASES or (name in self.classes and self.is_test_case(self.classes[name])):
                return True
        return False

    def methods(self, node, takes_marks):
        """The tests of a class, including those of its base classes in this file. `takes_marks`: collects the nodes on
        which marks are valid."""
        found, marks = {}, decorators(node)
        for base in node.bases:
            if getattr(base, "id", "") in self.classes:
                found.update(self.methods(self.classes[base.id], takes_marks))
        takes_marks.add(node)
        found = {name: of_base | marks for name, of_base in found.items()}
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name.startswith("test"):
                takes_marks.add(item)
                found[item.name] = frozenset(decorators(item) | marks)
        return found


def read(top):
    """{"kind name": Source} of every suite below tests/."""
    found = {}
    for kind in sorted(os.listdir(os.path.join(top, "tests"))):
        folder = os.path.join(top, "tests", kind)
        if os.path.isdir(folder):
            for file in sorted(os.listdir(folder)):
                if file.startswith("test_") and file.endswith(".py"):
                    found[f"{kind} {file[5:-3]}"] = Source(os.path.join(folder, file))
    return found
