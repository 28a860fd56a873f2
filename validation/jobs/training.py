"""Training on two ranks or more, before and after a change; with what all programs here are made of.

A program is made once a variant and rank: `make(rank, variant)` gives one step. PyTorch and NCCL; `halo` over MPI.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BEFORE, AFTER = "before", "after"
Step = Callable[[], Any]


def world() -> int:
    """The number of ranks."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])


@contextmanager
def gradients_summed(model: nn.Module, overlapped: bool) -> Iterator[None]:
    """All-reduces of every gradient: as soon as it is there, or all behind the backward pass."""
    handles: list[Any] = []

    def reduce(parameter: torch.Tensor) -> None:
        handles.append(dist.all_reduce(parameter.grad, async_op=True))

    hooks = [
        parameter.register_post_accumulate_grad_hook(reduce)
        for parameter in (model.parameters() if overlapped else ())
    ]
    yield
    if not overlapped:
        for parameter in reversed(list(model.parameters())):
            reduce(parameter)
    for handle in handles:
        handle.wait()
    for hook in hooks:
        hook.remove()


def layers(width: int, count: int) -> nn.Sequential:
    torch.manual_seed(1)
    parts = [part for _ in range(count) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*parts).cuda()


def host_busy(seconds: float) -> None:
    """Work of the host that the GPU, idle by then, waits for."""
    torch.cuda.synchronize()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def trained(model: nn.Module, batch: Callable[[], torch.Tensor], rate: float = 1e-3) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def small_buckets(rank: int, variant: str) -> Step:
    """DistributedDataParallel with a bucket for every layer, or of 25 MB."""
    model = DistributedDataParallel(
        layers(512, 96),
        device_ids=[rank],
        bucket_cap_mb=0.5 if variant == BEFORE else 25,
        gradient_as_bucket_view=True,
    )
    data = torch.randn(2048, 512, device="cuda")
    return trained(model, lambda: data)


def behind_backward(rank: int, variant: str) -> Step:
    """Gradients summed behind the backward pass, or beside it."""
    model, data = layers(3072, 12), torch.randn(4096, 3072, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with gradients_summed(model, overlapped=variant == AFTER):
            loss = model(data).square().mean()
            loss.backward()
        optimizer.step()
        return loss

    return step


def straggler(rank: int, variant: str) -> Step:
    """Rank 1 prepares each batch for 6 ms on its host, or nobody does."""
    model = DistributedDataParallel(layers(2048, 8), device_ids=[rank])
    data = torch.randn(2048, 2048, device="cuda")

    def batch() -> torch.Tensor:
        if rank == 1 and variant == BEFORE:
            host_busy(6e-3)
        return data

    return trained(model, batch)


def fed(slow: Callable[[int], bool], width: int, batch: int, depth: int) -> Callable[[int, str], Step]:
    """Batches from the host to ranks of which some (`slow`, before) hold them in pageable memory and wait for the copy."""

    def make(rank: int, variant: str) -> Step:
        model = DistributedDataParallel(layers(width, depth), device_ids=[rank])
        pinned = variant == AFTER or not slow(rank)
        held = [torch.randn(batch, width) for _ in range(4)]
        held = [buffer.pin_memory() for buffer in held] if pinned else held
        number = 0

        def next_batch() -> torch.Tensor:
            nonlocal number
            number += 1
            return held[number % len(held)].to("cuda", non_blocking=pinned)

        return trained(model, next_batch)

    return make


def halved(
    hook: Callable[..., torch.futures.Future[torch.Tensor]], width: int, count: int, batch: int
) -> Callable[[int, str], Step]:
    """Gradients summed in 32 bits, or in 16 behind the cast of `hook`."""

    def make(rank: int, variant: str) -> Step:
        model = DistributedDataParallel(layers(width, count), device_ids=[rank], gradient_as_bucket_view=True)
        if variant == AFTER:
            model.register_comm_hook(None, hook)
        data = torch.randn(batch, width, device="cuda")
        return trained(model, lambda: data)

    return make


def checkpoint(rank: int, variant: str) -> Step:
    """Rank 0 writes the weights to pageable memory in every step, or nobody does."""
    model = DistributedDataParallel(layers(2048, 8), device_ids=[rank])
    data = torch.randn(4096, 2048, device="cuda")
    kept = [torch.empty(parameter.shape) for parameter in model.parameters()]
    train = trained(model, lambda: data)

    def step() -> None:
        train()
        if rank == 0 and variant == BEFORE:
            for place, parameter in zip(kept, model.parameters(), strict=True):
                place.copy_(parameter.detach())

    return step


def halo(rank: int, variant: str) -> Step:
    """A grid in a part a rank; neighbours exchange faces through host memory by MPI, pageable or pinned."""
    from mpi4py import MPI

    between = MPI.COMM_WORLD
    side, planes = 768, 160
    grid = torch.randn(planes, side, side, device="cuda")
    sent, got = torch.empty(8, side, side), torch.empty(8, side, side)
    if variant == AFTER:
        sent, got = sent.pin_memory(), got.pin_memory()

    def step() -> None:
        grid[1:-1] = (grid[:-2] + grid[1:-1] + grid[2:]) / 3
        # First the faces between ranks 0 and 1, 2 and 3 …, then those between 1 and 2, 3 and 4 …
        for above in (rank % 2 == 0, rank % 2 == 1):
            peer = rank + 1 if above else rank - 1
            if not 0 <= peer < world():
                continue
            sent.copy_(grid[-9:-1] if above else grid[1:9])
            between.Sendrecv(sent.numpy(), peer, 0, got.numpy(), peer, 0)
            (grid[-8:] if above else grid[:8]).copy_(got)

    return step


def halo_in_memory(rank: int, variant: str) -> Step:
    """A grid in a part a rank, whose faces neighbours exchange by NCCL; rank 1 has twice the planes, or as many."""
    side, planes = 768, 320 if rank == 1 and variant == BEFORE else 160
    grid = torch.randn(planes, side, side, device="cuda")
    below, above = torch.empty(8, side, side, device="cuda"), torch.empty(8, side, side, device="cuda")

    def step() -> None:
        grid[1:-1] = (grid[:-2] + grid[1:-1] + grid[2:]) / 3
        faces = [(rank - 1, grid[1:9], below), (rank + 1, grid[-9:-1], above)]
        swaps = [
            dist.P2POp(what, face, peer)
            for peer, sent, got in faces
            if 0 <= peer < world()
            for what, face in ((dist.isend, sent), (dist.irecv, got))
        ]
        for request in dist.batch_isend_irecv(swaps):
            request.wait()
        grid[:8].copy_(below)
        grid[-8:].copy_(above)

    return step


def all_at_once(rank: int, variant: str) -> Step:
    """Every rank takes 256 MB from its pinned memory at once and waits for them, or computes beside."""
    model = DistributedDataParallel(layers(4096, 4), device_ids=[rank])
    held = [torch.randn(16384, 4096).pin_memory() for _ in range(2)]
    data, number = torch.randn(16384, 4096, device="cuda"), 0

    def next_batch() -> torch.Tensor:
        nonlocal number
        number += 1
        data.copy_(held[number % 2], non_blocking=variant == AFTER)
        return data

    return trained(model, next_batch)


def convolutions(rank: int, variant: str) -> Step:
    """A network of convolutions in DistributedDataParallel, with a bucket for every few layers, or of 25 MB."""
    torch.manual_seed(2)
    parts: list[nn.Module] = [nn.Conv2d(3, 256, 3, 2, 1)]
    for _ in range(24):
        parts += [nn.Conv2d(256, 256, 3, 1, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).cuda()
    cap = 2 if variant == BEFORE else 25
    model = DistributedDataParallel(net, device_ids=[rank], bucket_cap_mb=cap, gradient_as_bucket_view=True)
    images = torch.randn(64, 3, 64, 64, device="cuda")
    return trained(model, lambda: images)


def uneven(rank: int, variant: str) -> Step:
    """Rank 1 has twice as many samples as rank 0, or as many."""
    model = DistributedDataParallel(layers(2048, 10), device_ids=[rank])
    batch = 8192 if rank == 1 and variant == BEFORE else 4096
    data = torch.randn(batch, 2048, device="cuda")
    return trained(model, lambda: data)


def waiting_anyway(rank: int, variant: str) -> Step:
    """Rank 0 copies from pageable or pinned memory, while rank 1 computes for longer than that takes: nobody gains."""
    model = DistributedDataParallel(layers(4096, 4), device_ids=[rank])
    batch = 12288 if rank == 1 else 2048
    held = torch.randn(2048, 4096)
    held = held.pin_memory() if variant == AFTER else held
    on_gpu = torch.randn(batch, 4096, device="cuda")

    def next_batch() -> torch.Tensor:
        return held.to("cuda", non_blocking=variant == AFTER) if rank == 0 else on_gpu

    return trained(model, next_batch)


def all_ranks(rank: int) -> bool:
    return True


def second(rank: int) -> bool:
    return rank == 1


def long_buckets(rank: int, variant: str) -> Step:
    """Layers that compute for longer than their buckets take, of 2 or of 25 MB."""
    cap = 2 if variant == BEFORE else 25
    model = DistributedDataParallel(
        layers(1024, 32), device_ids=[rank], bucket_cap_mb=cap, gradient_as_bucket_view=True
    )
    data = torch.randn(16384, 1024, device="cuda")
    return trained(model, lambda: data)


def accumulated(rank: int, variant: str) -> Step:
    """Gradients of four micro-batches summed once; all ranks but rank 1 take them from pageable memory, or from pinned."""
    model = DistributedDataParallel(layers(3072, 6), device_ids=[rank], gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pinned = variant == AFTER or rank == 1
    held = [torch.randn(2048, 3072) for _ in range(4)]
    held = [buffer.pin_memory() for buffer in held] if pinned else held

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for number, batch in enumerate(held):
            model.require_backward_grad_sync = number == 3
            model(batch.to("cuda", non_blocking=pinned)).square().mean().backward()
        optimizer.step()

    return step


def long_sentences(rank: int, variant: str) -> Step:
    """A decoder whose rank 1 has sentences twice as long as rank 0's, or as long."""
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, 6).cuda(), device_ids=[rank])
    tokens = 1024 if rank == 1 and variant == BEFORE else 512
    data = torch.randn(16, tokens, 1024, device="cuda")
    return trained(model, lambda: data)


def there_and_back(rank: int, variant: str) -> Step:
    """A stage a rank, forwards and backwards; the first takes its inputs from pageable memory, or from pinned."""
    model = layers(2560, 5)
    batch, count, last = 4096, 4, world() - 1
    held = [torch.randn(batch, 2560) for _ in range(2)]
    if variant == AFTER:
        held = [buffer.pin_memory() for buffer in held]
    between, back = (torch.empty(batch, 2560, device="cuda") for _ in range(2))

    def step() -> None:
        for number in range(count):
            if rank == 0:
                out = model(held[number % 2].to("cuda", non_blocking=variant == AFTER))
                dist.send(out.detach(), 1)
                dist.recv(back, 1)
                out.backward(back)
                continue
            dist.recv(between, rank - 1)
            received = between.detach().requires_grad_()
            out = model(received)
            if rank == last:
                out.square().mean().backward()
            else:
                dist.send(out.detach(), rank + 1)
                dist.recv(back, rank + 1)
                out.backward(back)
            dist.send(received.grad, rank - 1)
        model.zero_grad(set_to_none=True)

    return step
