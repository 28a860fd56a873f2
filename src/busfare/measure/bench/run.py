"""A benchmark's run on this machine's GPUs or a virtual node, and its result, beside what is predicted of it. The JSON is
the Struct, each the last of its own classes; keys in docs/json.md.

Seconds, bytes, bytes per second; None is 'not known'.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from busfare.measure.cases import LeftOut, Ranged, overlapping
from busfare.measure.run import (
    GpuHost,
    Progress,
    StateLog,
    UnavailableError,
    WrongDataError,
    command_line,
    disturbances,
    nothing_measured,
)
from busfare.planning import Machine

Host = TypeVar("Host", bound=GpuHost)
Of = TypeVar("Of")
Say = Callable[[str], None]


class Target(Struct):
    """Whose parameters the predictions take, and where those are from."""

    name: str
    title: str
    source: str


class Benched(Struct, kw_only=True):
    """What every benchmark says of itself. `virtual`: a node was played, nothing was measured."""

    virtual: bool
    date: str
    command: str
    quick: bool
    gpu: str | None
    driver: str | None
    node: Target
    disturbances: list[str]
    states: list[dict[str, Any]]
    left_out: list[LeftOut]
    seconds: float
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """What to call seconds that stand beside predicted ones."""
        return "played" if self.virtual else "measured"


class WithPrediction(Ranged, kw_only=True):
    """A prediction beside what was measured, where there is one."""

    predicted_seconds: float | None = None
    predicted_by: str | None = None
    error_percent: float | None = None
    checked: bool


class Version(WithPrediction, kw_only=True):
    """A strategy with a number of streams. `samples_by_moment`: how many of the samples each moment took; `held`: all was
    submitted before it began; `error_share`: the largest deviation from the reference over what is allowed.
    """

    strategy: str
    streams: int
    measured_seconds: float
    measured_interval_seconds: tuple[float, float]
    measured_host_seconds: float | None
    samples_seconds: tuple[float, ...]
    samples_by_moment: tuple[int, ...] = ()
    held: bool | None = None
    error_share: float | None = None


class ByChunks(Struct):
    """t_E of a kernel that is cut into so many chunks."""

    chunks: int
    seconds: float
    seconds_by_moment: tuple[float, ...] = ()


class Fastest(Struct):
    strategy: str
    streams: int
    seconds: float


class Best(Struct, Generic[Of]):
    """`predicted`: None where nothing is. `cost_percent`: what following it costs against the fastest, measured."""

    measured: Of
    predicted: Of
    picked: bool
    cost_percent: float | None


class BestStreams(Struct):
    measured_best: int
    predicted_best: int
    factor: float | None
    measured_seconds_at_predicted: float | None
    cost_percent: float | None


class LinkOrKernel(Struct):
    """The slower of link and kernel, and what streams reach of it."""

    seconds: float
    by: str
    streams_share_percent: float


class StrategyCell(Struct, kw_only=True):
    """One kernel on one grid."""

    name: str
    kernel: str
    title: str
    levels: int
    level_elements: int
    h2d_bytes: int
    d2h_bytes: int
    measured_kernel_seconds: float
    measured_kernel_seconds_by_chunks: list[ByChunks] = msgspec.field(default_factory=list)
    measured_link_seconds: float
    measured_link_samples_seconds: tuple[float, ...] = ()
    checked_against: str | None
    versions: list[Version]
    best: Best[Fastest]
    streams: BestStreams
    limit: LinkOrKernel

    def fastest(self) -> list[Version]:
        """The fastest version of each strategy, in the order of the versions."""
        best: dict[str, Version] = {}
        for version in self.versions:
            if version.measured_seconds < best.setdefault(version.strategy, version).measured_seconds:
                best[version.strategy] = version
        return list(best.values())


class StrategiesResult(Benched, tag_field="schema", tag="busfare.bench-strategies/1", kw_only=True):
    cells: list[StrategyCell]


class MethodMeasured(WithPrediction, kw_only=True):
    """One method of a case: the whole program, and what of it the GPU takes for copies and kernel."""

    method: str
    measured_seconds: float
    measured_mean_seconds: float
    measured_ranges_seconds: dict[str, float]
    measured_device_seconds: dict[str, float]
    runs_seconds: list[float]
    spread: float
    measured_gpu_seconds: float | None = None
    gpu_samples_seconds: list[float] = msgspec.field(default_factory=list)
    measured_held_seconds: list[dict[str, float]] = msgspec.field(default_factory=list)
    predicted_calls_seconds: float | None = None
    predicted_gpu_seconds: float | None = None
    gpu_error_percent: float | None = None


class MethodsCell(Struct, kw_only=True):
    """A vector of `elements` ints, each of which the kernel accesses so often."""

    elements: int
    accesses: int
    bytes: int
    measured_kernel_seconds: float
    measured_host_seconds: float
    methods: list[MethodMeasured]
    best: Best[str | None]
    best_whole: Best[str | None] | None = None


class Situations(Struct):
    """By method: one access an element, and fifty [S16]."""

    situation_1: dict[str, float]
    situation_2: dict[str, float]


class Published(Struct):
    source: str
    situation_1: dict[str, float]
    situation_2: dict[str, str]
    kernel_ratio: dict[str, float]
    bytes_per_second: dict[str, dict[str, float]]


class MethodsResult(Benched, tag_field="schema", tag="busfare.bench-methods/1", kw_only=True):
    cells: list[MethodsCell]
    normalised: Situations
    kernel_ratio: dict[str, float]
    published: Published
    allocation_seconds: dict[str, float]


@dataclass
class Run(Generic[Host]):
    """`machine` is what the predictions are for, `source` where its parameters are from."""

    device: Host
    machine: Machine
    quick: bool = False
    source: str = ""
    progress: Progress | None = None
    say: Say = lambda line: None
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.device.clock()
        self._log = StateLog(self.device, (0,), self._began)
        self._log.now(force=True)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.device.clock() - self._began

    def show(self, share: float, what: str) -> None:
        """Progress, between measurements; logs the machine's state once a second."""
        if self.progress:
            self.progress(share, what)
        self._log.now()

    @contextmanager
    def attempt(self, case: str) -> Iterator[None]:
        """Where something of a case cannot be measured, it is left out by that name."""
        try:
            yield
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append(LeftOut(case, str(error)))

    def too_late(self, case: str, budget_s: float) -> bool:
        """Whether the budget is spent: then the case is left out."""
        if late := self.seconds > budget_s:
            self.left_out.append(LeftOut(case, f"{budget_s:g} s had passed"))
        return late

    def origin(self, command: str, measured: Sequence[object]) -> dict[str, Any]:
        """What every benchmark says of itself, once it is done. Raises BusfareError where nothing was `measured`."""
        if not measured:
            raise nothing_measured(self.left_out)
        seconds, facts, node = self.seconds, self.device.facts(), self.machine.node
        self._log.now(force=True)
        return {
            "virtual": self.device.virtual,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command_line(f"bench {command}"),
            "quick": self.quick,
            "gpu": facts["gpus"][0]["name"],
            "driver": facts.get("driver"),
            "node": Target(node.name, node.title, self.source),
            "disturbances": disturbances(self._log.states),
            "states": self._log.states,
            "left_out": self.left_out,
            "seconds": seconds,
            "facts": facts,
        }


def off_percent(predicted: float | None, measured: float | None) -> float | None:
    """How far a prediction is off, in percent of what was measured; None where either lacks."""
    return 100 * (predicted / measured - 1) if predicted is not None and measured else None


def best(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> Best[str | None]:
    """The fastest method, measured and predicted; picked where the two measured alike, or are predicted alike."""
    seconds = {method: median(taken) for method, taken in samples.items()}
    fastest = min(seconds, key=seconds.__getitem__)
    if not planned:
        return Best(fastest, None, False, None)
    # Of those that are predicted alike, the one that is the fastest stands for all.
    taken = min(planned, key=lambda method: (planned[method], seconds[method]))
    picked = taken == fastest or overlapping(samples[taken], samples[fastest])
    return Best(fastest, taken, picked, 100 * (seconds[taken] / seconds[fastest] - 1))
