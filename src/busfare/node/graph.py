"""A machine as a graph: components joined by links, and the path that a copy takes through it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from busfare.errors import InputError
from busfare.node.arrays import FloatArray
from busfare.node.component import Component, Cpu, Gpu, Memory, Switch
from busfare.node.link import Flow, Link
from busfare.node.measured import Measured
from busfare.node.source import Source, Sourced

__all__ = ["Node", "Path"]


@dataclass(frozen=True)
class Path:
    """The links from one component to another in order, and host memory where the path ends in it."""

    links: tuple[Link, ...]
    memory: Memory | None = None

    def narrowest(self, flow: Flow) -> Link:
        """The link that a long copy fills first. Raises ValueError for a path of no links."""
        return min(self.links, key=lambda link: link.bandwidth(flow))

    def peak(self) -> float:
        """Bytes per second of the narrowest line rate, before any packet overhead."""
        return min(link.line_rate for link in self.links)

    def bandwidth(self, flow: Flow) -> float:
        """Bytes of data per second of a long copy: the narrowest of the links and the host memory's share."""
        rates = [link.bandwidth(flow) for link in self.links]
        return min([*rates, self._memory_rate(flow)])

    def seconds(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        """Seconds that copies of `sizes` bytes keep the slowest part of the path busy; the parts work at
        once.
        """
        slowest = sizes / self._memory_rate(flow)
        for link in self.links:
            slowest = np.maximum(slowest, link.seconds(sizes, flow))
        return slowest

    def _memory_rate(self, flow: Flow) -> float:
        if self.memory is None or self.memory.bandwidth_bytes_per_s is None:
            return float("inf")
        share = self.memory.read_efficiency if flow == "read" else self.memory.write_efficiency
        return self.memory.bandwidth_bytes_per_s * (share if share is not None else 1.0)


@dataclass(frozen=True)
class Node:
    """A machine: what it is made of, how it is joined, what somebody measured on it, and where every figure
    comes from.
    """

    name: str
    components: tuple[Component, ...]
    links: tuple[Link, ...]
    title: str = ""
    description: str = ""
    measured: tuple[Measured, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)

    @cached_property
    def _by_name(self) -> dict[str, Component]:
        return {c.name: c for c in self.components}

    @cached_property
    def _neighbours(self) -> dict[str, list[tuple[str, Link]]]:
        joined: dict[str, list[tuple[str, Link]]] = {c.name: [] for c in self.components}
        for link in self.links:
            a, b = link.between
            joined[a].append((b, link))
            joined[b].append((a, link))
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
        """The path of the fewest links from `start` to `end`, and of those the one with the widest narrowest
        link.

        A GPU, memory or network card passes nothing on: paths lead through processors and switches only.
        Raises InputError where a name is unknown or no link leads there.
        """
        self.component(start), self.component(end)
        found = self._found(start, end)
        if found is None:
            raise InputError(
                f"node {self.name}: no path from {start} to {end}; add a [[link]] that joins them"
            )
        return found

    def _found(self, start: str, end: str) -> Path | None:
        best: dict[str, tuple[int, float, tuple[Link, ...]]] = {start: (0, float("inf"), ())}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here != start and not isinstance(self._by_name[here], (Cpu, Switch)):
                continue
            hops, width, links = best[here]
            for there, link in self._neighbours[here]:
                found = (hops + 1, min(width, link.bandwidth("write")), (*links, link))
                known = best.get(there)
                if known is None or (known[0] == found[0] and known[1] < found[1]):
                    best[there] = found
                    queue.append(there)
        if end not in best:
            return None
        ends = [self._by_name[n] for n in (start, end)]
        memory = next((c for c in ends if isinstance(c, Memory)), None)
        return Path(best[end][2], memory)

    @cached_property
    def _host_paths(self) -> tuple[Path, ...]:
        memories = [c.name for c in self.components if isinstance(c, Memory)]
        paths = []
        for gpu in self._gpus:
            reachable = [path for m in memories if (path := self._found(m, gpu.name)) is not None]
            if not reachable:
                raise InputError(
                    f"node {self.name}: no host memory reaches {gpu.name}; add a [[link]] that joins them"
                )
            paths.append(min(reachable, key=lambda path: (len(path.links), -path.bandwidth("read"))))
        return tuple(paths)

    def host_path(self, ordinal: int) -> Path:
        """The path between a GPU and the nearest host memory. Raises InputError where none leads there."""
        return self._host_paths[ordinal % len(self._gpus)]

    def peer_path(self, ordinal: int, peer: int) -> Path:
        """The path between two GPUs. Raises InputError where none leads there."""
        return self.route(self.gpu(ordinal).name, self.gpu(peer).name)

    def measurement(self, direction: str, memory: str, ordinal: int = 0) -> Measured | None:
        """What was measured for a direction, memory kind and GPU; None where nothing was."""
        fitting = [m for m in self.measured if m.direction == direction and m.memory == memory]
        exact = [m for m in fitting if m.gpu is not None and m.gpu == ordinal % len(self._gpus)]
        return next(iter([*exact, *(m for m in fitting if m.gpu is None)]), None)

    def provenance(self, table: Sourced, key: str) -> Source | None:
        """The source of the figure under `key` of one of the node's components, links or measurements."""
        tag = table.tag_of(key)
        return None if tag is None else self.sources.get(tag)
