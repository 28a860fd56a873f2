"""A histogram of the losses of all samples in training (PyTorch): each step's losses come to the host.

before       the host waits for the losses, then makes the next batch, then counts them
wait-at-use  it makes the next batch first, and waits when it counts
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run, slack

WIDTH, BATCH, BATCHES = 1024, 4096, 40
EDGES = np.linspace(0, 8, 65)


def counted(losses: np.ndarray) -> np.ndarray:
    return np.histogram(losses[::4], EDGES)[0]


def reference() -> Off:
    return abs(int(counted(np.full(40, 0.3))[2]) - 10), 0


def prepare(options: Options) -> Prepared:
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 4096), torch.nn.GELU(), torch.nn.Linear(4096, WIDTH)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    random = np.random.default_rng(0)
    source = random.standard_normal((BATCH + BATCHES, WIDTH), dtype=np.float32)
    batch = torch.empty((BATCH, WIDTH), pin_memory=True)
    data = torch.empty((BATCH, WIDTH), device="cuda")
    held, came = torch.zeros(BATCH, pin_memory=True), torch.cuda.Event()
    histogram, kept = np.zeros(64, np.int64), []
    later = options.variant == "wait-at-use"

    def step(number: int) -> None:
        data.copy_(batch, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        losses = (model(data) - data).square().mean(1)
        losses.mean().backward()
        optimizer.step()
        held.copy_(losses.detach(), non_blocking=later)
        came.record()
        slack.copied()
        # The next batch: the same samples, a little further on and scaled anew; into memory that the GPU has read by then.
        fresh = source[number : number + BATCH] * (1 + 0.001 * number)
        came.synchronize()
        slack.used()
        histogram[:] += counted(held.numpy())
        batch.numpy()[:] = fresh

    def region() -> None:
        histogram[:] = 0
        for number in range(options.rounds):
            step(number % BATCHES)
        kept.append(int(histogram.sum()))

    def check() -> Off:
        out_of_range = BATCH // 4 * options.rounds - kept[-1]
        return max(out_of_range / (BATCH // 4 * options.rounds), 0.0), 0.05

    return region, check


if __name__ == "__main__":
    run("torch", 60, prepare, reference)
