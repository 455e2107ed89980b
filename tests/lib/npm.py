"""Third-party packages that tests drive. A folder with package.json and package-lock.json is installed once and cached
(cache.py): `npm ci` checks the versions and hashes of the lock file, and runs no scripts of the packages. `npm.py
FOLDER` only installs."""
import glob
import hashlib
import os
import shutil
import subprocess
import sys

import cache

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The download is not what we test: one that hangs is restarted and continues with the packages already downloaded.
TRIES, LIMIT = 3, 240
DOWNLOADS = ("--prefer-offline", "--no-update-notifier", "--fetch-timeout=30000", "--fetch-retries=5",
             "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000")


def install(folder):
    downloads = os.path.join(folder, "downloads")
    for left in reversed(range(TRIES)):
        try:
            result = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *DOWNLOADS, "--cache", downloads],
                                    cwd=folder, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            if not left:
                raise
            continue
        if result.returncode == 0:
            break
        if not left:
            raise AssertionError(f"npm ci: {result.stdout}{result.stderr}")
    shutil.rmtree(downloads, ignore_errors=True)


def installed(folder):
    """The path of node_modules for a folder of the project, for example "tests/compat"."""
    files = [os.path.join(TOP, folder, name) for name in ("package.json", "package-lock.json")]
    mark = hashlib.sha256(b"".join(open(path, "rb").read() for path in files)).hexdigest()

    def make(work):
        for path in files:
            shutil.copy(path, work)
        install(work)
    return cache.kept("npm-" + folder.replace("/", "."), mark, make)


def node(modules):
    """The newer Node that some packages need: an optional dependency, one per architecture."""
    found = glob.glob(os.path.join(modules, "node_modules/node-linux-*/bin/node"))
    if not found:
        raise AssertionError("package.json names no Node for this architecture")
    return found[0]


if __name__ == "__main__":
    print(installed(sys.argv[1]))
