"""Which runs are replayed for a report. What replays them is imported only then: it takes a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busfare.node import Node
from busfare.trace import Trace
from busfare.trace.bounds import REPLAYED_ROWS

if TYPE_CHECKING:
    from busfare.timeline import Timeline

__all__ = ["MOST_ROWS", "rebuilt"]

MOST_ROWS = REPLAYED_ROWS


def rebuilt(trace: Trace, node: Node | None) -> Timeline | None:
    """The run as it replays; None without calls, with too many rows, or where they were only added up."""
    if trace.sums is not None or trace.calls.is_empty():
        return None
    if trace.calls.height + trace.operations.height > MOST_ROWS:
        return None
    from busfare.timeline import timeline

    return timeline(trace, node)
