"""Results of bench with predictions made anew: today's models, the node file beside the result, and the kernels' times
that were measured; runs are read from their samples in today's way. Where the raw samples of that node file are in
results/probe/, they are fitted in today's way. They were made after the run, and say so.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.measure.bench.cell import seconds_of
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.methods import SWEEP_METHODS, Case, crossover, predicted_of
from busfare.measure.bench.methods_result import wrong_pairs
from busfare.measure.bench.predicting import MOST_IN_ORDER, Predicted, problem_of
from busfare.measure.bench.work import Work
from busfare.measure.probe import again as fitted_again
from busfare.node import load_node
from busfare.plan import Machine, machine_of

__all__ = ["predicted_again"]

PROBES = Path(__file__).parents[1] / "results" / "probe"
#: Of a raw file, so many characters hold its date.
_HEAD = 400


def predicted_again(
    result: dict[str, Any], path: Path, known: tuple[Machine, str] | None = None
) -> dict[str, Any]:
    """The same result with predictions of today; `known`: by the figures of this machine, and its name. Raises InputError
    where the result's node file is not beside it.
    """
    named = re.search(r"--node (\S+)", result["command"])
    node = path.parent / Path(named[1]).name if named else path.with_suffix(".toml")
    if not node.exists():
        raise InputError(f"{node}: not there; put the node file that the result names beside it")
    machine, source = known or _machine(node)
    if "strategies" in result["schema"]:
        cells = [_strategies(cell, machine) for cell in result["cells"]]
        return result | {"again": source, "cells": cells}
    cells = [_methods(cell, machine) for cell in result["cells"]]
    return result | {"again": source, "cells": cells, "crossover": _crossing(result["crossover"], cells)}


def _machine(path: Path) -> tuple[Machine, str]:
    """The machine of a node file, from its raw samples where they are kept, and the name of what was read."""
    node = load_node(str(path))
    dates = {m.date for m in node.measured if m.date}
    raw = next((_raw()[date] for date in dates if date in _raw()), None)
    return (machine_of(node), path.name) if raw is None else (machine_of(fitted_again(raw).node), raw.name)


@cache
def _raw() -> dict[str, Path]:
    """The raw samples that are kept, by the date of their run."""
    found = {}
    for path in sorted(PROBES.glob("*.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            date = re.search(r'"date": "([^"]+)"', file.read(_HEAD))
        if date:
            found[date[1]] = path
    return found


def _strategies(cell: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """A cell of strategies; versions on several GPUs keep their predictions."""
    kernel = KERNELS.get(cell["kernel"])
    if kernel is None:
        raise InputError(f"{cell['kernel']}: a kernel of the user's own, whose source is not in the result")
    work = Work(kernel, cell["levels"], cell["level_elements"])
    alone = {row["chunks"]: row["seconds"] for row in cell["measured_kernel_seconds_by_chunks"]}
    most = min(MOST_IN_ORDER if kernel.reaches else 256, work.most_chunks)
    told = Predicted.of(problem_of(work, alone), machine, most, bool(kernel.reaches))
    versions = []
    for version in cell["versions"]:
        found = told.at(version["strategy"], version["streams"]) if version["gpus"] == 1 else None
        moments = version.get("samples_by_moment", [])
        read = {"measured_seconds": seconds_of(version["strategy"], version["samples_seconds"], moments)}
        versions.append(version | read | ({"predicted_seconds": found.seconds} if found else {}))
    best = told.best
    planned = {"strategy": best.strategy, "streams": best.streams, "seconds": best.seconds}
    measured = {(v["strategy"], v["streams"]) for v in versions}
    if (best.strategy, best.streams) not in measured:
        # Nobody ran that number: the nearest of the strategy's that was run stands for it.
        own = [v for v in versions if v["strategy"] == best.strategy]
        planned["streams"] = min(own, key=lambda v: abs(v["streams"] - best.streams))["streams"] if own else 1
    return cell | {
        "versions": versions,
        "best": cell["best"] | {"predicted": planned},
        "streams": cell["streams"] | {"predicted_best": told.best_number("streams")},
    }


def _methods(cell: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """A case of methods. Its whole program's pick stays as it was said."""
    told = predicted_of(Case(cell["elements"], cell["accesses"]), cell["measured_kernel_seconds"], machine)
    methods = [m | {"predicted_gpu_seconds": told.seconds.get(m["method"])} for m in cell["methods"]]
    samples = {m["method"]: m["gpu_samples_seconds"] for m in methods}
    planned = {name: told.seconds[name] for name in samples if name in told.seconds}
    measured = {m["method"]: float(m["measured_gpu_seconds"]) for m in methods}
    fastest, chosen = min(measured, key=lambda n: measured[n]), min(planned, key=lambda n: planned[n])
    alike = ("pinned", "registered", "batched")
    taken = min(measured[n] for n in (alike if chosen in alike else (chosen,)) if n in measured)
    cost = 100 * (taken / measured[fastest] - 1)
    best = {"measured": fastest, "predicted": chosen, "cost_percent": cost, "picked": cost <= 0}
    wrong = wrong_pairs(samples, planned)
    return cell | {"methods": methods, "best": best, "ranking": cell["ranking"] | {"wrong": wrong}}


def _crossing(crossing: dict[str, Any] | None, cells: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The crossover, predicted anew."""
    if crossing is None:
        return None
    swept = {}
    for cell in cells:
        seconds = {m["method"]: m["predicted_gpu_seconds"] for m in cell["methods"]}
        if cell["elements"] == crossing["elements"] and cell["accesses"] in crossing["accesses"]:
            swept[cell["accesses"]] = [seconds[name] for name in SWEEP_METHODS]
    accesses = sorted(swept)
    pinned, mapped = ([swept[a][n] for a in accesses] for n in (0, 1))
    return crossing | {"predicted_accesses": crossover(accesses, mapped, pinned)}
