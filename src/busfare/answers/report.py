"""The result of `report` on one trace: the JSON is the Struct `Report`; keys in docs/json.md.

Seconds, bytes, bytes per second; None is 'not known'.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec.structs import asdict

from busfare import advise
from busfare.advise import Finding, RangedFinding, ranged
from busfare.advise.search import REPLAYED_ROWS
from busfare.answers.compare import PathCompared
from busfare.answers.project import PathThere
from busfare.answers.units import Batches, Statistic, batched
from busfare.answers.verdict import PathOwner, Verdict, actions, path_owners, verdict
from busfare.answers.what_if import RecordingCost, without_recorder
from busfare.cost.kernels.price import shares_of_peak
from busfare.errors import InputError
from busfare.jobs.communication import Clock, Collective, Communication, RankTimes, communication
from busfare.jobs.ranks import numbered, ranks_of
from busfare.jobs.ranks import rows_of as communicating_rows
from busfare.jobs.stragglers import Straggler
from busfare.nodes import Node
from busfare.statements import Words
from busfare.timeline import UNEXPLAINED, Timeline, decided, part_seconds
from busfare.trace import Omission, Trace
from busfare.trace import totals as account
from busfare.trace.columns import in_background
from busfare.trace.omissions import INCOMPLETE
from busfare.trace.totals import Counted, Gap, Totals
from busfare.trace.units import Units, operations_of, units_of

MOST_ROWS, MOST_GAPS = 10, 5
TOGETHER = ("collectives", "ranks", "straggler", "clocks")
NS = 1e-9
#: What can be compared of two traces: whole runs, units of work alone, nothing of two programs, or that is not known.
Comparable = Literal["runs", "units", "programs", "unknown"]
Row = TypeVar("Row")


class BetweenMemories(Struct, kw_only=True):
    direction: str | None
    source_memory: str | None
    destination_memory: str | None


class Path(BetweenMemories, kw_only=True):
    """What was moved between two kinds of memory."""

    count: int
    bytes: int
    seconds: float
    bytes_per_second: float | None


class Sized(Counted, kw_only=True):
    """A decade of sizes; the upper is exclusive."""

    lower_bytes: int
    upper_bytes: int


class RecordedPath(Path, kw_only=True):
    migrations: int


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
    incomplete: Words | None
    host: dict[str, Any]
    devices: list[Device]


class Stream(Struct):
    process: int | None
    device: int | None
    stream: int | None
    kernels: int
    communication: int
    transfers: int
    busy_seconds: float


class TopKernel(Counted, kw_only=True):
    """`share_of_peak`: the time of its work at the peak of the node's GPU over its time; None where its work is unknown."""

    name: str | None
    kind: str = field(name="class")
    share_of_peak: float | None = None


class TopCopy(BetweenMemories, kw_only=True):
    start_seconds: float
    bytes: int | None
    seconds: float
    device: int | None
    stream: int | None


class UnitOf(Struct, kw_only=True):
    """A unit of work: the name of its range, or of the operation that it begins with on a `device`."""

    name: str | None
    device: int | None


class Unit(UnitOf, kw_only=True):
    """`names`: of its range, or of operations that occur once per unit. `operations`: the number in most units. `seconds`:
    the median from the start of a unit to the start of the next.
    """

    names: list[str]
    count: int
    operations: int
    seconds: float
    batches: Batches


class Changed(Struct, kw_only=True):
    """Something in both runs, or in one of them; the change is in seconds of the second run over the first."""

    what: str
    before_seconds: float | None
    after_seconds: float | None
    before_count: int | None = None
    after_count: int | None = None
    before_bytes: int | None = None
    after_bytes: int | None = None

    @property
    def change_seconds(self) -> float:
        return (self.after_seconds or 0.0) - (self.before_seconds or 0.0)


class StatisticChanged(NamedTuple):
    """How a statistic of the units changed, and the interval of this change, in percent; real if that does not hold zero.
    `growth`: by how much it grew at least, by a test that looks for longer units alone.
    """

    change: float
    low: float
    high: float
    growth: float = 0.0

    @property
    def real(self) -> bool:
        return self.low > 0 or self.high < 0


class UnitChanged(UnitOf, kw_only=True):
    """`real`: whether the change exceeds the variation within a run; None if there are too few units. `figure`: the first of
    the `statistics` that changed, or the median; the seconds are its values. `operations_before`: in most units. `parts`:
    real changes of kernels, transfers and GPU idle. All None, with a `reason`, if the runs share no unit.
    """

    count_before: int | None = None
    count_after: int | None = None
    operations_before: int | None = None
    operations_after: int | None = None
    figure: Statistic | None = None
    seconds_before: float | None = None
    seconds_after: float | None = None
    change_percent: float | None = None
    statistics: dict[Statistic, StatisticChanged] = field(default_factory=dict)
    real: bool | None = None
    parts: list[Changed] = field(default_factory=list)
    reason: Words | UnsetType = UNSET


class FindingChanged(Struct):
    """A finding's predicted gain in each run, None in the one that does not have it."""

    id: str
    title: Words
    before_gain_seconds: float | None
    after_gain_seconds: float | None


class Diff(Struct, tag_field="schema", tag="busfare.diff/1", kw_only=True):
    """`why`: sentences; parts of the critical path add up to the run, the tables below it do not. `units`: of each GPU,
    or of the host; `unit`: the one that changed most.
    """

    before: str
    after: str
    comparable: Comparable = "unknown"
    unit: UnitChanged = field(default_factory=lambda: UnitChanged(name=None, device=None))
    units: list[UnitChanged] = field(default_factory=list)
    makespan: Changed
    why: list[Words]
    critical_path: list[Changed]
    work: list[Changed]
    by_path: list[Changed]
    by_kernel: list[Changed]
    by_call: list[Changed]
    findings: list[FindingChanged]


class Report(Totals, tag_field="schema", tag="busfare.report/1", kw_only=True):
    trace: Traced
    node: RecordedOn | None
    unexplained_seconds: float | None
    by_path: list[RecordedPath]
    size_histogram: list[Sized]
    streams: list[Stream]
    top_kernels: list[TopKernel]
    top_copies: list[TopCopy]
    idle_gaps: list[Gap]
    units: list[Unit] = field(default_factory=list)
    recording_cost: RecordingCost | None
    critical_path: list[PathOwner] | None
    verdict: Verdict
    findings: list[RangedFinding]
    baseline: Diff | UnsetType = UNSET  # against an earlier report, where one was given
    # Of several ranks in one trace.
    collectives: list[Collective] | UnsetType = UNSET
    ranks: list[RankTimes] | UnsetType = UNSET
    straggler: Straggler | UnsetType | None = UNSET
    clocks: list[Clock] | UnsetType = UNSET
    omissions: list[Omission]


def path_name(row: BetweenMemories | PathThere | PathCompared) -> str:
    """'h2d  pageable → device'."""
    return f"{row.direction or '?'}  {row.source_memory or 'unknown'} → {row.destination_memory or 'unknown'}"


def rows_of(row: type[Row], rows: pl.DataFrame | Iterable[Any]) -> list[Row]:
    """Rows of a frame, or of other types with the same attributes, as rows of a result."""
    values = rows.to_dicts() if isinstance(rows, pl.DataFrame) else list(rows)
    # To msgspec named tuples are arrays.
    values = [value._asdict() if hasattr(value, "_asdict") else value for value in values]
    return convert(values, list[row], from_attributes=True)  # type: ignore[valid-type]


class Examined(NamedTuple):
    """A report, and what its page draws: the run as it replays, and the findings, which know what they are about."""

    report: Report
    run: Timeline | None
    findings: list[Finding]


def summarise(trace: Trace, node: Node | None = None, unrecorded_seconds: float | None = None) -> Report:
    """The report that `examine` makes."""
    return examine(trace, node, unrecorded_seconds).report


def examine(
    trace: Trace,
    node: Node | None = None,
    unrecorded_seconds: float | None = None,
    repeated: Mapping[str, Any] | None = None,
) -> Examined:
    """The report of `trace`.

    `node`: where it was recorded; by default, the catalogue node with the GPU that the trace names, marked as guessed.
    `unrecorded_seconds`: the time of the run without the recorder; gains and the critical path then refer to that run.
    `repeated`: as in `ranged`. Raises InputError if `unrecorded_seconds` is given and the run cannot be replayed.
    """
    guessed = node is None
    node = node or advise.guess_node(trace)
    run = as_recorded = advise.rebuilt(trace, node)
    cost = None
    if unrecorded_seconds is not None:
        if run is None:
            raise InputError(
                f"{trace.path}: `unrecorded` needs a run that can be replayed: with its API calls, and at most "
                f"{REPLAYED_ROWS:,} calls and operations"
            )
        run, cost = without_recorder(run, unrecorded_seconds)
    account.find_lengths(trace, advise.unions())
    findings = in_background(trace.operations.height, lambda: advise.findings(trace, node, run))
    totals = account.totals(trace)
    owners = [] if run is None else path_owners(run, decided(run))
    path = None if run is None else [largest for largest, *_ in owners]
    together = _together(trace)
    kernels = _top_kernels(trace, node)
    copies = account.top_copies(trace, MOST_ROWS).rename({"start_ns": "start_seconds"})
    report = Report(
        trace=_traced(trace),
        node=RecordedOn(node.name, guessed, node.copies_measured("pinned")) if node else None,
        **asdict(totals),
        unexplained_seconds=None if path is None else part_seconds(path, UNEXPLAINED),
        by_path=rows_of(RecordedPath, account.by_path(trace)),
        size_histogram=rows_of(Sized, account.size_histogram(trace)),
        streams=rows_of(Stream, account.streams(trace, MOST_ROWS)),
        top_kernels=kernels,
        top_copies=rows_of(TopCopy, copies.with_columns(pl.col("start_seconds") * NS)),
        idle_gaps=account.idle_gaps(trace, MOST_GAPS),
        units=[unit_of(trace, units) for units in units_of(trace)],
        recording_cost=cost,
        critical_path=path,
        verdict=verdict(
            trace, totals, run, owners, {kernel.name: kernel.share_of_peak for kernel in kernels}
        ),
        findings=[],  # which are looked for beside all this
        **({} if together is None else {name: getattr(together, name) for name in TOGETHER}),
        omissions=[*trace.omissions, *(run.omissions if run is not None else [])],
    )
    made = findings()
    report.findings = [
        ranged(finding, {"unrecorded": unrecorded_seconds} | dict(repeated or {})) for finding in made
    ]
    report.verdict.actions = actions(report.trace.path, report.findings)
    return Examined(report, as_recorded, made)


def _top_kernels(trace: Trace, node: Node | None) -> list[TopKernel]:
    """The longest kernels; with their share of the peak of `node` where the trace has the shapes of their data."""
    kernels, shares = rows_of(TopKernel, account.top_kernels(trace, MOST_ROWS)), {}
    if node is not None and not trace.launches.is_empty():
        with suppress(InputError):  # a GPU whose peaks are unknown
            shares = shares_of_peak(trace.operations, trace.launches, node)
    for kernel in kernels:
        kernel.share_of_peak = shares.get(kernel.name or "")
    return kernels


def unit_of(trace: Trace, units: Units) -> Unit:
    """The unit of work as a result has it."""
    periods = units.periods * NS
    return Unit(
        name=units.name,
        device=units.device,
        names=[units.name, *(name for name in units.names if name != units.name)],
        count=len(units.starts),
        operations=operations_of(trace, units),
        seconds=float(np.median(periods)),
        batches=batched(periods),
    )


def _together(trace: Trace) -> Communication | None:
    """What the ranks of one trace do together; None where it has one, or they do not communicate."""
    places = [
        trace.lanes.groups.select("process", "device").n_unique(),
        trace.mpi_calls["process"].n_unique(),
    ]
    if max(places) < 2 or trace.collectives.is_empty():
        return None
    ranks = ranks_of(trace)
    if len(ranks) < 2:
        return None
    return communication(
        [communicating_rows(trace)], numbered([(str(trace.path), None, trace.host.get("hostname"), ranks)])
    )


def _traced(trace: Trace) -> Traced:
    devices = trace.devices.select("device", "name", "memory_bytes", "copy_engines").unique(
        maintain_order=True
    )
    cut = next((o.what for o in trace.omissions if o.id in INCOMPLETE), None)
    rows = rows_of(Device, devices)
    return Traced(str(trace.path), trace.format, trace.producer, cut, trace.host, rows)
