"""The documents of `project`, `compare`, `what-if`, `price` and `nodes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from busfare.advise import amounts
from busfare.advise.amounts import count, rate, several, size, time
from busfare.node.gpus import Gpu
from busfare.report.blocks import bar, omitted, parts, percent, ranges, recorder
from busfare.report.document import Block, Document, Face, Figure, Items, Table, Text, numbers, table, words
from busfare.report.lanes import Lanes
from busfare.report.nodes import CollectivePrices, KernelPrices, Nodes, Prices
from busfare.report.summary import path_name
from busfare.report.svg import COLOUR, Bars, BarSeries
from busfare.report.trace_document import ZOOM
from busfare.report.what_ifs import Outcome, WhatIf

if TYPE_CHECKING:
    from busfare.project.results import Compared, KernelsCompared, Projected, Projection

__all__ = [
    "collective_price_document",
    "comparison_document",
    "kernel_price_document",
    "nodes_document",
    "prices_document",
    "projection_blocks",
    "projection_document",
    "runs_figure",
    "what_if_document",
]

MOST_RANKS = 16
GUESS = " (a guess from the GPU's name; set --from)"


def projection_document(result: Projected, trace: str) -> Document:
    """What a run would take on other nodes."""
    guess = GUESS if result.from_guessed_from_gpu_name else ""
    heading = f"Recorded on {result.recorded_on}{guess}; predicted by cost model {result.model}"
    blocks: list[Block] = [*projection_blocks(result)]
    for p in result.projections:
        rows = [
            (path_name(row), count(row.count), time(row.recorded_seconds), str(row),
             _change(row.recorded_seconds, row.predicted_seconds))
            for row in p.by_path
        ]  # fmt: skip
        notes = [f"Pageable copies: {p.pageable_copies}."] if p.pageable_copies else []
        if p.transfers.unpriced:
            copies = several(p.transfers.unpriced, "copy")
            notes.append(f"Without a price by this model: {copies}; the recorded time is kept.")
        columns = words("path") + numbers("count", "recorded", "predicted", "change")
        if rows:
            blocks.append(Table(columns, rows, f"{p.to}, by path", notes))
        blocks.append(_kernels(p))
    return Document(f"busfare: {trace}", heading, "", blocks)


def _kernels(projection: Projection) -> Block:
    kernels = projection.kernels
    if not kernels.by_class:
        return Text(f"{projection.to}: {several(kernels.count, 'kernel')}, {kernels.rule}.")
    rows = [
        (row.kind, count(row.count), time(row.recorded_seconds),
         f"{time(row.predicted_seconds)} (kept)" if row.bound == "none" else str(row),
         _change(row.recorded_seconds, row.predicted_seconds), row.rung or "–", row.why)
        for row in kernels.by_class
    ]  # fmt: skip
    columns = words("kernels") + numbers("count", "recorded", "predicted", "change") + words("rung", "why")
    return Table(columns, rows, f"{projection.to}, kernels by class")


def projection_blocks(result: Projected, title: str = "", face: Face = "both") -> list[Block]:
    """Every node beside the recorded one, as a table and a figure."""
    first = result.projections[0]
    rows = [
        (f"{first.recorded_on} (recorded)", time(first.transfers.recorded_seconds), "",
         time(first.makespan.recorded_seconds), ""),
    ]  # fmt: skip
    for p in result.projections:
        cells = [
            (str(own), _change(own.recorded_seconds, own.predicted_seconds))
            for own in (p.transfers, p.makespan)
        ]
        rows.append((f"{p.to} (predicted)", *cells[0], *cells[1]))
    columns = words("node") + numbers("transfers", "change", "whole run", "change")
    notes = [f"Whole run: {first.makespan.method}.", ranges(first.makespan)]
    return [
        Table(columns, rows, title, notes, face=face),
        Figure("projection", _projections(result.projections)),
    ]


def _projections(projections: Sequence[Projection]) -> Bars:
    first = projections[0]
    labels = [f"{first.recorded_on} (recorded)", *(f"{p.to} (predicted)" for p in projections)]
    moved = [bar(None, first.transfers.recorded_seconds), *(bar(p.transfers) for p in projections)]
    runs = [bar(None, first.makespan.recorded_seconds), *(bar(p.makespan) for p in projections)]
    series = [BarSeries("transfers", COLOUR["h2d"], moved), BarSeries("whole run", COLOUR["kernels"], runs)]
    return Bars(labels, series, "time; hatched: predicted")


def _change(old: float, new: float) -> str:
    return percent(new / old - 1) if old else "–"


def comparison_document(result: Compared) -> Document:
    """Predictions against a trace recorded on the machine that they are for."""
    models = [
        (m.model, count(m.count), f"{m.wmape_percent:.2f} %",
         "–" if m.inside_percent is None else f"{m.inside_percent:.0f} %")
        for m in result.models
    ]  # fmt: skip
    best = result
    rows = [
        (path_name(row), count(row.count), time(row.recorded_seconds), str(row),
         "–" if row.wmape_percent is None else f"{row.wmape_percent:.2f} %")
        for row in best.by_path
    ]  # fmt: skip
    notes = [f"Not compared, for in one of the two traces only: {several(best.unmatched, 'copy')}."]
    columns = words("path") + numbers("count", "recorded", "predicted", "WMAPE")
    error = "Error by cost model: 100 · Σ|recorded − predicted| / Σ recorded"
    blocks: list[Block] = [
        Table(words("model") + numbers("copies compared", "WMAPE", "in range"), models, error),
        Table(columns, rows, f"Best model, {best.model}, by path", notes if best.unmatched else []),
    ]
    if not models:
        blocks = [Text("No copy is in both traces: only kernels are compared.")]
    if result.kernels is not None and result.kernels.by_kernel:
        blocks.append(_kernels_compared(result.kernels))
    heading = f"Predicted from {result.predicted} for {result.to}, against {result.actual} (recorded)"
    return Document(f"busfare compare: {result.predicted}", heading, "", blocks)


def _kernels_compared(kernels: KernelsCompared, most: int = 20) -> Table:
    rows = [
        (row.name[:60], row.kind, count(row.count), time(row.recorded_seconds),
         amounts.between(row.predicted_seconds, row.low_seconds, row.high_seconds), time(row.actual_seconds),
         _change(row.actual_seconds, row.predicted_seconds))
        for row in kernels.by_kernel[:most]
    ]  # fmt: skip
    columns = words("kernel or operator", "class") + numbers("count", "from", "predicted", "actual", "error")
    notes = [
        f"Of {kernels.count:,} launches that both have, the sum is {kernels.wmape_percent:.1f} % off, and the median "
        f"kernel {kernels.median_percent:.1f} %; {kernels.inside_percent:.0f} % are in range."
    ]
    if kernels.unmatched:
        notes.append(
            f"Not compared, for in one of the two traces only: {several(kernels.unmatched, 'kernel')}."
        )
    return Table(columns, rows, "Kernels, means a launch; the longest first", notes)


def what_if_document(
    result: WhatIf, recorded: Lanes | None = None, predicted: Lanes | None = None
) -> Document:
    """The gains of changes, and the predicted time line below the recorded one."""
    where = f"recorded on {result.recorded_on or 'a machine that is not known'}"
    where += GUESS if result.from_guessed_from_gpu_name else ""
    base, rows = result.baseline, [*result.changes, *([result] if len(result.changes) > 1 else [])]
    cost = base.recording_cost
    unchanged = "replayed without the recorder's cost" if cost else "replayed unchanged"
    cells = [
        ("recorded", "", time(base.recorded_seconds), "", ""),
        (unchanged, "", time(base.replayed_seconds), "", ""),
        *(
            (f"{row.title} (predicted)", count(row.touched), str(row), f"{row.gain_percent:+.1f} %",
             "–" if row.speedup is None else f"{row.speedup:.3f}×")
            for row in rows
        ),
    ]  # fmt: skip
    notes = [ranges(result), *([recorder(cost)] if cost else [])]
    low, high = result.range_seconds
    if high - low > 0.005 * high:
        notes.append(f"Waits that nothing in the trace explains are kept; without them, {time(low)}.")
    notes += [f"{row.title}: nothing in this trace to change." for row in result.changes if not row.touched]
    columns = words("run") + numbers("touched", "whole run", "gain", "speed-up")
    blocks: list[Block] = [Table(columns, cells, "Whole run, predicted by replay", notes)]
    bare = [("without the recorder's cost", base.replayed_seconds, None)] if cost else []
    runs = [("recorded", base.recorded_seconds, None), *bare, *((row.title, 0.0, row) for row in rows)]
    blocks.append(runs_figure("gains", runs))
    blocks += [steps_of(row) for row in result.changes if row.steps]
    if result.rests_on:
        blocks.append(Items(result.rests_on, "Holds if"))
    if recorded and recorded.lanes and predicted:
        blocks.append(Figure("recorded", recorded, "Time line, as recorded", ZOOM))
        blocks.append(Figure("predicted", predicted, "Time line, predicted with all changes"))
    blocks.append(parts("part of the critical path", base.critical_path, result.critical_path))
    if result.ranks:
        cells_of = {
            "replayed": lambda row: "–" if row.replayed_seconds is None else time(row.replayed_seconds),
            "predicted": lambda row: time(row.predicted_seconds),
        }
        blocks.append(
            table(result.ranks, "Ranks", {"rank": lambda row: str(row.rank)}, cells_of, most=MOST_RANKS)
        )
    blocks += omitted(result.omissions)
    return Document(f"busfare what-if: {result.trace}", result.trace, where, blocks)


def steps_of(outcome: Outcome) -> Items:
    """What a change is made of, each step with what it gains on top of those above it."""
    rows = [
        f"{step.title}: {step.evidence}"
        + (f" (predicted gain {time(step.gain_seconds)})" if step.gain_seconds is not None else "")
        for step in outcome.steps or ()
    ]
    return Items(rows, f"Steps of {outcome.title}, each on top of those above")


def runs_figure(name: str, runs: Sequence[tuple[str, float, Outcome | None]]) -> Figure:
    """Whole runs below each other: recorded, of so many seconds, or the outcome of a change."""
    bars = [bar(outcome, seconds) for _, seconds, outcome in runs]
    return Figure(
        name, Bars([run for run, *_ in runs], [BarSeries("whole run", COLOUR["kernels"], bars)], "whole run")
    )


def prices_document(result: Prices) -> Document:
    """One copy by every model."""
    what = f"{result.direction}, {result.memory}, {size(result.bytes)} on {result.node} (predicted)"
    rows = [
        (p.model, p.shown(p.seconds), rate(p.bytes_per_second), p.rung or f"– ({p.reason})")
        for p in result.prices
    ]
    columns = words("model") + numbers("time (80 % range)", "rate") + words("rung")
    trust = [f"Trust {result.trust.model}: {result.trust.why}."] if result.trust else []
    return Document(f"busfare price: {what}", "", "", [Table(columns, rows, what, trust)])


def kernel_price_document(result: KernelPrices) -> Document:
    """One kernel by every rung."""
    what = f"{result.kind} kernel on {result.node} (predicted), {time(result.recorded_seconds)} on {result.recorded_on}"
    rows = [
        (p.rung or "–", "not predicted" if p.seconds is None else p.shown(p.seconds),
         "–" if p.seconds is None else _change(result.recorded_seconds, p.seconds))
        for p in result.prices
    ]  # fmt: skip
    columns = words("rung") + numbers("time (80 % range)", "change")
    return Document(f"busfare price: {what}", "", "", [Table(columns, rows, what)])


def collective_price_document(result: CollectivePrices) -> Document:
    """One collective by every rung."""
    hosts = f" on each of {result.hosts} hosts" if result.hosts > 1 else ""
    what = (
        f"{result.collective} of {size(result.bytes)} among {result.ranks // result.hosts} GPUs{hosts}, {result.node} "
        f"({result.links}; predicted)"
    )
    rows = [
        (p.model, p.shown(p.seconds), rate(p.bus_bytes_per_second), p.algorithm or "–", p.protocol or "–", p.rung or "–")
        for p in result.prices
    ]  # fmt: skip
    columns = (
        words("model") + numbers("time (80 % range)", "bus rate") + words("algorithm", "protocol", "rung")
    )
    return Document(f"busfare price: {what}", "", "", [Table(columns, rows, what)])


def nodes_document(result: Nodes) -> Document:
    """The catalogue, or what was found in it."""
    columns = words("node") + numbers("GPUs") + words("host link") + numbers("h2d", "d2h") + words("what")
    rows = [
        (
            n.name,
            str(n.gpus),
            n.host_link,
            rate(n.h2d_bytes_per_second),
            rate(n.d2h_bytes_per_second),
            n.title,
        )
        for n in result.nodes
    ]
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(columns, rows, "Nodes (rates of large copies, predicted from data sheets)"))
    if isinstance(result.gpus_by_name, int):
        more = f"{result.gpus_by_name} GPUs more by name: busfare nodes 3060 shows those with 3060 in it."
        blocks.append(Text(more))
    if isinstance(result.gpus, list) and result.gpus:
        blocks.append(_gpus(result.gpus))
    return Document("busfare nodes", "", "", blocks)


def _gpus(gpus: Sequence[Gpu]) -> Table:
    rows = [
        (
            gpu.name,
            gpu.link or "one memory",
            "" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB",
            "" if gpu.memory_bandwidth_bytes_per_s is None else rate(gpu.memory_bandwidth_bytes_per_s),
            str(gpu.multiprocessors or ""),
            str(gpu.copy_engines or ""),
            gpu.node or "",
        )
        for gpu in gpus
    ]
    columns = words("GPU", "link") + numbers("memory", "rate", "SMs or CUs", "copy engines") + words("node")
    return Table(columns, rows, "GPUs by name")
