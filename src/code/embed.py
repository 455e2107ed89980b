#!/usr/bin/env python3
"""Turns the drivers into one C file: the daemon hands them to the interpreters in a sandbox.

Usage: embed.py drivers.c driver.py driver.js driver.sh

A line `// embed: FILE` of a driver is replaced by that file beside it.
"""
import os
import re
import sys


def read(path):
    with open(path, "rb") as source:
        return source.read()


NAMES = {".py": "python", ".js": "node", ".sh": "bash"}
with open(sys.argv[1], "w", encoding="ascii") as target:
    target.write('#include "core/code/code_private.h"\n')
    for path in sys.argv[2:]:
        data = read(path)
        data = re.sub(rb"(?m)^ *// embed: (\S+)\n", lambda part: read(os.path.join(os.path.dirname(path).encode(), part[1])), data)
        name = NAMES[os.path.splitext(path)[1]]
        target.write(f"\nconst char code_driver_{name}[] = {{\n")
        for at in range(0, len(data), 24):
            target.write("\t" + "".join(f"{byte:d}," for byte in data[at : at + 24]) + "\n")
        target.write("\t0};\n")
