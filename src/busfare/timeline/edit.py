"""What changes to a program are made of: operations, calls and waits taken out; other durations; operations by REGEX."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import cost
from busfare.cost.batches import recorded_seconds
from busfare.cost.copies import in_place_share
from busfare.cost.kernels.price import KernelPrices, price_kernels
from busfare.cost.models import as_copies_of, packing_seconds
from busfare.errors import InputError
from busfare.nodes import FloatArray, Node
from busfare.questions import ChangeName
from busfare.statements import Figure, Words, statement
from busfare.timeline.build.waiting import behind_host_functions
from busfare.timeline.build.work import before_in, class_of, unit_of
from busfare.timeline.model import (
    NOTHING,
    WAIT,
    Mask,
    Scope,
    Timeline,
    Times,
    activity,
    either,
    operations_touched,
    pageable,
    staged,
)
from busfare.trace.lanes import Union

Options = ParamSpec("Options")
ASYNC_COPY = r"Memcpy.*Async"
#: What a call that launches a kernel, and one that submits a copy of pinned memory, takes the host where nobody recorded or
#: probed it, in nanoseconds: medians of 62 probes of H100s and H200s (results/probe).
LAUNCH_CALL_NS, COPY_CALL_NS = 5_000, 2_900
#: A core's own second-level cache: 2 MiB on the hosts of H100s and H200s, 1 to 2 on servers of these years. A copy that
#: the host moves, and that is no smaller, leaves nothing of the program there.
PRIVATE_CACHE_BYTES = 2 << 20
#: A program's own lines, here and there, take so many times as long to fetch as a copy's: behind a large copy CuPy and
#: PyTorch took 247 to 275 µs longer, an interpreter 232 to 262, where a copy of as many bytes takes 146 (H200, copies
#: pageable and pinned).
SCATTERED = 1.8
#: The times of KernelPrices that kernels take on another node: as predicted, or an end of their range.
KernelTime = Literal["seconds", "low", "high"]
FOR_COPIES = statement("assumes.unprepared")


@dataclass(frozen=True)
class Setting:
    """What a change may need to know: the node of the recording (None: unknown) and the cost model for others."""

    recorded_on: Node | None = None
    model: str = "calibrated"
    kernel_time: KernelTime = "seconds"
    _priced: list[tuple[pl.DataFrame, Times, Node, KernelPrices]] = field(
        default_factory=list, repr=False, compare=False
    )

    def kernel_prices(self, timeline: Timeline, to: Node) -> KernelPrices:
        """What every kernel takes on `to`, priced once for kernels that take the same. Raises InputError where what bounds
        kernels on one of the GPUs is not known, or where the run was recorded.
        """
        operations, took = timeline.operations, timeline.columns["operation_duration"][timeline.kernels]
        for priced, before, node, prices in self._priced:
            if priced is operations and node is to and np.array_equal(before, took):
                return prices
        if self.recorded_on is None:
            raise InputError(f"{timeline.trace.path}: the trace names no GPU that busfare knows")
        trace = timeline.trace
        prices = price_kernels(with_times(timeline), trace.launches, self.recorded_on, to, trace.counters)
        self._priced.append((operations, took, to, prices))
        return prices


@dataclass(frozen=True)
class Applied:
    """A timeline after a change, the operations or calls that it touched, and its assumptions. `touched`: the recorded times
    of these; None: maybe the whole run. `cost_error`: s by which it may cost less, or more.
    """

    timeline: Timeline
    scope: Scope = field(default_factory=Scope)
    rests_on: list[Words] = field(default_factory=list)
    touched: Union | None = None
    cost_error: tuple[float, float] = (0.0, 0.0)

    @property
    def count(self) -> int:
        """The number of touched operations and calls."""
        return len(self.scope.ids)

    @property
    def bytes(self) -> int:
        """The bytes that these move."""
        return int(self.scope.sizes.sum())

    def then(self, later: "Applied") -> "Applied":
        """A `later` change of the timeline of this one, with what both touched and rest on."""
        rests_on = list(dict.fromkeys([*self.rests_on, *later.rests_on]))
        touched = either(self.touched, later.touched if later.count else NOTHING)
        scope, error = self.scope.joined(later.scope), max(self.cost_error, later.cost_error)
        return Applied(later.timeline, scope, rests_on, touched, error)


@dataclass(frozen=True)
class Change:
    """One change to a program: the field of `WhatIf` that asks for it, what it is called, and what it makes of a run.
    `apply` raises InputError where the trace lacks what it needs. `node`: where everything runs then, if elsewhere.
    """

    kind: ChangeName
    title: Words
    apply: Callable[[Timeline, Setting], Applied]
    node: Node | None = None


def change(
    kind: ChangeName, title: Callable[..., Words]
) -> Callable[[Callable[Concatenate[Timeline, Setting, Options], Applied]], Callable[Options, Change]]:
    """Makes of a function of a run, a setting and options one of the options that gives the `Change`, with `title`."""

    def of(apply: Callable[Concatenate[Timeline, Setting, Options], Applied]) -> Callable[Options, Change]:
        @wraps(apply)
        def made(*args: Options.args, **kwargs: Options.kwargs) -> Change:
            named = title(*args, **kwargs)
            return Change(kind, named, lambda run, setting: apply(run, setting, *args, **kwargs))

        return made

    return of


def titled(change: str, pattern: str = "", **figures: Figure) -> Words:
    """What `change` is called: with a pattern, of what matches it."""
    title = statement(f"change.{change}", **figures)
    return statement("change.matching", change=title, pattern=pattern) if pattern else title


def applied(before: Timeline, after: Timeline, touched: Mask, *rests_on: Words) -> Applied:
    """`after`, made of `before` by touching some of its operations; shape (operations,)."""
    waits = after.waiting("operation", "given") | waited_for_behind(after)
    shorter = before.columns["call_gap"] - after.columns["call_gap"]
    when = activity(before, touched, before_calls=shorter, still_waiting=waits)
    return Applied(after, operations_touched(before, touched), list(rests_on), when)


def taken_out(timeline: Timeline, removed: Mask, *rests_on: Words) -> Applied:
    """The timeline without these operations, shape (operations,), and the waits right behind them, on conditions if any."""
    conditions = (*rests_on, *[FOR_COPIES] * bool(_calls_for(timeline, removed).any()))
    after = without_operations(without_waits_behind(timeline, removed), removed)
    return applied(timeline, after, removed, *(conditions if removed.any() else ()))


def without_operations(timeline: Timeline, removed: Mask, bytes_stay: bool = False) -> Timeline:
    """Takes operations out, and the host time of calls that launched nothing else; shape (operations,). Those behind host
    functions take no time, but still wait for these. `bytes_stay`: what they carried still passes through the host's caches,
    in other copies.
    """
    held = removed & behind_host_functions(timeline)
    removed = removed & ~held
    timeline = with_durations(timeline, timeline.columns["operation_duration"] * ~held)
    if not removed.any():
        return timeline
    columns, rows = dict(timeline.columns), np.flatnonzero(~removed)
    emptied = _emptied(timeline, removed)
    prepared = _calls_for(timeline, removed)
    before = before_in(columns["operation_stream"])
    number = np.append(np.cumsum(~removed) - 1, -1)  # -1 stays -1
    # Who waited for one that is gone waits for the one before it in its stream.
    instead = np.where(removed, _kept_before(before, removed), np.arange(len(removed)))
    wait, key = columns["call_wait"], columns["call_wait_key"]
    given = wait == WAIT["given"]
    key = np.where(given, number[instead][np.where(given, key, 0)], key).astype(np.int32)
    gap = columns["call_gap"] if bytes_stay else gaps_without(timeline, removed)
    columns |= {
        "operation_order_lag": _lags_behind(timeline, before, removed),
        "operation_after": number[_kept_before(columns["operation_after"], removed)].astype(np.int32),
    }
    columns |= {name: values[rows] for name, values in columns.items() if name.startswith("operation_")}
    columns |= {
        "call_own": np.where(emptied | prepared, 0, columns["call_own"]),
        "call_gap": np.where(prepared, 0, gap),
        "call_wait": np.where(given & (key < 0) | emptied, WAIT["none"], wait).astype(np.uint8),
        "call_wait_key": key,
    }
    return replace(timeline, columns=columns, operations=timeline.operations[rows])


def _calls_for(timeline: Timeline, removed: Mask) -> Mask:
    """The calls that threads make for the operations `removed` alone; shape (calls,). `removed`: shape (operations,).

    A thread, other than its process's first, works on what it was handed (`handed_over`) until another call comes after one
    of its own. Its calls for `removed` alone go with them, and the time since it was handed the work, in which it woke up
    and prepared what it copies. The time until another thread goes on stays.
    """
    after, thread = timeline.columns["call_after"], timeline.columns["call_thread"]
    handed = after >= 0
    if not handed.any():
        return np.zeros(len(after), bool)
    stretch = numbered_in(thread, handed | (before_in(thread) < 0))
    begins, goes_on, does = np.zeros((3, int(stretch.max()) + 1), bool)
    begins[stretch[handed]] = True
    goes_on[stretch[after[handed]]] = True
    kept, emptied = timeline.calls_of(~removed), _emptied(timeline, removed)
    stays = kept | timeline.waiting() & ~emptied
    # Where the first thread makes no calls, another one may be the program's own.
    process = timeline.calls["process"]
    main = timeline.calls["thread"].eq_missing(process)
    stays |= (main | ~process.is_in(process.filter(main).unique().implode()).fill_null(False)).to_numpy()
    begins[stretch[stays]] = False
    does[stretch[emptied]] = True
    return np.asarray((begins & goes_on & does)[stretch])


def _emptied(timeline: Timeline, removed: Mask) -> Mask:
    """The calls that launched nothing but the operations `removed`; shape (calls,)."""
    return timeline.calls_of(removed) & ~timeline.calls_of(~removed)


def _lags_behind(timeline: Timeline, before: NDArray[np.int32], removed: Mask) -> Times:
    """How long each operation starts behind the one `before` it in its stream, once that is gone; shape (operations,).

    What followed a copy engine's work and now follows work of its own unit no longer pays for the change of units: 2.7 to
    5.2 µs from a kernel to a copy on H100s and H200s (`busfare probe`, after a kernel).
    """
    unit = unit_of(timeline.operations)
    now = _kept_before(before, removed)
    alike = (now >= 0) & (unit[before] != unit) & (unit[now] == unit) & ~removed
    lag = timeline.columns["operation_order_lag"]
    usual = timeline.usual_order_ns[class_of(timeline.operations)]
    return np.where(alike, np.minimum(lag, usual), lag)


def _kept_before(before: NDArray[np.int32], removed: Mask) -> NDArray[np.int32]:
    """For each operation the one before it that is kept. Each round looks twice as far: chains of faults span the trace."""
    skip = np.where(removed, before, np.arange(len(before), dtype=np.int32))
    while (through := (skip >= 0) & removed[skip]).any():
        skip[through] = skip[skip[through]]
    return np.where(before >= 0, skip[before], -1).astype(np.int32)


def gaps_without(timeline: Timeline, gone: Mask) -> Times:
    """The host's times between calls when the copies `gone` no longer pass through its caches; ns, shape (calls,).

    `gone`: shape (operations,). A copy that the host stages, and that is as large as a core's cache, makes the host fetch
    again what it works with, `SCATTERED` times as slowly as it copies those bytes on this node. A trace does not tell that
    time from the host's own: it is taken to be half of the gaps behind the copy until then, but for gaps longer than the
    whole cache takes: those are work on data of its own, as a gather from a large table.
    """
    columns = timeline.columns
    gap: Times = columns["call_gap"]
    large = gone & pageable(timeline.operations) & timeline.launched & (timeline.sizes >= PRIVATE_CACHE_BYTES)
    if not large.any():
        return gap
    copied_ns = 1e9 * packing_seconds(np.array([PRIVATE_CACHE_BYTES], np.float64), timeline.node)[0]
    whole = int(SCATTERED * copied_ns)
    half = np.where(gap >= whole, 0, np.maximum(gap, 0) // 2)
    calls = {"thread": columns["call_thread"], "copies": timeline.calls_of(large), "half": half}
    # Of each thread's calls, those from behind one such copy up to the next.
    copies = pl.col("copies").cast(pl.Int64).shift(1, fill_value=0).cum_sum().over("thread")
    behind = pl.DataFrame(calls).with_columns(copies)
    since = (pl.col("half").cum_sum() - pl.col("half")).over("thread", "copies")
    spared = pl.when(pl.col("copies") > 0).then((whole - since).clip(0, pl.col("half"))).otherwise(0)
    return np.asarray(gap - behind.select(spared).to_series().to_numpy())


def without_waits(timeline: Timeline, calls: Mask, call_ns: Times | int) -> Timeline:
    """These calls return after `call_ns` without waiting (0: they are removed); shape (calls,)."""
    return timeline.with_columns(
        call_wait=np.where(calls, WAIT["none"], timeline.columns["call_wait"]).astype(np.uint8, copy=False),
        call_own=np.where(calls, call_ns, timeline.columns["call_own"]).astype(np.int64, copy=False),
    )


def without_waits_behind(timeline: Timeline, removed: Mask) -> Timeline:
    """What waits, right behind their calls, for the copies `removed` no longer does; shape (operations,)."""
    gone = removed & ~behind_host_functions(timeline)
    return without_waits(timeline, waiting_behind(timeline, timeline.calls_of(gone)), 0)


def with_durations(timeline: Timeline, duration_ns: NDArray[Any]) -> Timeline:
    """The same operations, lasting `duration_ns`; shape (operations,)."""
    return timeline.with_columns(operation_duration=np.rint(duration_ns).astype(np.int64))


def host_slowed(timeline: Timeline, slowdown: float) -> Timeline:
    """What the host does in calls and between them takes `slowdown` times as long."""
    call_ns, gap = timeline.columns["call_own"], timeline.columns["call_gap"]
    # A gap below zero is a call that began before the one it waits for had ended.
    return timeline.with_columns(
        call_own=np.rint(slowdown * call_ns).astype(np.int64),
        call_gap=np.where(gap > 0, np.rint(slowdown * gap), gap).astype(np.int64),
    )


def right_behind(timeline: Timeline, calls: Mask) -> Mask:
    """The next call of each one's thread; shape (calls,)."""
    before = before_in(timeline.columns["call_thread"])
    return np.asarray((before >= 0) & calls[before])


def waiting_behind(timeline: Timeline, calls: Mask) -> Mask:
    """Of those right behind `calls`, the ones that wait for a stream or an operation; shape (calls,)."""
    return right_behind(timeline, calls) & timeline.waiting("stream", "given")


def waited_for_behind(timeline: Timeline) -> Mask:
    """Calls right before one of their thread that waits for a stream or an operation; shape (calls,)."""
    waits, mask = timeline.waiting("stream", "given"), np.zeros(len(timeline.call_name), bool)
    before = before_in(timeline.columns["call_thread"])[waits]
    mask[before[before >= 0]] = True
    return mask


def last_in_group(groups: NDArray[Any], among: Mask) -> Mask:
    """The last row of each group among some; shape (rows,)."""
    rows = np.flatnonzero(among)[::-1]
    last = np.zeros(len(among), bool)
    last[rows[np.unique(groups[rows], return_index=True)[1]]] = True
    return last


def numbered_in(groups: NDArray[Any], begins: Mask) -> Times:
    """Rows numbered anew from each that `begins` within its group, as its first one must; shape (rows,)."""
    order = np.argsort(groups, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins[order]) - 1
    return number


def usual_call_ns(timeline: Timeline, pattern: str) -> int:
    """The median host time of calls of such a name that wait for nothing and stage nothing, or the usual one."""
    staging = timeline.calls_of(staged(timeline.operations))
    free = timeline.calls_named(pattern) & ~timeline.waiting() & ~staging
    call_ns = timeline.columns["call_own"][free]
    return int(np.median(call_ns)) if len(call_ns) else LAUNCH_CALL_NS


def with_times(timeline: Timeline) -> pl.DataFrame:
    """The operations with the times that they have in this timeline."""
    duration = pl.Series(timeline.columns["operation_duration"])
    return timeline.operations.with_columns(end_ns=pl.col("start_ns") + duration)


def nanoseconds_from(memory: str, operations: pl.DataFrame, node: Node | None) -> FloatArray:
    """What these copies between host and device take from a kind of host memory: as measured on `node`; else from pinned
    memory by its data sheet. Shape (rows,). Raises InputError where the node is not known.
    """
    if node is None:
        raise InputError(
            "the trace does not name a GPU that busfare knows; name its node with `recorded_on` NODE"
        )
    measured = node.copies_measured(memory)
    if not measured and memory != "pinned":
        return nanoseconds_from("pinned", operations, node)
    model = cost.model("loggp" if measured else "datasheet", recorded_on=node)
    seconds = model.seconds(as_copies_of(operations, memory), node)
    if memory == "pinned" and (share := in_place_share(node)) is not None:
        seconds = np.where(pageable(operations), share * recorded_seconds(operations), seconds)
    return seconds * 1e9


def nanoseconds_packed(operations: pl.DataFrame, node: Node | None) -> FloatArray:
    """What these copies take from the memory that they are from: pageable as measured on `node`, less what a call takes
    for a single byte, else as from pinned memory; shape (rows,). Raises InputError where the node is not known.
    """
    pinned = nanoseconds_from("pinned", operations, node)
    if node is None or not node.copies_measured("pageable"):
        return pinned
    model = cost.model("loggp", recorded_on=node)
    single_byte = operations.with_columns(bytes=pl.lit(1, pl.Int64))
    staged = (model.seconds(operations, node) - model.seconds(single_byte, node)) * 1e9
    return np.where(pageable(operations), staged, pinned)
