"""Predictions of today beside truths that nothing was fitted to, by rung and kind: what `ranges.py` derives ranges from."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

import polars as pl
from bench import predicted_methods, predicted_versions, runs
from node_change import KINDS, moved, targets
from pairs.table import read_plan
from published import (
    LARGE_BYTES,
    SHARED,
    Row,
    joined_node_of,
    node_of,
    read,
    sift,
    without_copy_rates,
)
from stored import Machine, NoAnswerError, busfare, machines, probe_names, probe_raw, probed_node

from busfare import cost
from busfare.advise import guess_node
from busfare.cost.price import one_copy
from busfare.errors import BusfareError
from busfare.measure.profile import profile, residuals
from busfare.measure.raw import read as read_raw
from busfare.node import Node, load_node
from busfare.project.projection import transfers_priced
from busfare.timeline import timeline
from busfare.trace import read as read_trace

FROM_DATA_SHEETS = ("datasheet", "ahead", "peak", "envelope")
COPIED = ("pinned", "pageable", "managed")
#: What notes say of copies between GPUs that do not go straight from one to the other, or by a kernel.
NOT_DIRECT = re.compile(
    r"disabled|staged|p2p off|across|\bsm\b|bridges|inferred|virtual|unverified|not verified"
)
#: Published copies of other machines that each machine's are carried from.
CARRIED_FROM = 12
#: Machines of the other kind that programs are carried to.
MOVED_TO = 3


@dataclass(frozen=True)
class Truth:
    """One prediction and what then was, seconds. `figures`: of the node, `probed` there, `elsewhere` on another machine of
    the kind, or the `datasheet`. `group`: what is left out together when a range is judged, a machine or a program.
    """

    figures: str
    model: str
    what: str
    bytes: int
    group: str
    predicted: float
    actual: float


def published() -> Iterator[Truth]:
    """Others' copies and traces, from data sheets alone; means over one machine, memory kind, direction and size."""
    rows = read()
    known = {(row.author, row.memory) for row in rows}
    further = [row for row in _of_contention() if (row.author, row.memory) not in known]
    seconds: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    nodes: dict[tuple[str, str, str, int], Node] = {}
    for row in sift([*rows, *further])[0]:
        between = row.direction == "p2p" and not NOT_DIRECT.search(row.notes)
        node = joined_node_of(row) if between else node_of(row)
        wanted = between or (row.direction in ("h2d", "d2h") and row.memory in COPIED)
        if node is None or not wanted or not row.copied or not row.bytes_per_second > 0:
            continue
        wire = f"{row.link}{row.generation}x{row.width}"
        key = (f"{row.gpu}, {wire} | {row.author}", row.direction, row.memory, row.copied)
        seconds[key].append(row.copied / row.bytes_per_second)
        nodes[key] = unmeasured(node)
    large: dict[tuple[str, str], list[tuple[str, Node, int, float]]] = defaultdict(list)
    for (machine, direction, memory, size), taken in seconds.items():
        node, actual = nodes[machine, direction, memory, size], geometric_mean(taken)
        operations = one_copy(direction, memory, [size])
        what = "p2p" if direction == "p2p" else memory
        for name in FROM_DATA_SHEETS:
            predicted = float(cost.model(name).seconds(operations, node)[0])
            yield Truth("datasheet", name, what, size, machine, predicted, actual)
        if size >= LARGE_BYTES // 2 and direction != "p2p":
            large[direction, memory].append((machine, node, size, actual))
    for (direction, memory), found in large.items():
        yield from _carried(direction, memory, found)
    yield from _of_traces()


def unmeasured(node: Node) -> Node:
    """The node with nothing that was measured there: neither its copies nor its processor's rates."""
    return without_copy_rates(replace(node, curves=(), contentions=(), costs=()))


def _carried(direction: str, memory: str, found: list[tuple[str, Node, int, float]]) -> Iterator[Truth]:
    """Large copies of each machine, predicted from those of others by `calibrated` and data sheets."""
    listed = sorted({machine: (machine, *rest) for machine, *rest in found}.values(), key=lambda one: one[0])
    for place, (machine, node, size, actual) in enumerate(listed):
        others = [listed[(place + step) % len(listed)] for step in range(1, len(listed))]
        for _, old, old_size, taken in others[:: max(1, len(others) // CARRIED_FROM)]:
            ends = pl.Series([int(taken * size / old_size * 1e9)])
            times = {"start_ns": pl.lit(0, pl.Int64), "end_ns": ends}
            operations = one_copy(direction, memory, [size]).with_columns(**times)
            predicted = float(cost.model("calibrated", recorded_on=old).seconds(operations, node)[0])
            yield Truth("datasheet", "calibrated", memory, 0, machine, predicted, actual)


def _of_contention() -> Iterator[Row]:
    """Pageable and managed copies of contention.csv."""
    kinds = {"pageable_copy": "pageable", "managed_prefetch": "managed", "managed_fault_migration": "managed"}
    with (SHARED / "data/contention.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            wire = re.fullmatch(r"(PCIe|NVLink)(\d) x(\d+)(?: host)?|C2C", line["link"].strip())
            # The thesis's rows are in measurements.csv, too.
            quoted = (
                "cwpearson" in line["source"]
                or "measurements.csv" in line["notes"]
                or "quotes" in line["notes"]
            )
            if (
                line["metric"] in kinds
                and wire
                and line["unit"] == "GB/s"
                and line["verified"] == "yes"
                and not quoted
            ):
                inferred = "inferred" in line["gpu"]
                yield Row(
                    gpu=line["gpu"] + (" (inferred)" if inferred else ""),
                    host="",
                    link={"PCIe": "pcie", "NVLink": "nvlink", None: "nvlink-c2c"}[wire[1]],
                    generation=wire[2] or "",
                    width=wire[3] or "",
                    direction=line["direction"],
                    memory=kinds[line["metric"]],
                    size=int(float(line["size_bytes"] or LARGE_BYTES)),
                    bytes_per_second=float(line["value"]) * 1e9,
                    tool="",
                    source=re.split(r"[ (]", line["source"])[0],
                    notes=line["notes"].lower() + (" link inferred" if inferred else ""),
                )


def _of_traces() -> Iterator[Truth]:
    """Copies inside GPUs, and migrations, of others' traces by the data sheet of the GPU that each names."""
    for path in sorted(p for p in (SHARED / "data/traces").rglob("*") if p.is_file()):
        try:
            trace = read_trace(path)
        except BusfareError:
            continue
        node = guess_node(trace)
        if node is not None:
            gpus = ", ".join(sorted({name for name in trace.devices["name"].to_list() if name}))
            yield from _by_size(transfers_priced(trace, node, node, "datasheet"), f"{gpus} | {path.name}")


def _by_size(priced: pl.DataFrame, machine: str) -> Iterator[Truth]:
    host = pl.when(pl.col("direction") == "h2d").then("source_memory").otherwise("destination_memory")
    crosses = pl.col("direction").is_in(["h2d", "d2h"])
    memory = pl.when(crosses).then(host.cast(pl.String)).otherwise(pl.lit("device"))
    rows = (
        priced.drop_nulls("predicted_seconds")
        .with_columns(memory=memory)
        .filter(
            pl.col("memory").is_in(["device", "managed"]),
            pl.col("bytes") > 0,
            pl.col("recorded_seconds") > 0,
        )
    )
    times = ["predicted_seconds", "recorded_seconds"]
    for kind, _, size, predicted, actual in (
        rows.group_by("memory", "direction", "bytes", maintain_order=True).agg(pl.col(times).mean()).rows()
    ):
        yield Truth("datasheet", "datasheet", kind, size, machine, predicted, actual)


def probes() -> Iterator[Truth]:
    """Single copies of the process after a probe on the same machine; and of another machine of the kind."""
    again = set(probe_names(run=2))
    kinds = [
        [name for name in probe_names() if name.startswith(start) and ("-x2" in name) == two]
        for start, two in (("h100", False), ("h200", False), ("h200", True))
    ]
    for own in kinds:
        for name, other in zip(own, [*own[1:], own[0]], strict=True):
            measured = profile(read_raw(probe_raw(f"{name}-run1"))).curves
            jobs = [("elsewhere", f"{other}-run1")] + ([("probed", f"{name}-run2")] if name in again else [])
            for figures, record in jobs:
                for r in residuals(measured, read_raw(probe_raw(record)), held_out_only=False):
                    between = r.case.direction == "p2p"
                    single = r.case.mode == "copies" and r.case.count == 1 and r.case.bytes
                    if single and between == ("-x2" in name):
                        what = "p2p" if between else r.case.memory
                        yield Truth(figures, "loggp", what, r.case.bytes, name, r.predicted_s, r.measured_s)


def benches() -> Iterator[Truth]:
    """Each strategy with the number of streams that `plan` shows for it; and methods."""
    for kind in ("strategies", "methods"):
        for _, result in runs(kind):
            gpu = "h100" if "H100" in result["gpu"] else "h200"
            known = _nodes(gpu, probed_node(result["probe"]))
            for figures, node in known.items():
                for cell in result["cells"]:
                    yield from _benched(kind, figures, cell, node)


def _benched(kind: str, figures: str, cell: dict[str, Any], node: Node) -> Iterator[Truth]:
    if kind == "methods":
        name = f"{cell['elements']} elements, {cell['accesses']} accesses"
        for method, measured, told in predicted_methods(cell, node):
            yield Truth(figures, method, "method", 0, name, told, measured)
        return
    rows = predicted_versions(cell, node)[1]
    for strategy in {version.strategy for version, _ in rows}:
        version, told = min((row for row in rows if row[0].strategy == strategy), key=lambda row: row[1])
        yield Truth(figures, strategy, "strategy", 0, cell["name"], told, version.seconds)


def _nodes(gpu: str, probed: Node) -> dict[str, Node]:
    """A machine by what may be known of it."""
    return {
        "probed": probed,
        "elsewhere": load_node(f"{gpu}-probed"),
        "datasheet": load_node(f"{gpu}-sxm"),
    }


def moves() -> Iterator[Truth]:
    """Programs on machines of the other kind, some of them: whole runs, and their copies by memory kind."""
    for origin in machines("pairs"):
        other = KINDS[1 - KINDS.index(origin.gpu)]
        here = _nodes(origin.gpu, probed_node(origin.times["probe"]))
        away = list(targets(other).values())[:MOVED_TO]
        known = [_nodes(other, probed_node(told["probe"])) for told in away]
        for program in read_plan("pairs.toml").programs:
            trace = read_trace(origin.recording(program, "before"))
            seconds = origin.seconds(program, "before")
            for figures, node in here.items():
                rebuilt = timeline(trace, node)
                for told, there in zip(away, known, strict=True):
                    if measured := told["programs"].get(program):
                        one = moved(program, rebuilt, trace, seconds, (node, there[figures]), measured)
                        yield Truth(figures, "calibrated", "run", 0, program, *one.run)
                        yield from _of_paths(figures, program, one.copies)


def _of_paths(figures: str, program: str, copies: dict[Any, tuple[float, float]]) -> Iterator[Truth]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (direction, source, destination, _), (predicted, actual) in copies.items():
        memory = {"h2d": source, "d2h": destination}.get(direction, "device")
        sums[direction, memory or "pinned"][0] += predicted
        sums[direction, memory or "pinned"][1] += actual
    for (_, memory), (predicted, actual) in sums.items():
        yield Truth(figures, "calibrated", memory, 0, program, predicted, actual)


def changes() -> Iterator[Truth]:
    """Programs written after the models, changed: times after the change over those before."""
    plan = read_plan("unseen.toml")
    for machine in machines("unseen"):
        nodes = {
            "probed": machine.node,
            "elsewhere": f"{machine.gpu}-probed",
            "datasheet": f"{machine.gpu}-sxm",
        }
        for pair in plan.pair:
            for figures, node in nodes.items():
                try:
                    yield _changed(machine, pair, figures, node)
                except NoAnswerError:
                    continue


def _changed(machine: Machine, pair: Any, figures: str, node: str) -> Truth:
    before, after = machine.seconds(pair.program, pair.before), machine.seconds(pair.program, pair.after)
    recording = str(machine.recording(pair.program, pair.recording))
    answer = busfare("what-if", recording, *pair.options, "--unrecorded", f"{before:.9f}s", "--from", node)
    predicted = answer["predicted_seconds"] / answer["baseline"]["replayed_seconds"]
    named = " ".join(option for option in pair.options if option.startswith("--"))
    return Truth(figures, named, "change", 0, pair.program, predicted, after / before)


def kernels() -> Iterator[Truth]:
    """Kernels on another GPU."""
    from kernels import truths

    return truths()


def collectives() -> Iterator[Truth]:
    """Collectives from the node's links, and by lines fitted to other sizes."""
    from collectives import truths

    return truths()


def layers() -> Iterator[Truth]:
    """Layers of networks from data sheets."""
    from layers import truths

    return truths()


def offload() -> Iterator[Truth]:
    """What lives on the host: streamed layers and KV caches."""
    from offload import truths

    return truths()


PARTS: dict[str, Any] = {
    "published": published,
    "probe": probes,
    "bench": benches,
    "moved": moves,
    "changes": changes,
    "kernels": kernels,
    "collectives": collectives,
    "layers": layers,
    "offload": offload,
}
