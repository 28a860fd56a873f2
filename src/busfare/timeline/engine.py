"""A timeline played: when everything happens, what the time is spent on, and the recorder's cost, taken out where known."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from busfare.timeline import _core
from busfare.timeline.build.links import link_columns
from busfare.timeline.edit import host_slowed, with_durations
from busfare.timeline.model import BEHIND_NS, NO_LINKS, WAIT, Columns, Timeline, Times, staged
from busfare.trace.lanes import Union
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import CLASSES, GRAPH_LAUNCH, Words, kind_codes

NS = 1e-9
Nodes = NDArray[np.int32]
TIMES_OF_PLAY = ("call_start", "call_end", "operation_start", "operation_end")
#: Parts of the critical path, as the core numbers them; an `operation` is named by its kind.
STEPS = ("operation", "launch", "queue", "unexplained", "host", "call", "wake-up")
#: A thread that waited is back within this; longer, and it waited for something else. Nanoseconds.
LONGEST_WAKE_UP_NS = 1_000_000
UNEXPLAINED, COMMUNICATION = "unexplained waits", "communication"
IN_CALLS = "CPU time in API calls"
START_UP = "start-up"
#: Steps of the critical path as people read them.
PARTS = {
    "kernel": "kernels", "graph": "kernels", "communication": "communication", "copy": "copies",
    "migration": "copies", "set": "memory sets", "launch": "launches", "queue": "gaps between operations",
    "unexplained": UNEXPLAINED, "host": "CPU time between API calls", "call": IN_CALLS,
    "wake-up": "CPU wake-up",
}  # fmt: skip
#: Those during which a GPU limits the run; the host is busy with copies, too.
OF_GPUS = ("kernels", "communication", "gaps between operations")
#: Those during which the host works, or is to be told that something has ended.
OF_HOST = ("launches", "CPU time between API calls", IN_CALLS, "CPU wake-up", START_UP)
PART_NAMES = tuple(dict.fromkeys([*PARTS.values(), START_UP, "other"]))
#: No recorder takes longer over a call than this; what is left to explain is then something else. Nanoseconds.
MOST_NS = 30_000
#: What a call takes in any case, where it took longer under the recorder. Nanoseconds.
LEAST_CALL_NS = 500
#: Recording the launch of a graph costs so many times what a kernel's does, and so much more with each node: 3.4 µs with
#: one node, 12 with 6, 36 with 24 and 139 with 96, where a kernel's costs 0.9 (results/recorder, -graphs.json).
GRAPH_TIMES, NODE_TIMES = 4.0, 1.3
#: Recording a call costs 0.7 to 1.4 µs in loops and up to 4 in PyTorch's steps (results/recorder). Nanoseconds.
LEAST_RECORDING_NS, MOST_RECORDING_NS = 1_000, 4_000
#: Where copies that the host stages take this part of the run, two processes differ by how fast it stages.
STAGING_SHARE = 0.1
#: By so much at most: 1.3 times from one process to the next in unrecorded runs (results/pairs, video_edges).
MOST_SLOWDOWN = 0.3
#: Steps of the search for the slowdown of the host, per factor of 1.
SLOWDOWN_STEPS = 10_000
#: By so much at most a gap on the GPU is longer for the recorder: recordings of the same program with and without one
#: differ by 1 to 2.5 µs an operation where the GPU is never idle for the host (results/unseen, tone_map). Nanoseconds.
MOST_GAP_NS = 3_000


@dataclass(frozen=True)
class Played:
    """Start and end of every call and operation, ns from the start of the run; `path`: its critical path, if asked for."""

    timeline: Timeline
    call_start: Times
    call_end: Times
    operation_start: Times
    operation_end: Times
    makespan_ns: int
    path: Columns = field(default_factory=dict)

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_ns * NS


class PathPart(msgspec.Struct, frozen=True):
    """A part of the critical path: its name, its seconds, and its share of the whole."""

    part: str
    seconds: float
    share: float


def play(timeline: Timeline, path: bool = False) -> Played:
    """Plays `timeline`, with its critical path if `path`; Ctrl-C stops it."""
    times = _core.play(core_columns(timeline), path=path)
    makespan_ns = int(times.pop("makespan"))
    starts_and_ends = {name: times.pop(name) for name in TIMES_OF_PLAY}
    return Played(timeline, makespan_ns=makespan_ns, path=times, **starts_and_ends)


@dataclass(frozen=True)
class Decided:
    """What decided how long a run takes. Of each step of its critical path, in order of time and shape (steps,): its part
    (a place in PART_NAMES), whose it is (a row of the operations, or number of operations + a row of the calls), when it
    is (ns from the start of the run), and what of it is in own calls, unexplained, start-up and communication (ns).

    `bound_by`: what had to end for each of so many `calls` to return and for each operation to start, as the core numbers
    nodes.
    """

    parts: NDArray[np.uint8]
    whose: Nodes
    starts: Times
    ends: Times
    in_calls: Times
    unexplained: Times
    startup: Times
    communication: Times
    calls: int
    bound_by: tuple[Nodes, Nodes]

    @property
    def after(self) -> tuple[Nodes, Nodes]:
        """The operation that had to end for each call to return, for each operation to start; -1 where it is none."""
        of_calls, of_operations = (np.maximum(by - np.int32(self.calls), -1) for by in self.bound_by)
        return of_calls, of_operations

    @property
    def shown(self) -> NDArray[np.uint8]:
        """The part that most of each step is, where a step is drawn as one."""
        lengths = self.ends - self.starts
        shown = self.parts
        for name, part in self.apart.items():
            shown = np.where(2 * part > lengths, np.uint8(PART_NAMES.index(name)), shown)
        return shown

    @property
    def apart(self) -> dict[str, Times]:
        """What of each step counts as another part than its own, by that part's name; ns."""
        apart = {IN_CALLS: self.in_calls, UNEXPLAINED: self.unexplained, START_UP: self.startup}
        return apart | {COMMUNICATION: self.communication}


def decided(run: Timeline | Played) -> Decided:
    """What decides the length of `run`, which is played for it unless it was played with its critical path. Time in calls
    that wait, while the GPU works and nothing says what for, counts as unexplained.
    """
    played = run if isinstance(run, Played) else play(run, path=True)
    timeline, path = played.timeline, played.path or play(played.timeline, path=True).path
    calls, operations = timeline.calls.height, timeline.operations.height
    lengths, rows = path["path_end"] - path["path_start"], path["path_row"]
    step = path["path_step"].copy()
    unexplained = _unexplained_in_calls(timeline, step, rows, lengths)
    in_calls = _in_launching_calls(timeline, step, rows, lengths)
    communication, waited_for = _behind_communication(timeline, step, rows, lengths)
    communication = np.minimum(communication, lengths - in_calls)
    startup, by_host = np.zeros(len(rows), np.int64), np.flatnonzero(step == STEPS.index("host"))
    startup[by_host] = timeline.columns["call_startup"][rows[by_host]]
    step[_still_at_work(step, lengths)] = STEPS.index("call")
    operation = step == STEPS.index("operation")
    names = (*STEPS, *CLASSES.categories)
    part = np.array([PART_NAMES.index(PARTS.get(name, "other")) for name in names], np.uint8)
    of_call = np.isin(step, [STEPS.index(name) for name in ("host", "call", "wake-up")])
    step[operation] = len(STEPS) + kind_codes(timeline.operations)[rows[operation]]
    bound_by = path["call_bound_by"], path["operation_bound_by"]
    whose = np.where(of_call, operations + rows, np.where(2 * communication > lengths, waited_for, rows))
    apart = (in_calls, unexplained, np.minimum(startup, lengths), communication)
    return Decided(part[step], whose, path["path_start"], path["path_end"], *apart, calls, bound_by)


def critical_path_shares(run: Timeline | Played) -> list[PathPart]:
    """What the chain that decides the run's length consists of, longest first; as `decided`."""
    path = decided(run)
    rest = path.ends - path.starts
    total = int(rest.sum())
    for apart in path.apart.values():
        rest -= apart
    sums = [int(rest.sum(where=path.parts == part)) for part in range(len(PART_NAMES))]
    for name, apart in path.apart.items():
        sums[PART_NAMES.index(name)] += int(apart.sum())
    named = zip(PART_NAMES, sums, strict=True)
    parts = [PathPart(part, length * NS, length / total) for part, length in named if length > 0]
    return sorted(parts, key=lambda part: (-part.seconds, part.part))


def limits(shares: Sequence[PathPart]) -> dict[str, float]:
    """The shares of a run's critical path that are CPU time, GPU work, and copies; what nothing explains is none of them."""
    of = {"cpu": OF_HOST, "gpu": (*OF_GPUS, "memory sets"), "copies": ("copies",)}
    return {what: sum(part.share for part in shares if part.part in parts) for what, parts in of.items()}


def set_by(shares: Sequence[PathPart]) -> str:
    """What limits a run: `gpu` where GPUs work for most of its critical path, but for copies; else `host`."""
    of_gpus = sum(part.share for part in shares if part.part in OF_GPUS)
    return "gpu" if of_gpus >= 0.5 else "host"


def part_seconds(shares: Sequence[PathPart], part: str) -> float:
    """How much of a run is of a part, as UNEXPLAINED (nothing in its trace explains it) or START_UP."""
    return sum(path_part.seconds for path_part in shares if path_part.part == part)


def _unexplained_in_calls(timeline: Timeline, steps: NDArray[np.uint8], rows: Nodes, lengths: Times) -> Times:
    """Of each stretch of the critical path, what lies in a call while the GPU works, though the call's wait was given up,
    or long after what it waits for had ended; ns, shape (steps,).
    """
    waits = Words(timeline.calls).among("waits_for", *WAITS_FOR[1:])
    given_up = np.append(waits & (timeline.columns["call_wait"] == WAIT["none"]), False)
    in_call = steps == STEPS.index("call")
    chosen = np.flatnonzero(in_call & given_up[np.where(in_call, rows, -1)] | _still_at_work(steps, lengths))
    operations, calls = timeline.operations, timeline.calls[rows[chosen]]
    busy = Union.of(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())
    ends = calls["end_ns"].to_numpy()
    starts = np.maximum(calls["start_ns"].to_numpy(), ends - lengths[chosen])
    share = busy.covered_within(starts, ends) / np.maximum(ends - starts, 1)
    if timeline.trace.lacks_kernels:  # the GPU may have worked all the time
        share = np.ones_like(share)
    unexplained = np.zeros(len(lengths), np.int64)
    unexplained[chosen] = np.rint(share * lengths[chosen])
    return unexplained


def _still_at_work(steps: NDArray[np.uint8], lengths: Times) -> NDArray[np.bool_]:
    """The stretches behind a wait that last too long for a thread that only wakes up: freeing memory waits, then works."""
    working: NDArray[np.bool_] = (steps == STEPS.index("wake-up")) & (lengths > LONGEST_WAKE_UP_NS)
    return working


def _in_launching_calls(timeline: Timeline, steps: NDArray[np.uint8], rows: Nodes, lengths: Times) -> Times:
    """Of each unexplained stretch before an operation, what lies within the call that launched it, which was at work: it
    loads modules, sets up contexts and fills buffers; ns, shape (steps,).
    """
    launched = np.append(timeline.columns["operation_launched"] != 0, False)
    before = steps == STEPS.index("unexplained")
    waiting = np.flatnonzero(before & launched[np.where(before, rows, -1)])
    begun = timeline.operations["start_ns"].to_numpy()[rows[waiting]]
    returned = timeline.calls["end_ns"].to_numpy()[timeline.columns["operation_call"][rows[waiting]]]
    inside = np.zeros(len(lengths), np.int64)
    inside[waiting] = lengths[waiting] - np.clip(begun - returned, 0, lengths[waiting])
    return inside


def _behind_communication(
    timeline: Timeline, steps: NDArray[np.uint8], rows: Nodes, lengths: Times
) -> tuple[Times, Nodes]:
    """Of each unexplained stretch before an operation, how long communication ran in other streams of its GPU, ns, if the
    operation started right behind that; and the operation that communicated, else its `rows`. Shapes (steps,).
    """
    behind, waited_for = np.zeros(len(lengths), np.int64), rows.copy()
    waiting = np.flatnonzero((steps == STEPS.index("unexplained")) & (lengths > 0))
    communicates = kind_codes(timeline.operations) == CLASSES.categories.to_list().index(COMMUNICATION)
    device = timeline.columns["stream_device"][timeline.columns["operation_stream"]]
    starts, ends = timeline.recorded_spans
    for gpu in np.unique(device[communicates]):
        its, kernels = waiting[device[rows[waiting]] == gpu], np.flatnonzero(communicates & (device == gpu))
        kernels, begun = kernels[np.argsort(ends[kernels], kind="stable")], starts[rows[its]]
        last = kernels[np.searchsorted(ends[kernels], begun, side="right") - 1]
        soon = (ends[last] <= begun) & (begun - ends[last] <= BEHIND_NS)
        covered = Union.of(starts[kernels], ends[kernels]).covered_within(begun - lengths[its], begun)
        behind[its] = np.where(soon, covered, 0)
        waited_for[its] = np.where(soon, last, rows[its])
    return behind, waited_for


def core_columns(timeline: Timeline) -> Columns:
    """The columns with the links that copies share, at the times that they have now; start-up goes before its call."""
    columns = timeline.columns
    if "operation_bytes_per_s" in columns:
        return columns  # of several timelines side by side, which brought theirs
    columns = columns | {"call_gap": columns["call_gap"] + columns["call_startup"]}
    if timeline.closer_ns:
        columns = columns | {
            name: columns[name] - np.clip(columns[name], 0, timeline.closer_ns)
            for name in ("operation_order_lag", "operation_launch_lag", "call_wait_lag")
        }
    if timeline.links is not None:
        return columns | link_columns(timeline.links, timeline.operations, columns)
    none = np.zeros(timeline.operations.height)
    return columns | NO_LINKS | {"operation_bytes_per_s": none, "operation_weight": none + 1}


@dataclass(frozen=True)
class Unrecorded:
    """Runs as they are without their recorder: `timelines`, nanoseconds taken out a call, how long they then are together,
    and how many times as long the host took in the process that was not recorded. What gaps on the GPU are shorter by: their
    `closer_ns`.
    """

    timelines: list[Timeline]
    call_ns: int
    makespan_ns: int
    slowdown: float = 1.0


def unrecorded(
    runs: Sequence[Timeline],
    target_ns: int,
    length: Callable[[Sequence[Timeline]], int] = lambda runs: play(runs[0]).makespan_ns,
) -> Unrecorded:
    """`runs` with the same time taken out of each call and the gap before it, so much that all together, as `length` has
    them, take `target_ns`; without it, the first alone.

    A recorder does about the same for every call, before its start is noted and after, but more for graphs, by their nodes.
    Where that cannot explain the difference, calls are taken to have cost what the recorder is known to cost, and the gaps
    on the GPU, where its work waits for each other, are shorter. Where the host stages much, two runs of a program differ
    by more: calls are then taken to have cost what the recorder is known to cost, and the rest, of either sign, is how
    fast the host worked in that process, staging and between calls. The result says how long the run then is.
    """
    before = length(runs)
    by_host = [staged(run.operations) for run in runs]
    pairs = zip(runs, by_host, strict=True)
    staging = max(int(run.columns["operation_duration"][rows].sum()) for run, rows in pairs)
    stages = staging >= STAGING_SHARE * before
    if not any(run.calls.height for run in runs) or (before <= target_ns and not stages):
        return Unrecorded(list(runs), 0, before)

    def cheaper(call_ns: int) -> list[Timeline]:
        return [_without(run, call_ns) for run in runs]

    least, most = (LEAST_RECORDING_NS, MOST_RECORDING_NS) if stages else (0, MOST_NS)
    fastest = length(cheaper(most))
    if not stages and fastest > target_ns:
        least_bare = cheaper(LEAST_RECORDING_NS)
        closer_ns = bisect_left(
            range(MOST_GAP_NS),
            True,
            key=lambda ns: length([replace(run, closer_ns=ns) for run in least_bare]) <= target_ns,
        )
        closer = [replace(run, closer_ns=closer_ns) for run in least_bare]
        if (makespan := length(closer)) < fastest:
            return Unrecorded(closer, LEAST_RECORDING_NS, makespan)
    call_ns = max(bisect_left(range(most), True, key=lambda ns: length(cheaper(ns)) <= target_ns), least)
    bare = cheaper(call_ns)
    makespan = length(bare)
    if not stages or makespan == target_ns:
        return Unrecorded(bare, call_ns, makespan)

    def slowed(steps: int) -> list[Timeline]:
        """The host takes `steps` of SLOWDOWN_STEPS times as long: for copies that it stages, calls and the time between."""
        slowdown, slower = steps / SLOWDOWN_STEPS, []
        for run, staged_rows in zip(bare, by_host, strict=True):
            duration = run.columns["operation_duration"]
            duration = np.where(staged_rows, slowdown * duration, duration)
            slower.append(host_slowed(with_durations(run, duration), slowdown))
        return slower

    first, last = (round(SLOWDOWN_STEPS * (1 + MOST_SLOWDOWN) ** power) for power in (-1, 1))
    steps = bisect_left(range(last), True, first, key=lambda tried: length(slowed(tried)) >= target_ns)
    return Unrecorded(slowed(steps), call_ns, length(slowed(steps)), steps / SLOWDOWN_STEPS)


def _without(timeline: Timeline, call_ns: int) -> Timeline:
    """Half of `call_ns` out of each plain call, half out of the gap before it; what one lacks, the other gives.

    Of what goes out of a call, half lay before the GPU had its work, which then starts so much earlier, and half behind:
    where the call waits for work, between the end of that and its return.
    """
    columns = timeline.columns
    gap, in_call = columns["call_gap"], columns["call_own"]
    # Recording the launch of a graph costs more, by its nodes.
    nodes = np.bincount(columns["operation_call"][timeline.launched], minlength=len(in_call))
    times = np.where(timeline.calls_named(GRAPH_LAUNCH), GRAPH_TIMES + NODE_TIMES * nodes, 1.0)
    cost = np.rint(call_ns * times).astype(np.int64)
    spare_gap, spare_call = np.maximum(gap, 0), np.maximum(in_call - LEAST_CALL_NS, 0)
    from_call = np.minimum(spare_call, cost // 2)
    from_gap = np.minimum(spare_gap, cost - from_call)
    from_call = np.minimum(spare_call, cost - from_gap)
    launch, wake = columns["operation_launch_lag"], columns["call_wait_lag"]
    half = from_call // 2
    earlier = np.where(timeline.launched, half[columns["operation_call"]], 0)
    return timeline.with_columns(
        call_gap=gap - from_gap,
        call_own=in_call - from_call,
        call_wait_lag=wake - np.clip(wake - LEAST_CALL_NS, 0, half),
        operation_launch_lag=launch - np.clip(launch - LEAST_CALL_NS, 0, earlier),
    )
