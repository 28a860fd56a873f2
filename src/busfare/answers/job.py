"""The result of `report` on the traces of a job: the JSON is the Struct `JobReport`; keys in docs/json.md."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from busfare.advise import guess_node
from busfare.advise.jobs import JobFinding, job_findings, listed, replayed_alone
from busfare.answers.report import Path as MovedPath
from busfare.answers.report import Sized, rows_of
from busfare.errors import InputError
from busfare.jobs.communication import Clock, Collective, Communication, Left, RankTimes
from busfare.jobs.model import JobTimeline
from busfare.jobs.partial import COUNTED, PATH, SIZES, Moved
from busfare.jobs.parts import LEAST_RANKS, MOST_OPERATIONS, MOST_TRACES, SOME_OPERATIONS, size_of
from busfare.jobs.ranks import copies_left_out
from busfare.jobs.reduce import FIGURES, NS, Job, LinkHealth, Spreading, Valued, spread
from busfare.jobs.stragglers import Straggler
from busfare.jobs.timeline import Deciding, deciding, job_timeline, ranks_that_fit
from busfare.nodes import Node
from busfare.statements import statement
from busfare.trace import Trace, read
from busfare.trace.omissions import Omissions, readable
from busfare.trace.totals import Counted, MovedInAll, Work

FAILURES_LISTED = 100
#: What a report leaves out, beside what its traces do.
LEFT_OUT = (
    "unrelated-traces", "unreadable", "not-traces", "duplicates", "idle-processes", "unknown-rank", "several-of-a-rank",
    "guessed-node",
)  # fmt: skip


class Read(Struct):
    """Files: traces, those that could not be read, and those that are none."""

    read: int
    failed: int
    not_traces: int
    formats: dict[str, int]


class Named(Struct):
    name: str
    traces: int


class Makespans(Struct):
    sum: float
    most: float


class Failure(Struct):
    path: str
    why: str


class JobReport(Work, tag_field="schema", tag="busfare.report-job/1", kw_only=True):
    traces: Read
    ranks: list[RankTimes]
    ranks_seen: int
    hosts: int
    gpus: list[Named]
    nodes: list[Named]
    makespan_seconds: Makespans
    spread: list[Spreading]
    by_path: list[MovedPath]
    size_histogram: list[Sized]
    link_health: LinkHealth
    collectives: list[Collective]
    straggler: Straggler | None
    clocks: list[Clock]
    findings: list[JobFinding]
    gains_of_whole_job: bool = False  # by all ranks replayed together; else each of the trace that gains most
    omissions: list[Left]
    failures: list[Failure]

    @property
    def slowest(self) -> Valued:
        """The trace of the longest run, s; of equal ones the first by path."""
        return self.spread[0].largest[0]


def job_report(job: Job) -> JobReport:
    """Everything that `report` says of the job, of at least one trace. It depends on the traces alone: not on their order,
    nor on where, how often or by how many they were read.
    """
    sums, every = job.sums, job.working + job.idle
    gpu_time = sum(sums[f"{name}_ns"] for name in ("transfers", "kernels", "communication", "graph_work"))
    ranked = [rank.rank for rank, _ in job.working if rank.rank is not None]
    ranks = set(ranked)
    spreads = [
        spread(name, [(figures[at], rank) for rank, figures in job.figures], unit)
        for at, (name, unit) in enumerate(FIGURES.values())
    ]
    together = job.communication()
    by_time = sorted(job.by_path.values(), key=lambda moved: (-moved.ns, *(name or "" for name in moved.of)))
    return JobReport(
        traces=Read(job.traces, len(job.failures), job.foreign, dict(sorted(job.formats.items()))),
        ranks=together.ranks,
        ranks_seen=len(ranks.union(*job.several)),
        hosts=len({rank.host for rank, _ in every} - {None}),
        gpus=_most_first(job.gpus),
        nodes=_most_first(job.nodes),
        transfers=MovedInAll(
            count=sums["transfers_count"],
            bytes=sums["transfers_bytes"],
            seconds=sums["transfers_ns"] * NS,
            exposed_seconds=sums["transfers_exposed_ns"] * NS,
            share_of_gpu_time=sums["transfers_ns"] / gpu_time if gpu_time else 0.0,
        ),
        **{name: Counted(sums[f"{name}_count"], sums[f"{name}_ns"] * NS) for name in COUNTED},
        makespan_seconds=Makespans(sums["makespan_ns"] * NS, spreads[0].most),
        spread=spreads,
        by_path=rows_of(MovedPath, map(_moved, by_time)),
        size_histogram=rows_of(Sized, map(_moved, sorted(job.sizes.values(), key=lambda decade: decade.of))),
        link_health=job.link_health(),
        collectives=together.collectives,
        straggler=together.straggler,
        clocks=together.clocks,
        findings=listed(job.findings.values()),
        gains_of_whole_job=False,
        omissions=[*_left_out(job, together, len(ranked), len(ranks))],
        failures=[Failure(*failure) for failure in sorted(job.failures)[:FAILURES_LISTED]],
    )


def of_whole_job(result: JobReport, recorded_on: Node | None) -> tuple[JobReport, JobTimeline | None]:
    """`result` with findings of the whole job, and the job, where all is of one run that can be replayed; else as it is."""
    paths = [Path(path) for path in sorted({rank.path for rank in result.ranks})]
    counts = (result.kernels, result.communication, result.transfers, result.sets, result.graph_work)
    operations = sum(work.count for work in counts)
    separate = any(left.id == "separate-runs" for left in result.omissions)
    if separate or all(row.arrive_seconds is None for row in result.collectives):
        return result, None
    some = None
    if len(paths) > MOST_TRACES or operations > MOST_OPERATIONS:
        with_findings = {f.largest.rank for f in result.findings if f.largest.rank is not None}
        per_trace = operations // len(paths)
        some = deciding(result.ranks, min(MOST_TRACES, SOME_OPERATIONS // max(per_trace, 1)), with_findings)
        paths = [*some.paths]
        if per_trace * len(paths) > MOST_OPERATIONS:
            return result, None
    try:
        traces = [read(path, launches=True) for path in paths]
        node = recorded_on or guess_node(traces[0])
        job = job_timeline(traces, node, paths, some)
        of_ranks = result.findings
        files = result.traces
        if files.read + files.failed + files.not_traces > MOST_TRACES:  # no worker replayed any of them
            of_ranks = replayed_alone(of_ranks, result.ranks, traces, paths, node)
        findings = job_findings(job, result.ranks, result.straggler, of_ranks, node)
    except (InputError, OSError):  # not as it was a moment ago, or nothing of it plays
        return result, None
    left = [Left(some.left_out.id, some.left_out.count, some.left_out.what)] if some else []
    return replace(
        result, findings=findings, gains_of_whole_job=True, omissions=[*left, *result.omissions]
    ), job


def _left_out(job: Job, together: Communication, ranked: int, ranks: int) -> Iterator[Left]:
    """What its ranks do not tell, what the job's report does not, then what its traces do not."""
    if job.copies:
        copied = copies_left_out(job.copies)
        yield Left(copied.id, copied.count, copied.what)
    separate = [left for left in together.left_out if left.id == "separate-runs"]
    related = ranks > 1 or job.several or any(row.arrive_seconds is not None for row in together.collectives)
    unrelated = 0 if related or (separate and ranks) or len(job.working) < 2 else len(job.working)
    yield from (left for left in together.left_out if not unrelated or left not in separate)
    if cut := job.incomplete:
        first = statement("omission.incomplete-traces", count=len(cut), path=min(cut), what=cut[min(cut)])
        yield Left("incomplete-traces", len(cut), first)
    idle = len(job.idle) if job.working else 0
    files = [len(job.failures), job.foreign, job.duplicates]
    traces = [idle, job.traces - ranked - len(job.several), ranked - ranks, job.guessed]
    counts = [unrelated, *files, *traces]
    for id, count in zip(LEFT_OUT, counts, strict=True):
        if count:
            yield Left.of_job(id, count)
    for name, left in sorted(job.omissions.items(), key=lambda item: (-item[1].traces, str(item[0]))):
        yield Left(str(name), left.count, left.what, left.traces)


def _most_first(counts: Counter[str]) -> list[Named]:
    return [Named(*item) for item in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _moved(moved: Moved) -> dict[str, Any]:
    """Of both kinds of rows: of a path, and of a decade of sizes."""
    of = PATH if len(moved.of) == len(PATH) else SIZES
    rate = moved.bytes / (moved.ns * NS) if moved.ns else None
    sums = {"count": moved.count, "bytes": moved.bytes, "seconds": moved.ns * NS, "bytes_per_second": rate}
    return dict(zip(of, moved.of, strict=True)) | sums


def runs_that_fit(
    sources: Sequence[Any],
    read_run: Callable[[Any], Trace],
    whole: Callable[[list[Path]], Job],
    named: Sequence[int],
    left_out: Omissions,
) -> tuple[list[Trace], Deciding | None]:
    """The runs of all readable `sources`; of a job (`whole`) that does not fit into memory, only the decisive ranks and
    those `named`. The others are in `left_out`.
    """
    paths = [source for source in sources if isinstance(source, Path)]
    if len(paths) < len(sources):
        return [read_run(source) for source in sources], None
    if len(paths) <= LEAST_RANKS:
        return [*readable(paths, read_run, left_out)], None
    first = next(readable(sorted(paths, key=size_of, reverse=True), read_run, Omissions()))
    some, count = None, ranks_that_fit(first, paths)
    if count is not None:
        job = whole(paths)
        left_out.unreadable([": ".join(failure) for failure in sorted(job.failures)])
        some = deciding(job.communication().ranks, count, named)
        paths = [*some.paths]
    runs = readable(paths, lambda path: first if path == first.path else read_run(path), left_out)
    return [*runs], some
