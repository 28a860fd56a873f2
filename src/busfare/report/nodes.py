"""The results of `nodes` and `price` as dictionaries, ready for JSON."""

from __future__ import annotations

from typing import Any

from busfare.node import Node, catalogue_names, load_node
from busfare.node.link import Link

__all__ = ["catalogue_result", "node_result"]


def catalogue_result() -> dict[str, Any]:
    """Every node of the catalogue."""
    return {
        "schema": "busfare.nodes/1",
        "nodes": [node_result(load_node(name)) for name in catalogue_names()],
    }


def node_result(node: Node) -> dict[str, Any]:
    """One node: its GPUs, the narrowest link to the host, and what large copies reach over it (bytes per second)."""
    path = node.host_path(0)
    return {
        "name": node.name,
        "title": node.title,
        "gpus": len(node.gpus()),
        "gpu": node.gpu(0).title,
        "host_link": _named(path.narrowest("read")),
        "h2d_bytes_per_second": path.bandwidth("read"),
        "d2h_bytes_per_second": path.bandwidth("write"),
        "measured": [f"{m.direction} {m.memory}" for m in node.measured],
    }


def _named(link: Link) -> str:
    parts = [str(link.__struct_config__.tag)]
    for attribute, text in (("generation", "{}"), ("lanes", "x{}"), ("links", "x{}")):
        value = getattr(link, attribute, None)
        if value is not None:
            parts.append(text.format(value))
    return " ".join(parts)
