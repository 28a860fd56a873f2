"""What nvprof prints as CSV: `--print-gpu-trace --csv`, `--print-api-trace --csv`, or both in one table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace import api_calls
from busfare.trace.model import Omissions, Trace, name_process
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.cupti import DIRECTION_NAMED, MEMORY_NAMED, shared_bytes
from busfare.trace.readers.tables import INT, TEXT, meant
from busfare.trace.tables import CALLS, DEVICES, DIRECTIONS, LAUNCH_SHAPE, MEMORY_KINDS, OPERATIONS, conform

HEADER = '"Start","Duration",'
GIVE = "give what `nvprof --csv --print-gpu-trace --print-api-trace ./app` prints, or the file of `nvprof -o FILE ./app`"
#: Of the process that nvprof's lines between tables are about; there is none in what it prints of a file.
OF_PROCESS = re.compile(r"==(\d+)== ")
#: Of a copy, or a migration of managed memory.
COPY = r"^\[(CUDA memcpy|Unified Memory Memcpy) (\w+)\]$"
#: What else nvprof says of managed memory: page faults, thrashing, throttling.
MANAGED_EVENT = r"^\[Unified Memory "
SET = "[CUDA memset]"
#: A row tells 1028 bytes as 1.003906 KB, and their rate likewise.
BYTES_OF = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
NANOSECONDS_OF = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
#: The columns that are read, by their names here.
COLUMNS = {
    "Start": "start", "Duration": "duration", "Grid X": "grid_x", "Grid Y": "grid_y", "Grid Z": "grid_z",
    "Block X": "block_x", "Block Y": "block_y", "Block Z": "block_z", "Registers Per Thread": "registers",
    "Static SMem": "static_shared", "Dynamic SMem": "dynamic_shared", "Size": "size", "SrcMemType": "source",
    "DstMemType": "destination", "Device": "gpu", "Context": "context", "Stream": "stream", "Dst Dev": "peer",
    "Unified Memory": "managed_size", "Name": "name", "Correlation_ID": "correlation",
}  # fmt: skip
SIZES = ("static_shared", "dynamic_shared", "size", "managed_size")


def read(path: Path) -> Trace:
    """Reads what nvprof printed. Raises InputError if there is no table of single calls or operations in it."""
    omissions = Omissions()
    text = b"".join(pieces(path, omissions)).decode("utf-8", "replace")
    found = [_columns(*table, omissions) for table in _tables(text, omissions)]
    if not found:
        raise InputError(f"{path}: of nvprof, but without a table of every call or operation as CSV; {GIVE}")
    rows = pl.concat(found).with_columns(
        pl.coalesce("correlation", pl.col("name").str.extract(r" \[(\d+)\]$").cast(INT, strict=False)),
        pl.col("name").str.replace(r" \[\d+\]$", ""),
    )
    trace = Trace(
        path=path,
        format="nvprof",
        producer="nvprof (CSV)",
        operations=_operations(rows.filter(pl.col("gpu").is_not_null()), omissions),
        calls=_calls(rows.filter(pl.col("gpu").is_null())),
        devices=conform(rows.drop_nulls("device").unique("device", maintain_order=True).select(
            "device", name="gpu_name"), DEVICES),
    )  # fmt: skip
    if rows["process"].n_unique() == 1:
        name_process(trace)
    trace.omissions = omissions.list()
    return trace


def _tables(
    text: str, omissions: Omissions
) -> Iterator[tuple[list[str], list[str], list[list[str]], int | None]]:
    """Of each table its columns, their units, its rows and process. The program's own lines may stand between them."""
    process: int | None = None
    of_table = None
    lines = iter(io.StringIO(text))
    header: list[str] | None = None
    units: list[str] = []
    rows: list[list[str]] = []
    for line in lines:
        if named := OF_PROCESS.match(line):
            process = int(named[1])
        if line.startswith(HEADER):
            if header:
                yield header, units, rows, of_table
            header, rows, of_table = _row(line), [], process
            units = _row(next(lines, ""))
        elif header:
            row = _row(line)
            if len(row) == len(header):
                rows.append(row)
            elif not line.endswith("\n"):
                omissions.add("truncated", "the file ends in the middle: what it held beyond is missing")
    if header:
        yield header, units, rows, of_table


def _row(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _columns(
    header: list[str], units: list[str], rows: list[list[str]], process: int | None, omissions: Omissions
) -> pl.DataFrame:
    """A table as columns of numbers: ns and bytes."""
    frame = pl.DataFrame(dict(zip(_unlike(header), zip(*rows, strict=True), strict=True)) if rows else {})
    known = {said: name for said, name in COLUMNS.items() if said in frame.columns}
    frame = conform(frame.rename(known), dict.fromkeys(COLUMNS.values(), TEXT))
    frame = frame.with_columns(pl.when(~pl.all().is_in(["", "-"])).then(pl.all()))
    unit_of = {COLUMNS.get(said): unit for said, unit in zip(header, units, strict=False)}
    if unit_of.get("start") == "s":
        omissions.add(
            "coarse-times", "times of microseconds only, for nvprof printed them in seconds", len(rows)
        )
    if unit_of.get("size") == "GB":
        omissions.add(
            "coarse-sizes", "sizes to about a kilobyte only, for nvprof printed them in gigabytes", len(rows)
        )
    times = {name: _time(name, unit_of.get(name)) for name in ("start", "duration")}
    whole = [
        name
        for name in COLUMNS.values()
        if name not in (*SIZES, *times, "source", "destination", "gpu", "name")
    ]
    gpu = pl.col("gpu").str.extract_groups(r"^(.*?)(?: \((\d+)\))?$")
    return frame.with_columns(
        **times,
        **{name: _bytes(name, unit_of.get(name)) for name in SIZES},
        **{
            name: pl.col(name).str.extract(r"^(\d+)$").cast(INT, strict=False)
            for name in whole
            if name != "peer"
        },
        peer=pl.col("peer").str.extract(r"(\d+)\)?$").cast(INT, strict=False),
        gpu_name=gpu.struct.field("1"),
        device=gpu.struct.field("2").cast(INT, strict=False),
        process=pl.lit(process, INT),
    )


def _unlike(header: list[str]) -> list[str]:
    """Names of columns, none twice."""
    return [name if header.index(name) == at else f"{name} {at}" for at, name in enumerate(header)]


def _time(name: str, unit: str | None) -> pl.Expr:
    """Whole ns; null where the unit is none of nvprof's."""
    scale = NANOSECONDS_OF.get(unit or "")
    return (pl.col(name).cast(pl.Float64, strict=False) * scale).round().cast(INT, strict=False)


def _bytes(name: str, unit: str | None) -> pl.Expr:
    """Bytes, of a number in the column's unit, or with its own behind it."""
    parts = pl.col(name).str.extract_groups(r"^([\d.]+) ?([KMG]?B)?$")
    scale = pl.coalesce(parts.struct.field("2"), pl.lit(unit, TEXT)).replace_strict(BYTES_OF, default=None)
    size = parts.struct.field("1").cast(pl.Float64, strict=False) * scale
    return size.round().cast(INT, strict=False)


def _operations(rows: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    name = pl.col("name")
    copied = name.str.extract_groups(COPY)
    frame = rows.with_columns(what=copied.struct.field("1"), ends=copied.struct.field("2"))
    migrated = pl.col("what").str.starts_with("Unified").fill_null(False)
    other = name.str.contains(MANAGED_EVENT).fill_null(False) & ~migrated
    omissions.add_if(
        frame.filter(other).height,
        "managed-memory-events",
        "page faults and the like of managed memory: left out; the migrations are there",
    )
    copied_or_moved = pl.col("what").is_not_null()
    kind = pl.when(migrated).then(pl.lit("migration")).when(copied_or_moved).then(pl.lit("copy"))
    source, destination = (meant(end, MEMORY_NAMED, MEMORY_KINDS) for end in ("source", "destination"))
    managed = pl.when(migrated).then(pl.lit("managed"))
    frame = frame.filter(~other).with_columns(
        kind=kind.when(name == SET).then(pl.lit("set")).otherwise(pl.lit("kernel")),
        direction=meant("ends", DIRECTION_NAMED, DIRECTIONS),
        start_ns="start",
        end_ns=pl.col("start") + pl.col("duration"),
        bytes=pl.coalesce("size", "managed_size"),
        source_memory=managed.when(name != SET).then(source),
        destination_memory=managed.when(name == SET).then(source).otherwise(destination),
        shared_bytes=shared_bytes("static_shared", "dynamic_shared"),
        copy_count=pl.when(copied_or_moved).then(1),
        name=pl.when(name == SET)
        .then(pl.lit("memset"))
        .when(~copied_or_moved)
        .then(name.fill_null("(unnamed)")),
    )
    frame = frame.with_columns(peer_device=pl.when(pl.col("direction") == "p2p").then("peer"))
    omissions.add_if(
        frame.filter(pl.col("what").is_not_null() & pl.col("direction").is_null()).height,
        "unknown-direction",
        "copies whose name does not say their direction: counted, with no direction",
    )
    return conform(frame, OPERATIONS, LAUNCH_SHAPE)


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    plain = api_calls.plain_name(pl.col("name"))
    frame = rows.with_columns(start_ns="start", end_ns=pl.col("start") + pl.col("duration"), name=plain)
    return conform(frame.with_columns(waits_for=api_calls.waits_for(pl.col("name"))), CALLS)
