"""No function over 100 lines, no file over 600 below src/ or 900 elsewhere: past that nobody reads it in one go."""
from gate import files, fail

FUNCTION_MAX = 100
wrong = []
for name in files("src/*.c", "src/*.h", "src/code/*", "tests/*.c", "tools/*.c"):
    lines = open(name, encoding="utf-8").read().splitlines()
    file_max = 600 if name.startswith("src/") else 900
    if len(lines) > file_max:
        wrong.append(f"{name}: {len(lines)} lines (at most {file_max})")
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
