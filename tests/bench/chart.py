#!/usr/bin/python3
"""Draws the latency chart from a result of tests/bench/run: tests/bench/chart.py RESULT.json FILE.svg

One bar per way to run `/bin/echo ready`: the median, with the p99 behind it. Every bar starts at 0 and all share
one scale. A row that was not measured has no bar, and the caption says which are missing."""
import json
import math
import sys
import textwrap
from xml.sax.saxutils import escape

from report import median, p99

WIDTH, LEFT, RIGHT = 880, 320, 620  # of the picture; of the bars: where 0 is, and where the longest ends
BAR, STEP = 16, 26
STYLE = """
    .paper { fill: #ffffff; stroke: #d0d7de }
    text { fill: #1f2328 }
    .bold { font-weight: 600 }
    .small { fill: #59636e; font-size: 12px }
    .value { stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
    .grid { stroke: #d0d7de }
    .caisson { fill: #0969da }
    .delete { fill: #a5c9f3 }
    .peer { fill: #818b98 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #3d444d }
      text { fill: #f0f6fc }
      .small { fill: #9198a1 }
      .value { stroke: #0d1117 }
      .grid { stroke: #3d444d }
      .caisson { fill: #4493f8 }
      .delete { fill: #1f4a80 }
      .peer { fill: #656c76 }
    }
  """


class Bar:
    """Values in microseconds; `delete` is what removing the sandbox takes afterwards."""

    def __init__(self, kind, name, values, delete=()):
        self.kind, self.name, self.values = kind, name, values
        self.delete = median(delete) if delete else 0
        self.median = median(values) if values else None


def groups(samples):
    """What is compared with what. The names of samples are those of the Series in tests/bench/run."""
    def values(name):
        return samples.get(name) or []

    cold = [create + first for create, first in zip(values("cycle: create"), values("cycle: exec"))]
    return [
        ("A command in a new sandbox", [
            Bar("caisson", "Caisson: create and exec, from the pool", values("from the pool"), values("pool: delete")),
            Bar("caisson", "Caisson: create and exec, no pool", cold, values("cycle: delete")),
            Bar("peer", "runc run", values("runc run")),
            Bar("peer", "bwrap --unshare-all", values("bwrap (pool)"))]),
        ("A command in a running sandbox", [
            Bar("caisson", "Caisson: exec", values("exec over REST")),
            Bar("peer", "runc exec", values("runc exec"))]),
        ("A command without a sandbox", [
            Bar("peer", "fork, exec, wait", values("fork+exec+wait"))])]


def tick_step(most):
    """1, 2 or 5 times a power of ten, so that there are at most six ticks."""
    power = 10 ** math.floor(math.log10(most / 6))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= most / 6)


def caption(machine, bars, missing):
    counts = sorted(len(bar.values) for bar in bars)
    runs = f"{counts[0]} to {counts[-1]}" if counts[0] < counts[-1] else f"{counts[0]}"
    kernel = f"Linux {machine['kernel']}, {machine['cpus']} x {machine.get('cpu') or machine['architecture']}"
    peers = [name for name in (machine.get("runc"), machine.get("bwrap")) if name]
    sentences = [
        f"Median and p99 of {runs} runs of `/bin/echo ready`, from the request or fork to its end. Shorter is better.",
        "Caisson is asked over HTTP on a Unix socket. The second part of its bar is the delete; peers include theirs.",
        *([f"Not measured: {', '.join(missing)}."] if missing else []),
        f"{machine['time'][:10]}, commit {machine.get('commit') or 'unknown'}; {'; '.join([kernel, *peers])}. "
        "Made by `make bench`; other machines give other times."]
    return [line for sentence in sentences for line in textwrap.wrap(sentence, 115)]


def text(x, y, words, style="", more=""):
    return f'<text x="{x:g}" y="{y:g}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}{more}>{escape(words)}</text>'


def bar_lines(bar, y, scale):
    end = LEFT + bar.median * scale
    lines = [text(LEFT - 10, y + 13, bar.name, more=' text-anchor="end"'),
             f'<rect class="{bar.kind}" x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}"/>']
    label = f"{bar.median / 1000:.1f} ms (p99 {p99(bar.values) / 1000:.1f})"
    if bar.delete:
        lines.append(f'<rect class="delete" x="{end:.1f}" y="{y}" width="{bar.delete * scale:.1f}" height="{BAR}"/>')
        end += bar.delete * scale
        label += f", delete {bar.delete / 1000:.1f}"
    return [*lines, text(round(end + 6, 1), y + 13, label, "small value")]


def draw(result):
    """The SVG of a result as tests/bench/report.py describes it."""
    drawn = [(title, [bar for bar in bars if bar.values]) for title, bars in groups(result["samples"])]
    missing = [bar.name for _, bars in groups(result["samples"]) for bar in bars if not bar.values]
    bars = [bar for _, some in drawn for bar in some]
    if not any(bar.kind == "caisson" for bar in bars):
        raise ValueError("the result has none of the rows cold, pool and exec")
    most = max(bar.median + bar.delete for bar in bars)
    scale = (RIGHT - LEFT) / most
    y, lines = 52, []
    for title, some in drawn:
        if some:
            lines.append(text(20, y + 13, title, "bold"))
            y += STEP - 4
        for bar in some:
            lines += bar_lines(bar, y, scale)
            y += STEP
        y += 8 if some else 0
    step, grid = tick_step(most / 1000), []
    for tick in range(int(most / 1000 / step) + 1):
        x = LEFT + tick * step * 1000 * scale
        grid.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="48" y2="{y}"/>')
        grid.append(text(round(x, 1), y + 16, f"{tick * step:g} ms", "small", ' text-anchor="middle"'))
    y += 46
    for line in caption(result["machine"], bars, missing):
        lines.append(text(20, y, line, "small"))
        y += 17
    height = y + 3
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title"',
            "  font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"13\">",
            f'<title id="title">Latency of Caisson and of its peers, {result["machine"]["time"][:10]}</title>',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            text(20, 30, "How long one small command takes", "bold", ' font-size="16"')]
    return "\n".join([*head, *grid, *lines, "</svg>"]) + "\n"


def write(result, path):
    picture = draw(result)
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tests/bench/chart.py RESULT.json FILE.svg")
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            write(json.load(file), sys.argv[2])
    except FileNotFoundError as error:
        sys.exit(f"{error.filename}: no such file; `make bench` writes the result that the chart is made of")
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")


if __name__ == "__main__":
    main()
