"""Scores of requests by a small decoder (PyTorch): each batch's scores come to the host, which splits the next texts.

before       the host waits for the scores, then splits the texts of the next batch, then picks the best
wait-at-use  it splits the next texts first, and waits when it picks
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run, slack

WORDS, TOKENS, BATCH, SCORES = 20000, 64, 64, 4096
TEXT = "the wind over the hill bends grass and the river carries what the rain has left behind "


def split(number: int) -> np.ndarray:
    """Tokens of a batch of texts, by the letters of their words."""
    rows = []
    for row in range(BATCH):
        words = (TEXT[(row + number) % 40 :] * 4).split()[:TOKENS]
        tokens = [sum(ord(c) * 31**p for p, c in enumerate(word)) % WORDS for word in words]
        rows.append(tokens + [0] * (TOKENS - len(tokens)))
    return np.array(rows, np.int64)


def reference() -> Off:
    return abs(int(split(0)[0, 0]) - (ord("t") + 31 * ord("h") + 31**2 * ord("e")) % WORDS), 0


def prepare(options: Options) -> Prepared:
    import torch

    torch.manual_seed(2)
    later = options.variant == "wait-at-use"
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    model = (
        torch.nn.Sequential(torch.nn.Embedding(WORDS, 1024), torch.nn.TransformerEncoder(layer, 4))
        .cuda()
        .eval()
    )
    head = torch.nn.Linear(1024, SCORES).cuda()
    asked = torch.zeros((BATCH, TOKENS), dtype=torch.int64, pin_memory=True)
    scores, came = torch.zeros((BATCH, SCORES), pin_memory=True), torch.cuda.Event()
    best = np.zeros((options.rounds, BATCH), np.int64)
    asked.numpy()[:] = split(0)

    @torch.no_grad()
    def answer() -> torch.Tensor:
        return head(model(asked.to("cuda", non_blocking=True)).mean(1))

    def region() -> None:
        asked.numpy()[:] = split(0)
        for number in range(options.rounds):
            scores.copy_(answer(), non_blocking=later)
            came.record()
            slack.copied()
            fresh = split(number + 1)
            came.synchronize()
            slack.used()
            best[number] = scores.numpy().argmax(1)
            asked.numpy()[:] = fresh

    def check() -> Off:
        asked.numpy()[:] = split(options.rounds - 1)
        known = answer().argmax(1).cpu().numpy()
        return (known != best[-1]).mean(), 0.02

    return region, check


if __name__ == "__main__":
    run("torch", 60, prepare, reference)
