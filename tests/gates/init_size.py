"""The init is in every sandbox: at most 150 KB, and static."""
import os
import sys

from gate import TOP, fail

path = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build", "caisson-init")
data = open(path, "rb").read()
if len(data) > 150_000:
    fail(f"caisson-init has {len(data)} bytes (at most 150000)")
# A program interpreter is what a static program does not have.
if b"/ld-linux" in data or b"/ld-musl" in data:
    fail("caisson-init is not static")
