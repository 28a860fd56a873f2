"""Which runs are replayed for a report, and what of a trace only a replay looks at."""

from __future__ import annotations

__all__ = ["REPLAYED_ROWS", "UNUSED"]

#: A run of more calls and operations is not replayed for a report: that would take longer than reading it.
REPLAYED_ROWS = 2_000_000
#: Columns that nobody else looks at (`busfare.trace.read`).
UNUSED = frozenset(
    {
        "calls.thread",
        "calls.stream",
        "calls.event",
        "operations.context",
        "operations.graph_node",
        "operations.blocks",
    }
)
