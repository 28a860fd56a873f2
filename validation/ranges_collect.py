"""Predictions beside truths that nothing was fitted to, by rung and kind: what `ranges.py` derives the ranges from.

Run `python validation/ranges_collect.py [PART …]` to write `results/ranges/PART.csv.gz` anew: `published` (others' copies
and traces, from the folder that `BUSFARE_SHARED` names), `probe` (a second process, and other machines of the kind),
`bench` (strategies and methods), `moved` (programs on the other kind of GPU), `changes` (programs before and after).
Rows of `published` are means over one machine, memory kind, direction and size.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from io import TextIOWrapper
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import polars as pl
from bench_again import predicted_again
from datasheet import without_copy_rates
from node_change import moved
from pairs.judged import Machine, NoAnswerError
from pairs.table import FILE, Plan, read_plan
from published import LARGE_BYTES, Row, node_of, read, same_gpu, sift
from replay_pairs import machines_in

from busfare import cost
from busfare.advise import guess_node
from busfare.cost.price import one_copy
from busfare.errors import BusfareError
from busfare.measure.profile import profile
from busfare.measure.raw import read as read_raw
from busfare.measure.residual import residuals
from busfare.node import Node, NvlinkLink, catalogue_names, load_node
from busfare.plan import machine_of
from busfare.project.projection import transfers_priced
from busfare.timeline.changes.change import Change
from busfare.trace import read as read_trace

RESULTS = Path(__file__).parents[1] / "results"
OUT = RESULTS / "ranges"
SHARED = Path(os.environ.get("BUSFARE_SHARED", "../shared"))
#: What a machine is called in the catalogue by its data sheet alone.
DATA_SHEETS = {"h100": "h100-sxm", "h200": "h200-sxm"}
FROM_DATA_SHEETS = ("datasheet", "ahead", "peak", "envelope")
COPIED = ("pinned", "pageable", "managed")
#: What notes say of copies between GPUs that do not go straight from one to the other, or by a kernel.
NOT_DIRECT = re.compile(
    r"disabled|staged|p2p off|across|\bsm\b|bridges|inferred|virtual|unverified|not verified"
)
#: Published copies of other machines that each machine's are carried from.
CARRIED_FROM = 12
PAIRS = ("pairs", "pairs-held-out", "pairs-machines", "pairs-unseen")


@dataclass(frozen=True)
class Truth:
    """One prediction and what then was, both in seconds (of `gain`: shares of the run). `machine` and `program` are what
    is left out together when a range is judged.
    """

    figures: str
    model: str
    what: str
    direction: str
    bytes: int
    machine: str
    program: str
    predicted: float
    actual: float


def open_to_write(path: Path) -> TextIOWrapper:
    """Compressed without a time, so that the same rows are the same file."""
    return TextIOWrapper(gzip.GzipFile(path, "wb", 9, mtime=0), encoding="utf-8", newline="")


def main() -> int:
    parts = sys.argv[1:] or list(PARTS)
    OUT.mkdir(exist_ok=True)
    for part in parts:
        rows = [t for t in PARTS[part]() if np.isfinite([t.predicted, t.actual]).all()]
        with open_to_write(OUT / f"{part}.csv.gz") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Truth.__dataclass_fields__)
            for t in sorted(rows, key=lambda t: (t.figures, t.model, t.what, t.machine, t.program, t.bytes)):
                figures = f"{t.predicted:.4g}", f"{t.actual:.4g}"
                writer.writerow(
                    [t.figures, t.model, t.what, t.direction, t.bytes, t.machine, t.program, *figures]
                )
        print(f"{part}: {len(rows)} predictions of {len({t.machine for t in rows})} machines")
    return 0


# --- published -----------------------------------------------------------------------------------------------


def published() -> Iterator[Truth]:
    rows = read()
    known = {(row.author, row.memory) for row in rows}
    further = [row for row in _of_contention() if (row.author, row.memory) not in known]
    kept, _ = sift([*rows, *further])
    seconds: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    nodes: dict[tuple[str, str, str, int], Node] = {}
    for row in kept:
        between = row.direction == "p2p" and not NOT_DIRECT.search(row.notes)
        node = _of_several(row) if between else node_of(row)
        wanted = between or (row.direction in ("h2d", "d2h") and row.memory in COPIED)
        if node is None or not wanted or not row.copied or not row.bytes_per_second > 0:
            continue
        wire = f"{row.link}{row.generation}x{row.width}"
        key = (f"{row.gpu}, {wire} | {row.author}", row.direction, row.memory, row.copied)
        seconds[key].append(row.copied / row.bytes_per_second)
        # Nothing that was measured there: neither its starts nor its processor's rates.
        nodes[key] = replace(without_copy_rates(node), measured=(), costs=())
    for key, taken in _of_probes():
        seconds[key] = taken
        nodes[key] = load_node(DATA_SHEETS[key[0][7:11].lower()])
    large: dict[tuple[str, str], list[tuple[str, Node, int, float]]] = defaultdict(list)
    for (machine, direction, memory, size), taken in seconds.items():
        node, actual = nodes[machine, direction, memory, size], geometric_mean(taken)
        operations = one_copy(direction, memory, [size])
        for name in FROM_DATA_SHEETS:
            predicted = float(cost.model(name).seconds(operations, node)[0])
            what = "p2p" if direction == "p2p" else memory
            yield Truth("datasheet", name, what, direction, size, machine, "", predicted, actual)
        if size >= LARGE_BYTES // 2 and direction != "p2p":
            large[direction, memory].append((machine, node, size, actual))
    for (direction, memory), found in large.items():
        yield from _carried(direction, memory, found)
    yield from _of_traces()


def _of_several(row: Row) -> Node | None:
    """The catalogue's machine whose GPUs are joined as the row says."""
    for name in catalogue_names():
        node = load_node(name)
        gpus = [gpu.name for gpu in node.gpus()]
        if len(gpus) > 1 and same_gpu(node, row):
            wires = node.route(gpus[0], gpus[1]).links
            if [(str(w.generation), str(w.links)) for w in wires if isinstance(w, NvlinkLink)][:1] == [
                (row.generation, row.width)
            ]:
                return node
    return None


def _of_probes() -> Iterator[tuple[tuple[str, str, str, int], list[float]]]:
    """What our own probes measured, as of one machine for each GPU: it has one data sheet."""
    seconds: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for path in sorted((RESULTS / "probe").glob("*-run1.json.gz")):
        for m in read_raw(path).measurements:
            c = m.case
            one = c.mode == "copies" and c.count == 1 and c.memory in ("pinned", "pageable")
            several = "-x2" in path.name
            if c.bytes and (c.direction == "p2p" and c.mode == "copies" and c.count == 1 if several
                            else one or c.mode == "prefetch"):  # fmt: skip
                machine = f"NVIDIA {path.name[:4].upper()}, results/probe"
                seconds[machine, c.direction, c.memory, c.bytes].append(m.undisturbed_s)
    return iter(seconds.items())


def _carried(direction: str, memory: str, found: list[tuple[str, Node, int, float]]) -> Iterator[Truth]:
    """Large copies of each machine, predicted from those of others by `calibrated` and data sheets."""
    each = {machine: (machine, node, size, actual) for machine, node, size, actual in found}
    listed = sorted(each.values(), key=lambda one: one[0])
    for place, (machine, node, size, actual) in enumerate(listed):
        others = [listed[(place + step) % len(listed)] for step in range(1, len(listed))]
        for other, old, old_size, taken in others[:: max(1, len(others) // CARRIED_FROM)]:
            ends = pl.Series([int(taken * size / old_size * 1e9)])
            operations = one_copy(direction, memory, [size]).with_columns(
                start_ns=pl.lit(0, pl.Int64), end_ns=ends
            )
            predicted = float(cost.model("calibrated", recorded_on=old).seconds(operations, node)[0])
            yield Truth("datasheet", "calibrated", memory, direction, size, machine, other, predicted, actual)


def _of_contention() -> Iterator[Row]:
    with (SHARED / "data/contention.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            known = {"pageable_copy": "pageable", "managed_prefetch": "managed",
                     "managed_fault_migration": "managed"}.get(line["metric"])  # fmt: skip
            wire = re.fullmatch(r"(PCIe|NVLink)(\d) x(\d+)(?: host)?|C2C", line["link"].strip())
            # The thesis's rows are in measurements.csv, too.
            if not known or not wire or line["unit"] != "GB/s" or "cwpearson" in line["source"]:
                continue
            if line["verified"] != "yes" or "measurements.csv" in line["notes"] or "quotes" in line["notes"]:
                continue
            link = {"PCIe": "pcie", "NVLink": "nvlink", None: "nvlink-c2c"}[wire[1]]
            size = int(float(line["size_bytes"] or LARGE_BYTES))
            rate = float(line["value"]) * 1e9
            source = re.split(r"[ (]", line["source"])[0]
            gpu = line["gpu"] + (" (inferred)" if "inferred" in line["gpu"] else "")
            notes = line["notes"].lower() + (" link inferred" if "inferred" in gpu else "")
            yield Row(gpu, "", link, wire[2] or "", wire[3] or "", line["direction"], known, size, rate,
                      "", source, notes)  # fmt: skip


def _of_traces() -> Iterator[Truth]:
    """Copies inside GPUs, and migrations, of others' traces by the data sheet of the GPU that each names."""
    for path in sorted((SHARED / "data/traces").rglob("*")):
        if not path.is_file():
            continue
        try:
            trace = read_trace(path)
        except BusfareError:
            continue
        node = guess_node(trace)
        if node is None:
            continue
        priced = transfers_priced(trace, node, node, "datasheet").drop_nulls("predicted_seconds")
        gpus = sorted({name for name in trace.devices["name"].to_list() if name})
        machine = f"{', '.join(gpus)} | {path.name}"
        yield from _by_size(priced, machine, ("device", "managed"))


def _by_size(priced: pl.DataFrame, machine: str, kinds: Iterable[str]) -> Iterator[Truth]:
    host = pl.when(pl.col("direction") == "h2d").then("source_memory").otherwise("destination_memory")
    memory = (
        pl.when(pl.col("direction").is_in(["h2d", "d2h"]))
        .then(host.cast(pl.String))
        .otherwise(pl.lit("device"))
    )
    rows = priced.with_columns(memory=memory).filter(
        pl.col("memory").is_in(list(kinds)), pl.col("bytes") > 0, pl.col("recorded_seconds") > 0
    )
    keys = ["memory", "direction", "bytes"]
    means = rows.group_by(keys, maintain_order=True).agg(
        pl.col("predicted_seconds", "recorded_seconds").mean()
    )
    for row in means.iter_rows(named=True):
        yield Truth("datasheet", "datasheet", row["memory"], str(row["direction"]), row["bytes"], machine, "",
                    row["predicted_seconds"], row["recorded_seconds"])  # fmt: skip


# --- probe ---------------------------------------------------------------------------------------------------


def probe() -> Iterator[Truth]:
    """`here`: the second process on the same machine; `there`: the first one on another machine of the kind."""
    jobs = []
    firsts = sorted((RESULTS / "probe").glob("*-run1.json.gz"))
    for kind in (("h100", False), ("h200", False), ("h200", True)):
        own = [p for p in firsts if (p.name[:4], "-x2" in p.name) == kind]
        jobs += list(zip(own, [*own[1:], own[0]], strict=True))
    with _processes() as pool:
        for found in pool.map(_probed, jobs):
            yield from found


def _processes() -> ProcessPoolExecutor:
    """Processes of their own: a copy of one whose threads Polars has started may wait for ever."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def _probed(job: tuple[Path, Path]) -> list[Truth]:
    path, other = job
    measured = profile(read_raw(path)).measured
    again = path.with_name(path.name.replace("-run1", "-run2"))
    found = []
    for figures, record in (("probed", again), ("elsewhere", other)):
        if not record.exists():
            continue
        for r in residuals(measured, read_raw(record), held_out_only=False):
            between = r.case.direction == "p2p"
            if (
                r.case.mode == "copies"
                and r.case.count == 1
                and r.case.bytes
                and between == ("-x2" in path.name)
            ):
                machine = path.name.partition("-run1")[0]
                found.append(
                    Truth(figures, "loggp", "p2p" if between else r.case.memory, r.case.direction, r.case.bytes, machine,
                          "" if figures == "probed" else record.name.partition("-run1")[0],
                          r.predicted_s, r.measured_s)
                )  # fmt: skip
    return found


# --- bench ---------------------------------------------------------------------------------------------------


def bench() -> Iterator[Truth]:
    paths = sorted((RESULTS / "bench").rglob("*-h[12]00.json"))
    with _processes() as pool:
        for found in pool.map(_benched, paths):
            yield from found


def _benched(path: Path) -> list[Truth]:
    result = json.loads(path.read_text("utf-8"))
    kind = "h100" if "H100" in result["gpu"] else "h200"
    machine = str(path.parent.relative_to(RESULTS))
    found: list[Truth] = []
    for figures, node in (("probed", ""), ("elsewhere", f"{kind}-probed"), ("datasheet", DATA_SHEETS[kind])):
        known = (machine_of(load_node(node)), node) if node else None
        again = predicted_again(result, path, known)
        for cell in again["cells"]:
            found += (
                _of_versions(cell, figures, machine)
                if "versions" in cell
                else _of_methods(cell, figures, machine)
            )
    return found


def _of_versions(cell: dict[str, Any], figures: str, machine: str) -> Iterator[Truth]:
    """Each strategy with the number of streams that it is predicted to take for the best: what `plan` shows."""
    rows = [v for v in cell["versions"] if v["gpus"] == 1 and v.get("predicted_seconds")]
    for v in rows:
        if v["predicted_seconds"] == min(
            w["predicted_seconds"] for w in rows if w["strategy"] == v["strategy"]
        ):
            yield Truth(figures, v["strategy"], "strategy", "", 0, machine, cell["name"],
                        v["predicted_seconds"], v["measured_seconds"])  # fmt: skip


def _of_methods(cell: dict[str, Any], figures: str, machine: str) -> Iterator[Truth]:
    for m in cell["methods"]:
        if m.get("predicted_gpu_seconds") and m.get("measured_gpu_seconds"):
            yield Truth(figures, m["method"], "method", "", 0, machine,
                        f"{cell['elements']} elements, {cell['accesses']} accesses",
                        m["predicted_gpu_seconds"], m["measured_gpu_seconds"])  # fmt: skip


# --- programs ------------------------------------------------------------------------------------------------


@lru_cache
def _plans() -> dict[str, Plan]:
    return {folder: read_plan(FILE.with_name("unseen.toml" if folder == "pairs-unseen" else "pairs.toml"))
            for folder in PAIRS}  # fmt: skip


class BySheet(Machine):
    """A machine of which nothing but the data sheet is known."""

    def node(self, plan: Plan, program: str) -> str:
        return DATA_SHEETS[self.kind]


class ByAnother(Machine):
    """A machine for which another one of its kind was probed: the catalogue's."""

    def node(self, plan: Plan, program: str) -> str:
        return f"{self.kind}-probed"


def _machines(folder: str) -> list[Machine]:
    return [
        m
        for m in machines_in(RESULTS / folder).values()
        if m.kind in DATA_SHEETS and (m.folder / "times.json").exists()
    ]


def _known_as(m: Machine) -> dict[str, Machine]:
    """The machine, by whose figures it may be known."""
    named = (m.name, m.folder, m.times)
    return {"probed": m, "elsewhere": ByAnother(*named), "datasheet": BySheet(*named)}


def moved_programs() -> Iterator[Truth]:
    """Every machine of one kind carried to two of the other, by turns."""
    every = [m for folder in PAIRS[:3] for m in _machines(folder)]
    jobs = []
    for place, origin in enumerate(every):
        others = [m for m in every if m.kind != origin.kind]
        jobs += [(origin, others[(2 * place + step) % len(others)]) for step in (0, 1)]
    with _processes() as pool:
        for found in pool.map(_moved, jobs):
            yield from found


def _moved(job: tuple[Machine, Machine]) -> list[Truth]:
    origin, target = job
    plan = _plans()["pairs"]
    found = []
    name, other = (f"{m.folder.parent.name}/{m.name}" for m in (target, origin))
    here, there = _known_as(origin), _known_as(target)
    for figures, one in here.items():
        two = there[figures]
        for program in plan.programs:
            try:
                was = moved(program, one, two, plan)
            except BusfareError:
                continue
            if was is None:
                continue
            found.append(
                Truth(figures, "calibrated", "run", other, 0, name, program, was.predicted, was.measured)
            )
            if was.copies is not None:
                for row in was.copies.by_path.iter_rows(named=True):
                    memory = row["source_memory"] if row["direction"] == "h2d" else row["destination_memory"]
                    kind = memory if row["direction"] in ("h2d", "d2h") else "device"
                    size = 0
                    found.append(
                        Truth(figures, "calibrated", kind or "pinned", row["direction"] or "", size, name,
                              program, row["predicted_seconds"], row["recorded_seconds"])
                    )  # fmt: skip
    return found


def changes() -> Iterator[Truth]:
    jobs = [(folder, m) for folder in PAIRS for m in _machines(folder)]
    with _processes() as pool:
        for found in pool.map(_changed, jobs):
            yield from found


def _changed(job: tuple[str, Machine]) -> list[Truth]:
    from busfare.report.recording_cost import without_recorder
    from busfare.timeline import timeline
    from busfare.timeline.changes.change import Setting
    from busfare.timeline.changes.what_if import what_if

    folder, machine = job
    plan = _plans()[folder]
    found = []
    for figures, one in _known_as(machine).items():
        for pair in plan.pairs:
            if pair.target:
                continue
            try:
                before, after = one.seconds(pair.program, pair.before), one.seconds(pair.program, pair.after)
                trace = read_trace(one.recording(pair.program, pair.recording))
                node = load_node(one.node(plan, pair.program))
                run, _ = without_recorder(timeline(trace, node), before)
                chosen = what_if(run, _changes(pair.options, node), Setting(node))
            except (NoAnswerError, BusfareError, KeyError):
                continue
            base = chosen.baseline.makespan_seconds
            gain = chosen.together.gain_seconds(chosen.baseline) / base
            name = f"{folder}/{machine.name}"
            found.append(
                Truth(
                    figures, _kinds(pair.options), "gain", "", 0, name, pair.program, gain, 1 - after / before
                )
            )
    return found


def _kinds(options: tuple[str, ...]) -> str:
    return " ".join(option for option in options if option.startswith("--"))


def _changes(options: tuple[str, ...], node: Node) -> list[Change]:
    from busfare.cli import _with_empty_values
    from busfare.cli.traces import what_if as command
    from busfare.timeline.changes.options import Options, changes_of

    given = command.make_context("what-if", _with_empty_values(["what-if", "x", *options])[1:]).params
    fields = {k: v for k, v in given.items() if k in Options.__dataclass_fields__}
    fields["asynchronous"] = given["async_"]
    return changes_of(Options(**fields), node)


PARTS: dict[str, Callable[[], Iterator[Truth]]] = {
    "published": published,
    "probe": probe,
    "bench": bench,
    "moved": moved_programs,
    "changes": changes,
}

if __name__ == "__main__":
    sys.exit(main())
