"""tests/census: where each test runs, made of the marks and of plan.py. `tests/run --census` writes it; a gate sees that it
is true, so that a change which moves a test, or takes one away, shows what it moves."""
import marks
import plan

HEAD = """# Where each test runs: name | make check | make test | make test-all. Made by `tests/run --census`.
"""
# Whatever else is moved to save time, these always run in these places: level, places, how the names begin.
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
    """What of ALWAYS a level leaves out, or runs elsewhere only, and what of it has no test at all."""
    wrong = []
    for level, places, *prefixes in ALWAYS:
        for prefix in prefixes:
            tests = [line for line in found if line.startswith(prefix)]
            wrong += [line for line in tests if set(places.split()) - set(line.split(" | ")[1 + plan.LEVELS.index(level)].split())]
            wrong += [] if tests else [prefix]
    return wrong
