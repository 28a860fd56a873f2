"""Changes to a job: those of a program on some or all ranks, and those of what the ranks do together."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.collectives import Fabric
from busfare.cost.kernels.limits import limits_of
from busfare.errors import InputError
from busfare.jobs.model import JobTimeline, places, places_of
from busfare.jobs.state import JobChange, JobState, kinds_and_sizes, no_stragglers, priced_on, transfer_model
from busfare.nodes import FloatArray, Node
from busfare.questions import WhatIf
from busfare.statements import statement
from busfare.timeline import Timeline
from busfare.timeline.changes import Change, Setting, changes_of
from busfare.timeline.model import ACT, WAIT, NoMatchError
from busfare.trace import Trace

NS = 1e-9
#: What is asked of several ranks.
OF_SEVERAL = {"rank", "no_stragglers", "bucket", "collective_bytes", "ranks"}


def on_ranks(change: Change, setting: Setting, ranks: Sequence[int] | None) -> JobChange:
    """A program's change on these ranks, or on all. On another node collectives take what its links make of them."""

    def apply(state: JobState) -> JobState:
        timelines, done, unmatched, matched = list(state.timelines), state, None, False
        for number, (part, run) in enumerate(zip(state.job.parts, state.timelines, strict=True)):
            if ranks is not None and not set(ranks) & set(part.ranks):
                continue
            try:
                applied = change.apply(run, replace(setting, kernel_time=state.kernel_time))
            except NoMatchError as error:  # on this rank
                unmatched = error
            else:
                matched, timelines[number] = True, applied.timeline
                done = done.within(number, applied)
        if unmatched and not matched:
            raise unmatched
        done = replace(done, timelines=timelines)
        if change.node is not None and setting.recorded_on is not None:
            done = _on_fabric(done, setting.recorded_on, change.node)
        return done

    title = change.title
    if ranks is not None:
        some = tuple(map(str, ranks))
        title = statement(f"change.on-rank{'s' * (len(some) > 1)}", change=title, ranks=some)
    return JobChange(change.kind, title, apply, change.node)


def _on_fabric(state: JobState, here: Node, there: Node) -> JobState:
    """Transfers by the ratio of what both nodes' links make of them; as recorded where one of them is not known to."""
    size = state.job.size
    try:
        fabrics = [Fabric.of(node, size) for node in (here, there)]
    except InputError as error:
        kept = statement("assumes.collectives-kept", why=str(error))
        return replace(state, rests_on=[*state.rests_on, kept])
    before, after = (priced_on(state.job, fabric) for fabric in fabrics)
    priced = np.isfinite(before) & np.isfinite(after) & (before > 0)
    return replace(state, transfer_ns=state.transfer_ns * _ratio(after, before, priced))


def _ratio(after: FloatArray, before: FloatArray, priced: NDArray[np.bool_]) -> FloatArray:
    """after/before for the members in `priced`, 1 for the others."""
    return np.divide(after, before, out=np.ones(len(priced)), where=priced)


def collective_bytes(factor: float, node: Node | None) -> JobChange:
    """Collectives carry so many times their bytes; what is less is packed before and unpacked behind."""

    def apply(state: JobState) -> JobState:
        kinds, sizes = kinds_and_sizes(state.job)
        seconds = transfer_model(state.job, node)
        ratio = np.ones(len(sizes))
        for kind in set(kinds):
            rows = np.flatnonzero((np.array(kinds) == kind) & np.isfinite(sizes) & (sizes > 0))
            if len(rows):
                ratio[rows] = seconds(kind, sizes[rows] * factor) / seconds(kind, sizes[rows])
        transfer, memory_rate = state.transfer_ns * ratio, None
        if node is not None and factor < 1:
            with suppress(InputError):
                memory_rate = limits_of(node).memory
        rests_on = statement("assumes.packing-free")
        if memory_rate:
            # Read whole and written small before it, and the reverse behind it.
            transfer += np.nan_to_num(2 * (1 + factor) * sizes / memory_rate / NS)
            rests_on = statement("assumes.packing-at-memory-rate")
        return replace(state, transfer_ns=transfer).touched(
            int(np.isfinite(sizes).sum()), rests_on, bytes=int(np.nansum(sizes))
        )

    return JobChange("collective_bytes", statement("change.collective-bytes", factor=factor), apply)


def bucket(size: int, node: Node | None) -> JobChange:
    """All-reduces that follow each other are joined up to `size` bytes, larger ones are divided."""

    def apply(state: JobState) -> JobState:
        job, seconds = state.job, transfer_model(state.job, node)
        joints = (
            job.members.drop_nulls("joint").filter(pl.col("collective_kind") == "all_reduce").drop_nulls("bytes")
            .group_by("joint", "communicator", "members")
            .agg(pl.col("bytes").max(), last=pl.col("start_ns").max(), ranks=pl.col("rank").n_unique())
            .sort("last")
        )  # fmt: skip
        barrier = _boundaries(job)
        transfer, gone = state.transfer_ns.copy(), state.gone.copy()
        matched = job.members.with_row_index("row").drop_nulls("joint").group_by("joint").agg("row")
        rows_of = {joint: rows.to_numpy() for joint, rows in zip(*matched, strict=True)}
        touched = carried = 0
        for _, group in joints.group_by("communicator", "members", maintain_order=True):
            for held in _buckets(list(group.select("joint", "bytes").iter_rows()), size, rows_of, barrier):
                whole, last = sum(joint_bytes for _, joint_bytes in held), held[-1]
                pieces = [size] * (whole // size) + [whole % size] * (whole % size > 0)
                pieces = [whole] if len(held) > 1 else pieces
                if len(held) == len(pieces) == 1:
                    continue
                after, before = (
                    seconds("all_reduce", np.array(some, float)).sum() for some in (pieces, last[1:])
                )
                rows = rows_of[last[0]]
                transfer[rows] = np.maximum(transfer[rows] + (after - before) / NS, 0.0)
                for emptied, _ in held[:-1]:
                    gone[rows_of[emptied]] = True
                touched, carried = touched + len(held), carried + whole
        return replace(
            state, transfer_ns=transfer, gone=gone, timelines=_fewer_launches(state, gone & ~state.gone)
        ).touched(touched, statement("assumes.joined-start"), bytes=carried)

    return JobChange("bucket", statement("change.bucket", bytes=size), apply)


def _fewer_launches(state: JobState, gone: NDArray[np.bool_]) -> list[Timeline]:
    """Each part's timeline, its host without the launches of the members `gone`."""
    members, timelines = state.job.members, []
    part, is_call = members["part"].to_numpy(), members["is_call"].to_numpy()
    node = places(members, state.job.parts, state.timelines)
    for number, run in enumerate(state.timelines):
        mine = (part == number) & ~is_call & (node >= 0)
        carries = np.zeros(len(run.columns["operation_call"]), bool)
        carries[node[mine]] = True
        timelines.append(without_launches(run, carries, node[mine & gone]) if (mine & gone).any() else run)
    return timelines


def without_launches(run: Timeline, carries: NDArray[np.bool_], gone: NDArray[np.int64]) -> Timeline:
    """`run` whose host no longer launches the operations `gone`, of those that carry data between ranks (`carries`, shape
    (operations,)).

    A library records events, checks and prepares around such a launch: all that its thread does since the launch before,
    and until the next, but for what usually lies between two other launches.
    """
    columns = run.columns
    gap, call_ns = columns["call_gap"].copy(), columns["call_own"].copy()
    launched = columns["operation_launched"] != 0
    kind = np.zeros(len(call_ns), np.uint8)  # 1: launches; 2: launches a carrier; 3: no longer does
    for value, rows in ((1, launched), (2, launched & carries), (3, gone[launched[gone]])):
        kind[columns["operation_call"][rows]] = value
    start, end = (run.calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    thread = columns["call_thread"]
    for number in np.unique(thread[kind == 3]):
        calls = np.flatnonzero(thread == number)
        launches = np.flatnonzero(kind[calls])
        first, second = calls[launches[:-1]], calls[launches[1:]]
        between = (start[second] - end[first])[(kind[first] == 1) & (kind[second] == 1)]
        usual = int(np.median(between)) if len(between) else 0
        for before, at, after in zip(
            [-1, *launches[:-1]], launches, [*launches[1:], len(calls)], strict=True
        ):
            if kind[calls[at]] != 3:
                continue
            mine = calls[before + 1 : at + 1]
            last = after < len(calls) and kind[calls[after]] == 1
            if last:  # what follows is its own, too
                mine = np.concatenate([mine, calls[at + 1 : after]])
            gap[mine] = call_ns[mine] = 0
            if last:
                gap[calls[after]] = min(gap[calls[after]], usual)
    return run.with_columns(call_gap=gap, call_own=call_ns)


def _buckets(
    joints: list[tuple[int, int]],
    size: int,
    rows_of: dict[int, NDArray[np.int64]],
    barrier: Callable[..., bool],
) -> list[list[tuple[int, int]]]:
    """`joints` (number and bytes) of a communicator in their order, those together that `size` holds and nothing parts."""
    buckets: list[list[tuple[int, int]]] = []
    for joint in joints:
        held = buckets[-1] if buckets else []
        fits = 0 < sum(joint_bytes for _, joint_bytes in held) < size
        if fits and not barrier(rows_of[held[-1][0]], rows_of[joint[0]]):
            held.append(joint)
        else:
            buckets.append([joint])
    return buckets


def _boundaries(job: JobTimeline) -> Callable[[NDArray[np.int64], NDArray[np.int64]], bool]:
    """Whether, between the launches of two joints (rows of members), a host thread waits, or work waits for a collective:
    what the first brings is needed before the second begins.
    """
    node, part = job.members["node"].to_numpy(), job.members["part"].to_numpy()
    is_call = job.members["is_call"].to_numpy()
    barriers = []
    for number, job_part in enumerate(job.parts):
        columns = job_part.timeline.columns
        streams = np.unique(columns["operation_stream"][node[(part == number) & ~is_call]])
        computing = np.setdiff1d(columns["operation_stream"], streams)
        recorded = (columns["call_act"] == ACT["record"]) & np.isin(columns["call_act_stream"], streams)
        awaited = (columns["call_act"] == ACT["wait"]) & np.isin(columns["call_act_stream"], computing)
        awaited &= np.isin(columns["call_act_event"], columns["call_act_event"][recorded])
        barriers.append(np.flatnonzero(awaited | (columns["call_wait"] != WAIT["none"])))

    def between(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
        row = int(first[0])
        partners = [int(member) for member in second if part[member] == part[row]]
        if is_call[row] or not partners:
            return True
        launched = job.parts[part[row]].timeline.columns["operation_call"]
        begin, end = launched[node[row]], launched[node[partners[0]]]
        calls = barriers[part[row]]
        return bool(np.searchsorted(calls, begin, side="right") < np.searchsorted(calls, end, side="left"))

    return between


def overlap() -> JobChange:
    """Collectives run beside everything else."""

    def apply(state: JobState) -> JobState:
        kernels = int((~state.job.members["is_call"] & state.job.members["joint"].is_not_null()).sum())
        rests_on = [statement("assumes.collectives-late")]
        rests_on += [statement("assumes.alone")] * (len(state.job.ranks) == 1)
        return replace(state, overlapped=True).touched(kernels, *rests_on)

    return JobChange("overlap_collectives", statement("change.overlap-collectives"), apply)


def more_ranks(wanted: int, node: Node | None) -> JobChange:
    """A data-parallel job of `wanted` ranks, the new ones copies of those recorded."""

    def apply(state: JobState) -> JobState:
        job = state.job
        size = len(job.ranks)
        if any(len(part.ranks) > 1 for part in job.parts):
            raise InputError(
                "`ranks`: several ranks share a process; record the job with one process per rank"
            )
        if node is None:
            raise InputError("`ranks` needs the node where the job ran: give it with `recorded_on`")
        most, counts = len(node.gpus()), (job.size, wanted)
        # On the fewest equal nodes that hold them.
        hosts = (next(n for n in range(1, c + 1) if c % n == 0 and c // n <= most) for c in counts)
        here, there = (Fabric.of(node, c, hosts=n) for c, n in zip(counts, hosts, strict=True))
        before, after = priced_on(job, here), priced_on(job, there)
        of_all = job.members.select(pl.col("rank").n_unique().over("joint") == size)
        whole = of_all.to_series().fill_null(False).to_numpy()
        priced = np.isfinite(before) & np.isfinite(after) & whole
        if not priced.any():
            raise InputError(
                "`ranks`: no collective of all ranks has recorded bytes; there is nothing to extrapolate"
            )
        rests_on = [statement("assumes.weak-scaling", ranks=wanted, recorded=size, node=node.name)]
        joint = job.members["joint"]
        if kept := joint.filter(~pl.Series(priced)).drop_nulls().n_unique():
            every = joint.drop_nulls().n_unique()
            rests_on.append(statement("assumes.groups-kept", kept=kept, count=every))
        transfer = state.transfer_ns * _ratio(after, before, priced)
        source = [n % size for n in range(wanted)]
        frames = [
            job.members.with_row_index("was").filter(pl.col("part") == part).with_columns(
                part=pl.lit(number, pl.Int64), rank=pl.lit(number, pl.Int64),
                # A communicator of some ranks is that of each copy of them.
                joint=pl.when(pl.Series(whole[(job.members["part"] == part).to_numpy()])).then("joint").otherwise(
                    pl.col("joint") + (1 << 40) * (number // size + 1)),
            )
            for number, part in enumerate(source)
        ]  # fmt: skip
        members = pl.concat(frames)
        was = members["was"].to_numpy()
        members = members.with_columns(joint=pl.col("joint").rank("dense").cast(pl.Int64) - 1)
        ranks = [msgspec.structs.replace(job.ranks[m], rank=n, clock=n) for n, m in enumerate(source)]
        unplaced = [msgspec.structs.replace(rank, host=None) for rank in ranks]
        alone = [(state.timelines[m], [rank]) for m, rank in zip(source, unplaced, strict=True)]
        made = replace(
            job,
            ranks=ranks,
            size=wanted,
            stands_for=np.ones(wanted),
            parts=[replace(job.parts[m], clock=n, ranks=(n,)) for n, m in enumerate(source)],
            members=members.drop("was"),
            transfer_ns=job.transfer_ns[was],
            starts_ns=job.starts_ns[source],
            bases_ns=job.bases_ns[source],
            # The new ranks fill nodes as the recorded ones may not have.
            places=places_of(alone, node, apart=True),
            links=None,
        )
        return replace(
            state,
            job=made,
            crowd=None,
            timelines=[state.timelines[m] for m in source],
            transfer_ns=transfer[was],
            gone=state.gone[was],
        ).touched(wanted, *rests_on)

    return JobChange("ranks", statement("change.ranks", count=wanted), apply)


def is_job(trace: Trace) -> bool:
    """Whether a trace of several processes says that they are ranks of a job: what one does changes the others."""
    return len(trace.host.get("ranks", "").split()) > 1


def job_changes_of(question: WhatIf, job: JobTimeline, setting: Setting) -> list[JobChange]:
    """The changes asked for: those of a program first. Raises InputError for a rank that the job has not."""
    node, ranks = setting.recorded_on, list(question.rank) or None
    numbers = sorted(rank.rank for rank in job.ranks)
    if ranks and (unknown := set(ranks).difference(numbers)):
        listed = ", ".join(map(str, numbers[:8])) + (f", … {numbers[-1]}" if len(numbers) > 8 else "")
        raise InputError(f"`rank` {min(unknown)}: the job has ranks {listed}")
    if len(job.ranks) == 1 and (not question.overlap_collectives or OF_SEVERAL & question.given().keys()):
        raise InputError(
            f"{job.ranks[0].path}: one rank's trace does not show how long it waits for others: of changes to a job, only "
            "`overlap_collectives` applies; give the folder of all ranks' traces"
        )
    changes = [on_ranks(change, setting, ranks) for change in changes_of(question, node)]
    changes += [*[no_stragglers()] * question.no_stragglers, *[overlap()] * question.overlap_collectives]
    if question.bucket is not None:
        changes.append(bucket(question.bucket, node))
    if question.collective_bytes is not None:
        changes.append(collective_bytes(question.collective_bytes, node))
    if question.ranks is not None:
        changes.append(more_ranks(question.ranks, node))
    return changes
