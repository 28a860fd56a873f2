"""Which schedule is fastest in the GPU memory at hand, what limits it, and from how many tokens on streaming pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from busfare.cost.ranges import range_beside
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.planning.machine import Machine
from busfare.planning.offload.schedule import (
    MEMORIES,
    Layers,
    Memory,
    Schedule,
    copy_seconds,
    device_bytes,
    pass_seconds,
    seconds_of,
)

__all__ = [
    "DEPTHS",
    "Ranked",
    "best_first",
    "break_even",
    "link_share",
    "ranged",
    "residents_of",
    "schedules",
    "share_hidden",
]

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
    layers: Layers,
    budget: float | None,
    residents: Iterable[int],
    depths: Sequence[int],
    memories: Sequence[Memory],
) -> list[Schedule]:
    """All schedules that fit a budget of GPU memory (bytes). Kernels that read mapped memory have no depth."""
    found = dict.fromkeys(
        Schedule(resident, 0 if memory == "mapped" or resident == len(layers) else depth, memory)
        for resident, depth, memory in product(residents, depths, memories)
    )
    return [s for s in found if budget is None or s.device_bytes(layers) <= budget]


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
        raise InputError(f"--gpus {gpus}: {node.name} has {len(node.gpus())}; give no more than that")
    paths = [node.host_path(ordinal) for ordinal in range(gpus)]
    own = paths[0].bandwidth("read")
    links = [(link.bandwidth("read"), sum(link in path.links for path in paths)) for link in paths[0].links]
    memory = paths[0].memory
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        links.append((memory.bandwidth_bytes_per_s, sum(path.memory is memory for path in paths)))
    return min(1.0, *(rate / users / own for rate, users in links))


def best_first(layers: Layers, machine: Machine, of: Iterable[Schedule], share: float = 1.0) -> list[Ranked]:
    """The fastest first; of those within 1 % of it, the one that takes least GPU memory, and the shallowest."""
    found = [Ranked(s, seconds_of(layers, s, machine, share), s.device_bytes(layers)) for s in of]
    found.sort(key=lambda r: r.seconds)
    if found:
        alike = [r for r in found if r.seconds <= found[0].seconds * (1 + WITHIN)]
        first = min(
            alike, key=lambda r: (r.device_bytes, r.schedule.depth, MEMORIES.index(r.schedule.memory))
        )
        found.remove(first)
        found.insert(0, first)
    return found


def ranged(
    seconds: float,
    schedule: Schedule,
    machine: Machine,
    ends: tuple[Layers, Layers, Layers] | None = None,
    share: float = 1.0,
    rung: str = "",
) -> dict[str, Any]:
    """`low_seconds`, `high_seconds` and `rung` of a pass. `ends`: its layers with the least, the predicted and the most
    seconds of their kernels, where these are predicted as well, from figures of `rung`.
    """
    keys = range_beside(schedule.memory, seconds, machine.node, what="offload")
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
        return None, "streaming is faster from the first token on"
    low, high = 1.0, 2.0
    while streamed(high) > elsewhere(high):
        low, high = high, 2 * high
        if high > most:
            return None, f"streaming is slower up to {most:.0f} tokens"
    while high - low > CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if streamed(middle) > elsewhere(middle) else (low, middle)
    return high, ""
