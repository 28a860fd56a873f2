"""What copies would take: on another node, over another link, from another memory."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import cost
from busfare.cost.kernels.price import KernelPrices, price_kernels
from busfare.cost.model import as_copies_of
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.timeline.model import Timeline
from busfare.trace.words import Words

Times = NDArray[np.float64]
#: One core writes a packed buffer at about this rate where staging was not measured, in bytes per second.
PACKING_BYTES_PER_S = 8e9
#: Smaller pageable copies to the GPU are handed over with their call, and staged nowhere.
STAGED_ABOVE_BYTES = 64 * 1024
#: Copies of pageable memory between these sizes take longer by what one core takes to copy the bytes.
STAGED_BYTES = (256 * 1024, 4 * 1024 * 1024)


def _as_they_are(timeline: Timeline) -> pl.DataFrame:
    """The operations with the times that they have in this timeline."""
    duration = pl.Series(timeline.columns["operation_duration"])
    return timeline.operations.with_columns(end_ns=pl.col("start_ns") + duration)


def nanoseconds_on(timeline: Timeline, recorded_on: Node, to: Node, model: str) -> Times:
    """What every operation takes on `to`; its own time where `model` has no price. Shape (operations,)."""
    operations = _as_they_are(timeline)
    predicted = cost.model(model, recorded_on=recorded_on).seconds(operations, to) * 1e9
    transfer = operations["kind"].is_in(["copy", "migration"]).to_numpy()
    kept = timeline.columns["operation_duration"].astype(np.float64)
    return np.where(transfer & np.isfinite(predicted), predicted, kept)


def kernel_prices(timeline: Timeline, recorded_on: Node, to: Node) -> KernelPrices:
    """What every kernel takes on `to`. Raises InputError where what bounds kernels on one of the GPUs is not known."""
    trace = timeline.trace
    return price_kernels(_as_they_are(timeline), trace.launches, recorded_on, to, trace.counters)


def nanoseconds_of_kernels(times: Times, prices: KernelPrices, seconds: Times) -> Times:
    """The times of all operations with those of kernels as in `seconds`, where they are known. Shape (operations,)."""
    changed = times.astype(np.float64)
    changed[prices.rows] = np.where(np.isfinite(seconds), seconds * 1e9, changed[prices.rows])
    return changed


def nanoseconds_from(memory: str, operations: pl.DataFrame, node: Node | None) -> Times:
    """What these copies between host and device take from a kind of host memory: as measured on `node`; else from pinned
    memory by its data sheet. Shape (rows,). Raises InputError where the node is not known.
    """
    if node is None:
        raise InputError(
            "the trace names no GPU that busfare knows; say where it was recorded with --from NODE"
        )
    if node.measured_both_ways(memory):
        return cost.model("loggp", recorded_on=node).seconds(as_copies_of(operations, memory), node) * 1e9
    if memory != "pinned":
        return nanoseconds_from("pinned", operations, node)
    return cost.model("datasheet", recorded_on=node).seconds(as_copies_of(operations, memory), node) * 1e9


def nanoseconds_packed(operations: pl.DataFrame, node: Node | None) -> Times:
    """What these copies take from the memory that they are from: pageable as measured on `node`, less what a call takes
    for a single byte, else as from pinned memory; shape (rows,). Raises InputError where the node is not known.
    """
    pinned = nanoseconds_from("pinned", operations, node)
    if node is None or not node.measured_both_ways("pageable"):
        return pinned
    model = cost.model("loggp", recorded_on=node)
    one_byte = operations.with_columns(bytes=pl.lit(1, pl.Int64))
    staged = (model.seconds(operations, node) - model.seconds(one_byte, node)) * 1e9
    return np.where(pageable(operations), staged, pinned)


def packing_nanoseconds(sizes: Times, node: Node | None) -> Times:
    """What the host takes to write so many bytes into one buffer: as staging them takes it on `node`. Shape (rows,)."""
    curve = node.curve("h2d", "pageable") if node is not None else None
    if curve is None:
        return sizes / PACKING_BYTES_PER_S * 1e9
    small, large = curve.seconds(np.array(STAGED_BYTES, np.float64))
    rate = float(large - small) / (STAGED_BYTES[1] - STAGED_BYTES[0])
    return np.asarray(sizes * rate * 1e9)


def pageable(operations: pl.DataFrame) -> NDArray[np.bool_]:
    """Copies from or to pageable memory; shape (rows,)."""
    words, sides = Words(operations), ("source_memory", "destination_memory")
    return np.logical_or(*(words.among(side, "pageable") for side in sides))


def staged(operations: pl.DataFrame) -> NDArray[np.bool_]:
    """Copies of pageable memory that the host moves through a staging buffer; shape (rows,)."""
    return pageable(operations) & (operations["bytes"].fill_null(0).to_numpy() > STAGED_ABOVE_BYTES)
