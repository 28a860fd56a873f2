"""`busfare bench`: one short function a benchmark, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from busfare.cli.nas import nas_command
from busfare.errors import InputError
from busfare.output import PATH, as_html, as_json, note, print_json, say_page, write_file

__all__ = ["bench_app"]

predicted_by = click.option(
    "--node", metavar="NODE", help="Predict by its parameters; else this machine is probed first."
)
quickly = click.option("--quick", is_flag=True, help="Fewer cases and repeats: 15 seconds.")
played = click.option("--virtual", metavar="NODE", help="Play a node in place of measuring one.")
from_file = click.option(
    "--from", "from_", metavar="FILE", type=PATH, help="Show what an earlier --json wrote."
)


@click.group("bench")
def bench_app() -> None:
    """Run migration methods, overlap strategies and NAS FT and MG for real, beside what is predicted of them."""


@bench_app.command("methods")
@predicted_by
@quickly
@click.option(
    "--largest", metavar="N", default="268435456", help="Ints of the longest vector, 1048576 to 268435456."
)
@played
@from_file
@as_json
@as_html
def bench_methods(
    node: str | None,
    quick: bool,
    largest: str,
    virtual: str | None,
    from_: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    """Pageable, pinned, managed, zero-copy, registered and batched memory over a whole program."""
    from busfare.measure.bench.commands import again, methods
    from busfare.report.benches import show_methods
    from busfare.report.methods_page import methods_page
    from busfare.report.probe_progress import progress

    with progress() as shown:
        result = again(from_, "methods") if from_ else methods(node, quick, largest, virtual, shown, note)
    _answer(result, from_, json, html, methods_page, show_methods)


@bench_app.command("strategies")
@predicted_by
@quickly
@click.option("--kernel", metavar="FILE.cu", type=PATH, help="A kernel of your own; see docs/bench.md.")
@click.option("--in", "inputs", metavar="N", type=int, default=1, help="With --kernel: its input arrays.")
@click.option("--out", "outputs", metavar="N", type=int, default=1, help="With --kernel: its output arrays.")
@click.option("--function", metavar="NAME", help="With --kernel: which of several.")
@click.option("--levels", metavar="N", type=int, default=42, help="With --kernel: levels of its grid.")
@click.option(
    "--level-elements",
    "level",
    metavar="N",
    type=int,
    default=1048576,
    help="With --kernel: doubles of one level.",
)
@played
@from_file
@as_json
@as_html
def bench_strategies(
    node: str | None,
    quick: bool,
    kernel: Path | None,
    inputs: int,
    outputs: int,
    function: str | None,
    levels: int,
    level: int,
    virtual: str | None,
    from_: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    """Explicit copies, mapped memory, streams, hybrid, graphs, batches and two GPUs on several kernels."""
    from busfare.measure.bench.commands import again, strategies
    from busfare.report.benches import show_strategies
    from busfare.report.probe_progress import progress
    from busfare.report.strategies_page import strategies_page

    own = (kernel, inputs, outputs, function, levels, level) if kernel else None
    with progress() as shown:
        result = again(from_, "strategies") if from_ else strategies(node, quick, own, virtual, shown, note)
    _answer(result, from_, json, html, strategies_page, show_strategies)


bench_app.add_command(
    nas_command(
        "ft",
        "NAS FT: MPI ranks with their GPU shared in several ways, or on processors; where the time goes.",
    )
)
bench_app.add_command(
    nas_command("mg", "NAS MG: the same, with small kernels and ghost cells in place of large copies.")
)


def _answer(
    result: dict[str, Any],
    from_: Path | None,
    json: bool,
    html: Path | None,
    page: Callable[[dict[str, Any]], str],
    show: Callable[[dict[str, Any]], None],
) -> None:
    """The result as it was asked for. What shows it was loaded before anything was measured, or would fail after minutes."""
    with _readable(from_):
        if html:
            write_file(html, page(result))
        if json:
            print_json(result)
        else:
            show(result)
    say_page(html)


@contextmanager
def _readable(path: Path | None) -> Iterator[None]:
    """A result from a file may hold anything: what is missing in it is no fault of the program."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if path is None:
            raise
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: a figure is missing or wrong ({what}); run the benchmark again") from None
