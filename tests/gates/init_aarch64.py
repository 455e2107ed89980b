"""Every source of the init compiles for 64-bit ARM, with its warnings as errors: the init is the part with code for
each architecture. This takes the cross compiler and its own C library; `make aarch64`, which needs Debian's arm64
packages, builds all of the program with musl."""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from gate import INIT_FLAGS, TOP, fail, files

NOT_IN_CHECK = True
COMPILER = "aarch64-linux-gnu-gcc"
build = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build")
# The normal build of such a machine is this.
if os.uname().machine == "aarch64":
    sys.exit(0)
sources = [name for name in files("src/init/*.c") if not name.endswith("/sanitize.c")]
for folder in ("base", "proto"):
    listed = re.search(folder + r"_init_sources = files\((.*?)\)", open(f"src/{folder}/meson.build").read(), re.S).group(1)
    sources += [f"src/{folder}/{name}" for name in re.findall(r"'(.+?)'", listed)]


def compile_one(source):
    result = subprocess.run([COMPILER, *INIT_FLAGS, "-mgeneral-regs-only", "-I" + made, "-Werror", "-c", source, "-o", "/dev/null"],
                            cwd=TOP, capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if "error:" in line.lower()][:5]
    return errors or [f"{source}: {COMPILER}: exit code {result.returncode}"] if result.returncode else []


try:
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(os.cpu_count()) as pool:
        # The filter of that architecture, by the generator that the build has made for this one.
        subprocess.run([os.path.join(build, "tools/seccomp-generate"), "aarch64", made + "/seccomp_filter.h"], check=True)
        wrong = [line for lines in pool.map(compile_one, sources) for line in lines]
except (OSError, subprocess.CalledProcessError) as error:
    fail(f"{error} (`make`, tools/deps --tests)")
if wrong:
    fail(*wrong[:30])
