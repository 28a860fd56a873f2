"""Filling gaps of pictures by a network (JAX): the host watches how much each step changes.

before       pictures and where they are known are sent for each step; how much it changed is read back
fewer-syncs  the changes stay on the GPU and are read in one go at the end
dedupe       pictures and where they are known are sent once and stay on the GPU
"""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
from measured import Off, Options, Prepared, run

PICTURES, SIZE, COLOURS, CHANNELS, INNER, RATE = 24, 160, 3, 64, 3, 0.1


def convolved(pictures: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pictures (number, rows, columns, channels in) by weights (3, 3, channels in, out); zeros around."""
    around = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = pictures.shape[1:3]
    return sum(
        around[:, down : down + rows, right : right + columns] @ weights[down, right]
        for down in range(3)
        for right in range(3)
    )


def on_host(
    state: np.ndarray, pictures: np.ndarray, known: np.ndarray, network: list[np.ndarray]
) -> tuple[np.ndarray, float]:
    """The state after one step, and how much that changed it, squared, in the mean."""
    guess = state
    for weights in network[:-1]:
        guess = np.maximum(convolved(guess, weights), 0)
    new = np.where(known, pictures, state + RATE * np.tanh(convolved(guess, network[-1])))
    return new, float(((new - state) ** 2).mean())


def reference() -> Off:
    # A network of two centres of one adds RATE * tanh of what is there, where nothing is known.
    centre = np.zeros((3, 3, 1, 1))
    centre[1, 1] = 1
    state, known = np.full((1, 4, 5, 1), 2.0), np.zeros((1, 4, 5, 1), bool)
    known[0, 0] = True
    _, change = on_host(state, np.zeros_like(state), known, [centre, centre])
    return abs(change - (2.0**2 + 3 * (RATE * np.tanh(2)) ** 2) / 4), 1e-12


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    pictures = random.random((PICTURES, SIZE, SIZE, COLOURS), dtype=np.float32)
    known = random.random((PICTURES, SIZE, SIZE, 1)) < 0.5
    sides = [COLOURS, *[CHANNELS] * INNER, COLOURS]
    network = [
        (random.standard_normal((3, 3, *side)) * (9 * side[0] / 2) ** -0.5).astype(np.float32)
        for side in pairwise(sides)
    ]

    @jax.jit
    def step(
        state: jax.Array, pictures: jax.Array, known: jax.Array, network: list[jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        guess = state
        for number, weights in enumerate(network):
            guess = jax.lax.conv_general_dilated(
                guess,
                weights,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                precision="highest",
            )
            guess = jnp.maximum(guess, 0) if number < INNER else jnp.tanh(guess)
        new = jnp.where(known, pictures, state + RATE * guess)
        return new, jnp.mean((new - state) ** 2)

    there = jax.device_put(network)
    start = jax.device_put(np.zeros_like(pictures))
    sent = jax.device_put((pictures, known)) if options.variant == "dedupe" else (pictures, known)
    changes: list[float] = []

    def region() -> None:
        state, kept = start, []
        changes.clear()
        for _ in range(options.rounds):
            state, change = step(state, *sent, there)
            if options.variant == "fewer-syncs":
                kept.append(change)
            else:
                changes.append(float(change))
        changes.extend(float(change) for change in jax.device_get(kept))

    def check() -> Off:
        state, first = on_host(np.zeros_like(pictures), pictures, known, network)
        _, second = on_host(state, pictures, known, network)
        return max(abs(changes[0] - first) / first, abs(changes[1] - second) / second), 1e-3

    return region, check


if __name__ == "__main__":
    run("jax", 24, prepare, reference)
