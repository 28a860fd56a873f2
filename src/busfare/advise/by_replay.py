"""Findings priced by the replay of the run: what the whole run gains by each change, everything else as it was."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from busfare.advise import amounts
from busfare.advise.finding import Finding
from busfare.errors import InputError
from busfare.node import Node
from busfare.timeline import Timeline, critical_path_shares, play
from busfare.timeline.changes import Applied, Change, Setting
from busfare.timeline.changes.packing import Batch, Collect, loop_nanoseconds
from busfare.timeline.changes.pin import Pin
from busfare.timeline.changes.prefetch import Prefetch
from busfare.timeline.changes.removal import AsArguments, Remove
from busfare.timeline.changes.repeated import Dedupe, KeepOnGpu
from busfare.timeline.changes.streams import Streams, are_pipelines
from busfare.timeline.changes.waiting import Async, DropSynchronisations
from busfare.timeline.edit import among
from busfare.trace.beside import several

__all__ = ["priced_by_replay"]

SMALL = 64 * 1024
SMALL_SAID = f"{SMALL >> 10}KiB"
PACKED = Batch(SMALL)


@dataclass(frozen=True)
class Candidate:
    """Changes that follow a finding's advice, the options of `what-if` that stand for them, and what else must hold."""

    changes: tuple[Change, ...]
    options: tuple[str, ...]
    rests_on: tuple[str, ...] = ()


#: Of several candidates the one that gains most is taken.
CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "pageable-copies": (
        Candidate((Pin(),), ("--pin",)),
        Candidate((Pin(), Async()), ("--pin", "--async")),
    ),
    "small-copies": (
        Candidate((PACKED,), ("--batch-below", SMALL_SAID)),
        Candidate((Collect(SMALL),), ("--collect-below", SMALL_SAID)),
        Candidate((AsArguments(),), ("--as-arguments",)),
    ),
    "ping-pong": (Candidate((KeepOnGpu(),), ("--keep-on-gpu",)),),
    "one-memory": (
        Candidate(
            (Remove("h2d"), Remove("d2h")),
            ("--remove", "h2d", "--remove", "d2h"),
            ("kernels are as fast on the host's buffers as on copies of them",),
        ),
    ),
    "symbol-copies": (Candidate((AsArguments(),), ("--as-arguments",)),),
    "synchronous-copies": (Candidate((Async(),), ("--async",)),),
    "exposed-copies": tuple(
        Candidate((*before, Streams(count)), (*options, "--streams", str(count)))
        for before, options in (((), ()), ((Pin(),), ("--pin",)))
        for count in (2, 3, 4)
    ),
    "managed-migrations": (Candidate((Prefetch(),), ("--prefetch",)),),
    "repeated-copies": (Candidate((Dedupe(),), ("--dedupe",)),),
    "synchronisations": (Candidate((DropSynchronisations(),), ("--drop-synchronisations",)),),
}
#: What a gain exceeds the operations' own time by, as a part of it, to be worth a word.
SURPLUS = 0.1
#: More streams must save this part of the run more than fewer, to be worth their buffers.
WORTH_MORE = 0.01


def priced_by_replay(taken_apart: Timeline, node: Node | None, findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with the gain that the replayed run shows; with their bounds where nothing tells what made the copies."""
    if not any(finding.id in CANDIDATES for finding in findings):
        return list(findings)
    if not _knows_its_copies(taken_apart):
        return [replace(finding, bound_seconds=finding.gain_seconds) for finding in findings]
    before = play(taken_apart).makespan_ns
    wanted = [one.changes for finding in findings for one in CANDIDATES.get(finding.id, ())]
    changed = Changed(taken_apart, Setting(node), wanted)
    prices = [partial(_priced, finding, changed, before) for finding in findings]
    return _without_repetition(several(taken_apart.operations.height, prices), before * 1e-9)


def _knows_its_copies(run: Timeline) -> bool:
    """Whether recorded calls made at least half of the copies, by their time. The others stay where they are in a replay."""
    launched = run.columns["operation_launched"] != 0
    duration = np.where(among(run, "kind", "copy"), run.columns["operation_duration"], 0)
    return 2 * int(duration[launched].sum()) >= int(duration.sum())


def _without_repetition(findings: Sequence[Finding], run_seconds: float) -> list[Finding]:
    """Of streams that begin with pinning, what they gain on top of it; left out where that is next to nothing."""
    pinned = next((f.gain_seconds for f in findings if f.id == "pageable-copies" and f.by_replay), None)
    if pinned is None:
        return list(findings)
    kept = []
    for finding in findings:
        if finding.id == "exposed-copies" and "--pin" in finding.what_if:
            more = finding.gain_seconds - pinned
            if more <= WORTH_MORE * run_seconds:
                continue
            first = "the host buffers are pinned already: what that gains is counted there"
            rests_on = (first, *finding.rests_on)
            finding = replace(finding, gain_seconds=more, rests_on=rests_on, on_top_of="pageable-copies")
        kept.append(finding)
    return kept


class Changed:
    """The run after changes. A chain of them that is wanted twice, or that others begin with, is applied once."""

    def __init__(self, run: Timeline, setting: Setting, wanted: Sequence[tuple[Change, ...]]) -> None:
        self.run = run
        self._setting = setting
        # No others: a run is large.
        begins = {changes[:count] for changes in wanted for count in range(1, len(changes))}
        self._kept = begins | {changes for changes, count in Counter(wanted).items() if count > 1}
        self._done: dict[tuple[Change, ...], Applied] = {}
        self._one_at_a_time = threading.RLock()

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds of the unchanged run by what decides its length."""
        return _parts(self.run)

    def by(self, changes: tuple[Change, ...]) -> Applied:
        """The run after all of `changes`, with the conditions of all. Raises InputError as they do."""
        if changes not in self._kept:
            return self._applied(changes)
        with self._one_at_a_time:
            if changes not in self._done:
                self._done[changes] = self._applied(changes)
            return self._done[changes]

    def _applied(self, changes: tuple[Change, ...]) -> Applied:
        before = self.by(changes[:-1]) if changes[:-1] else Applied(self.run, 0)
        applied = changes[-1].apply(before.timeline, self._setting)
        conditions = list(dict.fromkeys([*before.rests_on, *applied.rests_on]))
        return Applied(applied.timeline, applied.count, applied.bytes, conditions)


def _priced(finding: Finding, changed: Changed, before: int) -> Finding:
    if finding.id not in CANDIDATES:
        return finding
    best: tuple[float, Candidate, tuple[str, ...], str] | None = None
    own = None if finding.touches is None else finding.touches.of_run
    if finding.id == "exposed-copies" and not are_pipelines(changed.run):
        return replace(finding, gain_seconds=0.0, by_replay=True, bound_seconds=finding.gain_seconds)
    for candidate in CANDIDATES[finding.id]:
        try:
            gain, conditions, more = _gain(candidate, changed, before, own)
        except InputError:  # it needs the node, or what the trace lacks: the bound stands
            continue
        if best is None or gain > best[0] + WORTH_MORE * before * 1e-9:
            best = (gain, candidate, conditions, more)
    if best is None:
        return replace(finding, bound_seconds=finding.gain_seconds)
    gain, candidate, conditions, more = best
    with_loop = None
    if PACKED in candidate.changes:
        with_loop, more_with_loop = _with_loop(changed, before)
        more += more_with_loop
    return replace(
        finding,
        evidence=finding.evidence + more,
        with_loop_seconds=with_loop,
        gain_seconds=max(0.0, gain),
        by_replay=True,
        bound_seconds=finding.gain_seconds,
        rests_on=conditions,
        what_if=candidate.options,
    )


def _gain(
    candidate: Candidate, changed: Changed, before: int, own: float | None
) -> tuple[float, tuple[str, ...], str]:
    """Seconds that the run gains, what that rests on, and of a gain of more than the operations' `own` seconds of the run
    what else it saves; the changed run is let go.
    """
    applied = changed.by(candidate.changes)
    # What the last change finds nothing to do with is another candidate's gain.
    gain = (before - play(applied.timeline).makespan_ns) * 1e-9 if applied.count else 0.0
    more = (
        "" if own is None or gain <= (1 + SURPLUS) * own else _what_else(changed.parts, applied.timeline, own)
    )
    return gain, (*applied.rests_on, *candidate.rests_on), more


def _what_else(before: dict[str, float], timeline: Timeline, own: float) -> str:
    """What a change saves besides operations that took `own` seconds, by what the run's length consists of."""
    after = _parts(timeline)
    saved = {part: seconds - after.get(part, 0.0) for part, seconds in before.items() if part != "copies"}
    most = sorted((part for part in saved if saved[part] > 0), key=lambda part: -saved[part])[:2]
    others = ", ".join(f"{part} ({amounts.time(saved[part])})" for part in most)
    return (
        f" The gain is more than these operations' own {amounts.time(own)} of the run: it is also {others}."
        * bool(most)
    )


def _parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the run by what decides its length."""
    return {row.part: row.seconds for row in critical_path_shares(timeline)}


def _with_loop(changed: Changed, before: int) -> tuple[float, str]:
    """Seconds that the run gains where the loop that makes the small copies goes with them, and that loop's host time."""
    host = loop_nanoseconds(changed.run, SMALL) * 1e-9
    gain = (before - play(changed.by((replace(PACKED, with_loop=True),)).timeline).makespan_ns) * 1e-9
    return gain, f" Between their calls the host spends {amounts.time(host)} in the loop that makes them."
