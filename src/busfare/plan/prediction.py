"""What one strategy is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busfare.cost.ranges import Ranged, beside, figures_of, range_of
from busfare.node import Node

__all__ = ["Prediction", "range_beside"]

#: Strategies that were measured as methods of migration.
METHODS = {"managed": "managed", "managed-prefetch": "managed-prefetch", "explicit-pageable": "pageable",
           "streams-pageable": "pageable"}  # fmt: skip

#: A copy as long as those of strategies that are worth planning.
LONG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy takes; `by` names the equation, or the schedule. `streams`: of `three-streams` the chunks.

    `assumes`: fields of the problem that nobody gave, and that its seconds rest on.
    """

    strategy: str
    streams: int
    seconds: float
    by: str
    assumes: tuple[str, ...] = ()


def range_beside(
    strategy: str, seconds: float | None, node: Node, method: str = "", what: str = ""
) -> dict[str, Any]:
    """`low_seconds`, `high_seconds` and `rung` of what a strategy, or a migration method, is predicted to take on `node`.

    `what`: `offload` or `kv`, whose strategies are memory kinds and layouts.
    """
    figures = figures_of(node)
    method = method or ("" if what else METHODS.get(strategy, ""))
    name = method or strategy
    found = range_of(what or ("method" if method else "strategy"), name, figures)
    if figures == "datasheet" and found is not None:
        # All of these were run on two kinds of GPU; copies were measured on many.
        memory = next((kind for kind in ("pageable", "managed") if name.startswith(kind)), "pinned")
        copies = range_of(memory, "datasheet", figures, LONG_BYTES) or found
        found = Ranged(min(found.low, copies.low), max(found.high, copies.high))
    return beside(seconds, found, "datasheet" if figures == "datasheet" else "probed")
