"""The answers of a machine that is measured: from what `probe` and `bench` are asked to their results.

The results, in seconds, bytes and bytes per second, are declared where they are measured; `show` takes them from here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from busfare.errors import NoGpuError
from busfare.measure import cases
from busfare.measure.bench import methods, strategies
from busfare.measure.bench import run as results
from busfare.measure.bench.run import Benched, MethodsResult, Run, Say, StrategiesResult
from busfare.measure.probe import ProbedCase, ProbeResult, ResidualCase, evaluated, measured
from busfare.measure.record import recording
from busfare.measure.run import Progress
from busfare.measure.virtual import VirtualDevice, VirtualMethods, VirtualStrategies
from busfare.nodes import Node, load_node
from busfare.planning import machine_of

__all__ = [
    "ProbeResult", "ProbedCase", "ResidualCase", "bench", "opened", "read_result", "recording", "results",
]  # fmt: skip

#: By command: what plays a node, and what drives GPUs, imported where there are some, for it needs the extra 'gpu'.
_DEVICES: dict[str, tuple[Callable[[Node], Any], str, str]] = {
    "probe": (VirtualDevice, "device", "CudaDevice"),
    "bench methods": (VirtualMethods, "methods", "CudaMethods"),
    "bench strategies": (VirtualStrategies, "strategies", "CudaStrategies"),
}
#: By benchmark: what takes its options, and its result.
_BENCHMARKS: dict[str, Any] = {
    "methods": (methods.asked, MethodsResult),
    "strategies": (strategies.asked, StrategiesResult),
}


def bench(
    benchmark: str, node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say,
    **options: Any,
) -> Benched:  # fmt: skip
    """The result of a benchmark by its name, with options that only it has. It is predicted for the node that is named, else
    for what a quick probe of this machine finds. Raises InputError, and NoGpuError where there is no GPU.
    """
    # Options are refused before a GPU is looked for.
    prepare, _ = _BENCHMARKS[benchmark]
    run = prepare(quick, virtual, **options)
    with closing(opened(f"bench {benchmark}", virtual)) as device:
        if node is not None:
            predicted_for, source = load_node(node), "given with --node"
        else:
            say("no node given: probing this machine first (10 s per GPU)")
            source = "probed just before (--quick)"
            with closing(opened("probe", virtual)) as probed:
                # Only the first GPU is predicted for.
                samples = measured(probed, True, progress, gpus=(0,), only="copies")
                predicted_for = evaluated(*samples).node
        result: Benched = run(Run(device, machine_of(predicted_for), quick, source, progress, say))
        return result


def read_result(path: Path, benchmark: str) -> Benched:
    """What an earlier `--json` of a benchmark wrote. Raises InputError where the file holds nothing of that kind."""
    _, kind = _BENCHMARKS[benchmark]
    result: Benched = cases.read_result(path, kind, "result of this benchmark", f"bench {benchmark} --json")
    return result


def opened(command: str, virtual: str | None) -> Any:
    """This machine's GPUs as `command` drives them, or a virtual node. Raises NoGpuError where there is none."""
    play, module, name = _DEVICES[command]
    if virtual is not None:
        return play(load_node(virtual))
    count = _gpu_count(command)
    return getattr(import_module(f"busfare.measure.cuda.{module}"), name)(count)


def _gpu_count(command: str) -> int:
    """How many GPUs the driver shows. Raises NoGpuError, with what was looked for, where there is none; `command` is
    what would run on a virtual node.
    """
    instead = f"try `busfare {command} --virtual h100-sxm`"
    try:
        cuda = import_module("busfare.measure.cuda.driver")
        cuda.checked(cuda.driver.cuInit(0), "cuInit")
        count = int(cuda.checked(cuda.driver.cuDeviceGetCount(), "cuDeviceGetCount"))
    except ImportError as error:
        raise NoGpuError(
            f"cannot use a GPU: needs the package {error.name or 'cuda.bindings'}, which was not found; "
            f"pip install 'busfare[gpu]', or {instead}"
        ) from None
    except (cuda.CudaError, RuntimeError) as error:
        raise NoGpuError(
            f"no GPU: NVIDIA's driver (libcuda.so.1) or a device was not found: {str(error).rstrip('.')}; {instead}"
        ) from None
    if count == 0:
        raise NoGpuError(
            "no GPU: NVIDIA's driver is installed, but shows no device (is CUDA_VISIBLE_DEVICES empty?)"
        )
    return count
