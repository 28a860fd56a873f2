"""What commands share: their options, how they read traces, how they answer, and how their errors name options."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busfare.errors import InputError
from busfare.files import check_place, write_file
from busfare.printable import WIDE, note, print_json

if TYPE_CHECKING:
    from busfare.show.document import Document
    from busfare.trace import Trace


class _Path(click.Path):
    """A path as it was given; whoever opens it says what is wrong with it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # which would be this folder
            self.fail("an empty path; is a shell variable unset?", param, ctx)
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
        help="Do not truncate names in tables.",
    )
    return click.option("--json", is_flag=True, help="Print one JSON object.")(wide(command))


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


def prepared(command: click.Command) -> click.Command:
    """`command`, or each of a group: it refuses an option that is given twice, of which click takes the last; it writes
    nowhere where it reads, by whatever name, nor where nothing can be written, before it reads or measures anything; and its
    errors name its options.
    """
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            prepared(inner)
    _given_once(command)
    if (run := command.callback) is None:
        return command
    options = {p.name: p.opts[0] for p in command.params if isinstance(p, click.Option)}
    outputs = {str(param.name): param.type for param in command.params if isinstance(param.type, _Output)}

    @functools.wraps(run)
    def checked(**values: Any) -> Any:
        given = [path for name, value in values.items() if name not in outputs for path in _paths(value)]
        for name, type_ in outputs.items():
            if output := values[name]:
                _keep_apart(output, given)
                check_place(output, type_.folder)
        try:
            return run(**values)
        except InputError as error:
            spelled = re.sub("`([a-z_]+)`", lambda name: options.get(name[1], name[0]), str(error))
            raise InputError(spelled) from error

    command.callback = checked
    return command


def _given_once(command: click.Command) -> None:
    parse = command.parse_args

    def checked(ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks how it goes on
            return parse(ctx, args)
        *_, order = command.make_parser(ctx).parse_args(args=list(args))
        single = [p for p in order if isinstance(p, click.Option) and not (p.multiple or p.is_flag)]
        for param in single:
            if single.count(param) > 1:
                names, several = " ".join(param.opts), command.name == "what-if" and "--to" in param.opts
                more = "; `busfare project` compares several nodes" if several else ""
                raise click.UsageError(f"{names}: given twice; give it once{more}", ctx)
        return parse(ctx, args)

    command.parse_args = checked  # type: ignore[method-assign]


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
            raise InputError(f"{output}: overlaps the input {source}; name another place")


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
