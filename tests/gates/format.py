"""clang-format says that every C file is formatted."""
import subprocess

from gate import files, fail

listed = files("*.c", "*.h")
result = subprocess.run(["clang-format", "--dry-run", "-Werror", *listed], capture_output=True, text=True)
if result.returncode != 0:
    fail(*[line for line in result.stderr.splitlines() if "error:" in line][:20])
