"""What the GPU did in a recorded process: kernels, copies, sets, migrations of managed memory, whole graphs."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace.columns import distinct
from busfare.trace.cupti_numbers import DIRECTION_OF, MEMORY_OF
from busfare.trace.grid import MOST_BLOCKS
from busfare.trace.omissions import Omissions
from busfare.trace.readers.recorded import copies as recorded_copies
from busfare.trace.readers.recorded.process import RecordedProcess, choice, nonzero
from busfare.trace.tables import (
    DIRECTIONS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_KERNELS,
    OPERATIONS_RECORDED,
    conform,
    empty,
)

__all__ = ["operations"]

#: CUpti_ActivityUnifiedMemoryCounterKind, those that move bytes.
MIGRATION_OF = {1: "h2d", 2: "d2h", 8: "d2d"}


def operations(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `OPERATIONS`, with what only recordings and kernels have."""
    parts = [
        _kernels(process),
        _copies(process, omissions),
        _sets(process),
        _migrations(process),
        _graphs(process, omissions),
    ]
    optional = {**OPERATIONS_RECORDED, **OPERATIONS_OF_KERNELS}
    frames = [conform(part, OPERATIONS, optional) for part in parts if part.height]
    frame = pl.concat(frames, how="diagonal") if frames else empty(OPERATIONS)
    omissions.add_if(
        frame["start_ns"].null_count(),
        "untimed",
        "operations whose times the GPU did not give: counted, with no times",
    )
    return frame


def _kernels(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("kernels")
    names = {name: name for name in ("correlation", "device", "context", "stream", "graph_node")}
    # Whatever stands in a damaged file.
    sides = zip("xyz", MOST_BLOCKS, strict=True)
    grid = [np.minimum(table[f"grid_{side}"], most).astype(np.int64) for side, most in sides]
    blocks = pl.Series("blocks", grid[0] * grid[1] * grid[2])
    demangled = process.recording.table("demangled")
    readable = dict(zip(demangled["mangled"].tolist(), demangled["readable"].tolist(), strict=True))
    numbers = table["name"]
    used, places = distinct(numbers, max(process.recording.strings, default=0))
    shown = np.array([readable.get(number, number) for number in used.tolist()], np.uint64)
    return process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("kernel"),
        name=process.names(shown[places]),
        copy_count=pl.lit(1),
        blocks=pl.when(blocks > 0).then(blocks),
    )


def _copies(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    table = process.recording.table("copies")
    names = {
        name: name
        for name in ("bytes", "correlation", "device", "context", "stream", "graph_node", "copy_count")
    } | {"destination_device": "peer_device"}
    frame = process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("copy"),
        direction=choice(table["copy_kind"], DIRECTION_OF, DIRECTIONS),
        source_memory=choice(table["source_kind"], MEMORY_OF, MEMORY_KINDS),
        destination_memory=choice(table["destination_kind"], MEMORY_OF, MEMORY_KINDS),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    frame = frame.with_columns(peer_device=pl.when(pl.col("direction") == "p2p").then("peer_device"))
    return recorded_copies.with_addresses(frame, process.recording, process.shift_ns)


def _sets(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("sets")
    names = {name: name for name in ("bytes", "correlation", "device", "context", "stream", "graph_node")}
    return process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("set"),
        name=pl.lit("memset", pl.Categorical),
        destination_memory=choice(table["memory_kind"], MEMORY_OF, MEMORY_KINDS),
        copy_count=pl.lit(1),
    )


def _migrations(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("managed")
    frame = process.frame(
        table, {"value": "bytes", "source": "source", "destination": "destination", "address": "address"}
    )
    frame = frame.with_columns(
        kind=pl.lit("migration"),
        direction=choice(table["counter"], MIGRATION_OF, DIRECTIONS),
        source_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
        destination_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
        source_address=pl.col("address").reinterpret(signed=False),
        destination_address=pl.col("address").reinterpret(signed=False),
        copy_count=pl.lit(1),
    ).filter(pl.col("direction").is_not_null() & pl.Series(process.managed_inside()))
    # The device is the side that is not the host.
    device = pl.when(pl.col("direction") == "h2d").then("destination").otherwise("source")
    return frame.with_columns(
        device=device, peer_device=pl.when(pl.col("direction") == "d2d").then("destination")
    )


def _graphs(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    table = process.recording.table("graph_launches")
    omissions.add_if(
        len(table),
        "opaque-graphs",
        "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the trace, and "
        "not in any count here; record without `graphs` among the kinds to see them",
    )
    names = {name: name for name in ("correlation", "device", "context", "stream", "graph")}
    return process.frame(table, names).with_columns(
        kind=pl.lit("graph"),
        name=("CUDA graph " + pl.col("graph").cast(pl.String)).cast(pl.Categorical),
        copy_count=pl.lit(1),
    )
