"""What `project` and `compare` answer; keys in docs/json.md."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from busfare.advise.amounts import Predicted
from busfare.statements import Words


class There(Predicted, kw_only=True):
    """A time that was recorded, and what it is predicted to be on another node."""

    recorded_seconds: float


class TransfersThere(There, kw_only=True):
    unpriced: int


class RunThere(There, kw_only=True):
    replayed_seconds: float
    method: Words


class PathPredicted(There, kw_only=True):
    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int


class PathThere(PathPredicted, kw_only=True):
    bytes: int


class KernelsPredicted(There, kw_only=True):
    """Kernels of a class, and the bound that their prediction went by."""

    kind: str = field(name="class")
    bound: str
    count: int


class KernelClassThere(KernelsPredicted, kw_only=True):
    """All of a class that went by the same bound; `factor`: predicted over recorded."""

    factor: float | None
    why: Words


class KernelsThere(Struct, kw_only=True):
    """`rule`: how their times were had. `by_class` is empty where a rule of the user's was followed. `counted`: of `count`,
    those whose bytes were counted; left out where no counters were given.
    """

    count: int
    counted: int | UnsetType = UNSET
    recorded_seconds: float
    rule: Words
    not_predicted: int = 0
    by_class: list[KernelClassThere] = []


class Projection(Struct, kw_only=True):
    """A run on another node, by one model."""

    recorded_on: str = field(name="from")
    to: str
    model: str
    transfers: TransfersThere
    makespan: RunThere
    kernels: KernelsThere
    pageable_copies: Words | None
    by_path: list[PathThere]


class Projected(Projection, tag_field="schema", tag="busfare.project/1", kw_only=True):
    """The first node's projection, and all of them."""

    from_guessed_from_gpu_name: bool
    projections: list[Projection]


class PathCompared(PathPredicted, kw_only=True):
    wmape_percent: float | None
    inside_percent: float | None


class KernelCompared(KernelsPredicted, kw_only=True):
    """Of a kernel, or of all kernels of an operator: means a launch."""

    name: str
    actual_seconds: float


class Errors(Struct, kw_only=True):
    """Of predictions that were compared: `count` in both runs, and those in one of them alone."""

    wmape_percent: float | None = None
    inside_percent: float | None = None
    count: int = 0
    unmatched: int = 0


class KernelsCompared(Errors, kw_only=True):
    """Errors: of the sum, and the median over kernels. `count`: of launches that both runs have; `counted`: of all launches
    of the first, those whose bytes were counted; left out where no counters were given.
    """

    counted: int | UnsetType = UNSET
    median_percent: float | None = None
    by_kernel: list[KernelCompared] = []


class Comparison(Errors, kw_only=True):
    """One model against what was recorded; no error where no copy is in both."""

    model: str
    unpriced: int = 0
    by_path: list[PathCompared] = []


class Compared(Comparison, tag_field="schema", tag="busfare.compare/1", kw_only=True):
    """The best model's errors, and every model's, best first."""

    predicted: str
    actual: str
    recorded_on: str = field(name="from")
    to: str
    kernels: KernelsCompared | None
    models: list[Comparison]
