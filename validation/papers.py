"""What the source papers publish, from the inputs that they give: predicted | published | error.

Run `python validation/papers.py`. Says plainly what cannot be recomputed, and why. Exit status 1 where a
figure that must follow from a paper's own formulas does not.
"""

from __future__ import annotations

import sys

import numpy as np

from busfare.cost import model
from busfare.cost.baselines import effective_bytes
from busfare.cost.price import one_copy
from busfare.node import Flow, Link, Node, load_node
from busfare.node import link as wire

MB = 1 << 20
WAYS: tuple[tuple[str, Flow], ...] = (("h2d", "read"), ("d2h", "write"))
FAR = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20, 512 << 20]


def main() -> int:
    sound = _w14_tables()
    _w14_streams()
    sound &= _a19_tables()
    _a19_curves()
    _other_papers()
    print("Not reproduced, for want of inputs:")
    print(
        "  W14 figures 5 and 6: the measured curves are drawings; only the errors of the fit are in the text"
    )
    print("  W14 figures 8 to 10: the kernel times of state and buoydiff are not given")
    print("  A19 tables III and IV, figures 9 to 11: traces and L+o are not in the paper")
    return 0 if sound else 1


def _line(what: str, predicted: float, published: float, unit: str = "", most: float | None = None) -> bool:
    error = 100 * (predicted / published - 1)
    good = most is None or abs(error) <= most
    mark = "" if good else f"  MISSED (at most {most} %)"
    print(f"  {what:58} {predicted:10.4g} | {published:10.4g} {unit:5} | {error:+6.2f} %{mark}")
    return good


def _head(what: str) -> None:
    print(f"{what:63} predicted |  published       | error")


def _w14_tables() -> bool:
    _head("W14 table I on its GTX Titan: our data-sheet G against the measured G")
    titan = load_node("gtx-titan")
    sound = True
    for way, flow in WAYS:
        measured = titan.curve(way, "pinned")
        assert measured is not None
        gap = 1 / titan.host_path(0).bandwidth(flow)
        _line(f"G {way}, PCIe 3.0 x16", gap * 1e12, measured.long_gap_per_byte_s * 1e12, "ps/B")
        size = 16 * MB
        seconds = model("loggp").seconds(one_copy(way, "pinned", [size]), titan)[0]
        by_hand = {"h2d": 9.420e-6 + size * 8.318392e-11, "d2h": 9.023e-6 + size * 7.924734e-11}[way]
        sound &= _line(f"T = (L+o) + kG {way}, 16 MB, one stream", seconds * 1e3, by_hand * 1e3, "ms", 1e-6)
    return sound


def _w14_streams() -> None:
    print("W14 figures 5 and 6: 16 MB in n streams, T = (L+o) + kG + g(n-1), ms")
    titan = load_node("gtx-titan")
    for way in ("h2d", "d2h"):
        cells = []
        for streams in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            operations = one_copy(way, "pinned", [16 * MB]).with_columns(copy_count=streams)
            cells.append(f"{model('loggp').seconds(operations, titan)[0] * 1e3:.3f}")
        print(f"  {way} n = 1, 2, 4 … 256: {' '.join(cells)}")


def _a19_tables() -> bool:
    _head("A19 table II and text")
    sound = True
    for generation, published in ((1, 0.25), (2, 0.5), (3, 1.0), (4, 2.0)):
        rate = wire.pcie_line_rate(generation, 1) / 1e9
        sound &= _line(f"lane bandwidth, PCIe {generation}", rate, published, "GB/s", 2.0)
    sound &= _line("encoding efficiency, generations 3 and 4", wire.pcie_encoding(3) * 100, 98.4, "%", 0.2)
    nvlink = _wire_of(load_node("summit"))
    size = np.array([512.0 * MB])
    efficiency = 100 * size / effective_bytes(size, nvlink, "h2d")
    sound &= _line(
        "NVLink 2 efficiency of a large copy ('almost 95 %')", float(efficiency[0]), 95.0, "%", 1.5
    )
    gain = 100 * (load_node("summit").host_path(0).peak() / load_node("titan").host_path(0).peak() - 1)
    sound &= _line("bandwidth from Titan to Summit ('525 % increase')", gain, 525.0, "%", 0.1)
    return sound


def _wire_of(node: Node) -> Link:
    return node.host_path(0).links[-1]


def _a19_curves() -> None:
    print("A19 eq 2 with 4 to 7: effective bandwidth, GB/s, beside ours (the paper prints no numbers)")
    head = " ".join(f"{size >> 10:>7}K" if size < MB else f"{size >> 20:>7}M" for size in FAR)
    print(f"  {'bytes':34} {head}")
    sizes = np.array(FAR, dtype=np.float64)
    for name, what in (("titan", "PCIe 2 x16"), ("gtx-titan", "PCIe 3 x16"), ("summit", "NVLink 2 x2")):
        node = load_node(name)
        link = _wire_of(node)
        for way, flow in WAYS:
            theirs = sizes * link.line_rate / effective_bytes(sizes, link, way) / 1e9
            ours = sizes / link.seconds(sizes, flow) / 1e9
            for who, curve in (("A19", theirs), ("ours", ours)):
                print(f"  {what + ' ' + way + ' ' + who:34} " + " ".join(f"{value:8.2f}" for value in curve))


def _other_papers() -> None:
    _head("F12 and S16: data sheet against their large pinned copies")
    for name in ("c2050", "gt-740"):
        node = load_node(name)
        for way, flow in WAYS:
            measured = node.curve(way, "pinned")
            assert measured is not None
            rate = node.host_path(0).bandwidth(flow) / 1e9
            _line(f"{name} {way}, PCIe 2.0 x16", rate, 1e-9 / measured.long_gap_per_byte_s, "GB/s")


if __name__ == "__main__":
    sys.exit(main())
