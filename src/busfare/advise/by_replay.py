"""Findings priced by the replay of the run: what the whole run gains by each change, everything else as it was."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from busfare.advise.finding import Finding
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.questions import WhatIf
from busfare.statements import Words, sentences, statement
from busfare.timeline import Timeline, critical_path_shares, play
from busfare.timeline.changes import Applied, Setting, changes_of
from busfare.timeline.changes.bounds import Bounds
from busfare.timeline.changes.fewer_copies import loop_nanoseconds, without
from busfare.timeline.changes.pipelines import are_pipelines
from busfare.timeline.model import NOTHING, Mask
from busfare.trace.columns import several
from busfare.trace.words import SYMBOL_COPY

NS = 1e-9
PINNED = WhatIf(pin="")
PACKED_BELOW = 64 * 1024
PACKED = WhatIf(batch_below=PACKED_BELOW)
#: By finding, what follows its advice; of several the one that gains most is taken.
CANDIDATES: dict[str, tuple[WhatIf, ...]] = {
    "pageable-copies": (PINNED, WhatIf(pin="", async_="")),
    "small-copies": (PACKED,),
    "small-results": (WhatIf(collect_below=PACKED_BELOW),),
    "ping-pong": (WhatIf(keep_on_gpu=True),),
    "one-memory": (WhatIf(remove=("h2d", "d2h")),),
    "synchronous-copies": (WhatIf(async_=""),),
    "exposed-copies": tuple(WhatIf(pin=pin, streams=n) for n in (2, 3, 4) for pin in (None, "")),
    "managed-migrations": (WhatIf(prefetch=True),),
    "repeated-copies": (WhatIf(dedupe=True),),
    "device-allocations": (WhatIf(pool=True),),
    "synchronisations": (WhatIf(drop_synchronisations=""),),
}
#: What every CUDA device takes as a kernel's arguments; newer ones take 32 KiB (CUDA C++ programming guide).
ARGUMENT_BYTES = 4096
#: What must hold besides what the changes themselves rest on.
RESTS_ON = {"one-memory": (statement("one-memory.in-place"),)}
#: What a gain exceeds the operations' own time by, as a part of it, to be worth a word.
SURPLUS = 0.1
#: More streams must save this part of the run more than fewer, to be worth their buffers.
WORTH_MORE = 0.01


def priced_by_replay(run: Timeline, node: Node | None, findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with the gain that the replayed run shows; with their bounds where nothing tells what made the copies."""
    duration = np.where(run.among("kind", "copy"), run.columns["operation_duration"], 0)
    if 2 * int(duration[run.launched].sum()) < int(duration.sum()):
        # No recorded call made most of the copies, by their time: those stay where they are in a replay.
        return [replace(finding, bound_seconds=finding.predicted_gain_seconds) for finding in findings]
    trials = Trials(run, Setting(node))
    prices = [partial(_priced, finding, trials) for finding in findings]
    return _without_repetition(several(run.operations.height, prices), trials.seconds)


def _without_repetition(findings: Sequence[Finding], run_seconds: float) -> list[Finding]:
    """Without streams that begin with pinning and gain next to nothing more than that."""
    pinned = [f.predicted_gain_seconds for f in findings if f.id == "pageable-copies" and f.by_replay]
    kept = []
    for finding in findings:
        if pinned and finding.id == "exposed-copies" and finding.what_if and finding.what_if.pin is not None:
            more = finding.predicted_gain_seconds - pinned[0]
            if more <= WORTH_MORE * run_seconds:
                continue
            needs = statement("exposed-copies.pinned-first", seconds=pinned[0], more=more)
            finding = replace(finding, evidence=sentences(finding.evidence, needs), first_seconds=pinned[0])
        kept.append(finding)
    return kept


class Trial(NamedTuple):
    """What was asked, what it makes of the run, and what that gains, in seconds."""

    question: WhatIf | None
    applied: Applied
    gain: float


class Trials:
    """The run after changes; what pinning alone makes of it, with which others begin, is kept."""

    def __init__(self, run: Timeline, setting: Setting) -> None:
        self.run = run
        self._setting = setting
        self.seconds = play(run).makespan_seconds
        self.bounds = Bounds(run, self.seconds)

    @cached_property
    def _pinned(self) -> Applied:
        (pin,) = changes_of(PINNED, None)
        return pin.apply(self.run, self._setting)

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds of the unchanged run by what decides its length."""
        return _parts(self.run)

    def of(self, question: WhatIf) -> Trial:
        """The run after all of it; if the last change finds nothing to do, no gain. Raises InputError as the changes do."""
        done = all_done = Applied(self.run, touched=NOTHING)
        for change in changes_of(question, None):
            done = self._pinned if change.kind == "pin" else change.apply(done.timeline, self._setting)
            all_done = all_done.then(done)
        gain = self.seconds - play(done.timeline).makespan_seconds if done.count else 0.0
        return Trial(question, all_done, gain)

    def without(self, removed: Mask) -> Trial:
        """The run without these operations, their calls and the waits behind them: nothing takes their place."""
        done = without(self.run, removed)
        return Trial(None, done, self.seconds - play(done.timeline).makespan_seconds)

    def best(self, candidates: Sequence[WhatIf]) -> Trial | None:
        """The first of those that gain most; None where each needs the node, or what the trace lacks. More streams are tried
        with the better kind of buffers alone.
        """
        best: Trial | None = None
        for question in candidates:
            if best and best.question and (question.streams or 0) > 2 and question.pin != best.question.pin:
                continue
            try:
                trial = self.of(question)
            except InputError:
                continue
            if best is None or trial.gain > best.gain + WORTH_MORE * self.seconds:
                best = trial
        return best


def _priced(finding: Finding, trials: Trials) -> Finding:
    if finding.id not in CANDIDATES and finding.id not in REMOVED:
        return finding
    if finding.id == "exposed-copies" and not are_pipelines(trials.run):
        return replace(finding, predicted_gain_seconds=0.0, by_replay=True, bound_seconds=0.0)
    lacking, candidates = trials.run.trace.lacks_kernels, CANDIDATES.get(finding.id, ())
    best = trials.best([question for question in candidates if question.async_ is None or not lacking])
    if finding.id in REMOVED and (best is None or best.gain < WORTH_MORE * trials.seconds):
        best = trials.without(REMOVED[finding.id](trials.run))
    if best is None:
        return replace(finding, bound_seconds=finding.predicted_gain_seconds)
    bound = best.gain if best.question is None else trials.bounds.most(best.applied)
    evidence, gain = [finding.evidence], max(0.0, min(best.gain, bound))
    copied_seconds = None if finding.touches is None else finding.touches.of_run
    if copied_seconds is not None and gain > (1 + SURPLUS) * copied_seconds:
        evidence += _what_else(trials.parts, _parts(best.applied.timeline), gain)
    if best.question == PACKED:
        host = loop_nanoseconds(trials.run, PACKED_BELOW) * NS
        evidence.append(statement("small-copies.loop", host_seconds=host))
    return replace(
        finding,
        evidence=sentences(*evidence),
        predicted_gain_seconds=gain,
        by_replay=best.question is not None,
        bound_seconds=bound,
        rests_on=(*best.applied.rests_on, *RESTS_ON.get(finding.id, ())),
        what_if=best.question,
        cost_error=best.applied.cost_error,
    )


def _fit_arguments(run: Timeline) -> Mask:
    """Copies to the GPU in streams of kernels that fit into a kernel's arguments; shape (operations,)."""
    sizes = run.operations["bytes"].fill_null(ARGUMENT_BYTES + 1).to_numpy()
    streams = run.columns["operation_stream"]
    fit: Mask = run.copies("h2d") & run.launched & (sizes <= ARGUMENT_BYTES)
    return fit & np.isin(streams, np.unique(streams[run.kernels]))


def _to_symbols(run: Timeline) -> Mask:
    """Copies to symbols; shape (operations,)."""
    called = run.of_calls(run.calls_named(SYMBOL_COPY))
    return run.among("kind", "copy") & (called | run.among("destination_memory", "static"))


#: By finding, copies that pass as arguments of kernels. Where no candidate gains, removing them is the bound.
REMOVED: dict[str, Callable[[Timeline], Mask]] = {
    "small-copies": _fit_arguments,
    "symbol-copies": _to_symbols,
}


def _what_else(before: dict[str, float], after: dict[str, float], gain: float) -> list[Words]:
    """What a `gain` consists of, by what decided the run's length: copies, and the two parts that most of the rest is."""
    saved = {part: seconds - after.get(part, 0.0) for part, seconds in before.items()}
    copies = min(gain, max(0.0, saved.pop("copies", 0.0)))
    most = sorted((part for part in saved if saved[part] > 0), key=lambda part: -saved[part])[:2]
    figures = {"seconds": copies, "rest": gain - copies}
    return [statement("common.gain-beyond", **figures, parts=tuple(most))] if most else []


def _parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the run by what decides its length."""
    return {row.part: row.seconds for row in critical_path_shares(timeline)}
