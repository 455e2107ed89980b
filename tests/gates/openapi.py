"""docs/openapi.json is what tools/openapi makes of docs/openapi/."""
import subprocess

from gate import TOP, fail

result = subprocess.run([TOP + "/tools/openapi", "--check"], capture_output=True, text=True)
if result.returncode != 0:
    fail(*result.stderr.splitlines()[:5])
