"""The results of the commands on traces and nodes, one Struct a command: the JSON is the Struct; keys in docs/json.md.

Seconds, bytes, bytes per second; None is 'not known'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, field

from busfare.job.results import Clock, Collective, RankTimes
from busfare.results import Path, Predicted, RangedFinding, Sized
from busfare.trace.totals import Counted, Gap, Gpu, MovedInAll

if TYPE_CHECKING:
    from busfare.project.results import PathCompared, PathThere


class RecordedPath(Path, kw_only=True):
    migrations: int


class Part(Struct):
    """Of a critical path."""

    part: str
    seconds: float
    share: float


class Omission(Struct):
    id: str
    count: int | None
    what: str


class RecordedOn(Struct):
    name: str
    guessed_from_gpu_name: bool
    measured: bool


class Device(Struct):
    device: int | None
    name: str | None
    memory_bytes: int | None
    copy_engines: int | None


class Traced(Struct):
    """What was read."""

    path: str
    format: str
    producer: str
    incomplete: str | None
    host: dict[str, Any]
    devices: list[Device]


class Engine(Struct):
    device: int | None
    work: str
    busy_seconds: float
    share_of_run: float
    bytes_per_second: float | None


class Stream(Struct):
    process: int | None
    device: int | None
    stream: int | None
    kernels: int
    communication: int
    transfers: int
    busy_seconds: float


class TopKernel(Struct):
    name: str | None
    count: int
    seconds: float
    kind: str = field(name="class")


class TopCopy(Struct):
    start_seconds: float
    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    bytes: int | None
    seconds: float
    device: int | None
    stream: int | None


class RecordingCost(Struct):
    """What was taken out of a run for its recorder; see `what-if --unrecorded`."""

    unrecorded_seconds: float
    call_seconds: float
    gap_seconds: float
    host_pace: float
    replayed_seconds: float


class Report(Struct, tag_field="schema", tag="busfare.report/1", kw_only=True):
    trace: Traced
    node: RecordedOn | None
    transfers: MovedInAll
    kernels: Counted
    communication: Counted
    graph_work: Counted
    sets: Counted
    makespan_seconds: float
    unexplained_seconds: float | None
    gpus: list[Gpu]
    by_path: list[RecordedPath]
    size_histogram: list[Sized]
    engines: list[Engine]
    streams: list[Stream]
    top_kernels: list[TopKernel]
    top_copies: list[TopCopy]
    idle_gaps: list[Gap]
    recording_cost: RecordingCost | None
    critical_path: list[Part] | None
    findings: list[RangedFinding]
    # Of several ranks in one trace.
    collectives: list[Collective] | UnsetType = UNSET
    ranks: list[RankTimes] | UnsetType = UNSET
    clocks: list[Clock] | UnsetType = UNSET
    omissions: list[Omission]


class Step(Struct):
    """A part of a change: what calls for it, and what it gains on top of those before it; None: it stands in the way."""

    title: str
    evidence: str
    gain_seconds: float | None


class Outcome(Predicted, kw_only=True):
    """What a change makes of a run; `touched` and `bytes`: what it is about."""

    title: str
    touched: int
    bytes: int
    gain_seconds: float
    gain_percent: float
    speedup: float | None
    rests_on: list[str]
    steps: list[Step] | UnsetType = UNSET  # of a change that is made of several


class Baseline(Struct):
    recorded_seconds: float
    recording_cost: RecordingCost | None
    replayed_seconds: float
    range_seconds: list[float]
    critical_path: list[Part]


class RankOutcome(Struct):
    """A rank of a job; `replayed_seconds` is None of one that was not recorded."""

    rank: int
    replayed_seconds: float | None
    predicted_seconds: float


class WhatIf(Outcome, tag_field="schema", tag="busfare.what-if/1", kw_only=True):
    """All changes together, and each alone."""

    trace: str
    recorded_on: str | None = field(name="from")
    from_guessed_from_gpu_name: bool
    model: str
    baseline: Baseline
    changes: list[Outcome]
    range_seconds: list[float]
    critical_path: list[Part]
    ranks: list[RankOutcome] | UnsetType = UNSET  # of a job
    omissions: list[Omission]


def path_name(row: Path | TopCopy | PathThere | PathCompared) -> str:
    """'h2d  pageable → device'."""
    return f"{row.direction or '?'}  {row.source_memory or 'unknown'} → {row.destination_memory or 'unknown'}"
