"""The command `report`: of one trace, or of all traces of a job.

Nothing heavy is imported before native code has begun to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from busfare.cli.ahead import import_ahead
from busfare.cli.answer import answer, optional_node, read_trace
from busfare.one_core_blas import import_numpy
from busfare.output import OUTPUT, PATH, as_html, as_json

if TYPE_CHECKING:
    from busfare.job import How
    from busfare.job.results import JobReport
    from busfare.report.document import Document
    from busfare.report.limits import Limit
    from busfare.report.results import Report

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
    from busfare.trace.bounds import REPLAYED_ROWS

    limits = _limits(fail_if)
    bare = parse_seconds(unrecorded) if unrecorded else None
    how = How(jobs, scheduler, slurm, resume)
    how.check()
    one = None if how.asked else one_trace(list(traces))
    if one is None:
        if unrecorded:
            raise InputError("--unrecorded is how long one run takes: give it with one trace")
        _report_job(list(traces), node, how, json, html, limits)
        return
    recorded_on = optional_node(node)

    import_numpy()
    # Polars looks at numpy.ma when it first meets an array.
    ahead = ["numpy.ma", "busfare.trace.sound", "busfare.report.summary"]
    import_ahead(*ahead, *([] if json else ["busfare.report.trace_document", "busfare.report.terminal"]))
    read = read_trace(one, sums_above=None if html else REPLAYED_ROWS)
    from busfare.report.summary import summarise

    result = summarise(read, recorded_on, bare)

    def document() -> Document:
        from busfare.report.lanes import lanes_of
        from busfare.report.trace_document import report_document

        return report_document(result, lanes_of(read) if html else None)

    try:
        answer(result, document, json, html)
    finally:  # even where nobody reads on to the end
        _check(result, limits)


def _report_job(
    traces: list[Path], node: str | None, how: How, json: bool, html: Path | None, limits: list[Limit]
) -> None:
    from busfare.job import run_job
    from busfare.report.job_document import job_document
    from busfare.report.progress import job_progress

    recorded_on = optional_node(node)
    with job_progress() as shown:
        result = run_job(traces, recorded_on, how, shown).result()
    try:
        answer(result, lambda: job_document(result, recorded_on), json, html)
    finally:
        _check(result, limits)


def _limits(texts: Sequence[str]) -> list[Limit]:
    if not texts:
        return []
    from busfare.report.limits import parse_limit

    return [parse_limit(text) for text in texts]


def _check(result: Report | JobReport, limits: list[Limit]) -> None:
    if limits:
        from busfare.report.limits import check

        check(result, limits)
