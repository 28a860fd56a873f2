"""Documents of `plan offload` and `bench offload`."""

from __future__ import annotations

from busfare.advise.amounts import between, several, size, time
from busfare.measure.bench.results import OffloadCell, OffloadResult
from busfare.report.bench_documents import benched
from busfare.report.blocks import percent, ranges
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.offload import PlanOffloadResult
from busfare.report.plan_document import basis_table
from busfare.report.svg import COLOUR, COLOURS, Line, Lines

__all__ = ["bench_offload_document", "offload_document"]

MOST_ROWS = 20


def offload_document(result: PlanOffloadResult) -> Document:
    """Every time in it is predicted."""
    rows = [
        (
            str(row.resident),
            str(row.depth),
            row.memory,
            str(row),
            percent(row.predicted_seconds / result.ranking[0].predicted_seconds - 1),
            _share(row.share_hidden),
            size(row.device_bytes),
        )
        for row in result.ranking
    ]
    columns = numbers("resident", "depth") + words("memory")
    columns += numbers("predicted", "over best", "copies hidden", "GPU memory")
    budget = f" in {size(result.budget_bytes)} of GPU memory" if result.budget_bytes else ""
    blocks: list[Block] = [Text(text) for text in result.words]
    blocks.append(Table(columns, rows, f"Schedules{budget}", [ranges(result.ranking[0])], most=MOST_ROWS))
    blocks += _figures(result)
    blocks.append(basis_table(result.basis))
    title = f"{several(result.layers, 'layer')} of {size(result.bytes / result.layers)} on {result.node}"
    facts = f"{result.gpu or 'GPU'} · {result.tokens:g} tokens a pass · every time is predicted"
    return Document(f"busfare plan offload: {title}", title, facts, blocks)


def _figures(result: PlanOffloadResult) -> list[Block]:
    blocks: list[Block] = []
    if len(result.by_resident) > 1:
        streamed = [result.layers - point.resident for point in result.by_resident]
        seconds = [point.predicted_seconds for point in result.by_resident]
        line = Line("predicted", COLOUR["h2d"], streamed, seconds, predicted=True)
        lines = Lines(
            [line], "layers that live on the host", "a pass", marks=[result.layers - result.resident]
        )
        blocks.append(Figure("resident", lines, "How much to keep; dotted: as asked"))
    if len(result.by_tokens) > 1:
        named: dict[str, list[float | None]] = {
            "streamed": [point.streamed_seconds for point in result.by_tokens],
            "kernels alone": [point.kernels_seconds for point in result.by_tokens],
            "on the processor": [point.cpu_seconds for point in result.by_tokens],
        }
        tokens = [p.tokens for p in result.by_tokens]
        series = [
            Line(name, colour, tokens, seconds, predicted=True)
            for colour, (name, seconds) in zip(COLOURS, named.items(), strict=False)
            if any(seconds)
        ]
        marks = [even for even in (result.break_even_tokens, result.hidden_from_tokens) if even is not None]
        lines = Lines(series, "tokens a pass", "a pass", marks=marks)
        blocks.append(Figure("tokens", lines, "From which prompt on"))
    return blocks


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def bench_offload_document(result: OffloadResult) -> Document:
    """Every schedule, measured beside predicted."""
    rows = [
        (
            cell.memory,
            f"{cell.layers} × {size(cell.layer_bytes)}",
            str(cell.tokens),
            str(cell.resident),
            str(cell.depth),
            time(cell.measured_seconds),
            between(cell.predicted_seconds or 0.0, cell.low_seconds, cell.high_seconds),
            f"{cell.error_percent or 0.0:+.1f} %",
            _share(cell.measured_share_hidden),
            _share(cell.predicted_share_hidden),
        )
        for cell in result.cells
    ]
    seen = result.seen
    head = words("memory", "layers") + numbers("tokens", "resident", "depth", seen, "predicted", "error")
    head += numbers(f"{seen} hidden", "predicted hidden")
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
        blocks.append(
            Text(f"Streaming is faster than this machine's processor from {tokens or even.reason} tokens on.")
        )
    blocks += [Table(head, rows, "Schedules", most=MOST_ROWS), *_measured(result.cells, seen)]
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
        Line(seen, COLOUR["h2d"], streamed, [c.measured_seconds for c in shown]),
        Line("predicted", COLOURS[1], streamed, [c.predicted_seconds for c in shown], predicted=True),
    ]
    lines = Lines(series, "layers that live on the host", "a pass")
    return [Figure("resident", lines, "Pinned memory, depth 1, fewest tokens")]
