"""Outliers among the readings of many sensors (CuPy): blocks come over, the host reads how many are far off in each.

before       pageable readings; the number of outliers is read after each block
pin          the same with pinned readings
fewer-syncs  the numbers stay on the GPU and are read once, at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

SENSORS, READINGS, BLOCKS, FAR = 64, 4000, 32, 3.0


def on_host(block: np.ndarray) -> int:
    """How many readings (sensors, readings) are further than FAR deviations from their sensor's mean."""
    off = block - block.mean(axis=1, keepdims=True)
    return int((np.abs(off) > FAR * block.std(axis=1, keepdims=True)).sum())


def reference() -> Off:
    # One of a hundred stands out, the others are alike
    block = np.ones((2, 100))
    block[1, 7] = 50
    return abs(on_host(block) - 1), 0


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    empty = cupyx.empty_pinned if options.variant == "pin" else np.empty
    random = np.random.default_rng(0)
    blocks = []
    for _ in range(BLOCKS):
        block = empty((SENSORS, READINGS), np.float32)
        block[...] = random.standard_normal((SENSORS, READINGS))
        blocks.append(block)
    readings = cupy.empty((SENSORS, READINGS), np.float32)
    counts = np.zeros(BLOCKS, np.int64)
    on_gpu = cupy.zeros(BLOCKS, np.int64)

    def region() -> None:
        for _ in range(options.rounds):
            for number, block in enumerate(blocks):
                readings.set(block)
                off = cupy.abs(readings - readings.mean(axis=1, keepdims=True))
                found = (off > FAR * readings.std(axis=1, keepdims=True)).sum()
                if options.variant == "fewer-syncs":
                    on_gpu[number] = found
                else:
                    counts[number] = int(found)
            if options.variant == "fewer-syncs":
                counts[...] = on_gpu.get()

    def check() -> Off:
        # A reading at the very limit may fall on either side in single precision.
        wrong = max(
            abs(int(counts[number]) - on_host(blocks[number].astype(float))) for number in range(0, BLOCKS, 5)
        )
        return wrong, 2

    return region, check


if __name__ == "__main__":
    run("cupy", 4, prepare, reference)
