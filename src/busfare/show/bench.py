"""The documents of the benchmarks: what was measured beside its predictions, strategies and methods as in W14 and S16."""

from collections.abc import Callable

from busfare.advise.amounts import percent, ratio, several, size, time
from busfare.answers.measure import results
from busfare.show.blocks import bar, machine
from busfare.show.document import Block, Cells, Document, Figure, Table, Text, numbers, table, words
from busfare.show.svg import COLOUR, Bar, Bars, BarSeries

RUN = COLOUR["whole run"]
BENCHED = (
    "Measured: by events on the GPU (strategies) or the host clock (methods); the mean of several runs, with every result "
    "checked. Predicted: by plan, from the node's parameters and the kernel's time alone; hatched."
)
VIRTUAL = "VIRTUAL: simulated node; nothing was measured or checked. "
#: Of a prediction beside what was measured.
DUE = {"predicted": "predicted_seconds", "error": "error_percent"}
#: The parts of a program, from its first line to its last.
RANGES = {
    "initialise": COLOUR["CPU time between API calls"],
    "h2d": COLOUR["h2d"],
    "kernel": COLOUR["kernels"],
    "d2h": COLOUR["d2h"],
    "sum": COLOUR["calls"],
}


def strategies_document(result: results.StrategiesResult) -> Document:
    """A line a strategy of each cell, at its fastest number of streams; what was picked."""
    blocks: list[Block] = [_picked(result)]
    for number, cell in enumerate(result.cells):
        blocks += _cell(cell, result.seen, number)
    return _benched("Overlap strategies", result, blocks)


def _benched(what: str, result: results.Benched, blocks: list[Block]) -> Document:
    node, played = result.node, VIRTUAL if result.virtual else ""
    facts = f"predicted from the parameters of {node.name} ({node.source}) · {result.date} · {result.command}"
    blocks += [Text(f"DISTURBED: {sentence}", "bold") for sentence in result.disturbances]
    blocks += [Text(f"left out: {row.case}: {row.why}") for row in result.left_out]
    heading = f"{played}{what} on {result.gpu}"
    return Document(f"busfare bench: {heading}", heading, facts, [*blocks, machine(result.facts)], BENCHED)


def _picked(result: results.StrategiesResult) -> Table:
    seen = result.seen
    note = (
        "costs: extra time of the predicted best over the fastest; of the limit: share of the slower of link and "
        f"kernel that streams reach; both {seen}. n: streams."
    )
    return table(
        result.cells,
        "In short",
        {
            "cell": "name",
            f"best, {seen}": "best.measured.strategy",
            "best, predicted": "best.predicted.strategy",
            "picked": lambda cell: "yes" if cell.best.picked else "NO",
        },
        {
            "costs": "best.cost_percent",
            f"n, {seen}": "streams.measured_best",
            "n, predicted": "streams.predicted_best",
            "of the limit": "limit.streams_share_percent",
        },
        notes=[note],
        face="page",
    )


def _cell(cell: results.StrategyCell, seen: str, number: int) -> list[Block]:
    fastest, best = cell.fastest(), cell.best
    title = (
        f"{cell.name}: {cell.title}; {size(cell.h2d_bytes)} in, {size(cell.d2h_bytes)} out, "
        f"kernel alone {time(cell.measured_kernel_seconds)}"
    )
    sentence = (
        f"fastest: {_name(best.measured)}, {'picked' if best.picked else 'NOT picked'}: predicted "
        f"{_name(best.predicted)}; streams reach {percent(cell.limit.streams_share_percent / 100, 1)} of the limit (the "
        f"{cell.limit.by}); {several(cell.streams.predicted_best, 'stream')} predicted, {cell.streams.measured_best} {seen}"
    )
    facts = (
        f"{several(cell.levels, 'level')} of {several(cell.level_elements, 'double')}; link both ways "
        f"{time(cell.measured_link_seconds)}; "
        + (f"checked against {cell.checked_against}" if cell.checked_against else "not checked")
    )
    figures = {"streams": "streams", seen: "measured_seconds", **DUE, "host's clock": "measured_host_seconds"}
    series = [
        BarSeries(seen, RUN, [bar(v.measured_seconds) for v in fastest]),
        BarSeries("predicted", RUN, [*map(bar, fastest)]),
    ]
    labels = [_name(v) for v in fastest]
    return [
        table(fastest, title, {"strategy": "strategy"}, figures, notes=[sentence, facts]),
        Figure(f"cell{number}", Bars(labels, series, "time; dotted: the limit", mark=cell.limit.seconds)),
    ]


def _name(version: results.Fastest | results.Version) -> str:
    return f"{version.strategy} ({version.streams})" if version.streams > 1 else version.strategy


def methods_document(result: results.MethodsResult) -> Document:
    """A line a method of each case; then S16's own figures beside ours."""
    blocks: list[Block] = []
    for number, accesses in ((1, 1), (2, 50)):
        cells = [cell for cell in result.cells if cell.accesses == accesses]
        if cells:
            title = f"Situation {number}: {several(accesses, 'access')} per element, relative to the slowest method"
            blocks.append(Figure(f"situation{number}", _ranges(cells, result.seen), title))
    blocks += [_case(cell) for cell in result.cells]
    blocks.append(_with_published(result))
    return _benched("Migration methods", result, blocks)


def _case(cell: results.MethodsCell) -> Table:
    title = (
        f"{several(cell.elements, 'int')} ({size(cell.bytes)}), {several(cell.accesses, 'access')} an element"
    )
    figures: Cells[results.MethodMeasured] = {
        "whole": "measured_seconds",
        "±": lambda m: percent(m.spread / 2, 1),
        **{name: _of_range(name) for name in RANGES},
        **DUE,
    }
    verdict = "picked" if cell.best.picked else f"NOT picked: predicted {cell.best.predicted}"
    notes = [f"fastest: {cell.best.measured}, {verdict}"]
    return table(cell.methods, title, {"method": "method"}, figures, notes=notes)


def _of_range(name: str) -> Callable[[results.MethodMeasured], str]:
    """What a part of the program took, where there was something of it."""
    return lambda m: time(m.measured_ranges_seconds[name]) if m.measured_ranges_seconds.get(name) else "–"


def _ranges(cells: list[results.MethodsCell], seen: str) -> Bars:
    """Stacked parts of each method at each size, over the slowest method of that size [S16 figures 3 and 6]."""
    labels, shares = [], {name: list[Bar]() for name in RANGES}
    for cell in cells:
        slowest = max(m.measured_seconds for m in cell.methods)
        for m in sorted(cell.methods, key=lambda m: m.method):
            labels.append(f"{several(cell.elements, 'int')}, {m.method}")
            for name, bars in shares.items():
                seconds = m.measured_ranges_seconds.get(name, 0.0)
                bars.append(Bar(seconds / slowest, hover=f"{name}: {time(seconds)}"))
    series = [BarSeries(f"{name}, {seen}", RANGES[name], bars) for name, bars in shares.items()]
    return Bars(labels, series, "time relative to the slowest method", "", stacked=True)


def _with_published(result: results.MethodsResult) -> Table:
    single, repeated = result.normalised.situation_1, result.normalised.situation_2
    published = result.published.situation_1

    def share(ratios: dict[str, float], method: str) -> str:
        return ratio(ratios[method]) if method in ratios else "–"

    methods = list(dict.fromkeys((*single, *repeated, *published)))
    rows = [(name, *(share(ratios, name) for ratios in (single, repeated, published))) for name in methods]
    columns = words("over zero-copy") + numbers("here, 1 access", "here, 50", "S16's GT 740, 1")
    return Table(columns, rows, "Mean of S16's five sizes")
