"""Ranking a catalogue for users (JAX): the catalogue goes along with every batch of users, whose best articles come back.

before       users and the catalogue are sent for each batch; its best articles are read back before the next one
fewer-syncs  the best articles stay on the GPU and are read in one go at the end
dedupe       the catalogue is sent once and stays on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

ARTICLES, USERS, FEATURES, BEST, BATCHES = 24576, 512, 384, 32, 8


def on_host(users: np.ndarray, catalogue: np.ndarray, best: int) -> np.ndarray:
    """The best articles of each user, the best first: by the cosine of what both like."""
    users = users / np.linalg.norm(users, axis=1, keepdims=True)
    catalogue = catalogue / np.linalg.norm(catalogue, axis=1, keepdims=True)
    return np.argsort(-(users @ catalogue.T), axis=1, kind="stable")[:, :best]


def reference() -> Off:
    # Of articles that like one thing each, a user gets them in the order of what he likes.
    users = np.array([[3.0, 1, 2, 4], [1, 2, 3, 4]])
    expected = np.array([[3, 0, 2], [3, 2, 1]])
    return int((on_host(users, 5 * np.eye(4), 3) != expected).sum()), 0


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    catalogue = random.standard_normal((ARTICLES, FEATURES), dtype=np.float32)
    batches = random.standard_normal((BATCHES, USERS, FEATURES), dtype=np.float32)

    @jax.jit
    def rank(users: jax.Array, catalogue: jax.Array) -> jax.Array:
        users = users / jnp.linalg.norm(users, axis=1, keepdims=True)
        catalogue = catalogue / jnp.linalg.norm(catalogue, axis=1, keepdims=True)
        return jax.lax.top_k(users @ catalogue.T, BEST)[1]

    sent = jax.device_put(catalogue) if options.variant == "dedupe" else catalogue
    ranked: list[np.ndarray] = []

    def region() -> None:
        kept = []
        ranked.clear()
        for number in range(options.rounds):
            best = rank(batches[number % BATCHES], sent)
            if options.variant == "fewer-syncs":
                kept.append(best)
            else:
                ranked.append(np.asarray(best))
        ranked.extend(np.asarray(best) for best in jax.device_get(kept))

    def check() -> Off:
        # Two articles that a user likes all but equally may change places.
        expected = on_host(batches[1], catalogue, BEST)
        return float((ranked[1] != expected).mean()), 0.01

    return region, check


if __name__ == "__main__":
    run("jax", 24, prepare, reference)
