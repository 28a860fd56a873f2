"""The things that links join: processors, memories, switches, GPUs, network cards; and what calls cost on them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from busfare.node.source import Count, Factor, Name, Ordinal, Rate, Seconds, Size, Sourced, Text

__all__ = ["Component", "Cost", "Cpu", "Gpu", "Memory", "Nic", "Switch"]

ComputeCapability = Annotated[str, Meta(pattern=r"^(\d{1,2}\.\d|gfx[0-9a-f]{3,4})$")]


class Cpu(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cpu"):
    """A processor. The copy rates are those of one core in `memcpy`, which bound pageable copies."""

    name: Name
    title: Text = ""
    cores: Count | None = None
    clock_hz: Rate | None = None
    cache_bytes: Size | None = None
    copy_bandwidth_bytes_per_s: Rate | None = None
    cached_copy_bandwidth_bytes_per_s: Rate | None = None


class Memory(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="memory"):
    """Host memory. `read_efficiency` and `write_efficiency` are the shares of its peak that a GPU reaches."""

    name: Name
    title: Text = ""
    size_bytes: Size | None = None
    bandwidth_bytes_per_s: Rate | None = None
    read_efficiency: Factor | None = None
    write_efficiency: Factor | None = None


class Switch(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="switch"):
    """A PCIe or NVLink switch. `multicast`: it reduces and broadcasts itself (NVLink SHARP), and programs may use that."""

    name: Name
    title: Text = ""
    multicast: bool = False


class Gpu(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gpu"):
    """A GPU (or a die that programs see as one).

    `host_interface_bytes_per_s` is given where its own copy hardware is slower than its link. `coherent`: it
    and the host read each other's memory in place.
    `implicit_synchronization` is W14's word for devices (Fermi, GTX 680) where a dependent copy waits until
    every earlier kernel has started. `unified_memory`: CPU and GPU share one memory, and copies stay in it;
    `copy_bandwidth_bytes_per_s`: what they move there, where it is less than half of the memory's rate.
    """

    name: Name
    title: Text = ""
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


class Nic(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="nic"):
    """A network card."""

    name: Name
    title: Text = ""
    bandwidth_bytes_per_s: Rate | None = None


Component = Cpu | Memory | Switch | Gpu | Nic


class Cost(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API call takes on the host: seconds = `call_s` + bytes · `call_per_byte_s`.

    `device_s` is what it takes on the GPU. `empty` is nothing between two events, whose `device_s` is in every time that
    two events tell; `copy` hands a copy to the driver; `register` pins pages that exist, `allocate-pinned` makes such.
    """

    call: Literal["empty", "launch", "synchronise", "copy", "allocate-device", "allocate-pinned", "register"]
    call_s: Seconds = 0.0
    call_per_byte_s: Seconds | None = None
    device_s: Seconds | None = None
    gpu: Ordinal | None = None

    def seconds(self, bytes_: float = 0.0) -> float:
        """What the call takes on the host for `bytes_` bytes, s."""
        return self.call_s + bytes_ * (self.call_per_byte_s or 0.0)
