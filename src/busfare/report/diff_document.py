"""The document of `diff`."""

from __future__ import annotations

from collections.abc import Sequence

from busfare.advise.amounts import count, size, time
from busfare.report.blocks import change
from busfare.report.diff import Changed, Diff, FindingChanged
from busfare.report.document import Block, Document, Figure, Table, Text, numbers, words
from busfare.report.shares import PATH_NOTE, Shares
from busfare.timeline import PathPart

#: Parts that differ by less of the run are left out, and rows of a table beyond so many.
LEAST, MOST = 0.001, 12


def diff_document(result: Diff) -> Document:
    """What changed, what it comes from, and everything beside each other."""
    facts = f"{result.before} → {result.after} · everything is recorded; one run each"
    return Document("busfare: what changed", "What changed", facts, diff_blocks(result))


def diff_blocks(result: Diff) -> list[Block]:
    """Sentences, a figure of the critical paths, and the tables."""
    run = max(result.makespan.before_seconds or 0.0, result.makespan.after_seconds or 0.0)
    blocks: list[Block] = [*map(Text, result.why)]
    if result.critical_path:
        blocks.append(Figure("paths", _paths(result), "Where both runs go", PATH_NOTE))
    titles = {
        "part of the critical path": result.critical_path,
        "work": [result.makespan, *result.work],
        "transfers": result.by_path,
        "kernel": result.by_kernel,
        "API call": result.by_call,
    }
    for title, rows in titles.items():
        kept = [row for row in rows if abs(row.change_seconds) >= LEAST * run or title == "work"]
        if kept:
            blocks.append(_table(title, kept))
    return [*blocks, *_findings(result.findings)]


def _paths(result: Diff) -> Shares:
    """Both critical paths, longest part first."""
    paths = {}
    for when in ("before", "after"):
        took = {part.what: getattr(part, f"{when}_seconds") or 0.0 for part in result.critical_path}
        whole = sum(took.values()) or 1.0
        longest = sorted(took.items(), key=lambda part: -part[1])
        paths[when] = [PathPart(what, seconds, seconds / whole) for what, seconds in longest]
    return Shares(paths)


def _table(title: str, rows: Sequence[Changed]) -> Table:
    counted = any(row.before_count is not None or row.after_count is not None for row in rows)
    sized = any(row.before_bytes or row.after_bytes for row in rows)
    figures = ["before", "after", "change", "in %"]
    figures += ["count"] * counted + ["bytes"] * sized
    cells = []
    for row in rows:
        old, new = row.before_seconds, row.after_seconds
        shown = [*("–" if one is None else time(one) for one in (old, new))]
        shown += [
            f"{'+' if row.change_seconds > 0 else '−' if row.change_seconds else ''}{time(abs(row.change_seconds))}",
            change(old or 0.0, new),
        ]
        if counted:
            shown.append(_pair(row.before_count, row.after_count, count))
        if sized:
            shown.append(_pair(row.before_bytes, row.after_bytes, size))
        cells.append((row.what, *shown))
    return Table(words(title) + numbers(*figures), cells, most=MOST)


def _pair(before: int | None, after: int | None, shown: object) -> str:
    assert callable(shown)
    both = ["–" if one is None else shown(one) for one in (before, after)]
    return both[0] if both[0] == both[1] else " → ".join(both)


def _findings(findings: Sequence[FindingChanged]) -> list[Table]:
    if not findings:
        return []
    rows = [
        (
            one.title,
            *(
                "–" if gain is None else time(gain)
                for gain in (one.before_gain_seconds, one.after_gain_seconds)
            ),
        )
        for one in findings
    ]
    columns = words("finding") + numbers("predicted gain before", "after")
    return [Table(columns, rows, "What there was to do, and is")]
