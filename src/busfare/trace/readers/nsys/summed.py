"""What a scan of a large Nsight Systems export found, as `Sums`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.trace import _columns
from busfare.trace._sqlite_columns import CallScan, Scan, UnreadableError
from busfare.trace.api_calls import plain_name
from busfare.trace.communication import CLASSES, is_communication
from busfare.trace.lanes import LANE_KEYS, CallsLeftOut, Lanes, Sums
from busfare.trace.omissions import Omissions
from busfare.trace.readers.nsys.columns import INT, placed
from busfare.trace.readers.nsys.names import COPIES, KERNELS
from busfare.trace.readers.nsys.operations import PEER_COPY, copies, sets
from busfare.trace.readers.nsys.scan import LANES, SUBMITTED
from busfare.trace.readers.nsys.texts import Texts
from busfare.trace.readers.tables.scanned import Operations, operations_of
from busfare.trace.tables import OPERATIONS, conform

__all__ = ["summed"]


@dataclass(frozen=True, eq=False)
class Part:
    """A table of operations. `lanes`: its lanes as rows of operations; `names`: of kernels, those of its lanes."""

    scanned: Operations
    lanes: pl.DataFrame
    names: pl.Series | None


@dataclass(frozen=True, eq=False)
class Calls:
    """Those that were scanned, `plain` their names by their codes."""

    path: Path
    scan: CallScan
    plain: pl.Series


def summed(
    path: Path,
    scan: Scan,
    keys: dict[str, list[str]],
    strings: pl.DataFrame,
    above: int,
    omissions: Omissions,
) -> tuple[Sums, pl.DataFrame] | None:
    """The operations, and the calls that are kept (the table's own columns); None if there is something to sort out.

    `keys`: those of `Scanning`. No more than `above` rows are to be sorted out, too.
    """
    scanned = {
        table: operations_of(one, given, LANES[table][0])
        for (table, given), one in zip(keys.items(), scan.operations, strict=True)
        if len(one)
    }
    rows = len(scan.calls) + sum(len(part.starts) for part in scanned.values())
    if not scanned or len(scan.calls) == 0 or rows <= above:
        return None
    parts = [_part(table, part, strings, omissions) for table, part in scanned.items()]
    begin = min(int(part.starts[0]) for part in scanned.values())
    end = max(part.last for part in scanned.values())
    # Times of two clocks, and what `_part` could not name, are sorted out elsewhere.
    if None in parts or omissions.found or max(begin, scan.calls.first) > min(end, scan.calls.last):
        return None
    first = min(begin, scan.calls.first)
    calls = Calls(path, scan.calls, strings.select(plain_name(pl.col("value"))).to_series())
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    kept = pl.DataFrame(dict(zip(columns, scan.calls.kept, strict=True)))
    return _merged([part for part in parts if part], calls, first), kept


def _part(table: str, scanned: Operations, strings: pl.DataFrame, omissions: Omissions) -> Part | None:
    """A table with its lanes as rows of operations.

    None if some have no name, or are not alike enough to be priced as one.
    """
    keys = pl.DataFrame({name: pl.Series(values, dtype=INT) for name, values in scanned.lanes.keys.items()})
    keys = keys.rename({"process": "globalPid"})
    names = None
    if table == KERNELS:
        named = Texts.of(keys["demangledName"], strings, "(unnamed kernel)")
        if named.any_unknown:
            return None
        names = named.texts[named.number[named.rows]]
        lanes = placed(keys).with_columns(kind=pl.lit("kernel"))
    elif table == COPIES:
        if ((keys["copyKind"] == PEER_COPY) | (keys["copyCount"] > 1)).any():
            return None
        lanes = copies(keys, omissions)
    else:
        lanes = sets(keys)
    named_so = pl.lit(False) if names is None else is_communication(pl.lit(names))
    return Part(scanned, conform(lanes, OPERATIONS).with_columns(communication=named_so), names)


def _merged(parts: list[Part], calls: Calls, first: int) -> Sums:
    """The parts as one, in order of time, counted from `first`."""
    keys = pl.concat(
        [part.lanes.select(*LANE_KEYS, "communication", "peer_device", "copy_count") for part in parts]
    )
    number_of, first_rows = _numbered(parts, keys.select(*LANE_KEYS, "communication"))
    rows = sum(len(part.scanned.starts) for part in parts)
    starts, ends, sizes = (np.empty(rows, np.int64) for _ in range(3))
    lane_of = np.empty(rows, np.uint32)
    sized = np.empty(
        sum(len(part.scanned.sizes) for part in parts if part.scanned.sizes is not None), np.uint32
    )
    ends_of_parts = np.cumsum([part.lanes.height for part in parts])[:-1]
    submitted = _columns.merge_timed(
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
        sized,
    )
    alike = keys[first_rows]
    kind = (
        pl.when("communication")
        .then(pl.lit("communication", CLASSES))
        .otherwise(pl.col("kind").cast(CLASSES))
    )
    groups = alike.select(kind.alias("kind"), *LANE_KEYS[1:]).with_columns(
        **_sums(parts, number_of, len(alike))
    )
    return Sums(
        lanes=Lanes(groups, lane_of, starts, ends, sizes, sized),
        details=alike.select("peer_device", "copy_count"),
        names=_names(parts),
        submitted=dict(zip(SUBMITTED, submitted, strict=True)),
        orphans=sum(_orphans(part) for part in parts),
        first_ns=first,
        last_ns=max(*(part.scanned.last for part in parts), calls.scan.last) - first,
        calls=_left_out(calls, first),
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


def _sums(parts: list[Part], number_of: NDArray[np.uint32], count: int) -> dict[str, NDArray[Any]]:
    sums: dict[str, NDArray[Any]] = {}
    for name in ("count", "ns", "bytes", "rated_bytes", "rated_ns"):
        made = np.zeros(count, np.int64)
        np.add.at(made, number_of, np.concatenate([getattr(part.scanned.lanes, name) for part in parts]))
        sums[name] = made
    return {
        "count": sums["count"],
        "seconds": sums["ns"] * 1e-9,
        "bytes": sums["bytes"],
        "rated_bytes": sums["rated_bytes"],
        "rated_seconds": sums["rated_ns"] * 1e-9,
    }


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


def _left_out(calls: Calls, first: int) -> CallsLeftOut:
    scan = calls.scan
    return CallsLeftOut(len(scan), scan.first - first, scan.last - first, partial(_during, calls, first))


def _during(calls: Calls, first: int, start: int, end: int) -> pl.DataFrame:
    try:
        starts, ends, _, _, codes = calls.scan.during(start + first, end + first)
    except UnreadableError as error:
        raise InputError(f"{calls.path}: changed while it was read ({error}); start again") from None
    if len(codes) and int(codes.max()) >= len(calls.plain):
        raise InputError(f"{calls.path}: changed while it was read; start again")
    names = calls.plain[codes].cast(pl.Categorical)
    return pl.DataFrame({"start_ns": starts - first, "end_ns": ends - first, "name": names}).sort(
        "start_ns", maintain_order=True
    )
