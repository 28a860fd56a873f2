"""A node as the text of a node file: what `busfare.node` reads back unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from busfare.node import Node

__all__ = ["encode"]


def encode(node: Node) -> str:
    """TOML of `node`: figures that are not known are left out, as the format asks."""
    lines = [f"name = {_value(node.name)}"]
    lines += [
        f"{key} = {_value(text)}"
        for key, text in (("title", node.title), ("description", node.description))
        if text
    ]
    for tag, source in node.sources.items():
        lines += [
            "",
            f"[sources.{json.dumps(tag)}]",
            f"kind = {_value(source.kind)}",
            f"cite = {_value(source.cite)}",
        ]
    groups = (
        ("component", node.components),
        ("link", node.links),
        ("measured", node.measured),
        ("cost", node.costs),
    )
    for name, tables in groups:
        for table in tables:
            lines += _table(name, msgspec.to_builtins(table))
    return "\n".join(lines) + "\n"


def _table(path: str, table: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"[[{path}]]"
    inner = []
    for key, value in table.items():
        if value is None or value is False or value in ("", (), [], {}):
            continue
        if isinstance(value, (list, tuple)) and isinstance(value[0], dict):
            inner.append((key, value))
        else:
            yield f"{key} = {_value(value)}"
    for key, rows in inner:
        for row in rows:
            yield from _table(f"{path}.{key}", row)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    # JSON's strings and numbers are TOML's too, but for the names of true and false, which are the same.
    return json.dumps(value, ensure_ascii=False)
