"""A job of ranks: the timelines of its processes, who communicates, and all of it as one timeline that plays."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.jobs.ranks import Rank
from busfare.nodes import FloatArray, Node
from busfare.timeline.build.links import alone, link_columns, shared_links
from busfare.timeline.build.work import before_in
from busfare.timeline.engine import core_columns
from busfare.timeline.model import ACT, NON_BLOCKING, WAIT, Columns, SharedLinks, Timeline, Times, typed
from busfare.trace import Omission
from busfare.trace.tables import CALLS

Rows = NDArray[np.int64]
#: What columns of rows refer to, and so by how much they are moved when a rank stands behind others.
REFERS = {
    "call_thread": "threads", "call_after": "calls", "call_act_stream": "streams", "call_act_event": "events",
    "operation_call": "calls", "operation_stream": "streams", "operation_engine": "engines",
    "operation_after": "operations", "stream_device": "devices", "stream_context": "contexts",
}  # fmt: skip
#: What the key of a waiting call is a number of.
KEYS = {"stream": "streams", "device": "devices", "event": "events", "given": "operations"}

#: The host of a part, a number, and the GPU of the node that each device of its trace is.
Place = tuple[int, dict[int, int]]


@dataclass(frozen=True)
class Part:
    """The ranks of one process: their timeline, and the row of its trace that each of its operations is of."""

    clock: int
    process: int | None
    ranks: tuple[int, ...]
    timeline: Timeline
    rows: Rows


@dataclass(frozen=True)
class JobTimeline:
    """The parts of a job, and their communication. `members`: columns of MEMBERS with joint, last_ns and shift_ns, all times
    by one clock, with `part` and `node`: the row of that part's operations, or of its calls if `is_call`.

    `relieved_by`, `relieved_ns`: the joint whose receiver made room for a send that ended before its own receiver came, and
    when. `transfer_ns`: transfer time of each member, shape (members,). `starts_ns`: start of each part. `bases_ns`: offset
    from times of the trace to times of members, before the clocks were aligned. `places`: where each part runs. `links`:
    what copies share there. `size`: number of ranks of the whole job, also if only some are here. `stands_for`: number of
    ranks that each part represents, shape (parts,). `left_out`: missing traces.
    """

    ranks: list[Rank]
    parts: list[Part]
    members: pl.DataFrame
    transfer_ns: Rows
    starts_ns: Rows
    bases_ns: Rows
    recorded_ns: int
    size: int
    stands_for: FloatArray
    places: list[Place] | None = None
    links: SharedLinks | None = None
    left_out: tuple[Omission, ...] = ()


def together(
    job: JobTimeline,
    changed: Sequence[Timeline] | None = None,
    transfer_ns: NDArray[Any] | None = None,
    gone: NDArray[np.bool_] | None = None,
    overlapped: bool = False,
) -> Timeline:
    """The whole job as one timeline: its parts as recorded, or `changed`, optionally with other transfers, shape (members,),
    ns. Members in `gone` take no time and do not wait. `overlapped`: kernels do not wait for collectives.
    """
    timelines = [part.timeline for part in job.parts] if changed is None else list(changed)
    transfers = job.transfer_ns if transfer_ns is None else transfer_ns
    offsets: dict[str, list[int]] = {name: [0] for name in (*set(REFERS.values()), "events")}
    gathered: list[Columns] = []
    for run, start in zip(timelines, job.starts_ns, strict=True):
        part_columns = core_columns(replace(run, links=None, node=None))
        now = {name: values[-1] for name, values in offsets.items()}
        for name, size in _sizes(part_columns).items():
            offsets[name].append(now[name] + size)
        gathered.append(_moved(part_columns, now, int(start)))
    columns = {name: np.concatenate([of_part[name] for of_part in gathered]) for name in gathered[0]}
    left = np.zeros(job.members.height, bool) if gone is None else gone
    columns |= _joints(job, timelines, columns, offsets, transfers, left)
    if overlapped:
        columns |= _without_collective_waits(columns)
    columns = typed(columns)
    nodes = {id(run.node) for run in timelines}
    columns_of = [run.operations.columns for run in timelines]
    names = [name for name in columns_of[0] if all(name in of_run for of_run in columns_of)]
    named = np.cumsum([0, *(len(run.call_names) for run in timelines)])
    call_name = np.concatenate([run.call_name + first for run, first in zip(timelines, named, strict=False)])
    whole = Timeline(
        trace=timelines[0].trace,
        origin_ns=0,
        recorded_ns=job.recorded_ns,
        columns=columns,
        operations=pl.concat([run.operations.select(names) for run in timelines]),
        calls=pl.concat([run.calls.select(list(CALLS)) for run in timelines]),
        call_name=call_name.astype(np.uint32),
        call_names=[name for run in timelines for name in run.call_names],
        usual_order_ns=timelines[0].usual_order_ns,
        omissions=[omission for run in timelines for omission in run.omissions],
        node=timelines[0].node if len(nodes) == 1 else None,
    )
    if job.places is None or whole.node is None:
        return whole
    recorded = job.links if whole.node is job.parts[0].timeline.node else None
    sizes = [run.operations.height for run in timelines]
    return whole.with_columns(**linked(whole, sizes, job.places, recorded))


def _sizes(columns: Columns) -> dict[str, int]:
    """How many things of each sort the columns of one part number."""
    events = columns["call_wait_key"][columns["call_wait"] == WAIT["event"]]
    return {
        "threads": _count(columns["call_thread"]),
        "calls": len(columns["call_own"]),
        "streams": len(columns["stream_kind"]),
        "events": max(_count(columns["call_act_event"]), _count(events)),
        "engines": len(columns["engine_slots"]),
        "operations": len(columns["operation_duration"]),
        "devices": _count(columns["stream_device"]),
        "contexts": _count(columns["stream_context"]),
    }


def _count(numbers: NDArray[Any]) -> int:
    return int(numbers.max()) + 1 if len(numbers) else 0


def _moved(columns: Columns, by: dict[str, int], start_ns: int) -> Columns:
    """The columns of a part with its numbers behind those of others, from `start_ns` on."""
    moved = dict(columns)
    for name, things in REFERS.items():
        numbers = columns[name].astype(np.int64)
        moved[name] = np.where(numbers >= 0, numbers + by[things], numbers)
    key = columns["call_wait_key"].astype(np.int64)
    for kind, things in KEYS.items():
        key = np.where((columns["call_wait"] == WAIT[kind]) & (key >= 0), key + by[things], key)
    first = (before_in(columns["call_thread"]) < 0) & (columns["call_after"] < 0)
    # What no call of its own part comes before stands behind the part before: nothing launched it.
    call = moved["operation_call"]
    return moved | {
        "call_wait_key": key,
        "call_gap": columns["call_gap"] + np.where(first, start_ns, 0),
        "operation_call": np.where(columns["operation_call"] < 0, by["calls"] - 1, call),
        "operation_released": columns["operation_released"] + start_ns,
        "operation_turn": columns["operation_turn"] + start_ns,
    }


def _joints(
    job: JobTimeline,
    timelines: Sequence[Timeline],
    columns: Columns,
    offsets: dict[str, list[int]],
    transfers: NDArray[Any],
    gone: NDArray[np.bool_],
) -> Columns:
    """Columns of the joints, and those that members have otherwise: they take their transfer alone, and no engine."""
    members = job.members
    calls, operations = offsets["calls"], offsets["operations"]
    node = places(members, job.parts, timelines)
    part, is_call = members["part"].to_numpy(), members["is_call"].to_numpy()
    row = node + np.where(is_call, np.array(calls)[part], np.array(operations)[part])
    there = (node >= 0) & members["joint"].is_not_null().to_numpy() & ~gone
    arrives = np.where(is_call, row, row + calls[-1])
    joint = members["joint"].fill_null(-1).to_numpy().copy()
    kind = members["collective_kind"].cast(pl.String).fill_null("").to_numpy()
    send, receive = kind == "send", kind == "receive"
    start, end = members["start_ns"].to_numpy(), members["end_ns"].to_numpy()
    # A message arrives when it is sent; who sends waits for the receiver only where it did.
    joints = int(joint.max()) + 1
    received = np.full(joints, np.iinfo(np.int64).max)
    received[joint[receive & there]] = start[receive & there]
    awaits = np.where(send, joints + joint, joint)
    relieved = members["relieved_by"].fill_null(-1).to_numpy()
    awaits = np.where(send & (relieved >= 0), joints + relieved, awaits)
    awaits[~there | (send & (relieved < 0) & (end < received[np.maximum(joint, 0)]))] = -1
    comes = np.where(receive, joints + joint, joint)
    rows = np.flatnonzero(there & ~members["ended"].fill_null(False).to_numpy())
    rows = rows[np.argsort(comes[rows], kind="stable")]
    begin = np.searchsorted(comes[rows], np.arange(2 * joints + 1))
    waiting = {"call": np.full(calls[-1], -1, np.int32), "operation": np.full(operations[-1], -1, np.int32)}
    kept = ("call_own", "operation_duration", "operation_engine")
    call_ns, duration, engine = (columns[name].copy() for name in kept)
    # Of messages that one call waits for, the last that came counts.
    late = np.argsort(members["last_ns"].fill_null(0).to_numpy(), kind="stable")
    for table, some in (("call", is_call), ("operation", ~is_call)):
        last = late[(some & (awaits >= 0))[late]]
        waiting[table][row[last]] = awaits[last]
    call_ns[row[gone & is_call & (node >= 0)]] = duration[row[gone & ~is_call & (node >= 0)]] = 0
    last = late[(is_call & (awaits >= 0))[late]]
    call_ns[row[last]] = np.rint(transfers[last])
    chosen = ~is_call & (awaits >= 0)
    # Kernels that a change makes slower or faster; the slowest of a collective's decides.
    stretch = np.zeros(2 * joints)
    np.maximum.at(stretch, awaits[chosen], duration[row[chosen]] / np.maximum(end - start, 1)[chosen])
    duration[row[chosen]] = np.rint(transfers[chosen] * stretch[awaits[chosen]])
    engine[row[chosen]] = -1
    return {
        "call_own": call_ns,
        "operation_duration": duration,
        "operation_engine": engine,
        "call_awaits": waiting["call"],
        "operation_awaits": waiting["operation"],
        "joint_begin": begin.astype(np.int64),
        "joint_members": arrives[rows].astype(np.int32),
    }


def _without_collective_waits(columns: Columns) -> Columns:
    """Columns of a job in which no kernel waits for a collective: neither for events behind one, nor in one's stream."""
    stream, carries = columns["operation_stream"], columns["operation_awaits"] >= 0
    carriers, computing = np.unique(stream[carries]), np.unique(stream[~carries])
    mixed, alone = np.intersect1d(carriers, computing), np.setdiff1d(carriers, computing)
    recorded = (columns["call_act"] == ACT["record"]) & np.isin(columns["call_act_stream"], alone)
    behind = np.isin(columns["call_act_event"], columns["call_act_event"][recorded])
    waits = (columns["call_act"] == ACT["wait"]) & behind & ~np.isin(columns["call_act_stream"], alone)
    # Where both share a stream, collectives go on in one of their own, each behind what was before it.
    moved = carries & np.isin(stream, mixed)
    new = len(columns["stream_kind"]) + np.searchsorted(mixed, stream)
    apart = moved & (columns["operation_after"] < 0)
    shared = {
        f"stream_{name}": np.append(columns[f"stream_{name}"], columns[f"stream_{name}"][mixed])
        for name in ("device", "context")
    }
    return shared | {
        "call_act": np.where(waits, ACT["none"], columns["call_act"]),
        "operation_stream": np.where(moved, new, stream),
        "operation_after": np.where(apart, before_in(stream), columns["operation_after"]),
        "stream_kind": np.append(columns["stream_kind"], np.full(len(mixed), NON_BLOCKING)),
    }


def places(members: pl.DataFrame, parts: Sequence[Part], timelines: Sequence[Timeline]) -> Rows:
    """Where each member is in its part's timeline now, -1 where it is gone; shape (members,)."""
    node = members["node"].to_numpy().copy()
    part, is_call = members["part"].to_numpy(), members["is_call"].to_numpy()
    for number, (job_part, run) in enumerate(zip(parts, timelines, strict=True)):
        if run is job_part.timeline:
            continue
        chosen = np.flatnonzero((part == number) & ~is_call)
        node[chosen] = places_in(job_part.timeline, run)[node[chosen]]
    return node


def places_in(run: Timeline, changed: Timeline) -> Rows:
    """Where each operation of `run` is in `changed`, by the rows of their trace, the first of several; -1: nowhere."""
    rows, there = (frame.operations["row"].to_numpy().astype(np.int64) for frame in (run, changed))
    place = np.full(max(rows.max(initial=-1), there.max(initial=-1)) + 1, -1)
    place[there[::-1]] = np.arange(len(there))[::-1]
    return np.asarray(place[rows])


def places_of(
    parts: Sequence[tuple[Timeline, Sequence[Rank]]], node: Node | None, apart: bool
) -> list[Place] | None:
    """Where each part, with its ranks, runs; None where the node is not known.

    Ranks whose traces name no host are taken to fill one node after the other. `apart`: no two ranks share a GPU, as NCCL
    demands; processes that call theirs by the same number then have one each, in their order.
    """
    if node is None or not parts:
        return None
    gpus = len(node.gpus())
    names = [next((rank.host for rank in ranks if rank.host), None) for _, ranks in parts]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name in names if name))}
    devices = [run.operations["device"].drop_nulls().unique().sort().to_list() for run, _ in parts]
    hosts = [
        numbers[name] if name else len(numbers) + min((rank.rank for rank in ranks), default=0) // gpus
        for name, (_, ranks) in zip(names, parts, strict=True)
    ]
    users = Counter((host, device) for host, used in zip(hosts, devices, strict=True) for device in used)
    taken: Counter[int] = Counter()
    part_places = []
    for host, used in zip(hosts, devices, strict=True):
        same = apart and any(users[host, device] > 1 for device in used)
        gpu_of = {device: taken[host] + at if same else device for at, device in enumerate(used)}
        part_places.append((host, gpu_of))
        taken[host] += len(used)
    return part_places


def linked(
    run: Timeline, sizes: Sequence[int], places: Sequence[Place], links: SharedLinks | None = None
) -> Columns:
    """Columns of what the copies of `run` share, a job's timeline of parts of so many operations; none of none.
    `links`: as a recording showed them, where it still runs on that machine.
    """
    operations = _placed(run.operations, sizes, places)
    if links is None and run.node is not None:
        links = shared_links(operations, run.node)
    return {} if links is None else link_columns(links, operations, run.columns)


def calibrated(
    run: Timeline, sizes: Sequence[int], places: Sequence[Place], starts: Times, ends: Times
) -> tuple[SharedLinks, Columns] | None:
    """The links of `run`, which was recorded to `starts` and `ends` (ns, shape (operations,)), as that shows them, and
    `operation_duration` and `operation_demand` with the links for itself. None where nothing is shared.
    """
    operations = _placed(run.operations, sizes, places)
    if run.node is None or (links := shared_links(operations, run.node)) is None:
        return None
    shares = link_columns(links, operations, run.columns)["operation_bytes_per_s"] > 0
    links, columns = alone(links, run.columns, operations, {"operation_start": starts, "operation_end": ends})
    recorded_duration = run.columns["operation_duration"]
    return links, {
        "operation_duration": np.where(shares, columns["operation_duration"], recorded_duration),
        "operation_demand": columns["operation_demand"],
    }


def _placed(operations: pl.DataFrame, sizes: Sequence[int], places: Sequence[Place]) -> pl.DataFrame:
    """`operations` with their hosts, and with devices as the node numbers them."""
    part = pl.Series("part", np.repeat(np.arange(len(sizes)), sizes))
    numbers = [
        {"part": number, "device": device, "gpu": gpu}
        for number, (_, gpus) in enumerate(places)
        for device, gpu in gpus.items()
    ]
    table = pl.DataFrame(numbers, schema={"part": pl.Int64, "device": pl.Int64, "gpu": pl.Int64})
    frame = operations.with_columns(
        pl.col("device", "peer_device").cast(pl.Int64),
        part=part.cast(pl.Int64),
        host=part.replace_strict(dict(enumerate(host for host, _ in places)), return_dtype=pl.Int64),
    )
    for name in ("device", "peer_device"):
        numbered = table.rename({"device": name})
        frame = frame.join(numbered, on=["part", name], how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("gpu", name).alias(name)).drop("gpu")
    return frame
