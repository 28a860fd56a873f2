"""What commands take, and how that is checked. Their options stand in the modules of this package, without anything heavy,
for help and shells ask for them alone; what a command does stands in `busfare.cli`, and is imported when it is called.
"""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from busfare.cli import REMOVED
from busfare.errors import InputError
from busfare.printable import DETAILS, WIDE

#: The heading of options that only `--help-all` shows, which click's `meta` notes under this key.
RARE = "Rarely used"
#: While numpy is imported: no command needs threads of its linear algebra, which take long to start.
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


class _Path(click.Path):
    """A path as it was given; whoever opens it says what is wrong with it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # which would be this folder
            self.fail("an empty path; is a shell variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class Output(_Path):
    """A path that is written to: a file, or what may be a `folder`."""

    folder = False


PATH, OUTPUT, FOLDER = _Path(path_type=Path), Output(path_type=Path), Output(path_type=Path)
FOLDER.folder = True


def option(spec: str, help: str, **more: Any) -> click.Option:
    """An option as its help shows it: `--direction -d NAME`, or with its parameter, `--from from_ NODE`."""
    *names, last = spec.split()
    if last != last.lower():
        return click.Option(names, metavar=last, help=help, **more)
    return click.Option([*names, last], help=help, **more)


def _show_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[RARE] = True
        click.echo(context.get_help())
        context.exit()


def argument(spec: str, help: str, **more: Any) -> click.Argument:
    """An argument by the name of its parameter and what its value is called, a path where no other `type` is given."""
    name, metavar = spec.split(" ", 1)
    return click.Argument([name], metavar=metavar, help=help, **{"type": PATH, **more})


def _noted(spec: str, help: str, key: str) -> click.Option:
    """An option for all commands that show something: `key` of click's `meta` says whether it was given."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[key] = value

    return option(spec, help, is_flag=True, expose_value=False, callback=note)


#: How the result is shown on standard output: as JSON, or as tables, `--wide` of any width.
as_json = (
    option("--json", "Print one JSON object.", is_flag=True),
    _noted("--wide", "Do not truncate names in tables.", WIDE),
)
details = _noted("--details", "Print everything that the page shows.", DETAILS)
#: And as a page.
SHOWN = (*as_json, option("--html FILE", "Write a page that opens offline.", type=OUTPUT))
#: The part of a trace that is read.
OF_PART = (
    option("--window START..END", "Read only what begins in this time: 1.5s..2s."),
    option("--range NAME", "Read only the ranges of this name (NVTX, steps)."),
    option("--iteration N", "Read only the N-th unit of work, or N-th --range."),
)


class Command(click.Command):
    """A command with its help, arguments and options, and its `body`: MODULE.FUNCTION of `busfare.cli`.

    It refuses an option that is given twice, of which click takes the last; it writes nowhere where it reads, by whatever
    name, nor where nothing can be written, before it reads or measures anything; and its errors name its options.
    """

    def __init__(
        self, name: str, help: str, body: str, *params: click.Parameter | tuple[click.Parameter, ...] | str, **more: Any
    ) -> None:  # fmt: skip
        """A text among the `params` is the heading, in the help, of the options behind it."""
        every: list[click.Parameter] = []
        title, self.titles = "", dict[str | None, str]()
        for param in params:
            if isinstance(param, str):
                title = param
            else:
                some = param if isinstance(param, tuple) else (param,)
                self.titles |= dict.fromkeys((p.name for p in some), title)
                every += some
        if RARE in params:
            every.append(click.Option(
                ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
                help="Show this message with the rarely used options.",
            ))  # fmt: skip
        super().__init__(name, params=every, help=help, **more)
        self.body = body

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of its help, whole: lists of commands wrap it."""
        return super().get_short_help_str(limit=1000)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by their groups; help itself stands in the last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                title = self.titles.get(param.name) or next(reversed(groups), "Options")
                if title != RARE or ctx.meta.get(RARE):
                    groups.setdefault(title, []).append(record)
        names = (len(name) for rows in groups.values() for name, _ in rows)
        width = max((n for n in names if n <= 24), default=0)  # longer ones have a line of their own
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks how it goes on
            return super().parse_args(ctx, args)
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            named = f"{self.name} {param.opts[0]} {given[str(param.name)]}"
            if named in REMOVED:
                raise click.UsageError(f"{named} was removed; {REMOVED[named]}", ctx)
        single = [p for p in order if isinstance(p, click.Option) and not (p.multiple or p.is_flag)]
        for param in single:
            if single.count(param) > 1:
                names, several = " ".join(param.opts), self.name == "what-if" and "--to" in param.opts
                more = "; `busfare project` compares several nodes" if several else ""
                raise click.UsageError(f"{names}: given twice; give it once{more}", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        values, module = ctx.params, self.body.partition(".")[0]
        ours = BLAS_THREADS not in os.environ  # else the user has said how many
        os.environ |= {BLAS_THREADS: "1"} if ours else {}
        try:
            body = getattr(import_module(f"busfare.cli.{module}"), self.body.partition(".")[2])
        finally:
            if ours:
                del os.environ[BLAS_THREADS]  # not for programs started from here
        outputs = {str(p.name): p.type for p in self.params if isinstance(p.type, Output)}
        read = [path for name, value in values.items() if name not in outputs for path in _paths(value)]
        options = {str(p.name): p.opts[0] for p in self.params if isinstance(p, click.Option)}
        try:
            _keep_apart_from_stdout(read, "this input")
            _keep_apart_from_stdout(
                [Path(values[name]) for name in outputs if values[name]], "this file, too"
            )
            written: dict[str, str] = {}
            for name, kind in outputs.items():
                if output := values[name]:
                    import_module("busfare.cli.output").keep_apart(output, kind.folder, read)
                    taken = written.setdefault(os.path.realpath(output), name)
                    if taken != name and not output.is_relative_to("/dev"):
                        raise InputError(
                            f"{output}: `{taken}` and `{name}` name the same file; give two different files"
                        )
            return ctx.invoke(body, **values)
        except InputError as error:
            spelled = re.sub("`([a-z0-9_]+)`", lambda name: options.get(name[1], name[0]), str(error))
            raise InputError(spelled) from error


def _paths(value: Any) -> Iterator[Path]:
    """The files and folders that the value of an argument may name; nodes may be files, too."""
    for part in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(part, Path) and "\0" not in str(part):
            yield part
            if glob.has_magic(str(part)):
                yield from map(Path, glob.iglob(str(part), recursive=True))  # noqa: PTH207  Path.glob refuses absolute patterns
        elif isinstance(part, str) and "\0" not in part and Path(part).is_file():
            yield Path(part)


def _keep_apart_from_stdout(files: Iterable[Path], what: str) -> None:
    """Raises InputError if standard output goes to an input file, as with `>> TRACE`, or to another output."""
    with suppress(OSError):  # closed
        stdout = os.fstat(1)
        for file in files if stat.S_ISREG(stdout.st_mode) else ():
            with suppress(OSError, ValueError):
                if os.path.samestat(file.stat(), stdout):
                    raise InputError(f"{file}: standard output goes to {what}; name another place")
