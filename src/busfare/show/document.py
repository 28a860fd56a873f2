"""The one model of what a result looks like: a document of texts, tables and figures, whatever shows it.

Built from a result by one function a command; `terminal`, `html` and nothing else know how it is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from busfare.advise import amounts

#: Where a block is shown. A terminal shows `details` with --details; a page folds them and what is `folded`, which it alone
#: has.
Face = Literal["both", "terminal", "page", "details", "folded"]
RECORDED = (
    "Recorded: read from the trace, like everything not marked as predicted. Predicted: by a cost model; hatched or "
    "dashed in "
    "figures. Exposed: a transfer runs and no kernel computes. In brackets and as whiskers: 80 % prediction intervals."
)


@dataclass(frozen=True)
class Column:
    """A column's heading; numbers stand to the right and are never shortened."""

    name: str
    numeric: bool = True


def words(*names: str) -> tuple[Column, ...]:
    """Columns of text."""
    return tuple(Column(name, numeric=False) for name in names)


def numbers(*names: str) -> tuple[Column, ...]:
    """Columns of numbers with their units."""
    return tuple(Column(name) for name in names)


class Chart(Protocol):
    """What a figure shows."""

    def markup(self) -> str:
        """The picture as HTML or SVG, all names escaped."""
        ...


@dataclass(frozen=True)
class Text:
    """Sentences; what stands between backticks is code."""

    text: str
    style: Literal["plain", "dim", "bold", "warning", "verdict"] = "plain"
    face: Face = "both"
    title: str = ""


@dataclass(frozen=True)
class Tiles:
    """Figures at a glance: values, and what they are."""

    tiles: Sequence[tuple[str, str]]
    face: Face = "page"
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells. A terminal shows the first `most` of them and says how to see the `more`."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()
    most: int | None = None
    face: Face = "both"


Row = TypeVar("Row")
#: By a column's heading what each row shows in it: a function's text, or the value at a path of keys.
Cells = Mapping[str, str | Callable[[Row], str]]
#: How a value is shown, by what its key says of the unit.
UNITS: dict[str, Callable[[Any], str]] = {
    "bytes_per_second": amounts.rate, "seconds": amounts.time, "bytes": amounts.size,
    "error_percent": lambda p: amounts.signed_percent(p / 100),
    "wmape_percent": lambda p: amounts.percent(p / 100, 2),
    "inside_percent": lambda p: amounts.percent(p / 100, 0), "percent": lambda p: amounts.percent(p / 100, 1),
    "share_hidden": lambda share: amounts.percent(share, 0), "share": lambda share: amounts.percent(share, 1),
}  # fmt: skip


def cell(row: Any, of: str | Callable[[Any], str]) -> str:
    """What `row` shows: a predicted time with the range beside it; '–' where nothing is known."""
    if not isinstance(of, str):
        return of(row)
    value = whose = row
    for key in of.split("."):
        value, whose = value.get(key) if isinstance(value, Mapping) else getattr(value, key), value
    if key in ("seconds", "predicted_seconds") and hasattr(whose, "low_seconds"):
        return amounts.between(value, whose.low_seconds, whose.high_seconds)
    if value is None:
        return "–"
    return value if isinstance(value, str) else amount(value, of)


def amount(value: float, key: str) -> str:
    """A value in the unit that its key tells."""
    return next((shown for unit, shown in UNITS.items() if unit in key), "{:,}".format)(value)


def table(rows: Sequence[Row], title: str, *cells: Cells[Row], **more: Any) -> Table:
    """A line for each of `rows`; `cells`: texts, figures to the right, texts, and so on by turns; `more` as of Table."""
    columns = [Column(name, bool(place % 2)) for place, of in enumerate(cells) for name in of]
    shown = [[cell(row, what) for of in cells for what in of.values()] for row in rows]
    return Table(tuple(columns), shown, title, **more)


@dataclass(frozen=True)
class Entry:
    """A finding: title, gain, evidence, change, its `place` in the program, the `command` that predicts the gain, and more
    details; `shows`: its mark in the timeline.
    """

    title: str
    gain: str
    evidence: str
    change: str
    place: str = ""
    command: str = ""
    more: Sequence[str] = ()
    shows: str = ""


@dataclass(frozen=True)
class Entries:
    """Numbered findings; `note`: what their gains are. Shown: the first `most`; with --details or on a page, all."""

    entries: Sequence[Entry]
    title: str
    note: str
    remarks: Sequence[str] = ()
    face: Face = "both"
    most: int = 3


@dataclass(frozen=True)
class Items:
    """Remarks below each other, as omissions and conditions are; a terminal shows the first `most`."""

    items: Sequence[str]
    title: str
    face: Face = "both"
    most: int | None = None


@dataclass(frozen=True)
class Figure:
    """A chart, with its name in the page."""

    name: str
    chart: Chart
    title: str = ""
    note: str = ""
    face: Face = "page"


Block = Text | Tiles | Table | Entries | Items | Figure


@dataclass(frozen=True)
class Document:
    """A result as people read it. `title` is the page's name; `explained`: what it means by its words. `paths`: of the
    files that it is about, for which a page shows their names.
    """

    title: str
    heading: str
    facts: str = ""
    blocks: Sequence[Block] = field(default_factory=list)
    explained: str = RECORDED
    paths: Sequence[str] = ()
