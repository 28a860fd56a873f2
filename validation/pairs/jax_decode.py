"""Writing text with a network (JAX): the host looks at each letter, and sends the table of places for every one.

before       the table of places is sent for each letter; the letter is read back, for the host waits for a full stop
fewer-syncs  the letters stay on the GPU and are read in one go at the end
dedupe       the table is sent once and stays on the GPU
"""

from __future__ import annotations

import os

import numpy as np
from measured import Off, Options, Prepared, run

WIDTH, WIDER, LAYERS, LETTERS, PLACES = 2048, 8192, 12, 256, 1024

Network = dict[str, np.ndarray]


def made(random: np.random.Generator, width: int, wider: int, layers: int, letters: int) -> Network:
    """Weights of a network, in half the usual precision's reach."""
    sides = {"letters": (letters, width), "wide": (layers, width, wider), "narrow": (layers, wider, width)}
    return {
        name: (random.standard_normal(side) * side[-2] ** -0.5).astype(np.float32)
        for name, side in sides.items()
    }


def on_host(network: Network, places: np.ndarray, first: int, count: int) -> list[int]:
    """So many letters behind the first one: each the likeliest behind what the state is then."""
    letter, state, written = first, np.zeros(network["letters"].shape[1]), []
    for place in range(count):
        state = np.tanh(state + network["letters"][letter] + places[place])
        for wide, narrow in zip(network["wide"], network["narrow"], strict=True):
            state = state + np.maximum(state @ wide, 0) @ narrow
            state = state / np.sqrt((state**2).mean())
        letter = int(np.argmax(network["letters"] @ state))
        written.append(letter)
    return written


def reference() -> Off:
    # Layers of zeros leave the state; each letter then leads to the one that looks most like it, here itself.
    network = made(np.random.default_rng(0), 8, 4, 2, 8) | {
        "narrow": np.zeros((2, 4, 8)),
        "letters": 9 * np.eye(8),
    }
    return sum(letter != 3 for letter in on_host(network, np.zeros((5, 8)), 3, 5)), 0


def prepare(options: Options) -> Prepared:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several of these share a GPU
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    network = made(np.random.default_rng(0), WIDTH, WIDER, LAYERS, LETTERS)
    angles = np.arange(PLACES)[:, None] / 10000 ** (np.arange(WIDTH) / WIDTH)
    places = np.sin(angles).astype(np.float32)

    @jax.jit
    def write(
        there: dict[str, jax.Array], places: jax.Array, state: jax.Array, letter: jax.Array, place: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        state = jnp.tanh(state + there["letters"][letter] + places[place])

        def layer(state: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            state = state + jnp.maximum(state @ weights[0], 0) @ weights[1]
            return state / jnp.sqrt(jnp.mean(state**2)), None

        state, _ = jax.lax.scan(layer, state, (there["wide"], there["narrow"]), unroll=True)
        return state, jnp.argmax(there["letters"] @ state), place + 1

    there = jax.device_put(network)
    sent = jax.device_put(places) if options.variant == "dedupe" else places
    zero, first, start = (
        jax.device_put(one) for one in (np.zeros(WIDTH, np.float32), np.int32(7), np.int32(0))
    )
    written: list[int] = []

    def region() -> None:
        state, letter, place, kept = zero, first, start, []
        written.clear()
        for _ in range(options.rounds):
            state, letter, place = write(there, sent, state, letter, place)
            if options.variant == "fewer-syncs":
                kept.append(letter)
            else:
                written.append(int(letter))
                if written[-1] == LETTERS:  # a full stop, which this alphabet does not have
                    break
        written.extend(int(letter) for letter in jax.device_get(kept))

    def check() -> Off:
        known = on_host({name: weights.astype(float) for name, weights in network.items()}, places, 7, 3)
        return sum(one != other for one, other in zip(written[:3], known, strict=True)), 0

    return region, check


if __name__ == "__main__":
    run("jax", 40, prepare, reference)
