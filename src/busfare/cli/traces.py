"""Commands that read traces: project, compare, export, demo; `report` and `what-if` have modules of their own."""

from __future__ import annotations

from pathlib import Path

import click

from busfare.cli.answer import answer, option, read_trace, where_recorded, with_counters
from busfare.output import OUTPUT, PATH, as_html, as_json, note

trace_path = click.argument(
    "trace", metavar="TRACE", type=PATH, help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace."
)
from_node = option("--from from_ NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
kernel_rules = option(
    "--kernels RULE",
    "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.",
    multiple=True,
)
counted = option(
    "--counters RECORDING",
    "Of the same program, by `busfare record --counters`: what its kernels' bytes tell of their times elsewhere.",
    type=PATH,
)
host_rule = option(
    "--host RULE",
    "Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
    default="measured",
)


@click.command()
@trace_path
@option("--to NODE", "Node to predict for; may be repeated.", multiple=True, required=True)
@from_node
@option("--model", "Cost model.", default="calibrated")
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
