"""Findings priced by the replay of the run: what the whole run gains by each change, everything else as it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from busfare.advise import amounts
from busfare.advise.finding import Finding
from busfare.errors import InputError
from busfare.node import Node
from busfare.timeline import Timeline, critical_path_shares, play
from busfare.timeline.changes import Applied, Change, Setting
from busfare.timeline.changes.packing import batch, collect, loop_nanoseconds
from busfare.timeline.changes.pin import pin
from busfare.timeline.changes.prefetch import prefetch
from busfare.timeline.changes.removal import as_arguments, remove
from busfare.timeline.changes.repeated import dedupe, keep_on_gpu
from busfare.timeline.changes.streams import are_pipelines, streams
from busfare.timeline.changes.waiting import without_synchronisations, without_waiting
from busfare.timeline.edit import among
from busfare.trace.large import several

__all__ = ["priced_by_replay"]

SMALL = 64 * 1024
PACKED, PINNED, WAITING_LESS, ARGUMENTS = batch(SMALL), pin(), without_waiting(), as_arguments()
NS = 1e-9
Changes = tuple[Change, ...]
#: By finding, the changes that follow its advice; of several the one that gains most is taken.
CANDIDATES: dict[str, tuple[Changes, ...]] = {
    "pageable-copies": ((PINNED,), (PINNED, WAITING_LESS)),
    "small-copies": ((PACKED,), (collect(SMALL),), (ARGUMENTS,)),
    "ping-pong": ((keep_on_gpu(),),),
    "one-memory": ((remove("h2d"), remove("d2h")),),
    "symbol-copies": ((ARGUMENTS,),),
    "synchronous-copies": ((WAITING_LESS,),),
    "exposed-copies": tuple((*before, streams(n)) for before in ((), (PINNED,)) for n in (2, 3, 4)),
    "managed-migrations": ((prefetch(),),),
    "repeated-copies": ((dedupe(),),),
    "synchronisations": ((without_synchronisations(),),),
}
#: What must hold besides what the changes themselves rest on.
RESTS_ON = {"one-memory": ("kernels are as fast on the host's buffers as on copies of them",)}
#: What a gain exceeds the operations' own time by, as a part of it, to be worth a word.
SURPLUS = 0.1
#: More streams must save this part of the run more than fewer, to be worth their buffers.
WORTH_MORE = 0.01


def priced_by_replay(run: Timeline, node: Node | None, findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with the gain that the replayed run shows; with their bounds where nothing tells what made the copies."""
    if not any(finding.id in CANDIDATES for finding in findings):
        return list(findings)
    if not _knows_its_copies(run):
        return [replace(finding, bound_seconds=finding.predicted_gain_seconds) for finding in findings]
    trials = Trials(run, Setting(node))
    prices = [partial(_priced, finding, trials) for finding in findings]
    return _without_repetition(several(run.operations.height, prices), trials.seconds)


def _knows_its_copies(run: Timeline) -> bool:
    """Whether recorded calls made at least half of the copies, by their time. The others stay where they are in a replay."""
    launched = run.columns["operation_launched"] != 0
    duration = np.where(among(run, "kind", "copy"), run.columns["operation_duration"], 0)
    return 2 * int(duration[launched].sum()) >= int(duration.sum())


def _without_repetition(findings: Sequence[Finding], run_seconds: float) -> list[Finding]:
    """Of streams that begin with pinning, what they gain on top of it; left out where that is next to nothing."""
    pinned = next(
        (f.predicted_gain_seconds for f in findings if f.id == "pageable-copies" and f.by_replay), None
    )
    if pinned is None:
        return list(findings)
    kept = []
    for finding in findings:
        if finding.id == "exposed-copies" and "--pin" in finding.what_if:
            more = finding.predicted_gain_seconds - pinned
            if more <= WORTH_MORE * run_seconds:
                continue
            first = "the host buffers are pinned already: what that gains is counted there"
            rests_on = (first, *finding.rests_on)
            finding = replace(
                finding, predicted_gain_seconds=more, rests_on=rests_on, on_top_of="pageable-copies"
            )
        kept.append(finding)
    return kept


class Trial(NamedTuple):
    """Changes, what they make of the run, and what it gains, in seconds."""

    changes: Changes
    applied: Applied
    gain: float


class Trials:
    """The run after changes; what pinning alone makes of it, with which others begin, is kept."""

    def __init__(self, run: Timeline, setting: Setting) -> None:
        self.run = run
        self._setting = setting
        self.seconds = play(run).makespan_seconds

    @cached_property
    def _pinned(self) -> Applied:
        return PINNED.apply(self.run, self._setting)

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds of the unchanged run by what decides its length."""
        return _parts(self.run)

    def of(self, changes: Changes) -> Trial:
        """The run after all of `changes`; `count` is the last one's: what that finds nothing to do with is the gain of the
        others alone, and none here. Raises InputError as they do.
        """
        first, *more = changes
        applied = self._pinned if first is PINNED else first.apply(self.run, self._setting)
        rests_on = applied.rests_on
        for change in more:
            applied = change.apply(applied.timeline, self._setting)
            rests_on = list(dict.fromkeys([*rests_on, *applied.rests_on]))
        gain = self.seconds - play(applied.timeline).makespan_seconds if applied.count else 0.0
        return Trial(changes, Applied(applied.timeline, applied.count, applied.bytes, rests_on), gain)

    def best(self, candidates: Sequence[Changes]) -> Trial | None:
        """The first of those that gain most; None where each needs the node, or what the trace lacks."""
        best = None
        for changes in candidates:
            try:
                trial = self.of(changes)
            except InputError:
                continue
            if best is None or trial.gain > best.gain + WORTH_MORE * self.seconds:
                best = trial
        return best


def _priced(finding: Finding, trials: Trials) -> Finding:
    if finding.id not in CANDIDATES:
        return finding
    finding = replace(finding, bound_seconds=finding.predicted_gain_seconds)
    if finding.id == "exposed-copies" and not are_pipelines(trials.run):
        return replace(finding, predicted_gain_seconds=0.0, by_replay=True)
    best = trials.best(CANDIDATES[finding.id])
    if best is None:
        return finding
    evidence, with_loop = finding.evidence, None
    own = None if finding.touches is None else finding.touches.of_run
    if own is not None and best.gain > (1 + SURPLUS) * own:
        evidence += _what_else(trials.parts, _parts(best.applied.timeline), own)
    if PACKED in best.changes:
        host = amounts.time(loop_nanoseconds(trials.run, SMALL) * NS)
        evidence += f" Between their calls the host spends {host} in the loop that makes them."
        with_loop = trials.of((batch(SMALL, with_loop=True),)).gain
    return replace(
        finding,
        evidence=evidence,
        gain_with_loop_seconds=with_loop,
        predicted_gain_seconds=max(0.0, best.gain),
        by_replay=True,
        rests_on=(*best.applied.rests_on, *RESTS_ON.get(finding.id, ())),
        what_if=tuple(option for change in best.changes for option in change.options),
    )


def _what_else(before: dict[str, float], after: dict[str, float], own: float) -> str:
    """What a change saves besides operations that took `own` seconds, by what the run's length consists of."""
    saved = {part: seconds - after.get(part, 0.0) for part, seconds in before.items() if part != "copies"}
    most = sorted((part for part in saved if saved[part] > 0), key=lambda part: -saved[part])[:2]
    if not most:
        return ""
    others = ", ".join(f"{part} ({amounts.time(saved[part])})" for part in most)
    return (
        f" The gain is more than these operations' own {amounts.time(own)} of the run: it is also {others}."
    )


def _parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the run by what decides its length."""
    return {row.part: row.seconds for row in critical_path_shares(timeline)}
