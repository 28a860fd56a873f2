"""The document of `plan kv`: its words, the ranking, and seconds by block size and by prompt length."""

from __future__ import annotations

from busfare.advise.amounts import count, rate, size, time
from busfare.report.blocks import bar, ranges
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.kv import PlanKvResult
from busfare.report.plan_document import basis_table
from busfare.report.svg import COLOUR, COLOURS, Bars, BarSeries, Line, Lines

__all__ = ["kv_document"]


def kv_document(result: PlanKvResult) -> Document:
    """Every time in it is predicted, but that of computing where it is given."""
    rows = [
        (r.layout, str(r), rate(r.bytes_per_second), count(r.calls), r.limited_by) for r in result.ranking
    ]
    columns = words("layout") + numbers("predicted", "rate", "calls") + words("limited by")
    series = BarSeries("predicted", COLOUR["h2d"], [bar(r) for r in result.ranking])
    blocks: list[Block] = [Text(text) for text in result.words]
    blocks += [
        Table(columns, rows, notes=[ranges(result.ranking[0])]),
        Figure("layouts", Bars([r.layout for r in result.ranking], [series], "predicted time"), "Layouts"),
        *_by_block(result),
        *_by_tokens(result),
        basis_table(result.basis),
    ]
    of = f" of {result.model}" if result.model else ""
    title = f"{result.tokens:,} tokens of KV cache{of} on {result.node}"
    return Document(f"busfare plan kv: {title}", title, "every time of a fetch is predicted", blocks)


def _by_block(result: PlanKvResult) -> list[Block]:
    names = [r.layout for r in result.ranking]
    rows = [
        (f"{p.block_tokens:,}", size(p.piece_bytes), *(time(p.predicted_seconds[name]) for name in names))
        for p in result.by_block
    ]
    lines = [
        Line(
            name,
            COLOURS[n % len(COLOURS)],
            [p.piece_bytes for p in result.by_block],
            [p.predicted_seconds[name] for p in result.by_block],
            predicted=True,
        )
        for n, name in enumerate(names)
    ]
    chart = Lines(
        lines, "bytes of one piece; dotted: as asked", "predicted", "B", marks=[result.block.piece_bytes]
    )
    title = "Predicted time by tokens a block"
    return [Table(numbers("tokens", "piece", *names), rows, title), Figure("blocks", chart)]


def _by_tokens(result: PlanKvResult) -> list[Block]:
    points = result.by_tokens
    given = [p.recompute_seconds for p in points if p.recompute_seconds is not None]
    lengths = [float(p.tokens) for p in points]
    lines = [
        Line(f"fetch, {result.best}", COLOURS[0], lengths, [p.fetch_seconds for p in points], predicted=True)
    ]
    computing = (
        "compute, as given" if result.recompute and result.recompute.by == "given" else "compute, predicted"
    )
    if given:
        lines.append(Line(computing, COLOURS[1], lengths, given, predicted="predicted" in computing))
    marks = [float(result.break_even_tokens)] if result.break_even_tokens else []
    rows = [
        (
            f"{p.tokens:,}",
            time(p.fetch_seconds),
            "–" if p.recompute_seconds is None else time(p.recompute_seconds),
        )
        for p in points
    ]
    axis = "tokens of the prompt" + "; dotted: break-even" * bool(marks)
    heads = numbers("tokens", "fetch, predicted", computing)
    return [
        Table(heads, rows, "By prompt length", folded=True),
        Figure("prompts", Lines(lines, axis, "time", marks=marks)),
    ]
