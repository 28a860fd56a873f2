"""The benchmarks from their options to their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from busfare.errors import BusfareError, InputError
from busfare.measure.bench import strategies as cells
from busfare.measure.bench.kernel import user_kernel
from busfare.measure.bench.kv import kv_result, run_kv
from busfare.measure.bench.methods import run_methods
from busfare.measure.bench.methods_result import methods_result
from busfare.measure.bench.offload import CASES, QUICK_CASES, run_cases
from busfare.measure.bench.offload_result import offload_result
from busfare.measure.bench.program import Work
from busfare.measure.bench.run import Run
from busfare.measure.bench.virtual import VirtualKv, VirtualMethods, VirtualOffload, VirtualStrategies
from busfare.measure.device import GpuHost, gpu_count
from busfare.measure.kv_results import KvBenchResult
from busfare.measure.offload_results import OffloadResult
from busfare.measure.results import MethodsResult, StrategiesResult
from busfare.measure.run import Progress
from busfare.node import load_node
from busfare.plan import machine_of
from busfare.quantities import parse_count

Say = Callable[[str], None]
MOST_LEVELS, MOST_LEVEL = 4096, 1 << 28
LEAST_INTS, MOST_INTS = 1 << 20, 1 << 28


def methods(
    node: str | None, quick: bool, largest: str, virtual: str | None, progress: Progress | None, say: Say
) -> MethodsResult:
    """Raises InputError, and NoGpuError where there is no GPU."""
    ints = parse_count(largest)
    if not LEAST_INTS <= ints <= MOST_INTS:
        raise InputError(f"--largest {largest[:40]!r}: from {LEAST_INTS} to {MOST_INTS} ints")
    with closing(_device("methods", virtual)) as device:
        run = _begun(device, node, quick, virtual, progress, say)
        measured = run_methods(run, int(ints), say)
        _require(run, measured.measured)
        return methods_result(run, measured)


def strategies(
    node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say, kernel: Path | None = None,
    inputs: int = 1, outputs: int = 1, function: str | None = None, levels: int = 42, level: int = 1 << 20,
) -> StrategiesResult:  # fmt: skip
    """All strategies on `kernel`, a file of the user's own with so many arrays of `levels` times `level` doubles, or on
    ours. Raises InputError, and NoGpuError where there is no GPU.
    """
    works = cells.QUICK_CELLS if quick else cells.CELLS
    if kernel is not None:
        works = (Work(user_kernel(kernel, inputs, outputs, function), levels, level),)
        limits = (("--levels", levels, MOST_LEVELS), ("--level-elements", level, MOST_LEVEL))
        for option, number, most in limits:
            if not 1 <= number <= most:
                raise InputError(f"{option} {number}: from 1 to {most}")
    with closing(_device("strategies", virtual)) as device:
        if virtual is not None and kernel is not None:
            raise InputError("--kernel needs a GPU: a virtual node computes nothing; leave out --virtual")
        run = _begun(device, node, quick, virtual, progress, say)
        found = cells.run_cells(run, works, say)
        _require(run, found)
        return StrategiesResult(cells=found, **run.origin("bench strategies"))


def offload(
    node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say
) -> OffloadResult:
    """Raises InputError, and NoGpuError where there is no GPU."""
    with closing(_device("offload", virtual)) as device:
        run = _begun(device, node, quick, virtual, progress, say)
        measured = run_cases(run, QUICK_CASES if quick else CASES, say)
        _require(run, list(measured.passes))
        return offload_result(run, measured)


def kv(
    node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say
) -> KvBenchResult:
    """Raises InputError, and NoGpuError where there is no GPU."""
    with closing(_device("kv", virtual)) as device:
        run = _begun(device, node, quick, virtual, progress, say)
        cells, alone = run_kv(run, say)
        _require(run, cells)
        return kv_result(run, cells, alone)


def _device(benchmark: str, virtual: str | None) -> Any:
    """What runs it: this machine's GPUs, or a virtual node. Raises NoGpuError where there is no GPU."""
    if virtual is not None:
        played = {
            "methods": VirtualMethods, "strategies": VirtualStrategies, "offload": VirtualOffload, "kv": VirtualKv,
        }  # fmt: skip
        return played[benchmark](load_node(virtual))
    count = gpu_count(f"bench {benchmark}")
    from busfare.measure.cuda.kv import CudaKv
    from busfare.measure.cuda.methods import CudaMethods
    from busfare.measure.cuda.offload import CudaOffload
    from busfare.measure.cuda.strategies import CudaStrategies

    devices = {"methods": CudaMethods, "strategies": CudaStrategies, "offload": CudaOffload, "kv": CudaKv}
    return devices[benchmark](count)


def _begun(
    device: GpuHost, node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say
) -> Run[Any]:
    """A run, predicted for the node that was named, else for what a quick probe of this machine finds. Raises InputError
    for a name that is not known.
    """
    if node is not None:
        return Run(device, machine_of(load_node(node)), quick, "given with --node", progress)
    from busfare.measure import probe

    say("no --node: this machine is probed first (10 s a GPU)")
    probed = probe.open_device(virtual)
    try:
        # Only the first GPU is predicted for.
        found = probe.evaluated(*probe.measured(probed, True, progress, gpus=(0,), only="copies")).node
    finally:
        probed.close()
    return Run(device, machine_of(found), quick, "probed just before (--quick)", progress)


def _require(run: Run[Any], measured: Sequence[object]) -> None:
    """Raises BusfareError where nothing was measured."""
    if not measured:
        reasons = sorted({row.why for row in run.left_out})
        raise BusfareError(f"nothing could be measured: {'; '.join(reasons[:3]) or 'no case ran'}")
