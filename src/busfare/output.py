"""What the commands share in what they write: one JSON object, notes, and the options that ask for pages and files."""

from __future__ import annotations

import functools
import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from busfare.errors import InputError
from busfare.files import check_place

#: Where a command's context keeps that --wide was given.
WIDE = "busfare.wide"


class _Path(click.Path):
    """A path as it was given; whoever opens it says what is wrong with it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # which would be this folder
            self.fail("an empty path; is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class _Output(_Path):
    """A path that is written to: a file, or what may be a `folder`."""

    folder = False


class _Folder(_Output):
    folder = True


PATH, OUTPUT, FOLDER = _Path(path_type=Path), _Output(path_type=Path), _Folder(path_type=Path)
as_html = click.option("--html", metavar="FILE", type=OUTPUT, help="Write a page that opens offline.")


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


def print_json(result: object) -> None:
    """One line on standard output."""
    import json

    import msgspec

    text = msgspec.json.encode(result).decode()
    if not text.isprintable():  # the same to whoever decodes it, and nothing that a terminal would obey
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    sys.stdout.write(text + "\n")


def keeping_inputs(command: click.Command) -> click.Command:
    """`command`, refusing to write where it reads, by whatever name, or where nothing can be written, before it reads or
    measures anything; so a group's commands.
    """
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            keeping_inputs(inner)
    run = command.callback
    outputs = {str(param.name): param.type for param in command.params if isinstance(param.type, _Output)}
    if run is None or not outputs:
        return command

    @functools.wraps(run)
    def checked(**values: Any) -> Any:
        given = [path for name, value in values.items() if name not in outputs for path in _paths(value)]
        for name, type_ in outputs.items():
            if output := values[name]:
                _keep_apart(output, given)
                check_place(output, type_.folder)
        return run(**values)

    command.callback = checked
    return command


def _paths(value: Any) -> Iterator[Path]:
    """The files and folders that the value of an argument names, if any; nodes may be files, too."""
    for one in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(one, (str, Path)) and "\0" not in str(one):
            yield Path(one)
            if isinstance(one, Path) and glob.has_magic(str(one)):
                yield from map(Path, glob.iglob(str(one), recursive=True))  # noqa: PTH207


def _keep_apart(output: Path, inputs: Iterable[Path]) -> None:
    for source in inputs:
        try:
            touches = _touches(output, source)
        except (OSError, ValueError):  # one of them is not there, and so not harmed
            continue
        if touches:
            raise InputError(f"{output}: is, holds or lies in the input {source}; name another place")


def _touches(output: Path, source: Path) -> bool:
    """Whether writing `output` would change `source`, which may be a folder of tables or of traces."""
    read = source.stat()
    if os.path.samestat(output.stat(), read):
        return True
    real, inside = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    if real.is_dir():
        return inside.is_relative_to(real) or any(os.path.samestat(f.stat(), read) for f in os.scandir(real))
    from busfare.trace import may_be_trace

    return inside.is_dir() and real.is_relative_to(inside) and may_be_trace(real)


def note(text: str) -> None:
    """What is done, on standard error where that is a terminal: a script hears of what is wrong alone."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
