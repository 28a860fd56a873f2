"""The result of `report`: one dictionary that the terminal, the page and the JSON all show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec import to_builtins

from busfare import advise
from busfare.errors import InputError
from busfare.node import Node
from busfare.report.ranges import finding_range
from busfare.trace import Trace
from busfare.trace import totals as account
from busfare.trace.beside import beside
from busfare.trace.model import INCOMPLETE

if TYPE_CHECKING:
    from busfare.timeline import PathPart, Timeline

__all__ = ["SCHEMA", "summarise"]

SCHEMA = "busfare.report/1"
MOST_ROWS = 10
GAIN_IS = {
    True: "replay: what the run, replayed with the change and all else as it was, saves",
    False: "upper bound: what the change could save at most, if it cost nothing and nothing else stood in its way",
}


def summarise(
    trace: Trace, node: Node | None = None, unrecorded_seconds: float | None = None
) -> dict[str, Any]:
    """Everything that `report` says, ready for JSON; its keys are documented in docs/json.md.

    `node` is where the trace was recorded. Without it the catalogue's node with the GPU that the trace names is
    taken, and said to be a guess. With `unrecorded_seconds`, how long the run takes when it is not recorded, gains and the
    critical path are those of the run without its recorder. Raises InputError where the run cannot be replayed for that.
    """
    guessed = node is None
    node = node or advise.guess_node(trace)
    run, cost = advise.rebuilt(trace, node), None
    if unrecorded_seconds is not None:
        if run is None:
            raise InputError(
                f"{trace.path}: --unrecorded needs a run that can be replayed: one with its API calls, and no more than "
                f"{advise.MOST_ROWS:,} calls and operations"
            )
        from busfare.report.recording_cost import without_recorder

        run, cost = without_recorder(run, unrecorded_seconds)
    bare = ("--unrecorded", f"{unrecorded_seconds:g}s") if cost else ()
    operations = trace.operations
    account.find_lengths(trace, advise.unions())
    found = beside(operations.height, lambda: advise.findings(trace, node, run))
    totals = account.totals(trace)
    path = _critical_path(run) if run is not None else None
    run_seconds = cost["replayed_seconds"] if cost else totals.makespan_seconds
    return {
        "schema": SCHEMA,
        "trace": {
            "path": str(trace.path),
            "format": trace.format,
            "producer": trace.producer,
            "incomplete": next((o.what for o in trace.omissions if o.id in INCOMPLETE), None),
            "host": trace.host,
            "devices": trace.devices.select("device", "name", "memory_bytes", "copy_engines")
            .unique(maintain_order=True)
            .to_dicts(),
        },
        "node": _node(node, guessed) if node else None,
        "transfers": _copies(totals.transfers) | {"share_of_gpu_time": totals.share_of_gpu_time},
        "kernels": {"count": totals.kernels, "seconds": totals.kernel_seconds},
        "communication": {"count": totals.communication, "seconds": totals.communication_seconds},
        "graph_work": {"count": totals.graph_work, "seconds": totals.graph_seconds},
        "sets": {"count": totals.sets, "seconds": totals.set_seconds},
        "makespan_seconds": totals.makespan_seconds,
        "unexplained_seconds": _unexplained(path),
        "gpus": [
            {
                "device": gpu.device,
                "kernels": {"count": gpu.kernels, "seconds": gpu.kernel_seconds},
                "communication": {"count": gpu.communication, "seconds": gpu.communication_seconds},
                "transfers": _copies(gpu.transfers),
                "busy_seconds": gpu.busy_seconds,
                "kernel_busy_seconds": gpu.kernel_busy_seconds,
                "idle_seconds": max(0.0, totals.makespan_seconds - gpu.busy_seconds),
            }
            for gpu in totals.gpus
        ],
        "by_path": account.by_path(trace).to_dicts(),
        "size_histogram": account.size_histogram(trace).to_dicts(),
        "engines": account.engines(trace).to_dicts(),
        "streams": account.streams(trace, MOST_ROWS).to_dicts(),
        "top_kernels": account.top_kernels(trace, MOST_ROWS).to_dicts(),
        "top_copies": account.top_copies(trace, MOST_ROWS)
        .with_columns(pl.col("start_ns") / 1e9)
        .rename({"start_ns": "start_seconds"})
        .to_dicts(),
        "idle_gaps": [
            {
                "device": gap.device,
                "start_seconds": gap.start_ns / 1e9,
                "seconds": gap.seconds,
                "longest_call": gap.call,
                "longest_call_seconds": gap.call_seconds,
            }
            for gap in account.idle_gaps(trace, 5)
        ],
        "recording_cost": cost,
        "critical_path": to_builtins(path),
        "findings": [
            {
                "id": finding.id,
                "title": finding.title,
                "evidence": finding.evidence,
                "change": finding.change,
                "predicted_gain_seconds": finding.gain_seconds,
                **finding_range(finding, run_seconds, node),
                "gain_is": GAIN_IS[finding.by_replay],
                "by_replay": finding.by_replay,
                "bound_seconds": finding.bound_seconds,
                "rests_on": list(finding.rests_on),
                "what_if": [*finding.what_if, *(bare if finding.what_if else ())],
                "gain_with_loop_seconds": finding.with_loop_seconds,
                "overlaps_with": list(finding.overlaps_with),
            }
            for finding in found()
        ],
        "omissions": [
            {"id": o.id, "count": o.count, "what": o.what}
            for o in [*trace.omissions, *(run.omissions if run is not None else [])]
        ],
    }


def _node(node: Node, guessed: bool) -> dict[str, Any]:
    measured = node.measured_both_ways("pinned")
    return {"name": node.name, "guessed_from_gpu_name": guessed, "measured": measured}


def _critical_path(run: Timeline) -> list[PathPart]:
    from busfare.timeline import critical_path_shares

    return critical_path_shares(run)


def _unexplained(path: list[PathPart] | None) -> float | None:
    if path is None:
        return None
    from busfare.timeline import unexplained_seconds

    return unexplained_seconds(path)


def _copies(copies: account.CopyTotals) -> dict[str, Any]:
    return {
        "count": copies.count,
        "bytes": copies.bytes,
        "seconds": copies.seconds,
        "exposed_seconds": copies.exposed_seconds,
    }
