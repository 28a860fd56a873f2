"""What recording cost the host, taken out of a run again, where it is known how long the run takes unrecorded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from busfare.timeline.edit import host_paced, with_durations
from busfare.timeline.model import Timeline, staged
from busfare.timeline.play import play
from busfare.trace.words import GRAPH_LAUNCH

__all__ = ["Unrecorded", "all_unrecorded", "unrecorded"]

#: No recorder takes longer over a call than this; what is left to explain is then something else. Nanoseconds.
MOST_NS = 30_000
#: What a call takes in any case, where it took longer under the recorder. Nanoseconds.
LEAST_CALL_NS = 500
#: Recording the launch of a graph costs so many times what a kernel's does, and so much more with each node: 3.4 µs with
#: one node, 12 with 6, 36 with 24 and 139 with 96, where a kernel's costs 0.9 (results/recorder, -graphs.json).
GRAPH_TIMES, NODE_TIMES = 4.0, 1.3
#: Recording a call costs 0.7 to 1.4 µs in loops and up to 4 in PyTorch's steps (results/recorder). Nanoseconds.
LEAST_KNOWN_NS, MOST_KNOWN_NS = 1_000, 4_000
#: Where copies that the host stages take this part of the run, two processes differ by how fast it stages.
STAGING_SHARE = 0.1
#: By so much at most: 1.3 times from one process to the next in unrecorded runs (results/pairs, video_edges).
MOST_BY_PACE = 0.3
#: Paces are told apart to one part in so many.
PARTS = 10_000
#: By so much at most a gap on the GPU is longer for the recorder: recordings of the same program with and without one
#: differ by 1 to 2.5 µs an operation where the GPU is never idle for the host (results/unseen, tone_map). Nanoseconds.
MOST_GAP_NS = 3_000


@dataclass(frozen=True)
class Unrecorded:
    """Runs as they are without their recorder: `timelines`, nanoseconds taken out a call, how long they then are together,
    and how many times as long the host took in the process that was not recorded. What gaps on the GPU are shorter by: their
    `closer_ns`.
    """

    timelines: list[Timeline]
    call_ns: int
    makespan_ns: int
    pace: float = 1.0

    @property
    def timeline(self) -> Timeline:
        """Of one run, or the first."""
        return self.timelines[0]


def unrecorded(timeline: Timeline, target_ns: int) -> Unrecorded:
    """`timeline` as it is when it takes `target_ns`, as `all_unrecorded`."""
    return all_unrecorded([timeline], target_ns, lambda runs: play(runs[0]).makespan_ns)


def all_unrecorded(
    runs: Sequence[Timeline], target_ns: int, length: Callable[[Sequence[Timeline]], int]
) -> Unrecorded:
    """`runs` with the same time taken out of each call and the gap before it, so much that all together, as `length` has
    them, take `target_ns`.

    A recorder does about the same for every call, before its start is noted and after, but more for graphs, by their nodes.
    Where that cannot explain the difference, calls are taken to have cost what the recorder is known to cost, and the gaps
    on the GPU, where its work waits for each other, are shorter. Where the host stages much, two runs of a program differ
    by more: calls are then taken to have cost what the recorder is known to cost, and the rest, of either sign, is how
    fast the host worked in that process, staging and between calls. The result says how long the run then is.
    """
    before = length(runs)
    by_host = [staged(run.operations) for run in runs]
    staging = max(
        int(run.columns["operation_duration"][own].sum()) for run, own in zip(runs, by_host, strict=True)
    )
    paced = staging >= STAGING_SHARE * before
    if not any(run.calls.height for run in runs) or (before <= target_ns and not paced):
        return Unrecorded(list(runs), 0, before)

    def cheaper(call_ns: int) -> list[Timeline]:
        return [_without(run, call_ns) for run in runs]

    least, most = (LEAST_KNOWN_NS, MOST_KNOWN_NS) if paced else (0, MOST_NS)
    fastest = length(cheaper(most))
    if not paced and fastest > target_ns:
        known = cheaper(LEAST_KNOWN_NS)
        gaps = range(MOST_GAP_NS)
        closer_ns = _first(
            gaps, lambda ns: length([replace(run, closer_ns=ns) for run in known]) <= target_ns
        )
        closer = [replace(run, closer_ns=closer_ns) for run in known]
        if (makespan := length(closer)) < fastest:
            return Unrecorded(closer, LEAST_KNOWN_NS, makespan)
    call_ns = max(_first(range(most), lambda ns: length(cheaper(ns)) <= target_ns), least)
    bare = cheaper(call_ns)
    makespan = length(bare)
    if not paced or makespan == target_ns:
        return Unrecorded(bare, call_ns, makespan)

    def at_pace(pace: float) -> list[Timeline]:
        """What the host does takes `pace` times as long: the copies that it stages, its calls, and what lies between."""
        slower = []
        for run, own in zip(bare, by_host, strict=True):
            duration = run.columns["operation_duration"]
            slower.append(host_paced(with_durations(run, np.where(own, pace * duration, duration)), pace))
        return slower

    paces = range(round(PARTS / (1 + MOST_BY_PACE)), round(PARTS * (1 + MOST_BY_PACE)))
    pace = _first(paces, lambda part: length(at_pace(part / PARTS)) >= target_ns) / PARTS
    return Unrecorded(at_pace(pace), call_ns, length(at_pace(pace)), pace)


def _first(numbers: range, fits: Callable[[int], bool]) -> int:
    """The first of `numbers` from which on all fit; the one behind the last where none does."""
    return numbers.start + bisect_left(numbers, True, key=fits)


def _without(timeline: Timeline, call_ns: int) -> Timeline:
    """Half of `call_ns` out of each plain call, half out of the gap before it; what one lacks, the other gives.

    Of what goes out of a call, half lay before the GPU had its work, which then starts so much earlier, and half behind:
    where the call waits for work, between the end of that and its return.
    """
    columns = timeline.columns
    gap, own = columns["call_gap"], columns["call_own"]
    # Recording the launch of a graph costs more, by its nodes.
    nodes = np.bincount(columns["operation_call"][timeline.launched], minlength=len(own))
    times = np.where(timeline.calls_named(GRAPH_LAUNCH), GRAPH_TIMES + NODE_TIMES * nodes, 1.0)
    cost = np.rint(call_ns * times).astype(np.int64)
    spare_gap, spare_own = np.maximum(gap, 0), np.maximum(own - LEAST_CALL_NS, 0)
    from_own = np.minimum(spare_own, cost // 2)
    from_gap = np.minimum(spare_gap, cost - from_own)
    from_own = np.minimum(spare_own, cost - from_gap)
    launch, wake = columns["operation_launch_lag"], columns["call_wait_lag"]
    half = from_own // 2
    earlier = np.where(timeline.launched, half[columns["operation_call"]], 0)
    return timeline.with_columns(
        call_gap=gap - from_gap,
        call_own=own - from_own,
        call_wait_lag=wake - np.clip(wake - LEAST_CALL_NS, 0, half),
        operation_launch_lag=launch - np.clip(launch - LEAST_CALL_NS, 0, earlier),
    )
