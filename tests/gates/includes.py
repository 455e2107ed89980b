"""Includes point downwards only; the folders are the architecture."""
import re

from gate import files, fail

# What each folder may include besides itself.
ALLOWED = {
    "base": set(),
    "proto": {"base"},
    # What a sandbox's PID 1 does while it is booted, whichever tier's it is.
    "boot": {"base", "proto"},
    "init": {"base", "proto", "boot"},
    "store": {"base", "proto"},
    "tier": {"base", "proto", "boot"},
    "core": {"base", "proto", "store"},
    "http": {"base"},
    "edge": {"base", "core", "http"},
    # REST and MCP stand side by side on the edge.
    # The store is core's; what rows look like comes with core's headers.
    "api": {"base", "proto", "core", "http", "edge"},
    "mcp": {"base", "proto", "core", "edge"},
    "spawner": {"base", "proto", "tier"},
    # Core and http come with the headers of the surfaces.
    "daemon": {"base", "proto", "edge", "api", "mcp"},
    "cli": {"base", "proto", "spawner", "store", "tier"},
}
# Within tier/ too: a tier stands in the jail, and may have a bridge to an init that is further in; neither knows a tier.
TIER_ALLOWED = {
    "jail": {"guest.h", "remove_tree.h"},
    "bridge": set(),
    "namespace": {"driver.h", "jail", "probe_boot.h"},
    "gvisor": {"driver.h", "jail", "bridge", "probe_boot.h"},
}
# Functions of a folder that is not to be called from another, though its types are known there.
UNCALLED = {folder: re.compile(r"\bstore_\w+\(") for folder in ("edge", "api", "mcp")}
wrong = []
unused = {(folder, other) for folder, others in ALLOWED.items() for other in others}
unused |= {("tier/" + folder, other) for folder, others in TIER_ALLOWED.items() for other in others}
for name in files("src/*.c", "src/*.h"):
    parts = name.split("/")
    if len(parts) < 3:
        continue
    folder = parts[1]
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        if folder in UNCALLED and UNCALLED[folder].search(line):
            wrong.append(f"{name}:{number}: {folder}/ may not call {UNCALLED[folder].search(line).group()})")
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match or "/" not in match.group(1):
            continue
        other, *rest = match.group(1).split("/")
        unused.discard((folder, other))
        if folder == other == "tier" and len(parts) > 3:
            unused.discard((f"tier/{parts[2]}", rest[0]))
            if rest[0] != parts[2] and rest[0] not in TIER_ALLOWED[parts[2]]:
                wrong.append(f"{name}:{number}: tier/{parts[2]}/ may not include {match.group(1)}")
        if other in ALLOWED and other != folder and other not in ALLOWED[folder]:
            wrong.append(f"{name}:{number}: {folder}/ may not include {match.group(1)}")
wrong += [f"{folder}/ may include {other} and does not: tests/gates/includes.py" for folder, other in sorted(unused)]
if wrong:
    fail(*wrong)
