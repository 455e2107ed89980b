"""Golden files hold answers of the program that must not change by accident. They are in tests/golden/.
CAISSON_GOLDEN=write writes them again (read the diff before you commit it)."""
import difflib
import os

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
WRITE = os.environ.get("CAISSON_GOLDEN") == "write"
DIFF_MAX = 40


def check(test, name, text):
    """Fails the test unless the text equals the golden file."""
    path = os.path.join(FOLDER, name)
    if WRITE:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    with open(path, encoding="utf-8") as file:
        golden = file.read()
    if text != golden:
        changes = list(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden/" + name, "now", n=0, lineterm=""))
        rest = [f"... and {len(changes) - DIFF_MAX} more lines"] if len(changes) > DIFF_MAX else []
        test.fail("\n".join(["it is not what it was:", *(line[:300] for line in changes[:DIFF_MAX]), *rest]))
