"""Links of a node that several copies share: several GPUs behind one switch, or both directions of one wire."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Link, Node
from busfare.node.arrays import FloatArray
from busfare.timeline import _core
from busfare.trace.words import Words

__all__ = ["alone", "shared_links"]

Columns = dict[str, NDArray[Any]]
#: From this part of its rate on, a way that several copies use is full: small gaps between copies are averaged in.
FULL = 0.9


class Way(NamedTuple):
    """One direction of one link: its place in the node's list, and whether it is walked as it is written."""

    link: int
    forward: bool


class BothWays(NamedTuple):
    """A direction's measured rate, and what part of it is left while the other direction is in use."""

    bytes_per_s: float
    left: float


def shared_links(columns: Columns, operations: pl.DataFrame, node: Node) -> Columns:
    """`columns` with the ways that at least two engines of this run share on `node`, for all copies between host and
    GPUs and among GPUs. Nothing is added where no two could meet.

    A way carries what its data sheet says, or what the quickest recorded copy shows if that is more. Where the node
    file says what both directions at once leave of a GPU's own link, that holds, too.
    """
    if not _may_meet(operations, node):
        return columns
    duration = columns["operation_duration"]
    size = operations["bytes"].fill_null(0).to_numpy().astype(np.float64)
    rate = np.divide(size, duration * 1e-9, out=np.zeros_like(size), where=duration > 0)
    rate = rate * columns.get("operation_demand", np.ones_like(size))
    words = Words(operations)
    moves = words.among("kind", "copy", "migration") & words.among("direction", "h2d", "d2h", "p2p")
    rows = np.flatnonzero(moves & (rate > 0))
    paths = (
        operations.select(
            pl.col("direction"), pl.col("device").fill_null(0), pl.col("peer_device").fill_null(-1)
        )[rows]
        .with_columns(row=rows)
        .group_by("direction", "device", "peer_device", maintain_order=True)
        .agg("row")
    )
    ways = [_ways(node, *key) for key in paths.select("direction", "device", "peer_device").iter_rows()]
    kept, both = _meeting(node, ways)
    if not kept:
        return columns
    number = {way: at for at, way in enumerate(kept)}
    capacity = np.array(
        [both[way].bytes_per_s if way in both else node.links[way.link].bandwidth("read") for way in kept]
    )
    walking: list[tuple[NDArray[np.int64], list[int]]] = []
    count = np.zeros(operations.height, np.int64)
    for members, walked in zip(paths["row"], ways, strict=True):
        mine = [number[way] for way in walked if way in number]
        if mine:
            those = members.to_numpy()
            capacity[mine] = np.maximum(capacity[mine], float(rate[those].max()))
            count[those] = len(mine)
            walking.append((those, mine))
    begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    links = np.zeros(begin[-1], np.int32)
    for those, mine in walking:
        for place, way_number in enumerate(mine):
            links[begin[those] + place] = way_number
    return {
        **columns,
        "operation_bytes_per_s": np.where(count > 0, rate, 0.0),
        "operation_link_begin": begin,
        "operation_links": links,
        "link_bytes_per_s": capacity,
        "link_both": np.array([both[way].left if way in both else 1.0 for way in kept]),
        "link_opposite": np.array([number.get(Way(way.link, not way.forward), -1) for way in kept], np.int32),
    }


def _may_meet(operations: pl.DataFrame, node: Node) -> bool:
    """Whether this run's copies could meet on any link at all; cheap to say no."""
    if operations["device"].n_unique() > 1:
        return True
    return any(measured.both_directions_gap_per_byte_s is not None for measured in node.measured)


def _ways(node: Node, direction: str, device: int, peer: int) -> list[Way]:
    """The ways that a copy walks; none where the node has no path."""
    try:
        if direction == "p2p":
            return (
                _walked(node, node.peer_path(device, peer).links, node.gpu(device).name) if peer >= 0 else []
            )
        path = node.host_path(device)
        down = _walked(node, path.links, path.memory.name if path.memory else path.links[0].between[0])
    except InputError:
        return []
    return down if direction == "h2d" else [Way(way.link, not way.forward) for way in reversed(down)]


def _walked(node: Node, links: tuple[Link, ...], start: str) -> list[Way]:
    here, found = start, []
    for link in links:
        forward = link.between[0] == here
        here = link.between[1] if forward else link.between[0]
        found.append(Way(next(at for at, other in enumerate(node.links) if other is link), forward))
    return found


def _meeting(node: Node, ways: list[list[Way]]) -> tuple[list[Way], dict[Way, BothWays]]:
    """The ways that two paths walk, or whose two directions slow each other down, and what was measured of those."""
    walkers: dict[Way, int] = {}
    for walked in ways:
        for way in walked:
            walkers[way] = walkers.get(way, 0) + 1
    both = {}
    for at, gpu in enumerate(node.gpus()):
        last = [w for w in walkers if gpu.name in node.links[w.link].between]
        for way in last:
            toward = node.links[way.link].between[1 if way.forward else 0] == gpu.name
            found = _both_ways(node, "h2d" if toward else "d2h", at)
            if found is not None and Way(way.link, not way.forward) in walkers:
                both[way] = found
    kept = sorted(way for way, count in walkers.items() if count > 1 or way in both)
    return kept, both


def _both_ways(node: Node, direction: str, gpu: int) -> BothWays | None:
    """What was measured of a direction alone and beside the other; None where nobody did."""
    measured = node.measurement(direction, "pinned", gpu, None)
    if measured is None or not measured.pieces or measured.both_directions_gap_per_byte_s is None:
        return None
    gap = measured.pieces[-1].gap_per_byte_s
    return BothWays(1 / gap, min(1.0, gap / measured.both_directions_gap_per_byte_s))


def alone(
    columns: Columns, operations: pl.DataFrame, starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int64], FloatArray]:
    """What each recorded operation would have taken with its links to itself, ns; times from the run's start. And by
    how much it then asks for more than its bytes over that time, 1 for nearly all; both of shape (operations,).

    A copy that ran beside others while a way was full could have had all of that way; one that ran beside others while
    there was room could not have been any quicker.
    """
    rate = columns["operation_bytes_per_s"].copy()
    begin, links = columns["operation_link_begin"], columns["operation_links"]
    capacity, both, opposite = columns["link_bytes_per_s"], columns["link_both"], columns["link_opposite"]
    of_link = np.repeat(np.arange(len(rate)), np.diff(begin))
    full = np.zeros(len(rate), bool)
    walked = np.full(len(rate), np.inf)
    np.minimum.at(walked, of_link, capacity[links])
    for way in range(len(capacity)):
        rows = of_link[links == way]
        against = of_link[links == opposite[way]] if opposite[way] >= 0 else rows[:0]
        left = np.where(_beside(starts_ns, ends_ns, rows, against), both[way], 1.0)
        load = _most_load(starts_ns[rows], ends_ns[rows], rate[rows])
        crowded = (load > rate[rows] * 1.001) | (left < 1.0)
        full[rows] |= crowded & (load >= FULL * capacity[way] * left)
    rate[full] = np.maximum(rate[full], walked[full])
    asked = {**columns, "operation_bytes_per_s": rate}
    taken = _core.alone(asked, np.ascontiguousarray(starts_ns), np.ascontiguousarray(ends_ns))
    size = operations["bytes"].fill_null(0).to_numpy()
    shares = (rate > 0) & (taken > 0) & (size > 0)
    return taken, np.divide(rate * taken * 1e-9, size, out=np.ones(len(rate)), where=shares)


def _most_load(starts: NDArray[np.int64], ends: NDArray[np.int64], rate: FloatArray) -> FloatArray:
    """The highest sum of rates on one way while each copy runs, bytes per second; shape (copies,)."""
    if len(starts) == 0:
        return np.zeros(0)
    times = np.concatenate([starts, ends])
    order = np.lexsort((np.concatenate([np.ones(len(starts)), np.zeros(len(ends))]), times))
    load = np.cumsum(np.concatenate([rate, -rate])[order])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    # From its own start to just before its own end.
    spans = np.column_stack(
        [place[: len(starts)], np.maximum(place[len(starts) :], place[: len(starts)] + 1)]
    )
    most = np.maximum.reduceat(np.append(load, 0.0), spans.ravel())[::2]
    return np.asarray(most)


def _beside(
    starts: NDArray[np.int64], ends: NDArray[np.int64], rows: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each of `rows` ran at the same time as any of `others`; shape (rows,)."""
    began = np.searchsorted(np.sort(starts[others]), ends[rows], side="left")
    ended = np.searchsorted(np.sort(ends[others]), starts[rows], side="right")
    return np.asarray(began > ended)
