"""The durations of jobs. tests/times stores them, and tests/run starts the jobs in their order. They are also checked
against the limits of a run and of an area of it (docs/testing.md)."""
import re

SLOW_SECONDS, TOO_SLOW_SECONDS = 20 * 60, 30 * 60  # of `make test` on two processors: a message, a failure
AREA_SECONDS = 60  # of processor time, of an area in `make test`


def read(path):
    """The stored {job: (wall seconds, processor seconds)}. The second is None in a line that an older version wrote."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if match := re.fullmatch(r"(\d+)(?: (\d+))? (\D.*)\n", line):
                found[match.group(3)] = int(match.group(1)), match.group(2) and int(match.group(2))
    return found


def remember(path, jobs):
    times = {**read(path), **{job.name: (round(job.wall), round(job.processor)) for job in jobs}}
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Wall and processor seconds that jobs took, for the order in which tests/run starts them: made by `tests/run --remember`.\n")
        for name, (wall, processor) in sorted(times.items()):
            if wall >= 2:
                file.write(f"{wall} {name}\n" if processor is None else f"{wall} {processor} {name}\n")


def area(name):
    """The area of a job: "api code" for "api code [asan] busy"."""
    return " ".join(name.split(" ")[:2])


def large_areas(jobs):
    """[(area, processor seconds)] of areas above a processor minute, largest first."""
    sums = {}
    for job in jobs:
        sums[area(job.name)] = sums.get(area(job.name), 0) + job.processor
    return sorted(((name, seconds) for name, seconds in sums.items() if seconds > AREA_SECONDS), key=lambda row: -row[1])


def slowness(jobs, wall, processors):
    """(message about a whole `make test`, whether it is a failure). Machines differ, so only a run that is far too slow
    is a failure, and none with one processor is."""
    if wall <= SLOW_SECONDS or processors < 2:
        return "", False
    slowest = ", ".join(f"{job.name} {job.wall:.0f} s" for job in sorted(jobs, key=lambda job: -job.wall)[:5])
    return f"slower than {SLOW_SECONDS // 60} minutes: {wall / 60:.1f}; slowest: {slowest}", wall > TOO_SLOW_SECONDS
