"""Host buffers pinned: what their copies take, and what the host no longer does for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from busfare.timeline.build.device_work import ENGINE_BYTES
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.edit import (
    ASYNC_COPY,
    among,
    bytes_of,
    calls_named,
    calls_of,
    gaps_without,
    matching,
    next_on_thread,
    usual_call_ns,
    with_durations,
    without_waits,
)
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import STAGED_ABOVE_BYTES, nanoseconds_pinned, pageable

__all__ = ["OPTIONS", "PLACE", "Pin", "asked"]

#: From the end of a copy of pinned memory to the return of the call that waited for it: 3.2 to 3.6 µs recorded on H100
#: and H200 (matrix_tiles; synchronisations there 2.9 to 3.6).
WAKE_UP_NS = 3_300
#: From the return of a call that submits a copy of pinned memory to its start, where nothing is in its way: 1.6 to 2.6
#: µs recorded on H100 and H200 (denoise_volume).
CALL_TO_GPU_NS = 2_000
#: Submitting a copy of pinned memory takes the host this part of what a launch takes: 1.0 of 2.6 µs bare, 1.8 of 3.6
#: µs recorded, on an H200 (results/recorder).
COPY_OF_LAUNCH = 0.45
PLACE = 50
OPTIONS = (
    Option(
        "--pin",
        "Pageable host buffers become pinned; all, or those of matching copies.",
        "[REGEX]",
        bare=True,
    ),
)


def asked(options: Asked) -> list[Change]:
    """Buffers pinned, or those that match."""
    pattern = options.text("pin")
    return [] if pattern is None else [Pin(pattern)]


@dataclass(frozen=True)
class Pin:
    """Pageable host buffers become pinned ones."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return "pin the host buffers" + (f" of {self.pattern}" if self.pattern else "")

    @property
    def options(self) -> tuple[str, ...]:
        return ("--pin", self.pattern) if self.pattern else ("--pin",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = among(timeline, "kind", "copy") & among(timeline, "direction", "h2d", "d2h")
        chosen &= pageable(timeline.operations) & matching(timeline, self.pattern)
        if not chosen.any():
            return Applied(timeline, 0)
        columns = timeline.columns
        into = chosen & among(timeline, "direction", "h2d")
        called = chosen & (columns["operation_launched"] != 0)
        call_of = columns["operation_call"]
        sizes = timeline.operations["bytes"].fill_null(0).to_numpy()
        pinned = columns["operation_duration"].astype(np.float64)
        pinned[chosen] = nanoseconds_pinned(
            timeline.operations.filter(pl.Series(chosen)), setting.recorded_on
        )
        duration = np.fmin(pinned, columns["operation_duration"])
        # What traveled with the commands is a copy now: its price is from the end of one to the end of the next, without
        # a recorder.
        order = columns["operation_order_lag"].astype(np.float64)
        with_commands = into & (sizes <= ENGINE_BYTES)
        cycle = (pinned - duration + timeline.closer_ns)[with_commands]
        order[with_commands] = np.fmax(order[with_commands], cycle)
        calls = calls_of(timeline, chosen)
        asynchronous = calls & calls_named(timeline, ASYNC_COPY)
        usual = np.where(asynchronous, _pinned_call_ns(timeline), usual_call_ns(timeline, ASYNC_COPY))
        launch = columns["operation_launch_lag"].copy()
        reached = usual + np.where(asynchronous, CALL_TO_GPU_NS, 0)
        launch[called] = np.minimum(launch[called], reached[call_of[called]])
        # A blocking call no longer waits for its bytes to be staged, but always for the end of the copy.
        wait, lag = columns["call_wait"], columns["call_wait_lag"]
        blocking = calls & ~asynchronous & np.isin(wait, [WAIT["operation"], WAIT["none"]])
        early = blocking & (wait == WAIT["none"])  # returned once its bytes were staged
        wait = np.where(blocking, WAIT["operation"], wait).astype(np.uint8)
        lag = np.where(early | blocking & ((lag < 0) | (lag > WAKE_UP_NS)), WAKE_UP_NS, lag)
        # A synchronisation behind a copy that is no longer over by then wakes up like others.
        behind = next_on_thread(timeline)[asynchronous]
        behind = behind[behind >= 0]
        behind = behind[np.isin(columns["call_wait"][behind], [WAIT["stream"], WAIT["given"]])]
        lag[behind] = np.maximum(lag[behind], WAKE_UP_NS)
        # What a large copy to the GPU waited for without a reason was the host staging its first bytes.
        staging = into & called & (sizes > STAGED_ABOVE_BYTES)
        staging[called] |= into[called] & early[call_of[called]]
        own = np.minimum(columns["call_own"], usual)
        changed = with_durations(_in_pinned_memory(timeline, chosen), duration).with_columns(
            operation_launch_lag=launch,
            operation_order_lag=order.astype(np.int64),
            operation_extra=np.where(staging, 0, columns["operation_extra"]),
            call_own=np.where(blocking, own, columns["call_own"]),
            call_wait=wait,
            call_wait_lag=lag,
            call_gap=gaps_without(timeline, chosen),
        )
        return Applied(
            without_waits(changed, asynchronous, own),
            int(chosen.sum()),
            bytes_of(timeline, chosen),
            ["the buffers are pinned once, outside the run, and fit into the host's memory"],
        )


def _in_pinned_memory(timeline: Timeline, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Timeline:
    """The same operations, the pageable side of the `chosen` ones pinned."""
    pinned = pl.lit("pinned", dtype=timeline.operations["source_memory"].dtype)
    operations = timeline.operations.with_columns(
        pl.when(pl.Series(chosen) & (pl.col(side) == "pageable")).then(pinned).otherwise(side).alias(side)
        for side in ("source_memory", "destination_memory")
    )
    return replace(timeline, operations=operations)


def _pinned_call_ns(timeline: Timeline) -> int:
    """What submitting a copy of pinned memory takes the host: as such copies of the trace do, else by its launches."""
    pinned = calls_of(
        timeline,
        among(timeline, "source_memory", "pinned") | among(timeline, "destination_memory", "pinned"),
    )
    free = pinned & calls_named(timeline, ASYNC_COPY) & (timeline.columns["call_wait"] == WAIT["none"])
    if free.any():
        return int(np.median(timeline.columns["call_own"][free]))
    return min(usual_call_ns(timeline, ASYNC_COPY), int(COPY_OF_LAUNCH * usual_call_ns(timeline, "Launch")))
