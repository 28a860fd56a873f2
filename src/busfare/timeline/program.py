"""A program of copies and kernels in streams, played by the one engine (native/replay) on a GPU's parameters.

    program = Program(GpuRules(node.contention()))
    first = program.copy("h2d", 4 << 20, node.curve("h2d", "pinned"), stream=0)
    kernel = program.kernel(1e-3, stream=1, after=(first,))
    program.copy("d2h", 4 << 20, node.curve("d2h", "pinned"), stream=2, after=(kernel,))
    program.play().seconds

Operations are added in the order in which the host issues them. One starts when it is issued, the one before it in its
stream and those of `after` (event waits) are complete, and its engine is free; of several the one issued first goes
first. A copy holds its engine for g and its bytes, and is complete L+o - g later, so that n copies back to back take
(L+o) + k·G + g(n-1) [W14 §V]; g is the curve's issue interval for the number of streams that hold copies of its direction.
While data moves the other way a copy, or a kernel on mapped memory, keeps its share (`Contention`) of its own rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from busfare.node import Contention, Curve
from busfare.node.arrays import FloatArray
from busfare.timeline import _core

__all__ = ["GpuRules", "Mapped", "Played", "Program", "mapped_seconds"]

Way = Literal["h2d", "d2h"]
NON_BLOCKING, WAITS_FOR_ITS_OWN = 2, 1
#: Into so many parts the processors of the GPU are divided among kernels.
SLOTS = 1000
#: Links by use: copies beside copies, copies in beside mapped writes, copies out beside mapped reads. Even links have the
#: next one as their opposite.
COPY_LINKS = {"h2d": (0, 2), "d2h": (1, 4)}
MAPPED_LINK = {"h2d": 5, "d2h": 3}
#: Types of the core's columns; all others are int64.
_INT32 = (
    "call_thread", "call_after", "call_wait_key", "call_act_stream", "call_act_event", "operation_call",
    "operation_stream", "operation_engine", "operation_takes", "operation_after", "operation_links", "stream_device",
    "stream_context", "engine_slots", "link_opposite",
)  # fmt: skip
_UINT8 = ("call_wait", "call_act", "operation_launched", "operation_unordered", "stream_kind")
_FLOAT64 = ("operation_bytes_per_s", "link_bytes_per_s", "link_both")


ALONE = Contention()


@dataclass(frozen=True, slots=True)
class GpuRules:
    """How a GPU runs what it is given.

    `copy_engines`: one for both directions, or one each. `implicit_synchronization`: a copy out waits for all kernels
    issued before it [W14 §IV]. `queues`: hardware queues, which are worked off in order; None: one a stream. `call_s`: what
    each call takes on the host.
    """

    contention: Contention = ALONE
    copy_engines: int = 2
    implicit_synchronization: bool = False
    queues: int | None = None
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


@dataclass(slots=True)
class _Operation:
    """`seconds` alone, behind `latency` (s) and before `completion` (s), in which it holds no engine."""

    kind: Literal["h2d", "d2h", "kernel"]
    stream: int
    seconds: float
    latency: float
    completion: float
    after: tuple[int, ...]
    blocks_host: bool
    rate: float = 0.0
    links: tuple[int, ...] = ()
    slots: int = 1


def mapped_seconds(kernel_s: float, into: Mapped | None, out: Mapped | None, contention: Contention) -> float:
    """Seconds of a kernel that reads and writes mapped memory: [W14 eq 6] without its L+o, each way at the share of its
    rate that both at once leave it. `kernel_s`: with its data in device memory.
    """
    both = into is not None and out is not None and into.bytes > 0 and out.bytes > 0
    shares = contention.mapped_both
    reads = into.seconds / (shares.h2d if both else 1.0) if into else 0.0
    writes = out.seconds / (shares.d2h if both else 1.0) if out else 0.0
    return max(kernel_s, reads, writes)


@dataclass
class Program:
    """Copies and kernels in the order of their issue. `copy` and `kernel` return an operation's number, for `after`."""

    rules: GpuRules = field(default_factory=GpuRules)
    _operations: list[_Operation] = field(default_factory=list)
    _copies: list[tuple[int, Curve]] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _capacity: list[float] = field(default_factory=lambda: [0.0] * 6)
    _mapped_load: dict[str, list[float]] = field(default_factory=lambda: {"h2d": [], "d2h": []})

    def copy(
        self,
        direction: Way,
        size: float,
        curve: Curve,
        stream: int,
        after: Sequence[int] = (),
        blocks_host: bool = False,
    ) -> int:
        """Adds a copy of `size` bytes. `blocks_host`: the host issues nothing until it is complete."""
        rate = 1.0 / max(float(curve.gap_per_byte(size)), 1e-30)
        for link in COPY_LINKS[direction]:
            self._capacity[link] = max(self._capacity[link], 1.0 / max(curve.long_gap_per_byte_s, 1e-30))
        self._copies.append((len(self._operations), curve))
        start = float(curve.latency_overhead(size))
        return self._add(
            _Operation(direction, stream, size / rate, 0.0, start, tuple(after), blocks_host, rate,
                       COPY_LINKS[direction])
        )  # fmt: skip

    def kernel(
        self,
        seconds: float,
        stream: int,
        after: Sequence[int] = (),
        into: Mapped | None = None,
        out: Mapped | None = None,
        share: float = 1.0,
    ) -> int:
        """Adds a kernel that takes `seconds` with its data in device memory, and reads or writes mapped memory.

        `share` of the GPU is what it fills: so many run side by side, none slowing another.
        """
        whole = mapped_seconds(seconds, into, out, self.rules.contention)
        latency, completion = (
            float(m.curve.latency_overhead(m.bytes)) if m and m.bytes else 0.0 for m in (into, out)
        )
        operation = _Operation("kernel", stream, whole, latency, completion, tuple(after), False,
                               slots=max(1, min(SLOTS, round(share * SLOTS))))  # fmt: skip
        for direction, mapped in (("h2d", into), ("d2h", out)):
            if mapped is None or mapped.seconds <= 0 or whole <= 0:
                continue
            link, load = MAPPED_LINK[direction], mapped.seconds / whole
            self._capacity[link] = max(self._capacity[link], mapped.bytes / mapped.seconds)
            self._mapped_load[direction].append(load)
            if load >= max(self._mapped_load[direction]) or not operation.links:
                operation.rate, operation.links = mapped.bytes / whole, (link,)
        return self._add(operation)

    def play(self) -> Played:
        """Runs it. Raises ValueError where it would take decades."""
        if not self._operations:
            return Played(np.zeros(0), np.zeros(0), 0.0)
        columns, first, last = self._columns()
        played = _core.play(columns)
        start, end = played["operation_start"][first] * 1e-9, played["operation_end"][last] * 1e-9
        return Played(start, end, float(end.max()))

    def _add(self, operation: _Operation) -> int:
        self._operations.append(operation)
        return len(self._operations) - 1

    def _issue_intervals(self) -> None:
        """Each copy's g: in a train of one stream behind the copy before it, else by the number of streams."""
        streams: dict[str, set[int]] = {"h2d": set(), "d2h": set()}
        for number, _ in self._copies:
            operation = self._operations[number]
            streams[operation.kind].add(operation.stream)
        before: dict[int, str] = {}
        curves = dict(self._copies)
        for number, operation in enumerate(self._operations):
            if operation.kind != "kernel":
                count = 1 if before.get(operation.stream) == operation.kind else len(streams[operation.kind])
                start = operation.latency + operation.completion
                operation.latency = min(float(curves[number].issue_interval(count)), start)
                operation.completion = start - operation.latency
            before[operation.stream] = operation.kind

    def _columns(self) -> tuple[dict[str, NDArray[Any]], list[int], list[int]]:
        """The core's columns, and of each operation the row that moves or computes and the row of its completion."""
        self._issue_intervals()
        rows: list[tuple[int, int, int, float, float, int, float, tuple[int, ...], int]] = []
        first: list[int] = []
        done: list[int] = []
        last: dict[int, int] = {}
        kernels: list[int] = []
        at_once = SLOTS // min((o.slots for o in self._operations if o.kind == "kernel"), default=SLOTS)
        streams = max(operation.stream for operation in self._operations) + 1
        fresh = streams + (self.rules.queues or 0)

        def row(call: int, stream: int, engine: int, seconds: float, lag: float, after: int, rate: float = 0.0,
                links: tuple[int, ...] = (), slots: int = 1) -> int:  # fmt: skip
            rows.append((call, stream, engine, seconds, lag, after, rate, links, slots))
            return len(rows) - 1

        for number, operation in enumerate(self._operations):
            waits = [done[other] for other in operation.after]
            before = last.get(operation.stream)
            if before is not None and (
                operation.kind == "kernel" or self._operations[before].kind != operation.kind
            ):
                waits.append(done[before])
            if operation.kind == "d2h" and self.rules.implicit_synchronization:
                waits += kernels[-at_once:]
            queue = None if self.rules.queues is None else streams + operation.stream % self.rules.queues
            behind = -1
            if queue is not None or len(waits) > 1:
                # One row a wait, in a stream of their own: that of the hardware queue, or a fresh one.
                waiting = fresh if queue is None else queue
                fresh += queue is None
                for other in waits or [-1]:
                    behind = row(number, waiting, -1, 0.0, 0.0, other)
            elif waits:
                behind = waits[0]
            engine = {"h2d": 0, "d2h": 0 if self.rules.copy_engines == 1 else 1, "kernel": 2}[operation.kind]
            moving = row(number, operation.stream, engine, operation.seconds, operation.latency, behind,
                         operation.rate, operation.links, operation.slots)  # fmt: skip
            first.append(moving)
            if operation.completion > 0:
                moving = row(number, fresh, -1, operation.completion, 0.0, moving)
                fresh += 1
            done.append(moving)
            last[operation.stream] = number
            if operation.kind == "kernel":
                kernels.append(moving)
        return self._typed(rows, fresh), first, done

    def _typed(self, rows: list[Any], streams: int) -> dict[str, NDArray[Any]]:
        call, stream, engine, seconds, lag, after, rate, links, slots = zip(*rows, strict=True)
        calls, count = len(self._operations), len(rows)
        ns = np.rint(np.array([seconds, lag]) * 1e9)
        blocks = np.array([operation.blocks_host for operation in self._operations])
        columns: dict[str, Any] = {
            **{f"call_{name}": np.zeros(calls) for name in ("thread", "gap", "wait_lag", "act")},
            **{f"call_{name}": np.full(calls, -1) for name in ("after", "wait_key", "act_stream", "act_event")},
            "call_own": np.full(calls, round(self.rules.call_s * 1e9)),
            "call_wait": np.where(blocks, WAITS_FOR_ITS_OWN, 0),
            "operation_call": call,
            "operation_launched": np.ones(count),
            "operation_stream": stream,
            "operation_engine": engine,
            "operation_takes": slots,
            "operation_duration": ns[0],
            # A call's own time passes before what it launches.
            "operation_launch_lag": ns[1] + round(self.rules.call_s * 1e9),
            "operation_order_lag": ns[1],
            "operation_turn": np.arange(count),
            "operation_after": after,
            **{f"operation_{name}": np.zeros(count) for name in ("extra", "released", "unordered")},
            "operation_bytes_per_s": rate,
            "operation_link_begin": np.concatenate([[0], np.cumsum([len(one) for one in links])]),
            "operation_links": [link for one in links for link in one],
            "stream_device": np.zeros(streams),
            "stream_context": np.full(streams, -1),
            "stream_kind": np.full(streams, NON_BLOCKING),
            "engine_slots": [1, 1, SLOTS],
            "link_bytes_per_s": [rate or np.inf for rate in self._capacity],
            "link_both": self._shares(),
            "link_opposite": [1, 0, 3, 2, 5, 4],
        }  # fmt: skip
        types = {
            **dict.fromkeys(_INT32, np.int32),
            **dict.fromkeys(_UINT8, np.uint8),
            **dict.fromkeys(_FLOAT64, np.float64),
        }
        return {
            name: np.asarray(values).astype(types.get(name, np.int64)) for name, values in columns.items()
        }

    def _shares(self) -> list[float]:
        """What is left of each link's rate while its opposite is in use. A kernel that computes longer than it writes
        is in the way of copies for that part of its time only.
        """
        c = self.rules.contention

        def beside(share: float, loads: list[float]) -> float:
            return 1.0 / (1.0 + (1.0 / share - 1.0) * (sum(loads) / len(loads) if loads else 0.0))

        return [
            c.both.h2d, c.both.d2h,
            beside(c.copy_beside_mapped.h2d, self._mapped_load["d2h"]), c.mapped_beside_copy.d2h,
            beside(c.copy_beside_mapped.d2h, self._mapped_load["h2d"]), c.mapped_beside_copy.h2d,
        ]  # fmt: skip
