"""A link in short, `pcie:4x16`, as a node: one GPU on that link, and a host that nothing else is known of."""

from __future__ import annotations

import re

import msgspec

from busfare.errors import InputError
from busfare.node.component import Cpu, Gpu, Memory
from busfare.node.graph import Node
from busfare.node.link import C2cLink, Link, MemoryLink, NvlinkLink, PcieLink
from busfare.node.source import Source

__all__ = ["FORMS", "is_short", "node_of_short"]

FORMS = "pcie:GENERATIONxLANES (x16 where it is left out), nvlink:GENERATIONxLINKS, c2c:1"
#: How many lanes or links there are where nobody says.
WIDTH = {"pcie": 16, "nvlink": 1, "c2c": 1}
_SHORT = re.compile(r"^(pcie|nvlink|c2c):(.*)$", re.IGNORECASE | re.DOTALL)
_SOURCE = Source("data-sheet", "the protocol itself: line rate and packet sizes of the generation")


def is_short(text: str) -> bool:
    """Whether `text` is meant as a link in short."""
    return _SHORT.match(text) is not None


def node_of_short(text: str) -> Node:
    """The node of a link in short. Raises InputError with the forms that are known."""
    found = _SHORT.match(text)
    numbers = re.fullmatch(r"(\d{1,3})(?:[xX](\d{1,3}))?", found[2]) if found else None
    if found is None or numbers is None:
        raise InputError(f"link {text[:80]!r}: write one of {FORMS}")
    kind, generation = found[1].lower(), int(numbers[1])
    width = int(numbers[2] or WIDTH[kind])
    table = {"kind": kind, "between": ("cpu0", "gpu0"), "generation": generation, "source": "protocol"}
    if kind == "c2c":
        if numbers[2]:
            raise InputError(f"link {text!r}: NVLink-C2C has no width; write c2c:1")
    else:
        table["lanes" if kind == "pcie" else "links"] = width
    kinds: dict[str, type[PcieLink | NvlinkLink | C2cLink]] = {
        "pcie": PcieLink,
        "nvlink": NvlinkLink,
        "c2c": C2cLink,
    }
    try:
        wire: Link = msgspec.convert(table, kinds[kind])
    except msgspec.ValidationError as error:
        raise InputError(f"link {text!r}: {error}; the forms are {FORMS}") from None
    return Node(
        name=f"{kind}:{generation}" + (f"x{width}" if kind != "c2c" else ""),
        title=f"one GPU on {wire.label}",
        components=(Memory(name="memory0"), Cpu(name="cpu0"), Gpu(name="gpu0")),
        links=(MemoryLink(between=("memory0", "cpu0")), wire),
        sources={"protocol": _SOURCE},
    )
