"""What the commands share in what they write: one JSON object, pages, files; and the options that ask for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from busfare.errors import InputError

__all__ = ["PATH", "WIDE", "as_html", "as_json", "note", "print_json", "say_page", "write_file"]

#: A path as it was given; whoever opens it says what is wrong with it.
PATH = click.Path(path_type=Path)
#: Where a command's context keeps that --wide was given.
WIDE = "busfare.wide"
as_html = click.option("--html", metavar="FILE", type=PATH, help="Write a page that opens offline.")


def as_json(command: Callable[..., None]) -> Callable[..., None]:
    """How the result is shown on standard output: `--json`, or tables, with `--wide` of any width."""
    wide = click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.__setitem__(WIDE, value),
        help="Tables as wide as what is in them: no name is shortened.",
    )
    return click.option("--json", is_flag=True, help="One JSON object on standard output.")(wide(command))


def print_json(result: dict[str, Any]) -> None:
    """One line on standard output."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


def write_file(path: Path, text: str) -> None:
    """Makes the file, and its folders. Raises InputError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name another place") from None


def note(text: str) -> None:
    """What is done, on standard error where that is a terminal: a script hears of what is wrong alone."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def say_page(html: Path | None) -> None:
    """Says where the page is, if one was asked for."""
    if html:
        note(f"page written: {html}")
