"""How figures of a job's traces, whole numbers from 0 up, spread over them and along the ranks; ties go by path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import asdict

from busfare.jobs.results import Bin, Outlier, Outliers, Ranked, RankStrip, Spreading, StripCell, Valued

#: An outlier lies this far above the upper quartile, in spans between the quartiles [Tukey 1977], …
TUKEY = 1.5
#: … and this far above the median: quartiles that all but touch make no outliers.
ABOVE_MEDIAN = 1.1
FEWEST_FOR_OUTLIERS = 8
BARS, LISTED, MOST_CELLS = 40, 16, 256


def spread(
    figure: str, values: Sequence[tuple[int, Ranked]], unit: float, most_bars: int = BARS
) -> Spreading:
    """Of `values`, at least one, each with the trace that it is of; `unit` brings them to the result's unit."""
    ordered = sorted(values, key=lambda held: (held[0], held[1].path))
    largest = sorted(values, key=lambda held: (-held[0], held[1].path))[:LISTED]
    numbers = [value for value, _ in ordered]
    count, total = len(numbers), sum(numbers)
    quartile, median, upper, p95 = (numbers[int(share * (count - 1))] for share in (0.25, 0.5, 0.75, 0.95))
    limit = max(upper + TUKEY * (upper - quartile), ABOVE_MEDIAN * median)
    judged = count >= FEWEST_FOR_OUTLIERS and median > 0
    outlying = [
        Outlier(**asdict(rank), value=value * unit, of_median=value / median)
        for value, rank in largest
        if judged and value > limit
    ]
    return Spreading(
        figure=figure,
        sum=total * unit,
        mean=total * unit / count,
        least=numbers[0] * unit,
        quartile=quartile * unit,
        median=median * unit,
        upper_quartile=upper * unit,
        p95=p95 * unit,
        most=numbers[-1] * unit,
        outliers=Outliers(
            limit * unit if judged else None, judged * sum(value > limit for value in numbers), outlying
        ),
        largest=[Valued(**asdict(rank), value=value * unit) for value, rank in largest],
        smallest=[Valued(**asdict(rank), value=value * unit) for value, rank in ordered[:LISTED]],
        bars=_bars([value for value in numbers if value], unit, most_bars),
    )


def _bars(values: Sequence[int], unit: float, most: int) -> list[Bin]:
    """At most `most` bars, alike by their logarithm, those within a hundredth as one; of values above 0, least first."""
    if not values:
        return []
    logs = np.log(values)
    width = max((logs[-1] - logs[0]) / most, 0.01)
    counts = np.bincount(np.minimum(most - 1, ((logs - logs[0]) / width).astype(int)))
    ends = np.exp(logs[0] + np.arange(len(counts) + 1) * width) * unit
    return [Bin(*bin_) for bin_ in zip(ends.tolist(), ends[1:].tolist(), counts.tolist(), strict=False)]


def strip(figures: dict[str, float], values: Sequence[tuple[int, Sequence[int]]]) -> RankStrip:
    """`figures`, names and units, along the ranks: each of `values` is a rank and its figures.

    At most MOST_CELLS cells, each of one rank or of a power of two of neighbouring ones.
    """
    width = 1 << (max((rank for rank, _ in values), default=0) // MOST_CELLS).bit_length()
    cells: dict[int, list[Sequence[int]]] = {}
    for rank, own in values:
        cells.setdefault(rank // width, []).append(own)
    units = list(figures.values())

    def cell(number: int, held: list[Sequence[int]]) -> StripCell:
        columns = [*zip(zip(*held, strict=True), units, strict=True)]
        mean = [sum(column) * unit / len(held) for column, unit in columns]
        most = [max(column) * unit for column, unit in columns]
        return StripCell(number * width, (number + 1) * width - 1, len(held), mean, most)

    return RankStrip(width if cells else 1, list(figures), [cell(*item) for item in sorted(cells.items())])
