"""What determines the length of a run: the parts of its critical path, and the owner of most of each part."""

from collections.abc import Callable, Mapping, Sequence
from shlex import join, quote
from typing import Literal, cast

import numpy as np
import polars as pl
from msgspec import Struct, field

from busfare.advise import RangedFinding
from busfare.advise.amounts import Ranged
from busfare.statements import Figure, Words, sentences, statement
from busfare.timeline import Decided, PathPart, Timeline, part_seconds
from busfare.timeline.build.work import HANDS_OVER_AFTER_NS
from busfare.timeline.engine import IN_CALLS, PART_NAMES, START_UP, UNEXPLAINED
from busfare.trace import Trace
from busfare.trace.activity import LEAST, MOST, THREAD, Activity, deepest, most_sampled, outside
from busfare.trace.lanes import is_transfer
from busfare.trace.readers import record_again
from busfare.trace.totals import Totals

#: The owner of a part of a run; `gap` is time between two API calls without recorded activity.
OwnerKind = Literal[
    "call", "kernel", "graph", "copy", "range", "operator", "function", "os-call", "sample", "gap",
    "start-up", "unexplained", "launch", "idle", "wake-up",
]  # fmt: skip
BETWEEN_CALLS = "CPU time between API calls"
#: Steps of PyTorch's profiler mark units of work; their names do not say what the program does.
STEP = r"^ProfilerStep#"
NS = 1e-9
#: The verdict names at most this many owners and parts, and small ones only from this share of the run on.
MOST_PARTS, MOST_ACTIONS, WORTH_SAYING = 3, 3, 0.05
#: It ranks so many owners of each part.
MOST_OWNERS = 2
#: From this exposed share on, transfers count as not overlapped; the verdict says why from this share of the run on.
NO_OVERLAP, LEAST_EXPOSED = 0.9, 0.02
#: Parts whose name is more informative than the kind of their owner.
KINDS_OF: dict[str, OwnerKind] = {
    START_UP: "start-up",
    UNEXPLAINED: "unexplained",
    "launches": "launch",
    "gaps between operations": "idle",
    "CPU wake-up": "wake-up",
}


class Owner(Struct):
    """`share`: of the time of the part."""

    kind: OwnerKind
    name: str
    share: float


class PathOwner(PathPart, frozen=True):
    """A part of the critical path, and the owner of most of it."""

    owner: Owner | None = None


class LargestPart(Owner, kw_only=True):
    """The largest item of the critical path; `share`: of the run."""

    seconds: float


class Action(Ranged, kw_only=True):
    """One of the best findings by its id, and the command that predicts its gain; '' where the gain is only bounded."""

    finding: str
    command: str
    gain_seconds: float


class Verdict(Struct, kw_only=True):
    """`gpu_busy_share`: of the run, mean over its GPUs; None if the trace has no GPU work. `startup_seconds` of the process
    on the critical path; None, as `largest_part`, if the run cannot be replayed.

    `text`: sentences on GPU utilisation, the largest parts of the run and their owners, transfers, communication.
    """

    gpu_busy_share: float | None
    startup_seconds: float | None
    largest_part: LargestPart | None
    actions: list[Action] = field(default_factory=list)
    text: list[Words]


def verdict(
    trace: Trace,
    totals: Totals,
    replayed: Timeline | None,
    owners: list[list[PathOwner]],
    shares_of_peak: Mapping[str | None, float | None],
) -> Verdict:
    """A report's first sentences. `owners`: of parts of the critical path of `replayed`. `shares_of_peak`: by kernel."""
    run, path = totals.makespan_seconds, [largest for largest, *_ in owners]
    busy = [gpu.busy_seconds / run for gpu in totals.gpus if run]
    share = sum(busy) / len(busy) if busy else None
    text = [statement("verdict.idle-gpu", seconds=run)]
    if len(busy) == 1:
        text = [statement("verdict.busy", share=share, seconds=run)]
    elif busy:
        text = [statement("verdict.busy-gpus", count=len(busy), low=min(busy), high=max(busy), seconds=run)]
    owned = sorted((of for part in owners for of in part if of.owner), key=owned_seconds, reverse=True)
    if shown := [part for part in path if part.share >= WORTH_SAYING][:MOST_PARTS]:
        parts = tuple(statement("verdict.part", part=part.part, share=part.share) for part in shown)
        text.append(statement("verdict.path", parts=parts))
    text += [_largest(trace, part, run, shares_of_peak) for part in owned[:1]]
    for spins in replayed.omissions if replayed and owned and owned[0].part == BETWEEN_CALLS else ():
        text += [statement("verdict.may-wait", count=spins.count)] * (spins.id == "replay-spins")
    if len(owned) > 1 and owned_seconds(owned[1]) >= WORTH_SAYING * run:
        text.append(statement("verdict.next", **_owned(owned[1], run)))
    moved = totals.transfers
    if moved.count:
        exposed = moved.exposed_seconds
        figures = {
            "seconds": moved.seconds,
            "bytes": moved.bytes,
            "exposed": exposed,
            "share": exposed / (run or 1),
        }
        all_exposed = exposed >= max(NO_OVERLAP * moved.seconds, LEAST_EXPOSED * run)
        reasons = _why_exposed(trace) if all_exposed else ()
        text.append(
            statement(f"verdict.{'no-overlap' if reasons else 'transfers'}", reasons=reasons, **figures)
        )
    if totals.communication.count:
        text.append(statement("verdict.communication", seconds=totals.communication.seconds))
    largest = None
    if owned and (owner := owned[0].owner):
        seconds, kind = owned_seconds(owned[0]), KINDS_OF.get(owned[0].part, owner.kind)
        largest = LargestPart(kind, owner.name, seconds / run if run else 0.0, seconds=seconds)
    return Verdict(
        gpu_busy_share=share,
        startup_seconds=None if replayed is None else part_seconds(path, START_UP),
        largest_part=largest,
        text=text,
    )


def actions(path: str, findings: Sequence[RangedFinding]) -> list[Action]:
    """The best findings of a trace at `path`, which come first."""
    return [
        Action(
            finding=finding.id,
            command=f"busfare what-if {quote(path)} {join(finding.what_if)}" if finding.what_if else "",
            gain_seconds=finding.predicted_gain_seconds,
            low_seconds=finding.low_seconds,
            high_seconds=finding.high_seconds,
            rung=finding.rung,
            reason=finding.reason,
        )
        for finding in findings[:MOST_ACTIONS]
    ]


def _why_exposed(trace: Trace) -> tuple[Words, ...]:
    """Why no kernel overlaps copies between host and GPU, according to their memory kinds and streams."""
    place = ("process", "device", "stream")
    copies = trace.lanes.groups.filter(pl.col("kind") == "copy", pl.col("direction").is_in(["h2d", "d2h"]))
    kernels = trace.lanes.groups.filter(pl.col("kind") == "kernel").select(place).unique()
    pageable = pl.any_horizontal(pl.col("source_memory", "destination_memory") == "pageable")
    shared = copies.join(kernels, on=place, how="semi", nulls_equal=True)
    reasons = []
    most = MOST * float(copies["seconds"].sum())
    if float(copies.filter(pageable)["seconds"].sum()) > most:
        reasons.append(statement("verdict.pageable"))
    if float(shared["seconds"].sum()) > most:
        streams = shared["stream"].unique()
        many = len(streams) > 1 or streams[0] is None
        reasons.append(
            statement("verdict.same-streams") if many else statement("verdict.same-stream", stream=streams[0])
        )
    return tuple(reasons)


def owned_seconds(part: PathOwner) -> float:
    """The time of the owner of most of a part."""
    return part.seconds * part.owner.share if part.owner else 0.0


def _largest(trace: Trace, part: PathOwner, run: float, peaks: Mapping[str | None, float | None]) -> Words:
    """The owner of most of the run, a kernel's share of the peak, and how to record activity that the trace lacks."""
    assert part.owner
    what = statement("verdict.largest", **_owned(part, run))
    hint = record_again(trace.format).activity if part.owner.kind == "gap" else ""
    share = peaks.get(part.owner.name) if part.owner.kind == "kernel" else None
    of_peak = None if share is None else statement("verdict.of-peak", share=share)
    return sentences(what, of_peak, statement("verdict.record", how=hint) if hint else None)


def _owned(part: PathOwner, run: float) -> dict[str, Figure]:
    seconds = owned_seconds(part)
    return {"owner": described(part), "seconds": seconds, "share": seconds / run if run else 0.0}


def described(part: PathOwner) -> Words:
    """'start-up in `cudaMalloc`'."""
    assert part.owner
    kind: str = KINDS_OF.get(part.part, part.owner.kind)
    if part.part == UNEXPLAINED and part.owner.kind != "call":
        kind = "unexplained-before"
    return statement(f"owner.{kind}", name=part.owner.name)


def path_owners(run: Timeline, path: Decided) -> list[list[PathOwner]]:
    """The parts of the critical path of `run`, longest first, each with its largest owners, the largest first."""
    if not len(path.ends):
        return []
    steps = _steps(run, path)
    whole = int((path.ends - path.starts).sum())
    parts = steps.group_by("part").agg(pl.col("ns").sum()).sort("ns", "part", descending=[True, False])
    return [
        [
            PathOwner(PART_NAMES[part], ns * NS, ns / whole, owner)
            for owner in (*_owners(run, PART_NAMES[part], steps.filter(pl.col("part") == part), ns),)
            or (None,)
        ]
        for part, ns in parts.iter_rows()
    ]


def _steps(run: Timeline, path: Decided) -> pl.DataFrame:
    """The steps of the critical path, one row per step and part: part, whose, start_ns (of the trace), ns."""
    rest = path.ends - path.starts
    for ns in path.apart.values():
        rest = rest - ns
    numbers = {name: np.full(len(rest), PART_NAMES.index(name), np.uint8) for name in path.apart}
    starts = path.starts + run.origin_ns
    return pl.concat(
        pl.DataFrame({"part": part, "whose": path.whose, "start_ns": starts, "ns": ns}).filter(
            pl.col("ns") > 0
        )
        for part, ns in [(path.parts, rest), *((numbers[name], ns) for name, ns in path.apart.items())]
    )


def _owners(run: Timeline, part: str, steps: pl.DataFrame, whole: int) -> list[Owner]:
    """The largest owners of a part that lasts `whole` nanoseconds, the largest first."""
    if part == BETWEEN_CALLS:
        return _of_gaps(run, steps)
    count, whose = run.operations.height, steps["whose"]
    if part == IN_CALLS and count:  # an operation's time belongs to the call that launched it
        row = whose.clip(0, count - 1)
        launching = pl.Series(run.columns["operation_call"])[row] + count
        launched = pl.Series(run.launched)[row] & (whose < count)
        whose = launching.cast(whose.dtype).zip_with(launched, whose)
    of_call = whose >= count
    operations = run.operations[whose.filter(~of_call)].select(
        kind=pl.when(is_transfer())
        .then(pl.lit("copy"))
        .when(pl.col("kind") == "graph")
        .then(pl.lit("graph"))
        .otherwise(pl.lit("kernel")),
        name=pl.when(is_transfer())
        .then(pl.col("direction").cast(pl.String))
        .otherwise(pl.col("name").cast(pl.String)),
        ns=steps["ns"].filter(~of_call),
    )
    calls = run.calls[whose.filter(of_call) - count].select(
        kind=pl.lit("call"), name=pl.col("name").cast(pl.String), ns=steps["ns"].filter(of_call)
    )
    sums = pl.concat([operations, calls]).drop_nulls("name").group_by("kind", "name").agg(pl.col("ns").sum())
    largest = sums.sort("ns", "name", descending=[True, False]).head(MOST_OWNERS)
    return [Owner(kind, name, ns / whole) for kind, name, ns in largest.iter_rows()]


def _of_gaps(run: Timeline, steps: pl.DataFrame) -> list[Owner]:
    """The host activity between calls: a range, operator or function, else a sampled function or a system call, else the two
    calls with most of the time between them; and what owns most of the rest.
    """
    count, trace = run.operations.height, run.trace
    of_call = steps["whose"] >= count
    rows, steps = steps["whose"].filter(of_call) - count, steps.filter(of_call)
    gaps = steps.select("start_ns", end_ns=pl.col("start_ns") + pl.col("ns"))
    gaps = pl.concat([gaps, _callers(run)[rows]], how="horizontal")
    ranges = trace.markers.filter(
        pl.col("end_ns") > pl.col("start_ns"),
        ~pl.col("name").cast(pl.String).str.contains(STEP).fill_null(True),
    )
    activity = trace.activity.with_columns(pl.col("kind").cast(pl.String))
    spans = pl.concat([activity, ranges.with_columns(kind=pl.lit("range"))], how="diagonal")
    shares, left = dict[tuple[OwnerKind, str], float](), 1.0
    while gaps.height and len(shares) < MOST_OWNERS:
        most, gaps = _most_of(spans, gaps)
        spans = spans.filter(pl.col("end_ns").is_not_null() | (pl.col("name") != most.name).fill_null(True))
        owner = cast(OwnerKind, most.kind), most.name
        shares[owner] = shares.get(owner, 0.0) + left * most.share
        left *= 1 - most.share
    return [Owner(*owner, share) for owner, share in shares.items()]


def _most_of(spans: pl.DataFrame, gaps: pl.DataFrame) -> tuple[Activity, pl.DataFrame]:
    """What owns most of `gaps`, and the rest of them."""
    kind, is_sample = pl.col("kind"), pl.col("end_ns").is_null()
    caller, handing = (gaps.with_columns(thread=of) for of in ("caller", "handing"))
    candidates: tuple[tuple[Callable[..., Activity | None], pl.DataFrame, pl.DataFrame], ...] = (
        (deepest, spans.filter(~is_sample & (kind != "os-call")), caller),
        (most_sampled, spans.filter(is_sample), caller),
        # A range of the main thread covers work that it hands to other threads, such as PyTorch's backward pass.
        (deepest, spans.filter(~is_sample & (kind == "range")), handing),
        (most_sampled, spans.filter(is_sample), handing),
        (deepest, spans.filter(~is_sample & (kind == "os-call")), caller),
    )
    for search, rows, of in candidates:
        activity = search(rows, of)
        if activity and activity.share >= LEAST:
            return activity, gaps if activity.kind == "sample" else outside(activity.spans, of)
    ns = pl.col("end_ns") - pl.col("start_ns")
    sums = gaps.group_by("before", "name").agg(ns.sum().alias("ns")).sort("ns", descending=True)
    first, then, longest = sums.row(0)
    of_pair = pl.col("before").eq_missing(first) & pl.col("name").eq_missing(then)
    name = f"{first} → {then}" if first else f"→ {then}"
    share = longest / int(sums["ns"].sum())
    return Activity("gap", name, share, gaps.filter(of_pair)), gaps.filter(~of_pair)


def _callers(run: Timeline) -> pl.DataFrame:
    """Of each call its process, its thread (`caller`), the thread that handed it the work (`handing`), its name, and that of
    the call `before` it on its thread, null for the first.
    """
    after, thread = run.columns["call_after"], run.calls["thread"]
    name, earlier = pl.col("name").cast(pl.String), thread.gather(np.maximum(after, 0))
    handed = (after >= 0) & thread.ne_missing(earlier).to_numpy()
    alone = (after < 0) & (run.columns["call_gap"] >= HANDS_OVER_AFTER_NS)
    calls = run.calls.select(
        *THREAD,
        name,
        before=name.shift(1).over(THREAD),
        handing=pl.when(pl.Series(handed)).then(earlier).when(pl.Series(alone)).then("thread"),
    )
    handing = pl.coalesce(pl.col("handing").forward_fill().over(THREAD), "thread")
    return calls.with_columns(handing.alias("handing")).rename({"thread": "caller"})
