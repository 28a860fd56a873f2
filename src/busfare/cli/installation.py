"""Commands about busfare itself: doctor, completion, help."""

from __future__ import annotations

import click

from busfare.cli.answer import answer, option
from busfare.output import as_json

__all__ = ["completion", "doctor", "help_"]

#: Where shells look for what completes a command.
SHELLS = {
    "bash": "as ~/.local/share/bash-completion/completions/busfare",
    "zsh": "in a folder of $fpath, as _busfare",
    "fish": "as ~/.config/fish/completions/busfare.fish",
}


@click.command()
@as_json
def doctor(json: bool) -> None:
    """What works on this machine, and what to do where something is missing."""
    from busfare.answers.doctor import examined
    from busfare.show.doctor import doctor_document

    result = examined()
    answer(result, lambda: doctor_document(result), json)
    if not result.checks[0].works:
        raise click.exceptions.Exit(2)


@click.command(epilog=" ".join(f"{shell}: save it {place}." for shell, place in SHELLS.items()))
@click.argument("shell", type=click.Choice(list(SHELLS)), help="The shell.")
def completion(shell: str) -> None:
    """Print the script by which a shell completes busfare's commands and options."""
    from click.shell_completion import get_completion_class

    from busfare.cli import app

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(app, {}, "busfare", "_BUSFARE_COMPLETE").source())


@click.command("help")
@click.argument("command", nargs=-1, help="As in `busfare help plan kv`.")
@option("--man", "All commands as one man page: busfare help --man > busfare.1.", is_flag=True)
def help_(command: tuple[str, ...], man: bool) -> None:
    """Show the help of a command, or of all of them as a man page."""
    from busfare.cli import app

    if man:
        from busfare.cli.man_page import man_page

        click.echo(man_page(app))
        return
    shown: click.Command = app
    context = app.make_context("busfare", [], resilient_parsing=True)
    for word in command:
        found = shown.get_command(context, word) if isinstance(shown, click.Group) else None
        if found is None:
            raise click.UsageError(f"{' '.join(command)!r} is no command.")
        context, shown = click.Context(found, parent=context, info_name=word), found
    click.echo(shown.get_help(context))
