"""All commands as one man page, in the macros of man(7)."""

from __future__ import annotations

from collections.abc import Iterator

import click

from busfare import __version__


def man_page(app: click.Group) -> str:
    """The text of `busfare.1`."""
    context = app.make_context("busfare", [], resilient_parsing=True)
    summary = (app.help or "").splitlines()[0].rstrip(".")
    lines = [
        f'.TH BUSFARE 1 "" "busfare {__version__}"',
        ".SH NAME", f"busfare \\- {_roff(summary)}",
        ".SH SYNOPSIS", ".B busfare", "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION", "Every command takes", ".BR \\-\\-help .", "A NODE is a name of",
        ".BR \"busfare nodes\" ,", "a GPU by name, a TOML file, or a link in short, as pcie:4x16.",
        ".SH COMMANDS", *_commands(app, context),
        ".SH EXIT STATUS",
        *(f".TP\n.B {status}\n{what}" for status, what in (
            (0, "done"), (1, "a limit set with \\-\\-fail\\-if was passed"),
            (2, "wrong usage, or input that cannot be used"), (3, "no GPU where one is needed"))),
    ]  # fmt: skip
    return "\n".join(lines)


def _commands(group: click.Group, parent: click.Context) -> Iterator[str]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, parent=parent, info_name=name)
        pieces = " ".join(command.collect_usage_pieces(context))
        yield f'.SS "{_roff(f"{context.command_path} {pieces}")}"'
        yield _roff(command.get_short_help_str(200))
        for param in command.get_params(context):
            if (record := param.get_help_record(context)) is not None:
                yield f".TP\n.B {_roff(record[0])}\n{_roff(record[1])}"
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _roff(text: str) -> str:
    """Text in which nothing is a macro, and dashes can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return "\\&" + text if text.startswith((".", "'")) else text
