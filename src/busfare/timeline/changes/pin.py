"""Host buffers pinned: what their copies take, and what the host no longer does for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from busfare.cost.staging import HANDED_OVER_SECONDS_PER_BYTE
from busfare.timeline.build.device_work import ENGINE_BYTES
from busfare.timeline.changes.change import Applied, Setting
from busfare.timeline.edit import (
    ASYNC_COPY,
    calls_named,
    next_on_thread,
    usual_call_ns,
    with_durations,
    without_waits,
)
from busfare.timeline.host_caches import gaps_without
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import STAGED_ABOVE_BYTES, nanoseconds_pinned, pageable
from busfare.timeline.selection import among, calls_of, matching

__all__ = ["Pin"]

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
class Pin:
    """Pageable host buffers become pinned ones."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return "pin the host buffers" + (f" of {self.pattern}" if self.pattern else "")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = among(timeline, "kind", "copy") & among(timeline, "direction", "h2d", "d2h")
        chosen &= pageable(timeline.operations)
        chosen &= matching(timeline, self.pattern)
        if not chosen.any():
            return Applied(timeline, 0)
        columns = timeline.columns
        copies = timeline.operations.filter(pl.Series(chosen))
        pinned = nanoseconds_pinned(copies, setting.recorded_on)
        duration = columns["operation_duration"].astype(np.float64)
        known = duration[chosen]
        duration[chosen] = np.where(np.isfinite(pinned), np.minimum(pinned, known), known)
        # What traveled with the commands is a copy now: its price is from the end of one to the end of the next, without
        # a recorder.
        order = columns["operation_order_lag"].copy()
        with_commands = chosen & among(timeline, "direction", "h2d")
        with_commands &= timeline.operations["bytes"].fill_null(0).to_numpy() <= ENGINE_BYTES
        turn = pinned[with_commands[chosen]] - duration[with_commands] + timeline.closer_ns
        order[with_commands] = np.fmax(order[with_commands], turn).astype(np.int64)
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
        calls = calls_of(timeline, chosen)
        asynchronous = calls & calls_named(timeline, ASYNC_COPY)
        usual = np.where(asynchronous, _pinned_call_ns(timeline), usual_call_ns(timeline, ASYNC_COPY))
        launch = columns["operation_launch_lag"].copy()
        called = chosen & (columns["operation_launched"] != 0)
        reached = np.where(asynchronous, usual + WAY_TO_GPU_NS, usual)
        launch[called] = np.minimum(launch[called], reached[columns["operation_call"][called]])
        wait = columns["call_wait"]
        blocking = calls & ~asynchronous & np.isin(wait, [WAIT["operation"], WAIT["none"]])
        early = blocking & (wait == WAIT["none"])  # returned once its bytes were staged
        wait = np.where(blocking, WAIT["operation"], wait).astype(np.uint8)
        # What a copy to the GPU waited for without a reason was the host handing over its bytes: the first of a large
        # one staged, which takes what it takes; all of a small one written into the command.
        sizes = timeline.operations["bytes"].fill_null(0).to_numpy()
        small_handed = sizes * (HANDED_OVER_SECONDS_PER_BYTE * 1e9)
        at_once = sizes > STAGED_ABOVE_BYTES
        at_once[called] |= early[columns["operation_call"][called]]
        handed = np.where(at_once, columns["operation_extra"], small_handed)
        handed = np.where(called & among(timeline, "direction", "h2d"), handed, 0).astype(np.int64)
        extra = np.maximum(columns["operation_extra"] - handed, 0)
        # A blocking call no longer waits for its bytes to be staged, but always for the end of the copy, for which it
        # need not wait once they are.
        own = np.where(blocking, np.minimum(columns["call_own"], usual), columns["call_own"])
        lag = columns["call_wait_lag"]
        lag = np.where(early | blocking & ((lag < 0) | (lag > WAKE_UP_NS)), WAKE_UP_NS, lag)
        # A synchronisation behind a copy that is no longer over by then wakes up like others.
        behind = next_on_thread(timeline)[asynchronous]
        behind = behind[behind >= 0]
        behind = behind[np.isin(columns["call_wait"][behind], [WAIT["stream"], WAIT["given"]])]
        lag[behind] = np.maximum(lag[behind], WAKE_UP_NS)
        changed = with_durations(replace(timeline, operations=operations), duration).with_columns(
            operation_launch_lag=launch,
            operation_order_lag=order,
            operation_extra=extra,
            call_own=own,
            call_wait=wait,
            call_wait_lag=lag,
            call_gap=gaps_without(timeline, chosen),
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
    pinned = calls_of(timeline, among(timeline, memory[0], "pinned") | among(timeline, memory[1], "pinned"))
    free = pinned & calls_named(timeline, ASYNC_COPY) & (timeline.columns["call_wait"] == WAIT["none"])
    if free.any():
        return int(np.median(timeline.columns["call_own"][free]))
    return min(usual_call_ns(timeline, ASYNC_COPY), int(COPY_OF_LAUNCH * usual_call_ns(timeline, "Launch")))
