"""Large Nsight Systems exports as sums: operations as times and lanes, and of the calls those that are asked for.

Only tables without anything to sort out are read so: every time, process, correlation and name is sound, operations
stand in order of time. For all others `scanned` gives None, and the whole tables are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.trace import _rows
from busfare.trace.api_calls import BLOCKING_COPY, SYMBOL_COPY, plain_name
from busfare.trace.nsys_texts import as_places
from busfare.trace.row_lookup import SPARSE
from busfare.trace.sqlite_scan import CallScan, Operations, PairMarks, Scanner, UnreadableError
from busfare.trace.summed import LANE_KEYS, CallsLeftOut, Summed
from busfare.trace.table_source import Codes, TableSource

__all__ = ["SUBMITTED", "Operations", "Part", "Scan", "scan", "summed"]

#: Calls whose operations may be asked for, with the mark of their pairs.
SUBMITTED = {SYMBOL_COPY: 2, BLOCKING_COPY: 4}
HAS_CALL, KEPT = 1, 128
#: Further calls that may be asked for.
WAITS = "Synchronize"
LARGEST = 1 << 44
#: Correlations may begin as far on, for they go on counting between recordings.
FAR = 1 << 24
TIMED = ("start", "end", "globalPid", "correlationId")


@dataclass(frozen=True, eq=False)
class Scan:
    """What was found in the tables; a part is a table of operations, with the names of its columns that tell lanes apart."""

    path: Path
    calls: CallScan
    plain: pl.Series  # names of calls, by their codes
    parts: list[tuple[str, Operations]]


def scan(
    tables: TableSource,
    less: int,
    process: tuple[int, int],
    calls: str,
    operations: dict[str, tuple[tuple[str, ...], str | None]],
    strings: pl.DataFrame,
    ids: pl.DataFrame,
) -> Scan | None:
    """Scans the tables that are there; None if one of them is not to be read so.

    `operations`: of each table the columns that tell lanes apart, and the one of sizes. `ids`: processes and correlations
    of calls that are to be kept.
    """
    direct = getattr(tables, "direct", None)
    change = as_places(tables, calls, "nameId", strings).get("nameId")
    most = SPARSE * (tables.most_rows(calls) or 0) + FAR
    if direct is None or change is None or not isinstance(change.codes, Codes) or ids["process"].null_count():
        return None
    codes = change.codes
    plain = strings.select(plain_name(pl.col("value"))).to_series()
    asked = PairMarks(most)
    within = ids.filter(pl.col("correlation").is_between(1, most))
    scanner = Scanner(direct, less, process)
    try:
        asked.mark(within["process"].to_numpy(), within["correlation"].to_numpy())
        found = scanner.calls(
            calls,
            ("start", "end", "globalTid", "correlationId", "nameId"),
            (codes.least, codes.of.astype(np.uint32), codes.otherwise),
            _marks(plain),
            asked,
        )
        parts = [
            (table, scanner.operations(table, TIMED, keys, size, LARGEST, found.marks))
            for table, (keys, size) in operations.items()
            if table in tables.names
        ]
    except UnreadableError:
        return None
    return Scan(tables.path, found, plain, [(table, part) for table, part in parts if len(part.starts)])


def _marks(plain: pl.Series) -> NDArray[np.uint8]:
    """Of each call by its name, and of one without a name."""
    marks = np.full(len(plain) + 1, HAS_CALL, np.uint8)
    for pattern, mark in (SUBMITTED | {WAITS: 0}).items():
        marks[:-1][plain.str.contains(pattern).to_numpy()] |= mark | KEPT
    return marks


@dataclass(frozen=True, eq=False)
class Part:
    """A table of operations. `lanes`: its lanes as rows of operations; `names`: of kernels, those of its lanes."""

    scanned: Operations
    lanes: pl.DataFrame
    names: pl.Series | None


def summed(parts: list[Part], found: Scan, first: int) -> Summed:
    """The parts as one, in order of time, counted from `first`."""
    keys = pl.concat([part.lanes.select(*LANE_KEYS, "peer_device", "copy_count") for part in parts])
    number_of, first_rows = _numbered(parts, keys.select(LANE_KEYS))
    rows = sum(len(part.scanned.starts) for part in parts)
    starts, ends, sizes = (np.empty(rows, np.int64) for _ in range(3))
    lane_of = np.empty(rows, np.uint32)
    ends_of_parts = np.cumsum([part.lanes.height for part in parts])[:-1]
    *submitted, sized = _rows.merge_timed(
        [
            (s.starts, s.ends, s.lane_of, s.sizes, numbers.tolist(), s.lanes.marks.tolist())
            for s, numbers in zip(
                (part.scanned for part in parts), np.split(number_of, ends_of_parts), strict=True
            )
        ],
        first,
        list(SUBMITTED.values()),
        starts,
        ends,
        lane_of,
        sizes,
    )
    return Summed(
        lanes=keys[first_rows].with_columns(**_sums(parts, number_of, len(first_rows))),
        lane_of=lane_of,
        starts=starts,
        ends=ends,
        sizes=sizes,
        sized=sized,
        names=_names(parts),
        submitted=dict(zip(SUBMITTED, submitted, strict=True)),
        orphans=sum(_orphans(part) for part in parts),
        first_ns=first,
        calls=_left_out(found, first),
    )


def _numbered(parts: list[Part], keys: pl.DataFrame) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The number of each part's lanes, alike in `keys`, in order of the first operation; and a lane of each number."""
    begins = np.concatenate([part.scanned.starts[part.scanned.lanes.first_row] for part in parts])
    number = np.repeat(np.arange(len(parts)), [part.lanes.height for part in parts])
    order = np.lexsort((np.concatenate([part.scanned.lanes.first_row for part in parts]), number, begins))
    known: dict[tuple[object, ...], int] = {}
    first_rows: list[int] = []
    number_of = np.empty(len(order), np.uint32)
    rows = keys.rows()
    for lane in order.tolist():
        at = known.setdefault(rows[lane], len(known))
        number_of[lane] = at
        if at == len(first_rows):
            first_rows.append(lane)
    return number_of, np.array(first_rows, np.int64)


def _sums(parts: list[Part], number_of: NDArray[np.uint32], count: int) -> dict[str, NDArray[np.int64]]:
    sums = {}
    for name in ("count", "ns", "bytes", "rated_bytes", "rated_ns"):
        made = np.zeros(count, np.int64)
        np.add.at(made, number_of, np.concatenate([getattr(part.scanned.lanes, name) for part in parts]))
        sums[name] = made
    return sums


def _orphans(part: Part) -> int:
    # The driver makes migrations without a call.
    asks = (part.lanes["kind"].cast(pl.String) != "migration").fill_null(False).to_numpy()
    return int(part.scanned.lanes.count[asks & (part.scanned.lanes.marks == 0)].sum())


def _names(parts: list[Part]) -> pl.DataFrame:
    some = [
        part.lanes.select(pl.col("kind").cast(pl.String)).with_columns(
            name=part.names, count=part.scanned.lanes.count, ns=part.scanned.lanes.ns
        )
        for part in parts
        if part.names is not None
    ]
    kinds = {"kind": pl.String, "name": pl.String, "count": pl.Int64, "ns": pl.Int64}
    return pl.concat([pl.DataFrame(schema=kinds), *some]).group_by("kind", "name").agg(pl.all().sum())


def _left_out(scanned: Scan, first: int) -> CallsLeftOut:
    calls = scanned.calls
    return CallsLeftOut(len(calls), calls.first - first, calls.last - first, partial(_during, scanned, first))


def _during(scanned: Scan, first: int, start: int, end: int) -> pl.DataFrame:
    try:
        starts, ends, _, _, codes = scanned.calls.during(start + first, end + first)
    except UnreadableError as error:
        raise InputError(f"{scanned.path}: changed while it was read ({error}); start again") from None
    if len(codes) and int(codes.max()) >= len(scanned.plain):
        raise InputError(f"{scanned.path}: changed while it was read; start again")
    names = scanned.plain[codes].cast(pl.Categorical)
    return pl.DataFrame({"start_ns": starts - first, "end_ns": ends - first, "name": names}).sort(
        "start_ns", maintain_order=True
    )
