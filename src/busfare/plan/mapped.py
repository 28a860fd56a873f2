"""Mapped memory as a plan sees it: what its accesses take, alone and beside other traffic."""

from __future__ import annotations

from busfare.node import Node
from busfare.plan.basis import Basis, cited, measured_line
from busfare.plan.equations import FIRST_SHARE
from busfare.plan.line import Line, one_piece

__all__ = ["first_share", "mapped_beside_copy", "mapped_both", "mapped_line"]


def mapped_line(node: Node, direction: str, copy: Line) -> tuple[Line, Basis]:
    name = f"G {direction} mapped"
    measured = node.measurement(direction, "mapped")
    line = measured_line(measured, copy.latencies[0])
    if node.gpu(0).unified_memory:
        return one_piece(copy.latencies[0], 0.0), Basis(
            name, 0.0, "s/B", "data-sheet", "CPU and GPU share one memory"
        )
    if measured is not None and line is not None:
        return line, Basis(name, line.long_gap, "s/B", "measured", cited(node, measured, "pieces"))
    # [W14 eq 6] takes the copies' own L+o and G.
    line = one_piece(copy.latencies[0], copy.long_gap)
    return line, Basis(name, line.long_gap, "s/B", "estimated", "that of copies [W14 eq 6]")


def mapped_both(node: Node, direction: str, mapped: Line, beside_copy: float) -> tuple[float, Basis]:
    """How many times as long a byte takes in a kernel that reads and writes mapped memory at once."""
    name = f"{direction} mapped, both ways"
    found = _slowed(node, direction, mapped, "mapped_gap_per_byte_s", name)
    # Beside copies mapped memory is slowed as well: better than what copies do to each other.
    found = found or _slowed(node, direction, mapped, "both_directions_gap_per_byte_s", name)
    return found or (
        beside_copy,
        Basis(name, beside_copy, "times", "estimated", "that of copies beside copies"),
    )


def first_share(node: Node, direction: str) -> float:
    """Of the first round of a kernel's threads on mapped memory, what moves one way after the other."""
    measured = node.measurement(direction, "mapped")
    told = measured.mapped_first_share if measured else None
    return FIRST_SHARE if told is None else told


def mapped_beside_copy(node: Node, direction: str, mapped: Line, beside_mapped: float) -> tuple[float, Basis]:
    """How many times as long a byte of mapped memory takes while copies move data the other way, as in a hybrid."""
    name = f"{direction} mapped beside copies"
    found = _slowed(node, direction, mapped, "both_directions_gap_per_byte_s", name)
    return found or (
        beside_mapped,
        Basis(
            name, beside_mapped, "times", "estimated", "that of copies beside mapped memory [W14 table II]"
        ),
    )


def _slowed(node: Node, direction: str, mapped: Line, key: str, name: str) -> tuple[float, Basis] | None:
    """A slow-down of mapped memory as the node file has it; None where it does not."""
    measured = node.measurement(direction, "mapped")
    gap = getattr(measured, key) if measured else None
    if not gap or mapped.long_gap <= 0:
        return None
    slow = max(1.0, gap / mapped.long_gap)
    return slow, Basis(name, slow, "times", "measured", f"[[measured]] {key}")
