"""busfare for Python: read a trace, ask of it, look at the answer. Each function is what the command of its name does.

Times are seconds, sizes bytes, rates bytes per second. A trace is a `Run`, or the path of what `busfare report` takes.
Options are the fields of the command's question (`busfare.questions`), as numbers in these units or texts (`"336MB"`);
`recorded_on` is the node a trace was recorded on, guessed from the GPU's name otherwise. What cannot be read, or be
answered, raises `busfare.BusfareError`, whose text says what, where and what to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, overload

import polars as pl

from busfare import questions
from busfare.advise import guess_node, where_recorded
from busfare.advise.amounts import several
from busfare.advise.jobs import advised
from busfare.answers.compare import compared
from busfare.answers.diff import diff as diff_reports
from busfare.answers.diff import diff_traces
from busfare.answers.job import job_report, of_whole_job, runs_that_fit
from busfare.answers.kv import answer_kv
from busfare.answers.offload import answer_offload
from busfare.answers.plan import answer_plan
from busfare.answers.project import project as project_trace
from busfare.answers.project import projected
from busfare.answers.report import Report as _Report
from busfare.answers.report import examine, summarise
from busfare.answers.trial import tried
from busfare.answers.trial_changes import Predictions
from busfare.answers.what_if import answer_job_what_if, answer_what_if
from busfare.errors import BusfareError, InputError
from busfare.jobs import only_trace
from busfare.jobs.changes import is_job, job_changes_of
from busfare.jobs.parts import trace_paths
from busfare.jobs.reduce import Job
from busfare.jobs.run import run_job
from busfare.jobs.timeline import job_timeline
from busfare.measure.record import recording
from busfare.nodes import Node, load_node
from busfare.questions import Where
from busfare.show import plans as planned
from busfare.show import predictions
from busfare.show.document import Document
from busfare.show.job import job_document
from busfare.show.notebook import (
    Comparison,
    Diff,
    JobReport,
    KvPlan,
    OffloadPlan,
    Plan,
    Projection,
    Report,
    Try,
    WhatIf,
    answer,
)
from busfare.show.progress import job_progress, progress, reading, warned
from busfare.show.report import diff_document, report_document
from busfare.show.time_line_rows import time_line
from busfare.show.trial import trial_document
from busfare.show.words import worded
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace
from busfare.trace import read as read_file
from busfare.trace.attach import counted_kernels, with_fingerprints_of
from busfare.trace.omissions import Omissions
from busfare.trace.window import part_of

__all__ = [
    "BusfareError", "Node", "Recorder", "Run", "compare", "diff", "node", "plan", "plan_kv", "plan_offload", "project",
    "read", "record", "report", "try_", "what_if",
]  # fmt: skip


class Run:
    """A recorded run: its tables, whose names and other words are strings, and what can be asked of it. `trace` has the same
    tables with categorical columns, as readers and answers use them.
    """

    operations: pl.DataFrame

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __getattr__(self, name: str) -> Any:
        """A table or a fact of the trace; a table's words become strings when it is first asked for."""
        if name.startswith("_") or name == "trace":
            raise AttributeError(name)
        value = getattr(self.trace, name)
        if isinstance(value, pl.DataFrame):
            words = [column for column, kind in value.schema.items() if kind in (pl.Categorical, pl.Enum)]
            value = self.__dict__[name] = value.with_columns(pl.col(words).cast(pl.String))
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.trace)})

    @cached_property
    def copies(self) -> pl.DataFrame:
        """The copies between and within memories, by columns of `operations`."""
        return self.operations.filter(pl.col("kind") == "copy")

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """The kernels, with how they were launched and by which PyTorch operator, where the trace says so."""
        kernels = self.operations.filter(pl.col("kind") == "kernel")
        if "launch" not in kernels.columns:
            return kernels
        launches = self.launches.with_row_index("launch")
        return kernels.join(launches, on="launch", how="left", maintain_order="left").drop("launch")

    def report(self, **options: Any) -> Report:
        """As `busfare.report`."""
        return report(self, **options)

    def project(self, to: str | Node | Sequence[str | Node], **options: Any) -> Projection:
        """As `busfare.project`."""
        return project(self, to, **options)

    def what_if(self, **changes: Any) -> WhatIf:
        """As `busfare.what_if`."""
        return what_if(self, **changes)

    def __repr__(self) -> str:
        counts = f"{several(self.kernels.height, 'kernel')}, {several(self.copies.height, 'copy')}"
        return f"<Run {self.path}: {self.format}, {counts}, {self.makespan_seconds:.6g} s>"


Source = str | Path | Run | Trace
OF_SINGLE_RUN = "`{}` is of one run: give it with one trace"
node = load_node


def read(path: str | Path) -> Run:
    """The run that was recorded in the trace at `path`, whatever profiler wrote it."""
    return Run(_trace(path, launches=True, activity=True))


def _trace(source: Source, launches: bool = False, activity: bool = False) -> Trace:
    if isinstance(source, Run):
        return source.trace
    if not isinstance(source, Trace):
        path = _path(source)
        with reading(path):
            source = warned(read_file(path, launches, activity))
    return replace(source, omissions=worded(source.omissions))


def _path(source: object) -> Path:
    """Raises InputError for what is no path: `""` would be this folder."""
    if not isinstance(source, (str, PathLike)) or not str(source):
        raise InputError(f"{source!r:.80} is not a trace; give its path, or a Run")
    return Path(source)


def _node(where: Where | None) -> Node | None:
    return None if where is None else load_node(where)


@overload
def report(trace: Run | Trace, **options: Any) -> Report: ...
@overload
def report(trace: str | Path | Sequence[str | Path], **options: Any) -> Report | JobReport: ...


def report(
    trace: Source | Sequence[str | Path], *, fingerprints: Source | None = None, baseline: _Report | None = None,
    **options: Any,
) -> Report | JobReport:  # fmt: skip
    """Where transfer time goes in a run, or in all runs of a job (a folder, a glob, several paths), and what to do.

    Options of `questions.Report`. `fingerprints`: a recording of one run again, with fingerprints, that shows which copies
    carry the same bytes; `baseline`: an earlier report of the same program, for what changed since.
    """
    question = questions.Report.of(**options)
    where = _node(question.recorded_on)
    if not isinstance(trace, (Run, Trace)):
        paths = [_path(path) for path in (trace if isinstance(trace, (list, tuple)) else [trace])]
        alone = None if question.of_job else only_trace(paths)
        if alone is None:
            of_run = {"unrecorded": question.unrecorded, "fingerprints": fingerprints, "baseline": baseline}
            of_run |= question.part()
            if given := [name for name, value in of_run.items() if value]:
                raise InputError(OF_SINGLE_RUN.format(given[0]))
            with job_progress() as shown:
                job = run_job(paths, where, question, shown, advised)
            (of_job, together), figures = of_whole_job(job_report(job), where), job.figures
            return answer(
                JobReport, of_job, lambda page: job_document(of_job, together if page else None, figures)
            )
        trace = alone
    run = part_of(_fingerprinted(_trace(trace, activity=True), fingerprints), **question.part())
    result, replayed, findings = examine(run, where, question.unrecorded, question.repeated())
    if isinstance(fingerprints, (str, Path)):
        for finding in result.findings:
            finding.what_if += ["--fingerprints", str(fingerprints)] if finding.what_if else []
    if baseline:
        result.baseline = diff_reports(baseline, result)
    return answer(
        Report,
        result,
        lambda page: report_document(result, time_line(run, replayed, findings) if page else None),
    )


def what_if(trace: Source, *, fingerprints: Source | None = None, **changes: Any) -> WhatIf:
    """What changes to the program, or another node, would make of the whole run; or of a job, whose folder is given.

    `changes` are the fields of `questions.WhatIf`: `pin=True`, `async_=True`, `streams=3`, `batch_below="64KiB"`,
    `pin="REGEX"`, `to="h200-sxm"`; several values as a list. `fingerprints`: another recording of the program, with
    fingerprints, that shows which copies carry the same bytes.
    """
    if changes.get("to") is not None:
        if changes.get("node") is not None:
            raise InputError("`node`: given twice, under both of its names; give it once")
        changes["node"] = changes.pop("to")
    question = questions.WhatIf.of(**changes)
    recorded_on, _, _ = map(
        _node, (question.recorded_on, question.node, question.link)
    )  # unknown names before anything is read
    where = trace.path if isinstance(trace, (Run, Trace)) else _path(trace)
    alone = trace if isinstance(trace, (Run, Trace)) else only_trace([where])
    of_job = question.of_job or alone is None
    sources = [alone] if isinstance(alone, (Run, Trace)) or (alone and not of_job) else trace_paths(where)
    left_out = Omissions()
    read_run = partial(_trace, launches=of_job or question.node is not None)

    def whole(paths: list[Path]) -> Job:
        with job_progress() as shown:
            return run_job(paths, recorded_on, questions.Report(), shown)

    runs, some = runs_that_fit(sources, read_run, whole, question.rank, left_out)
    if not of_job and is_job(runs[0]):
        of_job, runs = True, [_trace(source, launches=True) for source in sources]
    if fingerprints is not None:
        if of_job:
            raise InputError(OF_SINGLE_RUN.format("fingerprints"))
        runs = [_fingerprinted(runs[0], fingerprints)]
    if part := question.part():
        if of_job:
            raise InputError(OF_SINGLE_RUN.format(next(iter(part))))
        runs = [part_of(runs[0], **part)]
    here = recorded_on or guess_node(runs[0])
    setting, guessed = Setting(here, question.model), recorded_on is None
    if of_job:
        job = job_timeline(runs, here, [run.path for run in runs], some)
        job = replace(job, left_out=(*job.left_out, *left_out.list()))
        wanted = job_changes_of(question, job, setting)
        of_all = answer_job_what_if(job, str(where), wanted, setting, guessed, question.unrecorded)
        return answer(WhatIf, of_all, lambda _: predictions.what_if_document(of_all))
    result, changed = answer_what_if(
        runs[0], changes_of(question, here), setting, guessed, question.unrecorded
    )

    def document(page: bool) -> Document:
        if not page or made.runs is None:
            return predictions.what_if_document(result)
        recorded, predicted = made.runs
        drawn = time_line(recorded, timeline(recorded, here), predicted=(predicted, changed))
        return predictions.what_if_document(result, drawn)

    made = answer(WhatIf, result, document)
    made.changed = runs[0], changed
    return made


def _fingerprinted(run: Trace, again: Source | None) -> Trace:
    """`run` with what another recording of it says of the bytes of copies, where that is given."""
    return run if again is None else _trace(with_fingerprints_of(run, _trace(again)))


def project(
    trace: Source, to: Where | Sequence[Where], *, counters: str | Path | None = None, **options: Any
) -> Projection:
    """What the copies, the kernels and the whole run would take on other nodes, the first of which stands at the top.

    Options of `questions.Project`; `counters` is what Nsight Compute counted of the same program.
    """
    question = questions.Project.of(to=to, **options)
    targets = [*map(load_node, question.to)]
    targets = [target for n, target in enumerate(targets) if target not in targets[:n]]
    run = part_of(_with_counters(_trace(trace, launches=True), counters), **question.part())
    here = where_recorded(run, _node(question.recorded_on), "`recorded_on`")
    rebuilt, rules = timeline(run, here), (question.kernels, question.host)
    every = [project_trace(run, here, target, question.model, *rules, rebuilt) for target in targets]
    result = projected(every, guessed=question.recorded_on is None)
    return answer(Projection, result, lambda _: predictions.projection_document(result, str(run.path)))


def _with_counters(run: Trace, path: str | Path | None) -> Trace:
    """`run` with the bytes of its kernels by what `ncu` printed (`path`), where that is given."""
    return run if path is None else replace(run, counters=counted_kernels(Path(path), run))


def compare(
    predicted: Source, actual: Source, *, counters: str | Path | None = None, **options: Any
) -> Comparison:
    """The errors of predictions from one run against another of the same program, recorded on the predicted node (`to`).

    Options of `questions.Compare`; `counters` is what Nsight Compute counted of the first.
    """
    question = questions.Compare.of(**options)
    first, second = _with_counters(_trace(predicted, launches=True), counters), _trace(actual, launches=True)
    first, second = (part_of(run, **question.part()) for run in (first, second))
    here = where_recorded(first, _node(question.recorded_on), "`recorded_on`")
    there = where_recorded(second, _node(question.to), "`to`")
    result = compared(first, second, here, there, question.model)
    return answer(Comparison, result, lambda _: predictions.comparison_document(result))


def diff(before: Source, after: Source, **options: Any) -> Diff:
    """What changed between two recorded runs of one program, and which part of it made the run longer or shorter.

    Options of `questions.Part`, for each of them.
    """
    part = questions.Part.of(**options).part()
    runs = part_of(_trace(before), **part), part_of(_trace(after), **part)
    result = diff_traces(*runs, (summarise(runs[0]), summarise(runs[1])))
    return answer(Diff, result, lambda _: diff_document(result))


def plan(**options: Any) -> Plan:
    """Which overlap strategy is fastest for a kernel: `plan(h2d="336MB", d2h="504MB", kernel="12ms", node="h100-sxm")`.
    Options of `questions.Plan` and its kernel.
    """
    result = answer_plan(questions.Plan.of(**options))
    return answer(Plan, result, lambda _: planned.plan_document(result))


def plan_offload(**options: Any) -> OffloadPlan:
    """Layers that live on the host: how many should stay, how deep to prefetch. Options of `questions.Offload`."""
    result = answer_offload(questions.Offload.of(**options))
    return answer(OffloadPlan, result, lambda _: planned.offload_document(result))


def plan_kv(**options: Any) -> KvPlan:
    """KV caches on the host: fetch or compute again, in which blocks and layout. Options of `questions.KvCache`."""
    result = answer_kv(questions.KvCache.of(**options))
    return answer(KvPlan, result, lambda _: planned.kv_document(result))


def try_(command: Sequence[str], **options: Any) -> Try:
    """Applies changes to a program without editing it, and measures the speedups: `busfare.try_(["./app"]).runs`.

    Options of `questions.Try`: `change`, `runs`, `compare`, `timeout`, `recorded_on`. The result is `altered` if the command
    exits with 1. Raises `NoGpuError` without an NVIDIA driver, `BusfareError` if the unchanged program fails.
    """
    question = questions.Try.of(**options)
    # Before anything runs: the name may be unknown.
    question = replace(question, recorded_on=_node(question.recorded_on))
    with progress() as shown:
        result = tried(command, question, Predictions(what_if, report), shown)
    return answer(Try, result, lambda _: trial_document(result))


@cache
def _kept() -> TemporaryDirectory[str]:
    """The folder of recordings that are kept until Python ends."""
    return TemporaryDirectory(prefix="busfare-")


class Recorder:
    """A recording of this process; `trace` is what was recorded, once the context has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def trace(self) -> Run:
        """Raises InputError while it is being recorded, or where nothing was."""
        return read(self._folder)


@contextmanager
def record(output: str | Path | None = None, **options: Any) -> Iterator[Recorder]:
    """Records what this process does on the GPU while the context lasts: `with busfare.record() as recorded: …`, and then
    `recorded.trace`. `output` is a new directory for it; otherwise it is kept until Python ends.

    `options` are those of `questions.Record`, as `stacks=True`. Needs an NVIDIA GPU, and that no other profiler records
    meanwhile.
    """
    question = questions.Record.of(**options)
    folder = Path(output or mkdtemp(dir=_kept().name))
    with recording(folder, question):
        yield Recorder(folder)
