"""What copies of a run share: links of several GPUs, the memory behind them, and both directions of one wire."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost import model
from busfare.cost.models import copy_operations
from busfare.errors import InputError
from busfare.nodes import FloatArray, Flow, MemoryLink, Node
from busfare.nodes.component import Memory
from busfare.timeline import _core
from busfare.timeline.build.work import DIRECTIONS, alike, most_load
from busfare.timeline.model import Columns, Route, SharedLinks, Taken, Times, at_rest
from busfare.trace.words import Words

#: From this part of its rate on, a lane that several copies use is full: small gaps between copies are averaged in.
FULL = 0.9


class Lane(NamedTuple):
    """One direction of one link: its place in the node's list, and whether it is walked as it is written. Of a memory that
    several GPUs copy to and from, forward is reading; its `bus` is a third lane, of both.
    """

    link: int
    forward: bool
    bus: bool = False
    host: int = 0

    @property
    def opposite(self) -> "Lane":
        """The other direction of a wire. Those of a memory meet on its bus."""
        return self._replace(forward=not self.forward)


class Carries(NamedTuple):
    """What a lane carries: bytes per second, the share of it that is left beside copies the other way, how many bytes that
    are read a written byte takes the place of, and the weight of writes where the lane is full.
    """

    bytes_per_s: float
    duplex_share: float = 1.0
    write_cost: float = 1.0
    write_weight: float = 1.0


def link_columns(links: SharedLinks, operations: pl.DataFrame, columns: Columns) -> Columns:
    """Those columns of the core for operations with `columns`. A lane carries its quickest copy in any case."""
    rate, path_of, keys = _rates(operations, columns["operation_duration"])
    rate *= columns.get("operation_demand", 1.0)
    if "operation_awaits" in columns:  # a transfer of its own kind
        path_of = np.where(columns["operation_awaits"] >= 0, -1, path_of)
    taken = [links.paths.get(key, Taken([], [], 1.0)) for key in keys]
    count = np.array([*(len(route.lanes) for route in taken), 0], np.int32)[path_of]
    rate[count == 0] = 0.0
    begin = np.zeros(len(rate) + 1, np.int64)
    np.cumsum(count, out=begin[1:])
    lanes, costs = np.zeros(begin[-1], np.int32), np.zeros(begin[-1])
    capacity = links.bytes_per_s.copy()
    for number, mine in enumerate(taken):
        rows = np.flatnonzero(path_of == number)
        for place, (lane, cost) in enumerate(zip(mine.lanes, mine.cost, strict=True)):
            capacity[lane] = max(capacity[lane], float(rate[rows].max(initial=0.0)) * cost)
            lanes[begin[rows] + place] = lane
            costs[begin[rows] + place] = cost
    return {
        "operation_bytes_per_s": rate,
        "operation_weight": np.array([*(route.weight for route in taken), 1.0])[path_of],
        "operation_link_begin": begin,
        "operation_links": lanes,
        "operation_link_cost": costs,
        "link_bytes_per_s": capacity,
        "link_both": links.duplex_share,
        "link_opposite": links.opposite,
    }


def shared_links(operations: pl.DataFrame, node: Node) -> SharedLinks | None:
    """The lanes of `node` that at least two paths of `operations` take, or both directions of one; None without any.

    A lane carries what its link's data sheet says, or the measured rate of the GPU at its end; both directions keep the
    shares of `Node.contention`. A memory carries `Node.at_once`; where one GPU alone copies, or all together cannot fill it,
    it is left out.
    """
    keys = _rates(operations, (operations["end_ns"] - operations["start_ns"]).to_numpy())[2]
    walked = [_walk(node, *key) for key in keys]
    takers = Counter(lane for lanes in walked for lane in lanes)
    carries = {
        lane: Carries(node.links[lane.link].bandwidth("read"))
        for lane, count in takers.items()
        if count > 1 and not isinstance(node.links[lane.link], MemoryLink)
    }
    duplex_lanes = [lane for lane in takers if lane.opposite in takers]
    carries |= {lane: gpu_link for lane in duplex_lanes if (gpu_link := _gpu_link(node, lane))}
    carries |= _memories(node, keys, walked)
    kept = sorted(carries)
    if not kept:
        return None
    number = {lane: at for at, lane in enumerate(kept)}
    paths = {}
    for key, lanes in zip(keys, walked, strict=True):
        used, writes = [lane for lane in lanes if lane in number], key[0] != "h2d"
        cost = [carries[lane].write_cost if writes else 1.0 for lane in used]
        weight = prod(carries[lane].write_weight for lane in used if writes)
        paths[key] = Taken([number[lane] for lane in used], cost, weight)
    return SharedLinks(
        np.array([carries[lane].bytes_per_s for lane in kept]),
        np.array([carries[lane].duplex_share for lane in kept]),
        np.array([number.get(lane.opposite, -1) for lane in kept], np.int32),
        paths,
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
    linked = link_columns(links, operations, columns)
    names = ("bytes_per_s", "link_begin", "links", "link_cost")
    rate, begin, lane_of, cost = (linked[f"operation_{name}"] for name in names)
    of_lane = np.repeat(np.arange(len(rate), dtype=np.int32), np.diff(begin))
    capacity, duplex = linked["link_bytes_per_s"].copy(), links.duplex_share.copy()
    full = np.zeros(len(rate), bool)
    for lane, opposite in enumerate(links.opposite):
        there = lane_of == lane
        rows = of_lane[there]
        against = of_lane[lane_of == opposite]
        lane_rate = rate[rows] * cost[there]
        load = most_load(starts[rows], ends[rows], lane_rate)
        # Whether each ran at the same time as any that goes the other way.
        began = np.searchsorted(np.sort(starts[against]), ends[rows], side="left")
        opposed = began > np.searchsorted(np.sort(ends[against]), starts[rows], side="right")
        capacity[lane] = max(capacity[lane], load.max(initial=0.0))
        shown = load[opposed].max(initial=0.0) / capacity[lane]
        duplex[lane] = min(1.0, max(duplex[lane], shown))
        left = np.where(opposed, duplex[lane], 1.0)
        crowded = (load > lane_rate * 1.001) | (left < 1.0)
        full[rows] |= crowded & (load >= FULL * capacity[lane] * left)
    demanded = rate
    if full.any():
        walked = np.full(len(rate), np.inf)
        np.minimum.at(walked, of_lane, capacity[lane_of] / cost)
        demanded = np.where(full, np.maximum(rate, walked), rate)
    used = linked | {"operation_bytes_per_s": demanded, "link_bytes_per_s": capacity, "link_both": duplex}
    taken = _core.alone(columns | used, starts, ends)
    size = operations["bytes"].fill_null(0).to_numpy()
    shares = (demanded > 0) & (taken > 0) & (size > 0)
    demand = np.divide(demanded * taken * 1e-9, size, out=np.ones(len(rate)), where=shares)
    return replace(links, bytes_per_s=capacity, duplex_share=duplex), columns | {
        "operation_duration": taken,
        "operation_demand": demand,
    }


def copy_seconds_at_once(
    node: Node, copies: Sequence[tuple[str, int]], bytes_: int | Sequence[int]
) -> FloatArray:
    """Seconds of each of `copies`, a direction (h2d or d2h) and a GPU, of `bytes_` pinned bytes (each, or one by one), all
    begun at once.

    Alone each takes measurements on the node, else what its data sheet says; together they share links as in a replay,
    max-min fair. Shape (copies,).
    """
    sizes = [bytes_] * len(copies) if isinstance(bytes_, int) else bytes_
    rows = [
        copy_operations(direction, "pinned", [size]).with_columns(device=pl.lit(gpu, pl.Int32))
        for (direction, gpu), size in zip(copies, sizes, strict=True)
    ]
    operations = pl.concat(rows)
    measured, from_sheet = (model(name).seconds(operations, node) for name in ("loggp", "datasheet"))
    alone = np.rint(np.where(np.isfinite(measured), measured, from_sheet) * 1e9).astype(np.int64)
    operations = operations.with_columns(start_ns=pl.lit(0, pl.Int64), end_ns=pl.Series(alone))
    count = len(copies)
    columns = at_rest(0, count, count, operation_duration=alone, operation_stream=range(count))
    if (links := shared_links(operations, node)) is not None:
        columns |= link_columns(links, operations, columns)
    ends: FloatArray = _core.play(columns)["operation_end"] * 1e-9
    return ends


def _rates(operations: pl.DataFrame, duration_ns: Times) -> tuple[FloatArray, NDArray[np.int32], list[Route]]:
    """Bytes per second of each copy, 0 for what is none; the path it takes (-1: none), a number; and the paths."""
    words = Words(operations)
    moves = words.among("kind", "copy", "migration") & words.among("direction", *DIRECTIONS)
    moves = moves & (operations["bytes"] > 0).fill_null(False).to_numpy() & (duration_ns > 0)
    rows = np.flatnonzero(moves)
    rate = np.zeros(len(moves))
    rate[rows] = operations["bytes"].gather(rows).to_numpy() / (duration_ns[rows] * 1e-9)
    names = [name for name in ("direction", "device", "peer_device", "host") if name in operations.columns]
    moved = operations.select(names)[rows].with_columns(
        pl.col("device").fill_null(0).cast(pl.Int64), pl.col("peer_device").fill_null(-1).cast(pl.Int64)
    )
    path_of = np.full(len(rate), -1, np.int32)
    path_of[rows], paths = alike(moved)
    if "host" not in names:
        paths = paths.with_columns(host=pl.lit(0, pl.Int64))
    return rate, path_of, paths.cast({"direction": pl.String}).rows()


def _walk(node: Node, direction: str, device: int, peer: int, host: int) -> list[Lane]:
    """The lanes that a copy takes on its host; none where the node has no path."""
    try:
        path = node.host_path(device) if direction != "p2p" else node.peer_path(device, peer)
    except InputError:
        return []
    if (direction == "p2p" and peer < 0) or not path.links:
        return []
    start = path.memory if direction == "h2d" and path.memory else node.gpu(device)
    lanes: list[Lane] = []
    places = {id(link): at for at, link in enumerate(node.links)}
    for link, forward in path.crossed(start.name):
        at = places[id(link)]
        if isinstance(link, MemoryLink):
            reads = isinstance(node.component(link.between[not forward]), Memory)
            lanes += [Lane(at, reads, host=host), Lane(at, True, bus=True, host=host)]
        else:
            lanes.append(Lane(at, forward, host=host))
    return lanes


def _memories(node: Node, keys: list[Route], walked: list[list[Lane]]) -> dict[Lane, Carries]:
    """The lanes of memories that copies of several GPUs can fill, with what those carry; of one GPU alone, what its copies
    reach is that of its link. A written byte takes the bus as long as it takes alone.
    """
    filled: dict[Lane, Carries] = {}
    paths = list(zip(keys, walked, strict=True))
    for bus in {lane for lanes in walked for lane in lanes if lane.bus}:
        through = [(direction, device) for (direction, device, _, _), lanes in paths if bus in lanes]
        if len({device for _, device in through}) < 2:
            continue
        ends = map(node.component, node.links[bus.link].between)
        memory = next(part.name for part in ends if isinstance(part, Memory))
        if (at_once := node.at_once(memory)) is None:
            continue
        brought: dict[Flow, float] = {"read": 0.0, "write": 0.0}
        for direction, device in through:
            flow: Flow = "read" if direction == "h2d" else "write"
            rate = _measured_rate(node, direction, device) or node.host_path(device).bandwidth(flow)
            brought[flow] += rate
        for flow, most in (("read", at_once.read_bytes_per_s), ("write", at_once.write_bytes_per_s)):
            if brought[flow] > most:
                filled[bus._replace(forward=flow == "read", bus=False)] = Carries(most)
        cost = at_once.read_bytes_per_s / at_once.write_bytes_per_s
        most = at_once.both_read_bytes_per_s + at_once.both_write_bytes_per_s * cost
        if brought["read"] + brought["write"] * cost > most:
            weight = at_once.both_write_bytes_per_s / at_once.both_read_bytes_per_s
            filled[bus] = Carries(most, write_cost=cost, write_weight=weight)
    return filled


def _measured_rate(node: Node, direction: str, device: int) -> float | None:
    """Bytes per second of long pinned copies between a GPU and the host, by themselves, as the node measured it."""
    curve = node.curve(direction, "pinned", device)
    return None if curve is None else 1 / curve.long_gap_per_byte_s


def _gpu_link(node: Node, lane: Lane) -> Carries | None:
    """What a GPU's copies carry over its own link one way; None for a link that ends at no GPU."""
    link = node.links[lane.link]
    for at, gpu in enumerate(node.gpus()):
        if gpu.name in link.between:
            direction = "h2d" if link.between[1 if lane.forward else 0] == gpu.name else "d2h"
            rate = _measured_rate(node, direction, at) or float(link.bandwidth("read"))
            return Carries(rate, node.contention(at).both.of(direction))
    return None
