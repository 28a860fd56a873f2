"""Findings in a trace: those of every rule, priced by replay where the run can be replayed, largest gain first."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl
from msgspec.structs import replace

from busfare.advise.by_replay import CANDIDATES, priced_by_replay
from busfare.advise.finding import Finding, call_sites, language_of
from busfare.advise.rules import COPY, DIRECTIONS, TO_OR_FROM_HOST, WORTH_SAYING, mostly_copies, rules_for
from busfare.errors import InputError
from busfare.nodes import Gpu, Node, load_node
from busfare.nodes.gpus import Recorded, completed, gpu_of_device_name, node_of_gpu
from busfare.printable import warn
from busfare.statements import Statement
from busfare.timeline import Timeline, timeline
from busfare.trace import Trace
from busfare.trace.columns import several
from busfare.trace.lanes import is_transfer, is_work

#: A run of more calls and operations is not replayed for a report: a replay would take longer than reading.
REPLAYED_ROWS = 2_000_000


def findings(
    trace: Trace, node: Node | None, run: Timeline | Callable[[], Timeline | None] | None = None
) -> list[Finding]:
    """What to change in the traced program, most promising first; empty if nothing is worth doing.

    `node` is where the trace was recorded; without it, what a link's rate would price is bounded by the time that the
    copies themselves take of the run. `run` is the trace as it replays, or what makes that where it is needed; without it,
    gains are upper bounds.
    """
    makespan = trace.makespan_seconds
    # All at once: each is then known when a rule asks for it.
    trace.lanes.lengths(*unions())
    rules = rules_for(trace, node)
    by_rule = several(trace.operations.height, [partial(rule, trace, node) for rule in rules])
    counted = [finding for finding in by_rule if finding is not None]
    if run is not None and counted:
        replayed = any(finding.id in CANDIDATES for finding in counted)
        if replayed and (timeline := run() if callable(run) else run) is not None:
            counted = priced_by_replay(timeline, node, counted)
    if rules and (rest := mostly_copies(trace, node, counted)):
        counted.append(rest)
    kept = _ranked([f for f in counted if f.predicted_gain_seconds > WORTH_SAYING * makespan])
    language = language_of(trace) if kept else None
    return [
        replace(
            finding,
            change=Statement(finding.change.id, {"language": language} if language else {}),
            overlaps_with=overlapping,
            call_sites=sites,
        )
        for finding, overlapping, sites in zip(
            kept, _overlaps(kept, trace.operations.height), call_sites(trace, kept), strict=True
        )
    ]


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Largest gain first, beyond that of what must come first; but what needs no copy comes before a quicker copy."""
    pinning = max(
        (finding.predicted_gain_seconds for finding in findings if finding.id == "pageable-copies"),
        default=0.0,
    )

    def rank(finding: Finding) -> tuple[float, bool]:
        without = finding.id == "ping-pong"
        gain = finding.predicted_gain_seconds - finding.first_seconds
        return -max(gain, pinning if without else 0.0), not without

    return sorted(findings, key=rank)


def _overlaps(findings: Sequence[Finding], operations: int) -> list[tuple[str, ...]]:
    """Of each finding, the ids of the others that touch some of the same operations."""
    touching = np.zeros(operations if len(findings) > 1 else 0, np.uint16)  # a bit for each finding so far
    overlapping: list[set[int]] = [set() for _ in findings]
    for number, finding in enumerate(findings if len(touching) else ()):
        if finding.touches is None:
            continue
        before = touching[finding.touches.rows]
        sets = int(np.bitwise_or.reduce(before))
        for earlier in (place for place in range(number) if sets >> place & 1):
            overlapping[number].add(earlier)
            overlapping[earlier].add(number)
        touching[finding.touches.rows] = before | np.uint16(1 << number)
    return [tuple(findings[earlier].id for earlier in sorted(places)) for places in overlapping]


def unions() -> list[pl.Expr]:
    """Lanes of whose unions the rules ask for the lengths."""
    copies = COPY & TO_OR_FROM_HOST
    return [
        pl.lit(True),
        is_work(),
        is_transfer(),
        is_transfer() | is_work(),
        copies,
        copies | is_work(),
        *DIRECTIONS,
    ]


def rebuilt(trace: Trace, node: Node | None) -> Timeline | None:
    """The run as it replays; None without calls, or with too many rows."""
    many = trace.calls.height + trace.operations.height > REPLAYED_ROWS
    return None if trace.calls.is_empty() or many else timeline(trace, node)


def guess_node(trace: Trace) -> Node | None:
    """The node of the first GPU of the trace that is known by name, of several kinds the one that ran most: the
    catalogue's machine with it, else a host of which nothing is known with that GPU on the link of its data sheet.
    None where no GPU is known.
    """
    devices = trace.devices
    if devices["name"].n_unique() > 1:
        ran = trace.operations.group_by("device").len(name="ran")
        devices = devices.join(ran, on="device", how="left", maintain_order="left")
        devices = devices.sort("ran", descending=True, nulls_last=True, maintain_order=True)
    for device in devices.iter_rows(named=True):
        facts = Recorded(**{key: device[key] for key in Recorded.__struct_fields__})
        gpu = gpu_of_device_name(device["name"] or "", facts)
        if gpu is not None and gpu.has_node:
            if gpu.node:
                return load_node(gpu.node)
            return node_of_gpu(completed(gpu, device), device["pcie_generation"], device["pcie_lanes"])
    return None


def _is_another(recorded: Gpu, named: Gpu) -> bool:
    """Whether two GPUs differ in what is known of both: generation, multiprocessors, or the size of the memory."""
    figures = [(gpu.compute_capability, gpu.multiprocessors) for gpu in (recorded, named)]
    small, large = sorted(gpu.memory_bytes or 0 for gpu in (recorded, named))
    return any(a != b for a, b in zip(*figures, strict=True) if a and b) or large > 1.25 * small > 0


def where_recorded(trace: Trace, named: Node | None, option: str) -> Node:
    """The node `named`, or the one whose GPU the trace names. Raises InputError with `option` where there is none."""
    guessed = guess_node(trace)
    node = named or guessed
    if named and guessed and _is_another(gpu := guessed.gpu(0), named.gpu(0)):
        warn(f"{trace.path}: the trace names the GPU {gpu.title}, not that of {named.name}; check the node")
    if node is None:
        unknown = ", ".join(trace.devices["name"].drop_nulls().unique(maintain_order=True))
        what = f"unknown GPU {unknown}" if unknown else "the trace names no GPU"
        raise InputError(f"{trace.path}: {what}; name its node, or a similar node, with {option} NODE")
    return node
