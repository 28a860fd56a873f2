"""Findings priced by the replay of the run: what the whole run gains by each change, everything else as it was."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
from msgspec.structs import replace

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
PACKED = Batch(SMALL)
NS = 1e-9
Changes = tuple[Change, ...]
#: By finding, the changes that follow its advice; of several the one that gains most is taken.
CANDIDATES: dict[str, tuple[Changes, ...]] = {
    "pageable-copies": ((Pin(),), (Pin(), Async())),
    "small-copies": ((PACKED,), (Collect(SMALL),), (AsArguments(),)),
    "ping-pong": ((KeepOnGpu(),),),
    "one-memory": ((Remove("h2d"), Remove("d2h")),),
    "symbol-copies": ((AsArguments(),),),
    "synchronous-copies": ((Async(),),),
    "exposed-copies": tuple((*before, Streams(count)) for before in ((), (Pin(),)) for count in (2, 3, 4)),
    "managed-migrations": ((Prefetch(),),),
    "repeated-copies": ((Dedupe(),),),
    "synchronisations": ((DropSynchronisations(),),),
}
#: What must hold besides what the changes themselves rest on.
RESTS_ON = {"one-memory": ("kernels are as fast on the host's buffers as on copies of them",)}
#: What a gain exceeds the operations' own time by, as a part of it, to be worth a word.
SURPLUS = 0.1
#: More streams must save this part of the run more than fewer, to be worth their buffers.
WORTH_MORE = 0.01


def priced_by_replay(taken_apart: Timeline, node: Node | None, findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with the gain that the replayed run shows; with their bounds where nothing tells what made the copies."""
    if not any(finding.id in CANDIDATES for finding in findings):
        return list(findings)
    if not _knows_its_copies(taken_apart):
        return [replace(finding, bound_seconds=finding.predicted_gain_seconds) for finding in findings]
    before = play(taken_apart).makespan_ns
    changed = Changed(taken_apart, Setting(node))
    prices = [partial(_priced, finding, changed, before) for finding in findings]
    return _without_repetition(several(taken_apart.operations.height, prices), before * NS)


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


class Changed:
    """The run after changes; what pinning alone makes of it, with which others begin, is kept."""

    def __init__(self, run: Timeline, setting: Setting) -> None:
        self.run = run
        self._setting = setting
        self._pinned: Applied | None = None
        self._one_at_a_time = threading.Lock()

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds of the unchanged run by what decides its length."""
        return _parts(self.run)

    def by(self, changes: Changes) -> Applied:
        """The run after all of `changes`; `count` is the last one's. Raises InputError as they do."""
        before = Applied(self.run, 0)
        if changes[0] == Pin():
            with self._one_at_a_time:
                self._pinned = self._pinned or Pin().apply(self.run, self._setting)
            before, changes = self._pinned, changes[1:]
        for change in changes:
            applied = change.apply(before.timeline, self._setting)
            conditions = list(dict.fromkeys([*before.rests_on, *applied.rests_on]))
            before = Applied(applied.timeline, applied.count, applied.bytes, conditions)
        return before


def _priced(finding: Finding, changed: Changed, before: int) -> Finding:
    if finding.id not in CANDIDATES:
        return finding
    if finding.id == "exposed-copies" and not are_pipelines(changed.run):
        return replace(
            finding, predicted_gain_seconds=0.0, by_replay=True, bound_seconds=finding.predicted_gain_seconds
        )
    best: tuple[float, Changes, tuple[str, ...], str] | None = None
    own = None if finding.touches is None else finding.touches.of_run
    for changes in CANDIDATES[finding.id]:
        try:
            applied = changed.by(changes)
        except InputError:  # it needs the node, or what the trace lacks: the bound stands
            continue
        # What the last change finds nothing to do with is another candidate's gain.
        gain = (before - play(applied.timeline).makespan_ns) * NS if applied.count else 0.0
        if best is None or gain > best[0] + WORTH_MORE * before * NS:
            more = "" if own is None or gain <= (1 + SURPLUS) * own else _what_else(changed, applied, own)
            best = (gain, changes, tuple(applied.rests_on), more)
    if best is None:
        return replace(finding, bound_seconds=finding.predicted_gain_seconds)
    gain, changes, conditions, more = best
    with_loop = None
    if PACKED in changes:
        host = loop_nanoseconds(changed.run, SMALL) * NS
        more += f" Between their calls the host spends {amounts.time(host)} in the loop that makes them."
        looped = changed.by((Batch(SMALL, with_loop=True),)).timeline
        with_loop = (before - play(looped).makespan_ns) * NS
    return replace(
        finding,
        evidence=finding.evidence + more,
        gain_with_loop_seconds=with_loop,
        predicted_gain_seconds=max(0.0, gain),
        by_replay=True,
        bound_seconds=finding.predicted_gain_seconds,
        rests_on=(*conditions, *RESTS_ON.get(finding.id, ())),
        what_if=tuple(option for change in changes for option in change.options),
    )


def _what_else(changed: Changed, applied: Applied, own: float) -> str:
    """What a change saves besides operations that took `own` seconds, by what the run's length consists of."""
    after = _parts(applied.timeline)
    saved = {
        part: seconds - after.get(part, 0.0) for part, seconds in changed.parts.items() if part != "copies"
    }
    most = sorted((part for part in saved if saved[part] > 0), key=lambda part: -saved[part])[:2]
    others = ", ".join(f"{part} ({amounts.time(saved[part])})" for part in most)
    return (
        f" The gain is more than these operations' own {amounts.time(own)} of the run: it is also {others}."
        * bool(most)
    )


def _parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the run by what decides its length."""
    return {row.part: row.seconds for row in critical_path_shares(timeline)}
