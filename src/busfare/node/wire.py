"""The bytes that a copy puts on the wire, protocol by protocol, and the rate at which a wire carries them.

FloatArray are bytes, rates bytes per second per direction. `sizes` is a float64 array; results have its
shape. 'Read' is a copy for which the GPU sends requests and data comes back (host to device); 'write' is one
for which the GPU sends the data (device to host, and to a peer).

Sources: [A19] the AHEAD paper; [pcie-model] the published byte counts of pcie-bench/pcie-model; [nccl#1397]
and [WikiChip] for NVLink. `docs/models.md` tells what each formula leaves out.
"""

from __future__ import annotations

import numpy as np

from busfare.node.arrays import FloatArray

__all__ = [
    "C2C_LINE_BYTES_PER_S",
    "NVLINK_BYTES_PER_S",
    "PCIE_TRANSFERS_PER_S",
    "fabric_bytes",
    "nvlink_bytes",
    "nvlink_line_rate",
    "packets",
    "pcie_encoding",
    "pcie_line_rate",
    "pcie_read_bytes",
    "pcie_write_bytes",
]

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
