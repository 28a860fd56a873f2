"""A machine as a graph: components joined by links, and the path that a copy takes through it."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np

from busfare.errors import InputError
from busfare.nodes.component import (
    AtOnce,
    Component,
    Cost,
    Cpu,
    FloatArray,
    Gpu,
    Kernels,
    Memory,
    Source,
    Sourced,
    Switch,
)
from busfare.nodes.contention import Contention, typical, typical_memory
from busfare.nodes.link import C2cLink, Flow, Link
from busfare.nodes.transfers import CollectiveCurve, Curve


@dataclass(frozen=True)
class Path:
    """The links from one component to another in order, and the host memory and GPU that a copy ends in."""

    links: tuple[Link, ...]
    memory: Memory | None = None
    gpu: Gpu | None = None

    def narrowest(self, flow: Flow) -> Link:
        """The link that a long copy fills first. Raises ValueError for a path of no links."""
        return min(self.links, key=lambda link: link.bandwidth(flow))

    @property
    def is_c2c(self) -> bool:
        """Whether it goes over NVLink-C2C, over which a GPU reads any of the host's memory in place."""
        return any(isinstance(link, C2cLink) for link in self.links)

    def peak(self) -> float:
        """Bytes per second of the narrowest line rate, before any packet overhead."""
        return min(link.line_rate for link in self.links)

    def bandwidth(self, flow: Flow) -> float:
        """Bytes of data per second of a long copy: the narrowest of the links and of their ends."""
        rates = [link.bandwidth(flow) for link in self.links]
        return min([*rates, self._end_rate(flow)])

    def seconds(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        """Seconds that copies of `sizes` bytes keep the slowest part of the path busy; the parts work at once."""
        slowest = sizes / self._end_rate(flow)
        for link in self.links:
            slowest = np.maximum(slowest, link.seconds(sizes, flow))
        return slowest

    def crossed(self, start: str) -> Iterator[tuple[Link, bool]]:
        """The links as data from the end called `start` crosses them, and whether it enters each at its first component."""
        here = start
        for link in self.links if start in self.links[0].between else self.links[::-1]:
            forward = link.between[0] == here
            here = link.between[forward]
            yield link, forward

    def _end_rate(self, flow: Flow) -> float:
        """Bytes per second of the slower end: the memory, with its share for that way, or the GPU itself."""
        rate = float("inf")
        if self.gpu is not None and self.gpu.host_interface_bytes_per_s is not None:
            rate = self.gpu.host_interface_bytes_per_s
        if self.memory is None or self.memory.bandwidth_bytes_per_s is None:
            return rate
        share = self.memory.read_efficiency if flow == "read" else self.memory.write_efficiency
        return min(rate, self.memory.bandwidth_bytes_per_s * (share if share is not None else 1.0))


@dataclass(frozen=True, repr=False)
class Node:
    """A machine: what it is made of, how it is joined, measurements on it, and where it is from."""

    name: str
    components: tuple[Component, ...]
    links: tuple[Link, ...]
    title: str = ""
    description: str = ""
    curves: tuple[Curve, ...] = ()
    contentions: tuple[Contention, ...] = ()
    costs: tuple[Cost, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    collectives: tuple[CollectiveCurve, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Node {self.name}: {self.title or 'no title'}>"

    @cached_property
    def _by_name(self) -> dict[str, Component]:
        return {c.name: c for c in self.components}

    @cached_property
    def _neighbours(self) -> dict[str, list[tuple[str, Link, float]]]:
        """What each component is joined to, by which link, and how wide that is."""
        joined: dict[str, list[tuple[str, Link, float]]] = {c.name: [] for c in self.components}
        for link in self.links:
            a, b = link.between
            width = link.bandwidth("write")
            joined[a].append((b, link, width))
            joined[b].append((a, link, width))
        return joined

    @cached_property
    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(c for c in self.components if isinstance(c, Gpu))

    def component(self, name: str) -> Component:
        """The component called `name`. Raises InputError where there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise InputError(
                f"node {self.name}: no component {name!r}; it has {', '.join(self._by_name)}"
            ) from None

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs in the order of their ordinals, which is the order in the file."""
        return self._gpus

    def gpu(self, ordinal: int) -> Gpu:
        """The GPU of a trace's `ordinal`, which wraps: a node with fewer GPUs serves them in turn."""
        return self._gpus[ordinal % len(self._gpus)]

    def route(self, start: str, end: str) -> Path:
        """The path of the fewest links from `start` to `end`; of several, the one whose narrowest is widest.

        A GPU, memory or network card passes nothing on: paths lead through processors and switches only.
        Raises InputError where a name is unknown or no link leads there.
        """
        self.component(start), self.component(end)
        links = self._best_links(start).get(end)
        if links is None:
            raise InputError(
                f"node {self.name}: no path from {start} to {end}; add a [[link]] that joins them"
            )
        ends = [self._by_name[name] for name in (start, end)]
        memory = next((c for c in ends if isinstance(c, Memory)), None)
        return Path(links, memory, next((c for c in ends if isinstance(c, Gpu)), None))

    def _best_links(self, start: str) -> dict[str, tuple[Link, ...]]:
        """The links of the best path from `start` to every component that it reaches, breadth first."""
        hops, width = {start: 0}, {start: float("inf")}
        links: dict[str, tuple[Link, ...]] = {start: ()}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here != start and not isinstance(self._by_name[here], (Cpu, Switch)):
                continue
            for there, link, wide in self._neighbours[here]:
                narrowest = min(width[here], wide)
                if there not in hops:
                    hops[there] = hops[here] + 1
                    queue.append(there)
                elif hops[there] <= hops[here] or width[there] >= narrowest:
                    continue
                width[there], links[there] = narrowest, (*links[here], link)
        return links

    @cached_property
    def _host_paths(self) -> tuple[Path, ...]:
        memories = [c for c in self.components if isinstance(c, Memory)]
        paths = []
        for gpu in self._gpus:
            links_to = self._best_links(gpu.name)
            candidates = [Path(links_to[m.name][::-1], m, gpu) for m in memories if m.name in links_to]
            if not candidates:
                raise InputError(
                    f"node {self.name}: no host memory reaches {gpu.name}; add a [[link]] that joins them"
                )
            nearest = min(len(path.links) for path in candidates)
            near = [path for path in candidates if len(path.links) == nearest]
            paths.append(max(near, key=lambda path: path.bandwidth("read")) if len(near) > 1 else near[0])
        return tuple(paths)

    def host_path(self, ordinal: int) -> Path:
        """The path between a GPU and the nearest host memory. Raises InputError where none leads there."""
        return self._host_paths[ordinal % len(self._gpus)]

    def peer_path(self, ordinal: int, peer: int) -> Path:
        """The path between two GPUs. Raises InputError where none leads there."""
        return self.route(self.gpu(ordinal).name, self.gpu(peer).name)

    def curve(
        self, direction: str, memory: str, gpu: int = 0, peer: int | None = None, faults: bool = False
    ) -> Curve | None:
        """What was measured of a direction, memory kind, GPU and, between GPUs, peer; None where nothing was.

        Of managed memory prefetches, or pages that move when they are touched (`faults`). Where only long copies were
        measured, L+o is the copy engine's own start.
        """
        key = (direction, memory, faults)
        fitting = [
            c
            for c in self.curves
            if (c.direction, c.memory, c.faults) == key and (c.peer is None or peer in (None, c.peer))
        ]
        curve = _of_gpu(fitting, gpu % len(self._gpus))
        return None if curve is None else curve.started()

    def contention(self, gpu: int = 0) -> Contention:
        """How much of its rate each path of a GPU keeps beside others: measured, else typical of its generation."""
        ordinal = gpu % len(self._gpus)
        measured = _of_gpu(self.contentions, ordinal)
        if measured is not None and measured.across_streams is not None:
            return measured
        usual = typical(self._gpus[ordinal], self.host_path(ordinal).links)
        if measured is None:
            return usual
        return msgspec.structs.replace(measured, across_streams=usual.across_streams)

    def call_cost(self, name: str, gpu: int = 0) -> Cost | None:
        """What the call `name` (`launch`, `synchronise` ...) takes besides any copy; None where nobody measured it."""
        return _of_gpu([cost for cost in self.costs if cost.call == name], gpu % len(self._gpus))

    def probed_kernels(self, gpu: int = 0) -> Kernels | None:
        """What was measured of a GPU's kernels; None where nobody did."""
        return _of_gpu(self.kernels, gpu % len(self._gpus))

    def at_once(self, memory: str) -> AtOnce | None:
        """What copies of several GPUs together carry to and from the memory of that name: measured, else shares of its peak,
        its own or typical; None where its peak is not known. Raises InputError where the node has no memory of that name.
        """
        host_memory = self.component(memory)
        if not isinstance(host_memory, Memory):
            raise InputError(f"node {self.name}: {memory} is not a memory")
        if host_memory.at_once is not None or host_memory.bandwidth_bytes_per_s is None:
            return host_memory.at_once
        shares, peak = typical_memory(), host_memory.bandwidth_bytes_per_s
        read = peak * (host_memory.read_efficiency or shares.read)
        write = peak * (host_memory.write_efficiency or shares.write)
        return AtOnce(read, write, read * shares.duplex_read, write * shares.duplex_write)

    def copies_measured(self, memory: str) -> bool:
        """Whether copies of host memory of this kind were measured into the first GPU and out of it."""
        return all(self.curve(direction, memory) is not None for direction in ("h2d", "d2h"))

    def link_is_estimated(self, ordinal: int) -> bool:
        """Whether the link between GPU `ordinal` and the host is an estimate, such as a notebook's lanes: no promise."""
        sources = (self.provenance(link, "lanes") for link in self.host_path(ordinal).links)
        return any(source is not None and source.kind == "estimated" for source in sources)

    def provenance(self, table: Sourced, key: str) -> Source | None:
        """The source of the figure `key` of a component, link or measurement; None where the file names none."""
        tag = table.source_of.get(key, table.source)
        return None if tag is None else self.sources.get(tag)


_Table = TypeVar("_Table", Curve, Contention, Cost, Kernels)


def _of_gpu(tables: Sequence[_Table], ordinal: int) -> _Table | None:
    """The first that is of this GPU, else the first of no GPU in particular."""
    measured_there = next((table for table in tables if table.gpu == ordinal), None)
    return measured_there or next((table for table in tables if table.gpu is None), None)
