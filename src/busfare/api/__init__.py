"""busfare for Python: read a trace, ask of it, look at the answer. Each function is what the command of its name does.

Times are seconds, sizes bytes, rates bytes per second. A trace is a `Run`, or the path of what `busfare report` takes;
`recorded_on` is the node it was recorded on, guessed from the GPU's name otherwise. What cannot be read, or be answered,
raises `busfare.BusfareError`, whose text says what, where and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, overload

import polars as pl

from busfare.advise import guess_node, where_recorded
from busfare.answers.compare import compared
from busfare.answers.project import project as project_trace
from busfare.answers.project import projected
from busfare.answers.what_if import answer_job_what_if, answer_what_if
from busfare.api import answers
from busfare.api.answers import answer
from busfare.api.asked import changes_asked
from busfare.api.plans import plan, plan_kv, plan_offload
from busfare.errors import BusfareError, InputError
from busfare.jobs import How, one_trace
from busfare.jobs import changes as job_changes
from busfare.jobs.parts import LEAST_RANKS, size_of, trace_paths
from busfare.jobs.timeline import Deciding, deciding, job_timeline, ranks_that_fit
from busfare.nodes import Node, load_node
from busfare.quantities import parse_seconds
from busfare.show import predictions
from busfare.show.document import Document
from busfare.show.progress import job_progress, reading
from busfare.show.time_line_rows import time_line
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace
from busfare.trace import read as read_file
from busfare.trace.attach import counted_kernels, with_fingerprints_of

__all__ = [
    "BusfareError", "Node", "Recorder", "Run", "compare", "diff", "node", "plan", "plan_kv", "plan_offload", "project",
    "read", "record", "report", "what_if",
]  # fmt: skip


class Run(Trace):
    """A recorded run: tables of what happened, and what can be asked of it."""

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

    def report(self, **asked: Any) -> answers.Report:
        """As `busfare.report`."""
        return report(self, **asked)

    def project(self, to: str | Node | Sequence[str | Node], **asked: Any) -> answers.Projection:
        """As `busfare.project`."""
        return project(self, to, **asked)

    def what_if(self, **changes: Any) -> answers.WhatIf:
        """As `busfare.what_if`."""
        return what_if(self, **changes)

    def __repr__(self) -> str:
        counts = f"{self.kernels.height:,} kernels, {self.copies.height:,} copies"
        return f"<Run {self.path}: {self.format}, {counts}, {self.makespan_seconds:.6g} s>"


Source = str | Path | Trace
OF_ONE_RUN = "--fingerprints: goes with the trace of one run, not with a job"


def read(path: str | Path) -> Run:
    """The run that was recorded in the trace at `path`, whatever profiler wrote it."""
    return _run(path, launches=True)


def _run(source: Source, launches: bool = False) -> Run:
    if isinstance(source, Run):
        return source
    if not isinstance(source, Trace):
        path = _path(source)
        with reading(path):
            source = read_file(path, launches)
    return Run(**{column.name: getattr(source, column.name) for column in fields(Trace)})


def _path(source: object) -> Path:
    """Raises InputError for what is no path: `""` would be this folder."""
    if not isinstance(source, (str, PathLike)) or not str(source):
        raise InputError(f"{source!r:.80} is no trace; give its path, or a Run")
    return Path(source)


def node(name: object) -> Node:
    """The node of that name: of the catalogue, a GPU, a TOML file or a link (`pcie:4x16`)."""
    if not isinstance(name, (str, Node)):
        raise InputError(f"{name!r:.80} is no node; give its name, as in 'h100-sxm'")
    return name if isinstance(name, Node) else load_node(name)


def _node(name: str | Node | None) -> Node | None:
    return None if name is None else node(name)


def _seconds(time: float | str | None) -> float | None:
    """Raises InputError for what is no time."""
    if isinstance(time, str):
        return parse_seconds(time, "unrecorded")
    if not (time is None or isinstance(time, (int, float))):
        raise InputError(f"unrecorded: {time!r:.80} is no time; give seconds, as 1.5 or '1.5s'")
    return time


@overload
def report(
    trace: Trace,
    *,
    recorded_on: str | Node | None = None,
    unrecorded: float | str | None = None,
    fingerprints: Source | None = None,
) -> answers.Report: ...
@overload
def report(
    trace: str | Path | Sequence[str | Path],
    *,
    recorded_on: str | Node | None = None,
    unrecorded: float | str | None = None,
    fingerprints: Source | None = None,
) -> answers.Report | answers.JobReport: ...


def report(
    trace: Source | Sequence[str | Path],
    *,
    recorded_on: str | Node | None = None,
    unrecorded: float | str | None = None,
    fingerprints: Source | None = None,
) -> answers.Report | answers.JobReport:
    """Where transfer time goes in a run, or in all runs of a job (a folder, a glob, several paths), and what to do.

    `unrecorded`: how long the run takes when it is not recorded (seconds); gains are then of that run. `fingerprints`: a
    recording of one run again, with fingerprints, that tells which copies carry the same bytes.
    """
    from busfare.answers.report import examine
    from busfare.show.report import report_document

    if isinstance(trace, Trace):
        run = _run(trace)
    else:
        paths = [_path(one) for one in (trace if isinstance(trace, (list, tuple)) else [trace])]
        one = one_trace(paths)
        if one is None:
            if fingerprints is not None:
                raise InputError(OF_ONE_RUN)
            return report_job(paths, _node(recorded_on), How())
        run = _run(one)
    if fingerprints is not None:
        run = _run(with_fingerprints_of(run, _run(fingerprints)))
    result, replayed, findings = examine(run, _node(recorded_on), _seconds(unrecorded))
    return answer(
        answers.Report,
        result,
        lambda page: report_document(result, time_line(run, replayed, findings) if page else None),
    )


def report_job(paths: list[Path], recorded_on: Node | None, how: How) -> answers.JobReport:
    """Of all traces in `paths`, read as `how` says."""
    from busfare.answers.job import of_whole_job, read_job
    from busfare.show.job import job_document

    with job_progress() as shown:
        whole = read_job(paths, recorded_on, how, shown)
    result, together = of_whole_job(whole, recorded_on)
    return answer(
        answers.JobReport, result, lambda page: job_document(result, recorded_on, together if page else None)
    )


def what_if(
    trace: Source,
    *,
    recorded_on: str | Node | None = None,
    unrecorded: float | str | None = None,
    fingerprints: Source | None = None,
    model: str = "calibrated",
    **changes: Any,
) -> answers.WhatIf:
    """What changes to the program, or another node, would make of the whole run; or of a job, whose folder is given.

    `fingerprints`: another recording of the program, with fingerprints, that tells which copies carry the same bytes.

    `changes` are the options of `busfare what-if`, with `_` for `-` and without those in front: `pin=True`, `async_=True`,
    `streams=3`, `batch_below="64KiB"`, `pin="REGEX"`, `to="h200-sxm"`; several values of one as a list. With
    `unrecorded`, how long the run takes when it is not recorded, the recorder's cost is taken out first.
    """
    asked = changes_asked(changes)
    of_job = job_changes.asks_for_job(asked)
    changes_of(asked, None, check_only=True, others=of_job)
    bare = _seconds(unrecorded)
    where = trace.path if isinstance(trace, Trace) else _path(trace)
    one = trace if isinstance(trace, Trace) else one_trace([where])
    of_job = of_job or one is None
    launches = of_job or asked.get("node") is not None
    sources = [one] if isinstance(one, Trace) or (one and not of_job) else trace_paths(where)
    runs, some = _runs_that_fit(sources, launches, asked.get("rank") or (), _node(recorded_on))
    if not of_job and job_changes.is_job(runs[0]):
        of_job, runs = True, [_run(source, launches=True) for source in sources]
    if fingerprints is not None:
        if of_job:
            raise InputError(OF_ONE_RUN)
        runs = [_run(with_fingerprints_of(runs[0], _run(fingerprints)))]
    here = _node(recorded_on) or guess_node(runs[0])
    setting, guessed = Setting(here, model), recorded_on is None
    if of_job:
        job = job_timeline(runs, here, [run.path for run in runs], some)
        wanted = job_changes.job_changes_of(asked, job, setting)
        of_all = answer_job_what_if(
            job, str(where), wanted, setting, guessed, bare, [some.left_out] if some else []
        )
        return answer(answers.WhatIf, of_all, lambda _: predictions.what_if_document(of_all))
    result, played = answer_what_if(runs[0], changes_of(asked, here), setting, guessed, bare)

    def document(page: bool) -> Document:
        if not page or made.runs is None:
            return predictions.what_if_document(result)
        recorded, predicted = made.runs
        drawn = time_line(recorded, timeline(recorded, here), predicted=(predicted, played.timeline))
        return predictions.what_if_document(result, drawn)

    made = answer(answers.WhatIf, result, document)
    made.played = runs[0], played
    return made


def _runs_that_fit(
    sources: Sequence[Source], launches: bool, named: Sequence[int], node: Node | None
) -> tuple[list[Run], Deciding | None]:
    """The runs of all `sources`; of a job that does not fit into memory those that decide, the ranks `named` among them."""
    paths = [source for source in sources if isinstance(source, Path)]
    if len(paths) <= LEAST_RANKS or len(paths) < len(sources):
        return [_run(source, launches) for source in sources], None
    first = _run(max(paths, key=size_of), launches)
    count = ranks_that_fit(first, paths)
    some = None
    if count is not None:
        from busfare.jobs.run import run_job

        with job_progress() as shown:
            whole = run_job(paths, node, How(), shown).communication()
        some = deciding(whole.ranks, count, named)
        paths = [*some.paths]
    return [first if path == first.path else _run(path, launches) for path in paths], some


def project(
    trace: Source,
    to: str | Node | Sequence[str | Node],
    *,
    recorded_on: str | Node | None = None,
    model: str = "calibrated",
    kernels: Sequence[str] = (),
    host: str = "measured",
    counters: str | Path | None = None,
) -> answers.Projection:
    """What the copies, the kernels and the whole run would take on other nodes, the first of which stands at the top.

    `kernels` and `host` are rules for their times, `counters` what Nsight Compute counted of the same program.
    """
    targets = [node(one) for one in (to if isinstance(to, (list, tuple)) else [to])]
    targets = [one for n, one in enumerate(targets) if one not in targets[:n]]
    if not targets:
        raise InputError("project: no node is named; give one, as in to='gh200'")
    run = with_counters(_run(trace, launches=True), counters)
    here = where_recorded(run, _node(recorded_on), "--from")
    rebuilt = timeline(run, here)
    each = [project_trace(run, here, one, model, tuple(kernels), host, rebuilt) for one in targets]
    result = projected(each, guessed=recorded_on is None)
    return answer(
        answers.Projection, result, lambda _: predictions.projection_document(result, str(run.path))
    )


def with_counters(run: Run, path: str | Path | None) -> Run:
    """`run` with the bytes of its kernels by what `ncu` printed (`path`), where that is given."""
    return run if path is None else replace(run, counters=counted_kernels(Path(path), run))


def compare(
    predicted: Source,
    actual: Source,
    *,
    recorded_on: str | Node | None = None,
    to: str | Node | None = None,
    model: Sequence[str] = (),
    counters: str | Path | None = None,
) -> answers.Comparison:
    """How far predictions from one run are from another of the same program, recorded on the node predicted for (`to`)."""
    first, second = with_counters(_run(predicted, launches=True), counters), _run(actual, launches=True)
    here, there = (
        where_recorded(first, _node(recorded_on), "--from"),
        where_recorded(second, _node(to), "--to"),
    )
    result = compared(first, second, here, there, model)
    return answer(answers.Comparison, result, lambda _: predictions.comparison_document(result))


def diff(before: Source, after: Source) -> answers.Diff:
    """What changed between two recorded runs of one program, and which part of it made the run longer or shorter."""
    from busfare.answers.diff import diff_traces
    from busfare.answers.report import summarise
    from busfare.show.diff import diff_document

    runs = _run(before), _run(after)
    result = diff_traces(*runs, (summarise(runs[0]), summarise(runs[1])))
    return answer(answers.Diff, result, lambda _: diff_document(result))


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

    `options` are those of `busfare.measure.record.environment`, as `stacks=True`. Needs an NVIDIA GPU, and that no other
    profiler records meanwhile.
    """
    from busfare.answers.measure import recording

    folder = Path(output or mkdtemp(dir=_kept().name))
    with recording(folder, **options):
        yield Recorder(folder)
