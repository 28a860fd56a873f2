"""A line through times that were seen: latency + bytes / bandwidth of the collectives of one kind, ranks and fabric."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from busfare.node.arrays import FloatArray
from busfare.node.curve import NEAR, Pieces, fit

__all__ = ["Fitted", "fit_collectives"]

#: Sizes of less than this ratio do not tell latency from bandwidth.
LEAST_SPAN = 4.0
#: More distinct sizes are joined to so many, even in their logarithms.
MOST_POINTS = 96
#: Times so many typical errors off the line are of waiting, not of the transfer: they weigh less from there on.
FAR, PASSES = 1.5, 4


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds over bytes. `low`, `high`: of what was seen over the line, the 10th and 90th percentile. `spanned`: bytes."""

    pieces: Pieces | None
    scaled: float
    shape: Callable[[FloatArray], FloatArray] | None
    low: float
    high: float
    spanned: tuple[float, float]

    def seconds(self, sizes: FloatArray) -> FloatArray:
        """Seconds of collectives of `sizes` bytes, in their shape."""
        if self.pieces is not None:
            return self.pieces.seconds(sizes)
        assert self.shape is not None
        return self.scaled * self.shape(np.asarray(sizes, np.float64))


def fit_collectives(
    sizes: FloatArray, seconds: FloatArray, model: Callable[[FloatArray], FloatArray] | None = None
) -> Fitted:
    """The line through times of collectives of one kind on one fabric; at most three pieces where one will not do.

    Robust: medians of each size, and sizes far off the line weigh less. `model`: seconds over sizes that is scaled to the
    times where the sizes are within a factor of 4, and so do not tell latency from bandwidth.

    Raises ValueError for no times above 0, or sizes that tell nothing and no `model`.
    """
    sizes, seconds = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    good = np.isfinite(sizes) & np.isfinite(seconds) & (sizes > 0) & (seconds > 0)
    sizes, seconds = sizes[good], seconds[good]
    if not len(sizes):
        raise ValueError("nothing to fit")
    spanned = float(sizes.min()), float(sizes.max())
    if spanned[1] < LEAST_SPAN * spanned[0]:
        if model is None:
            raise ValueError("sizes within a factor of 4 do not tell latency from bandwidth: give a model")
        ratio = seconds / model(sizes)
        middle = float(np.median(ratio))
        low, high = np.quantile(ratio / middle, (0.1, 0.9))
        return Fitted(
            pieces=None, scaled=middle, shape=model, low=float(low), high=float(high), spanned=spanned
        )
    pieces = _robust(*_medians(sizes, seconds))
    low, high = np.quantile(seconds / pieces.seconds(sizes), (0.1, 0.9))
    return Fitted(pieces=pieces, scaled=1.0, shape=None, low=float(low), high=float(high), spanned=spanned)


def _medians(sizes: FloatArray, seconds: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The median time of each size, or of each of so many classes of sizes; and how many times it is of."""
    if len(np.unique(sizes)) > MOST_POINTS:
        steps = np.log(sizes / sizes.min()) / np.log(sizes.max() / sizes.min())
        of = np.minimum((steps * MOST_POINTS).astype(np.intp), MOST_POINTS - 1)
    else:
        of = np.unique(sizes, return_inverse=True)[1]
    classes = [np.flatnonzero(of == one) for one in np.unique(of)]
    middle = [rows[np.argsort(seconds[rows] / sizes[rows])[len(rows) // 2]] for rows in classes]
    return sizes[middle], seconds[middle], np.array([len(rows) for rows in classes], np.float64)


def _robust(sizes: FloatArray, seconds: FloatArray, counts: FloatArray) -> Pieces:
    doubt = NEAR * np.sqrt(counts.max() / counts)
    found = fit(sizes, seconds, doubt)
    for _ in range(PASSES):
        off = np.abs(found.seconds(sizes) / seconds - 1)
        typical = max(float(np.median(off)), 1e-6)
        # Huber's weights: a point's doubt grows with the root of how far it is off.
        found = fit(sizes, seconds, doubt * np.sqrt(np.maximum(1.0, off / (FAR * typical))))
    return found
