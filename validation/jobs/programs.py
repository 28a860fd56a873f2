"""Jobs of two ranks, each before and after a change: what `record.py` beside runs.

A program is made once a variant and rank; `step` is one step of its work, `sums` what must be the same after any variant
that computes the same. PyTorch and NCCL, but for the one over MPI.
"""

from __future__ import annotations

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
            torch.cuda.synchronize()
            end = time.perf_counter() + 6e-3
            while time.perf_counter() < end:
                pass
        return data

    return trained(model, batch)


def fed(slow: Callable[[int], bool], width: int, batch: int, depth: int) -> Callable[[int, str], Step]:
    """Batches from the host to ranks of which some (`slow`, before) hold them in pageable memory and wait for the copy."""

    def make(rank: int, variant: str) -> Step:
        model = DistributedDataParallel(layers(width, depth), device_ids=[rank])
        pinned = variant == AFTER or not slow(rank)
        held = [torch.randn(batch, width) for _ in range(4)]
        held = [one.pin_memory() for one in held] if pinned else held
        number = 0

        def next_batch() -> torch.Tensor:
            nonlocal number
            number += 1
            return held[number % len(held)].to("cuda", non_blocking=pinned)

        return trained(model, next_batch)

    return make


def compressed(rank: int, variant: str) -> Step:
    """Gradients summed in 32 bits, or in 16 behind a cast."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = DistributedDataParallel(layers(8192, 6), device_ids=[rank], gradient_as_bucket_view=True)
    if variant == AFTER:
        model.register_comm_hook(None, bf16_compress_hook)
    data = torch.randn(1024, 8192, device="cuda")
    return trained(model, lambda: data)


def tensor_parallel(rank: int, variant: str) -> Step:
    """Inference of layers divided between the ranks; the host waits for every all-reduce, or for the last."""
    torch.manual_seed(rank)
    width, wide, count = 4096, 8192, 16
    first = [torch.randn(wide // 2, width, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(count)]
    second = [torch.randn(width, wide // 2, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(count)]
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
    """Two stages: the first takes micro-batches from the host, pageable or pinned, and sends its results to the second."""
    model = layers(2048, 6)
    count, batch, width = 6, 4096, 2048
    held = [torch.randn(batch, width) for _ in range(count)] if rank == 0 else []
    if variant == AFTER:
        held = [one.pin_memory() for one in held]
    between = torch.empty(batch, width, device="cuda")

    @torch.no_grad()
    def step() -> None:
        for number in range(count):
            if rank == 0:
                dist.send(model(held[number].to("cuda", non_blocking=variant == AFTER)), 1)
            else:
                dist.recv(between, 0)
                model(between)

    return step


def experts(rank: int, variant: str) -> Step:
    """Tokens to experts on both ranks and back, in 32 or in 16 bits on the way."""
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
    shards = [torch.randn(width * width // 2, device="cuda") / 4096 for _ in range(count)]
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


def checkpoint(rank: int, variant: str) -> Step:
    """Rank 0 writes the weights to pageable memory in every step, or nobody does."""
    model = DistributedDataParallel(layers(2048, 8), device_ids=[rank])
    data = torch.randn(4096, 2048, device="cuda")
    kept = [torch.empty(parameter.shape) for parameter in model.parameters()]
    own = trained(model, lambda: data)

    def step() -> None:
        own()
        if rank == 0 and variant == BEFORE:
            for place, parameter in zip(kept, model.parameters(), strict=True):
                place.copy_(parameter.detach())

    return step


def halo(rank: int, variant: str) -> Step:
    """A grid in two parts that exchange faces through host memory by MPI, pageable or pinned."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    side, planes = 768, 160
    grid = torch.randn(planes, side, side, device="cuda")
    sent, got = torch.empty(8, side, side), torch.empty(8, side, side)
    if variant == AFTER:
        sent, got = sent.pin_memory(), got.pin_memory()

    def step() -> None:
        grid[1:-1] = (grid[:-2] + grid[1:-1] + grid[2:]) / 3
        sent.copy_(grid[-9:-1] if rank == 0 else grid[1:9])
        world.Sendrecv(sent.numpy(), 1 - rank, 0, got.numpy(), 1 - rank, 0)
        (grid[-8:] if rank == 0 else grid[:8]).copy_(got)

    return step


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


def uneven(rank: int, variant: str) -> Step:
    """Rank 1 has twice as many samples as rank 0, or as many."""
    model = DistributedDataParallel(layers(2048, 10), device_ids=[rank])
    batch = 8192 if rank == 1 and variant == BEFORE else 4096
    data = torch.randn(batch, 2048, device="cuda")
    return trained(model, lambda: data)


def results_back(rank: int, variant: str) -> Step:
    """What both ranks gather goes back to the host, into pageable or pinned memory, each step."""
    model = layers(2048, 8)
    data = torch.randn(4096, 2048, device="cuda")
    whole = torch.empty(8192, 2048, device="cuda")
    kept = torch.empty(8192, 2048)
    kept.fill_(0)
    if variant == AFTER:
        kept = kept.pin_memory()

    @torch.no_grad()
    def step() -> None:
        dist.all_gather_into_tensor(whole, model(data))
        kept.copy_(whole)

    return step


def waiting_anyway(rank: int, variant: str) -> Step:
    """Rank 0 copies from pageable or pinned memory, while rank 1 computes for longer than that takes: nobody gains."""
    model = DistributedDataParallel(layers(4096, 4), device_ids=[rank])
    batch = 12288 if rank == 1 else 2048
    held = torch.randn(2048, 4096)
    held = held.pin_memory() if variant == AFTER else held
    own = torch.randn(batch, 4096, device="cuda")

    def next_batch() -> torch.Tensor:
        return held.to("cuda", non_blocking=variant == AFTER) if rank == 0 else own

    return trained(model, next_batch)


def tables(rank: int, variant: str) -> Step:
    """Rows of embedding tables by indices from the host, pageable or pinned, exchanged between ranks that hold half each."""
    torch.manual_seed(rank)
    table = torch.randn(200_000, 256, device="cuda")
    indices = [torch.randint(0, 200_000, (2, 1 << 20)) for _ in range(2)]
    if variant == AFTER:
        indices = [one.pin_memory() for one in indices]
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


def both(rank: int) -> bool:
    return True


def second(rank: int) -> bool:
    return rank == 1


def one_rank_twice(rank: int, variant: str) -> Step:
    """Sharded gradients; rank 0 computes every layer a second time, as for a check, or nobody does."""
    torch.manual_seed(rank)
    width, count = 3072, 8
    weights = [torch.randn(width, width, device="cuda") / 64 for _ in range(count)]
    parts = [torch.empty(width * width // 2, device="cuda") for _ in range(count)]
    data = torch.randn(6144, width, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        x = data
        for own, part in zip(weights, parts, strict=True):
            x = nn.functional.gelu(x @ own)
            if rank == 0 and variant == BEFORE:
                torch.testing.assert_close(x.shape, nn.functional.gelu(data @ own).shape)
            dist.reduce_scatter_tensor(part, own.view(-1))
        return x

    return step


def outputs_kept(rank: int, variant: str) -> Step:
    """Outputs of both ranks go to the host, pageable or pinned, and their sums to all ranks."""
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
    """Experts on both ranks; rank 0 takes its tokens from pageable memory, or from pinned."""
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


def long_buckets(rank: int, variant: str) -> Step:
    """Layers that compute for longer than their buckets take, of 2 or of 25 MB."""
    cap = 2 if variant == BEFORE else 25
    model = DistributedDataParallel(
        layers(1024, 32), device_ids=[rank], bucket_cap_mb=cap, gradient_as_bucket_view=True
    )
    data = torch.randn(16384, 1024, device="cuda")
    return trained(model, lambda: data)


def half_gradients(rank: int, variant: str) -> Step:
    """Gradients of large layers summed as they are, or in half of the bytes."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DistributedDataParallel(layers(6144, 5), device_ids=[rank], gradient_as_bucket_view=True)
    if variant == AFTER:
        model.register_comm_hook(None, fp16_compress_hook)
    data = torch.randn(4096, 6144, device="cuda")
    return trained(model, lambda: data)


def late_targets(rank: int, variant: str) -> Step:
    """Two stages; the second compares with targets from the host, pageable or pinned."""
    model = layers(3072, 4)
    batch, width, count = 4096, 3072, 4
    held = [torch.randn(batch, width) for _ in range(2)]
    if variant == AFTER:
        held = [one.pin_memory() for one in held]
    data = torch.randn(batch, width, device="cuda")
    between, error = torch.empty_like(data), torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        for number in range(count):
            if rank == 0:
                dist.send(model(data), 1)
            else:
                dist.recv(between, 0)
                targets = held[number % 2].to("cuda", non_blocking=variant == AFTER)
                error.add_((model(between) - targets).square().mean())

    return step


def debug_copies(rank: int, variant: str) -> Step:
    """Both ranks copy every layer's output to the host, or nobody does."""
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


def accumulated(rank: int, variant: str) -> Step:
    """Gradients of four micro-batches summed once; rank 0 takes them from pageable memory, or from pinned."""
    model = DistributedDataParallel(layers(3072, 6), device_ids=[rank], gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pinned = variant == AFTER or rank == 1
    held = [torch.randn(2048, 3072) for _ in range(4)]
    held = [one.pin_memory() for one in held] if pinned else held

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
    """Two stages forwards and backwards; the first takes its inputs from pageable memory, or from pinned."""
    model = layers(2560, 5)
    batch, count = 4096, 4
    held = [torch.randn(batch, 2560) for _ in range(2)]
    if variant == AFTER:
        held = [one.pin_memory() for one in held]
    between = torch.empty(batch, 2560, device="cuda")

    def step() -> None:
        for number in range(count):
            if rank == 0:
                out = model(held[number % 2].to("cuda", non_blocking=variant == AFTER))
                dist.send(out.detach(), 1)
                dist.recv(between, 1)
                out.backward(between)
            else:
                dist.recv(between, 0)
                own = between.detach().requires_grad_()
                model(own).square().mean().backward()
                dist.send(own.grad, 0)
        model.zero_grad(set_to_none=True)

    return step


def loaded(rank: int, variant: str) -> Step:
    """Weights from the host's pageable or pinned memory to rank 0, and from there to all; then a pass."""
    width, count = 4096, 6
    held = [torch.randn(width, width) for _ in range(count)]
    if variant == AFTER:
        held = [one.pin_memory() for one in held]
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
    """Outputs of both ranks gathered, and copied to the host by rank 0, into pageable or pinned memory."""
    model, data = layers(3072, 6), torch.randn(4096, 3072, device="cuda")
    whole = torch.empty(8192, 3072, device="cuda")
    kept = torch.zeros(8192, 3072)
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
            torch.cuda.synchronize()
            end = time.perf_counter() + 4e-3
            while time.perf_counter() < end:
                pass
        dist.all_to_all_single(got, tokens)
        return expert(got)

    return step


#: What makes a step of each pair of `jobs.toml`, by rank and variant.
MAKERS: dict[str, Callable[[int, str], Step]] = {
    "small-buckets": small_buckets,
    "behind-backward": behind_backward,
    "straggler": straggler,
    "one-rank-pageable": fed(second, 4096, 4096, 4),
    "all-ranks-pageable": fed(both, 4096, 4096, 4),
    "little-copied": fed(both, 2048, 128, 16),
    "compressed": compressed,
    "tensor-parallel": tensor_parallel,
    "pipeline": pipeline,
    "experts": experts,
    "sharded": sharded,
    "checkpoint": checkpoint,
    "halo": halo,
    "convolutions": convolutions,
    "logged": logged,
    "wide-activations": wide_activations,
    "uneven": uneven,
    "results-back": results_back,
    "waiting-anyway": waiting_anyway,
    "tables": tables,
    "one-rank-twice": one_rank_twice,
    "outputs-kept": outputs_kept,
    "routed": routed,
    "long-buckets": long_buckets,
    "half-gradients": half_gradients,
    "late-targets": late_targets,
    "debug-copies": debug_copies,
    "accumulated": accumulated,
    "long-sentences": long_sentences,
    "there-and-back": there_and_back,
    "loaded": loaded,
    "gathered-back": gathered_back,
    "slow-host": slow_host,
}
