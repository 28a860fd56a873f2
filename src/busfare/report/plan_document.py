"""The document of `plan`: its words, the ranking, the sweep, the roofline, and what it all rests on."""

from __future__ import annotations

from collections.abc import Sequence

from busfare.advise.amounts import rate, several, size, time
from busfare.plan.equations import Roofline
from busfare.plan.machine import Basis
from busfare.report.blocks import bar, percent, ranges
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.plans import Answer, OnNode, PlanResult, Swept
from busfare.report.svg import COLOUR, COLOURS, Bars, BarSeries, Line, Lines

__all__ = ["basis_table", "plan_document"]

MOST_ROWS, MOST_KERNELS = 40, 1000
#: Before what a strategy is predicted by, where it rests on what nobody sentence.
IF_ONCE = "if touched once: "
KEPT = "A kernel time that was given stays as it is; from flops and device bytes it is each GPU's own."


def plan_document(result: PlanResult) -> Document:
    """Every time in it is predicted."""
    kernels = result.kernels or []
    many = f" (the first of {several(len(kernels), 'kernel')})" if kernels else ""
    facts = f"{result.device.gpu or 'GPU'} · {result.device.category} · every time is predicted"
    blocks: list[Block] = [Text(text) for text in result.words]
    blocks += _ranking(result)
    if recorded := result.recorded:
        launches, streams = several(recorded.launches, "launch"), several(recorded.streams, "stream")
        span = f"{time(recorded.span_seconds)} from first to last"
        blocks.append(Text(f"Recorded in the trace: {launches} in {streams}, {span}."))
    if result.roofline:
        blocks += _roofline(result.roofline)
    if kernels:
        blocks.append(_answers(kernels[:MOST_KERNELS], "kernel", "Every kernel"))
    if result.nodes:
        blocks.append(_answers(result.nodes, "node", "On other nodes", [KEPT]))
    if result.sweep:
        blocks += _sweep(result.sweep)
    blocks.append(basis_table(result.basis))
    title = f"{result.name}{many} on {result.node}"
    return Document(f"busfare plan: {title}", title, facts, blocks)


def basis_table(basis: Sequence[Basis]) -> Table:
    """The parameters of a plan, and where each is from."""
    rows = [(b.parameter, _value(b.value, b.unit), b.kind, b.source) for b in basis]
    return Table(words("parameter", "value", "kind", "source"), rows, "What it rests on")


def _ranking(result: PlanResult) -> list[Block]:
    best, bounds = result.ranking[0].predicted_seconds, result.bounds
    rows = [
        (
            r.strategy,
            str(r.streams),
            str(r),
            percent(r.predicted_seconds / best - 1),
            IF_ONCE * bool(r.assumes) + r.by,
        )
        for r in result.ranking
    ]
    sentence = (
        f"Bounds (predicted): full overlap {time(bounds.full_overlap_seconds)}, "
        f"none {time(bounds.no_overlap_seconds)}, mapped {time(bounds.mapped_seconds)}."
    )
    columns = words("strategy") + numbers("streams", "predicted", "over best") + words("by")
    series = BarSeries("predicted", COLOUR["h2d"], [bar(r) for r in result.ranking])
    axis = "predicted time; dotted: full overlap"
    bars = Bars([r.strategy for r in result.ranking], [series], axis, mark=bounds.full_overlap_seconds)
    return [
        Table(columns, rows, notes=[ranges(result.ranking[0]), sentence]),
        Figure("ranking", bars, "Strategies"),
    ]


def _answers(answers: Sequence[Answer | OnNode], what: str, title: str, notes: Sequence[str] = ()) -> Table:
    rows = [
        (
            a.node if isinstance(a, OnNode) else a.name,
            a.dominant,
            a.ranking[0].strategy,
            str(a.ranking[0].streams),
            str(a.ranking[0]),
            time(a.bounds.no_overlap_seconds),
        )
        for a in answers
    ]
    columns = words(what, "dominant", "best") + numbers("streams", "predicted", "explicit")
    return Table(columns, rows, title, notes, most=MOST_ROWS)


def _amount(value: float, parameter: str) -> str:
    """A swept value as people read it."""
    if parameter in ("bytes", "kernel"):
        return size(value) if parameter == "bytes" else time(value)
    return f"× {value:.3g}" if parameter == "link" else f"{value:.0f}"


def _sweep(swept: Swept) -> list[Block]:
    names, parameter = list(swept.points[0].predicted_seconds), swept.parameter
    rows = [
        (_amount(p.value, parameter), *(time(p.predicted_seconds[name]) for name in names[:5]), p.best)
        for p in swept.points
    ]
    notes = [
        f"From {_amount(c.value, parameter)} on: {c.after} instead of {c.before}." for c in swept.changes
    ]
    notes = notes or ["The best strategy stays the same over this range."]
    title = f"Predicted time against {parameter} ({swept.unit})"
    values = [p.value for p in swept.points]
    lines = [
        Line(
            name,
            COLOURS[n % len(COLOURS)],
            values,
            [p.predicted_seconds[name] for p in swept.points],
            predicted=True,
        )
        for n, name in enumerate(names)
    ]
    unit = {"bytes": "B", "kernel": "s"}.get(parameter, "")
    marks = [c.value for c in swept.changes]
    axis = f"{parameter} ({swept.unit}); dotted: the best changes"
    return [
        Table(words(parameter) + numbers(*names[:5]) + words("best"), rows, title, notes),
        Figure("sweep", Lines(lines, axis, "predicted", unit, marks=marks)),
    ]


def _roofline(roof: Roofline) -> list[Block]:
    """The three bounds against flops per byte over the link, and where this kernel stands [W14 §III-A]."""
    here = roof.data_intensity
    ratio = roof.operational_intensity / here
    accessed = roof.mapped / here if roof.mapped < roof.peak else roof.duplex_bytes_per_s
    span = [here * 2**n for n in range(-10, 11)]
    roofs = [min(roof.peak, roof.memory_bytes_per_s * x * ratio) for x in span]
    curves = {
        "kernel alone": roofs,
        "full overlap": [min(r, roof.duplex_bytes_per_s * x) for x, r in zip(span, roofs, strict=True)],
        "no overlap": [
            1 / (1 / (roof.link_bytes_per_s * x) + 1 / r) for x, r in zip(span, roofs, strict=True)
        ],
        "mapped": [min(roof.peak, accessed * x) for x in span],
    }
    lines = [
        Line(name, COLOURS[n], span, values, predicted=True)
        for n, (name, values) in enumerate(curves.items())
    ]
    bounds = {"full overlap, at most": roof.full_overlap, "no overlap, at most": roof.no_overlap}
    bounds["mapped, at most"] = roof.mapped
    lines.append(Line("this kernel, bounds", COLOURS[5], [here] * 3, list(bounds.values()), apart=True))
    rows = [(name, f"{value / 1e9:,.4g}") for name, value in ({"kernel alone": roof.roof} | bounds).items()]
    sentence = f"{roof.operational_intensity:.3g} flops per byte of device memory, {here:.3g} per byte over the link."
    chart = Lines(lines, "flops per byte over the link", "predicted flops per second, at most", "", "")
    columns = words("roofline with transfers (predicted)") + numbers("GFLOP/s")
    return [Table(columns, rows, notes=[sentence]), Figure("roofline", chart)]


def _value(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    if unit == "s/B":
        return rate(1 / value) if value else "free"
    return time(value) if unit == "s" else f"× {value:.3g}"
