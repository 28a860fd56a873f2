"""The document of `try`: predicted beside measured."""

from __future__ import annotations

from busfare.advise.amounts import between, percent, ratio, several, size, time
from busfare.answers.trial import Tried, Try
from busfare.show.blocks import bar
from busfare.show.document import Block, Document, Figure, Items, Table, Text, table
from busfare.show.svg import COLOUR, Bars, BarSeries
from busfare.show.words import text, worded

RUN = COLOUR["whole run"]
EXPLAINED = (
    "Measured: wall-clock time of the whole process, median of the runs; in brackets 95 % confidence intervals. Predicted: "
    "by replaying the recording with the change; in brackets 80 % prediction intervals; hatched in figures."
)
#: How the output of a changed program compares.
OUTPUTS = {
    "identical": "identical",
    "same": "same, but for varying numbers",
    "altered": "ALTERED",
    "failed": "program FAILED",
}
#: Why the library left copies as they were.
KEPT = {
    "small": "too small",
    "first-use": "copied once",
    "capture": "in CUDA graphs",
    "host-visible": "to memory that the CPU can read",
    "stack": "in stack memory",
    "refused": "refused by the driver",
    "limit": "above the limit of pinned memory",
}
#: More busy cores than this disturb the measurement.
BUSY_CORES = 1.0


def trial_document(result: Try) -> Document:
    """A row for each change; what was not tried; what to write in the program."""
    result = worded(result)
    base = result.baseline
    copies = (
        f"{several(base.pageable_copies, 'copy')} of {size(base.pageable_bytes)} from or to pageable memory"
    )
    unchanged = between(base.measured_seconds, base.measured_low_seconds, base.measured_high_seconds)
    facts = f"unchanged: {unchanged}, {several(base.runs, 'run')} · recorded: {time(base.recorded_seconds)} · {copies}"
    blocks: list[Block] = [Text(_verdict(result), "verdict"), *map(Text, result.remarks)]
    if (result.busy_cores or 0.0) > BUSY_CORES:
        busy = f"Other programs kept {result.busy_cores:.1f} cores of this host busy: run it again when they are idle."
        blocks.append(Text(busy, "warning"))
    if result.runs:
        blocks += [_changes(result), _bars(result)]
    blocks += [Text(line) for row in result.runs for line in _notes(row, base.pageable_bytes)]
    if result.refused:
        blocks.append(Items([f"{row.change}: {row.reason}" for row in result.refused], "Not tried"))
    if result.varying_numbers:
        what = several(result.varying_numbers, "number")
        blocks.append(
            Text(
                f"Not compared: {what} of the output that unchanged runs print differently, or measured times."
            )
        )
    if result.advice:
        sites = "; ".join(map(str, result.advice.call_sites))
        blocks.append(
            Text(f"{result.advice.text}{f' Call sites: {sites}.' if sites else ''}", title="To keep it")
        )
    return Document(f"busfare try: {result.command}", result.command, facts, blocks, EXPLAINED)


def _verdict(result: Try) -> str:
    """The best change that keeps the output, and every change that alters it."""
    altered = [row.change for row in result.runs if row.output in ("altered", "failed")]
    sound = [row for row in result.runs if row.change not in altered and row.speedup and row.certain]
    best = max(sound, key=lambda row: row.speedup or 0.0, default=None)
    if best is not None and best.speedup and best.speedup > 1:
        saved = result.baseline.measured_seconds - (best.measured_seconds or 0.0)
        line = f"`{best.change}` makes the program {ratio(best.speedup)} as fast: it saves {time(saved)}."
    elif not result.runs:
        line = "Nothing can be tried on this program."
    else:
        line = "No change makes the program measurably faster."
    slower = ((row.change, row.speedup) for row in sound if row.speedup and row.speedup < 1)
    lines = [line, *(f"`{change}` slows it down: {ratio(speedup)}." for change, speedup in slower)]
    return " ".join(lines + [f"Do not use `{change}`: it alters the output." for change in altered])


def _changes(result: Try) -> Table:
    def speedup(row: Tried) -> str:
        if row.speedup is None or row.speedup_low is None or row.speedup_high is None:
            return "–"
        return f"{ratio(row.speedup)} ({row.speedup_low:.2f}–{row.speedup_high:.2f})"

    return table(
        result.runs,
        "",
        {"change": "change"},
        {
            "predicted": lambda row: row.shown(row.predicted_seconds),
            "measured": lambda row: between(
                row.measured_seconds, row.measured_low_seconds, row.measured_high_seconds
            ),
            "speedup": speedup,
            "runs": "runs",
        },
        {"output": lambda row: OUTPUTS[row.output]},
    )


def _bars(result: Try) -> Figure:
    base = result.baseline.measured_seconds
    rows = [row for row in result.runs if row.measured_seconds is not None]
    names = ["unchanged", *(row.change for row in rows)]
    measured = BarSeries("measured", RUN, [bar(base), *(bar(row.measured_seconds or 0.0) for row in rows)])
    predicted = BarSeries("predicted", RUN, [bar(base), *(bar(row) for row in rows)])
    return Figure("runs", Bars(names, [measured, predicted], "time of the process; hatched: predicted"))


def _notes(row: Tried, pageable: int) -> list[str]:
    """What a change did, what it left, and how it altered the output."""
    lines = []
    if row.changed_bytes:
        share = percent(row.changed_bytes / pageable) if pageable else "–"
        pinned = f"; pinning took {time(row.pinning_seconds)}" if row.pinning_seconds else ""
        kept = ", ".join(
            f"{size(kept.bytes)} {KEPT.get(kept.reason, kept.reason)}" for kept in row.kept if kept.bytes
        )
        lines.append(
            f"{row.change}: changed {size(row.changed_bytes)} ({share} of the pageable copies){pinned}."
        )
        lines += [f"{row.change}: left as they were: {kept}."] if kept else []
    if row.why:
        lines.append(f"{row.change}: {text(row.why)}.")
    if row.difference:
        where = f"{row.difference.output}, line {row.difference.line}"
        lines.append(
            f"{row.change}: {where}: {row.difference.unchanged!r} became {row.difference.changed!r}."
        )
    return lines
