"""What copies of a run share: links of several GPUs, the memory behind them, and both directions of one wire."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Link, MemoryLink, Node
from busfare.node.arrays import FloatArray
from busfare.node.component import Memory
from busfare.timeline import _core
from busfare.timeline.build.host_calls import alike
from busfare.timeline.model import Columns, Times
from busfare.trace.words import Words

__all__ = ["SharedLinks", "alone", "shared_links"]

DIRECTIONS = ("h2d", "d2h", "p2p")
#: From this part of its rate on, a lane that several copies use is full: small gaps between copies are averaged in.
FULL = 0.9


class Lane(NamedTuple):
    """One direction of one link: its place in the node's list, and whether it is walked as it is written.

    A memory's bus is one lane, forward, for reads and writes take turns on it.
    """

    link: int
    forward: bool

    @property
    def opposite(self) -> Lane:
        return Lane(self.link, not self.forward)


@dataclass(frozen=True)
class SharedLinks:
    """Lanes that copies of one run may share, and what they carry.

    `bytes_per_s`: one direction alone. `both`: the share of it that is left while the opposite direction is in use.
    `opposite`: the number of that lane, -1 where it stays unused. `paths`: the lanes that copies of a direction, device
    and peer device (-1: none) take.
    """

    bytes_per_s: FloatArray
    both: FloatArray
    opposite: NDArray[np.int32]
    paths: dict[tuple[str, int, int], list[int]]

    def columns(self, operations: pl.DataFrame, columns: Columns) -> Columns:
        """Those columns of the core for operations with `columns`. A lane carries its quickest copy in any case."""
        rate, path_of, keys = _rates(operations, columns["operation_duration"])
        rate = rate * columns.get("operation_demand", 1.0)
        lanes = [self.paths.get(key, []) for key in keys]
        count = np.array([*map(len, lanes), 0], np.int64)[path_of]
        begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        links = np.zeros(begin[-1], np.int32)
        capacity = self.bytes_per_s.copy()
        for number, mine in enumerate(lanes):
            rows = np.flatnonzero(path_of == number)
            capacity[mine] = np.maximum(capacity[mine], float(rate[rows].max(initial=0.0)))
            for place, lane in enumerate(mine):
                links[begin[rows] + place] = lane
        return {
            "operation_bytes_per_s": np.where(count > 0, rate, 0.0),
            "operation_link_begin": begin,
            "operation_links": links,
            "link_bytes_per_s": capacity,
            "link_both": self.both,
            "link_opposite": self.opposite,
        }


def shared_links(operations: pl.DataFrame, node: Node) -> SharedLinks | None:
    """The lanes of `node` that at least two paths of `operations` take, or both directions of one; None without any.

    A lane carries what its link's data sheet says, or the measured rate of the GPU at its end; both directions keep the
    shares of `Node.contention`. A memory that all can fill at once and not outrun is left out.
    """
    keys = _rates(operations, (operations["end_ns"] - operations["start_ns"]).to_numpy())[2]
    walked = [_walk(node, *key) for key in keys]
    takers = Counter(lane for lanes in walked for lane in lanes)
    own = {lane: found for lane in takers if lane.opposite in takers and (found := _own_link(node, lane))}
    crowded = {lane for lane, count in takers.items() if count > 1} - _ample(node, keys, walked)
    kept = sorted(crowded | own.keys())
    if not kept:
        return None
    number = {lane: at for at, lane in enumerate(kept)}
    return SharedLinks(
        np.array([own[lane][0] if lane in own else _data_sheet(node, lane) for lane in kept]),
        np.array([own[lane][1] if lane in own else 1.0 for lane in kept]),
        np.array([number.get(lane.opposite, -1) for lane in kept], np.int32),
        {
            key: [number[lane] for lane in lanes if lane in number]
            for key, lanes in zip(keys, walked, strict=True)
        },
    )


def alone(
    links: SharedLinks, columns: Columns, operations: pl.DataFrame, recorded: Columns
) -> tuple[SharedLinks, Columns]:
    """`links` as a recording shows them, and `columns` with what each operation takes with its lanes to itself; the
    recorded times in nanoseconds from the run's start.

    A lane carries at least what the recording shows at once on it. A copy that ran beside others while its lane was full
    could have had all of it; one that ran beside others while there was room could not have been quicker.
    `operation_demand` is by how much a copy then asks for more than its bytes over that time: 1 for nearly all.
    """
    starts, ends = recorded["operation_start"], recorded["operation_end"]
    linked = links.columns(operations, columns)
    rate, begin, lane_of = (linked[f"operation_{name}"] for name in ("bytes_per_s", "link_begin", "links"))
    of_lane = np.repeat(np.arange(len(rate)), np.diff(begin))
    capacity, both = linked["link_bytes_per_s"].copy(), links.both.copy()
    full = np.zeros(len(rate), bool)
    for lane, opposite in enumerate(links.opposite):
        rows = of_lane[lane_of == lane]
        against = of_lane[lane_of == opposite]
        load = _most_load(starts[rows], ends[rows], rate[rows])
        # Whether each ran at the same time as any that goes the other way.
        began = np.searchsorted(np.sort(starts[against]), ends[rows], side="left")
        beside = began > np.searchsorted(np.sort(ends[against]), starts[rows], side="right")
        capacity[lane] = max(capacity[lane], load.max(initial=0.0))
        both[lane] = min(1.0, max(both[lane], load[beside].max(initial=0.0) / capacity[lane]))
        left = np.where(beside, both[lane], 1.0)
        crowded = (load > rate[rows] * 1.001) | (left < 1.0)
        full[rows] |= crowded & (load >= FULL * capacity[lane] * left)
    walked = np.full(len(rate), np.inf)
    np.minimum.at(walked, of_lane, capacity[lane_of])
    asked = np.where(full, np.maximum(rate, walked), rate)
    shown = linked | {"operation_bytes_per_s": asked, "link_bytes_per_s": capacity, "link_both": both}
    taken = _core.alone(columns | shown, starts, ends)
    size = operations["bytes"].fill_null(0).to_numpy()
    shares = (asked > 0) & (taken > 0) & (size > 0)
    demand = np.divide(asked * taken * 1e-9, size, out=np.ones(len(rate)), where=shares)
    return replace(links, bytes_per_s=capacity, both=both), columns | {
        "operation_duration": taken,
        "operation_demand": demand,
    }


def _rates(
    operations: pl.DataFrame, duration_ns: Times
) -> tuple[FloatArray, Times, list[tuple[str, int, int]]]:
    """Bytes per second of each copy, 0 for what is none; the path it takes (-1: none), a number; and the paths."""
    size = operations["bytes"].fill_null(0).to_numpy().astype(np.float64)
    words = Words(operations)
    moves = words.among("kind", "copy", "migration") & words.among("direction", *DIRECTIONS)
    moves = moves & (size > 0) & (duration_ns > 0)
    rate = np.divide(size, duration_ns * 1e-9, out=np.zeros_like(size), where=moves)
    device, peer = (
        pl.col(name).fill_null(none).cast(pl.Int64) for name, none in (("device", 0), ("peer_device", -1))
    )
    path_of = np.full(len(size), -1, np.int64)
    path_of[moves], paths = alike(operations.filter(pl.Series(moves)).select("direction", device, peer))
    return rate, path_of, paths.cast({"direction": pl.String}).rows()


def _walk(node: Node, direction: str, device: int, peer: int) -> list[Lane]:
    """The lanes that a copy takes; none where the node has no path."""
    try:
        if direction == "p2p":
            links = node.peer_path(device, peer).links if peer >= 0 else ()
            return _lanes(node, links, node.gpu(device).name)
        path = node.host_path(device)
        if direction == "h2d":
            return _lanes(node, path.links, path.memory.name if path.memory else path.links[0].between[0])
        return _lanes(node, path.links[::-1], node.gpu(device).name)
    except InputError:
        return []


def _lanes(node: Node, links: tuple[Link, ...], start: str) -> list[Lane]:
    here, found, places = start, [], {id(link): at for at, link in enumerate(node.links)}
    for link in links:
        forward = link.between[0] == here
        here = link.between[1] if forward else link.between[0]
        found.append(Lane(places[id(link)], forward or isinstance(link, MemoryLink)))
    return found


def _ample(node: Node, keys: list[tuple[str, int, int]], walked: list[list[Lane]]) -> set[Lane]:
    """The memories' lanes that carry all that the paths over them can bring at once."""
    brought: Counter[Lane] = Counter()
    for (direction, device, _), lanes in zip(keys, walked, strict=True):
        rate = _path_rate(node, direction, device) if direction != "p2p" else 0.0
        brought.update({lane: rate for lane in lanes if isinstance(node.links[lane.link], MemoryLink)})
    return {lane for lane, rate in brought.items() if rate <= _data_sheet(node, lane)}


def _path_rate(node: Node, direction: str, device: int) -> float:
    """Bytes per second of long pinned copies between a GPU and the host, by themselves."""
    measured = _measured_rate(node, direction, device)
    return measured or node.host_path(device).bandwidth("read" if direction == "h2d" else "write")


def _measured_rate(node: Node, direction: str, device: int) -> float | None:
    """The same as the node measured it."""
    curve = node.curve(direction, "pinned", device)
    return None if curve is None else 1 / curve.long_gap_per_byte_s


def _own_link(node: Node, lane: Lane) -> tuple[float, float] | None:
    """What a GPU's copies carry over its own link one way (bytes per second), and the share of it that is left while
    copies go the other way; None for a link that ends at no GPU.
    """
    link = node.links[lane.link]
    for at, gpu in enumerate(node.gpus()):
        if gpu.name in link.between:
            direction = "h2d" if link.between[1 if lane.forward else 0] == gpu.name else "d2h"
            rate = _measured_rate(node, direction, at) or _data_sheet(node, lane)
            return rate, node.contention(at).both.of(direction)
    return None


def _data_sheet(node: Node, lane: Lane) -> float:
    link = node.links[lane.link]
    if isinstance(link, MemoryLink):
        memory = next(part for part in map(node.component, link.between) if isinstance(part, Memory))
        return float(memory.bandwidth_bytes_per_s or np.inf)
    return float(link.bandwidth("read"))


def _most_load(starts: Times, ends: Times, rate: FloatArray) -> FloatArray:
    """The highest sum of rates on one lane while each copy runs, bytes per second; shape (copies,)."""
    count = len(starts)
    if count == 0:
        return np.zeros(0)
    # At the same time ends come first.
    order = np.lexsort((np.repeat([1, 0], count), np.concatenate([starts, ends])))
    load = np.cumsum(np.concatenate([rate, -rate])[order])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    # From its own start to just before its own end.
    spans = np.column_stack([place[:count], np.maximum(place[count:], place[:count] + 1)])
    return np.asarray(np.maximum.reduceat(np.append(load, 0.0), spans.ravel())[::2])
