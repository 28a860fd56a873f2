"""The ranges of `busfare.cost.ranges`, derived anew from today's predictions, and how often the truth lies in them.

Run `python validation/ranges.py` to print them with their coverage, `--write` to write `src/busfare/cost/ranges.toml` anew
(a few minutes; with others' copies, in the folder that BUSFARE_SHARED names: without it their rows are left out, and nothing
is written). A range is an 80 % one: from the 10th to the 90th percentile of truth over prediction, each machine (of
programs: each program) with the same weight, and one more machine allowed for (conformal: of nine, the extremes). Fewer
than nine get the prediction interval of Student's t over the logarithms. Coverage is judged on each machine with the range
of the others, and in the range that is stated. The goals: over the kinds of a rung, 75 to 95 % of the held-out
truths lie inside, and 75 % in the ranges stated.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import aiconfigurator
import bench
import collectives
import datasheet
import four_gpus
import job_pairs
import kernels
import layers
import node_change
import numpy as np
import offload
import probe
import replay_pairs
from claims import Truth, goal, judge, table
from published import SHARED

from busfare.cost.ranges import COPIES, FILE, LONG_COPY_BYTES, Row, is_wide, range_of, row_of

#: Percent of the truths of a rung that should lie in its 80 % ranges.
GOAL = (75.0, 95.0)
SHARE = 0.8
#: One-sided 90 % quantiles of Student's t by degrees of freedom, 1 to 7 [any table].
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415)
#: A range over so many times its least time says nothing: none is stated (baselines that know of no start).
USELESS = 1000
ENOUGH = len(STUDENT) + 2
BASELINES = "baselines"
#: What has predictions beside truths that nothing was fitted to.
PARTS: dict[str, Callable[[], Iterator[Truth]]] = {
    "published": datasheet.truths,
    "probe": probe.truths,
    "bench": bench.truths,
    "moved": node_change.truths,
    "changes": replay_pairs.truths,
    "jobs": job_pairs.truths,
    "more ranks": four_gpus.truths,
    "kernels": kernels.truths,
    "collectives": collectives.truths,
    "aiconfigurator": aiconfigurator.truths,
    "layers": layers.truths,
    "offload": offload.truths,
}


@dataclass
class Group:
    """Truth over prediction of one machine, or of one program, and the parts that they are from."""

    ratios: list[float]
    parts: set[str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ranges of predictions and their coverage.")
    parser.add_argument("--write", action="store_true", help=f"write the table, {FILE.name}")
    options = parser.parse_args()
    whole = (SHARED / "data/measurements.csv").is_file()
    if options.write and not whole:
        raise SystemExit(f"{SHARED}/data/measurements.csv is not there; set BUSFARE_SHARED")
    groups = _kinds([part for part in PARTS if whole or part not in ("published", "collectives", "layers")])
    lines, rows = [_HEAD], []
    inside: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind, named in sorted(groups.items()):
        groups = list(named.values())
        if len(groups) < 2:
            continue
        low, high = stated(groups)
        cases = sum(len(g.ratios) for g in groups)
        where = (kind.model, kind.figures, kind.what, kind.size or "–", low, high, cases, len(groups))
        if high > USELESS * low:
            rows.append((*where, None, None, "not stated"))
            continue
        covered, today = held_out(groups), _today(kind)
        every = float(np.mean([_inside(g.ratios, *today) for g in groups])) if today else math.nan
        inside[_rung(kind)].append((covered, every))
        rows.append((*where, 100 * covered, 100 * every, "ends only" if is_wide(low, high) else ""))
        lines.append(_row(kind, (low, high), groups, covered))
    bounds = "sizes|low:.3f|high:.3f|cases:d|groups:d"
    table(f"model|figures|what|{bounds}|% inside, held out:.1f|as stated today:.1f|shown", rows)
    for rung, shares in inside.items():
        anew, today = (100 * float(np.nanmean(values)) for values in zip(*shares, strict=True))
        least, most = (-math.inf, math.inf) if rung == BASELINES else GOAL
        what = f"{rung}: over {len(shares)} kinds, % of held-out truths inside"
        goal(what, anew, least=least, most=most, form=".1f")
        goal("  in the ranges stated", today, least=least, form=".1f")
    if options.write:
        FILE.write_text("\n".join([*lines, "]\n"]), "utf-8")


def _today(kind: Row) -> tuple[float, float] | None:
    """What the table states; None where it has no such row."""
    long = kind.size == "long" or kind.model == "baseline"
    model = "peak" if kind.model == "baseline" else kind.model
    return range_of(kind.what, model, kind.figures, LONG_COPY_BYTES if long else 0)


def _rung(kind: Row) -> str:
    if kind.model == "baseline":
        return BASELINES
    if kind.what in ("run", "change", "gain", "job-change", "more-ranks") or kind.model == "calibrated":
        return "calibrated"
    return kind.figures


def _kinds(parts: Sequence[str]) -> dict[Row, dict[str, Group]]:
    groups: dict[Row, dict[str, Group]] = defaultdict(dict)
    for part in parts:
        for truth in PARTS[part]():
            ratio = truth.actual / truth.predicted if truth.predicted > 0 else math.nan
            if not (math.isfinite(ratio) and ratio > 0):
                continue
            # A machine of the catalogue's kind was probed, too.
            figures = "probed" if truth.figures == "elsewhere" else truth.figures
            kind = row_of(truth.what, truth.model, figures, truth.bytes)
            if kind is not None:
                # Copies of one machine in two parts are two groups.
                name = f"{part}: {truth.group}" if truth.what in COPIES else truth.group
                group = groups[kind].setdefault(name, Group([], set()))
                group.ratios.append(ratio)
                group.parts.add(part)
    return groups


def stated(groups: Sequence[Group]) -> tuple[float, float]:
    """The range for a machine, or a program, that is not among `groups`; it holds the prediction itself."""
    low, high = _quantiles(groups)
    return min(low, 1.0), max(high, 1.0)


def _quantiles(groups: Sequence[Group]) -> tuple[float, float]:
    count = len(groups)
    ratios = np.concatenate([g.ratios for g in groups])
    weights = np.concatenate([np.full(len(g.ratios), 1 / len(g.ratios)) for g in groups])
    if count >= ENOUGH:
        level = min(1.0, (1 + SHARE) / 2 * (count + 1) / count)
        return -_at(-ratios, weights, level), _at(ratios, weights, level)
    seen = np.log(ratios)
    mean = float(np.average(seen, weights=weights))
    spread = math.sqrt(float(np.average((seen - mean) ** 2, weights=weights)) * count / (count - 1))
    reach = STUDENT[count - 2] * spread * math.sqrt(1 + 1 / count)
    return math.exp(mean - reach), math.exp(mean + reach)


def _at(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The smallest of `values` up to which `level` of the weight lies."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(np.searchsorted(share, level - 1e-9), len(values) - 1)])


def held_out(groups: Sequence[Group]) -> float:
    """The share of each group's truths in the range of the others, on average over groups; NaN for fewer than three."""
    if len(groups) < 3:
        return math.nan
    shares = []
    for place, group in enumerate(groups):
        low, high = stated([*groups[:place], *groups[place + 1 :]])
        shares.append(_inside(group.ratios, low, high))
    return float(np.nanmean(shares))


def _inside(scores: Sequence[float], low: float, high: float) -> float:
    listed = np.asarray(scores)
    return float(np.mean((listed >= low - 1e-9) & (listed <= high + 1e-9)))


_HEAD = """# How far truths lay from predictions, on machines and programs that were not used for them: 80 % ranges.
# Written by `python validation/ranges.py --write`; not by hand.
# low, high: factors of the predicted time (of a change: of the run after it; of a gain: of what a change gains). figures:
# what the nodes' figures are, measured there or on another machine of the kind (probed), or the data sheet. model "any": all
# of them. size: copies and collectives below 4 MiB (short) or from there on (long). groups: the machines, or the programs,
# that it was derived from.
# inside_percent: of each group's truths, in the range of the other groups.

range = ["""


def _row(kind: Row, ends: tuple[float, float], groups: Sequence[Group], covered: float) -> str:
    size = f'size = "{kind.size}", ' if kind.size else ""
    held = f", inside_percent = {100 * covered:.1f}" if math.isfinite(covered) else ""
    return (
        f'  {{ what = "{kind.what}", model = "{kind.model}", figures = "{kind.figures}", {size}'
        f"low = {ends[0]:.4g}, high = {ends[1]:.4g}, groups = {len(groups)}, "
        f"cases = {sum(len(g.ratios) for g in groups)}{held} }},"
    )


if __name__ == "__main__":
    judge(main)
