"""What a node file may hold: kinds of numbers, their sources, components, and what calls and kernels take."""

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct, field

#: The kind of array that sizes, seconds and wire bytes come in.
FloatArray = npt.NDArray[np.float64]

# All finite, all within what hardware could ever be.
#: Bytes, flops or cycles per second. 1e18 bounds it, so that no sum of a path overflows; 1, so that no quotient does.
Rate = Annotated[float, Meta(ge=1, le=1e18)]
#: Bytes; at most 2^53, so that a size is exact as a float.
Size = Annotated[int, Meta(gt=0, le=2**53)]
#: Seconds that may be zero.
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
SecondsPerByte = Annotated[float, Meta(ge=1e-18, le=1.0)]
#: A share of a rate.
Factor = Annotated[float, Meta(ge=1e-6, le=1)]
Count = Annotated[int, Meta(ge=1, le=65536)]
Ordinal = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]*$")]
Tag = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:-]*$")]
Text = Annotated[str, Meta(max_length=2000)]


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """One source, under a tag in the file's `[sources]`: what kind of evidence it is and where to read it."""

    kind: Literal["data-sheet", "measured", "estimated"]
    cite: Text


ComputeCapability = Annotated[str, Meta(pattern=r"^(\d{1,2}\.\d|gfx[0-9a-f]{3,4})$")]


class Sourced(Struct, frozen=True, kw_only=True):
    """What every table of a node file has: the tag of its source, and of keys that have another one."""

    source: Tag | None = None
    source_of: dict[str, Tag] = field(default_factory=dict)


class _Part(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all components share."""

    name: Name
    title: Text = ""


class Cpu(_Part, frozen=True, kw_only=True, tag="cpu"):
    """A processor. Copy rates are of one core in `memcpy`; they bound pageable copies.

    `pinned_copy_bandwidth_bytes_per_s`: if the GPU reads pageable memory in place, the rate of the same copies from pinned
    memory. `fill_bytes_per_s`, `sum_bytes_per_s`: the rates at which a loop on one core writes and sums.
    """

    cores: Count | None = None
    clock_hz: Rate | None = None
    cache_bytes: Size | None = None
    copy_bandwidth_bytes_per_s: Rate | None = None
    pinned_copy_bandwidth_bytes_per_s: Rate | None = None
    cached_copy_bandwidth_bytes_per_s: Rate | None = None
    fill_bytes_per_s: Rate | None = None
    sum_bytes_per_s: Rate | None = None


class AtOnce(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes per second of host memory under copies of all GPUs: all read, all write, and each while all do both."""

    read_bytes_per_s: Rate
    write_bytes_per_s: Rate
    both_read_bytes_per_s: Rate
    both_write_bytes_per_s: Rate


class Memory(_Part, frozen=True, kw_only=True, tag="memory"):
    """Host memory. `*_efficiency`: shares of its peak that a GPU reaches; `at_once`: what several reach, measured."""

    size_bytes: Size | None = None
    bandwidth_bytes_per_s: Rate | None = None
    read_efficiency: Factor | None = None
    write_efficiency: Factor | None = None
    at_once: AtOnce | None = None


class Switch(_Part, frozen=True, kw_only=True, tag="switch"):
    """A PCIe or NVLink switch. `multicast`: it reduces and broadcasts itself (NVLink SHARP), and programs may use that."""

    multicast: bool = False


class Gpu(_Part, frozen=True, kw_only=True, tag="gpu"):
    """A GPU (or a die that programs see as one).

    `host_interface_bytes_per_s` is given where its own copy hardware is slower than its link. `coherent`: it
    and the host read each other's memory in place.
    `implicit_synchronization` is W14's word for devices (Fermi, GTX 680) where a dependent copy waits until
    every earlier kernel has started. `unified_memory`: CPU and GPU share one memory, and copies stay in it;
    `copy_bandwidth_bytes_per_s`: what they move there, where it is less than half of the memory's rate.
    """

    memory_bytes: Size | None = None
    memory_bandwidth_bytes_per_s: Rate | None = None
    multiprocessors: Count | None = None
    clock_hz: Rate | None = None
    flops_per_s: Rate | None = None
    compute_capability: ComputeCapability | None = None
    copy_engines: Count | None = None
    host_interface_bytes_per_s: Rate | None = None
    copy_bandwidth_bytes_per_s: Rate | None = None
    coherent: bool = False
    unified_memory: bool = False
    implicit_synchronization: bool = False


class Nic(_Part, frozen=True, kw_only=True, tag="nic"):
    """A network card."""

    bandwidth_bytes_per_s: Rate | None = None


Component = Cpu | Memory | Switch | Gpu | Nic


class Cost(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API call takes on the host: seconds = `call_s` + bytes · `call_per_byte_s`.

    `device_s` is what it takes on the GPU. `empty` is nothing between two events, whose `device_s` is in every time that
    two events tell; `copy` hands a copy to the driver; `register` pins pages that exist, `allocate-pinned` makes such.
    `allocate-device` frees device memory and allocates as much. The driver then clears what was freed, and copies to the GPU
    wait for it behind the calls: `wait_per_byte_s` for each byte freed.
    """

    call: Literal["empty", "launch", "synchronise", "copy", "allocate-device", "allocate-pinned", "register"]
    call_s: Seconds = 0.0
    call_per_byte_s: Seconds | None = None
    device_s: Seconds | None = None
    wait_per_byte_s: Seconds = 0.0
    gpu: Ordinal | None = None

    def seconds(self, bytes_: float = 0.0) -> float:
        """What the call takes on the host for `bytes_` bytes, s."""
        return self.call_s + bytes_ * (self.call_per_byte_s or 0.0)


Stream = Literal["read", "write", "copy", "triad"]
#: As the peaks of `gpus.toml` are called; those of tensor cores end in `_tensor`.
Pipeline = Literal[
    "fp64", "fp32", "fp16",
    "fp64_tensor", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor",
]  # fmt: skip
Side = Annotated[int, Meta(ge=1, le=1 << 24)]


class Gemm(Struct, frozen=True, forbid_unknown_fields=True):
    """A library's matrix products, `batch` times m × k by k × n in `type`: `seconds` from call to call, back to back."""

    type: Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
    m: Side
    n: Side
    k: Side
    seconds: Annotated[float, Meta(gt=0, le=1e6)]
    batch: Side = 1

    @property
    def flops(self) -> int:
        """Floating-point operations, two for each product and its sum."""
        return 2 * self.batch * self.m * self.n * self.k


#: Classes of kernels of which a probe measures a pass (docs/probe.md).
PassKind = Literal["elementwise", "norm", "softmax", "gather", "activation"]


class Pass(Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel of a class that reads and writes `bytes` in all, each once."""

    kind: PassKind
    bytes: Annotated[int, Meta(ge=1, le=1 << 48)]
    seconds: Annotated[float, Meta(gt=0, le=1e6)]


class Kernels(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of one GPU's kernels (docs/probe.md), or of every GPU's where `gpu` is None.

    `launch_s`: an empty kernel in a chain of them, the least that any takes; `launch_interval_s`: from one to the next where
    a program launches them into a stream. `memory_bytes_per_s`: read and written by streams far larger than L2;
    `l2_bytes_per_s`: read from L2. `flops_per_s`: dense rates of the pipelines that the GPU has (of int8, operations).
    `passes`: of some classes at several sizes, from those that L2 holds to those that it does not.
    """

    launch_s: Seconds | None = None
    launch_interval_s: Seconds | None = None
    memory_bytes_per_s: dict[Stream, Rate] = field(default_factory=dict)
    l2_bytes_per_s: Rate | None = None
    flops_per_s: dict[Pipeline, Rate] = field(default_factory=dict)
    gemm: tuple[Gemm, ...] = ()
    passes: tuple[Pass, ...] = ()
    gpu: Ordinal | None = None
