"""GPU work in the order in which the host issued it: which call launched it, in which stream, on which engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.replay.host_calls import HostCalls, alike
from busfare.trace import Trace
from busfare.trace.row_lookup import first_pairs
from busfare.trace.words import words_of

__all__ = [
    "CLASSES",
    "ENGINE_BYTES",
    "DeviceWork",
    "Engines",
    "class_of",
    "engines",
    "issued",
    "observed_before",
    "unit_of",
]

Rows = NDArray[np.int32]
Times = NDArray[np.int64]
#: Operations whose lags are alike.
CLASSES = ("kernel", "set", "migration", "graph", "pinned copy", "pageable copy", "other copy")
ENGINE_WORK = ("h2d", "d2h", "p2p", "kernels")
#: Shorter copies to the GPU travel with the commands: probes of H100s and H200s find no turn between a kernel and them,
#: and 3 to 5 µs for longer ones and for all copies back (results/probe, after-kernel).
ENGINE_BYTES = 4096
STREAM_KINDS = {"null": 0, "blocking": 1, "non-blocking": 2}
#: Clocks of host and GPU agree to about this, in nanoseconds.
TOLERANCE_NS = 5_000


class DeviceWork(NamedTuple):
    """`operations`: the trace's columns in issue order with `row` (of the trace), `call` (position among the calls,
    -1 before the first), `launched` and `stream_number`. `streams`: a row a stream, with `device_number`,
    `context_number`, `kind_number` and `kind_known`.
    """

    operations: pl.DataFrame
    streams: pl.DataFrame


def issued(trace: Trace, host: HostCalls) -> DeviceWork:
    """The operations of `trace` that have times, sorted as the calls issued them."""
    operations = trace.operations.with_row_index("row")
    starts, ends = operations["start_ns"], operations["end_ns"]
    if starts.null_count() or ends.null_count() or (ends < starts).any():
        operations = operations.filter(starts.is_not_null() & (ends >= starts))
    begun = operations["start_ns"].to_numpy()
    launching = first_pairs(host.inside, operations)
    called = host.inside["call"].to_numpy()
    known = launching >= 0
    launched = np.zeros(len(begun), bool)
    launched[known] = begun[known] >= host.inside["start_ns"].to_numpy()[launching[known]]
    position = np.searchsorted(host.calls["start_ns"].to_numpy(), begun, side="right") - 1
    call = position.astype(np.int32)
    call[launched] = called[launching[launched]]
    order = np.lexsort((begun, call))  # like starts keep their order
    operations = operations[order].with_columns(
        pl.col("stream").fill_null(-1),
        pl.col("device").fill_null(0),
        call=pl.Series(call[order]),
        launched=pl.Series(launched[order]),
    )
    number, used = alike(operations.select("process", "device", "context", "stream"))
    return DeviceWork(
        operations.with_columns(stream_number=pl.Series(number.astype(np.int32))), _streams(trace, used)
    )


def _streams(trace: Trace, used: pl.DataFrame) -> pl.DataFrame:
    """`used` streams, with what the trace says of them."""
    kinds = trace.streams.select("process", "context", "stream", "kind").unique(
        ["process", "context", "stream"], keep="last", maintain_order=True
    )
    used = used.join(
        kinds, on=["process", "context", "stream"], how="left", nulls_equal=True, maintain_order="left"
    )
    return used.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int32).alias("stream_number"),
        device_number=pl.struct("process", "device").rank("dense").cast(pl.Int32) - 1,
        context_number=pl.struct("process", "device", "context").rank("dense").cast(pl.Int32) - 1,
        kind_known=pl.col("kind").is_not_null(),
        # A stream that the trace says nothing of: nothing is assumed to wait for it.
        kind_number=pl.col("kind")
        .cast(pl.String)
        .replace_strict(STREAM_KINDS, default=2)
        .fill_null(2)
        .cast(pl.UInt8),
    )


def class_of(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The number of each operation's class in `CLASSES`; shape (operations,)."""
    words = words_of(operations)
    found = np.full(operations.height, CLASSES.index("other copy"), np.uint8)
    for memory in ("pinned", "pageable"):
        either = words.among("source_memory", memory) | words.among("destination_memory", memory)
        found[either] = CLASSES.index(f"{memory} copy")
    for kind in ("kernel", "set", "migration", "graph"):
        found[words.among("kind", kind)] = CLASSES.index(kind)
    return found


def unit_of(operations: pl.DataFrame, operation_class: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """0 for work of the multiprocessors, 1 for that of the copy engines; shape (operations,)."""
    copies = np.array([name.endswith("copy") or name == "migration" for name in CLASSES], np.uint8)
    short = operations["bytes"].fill_null(ENGINE_BYTES).to_numpy() < ENGINE_BYTES
    with_commands = words_of(operations).among("direction", "h2d") & short
    return np.where(with_commands, np.uint8(0), copies[operation_class])


class Engines(NamedTuple):
    """`of`: the engine of each operation, -1 for none. `slots`: how many each engine runs at once."""

    of: Rows
    slots: Rows
    names: list[str]


def engines(work: DeviceWork, trace: Trace) -> Engines:
    """A copy engine a direction and GPU, and the kernels of a GPU where several streams compete for it.

    An engine runs as many at once as the recording shows it doing at most: what a kernel leaves free of a GPU is
    not in a trace.
    """
    operations = work.operations
    gpu_of_stream, gpus = _physical_gpus(work.streams, trace)
    stream = operations["stream_number"].to_numpy()
    gpu = gpu_of_stream[stream]
    words = words_of(operations)
    what = np.full(operations.height, -1, np.int64)
    what[words.among("kind", "kernel", "graph")] = len(ENGINE_WORK) - 1
    copies = words.among("kind", "copy", "migration")
    for number, direction in enumerate(ENGINE_WORK[:-1]):
        what[copies & words.among("direction", direction)] = number
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    lane = np.where(what >= 0, gpu * len(ENGINE_WORK) + what, -1)
    of = np.full(operations.height, -1, np.int32)
    slots: list[int] = []
    names: list[str] = []
    for number in np.unique(lane[lane >= 0]):
        mine = lane == number
        work_name = ENGINE_WORK[int(number) % len(ENGINE_WORK)]
        # Kernels of one stream never compete.
        if work_name == "kernels" and (stream[mine] == stream[mine][0]).all():
            continue
        of[mine] = len(slots)
        slots.append(_at_once(starts[mine], ends[mine]))
        names.append(f"{work_name} of {gpus[int(number) // len(ENGINE_WORK)]}")
    return Engines(of, np.array(slots, np.int32), names)


def _physical_gpus(streams: pl.DataFrame, trace: Trace) -> tuple[NDArray[np.int64], list[str]]:
    """The number of the GPU behind each stream, and the GPUs' names: processes may call different GPUs alike."""
    known = trace.devices.select("device", "process", gpu=pl.coalesce("uuid", "bus_id")).drop_nulls("gpu")
    own = {(device, process): gpu for device, process, gpu in known.iter_rows() if process is not None}
    everywhere = {device: gpu for device, process, gpu in known.iter_rows() if process is None}
    names: dict[str, int] = {}
    numbers = []
    for process, device in streams.select("process", "device").iter_rows():
        alike = everywhere.get(device, f"gpu {device} of process {process or 0}")
        numbers.append(names.setdefault(own.get((device, process), alike), len(names)))
    return np.array(numbers, np.int64), list(names)


def _at_once(starts: Times, ends: Times) -> int:
    """The most intervals that overlap by more than the clocks' disagreement."""
    ends = np.maximum(ends - TOLERANCE_NS // 5, starts)
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    order = np.lexsort((steps, times))
    return max(1, int(np.cumsum(steps[order]).max()))


def observed_before(operations: pl.DataFrame, groups: NDArray[np.int64] | None = None) -> Rows:
    """The operation that ended last before each starts, within its group; -1 for none. Shape (operations,).

    What stands in for a dependency that the trace does not hold.
    """
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    if len(starts) == 0:
        return np.zeros(0, np.int32)
    group = np.zeros(len(starts), np.int64) if groups is None else groups
    order = np.lexsort((ends, group))
    # One sorted key for all groups: the group's number above the time.
    origin, span = int(starts.min()), int(ends.max() - starts.min()) + 2
    key = group[order] * span + (ends[order] - origin)
    at = np.searchsorted(key, group * span + (starts - origin), side="right") - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    same = (found >= 0) & (group[np.maximum(found, 0)] == group) & (found < np.arange(len(starts)))
    return np.where(same, found, -1).astype(np.int32)
