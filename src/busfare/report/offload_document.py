"""The document of `bench offload`: every schedule, measured beside predicted."""

from __future__ import annotations

from busfare.advise.amounts import several, size
from busfare.measure.bench.results import OffloadCell, OffloadResult
from busfare.report.bench_documents import benched
from busfare.report.document import Block, Document, Figure, Text, table
from busfare.report.plan_documents import hidden
from busfare.report.svg import COLOUR, Line, Lines

__all__ = ["bench_offload_document"]

MOST_ROWS = 20


def bench_offload_document(result: OffloadResult) -> Document:
    """Every schedule, measured beside predicted."""
    seen = result.seen
    schedules = table(
        result.cells,
        "Schedules",
        {"memory": "memory", "layers": lambda cell: f"{cell.layers} × {size(cell.layer_bytes)}"},
        {
            "tokens": lambda cell: str(cell.tokens),
            "resident": lambda cell: str(cell.resident),
            "depth": lambda cell: str(cell.depth),
            seen: "measured_seconds",
            "predicted": "predicted_seconds",
            "error": lambda cell: f"{cell.error_percent or 0.0:+.1f} %",
            f"{seen} hidden": lambda cell: hidden(cell.measured_share_hidden),
            "predicted hidden": lambda cell: hidden(cell.predicted_share_hidden),
        },
        most=MOST_ROWS,
    )
    blocks: list[Block] = []
    if result.median_percent is not None and result.ninetieth_percent is not None:
        blocks.append(
            Text(
                f"{several(len(result.cells), 'schedule')}: predicted from the node file and a layer alone, median error "
                f"{result.median_percent:.1f} %, 90th percentile {result.ninetieth_percent:.1f} %."
            )
        )
    if result.picks:
        right = sum(pick.cost_percent <= 3 for pick in result.picks)
        blocks.append(
            Text(
                f"Residency and depth picked within 3 % of the fastest: {right} of {several(len(result.picks), 'budget')}. "
                f"The costliest pick is {max(pick.cost_percent for pick in result.picks):.1f} % slower."
            )
        )
    even = result.break_even
    if even is not None:
        named = [("measured", even.measured_tokens), ("predicted", even.predicted_tokens)]
        tokens = ", ".join(f"{name} {number:.0f}" for name, number in named if number is not None)
        words = f"Streaming is faster than this machine's processor from {tokens} tokens on."
        blocks.append(Text(words if tokens else f"Beside this machine's processor: {even.reason}."))
    blocks += [schedules, *_measured(result.cells, seen)]
    return benched("Layers that live on the host", result, blocks)


def _measured(cells: list[OffloadCell], seen: str) -> list[Block]:
    """Seconds by resident layers at depth 1 and of the fewest tokens: measured and predicted."""
    largest = max((cell.layer_bytes for cell in cells), default=0)
    few = min((cell.tokens for cell in cells), default=0)
    shown = [c for c in cells if (c.layer_bytes, c.tokens, c.memory, c.depth) == (largest, few, "pinned", 1)]
    if len(shown) < 2:
        return []
    streamed = [c.layers - c.resident for c in shown]
    series = [
        Line(seen, COLOUR["whole run"], streamed, [c.measured_seconds for c in shown]),
        Line(
            "predicted", COLOUR["whole run"], streamed, [c.predicted_seconds for c in shown], predicted=True
        ),
    ]
    lines = Lines(series, "layers that live on the host", "a pass", whole=True)
    return [Figure("resident", lines, "Pinned memory, depth 1, fewest tokens")]
