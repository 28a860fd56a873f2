"""Strategies and methods that ran on real GPUs, beside what `plan` predicts today, from probes and from data sheets.

Run `python validation/bench.py`. Reads `judged/` of `results/strategies.tar.xz`: 84 cells of W14's strategies on
seven machines, and methods on three, which the models were not made from; and `results/unseen-machines.tar.xz`, 36 cells on
three machines, 24 of them on two that no number of the models is from (the third is one of five that say
what chunks of many streams typically keep of a link). Nothing predicted when they ran is read. A pick is right where the
strategy predicted to be the fastest was the fastest, or no slower than the measurements tell apart; streams by a stream a
chunk and by three streams are one pick.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import inf
from statistics import median
from typing import Any

from claims import Truth, goal, judge, table
from stored import nodes_by_rung, probed_node, unpacked

from busfare.measure.bench.kernel import KERNELS, Work
from busfare.measure.bench.methods import Case, predicted_of
from busfare.measure.bench.program import STRATEGIES, STREAMED, Predicted
from busfare.measure.cases import read_record
from busfare.measure.probe import evaluated
from busfare.nodes import Node
from busfare.planning import machine_of

#: Following a pick may cost so many percent more than the fastest; in how many of the 84 cells it may cost more.
COSTLY_PERCENT = 2.0
#: Cells picked right at least, costly at most, of 84 (unseen: as many of 36); percent: median error, largest but
#: hybrids, median of hybrids.
GOALS = {
    "probed": (82, 3, 0.7, 13.0, 10.0),
    "datasheet": (78, 8, inf, inf, inf),
    "unseen, probed": (35, 1, 0.7, 13.0, 10.0),
    "unseen, datasheet": (33, 3, inf, inf, inf),
}
#: Methods: median error of copies and kernel, percent.
METHODS_GOAL = 5.0


@dataclass(frozen=True)
class Version:
    """One strategy with one number of streams, as it ran."""

    strategy: str
    streams: int
    seconds: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """One program on one machine: its versions, and what is predicted of them. `errors`: percent, by strategy at its
    predicted fastest.
    """

    name: str
    picked: Version
    best: Version
    errors: dict[str, float]

    @property
    def cost_percent(self) -> float:
        return 100 * (self.picked.seconds / self.best.seconds - 1)

    @property
    def right(self) -> bool:
        same = {self.picked.strategy, self.best.strategy}
        (low, high), (least, most) = self.picked.interval, self.best.interval
        return len(same) == 1 or same == {*STREAMED} or (low <= most and least <= high)


def runs(kind: str, archive: str = "strategies") -> Iterator[tuple[str, dict[str, Any]]]:
    """Results of `bench KIND`, by name."""
    for path in sorted(unpacked(archive).glob(f"judged/{kind}-*.json")):
        yield path.stem, json.loads(path.read_text("utf-8"))


def nodes(result: dict[str, Any]) -> dict[str, Node]:
    """The machine by what may be known of it; of those unseen, by the probe beside the result."""
    whole = unpacked("unseen-machines") / "judged" / f"{result['probe']}.json"
    probed = evaluated(read_record(whole)).node if whole.exists() else probed_node(result["probe"])
    by_rung = nodes_by_rung("h100" if "H100" in result["gpu"] else "h200", probed)
    return {f"unseen, {rung}": node for rung, node in by_rung.items()} if whole.exists() else by_rung


def predicted_versions(cell: dict[str, Any], node: Node) -> tuple[Predicted, list[tuple[Version, float]]]:
    """What ran on one GPU, with the seconds predicted."""
    work = Work(KERNELS[cell["kernel"]], cell["levels"], cell["level_elements"])
    alone = {row["chunks"]: row["seconds"] for row in cell["measured_kernel_seconds_by_chunks"]}
    answer = Predicted.of(work, alone, machine_of(node))
    predictions = []
    for row in cell["versions"]:
        predicted = answer.at(row["strategy"], row["streams"])
        if predicted is not None:
            low, high = row["measured_interval_seconds"] or 2 * [row["measured_seconds"]]
            version = Version(row["strategy"], row["streams"], row["measured_seconds"], (low, high))
            predictions.append((version, predicted.seconds))
    return answer, predictions


def judged(cell: dict[str, Any], node: Node) -> Cell:
    answer, predictions = predicted_versions(cell, node)
    planned = answer.best
    of_strategy = [version for version, _ in predictions if version.strategy == planned.strategy]
    # Where nobody ran that number of streams the nearest one that ran stands for it.
    picked = min(of_strategy, key=lambda v: abs(v.streams - planned.streams))
    rows = [(version, seconds) for version, seconds in predictions if version.strategy in STRATEGIES]
    errors = {}
    for strategy in STRATEGIES:
        if some := [row for row in rows if row[0].strategy == strategy]:
            version, seconds = min(some, key=lambda row: row[0].seconds)
            errors[strategy] = 100 * (seconds / version.seconds - 1)
    best = min((version for version, _ in rows), key=lambda v: v.seconds)
    return Cell(cell["name"], picked, best, errors)


def strategies() -> None:
    cells: dict[str, list[Cell]] = defaultdict(list)
    picks, shown = [], []
    for name, result in chain(runs("strategies"), runs("strategies", "unseen-machines")):
        for figures, node in nodes(result).items():
            if figures not in GOALS:
                continue
            group = [judged(cell, node) for cell in result["cells"]]
            cells[figures] += group
            picks.append((name, figures, sum(cell.right for cell in group), len(group)))
            for cell in (cell for cell in group if not cell.right):
                errors = ", ".join(f"{s} {e:+.1f}" for s, e in cell.errors.items())
                strategies_apart = cell.best.strategy, cell.picked.strategy
                shown.append((name, figures, cell.name, *strategies_apart, cell.cost_percent, errors))
    table("machine|figures|picked right:d|of:d", picks)
    table("machine|figures|cell|best|picked|costs %:.1f|errors %", shown)
    for figures, group in cells.items():
        least, *most = GOALS[figures]
        costly = sum(cell.cost_percent > COSTLY_PERCENT for cell in group)
        rest = [abs(e) for cell in group for s, e in cell.errors.items() if s != "hybrid"]
        hybrids = [abs(cell.errors["hybrid"]) for cell in group if "hybrid" in cell.errors]
        goal(f"{figures}: picked of {len(group)}", sum(cell.right for cell in group), least=least, form="d")
        goal(f"  cost more than {COSTLY_PERCENT:g} %", costly, most=most[0], form="d")
        goal("  errors in %, median", median(rest + hybrids), most=most[1])
        goal("  errors in %, largest but hybrids", max(rest), most=most[2], form=".1f")
        goal("  errors in %, hybrids in the median", median(hybrids), most=most[3], form=".1f")


def predicted_methods(cell: dict[str, Any], node: Node) -> list[tuple[str, float, float]]:
    """Of each method: seconds of copies and kernel measured, and predicted."""
    case = Case(cell["elements"], cell["accesses"])
    predictions = predicted_of(case, cell["measured_kernel_seconds"], machine_of(node))
    return [
        (row["method"], row["measured_gpu_seconds"], predictions[row["method"]].seconds)
        for row in cell["methods"]
        if row["measured_gpu_seconds"] > 0 and row["method"] in predictions
    ]


def methods() -> None:
    errors, picked = [], []
    for _, result in runs("methods"):
        node = probed_node(result["probe"])
        for cell in result["cells"]:
            rows = predicted_methods(cell, node)
            errors += [abs(100 * (predicted / measured - 1)) for _, measured, predicted in rows]
            fastest, planned = (min(rows, key=lambda row, at=at: row[at]) for at in (1, 2))
            picked.append(planned[1] <= fastest[1] * (1 + COSTLY_PERCENT / 100))
    what = f"methods, probed: best (or within {COSTLY_PERCENT:g} %) picked in"
    goal(what, sum(picked), least=len(picked), form="d")
    goal("  copies and kernel, median % off", median(errors), most=METHODS_GOAL)
    goal("  at most", max(errors), form=".1f")


def truths() -> Iterator[Truth]:
    """Each strategy with the number of streams that `plan` shows for it; and methods."""
    for kind in ("strategies", "methods"):
        for _, result in runs(kind):
            for figures, node in nodes(result).items():
                for cell in result["cells"]:
                    yield from (_of_strategies if kind == "strategies" else _of_methods)(figures, cell, node)


def _of_strategies(figures: str, cell: dict[str, Any], node: Node) -> Iterator[Truth]:
    rows = predicted_versions(cell, node)[1]
    for strategy in {version.strategy for version, _ in rows}:
        version, predicted = min((row for row in rows if row[0].strategy == strategy), key=lambda row: row[1])
        yield Truth(figures, strategy, "strategy", 0, cell["name"], predicted, version.seconds)


def _of_methods(figures: str, cell: dict[str, Any], node: Node) -> Iterator[Truth]:
    name = f"{cell['elements']} elements, {cell['accesses']} accesses"
    for method, measured, predicted in predicted_methods(cell, node):
        yield Truth(figures, method, "method", 0, name, predicted, measured)


def main() -> None:
    strategies()
    methods()


if __name__ == "__main__":
    judge(main)
