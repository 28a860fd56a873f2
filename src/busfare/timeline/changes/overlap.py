"""Copies and kernels of a program that run at the same time: buffers that the host stages become pinned, copies and the
program ask for no waits, and one stream's chunks of work are spread over several streams and as many buffers.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from busfare.statements import statement
from busfare.timeline.build.waiting import behind_host_functions
from busfare.timeline.build.work import ENGINE_BYTES, OFF_NS, before_in
from busfare.timeline.changes.pinning import loading_seconds, pinning_of
from busfare.timeline.changes.pipelines import chunks
from busfare.timeline.edit import (
    ASYNC_COPY,
    COPY_CALL_NS,
    LAUNCH_CALL_NS,
    Applied,
    Setting,
    applied,
    change,
    gaps_without,
    last_in_group,
    nanoseconds_from,
    numbered_in,
    right_behind,
    titled,
    usual_call_ns,
    waited_for_behind,
    waiting_behind,
    without_waits,
)
from busfare.timeline.model import (
    ACT,
    STAGED_ABOVE_BYTES,
    STREAM_KINDS,
    WAIT,
    Mask,
    Timeline,
    Times,
    activity,
    calls_touched,
    chosen_by,
    matching,
    operations_touched,
    pageable,
)
from busfare.trace.words import MAPS_HOST_MEMORY, MPI_CALL, PREFETCH, WAITS_FOR_EVENT, Names, is_communication

#: From the end of a copy of pinned memory to the return of the call that waited for it: 3.2 to 3.6 µs recorded on H100
#: and H200 (matrix_tiles; synchronisations there 2.9 to 3.6).
WAKE_UP_NS = 3_300
#: From the return of a call that submits a copy of pinned memory to its start, where nothing is in its way: 1.6 to 2.6
#: µs recorded on H100 and H200 (denoise_volume).
CALL_TO_GPU_NS = 2_000
#: A result of one number, as a flag, a count or a norm: the host decides by it what comes next.
SCALAR_BYTES = 8
ELAPSED_TIME = r"^(cuda|cu|hip)EventElapsedTime"
#: Calls that allocate, free or register memory.
ALLOCATES = (
    r"^(cuda|hip)((Malloc|Free)(Host|Managed|Pitch|3D|(3D)?Array|MipmappedArray)?"
    r"|Host(Alloc|Malloc|Free|Register|Unregister))$"
    r"|^cu(Mem(Alloc|AllocHost|AllocManaged|AllocPitch|Free|FreeHost|Host(Alloc|Register|Unregister))"
    r"|Array(3D)?Create|ArrayDestroy)$"
)


@change("pin", partial(titled, "pin"))
def pin(timeline: Timeline, setting: Setting, pattern: str = "") -> Applied:
    """Pageable host buffers become pinned ones; all, or those of copies that match."""
    chosen = timeline.copies("h2d", "d2h") & pageable(timeline.operations)
    chosen = matching(timeline, pattern, chosen, "`pin`")
    if not chosen.any():
        return Applied(timeline)
    after, cost = _with_pinned(timeline, chosen, setting), None
    if timeline.launched[chosen].all():
        cost = pinning_of(timeline.operations.filter(pl.Series(chosen)), setting.recorded_on)
    rests_on = [] if cost is None else [cost.stated()]
    rests_on += [] if cost and cost.once.all() else [statement("assumes.pinned-once")]
    if loading := loading_seconds(timeline.trace):
        rests_on.append(statement("assumes.loader", seconds=loading))
    if cost is None:
        return applied(timeline, after, chosen, *rests_on)
    whole = applied(timeline, cost.before_calls(after, chosen), chosen, *rests_on)
    return replace(whole, cost_error=(cost.seconds - cost.low, cost.high - cost.seconds))


def _with_pinned(timeline: Timeline, chosen: Mask, setting: Setting) -> Timeline:
    """The run with the host buffers of the `chosen` copies pinned; shape (operations,)."""
    columns = timeline.columns
    into, sizes = chosen & timeline.among("direction", "h2d"), timeline.sizes
    pinned = columns["operation_duration"].astype(np.float64)
    copies = timeline.operations.filter(pl.Series(chosen))
    pinned[chosen] = nanoseconds_from("pinned", copies, setting.recorded_on)
    duration = np.fmin(pinned, columns["operation_duration"])
    # What traveled with the commands is a copy now: its price is from the end of one to the end of the next, without
    # a recorder.
    order = columns["operation_order_lag"].astype(np.float64)
    with_commands = into & (sizes <= ENGINE_BYTES)
    cycle = pinned - duration + timeline.closer_ns
    order[with_commands] = np.fmax(order, cycle)[with_commands]
    calls = timeline.calls_of(chosen)
    asynchronous = calls & timeline.calls_named(ASYNC_COPY)
    usual = np.where(asynchronous, _pinned_call_ns(timeline), usual_call_ns(timeline, ASYNC_COPY))
    launch = columns["operation_launch_lag"].copy()
    called = chosen & timeline.launched
    longest_lag = usual + np.where(asynchronous, CALL_TO_GPU_NS, 0)
    launch[called] = np.minimum(launch[called], longest_lag[columns["operation_call"][called]])
    # A blocking call no longer waits for its bytes to be staged, but always for the end of the copy.
    wait, lag = columns["call_wait"], columns["call_wait_lag"]
    blocking = calls & ~asynchronous & timeline.waiting("operation", "none")
    early = blocking & ~timeline.waiting()  # returned once its bytes were staged
    lag = np.where(early | blocking & ((lag < 0) | (lag > WAKE_UP_NS)), WAKE_UP_NS, lag)
    # A synchronisation behind a copy that is no longer over by then wakes up like others.
    lag = np.where(waiting_behind(timeline, asynchronous), np.maximum(lag, WAKE_UP_NS), lag)
    # What a large copy to the GPU waited for without a reason was the host staging its first bytes.
    staging = into & called & ((sizes > STAGED_ABOVE_BYTES) | timeline.of_calls(early))
    staging &= ~behind_host_functions(timeline)
    call_ns = np.minimum(columns["call_own"], usual)
    changed = timeline.with_columns(
        operation_duration=np.rint(duration).astype(np.int64),
        operation_launch_lag=launch,
        operation_order_lag=order.astype(np.int64),
        operation_extra=np.where(staging, 0, columns["operation_extra"]),
        call_own=np.where(blocking, call_ns, columns["call_own"]),
        call_wait=np.where(blocking, WAIT["operation"], wait).astype(np.uint8),
        call_wait_lag=lag,
        call_gap=gaps_without(timeline, chosen),
    )
    kind = pl.lit("pinned", dtype=timeline.operations["source_memory"].dtype)
    operations = timeline.operations.with_columns(
        pl.when(pl.Series(chosen) & (pl.col(side) == "pageable")).then(kind).otherwise(side).alias(side)
        for side in ("source_memory", "destination_memory")
    )
    return without_waits(replace(changed, operations=operations), asynchronous, call_ns)


def _pinned_call_ns(timeline: Timeline) -> int:
    """What submitting a copy of pinned memory takes the host: as such copies of the trace do, else by its launches."""
    pinned = timeline.among("source_memory", "pinned") | timeline.among("destination_memory", "pinned")
    free = timeline.calls_of(pinned) & timeline.calls_named(ASYNC_COPY) & ~timeline.waiting()
    if free.any():
        return int(np.median(timeline.columns["call_own"][free]))
    of_launch = COPY_CALL_NS / LAUNCH_CALL_NS
    return min(usual_call_ns(timeline, ASYNC_COPY), int(of_launch * usual_call_ns(timeline, "Launch")))


@change("async_", partial(titled, "async"))
def without_waiting(timeline: Timeline, setting: Setting, pattern: str = "") -> Applied:
    """Copies no longer hold the host up: those to the GPU or, with a pattern, whichever match in either direction."""
    chosen = timeline.copies("h2d", *["d2h"] * bool(pattern)) & ~pageable(timeline.operations)
    chosen = matching(timeline, pattern, chosen, "`async_`")
    calls = timeline.calls_of(chosen)
    # PyTorch's blocking copy is an asynchronous one with a wait for its stream behind it.
    synchronising = waiting_behind(timeline, calls)
    blocking = calls & timeline.waiting()
    freed = blocking | synchronising
    call_ns = np.minimum(timeline.columns["call_own"], usual_call_ns(timeline, ASYNC_COPY))
    serial = with_serial_allocations(timeline) if freed.any() else timeline
    changed = without_waits(serial, freed, np.where(synchronising, 0, call_ns))
    # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
    unheld = chosen & timeline.of_calls(blocking & timeline.waiting("operation"))
    extra = timeline.columns["operation_extra"] * ~(unheld & ~behind_host_functions(timeline))
    changed = changed.with_columns(operation_extra=extra)
    rests_on = [statement("assumes.not-overwritten")]
    if (chosen & timeline.among("direction", "d2h")).any():
        rests_on.append(statement("assumes.read-behind-waits"))
    if not freed.any():
        return Applied(changed, rests_on=rests_on)
    held = chosen & timeline.of_calls(calls & (blocking | waited_for_behind(timeline)))
    touched = activity(timeline, held, freed)
    return Applied(changed, operations_touched(timeline, held), rests_on, touched)


@change("drop_synchronisations", partial(titled, "drop-synchronisations"))
def without_synchronisations(timeline: Timeline, setting: Setting, pattern: str = "") -> Applied:
    """Explicit waits go, but for those that results come to the host behind, those that communication follows, those that
    time work, and the last of each thread. Where kernels write to memory of the host, maybe none can go.
    """
    waiting = timeline.calls_named("Synchronize$") & timeline.waiting()
    if pattern:
        names = timeline.calls["name"].cast(pl.String).fill_null("")
        waiting = chosen_by(pattern, waiting, names, "`drop_synchronisations`")
    needed = _results_behind(timeline) | _communication_behind(timeline) | timing_waits(timeline.calls)
    thread = timeline.columns["call_thread"]
    if timeline.trace.lacks_kernels:  # those may start only when what is waited for before is done
        before, causeless = before_in(thread), timeline.calls_named("Synchronize$") & ~timeline.waiting()
        thread = numbered_in(thread, (before < 0) | causeless[before])
    dropped = waiting & ~needed & ~last_in_group(thread, waiting)
    after = without_waits(with_serial_allocations(timeline), dropped, 0) if dropped.any() else timeline
    touched = activity(timeline, calls=dropped)
    mapped = bool(timeline.calls_named(MAPS_HOST_MEMORY).any())
    rests_on = [statement("assumes.unread-between-waits"), *[statement("assumes.unread-mapped")] * mapped]
    error = 0.0, mapped * timeline.recorded_ns * 1e-9
    return Applied(after, calls_touched(timeline, dropped), rests_on, touched, error)


def _communication_behind(timeline: Timeline) -> Mask:
    """Waits that a thread's communication follows before it waits for other work: MPI, or NCCL's kernels in a stream that
    waits for no other, may read or overwrite what they waited for. Shape (calls,).
    """
    columns, waiting = timeline.columns, timeline.waiting()
    carries = timeline.operations.select(is_communication(pl.col("name"))).to_series().to_numpy()
    waits = columns["call_act_stream"][columns["call_act"] == ACT["wait"]]
    ordered = np.append(waits, columns["operation_stream"][timeline.kernels & ~carries])
    carries &= ~np.isin(columns["operation_stream"], ordered)
    talks = timeline.calls_named(MPI_CALL) | timeline.calls_of(carries)
    if not talks.any():
        return talks
    works = waiting | timeline.calls_of(timeline.launched)
    calls = pl.DataFrame({"thread": columns["call_thread"], "waits": waiting, "works": works})
    last = pl.when("works").then("waits").forward_fill().shift(1)
    begins = calls.select((pl.col("waits") & ~last.fill_null(False)).over("thread")).to_series().to_numpy()
    stretch = numbered_in(columns["call_thread"], begins | (before_in(columns["call_thread"]) < 0))
    return np.asarray(waiting & (np.bincount(stretch, talks)[stretch] > 0))


def _results_behind(timeline: Timeline) -> Mask:
    """Calls that wait until results are on the host: right behind a copy there, or the first wait of a thread behind
    copies or prefetches there that hold nobody up; and waits behind which the host fetches managed pages. Shape (calls,).
    """
    back, calls = timeline.among("direction", "d2h"), timeline.calls
    begun, returned = (calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    thread, waiting = timeline.columns["call_thread"], timeline.waiting()
    before = before_in(thread)
    stretch = numbered_in(thread, (before < 0) | waiting[before])  # of a thread, up to its next wait
    until = np.zeros(int(stretch.max(initial=-1)) + 1, np.int64)
    np.maximum.at(until, stretch, returned)
    pages = np.sort(timeline.recorded_spans[0][back & timeline.among("kind", "migration")])

    def fetched(since: Times, end: Times) -> Mask:
        return np.searchsorted(pages, end) > np.searchsorted(pages, since)

    sending = timeline.calls_of(back) & ~waiting
    sending |= timeline.calls_named(PREFETCH) & fetched(begun, until[stretch])
    follows = np.full(len(thread), np.iinfo(np.int64).max)
    follows[before[before >= 0]] = begun[before >= 0]
    needed = np.bincount(stretch, sending)[stretch] > 0 if len(stretch) else waiting
    return right_behind(timeline, timeline.calls_of(back)) | waiting & (needed | fetched(returned, follows))


def timing_waits(calls: pl.DataFrame) -> Mask:
    """Waits for an event whose time the thread asks for next: they time work, as cuDNN's autotuning does; shape (calls,)."""
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    named = [texts.str.contains(name).fill_null(False).to_numpy() for name in (ELAPSED_TIME, WAITS_FOR_EVENT)]
    asks, waits = (mask[names.of] for mask in named)
    if not asks.any():
        return np.asarray(asks)
    rows = calls.select("process", "thread", asks=asks)
    timed_next = rows.select(pl.col("asks").shift(-1, fill_value=False).over("process", "thread"))
    return np.asarray(waits & timed_next.to_series().to_numpy())


@change("streams", lambda count, kernel="": titled("streams", kernel, count=count))
def streams(timeline: Timeline, setting: Setting, count: int, kernel: str = "") -> Applied:
    """Chunk i, by `kernel`, runs in stream i mod `count`; the host waits for chunk i - `count` + 1 where it waited for i."""
    if timeline.calls.height == 0 or count == 1:  # without calls the observed order stays
        return Applied(timeline)
    chunk = chunks(timeline, kernel)
    stream_of = timeline.columns["operation_stream"]
    spread = np.zeros(len(chunk), bool)
    changed = with_serial_allocations(timeline)
    for stream in np.unique(stream_of[chunk >= 0]):
        mine = np.where(stream_of == stream, chunk, -1)
        if len(np.unique(mine[mine >= 0])) > 1:
            changed = _spread(changed, mine, int(stream), count)
            spread |= mine >= 0
    if not spread.any():
        return Applied(timeline)
    rests_on = statement("assumes.buffers", count=count), statement("assumes.pageable-holds")
    # A copy within the GPU takes the memory that kernels need: it runs in their series, and gains nothing of its own.
    inner = spread & timeline.copies("d2d")
    return applied(timeline, _in_series(changed, timeline.kernels | inner), spread & ~inner, *rests_on)


def with_serial_allocations(timeline: Timeline) -> Timeline:
    """The run, in which calls that allocate, free or register memory go on waiting for their GPU, then take their time,
    whenever the host comes to them [CUDA C++ Programming Guide, Implicit Synchronization].

    A loop of alloc, copy, 10 ms kernel and free on an H200 took 686 ms, and 670 with pinned asynchronous copies in three
    streams. Allocations of a name of which one returned before the work issued until then, as those of a pool, wait for
    nothing.
    """
    columns = timeline.columns
    devices = np.unique(columns["stream_device"][columns["operation_stream"]])
    calling = timeline.calls_named(ALLOCATES) & timeline.waiting("none", "device")
    if not calling.any() or len(devices) != 1:
        return timeline
    begun, returned = (timeline.calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    # When all work that was issued before each call had ended; operations are in that order.
    ends = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(timeline.recorded_spans[1]))
    done = ends[np.searchsorted(columns["operation_call"], np.arange(len(begun)))]
    pooled = calling & timeline.waiting("none") & (done > returned + OFF_NS)
    calling &= (done <= returned) & ~np.isin(timeline.call_name, timeline.call_name[pooled])
    alone = np.where(
        calling & timeline.waiting("none"), returned - np.maximum(begun, done), columns["call_own"]
    )
    took = np.where(done <= begun, alone, np.maximum(columns["call_wait_lag"], returned - done))
    return timeline.with_columns(
        call_own=alone,
        call_wait=np.where(calling, WAIT["device"], columns["call_wait"]).astype(np.uint8),
        call_wait_key=np.where(calling, devices[0], columns["call_wait_key"]).astype(np.int32),
        call_wait_lag=np.where(calling, took, columns["call_wait_lag"]),
    )


def _in_series(timeline: Timeline, work: Mask) -> Timeline:
    """`work` that now lies in several streams of a GPU runs one at a time: what it leaves each other no trace says. Those
    whose streams the recording already shows beside each other keep what it shows.
    """
    columns = timeline.columns
    free = work & (columns["operation_engine"] < 0)
    devices = columns["stream_device"][columns["operation_stream"]]
    engine, slots = columns["operation_engine"].copy(), columns["engine_slots"]
    for device in np.unique(devices[free]):
        mine = free & (devices == device)
        if len(np.unique(columns["operation_stream"][mine])) > 1:
            engine[mine] = len(slots)
            slots = np.append(slots, np.int32(1))
    return timeline.with_columns(operation_engine=engine, engine_slots=slots)


def _spread(timeline: Timeline, chunk: Times, stream: int, count: int) -> Timeline:
    """Moves the chunks of `stream` to new streams. What is in no chunk waits for them, and they for it."""
    numbers, inside = np.unique(chunk[chunk >= 0]), chunk >= 0
    first_new = len(timeline.columns["stream_kind"])
    moved = timeline.columns["operation_stream"].copy()
    moved[inside] = first_new + np.searchsorted(numbers, chunk[inside]) % count
    rows = np.append(np.arange(first_new), np.repeat(stream, count))
    columns = {name: values[rows] for name, values in timeline.columns.items() if name.startswith("stream_")}
    context, kind = columns["stream_context"], columns["stream_kind"]
    context[[stream, *range(first_new, len(rows))]] = context.max(initial=-1) + 1
    kind[stream], kind[first_new:] = STREAM_KINDS["null"], STREAM_KINDS["blocking"]
    changed = timeline.with_columns(operation_stream=moved, **columns)
    return _wait_later(changed, chunk, numbers, count, stream)


def _wait_later(timeline: Timeline, chunk: Times, numbers: Times, count: int, stream: int) -> Timeline:
    """Waits within chunk i become waits for the end of chunk i - count + 1; those of the last chunk wait for all."""
    columns = timeline.columns
    call_of, inside = columns["operation_call"], chunk >= 0
    rows = np.flatnonzero(inside)
    order = np.searchsorted(numbers, chunk[rows])
    last_row = np.flatnonzero(last_in_group(chunk, inside))
    last_row = last_row[np.argsort(chunk[last_row])]
    first_call = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first_call, order, call_of[rows].astype(np.int64))
    # The chunk that each call falls into: from the first call of one to the first call of the next.
    owner = np.searchsorted(first_call, np.arange(len(columns["call_own"])), side="right") - 1
    staged, copying = timeline.calls_of(pageable(timeline.operations)), timeline.calls_of(inside)
    wait, key, call_ns = (columns[f"call_{name}"].copy() for name in ("wait", "wait_key", "own"))
    threads = np.unique(columns["call_thread"][call_of[rows]])
    waiting = timeline.waiting() & (owner >= 0) & ~staged & np.isin(columns["call_thread"], threads)
    flags = timeline.calls_of(timeline.copies("d2h") & inside & (timeline.sizes <= SCALAR_BYTES))
    waiting &= ~(timeline.calls_named(ALLOCATES) | flags | right_behind(timeline, flags))
    call_ns = np.where(waiting & copying, np.minimum(call_ns, usual_call_ns(timeline, ASYNC_COPY)), call_ns)
    last, earlier = len(numbers) - 1, owner - count + 1
    at_end = waiting & (owner == last) & (np.arange(len(owner)) >= call_of[last_row[last]])
    # A program with several buffers waits once a chunk: where the one stream's program waited last.
    later = waiting & ~at_end & (earlier >= 0) & last_in_group(owner, waiting)
    wait[waiting] = WAIT["none"]
    wait[at_end], key[at_end] = WAIT["device"], columns["stream_device"][stream]
    wait[later], key[later] = WAIT["given"], last_row[earlier[later]]
    return timeline.with_columns(call_wait=wait, call_wait_key=key, call_own=call_ns)
