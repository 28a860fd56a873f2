"""`busfare bench`: one short function a benchmark, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busfare.errors import InputError, NotVerifiedError
from busfare.output import PATH, as_html, as_json, note, print_json, say_page, write_file

if TYPE_CHECKING:
    from busfare.measure.nas.problem import Benchmark

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


def nas_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which runs, of which programs."""
    options = (
        click.option("--class", "size", metavar="CLASS", help="S, W, A, B, C or D; C with a GPU, else A."),
        click.option("--ranks", metavar="N,…", help="Numbers of ranks; else what the machine has."),
        click.option(
            "--modes", metavar="MODE,…", help="cpu, single, multiple, multiple-mps, funneled; else all."
        ),
        click.option(
            "--build",
            metavar="DIR",
            type=PATH,
            help="Where the programs of hybrid/ are; else build/hybrid, hybrid/build.",
        ),
        click.option(
            "--node", metavar="NODE", help="Take the limit from its parameters; else this GPU is measured."
        ),
        click.option(
            "--timeout", metavar="S", type=float, default=600.0, help="A run may take so many seconds."
        ),
    )
    for option in reversed(options):  # shown in the order in which they stand
        command = option(command)
    return command


def _nas_command(benchmark: Benchmark, told: str) -> None:
    @bench_app.command(benchmark, help=told)
    @nas_options
    @from_file
    @as_json
    @as_html
    def measured(
        size: str | None,
        ranks: str | None,
        modes: str | None,
        build: Path | None,
        node: str | None,
        timeout: float,
        from_: Path | None,
        json: bool,
        html: Path | None,
    ) -> None:
        from busfare.measure.nas.commands import again, bench
        from busfare.report.nas_page import nas_page
        from busfare.report.nas_runs import show_nas
        from busfare.report.probe_progress import progress

        with progress() as shown:
            result = (
                again(from_, benchmark)
                if from_
                else bench(benchmark, size, ranks, modes, build, node, timeout, shown, note)
            )
        _answer(result, from_, json, html, nas_page, show_nas)
        with _readable(from_):
            verified = result["all_verified"]
        if not verified:
            raise NotVerifiedError("a run missed NAS's official values; the result says which")


_nas_command(
    "ft", "NAS FT: MPI ranks with their GPU shared in several ways, or on processors; where the time goes."
)
_nas_command("mg", "NAS MG: the same, with small kernels and ghost cells in place of large copies.")


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
