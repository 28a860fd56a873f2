"""Sentences of different lengths (PyTorch): each is a tensor of its own, their vectors are averaged on the GPU.

before  each sentence of a batch is a copy of its own, from pageable memory
pin     the same from pinned memory, blocking
batch   the sentences of a batch are put one behind the other by the host and sent in one copy
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

WORDS, WIDTH, SENTENCES, LONGEST, BATCHES = 30_000, 64, 32, 400, 8


def on_host(vectors: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """The mean of a sentence's vectors."""
    return vectors[sentence].mean(axis=0)


def reference() -> Off:
    # Of a word said twice and one said once the mean lies a third of the way
    mean = on_host(np.array([[0.0, 3.0], [3.0, 0.0]]), np.array([0, 0, 1]))
    return np.abs(mean - [1, 2]).max(), 1e-12


def prepare(options: Options) -> Prepared:
    import torch

    random = np.random.default_rng(0)
    host_vectors = random.standard_normal((WORDS, WIDTH), dtype=np.float32)
    host_batches = [
        [random.integers(0, WORDS, random.integers(20, LONGEST)) for _ in range(SENTENCES)]
        for _ in range(BATCHES)
    ]
    vectors = torch.from_numpy(host_vectors).cuda()
    batches = [[torch.from_numpy(sentence) for sentence in batch] for batch in host_batches]
    if options.variant == "pin":
        batches = [[sentence.pin_memory() for sentence in batch] for batch in batches]
    begins = [
        torch.from_numpy(np.cumsum([0, *(len(sentence) for sentence in batch[:-1])])).cuda()
        for batch in host_batches
    ]
    means = torch.zeros(BATCHES, SENTENCES, WIDTH)

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            number = step % BATCHES
            if options.variant == "batch":
                words = torch.cat(batches[number]).to("cuda")
            else:
                words = torch.cat([sentence.to("cuda") for sentence in batches[number]])
            found = torch.nn.functional.embedding_bag(words, vectors, begins[number], mode="mean")
            means[number].copy_(found)

    def check() -> Off:
        error = 0.0
        for number in range(min(BATCHES, options.rounds)):
            for place in range(0, SENTENCES, 9):
                known = on_host(host_vectors.astype(float), host_batches[number][place])
                error = max(error, float(np.abs(means[number, place].numpy() - known).max()))
        return error, 1e-4

    return region, check


if __name__ == "__main__":
    run("torch", 100, prepare, reference)
