"""Layers that are streamed from the host: copies in a stream of their own, from pinned memory, sent so many layers ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from busfare.errors import InputError
from busfare.timeline.build.host_calls import before_in
from busfare.timeline.changes.holding import FIT, REUSED, not_holding, with_pinned
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    Step,
    applied,
    lags_behind,
    right_behind,
    with_rows,
    with_streams,
    without_waits,
)
from busfare.timeline.layers import StreamedLayers, awaiting, streamed_layers
from busfare.timeline.model import NON_BLOCKING, WAIT, Mask, Timeline
from busfare.timeline.play import play
from busfare.timeline.prices import pageable
from busfare.trace.lanes import Union

__all__ = ["offload_schedule"]

MOST_AHEAD = 64
MS = 1e-6
#: What gains less than this part of the run has no effect: replays of unchanged runs are off by as much.
WORTH = 0.005
KNOWN = "what is streamed is known when it is sent: the host does not make it of what the layers before it computed"
AHEAD = "behind the last layer of a pass the first ones of the next are sent, if there is a next pass"


def offload_schedule(depth: int) -> Change:
    """The copies of streamed layers run in a stream of their own, from pinned memory, and are submitted `depth` layers ahead
    into `depth` + 1 buffers. Raises InputError for no depth.
    """
    if not 0 <= depth <= MOST_AHEAD:
        raise InputError(f"--offload-schedule {depth}: give 0 to {MOST_AHEAD} layers ahead")

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        layers = streamed_layers(timeline)
        copies, steps, run = layers.copies, [], timeline
        before = last = play(timeline).makespan_seconds
        for title, evidence, run in _parts(layers, depth, setting):
            seconds = play(run).makespan_seconds
            steps.append(Step(title, evidence, last - seconds))
            last = seconds
        bound = _bound_by_the_bus(layers, setting)
        if abs(before - last) < WORTH * before:
            spans = timeline.recorded_spans
            copied, computing = (Union.of(*(t[some] for t in spans)) for some in (copies, layers.kernels))
            hidden = 1 - copied.minus(computing) / max(copied.length(), 1)
            why = f"{100 * hidden:.0f} % of the copies' time lies beside kernels already"
            return Applied(timeline, 0, steps=[Step("no effect", why), *bound])
        buffers = f"the GPU holds {depth + 1} buffer{'s' * (depth > 0)}, each for a layer"
        fit = [FIT] * bool(pageable(timeline.operations)[copies].any())
        conditions = [KNOWN, buffers, *layers.notes, REUSED, *fit, *[AHEAD] * bool(depth)]
        return replace(applied(timeline, run, copies, *conditions), steps=[*steps, *bound])

    return Change("--offload-schedule", f"layers streamed {depth} ahead", apply)


def _parts(layers: StreamedLayers, depth: int, setting: Setting) -> Iterator[tuple[str, str, Timeline]]:
    """What makes the schedule, one part on top of another: its title, what in the trace calls for it, and the run then."""
    timeline, copies = layers.timeline, layers.copies
    stream, total = timeline.columns["operation_stream"], f"of {int(copies.sum())} copies"
    # Where the streams differ, only the host's waits keep copies before their kernels, until the schedule does.
    same = copies & np.isin(stream, np.unique(stream[layers.kernels]))
    run, held = not_holding(_from_pinned(layers, setting), same)
    if staged := int((copies & pageable(timeline.operations)).sum()):
        evidence = f"the host stages {staged} {total}, and waits for them"
        yield "copy from pinned memory, without waiting", evidence, run
    elif held.any():
        yield "copy without waiting", f"the host waits for {int(held.sum())} {total}", run
    free = not_holding(run, copies)[0]
    if same.any() and depth:
        evidence = f"{int(same.sum())} {total} run in the stream of the kernels: none runs beside them"
        yield "copy in a stream of its own", evidence, _scheduled(free, layers, depth, ahead=False)
    waiting = _waits_between(run, layers)
    calls = timeline.columns["operation_call"][layers.first(copies)]
    sent = timeline.calls["start_ns"].to_numpy()[calls]
    begun = timeline.recorded_spans[0][layers.first(layers.kernels)]
    number = int((layers.streamed[1:] & (sent[1:] > begun[:-1])).sum())
    late = f"{number} of {int(layers.streamed.sum())} layers were sent after the layer before them began to compute"
    waits = f"; the host waited {int(waiting.sum())} times between layers" if waiting.any() else ""
    title = f"submit {depth} layer{'s' * (depth > 1)} ahead" if depth else "the GPU waits, not the host"
    yield title, late + waits, _scheduled(without_waits(free, waiting, 0), layers, depth, ahead=True)


def _from_pinned(layers: StreamedLayers, setting: Setting) -> Timeline:
    """The run with the layers' host buffers pinned."""
    staged = layers.copies & pageable(layers.timeline.operations)
    return with_pinned(layers.timeline, staged, setting) if staged.any() else layers.timeline


def _waits_between(timeline: Timeline, layers: StreamedLayers) -> Mask:
    """Waits of the host for layers to arrive, or for one to be computed before the next of a pass; shape (calls,).

    Those behind copies to the host stay: the host may read what came.
    """
    columns, back = timeline.columns, timeline.among("direction", "d2h")
    stream = columns["operation_stream"]
    only = np.setdiff1d(stream[layers.copies], stream[timeline.kernels | back])
    arriving = awaiting(timeline, only, np.flatnonzero(layers.copies))
    kernels = np.flatnonzero(timeline.kernels)
    place = np.searchsorted(
        columns["operation_call"][kernels], np.arange(timeline.calls.height), side="right"
    )
    unit = np.append(layers.unit[kernels], -1)
    before, behind = unit[place - 1], unit[place]
    turn = np.append(layers.turn, -1)
    inside = (before >= 0) & (behind >= 0) & (turn[before] == turn[behind])
    reading = timeline.calls_of(back)
    waits = timeline.waiting("stream", "device", "event", "given")
    chosen: Mask = arriving | inside & waits & ~reading & ~right_behind(timeline, reading)
    return chosen


def _scheduled(timeline: Timeline, layers: StreamedLayers, depth: int, ahead: bool) -> Timeline:
    """The copies of each layer in a stream of their own, behind the computing of the layer whose buffer they take; submitted
    as they were, no sooner than that buffer's last kernel, or `ahead`, before the kernels of the layer `depth` before.
    """
    columns, unit = timeline.columns, layers.unit
    moved = layers.copies & layers.streamed[np.maximum(unit, 0)]
    kernels, own = layers.kernels, columns["operation_call"]
    first, last = layers.first(kernels), layers.last(kernels)
    rows = np.flatnonzero(moved)
    place = (np.cumsum(layers.streamed) - 1)[unit[rows]]
    streamed = np.flatnonzero(layers.streamed)
    taken = np.where(place > depth, last[streamed[np.maximum(place - depth - 1, 0)]], -1)
    beside = first[streamed[np.maximum(place - depth, 0)]]
    lower = np.where(taken >= 0, own[taken], -1)
    upper = own[beside if ahead else first[unit[rows]]]
    call = np.maximum(np.minimum(own[rows], upper), lower)
    # In a call of another operation: before the kernels that they run beside, and behind those whose buffer they take.
    tie = np.zeros(len(own), np.int8)
    tie[rows] = np.where(call == own[rows], 0, np.where(call == lower, 1, -1))
    launching = own.copy()
    launching[rows] = call
    order = np.lexsort((np.arange(len(own)), tie, launching))
    number = np.empty(len(own), np.int64)
    number[order] = np.arange(len(own))

    after = np.where(columns["operation_after"] >= 0, number[columns["operation_after"]], -1)
    after[rows] = np.where(taken >= 0, number[taken], -1)
    arrived = layers.last(moved)
    begins = np.flatnonzero(kernels & layers.streamed[np.maximum(unit, 0)])
    each = unit[begins] * (int(columns["operation_stream"].max()) + 1) + columns["operation_stream"][begins]
    begins = begins[np.unique(each, return_index=True)[1]]
    after[begins] = np.maximum(after[begins], number[arrived[unit[begins]]])
    after = np.where(after < number, after, -1)
    turn, stream = columns["operation_turn"].copy(), columns["operation_stream"].copy()
    turn[rows] = np.minimum(turn[rows], turn[beside])
    usual = timeline.usual_order_ns[timeline.operation_class]
    lag = lags_behind(timeline, before_in(stream), moved)
    own_device, run = columns["stream_device"][stream[rows]], timeline
    for device in np.unique(own_device):
        mine = rows[own_device == device]
        run = with_streams(run, int(stream[mine[0]]), 1, NON_BLOCKING)
        stream[mine] = run.streams.height - 1
    # A call that waits for its own copy has none any more.
    gone = timeline.calls_of(moved) & timeline.waiting("operation")
    changed = {
        "operation_call": launching,
        "operation_stream": stream,
        "operation_after": after.astype(np.int32),
        "operation_turn": turn,
        "operation_order_lag": np.where(moved, usual, lag),
        "operation_extra": np.where(moved, 0, columns["operation_extra"]),
        "operation_unordered": np.where(moved, 0, columns["operation_unordered"]).astype(np.uint8),
        "call_wait": np.where(gone, WAIT["none"], columns["call_wait"]).astype(np.uint8),
    }
    return with_rows(run, run.columns | changed, order, number)


def _bound_by_the_bus(layers: StreamedLayers, setting: Setting) -> list[Step]:
    """What no schedule hides, where the copies of all layers, from pinned memory, take longer than all kernels."""
    copying = layers.of_units(layers.copies, _from_pinned(layers, setting).columns["operation_duration"])
    computing, passes = layers.compute_ns, int(layers.turn[-1]) + 1
    into, busy = int(copying.sum()), int(computing.sum())
    if into <= busy:
        return []
    longer = int((copying > computing)[layers.streamed].sum())
    # The largest stay on the GPU, until the rest hides behind all kernels.
    left = into - np.cumsum(np.sort(copying)[::-1])
    stays = -(-(int(np.argmax(left <= busy)) + 1) // passes)
    times = f", or {into / busy:.1f} times the tokens a pass, where kernels grow with them" if busy else ""
    evidence = (
        f"copies take {into * MS / passes:.2f} ms a pass and kernels {busy * MS / passes:.2f} ms, and {longer} of "
        f"{int(layers.streamed.sum())} layers compute for less time than their copies take: no schedule hides the rest; "
        f"{stays} of {int(layers.number.max()) + 1} layers kept on the GPU would{times}"
    )
    return [Step("bound by the bus", evidence)]
