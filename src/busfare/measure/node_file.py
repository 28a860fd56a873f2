"""A node as the text of a node file: what `busfare.node` reads back, to the digits that were measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from busfare.node import Node

#: Two probes of one machine agree in three digits.
DIGITS = 4
#: What a table is of stands before its figures.
_FIRST = (
    "kind",
    "name",
    "between",
    "call",
    "ranks",
    "hosts",
    "direction",
    "memory",
    "faults",
    "gpu",
    "peer",
    "streams",
)
#: Beyond this a value of a list stands on a line of its own.
_WIDE = 100


def encode(node: Node) -> str:
    """TOML of `node`: figures that are not known are left out, and the tag that most tables name stands on top."""
    measured = (node.curves, node.contentions, node.costs, node.kernels, node.collectives)
    tags = Counter(one.source for tables in measured for one in tables if one.source)
    tag = tags.most_common(1)[0][0] if tags else None
    top = {"name": node.name, "title": node.title, "description": node.description, "source": tag}
    lines = [f"{key} = {_value(text)}" for key, text in top.items() if text]
    lines += [
        f"sources.{json.dumps(name)} = {_value(_plain(source))}" for name, source in node.sources.items()
    ]
    short = {"component": node.components, "link": node.links, "cost": node.costs}
    for group, rows in short.items():
        if rows:
            lines += ["", f"{group} = [", *(f"  {_value(_given(row, tag))}," for row in rows), "]"]
    tables_of = {"contention": node.contentions, "kernels": node.kernels, "curve": node.curves}
    tables_of["collectives"] = node.collectives
    for group, tables in tables_of.items():
        for table in tables:
            lines += ["", f"[[{group}]]", *_pairs(_given(table, tag))]
    return "\n".join(lines) + "\n"


def _given(table: msgspec.Struct, tag: str | None) -> dict[str, Any]:
    """What a table has beyond its defaults and the file's own source; a link and a component their kind first."""
    kind = table.__struct_config__.tag
    defaults = dict(zip(table.__struct_fields__[::-1], table.__struct_defaults__[::-1], strict=False))
    own = {"kind": kind} if isinstance(kind, str) else {}
    for key, value in sorted(_plain(table).items(), key=lambda pair: pair[0] not in _FIRST):
        empty = value is None or value is False or value in ("", (), [], {})
        usual = key in own or getattr(table, key) == defaults.get(key) or (key == "source" and value == tag)
        if not (empty or usual):
            own[key] = value
    return own


def _plain(table: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(table, str_keys=True)
    return plain


def _pairs(table: dict[str, Any]) -> Iterator[str]:
    return (f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        given = {k: v for k, v in value.items() if v is not None and v not in ([], {})}
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in given.items()) + " }"
    if isinstance(value, (list, tuple)):
        rows = [_value(inner) for inner in value]
        long = sum(map(len, rows)) > _WIDE and isinstance(value[0], dict)
        return "[\n" + "".join(f"  {row},\n" for row in rows) + "]" if long else "[" + ", ".join(rows) + "]"
    if isinstance(value, float) and value and not (value.is_integer() and abs(value) > 1):
        return repr(float(f"{value:.{DIGITS}g}"))
    # JSON's strings and numbers are TOML's too, and so are the names of true and false.
    return json.dumps(value, ensure_ascii=False)
