"""No function over 100 lines, no C file over 900: past that nobody reads it in one go."""
from gate import files, fail

FUNCTION_MAX, FILE_MAX = 100, 900
wrong = []
for name in files("src/*.c", "src/*.h", "tests/*.c", "tools/*.c"):
    lines = open(name, encoding="utf-8").read().split("\n")
    if len(lines) > FILE_MAX:
        wrong.append(f"{name}: {len(lines)} lines (at most {FILE_MAX})")
    start = None
    for number, line in enumerate(lines, 1):
        # With our clang-format a function's body opens and closes in column one.
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            if number - start - 1 > FUNCTION_MAX:
                wrong.append(f"{name}:{start}: a function of {number - start - 1} lines (at most {FUNCTION_MAX})")
            start = None
if wrong:
    fail(*wrong)
