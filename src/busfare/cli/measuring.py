"""Commands that measure this machine: probe, record, bench. `bench ft|mg` hand their options to the runner of `hybrid/`, a
project that needs nothing of this. Whatever is heavy is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import busfare
from busfare.cli.options import OUTPUT, PATH, answer, as_html, as_json, option
from busfare.errors import InputError
from busfare.files import write_file
from busfare.printable import note

if TYPE_CHECKING:
    from busfare.nodes import Node

__all__ = ["bench_app", "probe", "record"]

VARIABLE = "BUSFARE_NAS_RUNNER"
#: What the runner's messages begin with.
CALLED = "NAS_BENCH_CALLED"
#: Where `cmake --install` puts the runner, and where it is beside this source.
PLACES = (
    *(Path(prefix, "share/hybrid/run/nas_bench") for prefix in (sys.prefix, "/usr/local", "/usr")),
    *(Path(folder).parents[1] / "hybrid/run/nas_bench" for folder in busfare.__path__),
)


@click.command()
@option("--output -o FILE", "Write the node file here.", type=OUTPUT)
@option("--quick", "13 seconds per GPU instead of 40.", is_flag=True)
@option(
    "--only",
    "Measure one part: copies, kernel rates, or NCCL among all GPUs.",
    type=click.Choice(["copies", "kernels", "collectives"]),
)
@option("--collectives", "Also measure NCCL operations among all GPUs: 30 seconds.", is_flag=True)
@option("--virtual NODE", "Simulate a node instead of measuring one.")
@option("--raw FILE", "Write all raw samples here (.json, .json.gz).", type=OUTPUT)
@option("--from from_ FILE", "Refit the raw samples of an earlier run.", type=PATH)
@as_json
@as_html
def probe(
    output: Path | None,
    quick: bool,
    only: Any,
    collectives: bool,
    virtual: str | None,
    raw: Path | None,
    from_: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    """Measure this machine's GPUs and links, and write a node file."""
    from busfare.answers.measure import opened
    from busfare.measure.cases import read_record, write_record
    from busfare.measure.node_file import encode
    from busfare.measure.probe import evaluated, measured

    # What will show the result is loaded first: a broken installation says so before half a minute of measuring.
    from busfare.show.probe import probe_document
    from busfare.show.progress import progress

    if from_:
        probed = evaluated(read_record(from_))
    else:
        with closing(opened("probe", virtual)) as device:
            with progress() as shown:
                record, knees = measured(device, quick, shown, only=only, collectives=collectives)
            # On file before anything is fitted or shown: what was measured cannot be had again.
            if raw:
                write_record(record, raw)
        probed = evaluated(record, knees)
    if output:
        write_file(output, encode(probed.node))
    if raw and from_:
        write_record(probed.record, raw)
    answer(probed.result, lambda: probe_document(probed.result), json, html)


@click.command()
@click.argument(
    "command", metavar="-- PROGRAM [ARGUMENTS]", nargs=-1, required=True, help="The program to run."
)
@option(
    "--output -o PATH",
    "A directory; or one process's file, with %p process, %h host, %r rank.",
    required=True,
)
@option("--duration S", "Record for this many seconds; 0: to the end.", type=float, default=0.0)
@option("--delay S", "Start after this many seconds.", type=float, default=0.0)
@option("--capture", "whole, or profiler-calls (cudaProfilerStart to Stop).", default="whole")
@option("--nvtx RANGE", "Record only inside the NVTX range with this name.", default="", show_default=False)
@option("--flush-every S", "Write at least this often.", type=float, default=1.0)
@option("--kinds KIND,…", "What to record; see docs/recorder.md.", default="", show_default=False)
@option(
    "--calls",
    "API calls to record: driver, both (the program's runtime and driver calls) or none.",
    default="driver",
)
@option("--fingerprint/--no-fingerprint", "Hash each copied buffer to find repeated copies.")
@option("--stacks/--no-stacks", "Record call stacks: the report then names source lines.")
def record(command: tuple[str, ...], output: str, kinds: str, **options: Any) -> None:
    """Record the GPU work of any CUDA program. The exit status is that of the program.

    On AMD GPUs, rocprofv3 does the recording.
    """
    from busfare.measure.record import record as run

    status = run(command, output, kinds=[kind for kind in kinds.split(",") if kind], **options)
    raise click.exceptions.Exit(status)


def nas_command(benchmark: str, what: str) -> click.Command:
    """The command of a benchmark, `ft` or `mg`."""

    @click.command(benchmark, help=what)
    @option("--class CLASS", "S, W, A, B, C or D. Default: C with a GPU, otherwise A.")
    @option("--ranks N,…", "Numbers of ranks. Default: from the machine.")
    @option("--modes MODE,…", "cpu, single, multiple, multiple-mps, funneled. Default: all.")
    @option("--build DIR", "The folder with the programs of hybrid/.", type=PATH)
    @option("--timeout S", "Time limit of a run in seconds. Default: 600.", type=float)
    @option("--from FILE", "Show the result of an earlier --json.", type=PATH)
    @option("--node NODE", "Compute the limit from this node. Default: measure this GPU.")
    @option("--runner DIR", f"The folder nas_bench of hybrid/. Default: ${VARIABLE}.", type=PATH)
    @as_json
    @as_html
    def run(node: str | None, runner: Path | None, json: bool, **given: Any) -> None:
        arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
        if node:
            from busfare.nodes import load_node

            arguments += [f"--rates={rates(load_node(node))}", f"--rates-source=the parameters of {node}"]
        arguments += ["--json"] if json else []
        os.environ[CALLED] = "busfare"
        # In place of this process: Ctrl-C is the runner's, which ends its programs.
        os.execv(sys.executable, [sys.executable, str(_runner(runner)), benchmark, *arguments])

    return run


def rates(node: Node) -> str:
    """Bytes per second of pinned copies each way beside copies the other way, and of GPU memory: `LINK,MEMORY`."""
    link, both = [], node.contention().both
    for direction, flow in (("h2d", "read"), ("d2h", "write")):
        curve = node.curve(direction, "pinned")
        alone = 1 / curve.long_gap_per_byte_s if curve else node.host_path(0).bandwidth(flow)  # type: ignore[arg-type]
        link.append(alone * both.of(direction))
    memory = node.gpu(0).memory_bandwidth_bytes_per_s
    if memory is None:
        raise InputError(
            f"{node.name}: memory_bandwidth_bytes_per_s of its GPU is missing, but the kernel limit needs it; add it"
        )
    return f"{min(link)!r},{memory!r}"


def _runner(given: Path | None) -> Path:
    """Raises InputError where there is none."""
    named = given or Path(os.environ.get(VARIABLE, ""))
    places = PLACES if named == Path() else (named,)
    runner = next((place for place in places if (place / "__main__.py").is_file()), None)
    if runner is None:
        raise InputError(
            f"{places[-1]}: no runner of NAS FT and MG; install hybrid/ (hybrid/README.md), or name it with --runner"
        )
    return runner


predicted_by = option("--node NODE", "Predict with this node. Default: probe this machine first.")
quickly = option("--quick", "Fewer cases and repeats: 15 seconds.", is_flag=True)
played = option("--virtual NODE", "Simulate a node instead of measuring one.")
from_file = option("--from from_ FILE", "Show the result of an earlier --json.", type=PATH)


@click.group("bench")
def bench_app() -> None:
    """Run benchmarks, and compare them with predictions."""


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
    "Compare pageable, pinned, managed, zero-copy, registered and batched memory over a whole program.",
    option("--largest N", "Ints of the longest vector, 1048576 to 268435456.", default="268435456"),
)  # fmt: skip
_command(
    "strategies", "bench:strategies_document",
    "Compare explicit copies, mapped memory, streams, hybrid, graphs, batches and two GPUs on several kernels.",
    option("--kernel FILE.cu", "A kernel of your own; see docs/bench.md.", type=PATH),
    option("--in inputs N", "With --kernel: number of input arrays.", type=int, default=1),
    option("--out outputs N", "With --kernel: number of output arrays.", type=int, default=1),
    option("--function NAME", "With --kernel: the kernel, if the file has several."),
    option("--levels N", "With --kernel: levels of the grid.", type=int, default=42),
    option("--level-elements level N", "With --kernel: doubles per level.", type=int, default=1048576),
)  # fmt: skip
for nas_name, nas_help in (
    ("ft", "Run NAS FT: MPI ranks that share a GPU in several ways, or run on CPUs; show where time goes."),
    ("mg", "Run NAS MG: the same, with small kernels and ghost cells instead of large copies."),
):
    bench_app.add_command(nas_command(nas_name, nas_help))
