#!/usr/bin/env python3
"""Writes the seeds of the HTTP fuzzers from the table of traps: one small file per case."""
import json
import pathlib

here = pathlib.Path(__file__).resolve().parent
table = json.loads((here.parent / "api" / "http_traps.json").read_text())
SIZE_MAX = 1500


def request_bytes(case):
    parts = []
    for part in case["request"]:
        parts.append(part if isinstance(part, str) else part["repeat"] * part["times"])
    return "".join(parts).encode("latin-1")


def write(folder, number, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"trap-{number:03}").write_bytes(data)


for number, case in enumerate(table["cases"]):
    data = request_bytes(case)
    if not data or len(data) > SIZE_MAX:
        continue
    corpus = here / "corpus"
    write(corpus / "http_head", number, data)
    if b"chunked\r\n\r\n" in data:
        write(corpus / "http_chunked", number, bytes([number % 17]) + data.split(b"\r\n\r\n", 1)[1])
    # Another path for each, so that every handler of the fuzzer is reached.
    path = b"/" + b"nutslbxwr"[number % 9 : number % 9 + 1]
    write(corpus / "http_server", number,
          bytes([0x80 | number & 0x7f]) + data.replace(b"/healthz", path))
