"""The command line: one short function a command, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import typer

from busfare.cli import measuring, nodes, traces
from busfare.cli.bench import bench_app
from busfare.errors import BusfareError

__all__ = ["app", "main"]

app = typer.Typer(
    help="What your data pays to ride the bus between CPU and GPU, what it would pay elsewhere, and what to change.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(traces.report)
app.command("what-if")(traces.what_if)
app.command()(traces.project)
app.command()(traces.compare)
app.command()(nodes.price)
app.command()(nodes.plan)
app.command()(traces.export)
# What stands behind `--` is another program's.
app.command(context_settings={"allow_interspersed_args": False})(measuring.record)
app.command()(traces.demo)
app.command()(measuring.probe)
app.add_typer(nodes.nodes_app, name="nodes")
app.add_typer(bench_app, name="bench")


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _with_empty_values(arguments: list[str]) -> list[str]:
    """`--pin` without a value as `--pin=`; the trace itself is no value, so it may stand behind it."""
    if arguments[:1] != ["what-if"]:
        return arguments
    made: list[str] = []
    for at, text in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        lacks = text in traces.VALUE_MAY_LACK and (following.startswith("-") or Path(following).exists())
        made.append(f"{text}=" if lacks else text)
    return made


def main() -> None:
    """Runs the command line and exits with its status: 0 done, 1 a limit passed, 2 unusable input, 3 no GPU."""
    # Imports make many objects and no garbage: looking for it among them takes a tenth of the start.
    gc.set_threshold(100_000, 50, 50)
    command = typer.main.get_command(app)
    try:
        status = command.main(_with_empty_values(sys.argv[1:]), standalone_mode=False, prog_name="busfare")
        sys.stdout.flush()
    except BusfareError as error:
        print(f"busfare: {_one_line(str(error))}", file=sys.stderr)
        status = error.exit_status
    except typer.Exit as done:
        status = done.exit_code
    except typer.TyperException as error:
        print(f"busfare: {_one_line(error.format_message())} Try `busfare --help`.", file=sys.stderr)
        status = 2
    except SystemExit as stop:
        # Typer answers a broken pipe with exit(1): whoever read our output has had enough.
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
    except (KeyboardInterrupt, typer.Abort):
        print("busfare: stopped", file=sys.stderr)
        status = 130
    # Nor is there any at the end: looking for it then takes as long as reading a small trace.
    gc.freeze()
    sys.exit(status if isinstance(status, int) else 0)
