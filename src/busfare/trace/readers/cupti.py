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
#: How many blocks lie in each direction, and the sides of the largest grid; their product fits 64 bits.
GRID = ints("gridX gridY gridZ")
MOST_BLOCKS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)


def with_blocks(frame: pl.DataFrame) -> pl.DataFrame:
    """`blocks` in place of the columns of `GRID`: null of what no grid can have; as it was where it has none of them."""
    if not GRID.keys() <= set(frame.columns):
        return frame
    possible = pl.all_horizontal(
        pl.col(side).is_between(1, most) for side, most in zip(GRID, MOST_BLOCKS, strict=True)
    )
    blocks = pl.when(possible).then(pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"))
    return frame.with_columns(blocks=blocks).drop(*GRID)
