"""The wires between components: each kind knows its line rate and the bytes that a copy puts on it, protocol by protocol.

Rates are bytes per second and direction; results have the shape of `sizes`, a float64 array. 'Read' is a copy for which
the GPU sends requests and data comes back (host to device); 'write' one for which the GPU sends the data. Sources: [A19]
the AHEAD paper; [pcie-model] the byte counts of pcie-bench/pcie-model; [nccl#1397] and [WikiChip] for NVLink.
`docs/models.md` tells what each formula leaves out.
"""

import re
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from busfare.errors import InputError
from busfare.nodes.component import Factor, FloatArray, Name, Rate, Sourced, Text

#: `read`: the GPU asks and data comes back; `write`: the GPU sends it.
Flow = Literal["read", "write"]
Payload = Annotated[int, Meta(ge=16, le=4096)]
Overhead = Annotated[int, Meta(ge=0, le=256)]
Flits = Annotated[float, Meta(ge=0, le=16)]
Lanes = Literal[1, 2, 4, 8, 12, 16, 32]
#: Of PCI Express.
Generation = Literal[1, 2, 3, 4, 5, 6]


class PcieGeneration(NamedTuple):
    """What a generation of PCI Express puts on each lane and around each packet, and sizes that hosts of its days show.

    `bits_per_s` a lane, of which the share `encoding` carries packets [A19 table II, §IV-A; PCI-SIG]. `frame_bytes` around
    each packet's header and payload: framing 2, sequence number 2, LCRC 4 [pcie-model]. `request_bytes`: data-link packets
    of 8 that share the wire with the completions of one read request; it is acknowledged, and its header credit given back,
    which generation 4's scaled flow control makes rare. `skips`: the share of ordered sets that keep the clocks together,
    4 bytes in 1538 [pcie-model]. From generation 6 on flits of 256 bytes, 236 of them of packets, carry all of these.

    Chipsets up to generation 2 answer in cache lines (64 bytes, the smallest read-completion boundary) to requests of 512;
    later ones merge lines into the 128 bytes that NVIDIA's memory system moves at a time until Ada, and the 256 of Hopper
    and after.
    """

    bits_per_s: float
    encoding: float
    frame_bytes: int
    request_bytes: int
    skips: float
    payload_bytes: int
    completion_bytes: int
    read_request_bytes: int


PCIE = {
    1: PcieGeneration(2.5e9, 8 / 10, 8, 16, 4 / 1538, 128, 64, 512),
    2: PcieGeneration(5e9, 8 / 10, 8, 16, 4 / 1538, 128, 64, 512),
    3: PcieGeneration(8e9, 128 / 130, 8, 16, 4 / 1538, 128, 128, 128),
    4: PcieGeneration(16e9, 128 / 130, 8, 8, 4 / 1538, 128, 128, 128),
    5: PcieGeneration(32e9, 128 / 130, 8, 8, 4 / 1538, 256, 256, 256),
    6: PcieGeneration(64e9, 236 / 256, 0, 0, 0.0, 256, 256, 256),
}
#: A memory write or read request with a 64-bit address, four words; a completion, three [pcie-model].
REQUEST_HEADER_BYTES, COMPLETION_HEADER_BYTES = 16, 12
#: Bytes per second, link and direction, by NVLink generation [WikiChip; NVIDIA/nccl#1397].
NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
#: An NVLink flit: 128 bits [WikiChip; A19 §IV-B].
NVLINK_FLIT_BYTES = 16
#: One NVLink-C2C port, per direction [NVIDIA GH200 data sheet: 900 GB/s both ways].
C2C_LINE_BYTES_PER_S = 450e9


def _packed(sizes: FloatArray, payload_bytes: int, overhead_bytes: float) -> FloatArray:
    """`sizes`, and `overhead_bytes` for each of the ⌈n / payload⌉ packets that they need."""
    return sizes + np.ceil(sizes / payload_bytes) * overhead_bytes


class _Wire(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
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


class PcieLink(_Wire, frozen=True, kw_only=True, tag="pcie"):
    """PCI Express. Bytes of data in a write, in an answer to a read, and of a read request; None: its generation's."""

    generation: Generation
    lanes: Lanes
    payload_bytes: Payload | None = None
    completion_bytes: Payload | None = None
    read_request_bytes: Payload | None = None

    @property
    def line_rate(self) -> float:
        """After encoding [A19 eq 3]."""
        return self.lanes * PCIE[self.generation].bits_per_s / 8 * PCIE[self.generation].encoding

    @property
    def label(self) -> str:
        return f"PCIe {self.generation} x{self.lanes}"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        """Posted writes, or completions and the data-link packets of their requests; the first request's flight is part of
        L+o, not of the wire. The forms of [A19 eq 4, 5] with the packet costs of [pcie-model]: 24 bytes a write, 20 a read.
        """
        pcie = PCIE[self.generation]
        if flow == "write":
            payload, header = self.payload_bytes or pcie.payload_bytes, REQUEST_HEADER_BYTES
        else:
            payload, header = self.completion_bytes or pcie.completion_bytes, COMPLETION_HEADER_BYTES
        wire = _packed(sizes, payload, pcie.frame_bytes + header)
        if flow == "read":
            wire += np.ceil(sizes / (self.read_request_bytes or pcie.read_request_bytes)) * pcie.request_bytes
        return wire * (1 + pcie.skips)


class NvlinkLink(_Wire, frozen=True, kw_only=True, tag="nvlink"):
    """NVLink, `links` of them side by side. Header flits a packet: one [A19 eq 7], and from generation 4 one more, where
    address extension, byte enables or the opposite way's requests share the wire (an eighth of the data [nccl#1397]).
    """

    generation: Literal[1, 2, 3, 4, 5]
    links: Annotated[int, Meta(ge=1, le=72)]
    payload_bytes: Payload = 256
    read_overhead_flits: Flits | None = None
    write_overhead_flits: Flits | None = None

    @property
    def line_rate(self) -> float:
        """[A19 eq 8]"""
        return self.links * NVLINK_BYTES_PER_S[self.generation]

    @property
    def label(self) -> str:
        return f"NVLink {self.generation} x{self.links}"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        given = self.read_overhead_flits if flow == "read" else self.write_overhead_flits
        flits = given if given is not None else (1.0 if self.generation <= 3 else 2.0)
        return _packed(sizes, self.payload_bytes, flits * NVLINK_FLIT_BYTES)


class _Rated(_Wire, frozen=True, kw_only=True):
    """A link whose rate is given."""

    bandwidth_bytes_per_s: Rate

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s


class C2cLink(_Rated, frozen=True, kw_only=True, tag="c2c"):
    """NVLink-C2C between Grace and a GPU, counted as NVLink; give `bandwidth_bytes_per_s` of a shared or narrower port."""

    generation: Literal[1] = 1
    bandwidth_bytes_per_s: Rate = C2C_LINE_BYTES_PER_S
    payload_bytes: Payload = 256
    overhead_flits: Flits = 2.0

    label: ClassVar[str] = "NVLink-C2C"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        return _packed(sizes, self.payload_bytes, self.overhead_flits * NVLINK_FLIT_BYTES)


class FabricLink(_Rated, frozen=True, kw_only=True, tag="infinity-fabric"):
    """AMD Infinity Fabric (xGMI): lines of 64 bytes, each with what the fabric adds to it."""

    payload_bytes: Payload = 64
    read_overhead_bytes: Overhead = 16
    write_overhead_bytes: Overhead = 24

    label: ClassVar[str] = "Infinity Fabric"

    def wire_bytes(self, sizes: FloatArray, flow: Flow) -> FloatArray:
        overhead = self.read_overhead_bytes if flow == "read" else self.write_overhead_bytes
        return _packed(sizes, self.payload_bytes, overhead)


class SocketLink(_Rated, frozen=True, kw_only=True, tag="socket"):
    """The link between two processors (QPI, UPI, X-bus, HyperTransport); `efficiency` is the share that copies reach."""

    efficiency: Factor = 1.0

    @property
    def line_rate(self) -> float:
        return self.bandwidth_bytes_per_s * self.efficiency

    @property
    def label(self) -> str:
        return self.title or "socket link"


class MemoryLink(_Wire, frozen=True, kw_only=True, tag="memory"):
    """A processor's own bus to its memory. It is as fast as the memory, which holds the rate."""

    label: ClassVar[str] = "memory"
    line_rate: ClassVar[float] = float("inf")

    def bandwidth(self, flow: Flow) -> float:
        return float("inf")


Link = PcieLink | NvlinkLink | C2cLink | FabricLink | SocketLink | MemoryLink

#: Of a link in short, the numbers that there are.
NUMBERS = {
    "pcie": "generations 1 to 6 with 1, 2, 4, 8, 12, 16 or 32 lanes, as in pcie:5x16",
    "nvlink": "generations 1 to 5 with 1 to 72 links, as in nvlink:4x18",
    "c2c": "generation 1, as in c2c:1",
}
#: A link in short.
FORMS = "pcie:GENERATIONxLANES (x16 where it is left out), nvlink:GENERATIONxLINKS, c2c:1"


def link_in_short(text: str) -> Link | None:
    """The link that `text` (`pcie:4x16`) names, from `cpu0` to `gpu0`; None where it is not meant so. Raises InputError with
    the forms, or the numbers that there are.
    """
    meant = re.match(r"(pcie|nvlink|c2c):(.*)$", text, re.IGNORECASE | re.DOTALL)
    if meant is None:
        return None
    numbers = re.fullmatch(r"(\d{1,3})(?:[xX](\d{1,3}))?", meant[2])
    kind = meant[1].lower()
    if numbers is None or (kind == "c2c" and numbers[2]):
        raise InputError(f"link {text[:80]!r}: write one of {FORMS}")
    widths = {"pcie": {"lanes": int(numbers[2] or 16)}, "nvlink": {"links": int(numbers[2] or 1)}, "c2c": {}}
    table = {"kind": kind, "between": ["cpu0", "gpu0"], "generation": int(numbers[1]), **widths[kind]}
    try:
        link: Link = msgspec.convert(table, Link)
    except msgspec.ValidationError as error:
        wrong = re.search(r"\$\.(\w+)", str(error))
        what = f"no such {wrong[1]}" if wrong else "no such link"
        raise InputError(f"link {text!r}: {what}; {NUMBERS[kind]}") from None
    return link
