"""Room for kernels of several streams: each takes the multiprocessors that its blocks stand on.

A GPU gives the blocks of a kernel to its multiprocessors, one to each before a second to any, and those of the next
kernel once all blocks before are placed. Two kernels whose blocks together are no more than the multiprocessors hence
share none. A kernel of as many blocks or more is taken to leave nothing free: what several blocks on one
multiprocessor take from each other, and what kernels take from each other's memory bandwidth, no trace says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.model import Timeline
from busfare.trace.words import Words

__all__ = ["with_own_kernel_engines"]


def with_own_kernel_engines(timeline: Timeline) -> Timeline:
    """Kernels that now lie in several streams of a GPU share its multiprocessors, or run one at a time.

    The latter where the trace does not say how many blocks they have. Those whose streams the recording already shows
    beside each other keep what it shows.
    """
    columns = timeline.columns
    kernels = Words(timeline.operations).among("kind", "kernel", "graph")
    free = kernels & (columns["operation_engine"] < 0)
    devices = columns["stream_device"][columns["operation_stream"]]
    engine, slots = columns["operation_engine"].copy(), list(columns["engine_slots"])
    takes = columns["operation_takes"].copy()
    for device in np.unique(devices[free]):
        mine = free & (devices == device)
        if len(np.unique(columns["operation_stream"][mine])) > 1:
            engine[mine] = len(slots)
            room = _multiprocessors(timeline, int(device))
            takes[mine] = np.minimum(_blocks(timeline, most=room)[mine], room)
            slots.append(room)
    return replace(
        timeline,
        columns={
            **columns,
            "operation_engine": engine,
            "operation_takes": takes,
            "engine_slots": np.array(slots, np.int32),
        },
    )


def _multiprocessors(timeline: Timeline, device_number: int) -> int:
    """Of the GPU with this number among the streams' devices; 1 where neither trace nor node says."""
    streams = timeline.streams.filter(pl.col("device_number") == device_number)
    process, device = streams.select("process", "device").row(0)
    of_device = timeline.trace.devices.filter(
        (pl.col("device") == device) & (pl.col("process").is_null() | (pl.col("process") == process))
    )
    said = of_device["multiprocessors"].drop_nulls()
    if said.len():
        return max(1, int(said[0]))
    if timeline.node is not None:
        return timeline.node.gpu(int(device)).multiprocessors or 1
    return 1


def _blocks(timeline: Timeline, most: int) -> NDArray[np.int64]:
    """Of each operation; `most` where the trace does not say. Shape (operations,)."""
    if "blocks" not in timeline.operations.columns:
        return np.full(timeline.operations.height, most, np.int64)
    return timeline.operations["blocks"].fill_null(most).clip(1, most).to_numpy().astype(np.int64)
