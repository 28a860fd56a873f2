"""A program of copies and kernels in streams, played by the one engine (native/replay) on a GPU's parameters.

    program = Program(GpuRules(node.contention()))
    first = program.copy("h2d", 4 << 20, node.curve("h2d", "pinned"), stream=0)
    kernel = program.kernel(1e-3, stream=1, after=(first,))
    program.copy("d2h", 4 << 20, node.curve("d2h", "pinned"), stream=2, after=(kernel,))
    program.play().seconds

Operations are added in the order in which the host issues them. One starts when it is issued, the one before it in its
stream and those of `after` (event waits) are complete, and its engine is free; of several the one issued first goes
first. A copy holds its engine for its bytes, behind another copy for g as well, and is complete L+o later: n copies take
(L+o) + k·G + g(n-1) [W14 §V]. g is the curve's issue interval for the number of streams that hold copies of its direction,
plus the other direction's where copies go both ways: one unit of the GPU issues the copies of all streams in turn.
While data moves the other way a copy, or a kernel on mapped memory, keeps its share (`Contention`) of its own rate.
A copy behind a kernel, and a kernel that waits for a copy of another stream, start later by what the curve says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from busfare.nodes import Contention, Curve, FloatArray
from busfare.timeline import _core
from busfare.timeline.model import WAIT, Columns, at_rest

#: Links by use: copies beside copies, copies in beside mapped writes, copies out beside mapped reads. Even links have the
#: next one as their opposite.
COPY_LINKS = {"h2d": (0, 2), "d2h": (1, 4)}
MAPPED_LINK = {"h2d": 5, "d2h": 3}
#: So much of a kernel's mapped writes goes into buffers, beside which copies go on as if there were none [results/probe:
#: four H200s 15 to 17 µs, four H100s 9 to 12].
LULL_S = 1.3e-5
ALONE = Contention()


@dataclass(frozen=True, slots=True)
class GpuRules:
    """How a GPU runs what it is given. `copy_engines`: one for both directions, or one each. `implicit_synchronization`: a
    copy out waits for all kernels issued before it [W14 §IV]. `call_s`: what each call takes on the host.
    """

    contention: Contention = ALONE
    copy_engines: int = 2
    implicit_synchronization: bool = False
    call_s: float = 0.0


class Mapped(NamedTuple):
    """Bytes of mapped memory that a kernel reads (h2d) or writes (d2h), and what they take alone."""

    bytes: float
    curve: Curve

    @property
    def seconds(self) -> float:
        """B·G without L+o."""
        return self.bytes * float(self.curve.gap_per_byte(self.bytes))


@dataclass(frozen=True, slots=True)
class Played:
    """When each operation began to run and was complete, in seconds from the first call; `seconds`: the whole."""

    start: FloatArray
    end: FloatArray
    seconds: float


class _Operation(NamedTuple):
    """`seconds` on its engine alone, behind `latency` (s) and before `completion` (s), in which it holds none."""

    kind: Literal["h2d", "d2h", "kernel"]
    stream: int
    seconds: float
    after: tuple[int, ...]
    host_s: float
    latency: float = 0.0
    completion: float = 0.0
    blocks_host: bool = False
    rate: float = 0.0
    links: tuple[int, ...] = ()
    curve: Curve | None = None


class _Row(NamedTuple):
    """A row of the core's operations; or, in `_columns`, a column each."""

    call: Any
    stream: Any
    seconds: Any = 0.0
    after: Any = -1
    engine: Any = -1
    latency: Any = 0.0
    gap: Any = 0.0
    rate: Any = 0.0
    links: Any = ()


def mapped_seconds(reads: Any, writes: Any, read_slowdown: Any, write_slowdown: Any) -> Any:
    """Seconds in which one kernel reads and writes mapped memory that takes `reads` and `writes` alone (s), each slowed by a
    factor (≥ 1) beside a full load of the other. Numbers or arrays.

    It mixes its reads and writes all along, so that the lesser direction loads the link but in part. The way out carries
    the reads' requests as well, in proportion to them; the way in waits for the writes as in any queue, by the square.
    """
    into, out = reads * read_slowdown, writes * write_slowdown
    load = np.minimum(into, out) / np.maximum(np.maximum(into, out), 1e-30)
    return np.maximum(reads * (1 + (read_slowdown - 1) * load**2), writes * (1 + (write_slowdown - 1) * load))


def share_with_mapped(share: Any, copying: Any, writing: Any, kernel: Any) -> Any:
    """The share of its rate that a copy keeps beside kernels on mapped memory: `share` while their data is on the link.

    Seconds a kernel, or arrays of them: of copies the other way, of its mapped data, and of all it does. Buffers take the
    first LULL_S of each kernel's data, as far as the copies' time beyond it has emptied them.
    """
    lull = np.clip((copying - writing * share) / (2 - share), 0.0, LULL_S)
    whole = np.maximum(np.maximum(writing, kernel), 1e-30)
    return 1.0 - (1.0 - share) * np.maximum(writing - lull, 0.0) / whole


class Program:
    """Copies and kernels in the order of their issue. `copy` and `kernel` return an operation's number, for `after`."""

    def __init__(self, rules: GpuRules | None = None) -> None:
        self.rules = rules or GpuRules()
        self._operations: list[_Operation] = []
        self._capacity = [0.0] * 6
        #: By direction, of each kernel on mapped memory the seconds of its data and its own.
        self._mapped: dict[str, list[tuple[float, float]]] = {"h2d": [], "d2h": []}

    def copy(
        self,
        direction: Literal["h2d", "d2h"],
        size: float,
        curve: Curve,
        stream: int,
        after: Sequence[int] = (),
        blocks_host: bool = False,
        host_s: float = 0.0,
    ) -> int:
        """Adds a copy of `size` bytes. `blocks_host`: the host issues nothing until it is complete. `host_s`: what the host
        does before it has issued it, besides the rules' `call_s`.
        """
        gap, start = max(float(curve.gap_per_byte(size)), 1e-30), float(curve.latency_overhead(size))
        links = COPY_LINKS[direction]
        for link in links:
            self._capacity[link] = max(self._capacity[link], 1.0 / max(curve.long_gap_per_byte_s, 1e-30))
        at = (direction, stream, size * gap, tuple(after), host_s, 0.0, start)
        self._operations.append(_Operation(*at, blocks_host, 1 / gap, links, curve=curve))
        return len(self._operations) - 1

    def kernel(
        self,
        seconds: float,
        stream: int,
        after: Sequence[int] = (),
        into: Mapped | None = None,
        out: Mapped | None = None,
        host_s: float = 0.0,
    ) -> int:
        """Adds a kernel of `seconds` with its data in device memory, or on mapped memory. `host_s` as of copies."""
        shares = self.rules.contention.mapped_both
        reads, writes = (mapped.seconds if mapped else 0.0 for mapped in (into, out))
        moving = float(mapped_seconds(reads, writes, 1 / shares.h2d, 1 / shares.d2h))
        if into and out:
            moving += float(self.rules.contention.mapped_start(into.bytes, out.bytes))
        whole = max(seconds, moving)
        begins, ends = (
            float(m.curve.latency_overhead(m.bytes)) if m and m.bytes else 0.0 for m in (into, out)
        )
        operation = _Operation("kernel", stream, whole, tuple(after), host_s, begins, ends)
        for direction, mapped in (("h2d", into), ("d2h", out)):
            if mapped and mapped.seconds > 0:
                link, rate = MAPPED_LINK[direction], mapped.bytes / whole
                self._capacity[link] = max(self._capacity[link], mapped.bytes / mapped.seconds)
                self._mapped[direction].append((mapped.seconds, whole))
                if rate > operation.rate:
                    operation = operation._replace(rate=rate, links=(link,))
        self._operations.append(operation)
        return len(self._operations) - 1

    def play(self) -> Played:
        """Runs it. Raises ValueError where it would take decades."""
        if not self._operations:
            return Played(np.zeros(0), np.zeros(0), 0.0)
        rows, first, last = self._rows()
        played = _core.play(self._columns(rows))
        start, end = played["operation_start"][first] * 1e-9, played["operation_end"][last] * 1e-9
        return Played(start, end, float(end.max()))

    def _lag(self, o: _Operation, before: int) -> float:
        """Seconds from the end of an operation to the start of one that waits for it."""
        awaited = self._operations[before]
        if o.curve:
            return o.curve.after_kernel_s * (awaited.kind == "kernel")
        return awaited.curve.event_wait_s if awaited.curve and awaited.stream != o.stream else 0.0

    def _gaps(self) -> list[float]:
        """Each copy's g: of one stream behind the copy before it in its own, else of the number of streams; and of the other
        direction, but for the first two chunks in, which go before any copy out, and the last one out.
        """
        curves = {o.kind: o.curve for o in self._operations if o.curve}
        used = list(dict.fromkeys((o.kind, o.stream) for o in self._operations))
        streams = {kind: [stream for of, stream in used if of == kind] for kind in curves}
        duplex = len(curves) == 2 and len(set().union(*streams.values())) > 1
        before: dict[int, str] = {}
        gaps = []
        for o in self._operations:
            # Whether copies of the other direction are issued between this one and the one before it in its own.
            order = streams.get(o.kind, [o.stream])
            place = order.index(o.stream)
            crossed = len(order) == 1 or (place > 1 if o.kind == "h2d" else place < len(order) - 1)
            contending = [kind for kind in curves if o.curve and ((duplex and crossed) or kind == o.kind)]
            behind = before.get(o.stream) == o.kind
            counts = {kind: 1 if behind else len(streams[kind]) for kind in contending}
            gaps.append(sum(float(curves[kind].issue_interval(count)) for kind, count in counts.items()))
            before[o.stream] = o.kind
        return gaps

    def _rows(self) -> tuple[list[_Row], list[int], list[int]]:
        """The rows, and of each operation the one that moves or computes and the one of its completion. Every row has a
        stream of its own and waits for one other, so that streams and events are alike.
        """
        rows: list[_Row] = []
        first, done, kernels = list[int](), list[int](), list[int]()
        last: dict[int, int] = {}
        fresh = 0
        for number, (o, gap) in enumerate(zip(self._operations, self._gaps(), strict=True)):
            lags = {done[awaited]: self._lag(o, awaited) for awaited in o.after}
            before = last.get(o.stream)
            if before is not None:
                # The engine keeps a train of copies in order: what holds the first one holds all.
                train = self._operations[before].kind == o.kind != "kernel"
                behind = rows[first[before]].after if train else done[before]
                lags[behind] = self._lag(o, before)
            if o.kind == "d2h" and self.rules.implicit_synchronization:
                lags |= {kernel: lags.get(kernel, 0.0) for kernel in kernels[-1:]}
            waits = [(wait, lag) for wait, lag in lags.items() if wait >= 0]
            if len(waits) > 1:
                # One row a wait, in a fresh stream. The later ones first: what is behind another in a stream adds its lag
                # to it.
                for wait, lag in sorted(waits, key=lambda wait: -wait[1]):
                    rows.append(_Row(number, fresh, after=wait, latency=lag))
                waits = [(len(rows) - 1, 0.0)]
            engine = {"h2d": 0, "d2h": min(self.rules.copy_engines - 1, 1), "kernel": 2}[o.kind]
            behind, lag = waits[0] if waits else (-1, 0.0)
            # Alone nothing is slowed, however the curve's other pieces compare with the last one.
            rate = min([o.rate, *(self._capacity[link] for link in o.links)])
            first.append(len(rows))
            at = (number, fresh + 1, o.seconds, behind, engine)
            rows.append(_Row(*at, o.latency + lag, gap, rate, o.links))
            if o.completion > 0:
                rows.append(_Row(number, fresh + 2, o.completion, first[-1]))
            fresh += 3
            done.append(len(rows) - 1)
            last[o.stream] = number
            if o.kind == "kernel":
                kernels.append(done[-1])
        return rows, first, done

    def _columns(self, rows: list[_Row]) -> Columns:
        of = _Row(*zip(*rows, strict=True))
        seconds, latency, gap = np.rint(np.array([of.seconds, of.latency, of.gap]) * 1e9)
        call_ns = np.rint([(self.rules.call_s + o.host_s) * 1e9 for o in self._operations])
        blocks = np.array([operation.blocks_host for operation in self._operations])
        return at_rest(
            len(call_ns),
            len(rows),
            max(of.stream) + 1,
            call_own=call_ns,
            call_wait=np.where(blocks, WAIT["operation"], WAIT["none"]),
            operation_call=of.call,
            operation_launched=np.ones(len(rows)),
            operation_stream=of.stream,
            operation_engine=of.engine,
            operation_duration=seconds,
            # A call's own time passes before what it launches.
            operation_launch_lag=latency + call_ns[list(of.call)],
            operation_order_lag=latency,
            operation_engine_lag=gap,
            operation_turn=np.arange(len(rows)),
            operation_after=of.after,
            operation_bytes_per_s=of.rate,
            operation_link_begin=np.cumsum([0, *map(len, of.links)]),
            operation_links=list(chain.from_iterable(of.links)),
            operation_link_cost=np.ones(sum(map(len, of.links))),
            stream_context=np.full(max(of.stream) + 1, -1),
            engine_slots=[1, 1, 1],
            link_bytes_per_s=[rate or np.inf for rate in self._capacity],
            link_both=self._shares(),
            link_opposite=[1, 0, 3, 2, 5, 4],
        )

    def _shares(self) -> list[float]:
        """What is left of each link's rate while its opposite is in use."""
        c = self.rules.contention

        def kept_share(share: float, direction: str, mapped: str) -> float:
            kernels = self._mapped[mapped]
            copies = sum(o.seconds for o in self._operations if o.kind == direction)
            writing, whole = np.mean(kernels or [(0.0, 0.0)], axis=0)
            return float(share_with_mapped(share, copies / max(1, len(kernels)), writing, whole))

        into = kept_share(c.copy_beside_mapped.h2d, "h2d", "d2h")
        out = kept_share(c.copy_beside_mapped.d2h, "d2h", "h2d")
        return [c.both.h2d, c.both.d2h, into, c.mapped_beside_copy.d2h, out, c.mapped_beside_copy.h2d]
