"""Changes to a program, as changes to its timeline: each says what it did and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Node
from busfare.replay.edit import (
    calls_named,
    expression,
    next_on_thread,
    usual_call_ns,
    with_durations,
    without_calls,
    without_operations,
    without_waits,
)
from busfare.replay.host_caches import fetching_again_ns
from busfare.replay.prices import nanoseconds_on, nanoseconds_pinned
from busfare.replay.timeline import Timeline
from busfare.replay.waits import WAIT
from busfare.trace.words import words_of

__all__ = [
    "Applied",
    "Async",
    "Change",
    "CopySpeed",
    "Dedupe",
    "DropSynchronisations",
    "Kernels",
    "Pin",
    "Remove",
    "Setting",
    "ToNode",
    "described",
    "repeated_copies",
]

Mask = NDArray[np.bool_]
ASYNC_COPY = r"Memcpy.*Async"
SYNCHRONISE = r"Synchronize$"
#: Smaller pageable copies to the GPU are handed over with their call, and staged nowhere.
STAGED_ABOVE_BYTES = 64 * 1024
#: What that takes the host at most: 4 GB/s. On an H100 copies of 32 KiB start 8.6 µs later than those of 4 KiB.
NS_TO_HAND_OVER_A_BYTE = 0.25
#: From the end of a copy of pinned memory to the return of the call that waited for it: 3.2 to 3.6 µs recorded on H100
#: and H200 (results/pairs, matrix_tiles; synchronisations there 2.9 to 3.6).
WAKE_UP_NS = 3_300
#: From the return of a call that submits a copy of pinned memory to its start, where nothing is in its way: 1.6 to 2.6
#: µs recorded on H100 and H200 (results/pairs, denoise_volume).
WAY_TO_GPU_NS = 2_000
#: Submitting a copy of pinned memory takes the host this part of what a launch takes: 1.0 of 2.6 µs bare, 1.8 of 3.6
#: µs recorded, on an H200 (results/recorder).
COPY_OF_LAUNCH = 0.45


@dataclass(frozen=True)
class Setting:
    """What a change may need to know: the node of the recording (None: unknown) and the cost model for others."""

    recorded_on: Node | None = None
    model: str = "calibrated"


@dataclass(frozen=True)
class Applied:
    """A timeline after a change, how many operations or calls it touched, their bytes, and what it rests on."""

    timeline: Timeline
    count: int
    bytes: int = 0
    rests_on: list[str] = field(default_factory=list)


class Change(Protocol):
    """One change to a program. Raises InputError where the trace lacks what it needs."""

    @property
    def title(self) -> str: ...

    def apply(self, timeline: Timeline, setting: Setting) -> Applied: ...


def described(timeline: Timeline) -> pl.Series:
    """What a REGEX is matched against: an operation's name, path, launching call, and the markers around that call."""
    operations = timeline.operations
    path = pl.format(
        "{} {} {}→{}",
        pl.col("name").cast(pl.String).fill_null(""),
        pl.col("direction").cast(pl.String).fill_null(""),
        pl.col("source_memory").cast(pl.String).fill_null(""),
        pl.col("destination_memory").cast(pl.String).fill_null(""),
    )
    text = operations.select(path.alias("text"))["text"]
    if timeline.calls.height == 0:
        return text
    called = pl.Series(np.maximum(timeline.columns["operation_call"], 0))
    names = timeline.calls["name"].cast(pl.String).fill_null("").gather(called)
    return text + " " + names + _markers_around(timeline, called)


def _markers_around(timeline: Timeline, called: pl.Series) -> pl.Series:
    """Names of the ranges that were open when each operation was called: the innermost few."""
    ranges = timeline.trace.markers.filter(pl.col("end_ns").is_not_null())
    none = pl.repeat("", called.len(), eager=True)
    if ranges.height == 0 or ranges.height > 100_000:
        return none
    times = timeline.calls["start_ns"].gather(called).to_numpy()
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    names = ranges["name"].cast(pl.String).fill_null("").to_list()
    order = np.argsort(starts, kind="stable")
    open_now: list[int] = []
    found: list[str] = [""] * called.len()
    at = 0
    for row in np.argsort(times, kind="stable"):
        while at < len(order) and starts[order[at]] <= times[row]:
            open_now.append(int(order[at]))
            at += 1
        open_now = [r for r in open_now if ends[r] >= times[row]]
        found[row] = "".join(f" {names[r]}" for r in open_now[-8:])
    return pl.Series(found)


def matching(timeline: Timeline, pattern: str) -> Mask:
    """Operations whose description matches. Raises InputError for what is no regular expression."""
    if not pattern:
        return np.ones(timeline.operations.height, bool)
    compiled = expression(pattern)
    return np.array([compiled.search(text) is not None for text in described(timeline).to_list()], bool)


def _bytes(timeline: Timeline, mask: Mask) -> int:
    return int(timeline.operations["bytes"].filter(pl.Series(mask)).sum())


def _among(timeline: Timeline, column: str, *words: str) -> Mask:
    return words_of(timeline.operations).among(column, *words)


def _pageable(timeline: Timeline) -> Mask:
    return _among(timeline, "source_memory", "pageable") | _among(timeline, "destination_memory", "pageable")


def _calls_of(timeline: Timeline, operations: Mask) -> Mask:
    mask = np.zeros(len(timeline.columns["call_own"]), bool)
    launched = operations & (timeline.columns["operation_launched"] != 0)
    mask[timeline.columns["operation_call"][launched]] = True
    return mask


@dataclass(frozen=True)
class Pin:
    """Pageable host buffers become pinned ones."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return "pin the host buffers" + (f" of {self.pattern}" if self.pattern else "")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = _among(timeline, "kind", "copy") & _among(timeline, "direction", "h2d", "d2h")
        chosen &= _pageable(timeline)
        chosen &= matching(timeline, self.pattern)
        if not chosen.any():
            return Applied(timeline, 0)
        columns = timeline.columns
        copies = timeline.operations.filter(pl.Series(chosen))
        pinned = nanoseconds_pinned(copies, setting.recorded_on)
        duration = columns["operation_duration"].astype(np.float64)
        duration[chosen] = np.where(
            np.isfinite(pinned), np.minimum(pinned, duration[chosen]), duration[chosen]
        )
        host_side = pl.lit("pinned", dtype=timeline.operations["source_memory"].dtype)
        mask = pl.Series(chosen)
        operations = timeline.operations.with_columns(
            source_memory=pl.when(mask & (pl.col("source_memory") == "pageable"))
            .then(host_side)
            .otherwise("source_memory"),
            destination_memory=pl.when(mask & (pl.col("destination_memory") == "pageable"))
            .then(host_side)
            .otherwise("destination_memory"),
        )
        calls = _calls_of(timeline, chosen)
        asynchronous = calls & calls_named(timeline, ASYNC_COPY)
        usual = np.where(asynchronous, _pinned_call_ns(timeline), usual_call_ns(timeline, ASYNC_COPY))
        launch = columns["operation_launch_lag"].copy()
        called = chosen & (columns["operation_launched"] != 0)
        reached = np.where(asynchronous, usual + WAY_TO_GPU_NS, usual)
        launch[called] = np.minimum(launch[called], reached[columns["operation_call"][called]])
        # What a copy to the GPU waited for without a reason was the host handing over its bytes: the first of a large
        # one staged, which takes what it takes; all of a small one written into the command.
        sizes = timeline.operations["bytes"].fill_null(0).to_numpy()
        handed = np.where(
            sizes > STAGED_ABOVE_BYTES, columns["operation_extra"], sizes * NS_TO_HAND_OVER_A_BYTE
        )
        handed = np.where(called & _among(timeline, "direction", "h2d"), handed, 0).astype(np.int64)
        extra = np.maximum(columns["operation_extra"] - handed, 0)
        # A blocking call waits on: no longer for its bytes to be staged, but always for the end of the copy, which it
        # need not once the bytes are staged.
        blocking = calls & ~asynchronous & (columns["call_wait"] == WAIT["operation"])
        own = np.where(blocking, np.minimum(columns["call_own"], usual), columns["call_own"])
        lag = columns["call_wait_lag"]
        lag = np.where(blocking & ((lag < 0) | (lag > WAKE_UP_NS)), WAKE_UP_NS, lag)
        # A synchronisation behind a copy that is no longer over by then wakes up like others.
        behind = next_on_thread(timeline)[asynchronous]
        behind = behind[behind >= 0]
        behind = behind[np.isin(columns["call_wait"][behind], [WAIT["stream"], WAIT["given"]])]
        lag[behind] = np.maximum(lag[behind], WAKE_UP_NS)
        changed = with_durations(replace(timeline, operations=operations), duration).with_columns(
            operation_launch_lag=launch, operation_extra=extra, call_own=own, call_wait_lag=lag,
            call_gap=columns["call_gap"] - fetching_again_ns(timeline, _pageable(timeline), setting.recorded_on) + fetching_again_ns(timeline, _pageable(timeline) & ~chosen, setting.recorded_on),
        )
        changed = without_waits(changed, asynchronous, np.minimum(columns["call_own"], usual))
        return Applied(
            changed,
            int(chosen.sum()),
            int(copies["bytes"].sum()),
            ["the buffers are pinned once, outside the run, and fit into the host's memory"],
        )


def _pinned_call_ns(timeline: Timeline) -> int:
    """What submitting a copy of pinned memory takes the host: as such copies of the trace do, else by its launches."""
    memory = ("source_memory", "destination_memory")
    pinned = _calls_of(
        timeline, _among(timeline, memory[0], "pinned") | _among(timeline, memory[1], "pinned")
    )
    free = pinned & calls_named(timeline, ASYNC_COPY) & (timeline.columns["call_wait"] == WAIT["none"])
    if free.any():
        return int(np.median(timeline.columns["call_own"][free]))
    return min(usual_call_ns(timeline, ASYNC_COPY), int(COPY_OF_LAUNCH * usual_call_ns(timeline, "Launch")))


@dataclass(frozen=True)
class Async:
    """Copies no longer hold the host up: those to the GPU or, with a pattern, whichever match in either direction."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return f"copy without waiting: {self.pattern}" if self.pattern else "copy to the GPU without waiting"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        directions = ("h2d", "d2h") if self.pattern else ("h2d",)
        chosen = _among(timeline, "kind", "copy") & _among(timeline, "direction", *directions)
        chosen &= ~_pageable(timeline) & matching(timeline, self.pattern)
        back = bool((chosen & _among(timeline, "direction", "d2h")).any())
        calls = _calls_of(timeline, chosen)
        following = next_on_thread(timeline)
        waiting = np.isin(columns["call_wait"], [WAIT["stream"], WAIT["given"]])
        # PyTorch's blocking copy is an asynchronous one with a wait for its stream behind it.
        behind = following[calls]
        behind = behind[behind >= 0]
        synchronising = np.zeros(len(calls), bool)
        synchronising[behind] = waiting[behind]
        blocking = calls & (columns["call_wait"] != WAIT["none"])
        usual = usual_call_ns(timeline, ASYNC_COPY)
        own = np.where(synchronising, 0, np.minimum(columns["call_own"], usual))
        # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
        freed = chosen & (columns["operation_launched"] != 0)
        freed[freed] = (blocking & (columns["call_wait"] == WAIT["operation"]))[
            columns["operation_call"][freed]
        ]
        changed = without_waits(timeline, blocking | synchronising, own).with_columns(
            operation_extra=np.where(freed, 0, columns["operation_extra"])
        )
        touched = int(blocking.sum() + synchronising.sum())
        return Applied(
            changed,
            touched,
            _bytes(timeline, chosen) if touched else 0,
            [
                "nothing overwrites a buffer before its copy is done",
                *(["the host reads what comes back only behind a wait that stays"] if back else []),
            ],
        )


@dataclass(frozen=True)
class DropSynchronisations:
    """Explicit waits go, but for those behind a copy to the host and the last of each thread."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return "synchronise only where the host needs a result" + (
            f": {self.pattern}" if self.pattern else ""
        )

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        waiting = calls_named(timeline, SYNCHRONISE) & (columns["call_wait"] != WAIT["none"])
        if self.pattern:
            waiting &= calls_named(timeline, self.pattern)
        out = _calls_of(timeline, _among(timeline, "direction", "d2h"))
        needed = np.zeros(len(waiting), bool)
        following = next_on_thread(timeline)
        needed[following[out][following[out] >= 0]] = True
        last = np.zeros(len(waiting), bool)
        for thread in np.unique(columns["call_thread"][waiting]):
            last[np.flatnonzero(waiting & (columns["call_thread"] == thread))[-1]] = True
        dropped = waiting & ~needed & ~last
        return Applied(
            without_calls(timeline, dropped),
            int(dropped.sum()),
            0,
            ["the host reads no result between these waits, and reuses no buffer that is still on its way"],
        )


@dataclass(frozen=True)
class Dedupe:
    """Buffers that are sent again unchanged are sent once."""

    @property
    def title(self) -> str:
        return "send unchanged buffers once"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        repeated = repeated_copies(timeline.operations)
        if repeated is None:
            raise InputError(
                f"{timeline.trace.path}: the trace does not say what was in the copied buffers; "
                "record it with `busfare record --fingerprint`"
            )
        warm = timeline.columns["call_gap"] - fetching_again_ns(timeline, _pageable(timeline), setting.recorded_on) + fetching_again_ns(timeline, _pageable(timeline) & ~repeated, setting.recorded_on)
        return Applied(
            without_operations(timeline.with_columns(call_gap=warm), repeated),
            int(repeated.sum()),
            _bytes(timeline, repeated),
            ["nothing on the GPU writes into these buffers between the copies"],
        )


def repeated_copies(operations: pl.DataFrame) -> Mask | None:
    """Copies to the GPU whose bytes already stand where they go; None where the trace has no fingerprints."""
    needed = ("fingerprint", "destination_address")
    if (
        any(name not in operations.columns for name in needed)
        or operations["fingerprint"].drop_nulls().is_empty()
    ):
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & pl.col("fingerprint").is_not_null()
    place = ["process", "device", "destination_address", "bytes"]
    frame = operations.with_row_index("at").filter(into)
    repeated = frame.filter(
        (pl.col("fingerprint") == pl.col("fingerprint").shift(1).over(place)).fill_null(False)
    )
    mask = np.zeros(operations.height, bool)
    mask[repeated["at"].to_numpy()] = True
    return mask


@dataclass(frozen=True)
class Remove:
    """Operations of one direction or kind are gone, with the calls that made them."""

    what: str

    @property
    def title(self) -> str:
        return f"no {self.what}"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        removed = _among(timeline, "direction", self.what) | _among(timeline, "kind", self.what)
        warm = timeline.columns["call_gap"] - fetching_again_ns(timeline, _pageable(timeline), setting.recorded_on) + fetching_again_ns(timeline, _pageable(timeline) & ~removed, setting.recorded_on)
        timeline = timeline.with_columns(call_gap=warm)
        return Applied(without_operations(timeline, removed), int(removed.sum()), _bytes(timeline, removed))


@dataclass(frozen=True)
class CopySpeed:
    """Every copy and migration takes `factor` times less."""

    factor: float

    @property
    def title(self) -> str:
        return f"copies {self.factor:g} times as fast"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        moved = _among(timeline, "kind", "copy", "migration")
        duration = timeline.columns["operation_duration"] / np.where(moved, self.factor, 1.0)
        return Applied(with_durations(timeline, duration), int(moved.sum()), _bytes(timeline, moved))


@dataclass(frozen=True)
class ToNode:
    """The copies run on another node, or over another link."""

    node: Node

    @property
    def title(self) -> str:
        return f"on {self.node.name}"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            raise InputError(
                f"{timeline.trace.path}: the trace names no GPU of the catalogue; "
                "say where it was recorded with --from NODE"
            )
        moved = _among(timeline, "kind", "copy", "migration")
        duration = nanoseconds_on(timeline, setting.recorded_on, self.node, setting.model)
        return Applied(
            replace(with_durations(timeline, duration), node=self.node),
            int(moved.sum()),
            _bytes(timeline, moved),
            ["kernels keep their times, and the host where not both were measured, unless a rule is given"],
        )


@dataclass(frozen=True)
class Kernels:
    """Kernel times by a rule: every kernel whose name matches takes `factor` times its time."""

    factor: float
    pattern: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        which = f" of {self.pattern}" if self.pattern else ""
        return f"kernel times{which} × {self.factor:.4g}" + (f" ({self.why})" if self.why else "")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = _among(timeline, "kind", "kernel", "graph", "set")
        chosen &= matching(timeline, self.pattern)
        duration = timeline.columns["operation_duration"] * np.where(chosen, self.factor, 1.0)
        return Applied(with_durations(timeline, duration), int(chosen.sum()))
