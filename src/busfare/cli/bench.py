"""`busfare bench`: one row a benchmark, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, option
from busfare.cli.nas import nas_command
from busfare.output import PATH, as_html, as_json, note

__all__ = ["bench_app"]

predicted_by = option("--node NODE", "Predict by its parameters; else this machine is probed first.")
quickly = option("--quick", "Fewer cases and repeats: 15 seconds.", is_flag=True)
played = option("--virtual NODE", "Play a node in place of measuring one.")
from_file = option("--from from_ FILE", "Show what an earlier --json wrote.", type=PATH)


@click.group("bench")
def bench_app() -> None:
    """Run migration methods, overlap strategies and NAS FT and MG for real, beside what is predicted of them."""


def _command(name: str, document: str, said: str, *options: Any) -> None:
    """A benchmark: its name, what shows it (module:function of `busfare.report`), what it says of itself and the
    options of its own.
    """

    def run(from_: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
        from busfare.answers.measure import bench, read_result
        from busfare.show.progress import progress

        # Whatever shows it is imported first, or would fail after minutes.
        module, _, function = document.partition(":")
        show = getattr(import_module(f"busfare.show.{module}"), function)
        if from_:
            found: Any = read_result(from_, name)
        else:
            with progress() as shown:
                found = bench(name, **asked, progress=shown, say=note)
        answer(found, lambda: show(found), json, html)

    for each in reversed((predicted_by, quickly, *options, played, from_file, as_json, as_html)):
        run = each(run)
    bench_app.command(name, help=said)(run)


_command(
    "methods", "bench:methods_document",
    "Pageable, pinned, managed, zero-copy, registered and batched memory over a whole program.",
    option("--largest N", "Ints of the longest vector, 1048576 to 268435456.", default="268435456"),
)  # fmt: skip
_command(
    "strategies", "bench:strategies_document",
    "Explicit copies, mapped memory, streams, hybrid, graphs, batches and two GPUs on several kernels.",
    option("--kernel FILE.cu", "A kernel of your own; see docs/bench.md.", type=PATH),
    option("--in inputs N", "With --kernel: its input arrays.", type=int, default=1),
    option("--out outputs N", "With --kernel: its output arrays.", type=int, default=1),
    option("--function NAME", "With --kernel: which of several."),
    option("--levels N", "With --kernel: levels of its grid.", type=int, default=42),
    option("--level-elements level N", "With --kernel: doubles of one level.", type=int, default=1048576),
)  # fmt: skip
bench_app.add_command(
    nas_command(
        "ft",
        "NAS FT: MPI ranks with their GPU shared in several ways, or on processors; where the time goes.",
    )
)
bench_app.add_command(
    nas_command("mg", "NAS MG: the same, with small kernels and ghost cells in place of large copies.")
)
