"""The strongest mode of a structure (CuPy): power iteration on a 2048×2048 matrix, its estimate read at each step.

before  the host reads the Rayleigh quotient of each step, and waits for it
pin     the same, into pinned memory
batch   quotients are copied at the end, all at once
async   quotients go to a pinned history in stream order; the host looks at it at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

SIDE = 2048
LARGEST = 10.0


def structure(side: int) -> np.ndarray:
    """A symmetric matrix whose largest eigenvalue is LARGEST: two reflections of a diagonal."""
    random = np.random.default_rng(9)
    matrix = np.diag(np.concatenate([[LARGEST], random.uniform(0, 7, side - 1)]))
    for _ in range(2):
        axis = random.standard_normal(side)
        axis /= np.linalg.norm(axis)
        matrix -= 2 * np.outer(axis, axis @ matrix)
        matrix -= 2 * np.outer(matrix @ axis, axis)
    return ((matrix + matrix.T) / 2).astype(np.float32)


def reference() -> Off:
    return abs(np.linalg.eigvalsh(structure(256))[-1] - LARGEST), 1e-4


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    matrix = cupy.asarray(structure(SIDE))
    start = cupy.asarray(np.random.default_rng(10).standard_normal(SIDE).astype(np.float32))
    start /= cupy.linalg.norm(start)
    empty = cupyx.empty_pinned if options.variant in ("pin", "async") else np.empty
    history = empty(options.rounds, np.float32)
    history[...] = 0
    quotients = cupy.zeros(options.rounds, np.float32)
    vector = cupy.empty_like(start)

    def region() -> None:
        vector[...] = start
        for turn in range(options.rounds):
            product = matrix @ vector
            (vector * product).sum(keepdims=True, out=quotients[turn : turn + 1])
            length = cupy.sqrt((product * product).sum())
            cupy.divide(product, length, out=vector)
            if options.variant != "batch":
                read = history[turn : turn + 1]
                quotients[turn : turn + 1].get(out=read, blocking=options.variant != "async")
        if options.variant == "batch":
            quotients.get(out=history)

    def check() -> Off:
        error = abs(float(history[-1]) - LARGEST) / LARGEST if options.rounds >= 50 else 0.0
        steps = np.diff(history[: min(options.rounds, 20)])
        if steps.size and steps.min() < -1e-3:  # of a symmetric positive matrix the quotient only grows
            error = 1.0
        return error, 1e-4

    return region, check


if __name__ == "__main__":
    run("cupy", 1500, prepare, reference)
