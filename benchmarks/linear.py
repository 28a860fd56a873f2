"""How time and memory of a report grow with the rows of its trace, with a straight line fitted and a plot.

    python -m benchmarks.linear [--runs N] [--most N] [--json FILE] [--svg FILE]

Traces of 10^4 to `--most` rows, generated; each measurement is a process of its own. Lines, seconds = a + b · rows, are
fitted to processor seconds, by least squares of relative errors; so are those of memory: one to traces whose gains are
replayed, one to longer ones, of which only sums are made. What the latter says of 10^8 rows is computed from the fit,
not measured.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.runs import options_of, write
from benchmarks.sqlite_columns import REPORT, Times, export_of, measure_alone
from busfare.trace.large import REPLAYED_ROWS

ARGUED = 100_000_000
#: Fewer points are no line.
LEAST_POINTS = 3


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 3)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--svg", type=Path, help="draw them here")
    options = parser.parse_args(arguments)
    steps = [size for power in range(4, 9) for size in (10**power, 3 * 10**power, 5 * 10**power)]
    sizes = [*(size for size in steps if 2 * size < options.most), options.most]
    found = {
        rows: measure_alone([sys.executable, "-c", REPORT, str(export_of(rows))], options.runs)
        for rows in sizes
    }
    print(f"{'rows':>12}{'processor s':>13}{'wall s':>9}{'peak MB':>9}")
    for rows, times in found.items():
        print(
            f"{rows:12,}{_middle(times.processor):13.3f}{_middle(times.wall):9.3f}{_middle(times.memory) / 1e6:9.0f}"
        )
    for name, part in _groups(found).items():
        for what, values, unit in (
            ("processor seconds", [_middle(t.processor) for t in part.values()], "s"),
            ("peak memory", [_middle(t.memory) / 1e9 for t in part.values()], "GB"),
        ):
            start, slope, worst = fitted(list(part), values)
            argued = (
                f"; 10^8 rows: {start + slope * ARGUED:.1f} {unit}, by the fit"
                if min(part) > REPLAYED_ROWS
                else ""
            )
            print(
                f"{name}, {what}: {start:.3f} {unit} + {slope * 1e6:.4f} {unit} a million rows, no point further off "
                f"than {worst:.0%}{argued}"
            )
    if options.json:
        raw = {"report": {str(rows): times.raw() for rows, times in found.items()}}
        write(options.json, f"linear --runs {options.runs} --most {options.most}", raw)
    if options.svg:
        options.svg.write_text(_drawn(found), encoding="utf-8")
    return 0


def _groups(found: dict[int, Times]) -> dict[str, dict[int, Times]]:
    """Those that are replayed and those that are not, where they are enough for a line."""
    groups = {
        "replayed": {rows: times for rows, times in found.items() if rows <= REPLAYED_ROWS},
        "not replayed": {rows: times for rows, times in found.items() if rows > REPLAYED_ROWS},
    }
    return {name: part for name, part in groups.items() if len(part) >= LEAST_POINTS}


def fitted(rows: list[int], values: list[float]) -> tuple[float, float, float]:
    """Start and slope of the line nearest to `values` by relative error, and the largest relative error."""
    x, y = np.asarray(rows, float), np.asarray(values, float)
    (start, slope), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], axis=1), np.ones(len(y)), rcond=None)
    return float(start), float(slope), float(np.abs((start + slope * x) / y - 1).max())


def _middle(values: list[float] | list[int]) -> float:
    return float(statistics.median(values))


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 360, 70, 50


def _drawn(found: dict[int, Times]) -> str:
    """Both against rows, with their lines; all axes logarithmic."""
    panels = (
        ("processor seconds", lambda t: _middle(t.processor), "#1f6fb2"),
        ("peak memory, GB", lambda t: _middle(t.memory) / 1e9, "#b2501f"),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]

    def x(value: float) -> float:
        return LEFT + (np.log10(value) - 4) / 4 * (WIDTH - LEFT - 20)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (np.log10(value) + 2) / 4 * (HEIGHT - BOTTOM - 20)

    for power in range(4, 9):
        parts.append(f'<text x="{x(10**power):.0f}" y="{HEIGHT - 30}" text-anchor="middle">10^{power}</text>')
        parts.append(f'<path d="M{x(10**power):.0f} 20V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
    for value in (0.01, 0.1, 1, 10, 100):
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.0f}" text-anchor="end">{value}</text>')
        parts.append(f'<path d="M{LEFT} {y(value):.0f}H{WIDTH - 20}" stroke="#ddd"/>')
    for number, (label, value_of, colour) in enumerate(panels):
        for part in _groups(found).values():
            start, slope, _ = fitted(list(part), [value_of(times) for times in part.values()])
            last = ARGUED if min(part) > REPLAYED_ROWS else REPLAYED_ROWS
            line = " ".join(
                f"{x(r):.1f},{y(start + slope * r):.1f}" for r in np.geomspace(min(part), last, 60)
            )
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>')
        parts += [
            f'<circle cx="{x(r):.1f}" cy="{y(value_of(times)):.1f}" r="4" fill="{colour}"/>'
            for r, times in found.items()
        ]
        parts.append(
            f'<text x="{LEFT + 15}" y="{40 + 18 * number}" fill="{colour}">{label}: points, and lines fitted</text>'
        )
    parts.append(f'<path d="M{x(REPLAYED_ROWS):.0f} 20V{HEIGHT - BOTTOM}" stroke="#888"/>')
    parts.append(
        f'<text x="{x(REPLAYED_ROWS) + 5:.0f}" y="{HEIGHT - BOTTOM - 8}" fill="#555">longer: not replayed</text>'
    )
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">rows of the trace</text></svg>'
    )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
