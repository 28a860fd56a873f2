"""The wires between components: each kind knows its line rate and the bytes that a copy puts on it, protocol by protocol.

Rates are bytes per second and direction; results have the shape of `sizes`, a float64 array. 'Read' is a copy for which
the GPU sends requests and data comes back (host to device); 'write' one for which the GPU sends the data. Sources: [A19]
the AHEAD paper; [pcie-model] the byte counts of pcie-bench/pcie-model; [nccl#1397] and [WikiChip] for NVLink.
`docs/models.md` tells what each formula leaves out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from busfare.node.arrays import FloatArray
from busfare.node.source import Factor, Name, Rate, Sourced, Text

__all__ = ["C2cLink", "FabricLink", "Flow", "Link", "MemoryLink", "NvlinkLink", "PcieLink", "SocketLink"]

#: Transfers per second and lane, one bit each, by PCIe generation [A19 table II; PCI-SIG].
PCIE_TRANSFERS_PER_S = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
#: Bytes per second, link and direction, by NVLink generation [WikiChip; NVIDIA/nccl#1397].
NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
#: One NVLink-C2C port, per direction [NVIDIA GH200 data sheet: 900 GB/s both ways].
C2C_LINE_BYTES_PER_S = 450e9

#: Framing 2, sequence number 2, LCRC 4: what each PCIe packet carries besides its header [pcie-model].
TLP_FRAME_BYTES = 8
#: A memory write or read request with a 64-bit address: four words [pcie-model].
REQUEST_HEADER_BYTES = 16
#: A completion: three words [pcie-model].
COMPLETION_HEADER_BYTES = 12
#: An acknowledgement or a flow-control update, with its framing [pcie-model].
DLLP_BYTES = 8
#: A skip ordered set of 4 bytes in 1538 keeps the clocks together [pcie-model].
SKIP_SHARE = 4 / 1538
#: A PCIe 6 flit has 236 bytes of packets in 256 [PCI-SIG].
PCIE6_FLIT_SHARE = 236 / 256
#: An NVLink flit: 128 bits [WikiChip; A19 §IV-B].
NVLINK_FLIT_BYTES = 16

#: `read`: the GPU asks and data comes back; `write`: the GPU sends it.
Flow = Literal["read", "write"]
Payload = Annotated[int, Meta(ge=16, le=4096)]
Lanes = Literal[1, 2, 4, 8, 12, 16, 32]
#: Of PCI Express.
Generation = Literal[1, 2, 3, 4, 5, 6]


def packets(sizes: FloatArray, payload_bytes: int) -> FloatArray:
    """⌈n / payload⌉, the number of packets that `sizes` bytes need."""
    return np.ceil(sizes / payload_bytes)


def pcie_encoding(generation: int) -> float:
    """The share of raw bits that carry packets: 8b/10b, 128b/130b, or flits [A19 §IV-A; PCI-SIG]."""
    if generation <= 2:
        return 8 / 10
    return 128 / 130 if generation <= 5 else PCIE6_FLIT_SHARE


def pcie_line_rate(generation: int, lanes: int) -> float:
    """Bytes per second and direction, after encoding [A19 eq 3]."""
    return lanes * PCIE_TRANSFERS_PER_S[generation] / 8 * pcie_encoding(generation)


def pcie_frame_bytes(generation: int) -> int:
    """Bytes around each packet's header and payload; none from generation 6, where the flit carries them."""
    return TLP_FRAME_BYTES if generation <= 5 else 0


def pcie_request_dllp_bytes(generation: int) -> int:
    """Data-link bytes that share the wire with the completions of one read request, sent for the request
    itself.

    Each request is acknowledged, and its header credit given back. Generation 4's scaled flow control makes
    the credits plentiful, so that updates are rare from there on; flits carry both from generation 6.
    """
    if generation >= 6:
        return 0
    return 2 * DLLP_BYTES if generation <= 3 else DLLP_BYTES


def pcie_skip_share(generation: int) -> float:
    """The share of the wire that skip ordered sets take [pcie-model]; flits count them in their own share."""
    return SKIP_SHARE if generation <= 5 else 0.0


def pcie_write_bytes(sizes: FloatArray, generation: int, payload_bytes: int) -> FloatArray:
    """Bytes on the wire for posted writes of `sizes` bytes: a frame and a four-word header a packet.

    The form of [A19 eq 5] with the packet cost of [pcie-model] (24 bytes) in place of 8 or 12.
    """
    cost = pcie_frame_bytes(generation) + REQUEST_HEADER_BYTES
    return (sizes + packets(sizes, payload_bytes) * cost) * (1 + pcie_skip_share(generation))


def pcie_read_bytes(
    sizes: FloatArray, generation: int, completion_bytes: int, read_request_bytes: int
) -> FloatArray:
    """Bytes on the wire towards the reader for `sizes` bytes: completions, and the data-link packets of its
    requests.

    The form of [A19 eq 4] with the packet cost of [pcie-model] (20 bytes) and the data-link share; the first
    request's flight is part of L+o, not of the wire.
    """
    completions = packets(sizes, completion_bytes) * (pcie_frame_bytes(generation) + COMPLETION_HEADER_BYTES)
    link_layer = packets(sizes, read_request_bytes) * pcie_request_dllp_bytes(generation)
    return (sizes + completions + link_layer) * (1 + pcie_skip_share(generation))


def nvlink_line_rate(generation: int, links: int) -> float:
    """Bytes per second and direction of `links` links [A19 eq 8]."""
    return links * NVLINK_BYTES_PER_S[generation]


def nvlink_bytes(sizes: FloatArray, payload_bytes: int, overhead_flits: float) -> FloatArray:
    """Bytes on the wire for `sizes` bytes in packets of `payload_bytes`, each with `overhead_flits` of 16
    bytes.

    [A19 eq 7] with its one header flit; two flits where address extension, byte enables or the opposite way's
    requests share the wire (an eighth of the data [nccl#1397]). NVLink-C2C is counted the same way.
    """
    return sizes + packets(sizes, payload_bytes) * (overhead_flits * NVLINK_FLIT_BYTES)


def fabric_bytes(sizes: FloatArray, payload_bytes: int, overhead_bytes: int) -> FloatArray:
    """Bytes on the wire for `sizes` bytes in packets of `payload_bytes` with `overhead_bytes` each."""
    return sizes + packets(sizes, payload_bytes) * overhead_bytes


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
        return pcie_line_rate(self.generation, self.lanes)

    @property
    def label(self) -> str:
        return f"PCIe {self.generation} x{self.lanes}"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        if flow == "write":
            return pcie_write_bytes(sizes, self.generation, self.payload)
        return pcie_read_bytes(sizes, self.generation, self.completion, self.read_request)


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
        return nvlink_line_rate(self.generation, self.links)

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
        return nvlink_bytes(sizes, self.payload_bytes, self.overhead_flits(flow))


class C2cLink(_Wire, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="c2c"):
    """NVLink-C2C between a Grace processor and a GPU; `bandwidth_bytes_per_s` where the port is shared or
    narrower.
    """

    generation: Literal[1] = 1
    bandwidth_bytes_per_s: Rate = C2C_LINE_BYTES_PER_S
    payload_bytes: Payload = 256
    overhead_flits: Annotated[float, Meta(ge=0, le=16)] = 2.0

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s

    @property
    def label(self) -> str:
        return "NVLink-C2C"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        return nvlink_bytes(sizes, self.payload_bytes, self.overhead_flits)


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
        return fabric_bytes(sizes, self.payload_bytes, cost)


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
