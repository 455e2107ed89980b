"""Compares the probe's results with tests/escape/manifest.json, for the suites. `caisson selftest --escape` does the
same for a user (src/cli/selftest/inside.c). The suites also test sandboxes with folders, which the selftest does not
make."""
import contextlib
import glob
import json
import os

from caisson import BUILD, COLUMN, TOP

PROBE = os.path.join(BUILD, "caisson-probe")
MANIFEST = os.path.join(TOP, "tests/escape/manifest.json")

# The group of the selftests that this process starts, and of their folders in /tmp: other processes run selftests too.
GROUP = 2**29 + os.getpid() if os.geteuid() == 0 else os.getegid()


def selftest_folders():
    """The folders of our selftests that run now."""
    found = set()
    for path in glob.glob("/tmp/caisson-selftest-*"):
        with contextlib.suppress(FileNotFoundError):
            found |= {path} if os.stat(path).st_gid == GROUP else set()
    return found


def items(*sides):
    """The items that some program tries, by id."""
    with open(MANIFEST, encoding="utf-8") as file:
        listed = json.load(file)["items"]
    return {item["id"]: item for item in listed if "not_yet" not in item and (not sides or item["side"] in sides)}


def expectation(item, user, nested=False, folder=False, rights="root"):
    others = item.get("rights", {})
    if nested and rights + " nested" in others:
        return others[rights + " nested"]
    if rights in others:
        return others[rights]
    if folder and "folder" in item:
        return item["folder"]
    if nested and "nested" in item:
        return item["nested"]
    return item.get("expect_as", {}).get(user, item["expect"])


def fits(result, expected):
    if isinstance(expected, list):
        return any(fits(result, one) for one in expected)
    # A missing system call fails for everybody.
    if COLUMN == "enosys" and (result, expected) == ("refused ENOSYS", "done"):
        return True
    return expected in ("*", result) or (expected == "refused" and result.startswith("refused "))


def breaches(output, user="0", **setting):
    """The results of the probe that contradict the manifest, and the number of attempts."""
    wrong, count, listed = [], 0, items("inside")
    for line in output.splitlines():
        name, _, result = line.partition(" ")
        count += 1
        if name not in listed:
            wrong.append(f"{name} is in no manifest")
        elif result != "untried" and int(user) in listed[name]["users"]:
            expected = expectation(listed[name], user, **setting)
            if not fits(result, expected):
                wrong.append(f"{name}: {result}, expected {expected}")
    return wrong, count
