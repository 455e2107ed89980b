"""Includes point downwards only; the folders are the architecture."""
import re

from gate import files, fail

# What each folder may include besides itself.
ALLOWED = {
    "base": set(),
    "proto": {"base"},
    "init": {"base", "proto"},
    "store": {"base", "proto"},
    "tier": {"base", "proto"},
    "core": {"base", "proto", "store", "tier"},
    "http": {"base"},
    "api": {"base", "proto", "store", "tier", "core", "http"},
    "spawner": {"base", "proto", "tier", "daemon"},
    "daemon": {"base", "proto", "store", "core", "http", "api"},
    "cli": {"base", "proto", "spawner"},
}
wrong = []
for name in files("src/*.c", "src/*.h"):
    parts = name.split("/")
    if len(parts) < 3:
        continue
    folder = parts[1]
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match or "/" not in match.group(1):
            continue
        other = match.group(1).split("/")[0]
        if other in ALLOWED and other != folder and other not in ALLOWED[folder]:
            wrong.append(f"{name}:{number}: {folder}/ may not include {match.group(1)}")
if wrong:
    fail(*wrong)
