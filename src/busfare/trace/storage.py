"""What reads and writes of files add up to, beside the GPU's work or not, and what is read or mapped for copies to it."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from busfare.trace.lanes import Union
from busfare.trace.model import Trace

NS = 1e-9
#: Reads of the host and of cuFile.
READS = pl.col("kind").is_in(["read", "cufile-read"])
MOST_FILES = 10
#: No process has memory above it; the sum of an address and a size stays within 64 bits.
HIGHEST = 1 << 62


class StorageKind(Struct):
    """Reads or writes of one kind. `seconds` is the time in which at least one was under way: beside work of the GPU,
    exposed (the GPU does nothing), or outside the run, before its first call or behind its last one.
    """

    kind: str
    count: int
    bytes: int
    seconds: float
    bytes_per_second: float | None
    beside_gpu_seconds: float
    exposed_seconds: float
    outside_seconds: float


class ReadInto(Struct):
    """Reads of the host into memory of one kind, from which a later copy to the GPU went; `memory` None: none did."""

    memory: str | None
    count: int
    bytes: int


class StoredFile(Struct):
    """A file; `seconds` are sums over its reads and writes. `path` None: not known."""

    path: str | None
    count: int
    bytes: int
    seconds: float


class MappedFile(Struct):
    """A file that was mapped into memory, and the copies to the GPU that came from there: `count`, `bytes` and `seconds`.
    `path` None: not known.
    """

    path: str | None
    mapped_bytes: int
    count: int
    bytes: int
    seconds: float
    bytes_per_second: float | None


class Storage(Struct):
    """Reads and writes of files in a run; of `mapped` ones those that copies to the GPU came from."""

    by_kind: list[StorageKind]
    read_into: list[ReadInto]
    files: list[StoredFile]
    mapped: list[MappedFile]


def storage_of(trace: Trace) -> Storage | None:
    """What `trace.storage` adds up to; None where it is empty."""
    rows = trace.storage.filter(pl.col("kind") != "mapped")
    if trace.storage.is_empty():
        return None
    kinds = [
        _kind(trace, str(kind), part)
        for (kind,), part in rows.group_by("kind", maintain_order=True)
        if part.height
    ]
    reads = rows.filter(pl.col("kind") == "read").with_columns(memory=read_into(trace))
    memories = reads.group_by("memory").agg(count=pl.len(), bytes=pl.col("bytes").sum())
    files = rows.group_by("path").agg(
        count=pl.len(),
        bytes=pl.col("bytes").sum(),
        seconds=(pl.col("end_ns") - pl.col("start_ns")).sum() * NS,
    )
    files = files.with_columns(pl.col("path").cast(pl.String)).sort(
        "seconds", "path", descending=[True, False]
    )
    return Storage(
        sorted(kinds, key=lambda each: -each.seconds),
        [ReadInto(**row) for row in memories.sort("bytes", "memory", descending=[True, False]).to_dicts()]
        if _copies_in(trace) is not None
        else [],
        [StoredFile(**row) for row in files[:MOST_FILES].to_dicts()],
        _mapped(trace)[:MOST_FILES],
    )


def _mapped(trace: Trace) -> list[MappedFile]:
    """By file, those that most bytes were copied from first."""
    copies = _copies_in(trace)
    if copies is None:
        return []
    copies = copies.sort("source_address")
    sources, starts = copies["source_address"].to_numpy().astype(np.int64), copies["start_ns"].to_numpy()
    process = copies["process"].to_numpy()
    mapped = trace.storage.filter(pl.col("kind") == "mapped")
    columns = ("path", "process", "start_ns", "end_ns", "address", "bytes")
    chosen, of_file = [], []
    for path, owner, start, end, address, size in mapped.select(columns).iter_rows():
        begin = min(address, HIGHEST)
        rows = np.arange(*np.searchsorted(sources, [begin, begin + size]))
        meanwhile = (starts[rows] >= start) & (starts[rows] < (HIGHEST if end is None else end))
        rows = rows[meanwhile & (process[rows] == owner)]
        chosen.append(rows)
        of_file += [path] * len(rows)
    took = copies[np.concatenate([*chosen, np.empty(0, np.intp)])].with_columns(
        path=pl.Series(of_file, dtype=pl.String), seconds=(pl.col("end_ns") - pl.col("start_ns")) * NS
    )
    sums = took.group_by("path").agg(
        count=pl.len(), bytes=pl.col("bytes").sum(), seconds=pl.col("seconds").sum()
    )
    whole = mapped.group_by(pl.col("path").cast(pl.String)).agg(mapped_bytes=pl.col("bytes").sum())
    sums = sums.join(whole, on="path", nulls_equal=True).with_columns(
        bytes_per_second=pl.when(pl.col("seconds") > 0).then(pl.col("bytes") / pl.col("seconds"))
    )
    return [MappedFile(**row) for row in sums.sort("bytes", "path", descending=[True, False]).to_dicts()]


def _copies_in(trace: Trace) -> pl.DataFrame | None:
    """Copies to the GPU from memory of the host whose address is known; None where the trace has no addresses."""
    if "source_address" not in trace.operations.columns:
        return None
    usable = (
        (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & (pl.col("source_address") < HIGHEST)
    )
    return trace.operations.filter(usable & (pl.col("bytes") > 0)).drop_nulls("source_memory")


def _kind(trace: Trace, kind: str, rows: pl.DataFrame) -> StorageKind:
    whole = Union.of(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    inside = _inside(trace, rows)
    exposed, busy, total = exposed_ns(trace, rows) * NS, inside.length() * NS, whole.length() * NS
    moved = int(rows["bytes"].sum())
    rate = moved / total if total else None
    return StorageKind(kind, rows.height, moved, total, rate, busy - exposed, exposed, total - busy)


def _inside(trace: Trace, rows: pl.DataFrame) -> Union:
    """The part of the run in which at least one of `rows` is under way."""
    last = round(trace.makespan_seconds / NS)
    starts, ends = (rows[name].to_numpy().clip(0, last) for name in ("start_ns", "end_ns"))
    return Union.of(starts[ends > starts], ends[ends > starts])


def exposed_ns(trace: Trace, rows: pl.DataFrame) -> int:
    """How long, in the run, one of these rows of `trace.storage` is under way and the GPU does nothing."""
    return _inside(trace, rows).minus(trace.lanes.union(pl.lit(True)))


def read_into(trace: Trace) -> pl.Series:
    """Of each `read` of the storage, the kind of memory that it went to, if a later copy to the GPU comes from there."""
    reads = trace.storage.filter(pl.col("kind") == "read")
    found = np.full(reads.height, None, object)
    copies = _copies_in(trace)
    if copies is not None:
        begin = reads["address"].clip(0, HIGHEST).to_numpy().astype(np.int64)
        end, done = begin + reads["bytes"].to_numpy(), reads["end_ns"].to_numpy()
        process = reads["process"].to_numpy()
        for (owner, memory), part in copies.group_by("process", "source_memory"):
            starts, ends, last = _sources(part)
            first = np.searchsorted(ends, begin, side="right")
            behind = np.searchsorted(starts, end, side="left")
            found[(process == owner) & (_latest(last, first, behind) >= done)] = memory
    return pl.Series("memory", found.tolist(), dtype=pl.String)


def _sources(copies: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stretches of memory that copies come from: where each begins and ends, and when the last copy from it began."""
    copies = copies.sort("source_address")
    begin = copies["source_address"].to_numpy().astype(np.int64)
    end = np.maximum.accumulate(begin + copies["bytes"].to_numpy())
    first = np.flatnonzero(np.append(True, begin[1:] >= end[:-1]))
    return (
        begin[first],
        np.maximum.reduceat(end, first),
        np.maximum.reduceat(copies["start_ns"].to_numpy(), first),
    )


def _latest(
    times: NDArray[np.int64], first: NDArray[np.int64], behind: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The greatest of `times[first:behind]`, the least there is where that is empty; shape of `first`."""
    of_powers = [times]  # the greatest of 1, 2, 4 … from each place on
    while (width := 1 << (len(of_powers) - 1)) < len(of_powers[-1]):
        of_powers.append(np.maximum(of_powers[-1][:-width], of_powers[-1][width:]))
    latest = np.full(len(first), np.iinfo(np.int64).min)
    power = np.frexp(np.maximum(behind - first, 1))[1] - 1
    for number, greatest in enumerate(of_powers):
        asked = (power == number) & (behind > first)
        latest[asked] = np.maximum(greatest[first[asked]], greatest[behind[asked] - (1 << number)])
    return latest
