"""Training a classifier (JAX): every batch goes over in each epoch, and the host reads the loss after each step.

before       a batch is sent for each step, in each epoch anew; its loss is read back
fewer-syncs  the losses stay on the GPU and are read in one go at the end
dedupe       each batch is sent once, in the first epoch, and stays on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

INPUTS, HIDDEN, CLASSES, BATCH, BATCHES, RATE = 2048, 1024, 10, 512, 8, 0.1

Weights = tuple[np.ndarray, np.ndarray]


def on_host(weights: Weights, batch: np.ndarray, labels: np.ndarray) -> tuple[Weights, float]:
    """The weights after one step, and the mean cross-entropy before it."""
    first, second = weights
    hidden = np.tanh(batch @ first)
    scores = hidden @ second
    scores = scores - scores.max(axis=1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(batch))
    loss = float(-np.log(shares[rows, labels]).mean())
    slope = shares.copy()
    slope[rows, labels] -= 1
    slope /= len(batch)
    back = (slope @ second.T) * (1 - hidden**2)
    return (first - RATE * batch.T @ back, second - RATE * hidden.T @ slope), loss


def reference() -> Off:
    # A step along the gradient changes each weight by what moving it by a little changes the loss.
    random = np.random.default_rng(0)
    weights = (random.standard_normal((4, 3)), random.standard_normal((3, 2)))
    batch, labels = random.standard_normal((5, 4)), random.integers(0, 2, 5)
    (first, _), loss = on_host(weights, batch, labels)
    moved = weights[0].copy()
    moved[1, 2] += 1e-6
    slope = (on_host((moved, weights[1]), batch, labels)[1] - loss) / 1e-6
    return abs((weights[0] - first)[1, 2] / RATE - slope), 1e-5


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    batches = random.standard_normal((BATCHES, BATCH, INPUTS), dtype=np.float32)
    labels = random.integers(0, CLASSES, (BATCHES, BATCH), dtype=np.int32)
    start = (
        random.standard_normal((INPUTS, HIDDEN), dtype=np.float32) / np.float32(INPUTS) ** 0.5,
        random.standard_normal((HIDDEN, CLASSES), dtype=np.float32) / np.float32(HIDDEN) ** 0.5,
    )

    def loss_of(weights: tuple[jax.Array, jax.Array], batch: jax.Array, labels: jax.Array) -> jax.Array:
        scores = jnp.tanh(batch @ weights[0]) @ weights[1]
        return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(BATCH), labels])

    @jax.jit
    def step(
        weights: tuple[jax.Array, jax.Array], batch: jax.Array, labels: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(weights, batch, labels)
        return (weights[0] - RATE * slopes[0], weights[1] - RATE * slopes[1]), loss

    initial = jax.device_put(start)
    losses: list[float] = []

    def region() -> None:
        weights, kept, there = initial, [], {}
        losses.clear()
        for number in range(options.rounds):
            at = number % BATCHES
            batch, label = batches[at], labels[at]
            if options.variant == "dedupe":
                if at not in there:
                    there[at] = jax.device_put((batch, label))
                batch, label = there[at]
            weights, loss = step(weights, batch, label)
            if options.variant == "fewer-syncs":
                kept.append(loss)
            else:
                losses.append(float(loss))
        losses.extend(float(loss) for loss in jax.device_get(kept))

    def check() -> Off:
        weights: Weights = (start[0].astype(float), start[1].astype(float))
        error = 0.0
        for number in range(3):
            weights, expected = on_host(weights, batches[number].astype(float), labels[number])
            error = max(error, abs(losses[number] - expected))
        return error, 1e-4

    return region, check


if __name__ == "__main__":
    run("jax", 40, prepare, reference)
