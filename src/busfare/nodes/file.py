"""A node by its name or file: TOML text → a checked `Node`, or one line that says what is wrong, where, and the fix."""

import difflib
import re
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import msgspec

from busfare.errors import InputError, instead_of
from busfare.nodes import gpus
from busfare.nodes.component import Component, Cost, Gpu, Kernels, Name, Source, Sourced, Tag, Text
from busfare.nodes.contention import Contention
from busfare.nodes.graph import Node
from busfare.nodes.link import FORMS, Link, link_in_short
from busfare.nodes.toml import WrongError, decoded, read_text
from busfare.nodes.transfers import CollectiveCurve, Curve, Pieces

#: A node file is a page or two; a larger one is another kind of file.
MOST_BYTES = 1 << 20
MOST_LINKS = 4096
#: More than any node has; a file that asks for more is wrong or hostile.
MOST_COMPONENTS = 256

_RANGE = re.compile(r"^([^\[\]]*)\[(\d{1,4})-(\d{1,4})\]([^\[\]]*)$")
#: What people call a GPU → the node that has it, in its usual form.
ALIASES = {
    "p100": "dgx-1-p100", "v100": "dgx-1-v100", "a100": "dgx-a100", "a100-sxm": "dgx-a100", "h100": "h100-sxm",
    "h200": "h200-sxm", "b200": "dgx-b200", "grace-hopper": "gh200", "680": "gtx-680", "2080-ti": "rtx-2080-ti",
    "2080ti": "rtx-2080-ti", "3090": "rtx-3090", "4090": "rtx-4090", "5090": "rtx-5090", "7900-xtx": "rx-7900-xtx",
    "mi250": "mi250x", "mi300": "mi300x", "frontier": "mi250x",
}  # fmt: skip
_AMD = re.compile(r"mi\d|rx|vega|radeon|instinct|amd|gfx")
#: The word of a GPU's name that no other model has: b200, 4090, mi300x; not 80gb or rtx.
_MODEL = re.compile(r"(?!\d+gb$)[a-z]*\d{2,}[a-z]*")
#: The tables of a node file, by the fields of a node.
_TABLES = {
    "components": "component", "links": "link", "curves": "curve", "contentions": "contention", "costs": "cost",
    "kernels": "kernels", "collectives": "collectives",
}  # fmt: skip


class _File(msgspec.Struct, forbid_unknown_fields=True, rename=_TABLES):
    """The top of a node file. `source` is the tag of every table that names none."""

    name: Name
    components: tuple[Component, ...]
    links: tuple[Link, ...] = ()
    title: Text = ""
    description: Text = ""
    source: Tag | None = None
    curves: tuple[Curve, ...] = ()
    contentions: tuple[Contention, ...] = ()
    costs: tuple[Cost, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    collectives: tuple[CollectiveCurve, ...] = ()
    sources: dict[Tag, Source] = msgspec.field(default_factory=dict)


def load_node(text: object, link: str | None = None) -> Node:
    """The node that `text` is, or names: a name of the catalogue or alias, a link in short (`pcie:4x16`), a TOML file, or a
    GPU (`rtx-3060-laptop`); its GPUs on another `link` in short.

    Raises InputError with the nearest names, or with the file, line, key and fix.
    """
    if link is not None:
        slot = link_in_short(link.strip())
        if slot is None:
            raise InputError(f"`link` {link[:80]!r}: not a link; write {FORMS}")
        return gpus.on_link(load_node(text), slot)
    if isinstance(text, Node):  # as Python may give it where the command line gives words
        return text
    if not isinstance(text, str):
        raise InputError(f"{text!r:.80} is not a node; give its name, as in 'h100-sxm'")
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    name = ALIASES.get(name, name)
    if name in gpus.catalogue_names():
        return _of_catalogue(name)
    if (bare := link_in_short(text.strip())) is not None:
        return gpus.bare_node(bare)
    if text.endswith(".toml") or "/" in text:
        return decode(read_text(text, "node file", MOST_BYTES), text)
    if (gpu := gpus.gpu_of_device_name(text)) is not None:
        return _of_catalogue(gpu.node) if gpu.node else gpus.node_of_gpu(gpu)
    if _is_there(text):
        mistake = "a folder" if Path(text).is_dir() else "the file name does not end in .toml"
        raise InputError(
            f"node {text[:80]!r}: {mistake}; give a node file (.toml), or a name that `busfare nodes` lists"
        )
    near = _suggestions(name)
    fix = f"did you mean {' or '.join(near)}?" if near else "list them with `busfare nodes`"
    raise InputError(
        f"node {text[:80]!r}: not a catalogue name, a .toml file or a short link ({FORMS}); {fix}"
    )


def _is_there(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or not one
        return False


@lru_cache(maxsize=64)
def _of_catalogue(name: str) -> Node:
    return decode(gpus.catalogue_text(name), f"{name}.toml")


def _suggestions(name: str, most: int = 3) -> list[str]:
    """The names that are nearest to an unknown one, of its model (`b200`) and maker first; empty where none is near."""
    names = ALIASES | {listed: listed for listed in (*gpus.catalogue_names(), *gpus.gpu_names())}
    models = {word for word in name.split("-") if _MODEL.fullmatch(word)}
    of_model = [candidate for candidate in names if models & {*candidate.split("-")}]
    near = difflib.get_close_matches(name, of_model, 2 * most, 0.0)
    near += difflib.get_close_matches(name, names, 3 * most, 0.6)
    near.sort(key=lambda candidate: bool(_AMD.match(names[candidate])) != bool(_AMD.match(name)))
    return list(dict.fromkeys(names[candidate] for candidate in near))[:most]


def decode(text: str, origin: str) -> Node:
    """The node that TOML `text` describes; `origin` names it in messages. Raises InputError, and nothing else."""
    return decoded(text, origin, _File, _build, MOST_BYTES, "node file")


def _build(file: _File) -> Node:
    components = list(_expanded_components(file))
    gpu_count = sum(isinstance(component, Gpu) for component in components)
    if not gpu_count:
        raise WrongError("$.component", "no component of kind 'gpu'; a node needs at least one")
    links = _expanded_links(file, {component.name for component in components})
    if file.source is not None and file.source not in file.sources:
        raise WrongError("$.source", f"no [sources.{file.source}]; add it, or correct the tag")
    tables: dict[str, Any] = {name: getattr(file, name) for name in _TABLES}
    for name, key in _TABLES.items():
        for n, table in enumerate(tables[name]):
            _check(table, f"$.{key}[{n}]", file.sources, gpu_count)
    tables |= {"components": components, "links": links}
    for name, some in tables.items():  # a table that names no source has that of the file
        tables[name] = tuple(msgspec.structs.replace(row, source=row.source or file.source) for row in some)
    node = Node(file.name, title=file.title, description=file.description, sources=file.sources, **tables)
    node.host_path(0)
    return node


def _expanded_components(file: _File) -> Iterator[Component]:
    seen: set[str] = set()
    for n, component in enumerate(file.components):
        for name in _names(component.name, f"$.component[{n}].name"):
            if name in seen:
                raise WrongError(
                    f"$.component[{n}].name", f"a second component named {name!r}; names must be unique"
                )
            seen.add(name)
            if len(seen) > MOST_COMPONENTS:
                raise WrongError(f"$.component[{n}]", f"over the limit of {MOST_COMPONENTS} components")
            yield msgspec.structs.replace(component, name=name)


def _expanded_links(file: _File, component_names: set[str]) -> list[Link]:
    links: list[Link] = []
    for n, link in enumerate(file.links):
        path = f"$.link[{n}].between"
        for a, b in _pairs(link.between, path):
            for end in (a, b):
                if end not in component_names:
                    fix = f"{instead_of(end, sorted(component_names))}; or add a [[component]] of that name"
                    raise WrongError(path, f"no component {end!r}; {fix}")
            if a == b:
                raise WrongError(path, f"{a!r} is linked to itself; a link must join two components")
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
    """The names that `name` stands for: itself, or one a number of its range."""
    match = _RANGE.match(name)
    if match is None:
        if "[" in name or "]" in name:
            raise WrongError(path, f"{name!r} is not a range; write gpu[0-7] for gpu0 to gpu7")
        return [name]
    before, first, last, after = match[1], int(match[2]), int(match[3]), match[4]
    if last < first:
        raise WrongError(path, f"{name!r} runs backwards; write the smaller number first")
    if last - first >= MOST_COMPONENTS:
        raise WrongError(path, f"{name!r} is over the limit of {MOST_COMPONENTS} components")
    return [f"{before}{n}{after}" for n in range(first, last + 1)]


def _check(table: Sourced, path: str, sources: Container[str], gpu_count: int) -> None:
    """Refuses a table whose sources, keys, GPUs or pieces are not there."""
    for tag in (table.source, *table.source_of.values()):
        if tag is not None and tag not in sources:
            raise WrongError(f"{path}.source", f"no [sources.{tag}]; add it, or correct the tag")
    for key in table.source_of:
        if key not in table.__struct_fields__:
            raise WrongError(f"{path}.source_of", f"{key!r} is not a key of this table; correct it")
    for key in ("gpu", "peer"):
        ordinal = getattr(table, key, None)
        if ordinal is not None and ordinal >= gpu_count:
            raise WrongError(f"{path}.{key}", f"no GPU {ordinal}; ordinals run from 0 to {gpu_count - 1}")
    if isinstance(table, Pieces):
        _check_pieces(table, path)


def _check_pieces(curve: Pieces, path: str) -> None:
    pieces, gaps, ends = map(len, (curve.latency_overhead_s, curve.gap_per_byte_s, curve.up_to_bytes))
    detail = curve.detail if isinstance(curve, Curve) else ()
    if not pieces:
        raise WrongError(f"{path}.latency_overhead_s", "no pieces; give at least one figure")
    if gaps != pieces:
        what = f"{gaps} figures for {pieces} values of latency_overhead_s; give one per piece"
        raise WrongError(f"{path}.gap_per_byte_s", what)
    if ends != pieces - 1:
        what = f"{ends} ends for {pieces} pieces; give one for each piece but the last"
        raise WrongError(f"{path}.up_to_bytes", what)
    if not _rises(curve.up_to_bytes):
        raise WrongError(f"{path}.up_to_bytes", "must increase from piece to piece; sort the pieces")
    if not _rises([1, *(curves.streams for curves in detail)]):
        raise WrongError(f"{path}.detail", "'streams' must increase from 2; sort the rows")
    for k, curves in enumerate(detail):
        _check_pieces(curves, f"{path}.detail[{k}]")


def _rises(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))
