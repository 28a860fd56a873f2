"""What kernels reach on a GPU: rates of its memories and pipelines, times of library GEMMs, and the least a kernel takes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from busfare.node.source import Ordinal, Rate, Seconds, Sourced

__all__ = ["Gemm", "Kernels", "Pipeline", "Stream"]

Stream = Literal["read", "write", "copy", "triad"]
#: As the peaks of `gpus.toml` are called; those of tensor cores end in `_tensor`.
Pipeline = Literal[
    "fp64", "fp32", "fp16",
    "fp64_tensor", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor",
]  # fmt: skip
Side = Annotated[int, Meta(ge=1, le=1 << 24)]


class Gemm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A library's matrix product, m × k by k × n in `type`: `seconds` from start to start of calls back to back."""

    type: Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
    m: Side
    n: Side
    k: Side
    seconds: Annotated[float, Meta(gt=0, le=1e6)]

    @property
    def flops(self) -> int:
        """Floating-point operations, two for each product and its sum."""
        return 2 * self.m * self.n * self.k


class Kernels(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of one GPU's kernels (docs/probe.md), or of every GPU's where `gpu` is None.

    `launch_s`: an empty kernel in a chain of them, the least that any takes; `launch_interval_s`: from one to the next where
    a program launches them into a stream. `memory_bytes_per_s`: read and written by streams far larger than L2;
    `l2_bytes_per_s`: read from L2. `flops_per_s`: dense rates of the pipelines that the GPU has (of int8, operations).
    """

    launch_s: Seconds | None = None
    launch_interval_s: Seconds | None = None
    memory_bytes_per_s: dict[Stream, Rate] = msgspec.field(default_factory=dict)
    l2_bytes_per_s: Rate | None = None
    flops_per_s: dict[Pipeline, Rate] = msgspec.field(default_factory=dict)
    gemm: tuple[Gemm, ...] = ()
    gpu: Ordinal | None = None
