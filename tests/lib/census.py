"""tests/census: where each test runs, made of the marks and of plan.py. `tests/run --census` writes it; a gate sees that it
is true, so that a change which moves a test, or takes one away, shows what it moves."""
import marks
import plan

HEAD = """# Where each test runs: name | make check | make test | make test-all. Made by `tests/run --census`.
"""
# Whatever else is moved to save time, these are run for every submission.
ALWAYS = ("escape ", "fault kill_points", "fault store_faults", "fault upgrade", "sandbox isolation", "api openapi", "api generated", "api foreign")


def place_names(suite, source, of_test, level):
    found = [column if column != "root" else build for build, column in plan.places(suite, source, level)
             if not of_test & plan.left_out(level, column)] if not suite.startswith("machine ") else []
    found += ["v2" if column == "root" else f"v2-{column}" for name, column in plan.machine_suites(level)
              if name == suite and not of_test & plan.left_out(level, column, True)]
    return " ".join(found) or "-"


def lines(top):
    found = []
    for suite, source in marks.read(top).items():
        for test, of_test in source.tests.items():
            found.append(" | ".join([f"{suite} {test}", *(place_names(suite, source, of_test, level) for level in plan.LEVELS)]))
    return sorted(found)


def never_tested(found):
    """Tests of ALWAYS that `make test` would leave out, and what of it has no test at all."""
    gone = [prefix for prefix in ALWAYS if not any(line.startswith(prefix) for line in found)]
    return gone + [line for line in found if line.startswith(ALWAYS) and line.split(" | ")[2] == "-"]
