"""Commands about busfare itself, which need nothing else of it: completion, help; and the options of doctor."""

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from busfare.cli.options import Command, as_json

#: Where shells look for what completes a command.
SHELLS = {
    "bash": "as ~/.local/share/bash-completion/completions/busfare",
    "zsh": "in a folder of $fpath, as _busfare",
    "fish": "as ~/.config/fish/completions/busfare.fish",
}
doctor = Command(
    "doctor", "Check what works on this machine, and how to fix the rest.", "planning.doctor", as_json
)
completion = Command(
    "completion",
    "Print the shell script that completes commands and options.",
    "about.print_completion",
    click.Argument(["shell"], type=click.Choice(list(SHELLS)), help="The shell."),
    epilog=" ".join(f"{shell}: save it {place}." for shell, place in SHELLS.items()),
)
help_ = Command(
    "help",
    "Show the help of a command.",
    "about.print_help",
    click.Argument(["command"], nargs=-1, help="The command, for example `plan kv`."),
)


def print_completion(shell: str) -> None:
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(_app(), {}, "busfare", "_BUSFARE_COMPLETE").source())


def print_help(command: tuple[str, ...]) -> None:
    app = _app()
    app.main([*command, "--help"], prog_name="busfare", standalone_mode=False)


def _app() -> click.Group:
    """The group that holds all commands."""
    app = click.get_current_context().find_root().command
    assert isinstance(app, click.Group)
    return app


def every_command(group: click.Group, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The context of each command that help shows, and behind it those of its own commands. `parent`: of the `group`."""
    # Only this makes a context that knows how help is asked for; commands keep the first they are shown in.
    parent = parent or group.make_context("busfare", [], resilient_parsing=True)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, parent=parent, info_name=name)
        yield context
        if isinstance(command, click.Group):
            yield from every_command(command, context)
