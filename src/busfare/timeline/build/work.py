"""The calls of host threads, one after another, and the GPU work that they launched, in the order in which it was issued."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.nodes import FloatArray
from busfare.timeline.model import STREAM_KINDS, Mask, Times
from busfare.trace import Trace
from busfare.trace._columns import previous_rows
from busfare.trace.columns import first_pairs, kept, numbered, plain
from busfare.trace.lanes import Union
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import PREFETCH, QUERY, Names, Words

Rows = NDArray[np.int32]
#: A thread that calls nothing for so long may be waiting for another thread of its process.
HANDS_OVER_AFTER_NS = 100_000
#: Streams with lower numbers are those of faults: no synchronisation waits for what runs in them.
LOWEST_STREAM = -1
#: Operations whose lags are alike.
CLASSES = ("kernel", "set", "migration", "graph", "pinned copy", "pageable copy", "other copy")
DIRECTIONS = ("h2d", "d2h", "p2p")
#: Shorter copies to the GPU travel with the commands: probes of H100s and H200s find no turn between a kernel and them,
#: and 3 to 5 µs for longer ones and for all copies back (results/probe, after-kernel).
ENGINE_BYTES = 4096
#: The same behind migrations, which the driver does in batches: those followed each other by 50 to 400 µs on an H100 and an
#: H200. Nanoseconds.
FAULT_NS = 500_000
#: Time stamps of one engine are off by about this, in nanoseconds.
OFF_NS = 1_000


class HostCalls(NamedTuple):
    """Outermost calls in order of their start, and of every call of the trace the outermost one around it.

    `calls`: the trace's columns, `waits_for`, `context`, `stream` and `event` taken from an inner call where the outer one
    does not wait, and `thread_number` (from 0). `inside`: process, correlation, start_ns, call (row of `calls`).
    """

    calls: pl.DataFrame
    inside: pl.DataFrame


def outermost(calls: pl.DataFrame) -> HostCalls:
    """Driver calls within runtime calls folded into those; rows without a time are left out."""
    ordered = timed(calls)
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    later = (starts[1:] > starts[:-1]) | ((starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1]))
    ordered = ordered if later.all() else ordered[np.lexsort((-ends, starts))]  # the longer ones first
    thread_of, threads = alike(ordered.select("process", "thread"))
    spans = ordered.select("start_ns", "end_ns", thread=pl.Series(thread_of))
    latest_end = pl.col("end_ns").cum_max().shift(1).over("thread")
    outer = spans.select((pl.col("start_ns") >= latest_end).fill_null(True)).to_series()
    outside, call = ordered, pl.Series(np.arange(ordered.height, dtype=np.int32))
    if not outer.all():
        rows = np.flatnonzero(outer)
        spans = spans.with_columns(number=pl.when(outer).then(pl.Series(np.cumsum(outer) - 1)))
        # The outer call of an inner call is the last outer call before it.
        call = spans.select(pl.col("number").forward_fill().over("thread").cast(pl.Int32)).to_series()
        # What each waits for is taken from its first inner call that waits, where it does not itself.
        words = Words(ordered)
        inner = np.flatnonzero(words.among("waits_for", *WAITS_FOR[1:]) & ~outer.to_numpy())
        of_call, first = np.unique(call.to_numpy()[inner], return_index=True)
        takes = words.among("waits_for", "none")[rows[of_call]]
        source = rows.copy()
        source[of_call[takes]] = inner[first[takes]]
        waited = (ordered[name][source] for name in ("waits_for", "context", "stream", "event"))
        outside, thread_of = ordered[rows].with_columns(waited), thread_of[rows]
    rank = threads.select(pl.struct("process", "thread").rank("dense").cast(pl.Int32) - 1).to_series()
    outside = outside.with_columns(thread_number=pl.Series(rank.to_numpy()[thread_of]))
    return HostCalls(outside, ordered.select("process", "correlation", "start_ns", call=call))


def without_pollers(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` without those of threads that only ask, as NCCL's watchdog does: when they ask depends on nothing here."""
    asks = Names.of_calls(calls).matching(QUERY)
    if not asks.any():
        return calls
    thread_of, threads = alike(calls.select("process", "thread"))
    works = np.zeros(threads.height, bool)
    works[thread_of[~asks]] = True
    return calls if works.all() else calls.filter(pl.Series(works[thread_of]))


def timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Those of a table that have times."""
    return kept(rows, (rows["end_ns"] >= rows["start_ns"]).fill_null(False))


def alike(table: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Rows that are alike in all columns (of whole numbers): which of them each is, and each once, as they appear."""
    of, first_rows = numbered([numbers for column in table for numbers in plain(column)])
    return of, table[first_rows]


def before_in(groups: NDArray[Any]) -> Rows:
    """The row before each of its group, -1 for the first one; shape (rows,)."""
    number, first = numbered([groups])
    before = np.empty(len(groups), np.int32)
    previous_rows(number, len(first), before)
    return before


def between_calls(calls: pl.DataFrame, after: Rows, origin_ns: int) -> Times:
    """Host time before each outermost call since its thread's call before, since the one that it comes `after` where
    another thread hands over (`handed_over`), or since `origin_ns`; ns, shape (calls,).

    Without what the recorder itself took of it.
    """
    previous = np.where(after >= 0, after, before_in(calls["thread_number"].to_numpy()))
    ends = np.append(calls["end_ns"].to_numpy(), origin_ns)  # of -1: where there is none before
    gap = pl.Series(calls["start_ns"].to_numpy() - ends[previous])
    if "recorder_ns" in calls.columns:
        gap = (gap - calls["recorder_ns"].fill_null(0)).clip(lower_bound=0)
    return gap.to_numpy().astype(np.int64, copy=False)


def handed_over(calls: pl.DataFrame) -> Rows:
    """The call after which each call starts, where threads take turns; -1 elsewhere. Shape (calls,).

    PyTorch's backward pass is such a thread: it is silent while the program's own thread works, and the other way
    round. Of JAX's, the one that hands over may say a few things more. Threads of one process that work at the same time
    hand nothing over. A thread that goes on after a silence in which no other called comes after its own call before.
    """
    after = np.full(calls.height, -1, np.int32)
    if calls.is_empty() or calls["process"].n_unique() > calls["thread_number"].max():  # type: ignore[operator]
        return after  # each process has one thread
    since = pl.col("start_ns") - pl.col("end_ns").shift(1)
    rows = calls.with_columns(pl.col("process").fill_null(-1), row=pl.int_range(pl.len(), dtype=pl.UInt32))
    rows = rows.with_columns(
        first=(since >= HANDS_OVER_AFTER_NS).fill_null(True).over("thread_number"),
        next_start=pl.col("start_ns").shift(-1).over("thread_number"),
    )
    burst = pl.col("first").cum_sum().over("thread_number")
    rows = rows.with_columns(
        burst_end=pl.col("end_ns").max().over("thread_number", burst),
        next_burst=pl.when("first").then("start_ns").shift(-1).backward_fill().over("thread_number"),
    )
    ended = rows.sort("end_ns", "row").select("process", pl.exclude("process").name.suffix("_other"))
    firsts = (
        rows.filter("first")
        .sort("start_ns")
        .join_asof(ended, left_on="start_ns", right_on="end_ns_other", by="process", check_sortedness=False)
    )
    silent, waits = (pl.col(f"{name}_other") for name in ("next_start", "next_burst"))
    silent, waits = (since.is_null() | (since >= pl.col("burst_end")) for since in (silent, waits))
    waits &= pl.col("burst_end_other") < pl.col("start_ns") + HANDS_OVER_AFTER_NS
    same = pl.col("thread_number_other") == pl.col("thread_number")
    hands = firsts.filter((same | silent | waits) & (pl.col("row_other") < pl.col("row")))
    after[hands["row"].to_numpy()] = hands["row_other"].to_numpy()
    return after


class DeviceWork(NamedTuple):
    """`operations`: the trace's columns in issue order with `row` (of the trace), `call` (position among the calls,
    -1 before the first), `launched` and `stream_number`. `streams`: a row a stream, with `device_number` (-1: of faults),
    `context_number`, `kind_number` and `kind_known`.
    """

    operations: pl.DataFrame
    streams: pl.DataFrame


def issued(trace: Trace, host: HostCalls) -> DeviceWork:
    """The operations of `trace` that have times, sorted as the calls issued them."""
    operations = timed(trace.operations.with_row_index("row"))
    begun = operations["start_ns"].to_numpy()
    launching = first_pairs(host.inside, operations)
    matched = launching >= 0
    launched = np.zeros(len(begun), bool)
    launched[matched] = begun[matched] >= host.inside["start_ns"].to_numpy()[launching[matched]]
    position = np.searchsorted(host.calls["start_ns"].to_numpy(), begun, side="right") - 1
    call = position.astype(np.int32)
    call[launched] = host.inside["call"].to_numpy()[launching[launched]]
    if Words(operations).among("kind", "migration").any():
        by = _prefetching(operations, host)
        call, launched = np.where(launched | (by < 0), call, by), launched | (by >= 0)
    operations = _with_streams(operations, launched)
    if not launched.all():
        call = _before_what_follows(operations, call, launched)
    same = call[1:] == call[:-1]
    if ((call[1:] < call[:-1]) | (same & (begun[1:] < begun[:-1]))).any():
        order = np.lexsort((begun, call))  # like starts keep their order
        operations, call, launched = operations[order], call[order], launched[order]
    operations = operations.with_columns(call=pl.Series(call), launched=pl.Series(launched))
    number, used = alike(operations.select("process", "device", "context", "stream"))
    operations = operations.with_columns(stream_number=pl.Series(number.astype(np.int32)))
    return DeviceWork(operations, _streams(trace, used))


def _prefetching(operations: pl.DataFrame, host: HostCalls) -> Rows:
    """The prefetch call that made each migration, -1 where none did; shape (operations,). What moves to the GPU while no
    kernel runs there is no answer to a fault of one.
    """
    calls = host.calls.select("process", "start_ns", "name", call=pl.int_range(pl.len(), dtype=pl.Int32))
    calls = calls.filter(pl.col("name").cast(pl.String).str.contains(PREFETCH))
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    words = Words(operations)
    kernels = words.among("kind", "kernel", "graph")
    moved = np.flatnonzero(words.among("kind", "migration") & words.among("direction", "h2d"))
    alone = Union.of(starts[kernels], ends[kernels]).covered_within(starts[moved], ends[moved]) == 0
    rows = operations.select("process", "start_ns", row=pl.int_range(pl.len()))[moved[alone]]
    by = rows.sort("start_ns").join_asof(calls, on="start_ns", by="process", check_sortedness=False)
    prefetch_call = np.full(operations.height, -1, np.int32)
    prefetch_call[by["row"].to_numpy()] = by["call"].fill_null(-1).to_numpy()
    return prefetch_call


def _with_streams(operations: pl.DataFrame, launched: Mask) -> pl.DataFrame:
    """Streams and devices of all operations, whether the trace tells them or not. Faults make migrations, which no call
    launched: the stream that profilers name (0) is not one that anybody waits for.
    """
    faults = Words(operations).among("kind", "migration") & ~launched
    stream = pl.col("stream").fill_null(-1)
    if faults.any():
        direction = -2 - pl.col("direction").to_physical().fill_null(0).cast(pl.Int32)
        stream = pl.when(pl.Series(faults)).then(direction).otherwise(stream)
    return operations.with_columns(stream.alias("stream"), pl.col("device").fill_null(0))


def _before_what_follows(operations: pl.DataFrame, call: Rows, launched: Mask) -> Rows:
    """`call`, for an operation without a call of its own no later than that of any that its stream ran after it. A trace
    that begins while the GPU has work queued shows that work long after calls that came later.
    """
    place = ["process", "device", "context", "stream"]
    rows = operations.select(*place, "start_ns", row=pl.int_range(pl.len()), call=call, launched=launched)
    last, called = int(call.max()) + 1, pl.when("launched").then("call")
    rows = rows.sort("start_ns", maintain_order=True).reverse()
    rows = rows.with_columns(least=pl.min_horizontal("call", called.otherwise(last).cum_min().over(place)))
    # Among themselves they keep the order in which they began.
    unlaunched = pl.when("launched").then(last).otherwise("least").cum_min().over("process")
    least = called.otherwise(pl.min_horizontal("least", unlaunched)).alias("least")
    return rows.select("row", least).sort("row")["least"].to_numpy().astype(np.int32)


def _streams(trace: Trace, used: pl.DataFrame) -> pl.DataFrame:
    """`used` streams and those in which events were recorded, with what the trace says of them."""
    of_context = used.select("process", "context", "device").unique(
        ["process", "context"], keep="first", maintain_order=True
    )
    place = ["process", "context", "stream"]
    marked = trace.events.select(place).drop_nulls().unique(maintain_order=True)
    marked = marked.join(of_context, on=["process", "context"], how="inner", maintain_order="left")
    unused = marked.join(used, on=place, how="anti", maintain_order="left")
    kinds = trace.streams.select(*place, "kind").unique(place, keep="last", maintain_order=True)
    streams = pl.concat([used, unused.select(used.columns)])
    streams = streams.join(kinds, on=place, how="left", nulls_equal=True, maintain_order="left")
    faults = pl.col("stream") < LOWEST_STREAM
    # A stream that the trace says nothing of: nothing is assumed to wait for it.
    kind = pl.col("kind").cast(pl.String).replace_strict(STREAM_KINDS, default=2).fill_null(2)
    return streams.with_columns(
        stream_number=pl.int_range(pl.len(), dtype=pl.Int32),
        device_number=pl.when(faults)
        .then(-1)
        .otherwise(pl.struct("process", "device").rank("dense").cast(pl.Int32) - 1),
        context_number=pl.struct("process", "device", "context").rank("dense").cast(pl.Int32) - 1,
        kind_known=pl.col("kind").is_not_null() | faults,
        kind_number=kind.cast(pl.UInt8),
    )


def class_of(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The number of each operation's class in `CLASSES`; shape (operations,)."""
    words = Words(operations)
    class_number = np.full(operations.height, CLASSES.index("other copy"), np.uint8)
    for memory in ("pinned", "pageable"):
        either = words.among("source_memory", memory) | words.among("destination_memory", memory)
        class_number[either] = CLASSES.index(f"{memory} copy")
    for kind in ("kernel", "set", "migration", "graph"):
        class_number[words.among("kind", kind)] = CLASSES.index(kind)
    return class_number


def unit_of(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """0 for work of the multiprocessors, 1 for that of the copy engines; shape (operations,)."""
    words, short = Words(operations), operations["bytes"].fill_null(ENGINE_BYTES).to_numpy() < ENGINE_BYTES
    with_commands = words.among("direction", "h2d") & short
    return np.where(with_commands | words.among("kind", "kernel", "graph", "set"), np.uint8(0), np.uint8(1))


def engines(work: DeviceWork, trace: Trace) -> tuple[Rows, Rows]:
    """The engine of each operation, -1 for none; and how many operations each engine runs at once: a copy engine a
    direction and GPU, and the kernels of a GPU where several streams compete for it.

    An engine runs as many at once as the recording shows it doing at most: what a kernel leaves free of a GPU is
    not in a trace.
    """
    operations = work.operations
    stream = operations["stream_number"].to_numpy()
    words = Words(operations)
    copies, kernels = words.among("kind", "copy", "migration"), words.among("kind", "kernel", "graph")
    kinds = [*(copies & words.among("direction", direction) for direction in DIRECTIONS), kernels]
    gpu = _physical_gpus(work.streams, trace)[stream]
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    of = np.full(operations.height, -1, np.int32)
    slots: list[int] = []
    for number in np.unique(gpu):
        for chosen in kinds:
            mine = chosen & (gpu == number)
            # Kernels of one stream never compete.
            if mine.any() and (chosen is not kernels or len(np.unique(stream[mine])) > 1):
                of[mine] = len(slots)
                slots.append(_at_once(starts[mine], ends[mine]))
    return of, np.array(slots, np.int32)


def _physical_gpus(streams: pl.DataFrame, trace: Trace) -> NDArray[np.int64]:
    """The number of the GPU behind each stream: processes may call different GPUs alike."""
    named = trace.devices.select("device", "process", gpu=pl.coalesce("uuid", "bus_id")).drop_nulls("gpu")
    gpus = {(device, process): gpu for device, process, gpu in named.iter_rows()}
    of_streams = [
        gpus.get((device, process)) or gpus.get((device, None)) or (device, process or 0)
        for process, device in streams.select("process", "device").iter_rows()
    ]
    numbers = {gpu: number for number, gpu in enumerate(dict.fromkeys(of_streams))}
    return np.array([numbers[gpu] for gpu in of_streams], np.int64)


def _at_once(starts: Times, ends: Times) -> int:
    """The most intervals that overlap; one where they overlap by no more than time stamps are off."""
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    lasting = ends - OFF_NS > starts
    if (starts[lasting][1:] >= ends[lasting][:-1] - OFF_NS).all():
        return 1
    # Rows of zero duration count, next to what runs around them. At equal times, ends come first.
    ended = np.searchsorted(np.sort(np.maximum(ends, starts + 1)), starts, side="right")
    return int((np.arange(1, len(starts) + 1) - ended).max())


def most_load(starts: Times, ends: Times, rate: FloatArray | float = 1.0) -> FloatArray:
    """The highest sum of rates while each of these runs; shape (rows,)."""
    count = len(starts)
    if count == 0:
        return np.zeros(0)
    # At equal times, ends come first. Two sorted parts are merged.
    order = np.argsort(np.concatenate([ends, starts]), kind="stable")
    load = np.cumsum(np.outer([-1, 1], np.broadcast_to(rate, count)).ravel()[order])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    # From its own start to just before its own end.
    spans = np.column_stack([place[count:], np.maximum(place[:count], place[count:] + 1)])
    return np.asarray(np.maximum.reduceat(np.append(load, 0.0), spans.ravel())[::2])


def observed_before(operations: pl.DataFrame, group: NDArray[np.int64]) -> Rows:
    """The operation that ended last before each starts, within its group; -1 for none. Shape (operations,). What stands in
    for a dependency that the trace does not hold.
    """
    rows = operations.select("start_ns", "end_ns", group=group, row=pl.int_range(pl.len(), dtype=pl.Int32))
    ended = rows.sort("end_ns", maintain_order=True).select("group", "end_ns", before="row")
    preceding = rows.sort("start_ns").join_asof(
        ended, left_on="start_ns", right_on="end_ns", by="group", check_sortedness=False
    )
    before = pl.when(pl.col("before") < pl.col("row")).then("before").fill_null(-1)
    return preceding.sort("row").select(before).to_series().to_numpy()
