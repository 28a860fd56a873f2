"""Makes what a reader found sound: times to compute with, of one clock; sizes that can be summed; rows in order."""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.printable import printable
from busfare.statements import Figure
from busfare.trace import words
from busfare.trace.clocks import join_clocks
from busfare.trace.columns import kept, lasts_as_the_rest, occurs, order_of, several
from busfare.trace.launches import first_records, without_call
from busfare.trace.model import Trace
from busfare.trace.omissions import INCOMPLETE, Omissions
from busfare.trace.readers import record_again
from busfare.trace.tables import CALLS_LOCATED, WAITS_FOR
from busfare.trace.words import NOT_READY, PEER_ACCESS, PROBES, Words, error_named, texts_of, with_printable

#: Work that calls of these names launch, and that a profiler may have been told to leave out.
KINDS_CALLED = (("copies", "copy", r"^(cuda|cu|hip)Memcpy"), ("kernels", "kernel", words.KERNEL_LAUNCH))
#: Kernels are missing where more than this part of their launches has no record: a definition, not a measurement.
MISSING_LAUNCHES = 0.01

#: AMD's runtime's own kernels that copy where no engine is used [rocclr: blitcl.cpp].
COPYING_KERNEL = r"^__amd_rocclr_copy"

#: Usable times in nanoseconds: wide enough for those since 1970, and any difference of two fits 64 bits.
EARLIEST, LATEST = -(1 << 60), 3 << 60
#: No memory holds more than 16 TiB today; half a million copies of that size add up within 64 bits.
LARGEST = 1 << 44

#: The memory of no GPU carries more, in bytes a nanosecond [NVIDIA: Rubin GPU, HBM4].
FASTEST_MEMORY = 22_000
#: No run is recorded for longer than 30 days.
LONGEST_NS = 30 * 86_400 * 10**9
#: Fourteen of today's largest domains of one memory (72 GPUs).
MOST_GPUS = 1024

TIMES = ("start_ns", "end_ns")
#: Tables whose rows last, and what those are.
TIMED = {
    "operations": "GPU operations",
    "calls": "API calls",
    "markers": "ranges",
    "activity": "spans of activity",
}
#: Columns that are equal in all rows of one copy.
COPY_KEY = ("process", "correlation", "device", "direction", "bytes")


def make_sound(trace: Trace) -> None:
    """Drops or repairs impossible rows and notes that, sorts by start, counts time from the first record."""
    omissions = Omissions.of(trace.omissions)
    _refuse_many_gpus(trace.path, trace.operations["device"])
    _make_rows_sound(trace, omissions)
    worked = trace.operations.height or trace.calls.height
    first = _first(trace.operations, trace.calls) if worked else _first(trace.markers)
    trace.origin_ns += first
    for table in ("operations", "calls", "events", "markers", "activity"):
        _in_order_from(trace, table, first)
    omissions.count("cut-window", without_call(trace))
    trace.omissions = [noted.with_texts(printable) for noted in omissions.list()]
    trace.producer = printable(trace.producer)
    trace.host = {key: printable(text) for key, text in trace.host.items()}
    for table in ("operations", "calls", "markers", "activity", "devices"):
        setattr(trace, table, with_printable(getattr(trace, table), "name"))
    for column in CALLS_LOCATED.keys() & set(trace.calls.columns):
        trace.calls = with_printable(trace.calls, column)


def _refuse_many_gpus(path: Path, devices: pl.Series) -> None:
    """Each GPU is looked at by itself: a damaged file must not name so many that this never ends."""
    least, most = devices.min(), devices.max()
    apart = isinstance(least, int) and isinstance(most, int) and most - least >= MOST_GPUS
    if apart and (named := devices.n_unique()) > MOST_GPUS:
        raise InputError(
            f"{path}: operations of {named:,} GPUs, over the limit of {MOST_GPUS:,}; give a trace of fewer GPUs, or "
            "record it again"
        )


def _make_rows_sound(trace: Trace, omissions: Omissions) -> None:
    once = first_records(trace.operations)
    trace.operations = _kept(trace.operations, once, omissions, "listed-twice", what="kernels")
    recorded, kernels = trace.operations.height, int((trace.operations["kind"] == "kernel").sum())
    trace.operations = _timed(trace.operations, "GPU operations", omissions)
    trace.calls = _timed(trace.calls, "API calls", omissions)
    start, end = trace.markers["start_ns"], trace.markers["end_ns"]
    usable = _usable(start) & (end.is_null() | (_usable(end) & (end >= start)))
    trace.markers = _kept(trace.markers, usable, omissions, "untimed", what="markers")
    start, end = trace.activity["start_ns"], trace.activity["end_ns"]
    trace.activity = trace.activity.filter(_usable(start) & (end.is_null() | _usable(end) & (end > start)))
    for table, what in TIMED.items():
        frame, *tables = (getattr(trace, name) for name in (table, *TIMED.keys() - {table}))
        sound = lasts_as_the_rest(frame, tables)
        setattr(trace, table, _kept(frame, sound, omissions, "far-away", what=what))
    omissions.count("kernels-untimed", kernels - int((trace.operations["kind"] == "kernel").sum()))
    _note_failures(trace, omissions)
    events = _kept(trace.events, _usable(trace.events["start_ns"]), omissions, "records-without-call")
    returned = pl.col("end_ns")
    trace.events = events.with_columns(pl.when(returned.is_between("start_ns", LATEST)).then(returned))
    _note_what_is_absent(trace, omissions, recorded - trace.operations.height)

    sizes = trace.operations["bytes"]
    bad = int((~sizes.is_between(0, LARGEST)).sum())
    if bad:
        omissions.add("impossible-sizes", bad)
        sized = pl.col("bytes").is_between(0, LARGEST)
        trace.operations = trace.operations.with_columns(bytes=pl.when(sized).then("bytes"))
    _drop_copies_listed_twice(trace, omissions)
    bad += _drop_impossible_copies(trace, omissions)
    moving = trace.operations["kind"].is_in(["copy", "migration"])
    sizeless = int((moving & trace.operations["bytes"].is_null()).sum())
    omissions.count("unknown-sizes", sizeless - bad if sizeless > bad else 0)
    trace.calls = _with_blocking_pageable(trace)
    join_clocks(trace, omissions)


def _drop_copies_listed_twice(trace: Trace, omissions: Omissions) -> None:
    """Removes copies that the profiler lists twice: for a graph node, which a launch runs once, or while the stream runs the
    same copy of the same call. Nodes that run again in loops do so with their kernels. Of several copies of one node, the
    longest remains.
    """
    rows = np.flatnonzero(Words(trace.operations).among("kind", "copy"))
    call, node, start, end = (pl.col(name) for name in ("correlation", "graph_node", *TIMES))
    copies = trace.operations.select(*COPY_KEY, "context", "stream", "graph_node", *TIMES)[rows]
    alike = (pl.col("bytes") == pl.col("bytes").shift(1)) & call.eq_missing(call.shift(1))
    if not copies.select((alike & ((node == node.shift(1)) | (start < end.shift(1)))).any()).item():
        return
    ns, numbered, apart = end - start, pl.when(node >= 0).then(node), pl.when(call.is_null()).then(start)
    copies = copies.with_columns(row=rows).filter(ns > 0, pl.col("bytes") > 0).sort(-ns, "row")
    of_node = pl.int_range(pl.len()).over(*COPY_KEY, "graph_node") > 0
    copies = copies.with_columns(listed=of_node & (node >= 0) & call.is_not_null()).sort(start, -ns, "row")
    until = end.cum_max().shift(1).over(*COPY_KEY, "context", "stream", numbered, apart)
    copies = copies.with_columns(at_once=(2 * (until - start) > ns) & pl.col("stream").is_not_null())
    twice = copies.filter(pl.col("listed") | pl.col("at_once").fill_null(False))
    if twice.is_empty():
        return
    launches = trace.operations.filter(pl.col("kind") == "kernel", node >= 0).join(
        twice, on=["process", "correlation"], how="semi", nulls_equal=True
    )
    again = launches.group_by("process", "correlation").agg(looped=node.is_duplicated().any())
    twice = twice.join(again, on=["process", "correlation"], how="left", nulls_equal=True)
    twice = twice.filter(~pl.col("looped").fill_null(False) | pl.col("at_once"))
    first = np.ones(trace.operations.height, bool)
    first[twice["row"].to_numpy()] = False
    trace.operations = _kept(trace.operations, pl.Series(first), omissions, "listed-twice", what="copies")


def _drop_impossible_copies(trace: Trace, omissions: Omissions) -> int:
    """Leaves out copies that a graph lists again, faster than any memory; others lose their size: the number of those."""
    ns = pl.col("end_ns") - pl.col("start_ns")
    if not trace.operations.select((pl.col("bytes") > ns * (FASTEST_MEMORY // 2)).any()).item():
        return 0
    moved = pl.col("bytes") * pl.when(pl.col("direction") == "d2d").then(2).otherwise(1)  # read and written
    fast = ((pl.col("kind") == "copy") & (ns > 0) & (moved / ns > FASTEST_MEMORY)).fill_null(False)
    operations = trace.operations.with_columns(fast=fast)
    twice = (~pl.col("fast")).any().over(*COPY_KEY, "stream", "kind") & pl.col("correlation").is_not_null()
    first = operations.select(~(pl.col("fast") & twice)).to_series()
    operations = _kept(operations, first, omissions, "listed-twice", what="copies")
    unsized = int(operations["fast"].sum())
    omissions.count("impossible-rates", unsized)
    trace.operations = operations.with_columns(bytes=pl.when(~pl.col("fast")).then("bytes")).drop("fast")
    return unsized


def _usable(times: pl.Series) -> pl.Series:
    return times.is_between(EARLIEST, LATEST).fill_null(False)


def _kept(
    frame: pl.DataFrame, sound: pl.Series, omissions: Omissions, key: str, **about: Figure
) -> pl.DataFrame:
    """The rows that are `sound`; the others are noted."""
    if lost := len(sound) - int(sound.sum()):
        omissions.add(key, lost, **about)
    return kept(frame, sound)


def _timed(frame: pl.DataFrame, what: str, omissions: Omissions) -> pl.DataFrame:
    usable = _usable(frame["start_ns"]) & _usable(frame["end_ns"])
    frame = _kept(frame, usable, omissions, "untimed", what=what)
    if (negative := frame["start_ns"] < 0).any():  # only a clock that starts with the recording allows this
        first, last = frame.filter(~negative).select(pl.min("start_ns"), pl.max("end_ns")).row(0)
        starts_with_it = first is None or 2 * first <= last
        frame = _kept(frame, ~negative | starts_with_it, omissions, "untimed", what=what)
    start, end = frame["start_ns"], frame["end_ns"]
    if frame.height and end.max() - start.min() > LONGEST_NS:  # type: ignore[operator]
        near = ((start - start.quantile(0.5, "nearest")).abs() <= LONGEST_NS) & (end - start <= LONGEST_NS)
        frame = _kept(frame, near, omissions, "far-away", what=what)
    backwards = int((frame["end_ns"] < frame["start_ns"]).sum())
    if backwards:
        omissions.add("clock-backwards", backwards, what=what)
        frame = frame.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    return frame


def _note_failures(trace: Trace, omissions: Omissions) -> None:
    """Calls that failed are counted, and wait for nothing; of what calls returned only `failed` and `not_ready` are kept."""
    if "result" not in trace.calls.columns:
        return
    result = trace.calls["result"].fill_null(0)
    bad = ~result.is_in([0, NOT_READY, PEER_ACCESS])
    if bad.any():
        bad &= ~trace.calls["name"].cast(pl.String).str.contains(PROBES).fill_null(False)
    failed = trace.calls.filter(bad).sort("start_ns")
    calls = trace.calls = trace.calls.drop("result")
    if (not_ready := result == NOT_READY).any():
        calls = trace.calls = calls.with_columns(not_ready=not_ready)
    if failed.is_empty():
        return
    call, error = failed["name"][0] or "a call", error_named(failed["result"][0])
    omissions.add("failed-calls", failed.height, call=call, error=error)
    launches = failed.filter(pl.col("name").cast(pl.String).str.contains(words.KERNEL_LAUNCH))
    if launches.height and not (trace.operations["kind"] == "kernel").any():
        omissions.add("launches-failed", launches.height, error=error_named(launches["result"][0]))
    waits = pl.select(pl.when(bad).then(pl.lit("none")).otherwise(trace.calls["waits_for"])).to_series()
    trace.calls = calls.with_columns(waits_for=waits.cast(pl.Enum(WAITS_FOR)), failed=bad)


def _note_what_is_absent(trace: Trace, omissions: Omissions, skipped: int) -> None:
    """Notes what the profiler did not record, but for the `skipped` operations, whose times were not sound."""
    names = trace.operations["name"]
    copying = texts_of(names)
    copying = copying.filter(copying.str.contains(COPYING_KERNEL)).unique()
    if copying.len():
        count = int(names.cast(pl.String).is_in(copying.implode()).sum())
        omissions.count("copying-kernels", count)
    called = trace.calls.filter(~pl.col("failed")) if "failed" in trace.calls.columns else trace.calls

    def launching(pattern: str) -> pl.DataFrame:
        return called.filter(pl.col("name").cast(pl.String).str.contains(pattern))

    if trace.operations.is_empty():
        cut = any(id in INCOMPLETE for id, _ in omissions.counts)
        launched = sum(launching(pattern).height for _, _, pattern in KINDS_CALLED)
        if skipped:
            omissions.add("no-gpu-records/skipped", skipped)
        elif called is not trace.calls:
            omissions.add("no-gpu-records/failed")
        elif launched and not cut:
            omissions.add("no-gpu-records/calls", launched)
        else:
            lost = "no-gpu-records/cut" if cut else "no-gpu-records"
            omissions.add(lost, command=record_again(trace.format).gpu)
    elif trace.calls.is_empty():
        omissions.add("no-calls")
    else:
        kinds = Words(trace.operations)
        for what, kind, pattern in KINDS_CALLED:
            if not kinds.among("kind", kind, "graph").any():
                calls = launching(pattern)
                # Of whatever kind: AMD's runtime copies by kernels, too.
                correlated = trace.operations.select("process", "correlation").drop_nulls("correlation")
                omissions.count(f"{what}-not-recorded", int((~occurs(correlated, calls)).sum()))
        if kinds.among("kind", "kernel").any():
            _note_missing_launches(trace, omissions)


def _note_missing_launches(trace: Trace, omissions: Omissions) -> None:
    """Notes launches without a record, but for as many as there are kernels whose call is not in the trace."""
    operations, calls = (table.select("process", "correlation") for table in (trace.operations, trace.calls))
    launches = calls.filter(pl.Series(words.launches_kernel(trace.calls)))
    missing = int((~occurs(operations.drop_nulls("correlation"), launches)).sum())
    if missing > MISSING_LAUNCHES * launches.height:
        kernels = operations.filter(trace.operations["kind"] == "kernel")
        missing -= int((~occurs(calls.drop_nulls("correlation"), kernels)).sum())
        if missing > MISSING_LAUNCHES * launches.height:
            omissions.add("launches-not-recorded", missing, launches=launches.height)


def _with_blocking_pageable(trace: Trace) -> pl.DataFrame:
    """Asynchronous copies into pageable memory return when done [CUDA: API synchronization behavior]."""
    blocking = (
        (pl.col("kind") == "copy")
        & (pl.col("direction") == "d2h")
        & (pl.col("destination_memory") == "pageable")
        & pl.col("correlation").is_not_null()
    )
    ids = trace.operations.lazy().filter(blocking).select("process", "correlation").collect()
    if ids.is_empty() or trace.calls.is_empty():
        return trace.calls
    blocks = pl.Series(occurs(ids, trace.calls.select("process", "correlation")))
    waits = pl.when(blocks & (pl.col("waits_for") == "none")).then(pl.lit("operation")).otherwise("waits_for")
    return trace.calls.with_columns(waits_for=waits.cast(pl.Enum(WAITS_FOR)))


def _first(*frames: pl.DataFrame) -> int:
    """The first start in any of the tables; 0 if they are empty."""
    starts = [frame["start_ns"].min() for frame in frames if frame.height]
    return min((int(start) for start in starts), default=0)  # type: ignore[arg-type]


def _in_order_from(trace: Trace, table: str, first: int) -> None:
    """Puts a table in order of start, its times counted from `first`; like starts keep their order."""
    frame = getattr(trace, table)
    is_sorted = frame["start_ns"].is_sorted()
    if is_sorted and first == 0:
        return
    frame = frame.clone()
    setattr(trace, table, frame)  # nobody else holds the columns: each goes as the next is made
    if is_sorted:
        for name in TIMES:
            times = frame[name]
            # numpy asks for large pages, which Polars does not.
            less = times - first if times.null_count() else pl.Series(name, times.to_numpy() - first)
            frame.replace_column(frame.get_column_index(name), less)
        return
    order = pl.Series(order_of(frame["start_ns"]))  # tables come in order, one behind the other

    # A column of nothing but nulls is in order, and takes no memory as the constant that it may be.
    filled = [number for number, nulls in enumerate(frame.null_count().row(0)) if nulls < frame.height]

    def put(number: int) -> None:
        # From parts it would take five times as long.
        column = frame[frame.columns[number]].rechunk().gather(order)
        frame.replace_column(number, column - first if column.name in TIMES and first else column)

    several(frame.height, [partial(put, number) for number in filled], pl.thread_pool_size())
