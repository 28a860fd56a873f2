"""A document in a terminal: tables that give way to its width, and sentences."""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import dropwhile, zip_longest
from textwrap import wrap

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text as Styled

from busfare.printable import DETAILS, WIDE, printable
from busfare.show.document import Block, Column, Document, Entries, Items, Table, Text

#: Sentences are no wider, for longer lines are hard to read.
SENTENCE = 100
#: A table's columns where nothing tells the width: standard output is no terminal and COLUMNS is not set.
PIPE = 160
#: Names are not shortened to less; numbers are given as many columns where there is room.
LEAST_NAME, NUMBER = 16, 8
BETWEEN = 2
#: What a line is not broken in: a word, or a number and the word behind it.
WORD = re.compile(r"(\S*\d )?\S+\s*")
STYLES = {"plain": "", "dim": "dim", "bold": "bold", "warning": "yellow", "verdict": "bold"}
Line = tuple[str, str]


def show(document: Document) -> None:
    """Prints `document` on standard output: as wide as the terminal; as wide as everything in it with --wide."""
    command = click.get_current_context(silent=True)
    wide = command is not None and command.meta.get(WIDE)
    width = sys.maxsize if wide else shutil.get_terminal_size((PIPE, 0)).columns
    # Text of a trace may hold brackets: it is never markup, nor an emoji name.
    console = Console(file=sys.stdout, width=PIPE, markup=False, emoji=False, highlight=False)
    details = command is not None and bool(command.meta.get(DETAILS))
    hint = command is not None and any(param.name == "details" for param in command.command.params)
    for line, style in render(document, width, details, hint):
        console.print(Styled(line, style=style), no_wrap=True, crop=False, overflow="ignore")


def render(document: Document, width: int, details: bool = False, hint: bool = False) -> Iterator[Line]:
    """The lines of a document, each with its style, for a terminal of `width` columns."""
    head = [
        *_sentences(document.heading, width, style="bold"),
        *_sentences(document.facts, width, style="dim"),
    ]
    yield from head
    faces = ("both", "terminal", "details") if details else ("both", "terminal")
    shown = [block for block in document.blocks if block.face in faces]
    blocks = (line for block in shown for line in _block(block, width, details))
    # No empty line stands first.
    yield from blocks if head else dropwhile(lambda line: not line[0], blocks)
    left_out = [block for block in document.blocks if block.face == "details"]
    if left_out and hint and not details:
        titles = ", ".join(dict.fromkeys(filter(None, map(_called, left_out))))
        yield "", ""
        yield from _sentences(f"Add --details for: {titles}.", width, style="dim")


#: What follows the subject of a title.
SUBJECT = re.compile(r" \(|: | by ")


def _called(block: Block) -> str:
    """The subject of a block: the front of its title, or the name of its first column."""
    title = block.title.rpartition(", ")[2] or (block.columns[0].name if isinstance(block, Table) else "")
    title = SUBJECT.split(title, maxsplit=1)[0]
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _block(block: Block, width: int, details: bool) -> Iterator[Line]:
    if block.title or isinstance(block, Table):
        yield "", ""
    heading = f"{block.title}  ({block.note})" if isinstance(block, Entries) else block.title
    yield from _sentences(heading, width, style="bold")
    match block:
        case Text():
            yield from _sentences(block.text, width, style=STYLES[block.style])
        case Table():
            rows = block.rows[: block.most]
            yield from _table(block, rows, width)
            yield from _sentences("" if rows else "No rows.", width, style="dim")
            if len(rows) < len(block.rows):
                yield from _sentences(
                    f"and {len(block.rows) - len(rows):,} more (--json)", width, style="dim"
                )
            for note in block.notes:
                yield from _sentences(note, width, style="dim")
        case Entries():
            for remark in block.remarks:
                yield from _sentences(remark, width, 2, "dim")
            shown = block.entries if details else block.entries[: block.most]
            for number, entry in enumerate(shown, 1):
                yield from _sentences(f"{number}. {entry.title}: {entry.gain}", width)
                if details:
                    yield from _sentences(entry.evidence, width, 3, "dim")
                yield from _sentences(entry.change, width, 3)
                yield from _sentences(entry.place, width, 3, "dim")
                yield from _command(entry.command, width, 3)
                for more in entry.more if details else ():
                    yield from _sentences(more, width, 3, "dim")
            if len(shown) < len(block.entries):
                yield from _sentences(
                    f"and {len(block.entries) - len(shown):,} more (--details)", width, style="dim"
                )
        case Items():
            for item in block.items[: block.most]:
                yield from _sentences(item, width, 3)
            if block.most is not None and len(block.items) > block.most:
                yield f"   and {len(block.items) - block.most:,} more (--json)", "dim"


def _sentences(words: str, width: int, by: int = 0, style: str = "") -> Iterator[Line]:
    """Wrapped lines behind `by` spaces. Words longer than a line, such as paths, stay whole; numbers keep their units."""
    words, room, breaks = printable(words), min(SENTENCE, width) - by, [0]
    if not words:
        return
    for word in WORD.finditer(words):
        before, until = words[breaks[-1] : word.start()], words[breaks[-1] : word.end()]
        if before.strip() and cell_len(until.rstrip()) > room:
            breaks.append(word.start())
    for start, end in zip(breaks, [*breaks[1:], None], strict=True):
        yield " " * by + words[start:end].rstrip(), style


def _command(command: str, width: int, by: int) -> Iterator[Line]:
    """A command line that a shell takes as it stands: where it is wrapped, a backslash ends each line but the last."""
    lines = [text for text, _ in _sentences(command, width - 2, by)]
    if cell_len(command) + by <= width:
        lines = [" " * by + printable(command)] * bool(command)
    yield from ((line + " \\" * (place < len(lines)), "") for place, line in enumerate(lines, 1))


def _table(table: Table, rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Where the columns are wider than the terminal, headings wrap, then the longest texts shrink, with an ellipsis in the
    middle; at last columns that find no room follow below, behind the first one again. Numbers and their units are never
    cut.
    """
    cells = [[printable(cell) for cell in row] for row in rows]

    def line(block: dict[int, int], texts: Sequence[str]) -> str:
        drawn = []
        for (i, wide), cell in zip(block.items(), texts, strict=True):
            text = _shortened(cell, wide)
            space = " " * (wide - cell_len(text))
            drawn.append(space + text if table.columns[i].numeric else text + space)
        return (" " * BETWEEN).join(drawn).rstrip()

    for block in _blocks(table.columns, cells, width):
        if cells and _total(block) > width:  # not even two columns fit: below each other
            least = max(width, LEAST_NAME)
            yield from _sentences(table.columns[0].name, width, style="dim")
            for row in cells:
                yield _shortened(row[0], least), ""
                for i in [*block][1:]:
                    value = row[i] if table.columns[i].numeric else _shortened(row[i], least - 2)
                    yield from _sentences(f"{table.columns[i].name}  {value}", width, 2)
            continue
        heads = [wrap(table.columns[i].name, wide) or [""] for i, wide in block.items()]
        high = max(map(len, heads))
        for texts in zip_longest(*([""] * (high - len(head)) + head for head in heads), fillvalue=""):
            yield line(block, texts), "dim"
        for row in cells:
            yield line(block, [row[i] for i in block]), ""


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int) -> list[dict[int, int]]:
    """The columns that stand beside each other, and their widths: as wide as what is in them, or as little as it takes to
    fit into `room`; less than their least never.
    """
    full, wrapped, least = [], [], []
    for i, column in enumerate(columns):
        word = max(map(cell_len, column.name.split()), default=0)
        longest = max((cell_len(row[i]) for row in cells), default=0)
        wrapped.append(max(word, longest))
        least.append(max(word, longest if column.numeric else min(longest, LEAST_NAME)))
        full.append(max(wrapped[i], cell_len(column.name), NUMBER if column.numeric else 0))

    def widths(chosen: Sequence[int], room: int) -> dict[int, int]:
        widths_of = {i: full[i] for i in chosen}
        for least_of in (wrapped, least):  # headings, then texts
            while (over := _total(widths_of) - room) > 0:
                wider = [i for i in chosen if widths_of[i] > least_of[i]]
                if not wider:
                    break
                i = max(wider, key=widths_of.__getitem__)
                # Down to the next longest at once: names of kernels have thousands of characters.
                narrower = [widths_of[j] for j in wider if widths_of[j] < widths_of[i]]
                widths_of[i] = max(widths_of[i] - over, least_of[i], max(narrower, default=0) - 1)
        return widths_of

    blocks = [[0]]
    for i in range(1, len(columns)):
        if len(blocks[-1]) > 1 and _total(widths([*blocks[-1], i], 0)) > room:
            blocks.append([0])
        blocks[-1].append(i)
    return [widths(block, room) for block in blocks]


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + BETWEEN * max(len(widths) - 1, 0)


def _shortened(text: str, width: int) -> str:
    """With an ellipsis in the middle, behind two thirds: names of kernels differ at both ends."""
    if cell_len(text) <= width:
        return text
    behind = (width - 1) // 3
    return set_cell_size(text, width - 1 - behind) + "…" + set_cell_size(text[::-1], behind)[::-1]
