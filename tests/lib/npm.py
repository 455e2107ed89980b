"""Packages of others that tests drive. A folder with package.json and package-lock.json is installed once (`npm ci`: the
versions and hashes of the lock file; no scripts of the packages are run) and kept (cache.py). `npm.py FOLDER` does only that."""
import glob
import hashlib
import os
import shutil
import subprocess
import sys

import cache

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What is tested is not how well a package can be had: a download that hangs is begun anew, from what is here of it.
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
    """Where node_modules of a folder of the project's is, for example of "tests/compat"."""
    files = [os.path.join(TOP, folder, name) for name in ("package.json", "package-lock.json")]
    mark = hashlib.sha256(b"".join(open(path, "rb").read() for path in files)).hexdigest()

    def make(work):
        for path in files:
            shutil.copy(path, work)
        install(work)
    return cache.kept("npm-" + folder.replace("/", "."), mark, make)


def node(modules):
    """The newer Node that some packages need: an optional dependency of theirs, one per architecture."""
    found = glob.glob(os.path.join(modules, "node_modules/node-linux-*/bin/node"))
    if not found:
        raise AssertionError("package.json names no Node for this architecture")
    return found[0]


if __name__ == "__main__":
    print(installed(sys.argv[1]))
