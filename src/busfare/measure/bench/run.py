"""What a machine, real or virtual, must be able to do to be benchmarked; and one run of a benchmark on it: predicted for
what, how long it may take, and what became of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from busfare.measure.bench.program import Program, Work
from busfare.measure.device import GpuHost, UnavailableError, WrongDataError, command_line
from busfare.measure.results import LeftOut, Target
from busfare.measure.run import LOG_EVERY_S, Progress
from busfare.measure.soundness import disturbances
from busfare.node.arrays import FloatArray
from busfare.plan import Machine

#: The five ranges of a run, in their order [S16 §4.1].
RANGES = ("initialise", "h2d", "kernel", "d2h", "sum")


@dataclass(frozen=True)
class Timing:
    """Seconds of one program. `device_s`: from its first operation's start to its last one's end, by events on the
    GPU; `held`: everything was submitted before it began. `host_s`: from the first call until everything is done, by
    the host's clock, nothing held. `ends_s`: of each sample, when each stream ended, for one GPU's programs of a few.
    """

    device_s: tuple[float, ...] = ()
    host_s: tuple[float, ...] = ()
    held: bool = True
    ends_s: tuple[tuple[float, ...], ...] = ()

    def __add__(self, later: Timing) -> Timing:
        held = self.held and later.held
        return Timing(
            self.device_s + later.device_s, self.host_s + later.host_s, held, self.ends_s + later.ends_s
        )


@dataclass(frozen=True)
class Compared:
    """Results beside their reference: how many elements are wrong, the largest error over what is allowed among the
    others, and the place of the first wrong one in its array.
    """

    wrong: int
    worst: float
    first: int | None = None


@dataclass(frozen=True)
class MethodRun:
    """One run of a method: seconds of each range by the host's clock, and by events on the GPU where it has some."""

    ranges: Mapping[str, float]
    device: Mapping[str, float] = field(default_factory=dict)


class StrategyDevice(GpuHost, Protocol):
    """Runs programs on one kernel's arrays at a time."""

    def load(self, work: Work) -> None:
        """Makes the arrays and the kernel of `work` in place of the former ones.

        Raises UnavailableError where memory does not suffice, and InputError where the kernel does not compile.
        """

    def inputs(self) -> list[FloatArray]:
        """The host's input arrays, to be filled; none where nothing is computed (a virtual node)."""

    def outputs(self) -> list[FloatArray]:
        """The host's output arrays; none where nothing is computed."""

    def clear(self) -> None:
        """Overwrites all device arrays and the host's outputs with NaN: what no version could have left."""

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        """From here on `compare` holds the host's outputs against `arrays`: an element may differ by `relative` of the
        reference and by its array's slack. Raises UnavailableError where the device has no room for them.
        """

    def compare(self) -> Compared:
        """The host's outputs beside what was expected."""

    def run(self, programs: Sequence[Program], repeats: int, by_host: int = 0) -> Timing:
        """Runs a program a GPU, all at once, so many times; then `by_host` times without holding it, for the host's clock.

        Raises UnavailableError where it cannot be run here.
        """


class MethodDevice(GpuHost, Protocol):
    """Runs S16's program with a migration method."""

    def start(self, method: str, most_elements: int) -> float:
        """Makes the buffers of a method for up to so many ints, in place of the former ones; the seconds that took.

        Raises UnavailableError where memory does not suffice or the method does not exist here.
        """

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        """So many runs after one that is not counted. Raises WrongDataError where a result was wrong."""

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        """Seconds of `h2d`, `kernel` and `d2h` by events on the GPU, in so many runs that are submitted before they
        begin; none for a method that the host takes part in. Raises WrongDataError where a result was wrong.
        """

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        """The kernel alone, its data in device memory, by events on the GPU."""


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
