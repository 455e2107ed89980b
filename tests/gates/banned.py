"""Functions that are never right here, and words that say that something is unfinished."""
import re

from gate import files, fail

FUNCTIONS = {
    "strcpy": "text_copy", "strcat": "a buffer", "strncpy": "text_copy", "strncat": "a buffer",
    "sprintf": "snprintf or text_format", "vsprintf": "vsnprintf", "gets": "read", "strtok": "strsep",
    "atoi": "text_to_u64", "atol": "text_to_u64", "system": "execve", "popen": "execve",
    "uv_queue_work": "loop_job_run", "uv_async_init": "an eventfd",
    "alloca": "an array with a maximum", "mktemp": "O_EXCL", "tmpnam": "O_EXCL", "rand": "random_bytes",
}
WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK|for now)\b")
call = re.compile(r"(?<![\w.>])(" + "|".join(FUNCTIONS) + r")\s*\(")
wrong = []
for name in files("src/*.c", "src/*.h", "tests/*.c", "tools/*.c"):
    text = open(name, encoding="utf-8").read()
    # Comments and strings may name them.
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
    for number, line in enumerate(text.split("\n"), 1):
        for match in call.finditer(line):
            wrong.append(f"{name}:{number}: {match.group(1)}() is banned: use {FUNCTIONS[match.group(1)]}")
for name in files("src/*", "tools/*", "Makefile"):
    for number, line in enumerate(open(name, encoding="utf-8", errors="replace"), 1):
        if WORDS.search(line):
            wrong.append(f"{name}:{number}: unfinished: {line.strip()}")
if wrong:
    fail(*wrong)
