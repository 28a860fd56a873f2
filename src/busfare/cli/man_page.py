"""All commands as one man page, in the macros of man(7)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from busfare import __version__


def man_page(app: click.Group) -> str:
    """The text of `busfare.1`."""
    summary = (app.help or "").splitlines()[0].rstrip(".")
    lines = [
        f'.TH BUSFARE 1 "" "busfare {__version__}"',
        ".SH NAME", f"busfare \\- {_roff(summary)}",
        ".SH SYNOPSIS", ".B busfare", "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION", "Every command takes", ".BR \\-\\-help .", "A NODE is a name of",
        ".BR \"busfare nodes\" ,", "a GPU by name, a TOML file, or a link in short, as pcie:4x16.",
        ".SH COMMANDS", *(line for command in every_command(app) for line in _described(command)),
        ".SH EXIT STATUS",
        *(f".TP\n.B {status}\n{what}" for status, what in (
            (0, "done"), (1, "a limit set with \\-\\-fail\\-if was passed"),
            (2, "wrong usage, or input that cannot be used"), (3, "no GPU where one is needed"))),
    ]  # fmt: skip
    return "\n".join(lines)


def every_command(app: click.Group) -> Iterator[click.Context]:
    """The context of each command that help shows, and behind it those of its own commands."""
    # Only this makes a context that knows how help is asked for; commands keep the first they are shown in.
    yield from _commands(app, app.make_context("busfare", [], resilient_parsing=True))


def _commands(group: click.Group, parent: click.Context) -> Iterator[click.Context]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, parent=parent, info_name=name)
        yield context
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def usage(context: click.Context) -> str:
    """'busfare report [OPTIONS] TRACE...'."""
    return " ".join([context.command_path, *context.command.collect_usage_pieces(context)])


def _described(context: click.Context) -> Iterator[str]:
    yield f'.SS "{_roff(usage(context))}"'
    yield _roff(context.command.get_short_help_str(200))
    for param in context.command.get_params(context):
        if (record := param.get_help_record(context)) is not None:
            yield f".TP\n.B {_roff(record[0])}\n{_roff(record[1])}"


def _roff(text: str) -> str:
    """Text in which nothing is a macro, and dashes can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return "\\&" + text if text.startswith((".", "'")) else text
