"""Commands that read traces: report, what-if, project, compare, export, demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busfare.errors import InputError
from busfare.one_core_blas import import_numpy
from busfare.output import AsJson, Html, print_json, say_page, write_file

if TYPE_CHECKING:
    from busfare.job import How
    from busfare.node import Node
    from busfare.trace import Trace

__all__ = ["VALUE_MAY_LACK", "compare", "demo", "export", "project", "report", "what_if"]

TracePath = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace.")
]

RecordedOn = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Where it was recorded; guessed from the GPU's name otherwise."
    ),
]

FromNode = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="NODE", help="Where it was recorded; guessed from the GPU's name otherwise."
    ),
]

KernelRules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE", help="Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated."
    ),
]

HostRule = Annotated[
    str,
    typer.Option(
        metavar="RULE",
        help="Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
    ),
]

#: Options of `what-if` whose value may be left out.
VALUE_MAY_LACK = ("--pin", "--async", "--drop-synchronisations")


def report(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace; or the traces of a job: several, "
            "a folder, a quoted glob.",
        ),
    ],
    node: RecordedOn = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="LIMIT",
            help="Exit with status 1 if it is passed: 'exposed > 20%', 'makespan > 3s'; may be repeated.",
        ),
    ] = None,
    json: AsJson = False,
    html: Html = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Read so many traces at once, or in so many Slurm jobs.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Read them on the workers of this Dask scheduler.")
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(
            metavar="OPTIONS", help="Read them in Slurm jobs: queue=gpu,cores=4,memory=8GB,walltime=00:30:00."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what is read here, and read nothing twice."),
    ] = None,
) -> None:
    """Where transfer time goes in a trace, or in all traces of a job, and what to do about it."""
    import_numpy()
    from busfare.job import How, one_trace
    from busfare.node import load_node
    from busfare.report.limits import check, parse_limit
    from busfare.report.summary import REPLAYED_ROWS, UNUSED, summarise

    limits = [parse_limit(text) for text in fail_if or ()]
    how = How(jobs, scheduler, slurm, resume)
    how.check()
    one = None if how.asked else one_trace(traces)
    if one is None:
        check(_report_job(traces, node, how, json, html), limits)
        return
    recorded_on = load_node(node) if node else None
    read = _read(one, frozenset() if html else UNUSED, REPLAYED_ROWS, sums=not html)
    result = summarise(read, recorded_on)
    if html:
        from busfare.report.page import report_page

        write_file(html, report_page(result, read))
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_report

        show_report(result)
    say_page(html)
    check(result, limits)


def _report_job(
    traces: list[Path], node: str | None, how: How, json: bool, html: Path | None
) -> dict[str, Any]:
    from busfare.job import run_job
    from busfare.node import load_node
    from busfare.report.job_progress import job_progress
    from busfare.report.job_result import job_result

    recorded_on = load_node(node) if node else None
    with job_progress() as shown:
        result = job_result(run_job(traces, recorded_on, how, shown))
    if html:
        from busfare.report.job_page import job_page

        write_file(html, job_page(result, recorded_on))
    if json:
        print_json(result)
    else:
        from busfare.report.jobs import show_job

        show_job(result)
    say_page(html)
    return result


def what_if(
    trace: TracePath,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="[REGEX]", help="Pageable host buffers become pinned; all, or those of matching copies."
        ),
    ] = None,
    async_: Annotated[
        str | None,
        typer.Option(
            "--async",
            metavar="[REGEX]",
            help="Copies to the GPU, or all that match, no longer hold the host up.",
        ),
    ] = None,
    drop_synchronisations: Annotated[
        str | None,
        typer.Option(metavar="[REGEX]", help="Only waits behind copies to the host, and last ones, stay."),
    ] = None,
    batch_below: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Pack copies smaller than this that follow each other.")
    ] = None,
    collect_below: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Results smaller than this stay on the GPU and come back once, at the end."
        ),
    ] = None,
    as_arguments: Annotated[
        bool,
        typer.Option(
            "--as-arguments",
            help="Small values for the next kernel, and for symbols, travel with its launch.",
        ),
    ] = False,
    streams: Annotated[
        int | None, typer.Option(metavar="N", help="Spread chunks of one stream over N streams and buffers.")
    ] = None,
    kernel: Annotated[
        str, typer.Option(metavar="REGEX", help="With --streams: only chunks with such a kernel.")
    ] = "",
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Send unchanged buffers once.")] = False,
    prefetch: Annotated[
        bool, typer.Option("--prefetch", help="Send managed memory before kernels need it.")
    ] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT", help="Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated."
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="LINK", help="Another link: pcie:5, nvlink:2x3, c2c:1.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Run on another node.")] = None,
    kernels: KernelRules = None,
    host: HostRule = "measured",
    copy_speed: Annotated[
        str | None, typer.Option(metavar="FACTOR", help="All copies so many times as fast: 2x.")
    ] = None,
    unrecorded: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the run takes when it is not recorded: 1.5s; the rest is the recorder's.",
        ),
    ] = None,
    from_: FromNode = None,
    model: Annotated[str, typer.Option(help="Cost model for another node.")] = "calibrated",
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the recorded and the predicted time line for ui.perfetto.dev."
        ),
    ] = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """What a change to the program, or another node, would make of the whole run."""
    from busfare.advise import guess_node
    from busfare.node import load_node
    from busfare.quantities import parse_seconds
    from busfare.replay.changes import Setting
    from busfare.replay.options import Options, changes_of
    from busfare.report.what_ifs import answer_what_if, predicted_trace, show_what_if

    options = Options(
        pin=pin,
        asynchronous=async_,
        drop_synchronisations=drop_synchronisations,
        batch_below=batch_below,
        collect_below=collect_below,
        as_arguments=as_arguments,
        streams=streams,
        kernel=kernel,
        dedupe=dedupe,
        prefetch=prefetch,
        remove=tuple(remove or ()),
        link=link,
        node=node,
        kernels=tuple(kernels or ()),
        host=host,
        copy_speed=copy_speed,
    )
    changes_of(options, None, check_only=True)
    bare = parse_seconds(unrecorded) if unrecorded else None
    read = _read(trace)
    recorded_on = load_node(from_) if from_ else guess_node(read)
    setting = Setting(recorded_on, model)
    result, found = answer_what_if(read, changes_of(options, recorded_on), setting, from_ is None, bare)
    if perfetto:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read, predicted_trace(found.together.played)).decode())
    if html:
        from busfare.report.what_if_page import what_if_page

        write_file(html, what_if_page(result, read, predicted_trace(found.together.played)))
    if json:
        print_json(result)
    else:
        show_what_if(result)
    say_page(html)


def project(
    trace: TracePath,
    to: Annotated[
        list[str], typer.Option("--to", metavar="NODE", help="Node to predict for; may be repeated.")
    ],
    from_: FromNode = None,
    model: Annotated[str, typer.Option(help="Cost model.")] = "calibrated",
    kernels: KernelRules = None,
    host: HostRule = "measured",
    json: AsJson = False,
    html: Html = None,
) -> None:
    """What the copies and the whole run would take on another node."""
    from busfare.node import load_node
    from busfare.project import project as project_trace
    from busfare.replay import timeline
    from busfare.report.projections import projection_result

    targets = [load_node(text) for text in to]
    read = _read(trace)
    recorded_on = _recorded_on(read, from_, "--from")
    rebuilt, rules = timeline(read, recorded_on), tuple(kernels or ())
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
        from busfare.report.terminal import show_projection

        show_projection(result)
    say_page(html)


def compare(
    predicted: Annotated[Path, typer.Argument(metavar="TRACE", help="The trace to predict from.")],
    actual: Annotated[
        Path,
        typer.Argument(
            metavar="ACTUAL", help="A trace of the same program, recorded on the node predicted for."
        ),
    ],
    from_: FromNode = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="Where ACTUAL was recorded; guessed otherwise.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Cost model; may be repeated. All that apply otherwise.")
    ] = None,
    json: AsJson = False,
) -> None:
    """How far predictions for a node are from a trace recorded there, by every cost model."""
    from busfare.report.projections import compared

    first, second = _read(predicted), _read(actual)
    recorded_on, target = _recorded_on(first, from_, "--from"), _recorded_on(second, to, "--to")
    result = compared(first, second, recorded_on, target, model)
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_comparison

        show_comparison(result)


def export(
    trace: TracePath,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="parquet (a directory of tables), perfetto (a time line for ui.perfetto.dev) or nsys-sqlite.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Where to write.")],
) -> None:
    """Write a trace as tables or as a time line for others' tools."""
    from busfare.report.export import export as write

    write(_read(trace), to, output)
    print(f"{output} written", file=sys.stderr)


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the pages go.")
    ] = Path("busfare-demo"),
) -> None:
    """Report a real trace that comes with busfare, and project it onto three other nodes."""
    from busfare.report.demo import run_demo

    page = run_demo(output)
    print(f"\nThe page to open: {page.resolve()}")


def _read(path: Path, unused: frozenset[str] = frozenset(), above: int = 0, sums: bool = False) -> Trace:
    """The trace at `path` (`busfare.trace.read`), with a sign of life on a terminal while it is read."""
    from busfare.trace import read

    if not sys.stderr.isatty():
        return read(path, unused, above, sums)
    from rich.console import Console

    with Console(stderr=True).status(f"reading {path.name}", spinner="dots"):
        return read(path, unused, above, sums)


def _recorded_on(trace: Trace, node: str | None, option: str) -> Node:
    """The node named with `option`, or the one whose GPU the trace names."""
    from busfare.advise import guess_node
    from busfare.node import load_node

    found = load_node(node) if node else guess_node(trace)
    if found is None:
        raise InputError(
            f"{trace.path}: the trace does not name a GPU of the catalogue; say where it was recorded with {option} NODE"
        )
    return found
