"""Commands that read traces: what-if, project, compare, export, demo; `report` has a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busfare.cli.answer import answer, option, optional_node, read_trace, where_recorded, with_counters
from busfare.errors import InputError
from busfare.output import OUTPUT, PATH, as_html, as_json, note, write_file

if TYPE_CHECKING:
    from busfare.report.document import Document

trace_path = click.argument(
    "trace", metavar="TRACE", type=PATH, help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace."
)
from_node = option("--from from_ NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
counted = option(
    "--counters RECORDING",
    "Of the same program, by `busfare record --counters`: what its kernels' bytes tell of their times elsewhere.",
    type=PATH,
)


class WithChanges(click.Command):
    """A command that also takes the option of every change that a run or a job knows; those are read when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from busfare.job.changes import JOB_OPTIONS
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
@from_node
@option("--model", "Cost model for another node.", default="calibrated")
@option("--perfetto FILE", "Write the recorded and the predicted time line for ui.perfetto.dev.", type=OUTPUT)
@as_json
@as_html
def what_if(
    trace: Path,
    unrecorded: str | None,
    from_: str | None,
    model: str,
    perfetto: Path | None,
    json: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """What a change to the program, or another node, would make of the whole run; or of a job, whose folder is given."""
    from busfare.advise import guess_node
    from busfare.job import changes as job_changes
    from busfare.job import one_trace
    from busfare.job.parts import trace_paths
    from busfare.job.timeline import job_timeline
    from busfare.quantities import parse_seconds
    from busfare.report import what_ifs
    from busfare.report.prediction_documents import what_if_document
    from busfare.timeline.changes import Setting, changes_of

    asks_for_job = job_changes.asks_for_job(asked)
    changes_of(asked, None, check_only=True, others=asks_for_job)
    bare = parse_seconds(unrecorded) if unrecorded else None
    one = one_trace([trace])
    of_job = one is None or asks_for_job
    if of_job and perfetto:
        raise InputError("--perfetto is of one run: give it with one trace")
    paths = trace_paths(trace) if of_job or one is None else [one]
    read = [read_trace(path, launches=of_job or asked.get("node") is not None) for path in paths]
    recorded_on = optional_node(from_) or guess_node(read[0])
    setting, guessed = Setting(recorded_on, model), from_ is None
    if of_job:
        job = job_timeline(read, recorded_on, paths)
        changes = job_changes.job_changes_of(asked, job, setting)
        result = what_ifs.answer_job_what_if(job, str(trace), changes, setting, guessed, bare)
        answer(result, lambda: what_if_document(result), json, html)
        return
    result, played = what_ifs.answer_what_if(read[0], changes_of(asked, recorded_on), setting, guessed, bare)
    predicted = what_ifs.predicted_trace(played) if perfetto or html else None
    if perfetto and predicted:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read[0], predicted))

    def document() -> Document:
        if not (html and predicted):
            return what_if_document(result)
        from busfare.report.time_line_rows import time_line
        from busfare.timeline import timeline

        drawn = time_line(read[0], timeline(read[0], recorded_on), predicted=(predicted, played.timeline))
        return what_if_document(result, drawn)

    answer(result, document, json, html)


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
    from busfare.node import load_node
    from busfare.project import project as project_trace
    from busfare.project import projected
    from busfare.report.prediction_documents import projection_document
    from busfare.timeline import timeline

    targets = [load_node(text) for text in to]
    read = with_counters(read_trace(trace, launches=True), counters)
    recorded_on = where_recorded(read, from_, "--from")
    rebuilt = timeline(read, recorded_on)
    projections = [
        project_trace(read, recorded_on, target, model, kernels, host, rebuilt) for target in targets
    ]
    result = projected(projections, guessed=from_ is None)
    answer(result, lambda: projection_document(result, str(read.path)), json, html)


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
    from busfare.project import compared
    from busfare.report.prediction_documents import comparison_document

    first, second = (read_trace(path, launches=True) for path in (predicted, actual))
    first = with_counters(first, counters)
    recorded_on, target = where_recorded(first, from_, "--from"), where_recorded(second, to, "--to")
    result = compared(first, second, recorded_on, target, model)
    answer(result, lambda: comparison_document(result), json)


@click.command()
@trace_path
@option(
    "--to",
    "parquet (a directory of tables), perfetto (a time line for ui.perfetto.dev) or nsys-sqlite.",
    required=True,
)
@option("--output -o PATH", "Where to write.", type=OUTPUT, required=True)
def export(trace: Path, to: str, output: Path) -> None:
    """Write a trace as tables or as a time line for others' tools."""
    from busfare.report.export import export as write

    write(read_trace(trace, launches=to != "perfetto"), to, output)
    note(f"{output} written")


@click.command()
@option("--output -o FOLDER", "Where the pages go.", type=OUTPUT, default="busfare-demo")
def demo(output: Path) -> None:
    """Report a real trace that comes with busfare, and project it onto three other nodes."""
    from busfare.report.demo import run_demo

    page = run_demo(output)
    print(f"\nThe page to open: {page.resolve()}")
