"""The command line: one short function a command, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

import click

from busfare import __version__
from busfare.errors import BusfareError
from busfare.output import keeping_inputs

__all__ = ["app", "main"]

#: Each command, in the order of `busfare --help`: the module here that has it, and its name there.
COMMANDS = {
    "report": ("report", "report"),
    "what-if": ("traces", "what_if"),
    "project": ("traces", "project"),
    "compare": ("traces", "compare"),
    "price": ("nodes", "price"),
    "plan": ("nodes", "plan"),
    "export": ("traces", "export"),
    "record": ("measuring", "record"),
    "demo": ("traces", "demo"),
    "probe": ("measuring", "probe"),
    "nodes": ("nodes", "nodes_app"),
    "bench": ("bench", "bench_app"),
}


class Commands(click.Group):
    """The commands, of which only the one that is called is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in COMMANDS:
            raise click.exceptions.NoSuchCommand(cmd_name, possibilities=COMMANDS, ctx=ctx)
        module, name = COMMANDS[cmd_name]
        command = getattr(import_module(f"busfare.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return keeping_inputs(command)


@click.group(cls=Commands, context_settings={"show_default": True})
@click.version_option(__version__, prog_name="busfare", message="%(prog)s %(version)s")
def app() -> None:
    """What your data pays to ride the bus between CPU and GPU, what it would pay elsewhere, and what to change."""


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _with_empty_values(arguments: list[str]) -> list[str]:
    """`--pin` without a value as `--pin=`; the trace itself is no value, so it may stand behind it."""
    if arguments[:1] != ["what-if"]:
        return arguments
    from busfare.cli.traces import VALUE_MAY_LACK

    made: list[str] = []
    for at, text in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        lacks = text in VALUE_MAY_LACK and (following.startswith("-") or Path(following).exists())
        made.append(f"{text}=" if lacks else text)
    return made


def main() -> None:
    """Runs the command line and exits with its status: 0 done, 1 a limit passed, 2 unusable input, 3 no GPU."""
    # Imports make many objects and no garbage: looking for it among them takes a tenth of the start.
    gc.set_threshold(100_000, 50, 50)
    try:
        status = app.main(_with_empty_values(sys.argv[1:]), standalone_mode=False, prog_name="busfare")
        sys.stdout.flush()
    except BusfareError as error:
        print(f"busfare: {_one_line(str(error))}", file=sys.stderr)
        status = error.exit_status
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = 2
    except click.ClickException as error:
        print(f"busfare: {_one_line(error.format_message())} Try `busfare --help`.", file=sys.stderr)
        status = 2
    except SystemExit as stop:
        # Click answers a broken pipe with exit(1): whoever read our output has had enough.
        status = 0 if stop.code == 1 else stop.code
    except BrokenPipeError:
        # Whoever read our output has had enough; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except MemoryError:
        print(
            "busfare: not enough memory for this trace; use a machine with more, or export a shorter part of it",
            file=sys.stderr,
        )
        status = 2
    except (KeyboardInterrupt, click.Abort):
        print("busfare: stopped", file=sys.stderr)
        status = 130
    # Nor is there any at the end: looking for it then takes as long as reading a small trace.
    gc.freeze()
    sys.exit(status if isinstance(status, int) else 0)
