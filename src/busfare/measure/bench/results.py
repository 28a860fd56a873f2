"""What the benchmarks return, each the last of its own classes: the JSON is the Struct; keys in docs/json.md.

Seconds, bytes, bytes per second; None is 'not known'. `report` shows them, and knows nothing else of this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from busfare.errors import InputError
from busfare.measure.results import LeftOut, Ranged

Result = TypeVar("Result", bound="Struct")


def read_result(path: Path, kind: type[Result]) -> Result:
    """What an earlier `--json` wrote. Raises InputError where the file holds nothing of that kind."""
    schema = kind.__struct_config__.tag
    command = str(schema).removeprefix("busfare.").partition("/")[0].replace("-", " ")
    give = f"give a file that `{command} --json` wrote"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {give}") from None
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict) or content.get("schema") != schema:
        raise InputError(f"{path}: not of schema {schema}; {give}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: a figure is missing or wrong ({error}); run `{command}` again") from None


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


class Beside(Ranged, kw_only=True):
    """A prediction beside what was measured, where there is one."""

    predicted_seconds: float | None
    predicted_by: str | None
    error_percent: float | None
    checked: bool


class Version(Beside, kw_only=True):
    """A strategy with a number of streams. `samples_by_moment`: how many of the samples each moment took; `held`: all was
    submitted before it began; `error_share`: the largest deviation from the reference over what is allowed.
    """

    strategy: str
    streams: int
    gpus: int
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


class BestStrategy(Struct):
    """`cost_percent`: what following the prediction costs against the fastest, measured."""

    measured: Fastest
    predicted: Fastest
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
    measured_kernel_seconds_by_chunks: list[ByChunks] = field(default_factory=list)
    measured_link_seconds: float
    measured_link_samples_seconds: tuple[float, ...] = ()
    measured_link_ends_seconds: tuple[tuple[float, ...], ...] = ()
    measured_one_way_seconds: tuple[float, ...] = ()
    checked_against: str | None
    versions: list[Version]
    best: BestStrategy
    streams: BestStreams
    limit: LinkOrKernel

    def fastest(self) -> list[Version]:
        """The fastest version of each strategy, in the order of the versions."""
        best: dict[str, Version] = {}
        for version in self.versions:
            known = best.setdefault(version.strategy, version)
            if version.measured_seconds < known.measured_seconds:
                best[version.strategy] = version
        return list(best.values())


class StrategiesResult(Benched, tag_field="schema", tag="busfare.bench-strategies/1", kw_only=True):
    cells: list[StrategyCell]


class MethodMeasured(Beside, kw_only=True):
    """One method of a case: the whole program, and what of it the GPU takes for copies and kernel."""

    method: str
    measured_seconds: float
    measured_mean_seconds: float
    measured_ranges_seconds: dict[str, float]
    measured_device_seconds: dict[str, float]
    runs_seconds: list[float]
    spread: float
    measured_gpu_seconds: float | None = None
    gpu_samples_seconds: list[float] = field(default_factory=list)
    measured_held_seconds: list[dict[str, float]] = field(default_factory=list)
    predicted_calls_seconds: float | None = None
    predicted_gpu_seconds: float | None = None
    gpu_error_percent: float | None = None


class Ranking(Struct):
    """Methods, the fastest first; `wrong`: pairs that were predicted the other way round."""

    measured: list[str]
    predicted: list[str]
    wrong: list[list[str]]


class BestMethod(Struct):
    measured: str
    predicted: str | None
    picked: bool
    cost_percent: float | None


class MethodsCell(Struct, kw_only=True):
    """A vector of `elements` ints, each of which the kernel accesses so often."""

    elements: int
    accesses: int
    bytes: int
    measured_kernel_seconds: float
    measured_host_seconds: float
    methods: list[MethodMeasured]
    ranking: Ranking
    best: BestMethod
    best_whole: BestMethod | None = None


class Crossover(Struct):
    """From how many accesses on pinned copies beat zero-copy; None: never."""

    elements: int
    accesses: list[float]
    measured_seconds: dict[str, list[float]]
    predicted_seconds: dict[str, list[float]]
    measured_accesses: float | None
    predicted_accesses: float | None
    factor: float | None


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
    crossover: Crossover | None
    normalised: Situations
    kernel_ratio: dict[str, float]
    published: Published
    allocation_seconds: dict[str, float]
