"""A trace in forms that others' tools read: Parquet tables, and a time line for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.output import replacing
from busfare.trace import Trace
from busfare.trace.lanes import is_transfer
from busfare.trace.write.nsys import export_nsys

__all__ = ["FORMATS", "export", "perfetto_beside"]

FORMATS = ("parquet", "perfetto", "nsys-sqlite")
#: Rows of GPU operations and of API calls get process ids of their own, above any real one.
GPU_ROWS = 1 << 32
#: And those of a predicted run, when it stands beside a recorded one.
PREDICTED_ROWS = 1 << 33


def export(trace: Trace, to: str, output: Path) -> None:
    """Writes `trace` to `output`: a directory of one Parquet file a table, one JSON file for ui.perfetto.dev, or
    an SQLite file that readers of Nsight Systems exports take.

    Raises InputError for an unknown format, or if `output` cannot be written.
    """
    if to not in FORMATS:
        raise InputError(f"--to {to}: not a format that busfare writes; one of {', '.join(FORMATS)}")
    if to == "nsys-sqlite" and output.exists():
        raise InputError(f"{output}: exists; choose another name, or remove it")
    with replacing(output) as place:
        if to == "parquet":
            _write_parquet(trace, place)
        elif to == "nsys-sqlite":
            export_nsys(trace, place)
        else:
            place.write_bytes(perfetto(trace))


def _write_parquet(trace: Trace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    omissions = pl.DataFrame(
        {
            "id": [o.id for o in trace.omissions],
            "count": [o.count for o in trace.omissions],
            "what": [o.what for o in trace.omissions],
        },
        schema={"id": pl.String, "count": pl.Int64, "what": pl.String},
    )
    for name in ("operations", "calls", "events", "markers", "devices", "streams"):
        getattr(trace, name).write_parquet(folder / f"{name}.parquet")
    omissions.write_parquet(folder / "omissions.parquet")


def perfetto(trace: Trace) -> bytes:
    """The trace as Chrome trace events (JSON), times in microseconds: a row a stream, a row a host thread."""
    return _document(_events(trace))


def perfetto_beside(recorded: Trace, predicted: Trace) -> bytes:
    """Both runs as one time line, their rows named 'recorded' and 'predicted'."""
    events = _events(recorded, "recorded: ") + _events(predicted, "predicted: ", PREDICTED_ROWS)
    return _document(events)


def _document(events: list[dict[str, Any]]) -> bytes:
    # Whoever wrote it stands in front, where `busfare report` sees that it is no profiler's.
    about = {"displayTimeUnit": "ns", "otherData": {"writer": "busfare export"}}
    return msgspec.json.encode(about | {"traceEvents": events})


def _events(trace: Trace, label: str = "", offset: int = 0) -> list[dict[str, Any]]:
    events = [*_row_names(trace), *_operation_events(trace), *_call_events(trace)]
    for event in events:
        event["pid"] += offset
        if event["name"] == "process_name":
            event["args"]["name"] = label + event["args"]["name"]
    return events


def _row_names(trace: Trace) -> Iterator[dict[str, Any]]:
    for (device,) in trace.operations.select("device").unique().sort("device").iter_rows():
        yield _named("process_name", _gpu_row(device), 0, f"GPU {device}")
    for device, stream in (
        trace.operations.select("device", "stream").unique().sort("device", "stream").iter_rows()
    ):
        yield _named("thread_name", _gpu_row(device), stream or 0, f"stream {stream}")
    for (process,) in trace.calls.select("process").unique().sort("process").iter_rows():
        yield _named("process_name", process or 0, 0, f"process {process}")


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _gpu_row(device: int | None) -> int:
    return GPU_ROWS + (device or 0)


def _operation_events(trace: Trace) -> Iterator[dict[str, Any]]:
    ends = pl.concat_str(
        pl.col("source_memory").cast(pl.String).fill_null("unknown"),
        pl.lit(" → "),
        pl.col("destination_memory").cast(pl.String).fill_null("unknown"),
    )
    label = (
        pl.when(is_transfer())
        .then(pl.concat_str(pl.col("direction").cast(pl.String).fill_null("copy"), pl.lit(" "), ends))
        .otherwise(pl.col("name").cast(pl.String))
    )
    columns = ["start_ns", "end_ns", "device", "stream", "bytes", "correlation", "kind"]
    for start, end, device, stream, size, correlation, kind, name in trace.operations.select(
        *columns, label.alias("label")
    ).iter_rows():
        yield {
            "ph": "X",
            "cat": kind,
            "name": name or kind,
            "pid": _gpu_row(device),
            "tid": stream or 0,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
            "args": {
                key: value
                for key, value in (("bytes", size), ("correlation", correlation))
                if value is not None
            },
        }


def _call_events(trace: Trace) -> Iterator[dict[str, Any]]:
    columns = ["start_ns", "end_ns", "process", "thread", "name", "correlation", "waits_for"]
    for start, end, process, thread, name, correlation, waits_for in trace.calls.select(columns).iter_rows():
        yield {
            "ph": "X",
            "cat": "call",
            "name": name or "call",
            "pid": process or 0,
            "tid": thread or 0,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
            "args": {"correlation": correlation, "waits for": waits_for},
        }
