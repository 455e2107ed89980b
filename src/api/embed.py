#!/usr/bin/env python3
"""Turns a JSON file into a C file, so that the binary serves exactly what the repository says.

Usage: embed.py openapi.json openapi_json.c [NAME HEADER]
NAME is the array's, openapi_json unless given; HEADER declares it and NAME_size.
"""
import json
import sys

name, header = sys.argv[3:5] if len(sys.argv) > 4 else ("openapi_json", "api/openapi.h")
with open(sys.argv[1], encoding="utf-8") as source:
    data = json.dumps(json.load(source), separators=(",", ":"), ensure_ascii=False).encode()
with open(sys.argv[2], "w", encoding="ascii") as target:
    target.write(f'#include "{header}"\n\nconst char {name}[] = {{\n')
    for at in range(0, len(data), 24):
        target.write("\t" + "".join(f"{byte:d}," for byte in data[at : at + 24]) + "\n")
    target.write(f"\t0}};\nconst size_t {name}_size = sizeof({name}) - 1;\n")
