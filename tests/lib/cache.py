"""Caches things that take long to make and rarely change: npm packages, the image of tests/machine. They are kept
outside the build folder, named by the hash of their inputs, and are made again if they are missing."""
import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time

UNUSED_SECONDS = 7 * 86400  # results of other checkouts are removed after this time


def top():
    chosen = os.environ.get("CAISSON_TEST_CACHE")
    return chosen or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "caisson-tests")


def kept(name, mark, make):
    """Returns the folder NAME-MARK, which make(folder) fills the first time. Another checkout may use folders with the
    same name and another mark: they are removed a week after their last use. Several processes may call this at once. A
    process that is killed here leaves no folder that looks complete."""
    os.makedirs(top(), exist_ok=True)
    folder = os.path.join(top(), f"{name}-{mark[:16]}")
    with open(os.path.join(top(), name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            with contextlib.suppress(OSError):  # it belongs to another user
                os.utime(folder)
            return folder
        for old in glob.glob(os.path.join(top(), name + "-*")):
            if old.endswith(".unfinished") or time.time() - os.stat(old).st_mtime > UNUSED_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        work = tempfile.mkdtemp(prefix=name + "-", suffix=".unfinished", dir=top())
        try:
            make(work)
            os.chmod(work, 0o755)
            os.utime(work)
            os.rename(work, folder)
        except BaseException:
            with contextlib.suppress(OSError):
                shutil.rmtree(work)
            raise
    return folder
