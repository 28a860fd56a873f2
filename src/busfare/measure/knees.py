"""Sizes at which a copy's time jumps, because the driver or the hardware turns to another way of moving data."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from busfare.measure.case import Case
from busfare.measure.device import Device
from busfare.measure.raw import Measurement, Record
from busfare.measure.run import measure
from busfare.measure.summary import interquartile_mean

__all__ = ["Jump", "jumps", "locate"]

#: A jump is what neither neighbour's slope explains, and this share of the time before it …
LEAST_JUMP = 0.15
#: … but no less than this: clocks tick every 32 ns, and latencies scatter by more.
LEAST_JUMP_S = 0.4e-6
#: A knee is located to a sixty-fourth of its size: kernels and drivers turn at round sizes.
RESOLUTION = 64
#: Each of the sizes tried takes this long.
BUDGET_S = 0.05


@dataclasses.dataclass(frozen=True)
class Jump:
    """Between sizes `below` and `above` (bytes), next to each other, the time rises by `seconds` at once."""

    below: int
    above: int
    seconds: float


def jumps(sizes: Sequence[int], seconds: Sequence[float]) -> list[Jump]:
    """Jumps of a curve; `sizes` (bytes, rising) and `seconds` are parallel."""
    found = []
    slopes = [(seconds[i + 1] - seconds[i]) / (sizes[i + 1] - sizes[i]) for i in range(len(sizes) - 1)]
    for i in range(1, len(slopes) - 1):
        explained = max(slopes[i - 1], slopes[i + 1], 0.0) * (sizes[i + 1] - sizes[i])
        rise = seconds[i + 1] - seconds[i] - explained
        if rise > max(LEAST_JUMP * seconds[i], LEAST_JUMP_S):
            found.append(Jump(sizes[i], sizes[i + 1], rise))
    return found


def locate(
    device: Device, record: Record, like: Case, clock: Callable[[], float] = time.monotonic
) -> list[Jump]:
    """The jumps of the path of `like`, each halved until it is known well enough; adds what it measures.

    `like` gives all but the size. The measurements go to `record` as any others.
    """
    located = []
    sizes, seconds = _curve(record, like)
    for jump in jumps(sizes, seconds):
        low, high = jump.below, jump.above
        before, after = seconds[sizes.index(low)], seconds[sizes.index(high)]
        while high - low > max(1, low // RESOLUTION):
            between = dataclasses.replace(like, bytes=(low + high) // 2)
            if record.of(between) is None:
                measure(device, [between], record, BUDGET_S, clock=clock, warm_up=False)
            taken = record.of(between)
            if taken is None:
                break
            middle_s = interquartile_mean(taken.seconds)
            if middle_s - before > after - middle_s:
                high, after = between.bytes, middle_s
            else:
                low, before = between.bytes, middle_s
        located.append(Jump(low, high, after - before))
    return located


def _curve(record: Record, like: Case) -> tuple[list[int], list[float]]:
    found: list[Measurement] = [
        m
        for m in record.measurements
        if dataclasses.replace(m.case, bytes=like.bytes) == like and m.case.bytes > 0
    ]
    found.sort(key=lambda m: m.case.bytes)
    return [m.case.bytes for m in found], [interquartile_mean(m.seconds) for m in found]
