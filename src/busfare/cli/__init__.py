"""The command line: the options of each command in `options`, what it does in the other modules, and no logic."""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from typing import TextIO

import click

from busfare import __version__
from busfare.errors import BusfareError
from busfare.printable import warn

__all__ = ["app", "main"]

#: Options of `what-if` whose value may be left out.
BARE = ("--pin", "--async", "--drop-synchronisations")
#: Each command, in the order of `busfare --help`: the module here that has its options, and its name there.
COMMANDS = {
    "report": ("options.traces", "report"), "what-if": ("options.traces", "what_if"),
    "project": ("options.traces", "project"), "compare": ("options.traces", "compare"),
    "diff": ("options.traces", "diff"), "price": ("options.planning", "price"),
    "plan": ("options.planning", "plan"), "export": ("options.traces", "export"),
    "record": ("options.measuring", "record"), "try": ("options.measuring", "try_"),
    "demo": ("options.traces", "demo"), "probe": ("options.measuring", "probe"),
    "nodes": ("options.planning", "nodes"), "bench": ("options.measuring", "bench"),
    "doctor": ("about", "doctor"), "completion": ("about", "completion"), "help": ("about", "help_"),
}  # fmt: skip

NCU = "count with ncu, and give its output to project --counters (docs/kernels.md)"
TIMED = "time your kernel, and use `plan --kernel TIME`"
#: Removed options, values and commands; the text completes "… was removed; ".
REMOVED = {
    "probe --fault": "--virtual NODE simulates a node without faults",
    "help --man": "use `busfare help`, or `--help` of a command",
    "report --resume": "run the command again with --jobs N, or --scheduler ADDRESS",
    "report --slurm": "start a Dask scheduler and workers with Slurm and use --scheduler",
    "what-if --as-arguments": "`busfare report` bounds the gain of passing small copies as kernel arguments",
    "what-if --offload-schedule": "use plan offload --from-trace TRACE",
    "what-if --with-loop": "use --batch-below SIZE, which keeps the loop that makes the copies",
    "record --counters": NCU,
    "record --counted-kernels": NCU,
    "record --counter-passes": NCU,
    "record --mapped": "leave it out; busfare plan estimates the cost of reading host memory in place",
    "record --arguments": "leave it out; --kinds memory records allocations",
    "record --first-use": "`what-if --async` predicts the gain of waiting later",
    "record --storage": "`nsys profile --trace=cuda,osrt` records reads of files",
    "what-if --read-ahead": "change the program, record it again and use busfare diff",
    "what-if --wait-at-first-use": "use --async or --drop-synchronisations",
    "record --threads": "give JAX's own profile (jax.profiler.trace) to busfare report",
    "export --to nsys-sqlite": "use --to parquet",
    "export --to otf2": "use --to perfetto, or parquet",
    "plan --access-bytes": "multiply --accesses-in and --accesses-out: by 1.7 for accesses of 32 bytes",
    "plan --chunks": "leave it out; chunks are equal, and --kernel-at gives the time of small ones",
    "plan --queues": "leave it out; every stream has its queue, unless CUDA_DEVICE_MAX_CONNECTIONS is lower",
    "plan --concurrent-kernels": "give --kernel-at N=TIME with the time of N chunks' kernels together",
    "plan --sweep": "run plan with --json for each value (docs/plan.md)",
    "bench strategies --kernel": TIMED,
    "bench strategies --in": TIMED,
    "bench strategies --out": TIMED,
    "bench strategies --function": TIMED,
    "bench strategies --levels": TIMED,
    "bench strategies --level-elements": TIMED,
    "bench kv": "use `plan kv`, which predicts the same layouts",
    "bench offload": "use `plan offload`, which predicts the same schedules",
}


class Commands(click.Group):
    """The commands, of which only the options of the one that is called are imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in COMMANDS:
            raise click.exceptions.NoSuchCommand(cmd_name, possibilities=COMMANDS, ctx=ctx)
        if cmd_name not in self.commands:
            module, name = COMMANDS[cmd_name]
            command = getattr(import_module(f"busfare.cli.{module}"), name)
            assert isinstance(command, click.Command)
            self.commands[cmd_name] = command
        return self.commands[cmd_name]


#: Of terminals that are narrower than the 50 columns to which click wraps help at least.
NARROW = columns - 2 if (columns := get_terminal_size().columns) < 52 else None


@click.group(cls=Commands, context_settings={
    "show_default": True, "help_option_names": ["-h", "--help"], "terminal_width": NARROW,
})  # fmt: skip
@click.version_option(__version__, prog_name="busfare", message="%(prog)s %(version)s")
def app() -> None:
    """Find where a program spends time on CPU–GPU transfers, what to change, and what it would take on another machine."""


def _with_command(arguments: list[str]) -> list[str]:
    """`TRACE …` as `report TRACE …`, if the first word is not a command but a file, or looks like a file name."""
    first = arguments[0] if arguments else "-"
    if first.startswith("-") or first in COMMANDS:
        return arguments
    named = Path(first).exists() or "/" in first or Path(first).suffix
    return ["report", *arguments] if named else arguments


def _with_empty_values(arguments: list[str]) -> list[str]:
    """`--pin` without a value as `--pin=`; the trace itself is no value, so it may stand behind it."""
    if arguments[:1] != ["what-if"]:
        return arguments
    made: list[str] = []
    for at, text in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        lacks = text in BARE and (following.startswith("-") or Path(following).exists())
        made.append(f"{text}=" if lacks else text)
    return made


def main() -> None:
    """Runs the command line and exits with its status: 0 done, 1 a limit passed, 2 unusable input, 3 no GPU. Whatever of the
    output could not be written is no success; but a reader that has had enough of it is no failure.
    """
    # Imports make many objects and no garbage: looking for it among them takes a tenth of the start.
    gc.set_threshold(100_000, 50, 50)
    _open_closed()
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal or pipe that knows ASCII alone gets question marks
        sys.stdout.reconfigure(errors="replace")
    status = _flushed(_status())
    # Nor is there any at the end: looking for it then takes as long as reading a small trace.
    gc.freeze()
    sys.exit(status)


def _status() -> int:
    try:
        status = app.main(
            _with_empty_values(_with_command(sys.argv[1:])), standalone_mode=False, prog_name="busfare"
        )
        return status if isinstance(status, int) else 0
    except BusfareError as error:
        return _failed(str(error), error.exit_status)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        message = (isinstance(error, click.UsageError) and replacement(error)) or error.format_message()
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "busfare"
        return _failed(f"{message}{'' if message.endswith(('.', '?')) else '.'} Try `{command} --help`.", 2)
    except SystemExit as stop:
        # Click and rich answer a broken pipe with exit(1).
        return 0 if stop.code == 1 or not isinstance(stop.code, int) else stop.code
    except OSError as error:
        if error.filename is None:
            return _lost(error)
        return _failed(f"{error.filename}: cannot be used ({error.strerror}); check the path", 2)
    except MemoryError:
        return _failed(
            "not enough memory for this trace; use a machine with more memory, or export a shorter part of it",
            2,
        )
    except (KeyboardInterrupt, click.Abort):
        return _failed("stopped", 130)


def replacement(error: click.UsageError) -> str | None:
    """What to say of an option or command of an earlier version, or None where `error` is about something else."""
    path = error.ctx.command_path.removeprefix("busfare") if error.ctx else ""
    name = getattr(error, "option_name", None) or getattr(error, "command_name", "")
    named = f"{path} {name}".strip()
    negated = "leave it out" if named.replace(" --no-", " --") in REMOVED else None
    instead = REMOVED.get(named, negated)
    if instead:
        return f"{named} was removed; {instead}"
    return _of_another_command(path.strip(), name or "") if isinstance(error, click.NoSuchOption) else None


def _of_another_command(path: str, option: str) -> str | None:
    """The first command that takes an option that the command of this `path` does not; None where none does."""
    for name in COMMANDS if path in COMMANDS else ():
        command = app.get_command(click.Context(app), name)
        if command and any(option in param.opts for param in command.params):
            return f"{path} has no option {option}; did you mean `busfare {name} … {option}`?"
    return None


def _failed(message: str, status: int) -> int:
    with suppress(OSError):  # then nobody is to know
        warn(" ".join(message.split()))
    return status


def _open_closed() -> None:
    """Puts something in place of standard streams that are closed, or the next file opened would stand for them."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            # What is written to the first two fails, as it should; of messages nobody wants to know.
            opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            os.dup2(opened, number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: PTH123, SIM115  it stays open


def _flushed(status: int) -> int:
    """The status once all output is written: another where it cannot be."""
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _lost(error) or status
    try:
        sys.stderr.flush()
    except OSError:  # nobody is to know, nor the interpreter when it tries again at exit
        _to_nowhere(sys.stderr)
    return status


def _to_nowhere(stream: TextIO) -> None:
    """Keeps the interpreter from failing at exit with what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _lost(error: OSError) -> int:
    """The status of output that went nowhere."""
    _to_nowhere(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    return _failed(
        f"standard output: cannot be written ({error.strerror}); free some space, or write elsewhere", 2
    )
