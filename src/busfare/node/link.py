"""The wires between components. Each kind knows its line rate and what a copy puts on it."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from busfare.node import wire
from busfare.node.arrays import FloatArray
from busfare.node.source import Factor, Name, Rate, Sourced, Text

__all__ = ["C2cLink", "FabricLink", "Flow", "Link", "MemoryLink", "NvlinkLink", "PcieLink", "SocketLink"]

#: `read`: the GPU asks and data comes back; `write`: the GPU sends it.
Flow = Literal["read", "write"]
Payload = Annotated[int, Meta(ge=16, le=4096)]
Lanes = Literal[1, 2, 4, 8, 12, 16, 32]
#: Of PCI Express.
Generation = Literal[1, 2, 3, 4, 5, 6]


class _Wire(Sourced, frozen=True, kw_only=True):
    """What all links share."""

    between: tuple[Name, Name]
    title: Text = ""

    @property
    def line_rate(self) -> float:
        """Bytes per second and direction before any packet overhead."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """A few characters that name the link in a drawing."""
        raise NotImplementedError

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        """Bytes on the wire for copies of `sizes` bytes, one an element."""
        return sizes

    def seconds(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        """Seconds that this wire alone is busy with copies of `sizes` bytes."""
        return self.wire_bytes(sizes, flow) / self.line_rate

    def bandwidth(self, flow: Flow) -> float:
        """Bytes of data per second that a long copy sees."""
        long = np.array([2.0**30])
        return float(long[0] / self.seconds(long, flow)[0])


#: Completion and request sizes that a host of each generation's days shows. Chipsets up to generation 2
#: answer in cache lines (64 bytes, the smallest read-completion boundary) to requests of 512; later ones
#: merge lines into the 128 bytes that NVIDIA's memory system moves at a time until Ada, and the 256 of Hopper
#: and after.
_PCIE_DEFAULTS = {
    1: (128, 64, 512),
    2: (128, 64, 512),
    3: (128, 128, 128),
    4: (128, 128, 128),
    5: (256, 256, 256),
    6: (256, 256, 256),
}


class PcieLink(_Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pcie"):
    """PCI Express. `payload_bytes`: data in one write; `completion_bytes`: in one answer to a read of
    `read_request_bytes`.
    """

    generation: Generation
    lanes: Lanes
    payload_bytes: Payload | None = None
    completion_bytes: Payload | None = None
    read_request_bytes: Payload | None = None

    @property
    def payload(self) -> int:
        return self.payload_bytes or _PCIE_DEFAULTS[self.generation][0]

    @property
    def completion(self) -> int:
        return self.completion_bytes or _PCIE_DEFAULTS[self.generation][1]

    @property
    def read_request(self) -> int:
        return self.read_request_bytes or _PCIE_DEFAULTS[self.generation][2]

    @property
    def line_rate(self) -> float:
        return wire.pcie_line_rate(self.generation, self.lanes)

    @property
    def label(self) -> str:
        return f"PCIe {self.generation} x{self.lanes}"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        if flow == "write":
            return wire.pcie_write_bytes(sizes, self.generation, self.payload)
        return wire.pcie_read_bytes(sizes, self.generation, self.completion, self.read_request)


class NvlinkLink(
    _Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="nvlink"
):
    """NVLink, `links` of them side by side."""

    generation: Literal[1, 2, 3, 4, 5]
    links: Annotated[int, Meta(ge=1, le=72)]
    payload_bytes: Payload = 256
    read_overhead_flits: Annotated[float, Meta(ge=0, le=16)] | None = None
    write_overhead_flits: Annotated[float, Meta(ge=0, le=16)] | None = None

    @property
    def line_rate(self) -> float:
        return wire.nvlink_line_rate(self.generation, self.links)

    @property
    def label(self) -> str:
        return f"NVLink {self.generation} x{self.links}"

    def overhead_flits(self, flow: Flow) -> float:
        """Header flits a packet: one, and from generation 4 one more for the requests of the other way
        [nccl#1397].
        """
        given = self.read_overhead_flits if flow == "read" else self.write_overhead_flits
        return given if given is not None else (1.0 if self.generation <= 3 else 2.0)

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        return wire.nvlink_bytes(sizes, self.payload_bytes, self.overhead_flits(flow))


class C2cLink(_Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="c2c"):
    """NVLink-C2C between a Grace processor and a GPU; `bandwidth_bytes_per_s` where the port is shared or
    narrower.
    """

    generation: Literal[1] = 1
    bandwidth_bytes_per_s: Rate = wire.C2C_LINE_BYTES_PER_S
    payload_bytes: Payload = 256
    overhead_flits: Annotated[float, Meta(ge=0, le=16)] = 2.0

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s

    @property
    def label(self) -> str:
        return "NVLink-C2C"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        return wire.nvlink_bytes(sizes, self.payload_bytes, self.overhead_flits)


class FabricLink(
    _Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="infinity-fabric"
):
    """AMD Infinity Fabric (xGMI): lines of 64 bytes, each with what the fabric adds to it."""

    bandwidth_bytes_per_s: Rate
    payload_bytes: Payload = 64
    read_overhead_bytes: Annotated[int, Meta(ge=0, le=256)] = 16
    write_overhead_bytes: Annotated[int, Meta(ge=0, le=256)] = 24

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s

    @property
    def label(self) -> str:
        return "Infinity Fabric"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        cost = self.read_overhead_bytes if flow == "read" else self.write_overhead_bytes
        return wire.fabric_bytes(sizes, self.payload_bytes, cost)


class SocketLink(
    _Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="socket"
):
    """The link between two processors (QPI, UPI, X-bus, HyperTransport); `efficiency` is the share that
    copies reach.
    """

    bandwidth_bytes_per_s: Rate
    efficiency: Factor = 1.0

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s * self.efficiency

    @property
    def label(self) -> str:
        return self.title or "socket link"


class MemoryLink(
    _Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="memory"
):
    """A processor's own bus to its memory. It is as fast as the memory, which holds the rate."""

    @property
    def line_rate(self) -> float:
        return float("inf")

    @property
    def label(self) -> str:
        return "memory"

    def bandwidth(self, flow: Flow) -> float:
        return float("inf")


Link = PcieLink | NvlinkLink | C2cLink | FabricLink | SocketLink | MemoryLink
