"""The document of `try`: predicted and measured times of each change."""

from busfare.advise.amounts import between, percent, ratio, several, size, time
from busfare.answers.trial import Baseline, Tried, Try
from busfare.show.blocks import bar
from busfare.show.document import Block, Document, Figure, Items, Table, Text, table
from busfare.show.svg import COLOUR, Bar, Bars, BarSeries
from busfare.show.words import worded

RUN = COLOUR["whole run"]
EXPLAINED = (
    "Measured: median wall-clock time from the first CUDA call to the last, with 95 % confidence intervals in parentheses. "
    "Predicted: simulated from the recording, with 80 % prediction intervals in parentheses; hatched in the figure."
)
#: How the output of the changed program compares with the unchanged output; why not to use a change.
OUTPUTS = {
    "identical": "identical", "same": "same result", "altered": "ALTERED", "failed": "program FAILED",
    "timeout": "TIMED OUT", "not-compared": "varies; not compared",
}  # fmt: skip
WRONG = {
    "altered": "it alters the output", "failed": "the changed program fails",
    "timeout": "it makes the program exceed the time limit",
}  # fmt: skip
#: Why the library did not change a copy.
KEPT = {
    "small": "in small copies", "first-use": "in first copies of buffers", "capture": "in CUDA graphs",
    "host-visible": "to managed or mapped memory", "stack": "on the stack", "refused": "that cannot be pinned",
    "limit": "beyond half the free host memory", "brief": "freed after at most two copies",
}  # fmt: skip


def trial_document(result: Try) -> Document:
    """The measured changes, the changes not tried, and how to make the best change in the source."""
    result = worded(result)
    base = result.baseline
    startup = "" if base.startup_seconds is None else f"; CUDA start-up {time(base.startup_seconds)}"
    recorded = "" if base.recorded_seconds is None else f", {time(base.recorded_seconds)} with the recorder"
    facts = (
        f"unchanged: {_measured(base)} in {several(base.runs, 'run')}{startup}; whole process {time(base.process_seconds)}"
        f"{recorded}; pageable copies {size(base.pageable_bytes)}"
    )
    blocks: list[Block] = [Text(_verdict(result), "verdict")]
    blocks += [Text(remark, "warning") for remark in result.remarks]
    if result.runs:
        blocks += [_changes(result), _bars(result)]
    blocks += [Text(line) for row in result.runs for line in _notes(row, base.pageable_bytes)]
    if result.refused:
        blocks.append(Items([f"{row.change}: {row.reason}" for row in result.refused], "Not tried"))
    if result.varying_numbers:
        what = several(result.varying_numbers, "number")
        blocks.append(Text(f"Ignored {what} in the output (times, or varying between unchanged runs)."))
    if result.advice:
        sites = [f" {site}." for site in result.call_sites]
        blocks.append(Text("".join([result.advice, *sites]), title="Make it permanent"))
    return Document(f"busfare try: {result.command}", result.command, facts, blocks, EXPLAINED)


def _verdict(result: Try) -> str:
    """The fastest change that preserves the output, and the changes that slow the program down or break it."""
    wrong = {row.change: WRONG[row.output] for row in result.runs if row.output in WRONG}
    speedups = {row.change: row.speedup for row in result.runs if row.change not in wrong and row.certain}
    certain = {change: speedup for change, speedup in speedups.items() if speedup is not None}
    best = max(certain, key=lambda change: certain[change], default=None)
    if best is not None and certain[best] > 1:
        process = next(row.process_seconds for row in result.runs if row.change == best) or 0.0
        line = (
            f"`{best}` speeds up the program by {ratio(certain[best])} from its first CUDA call to its last. The whole "
            f"process takes {time(process)} instead of {time(result.baseline.process_seconds)}."
        )
    elif not result.runs:
        line = "No change is worth trying on this program."
    else:
        line = "No change makes the program measurably faster."
        if any(row.wide for row in result.runs):
            line += " The intervals are wide; more rounds (`--runs`) narrow them."
    slower = [
        f"`{change}` slows it down to {ratio(speedup)}." for change, speedup in certain.items() if speedup < 1
    ]
    unusable = [f"Do not use `{change}`: {why}." for change, why in wrong.items()]
    return " ".join([line, *slower, *unusable])


def _measured(runs: Baseline | Tried) -> str:
    low, high = runs.measured_range_seconds or (None, None)
    return between(runs.measured_seconds, low, high, is_measured=True)


def _changes(result: Try) -> Table:
    def speedup(row: Tried) -> str:
        if row.speedup is None or row.speedup_range is None:
            return "–"
        low, high = row.speedup_range
        return f"{ratio(row.speedup)} ({low:.2f}–{high:.2f})"

    figures = {
        "predicted": lambda row: row.shown(row.predicted_seconds),
        "measured": _measured,
        "speedup": speedup,
        "whole process": lambda row: between(row.process_seconds, None, None),
    }
    return table(result.runs, "", {"change": "change"}, figures, {"output": lambda row: OUTPUTS[row.output]})


def _bars(result: Try) -> Figure:
    rows = [row for row in result.runs if row.measured_seconds is not None]
    runs: list[Baseline | Tried] = [result.baseline, *rows]
    bars = [
        Bar(s := run.measured_seconds, time(s or 0.0), *(run.measured_range_seconds or ())) for run in runs
    ]
    series, axis = [BarSeries("measured", RUN, bars)], "first to last CUDA call"
    if any(row.predicted_seconds is not None for row in rows):
        series.append(BarSeries("predicted", RUN, [Bar(None), *map(bar, rows)]))
        axis += "; hatched: predicted"
    return Figure("runs", Bars(["unchanged", *(row.change for row in rows)], series, axis))


def _notes(row: Tried, pageable_bytes: int) -> list[str]:
    """What a change affected, what it left unchanged, and how it altered the output."""
    lines = [f"{row.change}: not predicted: {row.reason}."] if row.reason and row.rung is None else []
    if row.change == "prefetch":
        lines.append(f"prefetch: prefetched {size(row.changed_bytes)} of managed memory.")
    elif row.changed_bytes:
        share = (
            f" ({percent(row.changed_bytes / pageable_bytes)} of the pageable copies)"
            if pageable_bytes
            else ""
        )
        pinned = f"; pinning took {time(row.pinning_seconds)}" if row.pinning_seconds else ""
        lines.append(f"{row.change}: changed {size(row.changed_bytes)}{share}{pinned}.")
    if kept := [f"{size(bytes_)} {KEPT[reason]}" for reason, bytes_ in row.kept_bytes.items() if bytes_]:
        lines.append(f"{row.change}: left unchanged: {', '.join(kept)}.")
    if row.difference:
        line = f", line {row.difference.line}" if row.difference.line else ""
        before, after = (
            repr(text) if text else "nothing" for text in (row.difference.unchanged, row.difference.changed)
        )
        what = f"{before} became {after}"
        lines.append(f"{row.change}: {row.difference.output}{line}: {what}.")
    return lines
