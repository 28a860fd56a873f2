"""Findings priced by the replay of the run: what the whole run gains by each change, everything else as it was."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from busfare.advise.finding import Finding
from busfare.errors import InputError
from busfare.node import Node
from busfare.replay import Timeline, play
from busfare.replay.arguments import AsArguments
from busfare.replay.batching import Batch, Collect
from busfare.replay.changes import Applied, Change, Setting
from busfare.replay.pinning import Pin
from busfare.replay.prefetch import Prefetch
from busfare.replay.repeated import Dedupe
from busfare.replay.streams import Streams, are_pipelines
from busfare.replay.waiting import Async, DropSynchronisations
from busfare.trace.beside import several

__all__ = ["priced_by_replay"]

SMALL = 64 * 1024


@dataclass(frozen=True)
class Candidate:
    """Changes that follow a finding's advice, and the options of `what-if` that stand for them."""

    changes: tuple[Change, ...]
    options: tuple[str, ...]


#: Of several candidates the one that gains most is taken.
CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "pageable-copies": (
        Candidate((Pin(),), ("--pin",)),
        Candidate((Pin(), Async()), ("--pin", "--async")),
    ),
    "small-copies": (
        Candidate((Batch(SMALL),), ("--batch-below", "64KiB")),
        Candidate((Collect(SMALL),), ("--collect-below", "64KiB")),
        Candidate((AsArguments(),), ("--as-arguments",)),
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
#: More streams must save this part of the run more than fewer, to be worth their buffers.
WORTH_MORE = 0.01


def priced_by_replay(taken_apart: Timeline, node: Node | None, findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with the gain that the replayed run shows."""
    if not any(finding.id in CANDIDATES for finding in findings):
        return list(findings)
    before = play(taken_apart).makespan_ns
    wanted = [one.changes for finding in findings for one in CANDIDATES.get(finding.id, ())]
    changed = Changed(taken_apart, Setting(node), wanted)
    prices = [partial(_priced, finding, changed, before) for finding in findings]
    return _without_repetition(several(taken_apart.operations.height, prices), before * 1e-9)


def _without_repetition(findings: Sequence[Finding], run_seconds: float) -> list[Finding]:
    """Of streams that begin with pinning, what they gain on top of it; left out where that is next to nothing."""
    pinned = next(
        (f.gain_seconds or 0.0 for f in findings if f.id == "pageable-copies" and f.by_replay), None
    )
    if pinned is None:
        return list(findings)
    kept = []
    for finding in findings:
        if finding.id == "exposed-copies" and "--pin" in finding.what_if:
            more = (finding.gain_seconds or 0.0) - pinned
            if more <= WORTH_MORE * run_seconds:
                continue
            first = "the host buffers are pinned already: what that gains is counted there"
            finding = replace(finding, gain_seconds=more, rests_on=(first, *finding.rests_on))
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
    best: tuple[float, Candidate, tuple[str, ...]] | None = None
    if finding.id == "exposed-copies" and not are_pipelines(changed.run):
        return replace(finding, gain_seconds=0.0, by_replay=True, bound_seconds=finding.gain_seconds)
    for candidate in CANDIDATES[finding.id]:
        try:
            gain, conditions = _gain(candidate, changed, before)
        except InputError:  # it needs the node, or what the trace lacks: the bound stands
            continue
        if best is None or gain > best[0] + WORTH_MORE * before * 1e-9:
            best = (gain, candidate, conditions)
    if best is None:
        return replace(finding, bound_seconds=finding.gain_seconds)
    gain, candidate, conditions = best
    return replace(
        finding,
        gain_seconds=max(0.0, gain),
        by_replay=True,
        bound_seconds=finding.gain_seconds,
        rests_on=conditions,
        what_if=candidate.options,
    )


def _gain(candidate: Candidate, changed: Changed, before: int) -> tuple[float, tuple[str, ...]]:
    """Seconds that the run gains, and what that rests on; the changed run is let go."""
    applied = changed.by(candidate.changes)
    # What the last change finds nothing to do with is another candidate's gain.
    gain = (before - play(applied.timeline).makespan_ns) * 1e-9 if applied.count else 0.0
    return gain, tuple(applied.rests_on)
