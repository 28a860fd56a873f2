"""Commands that read traces. Nothing heavy is imported before native code has begun to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from busfare import questions
from busfare.cli.options import FOLDER, OUTPUT, PATH, answer, as_html, as_json, option, read_trace
from busfare.errors import InputError
from busfare.files import write_file
from busfare.printable import note

if TYPE_CHECKING:
    from busfare.answers.job import JobReport
    from busfare.answers.report import Report
    from busfare.nodes import Node
    from busfare.show.document import Document

__all__ = ["compare", "demo", "diff", "export", "import_ahead", "project", "report", "what_if"]

BLAS_THREADS = "OPENBLAS_NUM_THREADS"

trace_path = click.argument(
    "trace",
    metavar="TRACE",
    type=PATH,
    help="Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace.",
)
from_node = option("--from recorded_on NODE", "Node of the recording. Default: guessed from the GPU name.")
counted = option(
    "--counters FILE",
    "Output of `ncu --csv --page raw --print-units base` for the same program; see docs/kernels.md.",
    type=PATH,
)
kernel_times = option(
    "--kernels RULE",
    "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; repeatable.",
    multiple=True,
)
host_times = option(
    "--host RULE",
    "CPU times on another node: measured (from measurements on both nodes), keep, or 0.8x.",
    default="measured",
)
fingerprinted = option(
    "--fingerprints RECORDING",
    "Recording of the same run with fingerprints (record --fingerprint), to find copies of the same bytes.",
    type=PATH,
)


@click.command()
@click.argument(
    "traces",
    metavar="TRACE...",
    type=PATH,
    nargs=-1,
    required=True,
    help="Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace; for a job: several traces, a folder or a "
    "quoted glob.",
)
@option("--from --node recorded_on NODE", "Node of the recording. Default: guessed from the GPU name.")
@option("--unrecorded TIME", "Run time without the recorder: 1.5s; gains then refer to that run.")
@fingerprinted
@option(
    "--fail-if LIMIT",
    "Exit with status 1 beyond this limit: 'exposed > 20%', 'makespan > 3s', 'makespan > +5%' (over the baseline); "
    "repeatable.",
    multiple=True,
)
@option("--baseline FILE", "Compare with an earlier --json of the same program.", type=PATH)
@as_json
@as_html
@option("--jobs N", "Number of traces to read at once. Default for many traces: one per core.")
@option("--scheduler ADDRESS", "Read traces on the workers of this Dask scheduler.")
@option("--resume FOLDER", "Keep results in this folder, and read no trace twice.", type=FOLDER)
def report(
    traces: tuple[Path, ...],
    fingerprints: Path | None,
    fail_if: tuple[str, ...],
    baseline: Path | None,
    json: bool,
    html: Path | None,
    **given: Any,
) -> None:
    """Show where transfer time goes, and what to change. Give one trace, or all traces of a job."""
    from busfare.jobs import one_trace

    asked, limits, before, recorded_on = questions.Report.of(**given), [], None, None
    if fail_if:
        from busfare.answers.limits import check, parse_limit

        limits = [parse_limit(text) for text in fail_if]
        if baseline is None and any(limit.grows for limit in limits):
            raise InputError("`fail_if` NAME > +VALUE%: needs a baseline; name it with `baseline` FILE")
    alone = None if asked.of_job else one_trace(list(traces))
    of_one_run = {"unrecorded": asked.unrecorded, "fingerprints": fingerprints, "baseline": baseline}
    if alone is None and (named := next((name for name, value in of_one_run.items() if value), None)):
        raise InputError(f"`{named}` applies to one run: give it with one trace")
    if baseline:
        from busfare.answers.diff import diff, read_report

        before = read_report(baseline)
    result: Report | JobReport
    if alone:
        if asked.recorded_on:
            from busfare.nodes import load_node

            recorded_on = load_node(asked.recorded_on)
        result, document = _of_trace(alone, recorded_on, asked.unrecorded, fingerprints, json, bool(html))
        if before:
            result.baseline = diff(before, result)
    else:
        from busfare import api

        result = made = api.report(list(traces), **given)
        document = partial(made.document, page=bool(html))
    try:
        answer(result, document, json, html)
    finally:  # even where nobody reads on to the end
        if limits:
            check(result, limits, before)


@click.command()
@trace_path
@option("--dedupe", "Copy unchanged buffers once.", is_flag=True)
@option("--keep-on-gpu", "Keep data on the GPU that comes back and goes in again.", is_flag=True)
@option("--remove WHAT", "Remove h2d, d2h, d2d, p2p, copy, set or migration; repeatable.", multiple=True)
@option("--prefetch", "Prefetch managed memory before kernels need it.", is_flag=True)
@option("--pin [REGEX]", "Pin pageable host buffers: all, or those of matching copies.")
@option("--batch-below SIZE", "Pack consecutive copies smaller than this.")
@option("--collect-below SIZE", "Keep results smaller than this on the GPU, and copy them once at the end.")
@option("--async async_ [REGEX]", "Make copies to the GPU asynchronous: all, or those that match.")
@option("--drop-synchronisations [REGEX]", "Keep only waits after copies to the host, and the last waits.")
@option("--streams N", "Spread the chunks of one stream over N streams and buffers.")
@option("--kernel REGEX", "With --streams: only chunks with a matching kernel.")
@option("--link LINK", "Use another link: pcie:5 (x16), nvlink:2x3, c2c:1.")
@option("--node --to node NODE", "Run on another node.")
@kernel_times
@host_times
@option("--copy-speed FACTOR", "Speed up all copies by this factor: 2x.")
@option("--rank R", "For a job: change the program on this rank only; repeatable.", multiple=True)
@option("--no-stragglers", "For a job: no rank arrives at a collective later than the median.", is_flag=True)
@option("--overlap-collectives", "For a job: overlap collectives with kernels.", is_flag=True)
@option("--bucket SIZE", "For a job: join or divide all-reduces to this size: 25MB.")
@option("--collective-bytes FACTOR", "For a job: scale the bytes of collectives: 0.5x.")
@option("--ranks N", "For a data-parallel job: number of ranks; new ranks copy recorded ones.")
@option("--unrecorded TIME", "Run time without the recorder: 1.5s; the difference is recorder overhead.")
@fingerprinted
@from_node
@option("--model", "Cost model for another node.", default="calibrated")
@option("--perfetto FILE", "Write the recorded and predicted timelines for ui.perfetto.dev.", type=OUTPUT)
@as_json
@as_html
def what_if(trace: Path, perfetto: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """Predict the whole run after a change, or on another node. For a job, give its folder."""
    from busfare import api

    result = api.what_if(trace, **asked)
    if perfetto:
        from busfare.trace.write import perfetto_beside

        if result.runs is None:
            raise InputError("`perfetto` applies to one run: give it with one trace")
        write_file(perfetto, perfetto_beside(*result.runs))
    answer(result, lambda: result.document(page=bool(html)), json, html)


@click.command()
@trace_path
@option("--to NODE", "Node to predict for; repeatable.", multiple=True, required=True)
@from_node
@option("--model", "Cost model.", default="calibrated")
@kernel_times
@counted
@host_times
@as_json
@as_html
def project(trace: Path, json: bool, html: Path | None, **asked: Any) -> None:
    """Predict the copies and the whole run on another node."""
    from busfare import api

    result = api.project(trace, **asked)
    answer(result, result.document, json, html)


@click.command()
@click.argument("predicted", metavar="TRACE", type=PATH, help="The trace to predict from.")
@click.argument(
    "actual",
    metavar="ACTUAL",
    type=PATH,
    help="A trace of the same program, recorded on the target node.",
)
@from_node
@option("--to NODE", "Node of ACTUAL. Default: guessed.")
@option("--model", "Cost model; repeatable. Default: all that apply.", multiple=True)
@counted
@as_json
def compare(predicted: Path, actual: Path, json: bool, **asked: Any) -> None:
    """Compare predictions with a trace recorded on the target node. Covers every cost model that applies."""
    from busfare import api

    result = api.compare(predicted, actual, **asked)
    answer(result, result.document, json)


@click.command()
@click.argument("before", metavar="BEFORE", type=PATH, help="A trace of a program.")
@click.argument("after", metavar="AFTER", type=PATH, help="A trace of the changed program.")
@as_json
@as_html
def diff(before: Path, after: Path, json: bool, html: Path | None) -> None:
    """Explain why one run of a program takes longer than another."""
    from busfare import api

    result = api.diff(before, after)
    answer(result, result.document, json, html)


@click.command()
@trace_path
@option(
    "--to",
    "parquet or csv (a directory of tables), perfetto (a timeline for ui.perfetto.dev) or chakra (also for a job's "
    "directory).",
    required=True,
)
@option("--output -o PATH", "Where to write.", type=FOLDER, required=True)
def export(trace: Path, to: str, output: Path) -> None:
    """Write a trace as tables or as a timeline for other tools."""
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
@option("--output -o FOLDER", "Folder for the page.", type=FOLDER, default="busfare-demo")
def demo(output: Path) -> None:
    """Report an example trace, and project it onto three nodes."""
    from busfare.show.demo import run_demo

    page = run_demo(output)
    print(f"\nOpen this page: {page.resolve()}")


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
