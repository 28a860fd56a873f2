"""What `bench offload` measured, beside what is predicted today from each machine's probe, and from the data sheet alone.

Run `python validation/offload.py`. Every schedule is predicted from the node file and the seconds of one layer alone; no
number of the models is from these runs. Goals: of probed nodes median 4 %, 90th percentile 10 %; of data sheets median
10 %; the best residency and depth within 3 % of the fastest in 95 % of budgets; break-even tokens within 15 %. Exit status
1 where one is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace
from stored import unpacked
from truths import Truth

from busfare.measure.bench.kv import beside_predictions as of_layouts
from busfare.measure.bench.offload import beside_predictions, measured_of
from busfare.measure.bench.results import KvBenchResult, KvCell, OffloadResult, read_result
from busfare.node import load_node
from busfare.plan import machine_of

MEDIAN, NINETIETH, FROM_SHEET, PICKED, WITHIN, TOKENS = 4.0, 10.0, 10.0, 95.0, 3.0, 15.0
#: The catalogue's node of each kind of machine.
SHEETS = {"h100": "h100-sxm", "h200": "h200-sxm"}


def compared() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each machine by name, predicted from its probe (`probed`) and from its data sheet (`datasheet`)."""
    for folder in sorted(path.parent for path in unpacked("offload-bench").glob("*/bench.json")):
        measured = measured_of(read_result(folder / "bench.json", OffloadResult))
        sheet = SHEETS[folder.name.partition("-")[0]]
        for figures, node in (("probed", str(folder / "node.toml")), ("datasheet", sheet)):
            yield folder.name, figures, beside_predictions(measured, machine_of(load_node(node)))


def layouts() -> Iterator[tuple[str, str, list[KvCell]]]:
    """The same of `bench kv`, the host's own part as the node says it."""
    for file in sorted(unpacked("offload-bench").glob("*/kv.json")):
        measured = replace(read_result(file, KvBenchResult), host=None)
        sheet = SHEETS[file.parent.name.partition("-")[0]]
        for figures, node in (("probed", str(file.parent / "node.toml")), ("datasheet", sheet)):
            yield file.parent.name, figures, of_layouts(measured, machine_of(load_node(node)))


def truths() -> Iterator[Truth]:
    """Passes over streamed layers by memory kind, and KV caches by layout."""
    for machine, figures, result in compared():
        for cell in result["cells"]:
            yield Truth(
                figures, cell.memory, "offload", 0, machine, cell.predicted_seconds, cell.measured_seconds
            )
    for machine, figures, cells in layouts():
        for row in (row for cell in cells for row in cell.layouts):
            yield Truth(
                figures, row.layout, "kv", 0, machine, row.predicted_seconds or 0.0, row.measured_seconds
            )


def main() -> int:
    met = True
    for machine, figures, result in compared():
        errors = defaultdict(list)
        for cell in result["cells"]:
            for kind in (cell.memory, "all"):
                errors[kind].append(abs(cell.error_percent))
        print(f"{machine}, {figures}: schedules, median and 90th percentile of errors in %")
        for kind, found in errors.items():
            print(f"  {kind:9} {len(found):4} {np.median(found):6.2f} {np.percentile(found, 90):6.2f}")
        median, ninetieth = np.median(errors["all"]), np.percentile(errors["all"], 90)
        good = median <= MEDIAN and ninetieth <= NINETIETH if figures == "probed" else median <= FROM_SHEET
        for steady in (True, False):
            # Prefetches of managed pages take twice as long in one process as in another: what is best there is luck.
            costs = [pick.cost_percent for pick in result["picks"] if (pick.memory != "managed") == steady]
            right = 100 * float(np.mean([cost <= WITHIN for cost in costs]))
            good &= figures != "probed" or not steady or right >= PICKED
            named = "copied or mapped" if steady else "managed (no goal)"
            print(
                f"  picks within {WITHIN:g} %, {named}: {right:.1f} % of {len(costs)}; costliest {max(costs):.1f} %"
            )
        even = result["break_even"]
        if even and even.error_percent is not None:
            good &= figures != "probed" or abs(even.error_percent) <= TOKENS
            print(
                f"  break-even: {even.measured_tokens:.1f} tokens measured, {even.predicted_tokens:.1f} predicted"
            )
        met &= good
        print(f"  {'met' if good else 'MISSED'}")
    for machine, figures, cells in layouts():
        off = [abs(row.error_percent or 0.0) for cell in cells for row in cell.layouts]
        right = sum(not cell.ranking.wrong for cell in cells)
        print(
            f"{machine}, {figures}: layouts, {len(off)} cases, median {np.median(off):.1f} %, 90th percentile "
            f"{np.percentile(off, 90):.1f}; ranked right {right} of {len(cells)}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
