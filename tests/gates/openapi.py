"""The parts of docs/openapi can be merged, and the build knows each of them."""
import glob
import os
import re
import subprocess

from gate import TOP, fail

result = subprocess.run([TOP + "/tools/openapi", os.devnull], capture_output=True, text=True)
if result.returncode != 0:
    fail(*result.stderr.splitlines()[:5])
parts = {os.path.basename(path)[:-5] for path in glob.glob(TOP + "/docs/openapi/*.json")}
listed = re.search(r"foreach part : \[(.*?)\]", open(TOP + "/src/api/meson.build", encoding="utf-8").read(), re.DOTALL)
if set(re.findall(r"'(\w+)'", listed.group(1))) != parts:
    fail("src/api/meson.build lists other parts than docs/openapi has")
