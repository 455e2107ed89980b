#!/usr/bin/env python3
"""Turns a dialect's JSON file into a C header, so that its table of tools needs only names, scopes and handlers.

Usage: embed_tools.py opensandbox.json opensandbox_tools.h
For each tool the header has LISTED_name: what a client is told about it, as members of a struct mcp_tool. LISTED_COUNT
is the number of tools. A schema names the shared definitions that it needs; they are copied into it here.
"""
import json
import sys


def c_string(text):
    # These escapes are the same in C.
    literal = json.dumps(text)
    if "\\u" in literal:
        sys.exit(f"only ASCII without control characters can be embedded: {literal}")
    return literal


def compact(value):
    return c_string(json.dumps(value, separators=(",", ":")))


with open(sys.argv[1], encoding="utf-8") as source:
    dialect = json.load(source)
with open(sys.argv[2], "w", encoding="ascii") as target:
    target.write(f"#pragma once\n\n#define LISTED_COUNT {len(dialect['tools'])}\n")
    for tool in dialect["tools"]:
        members = {"name": c_string(tool["name"]), "description": c_string(tool["description"]),
                   "example": compact(tool["example"])}
        for key, member in (("inputSchema", "input"), ("outputSchema", "output")):
            if key in tool:
                schema = tool[key]
                if "$defs" in schema:
                    schema["$defs"] = {name: dialect["$defs"][name] for name in schema["$defs"]}
                members[member] = compact(schema)
        values = ", ".join(f".{member} = {value}" for member, value in members.items())
        target.write(f"#define LISTED_{tool['name']} {values}\n")
