"""What `bench offload` measured, beside what is predicted today from each machine's probe, and from the data sheet alone.

Run `python validation/offload.py`. Every schedule is predicted from the node file and the seconds of one layer alone; no
number of the models is from these runs. Goals: of probed nodes median 4 %, 90th percentile 10 %; of data sheets median
10 %; the best residency and depth within 3 % of the fastest in 95 % of budgets; break-even tokens within 15 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from claims import Truth, goal, judge, table
from msgspec.structs import replace
from stored import known_as, unpacked

from busfare.measure.bench.kv import beside_predictions as of_layouts
from busfare.measure.bench.offload import beside_predictions, measured_of
from busfare.measure.bench.results import KvBenchResult, KvCell, OffloadResult, read_result
from busfare.node import load_node
from busfare.plan import Machine, machine_of

MEDIAN = {"probed": 4.0, "datasheet": 10.0}
NINETIETH, PICKED, WITHIN, TOKENS = 10.0, 95.0, 3.0, 15.0


def compared() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each machine by name, predicted from its probe (`probed`) and from its data sheet (`datasheet`)."""
    for folder in sorted(path.parent for path in unpacked("offload-bench").glob("*/bench.json")):
        measured = measured_of(read_result(folder / "bench.json", OffloadResult))
        for figures, machine in _known(folder):
            yield folder.name, figures, beside_predictions(measured, machine)


def layouts() -> Iterator[tuple[str, str, list[KvCell]]]:
    """The same of `bench kv`, the host's own part as the node says it."""
    for name, measured, known in _of_kv():
        for figures, machine in known.items():
            yield name, figures, of_layouts(replace(measured, host=None), machine)


def layouts_beside_host() -> Iterator[tuple[str, str, list[KvCell]]]:
    """As `bench kv` predicts them: from the probe, and the host's own part as it was just measured by itself."""
    for name, measured, known in _of_kv():
        if measured.host:
            yield name, "probed, host's part measured", of_layouts(measured, known["probed"])


def _of_kv() -> Iterator[tuple[str, KvBenchResult, dict[str, Machine]]]:
    for file in sorted(unpacked("offload-bench").glob("*/kv.json")):
        yield file.parent.name, read_result(file, KvBenchResult), dict(_known(file.parent))


def _known(folder: Path) -> Iterator[tuple[str, Machine]]:
    known = known_as(folder.name.partition("-")[0], load_node(str(folder / "node.toml")))
    return ((figures, machine_of(known[figures])) for figures in MEDIAN)


def truths() -> Iterator[Truth]:
    """Passes over streamed layers by memory kind, and KV caches by layout."""
    for machine, figures, result in compared():
        for cell in result["cells"]:
            told, then = cell.predicted_seconds, cell.measured_seconds
            yield Truth(figures, cell.memory, "offload", 0, machine, told, then)
    for machine, figures, cells in layouts():
        for row in (row for cell in cells for row in cell.layouts):
            told, then = row.predicted_seconds or 0.0, row.measured_seconds
            yield Truth(figures, row.layout, "kv", 0, machine, told, then)


def main() -> None:
    for machine, figures, result in compared():
        probed = figures == "probed"
        errors = defaultdict(list)
        for cell in result["cells"]:
            for kind in (cell.memory, "all"):
                errors[kind].append(abs(cell.error_percent))
        print(f"{machine}, {figures}")
        rows = [(kind, len(found), *np.percentile(found, (50, 90))) for kind, found in errors.items()]
        table("schedules|cases:d|median % off:.2f|90th percentile:.2f", rows)
        median, ninetieth = np.percentile(errors["all"], (50, 90))
        goal("  all schedules, median % off", median, most=MEDIAN[figures])
        goal("  90th percentile", ninetieth, most=NINETIETH if probed else inf)
        for steady in (True, False):
            # Prefetches of managed pages take twice as long in one process as in another: what is best there is luck.
            costs = [pick.cost_percent for pick in result["picks"] if (pick.memory != "managed") == steady]
            right = 100 * float(np.mean([cost <= WITHIN for cost in costs]))
            what = f"  % of {len(costs)} picks within {WITHIN:g} %, {'copied or mapped' if steady else 'managed'}"
            goal(
                f"{what} (costliest {max(costs):.1f} %)",
                right,
                least=PICKED if probed and steady else -inf,
                form=".1f",
            )
        even = result["break_even"]
        if even and even.error_percent is not None:
            what = f"  break-even: {even.measured_tokens:.1f} tokens measured, {even.predicted_tokens:.1f} predicted, % off"
            goal(what, abs(even.error_percent), most=TOKENS if probed else inf, form=".1f")
    shown = []
    for machine, figures, cells in [*layouts(), *layouts_beside_host()]:
        off = [abs(row.error_percent or 0.0) for cell in cells for row in cell.layouts]
        right = sum(not cell.ranking.wrong for cell in cells)
        shown.append((machine, figures, len(off), *np.percentile(off, (50, 90)), right, len(cells)))
    table("KV caches|figures|cases:d|median % off:.1f|90th percentile:.1f|ranked right:d|of:d", shown)


if __name__ == "__main__":
    judge(main)
