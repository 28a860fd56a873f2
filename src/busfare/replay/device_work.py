"""GPU work in the order in which the host issued it: which call launched it, in which stream, on which engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.replay.host_calls import HostCalls
from busfare.trace import Trace

__all__ = ["CLASSES", "DeviceWork", "Engines", "class_of", "engines", "issued", "observed_before"]

Rows = NDArray[np.int32]
Times = NDArray[np.int64]
#: Operations whose lags are alike.
CLASSES = ("kernel", "set", "migration", "graph", "pinned copy", "pageable copy", "other copy")
STREAM_KINDS = {"null": 0, "blocking": 1, "non-blocking": 2}
#: Clocks of host and GPU agree to about this, in nanoseconds.
TOLERANCE_NS = 5_000


class DeviceWork(NamedTuple):
    """`operations`: the trace's columns in issue order with `row` (of the trace), `call` (position among the calls,
    -1 before the first), `launched` and `stream_number`. `streams`: a row a stream, with `device_number`,
    `context_number`, `kind_number` and `kind_known`.
    """

    operations: pl.DataFrame
    streams: pl.DataFrame


def issued(trace: Trace, host: HostCalls) -> DeviceWork:
    """The operations of `trace` that have times, sorted as the calls issued them."""
    operations = (
        trace.operations.with_row_index("row")
        .filter(pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns")))
        .with_columns(pl.col("stream").fill_null(-1), pl.col("device").fill_null(0))
    )
    launching = host.inside.drop_nulls("correlation").unique(
        ["process", "correlation"], keep="first", maintain_order=True
    )
    operations = operations.join(
        launching.rename({"start_ns": "called_ns"}),
        on=["process", "correlation"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    launched = pl.col("call").is_not_null() & (pl.col("start_ns") >= pl.col("called_ns"))
    starts = host.calls["start_ns"].to_numpy()
    position = np.searchsorted(starts, operations["start_ns"].to_numpy(), side="right") - 1
    operations = operations.with_columns(launched=launched.fill_null(False), position=pl.Series(position))
    operations = operations.with_columns(
        call=pl.when("launched").then("call").otherwise("position").cast(pl.Int32)
    ).sort("call", "start_ns", "row")
    streams, operations = _streams(trace, operations)
    return DeviceWork(operations.drop("position", "called_ns"), streams)


def _streams(trace: Trace, operations: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    key = ["process", "device", "context", "stream"]
    used = operations.select(key).unique(maintain_order=True)
    kinds = trace.streams.select("process", "context", "stream", "kind").unique(
        ["process", "context", "stream"], keep="last", maintain_order=True
    )
    used = used.join(
        kinds, on=["process", "context", "stream"], how="left", nulls_equal=True, maintain_order="left"
    )
    used = used.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int32).alias("stream_number"),
        device_number=pl.struct("process", "device").rank("dense").cast(pl.Int32) - 1,
        context_number=pl.struct("process", "device", "context").rank("dense").cast(pl.Int32) - 1,
        kind_known=pl.col("kind").is_not_null(),
        # A stream that the trace says nothing of: nothing is assumed to wait for it.
        kind_number=pl.col("kind")
        .cast(pl.String)
        .replace_strict(STREAM_KINDS, default=2)
        .fill_null(2)
        .cast(pl.UInt8),
    )
    operations = operations.join(
        used.select(*key, "stream_number"), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    return used, operations


def class_of(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The number of each operation's class in `CLASSES`; shape (operations,)."""
    host_side = pl.col("source_memory").is_in(["pageable"]) | pl.col("destination_memory").is_in(["pageable"])
    pinned = pl.col("source_memory").is_in(["pinned"]) | pl.col("destination_memory").is_in(["pinned"])
    kind = pl.col("kind").cast(pl.String)
    name = (
        pl.when(kind != "copy")
        .then(kind)
        .when(host_side.fill_null(False))
        .then(pl.lit("pageable copy"))
        .when(pinned.fill_null(False))
        .then(pl.lit("pinned copy"))
        .otherwise(pl.lit("other copy"))
    )
    numbers = {text: number for number, text in enumerate(CLASSES)}
    return (
        operations.select(
            name.replace_strict(numbers, default=len(CLASSES) - 1).cast(pl.UInt8).alias("class")
        )
    )["class"].to_numpy()


class Engines(NamedTuple):
    """`of`: the engine of each operation, -1 for none. `slots`: how many each engine runs at once."""

    of: Rows
    slots: Rows
    names: list[str]


def engines(operations: pl.DataFrame, trace: Trace) -> Engines:
    """A copy engine a direction and GPU, and the kernels of a GPU where several streams compete for it.

    An engine runs as many at once as the recording shows it doing at most: what a kernel leaves free of a GPU is
    not in a trace.
    """
    physical = _physical_gpu(operations, trace)
    copies = pl.col("kind").is_in(["copy", "migration"]) & pl.col("direction").is_in(["h2d", "d2h", "p2p"])
    kernels = pl.col("kind").is_in(["kernel", "graph"])
    label = (
        pl.when(copies)
        .then(pl.col("direction").cast(pl.String))
        .when(kernels)
        .then(pl.lit("kernels"))
        .otherwise(None)
    )
    table = operations.select(
        "start_ns", "end_ns", "stream_number", label=label, physical=pl.Series(physical)
    ).with_columns(
        streams=pl.col("stream_number").n_unique().over("physical", "label"),
    )
    # Kernels of one stream never compete.
    table = table.with_columns(
        label=pl.when((pl.col("label") == "kernels") & (pl.col("streams") < 2)).then(None).otherwise("label")
    )
    of = np.full(operations.height, -1, np.int32)
    slots: list[int] = []
    names: list[str] = []
    for (gpu, what), part in (
        table.with_row_index("row").drop_nulls("label").group_by("physical", "label", maintain_order=True)
    ):
        of[part["row"].to_numpy()] = len(slots)
        slots.append(_at_once(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()))
        names.append(f"{what} of {gpu}")
    return Engines(of, np.array(slots, np.int32), names)


def _physical_gpu(operations: pl.DataFrame, trace: Trace) -> pl.Series:
    """A name for the GPU behind each operation: processes may call different GPUs by the same number."""
    known = trace.devices.select("device", "process", gpu=pl.coalesce("uuid", "bus_id")).drop_nulls("gpu")
    everywhere = known.filter(pl.col("process").is_null()).unique("device").select("device", other="gpu")
    own = known.drop_nulls("process").unique(["device", "process"])
    table = operations.select("device", "process")
    table = table.join(own, on=["device", "process"], how="left", maintain_order="left")
    table = table.join(everywhere, on="device", how="left", maintain_order="left")
    fallback = pl.format("gpu {} of process {}", pl.col("device"), pl.col("process").fill_null(0))
    return table.select(gpu=pl.coalesce("gpu", "other", fallback))["gpu"]


def _at_once(starts: Times, ends: Times) -> int:
    """The most intervals that overlap by more than the clocks' disagreement."""
    ends = np.maximum(ends - TOLERANCE_NS // 5, starts)
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    order = np.lexsort((steps, times))
    return max(1, int(np.cumsum(steps[order]).max()))


def observed_before(operations: pl.DataFrame, groups: NDArray[np.int64] | None = None) -> Rows:
    """The operation that ended last before each starts, within its group; -1 for none. Shape (operations,).

    What stands in for a dependency that the trace does not hold.
    """
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    if len(starts) == 0:
        return np.zeros(0, np.int32)
    group = np.zeros(len(starts), np.int64) if groups is None else groups
    order = np.lexsort((ends, group))
    # One sorted key for all groups: the group's number above the time.
    origin, span = int(starts.min()), int(ends.max() - starts.min()) + 2
    key = group[order] * span + (ends[order] - origin)
    at = np.searchsorted(key, group * span + (starts - origin), side="right") - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    same = (found >= 0) & (group[np.maximum(found, 0)] == group) & (found < np.arange(len(starts)))
    return np.where(same, found, -1).astype(np.int32)
