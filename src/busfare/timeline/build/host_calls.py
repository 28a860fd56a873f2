"""The calls of each host thread as one row after another: no call inside another, who hands work to whom, and what each
waits for, as rows and numbers of a timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.model import ACT, WAIT, Times
from busfare.timeline.prices import pageable
from busfare.trace import Trace
from busfare.trace.columns import numbered, plain
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import NONE, Words

if TYPE_CHECKING:
    from busfare.timeline.build.device_work import DeviceWork

__all__ = [
    "Acts", "HostCalls", "Rows", "Waits", "acts", "alike", "before_in", "between_calls", "handed_over", "outermost", "timed",
    "waits",
]  # fmt: skip

Rows = NDArray[np.int32]
#: A thread that calls nothing for so long may be waiting for another thread of its process.
HANDS_OVER_AFTER_NS = 100_000
#: A launch that takes so long is no mere launch, and a stream takes about a thousand that are pending.
LONG_LAUNCH_NS = 20_000
FULL_QUEUE = 512


class HostCalls(NamedTuple):
    """Outermost calls in order of their start, and of every call of the trace the outermost one around it.

    `calls`: the trace's columns, `waits_for`, `stream` and `event` taken from an inner call where the outer one
    does not wait, and `thread_number` (from 0). `inside`: process, correlation, start_ns, call (row of `calls`).
    """

    calls: pl.DataFrame
    inside: pl.DataFrame


def outermost(calls: pl.DataFrame) -> HostCalls:
    """Driver calls within runtime calls folded into those; rows without a time are left out."""
    ordered = timed(calls)
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    later = (starts[1:] > starts[:-1]) | ((starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1]))
    ordered = ordered if later.all() else ordered[np.lexsort((-ends, starts))]  # the longer ones first
    thread_of, threads = alike(ordered.select("process", "thread"))
    spans = ordered.select("start_ns", "end_ns", thread=pl.Series(thread_of))
    reached = pl.col("end_ns").cum_max().shift(1).over("thread")
    outer = spans.select((pl.col("start_ns") >= reached).fill_null(True)).to_series()
    spans = spans.with_columns(number=pl.when(outer).then(pl.Series(np.cumsum(outer) - 1)))
    # An inner call's outer one is the last before it that is one.
    call = spans.select(pl.col("number").forward_fill().over("thread").cast(pl.Int64)).to_series()
    rows = np.flatnonzero(outer)
    kept = _with_inner_waits(ordered, rows, np.flatnonzero(~outer), call.to_numpy())
    rank = threads.select(pl.struct("process", "thread").rank("dense").cast(pl.Int32) - 1).to_series()
    kept = kept.with_columns(thread_number=pl.Series(rank.to_numpy()[thread_of[rows]]))
    return HostCalls(kept, ordered.select("process", "correlation", "start_ns", call=call))


def timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Those of a table that have times."""
    has = (pl.col("end_ns") >= pl.col("start_ns")).fill_null(False)
    return rows if rows.select(has.all()).item() else rows.filter(has)


def _with_inner_waits(ordered: pl.DataFrame, outer: Times, inner: Times, call: Times) -> pl.DataFrame:
    """The `outer` calls, what each waits for taken from its first inner call that waits, where it does not itself."""
    words = Words(ordered)
    inner = inner[words.among("waits_for", *WAITS_FOR[1:])[inner]]
    of_call, first = np.unique(call[inner], return_index=True)
    takes = words.among("waits_for", "none")[outer[of_call]]
    source = outer.copy()
    source[of_call[takes]] = inner[first[takes]]
    return ordered[outer].with_columns(ordered[name][source] for name in ("waits_for", "stream", "event"))


def alike(table: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Rows that are alike in all columns (of whole numbers): which of them each is, and each once, as they appear."""
    of, first_rows = numbered([numbers for column in table for numbers in plain(column)])
    return of, table[first_rows]


def before_in(groups: NDArray[Any]) -> Rows:
    """The row before each of its group, -1 for the first one; shape (rows,)."""
    order = np.argsort(groups, kind="stable")
    before = np.full(len(groups), -1, np.int32)
    same = groups[order[1:]] == groups[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def between_calls(calls: pl.DataFrame, after: Rows, origin_ns: int) -> Times:
    """Host time before each outermost call since its thread's call before, since the one that it comes `after` where
    another thread hands over (`handed_over`), or since `origin_ns`; ns, shape (calls,).

    Without what the recorder itself took of it.
    """
    previous = np.where(after >= 0, after, before_in(calls["thread_number"].to_numpy()))
    ends = np.append(calls["end_ns"].to_numpy(), origin_ns)  # of -1: where there is none before
    gap = pl.Series(calls["start_ns"].to_numpy() - ends[previous])
    if "recorder_ns" in calls.columns:
        gap = (gap - calls["recorder_ns"].fill_null(0)).clip(lower_bound=0)
    return gap.to_numpy().astype(np.int64)


def handed_over(calls: pl.DataFrame) -> Rows:
    """The call of another thread after which each call starts, where threads take turns; -1 elsewhere. Shape (calls,).

    PyTorch's backward pass is such a thread: it is silent while the program's own thread works, and the other way
    round. Threads of one process that work at the same time hand nothing over.
    """
    after = np.full(calls.height, -1, np.int32)
    if calls.is_empty() or calls["process"].n_unique() > calls["thread_number"].max():  # type: ignore[operator]
        return after  # each process has one thread
    since = pl.col("start_ns") - pl.col("end_ns").shift(1)
    rows = calls.with_row_index("row").with_columns(
        first=(since >= HANDS_OVER_AFTER_NS).fill_null(True).over("thread_number"),
        next_start=pl.col("start_ns").shift(-1).over("thread_number"),
    )
    burst = pl.col("first").cum_sum().over("thread_number")
    rows = rows.with_columns(burst_end=pl.col("end_ns").max().over("thread_number", burst))
    for part in rows.partition_by("process", maintain_order=True):
        by_end = part.sort("end_ns", "row")
        firsts = part.filter("first")
        at = np.searchsorted(by_end["end_ns"].to_numpy(), firsts["start_ns"].to_numpy(), side="right") - 1
        firsts, other = firsts.filter(pl.Series(at >= 0)), by_end[at[at >= 0]]
        silent = other["next_start"].is_null() | (other["next_start"] >= firsts["burst_end"])
        hands = (other["thread_number"] != firsts["thread_number"]) & silent & (other["row"] < firsts["row"])
        after[firsts.filter(hands)["row"].to_numpy()] = other.filter(hands)["row"].to_numpy()
    return after


class Acts(NamedTuple):
    """What calls do to streams: `kind` of ACT, `stream` and `event` numbers, shape (calls,). `records`: one row a
    record with process, event, start_ns and its number.
    """

    kind: NDArray[np.uint8]
    stream: Rows
    event: Rows
    records: pl.DataFrame
    lost: int  # waits of streams for events that were not recorded in the trace


def acts(trace: Trace, host: HostCalls, work: DeviceWork) -> Acts:
    """Event records and stream waits as acts of the calls that made them."""
    made_by = host.inside.select("process", "correlation", "call").drop_nulls("correlation")
    streams = work.streams.select("process", "context", "stream", "stream_number")
    events = _with_first(trace.events.with_row_index("event_row"), made_by, ["process", "correlation"])
    events = _with_first(events.drop_nulls("call"), streams, ["process", "context", "stream"])
    events = events.sort("call", "event_row")
    records = events.filter(pl.col("kind") == "record").with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int32)
    )
    waiting = _records_waited_for(events.filter(pl.col("kind") == "wait"), records)
    count = host.calls.height
    kind = np.zeros(count, np.uint8)
    stream, event = np.full((2, count), -1, np.int32)
    for part, what in ((records, "record"), (waiting.drop_nulls("number"), "wait")):
        part = part.drop_nulls("stream_number")
        rows = part["call"].to_numpy()
        kind[rows] = ACT[what]
        stream[rows] = part["stream_number"].to_numpy()
        event[rows] = part["number"].to_numpy()
    return Acts(kind, stream, event, records, waiting["number"].null_count())


def _with_first(rows: pl.DataFrame, others: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """`rows` with the columns of the first of `others` that is alike in `keys`, null without one."""
    first = others.unique(keys, keep="first", maintain_order=True)
    return rows.join(first, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _records_waited_for(waiting: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """`waiting` with the `number` of the record that each row waits for: as the trace says, or the last before it."""
    for key, said in (("correlation", "record_correlation"), ("event_sync", "event_sync")):
        known = records.drop_nulls(key).select(
            "process", pl.col(key).alias(said), pl.col("number").alias(f"by_{key}")
        )
        waiting = _with_first(waiting, known, ["process", said])
    last = _last_record(waiting.select("process", "event", "call"), records)
    # A trace that numbers its records means no other record where it names none that it holds.
    by_event = pl.when(pl.col("event_sync").is_null()).then(last)
    return waiting.with_columns(number=pl.coalesce("by_correlation", "by_event_sync", by_event))


def _last_record(wanted: pl.DataFrame, records: pl.DataFrame) -> pl.Series:
    """The number of the last record of each event before `call`, null for none."""
    known = records.select("process", "event", "call", last="number").drop_nulls("event")
    found = wanted.with_row_index("at").sort("call")
    found = found.join_asof(known, on="call", by=["process", "event"], check_sortedness=False)
    return found.sort("at")["last"]


class Waits(NamedTuple):
    """`kind` of WAIT and the row or number waited for, shape (calls,). `guessed`: synchronisations whose target the trace
    does not name; `unknown`: calls that may wait, and are taken not to.
    """

    kind: NDArray[np.uint8]
    key: Rows
    guessed: int
    unknown: int


def waits(host: HostCalls, work: DeviceWork, acts: Acts) -> Waits:
    """What each outermost call waits for: as its kind says, and by the streams, devices and events that it names.

    A synchronisation that names none waits for the stream that its thread used last; what the recorded times contradict
    of a wait is cut down later (`explain` of the core). A blocking call whose operation the trace lacks keeps its time.
    """
    calls, operations = host.calls, work.operations
    of_words = np.full(NONE + 1, WAIT["none"], np.uint8)
    of_words[: len(WAITS_FOR)] = [WAIT[word] for word in WAITS_FOR]
    kind = of_words[Words(calls).codes("waits_for")]
    key = np.full(calls.height, -1, np.int32)
    launched, owner = operations["launched"].to_numpy(), operations["call"].to_numpy()
    # Copies of pageable memory are staged by the calling thread, whatever the call's name.
    rows = np.flatnonzero(pageable(operations) & Words(operations).among("kind", "copy") & launched)
    within = operations["start_ns"].to_numpy()[rows] < calls["end_ns"].to_numpy()[owner[rows]]
    staging = owner[rows[within]]
    kind[staging] = np.where(kind[staging] == WAIT["none"], WAIT["operation"], kind[staging])
    rows = np.flatnonzero(kind == WAIT["stream"])
    key[rows] = _named_streams(calls[rows], work.streams)
    rows = np.flatnonzero(kind == WAIT["device"])
    key[rows] = _devices(calls, work, rows)
    rows = np.flatnonzero(kind == WAIT["event"])
    wanted = calls[rows].select("process", "event", call=pl.Series(rows, dtype=pl.Int64))
    key[rows] = _last_record(wanted, acts.records).fill_null(-1).to_numpy()
    _full_queues(calls, operations, kind, key)
    unnamed = np.flatnonzero(np.isin(kind, [WAIT["stream"], WAIT["device"], WAIT["event"]]) & (key < 0))
    key[unnamed] = _last_used(calls, operations, unnamed)
    guessed = key[unnamed] >= 0
    kind[unnamed] = np.where(guessed, WAIT["stream"], WAIT["none"])
    has_work = np.zeros(calls.height, bool)
    has_work[owner[launched]] = True
    lost = (kind == WAIT["operation"]) & ~has_work
    kind[lost] = WAIT["none"]
    return Waits(kind, key, int(guessed.sum()), int((~guessed).sum()) + int(lost.sum()))


def _last_used(calls: pl.DataFrame, operations: pl.DataFrame, rows: NDArray[np.int64]) -> Rows:
    """The number of the stream that the thread of each of the calls `rows` used last, -1 for none; shape (rows,)."""
    launched = operations.filter("launched").select("call", "stream_number")
    launched = launched.with_columns(thread_number=calls["thread_number"].gather(launched["call"]))
    asking = calls[rows].select("thread_number", call=pl.Series(rows, dtype=pl.Int32))
    found = asking.join_asof(launched, on="call", by="thread_number", check_sortedness=False)
    return found["stream_number"].fill_null(-1).to_numpy()


def _named_streams(calls: pl.DataFrame, streams: pl.DataFrame) -> NDArray[np.int32]:
    """The number of the only stream of the name that each of `calls` waits for, -1 for none; shape (calls,)."""
    known = streams.group_by("process", "stream").agg(pl.col("stream_number").first(), of_this_name=pl.len())
    named = calls.join(known, on=["process", "stream"], how="left", maintain_order="left")
    number = pl.when(pl.col("of_this_name") == 1).then("stream_number")
    return named.select(number.fill_null(-1)).to_series().to_numpy()


def _devices(calls: pl.DataFrame, work: DeviceWork, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The only device of the process of each of the calls `rows`, or the one that its thread last gave work to; -1 for
    none. Shape (rows,).
    """
    streams = work.streams.filter(pl.col("device_number") >= 0)
    if streams["device_number"].n_unique() == 1 and calls["process"].n_unique() == 1:
        return np.full(len(rows), streams["device_number"][0], np.int32)
    of_process = streams.group_by("process").agg(
        pl.col("device_number").first(), devices=pl.col("device_number").n_unique()
    )
    asking = calls[rows].join(of_process, on="process", how="left", maintain_order="left")
    last = np.append(work.streams["device_number"], -1)[_last_used(calls, work.operations, rows)]
    number = pl.when(pl.col("devices") == 1).then("device_number").otherwise(pl.Series(last, dtype=pl.Int32))
    return asking.select(number).to_series().to_numpy()


def _full_queues(calls: pl.DataFrame, operations: pl.DataFrame, kind: NDArray[np.uint8], key: Rows) -> None:
    """Launches that took long while their stream had much to do waited for an operation of it to end."""
    begun, ended = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    launched = np.flatnonzero(operations["launched"].to_numpy())
    owner = operations["call"].to_numpy()[launched]
    slow = (ended - begun >= LONG_LAUNCH_NS) & (kind == WAIT["none"])
    if not slow[owner].any():
        return
    streams, all_ends = operations["stream_number"].to_numpy()[launched], operations["end_ns"].to_numpy()
    for stream in np.unique(streams[slow[owner]]):
        mine, calling = launched[streams == stream], owner[streams == stream]
        by_end = mine[np.argsort(all_ends[mine], kind="stable")]
        ends = all_ends[by_end]
        pending = np.arange(len(mine)) - np.searchsorted(ends, begun[calling], side="right")
        waiting = slow[calling] & (pending >= FULL_QUEUE)
        by = calling[waiting]
        at = np.searchsorted(ends, ended[by], side="right") - 1
        found = by_end[at]
        fits = (at >= 0) & (ends[at] > begun[by]) & (found < mine[waiting])
        kind[by[fits]], key[by[fits]] = WAIT["given"], found[fits]
