"""The init is static, and at most 150,000 bytes: its size in November 2026, 149,768 stripped, rounded up.

Each sandbox runs it, each gVisor sandbox has a copy of its own, and so will each VM. A call that brings another part of the
C library in cannot be seen in a diff: it fails here. What the init learns may raise the bound, with a reason in the
commit."""
import os
import sys

from gate import TOP, fail

path = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build", "caisson-init")
data = open(path, "rb").read()
SIZE_MAX = 150_000
if len(data) > SIZE_MAX:
    fail(f"caisson-init has {len(data)} bytes (at most {SIZE_MAX})")
# A program interpreter is what a static program does not have.
if b"/ld-linux" in data or b"/ld-musl" in data:
    fail("caisson-init is not static")
