"""The things that links join: processors, memories, switches, GPUs, network cards."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from busfare.node.figures import Count, Factor, Name, Rate, Size, Text
from busfare.node.source import Sourced

__all__ = ["Component", "Cpu", "Gpu", "Memory", "Nic", "Switch"]

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
    """A PCIe or NVLink switch."""

    name: Name
    title: Text = ""


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
