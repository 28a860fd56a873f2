"""What `project` and `compare` answer; keys in docs/json.md."""

from __future__ import annotations

from typing import TypeVar

import polars as pl
from msgspec import Struct, convert, field

from busfare.cost.ranges import seconds_between
from busfare.results import Predicted


class TransfersThere(Predicted, kw_only=True):
    recorded_seconds: float
    unpriced: int


class RunThere(Predicted, kw_only=True):
    recorded_seconds: float
    replayed_seconds: float
    method: str


class PathThere(Predicted, kw_only=True):
    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int
    bytes: int
    recorded_seconds: float


class KernelClassThere(Predicted, kw_only=True):
    """Kernels of a class that went by the same bound; `factor`: predicted over recorded."""

    kind: str = field(name="class")
    bound: str
    count: int
    recorded_seconds: float
    factor: float | None
    why: str


class KernelsThere(Struct, kw_only=True):
    """`rule`: how their times were had. `by_class` is empty where a rule of the user's was followed."""

    count: int
    recorded_seconds: float
    rule: str
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
    pageable_copies: str | None
    by_path: list[PathThere]


class Projected(Projection, tag_field="schema", tag="busfare.project/1", kw_only=True):
    """The first node's projection, and all of them."""

    from_guessed_from_gpu_name: bool
    projections: list[Projection]


class PathCompared(Predicted, kw_only=True):
    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int
    recorded_seconds: float
    wmape_percent: float | None
    inside_percent: float | None


class KernelCompared(Struct, kw_only=True):
    """Of a kernel, or of all kernels of an operator: means a launch."""

    name: str
    kind: str = field(name="class")
    bound: str
    rung: str | None
    recorded_seconds: float
    predicted_seconds: float
    low_seconds: float
    high_seconds: float
    actual_seconds: float
    count: int


class KernelsCompared(Struct, kw_only=True):
    """Errors: of the sum, and the median over kernels. `count`: of launches that both runs have."""

    count: int
    wmape_percent: float | None
    median_percent: float | None
    inside_percent: float | None
    unmatched: int
    by_kernel: list[KernelCompared]


class Comparison(Struct, kw_only=True):
    """One model against what was recorded; no error where no copy is in both."""

    model: str
    wmape_percent: float | None
    inside_percent: float | None
    count: int
    unmatched: int
    unpriced: int
    by_path: list[PathCompared]


class Compared(Comparison, tag_field="schema", tag="busfare.compare/1", kw_only=True):
    """The best model's errors, and every model's, best first."""

    predicted: str
    actual: str
    recorded_on: str = field(name="from")
    to: str
    kernels: KernelsCompared | None
    models: list[Comparison]


Row = TypeVar("Row", PathThere, PathCompared)


def paths_of(row: type[Row], by_path: pl.DataFrame, rung: str | None) -> list[Row]:
    """Rows by path with the range of each."""
    ranged = [r | seconds_between(r["low_seconds"], r["high_seconds"], rung) for r in by_path.to_dicts()]
    return convert(ranged, list[row])  # type: ignore[valid-type]
