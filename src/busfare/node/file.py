"""A node file: TOML text → a checked `Node`, or one line that says what is wrong, where, and the mend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import Any

import msgspec

from busfare.node.component import Component, Cpu, Gpu, Memory, Nic, Switch
from busfare.node.figures import Name, Tag, Text
from busfare.node.graph import Node
from busfare.node.link import C2cLink, FabricLink, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.node.measured import Cost, Measured, Piece, Row
from busfare.node.names import MOST_COMPONENTS, expand
from busfare.node.source import Source
from busfare.node.toml import WrongError, decoded, unknown_key

__all__ = ["MOST_BYTES", "decode"]

#: A node file is a page or two; a larger one is another kind of file.
MOST_BYTES = 1 << 20
MOST_LINKS = 4096
_Kinds = dict[str, type[msgspec.Struct]]
_COMPONENTS: _Kinds = {"cpu": Cpu, "memory": Memory, "switch": Switch, "gpu": Gpu, "nic": Nic}
_LINKS: _Kinds = {
    "pcie": PcieLink,
    "nvlink": NvlinkLink,
    "c2c": C2cLink,
    "infinity-fabric": FabricLink,
    "socket": SocketLink,
    "memory": MemoryLink,
}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The top of a node file."""

    name: Name
    component: tuple[Component, ...]
    link: tuple[Link, ...] = ()
    title: Text = ""
    description: Text = ""
    measured: tuple[Measured, ...] = ()
    cost: tuple[Cost, ...] = ()
    sources: dict[Tag, Source] = msgspec.field(default_factory=dict)


def decode(text: str, origin: str) -> Node:
    """The node that TOML `text` describes; `origin` names it in messages. Raises InputError, and nothing
    else.
    """
    return decoded(text, origin, _File, _build, _explain, MOST_BYTES)


def _explain(what: str, path: str, raw: dict[str, Any]) -> tuple[str, str] | None:
    """What node files have to say beyond the common messages: the keys and kinds that are known."""
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        return unknown_key(unknown[1], _fields(path, raw)), f"{path}.{unknown[1]}"
    tag = re.search(r"Invalid value '(.*)'", what)
    if tag and path.endswith(".kind") and ("component" in path or "link" in path):
        known = list(_LINKS if path.startswith("$.link") else _COMPONENTS)
        return f"{tag[1]!r} is no kind; the kinds are {', '.join(known)}", path
    return None


def _fields(path: str, raw: dict[str, Any]) -> list[str]:
    """The keys that the table at `path` may have."""
    if path.startswith("$.measured"):
        pieces = ".pieces" in path or ".faults" in path
        owner: type[msgspec.Struct] = Piece if pieces else Row if ".rows" in path else Measured
        return list(owner.__struct_fields__)
    if path.startswith("$.cost"):
        return list(Cost.__struct_fields__)
    if path.startswith("$.sources"):
        return list(Source.__struct_fields__)
    found = re.match(r"\$\.(component|link)\[(\d+)\]", path)
    if found is None:
        return list(_File.__struct_fields__)
    kind = raw[found[1]][int(found[2])].get("kind")
    kinds = _COMPONENTS if found[1] == "component" else _LINKS
    return ["kind", *kinds[kind].__struct_fields__]


def _build(file: _File) -> Node:
    components = list(_expanded_components(file))
    if not any(isinstance(c, Gpu) for c in components):
        raise WrongError("$.component", "no component of kind 'gpu'; a node needs one at least")
    links = _expanded_links(file, {c.name for c in components})
    _check_sources(file)
    _check_measured(file, sum(isinstance(c, Gpu) for c in components))
    node = Node(
        name=file.name,
        components=tuple(components),
        links=tuple(links),
        title=file.title,
        description=file.description,
        measured=tuple(file.measured),
        costs=tuple(file.cost),
        sources={str(tag): source for tag, source in file.sources.items()},
    )
    node.host_path(0)
    return node


def _expanded_components(file: _File) -> Iterator[Component]:
    seen: set[str] = set()
    for n, component in enumerate(file.component):
        for name in _names(component.name, f"$.component[{n}].name"):
            if name in seen:
                raise WrongError(
                    f"$.component[{n}].name", f"a second component called {name!r}; names are unique"
                )
            seen.add(name)
            if len(seen) > MOST_COMPONENTS:
                raise WrongError(f"$.component[{n}]", f"over the limit of {MOST_COMPONENTS} components")
            yield msgspec.structs.replace(component, name=name)


def _expanded_links(file: _File, known: set[str]) -> list[Link]:
    links: list[Link] = []
    for n, link in enumerate(file.link):
        path = f"$.link[{n}].between"
        for a, b in _pairs(link.between, path):
            for end in (a, b):
                if end not in known:
                    import difflib

                    near = difflib.get_close_matches(end, sorted(known), 1)
                    mend = f"did you mean {near[0]!r}?" if near else "add a [[component]] of that name"
                    raise WrongError(path, f"no component {end!r}; {mend}")
            if a == b:
                raise WrongError(path, f"{a!r} is linked to itself; a link joins two components")
            links.append(msgspec.structs.replace(link, between=(a, b)))
        if len(links) > MOST_LINKS:
            raise WrongError(path, f"over the limit of {MOST_LINKS} links")
    return links


def _pairs(between: tuple[str, str], path: str) -> list[tuple[str, str]]:
    """Every pair that `between` stands for; one range twice means each two of its members once."""
    left, right = between
    if left == right and "[" in left:
        return list(combinations(_names(left, path), 2))
    return list(product(_names(left, path), _names(right, path)))


def _names(name: str, path: str) -> list[str]:
    try:
        return expand(name)
    except ValueError as error:
        raise WrongError(path, str(error)) from None


def _check_sources(file: _File) -> None:
    groups = (
        ("component", file.component),
        ("link", file.link),
        ("measured", file.measured),
        ("cost", file.cost),
    )
    for group, tables in groups:
        for n, table in enumerate(tables):
            for tag in (table.source, *table.source_of.values()):
                if tag is not None and tag not in file.sources:
                    raise WrongError(
                        f"$.{group}[{n}].source", f"no [sources.{tag}]; add it, or correct the tag"
                    )
            for key in table.source_of:
                if key not in table.__struct_fields__:
                    raise WrongError(
                        f"$.{group}[{n}].source_of", f"{key!r} is no key of this table; correct it"
                    )


def _check_measured(file: _File, gpus: int) -> None:
    for n, measured in enumerate(file.measured):
        path = f"$.measured[{n}]"
        if measured.gpu is not None and measured.gpu >= gpus:
            raise WrongError(
                f"{path}.gpu", f"there is no GPU {measured.gpu}; ordinals run from 0 to {gpus - 1}"
            )
        if measured.peer is not None and measured.peer >= gpus:
            raise WrongError(
                f"{path}.peer", f"there is no GPU {measured.peer}; ordinals run from 0 to {gpus - 1}"
            )
        _check_pieces(measured.pieces, f"{path}.pieces")
        _check_pieces(measured.faults, f"{path}.faults")
        for k, row in enumerate(measured.rows):
            if not row.pieces or row.copies < 2:
                raise WrongError(f"{path}.rows[{k}]", "a row has two copies at least, and pieces; add them")
            _check_pieces(row.pieces, f"{path}.rows[{k}].pieces")
        if any(a.copies >= b.copies for a, b in pairwise(measured.rows)):
            raise WrongError(f"{path}.rows", "'copies' does not rise from row to row; sort them")
        if measured.rows and not measured.pieces:
            raise WrongError(f"{path}.rows", "rows without the pieces of one copy; add them")
    for n, cost in enumerate(file.cost):
        if cost.gpu is not None and cost.gpu >= gpus:
            raise WrongError(
                f"$.cost[{n}].gpu", f"there is no GPU {cost.gpu}; ordinals run from 0 to {gpus - 1}"
            )


def _check_pieces(pieces: tuple[Piece, ...], path: str) -> None:
    ends = [piece.up_to_bytes for piece in pieces]
    if ends and ends[-1] is not None:
        raise WrongError(
            path, "the last piece has 'up_to_bytes'; leave it out, so that every size is covered"
        )
    inner = ends[:-1]
    if any(end is None for end in inner):
        raise WrongError(path, "only the last piece may lack 'up_to_bytes'; add it to the others")
    if any(a is not None and b is not None and a >= b for a, b in pairwise(inner)):
        raise WrongError(path, "'up_to_bytes' does not rise from piece to piece; sort them")
