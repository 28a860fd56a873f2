"""Options of earlier versions, and what to use instead."""

from __future__ import annotations

import click

__all__ = ["replacement"]

NCU = "count with ncu, and give what it prints to project --counters (docs/kernels.md)"

#: By command path (as in `bench methods`) and option; the text completes "PATH OPTION was removed; ".
REMOVED_OPTIONS: dict[tuple[str, str], str] = {
    ("probe", "--fault"): "--virtual NODE plays a node without faults",
    ("report", "--slurm"): "start a Dask scheduler and workers with Slurm and use --scheduler",
    (
        "what-if",
        "--as-arguments",
    ): "`busfare report` bounds the gain of passing small copies as kernel arguments",
    ("what-if", "--offload-schedule"): "use plan offload --from-trace TRACE",
    ("what-if", "--with-loop"): "use --batch-below SIZE, which keeps the loop that makes the copies",
    ("record", "--counters"): NCU,
    ("record", "--no-counters"): "leave it out",
    ("record", "--counted-kernels"): NCU,
    ("record", "--counter-passes"): NCU,
    ("record", "--mapped"): "leave it out; busfare plan says what reading host memory in place costs",
    ("record", "--no-mapped"): "leave it out",
    ("record", "--arguments"): "leave it out; --kinds memory records what is allocated",
    ("record", "--no-arguments"): "leave it out",
    ("record", "--first-use"): "`what-if --async` predicts what waiting later gains",
    ("record", "--no-first-use"): "leave it out",
    ("record", "--storage"): "`nsys profile --trace=cuda,osrt` records reads of files",
    ("record", "--no-storage"): "leave it out",
    ("what-if", "--read-ahead"): "change the program, record it again and use busfare diff",
    ("what-if", "--wait-at-first-use"): "use --async or --drop-synchronisations",
    ("record", "--threads"): "give busfare report JAX's own profile (jax.profiler.trace)",
    ("record", "--no-threads"): "leave it out",
}

#: By command path; the text completes "PATH was removed; ".
REMOVED_COMMANDS: dict[str, str] = {
    "bench kv": "use `plan kv`, which predicts the same layouts",
    "bench offload": "use `plan offload`, which predicts the same schedules",
}


def replacement(error: click.UsageError) -> str | None:
    """What to say of an option or command of an earlier version, or None where `error` is about something else."""
    path = error.ctx.command_path.removeprefix("busfare").strip() if error.ctx else ""
    if isinstance(error, click.NoSuchOption):
        instead = REMOVED_OPTIONS.get((path, error.option_name))
        return f"{path} {error.option_name} was removed; {instead}" if instead else None
    if isinstance(error, click.exceptions.NoSuchCommand):
        name = f"{path} {error.command_name}".strip()
        return f"{name} was removed; {REMOVED_COMMANDS[name]}" if name in REMOVED_COMMANDS else None
    return None
