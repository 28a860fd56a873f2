"""What tables of Nsight Systems exports have in common."""

from __future__ import annotations

import polars as pl

__all__ = ["INT", "PLACE", "SMALL_INT", "TIMES", "placed"]

INT, SMALL_INT = pl.Int64(), pl.Int32()

PLACE: dict[str, pl.DataType] = {
    "deviceId": SMALL_INT,
    "contextId": INT,
    "streamId": INT,
    "correlationId": INT,
    "globalPid": INT,
}
TIMES: dict[str, pl.DataType] = {"start": INT, "end": INT}


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Renames the columns that say where and when an operation ran."""
    names = {
        "start": "start_ns",
        "end": "end_ns",
        "deviceId": "device",
        "contextId": "context",
        "streamId": "stream",
        "correlationId": "correlation",
        "globalPid": "process",
        "graphNodeId": "graph_node",
    }
    frame = frame.rename(names, strict=False)
    # 0 is nobody's correlation (migrations carry it), and no node of a graph.
    with_none = [
        pl.when(pl.col(name) != 0).then(name)
        for name in ("correlation", "graph_node")
        if name in frame.columns and (frame[name] == 0).any()
    ]
    return frame.with_columns(with_none)
