"""tests/census lists where each test runs, according to the marks and plan.py. `tests/run --census` writes it. A gate
checks that it is up to date, so that a change that moves or removes a test shows it."""
import marks
import plan

HEAD = """# Where each test runs: name | make check | make test | make test-all. Made by `tests/run --census`.
"""
# These tests must always run in these places: level, places, prefixes of the names.
ALWAYS = (
    ("test", "normal", "escape "),
    ("test", "fault", "fault kill_points ", "fault store_faults "),
    ("test", "asan", "fault upgrade ", "fault init_killed ", "fault everything_killed ", "api openapi ", "api generated ", "api foreign "),
    ("test", "normal", "fault upgrade_from "),
    ("test", "normal subuid one-id enosys", "sandbox isolation ", "sandbox volumes Programs.test_the_probe_"),
    ("all", "normal subuid one-id enosys", "sandbox gvisor Gvisor.test_the_manifest_of_escapes"),
)


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


def moved_away(found):
    """The tests of ALWAYS that a level leaves out or runs only elsewhere, and the prefixes of ALWAYS without any
    test."""
    wrong = []
    for level, places, *prefixes in ALWAYS:
        for prefix in prefixes:
            tests = [line for line in found if line.startswith(prefix)]
            wrong += [line for line in tests if set(places.split()) - set(line.split(" | ")[1 + plan.LEVELS.index(level)].split())]
            wrong += [] if tests else [prefix]
    return wrong
