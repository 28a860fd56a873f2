"""The `datasheet` model against other people's published measurements: `python validation/datasheet.py`.

Large pinned copies (32 MB and up), median and 90th percentile with each source weighing the same, on the half of the
machines that no parameter was chosen on, and on all; and WMAPE by size decade of every size sweep, where `datasheet` must
be the best of the models that need no measurement. Which rows are left out, by which rule, is printed. Exit status 1 where
a goal is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
from published import LARGE_BYTES, Row, node_of, read, sift, without_copy_rates

from busfare.cost import model
from busfare.cost.price import one_copy
from busfare.node import load_node

MODELS = ("datasheet", "ahead", "peak", "envelope")
#: Percent, at most: the median and the 90th percentile of large copies, machines held out.
GOALS = (2.5, 8.0)
#: No L+o is known of the machines of the large copies: the defaults of the models stand, as a link in short has none.
NOBODY = load_node("pcie:3x16")
#: The only published L+o of a machine that is in no sweep: W14's, and so the 'old node' of every sweep.
OLD_NODE = load_node("gtx-titan")
SMALLEST_SWEEP = 8
#: Sizes of sweeps are judged from here up.
SMALLEST_BYTES = 4096


def main() -> int:
    rows = read()
    kept, left_out = sift(rows)
    print(f"{len(rows)} rows; left out by what the row itself says:")
    for name, count in left_out.items():
        print(f"  {count:5}  {name}")
    large = [row for row in kept if _is_large(row) and node_of(row) is not None]
    print(f"{len(large)} pinned copies of {LARGE_BYTES} bytes and up remain, GB/s by source and direction:")
    cells = defaultdict(list)
    for row in large:
        cells[row.group, row.author, row.direction].append(row)
    for (group, _, direction), members in sorted(cells.items()):
        told = float(np.median([_rate(row) for row in members])) / 1e9
        measured = float(np.median([row.bytes_per_second for row in members])) / 1e9
        error = 100 * (told / measured - 1)
        print(f"  {group[:48]:48} {direction} predicted {told:7.2f} measured {measured:7.2f} {error:+6.1f} %")
    _summary("machines looked at", [row for row in large if row.fitted])
    met = _summary("machines held out", [row for row in large if not row.fitted])
    met &= _summary("all machines", large)
    return 0 if met & _sweeps([row for row in kept if row.memory == "pinned"]) else 1


def _is_large(row: Row) -> bool:
    moves = row.memory == "pinned" and row.direction in ("h2d", "d2h")
    return moves and row.bytes_per_second > 0 and row.copied >= LARGE_BYTES


def _rate(row: Row) -> float:
    """Bytes per second by `datasheet`."""
    node = node_of(row)
    assert node is not None
    operations = one_copy(row.direction, row.memory, [row.copied])
    return float(row.copied / model("datasheet", latency_from=NOBODY).seconds(operations, node)[0])


def _summary(name: str, rows: list[Row]) -> bool:
    errors = np.array([abs(100 * (_rate(row) / row.bytes_per_second - 1)) for row in rows])
    sources = [row.author for row in rows]
    weights = np.array([1 / sources.count(source) for source in sources])
    median, ninth = (_quantile(errors, weights, q) for q in (0.5, 0.9))
    met = median <= GOALS[0] and ninth <= GOALS[1]
    print(
        f"{name}: {len(set(sources))} sources, {len(rows)} rows: median {median:.2f} % off (goal {GOALS[0]:g}), 90th "
        f"percentile {ninth:.2f} (goal {GOALS[1]:g}): {'met' if met else 'MISSED'}"
    )
    return met


def _quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """The smallest value at which the weights up to it make `q` of all."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, q - 1e-12)])


def _sweeps(rows: list[Row]) -> bool:
    """WMAPE by decade and model; whether `datasheet` is the best in each."""
    sweeps = defaultdict(list)
    for row in rows:
        if row.size >= 1 and row.bytes_per_second > 0 and row.direction in ("h2d", "d2h") and node_of(row):
            sweeps[row.group, row.source, row.direction, row.notes].append(row)
    long = [sweep for sweep in sweeps.values() if len(sweep) >= SMALLEST_SWEEP]
    print(f"{len(long)} size sweeps, WMAPE % by decade, L+o of {OLD_NODE.name} [W14 table I] for every model")
    wrong: dict[tuple[int, str], float] = defaultdict(float)
    total: dict[int, float] = defaultdict(float)
    for sweep in long:
        node = node_of(sweep[0])
        assert node is not None
        sizes = np.array([row.size for row in sweep if row.size >= SMALLEST_BYTES])
        actual = sizes / np.array([row.bytes_per_second for row in sweep if row.size >= SMALLEST_BYTES])
        decades = np.floor(np.log10(sizes)).astype(int)
        operations = one_copy(sweep[0].direction, sweep[0].memory, sizes.tolist())
        for name in MODELS:
            told = model(name, latency_from=OLD_NODE).seconds(operations, without_copy_rates(node))
            for decade, miss in zip(decades, np.abs(told - actual), strict=True):
                wrong[decade, name] += miss
        for decade, seconds in zip(decades, actual, strict=True):
            total[decade] += seconds
    met = bool(total)
    for decade in sorted(total):
        scores = {name: 100 * wrong[decade, name] / total[decade] for name in MODELS}
        best = min(scores, key=lambda name: scores[name])
        met &= best == "datasheet"
        print(f"  10^{decade}: " + ", ".join(f"{name} {score:.2f}" for name, score in scores.items()))
    return met


if __name__ == "__main__":
    sys.exit(main())
