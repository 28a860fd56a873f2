"""Edges of smoothed images (JAX): what smoothing gives comes to the host, and goes back to find its edges.

before            an image is sent, smoothed and read back, sent again, and the number of its edges read
keep              the smoothed image stays on the GPU
keep-fewer-syncs  the numbers, too, and are read in one go at the end
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

SIZE, PASSES, LEAST = 1024, 6, 0.05


def smoothed(image: np.ndarray) -> np.ndarray:
    """Each inner point the mean of its four neighbours and twice itself, in so many passes."""
    for _ in range(PASSES):
        new = image.copy()
        around = image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:]
        new[1:-1, 1:-1] = (around + 2 * image[1:-1, 1:-1]) / 6
        image = new
    return image


def edges(image: np.ndarray) -> int:
    """How many inner points have a slope of at least LEAST."""
    down, right = image[2:, 1:-1] - image[:-2, 1:-1], image[1:-1, 2:] - image[1:-1, :-2]
    return int((down**2 + right**2 >= LEAST**2).sum())


def reference() -> Off:
    # A step of height 1 down the middle of 32 rows: a slope in the columns that smoothing reaches, in 30 inner rows.
    image = np.zeros((32, 64))
    image[:, 32:] = 1
    slopes = smoothed(image)[16, 2:] - smoothed(image)[16, :-2]
    return abs(edges(smoothed(image)) - 30 * int((slopes >= LEAST).sum())), 0


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    images = random.random((options.rounds, SIZE, SIZE), dtype=np.float32)

    @jax.jit
    def smooth(image: jax.Array) -> jax.Array:
        for _ in range(PASSES):
            around = image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:]
            image = image.at[1:-1, 1:-1].set((around + 2 * image[1:-1, 1:-1]) / 6)
        return image

    @jax.jit
    def count(image: jax.Array) -> jax.Array:
        down, right = image[2:, 1:-1] - image[:-2, 1:-1], image[1:-1, 2:] - image[1:-1, :-2]
        return jnp.sum(down**2 + right**2 >= LEAST**2)

    counts: list[int] = []

    def region() -> None:
        kept = []
        counts.clear()
        for image in images:
            smoother = smooth(image)
            if options.variant == "before":
                smoother = np.asarray(smoother)
            edge_count = count(smoother)
            if options.variant == "keep-fewer-syncs":
                kept.append(edge_count)
            else:
                counts.append(int(edge_count))
        counts.extend(int(edge_count) for edge_count in jax.device_get(kept))

    def check() -> Off:
        expected = [edges(smoothed(image.astype(float))) for image in images[:3]]
        # A slope that lies at the limit may fall on either side of it.
        return max(abs(n - right) / right for n, right in zip(counts[:3], expected, strict=True)), 1e-4

    return region, check


if __name__ == "__main__":
    run("jax", 40, prepare, reference)
