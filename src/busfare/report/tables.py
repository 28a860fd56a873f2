"""What results look like in a terminal: tables that give way to its width, and sentences."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from busfare.output import WIDE
from busfare.printable import printable

__all__ = ["Bar", "Indented", "Screen", "Table", "console", "headed", "plain", "table"]

#: Sentences are no wider, for longer lines are hard to read.
SENTENCE = 100
#: A table's columns where nothing tells the width: standard output is no terminal and COLUMNS is not set.
PIPE = 160
#: Names are not shortened to less; numbers are given as many columns where there is room; of bars.
LEAST_NAME, NUMBER, LEAST_BAR, BAR = 16, 8, 8, 24
BETWEEN = 2
#: What a line is not broken in: a word, or a number and the word behind it.
WORD = re.compile(r"(\S*\d )?\S+\s*")


class Screen(Console):
    """Standard output."""

    def print(self, *objects: Any, **options: Any) -> None:
        sentences = (plain(o) if isinstance(o, str) else o for o in objects)
        shown = [Indented(o, 0) if isinstance(o, Text) else o for o in sentences]
        super().print(*shown, no_wrap=True, crop=False, overflow="ignore", **options)


def console() -> Screen:
    """Standard output: as wide as the terminal; as wide as everything in it with --wide."""
    # Text of a trace may hold brackets and control characters: it is never markup, nor an emoji name.
    screen = Screen(file=sys.stdout, markup=False, emoji=False, highlight=False)
    command = click.get_current_context(silent=True)
    wide = command is not None and command.meta.get(WIDE)
    screen.width = sys.maxsize if wide else shutil.get_terminal_size((PIPE, 0)).columns
    return screen


def plain(text: object) -> Text:
    """Text from a trace, on one line, without control characters that a terminal would obey."""
    return Text(printable(str(text)))


def headed(what: str, more: str) -> Text:
    """A heading, and in brackets what is to be known of it."""
    return Text.assemble((plain(what).plain, "bold"), (f"  ({plain(more)})", "dim"))


@dataclass(frozen=True)
class Indented:
    """Sentences behind `by` spaces, in all their lines. Words longer than a line, as paths are, stay whole, and numbers
    keep their units.
    """

    text: Text
    by: int = 3

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room, words = min(SENTENCE, console.width) - self.by, self.text.plain
        breaks = [0]
        for word in WORD.finditer(words):
            before, until = words[breaks[-1] : word.start()], words[breaks[-1] : word.end()]
            if before.strip() and cell_len(until.rstrip()) > room:
                breaks.append(word.start())
        for line in self.text.divide(breaks[1:]):
            line.rstrip()
            yield Text(" " * self.by) + line


@dataclass(frozen=True)
class Bar:
    """A cell that draws a part of 1."""

    share: float

    def drawn(self, width: int) -> str:
        return "█" * round(self.share * width)


class Table:
    """Columns whose name ends in a space are text, the others numbers to the right.

    Where they are wider than the terminal, headings wrap, then bars shrink, then the longest texts, with an ellipsis
    in the middle; then bars go, and at last columns that find no room follow below, behind the first one again. Numbers
    and their units are never cut.
    """

    def __init__(self, columns: tuple[str, ...], title: str | None) -> None:
        self.title = title
        self.names = [column.strip() for column in columns]
        self.texts = [column.endswith(" ") for column in columns]
        self.rows: list[list[str | Bar]] = []

    def add_row(self, *cells: object) -> None:
        self.rows.append([cell if isinstance(cell, Bar) else plain(cell).plain for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Indented(Text(plain(self.title).plain, style="bold"), 0)
        for block in self._blocks(console.width):
            heads = [wrap(self.names[i], width) or [""] for i, width in block.items()]
            high = max(map(len, heads))
            for line in zip_longest(*([""] * (high - len(head)) + head for head in heads), fillvalue=""):
                yield self._line(block, line, "dim")
            for row in self.rows:
                yield self._line(block, [row[i] for i in block], "")

    def _line(self, block: Mapping[int, int], cells: Any, style: str) -> Text:
        drawn = []
        for (i, width), cell in zip(block.items(), cells, strict=True):
            text = cell.drawn(width) if isinstance(cell, Bar) else _shortened(cell, width)
            space = " " * (width - cell_len(text))
            drawn.append(text + space if self.texts[i] else space + text)
        return Text((" " * BETWEEN).join(drawn).rstrip(), style=style, no_wrap=True, overflow="ignore")

    def _blocks(self, room: int) -> list[dict[int, int]]:
        """The columns that stand beside each other, and their widths."""
        everything = list(range(len(self.names)))
        widths = self._widths(everything, room)
        if _total(widths) > room:
            everything = [i for i in everything if not self._bars(i)]
            widths = self._widths(everything, room)
        if _total(widths) <= room:
            return [widths]
        blocks: list[list[int]] = [everything[:1]]
        for i in everything[1:]:
            if len(blocks[-1]) > 1 and _total(self._widths([*blocks[-1], i], 0)) > room:
                blocks.append(everything[:1])
            blocks[-1].append(i)
        return [self._widths(block, room) for block in blocks]

    def _bars(self, i: int) -> bool:
        return any(isinstance(row[i], Bar) for row in self.rows)

    def _widths(self, columns: list[int], room: int) -> dict[int, int]:
        """As wide as what is in them, or as little as it takes to fit into `room`; less than their least never."""
        cells, least = {}, {}
        for i in columns:
            word = max((cell_len(word) for word in self.names[i].split()), default=0)
            longest = max((cell_len(row[i]) for row in self.rows if isinstance(row[i], str)), default=0)  # type: ignore[arg-type]
            if self._bars(i):
                cells[i], least[i] = BAR, max(word, LEAST_BAR)
            else:
                cells[i] = max(word, longest)
                least[i] = max(word, min(longest, LEAST_NAME)) if self.texts[i] else cells[i]
        widths = {i: max(cells[i], cell_len(self.names[i]), 0 if self.texts[i] else NUMBER) for i in columns}
        # In this order: headings, bars, texts.
        for give_way in (cells, {i: least[i] for i in columns if self._bars(i)}, least):
            while (over := _total(widths) - room) > 0:
                wider = [i for i in give_way if widths[i] > give_way[i]]
                if not wider:
                    break
                i = max(wider, key=widths.__getitem__)
                # Down to the next longest at once: names of kernels have thousands of characters.
                others = [widths[j] for j in wider if widths[j] < widths[i]]
                widths[i] = max(widths[i] - over, give_way[i], max(others, default=0) - 1)
        return widths


def table(*columns: str, title: str | None = None) -> Table:
    """A table without rows."""
    return Table(columns, title)


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + BETWEEN * max(len(widths) - 1, 0)


def _shortened(text: str, width: int) -> str:
    """With an ellipsis in the middle, behind two thirds: names of kernels differ at both ends."""
    if cell_len(text) <= width:
        return text
    behind = (width - 1) // 3
    end = set_cell_size(text[::-1], behind)[::-1]
    return set_cell_size(text, width - 1 - behind) + "…" + end
