"""Makes what a reader found sound: times that can be computed with, sizes that can be summed, rows in order."""

from __future__ import annotations

import polars as pl

from busfare.trace.omissions import Omissions
from busfare.trace.tables import WAITS_FOR
from busfare.trace.trace import Trace

__all__ = ["make_sound"]

#: Nanoseconds; wide enough for times since 1970, and any difference of two of them fits 64 bits.
EARLIEST, LATEST = -(1 << 60), 3 << 60
#: A copy is not larger than an exbibyte; sums of a few such sizes fit 64 bits.
LARGEST = 1 << 60


def make_sound(trace: Trace) -> None:
    """Drops or repairs impossible rows, sorts by start, counts time from the first record; notes each in `omissions`."""
    omissions = Omissions({(o.id, o.what): o.count for o in trace.omissions})
    trace.operations = _timed(trace.operations, "GPU operations", omissions)
    trace.calls = _timed(trace.calls, "API calls", omissions)
    trace.markers = _marked(trace.markers, omissions)
    trace.events = trace.events.filter(pl.col("start_ns").is_not_null() & pl.col("start_ns").is_between(EARLIEST, LATEST))

    unsized = pl.col("bytes").is_not_null() & ~pl.col("bytes").is_between(0, LARGEST)
    bad = trace.operations.filter(unsized).height
    if bad:
        omissions.add("impossible-sizes", "operations of a negative or impossible size: size taken as unknown", bad)
        trace.operations = trace.operations.with_columns(bytes=pl.when(~unsized).then("bytes"))
    sizeless = trace.operations.filter(pl.col("kind").is_in(["copy", "migration"]) & pl.col("bytes").is_null()).height
    omissions.add_if(
        sizeless - bad if sizeless > bad else 0,
        "unknown-sizes",
        "copies whose size the trace does not say: their time counts, their bytes do not",
    )
    trace.calls = _with_blocking_pageable(trace)
    _count_from_first(trace)
    trace.operations = trace.operations.sort("start_ns", maintain_order=True)
    trace.calls = trace.calls.sort("start_ns", maintain_order=True)
    trace.events = trace.events.sort("start_ns", maintain_order=True)
    trace.markers = trace.markers.sort("start_ns", maintain_order=True)
    orphans = _without_call(trace)
    omissions.add_if(
        orphans,
        "cut-window",
        "GPU operations whose API call is not in the trace (it began or was cut in the middle): counted, but not tied to a host thread",
    )
    trace.omissions = omissions.list()


def _timed(frame: pl.DataFrame, what: str, omissions: Omissions) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    usable = start.is_between(EARLIEST, LATEST) & end.is_between(EARLIEST, LATEST)
    kept = frame.filter(usable)  # a null is not usable
    omissions.add_if(frame.height - kept.height, "untimed", f"{what} without usable times: left out")
    backwards = kept.filter(end < start).height
    if backwards:
        omissions.add("clock-backwards", f"{what} that end before they start: counted, as taking no time", backwards)
        kept = kept.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    return kept


def _marked(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    kept = frame.filter(start.is_between(EARLIEST, LATEST) & (end.is_null() | (end.is_between(EARLIEST, LATEST) & (end >= start))))
    omissions.add_if(frame.height - kept.height, "untimed", "markers without usable times: left out")
    return kept


def _with_blocking_pageable(trace: Trace) -> pl.DataFrame:
    """An asynchronous copy into pageable memory returns when the copy is done [CUDA: API synchronization behavior]."""
    copies = trace.operations.filter(
        (pl.col("kind") == "copy") & (pl.col("direction") == "d2h") & (pl.col("destination_memory") == "pageable")
    )
    ids = copies.select("process", "correlation").drop_nulls("correlation").unique()
    if ids.is_empty() or trace.calls.is_empty():
        return trace.calls
    joined = trace.calls.join(
        ids.with_columns(blocks=pl.lit(True)), on=["process", "correlation"], how="left", nulls_equal=True, maintain_order="left"
    )
    waits = pl.when(pl.col("blocks") & (pl.col("waits_for") == "none")).then(pl.lit("operation")).otherwise("waits_for")
    return joined.with_columns(waits_for=waits.cast(pl.Enum(WAITS_FOR))).drop("blocks")


def _count_from_first(trace: Trace) -> None:
    firsts = [f["start_ns"].min() for f in (trace.operations, trace.calls) if f.height]
    if not firsts:
        return
    first = min(firsts)  # type: ignore[type-var]  # start_ns holds integers
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
