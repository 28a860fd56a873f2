"""Layers and KV caches on the host as GPUs moved them, beside what is predicted today from each machine's probe, and from
the data sheet alone.

Run `python validation/offload.py`. Every schedule of `plan offload` is predicted from the node file and the seconds of one
layer alone, every layout of `plan kv` from the node file; no number of the models is from these runs. Goals: of probed nodes
median 4 %, 90th percentile 10 %; of data sheets median 10 %; the best residency and depth within 3 % of the fastest in 95 %
of budgets; break-even tokens within 15 %.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, groupby
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from claims import Truth, goal, judge, table
from stored import nodes_by_rung, unpacked

from busfare.measure.cases import fastest_part, overlapping
from busfare.nodes import load_node
from busfare.planning import Machine, machine_of
from busfare.planning.offload.kv import Blocks, fetch, host_of
from busfare.planning.offload.schedule import Layers, Schedule, break_even, seconds_of

MEDIAN = {"probed": 4.0, "datasheet": 10.0}
NINETIETH, PICKED, WITHIN, TOKENS = 10.0, 95.0, 3.0, 15.0
#: A result as it was written: its JSON.
Result = dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """A pass over a network of equal layers: seconds predicted and measured."""

    network: tuple[int, int]  # layers, bytes of one
    schedule: Schedule
    tokens: int
    predicted: float
    measured: float

    @property
    def layers_held(self) -> int:
        """Layers' worth of GPU memory."""
        count, size = self.network
        return round(self.schedule.device_bytes(Layers((size,) * count, (0.0,) * count)) / size)

    @property
    def off_percent(self) -> float:
        return 100 * (self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Fetch:
    """Blocks fetched in one layout: seconds predicted and measured."""

    layout: str
    predicted: float
    samples: list[float]

    @property
    def measured(self) -> float:
        return median(self.samples)


def compared() -> Iterator[tuple[str, str, Result, Machine]]:
    """Results of streamed layers by machine, with the machine as its probe (`probed`) and its data sheet describe it."""
    for file in sorted(unpacked("offload-bench").glob("*/bench.json")):
        for figures, machine in _machines(file.parent).items():
            yield file.parent.name, figures, json.loads(file.read_text("utf-8")), machine


def _machines(folder: Path) -> dict[str, Machine]:
    nodes = nodes_by_rung(folder.name.partition("-")[0], load_node(str(folder / "node.toml")))
    return {figures: machine_of(nodes[figures]) for figures in MEDIAN}


def _alone(result: Result) -> dict[tuple[int, int], dict[int, float]]:
    """Seconds of a layer with its weights in GPU memory, by network and tokens."""
    alone: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in result["layers"]:
        alone[row["layers"], row["layer_bytes"]][row["tokens"]] = fastest_part(row["samples_seconds"])
    return alone


def passes(result: Result, machine: Machine) -> list[Pass]:
    alone, rows = _alone(result), []
    for cell in result["cells"]:
        count, size, tokens = cell["layers"], cell["layer_bytes"], cell["tokens"]
        schedule = Schedule(cell["resident"], cell["depth"], cell["memory"])
        layers = Layers((size,) * count, (alone[count, size][tokens],) * count)
        predicted = seconds_of(layers, schedule, machine)
        rows.append(Pass((count, size), schedule, tokens, predicted, fastest_part(cell["samples_seconds"])))
    return rows


def picks(rows: list[Pass]) -> Iterator[tuple[str, float]]:
    """By memory kind, network, tokens and budget of GPU memory: what following the prediction costs, percent."""

    def key(row: Pass) -> tuple[str, tuple[int, int], int]:
        return row.schedule.memory, row.network, row.tokens

    for (memory, *_), group in groupby(sorted(rows, key=key), key):
        alike = list(group)
        for budget in sorted({row.layers_held for row in alike}):
            fit = [row for row in alike if row.layers_held <= budget]
            if len(fit) > 1:
                picked, fastest = min(fit, key=lambda r: r.predicted), min(fit, key=lambda r: r.measured)
                yield memory, 100 * (picked.measured / fastest.measured - 1)


def tokens_break_even(result: Result, rows: list[Pass], machine: Machine) -> tuple[float, float] | None:
    """From how many tokens on streaming every layer beats the processor: predicted from every second number of its tokens,
    measured through all of them.
    """
    if not result["break_even"]:
        return None
    cpu = dict(
        zip(*(result["break_even"][key] for key in ("cpu_tokens", "cpu_seconds_per_layer")), strict=True)
    )
    largest = max((row.network for row in rows), key=lambda network: network[1])
    streamed = {
        row.tokens: row.measured
        for row in rows
        if row.network == largest and row.schedule == Schedule(0, 1, "pinned")
    }
    alone = _alone(result)[largest]
    layer = _between({number: alone[number] for number in streamed})
    count, size = largest
    whole, half = _between(cpu), _between(dict(list(cpu.items())[::2]))
    predicted, _ = break_even(
        lambda n: seconds_of(Layers((size,) * count, (layer(n),) * count), Schedule(0, 1, "pinned"), machine),
        lambda n: count * half(n),
        max(cpu),
    )
    measured, _ = break_even(_between(streamed), lambda n: count * whole(n), max(cpu))
    return (predicted, measured) if predicted and measured else None


def _between(points: dict[int, float]) -> Callable[[float], float]:
    """Straight lines through measured points; flat beyond them."""
    places = sorted(points)
    return lambda place: float(np.interp(place, places, [points[at] for at in places]))


def layouts() -> Iterator[tuple[str, str, list[list[Fetch]]]]:
    """KV caches by machine, the layouts of each case."""
    for file in sorted(unpacked("offload-bench").glob("*/kv.json")):
        result = json.loads(file.read_text("utf-8"))
        for figures, machine in _machines(file.parent).items():
            yield file.parent.name, figures, [_fetches(cell, machine) for cell in result["cells"]]


def _fetches(cell: Result, machine: Machine) -> list[Fetch]:
    """One case in all layouts, the fastest first."""
    count, evicted = (cell[key] // cell["piece_bytes"] for key in ("fetched_bytes", "evicted_bytes"))
    blocks, host = Blocks(cell["piece_bytes"], count, 1, evicted), host_of(machine)
    rows = [
        Fetch(row["layout"], fetch(row["layout"], blocks, machine, host).seconds, row["samples_seconds"])
        for row in cell["layouts"]
    ]
    return sorted(rows, key=lambda row: row.measured)


def truths() -> Iterator[Truth]:
    """Passes over streamed layers by memory kind, and KV caches by layout."""
    for name, figures, result, machine in compared():
        for row in passes(result, machine):
            yield Truth(figures, row.schedule.memory, "offload", 0, name, row.predicted, row.measured)
    for name, figures, cells in layouts():
        for fetched in (fetched for cell in cells for fetched in cell):
            yield Truth(figures, fetched.layout, "kv", 0, name, fetched.predicted, fetched.measured)


def main() -> None:
    for name, figures, result, machine in compared():
        probed, judged = figures == "probed", passes(result, machine)
        errors = defaultdict(list)
        for row in sorted(judged, key=lambda row: row.schedule.memory):
            for kind in (row.schedule.memory, "all"):
                errors[kind].append(abs(row.off_percent))
        print(f"{name}, {figures}")
        shown = [(kind, len(off), *np.percentile(off, (50, 90))) for kind, off in errors.items()]
        table("schedules|cases:d|median % off:.2f|90th percentile:.2f", shown)
        middle, ninetieth = np.percentile(errors["all"], (50, 90))
        goal("  all schedules, median % off", middle, most=MEDIAN[figures])
        goal("  90th percentile", ninetieth, most=NINETIETH if probed else inf)
        for steady in (True, False):
            # Prefetches of managed pages take twice as long in one process as in another: what is best there is luck.
            costs = [cost for memory, cost in picks(judged) if (memory != "managed") == steady]
            right = 100 * float(np.mean([cost <= WITHIN for cost in costs]))
            what = f"  % of {len(costs)} picks within {WITHIN:g} %, {'copied or mapped' if steady else 'managed'}"
            goal(
                f"{what} (costliest {max(costs):.1f} %)",
                right,
                least=PICKED if probed and steady else -inf,
                form=".1f",
            )
        if even := tokens_break_even(result, judged, machine):
            predicted, measured = even
            what = f"  break-even: {measured:.1f} tokens measured, {predicted:.1f} predicted, % off"
            off = abs(100 * (predicted / measured - 1))
            goal(what, off, most=TOKENS if probed else inf, form=".1f")
    rows = []
    for name, figures, cells in layouts():
        off = [abs(100 * (row.predicted / row.measured - 1)) for cell in cells for row in cell]
        right = sum(
            all(
                faster.predicted <= slower.predicted or overlapping(faster.samples, slower.samples)
                for faster, slower in combinations(sorted(cell, key=lambda row: median(row.samples)), 2)
            )
            for cell in cells
        )
        rows.append((name, figures, len(off), *np.percentile(off, (50, 90)), right, len(cells)))
    table("KV caches|figures|cases:d|median % off:.1f|90th percentile:.1f|ranked right:d|of:d", rows)


if __name__ == "__main__":
    judge(main)
