"""The init's own snprintf (src/base/format.h) knows what the init's formats use; the compiler cannot tell."""
import re

from gate import files, fail

STRING = re.compile(r'(strftime\([^"]*)?"((?:\\.|[^"\\\n])*)"')
KNOWN = re.compile(r"%(?:[0-]*\d*(?:hh|h|ll|l|j|z|t)?[diuxo]|-?\d*(?:\.(?:\d+|\*))?s|-?\d*c|%)")
BASE = re.search(r"base_init_sources = files\((.*?)\)", open(files("src/base/meson.build")[0]).read(), re.S).group(1)
wrong, seen = [], 0
for name in files("src/init/*.c", "src/proto/*.c", *("src/base/" + base for base in re.findall(r"'(.+?)'", BASE))):
    # Comments may hold anything.
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), open(name, encoding="utf-8").read(),
                  flags=re.S)
    for string in STRING.finditer(text):
        if string.group(1):
            continue
        seen += "%" in string.group(2)
        if "%" in KNOWN.sub("", string.group(2)):
            number = text.count("\n", 0, string.start(2)) + 1
            wrong.append(f'{name}:{number}: src/base/format.h does not have all of "{string.group(2)}"')
if not seen:
    fail("no format was looked at")
if wrong:
    fail(*wrong)
