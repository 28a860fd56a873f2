"""A timeline played: when everything happens, and what the run spent its time on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.replay import _core
from busfare.replay.shared_links import shared_links
from busfare.replay.timeline import Timeline
from busfare.trace.communication import CLASSES, kind_codes
from busfare.trace.tables import KINDS

__all__ = ["STEPS", "Played", "critical_path", "critical_path_shares", "play"]

Times = NDArray[np.int64]
NS = 1e-9
#: What a stretch of the critical path is, as the core numbers it; `operation` is told apart by its kind.
STEPS = ("operation", "launch", "queue", "unexplained", "host", "call", "wake-up")


#: No gap on the GPU, and around it, is taken to be shorter without a recorder. Nanoseconds.
LEAST_LAG_NS = 200
#: Steps of the critical path as people read them.
PARTS = {
    "kernel": "kernels",
    "graph": "kernels",
    "communication": "communication",
    "copy": "copies",
    "migration": "copies",
    "set": "memory sets",
    "launch": "launches",
    "queue": "gaps between operations",
    "unexplained": "unexplained waits",
    "host": "host between calls",
    "call": "host in calls",
    "wake-up": "host waking up",
}


@dataclass(frozen=True)
class Played:
    """Start and end of every call and operation, ns from the start of the run."""

    timeline: Timeline
    call_start: Times
    call_end: Times
    operation_start: Times
    operation_end: Times
    makespan_ns: int

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_ns * NS


def play(timeline: Timeline) -> Played:
    """Plays `timeline`; Ctrl-C stops it."""
    found = _core.play(_linked(timeline))
    return Played(
        timeline,
        found["call_start"],
        found["call_end"],
        found["operation_start"],
        found["operation_end"],
        int(found["makespan"]),
    )


def critical_path(timeline: Timeline) -> pl.DataFrame:
    """The chain of waits that makes the run as long as it is: step, row, start_ns, end_ns, from 0 to the makespan.

    `step` is of STEPS; an operation's is its kind in place of 'operation'. `row` is of the timeline's operations for
    operation, launch, queue and unexplained, and of its calls otherwise.
    """
    found = _core.play(_linked(timeline), path=True)
    path = pl.DataFrame(
        {
            "step": found["path_step"],
            "row": found["path_row"],
            "start_ns": found["path_start"],
            "end_ns": found["path_end"],
        }
    )
    names = pl.Enum([*STEPS, *KINDS])
    step = pl.col("step").replace_strict(dict(enumerate(STEPS)), return_dtype=pl.String)
    kind = timeline.operations["kind"].cast(pl.String)
    of_kind = (
        kind.gather(pl.Series(np.where(found["path_step"] == 0, found["path_row"], 0)))
        if kind.len()
        else None
    )
    return path.with_columns(
        step=(step if of_kind is None else pl.when(pl.col("step") == 0).then(of_kind).otherwise(step)).cast(
            names
        )
    )


def critical_path_shares(taken_apart: Timeline) -> list[dict[str, Any]]:
    """What the chain that decides the run's length consists of, longest first: part, seconds, share."""
    found = _core.play(_linked(taken_apart), path=True)
    lengths = found["path_end"] - found["path_start"]
    # Steps by number, and behind them operations by kind.
    step = found["path_step"].astype(np.int64)
    operation = step == STEPS.index("operation")
    step[operation] = len(STEPS) + kind_codes(taken_apart.operations)[found["path_row"][operation]]
    names = [*STEPS, *CLASSES.categories]
    total, sums = int(lengths.sum()), dict.fromkeys([*PARTS.values(), "other"], 0)
    for number in np.flatnonzero(np.bincount(step)).tolist():
        part = PARTS.get(names[number], "other") if number < len(names) else "other"
        sums[part] += int(lengths[step == number].sum())
    parts = sorted(
        ((part, length) for part, length in sums.items() if length > 0), key=lambda p: (-p[1], p[0])
    )
    return [
        {"part": part, "seconds": length * NS, "share": length / total if total else 0.0}
        for part, length in parts
    ]


def _linked(timeline: Timeline) -> dict[str, NDArray[Any]]:
    """The columns with the links that copies share, at the times that they have now."""
    columns = timeline.columns
    if timeline.closer_ns:
        columns = columns | {
            name: columns[name] - np.clip(columns[name] - LEAST_LAG_NS, 0, timeline.closer_ns)
            for name in ("operation_order_lag", "operation_launch_lag", "call_wait_lag")
        }
    if timeline.node is None:
        return columns
    return shared_links(columns, timeline.operations, timeline.node)
