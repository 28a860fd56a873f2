"""Nsight Systems exports: SQLite files and directories of Parquet or Arrow tables, of all schemas since 2021.

Tables and columns come and go with the version, so everything is looked up by name and may be missing.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from busfare.trace.model import OPEN_RANGES, Omissions, Trace
from busfare.trace.readers.nsys import devices as nsys_devices
from busfare.trace.readers.nsys.calls import calls_of, event_tables, events_of, with_waits
from busfare.trace.readers.nsys.columns import TIMES, process_of, thread_of
from busfare.trace.readers.nsys.operations import copies, copy_table, graphs, kernels, set_table, sets
from busfare.trace.readers.nsys.scan import CALLS_TABLE, STRINGS, Scanning
from busfare.trace.readers.nsys.sums import sums_of
from busfare.trace.readers.tables.source import INT, TableSource, ints, texts
from busfare.trace.sound import with_printable
from busfare.trace.tables import MARKERS, OPERATIONS, OPERATIONS_OF_KERNELS, conform, empty

__all__ = ["matches", "read"]

#: ENUM_DIAGNOSTIC_SEVERITY_LEVEL: unknown, information, verbose; between these are 2 warning and 3 error.
NOT_GRAVE = [0, 1, 4]
#: So many different warnings are shown.
MOST_SAID = 5


def matches(tables: TableSource) -> bool:
    """Whether these tables are an Nsight Systems export."""
    return STRINGS in tables.names and any(
        name.startswith(
            ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "META_DATA_", "EXPORT_META_DATA")
        )
        for name in tables.names
    )


def read(tables: TableSource, scanning: Scanning | None = None) -> Trace:
    """Reads an export; as sums where `scanning` is a scan of it that has begun.

    Raises InputError if a table that is there cannot be read.
    """
    strings = tables.read(STRINGS, ints("id") | texts("value"))
    strings = strings.unique("id", keep="first", maintain_order=True).drop_nulls()
    strings = with_printable(strings, "value")  # names in sums and in calls that are read later
    if scanning is not None:
        trace = _in_sums(tables, strings, scanning)
        if trace is not None:
            return trace
    omissions = Omissions()
    of_calls = TIMES | ints("globalTid correlationId nameId")
    calls, names = calls_of(tables.read(CALLS_TABLE, of_calls), strings, omissions)
    events, waits = events_of(*event_tables(tables), calls, names, omissions)
    made = (
        kernels(tables, strings),
        copies(copy_table(tables), omissions),
        sets(set_table(tables)),
        graphs(tables, omissions),
    )
    operations = [conform(frame, OPERATIONS, OPERATIONS_OF_KERNELS) for frame in made]
    trace = Trace(
        operations=pl.concat(operations, how="diagonal"),
        calls=with_waits(calls, waits),
        events=events,
        **_about(tables),
    )
    return _with_notes(trace, tables, strings, omissions)


def _in_sums(tables: TableSource, strings: pl.DataFrame, scanning: Scanning) -> Trace | None:
    """The trace as sums; None if there is something in it to repair."""
    waits, records = event_tables(tables)
    about = _about(tables)
    scan = scanning.result()
    if scan is None:
        return None
    omissions = Omissions()
    summed = sums_of(tables.path, scan, scanning.keys, strings, scanning.above, omissions)
    if summed is None:
        return None
    sums, kept = summed
    calls, names = calls_of(kept, strings, omissions)
    events, _ = events_of(waits, records, calls, names, omissions)
    times = pl.DataFrame({"start_ns": sums.lanes.starts, "end_ns": sums.lanes.ends})
    trace = Trace(operations=conform(times, OPERATIONS), calls=calls, events=events, sums=sums, **about)
    return _with_notes(trace, tables, strings, omissions)


def _about(tables: TableSource) -> dict[str, Any]:
    """What a trace has beside what happened."""
    product, schema = _version(tables)
    return {
        "path": tables.path,
        "format": "nsys-sqlite" if tables.path.is_file() else "nsys-directory",
        "producer": f"Nsight Systems {product}".strip() + (f" (schema {schema})" if schema else ""),
        "devices": nsys_devices.devices(tables),
        "streams": nsys_devices.streams(tables),
        "host": nsys_devices.host(tables),
    }


def _with_notes(trace: Trace, tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> Trace:
    """`trace` with the program's own ranges and marks, and with what is lacking in it."""
    trace.markers = _markers(tables, strings, omissions)
    _note_diagnostics(tables, omissions)
    trace.omissions = omissions.list()
    return trace


def _version(tables: TableSource) -> tuple[str, str]:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        frame = tables.read(table, texts("name value"))
        if frame.height:
            found = dict(zip(frame["name"], frame["value"], strict=True))
            return found.get("EXPORT_PRODUCT_VERSION") or "", found.get("EXPORT_SCHEMA_VERSION") or ""
    return "", ""


def _markers(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = tables.read(
        "NVTX_EVENTS",
        TIMES | ints("eventType textId globalTid domainId") | texts("text"),
    )
    if frame.is_empty():
        newer = sorted(name for name in tables.names if name.startswith("NVTX_EVENTS_"))
        if newer:
            omissions.add(
                "unknown-nvtx", f"table {newer[0]} is newer than this version: its NVTX ranges are not read"
            )
        return empty(MARKERS)
    # 34 mark, 59 push/pop range, 60 start/end range; the others define domains and categories.
    frame = frame.filter(pl.col("eventType").is_in([34, 59, 60]))
    unended = frame.filter(pl.col("end").is_null() & (pl.col("eventType") != 34)).height
    omissions.add_if(unended, "open-ranges", OPEN_RANGES)
    frame = frame.join(strings, left_on="textId", right_on="id", how="left").with_columns(
        process_of("globalTid"),
        thread_of("globalTid"),
        name=pl.coalesce("text", "value"),
        start_ns="start",
        end_ns="end",
    )
    return conform(frame.rename({"domainId": "domain"}), MARKERS)


def _note_diagnostics(tables: TableSource, omissions: Omissions) -> None:
    """Its warnings and errors; those on records that are missing first."""
    frame = tables.read("DIAGNOSTIC_EVENT", ints("severity") | texts("text")).drop_nulls("text")
    lost = pl.col("text").str.contains(r"(?i)\bdropped\b|not collected|\blost\b|incomplete")
    of_gpu = pl.col("text").str.contains("CUDA|GPU|Unified Memory")
    grave = pl.col("severity").replace(NOT_GRAVE, 0).fill_null(0)
    rank = grave + 4 * lost.cast(INT) + 2 * of_gpu.cast(INT)
    said = (
        frame.filter(lost | (grave > 0))
        .group_by("text", maintain_order=True)
        .agg(pl.len(), rank.max().alias("rank"))
    )
    said = said.sort("rank", descending=True, maintain_order=True)
    for text, count in said.select("text", "len").head(MOST_SAID).iter_rows():
        omissions.add(
            "profiler-said", f"the profiler said while it recorded: {' '.join(text[:200].split())}", count
        )
    omissions.add_if(
        int(said["len"].slice(MOST_SAID).sum()),
        "profiler-said",
        "further warnings of the profiler; see DIAGNOSTIC_EVENT in the file",
    )
