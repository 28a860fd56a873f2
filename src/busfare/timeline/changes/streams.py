"""One stream's chunks of work (copies in, kernels, copies out) spread over several streams and as many buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from busfare.statements import statement
from busfare.timeline.build.work import before_in
from busfare.timeline.edit import (
    ASYNC_COPY,
    Applied,
    Change,
    Setting,
    applied,
    last_of_each,
    numbered_in,
    titled,
    usual_call_ns,
    with_streams,
)
from busfare.timeline.model import STREAM_KINDS, WAIT, Timeline, Times, matching, pageable

__all__ = ["are_pipelines", "chunks", "streams"]

MOST_KERNELS_A_CHUNK = 64
#: Chunks that send so much for each kernel are parts of a stream of data, whatever comes back and when.
MUCH_BYTES = 1 << 20


def streams(count: int, kernel: str = "") -> Change:
    """Chunk i runs in stream i mod `count`; the host waits for chunk i - `count` + 1 where it waited for chunk i.

    `kernel`: only chunks with a kernel that matches.
    """

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if timeline.calls.height == 0 or count == 1:  # without calls the observed order stays
            return Applied(timeline, 0)
        chunk = chunks(timeline, kernel)
        stream_of = timeline.columns["operation_stream"]
        spread = np.zeros(len(chunk), bool)
        changed = timeline
        for stream in np.unique(stream_of[chunk >= 0]):
            mine = np.where(stream_of == stream, chunk, -1)
            if len(np.unique(mine[mine >= 0])) > 1:
                changed = _spread(changed, mine, int(stream), count)
                spread |= mine >= 0
        if not spread.any():
            return Applied(timeline, 0)
        rests_on = statement("assumes.buffers", count=count), statement("assumes.pageable-holds")
        return applied(timeline, _kernels_in_turn(changed), spread, *rests_on)

    return Change("streams", titled("streams", kernel, count=count), apply)


def _kernels_in_turn(timeline: Timeline) -> Timeline:
    """Kernels that now lie in several streams of a GPU run one at a time: what they leave each other no trace says.

    Those whose streams the recording already shows beside each other keep what it shows.
    """
    columns = timeline.columns
    free = timeline.kernels & (columns["operation_engine"] < 0)
    devices = columns["stream_device"][columns["operation_stream"]]
    engine, slots = columns["operation_engine"].copy(), columns["engine_slots"]
    for device in np.unique(devices[free]):
        mine = free & (devices == device)
        if len(np.unique(columns["operation_stream"][mine])) > 1:
            engine[mine] = len(slots)
            slots = np.append(slots, np.int32(1))
    return timeline.with_columns(operation_engine=engine, engine_slots=slots)


def chunks(timeline: Timeline, kernel: str = "") -> Times:
    """The number of the chunk that each operation is in, -1 for none; shape (operations,).

    A chunk starts with a copy to the GPU behind a kernel or a copy back, and holds at least one kernel (one whose
    description matches `kernel`).
    """
    into, wanted = timeline.copies("h2d"), matching(timeline, kernel, timeline.kernels, "`kernel`")
    stream_of = timeline.columns["operation_stream"]
    before = before_in(stream_of)
    begins = into & ~((before >= 0) & into[before])
    number = numbered_in(stream_of, begins | (before < 0))  # of the part of a stream up to the next beginning
    whole = (np.bincount(number, weights=begins) > 0) & (np.bincount(number, weights=wanted) > 0)
    return np.where(whole[number], number, -1)


def are_pipelines(timeline: Timeline) -> bool:
    """Whether most chunks look like parts of one data set: some in, a few kernels, some out; or much in.

    A step of training or of an inference loop begins with a copy, too, but its many kernels need what the step before
    left on the GPU.
    """
    chunk = chunks(timeline)
    inside = chunk >= 0
    number = len(np.unique(chunk[inside]))
    if number < 2:
        return False

    def of_chunks(weights: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(chunk[inside], weights=weights[inside])

    kernels = of_chunks(timeline.kernels)
    out = of_chunks(timeline.among("direction", "d2h")) > 0
    much = of_chunks(np.where(timeline.among("direction", "h2d"), timeline.sizes, 0)) >= MUCH_BYTES * kernels
    # A chunk holds a kernel: numbers that are none have none.
    fitting = (kernels > 0) & (kernels <= MOST_KERNELS_A_CHUNK) & (out | much)
    return 2 * int(np.count_nonzero(fitting)) > number


def _spread(timeline: Timeline, chunk: Times, stream: int, count: int) -> Timeline:
    """Moves the chunks of `stream` to new streams. What is in no chunk waits for them, and they for it."""
    numbers, inside = np.unique(chunk[chunk >= 0]), chunk >= 0
    first_new = timeline.streams.height
    moved = timeline.columns["operation_stream"].copy()
    moved[inside] = first_new + np.searchsorted(numbers, chunk[inside]) % count
    changed = with_streams(timeline, stream, count, STREAM_KINDS["blocking"]).with_columns(
        operation_stream=moved
    )
    context, kind = changed.columns["stream_context"], changed.columns["stream_kind"]
    context[[stream, *range(first_new, first_new + count)]] = context.max(initial=-1) + 1
    kind[stream] = STREAM_KINDS["null"]
    return _wait_later(changed, chunk, numbers, count, stream)


def _wait_later(timeline: Timeline, chunk: Times, numbers: Times, count: int, stream: int) -> Timeline:
    """Waits within chunk i become waits for the end of chunk i - count + 1; those of the last chunk wait for all."""
    columns = timeline.columns
    call_of, inside = columns["operation_call"], chunk >= 0
    rows = np.flatnonzero(inside)
    order = np.searchsorted(numbers, chunk[rows])
    last_row = np.flatnonzero(last_of_each(chunk, inside))
    last_row = last_row[np.argsort(chunk[last_row])]
    first_call = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first_call, order, call_of[rows].astype(np.int64))
    # The chunk that each call falls into: from the first call of one to the first call of the next.
    owner = np.searchsorted(first_call, np.arange(len(columns["call_own"])), side="right") - 1
    staged, copying = timeline.calls_of(pageable(timeline.operations)), timeline.calls_of(inside)
    wait, key, own = columns["call_wait"].copy(), columns["call_wait_key"].copy(), columns["call_own"].copy()
    threads = np.unique(columns["call_thread"][call_of[rows]])
    waiting = timeline.waiting() & (owner >= 0) & ~staged & np.isin(columns["call_thread"], threads)
    own = np.where(waiting & copying, np.minimum(own, usual_call_ns(timeline, ASYNC_COPY)), own)
    last, earlier = len(numbers) - 1, owner - count + 1
    at_end = waiting & (owner == last) & (np.arange(len(owner)) >= call_of[last_row[last]])
    # A program with several buffers waits once a chunk: where the one stream's program waited last.
    later = waiting & ~at_end & (earlier >= 0) & last_of_each(owner, waiting)
    wait[waiting] = WAIT["none"]
    wait[at_end], key[at_end] = WAIT["device"], columns["stream_device"][stream]
    wait[later], key[later] = WAIT["given"], last_row[earlier[later]]
    return timeline.with_columns(call_wait=wait, call_wait_key=key, call_own=own)
