"""The command `report`: of one trace, or of all traces of a job.

Nothing heavy is imported before native code has begun to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from busfare.cli.ahead import import_ahead
from busfare.cli.reading import read_trace
from busfare.one_core_blas import import_numpy
from busfare.output import OUTPUT, PATH, as_html, as_json, print_json, say_page, write_file

if TYPE_CHECKING:
    from busfare.job import How
    from busfare.node import Node
    from busfare.report.limits import Limit

__all__ = ["report"]


@click.command()
@click.argument(
    "traces",
    metavar="TRACE...",
    type=PATH,
    nargs=-1,
    required=True,
    help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace; or the traces of a job: several, a folder, a quoted glob.",
)
@click.option(
    "--from",
    "--node",
    "node",
    metavar="NODE",
    help="Where it was recorded; guessed from the GPU's name otherwise.",
)
@click.option(
    "--unrecorded",
    metavar="TIME",
    help="How long the run takes when it is not recorded: 1.5s; gains are then of that run.",
)
@click.option(
    "--fail-if",
    metavar="LIMIT",
    multiple=True,
    help="Exit with status 1 if it is passed: 'exposed > 20%', 'makespan > 3s'; may be repeated.",
)
@as_json
@as_html
@click.option("--jobs", metavar="N", type=int, help="Read so many traces at once, or in so many Slurm jobs.")
@click.option("--scheduler", metavar="ADDRESS", help="Read them on the workers of this Dask scheduler.")
@click.option(
    "--slurm",
    metavar="OPTIONS",
    help="Read them in Slurm jobs: queue=gpu,cores=4,memory=8GB,walltime=00:30:00.",
)
@click.option(
    "--resume", metavar="FOLDER", type=OUTPUT, help="Keep what is read here, and read nothing twice."
)
def report(
    traces: tuple[Path, ...],
    node: str | None,
    unrecorded: str | None,
    fail_if: tuple[str, ...],
    json: bool,
    html: Path | None,
    jobs: int | None,
    scheduler: str | None,
    slurm: str | None,
    resume: Path | None,
) -> None:
    """Where transfer time goes in a trace, or in all traces of a job, and what to do about it."""
    from busfare.errors import InputError
    from busfare.job import How, one_trace
    from busfare.quantities import parse_seconds
    from busfare.report.limits import check, parse_limit
    from busfare.trace.bounds import REPLAYED_ROWS

    limits = [parse_limit(text) for text in fail_if]
    bare = parse_seconds(unrecorded) if unrecorded else None
    how = How(jobs, scheduler, slurm, resume)
    how.check()
    one = None if how.asked else one_trace(list(traces))
    if one is None:
        if unrecorded:
            raise InputError("--unrecorded is how long one run takes: give it with one trace")
        _report_job(list(traces), node, how, json, html, limits)
        return
    recorded_on = _node(node)

    import_numpy()
    # Polars looks at numpy.ma when it first meets an array.
    ahead = ["numpy.ma", "busfare.trace.sound", "busfare.report.summary"]
    import_ahead(*ahead, *([] if json else ["busfare.report.terminal"]))
    read = read_trace(one, sums_above=None if html else REPLAYED_ROWS)
    from busfare.report.summary import summarise

    result = summarise(read, recorded_on, bare)
    if html:
        from busfare.report.page import report_page

        write_file(html, report_page(result, read))
    try:
        if json:
            print_json(result)
        else:
            from busfare.report.terminal import show_report

            show_report(result)
        say_page(html)
    finally:  # even where nobody reads on to the end
        check(result, limits)


def _report_job(
    traces: list[Path], node: str | None, how: How, json: bool, html: Path | None, limits: list[Limit]
) -> None:
    from busfare.job import run_job
    from busfare.report.job_progress import job_progress
    from busfare.report.job_result import job_result
    from busfare.report.limits import check

    recorded_on = _node(node)
    with job_progress() as shown:
        result = job_result(run_job(traces, recorded_on, how, shown))
    if html:
        from busfare.report.job_page import job_page

        write_file(html, job_page(result, recorded_on))
    try:
        if json:
            print_json(result)
        else:
            from busfare.report.jobs import show_job

            show_job(result)
        say_page(html)
    finally:
        check(result, limits)


def _node(name: str | None) -> Node | None:
    """The node that was named, if one was."""
    if name is None:
        return None
    from busfare.node import load_node

    return load_node(name)
