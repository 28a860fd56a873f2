"""The terminal that results are shown in, and the plain tables that they are shown as."""

from __future__ import annotations

import sys

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from busfare.printable import printable

__all__ = ["console", "plain", "table"]

WIDTH = 100


def console() -> Console:
    """Standard output, no wider than a terminal or 100 columns."""
    # Text of a trace may hold brackets and control characters: it is never markup, nor an emoji name.
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def plain(text: object) -> Text:
    """Text from a trace, on one line, without control characters that a terminal would obey."""
    return Text(printable(str(text)))


class _Titled(Table):
    """A table under a heading that keeps to one line, however narrow the table is."""

    def __init__(self, heading: str | None) -> None:
        super().__init__(box=None, pad_edge=False, header_style="dim")
        self.heading = heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.heading:
            yield Text(self.heading, style="bold")
        yield from super().__rich_console__(console, options)


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table; columns whose name ends in a space are text, the others numbers to the right."""
    made = _Titled(title)
    for column in columns:
        text = column.endswith(" ")
        # Numbers keep their width; texts give way.
        made.add_column(
            column.strip(), justify="left" if text else "right", no_wrap=True, min_width=None if text else 8
        )
    return made
