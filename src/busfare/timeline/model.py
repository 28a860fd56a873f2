"""A run in a form that changes and plays: columns of calls and operations with their waits; which of them a REGEX means."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.nodes import FloatArray, Node
from busfare.trace import Omission, Trace
from busfare.trace.columns import matches
from busfare.trace.lanes import Union
from busfare.trace.words import HOST_FUNCTION, Words

Columns = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]
#: Types that the core takes, by the column's name behind its table; all others are int64: times in ns, and places.
COLUMN_TYPES: dict[str, Any] = {
    **dict.fromkeys(["thread", "after", "wait_key", "act_stream", "act_event", "awaits"], np.int32),
    **dict.fromkeys(["call", "stream", "engine", "takes", "links", "members"], np.int32),
    **dict.fromkeys(["device", "context", "slots", "opposite"], np.int32),
    **dict.fromkeys(["wait", "act", "launched", "unordered", "kind"], np.uint8),
    **dict.fromkeys(["bytes_per_s", "both", "weight", "link_cost", "demand"], np.float64),
}
#: What a call waits for, and what it does to a stream, as the core numbers them.
WAIT = {"none": 0, "operation": 1, "stream": 2, "device": 3, "event": 4, "given": 5}
ACT = {"none": 0, "record": 1, "wait": 2}
#: How kinds of streams are numbered.
STREAM_KINDS = {"null": 0, "blocking": 1, "non-blocking": 2}
NON_BLOCKING = STREAM_KINDS["non-blocking"]
#: The columns of links where nothing shares one; `operation_bytes_per_s` is then 0 throughout, `operation_weight` 1.
NO_LINKS: Columns = {
    "operation_link_begin": np.zeros(0, np.int64),
    "operation_links": np.zeros(0, np.int32),
    "operation_link_cost": np.zeros(0),
    "link_bytes_per_s": np.zeros(0),
    "link_both": np.zeros(0),
    "link_opposite": np.zeros(0, np.int32),
}
#: All that say which links operations take.
LINK_COLUMNS = frozenset([*NO_LINKS, "operation_bytes_per_s", "operation_weight"])
#: Smaller copies cost their latency, whatever the memory: pageable ones to the GPU are handed over with their call.
STAGED_ABOVE_BYTES = 64 * 1024
#: Work that begins, and a loop that ends, within this after work of the GPU ended waited for it.
BEHIND_NS = 20_000
#: What touches nothing.
NOTHING = Union.of(np.empty(0, np.int64), np.empty(0, np.int64))
#: A year and some. The core's sums over all columns stay within 64 bits.
LONGEST_NS = 1 << 55


def typed(columns: Mapping[str, Any]) -> Columns:
    """Columns of the types that the core takes."""
    types = {name: COLUMN_TYPES.get(name.partition("_")[2], np.int64) for name in columns}
    return {name: np.ascontiguousarray(values, types[name]) for name, values in columns.items()}


def at_rest(calls: int, operations: int, streams: int, **given: Any) -> Columns:
    """So many calls and operations that take no time and wait for nothing, launched by nobody, and streams that wait for no
    other; but for the columns that are given. Zeros that nobody writes to take no memory.
    """
    times = ("duration", "launch_lag", "order_lag", "extra", "turn", "released")
    filled = (
        ("call", calls, 0, ("thread", "gap", "own", "wait", "wait_lag", "act")),
        ("call", calls, -1, ("after", "wait_key", "act_stream", "act_event")),
        ("operation", operations, 0, ("launched", "stream", "unordered", "bytes_per_s", *times)),
        ("operation", operations, -1, ("call", "engine", "after")),
        ("operation", operations, 1, ("takes", "weight")),
        ("stream", streams, 0, ("device", "context")),
        ("stream", streams, NON_BLOCKING, ("kind",)),
    )
    columns = {
        f"{table}_{name}": np.full(rows, value, kind) if value else np.zeros(rows, kind)
        for table, rows, value, names in filled
        for name in names
        if f"{table}_{name}" not in given
        for kind in [COLUMN_TYPES.get(name, np.int64)]
    }
    return typed(NO_LINKS | columns | {"engine_slots": []} | given)


#: A direction, device and peer device (-1: none), and the number of the host that they are of.
Route = tuple[str, int, int, int]


class Taken(NamedTuple):
    """The lanes that copies take, by number; how many bytes of each their bytes are; their weight where a lane is full."""

    lanes: list[int]
    cost: list[float]
    weight: float


@dataclass(frozen=True)
class SharedLinks:
    """Lanes that copies of one run may share, and their rates.

    `bytes_per_s`: one direction alone. `duplex_share`: the share of it that remains while the opposite direction is in use.
    `opposite`: the number of that lane, or -1 if unused. `paths`: the lanes of each route.
    """

    bytes_per_s: FloatArray
    duplex_share: FloatArray
    opposite: NDArray[np.int32]
    paths: dict[Route, Taken]

    @property
    def lanes(self) -> tuple[dict[Route, list[int]], list[int]]:
        """Which lanes each route takes, and which are opposite."""
        return {route: taken.lanes for route, taken in self.paths.items()}, self.opposite.tolist()


@dataclass(frozen=True)
class Timeline:
    """A run in a form that plays. Times in nanoseconds from `origin_ns` of the trace.

    `node` is the machine that this runs on and `links` what its copies share there, where that is known.

    `columns` are those of `busfare.timeline._core`, but for the start-up of calls (`build/first_calls.py`), which no change
    touches: it is `call_startup`, in no gap, and `calls` start behind it. Rows of `operations` and `calls` (the trace's
    columns) are parallel to them. A changed timeline is another one: nothing is changed in place.

    Ranks side by side wait for each other in joints, columns that are all there or none: the nodes
    `joint_members[joint_begin[j]:joint_begin[j + 1]]` (a call's row, or number of calls + an operation's row) arrive
    in joint j as they start; `call_awaits` and `operation_awaits` are the joint that each waits for, or -1. A call
    returns no earlier than its own time after the last arrival. An operation, then without engine and links, holds its
    stream; its duration, the transfer alone, counts from the last arrival or its own start, whichever is later.
    """

    trace: Trace
    origin_ns: int
    recorded_ns: int
    columns: Columns
    operations: pl.DataFrame
    calls: pl.DataFrame
    call_name: NDArray[np.uint32]  # of `call_names`
    call_names: list[str]
    usual_order_ns: NDArray[np.int64]  # by class: how soon work starts behind other work of its unit
    omissions: list[Omission]
    node: Node | None = None
    links: SharedLinks | None = None
    #: What gaps on the GPU, and around it, are shorter by than the columns say when this plays.
    closer_ns: int = 0

    def with_columns(self, **columns: NDArray[Any]) -> "Timeline":
        """The same run with some columns of the core replaced."""
        return replace(self, columns={**self.columns, **columns})

    @cached_property
    def words(self) -> Words:
        """Of `operations`. Masks are not to be written to."""
        return Words(self.operations)

    def among(self, column: str, *words: str) -> Mask:
        """Operations with one of these words in a column; shape (operations,)."""
        return self.words.among(column, *words)

    def copies(self, *directions: str) -> Mask:
        """Copies of these directions; shape (operations,)."""
        return self.among("kind", "copy") & self.among("direction", *directions)

    @property
    def kernels(self) -> Mask:
        """Kernels and graphs of them; shape (operations,)."""
        return self.among("kind", "kernel", "graph")

    @property
    def opaque_share(self) -> float:
        """Of the GPU's time, the share of graph launches that were recorded as a whole: what they run is not known."""
        duration = self.columns["operation_duration"]
        return float(duration[self.among("kind", "graph")].sum() / max(duration.sum(), 1))

    @property
    def launched(self) -> Mask:
        """Operations that a recorded call launched; shape (operations,)."""
        return np.asarray(self.columns["operation_launched"] != 0)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each operation, 0 where they are not known; shape (operations,)."""
        return self.operations["bytes"].fill_null(0).to_numpy()

    @property
    def recorded_spans(self) -> tuple[Times, Times]:
        """When each operation started and ended in the recording, ns of the trace; shape (operations,)."""
        return self.operations["start_ns"].to_numpy(), self.operations["end_ns"].to_numpy()

    def calls_of(self, operations: Mask) -> Mask:
        """The calls that launched some of these operations; shape (calls,)."""
        mask = np.zeros(len(self.columns["call_own"]), bool)
        mask[self.columns["operation_call"][operations & self.launched]] = True
        return mask

    def of_calls(self, calls: Mask) -> Mask:
        """The operations that these calls launched; shape (operations,)."""
        mask = self.launched
        mask[mask] = calls[self.columns["operation_call"][mask]]
        return mask

    def calls_named(self, pattern: str) -> Mask:
        """Calls whose name matches; shape (calls,). Raises InputError for what is no regular expression."""
        names = pl.Series([name or None for name in self.call_names], dtype=pl.String)
        return matches(pattern, names).to_numpy()[self.call_name]

    def waiting(self, *kinds: str) -> Mask:
        """Calls that wait in one of these ways, or for anything; shape (calls,)."""
        wait = self.columns["call_wait"]
        return np.isin(wait, [WAIT[kind] for kind in kinds]) if kinds else wait != WAIT["none"]


def pageable(operations: pl.DataFrame) -> NDArray[np.bool_]:
    """Copies from or to pageable memory; shape (rows,)."""
    words, sides = Words(operations), ("source_memory", "destination_memory")
    return np.logical_or(*(words.among(side, "pageable") for side in sides))


def staged(operations: pl.DataFrame) -> NDArray[np.bool_]:
    """Copies of pageable memory that the host moves through a staging buffer; shape (rows,)."""
    return pageable(operations) & (operations["bytes"].fill_null(0).to_numpy() > STAGED_ABOVE_BYTES)


class NoMatchError(InputError):
    """A REGEX that is found in nothing of what it chooses from; of a job, another rank may have some."""


def matching(timeline: Timeline, pattern: str, of: Mask, option: str) -> Mask:
    """Those `of` the operations that match: by name, path, launching call, and the markers around that call; shape
    (operations,).

    Raises InputError, naming `option`, for what is no regular expression, and NoMatchError where none of them matches.
    """
    if not pattern:
        return of
    text_columns = ("name", "direction", "source_memory", "destination_memory")
    words = [pl.col(name).cast(pl.String).fill_null("") for name in text_columns]
    text = timeline.operations.select(pl.format("{} {} {}→{}", *words).alias("text")).to_series()
    if timeline.calls.height:
        called = pl.Series(np.maximum(timeline.columns["operation_call"], 0))
        names = timeline.calls["name"].cast(pl.String).fill_null("").gather(called)
        text = text + " " + names + _markers_around(timeline, called)
    return chosen_by(pattern, of, text, option)


def chosen_by(pattern: str, of: Mask, texts: pl.Series, option: str) -> Mask:
    """Those `of` the rows in whose text `pattern` is found; shape (rows,). Raises as `matching`."""
    matched: Mask = of & matches(pattern, texts, option).to_numpy()
    if of.any() and not matched.any():
        example = texts.filter(pl.Series(of))[0].strip()
        raise NoMatchError(
            f"{option} {pattern[:80]!r}: this regular expression matches nothing in {of.sum():,} names, "
            f"such as {example[:80]!r}; correct it, or leave it out to select everything"
        )
    return matched


def _markers_around(timeline: Timeline, called: pl.Series) -> pl.Series:
    """Names of the ranges that were open when each operation was called: the innermost few."""
    ranges = timeline.trace.markers.filter(pl.col("end_ns").is_not_null())
    texts = [""] * called.len()
    if ranges.height == 0 or ranges.height > 100_000:
        return pl.Series(texts)
    times = timeline.calls["start_ns"].gather(called).to_numpy()
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    names = ranges["name"].cast(pl.String).fill_null("").to_list()
    order = np.argsort(starts, kind="stable")
    open_now: list[int] = []
    at = 0
    for row in np.argsort(times, kind="stable"):
        while at < len(order) and starts[order[at]] <= times[row]:
            open_now.append(int(order[at]))
            at += 1
        open_now = [r for r in open_now if ends[r] >= times[row]]
        texts[row] = "".join(f" {names[r]}" for r in open_now[-8:])
    return pl.Series(texts)


def activity(
    timeline: Timeline,
    operations: Mask | None = None,
    calls: Mask | None = None,
    before_calls: Times | None = None,
    still_waiting: Mask | None = None,
) -> Union | None:
    """When, as recorded, one of these operations, of their calls, or of these calls is under way, or it is so many ns
    before a call. Of calls that are `still_waiting` after the change, only what follows the end of
    what their operations' streams did before. Shapes (operations,) and (calls,).

    None, maybe all the time, where streams run functions of the host: what waits for those is not recorded.
    """
    if timeline.calls_named(HOST_FUNCTION).any():
        return None
    chosen = np.zeros(timeline.calls.height, bool) if calls is None else calls
    spans = []
    if operations is not None:
        chosen = chosen | timeline.calls_of(operations)
        spans.append([times[operations] for times in timeline.recorded_spans])
    called, returned = (timeline.calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    since = called
    if operations is not None and still_waiting is not None:
        since = np.where(still_waiting, _earlier_work(timeline, operations, called), called)
    spans.append([since[chosen], returned[chosen]])
    if before_calls is not None:
        before = before_calls > 0
        spans.append([(called - before_calls)[before], called[before]])
    return Union.of(*map(np.concatenate, zip(*spans, strict=True)))


def _earlier_work(timeline: Timeline, operations: Mask, since: Times) -> Times:
    """Of each call that launched one of `operations`, when what their streams did before had ended; no earlier than `since`
    and no later than its return. Shape (calls,).
    """
    work = timeline.operations.select("end_ns", call=timeline.columns["operation_call"])
    earlier = pl.all().shift(1).over(pl.Series(timeline.columns["operation_stream"]))
    before = work.select(earlier).filter(pl.Series(operations & timeline.launched))
    call = timeline.columns["operation_call"][operations & timeline.launched]
    earlier_call = (before["call"] != pl.Series(call)).fill_null(False).to_numpy()
    ends = since.copy()
    np.maximum.at(ends, call[earlier_call], before["end_ns"].to_numpy()[earlier_call].astype(np.int64))
    return np.asarray(np.minimum(ends, timeline.calls["end_ns"].to_numpy()))


class Scope(NamedTuple):
    """The rows that changes touch: operations of the trace, and calls as -1 - row, each once; and their bytes."""

    ids: Times = np.empty(0, np.int64)
    sizes: Times = np.empty(0, np.int64)

    def joined(self, later: "Scope") -> "Scope":
        """The rows that at least one of the two touches."""
        ids, first = np.unique(np.concatenate([self.ids, later.ids]), return_index=True)
        return Scope(ids, np.concatenate([self.sizes, later.sizes])[first])


def operations_touched(timeline: Timeline, operations: Mask, sized: bool = True) -> Scope:
    """These operations; shape (operations,). Their bytes count if `sized`."""
    rows = timeline.operations["row"].to_numpy()[operations].astype(np.int64)
    return Scope(rows, timeline.sizes[operations] if sized else np.zeros(len(rows), np.int64))


def calls_touched(timeline: Timeline, calls: Mask) -> Scope:
    """These calls; shape (calls,)."""
    ids = -1 - timeline.calls["row"].to_numpy()[calls].astype(np.int64)
    return Scope(ids, np.zeros(len(ids), np.int64))


def either(first: Union | None, second: Union | None) -> Union | None:
    """When at least one of the two is under way; None, maybe all the time, where one of them is that."""
    if first is None or second is None:
        return None
    return Union.of(np.append(first.starts, second.starts), np.append(first.ends, second.ends))
