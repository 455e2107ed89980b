"""The program of an earlier landing, for tests that upgrade from it; tests/upgrade-from names it. It is built from
git's history and cached (cache.py) by the hash of its tree, which does not depend on the commit that holds the landing.
`older.py` only builds it. A clone without that tree (a shallow one, or one with another history) has no such
program."""
import functools
import os
import re
import shutil
import subprocess
import tempfile

import cache

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMED_IN = "tests/upgrade-from"
PROGRAMS = ("caisson", "caisson-init")


def git(*words):
    """The output of git; None if it fails or is not installed."""
    try:
        result = subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=TOP, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


@functools.cache
def named():
    """(commit, tree)"""
    with open(os.path.join(TOP, NAMED_IN), encoding="utf-8") as file:
        text = file.read()
    commit, tree = (re.search(rf"^{word} ([0-9a-f]{{40}})$", text, re.MULTILINE) for word in ("commit", "tree"))
    if not commit or not tree:
        raise AssertionError(f"{NAMED_IN} does not name a commit and its tree")
    real = git("rev-parse", "--verify", "--quiet", commit.group(1) + "^{tree}")
    if real not in (None, tree.group(1)):
        raise AssertionError(f"{NAMED_IN}: the tree of its commit is {real}")
    return commit.group(1), tree.group(1)


def reason_without():
    """The reason why this clone has no such program; None if it exists or can be built."""
    tree = named()[1]
    return None if git("cat-file", "-e", tree + "^{tree}") is not None else f"this clone's history does not have the tree {tree}"


def run(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command[:4])}: {result.stdout[-6000:]}")


def build(tree, folder):
    """Builds the programs that a daemon needs, with that tree's own Meson files and without the programs of its
    tests."""
    with tempfile.TemporaryDirectory(dir=folder) as sources:
        archive = os.path.join(sources, "sources.tar")
        run("git", "-c", "safe.directory=*", "archive", "--output", archive, tree, cwd=TOP)
        run("tar", "-xf", archive, "-C", sources)
        made = os.path.join(sources, "build")
        run("meson", "setup", made, sources)
        run("ninja", "-C", made, *PROGRAMS)
        for program in PROGRAMS:
            shutil.copy(os.path.join(made, program), folder)


def folder():
    """The folder with the programs."""
    tree = named()[1]
    return cache.kept("older-program", tree, lambda work: build(tree, work))


def with_other_init(programs, folder):
    """Copies a build's programs and changes the end of the init, so that sandboxes of that init belong to another
    program. Returns the path of the copy."""
    os.chmod(folder, 0o755)
    for name in PROGRAMS:
        shutil.copy(os.path.join(programs, name), os.path.join(folder, name))
    with open(os.path.join(folder, "caisson-init"), "ab") as file:
        file.write(b"another version")
    return os.path.join(folder, "caisson")


def with_init_of(programs, older_programs, folder):
    """Copies a build's program, with the init of an older one beside it. Returns the path of the copy."""
    shutil.copy(os.path.join(programs, "caisson"), os.path.join(folder, "caisson"))
    shutil.copy(os.path.join(older_programs, "caisson-init"), os.path.join(folder, "caisson-init"))
    return os.path.join(folder, "caisson")


if __name__ == "__main__":
    print(reason_without() or folder())
