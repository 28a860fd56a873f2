"""One stream's chunks of work (copies in, kernels, copies out) spread over several streams and as many buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.edit import ASYNC_COPY, bytes_of, matching, usual_call_ns
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import pageable
from busfare.trace.words import Words

__all__ = ["OPTIONS", "PLACE", "Streams", "are_pipelines", "asked", "chunks"]

PLACE = 80
MOST_STREAMS = 1024
OPTIONS = (
    Option("--streams", "Spread chunks of one stream over N streams and buffers.", "N", number=True),
    Option("--kernel", "With --streams: only chunks with such a kernel.", "REGEX", default=""),
)
LEGACY, BLOCKING = 0, 1
MOST_KERNELS_A_CHUNK = 64
#: Chunks that send so much for each kernel are parts of a stream of data, whatever comes back and when.
MUCH_BYTES = 1 << 20


def asked(options: Asked) -> list[Change]:
    """Raises InputError for no number of streams."""
    count = options.number("streams")
    if count is None:
        return []
    if not 1 <= count <= MOST_STREAMS:
        raise InputError(f"--streams {count}: give 1 to {MOST_STREAMS}")
    return [Streams(count, options.text("kernel") or "")]


@dataclass(frozen=True)
class Streams:
    """Chunk i runs in stream i mod `count`; the host waits for chunk i - `count` + 1 where it waited for chunk i."""

    count: int
    kernel: str = ""

    @property
    def title(self) -> str:
        return f"{self.count} stream{'s' * (self.count != 1)}" + (
            f" for {self.kernel}" if self.kernel else ""
        )

    @property
    def options(self) -> tuple[str, ...]:
        return ("--streams", str(self.count), *(("--kernel", self.kernel) if self.kernel else ()))

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        if self.count < 1:
            raise InputError(f"--streams {self.count}: give 1 or more")
        if timeline.calls.height == 0:  # what the host would wait for is not known: the observed order stays
            return Applied(timeline, 0)
        found = chunks(timeline, self.kernel)
        streams = timeline.columns["operation_stream"]
        spread = np.zeros(len(found), bool)
        changed = timeline
        for stream in np.unique(streams):
            mine = np.where(streams == stream, found, -1)
            if len(np.unique(mine[mine >= 0])) < 2 or self.count == 1:
                continue
            changed = _spread(changed, mine, int(stream), self.count)
            spread |= mine >= 0
        if not spread.any():
            return Applied(timeline, 0)
        return Applied(
            _kernels_in_turn(changed),
            int(spread.sum()),
            bytes_of(timeline, spread),
            [
                f"chunks do not need each other's results, and the GPU holds {self.count} sets of buffers",
                "copies of pageable memory go on holding the host up, and kernels run one after another",
            ],
        )


def _kernels_in_turn(timeline: Timeline) -> Timeline:
    """Kernels that now lie in several streams of a GPU run one at a time: what they leave each other no trace says.

    Those whose streams the recording already shows beside each other keep what it shows.
    """
    columns = timeline.columns
    free = Words(timeline.operations).among("kind", "kernel", "graph") & (columns["operation_engine"] < 0)
    devices = columns["stream_device"][columns["operation_stream"]]
    engine, slots = columns["operation_engine"].copy(), columns["engine_slots"]
    for device in np.unique(devices[free]):
        mine = free & (devices == device)
        if len(np.unique(columns["operation_stream"][mine])) > 1:
            engine[mine] = len(slots)
            slots = np.append(slots, np.int32(1))
    return timeline.with_columns(operation_engine=engine, engine_slots=slots)


def chunks(timeline: Timeline, kernel: str = "") -> NDArray[np.int64]:
    """The number of the chunk that each operation is in, -1 for none; shape (operations,).

    A chunk starts with a copy to the GPU behind a kernel or a copy back, and holds at least one kernel (one whose
    description matches `kernel`).
    """
    words = Words(timeline.operations)
    into = words.among("kind", "copy") & words.among("direction", "h2d")
    wanted = words.among("kind", "kernel", "graph") & matching(timeline, kernel)
    streams = timeline.columns["operation_stream"]
    order = np.argsort(streams, kind="stable")
    into, streams = into[order], streams[order]
    begins = into.copy()
    begins[1:] &= ~into[:-1] | (streams[1:] != streams[:-1])
    another = np.ones(len(order), bool)
    another[1:] = begins[1:] | (streams[1:] != streams[:-1])
    number = np.cumsum(another) - 1  # of the part of a stream up to the next beginning
    whole = begins[another] & (np.bincount(number, weights=wanted[order], minlength=0) > 0)
    chunk = np.empty(len(order), np.int64)
    chunk[order] = np.where(whole[number], number, -1)
    return chunk


def are_pipelines(timeline: Timeline) -> bool:
    """Whether most chunks look like parts of one data set: some in, a few kernels, some out; or much in.

    A step of training or of an inference loop begins with a copy, too, but its many kernels need what the step before
    left on the GPU.
    """
    chunk = chunks(timeline)
    inside = chunk >= 0
    words = Words(timeline.operations)
    into, out = words.among("direction", "h2d"), words.among("direction", "d2h")
    sizes = timeline.operations["bytes"].fill_null(0).to_numpy()

    def of_chunks(weights: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(chunk[inside], weights=weights[inside])

    kernels = of_chunks(words.among("kind", "kernel", "graph"))
    number = int(np.count_nonzero(np.bincount(chunk[inside])))
    if number < 2:
        return False
    much = of_chunks(np.where(into, sizes, 0)) >= MUCH_BYTES * kernels
    # A chunk holds a kernel: numbers that are none have none.
    fitting = (kernels > 0) & (kernels <= MOST_KERNELS_A_CHUNK) & ((of_chunks(out) > 0) | much)
    return 2 * int(np.count_nonzero(fitting)) > number


def _spread(timeline: Timeline, chunk: NDArray[np.int64], stream: int, count: int) -> Timeline:
    """Moves the chunks of `stream` to new streams. What is in no chunk waits for them, and they for it."""
    columns = dict(timeline.columns)
    numbers = np.unique(chunk[chunk >= 0])
    order = np.searchsorted(numbers, chunk)
    first_new, context = len(columns["stream_device"]), int(columns["stream_context"].max(initial=-1)) + 1
    inside = chunk >= 0
    moved = columns["operation_stream"].copy()
    moved[inside] = first_new + order[inside] % count
    columns["operation_stream"] = moved
    columns["stream_device"] = np.append(
        columns["stream_device"], np.full(count, columns["stream_device"][stream], np.int32)
    )
    columns["stream_context"] = np.append(columns["stream_context"], np.full(count, context, np.int32))
    columns["stream_kind"] = np.append(columns["stream_kind"], np.full(count, BLOCKING, np.uint8))
    columns["stream_context"][stream], columns["stream_kind"][stream] = context, LEGACY
    # Copied before they change: other timelines share the arrays.
    streams = pl.concat([timeline.streams, timeline.streams[[stream] * count]])
    changed = replace(timeline, columns=columns, streams=streams)
    return _wait_later(changed, chunk, numbers, count, stream)


def _wait_later(
    timeline: Timeline, chunk: NDArray[np.int64], numbers: NDArray[np.int64], count: int, stream: int
) -> Timeline:
    """Waits within chunk i become waits for the end of chunk i - count + 1; those of the last chunk wait for all."""
    columns = timeline.columns
    calls = columns["operation_call"]
    rows = np.flatnonzero(chunk >= 0)
    order = np.searchsorted(numbers, chunk[rows])
    last_row = np.full(len(numbers), -1, np.int64)
    np.maximum.at(last_row, order, rows)
    first_call = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first_call, order, calls[rows].astype(np.int64))
    # The chunk that each call falls into: from the first call of one to the first call of the next.
    owner = np.searchsorted(first_call, np.arange(len(columns["call_own"])), side="right") - 1
    threads = np.unique(columns["call_thread"][calls[rows]])
    staged = np.zeros(len(owner), bool)
    staged[calls[pageable(timeline.operations) & (columns["operation_launched"] != 0)]] = True
    waiting = (
        (columns["call_wait"] != WAIT["none"])
        & (owner >= 0)
        & ~staged
        & np.isin(columns["call_thread"], threads)
    )
    copying = np.zeros(len(owner), bool)
    copying[calls[rows][columns["operation_launched"][rows] != 0]] = True
    wait, key, own = columns["call_wait"].copy(), columns["call_wait_key"].copy(), columns["call_own"].copy()
    usual = usual_call_ns(timeline, ASYNC_COPY)
    last = len(numbers) - 1
    device = int(columns["stream_device"][stream])
    rows_waiting = np.flatnonzero(waiting)
    # A program with several buffers waits once a chunk: where the one stream's program waited last.
    last_of_chunk = np.full(len(numbers), -1, np.int64)
    np.maximum.at(last_of_chunk, owner[rows_waiting], rows_waiting)
    for call in rows_waiting:
        mine = int(owner[call])
        if copying[call]:
            own[call] = min(int(own[call]), usual)
        earlier = mine - count + 1
        if mine == last and call >= calls[last_row[last]]:
            wait[call], key[call] = WAIT["device"], device
        elif earlier < 0 or call != last_of_chunk[mine]:
            wait[call] = WAIT["none"]
        else:
            wait[call], key[call] = WAIT["given"], last_row[earlier]
    return timeline.with_columns(call_wait=wait, call_wait_key=key, call_own=own)
