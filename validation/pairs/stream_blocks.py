"""A deep stack of filters whose coefficients stay on the host, in pageable memory (CuPy), without ranges.

before     each layer's coefficients copied by a blocking call when the layer is reached
depth-2    pinned, in a stream for copies, two layers ahead, into three buffers
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

LAYERS, SIZE, DEPTH = 12, 2048, 2


def on_host(blocks: list[np.ndarray], signal: np.ndarray) -> np.ndarray:
    """signal (n, size) through all layers: each mixes by its block and squashes, twice."""
    for block in blocks:
        for _ in range(2):
            signal = np.tanh(signal @ block)
    return signal


def reference() -> Off:
    got = on_host([np.eye(2)], np.full((1, 2), 0.5))
    return np.abs(got - np.tanh(np.tanh(0.5))).max(), 1e-12


def prepare(options: Options) -> Prepared:
    import cupy

    ahead = DEPTH if options.variant != "before" else 0
    random = np.random.default_rng(2)
    blocks = [
        random.standard_normal((SIZE, SIZE), dtype=np.float32) / np.float32(np.sqrt(SIZE))
        for _ in range(LAYERS)
    ]
    first = random.standard_normal((1024, SIZE), dtype=np.float32)
    sources = blocks
    if ahead:
        memory = cupy.cuda.alloc_pinned_memory(LAYERS * blocks[0].nbytes)
        pinned = np.frombuffer(memory, np.float32, LAYERS * SIZE * SIZE).reshape(LAYERS, SIZE, SIZE)
        pinned[:] = blocks
        sources = list(pinned)
    computing, copying = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    slots = [cupy.empty((SIZE, SIZE), np.float32) for _ in range(ahead + 1)]
    with computing:
        start = cupy.asarray(first)
        squash = cupy.ElementwiseKernel("T x", "T y", "y = tanh(x)", "squash")
        result = start.copy()
    computing.synchronize()

    def region() -> None:
        total = options.rounds * LAYERS
        ready = [cupy.cuda.Event(disable_timing=True) for _ in slots]
        free = [cupy.cuda.Event(disable_timing=True) for _ in slots]

        def send(number: int) -> None:
            slot = number % len(slots)
            if not ahead:
                slots[slot].set(sources[number % LAYERS], stream=computing)
                computing.synchronize()
                return
            if number >= len(slots):
                copying.wait_event(free[slot])
            slots[slot].set(sources[number % LAYERS], stream=copying)
            ready[slot].record(copying)

        with computing:
            for number in range(min(ahead, total)):
                send(number)
            signal = start
            for number in range(total):
                if number + ahead < total:
                    send(number + ahead)
                if ahead:
                    computing.wait_event(ready[number % len(slots)])
                signal = start if number % LAYERS == 0 else signal
                for _ in range(2):
                    signal = squash(signal @ slots[number % len(slots)])
                if ahead:
                    free[number % len(slots)].record(computing)
                if number % LAYERS == LAYERS - 1:
                    result[:] = signal

    def check() -> Off:
        right = on_host([block.astype(float) for block in blocks], first[:8].astype(float))
        return np.abs(result[:8].get() - right).max(), 2e-2

    return region, check


if __name__ == "__main__":
    run("cupy", 4, prepare, reference)
