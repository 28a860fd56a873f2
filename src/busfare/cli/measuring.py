"""Commands that measure this machine: probe, record."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, option
from busfare.files import write_file
from busfare.output import OUTPUT, PATH, as_html, as_json

__all__ = ["probe", "record"]


@click.command()
@option("--output -o FILE", "Where the node file goes.", type=OUTPUT)
@option("--quick", "13 seconds a GPU in place of 40.", is_flag=True)
@option(
    "--only",
    "Measure one part: copies, what kernels reach, or NCCL among all GPUs.",
    type=click.Choice(["copies", "kernels", "collectives"]),
)
@option("--collectives", "Measure NCCL's operations among all GPUs, too: 30 seconds.", is_flag=True)
@option("--virtual NODE", "Play a node in place of measuring one.")
@option("--raw FILE", "Where all raw samples go (.json, .json.gz).", type=OUTPUT)
@option("--from from_ FILE", "Fit raw samples of an earlier run anew.", type=PATH)
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
    """Measure this machine's GPUs and links, and write the node file that describes them."""
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
@option("--duration S", "Record for so many seconds; 0: to the end.", type=float, default=0.0)
@option("--delay S", "Begin after so many seconds.", type=float, default=0.0)
@option("--capture", "whole, or profiler-calls (cudaProfilerStart to Stop).", default="whole")
@option("--nvtx RANGE", "Record only inside the NVTX range of this name.", default="", show_default=False)
@option("--flush-every S", "Write at least this often.", type=float, default=1.0)
@option("--kinds KIND,…", "What to record; see docs/recorder.md.", default="", show_default=False)
@option(
    "--calls",
    "Whose calls: driver, both (the program's own, of runtime and driver) or none.",
    default="driver",
)
@option("--fingerprint/--no-fingerprint", "Hash each copied buffer, to find what is sent twice.")
@option("--stacks/--no-stacks", "Take call stacks, so that a report names the lines of calls.")
def record(command: tuple[str, ...], output: str, kinds: str, **options: Any) -> None:
    """Run any CUDA program and record its GPU work; returns the program's exit status.

    On AMD's GPUs, rocprofv3 records it.
    """
    from busfare.measure.record import record as run

    status = run(command, output, kinds=[kind for kind in kinds.split(",") if kind], **options)
    raise click.exceptions.Exit(status)
