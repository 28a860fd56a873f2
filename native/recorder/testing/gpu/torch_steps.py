"""Steps of PyTorch on request: `torch_steps.py` reads lines `PROGRAM STEPS PROFILER` and answers each with its times.

PROGRAM: `train` (8 layers of 256, batch 64), `infer` (the same, forwards, the result copied back) or `lookups`
(the work of validation/pairs/recommend.py: 26 small pageable copies and as many lookups a step).
PROFILER: `none`, `gpu` or `all`: under PyTorch's own profiler, of GPU records only or of the host's operators too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

TABLES, ROWS, WIDTH, BATCH, BATCHES, HIDDEN = 26, 20_000, 16, 2048, 8, 64
WARM_UP = 10


def network() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(8):
        layers += [torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).cuda(), torch.randn(64, 256).pin_memory()


def train() -> Callable[[], object]:
    model, data = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data.to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()

    return step


def infer() -> Callable[[], object]:
    model, data = network()

    @torch.no_grad()
    def step() -> None:
        model(data.to("cuda", non_blocking=True)).cpu()

    return step


def lookups() -> Callable[[], object]:
    random = np.random.default_rng(0)
    tables = [torch.randn(ROWS, WIDTH).cuda() for _ in range(TABLES)]
    first, second = torch.randn(TABLES * WIDTH, HIDDEN).cuda(), torch.randn(HIDDEN).cuda()
    indices = random.integers(0, ROWS, (BATCHES, TABLES, BATCH))
    batches = [[torch.from_numpy(column.copy()) for column in batch] for batch in indices]
    scores = torch.zeros(BATCHES, BATCH)
    number = 0

    @torch.inference_mode()
    def step() -> None:
        nonlocal number
        number += 1
        columns = [column.to("cuda") for column in batches[number % BATCHES]]
        pairs = zip(columns, tables, strict=True)
        looked_up = [torch.nn.functional.embedding(column, table) for column, table in pairs]
        hidden = torch.relu(torch.cat(looked_up, dim=1) @ first)
        scores[number % BATCHES].copy_(torch.sigmoid(hidden @ second))

    return step


def timed(step: Callable[[], object], steps: int) -> float:
    """Seconds a step."""
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def main() -> None:
    programs = {"train": train(), "infer": infer(), "lookups": lookups()}
    for step in programs.values():
        timed(step, 10)
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        name, steps, profiler = line.split()
        if profiler == "none":
            seconds = timed(programs[name], int(steps))
        else:
            from torch.profiler import ProfilerActivity, profile

            kinds = [ProfilerActivity.CUDA] + [ProfilerActivity.CPU] * (profiler == "all")
            with profile(activities=kinds):
                seconds = timed(programs[name], int(steps))
        print(json.dumps({"seconds_a_step": seconds, "steps": int(steps) + WARM_UP}), flush=True)


if __name__ == "__main__":
    main()
