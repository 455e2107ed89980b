"""Packages of others that tests drive. A folder with package.json and package-lock.json is installed once into the
build folder (`npm ci`: the versions and hashes of the lock file; no scripts of the packages are run)."""
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess

from caisson import BUILD

# What is tested is not how well a package can be had: a download that hangs is begun anew, from what is here of it.
TRIES, LIMIT = 3, 240
DOWNLOADS = ("--prefer-offline", "--no-update-notifier", "--fetch-timeout=30000", "--fetch-retries=5",
             "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000")


def install(folder, cache):
    for left in reversed(range(TRIES)):
        try:
            result = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *DOWNLOADS, "--cache", cache],
                                    cwd=folder, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            if not left:
                raise
            continue
        if result.returncode == 0:
            return
        if not left:
            raise AssertionError(f"npm ci: {result.stdout}{result.stderr}")


def installed(folder, name):
    """BUILD/name, with node_modules. Several suites may come here at once."""
    modules = os.path.join(BUILD, name)
    files = [os.path.join(folder, file) for file in ("package.json", "package-lock.json")]
    wanted = hashlib.sha256(b"".join(open(path, "rb").read() for path in files)).hexdigest()
    os.makedirs(modules, exist_ok=True)
    with open(os.path.join(modules, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = os.path.join(modules, "installed")
        if os.path.exists(mark) and open(mark).read() == wanted:
            return modules
        for path in files:
            shutil.copy(path, modules)
        cache = os.path.join(modules, "cache")
        install(modules, cache)
        shutil.rmtree(cache, ignore_errors=True)
        with open(mark, "w") as file:
            file.write(wanted)
    return modules


def node(modules):
    """The newer Node that some packages need: an optional dependency of theirs, one per architecture."""
    found = glob.glob(os.path.join(modules, "node_modules/node-linux-*/bin/node"))
    if not found:
        raise AssertionError("package.json names no Node for this architecture")
    return found[0]
