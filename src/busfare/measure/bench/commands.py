"""`bench methods` and `bench strategies` from their options to their JSON objects."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from busfare.errors import BusfareError, InputError, NoGpuError
from busfare.measure.bench.device import BenchDevice, MethodDevice, StrategyDevice
from busfare.measure.bench.kernel import user_kernel
from busfare.measure.disturbance import disturbances
from busfare.measure.raw import Record
from busfare.measure.run import LOG_EVERY_S, Progress
from busfare.node import Node, load_node
from busfare.plan import machine_of
from busfare.quantities import parse_count

__all__ = ["methods", "strategies"]

Say = Callable[[str], None]
#: File, input arrays, output arrays, function, levels, doubles of a level.
OwnKernel = tuple[Path, int, int, str | None, int, int]
MOST_LEVELS, MOST_LEVEL = 4096, 1 << 28
LEAST_INTS, MOST_INTS = 1 << 20, 1 << 28


def methods(
    node: str | None, quick: bool, largest: str, virtual: str | None, progress: Progress | None, say: Say
) -> dict[str, Any]:
    """`busfare.bench-methods/1`. Raises InputError, and NoGpuError where there is no GPU."""
    from busfare.measure.bench.methods import run_methods
    from busfare.measure.bench.methods_result import methods_result

    ints = parse_count(largest)
    if not LEAST_INTS <= ints <= MOST_INTS:
        raise InputError(f"--largest {largest[:40]!r}: from {LEAST_INTS} to {MOST_INTS} ints")
    device = _open_methods(virtual)
    try:
        target, source = _predicted_for(node, virtual, progress, say)
        watched = _Watched(device, progress)
        run = run_methods(device, machine_of(target), quick, int(ints), watched, say)
        _measured(run.measured, run.left_out)
        return methods_result(run, device, watched.origin(target, source, quick))
    finally:
        device.close()


def strategies(
    node: str | None, quick: bool, own: OwnKernel | None, virtual: str | None, progress: Progress | None, say: Say
) -> dict[str, Any]:  # fmt: skip
    """`busfare.bench-strategies/1`. Raises InputError, and NoGpuError where there is no GPU."""
    from busfare.measure.bench.strategies import cells_of, run_cells, strategies_result

    kernel, levels, level = None, 1, 1
    if own is not None:
        path, inputs, outputs, function, levels, level = own
        kernel = user_kernel(path, inputs, outputs, function)
        limits = (("--levels", levels, MOST_LEVELS), ("--level-elements", level, MOST_LEVEL))
        for option, number, most in limits:
            if not 1 <= number <= most:
                raise InputError(f"{option} {number}: from 1 to {most}")
    device = _open_strategies(virtual)
    try:
        if kernel is not None and virtual is not None:
            raise InputError("--kernel needs a GPU: a virtual node computes nothing; leave out --virtual")
        target, source = _predicted_for(node, virtual, progress, say)
        watched = _Watched(device, progress)
        works = cells_of(kernel, quick, levels, level)
        run = run_cells(device, works, machine_of(target), quick, 0, watched, say)
        _measured(run.cells, run.left_out)
        return strategies_result(run, device, watched.origin(target, source, quick))
    finally:
        device.close()


def _measured(found: list[Any], left_out: list[dict[str, str]]) -> None:
    """Raises BusfareError where nothing was."""
    if not found:
        reasons = sorted({row["why"] for row in left_out})
        raise BusfareError(f"nothing could be measured: {'; '.join(reasons[:3]) or 'no case ran'}")


def _open_strategies(virtual: str | None) -> StrategyDevice:
    """The machine's GPUs, or a virtual node. Raises NoGpuError where there is none."""
    if virtual is not None:
        from busfare.measure.bench.virtual import VirtualStrategies

        return VirtualStrategies(load_node(virtual))
    count = _gpus("bench strategies")
    from busfare.measure.cuda.strategies import CudaStrategies

    return CudaStrategies(count)


def _open_methods(virtual: str | None) -> MethodDevice:
    """The machine's first GPU, or a virtual node. Raises NoGpuError where there is none."""
    if virtual is not None:
        from busfare.measure.bench.virtual import VirtualMethods

        return VirtualMethods(load_node(virtual))
    count = _gpus("bench methods")
    from busfare.measure.cuda.methods import CudaMethods

    return CudaMethods(count)


def _gpus(command: str) -> int:
    try:
        from busfare.measure.cuda.device import gpu_count
    except ImportError as error:
        raise NoGpuError(
            f"no way to a GPU: looked for the package {error.name or 'cuda.bindings'}, which is not installed; "
            f"pip install 'busfare[gpu]', or try `busfare {command} --virtual h100-sxm`"
        ) from None
    return gpu_count(command)


def _predicted_for(
    node: str | None, virtual: str | None, progress: Progress | None, say: Say
) -> tuple[Node, str]:
    """The node whose parameters the predictions take, and where they are from: the node that was named, else what a
    quick probe of this machine finds. Raises InputError for a name that is not known.
    """
    if node is not None:
        return load_node(node), "given with --node"
    from busfare.measure import probe

    say("no --node: this machine is probed first (10 s a GPU)")
    device = probe.open_device(virtual)
    try:
        # Only the first GPU is predicted for.
        return probe.probe(device, True, progress, gpus=(0,)).node, "probed just before (--quick)"
    finally:
        device.close()


class _Watched:
    """The machine's state while it is measured, once a second, between measurements: a progress that logs."""

    def __init__(self, device: BenchDevice, shown: Progress | None) -> None:
        self._device, self._shown = device, shown
        self._began = time.monotonic()
        self._states: list[dict[str, Any]] = []
        self._log()

    def __call__(self, share: float, what: str) -> None:
        if self._shown:
            self._shown(share, what)
        if time.monotonic() - self._last >= LOG_EVERY_S:
            self._log()

    def _log(self) -> None:
        self._last = time.monotonic()
        passed: dict[str, Any] = {"seconds": round(self._last - self._began, 3), "gpu": 0}
        self._states.append(passed | self._device.state(0))

    def origin(self, node: Node, source: str, quick: bool) -> dict[str, Any]:
        """What a result says of its origin, and what disturbed it."""
        self._log()
        facts = self._device.facts()
        if not facts["gpus"]:
            raise InputError("the machine tells of no GPU")
        date = datetime.now(UTC).isoformat(timespec="seconds")
        command = " ".join(["busfare", *sys.argv[1:]]) if sys.argv[1:2] == ["bench"] else "busfare bench"
        record = Record(False, date, command, facts, 0, states=self._states)
        return {
            "date": date,
            "command": command,
            "quick": quick,
            "gpu": facts["gpus"][0]["name"],
            "driver": facts.get("driver"),
            "node": {"name": node.name, "title": node.title, "source": source},
            "disturbances": disturbances(record),
            "states": self._states,
        }
