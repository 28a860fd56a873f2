"""One pass over layers of which some live on the host: as a program for the engine, and as a recurrence.

The first `resident` layers stay on the GPU. The others are streamed, one after another, into `depth + 1` buffers: beside
the computing of a layer up to `depth` later ones are brought. A buffer is free again when its layer is computed, and what
it sends back has left. Depth 0 copies and computes in turns. A pass begins with the GPU idle and ends with its last
operation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from busfare.node import Curve
from busfare.plan.machine import Machine
from busfare.plan.offload.layers import Layers
from busfare.timeline.program import GpuRules, Mapped, Program

__all__ = ["MEMORIES", "Memory", "Schedule", "copy_curve", "pass_seconds", "program_of"]

Memory = Literal["pinned", "pageable", "mapped", "managed"]
MEMORIES: tuple[Memory, ...] = get_args(Memory)
#: Of `HostCurves`, the curve that carries each memory kind. Managed memory is brought by prefetches.
CURVES = {"pinned": "copy", "pageable": "pageable", "mapped": "mapped", "managed": "prefetched"}
COPY_IN, COMPUTE, COPY_OUT = 0, 1, 2


class Schedule(NamedTuple):
    """How many layers stay on the GPU, how many are brought ahead, and from which kind of host memory."""

    resident: int
    depth: int = 1
    memory: Memory = "pinned"

    def device_bytes(self, layers: Layers) -> float:
        """GPU memory for the layers: the resident ones, and a buffer for each that is computed or on its way."""
        streamed = layers.bytes[self.resident :]
        buffers = 0 if self.memory == "mapped" else min(self.depth + 1, len(streamed))
        return sum(layers.resident_bytes[: self.resident]) + buffers * max(streamed, default=0.0)


def copy_curve(machine: Machine, direction: str, memory: str) -> Curve:
    """What carries `memory` in a direction."""
    curve: Curve = getattr(machine.curves(direction), CURVES[memory])
    return curve


def program_of(
    layers: Layers, schedule: Schedule, machine: Machine, launch_seconds: float = 0.0, share: float = 1.0
) -> Program:
    """The pass as copies and kernels in three streams. `launch_seconds`: the host's time for each call. `share` of its rate
    that each copy gets, where GPUs share a link.
    """
    into, out = (copy_curve(machine, way, schedule.memory).scaled(1 / share) for way in ("h2d", "d2h"))
    program = Program(
        GpuRules(
            machine.contention,
            copy_engines=1 if machine.category != "two-copy-engines" else 2,
            implicit_synchronization=machine.category == "implicit-synchronization",
            call_s=launch_seconds,
        )
    )
    first, depth, back = schedule.resident, schedule.depth, layers.back
    blocks, pages = schedule.memory == "pageable", schedule.memory == "managed"
    copied: dict[int, int] = {}
    done: list[tuple[int, ...]] = []

    def bring(layer: int) -> None:
        if layer < len(layers) and layers.bytes[layer] > 0:
            # Depth 0 has one buffer, and nothing beside the computing of what is before it.
            freed = layer - 1 if depth == 0 else layer - (depth + 1)
            behind = done[freed] if freed >= (0 if depth == 0 else first) else ()
            copied[layer] = program.copy("h2d", layers.bytes[layer], into, COPY_IN, behind, blocks)

    def compute(layer: int) -> None:
        size, streamed = layers.bytes[layer], layer >= first
        reads = Mapped(size, into) if streamed and schedule.memory == "mapped" and size > 0 else None
        after = (copied[layer],) if layer in copied else ()
        kernel = program.kernel(layers.seconds[layer], COMPUTE, after, reads)
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
    first, depth, memory = schedule.resident, schedule.depth, schedule.memory
    curve = copy_curve(machine, "h2d", memory).scaled(1 / share)
    sizes, gap = np.array(layers.bytes), float(curve.issue_interval(1))
    starts: list[float] = curve.latency_overhead(sizes).tolist()
    moves: list[float] = (sizes * curve.gap_per_byte(sizes)).tolist()
    if memory == "mapped":
        streamed = zip(layers.seconds[first:], moves[first:], starts[first:], strict=True)
        return sum(layers.seconds[:first], 0.0) + sum(
            max(alone, move) + start * (move > 0) for alone, move, start in streamed
        )
    blocks = memory == "pageable"
    free = host = computed = 0.0
    done: list[float] = []
    there: dict[int, float] = {}
    for layer in range(len(layers)):
        if layer < first:
            computed += layers.seconds[layer]
            done.append(computed)
            continue
        # Issued before this layer is computed: of the first one those brought ahead, else what its computing freed.
        ahead = range(first, first + max(depth, 1)) if layer == first else (layer - 1 + max(depth, 1),)
        for number in ahead:
            if number >= len(layers) or moves[number] <= 0:
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
