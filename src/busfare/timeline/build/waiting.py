"""What each call waits for, as rows and numbers of a timeline; and which work a stream waits for.

A trace may have the calls that record events and wait for them, but name no event (PyTorch's profiler of CUDA 13). Then an
event is recorded behind what its thread launched last, a wait is of the stream that its thread launches into next, and a
stream waits for the events of another in the order of their records. Times decide where they can: work that starts as soon
as other work ends was waiting for that.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline import _core
from busfare.timeline.build.work import OFF_NS, DeviceWork, HostCalls, Rows, alike, before_in
from busfare.timeline.model import ACT, BEHIND_NS, WAIT, Columns, Mask, Timeline, pageable
from busfare.trace import Trace, words
from busfare.trace.activity import MOST, NEARLY_ALL, THREAD
from busfare.trace.lanes import Times, Union
from busfare.trace.tables import WAITS_FOR
from busfare.trace.units import REPEATED
from busfare.trace.words import EVENT_RECORD, NONE, STREAM_WAIT_EVENT, Names, Words, launches_kernel

#: What a call does, as the core numbers it where no event is named.
LAUNCHES, RECORDS, AWAITS = 0, 1, 2
#: A launch that takes long while its stream has so many operations to do waits for room: CUDA's queues hold 1,024.
FULL_QUEUE = 512
#: Fewer queries in a row, whose results are not recorded, may each be for another event, or stand between parts of CPU work.
MANY_QUERIES = 20


class Acts(NamedTuple):
    """What calls do to streams: `kind` of ACT, `stream` and `event` numbers, shape (calls,). `records`: one row a
    record with process, event, start_ns and its number.
    """

    kind: NDArray[np.uint8]
    stream: Rows
    event: Rows
    records: pl.DataFrame
    lost: int  # waits of streams for events that were not recorded in the trace
    inferred: int = 0  # waits of streams for events that the trace does not name


def with_polling_waits(calls: pl.DataFrame, operations: pl.DataFrame, markers: pl.DataFrame) -> pl.DataFrame:
    """`calls`, in which the first query of a loop lasts until the end of the loop and waits for the stream whose work ended
    just before that.

    A loop: queries of a thread without another call between them, up to the one behind the last that says that work is not
    done; where the trace does not record what they returned, many of them, up to the one behind the last end of work. It is
    most of these queries' time, and no gap in it is long, or holds a range of `markers`: the CPU may work there.
    """
    names = Names.of_calls(calls)
    polls = names.matching(words.POLL)
    if not polls.any():
        return calls
    calls = calls.with_row_index("first").with_columns(loop=~names.matching(words.QUERY))
    queries = calls.with_columns(pl.col("loop").cum_sum().over(THREAD)).filter(polls)
    row, least = [*THREAD, "loop"], REPEATED
    queries = queries.with_columns(asked_until=pl.col("end_ns").last().over(row))
    ended = operations.select("process", "stream", "context", ended="end_ns", latest="end_ns").sort("latest")
    if "not_ready" not in queries.columns:
        least = MANY_QUERIES
        queries = queries.with_columns(latest=pl.col("asked_until") + OFF_NS)
        queries = queries.sort("latest", maintain_order=True)
        work = ended.select("process", "latest", "ended")
        queries = queries.join_asof(work, on="latest", by="process", check_sortedness=False)
        done = pl.min_horizontal("ended", "asked_until")
        queries = queries.with_columns(not_ready=pl.col("end_ns") < done).drop("latest", "ended")
    not_ready = pl.col("not_ready").fill_null(False)
    queries = queries.filter((not_ready | not_ready.shift(1, fill_value=False)).over(row))
    ranges = markers.select(*THREAD, "start_ns", range_start="start_ns", range_end="end_ns").sort("start_ns")
    queries = queries.sort("start_ns", maintain_order=True)
    queries = queries.join_asof(ranges, on="start_ns", by=THREAD, check_sortedness=False)
    start, until, previous_end = pl.col("start_ns"), pl.col("end_ns").last(), pl.col("end_ns").shift(1)
    took = until - start.first()
    dense = (pl.len() >= least) & ((start - previous_end).max() * least <= took)
    dense &= took >= NEARLY_ALL * (pl.col("asked_until").last() - start.first())
    worked = ((pl.col("range_start") >= previous_end) & (pl.col("range_end") <= start)).any()
    waited = dense & ~worked & ~not_ready.last()
    times = {"before": start.reverse().get(1, null_on_oob=True), "until": until, "latest": until + OFF_NS}
    loops = queries.group_by(row).agg(pl.col("first").first(), waited=waited, **times)
    loops = loops.filter("waited").sort("latest")
    loops = loops.join_asof(ended, on="latest", by="process", check_sortedness=False)
    loops = loops.filter(pl.col("ended") >= pl.min_horizontal("before", pl.col("until") - BEHIND_NS))
    for_stream = pl.lit("stream", pl.Enum(WAITS_FOR))
    loops = loops.select("first", "stream", "context", end_ns="until", waits_for=for_stream)
    return calls.drop("loop").update(loops, on="first", maintain_order="left").drop("first")


def gaps_behind_work(starts: Times, gaps: Times, work: Union) -> int:
    """How many of the `gaps` (ns, before calls at `starts`) the GPU's `work` fills for the most part and ends just before; 0
    if these are not most of the time between calls: the host is not likely to wait for that work without a call.
    """
    last = np.searchsorted(work.starts, starts, side="left") - 1
    since = starts - work.ends[last]  # below 0: the GPU works on
    soon = (last >= 0) & (since >= 0) & (since <= np.minimum(BEHIND_NS, (1 - NEARLY_ALL) * gaps))
    behind = soon & (work.covered_within(starts - gaps, starts) >= MOST * gaps)
    return int(behind.sum()) if behind.sum() >= REPEATED and gaps[behind].sum() >= MOST * gaps.sum() else 0


def acts(trace: Trace, host: HostCalls, work: DeviceWork) -> Acts:
    """Event records and stream waits as acts of the calls that made them."""
    if trace.events.is_empty():
        return _unnamed(trace, host, work)
    made_by = host.inside.select("process", "correlation", "call").drop_nulls("correlation")
    streams = work.streams.select("process", "context", "stream", "stream_number")
    events = _with_first(trace.events.with_row_index("event_row"), made_by, ["process", "correlation"])
    events = _with_first(events.drop_nulls("call"), streams, ["process", "context", "stream"])
    events = events.sort("call", "event_row")
    records = events.filter(kind="record").with_columns(number=pl.int_range(pl.len(), dtype=pl.Int32))
    waiting = _records_waited_for(events.filter(kind="wait"), records)
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


def _unnamed(trace: Trace, host: HostCalls, work: DeviceWork) -> Acts:
    """Those that the order of calls and the times of work tell of, where the trace names no event."""
    pairs, count = _pairs(host.calls, work.operations), host.calls.height
    kind = np.zeros(count, np.uint8)
    stream, event = np.full((2, count), -1, np.int32)
    for what, streams in (("record", "recorded"), ("wait", "waiting")) if pairs else ():
        rows = pairs[what]
        kind[rows], stream[rows], event[rows] = ACT[what], pairs[streams], pairs["record"]
    nobody = [pl.lit(None, dtype=of).alias(name) for name, of in (("call", pl.Int64), ("number", pl.Int32))]
    return Acts(kind, stream, event, trace.events.with_columns(nobody), 0, len(pairs.get("wait", ())))


def _pairs(calls: pl.DataFrame, operations: pl.DataFrame) -> Columns:
    """Calls, by row, that record an event and that wait for it (`record`, `wait`), and the streams of both, by number
    (`recorded`, `waiting`); shape (pairs,) each. Empty where nothing waits so.
    """
    names = Names.of_calls(calls)
    records, awaiting = names.matching(EVENT_RECORD), names.matching(STREAM_WAIT_EVENT)
    launched = np.flatnonzero(operations["launched"].to_numpy())
    if not (records.any() and awaiting.any() and len(launched)):
        return {}
    caller = operations["call"].to_numpy()[launched]
    kind = np.full(calls.height, NONE, np.uint8)
    kind[awaiting], kind[records], kind[caller] = AWAITS, RECORDS, LAUNCHES
    rows = np.flatnonzero(kind != NONE)
    kind = kind[rows]
    # For calls that launch nothing, these are 0 and unused.
    first, last = np.zeros((2, calls.height), np.int32)
    first[caller[::-1]], last[caller] = launched[::-1], launched  # the last write wins
    first, last = first[rows], last[rows]
    columns: Columns = {
        "row": rows.astype(np.int32, copy=False),
        "kind": kind,
        "thread": calls["thread_number"].to_numpy()[rows].astype(np.int32, copy=False),
        "process": alike(calls.select("process"))[0][rows].astype(np.int32, copy=False),
        "time": calls["start_ns"].to_numpy()[rows].astype(np.int64, copy=False),
    }
    for name, of in (("first", first), ("last", last)):
        columns[f"{name}_stream"] = operations["stream_number"].to_numpy()[of].astype(np.int32, copy=False)
    columns["first_start"] = operations["start_ns"].to_numpy()[first].astype(np.int64, copy=False)
    columns["last_end"] = operations["end_ns"].to_numpy()[last].astype(np.int64, copy=False)
    pairs: Columns = _core.unnamed_events(columns)
    return pairs


def _with_first(rows: pl.DataFrame, lookup: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """`rows` with the columns of the first row of `lookup` with equal `keys`, or null."""
    first = lookup.unique(keys, keep="first", maintain_order=True)
    return rows.join(first, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _records_waited_for(waiting: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """`waiting` with the `number` of the record that each row waits for: as the trace says, or the last before it."""
    for key, record_key in (("correlation", "record_correlation"), ("event_sync", "event_sync")):
        numbered_records = records.drop_nulls(key).select(
            "process", pl.col(key).alias(record_key), pl.col("number").alias(f"by_{key}")
        )
        waiting = _with_first(waiting, numbered_records, ["process", record_key])
    last = _last_record(waiting.select("process", "event", "call"), records)
    # A trace that numbers its records means no other record where it names none that it holds.
    by_event = pl.when(pl.col("event_sync").is_null()).then(last)
    return waiting.with_columns(number=pl.coalesce("by_correlation", "by_event_sync", by_event))


def _last_record(wanted: pl.DataFrame, records: pl.DataFrame) -> pl.Series:
    """The number of the last record of each event before `call`, null for none."""
    recorded = records.select("process", "event", "call", last="number").drop_nulls("event")
    before = wanted.with_row_index("at").sort("call")
    before = before.join_asof(recorded, on="call", by=["process", "event"], check_sortedness=False)
    return before.sort("at")["last"]


class Waits(NamedTuple):
    """`kind` of WAIT, the row or number waited for, and whether a call may wait for what the trace lacks (`unknown`), which
    `kind` leaves out; shape (calls,). `guessed`: how many synchronisations do not name their target.
    """

    kind: NDArray[np.uint8]
    key: Rows
    unknown: Mask
    guessed: int


def waits(host: HostCalls, work: DeviceWork, acts: Acts, lacking: bool = False) -> Waits:
    """What each outermost call waits for: as its kind says, and by the streams, devices and events that it names.

    A synchronisation that names none waits for the stream that its thread used last; what the recorded times contradict
    of a wait is cut down later (`explain` of the core). A blocking call whose operation the trace lacks keeps its time, and
    so do waits behind a launch without a record, where the trace is `lacking` kernels.
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
    # The stream of that context, or the only one of that name.
    for place in (["process", "stream"], ["process", "context", "stream"]):
        named = work.streams.group_by(place).agg(pl.col("stream_number").first(), alike=pl.len())
        named = calls[rows].join(named, on=place, how="left", maintain_order="left")
        number = pl.when(pl.col("alike") == 1).then("stream_number").otherwise(pl.Series(key[rows]))
        key[rows] = named.select(number).to_series()
    rows = np.flatnonzero(kind == WAIT["device"])
    key[rows] = _devices(calls, work, rows)
    rows = np.flatnonzero(kind == WAIT["event"])
    wanted = calls[rows].select("process", "event", call=pl.Series(rows, dtype=pl.Int64))
    key[rows] = _last_record(wanted, acts.records).fill_null(-1).to_numpy()
    _wait_for_room(calls, operations, kind, key)
    unnamed = np.flatnonzero(np.isin(kind, [WAIT["stream"], WAIT["device"], WAIT["event"]]) & (key < 0))
    key[unnamed] = _last_used(calls, operations, unnamed)
    guessed = key[unnamed] >= 0
    kind[unnamed[guessed]] = WAIT["stream"]
    unknown = kind == WAIT["operation"]
    unknown[owner[launched]] = False
    unknown[unnamed[~guessed]] = True
    if lacking:
        behind = np.where(launches_kernel(calls), np.int8(1), np.int8(-1))  # of a recorded launch: 0
        behind[owner[launched]] = 0
        last = pl.Series(behind).replace(-1, None).alias("last")
        last = calls.select("process", last).select(pl.col("last").forward_fill().over("process")).to_series()
        unknown |= (last == 1).fill_null(False).to_numpy() & np.isin(kind, [WAIT[to] for to in WAITS_FOR[2:]])
    kind[unknown] = WAIT["none"]
    return Waits(kind, key, unknown, int(guessed.sum()))


def behind_host_functions(run: Timeline) -> Mask:
    """Operations that waited, for no other recorded cause, behind a function of the host: its call lies between theirs and
    that of the operation before them in their stream (a trace does not name its stream). Shape (operations,).
    """
    functions = np.flatnonzero(run.calls_named(words.HOST_FUNCTION))
    if not len(functions):
        return np.zeros(len(run.sizes), bool)
    call, before = run.columns["operation_call"], before_in(run.columns["operation_stream"])
    since = np.where(before >= 0, call[before], -1)
    begun, done = run.recorded_spans
    called, returned = (run.calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    ready = np.where(run.waiting("operation"), called, returned)[call]
    waited = begun > np.maximum(np.where(before >= 0, done[before], 0), ready) + BEHIND_NS
    between = np.searchsorted(functions, call) > np.searchsorted(functions, since)
    return np.asarray(run.launched & waited & between)


def _last_used(calls: pl.DataFrame, operations: pl.DataFrame, rows: NDArray[np.int64]) -> Rows:
    """The number of the stream that the thread of each of the calls `rows` used last, -1 for none; shape (rows,)."""
    launched = operations.filter("launched").select("call", "stream_number")
    launched = launched.with_columns(thread_number=calls["thread_number"].gather(launched["call"]))
    asking = calls[rows].select("thread_number", call=pl.Series(rows, dtype=pl.Int32))
    used = asking.join_asof(launched, on="call", by="thread_number", check_sortedness=False)
    return used["stream_number"].fill_null(-1).to_numpy()


def _devices(calls: pl.DataFrame, work: DeviceWork, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The device of each call's context, else its process's only one, else its thread's last; -1: none. Shape (rows,)."""
    streams = work.streams.filter(pl.col("device_number") >= 0)
    if streams["device_number"].n_unique() == 1 and calls["process"].n_unique() == 1:
        return np.full(len(rows), streams["device_number"][0], np.int32)
    only = pl.when(pl.col("device_number").n_unique() == 1).then(pl.col("device_number").first())
    of_process = streams.group_by("process").agg(of_process=only)
    of_context = streams.group_by("process", "context").agg(of_context=only)
    asking = calls[rows].join(of_process, on="process", how="left", maintain_order="left")
    asking = asking.join(of_context, on=["process", "context"], how="left", maintain_order="left")
    last = np.append(work.streams["device_number"], -1)[_last_used(calls, work.operations, rows)]
    number = pl.coalesce("of_context", "of_process", pl.Series(last, dtype=pl.Int32))
    return asking.select(number).to_series().to_numpy()


def _wait_for_room(calls: pl.DataFrame, operations: pl.DataFrame, kind: NDArray[np.uint8], key: Rows) -> None:
    """Launches that took long while their stream had much to do waited for an operation of it to end."""
    begun, ended = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    launched = np.flatnonzero(operations["launched"].to_numpy())
    owner = operations["call"].to_numpy()[launched]
    slow = (ended - begun >= BEHIND_NS) & (kind == WAIT["none"])
    streams, all_ends = operations["stream_number"].to_numpy()[launched], operations["end_ns"].to_numpy()
    for stream in np.unique(streams[slow[owner]]):
        queued, calling = launched[streams == stream], owner[streams == stream]
        by_end = queued[np.argsort(all_ends[queued], kind="stable")]
        ends = all_ends[by_end]
        pending = np.arange(len(queued)) - np.searchsorted(ends, begun[calling], side="right")
        waiting = slow[calling] & (pending >= FULL_QUEUE)
        by = calling[waiting]
        last = np.searchsorted(ends, ended[by], side="right") - 1
        awaited = by_end[last]
        fits = (last >= 0) & (ends[last] > begun[by]) & (awaited < queued[waiting])
        kind[by[fits]], key[by[fits]] = WAIT["given"], awaited[fits]
