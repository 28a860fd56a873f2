"""Makes what a reader found sound: times to compute with, sizes that can be summed, rows in order."""

from __future__ import annotations

import polars as pl

from busfare.trace.clocks import join_clocks
from busfare.trace.omissions import Omissions
from busfare.trace.printable import printable
from busfare.trace.tables import WAITS_FOR
from busfare.trace.trace import Omission, Trace

__all__ = ["make_sound"]

#: Nanoseconds; wide enough for times since 1970, and any difference of two of them fits 64 bits.
EARLIEST, LATEST = -(1 << 60), 3 << 60
#: No memory holds more than 16 TiB today; half a million copies of that size add up within 64 bits.
LARGEST = 1 << 44

#: How to record the GPU, where a trace has nothing of it.
RECORD_AGAIN = {
    "nsys-sqlite": "`nsys profile --trace=cuda`",
    "nsys-directory": "`nsys profile --trace=cuda`",
    "kineto": "`ProfilerActivity.CUDA`",
    "nvprof": "`nvprof -o FILE PROGRAM`",
    "rocpd": "`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace`",
    "rpd": "`runTracer.sh`",
}


def make_sound(trace: Trace) -> None:
    """Drops or repairs impossible rows and notes that, sorts by start, counts time from the first record."""
    omissions = Omissions({(o.id, o.what): o.count for o in trace.omissions})
    trace.operations = _timed(trace.operations, "GPU operations", omissions)
    trace.calls = _timed(trace.calls, "API calls", omissions)
    trace.markers = _marked(trace.markers, omissions)
    trace.events = _dated(trace.events, omissions)
    _note_what_is_absent(trace, omissions)

    unsized = pl.col("bytes").is_not_null() & ~pl.col("bytes").is_between(0, LARGEST)
    bad = trace.operations.filter(unsized).height
    if bad:
        omissions.add(
            "impossible-sizes", "operations of a negative or impossible size: size taken as unknown", bad
        )
        trace.operations = trace.operations.with_columns(bytes=pl.when(~unsized).then("bytes"))
    sizeless = trace.operations.filter(
        pl.col("kind").is_in(["copy", "migration"]) & pl.col("bytes").is_null()
    ).height
    omissions.add_if(
        sizeless - bad if sizeless > bad else 0,
        "unknown-sizes",
        "copies whose size the trace does not say: their time counts, their bytes do not",
    )
    trace.calls = _with_blocking_pageable(trace)
    join_clocks(trace, omissions)
    _count_from_first(trace)
    trace.operations = trace.operations.sort("start_ns", maintain_order=True)
    trace.calls = trace.calls.sort("start_ns", maintain_order=True)
    trace.events = trace.events.sort("start_ns", maintain_order=True)
    trace.markers = trace.markers.sort("start_ns", maintain_order=True)
    orphans = _without_call(trace)
    omissions.add_if(
        orphans,
        "cut-window",
        "GPU operations whose API call is not in the trace (it began or was cut in the middle): counted, but "
        "not tied to a host thread",
    )
    trace.omissions = [Omission(o.id, o.count, printable(o.what)) for o in omissions.list()]
    trace.producer = printable(trace.producer)


def _timed(frame: pl.DataFrame, what: str, omissions: Omissions) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    usable = start.is_between(EARLIEST, LATEST) & end.is_between(EARLIEST, LATEST)
    kept = frame.filter(usable)  # a null is not usable
    omissions.add_if(frame.height - kept.height, "untimed", f"{what} without usable times: left out")
    backwards = kept.filter(end < start).height
    if backwards:
        omissions.add(
            "clock-backwards", f"{what} that end before they start: counted, as taking no time", backwards
        )
        kept = kept.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    return kept


def _marked(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    kept = frame.filter(
        start.is_between(EARLIEST, LATEST)
        & (end.is_null() | (end.is_between(EARLIEST, LATEST) & (end >= start)))
    )
    omissions.add_if(frame.height - kept.height, "untimed", "markers without usable times: left out")
    return kept


def _dated(events: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    kept = events.filter(start.is_between(EARLIEST, LATEST))
    omissions.add_if(
        events.height - kept.height,
        "records-without-call",
        "event records or waits whose call is outside the trace: left out of the dependencies",
    )
    return kept.with_columns(end_ns=pl.when(end.is_between(start, LATEST)).then(end))


def _note_what_is_absent(trace: Trace, omissions: Omissions) -> None:
    if trace.operations.is_empty():
        again = RECORD_AGAIN.get(trace.format, "the GPU's activity on")
        omissions.add(
            "no-gpu-records",
            "the trace holds no GPU activity: the GPU was not traced (it may well have worked); "
            f"record with {again}",
        )
    elif trace.calls.is_empty():
        omissions.add(
            "no-calls", "the trace holds no API calls: what the host did and waited for is not known"
        )


def _with_blocking_pageable(trace: Trace) -> pl.DataFrame:
    """Asynchronous copies into pageable memory return when done [CUDA: API synchronization behavior]."""
    copies = trace.operations.filter(
        (pl.col("kind") == "copy")
        & (pl.col("direction") == "d2h")
        & (pl.col("destination_memory") == "pageable")
    )
    ids = copies.select("process", "correlation").drop_nulls("correlation").unique()
    if ids.is_empty() or trace.calls.is_empty():
        return trace.calls
    joined = trace.calls.join(
        ids.with_columns(blocks=pl.lit(True)),
        on=["process", "correlation"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    waits = (
        pl.when(pl.col("blocks") & (pl.col("waits_for") == "none"))
        .then(pl.lit("operation"))
        .otherwise("waits_for")
    )
    return joined.with_columns(waits_for=waits.cast(pl.Enum(WAITS_FOR))).drop("blocks")


def _count_from_first(trace: Trace) -> None:
    timed = (
        (trace.operations, trace.calls) if trace.operations.height or trace.calls.height else (trace.markers,)
    )
    starts = pl.concat(frame.select("start_ns") for frame in timed)
    if starts.is_empty():
        return
    first = starts["start_ns"].min()
    trace.operations, trace.calls, trace.events, trace.markers = (
        frame.with_columns(pl.col("start_ns") - first, pl.col("end_ns") - first)
        for frame in (trace.operations, trace.calls, trace.events, trace.markers)
    )


def _without_call(trace: Trace) -> int:
    if trace.calls.is_empty():
        return 0
    operations = trace.operations.filter(pl.col("kind") != "migration").select("process", "correlation")
    known = trace.calls.select("process", "correlation").unique()
    return operations.join(known, on=["process", "correlation"], how="anti", nulls_equal=True).height
