"""Searching templates in frames (JAX): the templates go over with each frame, and the host reads the best score after it.

before       a frame and all templates are sent in each turn; the best score is read back in each
fewer-syncs  the scores stay on the GPU and are read in one go at the end
dedupe       the templates are sent once and stay on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

ROWS, PIXELS, TEMPLATES = 256, 1024, 2048


def on_host(frame: np.ndarray, templates: np.ndarray) -> float:
    """The largest correlation of a row of the frame with a template, each shifted to mean 0 and scaled to length 1."""
    parts = [frame, templates.T]
    parts = [part - part.mean(axis=1, keepdims=True) for part in parts]
    rows, others = (part / np.sqrt((part**2).sum(axis=1, keepdims=True)) for part in parts)
    return float((rows @ others.T).max())


def reference() -> Off:
    # A row that is a template, but for its scale and its mean, correlates with it wholly.
    random = np.random.default_rng(0)
    templates = random.standard_normal((16, 5))
    frame = random.standard_normal((3, 16))
    frame[1] = 3 * templates[:, 2] + 7
    return abs(on_host(frame, templates) - 1), 1e-9


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    frames = random.standard_normal((options.rounds, ROWS, PIXELS), dtype=np.float32)
    templates = random.standard_normal((PIXELS, TEMPLATES), dtype=np.float32)

    def normal(rows: jax.Array) -> jax.Array:
        rows = rows - rows.mean(axis=1, keepdims=True)
        return rows / jnp.sqrt((rows**2).sum(axis=1, keepdims=True))

    @jax.jit
    def best(frame: jax.Array, templates: jax.Array) -> jax.Array:
        return jnp.max(normal(frame) @ normal(templates.T).T)

    sent = jax.device_put(templates) if options.variant == "dedupe" else templates
    scores: list[float] = []

    def region() -> None:
        kept = []
        scores.clear()
        for frame in frames:
            score = best(frame, sent)
            if options.variant == "fewer-syncs":
                kept.append(score)
            else:
                scores.append(float(score))
        scores.extend(float(score) for score in jax.device_get(kept))

    def check() -> Off:
        known = [on_host(frame.astype(float), templates.astype(float)) for frame in frames[:3]]
        return max(abs(one - other) for one, other in zip(scores[:3], known, strict=True)), 1e-4

    return region, check


if __name__ == "__main__":
    run("jax", 40, prepare, reference)
