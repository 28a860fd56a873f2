"""The documents of the benchmarks: what was measured beside its predictions, strategies and methods as in W14 and S16."""

from __future__ import annotations

from itertools import groupby

from busfare.advise.amounts import between, several, size, time
from busfare.measure.bench.results import (
    Benched,
    Beside,
    Crossover,
    Fastest,
    KvBenchResult,
    KvCell,
    KvMeasured,
    MethodsCell,
    MethodsResult,
    StrategiesResult,
    StrategyCell,
    Version,
)
from busfare.report.blocks import machine
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.svg import COLOUR, COLOURS, Bar, Bars, BarSeries, Line, Lines

__all__ = ["benched", "kv_document", "methods_document", "strategies_document"]

RUN, OTHERS = COLOUR["whole run"], COLOUR["others"]
BENCHED = (
    "Measured: by events on the GPU (strategies) or the host's clock (methods), the mean of several runs, every result "
    "checked. Predicted: by plan, from the node's parameters and the kernel's time alone; hatched or dashed."
)
VIRTUAL = "VIRTUAL: a node is played here; nothing was measured, nothing was checked. "
#: The parts of a program, from its first line to its last.
RANGES = {
    "initialise": COLOUR["host between calls"],
    "h2d": COLOUR["h2d"],
    "kernel": COLOUR["kernels"],
    "d2h": COLOUR["d2h"],
    "sum": COLOUR["calls"],
}


def strategies_document(result: StrategiesResult) -> Document:
    """A line a strategy of each cell, at its fastest number of streams; what was picked; against the number of streams."""
    blocks: list[Block] = [_picked(result)]
    for number, cell in enumerate(result.cells):
        blocks += _cell(cell, result.seen, number)
    return benched("Overlap strategies", result, blocks)


def benched(what: str, result: Benched, blocks: list[Block]) -> Document:
    node, played = result.node, VIRTUAL if result.virtual else ""
    facts = f"predicted by the parameters of {node.name} ({node.source}) · {result.date} · {result.command}"
    blocks += [Text(f"DISTURBED: {sentence}", "bold") for sentence in result.disturbances]
    blocks += [Text(f"left out: {row.case}: {row.why}") for row in result.left_out]
    heading = f"{played}{what} on {result.gpu}"
    return Document(f"busfare bench: {heading}", heading, facts, [*blocks, machine(result.facts)], BENCHED)


def _picked(result: StrategiesResult) -> Table:
    rows = [
        (
            cell.name,
            cell.best.measured.strategy,
            cell.best.predicted.strategy,
            "yes" if cell.best.picked else "NO",
            "–" if cell.best.cost_percent is None else f"{cell.best.cost_percent:.1f} %",
            str(cell.streams.measured_best),
            str(cell.streams.predicted_best),
            f"{cell.limit.streams_share_percent:.1f} %",
        )
        for cell in result.cells
    ]
    seen = result.seen
    columns = words("cell", f"best, {seen}", "best, predicted", "picked")
    columns += numbers("costs", f"n, {seen}", "n, predicted", "of the limit")
    note = (
        "costs: what the predicted best takes more than the fastest, of the limit: what the streams version reaches of "
        f"the slower of link and kernel; both {seen}. n: streams."
    )
    return Table(columns, rows, "In short", [note], face="page")


def due(row: Beside) -> str:
    """The predicted time with its range."""
    seconds = row.predicted_seconds
    return "–" if seconds is None else between(seconds, row.low_seconds, row.high_seconds)


def error_of(row: Beside) -> str:
    return "–" if row.error_percent is None else f"{row.error_percent:+.1f} %"


def _version(v: Version) -> tuple[str, ...]:
    host = v.measured_host_seconds
    return (
        v.strategy, str(v.streams), time(v.measured_seconds), due(v), error_of(v), "–" if host is None else time(host)
    )  # fmt: skip


def _cell(cell: StrategyCell, seen: str, number: int) -> list[Block]:
    fastest, best = cell.fastest(), cell.best
    title = (
        f"{cell.name}: {cell.title}; {size(cell.h2d_bytes)} in, {size(cell.d2h_bytes)} out, "
        f"kernel alone {time(cell.measured_kernel_seconds)}"
    )
    sentence = (
        f"fastest: {_name(best.measured)}, {'picked' if best.picked else 'NOT picked'}: predicted "
        f"{_name(best.predicted)}; streams reach {cell.limit.streams_share_percent:.1f} % of the limit (the "
        f"{cell.limit.by}); {several(cell.streams.predicted_best, 'stream')} predicted, {cell.streams.measured_best} {seen}"
    )
    facts = (
        f"{several(cell.levels, 'level')} of {cell.level_elements:,} doubles; link both ways "
        f"{time(cell.measured_link_seconds)}; "
        + (f"checked against {cell.checked_against}" if cell.checked_against else "not checked")
    )
    heads = words("strategy") + numbers("streams", seen, "predicted", "error", "host's clock")
    measured = [Bar(v.measured_seconds, time(v.measured_seconds)) for v in fastest]
    predicted = [
        Bar(v.predicted_seconds, due(v), v.low_seconds, v.high_seconds, predicted=True) for v in fastest
    ]
    series = [BarSeries(seen, RUN, measured), BarSeries("predicted", RUN, predicted)]
    labels = [v.strategy + (f" ({v.streams})" if v.streams > 1 else "") for v in fastest]
    every = []
    for v in cell.versions:
        row, interval = _version(v), " – ".join(map(time, v.measured_interval_seconds))
        every.append((*row[:3], interval, *row[3:], "yes" if v.checked else "no"))
    return [
        Table(heads, [_version(v) for v in fastest], title, [sentence, facts]),
        Figure(f"cell{number}", Bars(labels, series, "time; dotted: the limit", mark=cell.limit.seconds)),
        Figure(f"sweep{number}", Lines(_against_streams(cell, seen), "streams", "time", y_log=False, whole=True)),
        Table(
            (*heads[:3], *numbers("interval"), *heads[3:], *words("checked")),
            every, "every version", folded=True, face="page",
        ),
    ]  # fmt: skip


def _name(one: Fastest) -> str:
    return f"{one.strategy} ({one.streams})" if one.streams > 1 else one.strategy


def _against_streams(cell: StrategyCell, seen: str) -> list[Line]:
    lines = []
    for strategy, colour in (
        ("streams", RUN),
        ("hybrid", COLOURS[5]),
    ):
        own = [v for v in cell.versions if v.strategy == strategy]
        streams = [v.streams for v in own]
        lines.append(Line(f"{strategy}, {seen}", colour, streams, [v.measured_seconds for v in own]))
        predicted = [v.predicted_seconds for v in own]
        lines.append(Line(f"{strategy}, predicted", colour, streams, predicted, predicted=True))
    return [line for line in lines if line.x]


def methods_document(result: MethodsResult) -> Document:
    """A line a method of each case; then S16's own figures beside ours, and the crossover."""
    blocks: list[Block] = []
    for number, accesses in ((1, 1), (2, 50)):
        cells = [cell for cell in result.cells if cell.accesses == accesses]
        if cells:
            title = f"Situation {number}: {several(accesses, 'access')} an element, over the slowest method"
            blocks.append(Figure(f"situation{number}", _ranges(cells, result.seen), title))
    blocks += [_case(cell) for cell in result.cells]
    blocks += _beside_published(result)
    if result.crossover:
        blocks += _crossing(result.crossover, result.seen)
    return benched("Migration methods", result, blocks)


def _case(cell: MethodsCell) -> Table:
    title = (
        f"{several(cell.elements, 'int')} ({size(cell.bytes)}), {several(cell.accesses, 'access')} an element"
    )
    rows = [
        (
            m.method,
            time(m.measured_seconds),
            f"{50 * m.spread:.1f}%",
            *(
                time(m.measured_ranges_seconds[name]) if m.measured_ranges_seconds.get(name) else "–"
                for name in RANGES
            ),
            due(m),
            error_of(m),
        )
        for m in cell.methods
    ]
    columns = words("method") + numbers("whole", "±", *RANGES, "predicted", "error")
    verdict = "picked" if cell.best.picked else f"NOT picked: predicted {cell.best.predicted}"
    return Table(columns, rows, title, [f"fastest: {cell.best.measured}, {verdict}"])


def _ranges(cells: list[MethodsCell], seen: str) -> Bars:
    """Stacked parts of each method at each size, over the slowest method of that size [S16 figures 3 and 6]."""
    labels, shares = [], {name: list[Bar]() for name in RANGES}
    for cell in cells:
        slowest = max(m.measured_seconds for m in cell.methods)
        for m in sorted(cell.methods, key=lambda m: m.method):
            labels.append(f"{cell.elements:,} ints, {m.method}")
            for name, bars in shares.items():
                seconds = m.measured_ranges_seconds.get(name, 0.0)
                bars.append(Bar(seconds / slowest, hover=f"{name}: {time(seconds)}"))
    series = [BarSeries(f"{name}, {seen}", RANGES[name], bars) for name, bars in shares.items()]
    return Bars(labels, series, "time over the slowest method's", "", stacked=True)


def _beside_published(result: MethodsResult) -> list[Block]:
    one, many = result.normalised.situation_1, result.normalised.situation_2
    published = result.published.situation_1

    def share(own: dict[str, float], method: str) -> str:
        return f"{own[method]:.2f} ×" if method in own else "–"

    methods = list(dict.fromkeys((*one, *many, *published)))
    rows = [(method, *(share(own, method) for own in (one, many, published))) for method in methods]
    columns = words("over zero-copy") + numbers("here, 1 access", "here, 50", "S16's GT 740, 1")
    series = [
        BarSeries(name, colour, [Bar(own.get(method), share(own, method)) for method in methods])
        for name, own, colour in (
            (f"{result.gpu}, {result.seen}", one, RUN),
            ("GT 740, published [S16]", published, OTHERS),
        )
    ]
    chart = Bars(methods, series, "time over zero-copy's, one access", "")
    return [Table(columns, rows, "Mean of S16's five sizes"), Figure("published", chart)]


def _crossing(crossing: Crossover, seen: str) -> list[Block]:
    here, due = (
        "no number of" if number is None else f"{number:.2f}"
        for number in (crossing.measured_accesses, crossing.predicted_accesses)
    )
    sentence = (
        f"Pinned copies beat zero-copy from {here} accesses an element on ({seen}), {due} (predicted), "
        f"at {crossing.elements:,} ints"
    )
    lines = [
        Line(f"{method}, {what}", colour, crossing.accesses, own[method], predicted=what == "predicted")
        for what, own in ((seen, crossing.measured_seconds), ("predicted", crossing.predicted_seconds))
        for method, colour in (("zero-copy", COLOURS[5]), ("pinned", RUN))
    ]
    chart = Lines(lines, "accesses an element", "time of copies and kernel", whole=True)
    return [Text(sentence, title="Zero-copy against pinned copies"), Figure("crossover", chart)]


def kv_document(result: KvBenchResult) -> Document:
    """How far off, then a table a cell, and a figure for each total."""
    e, cells = result.errors, len(result.cells)
    inside = f"; {e.inside_percent:.0f} % in their range" if e.inside_percent is not None else ""
    sentence = (
        f"{e.count} times, predicted over {result.seen}: median {e.median_percent:.1f} %, 90th percentile "
        f"{e.ninetieth_percent:.1f} %, largest {e.largest_percent:.1f} %{inside}. Ranked right: {e.ranked_right} of "
        f"{cells} cells; fastest picked: {e.picked} of {cells}."
    )
    blocks: list[Block] = [Text(sentence)]
    blocks += [_layouts(cell, result.seen) for cell in result.cells]
    for key, group in groupby(result.cells, lambda cell: (cell.fetched_bytes, cell.evicted_bytes)):
        same = list(group)
        if len(same) > 1:
            blocks.append(_by_size(*key, same, result.seen))
    return benched("Layouts of a KV cache", result, blocks)


def _layouts(cell: KvCell, seen: str) -> Table:
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
