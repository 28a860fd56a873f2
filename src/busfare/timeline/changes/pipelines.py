"""Which operations of a run are chunks of a pipeline that several streams could share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from busfare.cost.models import packing_seconds
from busfare.timeline.build.work import before_in
from busfare.timeline.changes.fewer_copies import SMALLEST_BYTES, returned_copies
from busfare.timeline.edit import numbered_in
from busfare.timeline.model import Timeline, Times, matching

MOST_KERNELS_A_CHUNK = 64
#: Chunks that send so much for each kernel are parts of a stream of data, whatever comes back and when.
MUCH_BYTES = 1 << 20


def chunks(timeline: Timeline, kernel: str = "") -> Times:
    """The number of the chunk that each operation is in, -1 for none; shape (operations,). A chunk starts with a copy to the
    GPU behind a kernel or a copy back, and holds at least one kernel (one whose description matches `kernel`).
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
    left on the GPU; and a frame that the host makes of the result before it cannot be sent earlier.
    """
    chunk = chunks(timeline)
    inside = chunk >= 0
    number = len(np.unique(chunk[inside]))
    if number < 2:
        return False

    def of_chunks(weights: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(chunk[inside], weights=weights[inside])

    kernels = of_chunks(timeline.kernels)
    returned, identified_by = returned_copies(timeline.operations, timeline.node)
    if (
        identified_by != "bytes"
        and 2 * np.count_nonzero(of_chunks(returned & timeline.copies("h2d"))) > number
    ):
        return False  # what a chunk brings in, the one before it gave
    if _frame_by_frame(timeline, chunk):
        return False
    out = of_chunks(timeline.among("direction", "d2h")) > 0
    much = of_chunks(np.where(timeline.among("direction", "h2d"), timeline.sizes, 0)) >= MUCH_BYTES * kernels
    # A chunk holds a kernel: numbers that are none have none.
    fitting = (kernels > 0) & (kernels <= MOST_KERNELS_A_CHUNK) & (out | much)
    return 2 * int(np.count_nonzero(fitting)) > number


def _frame_by_frame(timeline: Timeline, chunk: Times) -> bool:
    """Whether the host makes most chunks of the result before them: from the same buffer; where no address is recorded, once
    it waited for results, and worked for as long as it takes to read them. `chunk`: shape (operations,).
    """
    numbers, rows = np.unique(chunk, return_index=True)
    rows = rows[numbers >= 0]
    if "source_address" in timeline.operations.columns:
        sent = timeline.operations["source_address"][rows]
        repeats = (sent == sent.shift(1)).fill_null(False).to_numpy()
    else:
        results = np.where(timeline.copies("d2h"), timeline.sizes, 0)
        inside = chunk >= 0
        sizes = np.bincount(np.searchsorted(numbers[numbers >= 0], chunk[inside]), results[inside])[:-1]
        calls = timeline.columns["operation_call"][rows][1:]
        waited = timeline.waiting()[before_in(timeline.columns["call_thread"])[calls]]
        works = timeline.columns["call_gap"][calls] >= 1e9 * packing_seconds(
            sizes.astype(np.float64), timeline.node
        )
        repeats = waited & works & (sizes > SMALLEST_BYTES)
    return 2 * int(np.count_nonzero(repeats)) > len(rows)
