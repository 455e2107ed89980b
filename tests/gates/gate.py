"""What the gates share: the project's own files, and how to fail."""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The init goes through compilers that compile_commands.json does not list.
INIT_FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", '-DCAISSON_VERSION=""', "-Os", "-Isrc", "-Wall", "-Wextra", "-Wshadow",
              "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wswitch-enum", "-Wvla", "-Wformat=2", "-Wno-format-truncation",
              "-Wno-missing-field-initializers"]


def files(*patterns):
    """The files that git tracks, or would, below the top."""
    os.chdir(TOP)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in listed if name and os.path.exists(name)]


def fail(*lines):
    for line in lines:
        print("#", line)
    sys.exit(1)
