"""A trace in forms that others' tools read: Parquet and CSV tables, and timelines for ui.perfetto.dev."""

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.files import check_place, replacing
from busfare.trace.lanes import is_transfer
from busfare.trace.model import Trace

FORMATS = ("parquet", "csv", "perfetto")
FOLDERS = ("parquet", "csv")
#: How cells begin that spreadsheets take for formulas, also in full width: they get an apostrophe in front.
FORMULA = r"^[=+\-@\t\r\uFF1D\uFF0B\uFF0D\uFF20]"
TABLES = ("operations", "calls", "events", "markers", "devices", "streams", "launches")


def export(trace: Trace, to: str, output: Path) -> None:
    """Writes `trace` to `output`: a directory with one Parquet or CSV file per table, or one JSON file for ui.perfetto.dev.
    Omissions are written as sentences. Raises InputError for an unknown format, or if `output` cannot be written.
    """
    check_export(to, output)
    with replacing(output) as place:
        if to in FOLDERS:
            _write_tables(trace, to, place)
        else:
            place.write_bytes(perfetto(trace))


def check_export(to: str, output: Path) -> None:
    """Raises InputError for an unknown format, or where it cannot be written to `output`: before a trace is read."""
    if to not in FORMATS:
        raise InputError(f"`to` {to}: unknown format; choose one of {', '.join(FORMATS)}, chakra")
    if to in FOLDERS and output.is_file():
        raise InputError(f"{output}: is a file, but {to} needs a folder; name another place")
    check_place(output, folder=to in FOLDERS)


def _write_tables(trace: Trace, to: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(o.id, o.count, o.what) for o in trace.omissions]
    schema = {"id": pl.String, "count": pl.Int64, "what": pl.String}
    omissions = pl.DataFrame(rows, schema=schema, orient="row")
    for name, table in [*((name, getattr(trace, name)) for name in TABLES), ("omissions", omissions)]:
        file = folder / f"{name}.{to}"
        try:
            if to == "csv":
                texts = (pl.selectors.string() | pl.selectors.categorical()).cast(pl.String)
                table.with_columns(texts.str.replace(FORMULA, "'$0")).write_csv(file)
            else:
                table.write_parquet(file)
        except pl.exceptions.PolarsError as error:
            reason = next(iter(str(error).splitlines()), "no reason given")
            raise OSError(None, reason) from None


#: Rows of GPU operations get process ids of their own, above any real one; and those of a predicted run beside another's.
GPU_ROWS, PREDICTED_ROWS = 1 << 32, 1 << 33


def perfetto(trace: Trace) -> bytes:
    """The trace as Chrome trace events (JSON), times in microseconds: a row a stream, a row a host thread."""
    return _encoded(_events(trace))


def perfetto_of_pair(recorded: Trace, predicted: Trace) -> bytes:
    """Both runs as one timeline, their rows named 'recorded' and 'predicted'."""
    return _encoded(_events(recorded, "recorded: ") + _events(predicted, "predicted: ", PREDICTED_ROWS))


def _encoded(events: list[dict[str, Any]]) -> bytes:
    # Whoever wrote it stands in front, where `busfare report` sees that it is no profiler's.
    about = {"displayTimeUnit": "ns", "otherData": {"writer": "busfare export"}}
    return msgspec.json.encode(about | {"traceEvents": events})


def _events(trace: Trace, label: str = "", offset: int = 0) -> list[dict[str, Any]]:
    def words(column: str, unknown: str) -> pl.Expr:
        return pl.col(column).cast(pl.String).fill_null(unknown)

    def number(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.Int64).fill_null(0)

    ends = words("source_memory", "unknown"), pl.lit(" → "), words("destination_memory", "unknown")
    moved = pl.concat_str(words("direction", "copy"), pl.lit(" "), *ends)
    name = pl.when(is_transfer()).then(moved).otherwise(pl.col("name").cast(pl.String))
    operations = _spans(
        trace.operations,
        pl.col("kind").cast(pl.String),
        name,
        (GPU_ROWS + offset + number("device"), number("stream")),
        pl.struct("bytes", "correlation"),
    )
    calls = _spans(
        trace.calls,
        pl.lit("call"),
        pl.col("name").cast(pl.String),
        (number("process") + offset, number("thread")),
        pl.struct("correlation", pl.col("waits_for").cast(pl.String).alias("waits for")),
    )
    return [*_row_names(trace, label, offset), *operations, *calls]


def _spans(
    rows: pl.DataFrame, kind: pl.Expr, name: pl.Expr, place: tuple[pl.Expr, pl.Expr], about: pl.Expr
) -> list[dict[str, Any]]:
    events = rows.select(
        ph=pl.lit("X"),
        cat=kind,
        name=name.fill_null(kind),
        pid=place[0],
        tid=place[1],
        ts=pl.col("start_ns") / 1e3,
        dur=(pl.col("end_ns") - pl.col("start_ns")) / 1e3,
        args=about,
    ).to_dicts()
    for event in events:
        event["args"] = {key: value for key, value in event["args"].items() if value is not None}
    return events


def _row_names(trace: Trace, label: str, offset: int) -> list[dict[str, Any]]:
    names = []
    streams = trace.operations.select("device", "stream").unique().sort("device", "stream")
    for device, stream in streams.iter_rows():
        gpu = GPU_ROWS + offset + (device or 0)
        names += [("process_name", gpu, 0, f"{label}GPU {device}")]
        names += [("thread_name", gpu, stream or 0, f"stream {stream}")]
    for process in trace.calls["process"].unique().sort():
        names.append(("process_name", offset + (process or 0), 0, f"{label}process {process}"))
    return [
        {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
        for what, process, thread, name in dict.fromkeys(names)
    ]
