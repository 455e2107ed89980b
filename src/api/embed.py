#!/usr/bin/env python3
"""Turns docs/openapi.json into a C file, so that the binary serves exactly what the repository says.

Usage: embed.py openapi.json openapi_json.c
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as source:
    data = json.dumps(json.load(source), separators=(",", ":"), ensure_ascii=False).encode()
with open(sys.argv[2], "w", encoding="ascii") as target:
    target.write('#include "api/openapi.h"\n\nconst char openapi_json[] = {\n')
    for at in range(0, len(data), 24):
        target.write("\t" + "".join(f"{byte:d}," for byte in data[at : at + 24]) + "\n")
    target.write("\t0};\nconst size_t openapi_json_size = sizeof(openapi_json) - 1;\n")
