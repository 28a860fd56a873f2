"""A network whose pinned weights are streamed to the GPU layer by layer (PyTorch), each layer in an NVTX range.

before     weights copied without blocking, in the stream that computes
depth-1    a stream for copies, which are submitted one layer ahead, into two buffers
depth-3    three layers ahead, into four buffers
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

LAYERS, WIDTH, INNER, BATCH = 10, 1024, 4096, 2048


def on_host(layers: list[tuple[np.ndarray, np.ndarray]], rows: np.ndarray) -> np.ndarray:
    """rows (n, width) through all layers: each adds what its two matrices make of the rows."""
    for wide, narrow in layers:
        rows = rows + np.maximum(rows @ wide, 0) @ narrow
    return rows


def reference() -> Off:
    # 1 + 2·4·2 = 17
    twos = np.full((2, 2), 2.0)
    return np.abs(on_host([(twos, twos)], np.ones((1, 2))) - 17).max(), 1e-9


def prepare(options: Options) -> Prepared:
    import torch

    depth = int(options.variant.removeprefix("depth-")) if options.variant != "before" else 0
    random = np.random.default_rng(1)

    def drawn(rows: int, columns: int) -> np.ndarray:
        return random.standard_normal((rows, columns), dtype=np.float32) / np.float32(2 * np.sqrt(rows))

    known = [(drawn(WIDTH, INNER), drawn(INNER, WIDTH)) for _ in range(LAYERS)]
    layers = [[torch.from_numpy(part).pin_memory() for part in layer] for layer in known]
    first = random.standard_normal((BATCH, WIDTH), dtype=np.float32)
    start, result = torch.from_numpy(first).cuda(), torch.zeros(BATCH, WIDTH).pin_memory()
    slots = [[torch.empty_like(part, device="cuda") for part in layers[0]] for _ in range(depth + 1)]
    computing = torch.cuda.current_stream()
    copying = torch.cuda.Stream() if depth else computing

    def compute(rows: torch.Tensor, number: int) -> torch.Tensor:
        wide, narrow = slots[number % len(slots)]
        return rows + torch.relu(rows @ wide) @ narrow

    @torch.inference_mode()
    def region() -> None:
        total = options.rounds * LAYERS
        ready = [torch.cuda.Event() for _ in slots]
        free = [torch.cuda.Event() for _ in slots]

        def send(number: int) -> None:
            slot = number % len(slots)
            with torch.cuda.stream(copying):
                if depth and number >= len(slots):
                    copying.wait_event(free[slot])
                for there, here in zip(slots[slot], layers[number % LAYERS], strict=True):
                    there.copy_(here, non_blocking=True)
                if depth:
                    ready[slot].record(copying)

        for number in range(min(depth, total)):
            send(number)
        rows = start
        for number in range(total):
            torch.cuda.nvtx.range_push(f"layer.{number % LAYERS}")
            if number + depth < total:
                send(number + depth)
            if depth:
                computing.wait_event(ready[number % len(slots)])
            rows = compute(start if number % LAYERS == 0 else rows, number)
            if depth:
                free[number % len(slots)].record(computing)
            torch.cuda.nvtx.range_pop()
            if number % LAYERS == LAYERS - 1:
                result.copy_(rows, non_blocking=True)

    def check() -> Off:
        doubled = [(wide.astype(float), narrow.astype(float)) for wide, narrow in known]
        right = on_host(doubled, first[:8].astype(float))
        error = np.abs(result[:8].numpy() - right).max() / np.abs(right).max()
        return error, 1e-2

    return region, check


if __name__ == "__main__":
    run("torch", 6, prepare, reference)
