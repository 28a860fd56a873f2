"""What the source papers publish, from the inputs that they give: predicted | published | error.

Run `python validation/papers.py`. Says plainly what cannot be recomputed, and why. Goals are of what must follow from a
paper's own formulas.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from claims import goal, judge, table

from busfare.cost import model
from busfare.cost.copies import effective_bytes
from busfare.cost.models import copy_operations
from busfare.nodes import Flow, Node, load_node
from busfare.nodes.link import PCIE

MB = 1 << 20
FLOWS: dict[str, Flow] = {"h2d": "read", "d2h": "write"}
#: W14 table I: L+o and G of its GTX Titan.
W14_COPY = {"h2d": (9.420e-6, 8.318392e-11), "d2h": (9.023e-6, 7.924734e-11)}
A19_LANES = {1: 0.25, 2: 0.5, 3: 1.0, 4: 2.0}
NOT_REPRODUCED = """Not reproduced, for want of inputs:
  W14 figures 5 and 6: the measured curves are drawings; only the errors of the fit are in the text
  W14 figures 8 to 10: the kernel times of state and buoydiff are not given
  A19 tables III and IV, figures 9 to 11: traces and L+o are not in the paper"""
#: What is compared, predicted, published, its unit, and by how many percent it may be off (None: it is measured there).
Line = tuple[str, float, float, str, float | None]


def main() -> None:
    wrong = 0
    for head, lines in (
        ("W14 table I on its GTX Titan, our data-sheet G against the measured G", _w14()),
        ("A19 table II and text", _a19()),
        ("F12 and S16, data sheet against their large pinned copies", _large_copies()),
    ):
        compared = [(*line[:4], 100 * (line[1] / line[2] - 1), line[4]) for line in lines]
        wrong += sum(most is not None and abs(error) > most for *_, error, most in compared)
        table(f"{head}|predicted:.4g|published:.4g|unit|error %:+.2f|at most:g", compared)
    goal("figures that must follow, and do not", wrong, most=0, form="d")
    print(NOT_REPRODUCED)


def _measured_gap(node: Node, direction: str) -> float:
    curve = node.curve(direction, "pinned")
    assert curve is not None
    return curve.long_gap_per_byte_s


def _w14() -> Iterator[Line]:
    titan, size = load_node("gtx-titan"), 16 * MB
    for direction, (start, gap) in W14_COPY.items():
        sheet = 1 / titan.host_path(0).bandwidth(FLOWS[direction])
        yield (
            f"G {direction}, PCIe 3.0 x16",
            sheet * 1e12,
            _measured_gap(titan, direction) * 1e12,
            "ps/B",
            None,
        )
        seconds = model("loggp").seconds(copy_operations(direction, "pinned", [size]), titan)[0]
        by_hand = start + size * gap
        yield f"T = (L+o) + kG {direction}, 16 MB, one stream", seconds * 1e3, by_hand * 1e3, "ms", 1e-6


def _a19() -> Iterator[Line]:
    for generation, published in A19_LANES.items():
        lane = PCIE[generation]
        rate = lane.bits_per_s / 8 * lane.encoding / 1e9
        yield f"lane bandwidth, PCIe {generation}", rate, published, "GB/s", 2.0
    yield "encoding efficiency, generations 3 and 4", PCIE[3].encoding * 100, 98.4, "%", 0.2
    summit, titan = (load_node(name).host_path(0) for name in ("summit", "titan"))
    size = np.array([512.0 * MB])
    efficiency = 100 * float((size / effective_bytes(size, summit.links[-1], "h2d"))[0])
    yield "NVLink 2 efficiency of a large copy ('almost 95 %')", efficiency, 95.0, "%", 1.5
    gain = 100 * (summit.peak() / titan.peak() - 1)
    yield "bandwidth from Titan to Summit ('525 % increase')", gain, 525.0, "%", 0.1


def _large_copies() -> Iterator[Line]:
    for node in map(load_node, ("c2050", "gt-740")):
        for direction, flow in FLOWS.items():
            rate = node.host_path(0).bandwidth(flow) / 1e9
            yield (
                f"{node.name} {direction}, PCIe 2.0 x16",
                rate,
                1e-9 / _measured_gap(node, direction),
                "GB/s",
                None,
            )


if __name__ == "__main__":
    judge(main)
