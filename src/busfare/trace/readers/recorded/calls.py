"""What the host did in a recorded process: calls and what they wait for, events, NVTX ranges."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace import api_calls
from busfare.trace.columns import first_rows
from busfare.trace.model import OPEN_RANGES, Omissions
from busfare.trace.readers.recorded.operations import held_up as held_up_by_recorder
from busfare.trace.readers.recorded.process import (
    RecordedProcess,
    at,
    choice,
    device_of_context,
    identified,
    nonzero,
)
from busfare.trace.tables import CALLS, CALLS_RECORDED, EVENTS, MARKERS, WAITS_FOR, conform

__all__ = ["calls", "events", "markers"]

EVENT_WAIT, STREAM_WAIT_EVENT, STREAM_WAIT, CONTEXT_WAIT = 1, 2, 3, 4
WAIT_OF = {EVENT_WAIT: "event", STREAM_WAIT: "stream", CONTEXT_WAIT: "device"}
MARK, RANGE_START, RANGE_END = 1, 2, 4


def calls(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `CALLS`: what each call waits for as its wait says, else as its name does."""
    table = process.recording.table("calls")
    # Each name is looked at once, however often it is called.
    texts, places = process.texts(table["name"])
    plain = texts.to_frame().select(api_calls.plain_name(pl.col("name")))
    by_name = plain.select(api_calls.waits_for(pl.col("name"))).to_series().gather(places)
    frame = process.frame(table, {"thread": "thread", "correlation": "correlation"}).with_columns(
        name=plain.to_series().cast(pl.Categorical).gather(places)
    )
    waits = process.recording.table("waits")
    on_host = waits["type"] != STREAM_WAIT_EVENT
    rows = first_rows(waits["correlation"][on_host], table["correlation"])
    said, stream, event = (at(waits[name][on_host], rows) for name in ("type", "stream", "event"))
    frame = frame.with_columns(
        pl.Series("stream", stream.view(np.int64)), pl.Series("event", event.view(np.int64))
    ).with_columns(identified("stream"), identified("event"))
    frame = frame.with_columns(waits_for=pl.coalesce(choice(said, WAIT_OF, WAITS_FOR), by_name))
    held_up = held_up_by_recorder(process.recording)
    if held_up.any():
        frame = frame.with_columns(pl.Series("recorder_ns", held_up))
    return conform(
        frame.with_columns(
            stream=pl.when(pl.col("waits_for") == "stream").then("stream"),
            event=pl.when(pl.col("waits_for") == "event").then("event"),
        ),
        CALLS,
        CALLS_RECORDED,
    )


def _waits(process: RecordedProcess) -> pl.DataFrame:
    names = {name: name for name in ("type", "correlation", "context", "stream", "event", "event_sync")}
    return process.frame(process.recording.table("waits"), names).with_columns(
        identified("stream"), identified("event"), nonzero("event_sync")
    )


def events(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `EVENTS`: records, and waits of streams for them."""
    table = process.recording.table("events")
    names = {name: name for name in ("correlation", "device", "context", "stream", "event", "event_sync")}
    calls = process.recording.table("calls")
    rows = first_rows(calls["correlation"], table["correlation"])
    start = at(calls["start"], rows).view(np.int64) + process.shift_ns
    records = process.frame(table, names).with_columns(
        identified("device"),
        nonzero("event_sync"),
        kind=pl.lit("record"),
        start_ns=pl.when(pl.Series(rows >= 0)).then(pl.Series(start)),
        end_ns=pl.when(pl.Series(rows >= 0)).then(
            pl.Series(start + at(calls["duration"], rows).view(np.int64))
        ),
    )
    without = records["start_ns"].null_count()
    omissions.add_if(
        without,
        "records-without-call",
        "event records whose call was not recorded: left out of the dependencies",
    )
    waits = _waits(process).filter(pl.col("type") == STREAM_WAIT_EVENT).with_columns(kind=pl.lit("wait"))
    both = pl.concat([records.filter(pl.col("start_ns").is_not_null()), waits], how="diagonal")
    devices = device_of_context(process)
    if devices.height:
        both = both.join(devices, on="context", how="left").with_columns(
            device=pl.coalesce("device", "of_context")
        )
    return conform(both, EVENTS)


def markers(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `MARKERS`: NVTX ranges and marks."""
    table = process.recording.table("markers")
    names = {name: name for name in ("flags", "marker", "thread")}
    frame = process.frame(table, names, time="time").with_columns(
        name=process.names(table["name"]), domain=pl.Series(table.signed("domain"))
    )
    ends = (
        frame.filter(pl.col("flags") & RANGE_END != 0).select("marker", ended_ns="start_ns").unique("marker")
    )
    ranges = frame.filter(pl.col("flags") & RANGE_START != 0).join(ends, on="marker", how="left")
    omissions.add_if(ranges["ended_ns"].null_count(), "open-ranges", OPEN_RANGES)
    marks = frame.filter(pl.col("flags") & MARK != 0).with_columns(ended_ns=pl.lit(None, pl.Int64))
    both = pl.concat([ranges, marks], how="diagonal").with_columns(end_ns="ended_ns")
    return conform(both, MARKERS)
