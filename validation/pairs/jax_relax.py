"""Relaxing a field (JAX): it goes over in each round and comes back, and so does how much it changed.

before            the field is sent, relaxed by some steps and read back in each round, and so is its largest change
keep              the field stays on the GPU between rounds, and is read back at the end; the change in each round
keep-fewer-syncs  the changes, too, are read in one go at the end
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

SIZE, STEPS = 1024, 8


def on_host(field: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """The field after so many steps, each inner point the mean of its four neighbours, and its largest change."""
    new = field
    for _ in range(steps):
        new = new.copy()
        new[1:-1, 1:-1] = (new[:-2, 1:-1] + new[2:, 1:-1] + new[1:-1, :-2] + new[1:-1, 2:]) / 4
    return new, float(np.abs(new - field).max())


def reference() -> Off:
    # A wave along both sides, times the factor that each step has for it.
    points = np.arange(9) * np.pi / 8
    wave = np.outer(np.sin(points), np.sin(2 * points))
    factor = (np.cos(np.pi / 8) + np.cos(2 * np.pi / 8)) / 2
    return np.abs(on_host(wave, 3)[0] - factor**3 * wave).max(), 1e-12


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    start = random.random((SIZE, SIZE), dtype=np.float32)

    def step(_: int, field: jax.Array) -> jax.Array:
        inner = (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]) / 4
        return field.at[1:-1, 1:-1].set(inner)

    @jax.jit
    def relax(field: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jax.lax.fori_loop(0, STEPS, step, field, unroll=True)
        return new, jnp.max(jnp.abs(new - field))

    changes: list[float] = []
    last = start

    def region() -> None:
        nonlocal last
        kept, field = [], start
        changes.clear()
        for _ in range(options.rounds):
            field, change = relax(field)
            if options.variant == "before":
                field = np.asarray(field)
            if options.variant == "keep-fewer-syncs":
                kept.append(change)
            else:
                changes.append(float(change))
        changes.extend(float(change) for change in jax.device_get(kept))
        last = np.asarray(field)

    def check() -> Off:
        known, error = start.astype(float), 0.0
        for change in changes:
            known, right = on_host(known, STEPS)
            error = max(error, abs(change - right))
        return max(error, np.abs(last - known).max()), 1e-5

    return region, check


if __name__ == "__main__":
    run("jax", 40, prepare, reference)
