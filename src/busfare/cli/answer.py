"""What commands share: their options, how they read traces, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busfare.files import write_file
from busfare.output import note, print_json

if TYPE_CHECKING:
    from busfare.show.document import Document
    from busfare.trace import Trace


def option(spec: str, help: str, **more: Any) -> Callable[[Any], Any]:
    """An option, as its help shows it: `--direction -d NAME`, or with the name of its parameter, `--from from_ NODE`. What
    its value is called has capitals.
    """
    *names, last = spec.split()
    if last != last.lower():
        return click.option(*names, metavar=last, help=help, **more)
    return click.option(*names, last, help=help, **more)


def answer(result: object, document: Callable[[], Document], json: bool, html: Path | None = None) -> None:
    """Writes the page that was asked for, and shows the result on standard output."""
    from busfare.show.words import worded

    worded(result)
    shown = document() if html or not json else None
    if html and shown:
        from busfare.show.page import page

        write_file(html, page(shown))
    if json:
        print_json(result)
    elif shown:
        from busfare.show.terminal import show

        show(shown)
    if html:
        note(f"page written: {html}")


def read_trace(path: Path, launches: bool = False) -> Trace:
    """The trace at `path` (`busfare.trace.read`), with a sign of life on a terminal while it is read."""
    from busfare.show.progress import reading
    from busfare.trace import read

    with reading(path):
        return read(path, launches)
