"""The strongest frequency of many signals (CuPy): spectra are made on the GPU, their powers come to the host.

before       the host waits for the powers, then makes the next signals, then looks for the peaks
wait-at-use  it makes the next signals first, and waits when it looks
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run, slack

SIGNALS, LENGTH, SHIFTS = 512, 16384, 8


def peaks(powers: np.ndarray) -> np.ndarray:
    return powers[:, 1:].argmax(axis=1) + 1


def signals(shift: int) -> np.ndarray:
    """Waves of 100 + number + shift periods in noise that repeats."""
    time = np.arange(LENGTH, dtype=np.float32) * np.float32(2 * np.pi / LENGTH)
    return np.stack([np.sin((100 + n % 64 + shift) * time) for n in range(64)])


def reference() -> Off:
    powers = np.abs(np.fft.rfft(signals(3)[:5])) ** 2
    return np.abs(peaks(powers) - (103 + np.arange(5))).max(), 0


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    later = options.variant == "wait-at-use"
    waves = [signals(shift) for shift in range(SHIFTS)]
    sent = cupyx.empty_pinned((SIGNALS, LENGTH), np.float32)
    sent[:] = np.tile(waves[0], (SIGNALS // 64, 1))
    came = cupyx.zeros_pinned((SIGNALS, LENGTH // 2 + 1), np.float32)
    on_gpu = cupy.empty((SIGNALS, LENGTH), np.float32)
    stream, wrong = cupy.cuda.Stream(non_blocking=True), [0]

    def step(number: int) -> None:
        with stream:
            on_gpu.set(sent, stream=stream)
            spectrum = cupy.fft.rfft(on_gpu, axis=1)
            for _ in range(12):
                spectrum = cupy.fft.rfft(cupy.fft.irfft(spectrum, axis=1), axis=1)
            powers = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
            powers.get(stream=stream, out=came, blocking=not later)
        slack.copied()
        fresh = np.tile(waves[(number + 1) % SHIFTS], (SIGNALS // 64, 1)) * np.float32(0.5)
        stream.synchronize()
        slack.used()
        wrong[0] = max(
            wrong[0], int(np.abs(peaks(came)[:64] - (100 + np.arange(64) + number % SHIFTS)).max())
        )
        sent[:] = fresh

    def region() -> None:
        sent[:] = np.tile(waves[0], (SIGNALS // 64, 1))
        for number in range(options.rounds):
            step(number)

    return region, lambda: (wrong[0], 0)


if __name__ == "__main__":
    run("cupy", 40, prepare, reference)
