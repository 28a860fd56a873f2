"""The best rate of large copies over each link that a trace used: what its links can do, as recorded."""

from __future__ import annotations

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.node import Node
from busfare.trace import Trace

__all__ = ["LARGE_BYTES", "LinkRate", "best_rates"]

#: From here on a copy's rate is its link's: the same bound as of the finding `slow-link`.
LARGE_BYTES = 1 << 24


class LinkRate(msgspec.Struct, frozen=True):
    """A GPU's link in one direction: `h2d`, `d2h`, or `p2p` to GPU `peer`."""

    device: int
    peer: int | None
    direction: str
    gpu: str | None  # its model
    identity: str | None  # uuid or bus id: what tells it from the others of its host
    bytes_per_s: float
    copies: int
    data_sheet_bytes_per_s: float | None


def best_rates(trace: Trace, node: Node | None) -> list[LinkRate]:
    """The fastest large copy of each GPU and direction: pinned ones between host and GPU, and those between GPUs."""
    direction = pl.col("direction")
    pinned = ((direction == "h2d") & (pl.col("source_memory") == "pinned")) | (
        (direction == "d2h") & (pl.col("destination_memory") == "pinned")
    )
    peer = (direction == "p2p") & pl.col("peer_device").is_not_null()
    copies = trace.operations.filter(
        pl.col("kind") == "copy",
        pinned | peer,
        pl.col("device") >= 0,
        pl.col("bytes") >= LARGE_BYTES,
        pl.col("end_ns") > pl.col("start_ns"),
        pl.col("copy_count").fill_null(1) == 1,
    )
    best = (
        copies.group_by("process", "device", "peer_device", "direction")
        .agg(rate=(pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns"))).max() * 1e9, copies=pl.len())
        .sort("process", "device", "peer_device", "direction", nulls_last=True)
    )
    found = []
    for row in best.iter_rows(named=True):
        gpu, identity = _gpu(trace, row["process"], row["device"])
        to = row["peer_device"] if row["direction"] == "p2p" else None
        found.append(
            LinkRate(
                row["device"],
                to,
                row["direction"],
                gpu,
                identity,
                row["rate"],
                row["copies"],
                _data_sheet(node, row["direction"], row["device"], to),
            )
        )
    return found


def _gpu(trace: Trace, process: int | None, device: int) -> tuple[str | None, str | None]:
    """Model and identity of the GPU that `process` calls `device`."""
    rows = trace.devices.filter(pl.col("device") == device)
    own = rows.filter(pl.col("process").is_null() | pl.col("process").eq_missing(process))
    row = next((own if own.height else rows).iter_rows(named=True), None)
    if row is None:
        return None, None
    identity = row["uuid"] or row["bus_id"]
    return (row["name"] or "")[:100] or None, identity[:100] if identity else None


def _data_sheet(node: Node | None, direction: str, device: int, peer: int | None) -> float | None:
    if node is None or (peer is None and node.link_is_estimated(device)):
        return None
    try:
        path = node.host_path(device) if peer is None else node.peer_path(device, peer)
        rate = path.bandwidth("read" if direction == "h2d" else "write")
    except (InputError, ValueError):
        return None
    return rate if rate < float("inf") else None
