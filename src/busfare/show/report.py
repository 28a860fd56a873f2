"""The documents of `report` on one trace, and of `diff` of two."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from busfare.advise import RangedFinding
from busfare.advise.amounts import count, percent, several, size, time
from busfare.answers.report import Changed, Diff, Report, Unit, path_name
from busfare.answers.verdict import PathOwner, described, owned_seconds
from busfare.show.blocks import (
    LEAST_DRAWN,
    PATH_NOTE,
    Shares,
    change,
    communication_blocks,
    likely,
    may_be_nothing,
    omitted,
    paths,
    recorder,
    sizes,
    what_to_do,
    who_is_late,
)
from busfare.show.document import Block, Document, Figure, Table, Text, Tiles, cell, numbers, table, words
from busfare.show.time_line import TimeLine
from busfare.show.words import templates, text, worded
from busfare.statements import statement
from busfare.timeline import PathPart
from busfare.trace.omissions import MISSING_KERNELS
from busfare.trace.totals import Gap

#: The least share of the run from which unexplained waits and gaps are shown.
WORTH_SAYING, LONG_GAP = 0.01, 0.005
#: Omissions that stand above all numbers.
FAILED = ("launches-failed", "failed-calls", "no-gpu-records", *sorted(MISSING_KERNELS), "kernels-untimed")
#: Of a page's cards: the most, the most and least (of the run) of the largest items of the critical path, and how many times
#: as long as these all transfers are where they have a card, too.
MOST_CARDS, LARGEST, WORTH_A_CARD, MORE = 5, 2, 0.05, 1.5
#: In `diff`: sentences that say what changed; the least change that is shown, as a share of the run; most rows of a table.
CHANGES = ("run", "as-long", "run-from-nothing", "unit-few", "unit-real", "unit-same")
LEAST_CHANGE, MOST_CHANGES = 0.001, 12
#: Findings whose change `busfare try` makes, on the GPUs of others than these.
AMD = "AMD|Instinct|Radeon|gfx"
TRIED = ("pageable-copies", "synchronous-copies", "managed-migrations")
#: Changes that save a smaller share of the run are not what it needs most.
LITTLE = 0.05


def report_document(
    result: Report, time_line: TimeLine | None = None, more: Sequence[Block] = ()
) -> Document:
    """The report; `time_line` is for its page, `more` goes to its end."""
    result = worded(result)
    trace, run = result.trace, result.makespan_seconds
    facts = [trace.producer, ", ".join(sorted({d.name for d in trace.devices if d.name})) or "GPU not named"]
    facts += [cpu for cpu in [trace.host.get("cpu", "unknown")] if cpu != "unknown"]
    remarks = [recorder(result.recording_cost)] if result.recording_cost else []
    remarks += [*_more_than_transfers(result), *_measured_by(result)]
    findings = what_to_do(result, lambda finding: _gain(finding, result), _basis(result), remarks)
    blocks: list[Block] = []
    if trace.incomplete:
        blocks.append(Text(f"Incomplete: {trace.incomplete}", "bold"))
    failures = {omission.id: omission for omission in result.omissions if omission.id in FAILED}
    for failed in (failures[id] for id in FAILED if id in failures):
        what = failed.what[:1].upper() + failed.what[1:]
        blocks.append(
            Text(f"{f'{count(failed.count)}× {failed.what}' if failed.count else what}.", "warning")
        )
    busy, *rest = map(text, result.verdict.text)
    # A page has room for large letters, and says with them what the run is made of, too.
    headline = 1 if result.critical_path and rest else 0
    blocks += [Text(busy, "bold", face="terminal"), Text(" ".join(rest), face="terminal")]
    blocks += [Text(" ".join([busy, *rest[:headline]]), "verdict", face="page")]
    blocks += [Text(" ".join(rest[headline:]), face="page")] if rest[headline:] else []
    if result.collectives and result.ranks:
        blocks += who_is_late(result.collectives, result.ranks, result.straggler or None, result.omissions)
    if waits := unexplained(result):
        blocks.append(Text(waits, "warning"))
    if result.baseline:
        blocks += [Text(f"Since {result.baseline.before}:", "bold"), *diff_blocks(result.baseline)]
    blocks += [findings, _cards(result)]
    if result.critical_path:
        name = "replayed without the recorder's cost" if result.recording_cost else "recorded"
        blocks.append(Figure("path", Shares({name: result.critical_path}), "Where the run goes", PATH_NOTE))
    if time_line and time_line.items:
        blocks.append(Figure("timeline", time_line, "Timeline"))
    blocks += [_summary(result), *_gpus(result)]
    if result.collectives and result.ranks and result.clocks:
        blocks += communication_blocks(result.collectives, result.ranks, result.clocks)
    elif result.communication.count:
        parts = {part.part: part for part in result.critical_path or ()}
        part = parts.get("communication")
        words = statement(
            "waits.one-rank" if parts else "waits.one-rank-alone",
            seconds=result.communication.seconds,
            share=part.share if part else 0.0,
        )
        blocks.append(Text(text(words)))
    details: list[Block] = []
    if result.by_path:
        details += [paths(result.by_path, "Transfers by path"), sizes(result.size_histogram)]
    details += [*_longest(result), *_gaps(result, run)]
    if result.critical_path:
        details.append(_owners(result.critical_path))
    details += omitted(result.omissions)
    details = [replace(block, face="details") if block.face == "both" else block for block in details]
    blocks += [*details, *more]
    return Document(f"busfare: {trace.path}", trace.path, " · ".join(facts), blocks, paths=[trace.path])


def _owners(path: Sequence[PathOwner]) -> Table:
    """The critical path: each part, and the owner of most of it."""
    shown = [part for part in path if part.share >= LEAST_DRAWN]
    return table(
        shown,
        "Critical path",
        {"part": "part"},
        {"time": "seconds", "of the run": "share"},
        {"longest in": lambda part: part.owner.name if part.owner else ""},
        {"of the part": lambda part: percent(part.owner.share) if part.owner else ""},
    )


def _cards(result: Report) -> Tiles:
    """What matters in this run: how busy its GPUs are, the largest items of its critical path, then other parts of at least
    1 % of the run.
    """
    run, busy = result.makespan_seconds or 1.0, result.verdict.gpu_busy_share
    owned = [part for part in result.critical_path or () if owned_seconds(part) >= WORTH_A_CARD * run]
    largest = sorted(owned, key=owned_seconds, reverse=True)[:LARGEST]
    named = {part.part for part in largest}
    gpus = max(len(result.gpus), 1)
    moved, unit = result.transfers, max(result.units, key=lambda unit: unit.seconds, default=None)
    copies = sum(owned_seconds(part) for part in largest if part.part == "copies")
    speed = f" at {size(moved.bytes / moved.seconds)}/s" if moved.seconds else ""
    parts = [(owned_seconds(part), text(described(part))) for part in largest]
    if "start-up" not in named:
        parts.append((result.verdict.startup_seconds or 0.0, "start-up"))
    if moved.exposed_seconds > MORE * copies:
        what = f"exposed transfers: {several(moved.count, 'copy')}, {size(moved.bytes)}{speed}"
        parts.append((moved.exposed_seconds, what))
    if "communication" not in named:
        parts.append((result.communication.seconds / gpus, "communication" + " of each GPU" * (gpus > 1)))
    cards = [
        (time(seconds), f"{what}, {percent(seconds / run)} of the run")
        for seconds, what in parts
        if seconds >= WORTH_SAYING * run
    ]
    if busy and busy > LEAST_DRAWN / 2:
        mean = f"GPUs busy, mean of {gpus}" if gpus > 1 else "GPU busy"
        cards.insert(0, (percent(busy), f"{mean}, in a run of {time(run)}"))
    if unit:
        cards.append((time(unit.seconds), f"per unit of work, median of {count(unit.count)}"))
    return Tiles(cards[:MOST_CARDS])


def _summary(result: Report) -> Table:
    run, moved = result.makespan_seconds, result.transfers

    def part(seconds: float) -> str:
        # A sum over several GPUs is not a share of the time of one run.
        return percent(seconds / run, 1) if len(result.gpus) == 1 and run > 0 else "–"

    rows = [
        ("transfers", count(moved.count), size(moved.bytes), time(moved.seconds), part(moved.seconds),
         time(moved.exposed_seconds)),
    ]  # fmt: skip
    work = {
        "kernels": result.kernels,
        "communication": result.communication,
        "graph launches' work": result.graph_work,
        "memory sets": result.sets,
    }
    for what, total in work.items():
        if total.count or what == "kernels":
            rows.append((what, count(total.count), "", time(total.seconds), part(total.seconds), ""))
    started = result.verdict.startup_seconds
    if started and started >= WORTH_SAYING * run:
        rows.append(("start-up", "", "", time(started), part(started), ""))
    rows.append(("whole run", "", "", time(run), "", ""))
    sentence = (
        f"Transfers are {percent(moved.share_of_gpu_time)} of GPU time. "
        f"Exposed: while no kernel {'computes' if result.communication.count else 'runs'}."
    )
    columns = words("recorded") + numbers("count", "bytes", "time", "of the run", "exposed")
    return Table(columns, rows, notes=[*([sentence] if moved.count else []), *_units(result.units)])


def _units(units: Sequence[Unit]) -> list[str]:
    """The unit of work in a line; of several GPUs, the one with the longest unit."""
    if not units:
        return []
    unit = max(units, key=lambda unit: unit.seconds)
    where = statement("diff.on-gpu", device=unit.device) if len(units) > 1 else ""
    figures = {"count": unit.count, "seconds": unit.seconds, "operations": unit.operations}
    return [text(statement("common.unit-of-work", name=unit.name, where=where, **figures))]


def _gpus(result: Report) -> list[Table]:
    kernels = {"kernels": "kernels.seconds"}
    if any(gpu.communication.count for gpu in result.gpus):
        kernels["communication"] = "communication.seconds"
    moved = {"transfers": "transfers.seconds", "exposed": "transfers.exposed_seconds"}
    return [
        table(
            result.gpus,
            "By GPU",
            {"GPU": lambda gpu: str(gpu.device)},
            kernels | moved | {"busy": "busy_seconds", "idle": "idle_seconds"},
            notes=["Exposed: while no kernel runs on this GPU."],
            face="both" if len(result.gpus) > 1 and not result.collectives else "folded",
        ),
        table(
            result.streams,
            "Streams",
            {"stream": lambda stream: f"GPU {stream.device}, stream {stream.stream}"},
            {name: name for name in ("kernels", "communication", "transfers")} | {"busy": "busy_seconds"},
            face="folded",
        ),
    ]


def _longest(result: Report) -> list[Table]:
    kernels, copies = result.top_kernels, result.top_copies
    at = {"at": "start_seconds", "bytes": "bytes", "time": "seconds"}
    figures: dict[str, Any] = {"count": "count", "time": "seconds"}
    if any(kernel.share_of_peak is not None for kernel in kernels):
        figures["of peak"] = lambda kernel: (
            "–" if kernel.share_of_peak is None else percent(kernel.share_of_peak)
        )
    tables = [
        table(kernels, "Longest kernels", {"kernel": "name"}, figures, most=5),
        table(copies, "Longest copies", {"copy": path_name}, at, face="folded"),
    ]
    return [shown for shown in tables if shown.rows]


def _gaps(result: Report, run: float) -> list[Table]:
    def called(gap: Gap) -> str:
        if not gap.longest_call:
            return "no API call"
        return f"{gap.longest_call} ({time(gap.longest_call_seconds or 0.0)})"

    gaps = [gap for gap in result.idle_gaps if gap.seconds > LONG_GAP * run > 0]
    shown = table(
        gaps,
        "Longest gaps on a GPU",
        {},
        {"GPU": lambda gap: str(gap.device), "at": "start_seconds", "idle for": "seconds"},
        {"longest API call meanwhile": called},
    )
    return [shown] if gaps else []


def _basis(result: Report) -> str:
    """What the predicted gains are based on."""
    node = result.node
    if not node:
        return "for an unknown machine: name it with --from"
    by_replay = any(finding.by_replay for finding in result.findings)
    figures = "measurements on" if node.measured and by_replay else "the data sheet of"
    guess = ", guessed from the GPU name (override with --from)" if node.guessed_from_gpu_name else ""
    return f"based on {figures} {node.name}{guess}{'; likely: 80 % prediction interval' if by_replay else ''}"


def _more_than_transfers(result: Report) -> list[str]:
    """What takes most of a run that the changes shorten little."""
    owned = [part for part in result.critical_path or () if part.owner]
    best = max((finding.predicted_gain_seconds for finding in result.findings), default=None)
    if not owned or best is None or best >= LITTLE * result.makespan_seconds:
        return []
    largest = max(owned, key=owned_seconds)
    if largest.owner is None or largest.owner.kind in ("copy", "call"):
        return []
    share = percent(owned_seconds(largest) / result.makespan_seconds)
    return [f"These changes save little: {share} of the run is {text(described(largest))}."]


def _measured_by(result: Report) -> list[str]:
    """How to measure advice that `try` can follow; it knows the CUDA driver alone."""
    names = " ".join(device.name or "" for device in result.trace.devices)
    if (
        names.strip()
        and not re.search(AMD, names)
        and any(finding.id in TRIED for finding in result.findings)
    ):
        return [
            "`busfare try -- PROGRAM` measures pinning, asynchronous copies and prefetching without editing the program."
        ]
    return []


def _gain(finding: RangedFinding, result: Report) -> str:
    """'about 27 ms (16 %), likely 20–31 ms', or 'up to 27 ms (16 %), may save nothing'. The share is of the run without the
    recorder, if its time is known.
    """
    gain, cost = finding.predicted_gain_seconds, result.recording_cost
    run = cost.replayed_seconds if cost else result.makespan_seconds
    share = f" ({percent(gain / run)})" if run else ""
    if not finding.by_replay:
        return f"up to {time(gain)}{share}{may_be_nothing(finding)}"
    if not finding.low_seconds and finding.high_seconds:
        return f"up to {time(finding.high_seconds)}, may save nothing; about {time(gain)}{share}"
    return f"about {time(gain)}{share}{likely(finding)}"


def unexplained(result: Report) -> str | None:
    """How much of the run is waits without a recorded cause, if it is a relevant share: no advice covers it."""
    waits, run = result.unexplained_seconds, result.makespan_seconds
    if not waits or waits < WORTH_SAYING * run:
        return None
    part = f"{time(waits)} ({percent(waits / run)} of the run)"
    return f"Waits without a recorded cause take {part}; predictions leave them unchanged."


def diff_document(result: Diff) -> Document:
    """What changed, what it comes from, and everything beside each other."""
    facts = f"{result.before} → {result.after} · recorded times of one run each"
    blocks = diff_blocks(result)
    # A page begins with what changed; doubts follow.
    begins = tuple(templates()[f"diff.{id}"].partition("{")[0] for id in CHANGES)
    for place, line in enumerate(map(text, result.why)):
        if line.startswith(begins):
            headline = re.sub(r" \([^()]*\)(?=, )", "", line, count=1)  # without the name of a unit
            blocks[place] = Text(line, face="terminal" if headline == line else "both")
            blocks.insert(0, Text(headline, "verdict", face="page"))
            break
    if result.comparable == "programs":  # nothing else counts then: it stands first
        first = Text(text(result.why[0]))
        blocks = [
            replace(first, style="warning"),
            Text(facts, "dim"),
            *(block for block in blocks if block != first),
        ]
        facts = ""
    paths = [result.before, result.after]
    return Document("busfare: what changed", "What changed", facts, blocks, paths=paths)


def diff_blocks(result: Diff) -> list[Block]:
    """Sentences, a figure of both critical paths, and tables."""
    result = worded(result)
    run = max(result.makespan.before_seconds or 0.0, result.makespan.after_seconds or 0.0)
    blocks: list[Block] = [*map(Text, result.why)]
    if result.critical_path:
        blocks.append(Figure("paths", _paths_of(result), "Where both runs go", PATH_NOTE))
    titles = {
        "part of the critical path": result.critical_path,
        "work": [result.makespan, *result.work],
        "transfers": result.by_path,
        "kernel": result.by_kernel,
        "API call": result.by_call,
    }
    for title, rows in titles.items():
        kept = [row for row in rows if abs(row.change_seconds) >= LEAST_CHANGE * run or title == "work"]
        if kept:
            made = _changes(title, kept)
            blocks.append(made if rows is result.critical_path else replace(made, face="details"))
    if result.findings:
        gains = {"predicted gain before": "before_gain_seconds", "after": "after_gain_seconds"}
        findings = table(result.findings, "Findings, before and after", {"finding": "title"}, gains)
        blocks.append(replace(findings, face="details"))
    return blocks


def _paths_of(result: Diff) -> Shares:
    """Both critical paths, longest part first."""
    paths = {}
    for when in ("before", "after"):
        took = {part.what: getattr(part, f"{when}_seconds") or 0.0 for part in result.critical_path}
        whole = sum(took.values()) or 1.0
        longest = sorted(took.items(), key=lambda part: -part[1])
        paths[when] = [PathPart(what, seconds, seconds / whole) for what, seconds in longest]
    return Shares(paths)


def _changes(title: str, rows: Sequence[Changed]) -> Table:
    figures: dict[str, str | Callable[[Changed], str]] = {
        "before": "before_seconds",
        "after": "after_seconds",
        "change": lambda row: "+" * (row.change_seconds > 0) + time(row.change_seconds),
        "in %": lambda row: change(row.before_seconds or 0.0, row.after_seconds),
    }
    if any(row.before_count is not None or row.after_count is not None for row in rows):
        figures["count"] = partial(_pair, key="count")
    if any(row.before_bytes or row.after_bytes for row in rows):
        figures["bytes"] = partial(_pair, key="bytes")
    return table(rows, "", {title: "what"}, figures, most=MOST_CHANGES)


def _pair(row: Changed, key: str) -> str:
    """'6 → 3', or one of them where both are the same."""
    return " → ".join(dict.fromkeys(cell(row, f"{when}_{key}") for when in ("before", "after")))
