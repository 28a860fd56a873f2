"""A document as one page that opens offline: no request leaves it, and text from a trace stays text."""

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import PurePath

from busfare import __version__
from busfare.show.blocks import Shares
from busfare.show.document import Block, Document, Entries, Entry, Figure, Items, Table, Text, Tiles
from busfare.show.svg import escaped
from busfare.show.time_line import TimeLine

CODE = re.compile("`([^`]+)`")
#: Lines of a command do not break within an option.
OPTION, NO_BREAK = re.compile(r"--[\w-]+"), r'<span class="option">\g<0></span>'
#: Nothing but what the page carries itself may load, and no scripts but its own, which their hashes name, may run.
POLICY = "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:"
#: What is laid over the colour of everything predicted.
HATCH = (
    '<svg width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="7" height="7" patternUnits='
    '"userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch" width="3" height="7"/></pattern></defs></svg>'
)
#: What draws timelines, where there are some.
SCRIPTS = ("time_line.js", "time_line_input.js")
#: Between a number and its unit, where no line breaks.
UNIT, NO_BREAK_SPACE = re.compile(r"(?<=\d) (?=(?:%|×|[mnµ]?s\b|[kMGT]?B\b))"), "\u00a0"
STYLES = {"plain": ""} | {name: f' class="{name}"' for name in ("dim", "bold", "warning", "verdict")}
#: A command shows the name of its trace; who copies it, copies the folders, too.
FOLDERS, FOLDED = re.compile(r"(?<=^busfare what-if )(?:[^/\s]*/)+"), r'<span class="folders">\g<0></span>'
#: Longer cells of text are cut to two lines, with all of it where they are pointed at.
LONG_CELL = 60


def page(document: Document) -> str:
    """The whole page."""
    files = resources.files("busfare.show")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    drawn = any(isinstance(block, Figure) and isinstance(block.chart, TimeLine) for block in document.blocks)
    scripts = [files.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS if drawn]
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    policy = POLICY.format(" ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'")
    blocks = (_block(block) for block in document.blocks if block.face != "terminal")
    title, heading, facts = document.title, document.heading, document.facts
    for path in document.paths:
        name = PurePath(path).name
        heading = heading if path in heading + facts else f"{name}: {heading}"
        title, heading, facts = (words.replace(path, name) for words in (title, heading, facts))
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head><body>{HATCH}",
            f"<header><h1>{_words(heading)}</h1>",
            f'<p class="dim">{_words(facts)}</p></header><main>' if facts else "</header><main>",
            *blocks,
            _folded("Files", _list((_words(path) for path in document.paths), "ul"))
            if document.paths
            else "",
            f"</main><footer>busfare {__version__}. {_words(document.explained)}</footer>",
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>",
        )
    )


def _words(text: str) -> str:
    return CODE.sub(r"<code>\1</code>", escaped(text))


def _list(items: Iterable[str], kind: str) -> str:
    return f"<{kind}>{''.join(f'<li>{item}</li>' for item in items)}</{kind}>"


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{_words(title)}</summary>{inner}</details>"


def _block(block: Block) -> str:
    if block.face not in ("details", "folded"):
        return (f"<h2>{_words(block.title)}</h2>" if block.title else "") + _inner(block)
    unnamed = block.columns[0].name if isinstance(block, Table) else ""
    title = block.title or f"{unnamed[:1].upper()}{unnamed[1:]}"
    return _folded(title, _inner(block)) if title else _inner(block)


def _inner(block: Block) -> str:
    """A block without its title."""
    match block:
        case Text():
            return f"<p{STYLES[block.style]}>{_words(UNIT.sub(NO_BREAK_SPACE, block.text))}</p>"
        case Tiles():
            tiles = (
                f'<div class="tile"><b>{_words(value)}</b>{_words(what)}</div>' for value, what in block.tiles
            )
            return f'<div class="tiles">{"".join(tiles)}</div>'
        case Table():
            return _table(block) + "".join(f'<p class="dim">{_words(note)}</p>' for note in block.notes)
        case Entries():
            note = f"{block.note[:1].upper()}{block.note[1:]}."
            first, rest = block.entries[: block.most], block.entries[block.most :]
            shown = f'<ol class="actions">{"".join(map(_entry, first))}</ol>'
            if rest:
                listed = f'<ol class="actions" start="{len(first) + 1}">{"".join(map(_entry, rest))}</ol>'
                shown += _folded(f"{len(rest)} more", listed)
            return shown + "".join(f'<p class="dim">{_words(text)}</p>' for text in (note, *block.remarks))
        case Items():
            return _list(map(_words, block.items), "ul")
        case Figure():
            note = f"<figcaption>{_words(block.note)}</figcaption>" if block.note else ""
            drawn = block.chart.markup()
            if not isinstance(block.chart, Shares | TimeLine):
                drawn = _wide(drawn, block.title or block.name)
            return f'<figure id="{escaped(block.name)}">{drawn}{note}</figure>'


def _entry(entry: Entry) -> str:
    """What to do and what it gains; behind a line, why."""
    command = OPTION.sub(NO_BREAK, FOLDERS.sub(FOLDED, escaped(entry.command)))
    reasons = [_words(text) for text in (entry.evidence, entry.place, *entry.more) if text]
    return (
        f"<li><b>{_words(entry.title)}</b><span class='gain'>{_words(entry.gain)}</span>"
        f"<p class='change'>{_words(entry.change)}</p>"
        + (f"<code>{command}</code>" if entry.command else "")
        + _folded("Why", "".join(f"<p>{text}</p>" for text in reasons))
        + _button(entry)
        + "</li>"
    )


def _button(entry: Entry) -> str:
    """What lights up a finding's operations in the timeline, once that is drawn."""
    if not entry.shows:
        return ""
    title = escaped(entry.title)
    return (
        f'<button type="button" hidden data-shows="{escaped(entry.shows)}" data-title="{title}">'
        f'Show in the timeline<span class="unseen">: {title}</span></button>'
    )


def _wide(inner: str, what: str) -> str:
    """What is moved sideways where it is wider than the page, by keys, too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(what or "Table")}">{inner}</div>'


def _cell(text: str) -> str:
    return (
        f'<div class="long" title="{escaped(text)}">{_words(text)}</div>'
        if len(text) > LONG_CELL
        else _words(text)
    )


def _table(table: Table) -> str:
    kinds = ["number" if column.numeric else "name" for column in table.columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        return (
            f"<tr>{''.join(f'<{tag} class={k}>{c}</{tag}>' for k, c in zip(kinds, cells, strict=True))}</tr>"
        )

    head = line("th", (_words(column.name) for column in table.columns))
    rows = (line("td", map(_cell, row)) for row in table.rows)
    if not table.rows:
        return '<p class="dim">No rows.</p>'
    return _wide(f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>", table.title)
