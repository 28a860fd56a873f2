"""Sizes at which a copy's time jumps, because the driver or the hardware changes to another way of moving data."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from busfare.measure.case import Case
from busfare.measure.device import Device
from busfare.measure.raw import Record
from busfare.measure.results import Knee
from busfare.measure.run import measure
from busfare.measure.summary import interquartile_mean

__all__ = ["jumps", "locate"]

#: A jump is what neither neighbour's slope explains, and this share of the time before it …
LEAST_JUMP = 0.15
#: … but no less than this: clocks tick every 32 ns, and latencies scatter by more.
LEAST_JUMP_S = 0.4e-6
#: A knee is located to a sixty-fourth of its size: kernels and drivers change at round sizes.
RESOLUTION = 64
#: Each of the sizes tried takes this long.
BUDGET_S = 0.05


def jumps(sizes: Sequence[int], seconds: Sequence[float]) -> list[int]:
    """Indices of the sizes (bytes, rising, parallel to `seconds`) after which the time jumps."""
    slopes = [(seconds[i + 1] - seconds[i]) / (sizes[i + 1] - sizes[i]) for i in range(len(sizes) - 1)]
    found = []
    for i in range(1, len(slopes) - 1):
        explained = max(slopes[i - 1], slopes[i + 1], 0.0) * (sizes[i + 1] - sizes[i])
        if seconds[i + 1] - seconds[i] - explained > max(LEAST_JUMP * seconds[i], LEAST_JUMP_S):
            found.append(i)
    return found


def locate(
    device: Device, record: Record, like: Case, clock: Callable[[], float] = time.monotonic
) -> list[Knee]:
    """The knees of the path of `like`, which gives all but the size: each jump is halved until it is known well enough.
    The measurements go to `record` as any others.
    """
    own = [
        m for m in record.measurements if m.bytes and dataclasses.replace(m.case, bytes=like.bytes) == like
    ]
    own.sort(key=lambda m: m.bytes)
    sizes, seconds = [m.bytes for m in own], [interquartile_mean(m.seconds) for m in own]
    located = []
    for i in jumps(sizes, seconds):
        (low, high), (before, after) = sizes[i : i + 2], seconds[i : i + 2]
        while high - low > max(1, low // RESOLUTION):
            between = dataclasses.replace(like, bytes=(low + high) // 2)
            if record.of(between) is None:
                measure(device, [between], record, BUDGET_S, clock=clock, warm_up=False)
            taken = record.of(between)
            if taken is None:
                break
            half_s = interquartile_mean(taken.seconds)
            if half_s - before > after - half_s:
                high, after = between.bytes, half_s
            else:
                low, before = between.bytes, half_s
        knee = Knee(
            direction=like.direction,
            memory=like.memory,
            gpu=like.gpu,
            after_bytes=low,
            seconds=after - before,
        )
        located.append(knee)
    return located
