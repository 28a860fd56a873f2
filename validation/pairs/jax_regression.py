"""Training by gradients (JAX): batches go over in each step, and the host reads the loss after it.

before       a batch and its targets are sent in each step; the loss is read back in each
fewer-syncs  the losses stay on the GPU and are read in one go at the end
dedupe       the batches, of which there are few, are sent once and stay on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

ROWS, WIDTH, HIDDEN, BATCHES, RATE = 1024, 1024, 512, 4, 0.05


def on_host(
    first: np.ndarray, second: np.ndarray, rows: np.ndarray, targets: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss of a network of one hidden layer, and both matrices after a step down its gradient."""
    hidden = np.tanh(rows @ first)
    off = hidden @ second - targets
    by_result = 2 * off / len(rows)
    by_hidden = np.outer(by_result, second) * (1 - hidden**2)
    return float((off**2).mean()), first - RATE * rows.T @ by_hidden, second - RATE * hidden.T @ by_result


def reference() -> Off:
    # The step's gradient against the differences of the loss
    random = np.random.default_rng(0)
    first, second = random.standard_normal((3, 2)), random.standard_normal(2)
    rows, targets = random.standard_normal((5, 3)), random.standard_normal(5)
    loss, stepped, _ = on_host(first, second, rows, targets)
    nudged = first.copy()
    nudged[1, 0] += 1e-6
    slope = (on_host(nudged, second, rows, targets)[0] - loss) / 1e-6
    return abs((first - stepped)[1, 0] / RATE - slope), 1e-4


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    start = (
        random.standard_normal((WIDTH, HIDDEN), dtype=np.float32) / np.float32(np.sqrt(WIDTH)),
        random.standard_normal(HIDDEN, dtype=np.float32) / np.float32(np.sqrt(HIDDEN)),
    )
    rows = random.standard_normal((BATCHES, ROWS, WIDTH), dtype=np.float32)
    targets = random.standard_normal((BATCHES, ROWS), dtype=np.float32)

    def loss_of(weights: tuple[jax.Array, jax.Array], rows: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(rows @ weights[0]) @ weights[1] - targets) ** 2)

    @jax.jit
    def step(
        weights: tuple[jax.Array, jax.Array], rows: jax.Array, targets: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        loss, slope = jax.value_and_grad(loss_of)(weights, rows, targets)
        return (weights[0] - RATE * slope[0], weights[1] - RATE * slope[1]), loss

    on_gpu = (jnp.asarray(start[0]), jnp.asarray(start[1]))
    batches = [(rows[number], targets[number]) for number in range(BATCHES)]
    if options.variant == "dedupe":
        batches = [(jax.device_put(one), jax.device_put(other)) for one, other in batches]
    losses: list[float] = []

    def region() -> None:
        weights, kept = on_gpu, []
        losses.clear()
        for turn in range(options.rounds):
            weights, loss = step(weights, *batches[turn % BATCHES])
            if options.variant == "fewer-syncs":
                kept.append(loss)
            else:
                losses.append(float(loss))
        losses.extend(float(loss) for loss in jax.device_get(kept))

    def check() -> Off:
        known = tuple(part.astype(float) for part in start)
        error = 0.0
        for turn in range(min(options.rounds, 3)):
            loss, *known = on_host(*known, rows[turn % BATCHES], targets[turn % BATCHES])
            error = max(error, abs(losses[turn] / loss - 1))
        return error, 1e-3

    return region, check


if __name__ == "__main__":
    run("jax", 60, prepare, reference)
