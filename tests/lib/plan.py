"""Decides which test runs where, for each command. A place is a build and a column: (build, column). Everything else
(builds, gates, unit tests, corpora) is in tests/run.

  check   the normal build as root, without tests that are marked long
  test    the tests that a submission must pass; each suite on the most useful build and columns
  all     every suite, wherever it can run"""
import columns

LEVELS = ("check", "test", "all")
# Suites of tests/sandbox for the sanitized build: they test the init with its parsers and processes.
SANITIZED_SANDBOX = ("sandbox init", "sandbox exec", "sandbox files")
# Suites for which a column does not only change limits, but the way in which a sandbox is made.
BOUNDARY = ("sandbox isolation", "sandbox init", "sandbox exec", "sandbox volumes")
# Suites that act as clients of a daemon: in "all" they run under stalls (tests/lib/stall.py), on the sanitized build without.
STALLED_KINDS = ("api", "cli", "compat", "mcp")
# Suites and columns in tests/machine: of "test", then the additions of "all". It is emulated, so no slow or measuring suites.
MACHINE = [("sandbox cgroups", "root"), ("sandbox pause", "root"), ("sandbox limits", "root"), ("machine systemd", "root")]
MACHINE_ALL = MACHINE + [("sandbox " + name, "root") for name in ("isolation", "init", "exec", "files", "volumes", "rootless")] + [
    ("escape escape", "root"), ("sandbox cgroups", "subuid"), ("sandbox limits", "subuid")]


def places(suite, source, level):
    """The places where a suite runs."""
    kind, only = suite.split(" ")[0], source.runs_on
    if only == "fault":
        return [] if level == "check" else [("fault", "root")]
    if level == "check":
        return [("normal", "root")]
    found = []
    if only == "normal" or kind == "sandbox" or level == "all":
        found.append(("normal", "root"))
    if only != "normal" and (kind != "sandbox" or suite in SANITIZED_SANDBOX or level == "all"):
        found.append(("asan", "root"))
    if kind == "sandbox":
        found += [("normal", column) for column in columns.COLUMNS
                  if (column == "subuid" or suite in BOUNDARY or level == "all") and source.runs_as in (None, column)]
    return found


def left_out(level, column="root", emulated=False):
    """Marks whose tests are left out there."""
    marks = {"check": {"long", "thorough"}, "test": {"thorough"}, "all": set()}[level]
    if column != "root" and level != "all":
        marks |= {"column_independent"}
    if emulated:
        marks |= {"heavy"} if level == "all" else {"heavy", "long"}
    return frozenset(marks)


def is_stalled(suite, source, build, column, load, level):
    return level == "all" and (load == "waits" or load == "busy" and source.stalled) and (build, column) == ("normal", "root") and suite.split(" ")[0] in STALLED_KINDS


def machine_suites(level):
    return {"check": [], "test": MACHINE, "all": MACHINE_ALL}[level]


def label(build, column, emulated=False):
    """The text after a test's name when it runs there."""
    words = ["v2"] if emulated else []
    words += [build] if build == "asan" else []
    words += [column] if column != "root" else []
    return f" [{' '.join(words)}]" if words else ""


def load_of(marks):
    return "alone" if "alone" in marks else "busy" if "busy" in marks else "waits"
