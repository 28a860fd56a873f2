"""Training a deep network (JAX): every batch goes over in each epoch, and the host reads the loss after each step.

before       a batch is sent for each step, in each epoch anew; its loss is read back
fewer-syncs  the losses stay on the GPU and are read in one go at the end
dedupe       each batch is sent once, in the first epoch, and stays on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

WIDTH, LAYERS, BATCH, BATCHES, RATE = 4096, 3, 1024, 4, 0.05


def on_host(layers: list[np.ndarray], batch: np.ndarray) -> tuple[list[np.ndarray], float]:
    """The layers after one step, and how far the network's answer was from its input, squared, in the mean, before it."""
    states = [batch]
    for layer in layers:
        states.append(np.tanh(states[-1] @ layer))
    off = states[-1] - batch
    loss, back = float((off**2).mean()), 2 * off / off.size
    changed = list(layers)
    for number in reversed(range(len(layers))):
        back = back * (1 - states[number + 1] ** 2)
        changed[number] = layers[number] - RATE * states[number].T @ back
        back = back @ layers[number].T
    return changed, loss


def reference() -> Off:
    # A step along the gradient changes each weight by what moving it by a little changes the loss.
    random = np.random.default_rng(0)
    layers = [random.standard_normal((4, 4)) for _ in range(3)]
    batch = random.standard_normal((5, 4))
    changed, loss = on_host(layers, batch)
    moved = [layer.copy() for layer in layers]
    moved[1][2, 3] += 1e-6
    slope = (on_host(moved, batch)[1] - loss) / 1e-6
    return abs((layers[1] - changed[1])[2, 3] / RATE - slope), 1e-5


def prepare(options: Options) -> Prepared:
    random = np.random.default_rng(0)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    batches = random.standard_normal((BATCHES, BATCH, WIDTH), dtype=np.float32)
    scale = np.float32(WIDTH**-0.5)
    start = [random.standard_normal((WIDTH, WIDTH), dtype=np.float32) * scale for _ in range(LAYERS)]

    def loss_of(layers: list[jax.Array], batch: jax.Array) -> jax.Array:
        state = batch
        for layer in layers:
            state = jnp.tanh(state @ layer)
        return jnp.mean((state - batch) ** 2)

    @jax.jit
    def step(layers: list[jax.Array], batch: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(layers, batch)
        return [layer - RATE * slope for layer, slope in zip(layers, slopes, strict=True)], loss

    initial = jax.device_put(start)
    losses: list[float] = []

    def region() -> None:
        layers, kept, there = initial, [], {}
        losses.clear()
        for number in range(options.rounds):
            batch = batches[number % BATCHES]
            if options.variant == "dedupe":
                if number < BATCHES:
                    there[number] = jax.device_put(batch)
                batch = there[number % BATCHES]
            layers, loss = step(layers, batch)
            if options.variant == "fewer-syncs":
                kept.append(loss)
            else:
                losses.append(float(loss))
        losses.extend(float(loss) for loss in jax.device_get(kept))

    def check() -> Off:
        changed, first = on_host(start, batches[0])
        _, second = on_host(changed, batches[1])
        return max(abs(losses[0] - first), abs(losses[1] - second)), 1e-4

    return region, check


if __name__ == "__main__":
    run("jax", 24, prepare, reference)
