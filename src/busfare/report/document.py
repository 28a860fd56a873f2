"""The page itself: one document that opens offline, from which no request leaves; its sections and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

import msgspec

from busfare import __version__
from busfare.printable import printable

__all__ = ["document", "place", "section", "table", "words"]

#: The words that the pages of traces and predictions explain themselves with.
TRACE_WORDS = (
    "Recorded: read from the trace. Predicted: by a cost model. Exposed: a transfer runs and no kernel does. "
    "Transfers' part of GPU time: their summed durations over those of transfers and kernels."
)
CODE = re.compile("`([^`]+)`")
#: Nothing but what the page carries itself may run or load.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def document(title: str, body: Iterable[str], plots: dict[str, Any], explained: str = TRACE_WORDS) -> str:
    """The whole page: `body` are its elements, already escaped; `plots` go to the elements of their ids; `explained`
    says below what the page means by its own.
    """
    files = resources.files("busfare.report")
    library = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    # A '<' inside the data could otherwise end its script element.
    data = (
        msgspec.json.encode(plots)
        .decode()
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(printable(title))}</title>",
            f"<style>{files.joinpath('page.css').read_text(encoding='utf-8')}</style>",
            "</head><body>",
            *(printable(element, but="\n\t") for element in body),
            f"<footer>busfare {__version__}. {escape(explained)}</footer>",
            f'<script id="plots" type="application/json">{data}</script>',
            f"<script>{library}</script>",
            f"<script>{files.joinpath('page.js').read_text(encoding='utf-8')}</script>",
            "</body></html>",
        )
    )


def words(text: str) -> str:
    """Sentences as HTML; what stands between backticks is code."""
    return CODE.sub(r"<code>\1</code>", escape(text))


def place(path: str) -> str:
    """A path as HTML that wraps between its folders."""
    return escape(path).replace("/", "/<wbr>")


def section(title: str, content: str) -> str:
    """A part of the page; `content` is HTML, `title` text."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose others are numbers."""
    head = "".join(
        f'<th class="{"name" if i < texts else "number"}">{escape(c)}</th>' for i, c in enumerate(columns)
    )
    lines = (
        "<tr>"
        + "".join(
            f'<td class="{"name" if i < texts else "number"}">{words(cell)}</td>'
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
