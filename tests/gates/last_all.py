"""`make test-all` was run not long ago: at most 15,000 changed lines under src/ are newer than the last one that passed,
which tests/last-all names. First the gate's own logic is tried on a repository made for it."""
import os
import re
import subprocess
import tempfile

from gate import TOP, fail

NOT_IN_CHECK = True
NOT_IN_ALL = True  # what fails here would keep away what mends it
LINES_MAX = 15000
PASSED = "^[1-9][0-9]* passed, 0 failed,"


def git(top, *words):
    return subprocess.run(["git", "-c", "safe.directory=*", "-c", "user.name=gate", "-c", "user.email=gate",
                           "-c", "commit.gpgsign=false", *words],
                          cwd=top, capture_output=True, text=True, timeout=120)


def changed_lines(top, tree):
    """Added and removed since that src/ was tested. A moved file counts only what changed in it."""
    changes = git(top, "diff", "-M", "-l0", "--numstat", tree, "HEAD:src")
    if changes.returncode != 0:
        fail("git cannot compare src/ with the one of tests/last-all:", changes.stderr.strip())
    return sum(int(number) for line in changes.stdout.splitlines() for number in line.split("\t")[:2] if number.isdigit())


def check(top, most=LINES_MAX):
    """(is it good, what to say)."""
    path = os.path.join(top, "tests/last-all")
    if not os.path.exists(path):
        if git(top, "log", "-1", "--format=%H", "--full-history", f"-G{PASSED}", "--", "tests/last-all").stdout:
            return False, "tests/last-all is missing, and was there before: run `make test-all` and commit the file"
        return True, "no `make test-all` has passed yet: it writes tests/last-all, and from then on changes are counted"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    tested = {name: re.search(rf"^{name} ([0-9a-f]{{40}})$", text, re.MULTILINE) for name in ("commit", "src")}
    if not all(tested.values()):
        return False, "tests/last-all does not say which commit and src/ were tested: run `make test-all` and commit the file"
    if not re.search(PASSED, text, re.MULTILINE):
        return False, "tests/last-all is not of a run in which tests passed: run `make test-all` and commit the file"
    tree = tested["src"].group(1)
    if git(top, "rev-parse", "--verify", "--quiet", "HEAD:src").returncode != 0:
        return True, "no history here: the changes since the last `make test-all` cannot be counted"
    if git(top, "cat-file", "-e", tree + "^{tree}").returncode != 0:
        return True, f"this clone does not have the src/ that was tested ({tree}): the changes since then cannot be counted"
    lines = changed_lines(top, tree)
    said = f"{lines} changed lines under src/ are newer than the last `make test-all` (at most {most})"
    return lines <= most, said if lines <= most else f"{said}: run it and commit tests/last-all"


def write(top, name, text):
    os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
    with open(os.path.join(top, name), "w", encoding="utf-8") as file:
        file.write(text)


def commit(top):
    """The commit, and the tree of its src/."""
    for words in (("add", "--all"), ("commit", "--quiet", "--message", "a change")):
        result = git(top, *words)
        if result.returncode != 0:
            fail(f"git {words[0]}: {result.stderr}")
    return git(top, "rev-parse", "HEAD", "HEAD:src").stdout.split()


def try_logic(top):
    """What `check` gets wrong on a repository of ten lines."""
    wrong = []

    def expect(good, words, most=5):
        found = check(top, most)
        if found[0] != good or words not in found[1]:
            wrong.append(f"`{words}` should be {'good' if good else 'bad'}: {found}")
    git(top, "init", "--quiet")
    write(top, "src/old.c", "".join(f"line {number};\n" for number in range(10)))
    tested, tree = commit(top)
    expect(True, "no `make test-all` has passed yet")
    # One that was there and never was of a run that passed is as good as none.
    write(top, "tests/last-all", "0 passed, 0 failed, 0 skipped, 0 unsteady\n")
    commit(top)
    expect(False, "does not say")
    os.remove(os.path.join(top, "tests/last-all"))
    commit(top)
    expect(True, "no `make test-all` has passed yet")
    write(top, "tests/last-all", "10 passed\n")
    expect(False, "does not say")
    good = f"commit {tested}\nsrc {tree}\n10 passed, 0 failed, 2 skipped, 0 unsteady\n"
    for old, new, said in (("10 passed", "0 passed", "is not of a run"), ("0 failed", "1 failed", "is not of a run"), ("10 passed, 0", "", "is not of a run"),
                           ("commit", "of", "does not say")):
        write(top, "tests/last-all", good.replace(old, new))
        expect(False, said)
    write(top, "tests/last-all", good.replace(tree, "0" * 40))
    expect(True, "this clone does not have")
    write(top, "tests/last-all", f"date 2026-01-01\n{good}")
    expect(True, "0 changed lines")
    # Moved, with one line of it changed, and one file more; what is outside of src/ does not count.
    os.rename(os.path.join(top, "src/old.c"), os.path.join(top, "src/new.c"))
    write(top, "src/new.c", "".join(f"line {number};\n" for number in range(9)) + "another\n")
    write(top, "src/more.c", "1\n2\n3\n")
    write(top, "docs/text", "1\n" * 100)
    commit(top)
    expect(True, "5 changed lines")
    expect(False, "5 changed lines under src/ are newer than the last `make test-all` (at most 4): run it", 4)
    os.remove(os.path.join(top, "tests/last-all"))
    expect(False, "is missing, and was there before")
    commit(top)
    expect(False, "is missing, and was there before")
    # A history that begins after it was removed, and none at all.
    git(top, "checkout", "--quiet", "--orphan", "new")
    commit(top)
    expect(True, "no `make test-all` has passed yet")
    os.rename(os.path.join(top, ".git"), os.path.join(top, "no-git"))
    expect(True, "no `make test-all` has passed yet")
    write(top, "tests/last-all", good)
    expect(True, "no history here")
    return wrong


with tempfile.TemporaryDirectory() as place:
    wrong = try_logic(place)
if wrong:
    fail(*wrong)
is_good, said = check(TOP)
if not is_good:
    fail(said)
print(said)
