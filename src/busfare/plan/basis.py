"""What a parameter of a plan rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from busfare.node import Measured, Node
from busfare.plan.line import Line, line_of

__all__ = ["Basis", "Kind", "cited", "measured_line"]

Kind = Literal["recorded", "measured", "data-sheet", "estimated", "assumed"]


@dataclass(frozen=True, slots=True)
class Basis:
    """One parameter: its value in SI units, and what it rests on."""

    parameter: str
    value: float | str
    unit: str
    kind: Kind
    source: str

    def row(self) -> dict[str, Any]:
        """The figures by name, for JSON."""
        return {
            "parameter": self.parameter,
            "value": self.value,
            "unit": self.unit,
            "kind": self.kind,
            "source": self.source,
        }


def measured_line(measured: Measured | None, start: float) -> Line | None:
    """The pieces as measured; `start` (s) for the L+o of those that have none, where only long copies were measured."""
    return line_of(measured.pieces, start) if measured is not None and measured.pieces else None


def cited(node: Node, measured: Measured, key: str) -> str:
    source = node.provenance(measured, key)
    return source.cite if source else f"[[measured]] of {node.name}"
