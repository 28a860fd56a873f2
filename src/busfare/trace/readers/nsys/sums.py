"""What a scan of a very large Nsight Systems export gives, as `Sums`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.trace import _columns
from busfare.trace._sqlite_columns import CallScan, OperationScan, UnreadableError
from busfare.trace.api_calls import plain_name
from busfare.trace.columns import numbered, plain
from busfare.trace.lanes import LANE_KEYS, Lanes, Sums
from busfare.trace.model import Omissions
from busfare.trace.readers.nsys.rows import copies, placed, sets
from busfare.trace.readers.nsys.scan import CARRIES, COPIES, HAS_CALL, KERNELS, LANES, SUBMITTED, Scanning
from busfare.trace.readers.tables import INT
from busfare.trace.tables import OPERATIONS, conform
from busfare.trace.words import CLASSES

#: What lanes are alike in: they are priced by all of it.
KEYS = ("kind", *LANE_KEYS[1:], "peer_device", "copy_count")
SUMS = ("first_row", "count", "ns", "bytes", "rated_bytes", "rated_ns")


#: The scan of a table of operations; and a row a lane: KEYS, marks, first_ns, and its sums.
Part = tuple[OperationScan, pl.DataFrame]


def sums_of(
    path: Path, scanning: Scanning, strings: pl.DataFrame, omissions: Omissions
) -> tuple[Sums, pl.DataFrame] | None:
    """The operations, and the calls that are kept, as in their table; None if they are not just to be added up."""
    scan, keys = scanning.result(), scanning.keys
    if scan is None:
        return None
    scans = [(table, one) for table, one in zip(keys, scan.operations, strict=True) if len(one)]
    rows = len(scan.calls) + sum(len(one) for _, one in scans)
    if not scans or not len(scan.calls) or rows <= scanning.above:
        return None
    parts = [_part(table, one, keys[table], omissions) for table, one in scans]
    # What several ranks communicate is matched operation by operation.
    lanes = pl.concat(lanes.select("kind", "process", "device") for _, lanes in parts)
    if (lanes["kind"] == "communication").any() and lanes.select(
        pl.struct("process", "device").n_unique() > 1
    ).item():
        return None
    begin, end = min(int(one.starts[0]) for _, one in scans), max(one.last for _, one in scans)
    # Times of two clocks, and what is not known, are repaired elsewhere.
    if omissions.counts or max(begin, scan.calls.first) > min(end, scan.calls.last):
        return None
    first = min(begin, scan.calls.first)
    names = strings.select(plain_name(pl.col("value"))).to_series()
    columns = ("start", "end", "process", "correlationId", "nameId")
    kept = pl.DataFrame(dict(zip(columns, scan.calls.kept, strict=True)))
    sums = _merged(
        parts,
        first,
        names=_names(scans, strings),
        last_ns=max(end, scan.calls.last) - first,
        first_call_ns=scan.calls.first - first,
        calls_during=partial(_during, path, scan.calls, names, first),
    )
    return sums, kept


def _part(table: str, scan: OperationScan, given: list[str], omissions: Omissions) -> Part:
    """A table with its lanes as rows of operations. `given`: keys that the table has."""
    values, known, marks, sums = scan.lanes
    keys = pl.DataFrame(
        {
            name: pl.select(
                pl.when(pl.Series(known >> np.uint32(bit) & 1 == 1)).then(pl.Series(column))
            ).to_series()
            for bit, (name, column) in enumerate(zip(["process", *given], values, strict=True))
        }
    )
    keys = keys.with_columns(
        pl.lit(None, INT).alias(name) for name in LANES[table][0] if name not in keys.columns
    )
    lanes = placed(keys).with_columns(kind=pl.lit("kernel"))
    if table != KERNELS:
        lanes = copies(keys, omissions) if table == COPIES else sets(keys)
    kind = pl.when(pl.Series(marks & CARRIES != 0)).then(pl.lit("communication")).otherwise(pl.col("kind"))
    lanes = conform(lanes, OPERATIONS).with_columns(pl.col("kind").cast(pl.String))
    lanes = lanes.select(kind.cast(CLASSES).alias("kind"), *KEYS[1:])
    added = dict(zip(SUMS, sums, strict=True))
    return scan, lanes.with_columns(marks=marks, first_ns=scan.starts[added["first_row"]], **added)


def _merged(parts: list[Part], first: int, **others: Any) -> Sums:
    """The parts as one, in order of time, counted from `first`, with the `others` that `Sums` has."""
    lanes = pl.concat(one.with_columns(part=pl.lit(number)) for number, (_, one) in enumerate(parts))
    in_order = lanes.with_row_index("lane").sort("first_ns", "part", "first_row")
    numbers, _ = numbered([column for name in KEYS for column in plain(in_order[name])])
    number_of = np.empty(len(numbers), np.uint32)
    number_of[in_order["lane"].to_numpy()] = numbers
    groups = (
        in_order.with_columns(number=numbers)
        .group_by("number", maintain_order=True)
        .agg(pl.col(KEYS).first(), pl.col(SUMS[1:]).sum())
        .with_columns(seconds=pl.col("ns") * 1e-9, rated_seconds=pl.col("rated_ns") * 1e-9)
    )
    rows = sum(len(scan) for scan, _ in parts)
    starts, ends, sizes = (np.empty(rows, np.int64) for _ in range(3))
    lane_of = np.empty(rows, np.uint32)
    sized = np.empty(sum(len(scan) for scan, _ in parts if scan.sizes is not None), np.uint32)
    of_parts = np.split(number_of, np.cumsum([one.height for _, one in parts])[:-1])
    timed: list[_columns.Part] = [
        (scan.starts, scan.ends, scan.lane_of, scan.sizes, own.tolist(), one["marks"].to_list())
        for (scan, one), own in zip(parts, of_parts, strict=True)
    ]
    submitted = _columns.merge_timed(
        timed, first, list(SUBMITTED.values()), starts, ends, lane_of, sizes, sized
    )
    sums = ("count", "seconds", "bytes", "rated_bytes", "rated_seconds")
    # The driver makes migrations without a call.
    alone = lanes.filter((pl.col("kind") != "migration") & (pl.col("marks") & HAS_CALL == 0))
    return Sums(
        lanes=Lanes(groups.select(*LANE_KEYS, *sums), lane_of, starts, ends, sizes, sized),
        details=groups.select("peer_device", "copy_count"),
        submitted=dict(zip(SUBMITTED, submitted, strict=True)),
        orphans=int(alone["count"].sum()),
        first_ns=first,
        **others,
    )


def _names(scans: list[tuple[str, OperationScan]], strings: pl.DataFrame) -> pl.DataFrame:
    """Name, count and ns of kernels; codes of names are rows of the strings."""
    counts, ns = dict(scans)[KERNELS].names if KERNELS in dict(scans) else (np.zeros(0, np.int64),) * 2
    present = np.flatnonzero(counts)
    return pl.DataFrame({"name": strings["value"][present], "count": counts[present], "ns": ns[present]})


def _during(path: Path, calls: CallScan, texts: pl.Series, first: int, start: int, end: int) -> pl.DataFrame:
    """Start, end and name of the calls that run then; times count from `first`. `texts`: names by their codes."""
    try:
        starts, ends, _, _, codes = calls.during(start + first, end + first)
    except UnreadableError as error:
        raise InputError(f"{path}: changed while it was read ({error}); start again") from None
    if len(codes) and int(codes.max()) >= len(texts):
        raise InputError(f"{path}: changed while it was read; start again")
    names = texts[codes].cast(pl.Categorical)
    return pl.DataFrame({"start_ns": starts - first, "end_ns": ends - first, "name": names}).sort(
        "start_ns", maintain_order=True
    )
