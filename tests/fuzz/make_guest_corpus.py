#!/usr/bin/env python3
"""Writes the seeds of fuzz_guest: what an honest init says, and a few lies, one file each.

Byte 0 of a seed is the situation, byte 1 the size of the pieces (see fuzz_guest.c)."""
import pathlib
import struct
import sys

STARTED, START_FAILED, PROGRESS, EXITED = 21, 22, 27, 29
LISTED, LIST_END, LEFT_RUNNING, GONE = 33, 34, 35, 36
DATA, DATA_END, CREDIT, RESULT, FAILED = 51, 52, 53, 54, 55
CONFIGURED, REFUSED, PONG = 4, 5, 8
OPERATION = 1 << 63
READY, RESYNC, CREATING, LEFT, CANCEL = 2, 0, 1, 4, 8


def frame(kind, identity, payload=b""):
    return struct.pack("<IHHQ", len(payload), kind, 0, identity) + payload


def text(value):
    return struct.pack("<I", len(value)) + value


def result(end=0, code=0, out=0, err=0, left=0):
    return struct.pack("<IIQQQQQI", end, code, out, err, 1, 2, 3, left)


def status(phase, **fields):
    return struct.pack("<II", phase, 9) + result(**fields)


def failure(kind, message=b"no"):
    return struct.pack("<II", kind, 2) + text(message)


ENTRY = (text(b"name") + b"f" + struct.pack("<IIIQqQ", 0o644, 0, 0, 5, 1, 7) + text(b""))

SEEDS = {
    "run": (READY, frame(STARTED, 1, struct.pack("<I", 7)) +
            frame(PROGRESS, 1, struct.pack("<QQ", 5, 0)) + frame(EXITED, 1, result())),
    "killed": (READY, frame(STARTED, 2, struct.pack("<I", 7)) +
               frame(EXITED, 2, result(end=1, code=9))),
    "left": (READY | LEFT, frame(STARTED, 1, struct.pack("<I", 7)) +
             frame(EXITED, 1, result(left=1)) +
             frame(LEFT_RUNNING, 1, struct.pack("<II", 1, 12) + text(b"server")) +
             frame(PROGRESS, 1, struct.pack("<QQ", 9, 9)) + frame(GONE, 1)),
    "not_found": (READY, frame(START_FAILED, 3, failure(24))),
    "credit": (READY, frame(STARTED, 1, struct.pack("<I", 7)) +
               frame(CREDIT, 1, struct.pack("<I", 3))),
    "files": (READY, frame(DATA, OPERATION | 1, ENTRY) + frame(DATA_END, OPERATION | 1) +
              frame(RESULT, OPERATION | 1, ENTRY) + frame(FAILED, OPERATION | 2, failure(30))),
    "cancelled": (READY | CANCEL, frame(DATA, OPERATION | 3, b"x" * 100) +
                  frame(FAILED, OPERATION | 3, failure(40))),
    "upload": (READY, frame(CREDIT, OPERATION | 1, struct.pack("<I", 0)) * 3),
    "resync": (RESYNC, frame(LISTED, 1, status(1)) + frame(LIST_END, 0)),
    "resync_ended": (RESYNC, frame(LISTED, 1, status(2, out=3)) + frame(LIST_END, 0)),
    "configured": (CREATING, frame(CONFIGURED, 0)),
    "refused": (CREATING, frame(REFUSED, 0, failure(2, b"no such folder"))),
    "hello": (32, frame(2, 0, struct.pack("<IIQ", 1, 1, 1)) + frame(LIST_END, 0)),
    "ends": (READY | 64, frame(STARTED, 1, struct.pack("<I", 7))),
    "pong": (READY, frame(PONG, 0, struct.pack("<Q", 1))),
    "too_long": (READY, struct.pack("<IHHQ", 0xFFFFFFFF, DATA, 0, 1)),
}


def main():
    where = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                         pathlib.Path(__file__).parent / "corpus" / "guest")
    where.mkdir(parents=True, exist_ok=True)
    for name, (situation, frames) in SEEDS.items():
        (where / name).write_bytes(bytes([situation, 0]) + frames)
    for name in ("run", "files"):
        situation, frames = SEEDS[name]
        (where / (name + "_in_pieces")).write_bytes(bytes([situation, 7]) + frames)


if __name__ == "__main__":
    main()
