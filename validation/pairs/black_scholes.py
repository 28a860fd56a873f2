"""European options by Black and Scholes (CuPy): batches of a million prices there and back.

before       batches in pageable memory
pin          batches in pinned memory
fewer-syncs  pageable; the stream is not waited for again after each batch
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

BATCH = 1 << 20
BATCHES = 4
RATE = 0.03

PRICE = """
    const float spread = 0.3f * sqrtf(years);
    const float d1 = (logf(spot / strike) + (rate + 0.045f) * years) / spread;
    const float d2 = d1 - spread;
    const float discounted = strike * expf(-rate * years);
    call = spot * normcdff(d1) - discounted * normcdff(d2);
    put = discounted * normcdff(-d2) - spot * normcdff(-d1);
"""


def on_host(
    spot: np.ndarray, strike: np.ndarray, years: np.ndarray, volatility: float = 0.3, rate: float = RATE
) -> tuple[np.ndarray, np.ndarray]:
    """Prices of calls and puts."""
    from math import erfc, sqrt

    normal = np.vectorize(lambda x: 0.5 * erfc(-x / sqrt(2)), otypes=[float])
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    discounted = strike * np.exp(-rate * years)
    call = spot * normal(d1) - discounted * normal(d1 - spread)
    return call, call + discounted - spot


def reference() -> Off:
    # The textbook's case: 10.4506 and 5.5735
    unit = np.ones(1)
    call, put = on_host(100 * unit, 100 * unit, unit, volatility=0.2, rate=0.05)
    return abs(call[0] - 10.4506) + abs(put[0] - 5.5735), 1e-4


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    empty = cupyx.empty_pinned if options.variant == "pin" else np.empty
    random = np.random.default_rng(0)
    spots, strikes, years, calls, puts = (empty((BATCHES, BATCH), np.float32) for _ in range(5))
    for array, low, high in ((spots, 50, 150), (strikes, 50, 150), (years, 0.1, 2)):
        array[...] = random.uniform(low, high, array.shape)
    calls[...] = puts[...] = 0
    price = cupy.ElementwiseKernel(
        "float32 spot, float32 strike, float32 years, float32 rate",
        "float32 call, float32 put",
        PRICE,
        "price",
    )
    on_gpu = [cupy.empty(BATCH, np.float32) for _ in range(5)]
    spot, strike, duration, call, put = on_gpu
    stream = cupy.cuda.get_current_stream()

    def region() -> None:
        for iteration in range(options.rounds):
            batch = iteration % BATCHES
            spot.set(spots[batch])
            strike.set(strikes[batch])
            duration.set(years[batch])
            price(spot, strike, duration, np.float32(RATE), call, put)
            call.get(out=calls[batch])
            put.get(out=puts[batch])
            if options.variant != "fewer-syncs":
                stream.synchronize()

    def check() -> Off:
        some = slice(None, None, 1009)
        error = 0.0
        for batch in range(min(BATCHES, options.rounds)):
            expected = on_host(*(array[batch, some].astype(float) for array in (spots, strikes, years)))
            for computed, right in zip((calls, puts), expected, strict=True):
                error = max(error, float(np.abs(computed[batch, some] - right).max()))
        return error, 1e-3

    return region, check


if __name__ == "__main__":
    run("cupy", 120, prepare, reference)
