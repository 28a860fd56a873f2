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
from_node = option("--from recorded_on NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
counted = option(
    "--counters FILE",
    "What `ncu --csv --page raw --print-units base` printed of the same program; see docs/kernels.md.",
    type=PATH,
)
kernel_times = option(
    "--kernels RULE",
    "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.",
    multiple=True,
)
host_times = option(
    "--host RULE",
    "Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
    default="measured",
)
fingerprinted = option(
    "--fingerprints RECORDING",
    "Which copies carry the same bytes, by this recording of the same run (record --fingerprint).",
    type=PATH,
)


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
@option("--from --node recorded_on NODE", "Where it was recorded; guessed from the GPU's name otherwise.")
@option(
    "--unrecorded TIME", "How long the run takes when it is not recorded: 1.5s; gains are then of that run."
)
@fingerprinted
@option(
    "--fail-if LIMIT",
    "Exit with status 1 if it is passed: 'exposed > 20%', 'makespan > 3s', 'makespan > +5%' (than the baseline's); may be "
    "repeated.",
    multiple=True,
)
@option("--baseline FILE", "What an earlier --json of the same program wrote: what changed since.", type=PATH)
@as_json
@as_html
@option("--jobs N", "Read so many traces at once (of many: one a core).")
@option("--scheduler ADDRESS", "Read them on the workers of this Dask scheduler.")
@option("--resume FOLDER", "Keep what is read here, and read nothing twice.", type=FOLDER)
def report(
    traces: tuple[Path, ...],
    fingerprints: Path | None,
    fail_if: tuple[str, ...],
    baseline: Path | None,
    json: bool,
    html: Path | None,
    **given: Any,
) -> None:
    """Where transfer time goes in a trace, or in all traces of a job, and what to do about it."""
    from busfare.jobs import one_trace

    asked, limits, before, recorded_on = questions.Report.of(**given), [], None, None
    if fail_if:
        from busfare.answers.limits import check, parse_limit

        limits = [parse_limit(text) for text in fail_if]
        if baseline is None and any(limit.grows for limit in limits):
            raise InputError(
                "`fail_if` NAME > +VALUE%: is more than a baseline; name it with `baseline` FILE"
            )
    alone = None if asked.of_job else one_trace(list(traces))
    of_one_run = {"unrecorded": asked.unrecorded, "fingerprints": fingerprints, "baseline": baseline}
    if alone is None and (named := next((name for name, value in of_one_run.items() if value), None)):
        raise InputError(f"`{named}` is of one run: give it with one trace")
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
@option("--dedupe", "Send unchanged buffers once.", is_flag=True)
@option("--keep-on-gpu", "What comes back and goes in again stays on the GPU.", is_flag=True)
@option(
    "--remove WHAT", "Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated.", multiple=True
)
@option("--prefetch", "Send managed memory before kernels need it.", is_flag=True)
@option("--pin [REGEX]", "Pageable host buffers become pinned; all, or those of matching copies.")
@option("--batch-below SIZE", "Pack copies smaller than this that follow each other.")
@option("--collect-below SIZE", "Results smaller than this stay on the GPU and come back once, at the end.")
@option("--async async_ [REGEX]", "Copies to the GPU, or all that match, no longer hold the host up.")
@option("--drop-synchronisations [REGEX]", "Only waits behind copies to the host, and last ones, stay.")
@option("--streams N", "Spread chunks of one stream over N streams and buffers.")
@option("--kernel REGEX", "With --streams: only chunks with such a kernel.")
@option("--link LINK", "Another link: pcie:5 (x16), nvlink:2x3, c2c:1.")
@option("--node --to node NODE", "Run on another node.")
@kernel_times
@host_times
@option("--copy-speed FACTOR", "All copies so many times as fast: 2x.")
@option("--rank R", "Of a job: change the program on this rank only; may be repeated.", multiple=True)
@option("--no-stragglers", "Of a job: no rank comes to a collective later than the median.", is_flag=True)
@option("--overlap-collectives", "Of a job: collectives run beside kernels.", is_flag=True)
@option("--bucket SIZE", "Of a job: all-reduces are joined, or divided, to this size: 25MB.")
@option("--collective-bytes FACTOR", "Of a job: collectives carry so many times their bytes: 0.5x.")
@option("--ranks N", "Of a data-parallel job: so many ranks, the new ones copies of the recorded.")
@option(
    "--unrecorded TIME", "How long the run takes when it is not recorded: 1.5s; the rest is the recorder's."
)
@fingerprinted
@from_node
@option("--model", "Cost model for another node.", default="calibrated")
@option("--perfetto FILE", "Write the recorded and the predicted timeline for ui.perfetto.dev.", type=OUTPUT)
@as_json
@as_html
def what_if(trace: Path, perfetto: Path | None, json: bool, html: Path | None, **asked: Any) -> None:
    """What a change to the program, or another node, would make of the whole run; or of a job, whose folder is given."""
    from busfare import api

    result = api.what_if(trace, **asked)
    if perfetto:
        from busfare.trace.write import perfetto_beside

        if result.runs is None:
            raise InputError("`perfetto` is of one run: give it with one trace")
        write_file(perfetto, perfetto_beside(*result.runs))
    answer(result, lambda: result.document(page=bool(html)), json, html)


@click.command()
@trace_path
@option("--to NODE", "Node to predict for; may be repeated.", multiple=True, required=True)
@from_node
@option("--model", "Cost model.", default="calibrated")
@kernel_times
@counted
@host_times
@as_json
@as_html
def project(trace: Path, json: bool, html: Path | None, **asked: Any) -> None:
    """What the copies and the whole run would take on another node."""
    from busfare import api

    result = api.project(trace, **asked)
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
def compare(predicted: Path, actual: Path, json: bool, **asked: Any) -> None:
    """How far predictions for a node are from a trace recorded there, by every cost model."""
    from busfare import api

    result = api.compare(predicted, actual, **asked)
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
    "parquet or csv (a directory of tables), perfetto (a timeline for ui.perfetto.dev), or chakra (also of a job's "
    "directory).",
    required=True,
)
@option("--output -o PATH", "Where to write.", type=FOLDER, required=True)
def export(trace: Path, to: str, output: Path) -> None:
    """Write a trace as tables or as a timeline for others' tools."""
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
