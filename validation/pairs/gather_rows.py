"""Rows of a table that is too large for the GPU (PyTorch): the host gathers those of a batch, the GPU scores them.

before     rows are gathered into pageable memory, sent and waited for
pin        the same into pinned memory
pin-async  pinned memory by turns of two buffers, sent without blocking (the scores are still waited for)
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

ROWS, WIDTH, BATCH, BATCHES, CLASSES = 200_000, 128, 4096, 6, 64


def on_host(table: np.ndarray, chosen: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The best class of each chosen row."""
    return (np.maximum(table[chosen] @ first, 0) @ second).argmax(axis=1)


def reference() -> Off:
    # A row that is one class's own direction is of that class
    found = on_host(np.eye(5), np.array([3, 1, 4]), np.eye(5), np.eye(5))
    return np.abs(found - [3, 1, 4]).max(), 0


def prepare(options: Options) -> Prepared:
    import torch

    pin = options.variant.startswith("pin")
    random = np.random.default_rng(0)
    host_table = random.standard_normal((ROWS, WIDTH), dtype=np.float32)
    host_first = random.standard_normal((WIDTH, WIDTH), dtype=np.float32)
    host_second = random.standard_normal((WIDTH, CLASSES), dtype=np.float32)
    host_chosen = random.integers(0, ROWS, (BATCHES, BATCH))
    table, chosen = torch.from_numpy(host_table), torch.from_numpy(host_chosen)
    first, second = torch.from_numpy(host_first).cuda(), torch.from_numpy(host_second).cuda()
    buffers = [torch.zeros(BATCH, WIDTH, pin_memory=pin) for _ in range(2)]
    classes = torch.zeros(BATCHES, BATCH, dtype=torch.int64, pin_memory=pin)

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            buffer = buffers[step % 2]
            torch.index_select(table, 0, chosen[step % BATCHES], out=buffer)
            rows = buffer.to("cuda", non_blocking=options.variant == "pin-async")
            classes[step % BATCHES].copy_((torch.relu(rows @ first) @ second).argmax(dim=1))

    def check() -> Off:
        wrong = 0.0
        for number in range(min(BATCHES, options.rounds)):
            known = on_host(host_table, host_chosen[number, :500], host_first, host_second)
            wrong = max(wrong, float((classes[number, :500].numpy() != known).mean()))
        return wrong, 0.01

    return region, check


if __name__ == "__main__":
    run("torch", 60, prepare, reference)
