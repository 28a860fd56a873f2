"""What the benchmarks run on, and the node that predictions are made for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from busfare.errors import InputError, NoGpuError
from busfare.measure.bench.device import MethodDevice, StrategyDevice
from busfare.measure.disturbance import disturbances
from busfare.measure.raw import Record
from busfare.measure.run import LOG_EVERY_S, Progress
from busfare.node import Node, load_node

__all__ = ["Watched", "open_methods", "open_strategies", "predicted_for", "told"]


def open_strategies(virtual: str | None) -> StrategyDevice:
    """The machine's GPUs, or a virtual node. Raises NoGpuError where there is none."""
    if virtual is not None:
        from busfare.measure.bench.virtual import VirtualStrategies

        return VirtualStrategies(load_node(virtual))
    count = _gpus("bench strategies")
    from busfare.measure.cuda.strategies import CudaStrategies

    return CudaStrategies(count)


def open_methods(virtual: str | None) -> MethodDevice:
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


def predicted_for(
    node: str | None,
    virtual: str | None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Node, str]:
    """The node whose parameters the predictions take, and where they are from: the node that was named, else what a
    quick probe of this machine finds.

    Raises InputError for a name that is not known, and for a node of another GPU than the machine's.
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


class Watched:
    """The machine's state while it is measured, once a second, between measurements: a progress that logs."""

    def __init__(self, device: StrategyDevice | MethodDevice, shown: Progress | None) -> None:
        self._device, self._shown = device, shown
        self._began = self._last = time.monotonic()
        self.states: list[dict[str, Any]] = []
        self.log()

    def __call__(self, share: float, what: str) -> None:
        if self._shown:
            self._shown(share, what)
        if time.monotonic() - self._last >= LOG_EVERY_S:
            self.log()

    def log(self) -> None:
        """Logs the state of the first GPU."""
        self._last = time.monotonic()
        passed: dict[str, Any] = {"seconds": round(self._last - self._began, 3), "gpu": 0}
        self.states.append(passed | self._device.state(0))


def told(
    facts: dict[str, Any], node: Node, source: str, quick: bool, states: list[dict[str, Any]]
) -> dict[str, Any]:
    """What a result says of its origin, and what disturbed it."""
    if not facts["gpus"]:
        raise InputError("the machine tells of no GPU")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    command = " ".join(["busfare", *sys.argv[1:]]) if sys.argv[1:2] == ["bench"] else "busfare bench"
    return {
        "date": date,
        "command": command,
        "quick": quick,
        "gpu": facts["gpus"][0]["name"],
        "driver": facts.get("driver"),
        "node": {"name": node.name, "title": node.title, "source": source},
        "disturbances": disturbances(Record(False, date, command, facts, 0, states=states)),
        "states": states,
    }
