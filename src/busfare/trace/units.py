"""Units of work of a trace: the steps of a profiler, ranges that repeat, or the operations that repeat on a GPU."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import first_pairs, numbered
from busfare.trace.lanes import Times, is_work
from busfare.trace.model import Trace
from busfare.trace.sites import PLACE

#: Fewer units say nothing of how far units of one run differ.
LEAST = 6
#: Two may be an accident.
REPEATED = 3
#: A unit is regular if it holds as many operations as most, but for this part of them: allocations and tuning add a few.
STRAY = 0.05
#: Regular units cover this part of the trace's time at least, or the trace is mostly something else.
COVERED = 0.6
#: The ends of a trace may cut off so many units of one name more than of another.
ENDS = 1.5
#: The most operations to store that occur once per unit: they identify the unit even if some are renamed.
MOST_NAMES = 8
#: What repeats is looked for among so many operations of a GPU; of more, the likeliest alone is followed to the end.
LOOKED_AT = 1 << 16
#: Operations that are told apart by their names; others are by direction and bytes, and called so.
NAMED, SIZED = ("kernel", "graph"), ("copy", "set")
#: PyTorch's profiler names its steps `ProfilerStep#12`.
STEP = "ProfilerStep"
NUMBER = r"[#._ :-]*\d+"
#: What PyTorch's `emit_nvtx` calls the range of an operator.
OPERATOR = r"^aten::|, (op_id|seq) = \d"


@dataclass(frozen=True, eq=False)
class Units:
    """Units of the same kind, in order of time. `name`: of a step or range, or of the first operation of each unit.

    `device`, `process`: of the repeating operations; both None for ranges. `starts`: of the first operation, also of those
    that a range launches; ns, shape (units,). `regular`: for all but the last unit, whether it has as many operations as
    most units; shape (units - 1,). `share`: of the trace's time in regular units. `names`: of operations that occur once in
    each unit, at most MOST_NAMES. `ranges`: when each range starts, ns, shape (units,); None for operations that repeat.
    """

    name: str
    device: int | None
    process: int | None
    starts: Times
    regular: NDArray[np.bool_]
    share: float
    names: tuple[str, ...] = ()
    ranges: Times | None = None

    @property
    def periods(self) -> Times:
        """From the start of each regular unit to that of the next one; ns."""
        return np.diff(self.starts)[self.regular]

    @property
    def operations(self) -> pl.Expr:
        """The lanes of operations that units are of."""
        of_gpu = pl.col("process").eq_missing(self.process) & pl.col("device").eq_missing(self.device)
        return (pl.col("kind") != "migration") & (pl.lit(self.ranges is not None) | of_gpu)


#: Units and the places of the operations that begin them.
Candidate = tuple[Units, NDArray[np.int64]]


def units_of(trace: Trace) -> list[Units]:
    """The unit of work of a trace: of the host, or of each GPU on which operations repeat; empty where none is found. Steps
    come first, then ranges, then operations; of each the kind that covers most.
    """
    every = _repeated(trace)
    return [units for units, _ in _shared(every, every, REPEATED)]


def shared_units(before: Trace, after: Trace) -> list[tuple[Units, Units]]:
    """The unit of work that two traces share, of the host or of each GPU; what repeats often enough to be judged first."""
    return _shared(_repeated(before), _repeated(after), LEAST)


def _shared(before: list[list[Units]], after: list[list[Units]], least: int) -> list[tuple[Units, Units]]:
    """Units of one name in both traces, on the host and on each GPU: those whose smaller share of a trace is largest."""
    theirs = dict(_numbered(after))
    pairs = {place: _common(units, theirs.get(place, [])) for place, units in _numbered(before)}
    ranges = pairs.pop((None, 0), None)
    sequences = [pair for pair in pairs.values() if pair]
    often = [min(len(units.starts) for units in pair) >= least for pair in sequences]
    if ranges and (min(len(units.starts) for units in ranges) >= least or not any(often)):
        return [ranges]
    return sequences


def _numbered(every: list[list[Units]]) -> Iterator[tuple[tuple[int | None, int], list[Units]]]:
    """Each list of units by its GPU and its place among those of this GPU: numbers of processes change from run to run."""
    seen = Counter[int | None]()
    for units in every:
        device = units[0].device if units else None
        yield (device, seen[device]), units
        seen[device] += 1


def _common(before: list[Units], after: list[Units]) -> tuple[Units, Units] | None:
    named = {units.name: units for units in reversed(after)}
    pairs = [(units, named[units.name]) for units in before if units.name in named]
    shares = [min(units.share for units in pair) for pair in pairs]
    # What comes once a unit covers about as much: the first of these, whatever the ends of the traces are.
    for pair, share in zip(pairs, shares, strict=True):
        if share >= max(shares) * (1 - ENDS / len(pair[0].starts)):
            return pair
    return None


def _repeated(trace: Trace) -> list[list[Units]]:
    """What repeats and covers most of the trace: its ranges, steps first, and operations that begin a GPU's sequences."""
    if trace.operations.is_empty():
        return [[]]
    whole = int(trace.lanes.ends.max() - trace.lanes.starts[0]) or 1
    ranges = sorted(_ranges(trace, whole), key=lambda units: (units.name != STEP, -units.share, units.name))
    gpus = trace.lanes.groups.filter(pl.col("kind") != "migration").select("process", "device").unique()
    # Numbers of processes change from run to run, those of GPUs do not.
    every = [_sequences(trace, *gpu) for gpu in gpus.sort("device", "process", nulls_last=True).iter_rows()]
    return [[units for units in some if units.share >= COVERED] for some in (ranges, *every)]


def parts_of(trace: Trace, units: Units) -> dict[str, Times]:
    """How long kernels and transfers run in each regular unit, added up, and how long its GPU is idle; ns."""
    kernels = pl.col("kind").is_in(["kernel", "graph", "communication"])
    edges, parts = units.starts, {}
    for name, which in {"kernels": kernels, "transfers": ~kernels}.items():
        rows = trace.lanes.rows(units.operations & which)
        took = trace.lanes.ends[rows] - trace.lanes.starts[rows]
        parts[name] = _per_unit(trace, units, rows, took)
    busy = trace.lanes.union(units.operations).covered_within(edges[:-1], edges[1:])
    parts["GPU idle"] = np.diff(edges) - busy
    return {name: part[units.regular] for name, part in parts.items()}


def operations_of(trace: Trace, units: Units) -> int:
    """The number of operations of its GPU, or that a range launches on all GPUs, in most units."""
    rows = trace.lanes.rows(units.operations)
    return int(np.median(_per_unit(trace, units, rows, np.ones(len(rows)))[units.regular]))


def _per_unit(trace: Trace, units: Units, rows: NDArray[np.uint32], amounts: NDArray[Any]) -> Times:
    """Sums of `amounts` of operations `rows` that begin in each unit but the last, or that its range launches."""
    begun, edges = trace.lanes.starts, units.starts
    if units.ranges is not None:
        begun, edges = _launched(trace), units.ranges
    place = np.searchsorted(edges, begun[rows], side="right")
    return np.bincount(place, amounts, len(edges) + 1)[1:-1].astype(np.int64)


def _launched(trace: Trace) -> Times:
    """When the call that launched each operation begins, or the operation where no call did; ns, shape (operations,)."""
    call = first_pairs(trace.calls, trace.operations)
    called = np.append(trace.calls["start_ns"].to_numpy(), 0)[call]
    return np.where(call >= 0, called, trace.lanes.starts)


def _ranges(trace: Trace, whole: int) -> Iterator[Units]:
    """Ranges of one thread that follow each other, with names that are alike but for a number at the end. Where the GPUs
    take longer than the host, which only launches, their share of the trace's time is larger as well.
    """
    name, length = pl.col("name").cast(pl.String), pl.col("end_ns") - pl.col("start_ns")
    spans = trace.markers.filter((length > 0) & ~name.str.contains(OPERATOR))
    spans = spans.select(*PLACE, "start_ns", "end_ns", stem=name.str.replace(NUMBER + "$", ""))
    kind = (*PLACE, "stem")
    least = COVERED * pl.min_horizontal((pl.col("end_ns").max() - pl.col("start_ns").min()).over(kind), whole)
    spans = spans.filter(length.sum().over(kind) >= least).sort("start_ns")
    if spans.is_empty():
        return
    launched = _launched(trace)
    for (*_, stem), group in spans.group_by(kind, maintain_order=True):
        starts, ends = (group[time].to_numpy() for time in ("start_ns", "end_ns"))
        if len(starts) >= REPEATED and (ends[:-1] <= starts[1:]).all():
            begun, ranges = _on_gpus(trace, starts, launched)
            share = (ends - starts).sum() / whole * max(np.ptp(begun) / (ends[-1] - starts[0]), 1.0)
            regular = np.ones(len(begun) - 1, np.bool_)
            yield Units(str(stem), None, None, begun, regular, float(share), ranges=ranges)


def _on_gpus(trace: Trace, ranges: Times, launched: Times) -> tuple[Times, Times]:
    """When the first operation that each range launches starts, in the stream in which its kernels take longest, and when
    the range does; ns. A host that runs ahead is no measure, nor are copies of other streams. A range that launches
    nothing belongs to the one before; the host's times remain where almost all launch nothing.
    """
    lanes, place = trace.lanes, ("number", "process", "device", "stream")
    took = lanes.chosen(is_work())[lanes.lane_of] * (lanes.ends - lanes.starts)
    number = np.searchsorted(ranges, launched, side="right")
    work = trace.operations.select(*place[1:], "kind", "start_ns").with_columns(took=took, number=number)
    work = work.filter(pl.col("number") > 0, pl.col("kind") != "migration")
    work = work.with_columns(pl.col("took").sum().over(place))
    work = work.filter(pl.col("took") == pl.col("took").max().over("number"))
    first = work.group_by("number").agg(pl.col("start_ns").min()).sort("number")
    if first.height < REPEATED:
        return ranges, ranges
    return np.maximum.accumulate(first["start_ns"].to_numpy()), ranges[first["number"].to_numpy() - 1]


def _sequences(trace: Trace, process: int | None, device: int | None) -> list[Units]:
    """Sequences of operations of a GPU by what each begins with, those that cover most of its time first."""
    gpu = Units("", device, process, np.zeros(0, np.int64), np.zeros(0, np.bool_), 0.0)
    rows = trace.lanes.rows(gpu.operations)
    token, names = _tokens(trace.operations[rows[:LOOKED_AT]])
    order, starts = np.argsort(token, kind="stable"), trace.lanes.starts[rows]
    every = np.split(order, np.searchsorted(token[order], range(1, len(names))))

    def units(name: str, places: NDArray[np.int64], span: float) -> Units:
        every = between(name, places, span)
        first = places[np.append(True, np.diff(places) > 1)]
        if every.share >= COVERED or len(first) < REPEATED:
            return every
        # An operation launched several times in a row begins only one unit.
        return max(every, between(name, first, span), key=lambda units: units.share)

    def between(name: str, places: NDArray[np.int64], span: float) -> Units:
        lengths = np.diff(places)
        regular = np.abs(lengths - np.median(lengths)) <= STRAY * np.median(lengths)
        share = float(np.diff(starts[places])[regular].sum() / span)
        return replace(gpu, name=name, starts=starts[places], regular=regular, share=share)

    if not len(rows):
        return []
    first, last = starts[0], starts[min(len(rows), LOOKED_AT) - 1]
    span = max(float(last - first), 1.0)
    often = [(name, places) for name, places in zip(names, every, strict=False) if len(places) >= REPEATED]
    candidates = [(units(name, places, span), places) for name, places in often]
    candidates.sort(key=lambda pair: -pair[0].share)
    if candidates:
        # What comes once a unit covers as much, but for the ends: their order must not hang on where a recording begins.
        best, count = candidates[0][0].share, len(candidates[0][0].starts)
        candidates.sort(key=lambda pair: (pair[0].name.startswith(SIZED), pair[0].name))
        alike = [
            units.name
            for units, _ in candidates
            if units.share >= best * (1 - ENDS / count) and abs(len(units.starts) - count) <= 1
        ]
        candidates.sort(key=lambda pair: 0.0 if pair[0].name in alike else best - pair[0].share)
        gpu = replace(gpu, names=tuple(alike[:MOST_NAMES]))
        candidates = [
            (replace(units, names=gpu.names) if units.name in alike else units, places)
            for units, places in candidates
        ]
        candidates = _longest_first(candidates)
    if len(rows) <= LOOKED_AT or not candidates:
        return [units for units, _ in candidates]
    likeliest, places = candidates[0]
    everywhere = np.flatnonzero(_like(trace.operations, int(rows[places[0]]))[rows])
    return [units(likeliest.name, everywhere, float(starts[-1] - first))]


def _longest_first(candidates: list[Candidate]) -> list[Candidate]:
    """The likeliest units' parts first, always as many: steps of an optimiser before those that accumulate its gradients."""
    parts = candidates[0][0].starts
    whole = [
        units
        for units, _ in candidates
        if units.share >= COVERED
        and LEAST <= len(units.starts) <= len(parts) // 2
        and np.ptp(np.diff(np.searchsorted(parts, units.starts))) == 0
        and not units.name.startswith(SIZED)
    ]
    longest = min((len(units.starts) for units in whole), default=0)
    first = [units for units in whole if len(units.starts) == longest][:1]
    return sorted(candidates, key=lambda pair: pair[0] not in first)


def _like(operations: pl.DataFrame, row: int) -> NDArray[np.bool_]:
    """The operations that `_tokens` gives the number of `row`."""
    sized = operations["kind"][row] not in NAMED
    columns = ("kind", "direction", "bytes") if sized else ("name",)
    same = [operations[name].eq_missing(operations[name][row : row + 1]).to_numpy() for name in columns]
    return np.asarray(np.logical_and.reduce(same))


def _tokens(operations: pl.DataFrame) -> tuple[NDArray[np.int64], list[str]]:
    """A number for each operation, by kind, name, and direction and bytes of copies; and the name of each number."""
    kind = pl.col("kind").cast(pl.String)
    moved = kind, pl.col("direction").cast(pl.String), pl.col("bytes")
    sized = pl.concat_str(moved, separator=" ", ignore_nulls=True)
    named = pl.when(kind.is_in(NAMED)).then(pl.col("name").cast(pl.String)).otherwise(sized)
    names = operations.select(name=named.fill_null("?")).to_series().cast(pl.Categorical)
    number, first = numbered([names.to_physical().to_numpy()])
    return number.astype(np.int64), names[first].cast(pl.String).to_list()
