"""What the host did, of Nsight Systems exports: calls, records of events, and what waits for them."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace import api_calls
from busfare.trace.columns import occurs
from busfare.trace.model import Omissions
from busfare.trace.readers.nsys.columns import PLACE, TIMES, Texts, placed, process_of, thread_of
from busfare.trace.readers.nsys.scan import RECORDS, WAITS
from busfare.trace.readers.tables.source import TableSource, ints
from busfare.trace.tables import CALLS, EVENTS, conform, empty

__all__ = ["calls_of", "event_tables", "events_of", "with_waits"]

NO_ID = [-1, 4294967295]  # no stream, or no event; SQLite exports hold it unsigned


def calls_of(
    frame: pl.DataFrame, strings: pl.DataFrame, omissions: Omissions
) -> tuple[pl.DataFrame, pl.Series]:
    """The calls, and the plain name of each; null where it is lost. Their process may be known already."""
    if frame.is_empty():
        return empty(CALLS), pl.Series(dtype=pl.Categorical())
    named = Texts.of(frame["nameId"], strings, "(unnamed call)")
    meanings = [api_calls.meaning(text) for text in named.texts]
    names = pl.DataFrame(
        {
            "plain": pl.Series([plain for plain, _ in meanings], dtype=pl.Categorical()),
            "waits_for": pl.Series([waits for _, waits in meanings], dtype=CALLS["waits_for"]),
        }
    )
    unnamed = int(named.unknown().sum()) if named.any_unknown else 0
    omissions.add_if(unnamed, "unnamed-calls", "API calls whose name is lost: taken to wait for nothing")
    frame = frame.select(
        *(["process"] if "process" in frame.columns else [process_of("globalTid"), thread_of("globalTid")]),
        start_ns="start",
        end_ns="end",
        correlation="correlationId",
        name=named.of_rows(names["plain"]),
        waits_for=named.of_rows(names["waits_for"]),
    )
    names_known = frame["name"]
    if unnamed:
        names_known = frame.select(pl.when(~pl.Series(named.unknown())).then("name")).to_series()
    return conform(frame, CALLS), names_known


def event_tables(tables: TableSource) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Waits, and records of events."""
    place = PLACE | ints("eventId eventSyncId")
    return tables.read(WAITS, TIMES | place), tables.read(RECORDS, place)


def events_of(
    waits: pl.DataFrame,
    records: pl.DataFrame,
    calls: pl.DataFrame,
    names: pl.Series,
    omissions: Omissions,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Event records and stream waits; and what each host-side wait waits for, by (process, correlation).

    `syncType` changed its meaning between versions, so the call's own name decides. A record without its call
    that may be either kind of wait is counted as unknown.
    """
    call_ids = _calls_of([waits, records], calls, names)
    parts: list[pl.DataFrame] = []
    host_waits = pl.DataFrame(schema=ints("process correlation stream event"))
    if not waits.is_empty():
        waits = placed(waits).join(
            call_ids.select("process", "correlation", "call"), on=["process", "correlation"], how="left"
        )
        waits = waits.with_columns(stream=pl.col("stream").replace(NO_ID, None), event=_some_id("eventId"))
        stream_wait = pl.col("call").str.contains(api_calls.STREAM_WAIT_EVENT)
        unnamed = waits.filter(
            pl.col("call").is_null() & pl.col("event").is_not_null() & pl.col("stream").is_not_null()
        )
        omissions.add_if(
            unnamed.height,
            "unknown-wait",
            "synchronisations whose call was not recorded and which may be a stream or a host waiting for an "
            "event: left out of the dependencies",
        )
        parts.append(
            conform(
                waits.filter(stream_wait).with_columns(
                    kind=pl.lit("wait"), event_sync=_some_id("eventSyncId")
                ),
                EVENTS,
            )
        )
        host_waits = waits.filter(~stream_wait.fill_null(False)).select(
            "process", "correlation", "stream", "event"
        )
    if not records.is_empty():
        records = placed(records).join(
            call_ids.select("process", "correlation", "start_ns", "end_ns"),
            on=["process", "correlation"],
            how="left",
        )
        ids = {"event": _some_id("eventId"), "event_sync": _some_id("eventSyncId")}
        parts.append(conform(records.with_columns(kind=pl.lit("record"), **ids), EVENTS))
    elif parts and parts[0].height:
        omissions.add(
            "waits-without-records",
            "streams wait for events whose records the trace does not hold: what they wait for is not known",
            parts[0].height,
        )
    return (pl.concat(parts) if parts else empty(EVENTS)), host_waits.unique(
        ["process", "correlation"], keep="first"
    )


def _calls_of(tables: list[pl.DataFrame], calls: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Process, correlation, plain name and times of the calls that rows of `tables` come from: each once."""
    ids = pl.concat(frame.select(process_of("globalPid"), correlation="correlationId") for frame in tables)
    ids = ids.drop_nulls("correlation")
    picked = occurs(ids, calls.select("process", "correlation"))
    found = calls.select("process", "correlation", "start_ns", "end_ns").with_columns(
        call=names if len(names) else pl.lit(None, dtype=pl.String)
    )
    found = found.filter(picked).with_columns(pl.col("call").cast(pl.String))
    return found.unique(["process", "correlation"], keep="first")


def _some_id(column: str) -> pl.Expr:
    return pl.col(column).replace([0, *NO_ID], None)


def with_waits(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Calls with the stream or event that they wait for."""
    waiting = calls["waits_for"].is_in(["stream", "event"])
    if waits.is_empty() or not waiting.any():
        return calls
    # Those that wait for nothing, nearly all, need not be looked up.
    row = calls.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "process", "correlation", "waits_for"
    )
    found = row.filter(waiting).join(waits, on=["process", "correlation"], how="inner")
    columns = []
    for name in ("stream", "event"):
        part = found.filter((pl.col("waits_for") == name) & pl.col(name).is_not_null())
        values = np.zeros(calls.height, np.int64)
        known = np.zeros(calls.height, bool)
        values[part["row"]] = part[name].to_numpy()
        known[part["row"]] = True
        columns.append(pl.select(pl.when(pl.Series(known)).then(pl.Series(values)).alias(name)).to_series())
    return calls.with_columns(columns)
