"""How commands show an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from busfare.files import write_file
from busfare.printable import note, print_json
from busfare.show.document import Document
from busfare.show.page import page
from busfare.show.terminal import show
from busfare.show.words import worded

Of = TypeVar("Of")


def answer(result: Of, document: Callable[[Of], Document], json: bool, html: Path | None = None) -> None:
    """Writes the page that was asked for, and shows the result, by its document or as JSON, on standard output."""
    worded(result)
    shown = document(result) if html or not json else None
    if html and shown:
        write_file(html, page(shown))
    if json:
        print_json(result)
    elif shown:
        show(shown)
    if html:
        note(f"page written: {html}")
