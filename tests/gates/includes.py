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
    "api": {"base", "proto", "store", "core", "http", "edge"},
    # The store is core's alone; what rows look like comes with core's headers.
    "mcp": {"base", "proto", "core", "http", "edge"},
    "spawner": {"base", "proto", "tier", "daemon"},
    "daemon": {"base", "proto", "store", "core", "http", "edge", "api", "mcp"},
    "cli": {"base", "proto", "spawner", "store", "tier"},
}
# Within tier/ too: a tier stands in the jail, and may have a bridge to an init that is further in; neither knows a tier.
TIER_ALLOWED = {
    "jail": {"guest.h", "remove_tree.h"},
    "bridge": set(),
    "namespace": {"driver.h", "guest.h", "jail", "probe_boot.h"},
    "gvisor": {"driver.h", "guest.h", "jail", "bridge", "probe_boot.h"},
}
# Functions of a folder that is not to be called from another, though its types are known there.
UNCALLED = {folder: re.compile(r"\bstore_\w+\(") for folder in ("edge", "api", "mcp")}
wrong = []
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
        if folder == other == "tier" and len(parts) > 3 and rest[0] != parts[2] and rest[0] not in TIER_ALLOWED[parts[2]]:
            wrong.append(f"{name}:{number}: tier/{parts[2]}/ may not include {match.group(1)}")
        if other in ALLOWED and other != folder and other not in ALLOWED[folder]:
            wrong.append(f"{name}:{number}: {folder}/ may not include {match.group(1)}")
if wrong:
    fail(*wrong)
