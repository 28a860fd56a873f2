"""Passes without gradients on two ranks or more, before and after a change, as those of `training.py`."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from training import AFTER, BEFORE, Step, host_busy, layers, world


def tensor_parallel(rank: int, variant: str) -> Step:
    """Inference of layers divided between the ranks; the host waits for every all-reduce, or for the last."""
    torch.manual_seed(rank)
    width, wide, count = 4096, 8192, 16
    first = [
        torch.randn(wide // world(), width, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(count)
    ]
    second = [
        torch.randn(width, wide // world(), device="cuda", dtype=torch.bfloat16) / 64 for _ in range(count)
    ]
    tokens = torch.randn(256, width, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = tokens
        for up, down in zip(first, second, strict=True):
            y = nn.functional.gelu(x @ up.T) @ down.T
            dist.all_reduce(y)
            if variant == BEFORE:
                torch.cuda.synchronize()
            x = x + y
        return x

    return step


def pipeline(rank: int, variant: str) -> Step:
    """A stage a rank: the first takes micro-batches from the host, pageable or pinned; each sends its results on."""
    model = layers(2048, 6)
    count, batch, width = 6, 4096, 2048
    held = [torch.randn(batch, width) for _ in range(count)] if rank == 0 else []
    if variant == AFTER:
        held = [buffer.pin_memory() for buffer in held]
    between = torch.empty(batch, width, device="cuda")

    @torch.no_grad()
    def step() -> None:
        for number in range(count):
            if rank == 0:
                out = model(held[number].to("cuda", non_blocking=variant == AFTER))
            else:
                dist.recv(between, rank - 1)
                out = model(between)
            if rank + 1 < world():
                dist.send(out, rank + 1)

    return step


def experts(rank: int, variant: str) -> Step:
    """Tokens to experts on all ranks and back, in 32 or in 16 bits on the way."""
    torch.manual_seed(rank)
    expert, tokens = layers(2048, 4), torch.randn(16384, 2048, device="cuda")
    kind = torch.float32 if variant == BEFORE else torch.bfloat16
    sent, got = tokens.to(kind), torch.empty_like(tokens, dtype=kind)

    @torch.no_grad()
    def step() -> torch.Tensor:
        dist.all_to_all_single(got, sent)
        out = expert(got.to(torch.float32)).to(kind)
        dist.all_to_all_single(sent, out)
        return sent

    return step


def sharded(rank: int, variant: str) -> Step:
    """Layers whose weights lie divided over the ranks, gathered when they are needed, or a layer ahead."""
    torch.manual_seed(rank)
    width, count = 4096, 12
    shards = [torch.randn(width * width // world(), device="cuda") / 4096 for _ in range(count)]
    whole = [torch.empty(width * width, device="cuda") for _ in range(2 if variant == AFTER else 1)]
    data = torch.randn(4096, width, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = data
        ahead = dist.all_gather_into_tensor(whole[0], shards[0], async_op=True)
        for number in range(count):
            ahead.wait()
            weights = whole[number % len(whole)]
            if variant == AFTER and number + 1 < count:
                ahead = dist.all_gather_into_tensor(
                    whole[(number + 1) % 2], shards[number + 1], async_op=True
                )
            x = nn.functional.gelu(x @ weights.view(width, width))
            if variant == BEFORE and number + 1 < count:
                ahead = dist.all_gather_into_tensor(whole[0], shards[number + 1], async_op=True)
        return x

    return step


def logged(rank: int, variant: str) -> Step:
    """Rank 0 reads the mean of every layer's output for its log, or nobody does."""
    model = layers(2048, 12)
    data = torch.randn(4096, 2048, device="cuda")
    sums = torch.zeros(2048, device="cuda")
    log: list[float] = []

    @torch.no_grad()
    def step() -> None:
        x = data
        for part in model:
            x = part(x)
            if rank == 0 and variant == BEFORE:
                log.append(x.mean().item())
        sums.copy_(x.sum(0))
        dist.all_reduce(sums)

    return step


def wide_activations(rank: int, variant: str) -> Step:
    """Tensor-parallel layers of many tokens, their sums in 32 or in 16 bits."""
    torch.manual_seed(rank)
    width, count = 4096, 8
    first = [torch.randn(width, width, device="cuda") / 64 for _ in range(count)]
    tokens = torch.randn(8192, width, device="cuda")
    kind = torch.float32 if variant == BEFORE else torch.bfloat16

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = tokens
        for weights in first:
            y = (x @ weights).to(kind)
            dist.all_reduce(y)
            x = nn.functional.gelu(y.to(torch.float32))
        return x

    return step


def results_back(rank: int, variant: str) -> Step:
    """What all ranks gather goes back to the host, into pageable or pinned memory, each step."""
    model = layers(2048, 8)
    data = torch.randn(4096, 2048, device="cuda")
    whole = torch.empty(4096 * world(), 2048, device="cuda")
    kept = torch.empty(4096 * world(), 2048)
    kept.fill_(0)
    if variant == AFTER:
        kept = kept.pin_memory()

    @torch.no_grad()
    def step() -> None:
        dist.all_gather_into_tensor(whole, model(data))
        kept.copy_(whole)

    return step


def tables(rank: int, variant: str) -> Step:
    """Rows of tables by indices from the host, pageable or pinned, exchanged between ranks that each hold a part."""
    torch.manual_seed(rank)
    table = torch.randn(200_000, 256, device="cuda")
    indices = [torch.randint(0, 200_000, (2, 1 << 20)) for _ in range(2)]
    if variant == AFTER:
        indices = [buffer.pin_memory() for buffer in indices]
    top = layers(256, 3)
    number = 0

    @torch.no_grad()
    def step() -> torch.Tensor:
        nonlocal number
        number += 1
        mine = indices[number % 2].to("cuda", non_blocking=variant == AFTER)
        rows = table[mine.reshape(-1)]
        got = torch.empty_like(rows)
        dist.all_to_all_single(got, rows)
        return top(got[: 1 << 18])

    return step


def single_rank_twice(rank: int, variant: str) -> Step:
    """Sharded gradients; rank 0 computes every layer a second time, as for a check, or nobody does."""
    torch.manual_seed(rank)
    width, count = 3072, 8
    weights = [torch.randn(width, width, device="cuda") / 64 for _ in range(count)]
    parts = [torch.empty(width * width // world(), device="cuda") for _ in range(count)]
    data = torch.randn(6144, width, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = data
        for weight, part in zip(weights, parts, strict=True):
            x = nn.functional.gelu(x @ weight)
            if rank == 0 and variant == BEFORE:
                torch.testing.assert_close(x.shape, nn.functional.gelu(data @ weight).shape)
            dist.reduce_scatter_tensor(part, weight.view(-1))
        return x

    return step


def outputs_kept(rank: int, variant: str) -> Step:
    """Outputs of all ranks go to the host, pageable or pinned, and their sums to all ranks."""
    model, data = layers(3072, 6), torch.randn(6144, 3072, device="cuda")
    kept = torch.zeros(6144, 3072)
    kept = kept.pin_memory() if variant == AFTER else kept

    @torch.no_grad()
    def step() -> torch.Tensor:
        out = model(data)
        kept.copy_(out)
        sums = out.sum(0)
        dist.all_reduce(sums)
        return sums

    return step


def routed(rank: int, variant: str) -> Step:
    """Experts on all ranks; all but rank 1 take their tokens from pageable memory, or from pinned."""
    expert = layers(2048, 6)
    held = torch.randn(16384, 2048)
    pinned = variant == AFTER or rank == 1
    held = held.pin_memory() if pinned else held
    got = torch.empty(16384, 2048, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        tokens = held.to("cuda", non_blocking=pinned)
        dist.all_to_all_single(got, tokens)
        out = expert(got)
        dist.all_to_all_single(tokens, out)
        return tokens

    return step


def late_targets(rank: int, variant: str) -> Step:
    """A stage a rank; the last compares with targets from the host, pageable or pinned."""
    model = layers(3072, 4)
    batch, width, count = 4096, 3072, 4
    held = [torch.randn(batch, width) for _ in range(2)]
    if variant == AFTER:
        held = [buffer.pin_memory() for buffer in held]
    data = torch.randn(batch, width, device="cuda")
    between, error = torch.empty_like(data), torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        for number in range(count):
            if rank > 0:
                dist.recv(between, rank - 1)
            out = model(between if rank > 0 else data)
            if rank + 1 < world():
                dist.send(out, rank + 1)
            else:
                targets = held[number % 2].to("cuda", non_blocking=variant == AFTER)
                error.add_((out - targets).square().mean())

    return step


def debug_copies(rank: int, variant: str) -> Step:
    """All ranks copy every layer's output to the host, or nobody does."""
    model, data = layers(2048, 6), torch.randn(4096, 2048, device="cuda")
    kept = torch.zeros(4096, 2048)

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = data
        for number, part in enumerate(model):
            x = part(x)
            if variant == BEFORE and number % 2:
                kept.copy_(x)
        sums = x.sum(0)
        dist.all_reduce(sums)
        return sums

    return step


def loaded(rank: int, variant: str) -> Step:
    """Weights from the host's pageable or pinned memory to rank 0, and from there to all; then a pass."""
    width, count = 4096, 6
    held = [torch.randn(width, width) for _ in range(count)]
    if variant == AFTER:
        held = [buffer.pin_memory() for buffer in held]
    weights = [torch.empty(width, width, device="cuda") for _ in range(count)]
    data = torch.randn(4096, width, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = data
        for source, place in zip(held, weights, strict=True):
            if rank == 0:
                place.copy_(source, non_blocking=variant == AFTER)
            dist.broadcast(place, 0)
            x = nn.functional.gelu(x @ place)
        return x

    return step


def gathered_back(rank: int, variant: str) -> Step:
    """Outputs of all ranks gathered, and copied to the host by rank 0, into pageable or pinned memory."""
    model, data = layers(3072, 6), torch.randn(4096, 3072, device="cuda")
    whole = torch.empty(4096 * world(), 3072, device="cuda")
    kept = torch.zeros(4096 * world(), 3072)
    kept = kept.pin_memory() if variant == AFTER else kept

    @torch.no_grad()
    def step() -> None:
        dist.all_gather_into_tensor(whole, model(data))
        if rank == 0:
            kept.copy_(whole)

    return step


def slow_host(rank: int, variant: str) -> Step:
    """Rank 0 prepares every exchange for 4 ms on its host, or nobody does."""
    expert, tokens = layers(2048, 6), torch.randn(16384, 2048, device="cuda")
    got = torch.empty_like(tokens)

    @torch.no_grad()
    def step() -> torch.Tensor:
        if rank == 0 and variant == BEFORE:
            host_busy(4e-3)
        dist.all_to_all_single(got, tokens)
        return expert(got)

    return step
