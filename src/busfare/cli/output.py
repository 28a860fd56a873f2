"""How commands show an answer, and which output paths they refuse."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from busfare.errors import InputError
from busfare.files import check_place, write_file
from busfare.printable import note, print_json, warn
from busfare.show.document import Document
from busfare.show.page import page
from busfare.show.terminal import show
from busfare.show.words import worded
from busfare.trace import may_be_trace

Of = TypeVar("Of")


def answer(result: Of, document: Callable[[Of], Document], json: bool, html: Path | None = None) -> None:
    """Writes the page that was asked for, and shows the result, by its document or as JSON, on standard output."""
    worded(result)
    shown = document(result) if html or not json else None
    if html and shown:
        if not html.parent.exists():
            warn(f"created the folder {html.parent}")
        write_file(html, page(shown))
    if json:
        print_json(result)
    elif shown:
        show(shown)
    if html:
        note(f"page written: {html}")


def keep_apart(output: Path, folder: bool, inputs: Iterable[Path]) -> None:
    """Raises InputError if `output`, maybe a `folder`, cannot be written, or if that would change one of the `inputs`."""
    for source in inputs:
        try:
            touches = _touches(output, source)
        except (OSError, ValueError):  # a missing file cannot be overwritten
            continue
        if touches:
            raise InputError(f"{output}: overlaps the input {source}; name another place")
    check_place(output, folder)


def _touches(output: Path, source: Path) -> bool:
    """Whether writing `output` would change `source`, which may be a folder of tables or of traces."""
    read = source.stat()
    if os.path.samestat(output.stat(), read):
        return True
    real, inside = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    if real.is_dir():
        return inside.is_relative_to(real) or any(os.path.samestat(f.stat(), read) for f in os.scandir(real))
    return inside.is_dir() and real.is_relative_to(inside) and may_be_trace(real)
