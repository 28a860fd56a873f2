"""The documents of what was measured: probes, and strategies and methods beside their predictions, as in W14 and S16."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from busfare.advise.amounts import between, rate, several, size, time
from busfare.measure.bench.results import (
    Benched,
    Beside,
    Crossover,
    Fastest,
    MethodsCell,
    MethodsResult,
    StrategiesResult,
    StrategyCell,
    Version,
)
from busfare.measure.results import ProbedCase, ProbeResult, ResidualCase
from busfare.node import CollectiveCurve, Contention, Cost, Curve, Kernels
from busfare.report.blocks import machine
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.svg import COLOUR, COLOURS, Bar, Bars, BarSeries, Line, Lines

__all__ = ["benched", "due", "error_of", "methods_document", "probe_document", "strategies_document"]

PROBED = (
    "Measured: the interquartile mean of raw samples of the device's clock; of the host's clock for pageable copies. "
    "Predicted: by the parameters of the node file, on sizes that were not fitted."
)


def probe_document(result: ProbeResult) -> Document:
    """The node's parameters, their residuals, and what is wrong with the machine."""
    node = result.node
    played = (
        f"VIRTUAL: {result.facts.get('plays')} is played here; nothing was measured. "
        if result.virtual
        else ""
    )
    tables = (
        _paths(node.curves),
        _shares(node.contentions),
        _costs(node.costs),
        _kernels(node.kernels),
        _collectives(node.collectives),
    )
    blocks: list[Block] = [table for table in tables if table.rows]
    for n, h in enumerate(result.health):
        measured, due = h.measured_bytes_per_second, h.predicted_bytes_per_second
        rates = f"{rate(measured)} of {rate(due)} by the data sheet ({measured / due:.0%})"
        sentence = f"GPU {h.gpu} {h.direction}: {rates}: {h.verdict or 'sound'}"
        blocks.append(Text(sentence, title="Is it sound?" if not n else ""))
    for name, own in (("pinned", result.residuals), ("pageable", result.residuals.pageable)):
        if own.count and own.median_percent is not None:
            cases = several(own.count, f"{name} case")
            figures = f"median {own.median_percent:.2f} %, largest {own.max_percent:.2f} %"
            blocks.append(Text(f"Residuals on {cases}, not fitted: {figures}"))
    blocks += [Text(f"DISTURBED: {sentence}", "bold") for sentence in result.disturbances]
    reasons = Counter(row.why for row in result.left_out)
    blocks += [Text(f"left out, {several(count, 'case')}: {why}") for why, count in reasons.items()]
    blocks += [*_figures(result), *_peers(result.cases), machine(result.facts)]
    return Document(f"busfare probe: {node.name}", played + node.title, "", blocks, PROBED)


def _paths(curves: Sequence[Curve]) -> Table:
    rows = [
        (
            str(c.gpu or 0),
            f"{c.direction} {c.memory}"
            + (f" → GPU {c.peer}" if c.peer is not None else "")
            + (" by page faults" if c.faults else ""),
            time(c.latency_overhead_s[0]),
            time(c.issue_interval_s[1]) if 1 in c.issue_interval_s else "–",
            rate(1 / c.long_gap_per_byte_s),
            str(len(c.gap_per_byte_s)),
        )
        for c in curves
    ]
    return Table(words("GPU", "path") + numbers("L+o", "g", "large copies", "pieces"), rows)


def _shares(contention: Sequence[Contention]) -> Table:
    """What each direction keeps of its own rate."""
    rows = [
        (str(c.gpu or 0), situation, f"{shares.h2d:.0%}", f"{shares.d2h:.0%}")
        for c in contention
        for situation, shares in (
            ("copies go both ways", c.both),
            ("copies, while a kernel uses mapped memory the other way", c.copy_beside_mapped),
            ("a kernel reads and writes mapped memory", c.mapped_both),
            ("such a kernel, while copies go the other way", c.mapped_beside_copy),
        )
    ]
    return Table(words("GPU", "keeps of its rate, while") + numbers("into the GPU", "out of it"), rows)


def _costs(costs: Sequence[Cost]) -> Table:
    rows = [
        (
            "–" if cost.gpu is None else str(cost.gpu),
            cost.call,
            time(cost.call_s),
            "–" if cost.call_per_byte_s is None else time(cost.call_per_byte_s * 2**20),
            "–" if cost.device_s is None else time(cost.device_s),
        )
        for cost in costs
    ]
    return Table(words("GPU", "call") + numbers("on the host", "a MiB", "on the GPU"), rows)


def _collectives(curves: Sequence[CollectiveCurve]) -> Table:
    rows = [
        (one.kind, str(one.ranks), time(one.latency_overhead_s[0]), rate(1 / one.long_gap_per_byte_s))
        for one in curves
    ]
    return Table(words("collective") + numbers("GPUs", "start", "rate of long ones"), rows)


def _kernels(kernels: Sequence[Kernels]) -> Table:
    """What kernels reach: seconds, bytes and operations a second."""
    rows = []
    for one in kernels:
        gpu = str(one.gpu or 0)
        for name, seconds in (
            ("an empty kernel", one.launch_s),
            ("from launch to launch", one.launch_interval_s),
        ):
            rows += [(gpu, name, time(seconds))] if seconds is not None else []
        streams = [*one.memory_bytes_per_s.items(), ("read of L2", one.l2_bytes_per_s)]
        rows += [(gpu, f"stream: {name}", rate(value)) for name, value in streams if value]
        rows += [(gpu, name, f"{value / 1e12:.4g} TFLOP/s") for name, value in one.flops_per_s.items()]
        rows += [
            (
                gpu,
                f"GEMM {g.type} {g.m} × {g.n} × {g.k}",
                f"{time(g.seconds)}, {g.flops / g.seconds / 1e12:.4g} TFLOP/s",
            )
            for g in one.gemm
        ]
    return Table(words("GPU", "kernels") + numbers("reach"), rows)


def _figures(result: ProbeResult) -> list[Figure]:
    """Bandwidth and time of one copy against its size, and the residuals."""
    curves: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for case in sorted(result.cases, key=lambda c: c.bytes):
        seconds = case.api_seconds if case.memory == "pageable" else case.device_seconds
        if case.mode in ("copies", "kernel") and case.count == 1 and case.direction != "p2p" and seconds:
            curves.setdefault((case.gpu, case.direction, case.memory), []).append((case.bytes, seconds))
    kinds = sorted({(gpu, memory) for gpu, _, memory in curves})
    figures = []
    for name, title in (("bandwidth", "Bandwidth of one copy"), ("latency", "Time of one copy")):
        lines = [
            Line(
                f"GPU {gpu} {direction} {memory}",
                COLOURS[(2 * kinds.index((gpu, memory)) + (direction != "h2d")) % len(COLOURS)],
                [bytes_ for bytes_, _ in own],
                [bytes_ / seconds if name == "bandwidth" else seconds for bytes_, seconds in own],
            )
            for (gpu, direction, memory), own in sorted(curves.items())
        ]
        unit = "B/s" if name == "bandwidth" else "s"
        figures.append(Figure(name, Lines(lines, "bytes of the copy", "measured", "B", unit), title))
    return [*figures, *_residuals(result.residual_cases)]


def _residuals(cases: Sequence[ResidualCase]) -> list[Figure]:
    if not cases:
        return []
    errors = [100 * (c.predicted_seconds / c.measured_seconds - 1) for c in cases]
    hovers = [f"{c.case}: {error:.2f} %" for c, error in zip(cases, errors, strict=True)]
    line = Line(
        "error", COLOUR["h2d"], [c.measured_seconds for c in cases], errors, apart=True, hovers=hovers
    )
    chart = Lines([line], "measured time", "error, %", "s", "%", y_log=False)
    return [Figure("residuals", chart, "Predicted over measured, on sizes not fitted")]


def _peers(cases: Sequence[ProbedCase]) -> list[Table]:
    """The rate of the largest copy between every ordered pair of GPUs."""
    rates: dict[tuple[int, int | None], tuple[int, str]] = {}
    for case in sorted(cases, key=lambda case: case.bytes):
        single = case.mode in ("copies", "kernel") and case.count == 1
        if case.direction == "p2p" and single and case.device_seconds:
            rates[case.gpu, case.peer] = case.bytes, rate(case.bytes / case.device_seconds)
    gpus = sorted({gpu for pair in rates for gpu in pair if gpu is not None})
    rows = [(f"from GPU {a}", *(rates.get((a, b), (0, "–"))[1] for b in gpus)) for a in gpus]
    columns = words("") + numbers(*(f"to GPU {b}" for b in gpus))
    return [Table(columns, rows, "Between GPUs", face="page")] if rows else []


MEASURED, PREDICTED, OTHERS = (COLOUR[name] for name in ("measured", "predicted", "others"))
BENCHED = (
    "Measured: by events on the GPU (strategies) or the host's clock (methods), the mean of several runs, every result "
    "checked. Predicted: by plan, from the node's parameters and the kernel's time alone; hatched or dashed."
)
VIRTUAL = "VIRTUAL: a node is played here; nothing was measured, nothing was checked. "
#: The parts of a program, from its first line to its last.
RANGES = {
    "initialise": COLOUR["others"],
    "h2d": COLOUR["h2d"],
    "kernel": COLOUR["kernels"],
    "d2h": COLOUR["d2h"],
    "sum": COLOUR["other copies"],
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
    series = [BarSeries(seen, MEASURED, measured), BarSeries("predicted", PREDICTED, predicted)]
    labels = [v.strategy + (f" ({v.streams})" if v.streams > 1 else "") for v in fastest]
    every = []
    for v in cell.versions:
        row, interval = _version(v), " – ".join(map(time, v.measured_interval_seconds))
        every.append((*row[:3], interval, *row[3:], "yes" if v.checked else "no"))
    return [
        Table(heads, [_version(v) for v in fastest], title, [sentence, facts]),
        Figure(f"cell{number}", Bars(labels, series, "time; dotted: the limit", mark=cell.limit.seconds)),
        Figure(f"sweep{number}", Lines(_against_streams(cell, seen), "streams", "time", y_log=False)),
        Table(
            (*heads[:3], *numbers("interval"), *heads[3:], *words("checked")),
            every, "every version", folded=True, face="page",
        ),
    ]  # fmt: skip


def _name(one: Fastest) -> str:
    return f"{one.strategy} ({one.streams})" if one.streams > 1 else one.strategy


def _against_streams(cell: StrategyCell, seen: str) -> list[Line]:
    lines = []
    for strategy, colours in (
        ("streams", (MEASURED, PREDICTED)),
        ("hybrid", (COLOUR["d2h"], COLOUR["other copies"])),
    ):
        own = [v for v in cell.versions if v.strategy == strategy]
        streams = [v.streams for v in own]
        lines.append(Line(f"{strategy}, {seen}", colours[0], streams, [v.measured_seconds for v in own]))
        predicted = [v.predicted_seconds for v in own]
        lines.append(Line(f"{strategy}, predicted", colours[1], streams, predicted, predicted=True))
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
            (f"{result.gpu}, {result.seen}", one, MEASURED),
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
        for method, colour in (("zero-copy", PREDICTED), ("pinned", MEASURED))
    ]
    chart = Lines(lines, "accesses an element", "time of copies and kernel")
    return [Text(sentence, title="Zero-copy against pinned copies"), Figure("crossover", chart)]
