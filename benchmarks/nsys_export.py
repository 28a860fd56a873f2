"""Writes large Nsight Systems exports: the columns, value ranges and proportions of real ones of two H100 processes.

    python -m benchmarks.nsys_export FILE [--rows N] [--interleaved] [--shape SHAPE]

Of every 27 rows 4 are copies, 8 kernels and 15 API calls, as 2, 4 and 7.5 million; tables have the layout of version
2025.6. Every operation has its call. Two processes drive a GPU each, and number their calls alike.
Other shapes: `orphans` (every third call is not there), `unsorted` (rows in no order, 50,000 names), `unmatched` (sparse
correlations, and no operation has its call), `names` (60,000 kernels), `processes` (100 of them).
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CALLS", "COPIES", "KERNELS", "SHAPES", "write"]

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"

#: Columns of each table, and what stands in those that are alike in all rows. What an operation has:
PLACE: dict[str, Any] = dict.fromkeys(
    ("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid"), 0
)
COLUMNS: dict[str, dict[str, Any]] = {
    KERNELS: PLACE
    | dict.fromkeys(("demangledName", "shortName", "mangledName", "launchType", "cacheConfig"), 1)
    | dict.fromkeys(("registersPerThread", "gridX", "gridY", "gridZ"), 1)
    | {"blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 0, "dynamicSharedMemory": 0}
    | {"localMemoryPerThread": 0, "localMemoryTotal": 250871808, "gridId": 0, "sharedMemoryExecuted": 32768}
    | {"graphNodeId": None, "sharedMemoryLimitConfig": 0, "qmdBulkReleaseDone": None}
    | {
        "qmdPreexitDone": None,
        "qmdLastCtaDone": None,
        "graphId": None,
        "clusterX": 0,
        "clusterY": 0,
        "clusterZ": 0,
    }
    | {"clusterSchedulingPolicy": 1, "maxPotentialClusterSize": 0, "maxActiveClusters": 0}
    | {"sharedMemoryRequestedPercentage": None, "tensorSizeMinusOneElements": "[]"},
    COPIES: PLACE
    | dict.fromkeys(
        ("bytes", "copyKind", "deprecatedSrcId", "srcKind", "dstKind", "srcDeviceId", "srcContextId")
    )
    | dict.fromkeys(("dstDeviceId", "dstContextId", "migrationCause", "graphNodeId", "virtualAddress"))
    | {"copyCount": 1},
    CALLS: dict.fromkeys(
        ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"), 0
    )
    | {"callchainId": None},
}
#: Called beside launches and copies, with how often, in thousandths.
REMAINING_CALLS = {
    "cudaStreamIsCapturing_v10000": 300,
    "cudaMemsetAsync_v3020": 220,
    "cudaEventRecord_v3020": 180,
    "cudaStreamWaitEvent_v3020": 170,
    "cudaEventQuery_v3020": 70,
    "cudaStreamSynchronize_v3020": 55,
    "cudaDeviceSynchronize_v3020": 5,
}
LAUNCHES = ("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "cudaLaunchKernelExC_v11060")
COPIED_AS = ("copyKind", "srcKind", "dstKind", "thousandths", "GB/s", "call")
COPIED = (
    (1, 1, 2, 270, 52, "cudaMemcpyAsync_v3020"),
    (1, 0, 2, 90, 9, "cudaMemcpyAsync_v3020"),
    (2, 2, 1, 110, 50, "cudaMemcpyAsync_v3020"),
    (2, 2, 0, 30, 8, "cudaMemcpy_v3020"),
    (8, 2, 2, 500, 1300, "cudaMemcpyAsync_v3020"),
)
SIZES = (4, 8, 256, 3072, 16384, 262144, 1 << 20, 4718592, 16 << 20, 95846400)
SIZE_WEIGHTS = (140, 220, 80, 120, 120, 140, 80, 60, 8, 1)
SHAPES = ("ordinary", "orphans", "unsorted", "unmatched", "names", "processes")
FIRST_PROCESS, NEXT_PROCESS = 281477392629760, 1 << 24
PROCESSES = {"processes": 100}
FIRST_CORRELATION = 2_610_000
CALL_EVERY_NS = 4_000
NAMES = {"names": 60_000, "unsorted": 50_000}
FEW_NAMES = 640
A_CHUNK = 1 << 17

Numbers = npt.NDArray[np.int64]


def write(path: Path, rows: int, interleaved: bool = False, shape: str = "ordinary") -> Path:
    """Writes an export of about `rows` rows and of a shape.

    `interleaved`: the tables' pages alternate, as in many real exports.
    """
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        _small_tables(database, shape)
        for table, names in COLUMNS.items():
            kinds = ("TEXT" if name == "tensorSizeMinusOneElements" else "INTEGER" for name in names)
            columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
            database.execute(f"CREATE TABLE {table} ({columns})")
        if interleaved:
            for chunk in _chunks(rows, 1 << 10):
                for table in COLUMNS:
                    _insert(database, table, chunk, shape)
        else:
            for table in COLUMNS:
                for chunk in _chunks(rows, A_CHUNK):
                    _insert(database, table, chunk, shape)
        database.execute("COMMIT")
    return path


def _small_tables(database: sqlite3.Connection, shape: str) -> None:
    database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", _strings(shape))
    database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
    database.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [("EXPORT_PRODUCT_VERSION", "2025.6.3.343"), ("EXPORT_SCHEMA_VERSION", "3.24.8")],
    )
    database.execute(
        "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, "
        "memoryBandwidth INTEGER, cuDevice INTEGER, asyncEngines INTEGER)"
    )
    database.executemany(
        "INSERT INTO TARGET_INFO_GPU VALUES (1, ?, 'NVIDIA H100 80GB HBM3', ?, 3352320000000, ?, 3)",
        [(0, "0000:19:00.0", 0), (1, "0000:3B:00.0", 1)],
    )


def _call_names() -> list[str]:
    return [*LAUNCHES, *{row[5] for row in COPIED}, *REMAINING_CALLS]


def _strings(shape: str) -> Iterator[tuple[int, str]]:
    """Names of calls, then of kernels: demangled, short, mangled; ids sparse, as nsys gives them."""
    for i, name in enumerate(sorted(_call_names())):
        yield 1_364_000 + i, name
    for i in range(NAMES.get(shape, FEW_NAMES)):
        shape = f"{(i * 7) % 128 + 1}x{(i * 13) % 256 + 1}"
        short = f"gemm_{i}" if i % 3 else f"elementwise_kernel_{i}"
        functors = "at::native::BinaryFunctor, " * (i % 9)
        yield (
            1_365_000 + 3 * i,
            f"void cutlass::device_kernel<flash::{short}<float, {shape}, {functors}>>(int)",
        )
        yield 1_365_001 + 3 * i, short
        yield 1_365_002 + 3 * i, f"_ZN7cutlass13device_kernelI{short}{'E' * (i % 60)}"


def _chunks(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """Numbers of the first call and of how many, of chunks; two thirds of 15/27 of the rows are calls of work."""
    calls = max(rows * 15 // 27, 1)
    for first in range(0, calls, most):
        yield first, min(most, calls - first)


def _insert(database: sqlite3.Connection, table: str, chunk: tuple[int, int], shape: str) -> None:
    columns = COLUMNS[table] | _columns(table, *chunk, shape)
    count = len(columns["start"])
    rows = [
        *zip(
            *(v.tolist() if isinstance(v, np.ndarray) else [v] * count for v in columns.values()), strict=True
        )
    ]
    if shape == "unsorted":
        rows = random.Random(chunk[0]).sample(rows, len(rows))
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def _columns(table: str, first: int, count: int, shape: str) -> dict[str, Numbers]:
    """Calls `first` to `first + count`, or the operations that they submit: what differs from row to row."""
    dice = np.random.default_rng([7, first])
    number = np.arange(first, first + count, dtype=np.int64)
    # 8 launches, 4 copies and 3 others in every 15, shuffled the same way everywhere.
    position = (number * 7 + number // 15) % 15
    launch, copy = position < 8, (position >= 8) & (position < 12)
    side = number % PROCESSES.get(shape, 2)  # which of the processes
    start = 60_111_000_000 + number * CALL_EVERY_NS + dice.integers(0, 900, count)
    correlation = FIRST_CORRELATION + number // PROCESSES.get(shape, 2)
    if shape == "unmatched":
        correlation = correlation * 1_000_003 + (table != CALLS)
    copied = {
        name: np.array(column) for name, column in zip(COPIED_AS, zip(*COPIED, strict=True), strict=True)
    }
    kind = dice.choice(len(COPIED), count, p=copied["thousandths"] / 1000)
    if table == CALLS:
        calls = _calls(dice, launch, copy, copied["call"][kind])
        calls |= {"start": start, "end": start + calls["end"], "correlationId": correlation}
        calls["globalTid"] = FIRST_PROCESS + NEXT_PROCESS * side + 144
        there = correlation % 3 != 0 if shape == "orphans" else np.full(count, True)
        return {name: column[there] for name, column in calls.items()}
    begun = start + 5_000 + dice.integers(0, 2_500, count)
    chosen = np.flatnonzero(launch if table == KERNELS else copy)
    start, side, correlation, kind = begun[chosen], side[chosen], correlation[chosen], kind[chosen]
    place = {"start": start, "deviceId": side % 8, "contextId": 1 + side, "streamId": 7 + side}
    place |= {"correlationId": correlation, "globalPid": FIRST_PROCESS + NEXT_PROCESS * side}
    if table == KERNELS:
        return place | _kernels(dice, start, side, correlation, shape)
    weights = np.array(SIZE_WEIGHTS) / sum(SIZE_WEIGHTS)
    size = np.array(SIZES)[dice.choice(len(SIZES), len(start), p=weights)]
    moving = (size / copied["GB/s"][kind]).astype(np.int64)
    ends = {"end": start + 1_200 + moving + dice.integers(0, 300, len(start)), "bytes": size}
    return place | ends | {name: copied[name][kind] for name in ("copyKind", "srcKind", "dstKind")}


def _calls(
    dice: np.random.Generator,
    launch: npt.NDArray[np.bool_],
    copy: npt.NDArray[np.bool_],
    copies: npt.NDArray[np.str_],
) -> dict[str, Numbers]:
    """Names, and in `end` how long they take."""
    count, ids = len(launch), {name: 1_364_000 + i for i, name in enumerate(sorted(_call_names()))}
    launches = np.array(LAUNCHES)[dice.choice(3, count, p=[0.85, 0.1, 0.05])]
    weights = np.array([*REMAINING_CALLS.values()]) / sum(REMAINING_CALLS.values())
    remaining = np.array([*REMAINING_CALLS])[dice.choice(len(weights), count, p=weights)]
    name = np.where(launch, launches, np.where(copy, copies, remaining))
    names, which = np.unique(name, return_inverse=True)
    return {
        "end": dice.lognormal(8.0, 0.5, count).astype(np.int64).clip(300, 3_900),
        "eventClass": (name == "cuLaunchKernelEx").astype(np.int64),
        "nameId": np.array([ids[str(text)] for text in names])[which],
    }


def _kernels(
    dice: np.random.Generator, start: Numbers, side: Numbers, correlation: Numbers, shape: str
) -> dict[str, Numbers]:
    count = len(start)
    # Few kernels make most launches.
    name = 1_365_000 + 3 * (NAMES.get(shape, FEW_NAMES) * dice.random(count) ** 3).astype(np.int64)
    length = dice.lognormal(8.2, 0.8, count).astype(np.int64).clip(900, 400_000)
    stream = np.where(dice.random(count) < 0.8, 7, 36) + side
    grid = dice.integers(1, 94_000, count)
    shared = np.array([0, 1024, 16384, 49152, 200_704])[dice.integers(0, 5, count)]
    named = {"demangledName": name, "shortName": name + 1, "mangledName": name + 2, "gridX": grid}
    named |= {"end": start + length, "streamId": stream, "dynamicSharedMemory": shared}
    return named | {
        "registersPerThread": dice.choice([18, 32, 40, 168], count),
        "gridId": correlation - 2_400_000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=13_500_000)
    parser.add_argument("--interleaved", action="store_true")
    parser.add_argument("--shape", choices=SHAPES, default="ordinary")
    options = parser.parse_args()
    write(options.file, options.rows, options.interleaved, options.shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())
