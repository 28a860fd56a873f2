"""What CUPTI's names and numbers stand for; files of Nsight Systems, nvprof and our own recorder hold them as they are."""

from __future__ import annotations

import polars as pl

from busfare.trace.readers.tables import ints

#: CUpti_ActivityMemcpyKind; Nsight Systems numbers the same, and goes on from 11.
DIRECTION_OF = {
    1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 5: "d2d", 6: "d2d", 7: "d2d", 8: "d2d", 9: "h2h", 10: "p2p",
}  # fmt: skip
#: CUpti_ActivityMemoryKind; Nsight Systems has numbers of its own, one less.
MEMORY_OF = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "static", 7: "managed"}
#: CUpti_ActivityStreamFlag.
STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}
#: No stream, or no event; SQLite holds it unsigned, too.
NO_ID = [-1, 4294967295]

TIMES = ints("start end")
#: The columns of SQLite traces that say when and where something ran, as those of a trace's tables.
RENAMES = {
    "start": "start_ns",
    "end": "end_ns",
    "deviceId": "device",
    "contextId": "context",
    "streamId": "stream",
    "correlationId": "correlation",
    "graphNodeId": "graph_node",
}
#: How a kernel is launched: the columns of SQLite traces, and what they are as those of a trace's tables.
LAUNCH = ints(
    "gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory"
)


def shared_bytes(static: str, dynamic: str) -> pl.Expr:
    """Static and dynamic shared memory together; null where either is not known, or negative."""
    both = pl.col(static), pl.col(dynamic)
    return pl.when(pl.all_horizontal(one.is_between(0, 1 << 32) for one in both)).then(both[0] + both[1])


def with_launch(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `LAUNCH_SHAPE` in place of those of `LAUNCH`; as it was where it has none of them."""
    if not LAUNCH.keys() <= set(frame.columns):
        return frame
    renames = {f"{what}{side.upper()}": f"{what}_{side}" for what in ("grid", "block") for side in "xyz"}
    made = frame.with_columns(shared_bytes=shared_bytes("staticSharedMemory", "dynamicSharedMemory"))
    return made.rename(renames | {"registersPerThread": "registers"}).drop(
        "staticSharedMemory", "dynamicSharedMemory"
    )
