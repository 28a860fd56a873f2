"""`busfare bench`: one short function a benchmark, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from busfare.cli.answer import answer
from busfare.cli.nas import nas_command
from busfare.output import PATH, as_html, as_json, note

if TYPE_CHECKING:
    from busfare.measure.results import Benched

__all__ = ["bench_app"]

Result = TypeVar("Result", bound="Benched")

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
    """Run migration methods, overlap strategies, KV caches and NAS FT and MG for real, beside what is predicted of them."""


def _result(benchmark: str, from_: Path | None, kind: type[Result], asked: dict[str, Any]) -> Result:
    """What an earlier run wrote, or what `busfare.measure.bench.commands` measures now. Whoever shows it has been imported
    by then, or would fail after minutes.
    """
    from busfare.measure.results import read_result
    from busfare.report.progress import progress

    if from_:
        return read_result(from_, kind)
    from busfare.measure.bench import commands

    with progress() as shown:
        result: Result = getattr(commands, benchmark)(**asked, progress=shown, say=note)
        return result


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
def bench_methods(from_: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """Pageable, pinned, managed, zero-copy, registered and batched memory over a whole program."""
    from busfare.measure.results import MethodsResult
    from busfare.report.measured_documents import methods_document

    result = _result("methods", from_, MethodsResult, asked)
    answer(result, lambda: methods_document(result), json, html)


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
def bench_strategies(from_: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """Explicit copies, mapped memory, streams, hybrid, graphs, batches and two GPUs on several kernels."""
    from busfare.measure.results import StrategiesResult
    from busfare.report.measured_documents import strategies_document

    result = _result("strategies", from_, StrategiesResult, asked)
    answer(result, lambda: strategies_document(result), json, html)


@bench_app.command("offload")
@predicted_by
@quickly
@played
@from_file
@as_json
@as_html
def bench_offload(from_: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """Layers whose weights live on the host: by residency, depth, tokens and memory kind."""
    from busfare.measure.offload_results import OffloadResult
    from busfare.report.offload_document import bench_offload_document

    result = _result("offload", from_, OffloadResult, asked)
    answer(result, lambda: bench_offload_document(result), json, html)


@bench_app.command("kv")
@predicted_by
@quickly
@played
@from_file
@as_json
@as_html
def bench_kv(from_: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """Blocks of a KV cache fetched from the host in every layout, and with others leaving meanwhile."""
    from busfare.measure.kv_results import KvBenchResult
    from busfare.report.measured_kv_document import measured_kv_document

    result = _result("kv", from_, KvBenchResult, asked)
    answer(result, lambda: measured_kv_document(result), json, html)


bench_app.add_command(
    nas_command(
        "ft",
        "NAS FT: MPI ranks with their GPU shared in several ways, or on processors; where the time goes.",
    )
)
bench_app.add_command(
    nas_command("mg", "NAS MG: the same, with small kernels and ghost cells in place of large copies.")
)
