"""Things that take long to have and depend on little: npm packages, the image of tests/machine. They are kept outside the
build folder, by the hash of what they are made of, and are made again when they are not there."""
import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time

UNUSED_SECONDS = 7 * 86400  # after this, what another checkout may have made is removed


def top():
    chosen = os.environ.get("CAISSON_TEST_CACHE")
    return chosen or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "caisson-tests")


def kept(name, mark, make):
    """The folder NAME-MARK, which make(folder) fills the first time. Others of that name, which another checkout may use, are
    kept until nobody has asked for them for a week. Others may come here at the same time, and whoever is killed here leaves
    nothing that looks finished."""
    os.makedirs(top(), exist_ok=True)
    folder = os.path.join(top(), f"{name}-{mark[:16]}")
    with open(os.path.join(top(), name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            with contextlib.suppress(OSError):  # another user's
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
