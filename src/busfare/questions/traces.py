"""Questions about recorded runs. A question does not contain its traces: callers pass them separately."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

from busfare import quantities as q
from busfare.errors import FieldError, InputError
from busfare.quantities import Question, parse_factor

Removable = Literal["h2d", "d2h", "d2d", "p2p", "copy", "set", "migration"]
ChangeName = Literal[
    "dedupe", "keep_on_gpu", "remove", "prefetch", "pin", "batch_below", "collect_below", "async_", "pool",
    "drop_synchronisations", "streams", "link", "node", "copy_speed", "kernels", "host", "no_stragglers",
    "overlap_collectives", "bucket", "collective_bytes", "ranks",
]  # fmt: skip


class Named(Protocol):
    """A node that is read already."""

    @property
    def name(self) -> str: ...


#: A node, or its name: of the catalogue, a GPU, a TOML file or a link (`pcie:4x16`).
Where = str | Named


class Scaled(NamedTuple):
    """Kernels whose name `pattern` matches take `factor` times their time; all kernels where it is empty."""

    factor: float
    pattern: str = ""


KernelRule = Literal["keep", "predicted", "bandwidth", "clock"] | Scaled
HostRule = Literal["measured", "keep"] | float

#: More streams and ranks than any program has; more processes than any machine has cores.
MOST_STREAMS, MOST_RANKS, MOST_JOBS = 1024, 4096, 1024
#: More units of work than any recording has.
MOST_UNITS = 1 << 40


def kernel_rule(value: Any) -> KernelRule:
    """'keep', 'bandwidth', 'clock', '0.8x' or 'REGEX=0.8x'."""
    if isinstance(value, Scaled) or value in ("keep", "predicted", "bandwidth", "clock"):
        return value  # type: ignore[no-any-return]
    pattern, _, factor = str(value).rpartition("=")
    words = "" if pattern else "keep, bandwidth, clock, REGEX=0.8x or "
    return Scaled(parse_factor(factor, words=words), pattern)


def host_rule(value: Any) -> HostRule:
    """'measured', 'keep' or '0.8x'."""
    return value if value in ("measured", "keep") else parse_factor(value, words="measured, keep or ")


KernelRules = Annotated[tuple[KernelRule, ...], q.repeated(kernel_rule)]
Nodes = Annotated[tuple[Where, ...], q.repeated(q.as_given)]


@dataclass(frozen=True, kw_only=True)
class Part(Question):
    """The part of a trace that is read: what begins in a `window` of seconds from the start of the recording; in the ranges
    called `range`, or in the `iteration`-th of them; or in that unit of work.
    """

    window: Annotated[tuple[float, float] | None, q.window] = None
    range: q.Text | None = None
    iteration: Annotated[int | None, q.whole(1, MOST_UNITS)] = None

    def part(self) -> dict[str, Any]:
        """What is given of these, by field."""
        return {name: value for name, value in self.given().items() if name in Part.names()}

    def check_traced(self, trace: object) -> None:
        """Raises FieldError where a part is named and no trace is."""
        if not trace and (part := [*self.part()]):
            raise FieldError(part[0], ": applies to a trace; give `from_trace` TRACE, or leave it out")


@dataclass(frozen=True, kw_only=True)
class Report(Part):
    """Of a run: its `unrecorded` seconds. Of a job: read in `jobs` processes or by workers of a Dask `scheduler`."""

    recorded_on: Where | None = None
    unrecorded: q.PositiveTime | None = None
    jobs: Annotated[int | None, q.whole(1, MOST_JOBS)] = None
    scheduler: q.Text | None = None

    def __post_init__(self) -> None:
        if self.scheduler and self.jobs:
            raise InputError("`scheduler` uses its own workers; leave out `jobs`")
        if self.of_job and self.unrecorded:
            raise InputError("`unrecorded` is the time of one run: give it with one trace")

    def repeated(self) -> dict[str, Any]:
        """Options that the command of a finding repeats to show the same gain, by field."""
        repeated = WhatIf.names() & Report.names()
        return {name: value for name, value in self.given().items() if name in repeated}

    @property
    def of_job(self) -> bool:
        """Whether it says how traces are read: then even one trace is a job."""
        return bool(self.jobs or self.scheduler)


@dataclass(frozen=True, kw_only=True)
class WhatIf(Part):
    """Changes in the order in which a program would be changed: first by what copies carry, while all are there. A text is a
    regular expression of what is changed, empty for all.

    `rank` names the ranks of a job whose program changes; changes of a job stand last. `unrecorded` as of `Report`.
    """

    dedupe: q.Flag = False
    keep_on_gpu: q.Flag = False
    pool: q.Flag = False
    remove: Annotated[tuple[Removable, ...], q.repeated(q.word(*get_args(Removable)))] = ()
    prefetch: q.Flag = False
    pin: q.Regex | None = None
    batch_below: q.Size | None = None
    collect_below: q.Size | None = None
    async_: q.Regex | None = None
    drop_synchronisations: q.Regex | None = None
    streams: Annotated[int | None, q.whole(1, MOST_STREAMS)] = None
    kernel: q.Regex = ""
    link: Where | None = None
    node: Where | None = None
    copy_speed: q.Factor | None = None
    kernels: KernelRules = ()
    host: Annotated[HostRule, host_rule] = "measured"
    rank: Annotated[tuple[int, ...], q.repeated(q.whole(0, MOST_RANKS - 1))] = ()
    no_stragglers: q.Flag = False
    overlap_collectives: q.Flag = False
    bucket: q.PositiveSize | None = None
    collective_bytes: q.Factor | None = None
    ranks: Annotated[int | None, q.whole(2, MOST_RANKS)] = None
    recorded_on: Where | None = None
    unrecorded: q.PositiveTime | None = None
    model: q.Text = "calibrated"

    def __post_init__(self) -> None:
        if self.kernel and self.streams is None:
            raise InputError("`kernel`: selects the chunks that `streams` N spreads; add `streams` N")
        if self.link is not None and self.node is not None:
            raise InputError("`link`, `node`: both name the new link or node; give one of them")
        unchanged = {"rank", "recorded_on", "unrecorded", "model"}
        if self.host == "keep":
            unchanged.add("host")
        if not self.given().keys() - unchanged - Part.names():
            raise InputError(
                "what-if: no change given; give one, as in `pin`, `streams` 3 or `node` h200-sxm"
            )

    @property
    def of_job(self) -> bool:
        """Whether it is about the ranks of a job."""
        together = self.no_stragglers or self.overlap_collectives or self.bucket or self.collective_bytes
        return bool(self.rank or together or self.ranks)


@dataclass(frozen=True, kw_only=True)
class Project(Part):
    """On the nodes `to`, the first of which stands at the top."""

    to: Nodes = ()
    recorded_on: Where | None = None
    model: q.Text = "calibrated"
    kernels: KernelRules = ()
    host: Annotated[HostRule, host_rule] = "measured"

    def __post_init__(self) -> None:
        if not self.to:
            raise InputError("project: no node given; name one, as in `to` gh200")


@dataclass(frozen=True, kw_only=True)
class Compare(Part):
    """By each `model`, or all that apply; `to`: where the second run was recorded."""

    recorded_on: Where | None = None
    to: Where | None = None
    model: Annotated[tuple[str, ...], q.repeated(q.text)] = ()
