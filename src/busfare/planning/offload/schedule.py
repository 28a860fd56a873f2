"""A pass over layers of which some live on the host: as a program for the engine and as a recurrence; which schedule is
fastest in the GPU memory at hand, and from how many tokens on streaming pays.

The first `resident` layers stay on the GPU. The others are streamed, one after another, into `depth + 1` buffers: beside
the computing of a layer up to `depth` later ones are brought. A buffer is free again when its layer is computed, and what
it sends back has left. Depth 0 copies and computes in turns. A pass begins with the GPU idle and ends with its last
operation.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, get_args

import numpy as np

from busfare.cost.kernels.limits import TILES
from busfare.cost.ranges import strategy_range
from busfare.errors import InputError
from busfare.nodes import Curve, Node
from busfare.planning.machine import Machine
from busfare.questions import MOST_LAYERS
from busfare.questions import HostMemory as Memory
from busfare.timeline.program import Mapped, Program

MEMORIES: tuple[Memory, ...] = get_args(Memory)
#: The most rows of a product that one tile holds [TILES of cost/kernels/limits.py].
ROWS_OF_TILE = max(rows for rows, _ in TILES)
#: Of `HostCurves`, the curve that carries each memory kind. Managed memory is brought by prefetches.
CURVES = {"pinned": "copy", "pageable": "pageable", "mapped": "mapped", "managed": "prefetched"}
COPY_IN, COMPUTE, COPY_OUT = 0, 1, 2


@dataclass(frozen=True)
class Layers:
    """A network, or any program, as layers that are worked off in order. By layer: `bytes` that it needs in GPU memory (its
    weights), `seconds` of its kernels with these there, and `back_bytes` that are copied out once it is computed (gradients,
    updated weights); empty: none. `held`: bytes that it takes where it is resident; empty: `bytes` (of a mixture's experts,
    a pass brings those that it needs). `cached`: bytes of it that stay on the GPU where it is streamed. `pieces`: copies
    that its bytes come in, each handed over by a call of `call_seconds`; empty: one. `routed_seconds`: where the layer's own
    router chooses its bytes, how long the host waits for the choice and for the copies; no such layer is brought ahead.
    `rows`: of its products, 0 where not known; each tile of rows reads all weights, of mapped memory over the link.
    """

    bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    back_bytes: tuple[float, ...] = ()
    held: tuple[float, ...] = ()
    cached: tuple[float, ...] = ()
    pieces: tuple[float, ...] = ()
    call_seconds: float = 0.0
    routed_seconds: float = 0.0
    rows: float = 1.0

    def __post_init__(self) -> None:
        """Raises InputError where they do not fit together."""
        if not 1 <= len(self.bytes) <= MOST_LAYERS:
            raise InputError(f"{len(self.bytes)} layers; give 1 to {MOST_LAYERS}")
        if len(self.seconds) != len(self.bytes) or len(self.back_bytes) not in (0, len(self.bytes)):
            raise InputError(
                f"{len(self.bytes)} layers with {len(self.seconds)} times and {len(self.back_bytes)} sizes of copies "
                "back to the host; give each once, or one per layer"
            )
        if min(*self.bytes, *self.seconds, *self.back_bytes, 0.0) < 0.0:
            raise InputError("a layer has negative bytes or seconds; give zero or more")

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def resident_bytes(self) -> tuple[float, ...]:
        """Bytes that each layer takes where it is resident."""
        return self.held or self.bytes

    @property
    def row_tiles(self) -> float:
        """How often a product reads its weights: once for each tile of rows."""
        return max(1.0, math.ceil(self.rows / ROWS_OF_TILE))


@lru_cache(maxsize=64)
def device_bytes(layers: Layers, depth: int, memory: Memory) -> list[float]:
    """GPU memory for the layers by how many are resident: those, and a buffer for each that is computed or on its way."""
    held = accumulate(layers.resident_bytes, initial=0.0)
    largest = [*accumulate(reversed(layers.bytes), max, initial=0.0)][::-1]
    most = 0 if memory == "mapped" else depth + 1
    streamed = range(len(layers), -1, -1)
    cached = [*accumulate(reversed(layers.cached or (0.0,) * len(layers)), initial=0.0)][::-1]
    return [
        resident + kept + min(most, left) * buffer
        for resident, kept, left, buffer in zip(held, cached, streamed, largest, strict=True)
    ]


class Schedule(NamedTuple):
    """How many layers stay on the GPU, how many are brought ahead, and from which kind of host memory."""

    resident: int
    depth: int = 1
    memory: Memory = "pinned"

    def device_bytes(self, layers: Layers) -> float:
        """GPU memory for the layers."""
        return device_bytes(layers, self.depth, self.memory)[self.resident]


def copy_curve(machine: Machine, direction: str, memory: str, share: float = 1.0) -> Curve:
    """What carries `memory` in a direction, where each copy gets `share` of its rate."""
    curve: Curve = getattr(machine.curves(direction), CURVES[memory])
    return curve.scaled(1 / share)


class _Moving(NamedTuple):
    """What carries layers in, and of each layer L+o and B·G (s)."""

    curve: Curve
    starts: list[float]
    moves: list[float]


@lru_cache(maxsize=64)
def _moving(layers: Layers, machine: Machine, memory: str, share: float) -> _Moving:
    curve, sizes = copy_curve(machine, "h2d", memory, share), np.array(layers.bytes)
    if memory == "mapped":
        moves = sizes * curve.gap_per_byte(sizes) * layers.row_tiles
        return _Moving(curve, curve.latency_overhead(sizes).tolist(), moves.tolist())
    # A copy of several holds the engine for its bytes and g, or until the host has handed over the next; a pageable one
    # blocks the host until it is complete.
    pieces = np.maximum(1.0, np.array(layers.pieces or (1.0,) * len(layers)))
    alone = sizes / pieces * curve.gap_per_byte(sizes / pieces)
    latency = curve.latency_overhead(sizes / pieces)
    between = latency if memory == "pageable" else curve.issue_interval(1)
    apart = np.maximum(alone + between, layers.call_seconds)
    return _Moving(curve, (latency + layers.routed_seconds).tolist(), (alone + (pieces - 1) * apart).tolist())


def copy_seconds(layers: Layers, schedule: Schedule, machine: Machine, share: float = 1.0) -> float:
    """Seconds for which the streamed layers' copies in hold the link, one behind another."""
    return sum(_moving(layers, machine, schedule.memory, share).moves[schedule.resident :])


def program_of(layers: Layers, schedule: Schedule, machine: Machine, share: float = 1.0) -> Program:
    """The pass as copies and kernels in three streams. `share` of its rate that each copy gets, where GPUs share a link."""
    into, out = (copy_curve(machine, direction, schedule.memory, share) for direction in ("h2d", "d2h"))
    program = Program(machine.rules())
    first, depth, back = schedule.resident, schedule.depth, layers.back_bytes or (0.0,) * len(layers)
    blocks, pages = schedule.memory == "pageable", schedule.memory == "managed"
    copied: dict[int, int] = {}
    done: list[tuple[int, ...]] = []

    def bring(layer: int) -> None:
        if layer < len(layers) and layers.bytes[layer] > 0:
            # Depth 0 has one buffer, and nothing beside the computing of what is before it.
            freed = layer - 1 if depth == 0 else layer - (depth + 1)
            behind = done[freed] if freed >= (0 if depth == 0 else first) else ()
            pieces = max(1, round(layers.pieces[layer])) if layers.pieces else 1
            for _ in range(pieces):
                size, call_s = layers.bytes[layer] / pieces, layers.call_seconds
                copied[layer] = program.copy("h2d", size, into, COPY_IN, behind, blocks, call_s)

    def compute(layer: int) -> None:
        size, streamed = layers.bytes[layer], layer >= first
        mapped = streamed and schedule.memory == "mapped" and size > 0
        reads = Mapped(size * layers.row_tiles, into) if mapped else None
        after = (copied[layer],) if layer in copied else ()
        # Nothing runs while the host waits for a router and its copies.
        waits = layers.routed_seconds if layer in copied else 0.0
        kernel = program.kernel(layers.seconds[layer] + waits, COMPUTE, after, reads)
        # Pages of managed memory that are not sent back would fill the GPU; nothing waits for their room.
        leaving = (size if pages else back[layer]) if streamed else 0.0
        sent = (program.copy("d2h", leaving, out, COPY_OUT, (kernel,), blocks),) if leaving > 0 else ()
        done.append((kernel,) if pages else (kernel, *sent))

    copies = schedule.memory != "mapped"
    # A copy of pageable memory holds the host until it is done, so what needs none goes before it.
    ahead = [(bring, range(first, first + depth if copies else first)), (compute, range(first))]
    for issue, numbers in reversed(ahead) if blocks else ahead:
        for number in numbers:
            issue(number)
    for layer in range(first, len(layers)):
        if copies and depth == 0:
            bring(layer)
        compute(layer)
        if copies and depth > 0:
            bring(layer + depth)
    return program


def pass_seconds(layers: Layers, schedule: Schedule, machine: Machine, share: float = 1.0) -> float:
    """Seconds of a pass that copies nothing back, as the program takes, step by step: what a ranking of thousands needs.

    A copy holds its engine for B·G, behind another one for g as well, and is complete L+o later; a layer is computed when
    its copy is complete and the layer before it is computed.
    """
    first, depth, memory = schedule
    curve, starts, moves = _moving(layers, machine, memory, share)
    done = list(accumulate(layers.seconds[:first]))
    computed = done[-1] if done else 0.0
    if memory == "mapped":
        streamed = zip(layers.seconds[first:], moves[first:], starts[first:], strict=True)
        return computed + sum(max(alone, move) + start * (move > 0) for alone, move, start in streamed)
    gap, blocks, ahead = float(curve.issue_interval(1)), memory == "pageable", max(depth, 1)
    free = host = 0.0
    there: dict[int, float] = {}
    count = len(layers)
    for layer in range(first, count):
        # Issued before this layer is computed: of the first one those brought ahead, else what its computing freed.
        for number in range(first, first + ahead) if layer == first else (layer - 1 + ahead,):
            if number >= count or moves[number] <= 0:
                continue
            freed = number - 1 if depth == 0 else number - (depth + 1)
            behind = 0.0
            if freed >= (0 if depth == 0 else first):
                behind = done[freed] + curve.after_kernel_s
            free = max(free + gap * (free > 0), behind, host) + moves[number]
            there[number] = free + starts[number]
            host = there[number] if blocks else 0.0
        arrived = max(there[layer], host) + curve.event_wait_s if layer in there else host
        computed = max(computed, arrived) + layers.seconds[layer]
        done.append(computed)
    return computed


@lru_cache(maxsize=1024)
def seconds_of(layers: Layers, schedule: Schedule, machine: Machine, share: float = 1.0) -> float:
    """Seconds of a pass: played where data goes back, by the recurrence otherwise."""
    if layers.routed_seconds:
        schedule = schedule._replace(depth=0)
    if layers.back_bytes or schedule.memory == "managed":
        return program_of(layers, schedule, machine, share=share).play().seconds
    return pass_seconds(layers, schedule, machine, share)


#: How deep a plan looks ahead: no further one was ever needed where layers are alike, and each takes a buffer.
DEPTHS = (0, 1, 2, 3, 4)
#: Within this share two schedules are as good: the one with less GPU memory, then with less to write, goes first.
WITHIN = 0.01
#: Break-even tokens are looked for up to here, and this close.
MOST_TOKENS, CLOSE = 1 << 24, 1e-4
#: Numbers of resident layers that are looked at beside the most that fit.
LOOKED_AT = 8


class Ranked(NamedTuple):
    """A schedule with the seconds of its pass and the GPU memory (bytes) that its layers take."""

    schedule: Schedule
    seconds: float
    device_bytes: float


def schedules(
    layers: Layers, budget: float | None, depth: int, memory: Memory, resident: int | None = None
) -> list[Schedule]:
    """The schedules that fit a budget of GPU memory (bytes), with so many resident layers or with those worth looking at.
    Kernels that read mapped memory have no depth.
    """
    residents = residents_of(layers, budget, depth, memory) if resident is None else [resident]
    # What a layer's router chooses can't be brought before it has run.
    at_once = memory == "mapped" or layers.routed_seconds > 0
    candidates = [Schedule(n, 0 if at_once or n == len(layers) else depth, memory) for n in residents]
    return [s for s in candidates if budget is None or s.device_bytes(layers) <= budget]


def residents_of(layers: Layers, budget: float | None, depth: int, memory: Memory) -> list[int]:
    """Numbers of resident layers worth looking at in a budget (bytes): the most that fit, and some below it."""
    sizes = device_bytes(layers, depth, memory)
    fit = [n for n, size in enumerate(sizes) if budget is None or size <= budget]
    if not fit:
        return []
    if layers.back_bytes or memory == "managed":  # each is played, and fewer are never faster
        return [fit[-1]]
    step = max(1, len(fit) // LOOKED_AT)
    return sorted({*fit[::step], fit[-1]})


def link_share(node: Node, gpus: int) -> float:
    """The share of its own rate that the first GPU's host link keeps while the first `gpus` GPUs stream at once: by the
    links that their paths have in common. Raises InputError where the node has fewer.
    """
    if gpus > len(node.gpus()):
        raise InputError(f"`gpus` {gpus}: {node.name} has {len(node.gpus())}; give at most that many")
    paths = [node.host_path(ordinal) for ordinal in range(gpus)]
    link_rate = paths[0].bandwidth("read")
    links = [(link.bandwidth("read"), sum(link in path.links for path in paths)) for link in paths[0].links]
    memory = paths[0].memory
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        links.append((memory.bandwidth_bytes_per_s, sum(path.memory is memory for path in paths)))
    return min(1.0, *(rate / users / link_rate for rate, users in links))


def rereads(layers: Layers, schedule: Schedule) -> bool:
    """Whether kernels read mapped weights more than once, or may: published programs took 13 to 29 times as long as copies
    then, which the number of tiles alone doesn't explain. Such a schedule stands behind all others.
    """
    streams = schedule.resident < len(layers)
    return schedule.memory == "mapped" and streams and not 0 < layers.rows <= ROWS_OF_TILE


def best_first(layers: Layers, machine: Machine, of: Iterable[Schedule], share: float = 1.0) -> list[Ranked]:
    """The fastest first; of those within 1 % of it, the one that takes least GPU memory, and the shallowest."""
    candidates = [Ranked(s, seconds_of(layers, s, machine, share), s.device_bytes(layers)) for s in of]
    candidates.sort(key=lambda r: (rereads(layers, r.schedule), r.seconds))
    if candidates:
        first = candidates[0]
        most, again = first.seconds * (1 + WITHIN), rereads(layers, first.schedule)
        near = [r for r in candidates if r.seconds <= most and rereads(layers, r.schedule) == again]
        first = min(near, key=lambda r: (r.device_bytes, r.schedule.depth, MEMORIES.index(r.schedule.memory)))
        candidates.remove(first)
        candidates.insert(0, first)
    return candidates


def ranged(
    seconds: float,
    schedule: Schedule,
    machine: Machine,
    layers: Layers,
    ends: tuple[Layers, Layers, Layers] | None = None,
    share: float = 1.0,
    rung: str = "",
) -> dict[str, Any]:
    """`low_seconds`, `high_seconds` and `rung` of a pass. `ends`: its layers with the least, the predicted and the most
    seconds of their kernels, where these are predicted as well, from figures of `rung`.
    """
    keys = strategy_range(schedule.memory, seconds, machine.node, what="offload")
    if schedule.memory == "pageable" and keys["high_seconds"] is not None:
        # Pageable copies block their caller: a program that copies before it launches hides nothing.
        in_turns = copy_seconds(layers, schedule, machine, share) + sum(layers.seconds)
        keys["high_seconds"] *= max(1.0, in_turns / seconds)
    if ends is None or keys["low_seconds"] is None:
        return keys
    low, middle, high = (pass_seconds(layers, schedule, machine, share) for layers in ends)
    return {
        "low_seconds": keys["low_seconds"] * low / middle,
        "high_seconds": keys["high_seconds"] * high / middle,
        "rung": keys["rung"] if rung == "probed" else "datasheet",
    }


def share_hidden(
    layers: Layers, schedule: Schedule, machine: Machine, seconds: float, share: float = 1.0
) -> float | None:
    """The part of the copies' time that passes while layers are computed; None where nothing is streamed."""
    copies = copy_seconds(layers, schedule, machine, share)
    if copies <= 0:
        return None
    return min(1.0, max(0.0, (sum(layers.seconds) + copies - seconds) / copies))


def break_even(
    streamed: Callable[[float], float], elsewhere: Callable[[float], float], most: float = MOST_TOKENS
) -> tuple[float | None, str]:
    """From how many tokens on a pass is faster streamed than `elsewhere` (seconds by tokens; on the processor, recomputed).
    None with a reason where one of them is faster from the first token to the most.
    """
    if streamed(1) <= elsewhere(1):
        return None, "streaming is faster from the first token"
    low, high = 1.0, 2.0
    while streamed(high) > elsewhere(high):
        low, high = high, 2 * high
        if high > most:
            why = f"no break-even: streaming is still slower at {most:,.0f} tokens, where the search ends"
            return None, why
    while high - low > CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if streamed(middle) > elsewhere(middle) else (low, middle)
    return high, ""
