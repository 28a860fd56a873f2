"""`busfare bench`: one short function a benchmark, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busfare.errors import InputError, NotVerifiedError
from busfare.output import AsJson, Html, print_json, say_page, write_file

if TYPE_CHECKING:
    from busfare.measure.nas.problem import Benchmark

__all__ = ["bench_app"]

bench_app = typer.Typer(
    help="Run migration methods, overlap strategies and NAS FT and MG for real, beside what is predicted of them.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


BenchNode = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Predict by its parameters; else this machine is probed first."
    ),
]
BenchFrom = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Show what an earlier --json wrote.")
]
BenchQuick = Annotated[bool, typer.Option("--quick", help="Fewer cases and repeats: 15 seconds.")]
BenchVirtual = Annotated[
    str | None, typer.Option("--virtual", metavar="NODE", help="Play a node in place of measuring one.")
]


@bench_app.command("methods")
def bench_methods(
    node: BenchNode = None,
    quick: BenchQuick = False,
    largest: Annotated[
        str, typer.Option("--largest", metavar="N", help="Ints of the longest vector, 1048576 to 268435456.")
    ] = "268435456",
    virtual: BenchVirtual = None,
    from_: BenchFrom = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """Pageable, pinned, managed, zero-copy, registered and batched memory over a whole program."""
    from busfare.measure.bench.commands import again, methods
    from busfare.report.benches import show_methods
    from busfare.report.methods_page import methods_page
    from busfare.report.probe_progress import progress

    with progress() as shown:
        result = again(from_, "methods") if from_ else methods(node, quick, largest, virtual, shown, _say)
    _answer(result, from_, json, html, methods_page, show_methods)


@bench_app.command("strategies")
def bench_strategies(
    node: BenchNode = None,
    quick: BenchQuick = False,
    kernel: Annotated[
        Path | None,
        typer.Option("--kernel", metavar="FILE.cu", help="A kernel of your own; see docs/bench.md."),
    ] = None,
    inputs: Annotated[int, typer.Option("--in", metavar="N", help="With --kernel: its input arrays.")] = 1,
    outputs: Annotated[int, typer.Option("--out", metavar="N", help="With --kernel: its output arrays.")] = 1,
    function: Annotated[
        str | None, typer.Option("--function", metavar="NAME", help="With --kernel: which of several.")
    ] = None,
    levels: Annotated[
        int, typer.Option("--levels", metavar="N", help="With --kernel: levels of its grid.")
    ] = 42,
    level: Annotated[
        int, typer.Option("--level-elements", metavar="N", help="With --kernel: doubles of one level.")
    ] = 1 << 20,
    virtual: BenchVirtual = None,
    from_: BenchFrom = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """Explicit copies, mapped memory, streams, hybrid, graphs, batches and two GPUs on several kernels."""
    from busfare.measure.bench.commands import again, strategies
    from busfare.report.benches import show_strategies
    from busfare.report.probe_progress import progress
    from busfare.report.strategies_page import strategies_page

    own = (kernel, inputs, outputs, function, levels, level) if kernel else None
    with progress() as shown:
        result = again(from_, "strategies") if from_ else strategies(node, quick, own, virtual, shown, _say)
    _answer(result, from_, json, html, strategies_page, show_strategies)


NasSize = Annotated[
    str | None, typer.Option("--class", metavar="CLASS", help="S, W, A, B, C or D; C with a GPU, else A.")
]
NasRanks = Annotated[
    str | None, typer.Option("--ranks", metavar="N,…", help="Numbers of ranks; else what the machine has.")
]
NasModes = Annotated[
    str | None,
    typer.Option(
        "--modes", metavar="MODE,…", help="cpu, single, multiple, multiple-mps, funneled; else all."
    ),
]
NasBuild = Annotated[
    Path | None,
    typer.Option(
        "--build", metavar="DIR", help="Where the programs of hybrid/ are; else build/hybrid, hybrid/build."
    ),
]
NasNode = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Take the limit from its parameters; else this GPU is measured."
    ),
]
NasTimeout = Annotated[float, typer.Option("--timeout", metavar="S", help="A run may take so many seconds.")]


@bench_app.command("ft")
def bench_ft(
    size: NasSize = None,
    ranks: NasRanks = None,
    modes: NasModes = None,
    build: NasBuild = None,
    node: NasNode = None,
    timeout: NasTimeout = 600.0,
    from_: BenchFrom = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """NAS FT: MPI ranks with their GPU shared in several ways, or on processors; where the time goes."""
    _bench_nas("ft", (size, ranks, modes, build, node, timeout), from_, json, html)


@bench_app.command("mg")
def bench_mg(
    size: NasSize = None,
    ranks: NasRanks = None,
    modes: NasModes = None,
    build: NasBuild = None,
    node: NasNode = None,
    timeout: NasTimeout = 600.0,
    from_: BenchFrom = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """NAS MG: the same, with small kernels and ghost cells in place of large copies."""
    _bench_nas("mg", (size, ranks, modes, build, node, timeout), from_, json, html)


def _bench_nas(
    benchmark: Benchmark,
    asked: tuple[str | None, str | None, str | None, Path | None, str | None, float],
    from_: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    from busfare.measure.nas.commands import again, bench
    from busfare.report.nas_page import nas_page
    from busfare.report.nas_runs import show_nas
    from busfare.report.probe_progress import progress

    with progress() as shown:
        result = again(from_, benchmark) if from_ else bench(benchmark, *asked, shown, _say)
    _answer(result, from_, json, html, nas_page, show_nas)
    with _readable(from_):
        verified = result["all_verified"]
    if not verified:
        raise NotVerifiedError("a run missed NAS's official values; the result says which")


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


def _say(line: str) -> None:
    """What is about to be done."""
    print(line, file=sys.stderr)
