"""What the builds do not see: clang's warnings, which are others, those for conversions in src/proto, and those of the init,
all as errors. (The sanitized build, that with fault points and that for 64-bit ARM end at gcc's warnings by themselves.)"""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from gate import INIT_FLAGS, TOP, fail, files

NOT_IN_CHECK = True
build = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build")
commands = [entry for entry in json.load(open(os.path.join(build, "compile_commands.json")))
            if os.path.relpath(os.path.join(build, entry["file"]), TOP).startswith("src/")]


def compile_one(entry):
    words = [word for word in shlex.split(entry["command"])]
    at = words.index("-o")
    del words[at:at + 2]
    extra = ["-Werror", "-fsyntax-only"]
    if is_strict(entry):
        extra.append("-Wconversion")
    result = subprocess.run(words + extra, cwd=entry["directory"], capture_output=True, text=True)
    return [line for line in result.stderr.splitlines() if "error:" in line or "warning:" in line][:5] \
        if result.returncode else []


def by_clang(entry):
    words = shlex.split(entry["command"])
    return {**entry, "command": shlex.join(["clang", *words[1:], "-Wno-unknown-warning-option"])}


def is_strict(entry):
    return os.path.relpath(os.path.join(build, entry["file"]), TOP).startswith("src/proto/")


commands = [by_clang(entry) for entry in commands] + list(filter(is_strict, commands))
# The init goes through musl-gcc and is not listed there: all of it, with the same warnings.
MULTIARCH = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
for source in files("src/init/*.c"):
    if not source.endswith("sanitize.c"):
        commands.append({"directory": TOP, "file": os.path.join(TOP, source), "command": shlex.join(
            ["musl-gcc", *INIT_FLAGS, "-I" + os.path.join(build, "tools"), "-idirafter", "/usr/include",
             "-idirafter", "/usr/include/" + MULTIARCH, "-c", source, "-o", "/dev/null"])})

with ThreadPoolExecutor(os.cpu_count()) as pool:
    wrong = [line for lines in pool.map(compile_one, commands) for line in lines]
if not commands:
    fail("no source was compiled: is the build directory right?")
if wrong:
    fail(*wrong[:30])
