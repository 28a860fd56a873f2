"""Piecewise L+o and G of one curve [W14 §V]: as few pieces as predict a size that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from busfare.node import Piece
from busfare.node.arrays import FloatArray
from busfare.node.measured import piecewise

__all__ = ["Fit", "fit"]

#: Beyond this many, pieces only follow noise.
MOST_PIECES = 9
#: Another piece must lower the cross-validated error by this share, or it is not worth a line in a file.
WORTH = 0.08
#: An error below this is none: no clock tells it.
NOTHING = 1e-6
#: Pieces are added until they pass this near to every point: medians of quiet cases repeat within it.
NEAR = 0.01
#: A line through two points follows their noise: where a curve has this many points, a piece has three.
MANY_POINTS = 20
#: Every so many-th size is left out at once, in turn.
FOLDS = 5
#: Lines that differ by more where they should meet are of different ways to copy: there is a jump.
JUMP = 0.05
#: G may not be zero in a node file; no link moves a byte in less than this.
LEAST_GAP = 1e-15


@dataclass(frozen=True)
class Fit:
    """Pieces, and their root-mean-square relative error on sizes left out one at a time."""

    pieces: tuple[Piece, ...]
    left_out_error: float


@dataclass(frozen=True)
class _Points:
    """A curve: bytes, seconds, and how far off the seconds may be, as a share."""

    sizes: FloatArray
    seconds: FloatArray
    doubt: FloatArray

    def without(self, out: np.ndarray) -> _Points:
        """The same without the points at `out`."""
        keep = np.ones(len(self.sizes), bool)
        keep[out] = False
        return _Points(self.sizes[keep], self.seconds[keep], self.doubt[keep])


def fit(
    sizes: FloatArray,
    seconds: FloatArray,
    near: float = NEAR,
    doubt: FloatArray | None = None,
    steady_from: float = np.inf,
) -> Fit:
    """The fit of `seconds` over `sizes` (bytes, rising, parallel), within the share `near` of every point where
    MOST_PIECES suffice. Raises ValueError for no sizes.

    `doubt` is how far off each point may be, as a share of it: one that few samples know counts for less. From
    `steady_from` bytes on a curve is known not to jump: between two sizes where it seems to, it rises along a line.
    """
    if len(sizes) == 0:
        raise ValueError("nothing to fit")
    doubt = np.zeros_like(seconds) if doubt is None else doubt
    points = _Points(sizes, seconds, doubt)
    most = max(1, min(MOST_PIECES, len(sizes) // _least_points(sizes)))
    best, best_error = 1, _left_out(points, 1)
    for count in range(2, most + 1):
        error = _left_out(points, count)
        if best_error > NOTHING and error < best_error * (1 - WORTH):
            best, best_error = count, error
    pieces = _pieces(points, best)
    while best < most and _worst(pieces, points) > near:
        best += 1
        pieces = _pieces(points, best)
    return Fit(_joined(pieces, sizes, steady_from), _left_out(points, best))


def _least_points(sizes: FloatArray) -> int:
    """Points that a piece has at least."""
    return 3 if len(sizes) >= MANY_POINTS else min(2, len(sizes))


def _worst(pieces: tuple[Piece, ...], points: _Points) -> float:
    """The largest relative error on the points themselves, beyond their doubt."""
    return float((np.abs(piecewise(pieces, points.sizes) / points.seconds - 1) - points.doubt).max())


def _left_out(points: _Points, count: int) -> float:
    """Root-mean-square relative error of each inner size, predicted from sizes that it is not among."""
    errors = []
    inner = np.arange(1, len(points.sizes) - 1)
    for fold in range(FOLDS):
        out = inner[inner % FOLDS == fold]
        kept = points.without(out)
        ends, fixed, slope = _segments(kept, min(count, max(1, len(kept.sizes) // _least_points(kept.sizes))))
        which = np.searchsorted(ends, points.sizes[out], side="left")
        guess = fixed[which] + slope[which] * points.sizes[out]
        errors.append(
            (guess / points.seconds[out] - 1) * np.minimum(1, NEAR / np.maximum(points.doubt[out], NEAR))
        )
    return float(np.sqrt(np.mean(np.square(np.concatenate(errors))))) if len(inner) else 0.0


def _pieces(points: _Points, count: int) -> tuple[Piece, ...]:
    ends, fixed, slope = _segments(points, count)
    return tuple(
        Piece(
            latency_overhead_s=float(a),
            gap_per_byte_s=float(b),
            up_to_bytes=None if np.isinf(end) else int(end),
        )
        for end, a, b in zip(ends, fixed, slope, strict=True)
    )


def _joined(pieces: tuple[Piece, ...], sizes: FloatArray, steady_from: float) -> tuple[Piece, ...]:
    """The same with a piece of its own from each size of `steady_from` or more after which they jump to the next size."""
    found = [pieces[0]]
    for left, right in pairwise(pieces):
        low = left.up_to_bytes
        if low is not None and low >= steady_from and low in sizes[:-1]:
            high = int(sizes[np.searchsorted(sizes, low) + 1])
            here, there = (
                float(piecewise((one,), np.array([at]))[0]) for one, at in ((left, low), (right, high))
            )
            slope = (there - here) / (high - low)
            start = here - slope * low
            if slope > 0 and start >= 0 and (right.up_to_bytes is None or right.up_to_bytes > high):
                found.append(Piece(latency_overhead_s=start, gap_per_byte_s=slope, up_to_bytes=high))
        found.append(right)
    return tuple(found)


def _segments(points: _Points, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The `count` lines of least summed squares of relative errors: where each ends, its L+o and its G."""
    sizes = points.sizes
    total = len(sizes)
    sums = _Sums(points)
    cost = np.full((count, total + 1), np.inf)
    came = np.zeros((count, total + 1), np.int64)
    least = _least_points(sizes)
    table = sums.costs(least)
    cost[0, 1:] = table[0, 1:]
    for k in range(1, count):
        for end in range(least * (k + 1), total + 1):
            before = cost[k - 1, :end] + table[:end, end]
            came[k, end] = int(np.argmin(before))
            cost[k, end] = before[came[k, end]]
    cuts, end = [total], total
    for k in range(count - 1, 0, -1):
        end = int(came[k, end])
        cuts.append(end)
    edges = [0, *sorted(set(cuts) - {0})]
    lines = [sums.line(a, b) for a, b in pairwise(edges)]
    ends = [
        _boundary(lines[i], lines[i + 1], sizes[edges[i + 1] - 1], sizes[edges[i + 1]])
        for i in range(len(lines) - 1)
    ]
    fixed, slope = (np.array(column) for column in zip(*lines, strict=True))
    return np.array([*ends, np.inf]), fixed, slope


def _boundary(left: tuple[float, float], right: tuple[float, float], low: float, high: float) -> float:
    """Where two neighbouring lines meet, if that is between the sizes that they end at. Else, where they hardly differ
    there, half way (in octaves): nothing says which is nearer. A jump comes right after the lower size.
    """
    if left[1] != right[1]:
        meet = (left[0] - right[0]) / (right[1] - left[1])
        if low <= meet < high:
            return float(np.floor(meet))
    half = float(np.floor(np.sqrt(low * high)))
    one, other = (fixed + slope * half for fixed, slope in (left, right))
    return half if abs(one / other - 1) < JUMP else low


class _Sums:
    """Running sums from which the line through any stretch of points follows at once."""

    def __init__(self, points: _Points) -> None:
        # Relative errors, over what they may be; sizes in units in which the sums keep their digits.
        sizes, seconds = points.sizes, points.seconds
        weight = 1 / (seconds * np.maximum(points.doubt, NEAR) / NEAR) ** 2
        scale = float(sizes[-1])
        x = sizes / scale
        self._scale, self._count = scale, len(sizes)
        columns = (
            weight, weight * x, weight * x * x, weight * seconds, weight * x * seconds, weight * seconds**2
        )  # fmt: skip
        self._sums = [np.concatenate(([0.0], np.cumsum(column))) for column in columns]

    def line(self, start: int, end: int) -> tuple[float, float]:
        """L+o and G of the points from `start` up to `end`; neither is negative."""
        fixed, slope = self._lines(np.array([start]), np.array([end]))
        return float(fixed[0]), max(float(slope[0]) / self._scale, LEAST_GAP)

    def _lines(self, start: np.ndarray, end: np.ndarray) -> tuple[FloatArray, FloatArray]:
        w, wx, wxx, wy, wxy, _ = (column[end] - column[start] for column in self._sums)
        determinant = w * wxx - wx * wx
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(determinant > 1e-12 * w * wxx, (w * wxy - wx * wy) / determinant, 0.0)
            slope = np.maximum(np.nan_to_num(slope), 0.0)
            fixed = (wy - slope * wx) / w
            # A line that starts below zero is one through zero.
            slope = np.where(fixed < 0, wxy / wxx, slope)
        return np.maximum(np.nan_to_num(fixed), 0.0), slope

    def costs(self, least: int) -> FloatArray:
        """Summed squares of relative errors of the line through points [start, end), `least` of them or more."""
        start, end = np.meshgrid(np.arange(self._count), np.arange(self._count + 1), indexing="ij")
        w, wx, wxx, wy, wxy, wyy = (column[end] - column[start] for column in self._sums)
        fixed, slope = self._lines(start, end)
        squares = wyy - 2 * (fixed * wy + slope * wxy)
        squares = squares + fixed**2 * w + 2 * fixed * slope * wx + slope**2 * wxx
        return np.where(end - start < least, np.inf, np.maximum(squares, 0.0))
