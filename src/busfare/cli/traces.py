"""Commands that read traces: what-if, project, compare, export, demo; `report` has a module of its own."""

from __future__ import annotations

from pathlib import Path

import click

from busfare.cli.reading import read_trace, where_recorded
from busfare.output import OUTPUT, PATH, as_html, as_json, note, print_json, say_page, write_file

__all__ = ["VALUE_MAY_LACK", "compare", "demo", "export", "project", "what_if"]

#: Options of `what-if` whose value may be left out.
VALUE_MAY_LACK = ("--pin", "--async", "--drop-synchronisations")

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
host_rule = click.option(
    "--host",
    metavar="RULE",
    default="measured",
    help="Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
)


@click.command()
@trace_path
@click.option(
    "--pin", metavar="[REGEX]", help="Pageable host buffers become pinned; all, or those of matching copies."
)
@click.option(
    "--async",
    "async_",
    metavar="[REGEX]",
    help="Copies to the GPU, or all that match, no longer hold the host up.",
)
@click.option(
    "--drop-synchronisations",
    metavar="[REGEX]",
    help="Only waits behind copies to the host, and last ones, stay.",
)
@click.option("--batch-below", metavar="SIZE", help="Pack copies smaller than this that follow each other.")
@click.option(
    "--with-loop",
    is_flag=True,
    help="With --batch-below: the loop that makes those copies goes with them; the program builds one array.",
)
@click.option(
    "--collect-below",
    metavar="SIZE",
    help="Results smaller than this stay on the GPU and come back once, at the end.",
)
@click.option(
    "--as-arguments",
    is_flag=True,
    help="Small values for the next kernel, and for symbols, travel with its launch.",
)
@click.option(
    "--streams", metavar="N", type=int, help="Spread chunks of one stream over N streams and buffers."
)
@click.option(
    "--kernel",
    metavar="REGEX",
    default="",
    show_default=False,
    help="With --streams: only chunks with such a kernel.",
)
@click.option("--dedupe", is_flag=True, help="Send unchanged buffers once.")
@click.option("--keep-on-gpu", is_flag=True, help="What comes back and goes in again stays on the GPU.")
@click.option("--prefetch", is_flag=True, help="Send managed memory before kernels need it.")
@click.option(
    "--remove",
    metavar="WHAT",
    multiple=True,
    help="Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated.",
)
@click.option("--link", metavar="LINK", help="Another link: pcie:5 (x16), nvlink:2x3, c2c:1.")
@click.option("--to", "--node", "node", metavar="NODE", help="Run on another node.")
@kernel_rules
@host_rule
@click.option("--copy-speed", metavar="FACTOR", help="All copies so many times as fast: 2x.")
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
    pin: str | None,
    async_: str | None,
    drop_synchronisations: str | None,
    batch_below: str | None,
    with_loop: bool,
    collect_below: str | None,
    as_arguments: bool,
    streams: int | None,
    kernel: str,
    dedupe: bool,
    keep_on_gpu: bool,
    prefetch: bool,
    remove: tuple[str, ...],
    link: str | None,
    node: str | None,
    kernels: tuple[str, ...],
    host: str,
    copy_speed: str | None,
    unrecorded: str | None,
    from_: str | None,
    model: str,
    perfetto: Path | None,
    json: bool,
    html: Path | None,
) -> None:
    """What a change to the program, or another node, would make of the whole run."""
    from busfare.advise import guess_node
    from busfare.node import load_node
    from busfare.quantities import parse_seconds
    from busfare.report.what_ifs import answer_what_if, predicted_trace, show_what_if
    from busfare.timeline.changes.change import Setting
    from busfare.timeline.changes.options import Options, changes_of

    options = Options(
        pin=pin,
        asynchronous=async_,
        drop_synchronisations=drop_synchronisations,
        batch_below=batch_below,
        with_loop=with_loop,
        collect_below=collect_below,
        as_arguments=as_arguments,
        streams=streams,
        kernel=kernel,
        dedupe=dedupe,
        keep_on_gpu=keep_on_gpu,
        prefetch=prefetch,
        remove=remove,
        link=link,
        node=node,
        kernels=kernels,
        host=host,
        copy_speed=copy_speed,
    )
    changes_of(options, None, check_only=True)
    bare = parse_seconds(unrecorded) if unrecorded else None
    read = read_trace(trace)
    recorded_on = load_node(from_) if from_ else guess_node(read)
    setting = Setting(recorded_on, model)
    result, found = answer_what_if(read, changes_of(options, recorded_on), setting, from_ is None, bare)
    if perfetto:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read, predicted_trace(found.together.played)))
    if html:
        from busfare.report.what_if_page import what_if_page

        write_file(html, what_if_page(result, read, predicted_trace(found.together.played)))
    if json:
        print_json(result)
    else:
        show_what_if(result)
    say_page(html)


@click.command()
@trace_path
@click.option(
    "--to", metavar="NODE", multiple=True, required=True, help="Node to predict for; may be repeated."
)
@from_node
@click.option("--model", default="calibrated", help="Cost model.")
@kernel_rules
@host_rule
@as_json
@as_html
def project(
    trace: Path,
    to: tuple[str, ...],
    from_: str | None,
    model: str,
    kernels: tuple[str, ...],
    host: str,
    json: bool,
    html: Path | None,
) -> None:
    """What the copies and the whole run would take on another node."""
    from busfare.node import load_node
    from busfare.project import project as project_trace
    from busfare.report.projections import projection_result
    from busfare.timeline import timeline

    targets = [load_node(text) for text in to]
    read = read_trace(trace)
    recorded_on = where_recorded(read, from_, "--from")
    rebuilt, rules = timeline(read, recorded_on), kernels
    projections = [
        project_trace(read, recorded_on, target, model, rules, host, rebuilt) for target in targets
    ]
    result = projection_result(projections, guessed=from_ is None)
    if html:
        from busfare.report.page import projection_page

        write_file(html, projection_page(result, read))
    if json:
        print_json(result)
    else:
        from busfare.report.predictions import show_projection

        show_projection(result)
    say_page(html)


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
@as_json
def compare(
    predicted: Path, actual: Path, from_: str | None, to: str | None, model: tuple[str, ...], json: bool
) -> None:
    """How far predictions for a node are from a trace recorded there, by every cost model."""
    from busfare.report.projections import compared

    first, second = read_trace(predicted), read_trace(actual)
    recorded_on, target = where_recorded(first, from_, "--from"), where_recorded(second, to, "--to")
    result = compared(first, second, recorded_on, target, model)
    if json:
        print_json(result)
    else:
        from busfare.report.predictions import show_comparison

        show_comparison(result)


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

    write(read_trace(trace), to, output)
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
