"""How time and memory of a report grow with the rows of its trace, with a straight line fitted and a plot.

    python -m benchmarks.linear [--runs N] [--most N] [--json FILE] [--svg FILE]

Traces of 10^4 to `--most` rows, generated; each measurement is a process of its own. Lines, seconds = a + b · rows, are
fitted to processor seconds, by least squares of relative errors; so are those of memory: one to traces whose gains are
replayed, one to longer ones, which are not replayed. What the latter says of 10^8 rows is computed from the fit,
not measured.
"""

from __future__ import annotations

import statistics
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

from benchmarks.runs import options_of, write
from benchmarks.sqlite_columns import REPORT, Times, export_of, measure_alone
from busfare.advise.search import REPLAYED_ROWS
from busfare.show.svg import Line, Lines

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
    measured = {
        rows: measure_alone([sys.executable, "-c", REPORT, str(export_of(rows))], options.runs)
        for rows in sizes
    }
    print(f"{'rows':>12}{'processor s':>13}{'wall s':>9}{'peak MB':>9}")
    for rows, times in measured.items():
        print(
            f"{rows:12,}{_middle(times.processor):13.3f}{_middle(times.wall):9.3f}{_middle(times.memory) / 1e6:9.0f}"
        )
    for name, part in _groups(measured).items():
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
    write(options, "linear", {"report": {str(rows): times.raw() for rows, times in measured.items()}})
    if options.svg:
        options.svg.write_text(_drawn(measured), encoding="utf-8")
    return 0


def _groups(measured: dict[int, Times]) -> dict[str, dict[int, Times]]:
    """Those that are replayed and those that are not, where they are enough for a line."""
    groups = {
        "replayed": {rows: times for rows, times in measured.items() if rows <= REPLAYED_ROWS},
        "not replayed": {rows: times for rows, times in measured.items() if rows > REPLAYED_ROWS},
    }
    return {name: part for name, part in groups.items() if len(part) >= LEAST_POINTS}


def fitted(rows: list[int], values: list[float]) -> tuple[float, float, float]:
    """Start and slope of the line nearest to `values` by relative error, and the largest relative error."""
    x, y = np.asarray(rows, float), np.asarray(values, float)
    (start, slope), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], axis=1), np.ones(len(y)), rcond=None)
    return float(start), float(slope), float(np.abs((start + slope * x) / y - 1).max())


def _middle(values: list[float] | list[int]) -> float:
    return float(statistics.median(values))


def _drawn(measured: dict[int, Times]) -> str:
    """Both against rows, with their lines, in the style of report pages; longer traces than the mark are not replayed."""
    lines = []
    for name, value_of, colour in (
        ("processor seconds", lambda t: _middle(t.processor), "#1f6fb2"),
        ("peak memory, GB", lambda t: _middle(t.memory) / 1e9, "#b2501f"),
    ):
        lines.append(
            Line(name, colour, [*measured], [value_of(times) for times in measured.values()], apart=True)
        )
        for group, part in _groups(measured).items():
            start, slope, _ = fitted([*part], [value_of(times) for times in part.values()])
            ends = np.geomspace(min(part), ARGUED if min(part) > REPLAYED_ROWS else REPLAYED_ROWS, 20)
            lines.append(Line(f"fitted, {group}", colour, [*ends], [*(start + slope * ends)], predicted=True))
    picture = Lines(lines, "rows of the trace", "", y_unit="", marks=[REPLAYED_ROWS]).markup()
    style = files("busfare.show").joinpath("page.css").read_text(encoding="utf-8")
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        ">", f"><style>{style}</style>", 1
    )


if __name__ == "__main__":
    sys.exit(main())
