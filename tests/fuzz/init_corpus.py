#!/usr/bin/env python3
"""Writes the corpora of fuzz_init_messages and fuzz_init_frames: one valid frame of each type, all
of them in a row, and some that are wrong in one way. Run it again after a change of the protocol."""

import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
OPERATION = 1 << 63


def frame(kind, payload=b"", number=0, flags=0, size=None):
    length = len(payload) if size is None else size
    return struct.pack("<IHHQ", length, kind, flags, number) + payload


def text(value):
    return struct.pack("<I", len(value)) + value


def packed(values):
    return struct.pack("<I", len(values)) + text(b"".join(value + b"\0" for value in values))


EXEC = (struct.pack("<IIHH", 7, 1000, 24, 80) + text(b"nobody") + text(b"/tmp") +
        packed([b"sh", b"-c", b"echo $A"]) + packed([b"A=1", b"B="]) +
        struct.pack("<IIQQ", 1, 7, 64, 128))
CONFIGURE = (text(b"box") + struct.pack("<qI", 0, 1) + struct.pack("<I", 0) + text(b"/data") +
             packed([b"PATH=/bin"]))
FILE = (struct.pack("<BIIQQI", 15, 1 << 4, 0o644, 0, 0, 10) + text(b"") + text(b"/etc") +
        text(b"*.conf") + text(b"host\0s") + text(b""))
RESULT = struct.pack("<IIQQQQQI", 1, 9, 10, 20, 30, 40, 50, 1)

REQUESTS = {
    "hello": frame(1, struct.pack("<II", 1, 1)),
    "configure": frame(3, CONFIGURE),
    "deadline": frame(6, struct.pack("<q", 1)),
    "ping": frame(7, b"12345678"),
    "shutdown": frame(9, struct.pack("<I", 10)),
    "exec": frame(20, EXEC, 1),
    "stdin": frame(23, b"bytes", 1),
    "stdin_close": frame(24, b"", 1),
    "signal": frame(25, struct.pack("<II", 9, 1), 1),
    "resize": frame(26, struct.pack("<HH", 24, 80), 1),
    "consumed": frame(30, struct.pack("<QQ", 1, 2), 1),
    "forget": frame(31, b"", 1),
    "list": frame(32),
    "left_running": frame(35, b"", 1),
    "file": frame(50, FILE, OPERATION | 1),
    "data": frame(51, b"bytes", OPERATION | 1),
    "data_end": frame(52, b"", OPERATION | 1),
    "credit": frame(53, struct.pack("<I", 65536), OPERATION | 1),
    "cancel": frame(56, b"", OPERATION | 1),
    "connect": frame(57, struct.pack("<H", 80) + text(b"127.0.0.1"), OPERATION | 2),
    "metrics": frame(58, b"", OPERATION | 3),
    "freeze": frame(70),
    "thaw": frame(72, b"x" * 8),
}
ANSWERS = {
    "hello_reply": frame(2, struct.pack("<IIQ", 1, 1, 5)),
    "refused": frame(5, struct.pack("<II", 3, 2) + text(b"why")),
    "progress": frame(27, struct.pack("<QQ", 1, 2), 1),
    "exited": frame(29, RESULT, 1),
    "metrics_result": frame(54, struct.pack("<IQ", 3, 1), OPERATION | 3),
    "listed": frame(33, struct.pack("<II", 2, 7) + RESULT, 1),
    "failed": frame(55, struct.pack("<II", 3, 2) + text(b"\x1b[31m\xff"), OPERATION | 1),
}
WRONG = {
    "too_large": frame(51, b"", 1, size=128 * 1024 + 1),
    "flags": frame(51, b"", 1, flags=1),
    "type": frame(19),
    "id": frame(20, EXEC, OPERATION | 1),
    "argc": frame(20, EXEC.replace(struct.pack("<I", 3) + text(b"sh\0"), b"\xff\xff\xff\xff"), 1),
    "largest": frame(51, b"x" * 65537, OPERATION | 1),
}


def write(folder, name, data):
    path = os.path.join(HERE, "corpus", folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as file:
        file.write(data)


def main():
    for name, data in {**REQUESTS, **WRONG}.items():
        write("init_frames", name, b"\x01" + data)
    write("init_frames", "all", b"\x00" + b"".join(REQUESTS.values()))
    write("init_frames", "all_in_pieces", b"\x01" + b"".join(REQUESTS.values()) * 3)
    for name, data in {**REQUESTS, **ANSWERS, **WRONG}.items():
        if name not in ("largest", "stdin", "data"):
            write("init_messages", name, data)
    for name, data in {**REQUESTS, **ANSWERS}.items():
        if len(data) > 30:
            write("init_messages", name + "_payload", data[16:])
    write("init_messages", "all", b"".join({**REQUESTS, **ANSWERS}.values()))


if __name__ == "__main__":
    main()
