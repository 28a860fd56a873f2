"""Collectives priced: by what was measured on the node, else by NCCL's own model of its links, with earned ranges; and by a
line through times that were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.cost.collectives.fabric import Fabric
from busfare.cost.collectives.model import KINDS, Option, bus_factor, options
from busfare.cost.ranges import LONG_COPY_BYTES, range_of
from busfare.errors import InputError
from busfare.nodes import FloatArray
from busfare.nodes.curve import NEAR, Pieces, fit

__all__ = ["KINDS", "CollectivePrices", "bus_factor", "fit_collectives", "held_with", "price_collectives"]

#: Seconds over bytes.
Line = Callable[[FloatArray], FloatArray]
#: Sizes of less than this ratio do not tell latency from bandwidth.
LEAST_SPAN = 4.0
#: More distinct sizes are joined to so many, even in their logarithms.
MOST_POINTS = 96
#: Times so many typical errors off the line are of waiting, not of the transfer: they weigh less from there on.
FAR, PASSES = 1.5, 4


@dataclass(frozen=True)
class CollectivePrices:
    """Of collectives, shape (collectives,): seconds with their 80 % range (NaN where none is known), bytes a second on the
    bus as nccl-tests has it, and what NCCL runs (None where the times were measured). `rung`: the weakest; `rungs`: by kind.
    """

    seconds: FloatArray
    low_seconds: FloatArray
    high_seconds: FloatArray
    bus_bytes_per_second: FloatArray
    algorithm: list[str | None]
    protocol: list[str | None]
    rung: str
    rungs: dict[str, str]


def price_collectives(
    fabric: Fabric, kinds: Sequence[str], sizes: FloatArray, measured: bool = True
) -> CollectivePrices:
    """What collectives of `kinds` and `sizes` (bytes, as nccl-tests count them) take on `fabric`, once all ranks are there.

    Sizes: of an all-reduce, broadcast and reduce the buffer, of an all-gather its output, of a reduce-scatter and an
    all-to-all the input of a rank, of send and receive the message. `measured`: by the node's file, where it says.

    Raises InputError for a kind that there is none of, and sizes below 0.
    """
    sizes = np.asarray(sizes, np.float64)
    named = list(dict.fromkeys(kinds))
    if unknown := [kind for kind in named if kind not in KINDS]:
        raise InputError(f"collective {unknown[0]!r}: not known; one of {', '.join(KINDS)}")
    if sizes.shape != (len(kinds),) or not np.all(np.isfinite(sizes) & (sizes >= 0)):
        raise InputError("collectives: give one size in bytes, 0 or more, for each")
    of = np.array(kinds, object)
    seconds, bus, low, high = np.full((4, len(sizes)), np.nan)
    algorithm, protocol = np.full((2, len(sizes)), None, object)
    rungs: dict[str, str] = {}
    for kind in named:
        rows = np.flatnonzero(of == kind)
        own = sizes[rows]
        curve = next((c for c in fabric.curves if c.kind == kind), None) if measured else None
        rungs[kind] = "probed" if curve else fabric.rung
        if curve is not None:
            seconds[rows] = curve.seconds(own)
        else:
            listed = options(fabric, kind)
            seconds[rows], which = _modelled(listed, own)
            algorithm[rows] = np.array([o.algorithm for o in listed], object)[which]
            protocol[rows] = np.array([o.protocol for o in listed], object)[which]
        low[rows], high[rows] = seconds[rows] * _factors(fabric, kind, curve is not None, own)
        bus[rows] = bus_factor(kind, fabric.ranks) * own / seconds[rows]
    rung = max(rungs.values(), key=("probed", "datasheet", "typical").index, default=fabric.rung)
    return CollectivePrices(seconds, low, high, bus, algorithm.tolist(), protocol.tolist(), rung, rungs)


def _modelled(listed: Sequence[Option], sizes: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Seconds, and which of the options NCCL takes for the least."""
    # Powers of two from 64 bytes on, at which corrections of trees are listed.
    octave = np.clip(np.frexp(np.maximum(sizes, 1.0) / 64)[1] - 1, -1, 1000)
    least, which = np.full(len(sizes), np.inf), np.zeros(len(sizes), np.intp)
    seconds = np.full(len(sizes), np.nan)
    for place, option in enumerate(listed):
        share: FloatArray | float = 1.0
        if option.correction is not None:
            share = np.where(
                octave < 0, 1.0, option.correction[np.clip(octave, 0, len(option.correction) - 1)]
            )
        reckoned = option.chosen.seconds(sizes, share)
        better = (reckoned < least) & (sizes <= option.most_bytes)
        taken = option.taken.seconds(sizes, share)
        least, which = np.where(better, reckoned, least), np.where(better, place, which)
        seconds = np.where(better, taken, seconds)
    return seconds, which


def _factors(fabric: Fabric, kind: str, probed: bool, sizes: FloatArray) -> FloatArray:
    """Lows and highs over the price, by size; NaN where nothing is known. Shape (2, collectives)."""
    what = "collective" if probed else held_with(fabric, kind)
    model, figures = ("fitted", "probed") if probed else ("nccl", "datasheet")
    found = [range_of(what, model, figures, size) or (np.nan, np.nan) for size in (0, LONG_COPY_BYTES)]
    return np.array(found).T[:, (sizes >= LONG_COPY_BYTES).astype(int)]


def held_with(fabric: Fabric, kind: str) -> str:
    """What shares a range in `ranges.toml`: everything between hosts; sends within one; the others."""
    sends = kind in ("all_to_all", "send_receive")
    return "collective-network" if fabric.hosts > 1 else "collective-send" if sends else "collective"


def fit_collectives(sizes: FloatArray, seconds: FloatArray, model: Line | None = None) -> Line:
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
    if sizes.max() >= LEAST_SPAN * sizes.min():
        return _robust(*_medians(sizes, seconds)).seconds
    if model is None:
        raise ValueError("sizes within a factor of 4 do not tell latency from bandwidth: give a model")
    scale = float(np.median(seconds / model(sizes)))
    return lambda wanted: scale * model(np.asarray(wanted, np.float64))


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
