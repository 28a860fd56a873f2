"""The links that a trace's copies crossed: their best rates, their traffic, and which of a job's links are slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from statistics import median

import msgspec
import polars as pl
from msgspec.structs import asdict

from busfare.cost.batch import batches, flow_of, path_of, stays_on_device
from busfare.errors import InputError
from busfare.jobs.results import Group, LinkHealth, Ranked, Slow
from busfare.nodes import Link, MemoryLink, Node, Path
from busfare.trace import Trace

#: From here on a copy's rate is its link's, and below this part of the peers' median, or of the data sheet, a link is
#: named: the bounds of the finding `slow-link`.
LARGE_BYTES = 1 << 24
SOUND = 0.7
FEWEST_PEERS = 3
LISTED = 100


class LinkRate(msgspec.Struct, frozen=True):
    """A GPU's link in one direction: `h2d`, `d2h`, or `p2p` to GPU `peer_device`. `identity`: the GPU's uuid or bus id."""

    gpu: str | None
    identity: str | None
    device: int
    peer_device: int | None
    direction: str
    bytes_per_second: float
    data_sheet_bytes_per_second: float | None


class LinkTraffic(msgspec.Struct, frozen=True):
    """One link of a node, by the node's name and its number there: `forward` is from the first of `between`.

    Bytes are the data's own; wire bytes add headers and requests, by the wire's data sheet.
    """

    link: tuple[str, int]
    between: tuple[str, str]
    label: str
    line_bytes_per_s: float | None  # None: as fast as the memory behind it
    copies: int
    forward_bytes: int
    back_bytes: int
    forward_wire_bytes: int
    back_wire_bytes: int


def best_rates(trace: Trace, node: Node | None) -> list[LinkRate]:
    """The fastest large copy of each GPU and direction: pinned ones between host and GPU, and those between GPUs."""
    towards = pl.col("direction")
    pinned = ((towards == "h2d") & (pl.col("source_memory") == "pinned")) | (
        (towards == "d2h") & (pl.col("destination_memory") == "pinned")
    )
    between_gpus = (towards == "p2p") & pl.col("peer_device").is_not_null()
    copies = trace.operations.filter(
        pl.col("kind") == "copy",
        pinned | between_gpus,
        pl.col("device") >= 0,
        pl.col("bytes") >= LARGE_BYTES,
        pl.col("end_ns") > pl.col("start_ns"),
        pl.col("copy_count").fill_null(1) == 1,
    )
    best = (
        copies.group_by("process", "device", "peer_device", "direction")
        .agg(rate=(pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns"))).max() * 1e9)
        .sort("process", "device", "peer_device", "direction", nulls_last=True)
    )
    rates = []
    for process, device, peer_device, direction, rate in best.iter_rows():
        peer = peer_device if direction == "p2p" else None
        sheet = _data_sheet(node, direction, device, peer)
        rates.append(LinkRate(*_gpu(trace, process, device), device, peer, direction, rate, sheet))
    return rates


def _gpu(trace: Trace, process: int | None, device: int) -> tuple[str | None, str | None]:
    """Model and identity of the GPU that `process` calls `device`."""
    rows = trace.devices.filter(pl.col("device") == device)
    own = rows.filter(pl.col("process").is_null() | pl.col("process").eq_missing(process))
    for row in (own if own.height else rows).iter_rows(named=True):
        return (row["name"] or "")[:100] or None, (row["uuid"] or row["bus_id"] or "")[:100] or None
    return None, None


def _data_sheet(node: Node | None, direction: str, device: int, peer: int | None) -> float | None:
    if node is None or (peer is None and node.link_is_estimated(device)):
        return None
    try:
        path = node.host_path(device) if peer is None else node.peer_path(device, peer)
        rate = path.bandwidth("read" if direction == "h2d" else "write")
    except (InputError, ValueError):
        return None
    return rate if rate < float("inf") else None


def link_traffic(operations: pl.DataFrame, node: Node | None) -> tuple[list[LinkTraffic], int]:
    """Traffic of each link that copies and migrations crossed, and the bytes whose path is not known."""
    moved = operations.filter(
        pl.col("kind").is_in(["copy", "migration"]), pl.col("direction").is_in(["h2d", "d2h", "p2p"])
    )
    unrouted = int(moved["bytes"].sum())
    if node is None:
        return [], unrouted
    number_of = {id(link): number for number, link in enumerate(node.links)}
    counts: dict[int, list[int]] = {}
    for batch in batches(moved):
        size = int(batch.sizes.sum())
        path = path_of(batch, node)
        if stays_on_device(batch, node):  # CPU and GPU share one memory: nothing crosses a link
            unrouted -= size
        elif path:
            unrouted -= size
            for link, forward in _crossed(path, node, batch.direction, batch.device):
                wire = round(float(link.wire_bytes(batch.sizes, flow_of(batch)).sum()))
                new = (len(batch.rows), *((size, 0, wire, 0) if forward else (0, size, 0, wire)))
                held = counts.get(number_of[id(link)], [0] * len(new))
                counts[number_of[id(link)]] = [a + b for a, b in zip(held, new, strict=True)]
    traffic = []
    for number, crossed in sorted(counts.items()):
        link = node.links[number]
        rate = None if isinstance(link, MemoryLink) else link.line_rate
        traffic.append(LinkTraffic((node.name, number), link.between, link.label, rate, *crossed))
    return traffic, unrouted


def _crossed(path: Path, node: Node, direction: str, device: int) -> Iterable[tuple[Link, bool]]:
    """The links in the order in which the data crosses them, and whether each is crossed from first to second."""
    # A host path starts at the memory, a path between GPUs at the first of them.
    here = path.memory.name if direction == "h2d" and path.memory else node.gpu(device).name
    for link in path.links[::-1] if direction == "d2h" else path.links:
        forward = link.between[0] == here
        here = link.between[1] if forward else link.between[0]
        yield link, forward


def link_health(seen: Iterable[tuple[LinkRate, Ranked]]) -> LinkHealth:
    """The best rates of a job's links, each with the trace that saw it: by GPU model and direction; and those that are below
    SOUND of their peers' median or of the data sheet, slowest first by share, at most LISTED.
    """
    models: dict[tuple[str, str], list[tuple[LinkRate, Ranked]]] = defaultdict(list)
    for link, rank in seen:
        models[link.gpu or "", link.direction].append((link, rank))
    groups, slow = [], []
    for (gpu, direction), links in sorted(models.items()):
        rates = [link.bytes_per_second for link, _ in links]
        sheets = [rate for link, _ in links if (rate := link.data_sheet_bytes_per_second)]
        middle = median(rates)
        groups.append(
            Group(
                gpu or None, direction, len(links), min(rates), middle, max(rates), max(sheets, default=None)
            )
        )
        comparable = gpu and len(links) > FEWEST_PEERS
        for link, rank in links:
            rate, sheet = link.bytes_per_second, link.data_sheet_bytes_per_second
            shares = rate / middle if comparable else None, rate / sheet if sheet else None
            share = min((share for share in shares if share is not None), default=SOUND)
            if share < SOUND:
                figures = {key: getattr(link, key) for key in ("gpu", "device", "peer_device", "direction")}
                figures |= {
                    "bytes_per_second": rate,
                    "share_of_peers": shares[0],
                    "share_of_data_sheet": shares[1],
                }
                place = (
                    rank.path,
                    link.device,
                    direction,
                    -1 if link.peer_device is None else link.peer_device,
                )
                slow.append((share, place, Slow(**asdict(rank), **figures, peers=len(links) - 1)))
    slow.sort(key=itemgetter(0, 1))
    return LinkHealth(
        sum(group.links for group in groups), True, SOUND, groups, [one for *_, one in slow[:LISTED]]
    )
