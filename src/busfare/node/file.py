"""A node file: TOML text → a checked `Node`, or one line that says what is wrong, where, and the mend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise, product
from typing import Any, TypeVar, get_args

import msgspec

from busfare.node.component import Component, Cost, Cpu, Gpu, Memory, Nic, Switch
from busfare.node.contention import Contention, Shares
from busfare.node.curve import CollectiveCurve, Curve, Pieces, Together
from busfare.node.graph import Node
from busfare.node.kernels import Gemm, Kernels, Pipeline, Stream
from busfare.node.link import C2cLink, FabricLink, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.node.older import renew
from busfare.node.source import Name, Source, Tag, Text
from busfare.node.toml import WrongError, decoded, unknown_key

__all__ = ["MOST_BYTES", "decode"]

#: A node file is a page or two; a larger one is another kind of file.
MOST_BYTES = 1 << 20
MOST_LINKS = 4096
#: More than any node has; a file that asks for more is wrong or hostile.
MOST_COMPONENTS = 256

_RANGE = re.compile(r"^([^\[\]]*)\[(\d{1,4})-(\d{1,4})\]([^\[\]]*)$")
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
    """The top of a node file. `source` is the tag of every table that names none."""

    name: Name
    component: tuple[Component, ...]
    link: tuple[Link, ...] = ()
    title: Text = ""
    description: Text = ""
    source: Tag | None = None
    curve: tuple[Curve, ...] = ()
    contention: tuple[Contention, ...] = ()
    cost: tuple[Cost, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    collectives: tuple[CollectiveCurve, ...] = ()
    sources: dict[Tag, Source] = msgspec.field(default_factory=dict)


def decode(text: str, origin: str) -> Node:
    """The node that TOML `text` describes; `origin` names it in messages. Raises InputError, and nothing
    else.
    """
    return decoded(text, origin, _File, _build, _explain, MOST_BYTES, renewed=renew)


def _explain(what: str, path: str, raw: dict[str, Any]) -> tuple[str, str] | None:
    """What node files have to say beyond the common messages: the keys and kinds that are known."""
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        return unknown_key(unknown[1], _fields(path, raw)), f"{path}.{unknown[1]}"
    rate = re.search(r"Invalid enum value '(.*)'", what)
    if rate and path.endswith(("flops_per_s", "memory_bytes_per_s")):
        return unknown_key(rate[1], list(get_args(Pipeline if "flops" in path else Stream))), path
    tag = re.search(r"Invalid value '(.*)'", what)
    if tag and path.endswith(".kind") and ("component" in path or "link" in path):
        known = list(_LINKS if path.startswith("$.link") else _COMPONENTS)
        return f"{tag[1]!r} is no kind; the kinds are {', '.join(known)}", path
    return None


def _fields(path: str, raw: dict[str, Any]) -> list[str]:
    """The keys that the table at `path` may have."""
    if found := re.match(r"\$\.(curve|contention|cost|kernels|collectives)\[", path):
        tables: _Kinds = {
            "curve": Curve,
            "contention": Contention,
            "cost": Cost,
            "kernels": Kernels,
            "collectives": CollectiveCurve,
        }
        inner = {"detail": Together, "gemm": Gemm, "both": Shares, "mapped": Shares, "copy_": Shares}
        within = next((own for key, own in inner.items() if f"].{key}" in path), tables[found[1]])
        return list(within.__struct_fields__)
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
    _check_ordinals(file, sum(isinstance(c, Gpu) for c in components))
    for n, curve in enumerate(file.curve):
        _check_curve(curve, f"$.curve[{n}]")
    for n, collective in enumerate(file.collectives):
        _check_curve(collective, f"$.collectives[{n}]")
    node = Node(
        name=file.name,
        components=_sourced(components, file.source),
        links=_sourced(links, file.source),
        title=file.title,
        description=file.description,
        curves=_sourced(file.curve, file.source),
        contentions=_sourced(file.contention, file.source),
        costs=_sourced(file.cost, file.source),
        kernels=_sourced(file.kernels, file.source),
        collectives=_sourced(file.collectives, file.source),
        sources={str(tag): source for tag, source in file.sources.items()},
    )
    node.host_path(0)
    return node


_Table = TypeVar("_Table", bound=Component | Link | Curve | CollectiveCurve | Contention | Cost | Kernels)


def _sourced(tables: Iterable[_Table], source: str | None) -> tuple[_Table, ...]:
    """The same with `source` where a table names none of its own and has figures."""
    return tuple(
        msgspec.structs.replace(one, source=source) if source and one.source is None else one
        for one in tables
    )


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
        return _expand(name)
    except ValueError as error:
        raise WrongError(path, str(error)) from None


def _check_sources(file: _File) -> None:
    groups = (
        ("component", file.component),
        ("link", file.link),
        ("curve", file.curve),
        ("contention", file.contention),
        ("cost", file.cost),
        ("kernels", file.kernels),
        ("collectives", file.collectives),
    )
    if file.source is not None and file.source not in file.sources:
        raise WrongError("$.source", f"no [sources.{file.source}]; add it, or correct the tag")
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


def _check_ordinals(file: _File, gpus: int) -> None:
    groups = (
        ("curve", file.curve),
        ("contention", file.contention),
        ("cost", file.cost),
        ("kernels", file.kernels),
    )
    for group, tables in groups:
        for n, table in enumerate(tables):
            for key in ("gpu", "peer"):
                ordinal = getattr(table, key, None)
                if ordinal is not None and ordinal >= gpus:
                    raise WrongError(
                        f"$.{group}[{n}].{key}",
                        f"there is no GPU {ordinal}; ordinals run from 0 to {gpus - 1}",
                    )


def _check_curve(curve: Pieces, path: str) -> None:
    pieces = len(curve.latency_overhead_s)
    if not pieces:
        raise WrongError(f"{path}.latency_overhead_s", "no pieces; give one figure at least")
    if len(curve.gap_per_byte_s) != pieces:
        raise WrongError(
            f"{path}.gap_per_byte_s",
            f"{len(curve.gap_per_byte_s)} figures beside {pieces} of latency_overhead_s; give one a piece",
        )
    if len(curve.up_to_bytes) != pieces - 1:
        raise WrongError(
            f"{path}.up_to_bytes",
            f"{len(curve.up_to_bytes)} ends of {pieces} pieces; give one for each but the last",
        )
    if any(a >= b for a, b in pairwise(curve.up_to_bytes)):
        raise WrongError(f"{path}.up_to_bytes", "does not rise from piece to piece; sort the pieces")
    if not isinstance(curve, Curve):
        return
    if any(not 1 <= count <= 65536 for count in curve.issue_interval_s):
        raise WrongError(f"{path}.issue_interval_s", "a number of streams below 1 or above 65536; correct it")
    for k, one in enumerate(curve.detail):
        _check_curve(one, f"{path}.detail[{k}]")
    if any(a >= b for a, b in pairwise((1, *(one.streams for one in curve.detail)))):
        raise WrongError(f"{path}.detail", "'streams' does not rise from 2 on; sort the rows")


def _expand(name: str) -> list[str]:
    """The names that `name` stands for: itself, or one a number of its range. Raises ValueError with the
    mend.
    """
    found = _RANGE.match(name)
    if found is None:
        if "[" in name or "]" in name:
            raise ValueError(f"{name!r} is no range; write gpu[0-7] for gpu0 to gpu7")
        return [name]
    before, first, last, after = found[1], int(found[2]), int(found[3]), found[4]
    if last < first:
        raise ValueError(f"{name!r} runs backwards; write the smaller number first")
    if last - first >= MOST_COMPONENTS:
        raise ValueError(f"{name!r} is over the limit of {MOST_COMPONENTS} components")
    return [f"{before}{n}{after}" for n in range(first, last + 1)]
