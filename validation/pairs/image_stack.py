"""Sharpening of a stack of images (CuPy): one after the other comes over, is sharpened, and goes back.

before       pinned memory, blocking copies
fewer-syncs  copies without blocking, in one stream, one wait at the end
streams      the same in three streams, each with buffers of its own
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

SIDE, IMAGES = 1000, 24

SHARPEN = r"""
extern "C" __global__ void sharpen(const float* in, float* out, int side) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    float around = 0;
    for (int dy = -3; dy <= 3; ++dy)
        for (int dx = -3; dx <= 3; ++dx)
            around += in[min(max(y + dy, 0), side - 1) * side + min(max(x + dx, 0), side - 1)];
    out[y * side + x] = 2 * in[y * side + x] - around / 49;
}
"""


def on_host(image: np.ndarray) -> np.ndarray:
    """Twice the image less the mean around each place, edges repeated."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 3, mode="edge"), (7, 7))
    return 2 * image - windows.mean(axis=(2, 3))


def reference() -> Off:
    # Of a ramp the mean around a place is the place's own value, but near its ends
    ramp = np.tile(np.arange(20.0), (20, 1))
    return np.abs((on_host(ramp) - ramp)[:, 3:-3]).max(), 1e-9


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    random = np.random.default_rng(0)
    images, sharp = (cupyx.empty_pinned((IMAGES, SIDE, SIDE), np.float32) for _ in range(2))
    images[...] = random.random((IMAGES, SIDE, SIDE), dtype=np.float32)
    sharp[...] = 0
    kernel = cupy.RawKernel(SHARPEN, "sharpen")
    lanes = 3 if options.variant == "streams" else 1
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(lanes)]
    buffers = [cupy.empty((2, SIDE, SIDE), np.float32) for _ in range(lanes)]
    blocking = options.variant == "before"
    grid = ((SIDE + 31) // 32, (SIDE + 7) // 8)

    def region() -> None:
        for _ in range(options.rounds):
            for number in range(IMAGES):
                lane = number % lanes
                inside, outside = buffers[lane]
                with streams[lane]:
                    inside.set(images[number], stream=streams[lane])
                    if blocking:
                        streams[lane].synchronize()
                    kernel(grid, (32, 8), (inside, outside, SIDE))
                    outside.get(out=sharp[number], stream=streams[lane], blocking=blocking)
        for stream in streams:
            stream.synchronize()

    def check() -> Off:
        error = max(
            float(np.abs(sharp[number, :80] - on_host(images[number, :90].astype(float))[:80]).max())
            for number in range(0, IMAGES, 5)
        )
        return error, 1e-4

    return region, check


if __name__ == "__main__":
    run("cupy", 4, prepare, reference)
