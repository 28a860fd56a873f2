"""Whether a node does what its data sheet promises: each link against what its wire can carry."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from busfare.measure.raw import Record
from busfare.measure.topology import link_of
from busfare.node import Curve, Node, PcieLink
from busfare.node.link import Flow

__all__ = ["Health", "health"]

#: Nine in ten published measurements lie within 8 % of the data-sheet model (validation/datasheet.py).
SOUND = 0.8
#: Half the lanes, or a generation lower, give half.
HALF = (0.4, 0.62)


@dataclass(frozen=True)
class Health:
    """A direction of a GPU's host link: bytes per second measured, and predicted from the data sheet."""

    gpu: int
    direction: str
    measured_bytes_per_s: float
    predicted_bytes_per_s: float
    verdict: str

    @property
    def sound(self) -> bool:
        """Whether the link does what it should."""
        return not self.verdict


def health(node: Node, record: Record) -> list[Health]:
    """Every measured pinned direction beside the data-sheet model of the link at its best."""
    found = []
    for curve in node.curves:
        if curve.memory != "pinned":
            continue
        gpu = curve.gpu or 0
        best = _at_its_best(node, record, gpu)
        flow: Flow = "read" if curve.direction == "h2d" else "write"
        predicted = best.host_path(gpu).bandwidth(flow)
        rate = 1 / curve.long_gap_per_byte_s
        verdict = _verdict(rate / predicted, curve, record)
        found.append(Health(gpu, curve.direction, rate, predicted, verdict))
    return found


def _at_its_best(node: Node, record: Record, gpu: int) -> Node:
    """`node` with the PCIe link of a GPU at the generation and width that both ends can have."""
    if record.virtual:
        return node
    best = link_of(record, gpu, most=True)
    if best is None:
        return node
    links = tuple(
        best if isinstance(link, PcieLink) and link.between == best.between else link for link in node.links
    )
    return dataclasses.replace(node, links=links)


def _verdict(share: float, curve: Curve, record: Record) -> str:
    """What is wrong, in one sentence; empty where nothing is."""
    gpu = curve.gpu or 0
    seen = {
        key: max((s[key] or 0 for s in record.states if s["gpu"] == gpu), default=0)
        for key in ("link_width", "link_width_most", "link_generation", "link_generation_most")
    }
    width, most_width, generation, most_generation = seen.values()
    if width and most_width and width < most_width:
        part = "half" if 2 * width == most_width else f"{width} of {most_width} lanes"
        return f"GPU {gpu}'s link runs at {part} width (x{width} of x{most_width}): reseat the card, or use another slot"
    if generation and most_generation and generation < most_generation:
        return f"GPU {gpu}'s link runs at generation {generation} of {most_generation}: see the slot's BIOS setting"
    if HALF[0] <= share <= HALF[1]:
        return f"GPU {gpu}'s link carries half of what it should, though it reports full width: look for what shares it"
    if share < SOUND:
        return f"GPU {gpu}'s link carries {share:.0%} of what it should"
    return ""
