"""The command `report`: of one trace, or of all traces of a job.

Nothing heavy is imported before native code has begun to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from busfare.cli.answer import answer, option, read_trace
from busfare.output import FOLDER, PATH, as_html, as_json

if TYPE_CHECKING:
    from busfare.answers.job import JobReport
    from busfare.answers.report import Report
    from busfare.nodes import Node
    from busfare.show.document import Document

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@click.command()
@click.argument(
    "traces",
    metavar="TRACE...",
    type=PATH,
    nargs=-1,
    required=True,
    help="Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace; or the traces of a job: several, "
    "a folder, a quoted glob.",
)
@option("--from --node node NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
@option(
    "--unrecorded TIME", "How long the run takes when it is not recorded: 1.5s; gains are then of that run."
)
@option(
    "--fingerprints RECORDING",
    "Which copies carry the same bytes, by this recording of the same run (record --fingerprint).",
    type=PATH,
)
@option(
    "--fail-if LIMIT",
    "Exit with status 1 if it is passed: 'exposed > 20%', 'makespan > 3s', 'makespan > +5%' (than the baseline's); may be "
    "repeated.",
    multiple=True,
)
@option("--baseline FILE", "What an earlier --json of the same program wrote: what changed since.", type=PATH)
@as_json
@as_html
@option("--jobs N", "Read so many traces at once (of many: one a core).", type=int)
@option("--scheduler ADDRESS", "Read them on the workers of this Dask scheduler.")
@option("--resume FOLDER", "Keep what is read here, and read nothing twice.", type=FOLDER)
def report(
    traces: tuple[Path, ...],
    node: str | None,
    unrecorded: str | None,
    fingerprints: Path | None,
    fail_if: tuple[str, ...],
    baseline: Path | None,
    json: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """Where transfer time goes in a trace, or in all traces of a job, and what to do about it."""
    from busfare.errors import InputError
    from busfare.jobs import How, one_trace
    from busfare.quantities import parse_seconds

    bare = parse_seconds(unrecorded, "--unrecorded") if unrecorded else None
    limits = []
    if fail_if:
        from busfare.answers.limits import check, parse_limit

        limits = [parse_limit(text) for text in fail_if]
        if baseline is None and any(limit.grows for limit in limits):
            raise InputError(
                "--fail-if NAME > +VALUE%: is more than a baseline; name it with --baseline FILE"
            )
    how = How(**asked)
    how.check()
    one = None if how.asked else one_trace(list(traces))
    if one is None and unrecorded:
        raise InputError("--unrecorded is how long one run takes: give it with one trace")
    if one is None and fingerprints:
        raise InputError("--fingerprints tells of the copies of one run: give it with one trace")
    if one is None and baseline:
        raise InputError("--baseline is of one run: give it with one trace")
    before = None
    if baseline:
        from busfare.answers.diff import diff, read_report

        before = read_report(baseline)
    recorded_on = None
    if node:
        from busfare.nodes import load_node

        recorded_on = load_node(node)
    result: Report | JobReport
    if one:
        result, document = _of_trace(one, recorded_on, bare, fingerprints, json, bool(html))
        if before:
            result.baseline = diff(before, result)
    else:
        from busfare.api import report_job

        result = of_job = report_job(list(traces), recorded_on, how)
        document = partial(of_job.document, page=bool(html))
    try:
        answer(result, document, json, html)
    finally:  # even where nobody reads on to the end
        if limits:
            check(result, limits, before)


def _of_trace(
    path: Path, node: Node | None, bare: float | None, fingerprints: Path | None, json: bool, page: bool
) -> tuple[Report, Callable[[], Document]]:
    _import_numpy()
    # Polars looks at numpy.ma when it first meets an array.
    ahead = ["numpy.ma", "busfare.trace.sound", "busfare.answers.report"]
    import_ahead(*ahead, *([] if json else ["busfare.show.report", "busfare.show.terminal"]))
    read = read_trace(path)
    if fingerprints:
        from busfare.trace.attach import with_fingerprints_of

        read = with_fingerprints_of(read, read_trace(fingerprints))
    from busfare.answers.report import examine

    result, run, findings = examine(read, node, bare)

    def document() -> Document:
        from busfare.show.report import report_document

        if not page:
            return report_document(result)
        from busfare.show.time_line_rows import time_line

        return report_document(result, time_line(read, run, findings))

    return result, document


def import_ahead(*modules: str) -> None:
    """Imports modules in another thread, in this order. Whoever imports one meanwhile waits for it, as ever.

    Readers let others run while native code reads. Should one fail to import, whoever needs it is told.
    """

    def imported() -> None:
        for module in modules:
            try:
                import_module(module)
            except Exception:  # a package may raise anything: the import that needs it says so
                return

    Thread(target=imported, name="import ahead").start()


def _import_numpy() -> None:
    """Without the threads of its linear algebra, which a report has no use for and which take long to start."""
    if BLAS_THREADS in os.environ:  # the user has said how many
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[BLAS_THREADS]  # programs that are started from here are not to hear of it
