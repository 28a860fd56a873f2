"""Python programs to record: `python_programs.py NAME`. Each prints, last, a line of JSON with what it knows it did.

`torch-train` and `torch-infer` also time themselves: bare, and under PyTorch's own profiler (`--profiler`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time


def cupy_fft_blas() -> dict[str, object]:
    import cupy
    import numpy

    host = numpy.random.default_rng(1).random((512, 512), dtype=numpy.float32)
    rounds = 20
    for _ in range(rounds):
        on_gpu = cupy.asarray(host)
        product = on_gpu @ on_gpu
        cupy.asnumpy(abs(cupy.fft.fft2(product)))
    return {"at_least_h2d": [rounds, rounds * host.nbytes], "at_least_d2h": [rounds, rounds * host.nbytes]}


def jax_program() -> dict[str, object]:
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import numpy

    step = jax.jit(lambda x: (x @ x).sum())
    host = numpy.random.default_rng(1).random((1024, 1024), dtype=numpy.float32)
    rounds = 10
    for _ in range(rounds):
        step(jax.device_put(host)).block_until_ready()
    return {"at_least_h2d": [rounds, rounds * host.nbytes]}


def _model(torch: object, train: bool) -> tuple[object, object]:
    import torch

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(8):
        layers += [torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).cuda(), torch.randn(64, 256).pin_memory()


def torch_program(train: bool, profiler: bool) -> dict[str, object]:
    import torch

    model, data = _model(torch, train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 100

    def step() -> None:
        on_gpu = data.to("cuda", non_blocking=True)
        if train:
            optimizer.zero_grad(set_to_none=True)
            model(on_gpu).square().mean().backward()
            optimizer.step()
        else:
            with torch.no_grad():
                model(on_gpu).cpu()

    def timed(repeats: int) -> list[float]:
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / steps)
        return times

    for _ in range(20):
        step()
    torch.cuda.synchronize()
    result: dict[str, object] = {"bare_seconds_a_step": timed(6)}
    done = 20 + 6 * steps
    if profiler:
        from torch.profiler import ProfilerActivity, profile

        for name, activities in (
            ("profiler_gpu_only", [ProfilerActivity.CUDA]),
            ("profiler_cpu_and_gpu", [ProfilerActivity.CPU, ProfilerActivity.CUDA]),
        ):
            with profile(activities=activities) as recorded:
                for _ in range(5):
                    step()
                result[f"{name}_seconds_a_step"] = timed(4)
            result[f"{name}_copies"] = sum(
                event.count for event in recorded.key_averages() if event.key.startswith("Memcpy HtoD")
            )
            result[f"{name}_steps"] = 5 + 4 * steps
        result["bare_again_seconds_a_step"] = timed(6)
        done += 2 * (5 + 4 * steps) + 6 * steps
    parameters = 16
    result["at_least_h2d"] = [done, done * data.numel() * 4]
    result["exact_batch_copies"] = [done, data.numel() * 4]
    result["parameters_moved"] = parameters
    if not train:
        result["exact_d2h"] = [done, done * 64 * 256 * 4]
    return result


def ranks() -> dict[str, object]:
    import cupy
    import numpy
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    host = numpy.ones(1 << 20, numpy.float32)
    rounds = 10 + rank
    for _ in range(rounds):
        cupy.asnumpy(cupy.asarray(host) * 2)
    MPI.COMM_WORLD.Barrier()
    return {
        "rank": rank,
        "exact_size_h2d": [rounds, host.nbytes],
        "at_least_h2d": [rounds, rounds * host.nbytes],
    }


def nvtx_program() -> dict[str, object]:
    import torch

    data = torch.ones(1 << 16).pin_memory()
    for name in ("warm-up", "epoch", "after"):
        torch.cuda.nvtx.range_push(name)
        for _ in range(25):
            data.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    return {"of_epoch": [25, 25 * data.numel() * 4], "all": [75, 75 * data.numel() * 4]}


PROGRAMS = {
    "cupy": cupy_fft_blas,
    "jax": jax_program,
    "mpi": ranks,
    "nvtx": nvtx_program,
    "torch-train": lambda: torch_program(True, "--profiler" in sys.argv),
    "torch-infer": lambda: torch_program(False, "--profiler" in sys.argv),
}

if __name__ == "__main__":
    result = PROGRAMS[sys.argv[1]]()
    for name, value in list(result.items()):
        if name.endswith("seconds_a_step"):
            result[f"median_{name}"] = statistics.median(value)
    print(json.dumps(result))
