"""The answers of a machine that is measured: from the questions of `probe` and `bench` to their results.

The results, in seconds, bytes and bytes per second, are declared where they are measured; `show` takes them from here.
"""

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from busfare.errors import NoGpuError
from busfare.measure import cases
from busfare.measure.bench import methods, strategies
from busfare.measure.bench import run as results
from busfare.measure.bench.run import Benched, MethodsResult, Run, Say, StrategiesResult
from busfare.measure.probe import ProbeResult, ResidualCase, evaluated, measured
from busfare.measure.run import Progress
from busfare.measure.virtual import VirtualDevice, VirtualMethods, VirtualStrategies
from busfare.nodes import Node, load_node
from busfare.planning import machine_of
from busfare.questions import Bench, BenchMethods, BenchStrategies, Probe

__all__ = ["ProbeResult", "ResidualCase", "bench", "opened", "read_result", "results"]


class _Measured(NamedTuple):
    """What a command measures with: what plays a node, and what drives GPUs, a module and its class, imported where there
    are some, for it needs the extra 'gpu'; of a benchmark what runs it, and its result.
    """

    command: str
    play: Callable[[Node], Any]
    module: str
    drive: str
    run: Any = None
    result: Any = None


_MEASURED: dict[type, _Measured] = {
    Probe: _Measured("probe", VirtualDevice, "device", "CudaDevice"),
    BenchMethods: _Measured(
        "bench methods", VirtualMethods, "methods", "CudaMethods", methods.measured, MethodsResult
    ),
    BenchStrategies: _Measured(
        "bench strategies", VirtualStrategies, "strategies", "CudaStrategies", strategies.measured, StrategiesResult
    ),
}  # fmt: skip


def bench(question: Bench, progress: Progress | None, say: Say) -> Benched:
    """The result of a benchmark. Raises InputError, and NoGpuError where there is no GPU."""
    with closing(opened(question)) as device:
        if question.node is not None:
            predicted_for, source = load_node(question.node), "as given"
        else:
            say("no node given: probing this machine first (10 s per GPU)")
            source = "probed just before, quickly"
            probe = Probe(quick=True, only="copies", virtual=question.virtual)
            with closing(opened(probe)) as probed:
                # Only the first GPU is predicted for.
                predicted_for = evaluated(measured(probed, probe, progress, gpus=(0,))).node
        run = Run(device, machine_of(predicted_for), question.quick, source, progress, say)
        result: Benched = _MEASURED[type(question)].run(run, question)
        return result


def read_result(path: Path, benchmark: type[Bench]) -> Benched:
    """What an earlier `--json` of a benchmark wrote. Raises InputError where the file holds nothing of that kind."""
    of = _MEASURED[benchmark]
    result: Benched = cases.read_result(path, of.result, "result of this benchmark", f"{of.command} --json")
    return result


def opened(question: Probe | Bench) -> Any:
    """This machine's GPUs as the question measures them, or a virtual node. Raises NoGpuError where there is none."""
    of = _MEASURED[type(question)]
    if question.virtual is not None:
        return of.play(load_node(question.virtual))
    count = _gpu_count(of.command)
    return getattr(import_module(f"busfare.measure.cuda.{of.module}"), of.drive)(count)


def _gpu_count(command: str) -> int:
    """The driver's number of GPUs. Raises NoGpuError with what was looked for; `command` is what runs on a virtual node."""
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
