"""One run of a benchmark: on what, predicted for what, how long it may take, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from busfare.measure.device import GpuHost, UnavailableError, WrongDataError, command_line
from busfare.measure.results import LeftOut, Target
from busfare.measure.run import LOG_EVERY_S, Progress
from busfare.measure.soundness import disturbances
from busfare.plan import Machine

__all__ = ["Run"]

Host = TypeVar("Host", bound=GpuHost)


@dataclass
class Run(Generic[Host]):
    """`machine` is what the predictions are for, `source` where its parameters are from."""

    device: Host
    machine: Machine
    quick: bool = False
    source: str = ""
    progress: Progress | None = None
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A virtual machine has a time of its own, in which nobody waits.
        self.clock: Callable[[], float] = getattr(self.device, "clock", time.monotonic)
        self._began = self.clock()
        self._states: list[dict[str, Any]] = []
        self._log()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.clock() - self._began

    def show(self, share: float, what: str) -> None:
        """Progress, between measurements; logs the machine's state once a second."""
        if self.progress:
            self.progress(share, what)
        if self.clock() - self._logged >= LOG_EVERY_S:
            self._log()

    def _log(self) -> None:
        self._logged = self.clock()
        passed: dict[str, Any] = {"seconds": round(self.seconds, 3), "gpu": 0}
        self._states.append(passed | self.device.state(0))

    @contextmanager
    def attempt(self, case: str) -> Iterator[None]:
        """Where something of a case cannot be measured, it is left out by that name."""
        try:
            yield
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append(LeftOut(case, str(error)))

    def origin(self, command: str) -> dict[str, Any]:
        """What every benchmark says of itself, once it is done."""
        seconds, facts, node = self.seconds, self.device.facts(), self.machine.node
        self._log()
        return {
            "virtual": self.device.virtual,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command_line(command),
            "quick": self.quick,
            "gpu": facts["gpus"][0]["name"],
            "driver": facts.get("driver"),
            "node": Target(node.name, node.title, self.source),
            "disturbances": disturbances(self._states),
            "states": self._states,
            "left_out": self.left_out,
            "seconds": seconds,
            "facts": facts,
        }
