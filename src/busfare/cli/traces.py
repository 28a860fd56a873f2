"""Commands that read traces: what-if, project, compare, export, demo; `report` has a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, optional_node, read_trace, where_recorded, with_counters
from busfare.output import OUTPUT, PATH, as_html, as_json, note, write_file

trace_path = click.argument(
    "trace", metavar="TRACE", type=PATH, help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace."
)
from_node = click.option(
    "--from", "from_", metavar="NODE", help="Where it was recorded; guessed from the GPU's name otherwise."
)
kernel_rules = click.option(
    "--kernels",
    metavar="RULE",
    multiple=True,
    help="Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.",
)
counted = click.option(
    "--counters",
    metavar="RECORDING",
    type=PATH,
    help="Of the same program, by `busfare record --counters`: what its kernels' bytes tell of their times elsewhere.",
)
host_rule = click.option(
    "--host",
    metavar="RULE",
    default="measured",
    help="Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
)


class WithChanges(click.Command):
    """A command that also takes the option of every change that a timeline knows; those are read when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
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
            for option in OPTIONS
        ]
        own = super().get_params(ctx)
        return [*own[:1], *made, *own[1:]]


@click.command(cls=WithChanges)
@trace_path
@click.option(
    "--unrecorded",
    metavar="TIME",
    help="How long the run takes when it is not recorded: 1.5s; the rest is the recorder's.",
)
@from_node
@click.option("--model", default="calibrated", help="Cost model for another node.")
@click.option(
    "--perfetto",
    metavar="FILE",
    type=OUTPUT,
    help="Write the recorded and the predicted time line for ui.perfetto.dev.",
)
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
    """What a change to the program, or another node, would make of the whole run."""
    from busfare.advise import guess_node
    from busfare.quantities import parse_seconds
    from busfare.report.lanes import lanes_of
    from busfare.report.prediction_documents import what_if_document
    from busfare.report.what_ifs import answer_what_if, predicted_trace
    from busfare.timeline.changes import Setting, changes_of

    changes_of(asked, None, check_only=True)
    bare = parse_seconds(unrecorded) if unrecorded else None
    read = read_trace(trace, launches=asked.get("node") is not None)
    recorded_on = optional_node(from_) or guess_node(read)
    changes, setting = changes_of(asked, recorded_on), Setting(recorded_on, model)
    result, played = answer_what_if(read, changes, setting, from_ is None, bare)
    predicted = predicted_trace(played) if perfetto or html else None
    if perfetto and predicted:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read, predicted))
    lanes = (lanes_of(read), lanes_of(predicted, predicted=True)) if html and predicted else ()
    answer(result, lambda: what_if_document(result, *lanes), json, html)


@click.command()
@trace_path
@click.option(
    "--to", metavar="NODE", multiple=True, required=True, help="Node to predict for; may be repeated."
)
@from_node
@click.option("--model", default="calibrated", help="Cost model.")
@kernel_rules
@counted
@host_rule
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
@click.option("--to", metavar="NODE", help="Where ACTUAL was recorded; guessed otherwise.")
@click.option("--model", multiple=True, help="Cost model; may be repeated. All that apply otherwise.")
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
@click.option(
    "--to",
    required=True,
    help="parquet (a directory of tables), perfetto (a time line for ui.perfetto.dev) or nsys-sqlite.",
)
@click.option("--output", "-o", metavar="PATH", type=OUTPUT, required=True, help="Where to write.")
def export(trace: Path, to: str, output: Path) -> None:
    """Write a trace as tables or as a time line for others' tools."""
    from busfare.report.export import export as write

    write(read_trace(trace, launches=to != "perfetto"), to, output)
    note(f"{output} written")


@click.command()
@click.option(
    "--output", "-o", metavar="FOLDER", type=OUTPUT, default="busfare-demo", help="Where the pages go."
)
def demo(output: Path) -> None:
    """Report a real trace that comes with busfare, and project it onto three other nodes."""
    from busfare.report.demo import run_demo

    page = run_demo(output)
    print(f"\nThe page to open: {page.resolve()}")
