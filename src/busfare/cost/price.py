"""What one copy costs on a node by every model that can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import polars as pl

from busfare.cost.model import model, model_names
from busfare.cost.pageable import measured_copy
from busfare.cost.ranges import ranged, rung_of, seconds_between
from busfare.errors import InputError
from busfare.nodes import Cpu, Node
from busfare.nodes.curve import Direction, MemoryKind

__all__ = ["one_copy", "price", "trusted"]

#: What is said of copies that no file has a rate for: between two memories, and within one.
UNMEASURED = (
    "the rate of pageable copies was not measured here; published large ones move 1.6 to 33 GB/s",
    "the rate of copies within this memory was not measured; engines often move far less than it could",
)
#: Exact as a float, and beyond any memory.
MOST_BYTES = 2**53


def one_copy(direction: str, memory: str, bytes_: Sequence[int]) -> pl.DataFrame:
    """Operations, one a size, that copy `bytes_` bytes between GPU 0 and the host, itself, or GPU 1."""
    host = direction in ("h2d", "d2h")
    return pl.DataFrame(
        {
            "kind": "copy",
            "direction": direction,
            "bytes": pl.Series(bytes_, dtype=pl.Int64),
            "source_memory": memory if direction == "h2d" or not host else "device",
            "destination_memory": memory if direction == "d2h" or not host else "device",
            "device": 0,
            "peer_device": 1 if direction == "p2p" else None,
            "copy_count": 1,
            "start_ns": pl.Series([None] * len(bytes_), dtype=pl.Int64),
            "end_ns": pl.Series([None] * len(bytes_), dtype=pl.Int64),
        }
    )


def trusted(
    node: Node, direction: str, memory: str, prices: Sequence[dict[str, Any]]
) -> dict[str, str] | None:
    """The `model` among `prices` to go by, and `why`; None where neither `loggp` nor `datasheet` has a price.

    The others are what a paper published (`ahead`) and baselines that leave packets, staging or latency out.
    """
    names = {row["model"] for row in prices}
    if "loggp" in names:
        return {"model": "loggp", "why": "this path was measured on this node"}
    if "datasheet" not in names:
        return None
    gpu, cpu = node.gpu(0), next((c for c in node.components if isinstance(c, Cpu)), None)
    within = gpu.unified_memory and direction != "p2p"
    table, rate = (gpu, gpu.copy_bandwidth_bytes_per_s) if within else (cpu, measured_copy(node))
    source = node.provenance(table, "copy_bandwidth_bytes_per_s") if table and rate else None
    if within or (memory == "pageable" and direction in ("h2d", "d2h")):
        why = source.cite if source else UNMEASURED[within]
    else:
        why = "nothing was measured here; it is what the wires carry, packets and slowest part counted"
    return {"model": "datasheet", "why": why}


def price(
    node: Node, direction: str, memory: str, bytes_: int, latency_from: Node | None = None
) -> list[dict[str, Any]]:
    """`model`, `seconds` with their range and rung, and `bytes_per_second` of one copy, by every model that applies.

    Raises InputError for a direction, memory kind or size that no copy has.
    """
    for what, value, known in (("direction", direction, Direction), ("memory", memory, MemoryKind)):
        if value not in get_args(known):
            raise InputError(f"{what} {value!r}: not known; one of {', '.join(get_args(known))}")
    if not 0 <= bytes_ <= MOST_BYTES:
        raise InputError(f"bytes {bytes_}: give a size from 0 to {MOST_BYTES}")
    operations = one_copy(direction, memory, [bytes_])
    prices = []
    for name in model_names():
        try:
            asked = model(name, latency_from=latency_from)
        except InputError:  # needs a trace, or is a plug-in that cannot be used: it does not apply here
            continue
        seconds = float(asked.seconds(operations, node)[0])
        if math.isfinite(seconds):
            rate = bytes_ / seconds if seconds > 0 else None
            low, high = (float(factor[0]) * seconds for factor in ranged(operations, name, node))
            ranges = seconds_between(low, high, rung_of(name))
            prices.append({"model": name, "seconds": seconds, **ranges, "bytes_per_second": rate})
    return prices
