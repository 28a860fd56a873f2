"""Matched filtering of radar echoes (CuPy): the traces of a burst are compressed by FFT against the chirp sent.

before  each trace is a copy of its own (32 KiB, pageable)
pin     the same from pinned memory
batch   the traces of a burst are packed and sent in one copy, from pageable memory
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

TRACES, SAMPLES, CHIRP = 64, 4096, 512
BURSTS = 8


def chirp() -> np.ndarray:
    """The pulse: its frequency rises through half of the band."""
    time = np.arange(CHIRP) / CHIRP
    return np.exp(1j * np.pi * CHIRP / 2 * (time**2 - time))


def burst(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Traces that hold an echo each, in noise; and where the echoes begin."""
    random = np.random.default_rng(seed)
    places = random.integers(0, SAMPLES - CHIRP, TRACES)
    traces = 0.5 * (
        random.standard_normal((TRACES, SAMPLES)) + 1j * random.standard_normal((TRACES, SAMPLES))
    )
    for trace, place in zip(traces, places, strict=True):
        trace[place : place + CHIRP] += chirp()
    return traces.astype(np.complex64), places


def on_host(traces: np.ndarray) -> np.ndarray:
    """Their strength after compression."""
    spectrum = np.conj(np.fft.fft(chirp(), SAMPLES))
    return np.abs(np.fft.ifft(np.fft.fft(traces) * spectrum)) / CHIRP


def reference() -> Off:
    # The strongest sample is where the echo begins
    traces, places = burst(1)
    return np.abs(on_host(traces).argmax(1) - places).max(), 1


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    empty = cupyx.empty_pinned if options.variant == "pin" else np.empty
    echoes, echo_places = [], []
    for number in range(BURSTS):
        traces, places = burst(number)
        apart = [empty(SAMPLES, np.complex64) for _ in range(TRACES)]  # as receivers hand them over
        for buffer, trace in zip(apart, traces, strict=True):
            buffer[...] = trace
        echoes.append(apart)
        echo_places.append(places)
    packed = np.zeros((TRACES, SAMPLES), np.complex64)
    strength = empty((BURSTS, TRACES, SAMPLES), np.float32)
    strength[...] = 0
    spectrum = cupy.asarray(np.conj(np.fft.fft(chirp(), SAMPLES)).astype(np.complex64))
    on_gpu = cupy.empty((TRACES, SAMPLES), np.complex64)

    def region() -> None:
        for iteration in range(options.rounds):
            number = iteration % BURSTS
            if options.variant == "batch":
                np.stack(echoes[number], out=packed)
                on_gpu.set(packed)
            else:
                for row, trace in zip(on_gpu, echoes[number], strict=True):
                    row.set(trace)
            compressed = cupy.fft.ifft(cupy.fft.fft(on_gpu, axis=1) * spectrum, axis=1)
            (cupy.abs(compressed) / np.float32(CHIRP)).get(out=strength[number])

    def check() -> Off:
        error = 0.0
        for number in range(0, min(BURSTS, options.rounds), 3):
            error = max(error, float(np.abs(strength[number] - on_host(np.stack(echoes[number]))).max()))
            if np.abs(strength[number].argmax(1) - echo_places[number]).max() > 1:
                error = 1.0
        return error, 1e-4

    return region, check


if __name__ == "__main__":
    run("cupy", 150, prepare, reference)
