"""The documents of `project`, `compare` and `what-if`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET

from busfare.advise.amounts import between, percent, ratio, several, signed_percent, time
from busfare.answers.compare import Compared, KernelsCompared
from busfare.answers.project import KernelClassThere, KernelsThere, Projected, Projection, There
from busfare.answers.report import path_name
from busfare.answers.what_if import Outcome, WhatIf
from busfare.cost.kernels.price import NOT_VALIDATED
from busfare.show.blocks import PATH_NOTE, Shares, bar, change, omitted, ranges, recorder
from busfare.show.document import Block, Document, Face, Figure, Items, Table, Text, numbers, table, words
from busfare.show.svg import COLOUR, Bars, BarSeries
from busfare.show.time_line import TimeLine
from busfare.show.words import text, worded
from busfare.statements import statement

MOST_RANKS, MOST_KERNELS, LONGEST_NAME = 16, 20, 60
#: Why no counters apply to some kernels.
NOT_COUNTED = {
    "rows-differ": "whose rows in --counters differ by more than 10 %",
    "shared-name": "whose bare name several kernels share",
    "no-number": "whose cells contain no number",
    "no-row": "without a row for their name, grid and block",
}
GUESS = " (guessed from the GPU name; override with --from)"


def projection_document(result: Projected, trace: str) -> Document:
    """The predicted times of a run on other nodes."""
    result = worded(result)
    guess = GUESS if result.from_guessed_from_gpu_name else ""
    facts = f"recorded on {result.recorded_on}{guess}; predicted with the cost model {result.model}"
    blocks: list[Block] = [Text(result.verdict, "verdict"), *projection_blocks(result)]
    blocks += [Text(line) for line in _counted(result.kernels)]
    details: list[Block] = []
    for p in result.projections:
        notes = [f"Pageable copies: {p.pageable_copies}."] if p.pageable_copies else []
        if p.transfers.unpriced:
            copies = several(p.transfers.unpriced, "copy")
            notes.append(f"This model has no prediction for {copies}, which keep their recorded times.")
        if p.by_path:
            figures = {"count": "count", **THERE}
            details.append(table(p.by_path, f"{p.to}, by path", {"path": path_name}, figures, notes=notes))
        details.append(_kernels(p))
    blocks += [replace(block, face="details") for block in details]
    return Document(f"busfare: {trace}", trace, facts, blocks, paths=[trace])


def _changed(row: There) -> str:
    return change(row.recorded_seconds, row.predicted_seconds)


THERE: dict[str, Any] = {"recorded": "recorded_seconds", "predicted": str, "change": _changed}


def _methods(projections: Sequence[Projection]) -> list[str]:
    """How the whole runs were predicted; nodes with the same method share a sentence."""
    alike: dict[str, list[Projection]] = {}
    for row in projections:
        alike.setdefault(row.makespan.method.replace(f" for {row.to}", " for each"), []).append(row)
    sentences = []
    for method, some in alike.items():
        whose = "" if len(alike) == 1 else f" on {', '.join(row.to for row in some)}"
        sentences.append(f"Whole run{whose}: {some[0].makespan.method if len(some) == 1 else method}.")
    return sentences


def _kernels(projection: Projection) -> Block:
    kernels = projection.kernels
    if not kernels.by_class:
        return Text(f"{projection.to}: {several(kernels.count, 'kernel')}, {kernels.rule}.")

    def predicted(row: KernelClassThere) -> str:
        return f"{time(row.recorded_seconds)} (kept)" if row.bound == "none" else str(row)

    figures = {"count": "count", **THERE, "predicted": predicted}
    title, behind = f"{projection.to}, kernels by class", {"rung": "rung", "why": "why"}
    return table(kernels.by_class, title, {"kernels": "kind"}, figures, behind)


def _counted(kernels: KernelsThere | KernelsCompared) -> list[str]:
    """How many kernels are predicted from counters, and why the others are not."""
    if kernels.counted is UNSET or kernels.uncounted is UNSET:
        return []
    lines = [f"Predicted from counters: {several(kernels.counted, 'kernel')}."]
    return lines + [
        f"Not predicted from counters: {count:,}, {NOT_COUNTED[why]}."
        for why, count in kernels.uncounted.items()
    ]


def projection_blocks(result: Projected, title: str = "", face: Face = "both") -> list[Block]:
    """All nodes and the recorded one, as a table and a figure."""
    result = worded(result)
    first = result.projections[0]
    names = [f"{first.recorded_on} (recorded)", *(f"{p.to} (predicted)" for p in result.projections)]
    of_node = [(p.transfers, p.makespan) for p in result.projections]
    recorded = [predicted.recorded_seconds for predicted in of_node[0]]
    rows = [(names[0], time(recorded[0]), "", time(recorded[1]), "")]
    for name, (moved, run) in zip(names[1:], of_node, strict=True):
        rows.append((name, str(moved), _changed(moved), str(run), _changed(run)))
    series = [
        BarSeries(what, COLOUR[colour], [bar(recorded[n]), *(bar(predicted[n]) for predicted in of_node)])
        for n, (what, colour) in enumerate((("transfers", "copies"), ("whole run", "whole run")))
    ]
    columns = words("node") + numbers("transfers", "change", "whole run", "change")
    notes = [*_methods(result.projections), ranges(first.makespan)]
    chart = Bars(names, series, "time; hatched: predicted")
    return [Table(columns, rows, title, notes, face=face), Figure("projection", chart)]


def comparison_document(result: Compared) -> Document:
    """Predictions for a machine, compared with a trace recorded on it."""
    notes = [f"Not compared, because only one trace has them: {several(result.unmatched, 'copy')}."]
    blocks: list[Block] = [
        table(
            result.models,
            "Error by cost model (WMAPE): Σ|recorded − predicted| of all copies, divided by their total recorded time",
            {"model": "model"},
            {"copies compared": "count", "WMAPE": "wmape_percent", "in range": "inside_percent"},
        ),
        table(
            result.by_path,
            f"Best model, {result.model}, by path",
            {"path": path_name},
            {"count": "count", "recorded": "recorded_seconds", "predicted": str, "WMAPE": "wmape_percent"},
            notes=notes if result.unmatched else [],
        ),
    ]
    if not result.models:
        blocks = [Text("No copy appears in both traces: only kernels are compared.")]
    if result.kernels is not None and result.kernels.by_kernel:
        blocks.append(_kernels_compared(result.kernels))
    heading = f"Predicted from {result.predicted} for {result.to}, against {result.actual} (recorded)"
    return Document(f"busfare compare: {result.predicted}", heading, "", blocks)


def _kernels_compared(kernels: KernelsCompared) -> Table:
    total, median, inside = (
        percent((figure or 0.0) / 100)
        for figure in (kernels.wmape_percent, kernels.median_percent, kernels.inside_percent)
    )
    notes = [
        f"{several(kernels.count, 'launch')} in both traces: the error is {total} of their total time (WMAPE), the median "
        f"error of a kernel {median}; {inside} are in range."
    ]
    notes += _counted(kernels)
    if kernels.unmatched:
        notes.append(
            f"Not compared, because only one trace has them: {several(kernels.unmatched, 'kernel')}."
        )
    return table(
        kernels.by_kernel[:MOST_KERNELS],
        "Kernels, mean per launch, longest first",
        {"kernel or operator": lambda row: row.name[:LONGEST_NAME], "class": "kind"},
        {
            "count": "count",
            "from": "recorded_seconds",
            "predicted": "predicted_seconds",
            "actual": "actual_seconds",
            "error": lambda row: change(row.actual_seconds, row.predicted_seconds),
        },
        notes=notes,
    )


def what_if_document(result: WhatIf, time_line: TimeLine | None = None) -> Document:
    """The gains of changes; `time_line`: the predicted run below the recorded one."""
    result = worded(result)
    where = f"recorded on {result.recorded_on or 'an unknown machine'}"
    where += GUESS if result.from_guessed_from_gpu_name else ""
    base, rows = result.baseline, [*result.changes, *([result] if len(result.changes) > 1 else [])]
    cost = base.recording_cost
    unchanged = "replayed without the recorder's cost" if cost else "replayed unchanged"
    cells = [
        ("recorded", "", time(base.recorded_seconds), "", ""),
        (unchanged, "", time(base.replayed_seconds), "", ""),
    ]
    for row in rows:
        faster = "–" if row.speedup is None else ratio(row.speedup, 3)
        share = None if row.gain_seconds is None else row.gain_seconds / (base.replayed_seconds or 1)
        gain = "–" if share is None else signed_percent(share)
        cells.append((f"{row.title} (predicted)", f"{row.touched:,}", str(row), gain, faster))
    by_rung = {row.rung: ranges(row) for row in (*result.changes, result)}
    notes = [*by_rung.values(), *([recorder(cost)] if cost else [])]
    alone = [
        f"{row.title}: {between(row.gain_seconds, *row.gain_range_seconds)}"
        for row in rows
        if row.gain_range_seconds and row.rung != NOT_VALIDATED
    ]
    notes += [text(statement("change.gains", gains=tuple(alone)))] * bool(alone)
    low, high = result.range_seconds or (0.0, 0.0)
    bounded = result.rung == NOT_VALIDATED
    if high - low > 0.005 * high and not bounded:
        notes.append(f"Waits without a recorded cause are kept; without them, the run takes {time(low)}.")
    added = text(statement("assumes.after-earlier"))
    notes += [f"{row.title}: {added}." for row in result.changes if added in row.rests_on]
    notes += [f"{row.title}: nothing to change in this trace." for row in result.changes if not row.touched]
    columns = words("run") + numbers("touched", "whole run", "gain", "speedup")
    runs: list[tuple[str, float | Outcome]] = [("recorded", base.recorded_seconds)]
    runs += [("without the recorder's cost", base.replayed_seconds)] if cost else []
    runs += [(row.title, row) for row in rows]
    blocks: list[Block] = [
        Text(_outcome(result), "verdict", face="page"),
        Table(columns, cells, "Whole run, predicted by replay", notes),
        runs_figure("gains", runs),
    ]
    if result.rests_on:
        blocks.append(Items(result.rests_on, "Assumptions"))
    before = "replayed without the recorder's cost" if cost else "recorded"
    paths = {before: base.critical_path} | ({} if bounded else {"predicted": result.critical_path})
    blocks.append(Figure("path", Shares(paths), "Where the run goes", PATH_NOTE))
    if time_line and time_line.items and not bounded:
        blocks.append(Figure("timeline", time_line, "Timeline, recorded and with all changes"))
    runs_of_parts = [{part.part: part.seconds for part in path} for path in paths.values()]
    names = dict.fromkeys(name for run in runs_of_parts for name in run)
    parts = [(name, *(time(run.get(name, 0.0)) for run in runs_of_parts)) for name in names]
    shown = numbers("recorded", "predicted")[: len(paths)]
    blocks.append(Table(words("part of the critical path") + shown, parts))
    if result.ranks:
        seconds = {name: f"{name}_seconds" for name in ("replayed", "predicted")}
        blocks.append(
            table(result.ranks, "Ranks", {"rank": lambda row: str(row.rank)}, seconds, most=MOST_RANKS)
        )
    blocks += omitted(result.omissions)
    return Document(f"busfare what-if: {result.trace}", result.trace, where, blocks, paths=[result.trace])


def _outcome(result: WhatIf) -> str:
    """'With all changes, the run takes 18.8 ms (12.7–31.3) instead of 153 ms: 8.13 × as fast (predicted).'"""
    changes = "all changes" if len(result.changes) > 1 else "this change"
    before = time(result.baseline.replayed_seconds)
    faster = "" if result.speedup is None else f": {ratio(result.speedup)} as fast"
    if result.speedup is not None and ratio(result.speedup) == ratio(1.0):
        return f"With {changes}, the run takes as long as before: {before} (predicted)."
    sure = "two bounds, not validated" if result.rung == NOT_VALIDATED else "predicted"
    return f"With {changes}, the run takes {result} instead of {before}{faster} ({sure})."


def runs_figure(name: str, runs: Sequence[tuple[str, float | Outcome]]) -> Figure:
    """Whole runs below each other: recorded seconds, or the outcome of a change."""
    series = BarSeries("whole run", COLOUR["whole run"], [bar(run) for _, run in runs])
    return Figure(name, Bars([name for name, _ in runs], [series], "whole run"))
