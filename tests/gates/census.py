"""tests/census says where each test runs, and what must be run for every submission is."""
import difflib
import os
import sys

from gate import TOP, fail

sys.path.insert(0, os.path.join(TOP, "tests/lib"))
import census  # noqa: E402 (its place is known now)
import marks  # noqa: E402

misplaced = [text for source in marks.read(TOP).values() for text in source.misplaced]
if misplaced:
    fail(*misplaced)
now = census.lines(TOP)
with open(os.path.join(TOP, "tests/census"), encoding="utf-8") as file:
    written = [line for line in file.read().splitlines() if not line.startswith("#")]
if now != written:
    fail("tests were added, removed or moved; if that is meant: tests/run --census",
         *(line for line in difflib.unified_diff(written, now, "tests/census", "the tests", n=0, lineterm="")))
moved = census.moved_away(now)
if moved:
    fail("these must always run in the places that census.py names:", *moved)
