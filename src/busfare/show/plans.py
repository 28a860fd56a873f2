"""Documents of `plan`, `plan offload` and `plan kv`: sentences, a ranking, and the figures used."""

from collections.abc import Callable, Sequence

from busfare.advise.amounts import Predicted, flops, rate, several, size, time
from busfare.answers.kv import KvByBlock, PlanKvResult
from busfare.answers.offload import OffloadRow, PlanOffloadResult
from busfare.answers.plan import Answer, PlanResult
from busfare.planning.machine import Basis
from busfare.planning.strategies import Roofline
from busfare.show.blocks import change, predicted_lines, ranges, ranking_bars
from busfare.show.document import Block, Cells, Document, Figure, Table, Text, Tiles, numbers, table, words
from busfare.show.svg import COLOUR, COLOURS, Line, Lines
from busfare.show.words import worded

MOST_ROWS, MOST_SCHEDULES, MOST_KERNELS = 40, 20, 1000
#: How sentences begin that a terminal shows with --details.
DETAILED = ("Assumptions: ", "Equally good ", "If nothing has written ")
AS_PUBLISHED = (
    "Published: by the equations of W14 alone; where both directions overlap, with the G of both at once."
)
KEPT = "A kernel time that you give stays the same on every node."


def plan_document(result: PlanResult) -> Document:
    """Every time in it is predicted."""
    result = worded(result)
    kernels, bounds, best = result.kernels or [], result.bounds, result.ranking[0]
    many = f" (the first of {several(len(kernels), 'kernel')})" if kernels else ""
    facts = f"{result.device.gpu or 'GPU'} · {result.device.category} · every time is predicted"
    sentence = (
        f"Bounds (predicted): full overlap {time(bounds.full_overlap)}, "
        f"none {time(bounds.no_overlap)}, mapped {time(bounds.mapped)}."
    )
    axis = "predicted time; dotted: full overlap"
    bars = ranking_bars({r.strategy: r for r in result.ranking}, axis, bounds.full_overlap)
    tiles = [
        (time(best.predicted_seconds), f"best, predicted: {best.strategy}"),
        (time(bounds.full_overlap), "with full overlap, predicted"),
        (time(bounds.no_overlap), "without overlap, predicted"),
        (time(bounds.mapped), "mapped, best case, predicted"),
    ]
    equations = table(
        result.ranking, "Equations", {"strategy": "strategy"}, {"published": "published_seconds"}, {"by": "by"},
        notes=[sentence, AS_PUBLISHED], face="details",
    )  # fmt: skip
    blocks: list[Block] = [
        Tiles(tiles),
        *(Text(text, face="details" if text.startswith(DETAILED) else "both") for text in result.words),
        table(
            result.ranking,
            "",
            {"strategy": "strategy"},
            {"streams": "streams", **_over(best)},
            {"only if": lambda row: "touched once" * bool(row.assumes)},
            notes=[ranges(best)],
        ),
        equations,
        Figure("ranking", bars, "Strategies"),
    ]
    if recorded := result.recorded:
        launches, streams = several(recorded.launches, "launch"), several(recorded.streams, "stream")
        span = f"{time(recorded.span_seconds)} from first to last"
        blocks.append(Text(f"Recorded in the trace: {launches} in {streams}, {span}."))
    if result.roofline:
        blocks += _roofline(result.roofline)
    if kernels:
        blocks.append(_answers(kernels[:MOST_KERNELS], {"kernel": "name"}, "Every kernel"))
    if result.nodes:
        blocks.append(_answers(result.nodes, {"node": "node"}, "On other nodes", [KEPT]))
    title = f"{result.name}{many} on {result.node}"
    return Document(f"busfare plan: {title}", title, facts, [*blocks, _basis(result.basis)])


def _over(best: Predicted) -> dict[str, Callable[[Predicted], str]]:
    """Predicted times, and how much longer they are than the best one."""
    return {"predicted": str, "over best": lambda row: change(best.predicted_seconds, row.predicted_seconds)}


def _basis(basis: Sequence[Basis]) -> Table:
    """The parameters of a plan, each with its source."""

    def value(row: Basis) -> str:
        if isinstance(row.value, str):
            return row.value
        if row.unit == "s/B":
            return rate(1 / row.value) if row.value else "free"
        if row.unit == "FLOP/s":
            return flops(row.value)
        return time(row.value) if row.unit == "s" else f"× {row.value:.3g}"

    texts: Cells[Basis] = {"parameter": "parameter", "value": value, "kind": "kind", "source": "source"}
    return table(basis, "Figures used", texts, {}, face="details")


def _answers(answers: Sequence[Answer], of: Cells[Answer], title: str, notes: Sequence[str] = ()) -> Table:
    texts: Cells[Answer] = {"dominant": "dominant", "best": lambda answer: answer.ranking[0].strategy}
    figures: Cells[Answer] = {
        "streams": lambda answer: str(answer.ranking[0].streams),
        "predicted": lambda answer: str(answer.ranking[0]),
        "explicit": lambda answer: time(answer.bounds.no_overlap),
    }
    return table(answers, title, {**of, **texts}, figures, notes=notes, most=MOST_ROWS)


def _roofline(roof: Roofline) -> list[Block]:
    """The three bounds against flops per byte over the link, and where this kernel stands [W14 §III-A]."""
    here = roof.data_intensity
    ratio = roof.operational_intensity / here
    accessed = roof.mapped / here if roof.mapped < roof.peak else roof.duplex_bytes_per_s
    span = [here * 2**n for n in range(-10, 11)]
    roofs = [min(roof.peak, roof.memory_bytes_per_s * x * ratio) for x in span]
    points = list(zip(span, roofs, strict=True))
    curves = {
        "kernel alone": roofs,
        "full overlap": [min(r, roof.duplex_bytes_per_s * x) for x, r in points],
        "no overlap": [1 / (1 / (roof.link_bytes_per_s * x) + 1 / r) for x, r in points],
        "mapped": [min(roof.peak, accessed * x) for x in span],
    }
    bounds = {
        "full overlap, at most": roof.full_overlap,
        "no overlap, at most": roof.no_overlap,
        "mapped, at most": roof.mapped,
    }
    lines = predicted_lines(span, curves)
    lines.append(Line("this kernel, bounds", COLOURS[5], [here] * 3, list(bounds.values()), apart=True))
    rows = [(name, flops(value)) for name, value in ({"kernel alone": roof.roof} | bounds).items()]
    sentence = f"{roof.operational_intensity:.3g} flops per byte of device memory, {here:.3g} per byte over the link."
    chart = Lines(lines, "flops per byte over the link", "predicted rate, at most", "", "FLOP/s")
    columns = words("roofline with transfers (predicted)") + numbers("rate")
    return [Table(columns, rows, notes=[sentence], face="details"), Figure("roofline", chart)]


def offload_document(result: PlanOffloadResult) -> Document:
    """Every time in it is predicted."""
    result = worded(result)
    budget = f" ({size(result.budget_bytes)} of GPU memory)" if result.budget_bytes else ""
    best = result.ranking[0]
    fastest = {schedule.memory: schedule for schedule in reversed(result.ranking)}
    cells: list[Cells[OffloadRow]] = [
        {},
        {"resident": "resident", "depth": "depth"},
        {"memory": "memory"},
        {**_over(best), "copies hidden": "share_hidden", "GPU memory": "device_bytes"},
    ]
    blocks: list[Block] = [
        *map(Text, result.words),
        table([*fastest.values()][::-1], "Fastest for each memory", *cells, face="terminal"),
        table(result.ranking, f"Schedules{budget}", *cells, most=MOST_SCHEDULES, face="details"),
        Text(ranges(best), "dim"),
    ]
    if len(result.by_resident) > 1:
        streamed = [result.layers - point.resident for point in result.by_resident]
        seconds = [point.predicted_seconds for point in result.by_resident]
        line = Line("predicted", COLOUR["whole run"], streamed, seconds, predicted=True)
        marks: list[float] = [result.layers - result.resident]
        lines = Lines([line], "layers on the host", "a pass", marks=marks, whole=True)
        blocks.append(Figure("resident", lines, "Layers to keep on the GPU; dotted: as requested"))
    title = f"{several(result.layers, 'layer')} of {size(result.bytes / result.layers)} on {result.node}"
    tokens = "" if result.tokens is None else f"{several(round(result.tokens), 'token')} per pass · "
    facts = f"{result.gpu or 'GPU'} · {tokens}every time is predicted"
    return Document(f"busfare plan offload: {title}", title, facts, [*blocks, _basis(result.basis)])


def kv_document(result: PlanKvResult) -> Document:
    """Every time in it is predicted, but that of computing where it is given."""
    result = worded(result)
    layouts: dict[str, Predicted] = {r.layout: r for r in result.ranking}
    piece = result.bytes_per_token / result.block.pieces
    by_block: Cells[KvByBlock] = {
        "tokens": "block_tokens",
        "piece": lambda row: size(row.block_tokens * piece),
        **{r.layout: f"predicted_seconds.{r.layout}" for r in result.ranking},
    }
    named: dict[str, list[float]] = {
        r.layout: [point.predicted_seconds[r.layout] for point in result.by_block] for r in result.ranking
    }
    lines = predicted_lines([point.block_tokens * piece for point in result.by_block], named)
    axis, requested = "bytes of one piece; dotted: as requested", result.block.bytes / result.block.pieces
    moved = result.fetched_bytes + result.evicted_bytes
    blocks: list[Block] = [
        *map(Text, result.words),
        table(
            result.ranking,
            "",
            {"layout": "layout"},
            {"predicted": str, "rate": lambda row: rate(moved / row.predicted_seconds), "calls": "calls"},
            {"limited by": "limited_by"},
            notes=[ranges(result.ranking[0])],
        ),
        Figure("layouts", ranking_bars(layouts), "Layouts"),
        table(result.by_block, "Block sizes", {}, by_block, face="details"),
        Figure("blocks", Lines(lines, axis, "predicted", "B", marks=[requested])),
    ]
    of = f" of {result.model}" if result.model else ""
    title = f"{several(result.tokens, 'token')} of KV cache{of} on {result.node}"
    blocks.append(_basis(result.basis))
    return Document(f"busfare plan kv: {title}", title, "every time of a fetch is predicted", blocks)
