"""An out-of-core computation in CuPy: a field larger than we want on the GPU is smoothed slab by slab.

By default slabs come from pageable memory, one after the other. `--pinned` keeps the field in pinned memory;
`--streams N` works on N slabs at a time.
"""

from __future__ import annotations

import cupy
import numpy
import profiled

SMOOTH = cupy.ElementwiseKernel(
    "raw float32 field, int32 row", "float32 smooth",
    """
    const int last = _ind.size() - 1;
    float sum = 0;
    for (int k = -8; k <= 8; ++k) sum += field[min(max((int)i + k * row, 0), last)];
    smooth = sum / 17;
    """,
    "smooth",
)  # fmt: skip


def main() -> None:
    parser = profiled.arguments("Smooth a field slab by slab and record it.")
    parser.add_argument("--pinned", action="store_true")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--slabs", type=int, default=24)
    options = parser.parse_args()

    shape = (options.slabs, 2048, 4096)  # 32 MiB a slab
    if options.pinned:
        count = int(numpy.prod(shape))
        field, smooth = (
            numpy.frombuffer(cupy.cuda.alloc_pinned_memory(count * 4), numpy.float32, count).reshape(shape)
            for _ in range(2)
        )
    else:
        field, smooth = numpy.empty(shape, numpy.float32), numpy.empty(shape, numpy.float32)
    field[...] = numpy.random.default_rng(0).random(shape, numpy.float32)
    smooth[...] = 0
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(options.streams)]
    buffers = [(cupy.empty(shape[1:], numpy.float32), cupy.empty(shape[1:], numpy.float32)) for _ in streams]

    def run() -> None:
        for slab in range(options.slabs):
            stream = streams[slab % len(streams)]
            source, result = buffers[slab % len(streams)]
            with stream:
                source.set(field[slab], stream=stream)
                SMOOTH(source, numpy.int32(shape[2]), result)
                result.get(stream=stream, out=smooth[slab], blocking=False)
        for stream in streams:
            stream.synchronize()

    run()
    smooth[...] = 0
    profiled.profile_to(options.out, run)
    middle = field[1, 992:1009].astype(numpy.float64).sum(0) / 17
    if not numpy.allclose(smooth[1, 1000], middle, atol=1e-5):
        raise SystemExit("the smoothed field is wrong")


if __name__ == "__main__":
    main()
