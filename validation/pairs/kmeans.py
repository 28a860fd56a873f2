"""k-means clustering (CuPy): Lloyd's iteration over 400,000 points of 16 features.

before  the points, which do not change, go to the GPU in each iteration, from pageable memory
pin     the same from pinned memory
dedupe  the points go to the GPU once
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

POINTS, FEATURES, CLUSTERS = 400_000, 16, 12


def points() -> np.ndarray:
    random = np.random.default_rng(5)
    middles = random.uniform(-10, 10, (CLUSTERS, FEATURES))
    chosen = middles[random.integers(0, CLUSTERS, POINTS)]
    return (chosen + random.standard_normal((POINTS, FEATURES))).astype(np.float32)


def on_host(data: np.ndarray, centres: np.ndarray, iterations: int) -> np.ndarray:
    """The centres after so many iterations; a centre without points stays."""
    centres = centres.astype(float)
    for _ in range(iterations):
        distances = (centres**2).sum(1) - 2 * data @ centres.T
        nearest = distances.argmin(1)
        for cluster in range(len(centres)):
            members = data[nearest == cluster]
            if len(members):
                centres[cluster] = members.mean(0, dtype=float)
    return centres


def reference() -> Off:
    # Two far heaps: their means are the centres
    heaps = np.array([[0.0, 0], [0, 2], [100, 100], [102, 100]])
    centres = on_host(heaps, heaps[[0, 2]], 3)
    return np.abs(centres - [[0, 1], [101, 100]]).max(), 1e-12


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    host = points()
    if options.variant == "pin":
        pageable, host = host, cupyx.empty_pinned(host.shape, host.dtype)
        host[...] = pageable
    start = host[:: POINTS // CLUSTERS][:CLUSTERS].copy()
    data = cupy.empty(host.shape, host.dtype)
    centres = cupy.empty(start.shape, start.dtype)
    clusters = cupy.arange(CLUSTERS)[:, None]
    first = cupy.asarray(start)

    def region() -> None:
        centres[...] = first
        for iteration in range(options.rounds):
            if iteration == 0 or options.variant != "dedupe":
                data.set(host)
            nearest = ((centres * centres).sum(axis=1) - data @ (2 * centres).T).argmin(axis=1)
            members = (nearest[None, :] == clusters).astype(np.float32)
            sizes = members.sum(axis=1)
            centres[...] = cupy.where(
                sizes[:, None] > 0, members @ data / cupy.maximum(sizes, 1)[:, None], centres
            )

    def check() -> Off:
        # Three iterations beside the host's: later ones may put a point between two clusters into the other.
        options.rounds, rounds = min(options.rounds, 3), options.rounds
        region()
        error = float(np.abs(centres.get() - on_host(host, start, options.rounds)).max())
        options.rounds = rounds
        return error, 1e-2

    return region, check


if __name__ == "__main__":
    run("cupy", 60, prepare, reference)
