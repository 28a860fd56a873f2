"""A network too large for the GPU (PyTorch): its weights stay on the host, and each layer's come over when it is its turn.

before     weights and results in pageable memory, blocking copies
pin        the same in pinned memory
pin-async  pinned memory, weights copied without blocking (the results are still waited for)
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

LAYERS, WIDTH, INNER, BATCH, BATCHES = 6, 1024, 4096, 256, 4

Layer = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def on_host(layers: list[Layer], rows: np.ndarray) -> np.ndarray:
    """rows (n, width) through all layers: each adds what its two matrices make of the normalised rows."""
    for wide, shift, narrow, back in layers:
        normal = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(rows.var(axis=1, keepdims=True) + 1e-5)
        rows = rows + np.maximum(normal @ wide + shift, 0) @ narrow + back
    return rows


def reference() -> Off:
    # Equal rows are normalised to 0, so that a layer adds its shifts alone
    ones = np.ones((4, 4))
    error = np.abs(on_host([(ones, np.ones(4), ones, np.ones(4))], 3 * ones) - 8).max()
    return error, 1e-9


def prepare(options: Options) -> Prepared:
    import torch

    pin = options.variant.startswith("pin")
    non_blocking = options.variant == "pin-async"
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))

    known = [(drawn(WIDTH, INNER), drawn(INNER), drawn(INNER, WIDTH), drawn(WIDTH)) for _ in range(LAYERS)]
    layers = [[torch.from_numpy(part) for part in layer] for layer in known]
    batches = [random.standard_normal((BATCH, WIDTH), dtype=np.float32) for _ in range(BATCHES)]
    rows_of = [torch.from_numpy(batch).cuda() for batch in batches]
    results = torch.zeros(BATCHES, BATCH, WIDTH)
    if pin:
        layers = [[part.pin_memory() for part in layer] for layer in layers]
        results = results.pin_memory()

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            rows = rows_of[step % BATCHES]
            for layer in layers:
                wide, shift, narrow, back = (part.to("cuda", non_blocking=non_blocking) for part in layer)
                normal = torch.nn.functional.layer_norm(rows, (WIDTH,))
                rows = rows + torch.addmm(back, torch.relu(torch.addmm(shift, normal, wide)), narrow)
            results[step % BATCHES].copy_(rows)

    def check() -> Off:
        doubled = [tuple(part.astype(float) for part in layer) for layer in known]
        right = on_host(doubled, batches[0][:8].astype(float))
        return np.abs(results[0, :8].numpy() - right).max(), 1e-2

    return region, check


if __name__ == "__main__":
    run("torch", 8, prepare, reference)
