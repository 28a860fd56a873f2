"""The document of `bench kv`: every layout of every cell, measured beside predicted, and by the size of a piece."""

from __future__ import annotations

from itertools import groupby

from busfare.advise.amounts import size, time
from busfare.measure.bench.results import KvBenchResult, KvCell, KvMeasured
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.measured_documents import benched, due, error_of
from busfare.report.svg import COLOURS, Line, Lines

__all__ = ["measured_kv_document"]


def measured_kv_document(result: KvBenchResult) -> Document:
    """How far off, then a table a cell, and a figure for each total."""
    e, cells = result.errors, len(result.cells)
    inside = f"; {e.inside_percent:.0f} % in their range" if e.inside_percent is not None else ""
    sentence = (
        f"{e.count} times, predicted over {result.seen}: median {e.median_percent:.1f} %, 90th percentile "
        f"{e.ninetieth_percent:.1f} %, largest {e.largest_percent:.1f} %{inside}. Ranked right: {e.ranked_right} of "
        f"{cells} cells; fastest picked: {e.picked} of {cells}."
    )
    blocks: list[Block] = [Text(sentence)]
    blocks += [_cell(cell, result.seen) for cell in result.cells]
    for key, group in groupby(result.cells, lambda cell: (cell.fetched_bytes, cell.evicted_bytes)):
        same = list(group)
        if len(same) > 1:
            blocks.append(_by_size(*key, same, result.seen))
    return benched("Layouts of a KV cache", result, blocks)


def _cell(cell: KvCell, seen: str) -> Table:
    heads = words("layout") + numbers(seen, "predicted", "error", "calls", "GPU alone", "predicted", "error")
    wrong = "; ".join(f"{one} before {other}" for one, other in cell.ranking.wrong)
    best = cell.best
    picked = (
        "picked"
        if best.picked
        else f"NOT picked: predicted {best.predicted}, which costs {best.cost_percent:.1f} %"
    )
    notes = [
        f"fastest of a paged cache: {best.measured}, {picked}",
        f"ranked WRONG, {seen} {wrong}" if wrong else "ranked right",
    ]
    out = f", {size(cell.evicted_bytes)} out" if cell.evicted_bytes else ""
    title = f"{size(cell.fetched_bytes)} in{out}, in pieces of {size(cell.piece_bytes)}"
    return Table(heads, [_row(row) for row in cell.layouts], title, notes)


def _row(row: KvMeasured) -> tuple[str, ...]:
    alone, planned, off = row.measured_device_seconds, row.predicted_device_seconds, row.device_error_percent
    return (
        row.layout, time(row.measured_seconds), due(row), error_of(row), time(row.measured_calls_seconds),
        "–" if alone is None else time(alone), "–" if planned is None else time(planned),
        "–" if off is None else f"{off:+.1f} %",
    )  # fmt: skip


def _by_size(fetched: int, evicted: int, cells: list[KvCell], seen: str) -> Figure:
    lines = []
    for n, layout in enumerate(sorted({row.layout for cell in cells for row in cell.layouts})):
        rows = {cell.piece_bytes: row for cell in cells for row in cell.layouts if row.layout == layout}
        sizes, colour = [float(piece) for piece in rows], COLOURS[n % len(COLOURS)]
        lines += [
            Line(f"{layout}, {seen}", colour, sizes, [row.measured_seconds for row in rows.values()]),
            Line(layout, colour, sizes, [row.predicted_seconds for row in rows.values()], predicted=True),
        ]
    out = f", {size(evicted)} out" if evicted else ""
    name = f"fetched{fetched}-{evicted}"
    return Figure(name, Lines(lines, "bytes of a piece", "time", "B"), f"{size(fetched)} in{out}")
