"""What each call waits for, as rows and numbers of a timeline; where the trace does not say, what was observed."""

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
    said = waiting.join(
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
    last = _last_record(said.select("process", "event", "call"), records)
    # A trace that numbers its records means no other record where it names none that it holds.
    by_event = pl.when(pl.col("event_sync").is_null()).then(pl.Series("last", last, pl.Int32))
    return said.with_columns(number=pl.coalesce("by_correlation", "by_sync", by_event))


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
    """`kind` of WAIT and the row or number waited for, shape (calls,). Counts of what was only observed."""

    kind: NDArray[np.uint8]
    key: Rows
    observed: int
    unknown: int


def waits(host: HostCalls, work: DeviceWork, acts: Acts) -> Waits:
    """What each outermost call waits for. A wait of unknown target waits for what ended last before it returned."""
    calls, operations = host.calls, work.operations
    of_words = np.full(NONE + 1, WAIT["none"], np.uint8)
    of_words[: len(WAITS_FOR)] = [WAIT[word] for word in WAITS_FOR]
    said = of_words[Words(calls).codes("waits_for")]
    key = np.full(calls.height, -1, np.int32)
    launched, owner = operations["launched"].to_numpy(), operations["call"].to_numpy()
    has_work = np.zeros(calls.height, bool)
    has_work[owner[launched]] = True
    # Copies of pageable memory are staged by the calling thread, whatever the call's name.
    words = Words(operations)
    staged = words.among("source_memory", "pageable") | words.among("destination_memory", "pageable")
    staged &= words.among("kind", "copy") & launched
    rows = np.flatnonzero(staged)
    if len(rows):
        starts_within = operations["start_ns"].to_numpy()[rows] < calls["end_ns"].to_numpy()[owner[rows]]
        pageable = owner[rows[starts_within]]
        said[pageable] = np.where(said[pageable] == WAIT["none"], WAIT["operation"], said[pageable])
    _name_streams(calls, work, said, key)
    _name_devices(calls, work, said, key)
    rows = np.flatnonzero(said == WAIT["event"])
    if len(rows):
        wanted = calls[rows].select("process", "event", call=pl.Series(rows, dtype=pl.Int64))
        found = _last_record(wanted, acts.records)
        key[rows] = [-1 if number is None else number for number in found]
    _full_queues(calls, operations, said, key)
    # A blocking call whose operation the trace lacks may still have waited.
    vague = (said == WAIT["operation"]) & ~has_work
    vague |= np.isin(said, [WAIT["stream"], WAIT["device"], WAIT["event"]]) & (key < 0)
    synchronising = vague & (said != WAIT["operation"])
    return _last_used(calls, operations, _observed(calls, operations, said, key, vague), synchronising)


def _last_used(
    calls: pl.DataFrame, operations: pl.DataFrame, found: Waits, synchronising: NDArray[np.bool_]
) -> Waits:
    """Synchronisations that had nothing to wait for, as behind a blocking copy, wait for their thread's last stream.

    Were that copy asynchronous, they would have to.
    """
    rows = np.flatnonzero(synchronising & (found.kind == WAIT["none"]))
    launched = operations["launched"].to_numpy()
    if len(rows) == 0 or not launched.any():
        return found
    owner, stream = operations["call"].to_numpy()[launched], operations["stream_number"].to_numpy()[launched]
    threads = calls["thread_number"].to_numpy()
    guessed = 0
    for thread in np.unique(threads[rows]):
        mine = rows[threads[rows] == thread]
        of_thread = np.flatnonzero(threads[owner] == thread)
        at = np.searchsorted(owner[of_thread], mine, side="right") - 1
        known = at >= 0
        found.kind[mine[known]] = WAIT["stream"]
        found.key[mine[known]] = stream[of_thread[at[known]]]
        guessed += int(known.sum())
    return found._replace(observed=found.observed + guessed, unknown=found.unknown - guessed)


def _name_streams(calls: pl.DataFrame, work: DeviceWork, said: NDArray[np.uint8], key: Rows) -> None:
    rows = np.flatnonzero(said == WAIT["stream"])
    if len(rows) == 0 or calls["stream"].null_count() == calls.height:
        return
    known = work.streams.group_by("process", "stream").agg(
        pl.col("stream_number").first(), pl.len().alias("of_this_name")
    )
    named = calls[rows].join(known, on=["process", "stream"], how="left", maintain_order="left")
    number = pl.when(pl.col("of_this_name") == 1).then("stream_number")
    key[rows] = named.select(number.fill_null(-1).alias("number"))["number"].to_numpy()


def _name_devices(calls: pl.DataFrame, work: DeviceWork, said: NDArray[np.uint8], key: Rows) -> None:
    """The device that the calling thread last gave work to, or the only one of its process."""
    rows = np.flatnonzero(said == WAIT["device"])
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


def _full_queues(calls: pl.DataFrame, operations: pl.DataFrame, said: NDArray[np.uint8], key: Rows) -> None:
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
            & (said[calling] == WAIT["none"])
        )
        if not waiting.any():
            continue
        by_end = mine[np.argsort(all_ends[mine], kind="stable")]
        at = np.searchsorted(ends, ended[calling[waiting]], side="right") - 1
        found = by_end[np.maximum(at, 0)]
        fits = (at >= 0) & (ends[np.maximum(at, 0)] > begun[calling[waiting]]) & (found < mine[waiting])
        said[calling[waiting][fits]] = WAIT["given"]
        key[calling[waiting][fits]] = found[fits]


def _observed(
    calls: pl.DataFrame,
    operations: pl.DataFrame,
    said: NDArray[np.uint8],
    key: Rows,
    vague: NDArray[np.bool_],
) -> Waits:
    """Vague waits become waits for the operation that ended last while the call ran, or for nothing."""
    rows = np.flatnonzero(vague).astype(np.int64)
    if len(rows) == 0 or operations.height == 0:
        said[rows] = WAIT["none"]
        return Waits(said, key, 0, len(rows))
    ends = operations["end_ns"].to_numpy()
    order = np.argsort(ends, kind="stable")
    starts, stops = calls["start_ns"].to_numpy()[rows], calls["end_ns"].to_numpy()[rows]
    at = np.searchsorted(ends[order], stops, side="right") - 1
    found = order[np.maximum(at, 0)]
    positions = operations["call"].to_numpy()
    fits = (at >= 0) & (ends[found] > starts) & (positions[found] <= rows)
    said[rows] = np.where(fits, WAIT["given"], WAIT["none"])
    key[rows] = np.where(fits, found, -1)
    _prefer_streams(operations, said, key, rows[fits])
    return Waits(said, key, int(fits.sum()), int((~fits).sum()))


def _prefer_streams(
    operations: pl.DataFrame, said: NDArray[np.uint8], key: Rows, rows: NDArray[np.int64]
) -> None:
    """A wait for the last operation that a stream had been given is a wait for that stream."""
    streams, positions = operations["stream_number"].to_numpy(), operations["call"].to_numpy()
    order = np.lexsort((np.arange(len(streams)), streams))
    span = int(positions.max()) + 2
    ordered = streams[order].astype(np.int64) * span + positions[order] + 1
    waited = streams[key[rows]]
    last = order[np.searchsorted(ordered, waited.astype(np.int64) * span + rows + 1, side="right") - 1]
    whole = last == key[rows]
    said[rows[whole]] = WAIT["stream"]
    key[rows[whole]] = waited[whole]
