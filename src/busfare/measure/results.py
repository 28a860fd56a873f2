"""What `probe` returns: the JSON is the Struct; keys in docs/json.md. Seconds, bytes, bytes per second; None is unknown."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from busfare.nodes import CollectiveCurve, Contention, Cost, Curve, Kernels


class LeftOut(Struct):
    """What could not be measured."""

    case: str
    why: str


class Ranged(Struct, kw_only=True):
    """The 80 % range of the prediction beside it, and the rung that it stands on."""

    low_seconds: float | None = None
    high_seconds: float | None = None
    rung: str | None = None
    reason: str | UnsetType = UNSET  # only where there is no range


class Profile(Struct, kw_only=True, rename={"contentions": "contention"}):
    """The node file that a probe writes: what a `Node` has."""

    name: str
    title: str
    components: tuple[Any, ...]
    links: tuple[Any, ...]
    curves: tuple[Curve, ...]
    contentions: tuple[Contention, ...]
    costs: tuple[Cost, ...]
    kernels: tuple[Kernels, ...]
    collectives: tuple[CollectiveCurve, ...]
    sources: dict[str, Any]


class ResidualsOf(Struct):
    """Percent of what was measured."""

    count: int
    median_percent: float | None
    max_percent: float | None


class Residuals(ResidualsOf):
    pageable: ResidualsOf


class ResidualCase(Ranged, kw_only=True):
    """A case that nothing was fitted to: predicted by the parameters, and measured."""

    predicted_seconds: float
    case: str
    measured_seconds: float


class LinkState(Struct, kw_only=True):
    """A direction of a GPU's host link, measured and predicted by the data sheet. `verdict`: what is wrong, or empty."""

    gpu: int
    direction: str
    measured_bytes_per_second: float
    predicted_bytes_per_second: float
    sound: bool
    verdict: str


class Knee(Struct, kw_only=True):
    """A size after which a path's time jumps by so many seconds."""

    direction: str
    memory: str
    gpu: int
    after_bytes: int
    seconds: float


class ProbedCase(Struct, kw_only=True):
    """Interquartile means of the samples, and the interval of their median."""

    direction: str
    memory: str
    mode: str
    bytes: int
    count: int
    gpu: int
    peer: int | None
    samples: int
    stopped: str
    device_seconds: float | None
    api_seconds: float | None
    interval_seconds: tuple[float, float]


class ProbeResult(Struct, tag_field="schema", tag="busfare.probe/1", kw_only=True):
    virtual: bool
    node: Profile
    residuals: Residuals
    residual_cases: list[ResidualCase]
    health: list[LinkState]
    knees: list[Knee]
    cases: list[ProbedCase]
    disturbances: list[str]
    left_out: list[LeftOut]
    seconds: float
    facts: dict[str, Any]


class Check(Struct):
    """Something that a command needs: what there is of it, or what to do where it is missing."""

    needed_for: str
    what: str
    works: bool
    is_there: str
    change: str = ""


class Doctor(Struct, tag_field="schema", tag="busfare.doctor/1"):
    version: str
    python: str
    machine: str
    checks: list[Check]
