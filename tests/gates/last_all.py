"""`make test-all` was run not long ago: fewer than 15,000 changed lines under src/ are newer than tests/last-all."""
import os
import re
import subprocess

from gate import TOP, fail

LINES_MAX = 15000


def git(*words):
    return subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True)


with open(os.path.join(TOP, "tests/last-all"), encoding="utf-8") as file:
    tested = re.search(r"^src ([0-9a-f]{40})$", file.read(), re.MULTILINE)
if not tested:
    fail("tests/last-all does not say which src/ was tested: run make test-all")
changes = git("diff-tree", "-r", "--numstat", tested.group(1), "HEAD:src")
if changes.returncode != 0:
    fail("git does not know the src/ that tests/last-all names: run make test-all", changes.stderr.strip())
lines = sum(int(number) for line in changes.stdout.splitlines() for number in line.split("\t")[:2] if number.isdigit())
if lines > LINES_MAX:
    fail(f"{lines} changed lines under src/ are newer than the last make test-all (at most {LINES_MAX}): run it")
