"""What each call waits for, as rows and numbers of a timeline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.build.device_work import DeviceWork
from busfare.timeline.build.host_calls import HostCalls
from busfare.timeline.model import ACT, WAIT
from busfare.trace import Trace
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import NONE, Words

__all__ = ["Acts", "Waits", "acts", "waits"]

Rows = NDArray[np.int32]
#: A launch that takes so long is no mere launch, and a stream takes about a thousand that are pending.
LONG_LAUNCH_NS = 20_000
FULL_QUEUE = 512


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
    count = host.calls.height
    kind, stream, event = (
        np.zeros(count, np.uint8),
        np.full(count, -1, np.int32),
        np.full(count, -1, np.int32),
    )
    if trace.events.is_empty():
        none = pl.DataFrame(
            schema={"process": pl.Int64, "event": pl.Int64, "call": pl.Int64, "number": pl.Int32}
        )
        return Acts(kind, stream, event, none, 0)
    events = trace.events.with_row_index("event_row").join(
        host.inside.drop_nulls("correlation")
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .select("process", "correlation", "call"),
        on=["process", "correlation"],
        how="inner",
        maintain_order="left",
    )
    events = events.join(
        work.streams.select("process", "context", "stream", "stream_number").unique(
            ["process", "context", "stream"], keep="first", maintain_order=True
        ),
        on=["process", "context", "stream"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).sort("call", "event_row")
    records = events.filter(pl.col("kind") == "record").with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int32)
    )
    waiting = _records_waited_for(events.filter(pl.col("kind") == "wait"), records)
    for part, what in ((records, "record"), (waiting.drop_nulls("number"), "wait")):
        part = part.drop_nulls("stream_number")
        rows = part["call"].to_numpy()
        kind[rows] = ACT[what]
        stream[rows] = part["stream_number"].to_numpy()
        event[rows] = part["number"].to_numpy()
    return Acts(kind, stream, event, records, waiting["number"].null_count())


def _records_waited_for(waiting: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """`waiting` with the `number` of the record that each row waits for: as the trace says, or the last before it."""
    kind = waiting.join(
        records.drop_nulls("correlation").select(
            "process", record_correlation="correlation", by_correlation="number"
        ),
        on=["process", "record_correlation"],
        how="left",
        maintain_order="left",
    ).join(
        records.drop_nulls("event_sync")
        .unique(["process", "event_sync"], keep="first", maintain_order=True)
        .select("process", "event_sync", by_sync="number"),
        on=["process", "event_sync"],
        how="left",
        maintain_order="left",
    )
    last = _last_record(kind.select("process", "event", "call"), records)
    # A trace that numbers its records means no other record where it names none that it holds.
    by_event = pl.when(pl.col("event_sync").is_null()).then(pl.Series("last", last, pl.Int32))
    return kind.with_columns(number=pl.coalesce("by_correlation", "by_sync", by_event))


def _last_record(wanted: pl.DataFrame, records: pl.DataFrame) -> list[int | None]:
    """The number of the last record of each event before `call`."""
    found = (
        wanted.with_row_index("at")
        .sort("call")
        .join_asof(
            records.select("process", "event", "call", "number").drop_nulls("event").sort("call"),
            on="call",
            by=["process", "event"],
            strategy="backward",
            check_sortedness=False,
        )
        .sort("at")
    )
    return found["number"].to_list()


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
    words = Words(operations)
    staged = words.among("source_memory", "pageable") | words.among("destination_memory", "pageable")
    rows = np.flatnonzero(staged & words.among("kind", "copy") & launched)
    within = operations["start_ns"].to_numpy()[rows] < calls["end_ns"].to_numpy()[owner[rows]]
    staging = owner[rows[within]]
    kind[staging] = np.where(kind[staging] == WAIT["none"], WAIT["operation"], kind[staging])
    _name_streams(calls, work, kind, key)
    _name_devices(calls, work, kind, key)
    rows = np.flatnonzero(kind == WAIT["event"])
    if len(rows):
        wanted = calls[rows].select("process", "event", call=pl.Series(rows, dtype=pl.Int64))
        key[rows] = [-1 if number is None else number for number in _last_record(wanted, acts.records)]
    _full_queues(calls, operations, kind, key)
    unnamed = np.isin(kind, [WAIT["stream"], WAIT["device"], WAIT["event"]]) & (key < 0)
    named = _last_used(calls, operations, kind, key, np.flatnonzero(unnamed))
    has_work = np.zeros(calls.height, bool)
    has_work[owner[launched]] = True
    lost = (kind == WAIT["operation"]) & ~has_work
    kind[lost] = WAIT["none"]
    return Waits(kind, key, named, int(unnamed.sum()) - named + int(lost.sum()))


def _last_used(
    calls: pl.DataFrame, operations: pl.DataFrame, kind: NDArray[np.uint8], key: Rows, rows: NDArray[np.int64]
) -> int:
    """The calls `rows` wait for the stream that their thread used last, or for nothing; gives how many for one."""
    kind[rows] = WAIT["none"]
    launched = operations["launched"].to_numpy()
    owner, stream = operations["call"].to_numpy()[launched], operations["stream_number"].to_numpy()[launched]
    threads, found = calls["thread_number"].to_numpy(), 0
    for thread in np.unique(threads[rows]):
        mine = rows[threads[rows] == thread]
        of_thread = np.flatnonzero(threads[owner] == thread)
        at = np.searchsorted(owner[of_thread], mine, side="right") - 1
        mine, at = mine[at >= 0], at[at >= 0]
        kind[mine], key[mine] = WAIT["stream"], stream[of_thread[at]]
        found += len(mine)
    return found


def _name_streams(calls: pl.DataFrame, work: DeviceWork, kind: NDArray[np.uint8], key: Rows) -> None:
    rows = np.flatnonzero(kind == WAIT["stream"])
    if len(rows) == 0 or calls["stream"].null_count() == calls.height:
        return
    known = work.streams.group_by("process", "stream").agg(
        pl.col("stream_number").first(), pl.len().alias("of_this_name")
    )
    named = calls[rows].join(known, on=["process", "stream"], how="left", maintain_order="left")
    number = pl.when(pl.col("of_this_name") == 1).then("stream_number")
    key[rows] = named.select(number.fill_null(-1).alias("number"))["number"].to_numpy()


def _name_devices(calls: pl.DataFrame, work: DeviceWork, kind: NDArray[np.uint8], key: Rows) -> None:
    """The device that the calling thread last gave work to, or the only one of its process."""
    rows = np.flatnonzero(kind == WAIT["device"])
    if len(rows) == 0 or work.operations.height == 0:
        return
    devices = work.streams["device_number"].to_numpy()
    if (devices == devices[0]).all() and calls["process"].n_unique() == 1:
        key[rows] = devices[0]
        return
    operations = work.operations.with_columns(
        device_number=pl.Series(devices[work.operations["stream_number"].to_numpy()])
    )
    only = operations.group_by("process").agg(
        pl.col("device_number").first(), pl.col("device_number").n_unique().alias("devices")
    )
    waiting = calls[rows].select("process", "thread_number", call=pl.Series(rows, dtype=pl.Int64))
    waiting = waiting.join(only, on="process", how="left", maintain_order="left")
    launched = operations.filter("launched").select(
        pl.col("call").cast(pl.Int64), last_device="device_number"
    )
    launched = launched.with_columns(thread_number=calls["thread_number"].gather(launched["call"])).sort(
        "call"
    )
    waiting = waiting.join_asof(
        launched, on="call", by="thread_number", strategy="backward", check_sortedness=False
    )
    number = pl.when(pl.col("devices") == 1).then("device_number").otherwise("last_device")
    key[rows] = waiting.select(number.fill_null(-1).alias("number"))["number"].to_numpy()


def _full_queues(calls: pl.DataFrame, operations: pl.DataFrame, kind: NDArray[np.uint8], key: Rows) -> None:
    """Launches that took long while their stream had much to do waited for an operation of it to end."""
    took = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    launched = np.flatnonzero(operations["launched"].to_numpy())
    owner = operations["call"].to_numpy()[launched]
    if not (took[owner] >= LONG_LAUNCH_NS).any():
        return
    begun, ended = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    streams, all_ends = operations["stream_number"].to_numpy()[launched], operations["end_ns"].to_numpy()
    for stream in np.unique(streams):
        mine = launched[streams == stream]
        if len(mine) <= FULL_QUEUE:
            continue
        calling, ends = owner[streams == stream], np.sort(all_ends[mine])
        done = np.searchsorted(ends, begun[calling], side="right")
        waiting = (
            (np.arange(len(mine)) - done >= FULL_QUEUE)
            & (took[calling] >= LONG_LAUNCH_NS)
            & (kind[calling] == WAIT["none"])
        )
        if not waiting.any():
            continue
        by_end = mine[np.argsort(all_ends[mine], kind="stable")]
        at = np.searchsorted(ends, ended[calling[waiting]], side="right") - 1
        found = by_end[np.maximum(at, 0)]
        fits = (at >= 0) & (ends[np.maximum(at, 0)] > begun[calling[waiting]]) & (found < mine[waiting])
        kind[calling[waiting][fits]] = WAIT["given"]
        key[calling[waiting][fits]] = found[fits]
