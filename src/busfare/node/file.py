"""A node file: TOML text → a checked `Node`, or one line that says what is wrong, where, and the mend."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.node.component import Component, Cpu, Gpu, Memory, Nic, Switch
from busfare.node.figures import Name, Tag, Text
from busfare.node.graph import Node
from busfare.node.link import C2cLink, FabricLink, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.node.measured import Measured, Piece
from busfare.node.names import MOST_COMPONENTS, expand
from busfare.node.position import line_of
from busfare.node.source import Source

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
    sources: dict[Tag, Source] = msgspec.field(default_factory=dict)


class _WrongError(Exception):
    """What is wrong, at which path of the file."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(what)
        self.path = path


def decode(text: str, origin: str) -> Node:
    """The node that TOML `text` describes; `origin` names it in messages. Raises InputError, and nothing
    else.
    """
    if len(text) > MOST_BYTES:
        raise InputError(
            f"{origin}: over {MOST_BYTES} bytes; a node file is a page or two, so this is another file"
        )
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{origin}{_place(str(error))}: not TOML: {error}; correct this line") from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{origin}: not TOML that can be read: a number or nesting out of all bounds"
        ) from None
    try:
        _finite(raw, "$", 0)
        file = msgspec.convert(raw, _File)
        return _build(file)
    except _WrongError as wrong:
        raise InputError(f"{origin}:{line_of(text, wrong.path)}: {_key(wrong.path)}{wrong}") from None
    except msgspec.ValidationError as error:
        what, path = _explain(str(error), raw)
        raise InputError(f"{origin}:{line_of(text, path)}: {_key(path)}{what}") from None
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{origin}: a value out of all bounds ({type(error).__name__}); see docs/nodes.md"
        ) from None


def _place(message: str) -> str:
    found = re.search(r"line (\d+)", message)
    return f":{found[1]}" if found else ""


def _key(path: str) -> str:
    return "" if path == "$" else f"{path.removeprefix('$.')}: "


def _finite(value: Any, path: str, depth: int) -> None:
    """Refuses nan and infinity, which TOML allows and no machine has, and nesting that no node needs."""
    if depth > 8:
        raise _WrongError(path, "nested too deep; a node file has tables of values, no more")
    if isinstance(value, float) and not math.isfinite(value):
        raise _WrongError(
            path, f"{value} is no figure of a machine; give a finite number or leave the key out"
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            _finite(inner, f"{path}[{n}]", depth + 1)


def _explain(message: str, raw: dict[str, Any]) -> tuple[str, str]:
    """msgspec's message as (what and the mend, path)."""
    what, _, path = message.partition(" - at `")
    path = path.rstrip("`") or "$"
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        known = _fields(path, raw)
        near = difflib.get_close_matches(unknown[1], known, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
        return f"unknown key; {mend}", f"{path}.{unknown[1]}"
    missing = re.search(r"missing required field `(.*)`", what)
    if missing:
        return f"the key {missing[1]!r} is missing; add it", path
    tag = re.search(r"Invalid value '(.*)'", what)
    if tag and path.endswith(".kind") and ("component" in path or "link" in path):
        known = list(_LINKS if path.startswith("$.link") else _COMPONENTS)
        return f"{tag[1]!r} is no kind; the kinds are {', '.join(known)}", path
    return f"{what[:1].lower()}{what[1:]}", path


def _fields(path: str, raw: dict[str, Any]) -> list[str]:
    """The keys that the table at `path` may have."""
    if path.startswith("$.measured"):
        owner: type[msgspec.Struct] = Piece if ".pieces" in path else Measured
        return list(owner.__struct_fields__)
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
        raise _WrongError("$.component", "no component of kind 'gpu'; a node needs one at least")
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
        sources={str(tag): source for tag, source in file.sources.items()},
    )
    node.host_path(0)
    return node


def _expanded_components(file: _File) -> Iterator[Component]:
    seen: set[str] = set()
    for n, component in enumerate(file.component):
        for name in _names(component.name, f"$.component[{n}].name"):
            if name in seen:
                raise _WrongError(
                    f"$.component[{n}].name", f"a second component called {name!r}; names are unique"
                )
            seen.add(name)
            if len(seen) > MOST_COMPONENTS:
                raise _WrongError(f"$.component[{n}]", f"over the limit of {MOST_COMPONENTS} components")
            yield msgspec.structs.replace(component, name=name)


def _expanded_links(file: _File, known: set[str]) -> list[Link]:
    links: list[Link] = []
    for n, link in enumerate(file.link):
        path = f"$.link[{n}].between"
        for a, b in _pairs(link.between, path):
            for end in (a, b):
                if end not in known:
                    near = difflib.get_close_matches(end, sorted(known), 1)
                    mend = f"did you mean {near[0]!r}?" if near else "add a [[component]] of that name"
                    raise _WrongError(path, f"no component {end!r}; {mend}")
            if a == b:
                raise _WrongError(path, f"{a!r} is linked to itself; a link joins two components")
            links.append(msgspec.structs.replace(link, between=(a, b)))
        if len(links) > MOST_LINKS:
            raise _WrongError(path, f"over the limit of {MOST_LINKS} links")
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
        raise _WrongError(path, str(error)) from None


def _check_sources(file: _File) -> None:
    groups = (("component", file.component), ("link", file.link), ("measured", file.measured))
    for group, tables in groups:
        for n, table in enumerate(tables):
            for tag in (table.source, *table.source_of.values()):
                if tag is not None and tag not in file.sources:
                    raise _WrongError(
                        f"$.{group}[{n}].source", f"no [sources.{tag}]; add it, or correct the tag"
                    )
            for key in table.source_of:
                if key not in table.__struct_fields__:
                    raise _WrongError(
                        f"$.{group}[{n}].source_of", f"{key!r} is no key of this table; correct it"
                    )


def _check_measured(file: _File, gpus: int) -> None:
    for n, measured in enumerate(file.measured):
        path = f"$.measured[{n}]"
        if measured.gpu is not None and measured.gpu >= gpus:
            raise _WrongError(
                f"{path}.gpu", f"there is no GPU {measured.gpu}; ordinals run from 0 to {gpus - 1}"
            )
        ends = [piece.up_to_bytes for piece in measured.pieces]
        if ends and ends[-1] is not None:
            raise _WrongError(
                f"{path}.pieces",
                "the last piece has 'up_to_bytes'; leave it out, so that every size is covered",
            )
        inner = ends[:-1]
        if any(end is None for end in inner):
            raise _WrongError(
                f"{path}.pieces", "only the last piece may lack 'up_to_bytes'; add it to the others"
            )
        if any(a is not None and b is not None and a >= b for a, b in pairwise(inner)):
            raise _WrongError(f"{path}.pieces", "'up_to_bytes' does not rise from piece to piece; sort them")
