"""A document as one page that opens offline: no request leaves it, and text from a trace stays text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib import resources

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
STYLES = {"plain": "", "dim": ' class="dim"', "bold": ' class="bold"', "warning": ' class="warning"'}


def page(document: Document) -> str:
    """The whole page."""
    files = resources.files("busfare.show")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    drawn = any(isinstance(block, Figure) and isinstance(block.chart, TimeLine) for block in document.blocks)
    scripts = [files.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS if drawn]
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    policy = POLICY.format(" ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'")
    blocks = (_block(block) for block in document.blocks if block.face != "terminal")
    facts = f'<p class="dim">{_words(document.facts)}</p>' if document.facts else ""
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(document.title)}</title>\n<style>{style}</style>\n</head><body>{HATCH}",
            # Paths wrap between their folders.
            f"<h1>{_words(document.heading).replace('/', '/<wbr>')}</h1>{facts}",
            *blocks,
            f"<footer>busfare {__version__}. {_words(document.explained)}</footer>",
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>",
        )
    )


def _words(text: str) -> str:
    return CODE.sub(r"<code>\1</code>", escaped(text))


def _list(items: Iterable[str], kind: str) -> str:
    return f"<{kind}>{''.join(f'<li>{item}</li>' for item in items)}</{kind}>"


def _block(block: Block) -> str:
    title = f"<h2>{_words(block.title)}</h2>" if block.title else ""
    match block:
        case Text():
            return f"{title}<p{STYLES[block.style]}>{_words(block.text)}</p>"
        case Tiles():
            tiles = (
                f'<div class="tile"><b>{_words(value)}</b>{_words(what)}</div>' for value, what in block.tiles
            )
            return f'{title}<div class="tiles">{"".join(tiles)}</div>'
        case Table():
            notes = "".join(f'<p class="dim">{_words(note)}</p>' for note in block.notes)
            if block.folded:
                return f"<details><summary>{_words(block.title)}</summary>{_table(block)}{notes}</details>"
            return f"{title}{_table(block)}{notes}"
        case Entries():
            notes = "".join(
                f'<p class="dim">{_words(text)}</p>'
                for text in (f"{block.note[:1].upper()}{block.note[1:]}.", *block.remarks)
            )
            entries = (
                f"<b>{_words(entry.title)}</b> <span class='gain'>{_words(entry.gain)}</span><br>"
                f"{_words(entry.evidence)}<br>{_words(entry.change)}"
                + (f"<br><span class='dim'>{_words(entry.place)}</span>" if entry.place else "")
                + (
                    f"<br><code>{OPTION.sub(NO_BREAK, escaped(entry.command))}</code>"
                    if entry.command
                    else ""
                )
                + "".join(f"<br><span class='dim'>{_words(text)}</span>" for text in entry.more)
                + _button(entry)
                for entry in block.entries
            )
            return f"{title}{notes}{_list(entries, 'ol')}"
        case Items():
            return title + _list(map(_words, block.items), "ul")
        case Figure():
            note = f"<figcaption>{_words(block.note)}</figcaption>" if block.note else ""
            drawn = block.chart.markup()
            if not isinstance(block.chart, Shares | TimeLine):
                drawn = _wide(drawn, block.title or block.name)
            return f'{title}<figure id="{escaped(block.name)}">{drawn}{note}</figure>'


def _button(entry: Entry) -> str:
    """What lights up a finding's operations in the timeline, once that is drawn."""
    if not entry.shows:
        return ""
    title = escaped(entry.title)
    return (
        f'<br><button type="button" hidden data-shows="{escaped(entry.shows)}" data-title="{title}">'
        f'Show in the timeline<span class="unseen">: {title}</span></button>'
    )


def _wide(inner: str, what: str) -> str:
    """What is moved sideways where it is wider than the page, by keys, too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(what or "Table")}">{inner}</div>'


def _table(table: Table) -> str:
    kinds = ["number" if column.numeric else "name" for column in table.columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        return (
            f"<tr>{''.join(f'<{tag} class={k}>{c}</{tag}>' for k, c in zip(kinds, cells, strict=True))}</tr>"
        )

    head = line("th", (_words(column.name) for column in table.columns))
    rows = (line("td", map(_words, row)) for row in table.rows)
    if not table.rows:
        return '<p class="dim">No rows.</p>'
    return _wide(f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>", table.title)
