"""How every script here says what it found: tables, and figures beside their goals, which decide its exit status."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

#: Whether each goal that was stated is met.
_met: list[bool] = []


@dataclass(frozen=True)
class Truth:
    """One prediction and what then was, seconds. `figures`: of the node, `probed` there, `elsewhere` on another machine of
    the kind, or the `datasheet`. `group`: what is left out together when a range is judged, a machine or a program.
    """

    figures: str
    model: str
    what: str
    bytes: int
    group: str
    predicted: float
    actual: float


def table(columns: str, rows: Iterable[Sequence[object]]) -> None:
    """Prints `rows` under their head: names with bars between them, each with a format where cells are numbers, as
    `off %:+.1f`. None is a dash.
    """
    heads = [column.strip().partition(":") for column in columns.split("|")]
    names, forms = [name for name, _, _ in heads], [form for _, _, form in heads]
    cells = [[_cell(value, form) for value, form in zip(row, forms, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for row in (names, *cells):
        aligned = [f"{c:{'>' if form else '<'}{w}}" for c, w, form in zip(row, widths, forms, strict=True)]
        print("  " + "  ".join(aligned).rstrip(), flush=True)


def _cell(value: object, form: str) -> str:
    if isinstance(value, str):
        return value
    return "–" if value is None else format(value, form)


def goal(
    what: str, value: float, *, least: float = -math.inf, most: float = math.inf, form: str = ".2f"
) -> None:
    """Prints a figure beside its goal, where it has one; a script that misses one fails."""
    ends = [f"{sign} {end:g}" for sign, end in (("≥", least), ("≤", most)) if math.isfinite(end)]
    met = least <= value <= most
    _met.extend([met] if ends else [])
    verdict = f" (goal {', '.join(ends)}): {'met' if met else 'MISSED'}" if ends else ""
    print(f"{what}: {value:{form}}{verdict}", flush=True)


def judge(main: Callable[[], None]) -> NoReturn:
    """Runs a script; status 1 where a goal is missed, or where nothing was there to be judged."""
    main()
    if not _met:
        print("MISSED: there was nothing to judge", file=sys.stderr)
    sys.exit(0 if _met and all(_met) else 1)
