"""Scoring for recommendation (PyTorch): 26 categories a user, each looked up in a table of embeddings, then a network.

before     the indices of each category are a copy of their own, from pageable memory
pin        the same from pinned memory, blocking
pin-async  the same from pinned memory, without blocking (the scores are still waited for)
batch      the indices of all categories are packed and sent in one copy, from pageable memory
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

TABLES, ROWS, WIDTH, BATCH, BATCHES, HIDDEN = 26, 20_000, 16, 2048, 8, 64


def on_host(tables: np.ndarray, first: np.ndarray, second: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Scores of a batch. tables (tables, rows, width), first (tables·width, hidden), second (hidden,), indices
    (tables, batch)."""
    looked_up = np.concatenate([table[chosen] for table, chosen in zip(tables, indices, strict=True)], axis=1)
    hidden = np.maximum(looked_up.astype(float) @ first, 0)
    return 1 / (1 + np.exp(-(hidden @ second)))


def reference() -> Off:
    # All ones: width·tables in each of two hidden units, which cancel: an even score
    ones = np.ones((3, 5, 4))
    score = on_host(ones, np.ones((12, 2)), np.array([1.0, -1.0]), np.zeros((3, 7), int))
    return np.abs(score - 0.5).max(), 0


def prepare(options: Options) -> Prepared:
    import torch

    pin = options.variant.startswith("pin")
    non_blocking = options.variant == "pin-async"
    random = np.random.default_rng(0)
    host_tables = random.standard_normal((TABLES, ROWS, WIDTH), dtype=np.float32)
    host_first = random.standard_normal((TABLES * WIDTH, HIDDEN), dtype=np.float32) / 20
    host_second = random.standard_normal(HIDDEN, dtype=np.float32) / 8
    host_indices = random.integers(0, ROWS, (BATCHES, TABLES, BATCH))
    tables = [torch.from_numpy(table).cuda() for table in host_tables]
    first, second = torch.from_numpy(host_first).cuda(), torch.from_numpy(host_second).cuda()
    # Each category of a batch is a tensor of its own, as a loader of columns hands them over.
    batches = [[torch.from_numpy(column.copy()) for column in batch] for batch in host_indices]
    packed = torch.zeros(TABLES, BATCH, dtype=torch.int64)
    scores = torch.zeros(BATCHES, BATCH)
    if pin:
        batches = [[column.pin_memory() for column in batch] for batch in batches]
        scores = scores.pin_memory()

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            batch = batches[step % BATCHES]
            if options.variant == "batch":
                columns = torch.stack(batch, out=packed).to("cuda").unbind(0)
            else:
                columns = [column.to("cuda", non_blocking=non_blocking) for column in batch]
            looked_up = [
                torch.nn.functional.embedding(column, table)
                for column, table in zip(columns, tables, strict=True)
            ]
            hidden = torch.relu(torch.cat(looked_up, dim=1) @ first)
            scores[step % BATCHES].copy_(torch.sigmoid(hidden @ second))

    def check() -> Off:
        error = 0.0
        for number in range(0, min(BATCHES, options.rounds), 3):
            expected = on_host(host_tables, host_first, host_second, host_indices[number])
            error = max(error, float(np.abs(scores[number].numpy() - expected).max()))
        return error, 1e-3

    return region, check


if __name__ == "__main__":
    run("torch", 150, prepare, reference)
