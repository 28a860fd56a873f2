"""One word of the user's → a node: a catalogue name, a TOML file, or a link in short."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial

from busfare.errors import InputError
from busfare.node import catalogue
from busfare.node.file import MOST_BYTES, decode
from busfare.node.gpus import gpu_names, gpu_of_device_name, node_of_gpu
from busfare.node.graph import Node
from busfare.node.names import canonical, suggestions
from busfare.node.short import FORMS, is_short, node_of_short
from busfare.node.toml import read_text

__all__ = ["catalogue_names", "known_names", "load_node"]


def catalogue_names() -> list[str]:
    """The names of the catalogue's nodes, sorted."""
    return list(catalogue.names())


@cache
def known_names() -> Mapping[str, Callable[[], Node]]:
    """Every name that stands for a node, and what makes that node. Tables beside the catalogue add theirs here."""
    return {name: partial(_of_catalogue, name) for name in catalogue.names()}


def load_node(text: str) -> Node:
    """The node that `text` names: a known name or alias, a link in short (`pcie:4x16`), a TOML file at that path, or a GPU
    (`rtx-3060-laptop`).

    Raises InputError with the nearest names, or with the file, line, key and mend.
    """
    name, known = canonical(text), known_names()
    if name in known:
        return known[name]()
    if is_short(text.strip()):
        return node_of_short(text.strip())
    if text.endswith(".toml") or "/" in text:
        return _of_file(text)
    if (gpu := gpu_of_device_name(text)) is not None:
        return _of_catalogue(gpu.node) if gpu.node else node_of_gpu(gpu)
    near = suggestions(name, [*known, *gpu_names()])
    mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(catalogue.names())}"
    raise InputError(
        f"node {text[:80]!r}: not in the catalogue, no .toml file, no link in short ({FORMS}); {mend}"
    )


@lru_cache(maxsize=64)
def _of_catalogue(name: str) -> Node:
    return decode(catalogue.text_of(name), f"{name}.toml")


def _of_file(text: str) -> Node:
    return decode(read_text(text, "node file", MOST_BYTES), text)
