"""The results of `nodes` and `price` as dictionaries, ready for JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.node import Node, catalogue_names, load_node
from busfare.node.gpus import gpu_names, gpus
from busfare.node.link import Link

__all__ = ["catalogue_result", "found_result", "node_result"]


def catalogue_result() -> dict[str, Any]:
    """Every node of the catalogue."""
    return {
        "schema": "busfare.nodes/1",
        "nodes": [node_result(load_node(name)) for name in catalogue_names()],
        "gpus_by_name": len(gpu_names()),
    }


def found_result(words: str) -> dict[str, Any]:
    """The catalogue's nodes, and the GPUs by name, that have every one of `words`. Raises InputError where none has."""
    wanted = words.lower().split()
    nodes = [load_node(name) for name in catalogue_names()]
    sheets = [gpus()[name] for name in gpu_names() if name not in catalogue_names()]
    found = [
        n for n in nodes if all(word in f"{n.name} {n.title} {n.gpu(0).title}".lower() for word in wanted)
    ]
    known = [g for g in sheets if all(word in f"{g.name} {g.title} {g.called}".lower() for word in wanted)]
    if not found and not known:
        raise InputError(f"nodes {words[:80]!r}: no node and no GPU has that in its name; try a part of it")
    return {
        "schema": "busfare.nodes/1",
        "nodes": [node_result(node) for node in found],
        "gpus": [msgspec.to_builtins(gpu) for gpu in known],
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
