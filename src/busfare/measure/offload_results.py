"""The result of `bench offload`, typed. Seconds and bytes."""

from __future__ import annotations

from msgspec import Struct

from busfare.measure.results import Benched, Beside
from busfare.plan.offload.schedule import Memory

__all__ = ["OffloadCell", "OffloadLayer", "OffloadPick", "OffloadResult", "TokensBreakEven"]


class OffloadLayer(Struct, kw_only=True):
    """A layer alone, its weights in the GPU's memory."""

    layers: int
    layer_bytes: int
    tokens: int
    measured_seconds: float
    samples_seconds: list[float]


class OffloadCell(Beside, kw_only=True):
    """A pass over a network with one schedule."""

    layers: int
    layer_bytes: int
    resident: int
    depth: int
    memory: Memory
    tokens: int
    measured_seconds: float
    measured_interval_seconds: tuple[float, float]
    samples_seconds: list[float]
    predicted_share_hidden: float | None
    measured_share_hidden: float | None


class OffloadPick(Struct, kw_only=True):
    """What is predicted to be the fastest of the schedules that take at most `layers_held` layers' GPU memory, as resident
    layers and depth; `cost_percent` is what following it costs against the fastest, measured.
    """

    tokens: int
    memory: str
    layer_bytes: int
    layers_held: int
    candidates: int
    predicted: tuple[int, int]
    measured: tuple[int, int]
    cost_percent: float


class TokensBreakEven(Struct, kw_only=True):
    """From how many tokens on streaming every layer is faster than this machine's processor."""

    memory: str
    cpu_tokens: list[int]
    cpu_seconds_per_layer: list[float]
    measured_tokens: float | None
    predicted_tokens: float | None
    error_percent: float | None
    reason: str = ""


class OffloadResult(Benched, tag_field="schema", tag="busfare.bench-offload/1", kw_only=True):
    layers: list[OffloadLayer]
    cells: list[OffloadCell]
    picks: list[OffloadPick]
    break_even: TokensBreakEven | None
    median_percent: float | None
    ninetieth_percent: float | None
