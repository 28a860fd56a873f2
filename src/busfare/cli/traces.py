"""Commands that read traces: what-if, project, compare, export, demo; `report` has a module of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, option, read_trace
from busfare.errors import InputError
from busfare.files import write_file
from busfare.output import FOLDER, OUTPUT, PATH, as_html, as_json, note

trace_path = click.argument(
    "trace",
    metavar="TRACE",
    type=PATH,
    help="Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace.",
)
from_node = option("--from from_ NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
counted = option(
    "--counters FILE",
    "What `ncu --csv --page raw --print-units base` printed of the same program; see docs/kernels.md.",
    type=PATH,
)


class WithChanges(click.Command):
    """A command that also takes the option of every change that a run or a job knows; those are read when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from busfare.jobs.changes import JOB_OPTIONS
        from busfare.timeline.changes import OPTIONS

        made: list[click.Parameter] = [
            click.Option(
                [option.name, *option.aliases, option.key],
                metavar=option.metavar,
                help=option.help,
                is_flag=option.metavar is None,
                multiple=option.multiple,
                default=option.default,
                show_default=bool(option.default),
                type=int if option.read is int else None,
            )
            for option in (*OPTIONS, *JOB_OPTIONS)
        ]
        own = super().get_params(ctx)
        return [*own[:1], *made, *own[1:]]


@click.command(cls=WithChanges)
@trace_path
@option(
    "--unrecorded TIME", "How long the run takes when it is not recorded: 1.5s; the rest is the recorder's."
)
@option(
    "--fingerprints RECORDING",
    "Which copies carry the same bytes, by this recording of the same run (record --fingerprint).",
    type=PATH,
)
@from_node
@option("--model", "Cost model for another node.", default="calibrated")
@option("--perfetto FILE", "Write the recorded and the predicted time line for ui.perfetto.dev.", type=OUTPUT)
@as_json
@as_html
def what_if(
    trace: Path,
    unrecorded: str | None,
    fingerprints: Path | None,
    from_: str | None,
    model: str,
    perfetto: Path | None,
    json: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """What a change to the program, or another node, would make of the whole run; or of a job, whose folder is given."""
    from busfare import api

    result = api.what_if(
        trace, recorded_on=from_, unrecorded=unrecorded, fingerprints=fingerprints, model=model, **asked
    )
    if perfetto:
        from busfare.trace.write import perfetto_beside

        if result.runs is None:
            raise InputError("--perfetto is of one run: give it with one trace")
        write_file(perfetto, perfetto_beside(*result.runs))
    answer(result, lambda: result.document(page=bool(html)), json, html)


@click.command()
@trace_path
@option("--to NODE", "Node to predict for; may be repeated.", multiple=True, required=True)
@from_node
@option("--model", "Cost model.", default="calibrated")
@option(
    "--kernels RULE",
    "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.",
    multiple=True,
)
@counted
@option(
    "--host RULE",
    "Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
    default="measured",
)
@as_json
@as_html
def project(
    trace: Path,
    to: tuple[str, ...],
    from_: str | None,
    model: str,
    kernels: tuple[str, ...],
    counters: Path | None,
    host: str,
    json: bool,
    html: Path | None,
) -> None:
    """What the copies and the whole run would take on another node."""
    from busfare import api

    result = api.project(
        trace, to, recorded_on=from_, model=model, kernels=kernels, host=host, counters=counters
    )
    answer(result, result.document, json, html)


@click.command()
@click.argument("predicted", metavar="TRACE", type=PATH, help="The trace to predict from.")
@click.argument(
    "actual",
    metavar="ACTUAL",
    type=PATH,
    help="A trace of the same program, recorded on the node predicted for.",
)
@from_node
@option("--to NODE", "Where ACTUAL was recorded; guessed otherwise.")
@option("--model", "Cost model; may be repeated. All that apply otherwise.", multiple=True)
@counted
@as_json
def compare(
    predicted: Path,
    actual: Path,
    from_: str | None,
    to: str | None,
    model: tuple[str, ...],
    counters: Path | None,
    json: bool,
) -> None:
    """How far predictions for a node are from a trace recorded there, by every cost model."""
    from busfare import api

    result = api.compare(predicted, actual, recorded_on=from_, to=to, model=model, counters=counters)
    answer(result, result.document, json)


@click.command()
@click.argument("before", metavar="BEFORE", type=PATH, help="A trace of a program.")
@click.argument("after", metavar="AFTER", type=PATH, help="A trace of the same program, changed.")
@as_json
@as_html
def diff(before: Path, after: Path, json: bool, html: Path | None) -> None:
    """What changed between two recorded runs of one program, and why it takes longer or shorter."""
    from busfare import api

    result = api.diff(before, after)
    answer(result, result.document, json, html)


@click.command()
@trace_path
@option(
    "--to",
    "parquet or csv (a directory of tables), perfetto (a time line for ui.perfetto.dev), or chakra (also of a job's "
    "directory).",
    required=True,
)
@option("--output -o PATH", "Where to write.", type=FOLDER, required=True)
def export(trace: Path, to: str, output: Path) -> None:
    """Write a trace as tables or as a time line for others' tools."""
    if to == "chakra":
        from busfare.jobs.chakra import export_chakra

        for left_out in export_chakra(trace, output):
            print(f"busfare: {left_out}", file=sys.stderr)
    else:
        from busfare.trace.write import check_export
        from busfare.trace.write import export as write

        check_export(to, output)
        write(read_trace(trace, launches=to != "perfetto"), to, output)
    note(f"{output} written")


@click.command()
@option("--output -o FOLDER", "Where the pages go.", type=FOLDER, default="busfare-demo")
def demo(output: Path) -> None:
    """Report a real trace that comes with busfare, and project it onto three other nodes."""
    from busfare.show.demo import run_demo

    page = run_demo(output)
    print(f"\nThe page to open: {page.resolve()}")
