"""Outliers among the readings of many sensors (CuPy): blocks come over, the host reads how many are far off in each.

before       pageable readings; the number of outliers is read after each block
pin          the same with pinned readings
fewer-syncs  the numbers stay on the GPU and are read once, at the end
"""

from __future__ import annotations

import sys

import numpy as np
from measured import Program, finish, finish_reference, measure_cupy, options_of

PROGRAM = Program("sensor_scan", "Outliers among readings", ("before", "pin", "fewer-syncs"), 4)
SENSORS, READINGS, BLOCKS, FAR = 64, 4000, 32, 3.0


def on_host(block: np.ndarray) -> int:
    """How many readings (sensors, readings) are further than FAR deviations from their sensor's mean."""
    off = block - block.mean(axis=1, keepdims=True)
    return int((np.abs(off) > FAR * block.std(axis=1, keepdims=True)).sum())


def main() -> int:
    options = options_of(PROGRAM)
    if options.reference:  # one of a hundred stands out, the others are alike
        block = np.ones((2, 100))
        block[1, 7] = 50
        return finish_reference(PROGRAM, abs(on_host(block) - 1), 0)
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

    seconds = measure_cupy(options, region)
    # A reading at the very limit may fall on either side in single precision.
    wrong = max(
        abs(int(counts[number]) - on_host(blocks[number].astype(float))) for number in range(0, BLOCKS, 5)
    )
    return finish(PROGRAM, options, seconds, wrong, 2)


if __name__ == "__main__":
    sys.exit(main())
