"""The document of `diff`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from busfare.advise.amounts import time
from busfare.answers.report import Changed, Diff, FindingChanged
from busfare.show.blocks import PATH_NOTE, Shares, change
from busfare.show.document import Block, Document, Figure, Table, Text, cell, table
from busfare.show.words import worded
from busfare.timeline import PathPart

#: Parts that differ by less of the run are left out, and rows of a table beyond so many.
LEAST, MOST = 0.001, 12


def diff_document(result: Diff) -> Document:
    """What changed, what it comes from, and everything beside each other."""
    facts = f"{result.before} → {result.after} · everything is recorded; one run each"
    return Document("busfare: what changed", "What changed", facts, diff_blocks(result))


def diff_blocks(result: Diff) -> list[Block]:
    """Sentences, a figure of the critical paths, and the tables."""
    result = worded(result)
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
    figures: dict[str, str | Callable[[Changed], str]] = {
        "before": "before_seconds",
        "after": "after_seconds",
        "change": _longer,
        "in %": lambda row: change(row.before_seconds or 0.0, row.after_seconds),
    }
    if any(row.before_count is not None or row.after_count is not None for row in rows):
        figures["count"] = partial(_pair, key="count")
    if any(row.before_bytes or row.after_bytes for row in rows):
        figures["bytes"] = partial(_pair, key="bytes")
    return table(rows, "", {title: "what"}, figures, most=MOST)


def _longer(row: Changed) -> str:
    """'+1.2 ms'."""
    sign = "+" if row.change_seconds > 0 else "−" if row.change_seconds else ""
    return sign + time(abs(row.change_seconds))


def _pair(row: Changed, key: str) -> str:
    """'6 → 3', or one of them where both are the same."""
    return " → ".join(dict.fromkeys(cell(row, f"{when}_{key}") for when in ("before", "after")))


def _findings(findings: Sequence[FindingChanged]) -> list[Table]:
    gains = {"predicted gain before": "before_gain_seconds", "after": "after_gain_seconds"}
    shown = table(findings, "What there was to do, and is", {"finding": "title"}, gains)
    return [shown] if findings else []
