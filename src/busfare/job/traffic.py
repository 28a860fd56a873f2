"""What a trace's copies put on each link of its node's graph."""

from __future__ import annotations

import msgspec
import polars as pl

from busfare.cost.batch import batches
from busfare.cost.routes import flow_of, path_of, stays_on_device
from busfare.node import Link, MemoryLink, Node, Path

__all__ = ["LinkTraffic", "link_traffic"]


class LinkTraffic(msgspec.Struct, frozen=True):
    """One link: `first` and `second` are the components it joins; `forward` is from first to second.

    Bytes are the data's own; wire bytes add headers and requests, by the wire's data sheet.
    """

    node: str
    number: int  # its place in the node's list of links
    first: str
    second: str
    label: str
    line_bytes_per_s: float | None  # None: as fast as the memory behind it
    copies: int = 0
    forward_bytes: int = 0
    back_bytes: int = 0
    forward_wire_bytes: int = 0
    back_wire_bytes: int = 0


def link_traffic(operations: pl.DataFrame, node: Node | None) -> tuple[list[LinkTraffic], int]:
    """Traffic of each link that copies and migrations crossed, and the bytes whose path is not known."""
    moved = operations.filter(
        pl.col("kind").is_in(["copy", "migration"]), pl.col("direction").is_in(["h2d", "d2h", "p2p"])
    )
    total = int(moved["bytes"].sum())
    if node is None:
        return [], total
    links: dict[int, LinkTraffic] = {}
    number_of = {id(link): number for number, link in enumerate(node.links)}
    routed = 0
    for batch in batches(moved):
        size = int(batch.sizes.sum())
        if stays_on_device(batch, node):  # CPU and GPU share one memory: nothing crosses a link
            routed += size
            continue
        path = path_of(batch, node)
        if path is None:
            continue
        routed += size
        flow = flow_of(batch)
        for link, forward in _walked(path, node, batch.direction, batch.device):
            wire = round(float(link.wire_bytes(batch.sizes, flow).sum()))
            held = links.get(number_of[id(link)]) or _fresh(link, number_of[id(link)], node)
            links[held.number] = crossed(held, len(batch.rows), size, wire, forward)
    return [links[number] for number in sorted(links)], total - routed


def crossed(link: LinkTraffic, copies: int, size: int, wire: int, forward: bool) -> LinkTraffic:
    """`link` with `copies` more, of `size` bytes together."""
    return msgspec.structs.replace(
        link,
        copies=link.copies + copies,
        forward_bytes=link.forward_bytes + size * forward,
        back_bytes=link.back_bytes + size * (not forward),
        forward_wire_bytes=link.forward_wire_bytes + wire * forward,
        back_wire_bytes=link.back_wire_bytes + wire * (not forward),
    )


def _fresh(link: Link, number: int, node: Node) -> LinkTraffic:
    rate = None if isinstance(link, MemoryLink) else link.line_rate
    return LinkTraffic(node.name, number, *link.between, link.label, rate)


def _walked(path: Path, node: Node, direction: str, device: int) -> list[tuple[Link, bool]]:
    """The links in the order in which the data crosses them, and whether each is crossed from first to second."""
    links = path.links
    if direction == "d2h":
        links = links[::-1]
    # A host path starts at the memory, a path between GPUs at the first of them.
    here = path.memory.name if direction == "h2d" and path.memory else node.gpu(device).name
    walked = []
    for link in links:
        forward = link.between[0] == here
        here = link.between[1] if forward else link.between[0]
        walked.append((link, forward))
    return walked
