"""The whole program compiles without a single warning, with the warnings of CONTRIBUTING.md as errors."""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from gate import TOP, fail

build = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build")
commands = [entry for entry in json.load(open(os.path.join(build, "compile_commands.json")))
            if os.path.relpath(os.path.join(build, entry["file"]), TOP).startswith("src/")]


def compile_one(entry):
    words = [word for word in shlex.split(entry["command"])]
    at = words.index("-o")
    del words[at:at + 2]
    extra = ["-Werror", "-fsyntax-only"]
    source = os.path.relpath(os.path.join(build, entry["file"]), TOP)
    if source.startswith(("src/proto/", "src/vmm/")):
        extra.append("-Wconversion")
    result = subprocess.run(words + extra, cwd=entry["directory"], capture_output=True, text=True)
    return [line for line in result.stderr.splitlines() if "error:" in line or "warning:" in line][:5] \
        if result.returncode else []


with ThreadPoolExecutor(os.cpu_count()) as pool:
    wrong = [line for lines in pool.map(compile_one, commands) for line in lines]
if not commands:
    fail("no source was compiled: is the build directory right?")
if wrong:
    fail(*wrong[:30])
