"""What is drawn of a run or of a job: rows of calls and operations, and what each of them waited for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import advise
from busfare.advise import Finding
from busfare.advise.amounts import several
from busfare.advise.jobs import TOGETHER, JobFinding
from busfare.answers.verdict import BETWEEN_CALLS, KINDS_OF, STEP
from busfare.jobs.model import JobTimeline
from busfare.show.svg import COLOUR, drawn_as
from busfare.show.time_line import Row, TimeLine, items_of
from busfare.show.words import text
from busfare.statements import statement
from busfare.timeline import PART_NAMES, Timeline, decided
from busfare.timeline.engine import IN_CALLS, UNEXPLAINED
from busfare.trace import Trace
from busfare.trace.columns import first_pairs
from busfare.trace.lanes import is_communication, is_transfer, is_work
from busfare.trace.words import CLASSES, kind_codes, of_codes

#: The busiest of each are drawn; of the stretches between calls, so many are named by what the host did meanwhile.
MOST_GPUS, MOST_THREADS, MOST_RANKS, MOST_ACTIVITIES = 8, 8, 8, 200
#: Parts of the critical path in which an operation runs.
RUNNING = ("kernels", "communication", "copies", "memory sets")
KINDS = list(COLOUR)
#: The bits of findings that are about each operation, and about each call.
Marks = tuple[NDArray[np.int64], NDArray[np.int64]]


def time_line(
    recorded: Trace,
    run: Timeline | None = None,
    findings: Sequence[Finding] = (),
    predicted: tuple[Trace, Timeline] | None = None,
) -> TimeLine:
    """`recorded`, and below it what is `predicted` of it, with the critical path of each where the run as it replays is
    given. `findings`, which are about some of what is `recorded`, light up.
    """
    if run is not None:
        recorded = replace(recorded, calls=run.trace.calls)  # MPI's among them
    shown = [finding.id for finding in findings if finding.touches is not None or finding.calls is not None]
    marks = _marks(recorded, findings, {id: 1 << bit for bit, id in enumerate(shown)})
    mine = None
    if run is not None:
        mine = (run, run.operations["row"].to_numpy(), run.calls["row"].to_numpy())
    rows, left_out = _rows(recorded, mine, marks, 0, "recorded " if predicted else "")
    if predicted:
        after, played = predicted
        theirs = (played, np.arange(after.operations.height), np.arange(after.calls.height))
        first = recorded.operations.height + recorded.calls.height
        below, more = _rows(after, theirs, _marks(after), first, "predicted ")
        rows, left_out = [*rows, *below], list(dict.fromkeys([*left_out, *more]))
    note = f"Not drawn: {', '.join(left_out)}." if left_out else ""
    return TimeLine(rows, marks=shown, note=note)


def _rows(
    trace: Trace,
    run: tuple[Timeline, NDArray[Any], NDArray[Any]] | None,
    marks: Marks,
    first_id: int,
    prefix: str,
) -> tuple[list[Row], list[str]]:
    """Rows of one run, and what is left out. `run`: as it replays, with the trace's rows of its operations and calls."""
    operations, calls, predicted = trace.operations, trace.calls, prefix.startswith("predicted")
    count = operations.height
    cause = np.concatenate([first_pairs(calls, operations), np.full(calls.height, -1)]).astype(np.int64)
    cause[:count][cause[:count] >= 0] += count + first_id
    after = np.full(count + calls.height, -1, np.int64)
    path = pl.DataFrame()
    if run is not None:
        timeline, of_operations, of_calls = run
        path_steps = decided(timeline)
        ends = np.append(of_operations + first_id, -1)
        of_call, of_operation = path_steps.after
        cause[count + of_calls] = ends[of_call]
        after[of_operations] = ends[of_operation]
        whose = np.concatenate([of_operations, of_calls + count])[path_steps.whose]
        path = pl.DataFrame(
            {
                "start_ns": path_steps.starts + timeline.origin_ns,
                "end_ns": path_steps.ends + timeline.origin_ns,
                "part": path_steps.shown,
                "cause": whose + first_id,
                "row": whose,
            }
        ).filter(pl.col("end_ns") > pl.col("start_ns"))
    work, host_calls = _operations(operations, marks[0]), _calls(calls, marks[1])
    drawn_rows = pl.concat([work, host_calls], how="diagonal").with_columns(
        id=pl.int_range(pl.len()) + first_id, cause=pl.Series(cause), after=pl.Series(after)
    )
    if path.height:
        path = _path(path, drawn_rows.with_columns(launching=pl.Series(cause - first_id)), trace)
    made = [Row(f"{prefix}critical path", "path", items_of(path), predicted)] if path.height else []
    ranges = trace.markers.filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(
        kind=KINDS.index("ranges")
    )
    made += [Row(f"{prefix}ranges", "work", items_of(ranges))] if ranges.height and not predicted else []
    left_out = []
    for group, most, what in (("calls", MOST_THREADS, "thread"), ("work", MOST_GPUS, "GPU")):
        of_group = drawn_rows.filter(pl.col("group") == group, pl.col("end_ns") >= pl.col("start_ns"))
        sizes = of_group.group_by("number").len().sort("len", "number", descending=[True, False])
        kept = sizes["number"].head(most)
        if sizes.height > most:
            left_out.append(several(sizes.height - most, f"less busy {what}"))
        parts_of = of_group.filter(pl.col("number").is_in(kept.implode())).partition_by(
            ["number", "sub"], as_dict=True
        )
        for (number, sub), part in sorted(parts_of.items()):
            if group == "calls":
                label = part["thread"][0] if len(kept) > 1 else "host calls"
            else:
                label = (f"GPU {number if number >= 0 else '?'} " if len(kept) > 1 else "") + KINDS[int(sub)]
            made.append(Row(prefix + label, group, items_of(part), predicted))
    return made, left_out


def _path(steps: pl.DataFrame, drawn_rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """`steps` of the critical path with `kind` and `name`, which say what the time is: work that runs keeps its kind and its
    name; other time is named by its part and by the call or operation that it belongs to, `launch overhead of gemm`.
    """
    count = trace.operations.height
    names = drawn_rows["name"].cast(pl.String)
    before = trace.calls.select(pl.col("name").cast(pl.String).shift(1).over("process", "thread")).to_series()
    rows, part = steps["row"], steps["part"].to_numpy()
    in_calls = (part == PART_NAMES.index(IN_CALLS)) & (rows < count).to_numpy()
    # CPU time before an operation is in the call that launches it.
    launching = drawn_rows["launching"].gather(rows).to_numpy()
    rows = pl.Series(np.where(in_calls & (launching >= 0), launching, rows))
    steps = steps.with_columns(
        name=names.gather(rows),
        before=before.gather(pl.Series(np.maximum(rows - count, 0))) if len(before) else None,
        of_call=rows >= count,
        inside=_activities(steps, rows, trace),
        drawn=drawn_rows["kind"].gather(rows).cast(pl.UInt8),
    )
    labelled = steps.select("part", "name", "before", "of_call", "inside").unique()
    labels = [_label(PART_NAMES[part], *of_step) for part, *of_step in labelled.iter_rows()]
    kinds = [KINDS.index(drawn_as(part)) for part in PART_NAMES]
    running = pl.col("part").is_in([PART_NAMES.index(part) for part in RUNNING]) & ~pl.col("of_call")
    labelled = labelled.with_columns(label=pl.Series(labels, dtype=pl.String))
    on = [name for name in labelled.columns if name != "label"]
    return steps.join(labelled, on=on, how="left", nulls_equal=True, maintain_order="left").with_columns(
        name=pl.when(running).then("name").otherwise("label").cast(pl.Categorical),
        kind=pl.when(running).then("drawn").otherwise(pl.Series(kinds).gather(steps["part"])).cast(pl.UInt8),
    )


def _label(part: str, name: str | None, before: str | None, of_call: bool, inside: str | None) -> str:
    """'CPU time between cudaMemcpy and cudaFree'; `inside`: kind and name of the host activity meanwhile."""
    kind: str = KINDS_OF.get(part, "call" if of_call else "kernel")
    name = name or "unnamed work"
    if described := re.match(r"(?:(\S+) \w+, \w+ to|(set) of) \w+", name):  # a copy: `h2d`
        name = described[1] or described[2]
    if part == BETWEEN_CALLS:
        kind, name = "gap", f"{before or ''}→{name}"
        if inside:
            kind, name = inside.split(" ", 1)
    elif part == UNEXPLAINED and not of_call:
        kind = "unexplained-before"
    return text(statement(f"owner.{kind}", name=name)).replace("`", "")


def _activities(steps: pl.DataFrame, rows: pl.Series, trace: Trace) -> pl.Series:
    """Kind and name of the innermost host activity in the middle of the longest stretches between calls; else null."""
    ranges = trace.markers.filter(~pl.col("name").cast(pl.String).str.contains(STEP)).with_columns(
        kind=pl.lit("range")
    )
    spans = pl.concat(
        frame.filter(pl.col("end_ns") > pl.col("start_ns")).select(
            "process", "thread", "start_ns", "end_ns", pl.col("kind", "name").cast(pl.String)
        )
        for frame in (trace.activity.filter(pl.col("kind") != "os-call"), ranges)
    )
    called = np.full(steps.height, None, object)
    starts, ends = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    process, thread = (spans[name].fill_null(-1).to_numpy() for name in ("process", "thread"))
    gaps = np.flatnonzero(steps["part"].to_numpy() == PART_NAMES.index(BETWEEN_CALLS))
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy()[gaps]
    for step in gaps[np.argsort(-length, kind="stable")[:MOST_ACTIVITIES]] if spans.height else ():
        call = trace.calls.row(rows[int(step)] - trace.operations.height, named=True)
        middle = (steps["start_ns"][int(step)] + steps["end_ns"][int(step)]) // 2
        around = (
            (starts <= middle) & (ends > middle) & (process == call["process"]) & (thread == call["thread"])
        )
        if around.any():
            innermost = int(np.flatnonzero(around)[starts[around].argmax()])
            called[step] = f"{spans['kind'][innermost]} {spans['name'][innermost]}"
    return pl.Series(called.tolist(), dtype=pl.String)


def _operations(operations: pl.DataFrame, marks: NDArray[np.int64]) -> pl.DataFrame:
    direction = pl.col("direction").cast(pl.String)
    work = (
        pl.when(is_work())
        .then(KINDS.index("kernels"))
        .when(is_communication())
        .then(KINDS.index("communication"))
        .when(is_transfer() & (direction == "h2d"))
        .then(KINDS.index("h2d"))
        .when(is_transfer() & (direction == "d2h"))
        .then(KINDS.index("d2h"))
        .when(pl.col("kind") == "set")
        .then(KINDS.index("memory sets"))
        .otherwise(KINDS.index("other copies"))
    )
    memory = [
        pl.col(f"{end}_memory").cast(pl.String).fill_null("unknown") for end in ("source", "destination")
    ]
    moved = pl.format("{} {}, {} to {}", direction.fill_null(""), pl.col("kind").cast(pl.String), *memory)
    of = pl.format(", process {}", "process") if operations["process"].n_unique() > 1 else pl.lit("")
    place = (pl.col(name).cast(pl.String).fill_null("?") for name in ("device", "stream"))
    stream = pl.concat_str(pl.format("GPU {}, stream {}", *place), of)
    kinds = of_codes(kind_codes(operations), pl.Series(dtype=CLASSES))
    return operations.with_columns(kind=kinds, marks=pl.Series(marks)).select(
        "start_ns",
        "end_ns",
        "bytes",
        "marks",
        kind=work.fill_null(KINDS.index("other copies")),
        # Texts are made of the rows that are alike once.
        name=pl.when(is_transfer())
        .then(moved.cast(pl.Categorical))
        .when(pl.col("kind") == "set")
        .then(pl.format("set of {} memory", memory[1]).cast(pl.Categorical))
        .otherwise("name"),
        stream=stream.cast(pl.Categorical),
        group=pl.lit("work"),
        number=pl.col("device").fill_null(-1).cast(pl.Int64),
        sub=work.fill_null(KINDS.index("other copies")),
        thread=pl.lit(None, pl.Categorical),
    )


def _calls(calls: pl.DataFrame, marks: NDArray[np.int64]) -> pl.DataFrame:
    waits = pl.col("waits_for").cast(pl.String).fill_null("none") != "none"
    thread = pl.format("thread {}", pl.col("thread").fill_null(-1))
    if calls["process"].n_unique() > 1:
        thread = pl.format("process {}, {}", pl.col("process").fill_null(-1), thread)
    return calls.with_columns(marks=pl.Series(marks)).select(
        "start_ns",
        "end_ns",
        "marks",
        "name",
        kind=pl.when(waits).then(KINDS.index("waits")).otherwise(KINDS.index("calls")),
        group=pl.lit("calls"),
        number=pl.struct("process", "thread").rank("dense").cast(pl.Int64),
        sub=pl.lit(0, pl.Int32),
        thread=thread.cast(pl.Categorical),
    )


def _meetings_marked(job: JobTimeline, findings: Sequence[JobFinding]) -> tuple[list[str], pl.DataFrame]:
    """Findings about what ranks do together; and for each joint their bits at its waits and at its transfers."""
    whose = {finding.id: finding.largest.rank for finding in findings if finding.id in TOGETHER}
    joints = job.members.drop_nulls("joint").group_by("joint").agg(
        late=pl.col("rank").sort_by("start_ns").last(),
        kind=pl.col("collective_kind").cast(pl.String).first(),
    )  # fmt: skip
    always, small = pl.lit(True), pl.col("kind") == "all_reduce"
    lit = {"straggling-rank": (pl.col("late").eq_missing(whose.get("straggling-rank")), ~always)}
    lit |= {"exposed-collectives": (~always, always), "small-all-reduces": (small, small)}
    bits = [
        pl.sum_horizontal(
            pl.lit(0),
            *(lit[id][place].fill_null(False).cast(pl.Int64) * (1 << n) for n, id in enumerate(whose)),
        ).cast(pl.Int64)
        for place in (0, 1)
    ]
    return list(whose), joints.select("joint", at_waits=bits[0], at_transfers=bits[1])


def _marks(trace: Trace, findings: Sequence[Finding] = (), bits: Mapping[str, int] | None = None) -> Marks:
    """Of the operations and of the calls of `trace`; `bits` by the id of a finding."""
    marks = np.zeros(trace.operations.height, np.int64), np.zeros(trace.calls.height, np.int64)
    for finding in findings:
        bit = (bits or {}).get(finding.id, 0)
        if finding.touches is not None:
            marks[0][finding.touches.rows] |= bit
        if finding.calls is not None:
            marks[1][finding.calls] |= bit
    return marks


def meetings(job: JobTimeline, rank: int) -> pl.DataFrame:
    """A rank's collectives and messages by the job's clock: joint, name, start, last (all there), end, node, is_call."""
    number = next(n for n, part in enumerate(job.parts) if rank in part.ranks)
    run, from_ns = job.parts[number].timeline, int(job.starts_ns[number])
    members = job.members.filter((pl.col("part") == number) & (pl.col("rank") == rank))
    # By the clock of the timeline: where each member is there.
    starts = [frame["start_ns"] for frame in (run.operations, run.calls)]
    begun = [starts[is_call][node] for node, is_call in members.select("node", "is_call").iter_rows()]
    kind = pl.col("collective_kind").cast(pl.String).fill_null("communication").str.replace_all("_", "-")
    wait = (pl.col("last_ns") - pl.col("start_ns")).clip(lower_bound=0).fill_null(0)
    whole = pl.col("end_ns") - pl.col("start_ns")
    start = pl.Series(begun, dtype=pl.Int64) + (from_ns - run.origin_ns)
    return members.select(
        "joint", "node", "is_call", name=kind, start_ns=start,
        last_ns=pl.lit(start) + pl.min_horizontal(wait, whole), end_ns=pl.lit(start) + whole,
    )  # fmt: skip


def job_time_line(job: JobTimeline, findings: Sequence[JobFinding] = ()) -> TimeLine:
    """The first ranks: what each computes and copies, waits for and transfers; collectives join them. `findings` about
    these light up; of the host's calls those that some are about are drawn.
    """
    marks, marked = _meetings_marked(job, findings)
    alone = [finding for finding in findings if finding.id not in TOGETHER]
    marks += [finding.id for finding in alone]
    shown = sorted(job.ranks, key=lambda rank: rank.rank)[:MOST_RANKS]
    rows: list[Row] = []
    places: dict[int, list[int]] = {}
    ends: list[pl.DataFrame] = []
    for rank in shown:
        number = next(n for n, part in enumerate(job.parts) if rank.rank in part.ranks)
        run, from_ns = job.parts[number].timeline, int(job.starts_ns[number])
        shift = from_ns - run.origin_ns
        met = meetings(job, rank.rank)
        joined = met.join(marked, on="joint", how="left", maintain_order="left")
        # What one trace alone has is about that one.
        bits = {f.id: 1 << marks.index(f.id) for f in alone if f.traces > 1 or f.largest.path == rank.path}
        on_operations, on_calls = _marks(
            run.trace, advise.findings(run.trace, run.node) if bits else (), bits
        )
        called = _calls(run.trace.calls, on_calls).filter(pl.col("marks") != 0)
        carried = np.zeros(run.operations.height, bool)
        carried[met.filter(~pl.col("is_call"))["node"].to_numpy()] = True
        work = _operations(run.operations, on_operations[run.operations["row"].to_numpy()]).filter(~carried)
        waits = joined.select(
            "name", "start_ns", end_ns="last_ns", marks="at_waits", kind=KINDS.index("waits")
        )
        transfers = joined.select(
            "name", "end_ns", start_ns="last_ns", marks="at_transfers", kind=KINDS.index("communication")
        )
        of_rank = pl.concat([items_of(work.with_columns(pl.col("start_ns", "end_ns") + shift)),
                             *map(items_of, (waits, transfers))])  # fmt: skip
        calls = items_of(called.with_columns(pl.col("start_ns", "end_ns") + shift))
        for group, what, frame in (("work", "", of_rank), ("calls", " host calls", calls)):
            frame = frame.filter(pl.col("end_ns") > pl.col("start_ns"))
            if frame.height:
                places.setdefault(rank.rank, []).append(len(rows))
                rows.append(Row(f"rank {rank.rank}{what}", group, frame))
        ends.append(joined.select("joint", "last_ns", rank=pl.lit(rank.rank, pl.Int64)).drop_nulls("joint"))
    together = (
        pl.concat(ends)
        .group_by("joint")
        .agg(pl.col("last_ns").max(), pl.col("rank").min(), last=pl.col("rank").max())
    )
    together = together.filter(pl.col("rank") < pl.col("last")).sort("last_ns")
    joints = [
        (at, places[first][0], places[last][-1])
        for at, first, last in together.select("last_ns", "rank", "last").iter_rows()
        if first in places and last in places
    ]
    lit = np.bitwise_or.reduce(
        [mark for row in rows for mark in row.items["marks"].drop_nulls().unique()], initial=0
    )
    marks = [id if lit >> bit & 1 else "" for bit, id in enumerate(marks)]  # which has no button
    return TimeLine(
        rows, joints, marks, note="Lines connect a collective across ranks when the last rank arrives."
    )
