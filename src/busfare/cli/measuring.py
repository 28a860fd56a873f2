"""Commands that measure this machine: probe, record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer
from busfare.output import OUTPUT, PATH, as_html, as_json, write_file

__all__ = ["probe", "record"]


@click.command()
@click.option("--output", "-o", metavar="FILE", type=OUTPUT, help="Where the node file goes.")
@click.option("--quick", is_flag=True, help="13 seconds a GPU in place of 40.")
@click.option(
    "--only",
    type=click.Choice(["copies", "kernels", "collectives"]),
    help="Measure one part: copies, what kernels reach, or NCCL among all GPUs.",
)
@click.option(
    "--collectives", is_flag=True, help="Measure NCCL's operations among all GPUs, too: 30 seconds."
)
@click.option("--virtual", metavar="NODE", help="Play a node in place of measuring one.")
@click.option("--fault", multiple=True, help="With --virtual: a fault to play; may be repeated.")
@click.option("--raw", metavar="FILE", type=OUTPUT, help="Where all raw samples go (.json, .json.gz).")
@click.option("--from", "from_", metavar="FILE", type=PATH, help="Fit raw samples of an earlier run anew.")
@as_json
@as_html
def probe(
    output: Path | None,
    quick: bool,
    only: Any,
    collectives: bool,
    virtual: str | None,
    fault: tuple[str, ...],
    raw: Path | None,
    from_: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    """Measure this machine's GPUs and links, and write the node file that describes them."""
    from busfare.measure import probe as probing
    from busfare.measure.node_file import encode
    from busfare.measure.raw import write

    # What will show the result is loaded first: a broken installation says so before half a minute of measuring.
    from busfare.report.probe_document import probe_document
    from busfare.report.progress import progress

    if from_:
        probed = probing.again(from_)
    else:
        device = probing.open_device(virtual, faults=fault)
        try:
            with progress() as shown:
                record, knees = probing.measured(device, quick, shown, only=only, collectives=collectives)
            # On file before anything is fitted or shown: what was measured cannot be had again.
            if raw:
                write(record, raw)
        finally:
            device.close()
        probed = probing.evaluated(record, knees)
    if output:
        write_file(output, encode(probed.node))
    if raw and from_:
        write(probed.record, raw)
    answer(probed.result, lambda: probe_document(probed.result), json, html)


@click.command()
@click.argument(
    "command", metavar="-- PROGRAM [ARGUMENTS]", nargs=-1, required=True, help="The program to run."
)
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    required=True,
    help="A directory; or one process's file, with %p process, %h host, %r rank.",
)
@click.option(
    "--duration", metavar="S", type=float, default=0.0, help="Record for so many seconds; 0: to the end."
)
@click.option("--delay", metavar="S", type=float, default=0.0, help="Begin after so many seconds.")
@click.option("--capture", default="whole", help="whole, or profiler-calls (cudaProfilerStart to Stop).")
@click.option(
    "--nvtx",
    metavar="RANGE",
    default="",
    show_default=False,
    help="Record only inside the NVTX range of this name.",
)
@click.option("--flush-every", metavar="S", type=float, default=1.0, help="Write at least this often.")
@click.option(
    "--kinds", metavar="KIND,…", default="", show_default=False, help="What to record; see docs/recorder.md."
)
@click.option(
    "--calls",
    default="driver",
    help="Whose calls: driver, both (the program's own, of runtime and driver) or none.",
)
@click.option("--fingerprint/--no-fingerprint", help="Hash each copied buffer, to find what is sent twice.")
@click.option("--stacks/--no-stacks", help="Take call stacks, so that a report names the lines of calls.")
@click.option(
    "--first-use/--no-first-use",
    help="Watch a sample of the copies back for the host's first touch of their bytes.",
)
@click.option(
    "--threads/--no-threads", help="Note which thread woke which, so that a replay knows who waits for whom."
)
@click.option(
    "--storage/--no-storage",
    help="Note reads and writes of files of 64 KiB or more, to see what feeds the copies.",
)
@click.option("--counters/--no-counters", help="Read hardware counters of each distinct kernel.")
@click.option("--counted-kernels", metavar="N", default=200, help="Read counters of at most so many kernels.")
@click.option(
    "--counter-passes",
    metavar="N",
    default=1,
    help="Run a counted kernel up to so many times; more passes read more counters.",
)
def record(command: tuple[str, ...], output: str, kinds: str, **options: Any) -> None:
    """Run any CUDA program and record its GPU work; returns the program's exit status.

    On AMD's GPUs, rocprofv3 records it.
    """
    from busfare.measure.record import record as run

    status = run(command, output, kinds=[kind for kind in kinds.split(",") if kind], **options)
    raise click.exceptions.Exit(status)
