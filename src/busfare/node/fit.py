"""Straight lines through a curve [W14 §V]: the fewest pieces, at most three, that describe it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.node.curve import MOST_PIECES

#: Another piece must lower the root-mean-square error to this share, or it is not worth its three numbers …
WORTH = 0.6
#: … and medians of quiet cases repeat within this: no piece is added below it.
NEAR = 0.002
#: Lines that differ by more where they should meet are of different ways to copy: there is a jump.
JUMP = 0.05
#: No link moves a byte in less than this, in seconds; G may not be zero in a node file.
LEAST_GAP = 1e-15


@dataclass(frozen=True)
class Fit:
    """Pieces, as a `Curve` has them, and their root-mean-square relative error on the points themselves."""

    up_to_bytes: tuple[int, ...]
    latency_overhead_s: tuple[float, ...]
    gap_per_byte_s: tuple[float, ...]
    error: float

    @property
    def pieces(self) -> dict[str, Any]:
        """What a `Curve` takes of it."""
        return {name: value for name, value in vars(self).items() if name != "error"}


def fit(
    sizes: FloatArray, seconds: FloatArray, doubt: FloatArray | None = None, most: int = MOST_PIECES
) -> Fit:
    """Lines through `seconds` over `sizes` (bytes, rising, parallel) of least squared relative errors.

    `doubt` is how far off each point may be, as a share of it: one that few samples know counts for less. Raises
    ValueError for no sizes.
    """
    if len(sizes) == 0:
        raise ValueError("nothing to fit")
    doubt = np.zeros_like(seconds) if doubt is None else doubt
    least = min(2, len(sizes))
    costs, lines = _lines(sizes, seconds, np.maximum(doubt, NEAR) / NEAR, least)
    best = _pieces(sizes, costs, lines, 1, least)
    for count in range(2, min(most, len(sizes) // least) + 1):
        found = _pieces(sizes, costs, lines, count, least)
        if best.error > NEAR and found.error < WORTH * best.error:
            best = found
    return best


def _lines(
    sizes: FloatArray, seconds: FloatArray, doubt: FloatArray, least: int
) -> tuple[FloatArray, FloatArray]:
    """Squared errors of the best line through points [start, end), shape (n, n + 1), and its L+o and G."""
    weight = 1 / (seconds * doubt) ** 2
    scale = sizes[-1]  # sizes in units in which the sums keep their digits
    x = sizes / scale
    products = (
        weight,
        weight * x,
        weight * x * x,
        weight * seconds,
        weight * x * seconds,
        weight * seconds**2,
    )
    sums = [np.concatenate(([0.0], np.cumsum(column))) for column in products]
    start, end = np.meshgrid(np.arange(len(x)), np.arange(len(x) + 1), indexing="ij")
    w, wx, wxx, wy, wxy, wyy = (column[end] - column[start] for column in sums)
    determinant = w * wxx - wx * wx
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(determinant > 1e-12 * w * wxx, (w * wxy - wx * wy) / determinant, 0.0)
        slope = np.maximum(np.nan_to_num(slope), 0.0)
        fixed = (wy - slope * wx) / w
        slope = np.where(fixed < 0, wxy / wxx, slope)  # a line that starts below zero is one through zero
    fixed = np.maximum(np.nan_to_num(fixed), 0.0)
    costs = wyy - 2 * (fixed * wy + slope * wxy) + fixed**2 * w + 2 * fixed * slope * wx + slope**2 * wxx
    costs = np.where(end - start < least, np.inf, np.maximum(costs, 0.0))
    return costs, np.stack([fixed, np.maximum(slope / scale, LEAST_GAP)])


def _pieces(sizes: FloatArray, costs: FloatArray, lines: FloatArray, count: int, least: int) -> Fit:
    """The `count` lines of least cost in all, by dynamic programming over where each ends."""
    total = len(sizes)
    best, came = costs[0], []
    for _ in range(1, count):
        sums = best[:-1, np.newaxis] + costs
        came.append(np.argmin(sums, axis=0))
        best = np.min(sums, axis=0)
    edges = [total]
    for before in reversed(came):
        edges.insert(0, int(before[edges[0]]))
    edges.insert(0, 0)
    found = [(float(lines[0, a, b]), float(lines[1, a, b])) for a, b in pairwise(edges)]
    ends = [
        _boundary(left, right, sizes[at - 1], sizes[at])
        for (left, right), at in zip(pairwise(found), edges[1:-1], strict=True)
    ]
    fixed, slope = zip(*found, strict=True)
    return Fit(tuple(ends), fixed, slope, float(np.sqrt(best[total] / total)))


def _boundary(left: tuple[float, float], right: tuple[float, float], low: float, high: float) -> int:
    """Where two neighbouring lines meet, if that is between the sizes that they end at. Else, where they hardly differ
    there, half way (in octaves): nothing says which is nearer. A jump comes right after the lower size.
    """
    if left[1] != right[1]:
        meet = (left[0] - right[0]) / (right[1] - left[1])
        if low <= meet < high:
            return int(meet)
    half = float(np.floor(np.sqrt(low * high)))
    one, other = (fixed + slope * half for fixed, slope in (left, right))
    return int(half if abs(one / other - 1) < JUMP else low)
