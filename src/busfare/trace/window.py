"""A part of a trace: what begins in a window of time, in the ranges of a name, or in one unit of work."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.quantities import MOST_SECONDS
from busfare.trace.columns import first_pairs, occurs
from busfare.trace.lanes import LARGEST, Times, Union, is_work
from busfare.trace.launches import without_call
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.units import NUMBER, units_of

T = TypeVar("T", bound=Trace)
Tables = dict[str, pl.DataFrame]
NS = 1e-9
MOST_NAMED = 4


def part_of(
    trace: T, window: Sequence[float] | None = None, range: str | None = None, iteration: int | None = None
) -> T:
    """What of `trace` begins from the first to before the second second of `window`, counted from the start of the
    recording; in the ranges that are called `range`, or in the `iteration`-th of them; or in that unit of work.

    Operations and calls keep their whole time, also what lies outside. Of ranges, a part has the calls that begin in them,
    in whatever thread, and the operations that these launch; of windows and units of work, the operations that begin in
    them, and the calls that launch these. A host that ran ahead of its GPUs makes its calls later (`_caught_up`). Raises
    InputError where nothing is left.
    """
    if window is not None:
        start, end = window
        what = f"`window` {start:g}s..{f'{end:g}s' * (end < MOST_SECONDS)}"
        if start < 0:
            raise _nothing(trace, what, "begins before the recording")
        if start >= end:
            raise _nothing(trace, what, "ends before it begins" if end < start else "is empty")
        edges = np.array([round(min(time / NS, 1 << 62)) for time in window])
        trace = _between(trace, [(pl.lit(True), edges)], what)
    if range is not None:
        spans = _named(trace, range)
        if iteration is not None:
            spans = spans[_place(iteration, spans.height, f"ranges called {range!r}", trace) :].head(1)
        what = f"`range` {range}" + (f", `iteration` {iteration}" if iteration else "")
        trace = _of_host(trace, spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy(), what)
    elif iteration is not None:
        trace = _unit(trace, iteration)
    return trace


def _nothing(trace: Trace, what: str, why: str) -> InputError:
    return InputError(f"{trace.path}: {what}: {why}; the recording spans 0s..{_end(trace) * NS:.6g}s")


def _named(trace: Trace, name: str) -> pl.DataFrame:
    """The ranges of that name, in order of time; else those that have a number behind it."""
    spans = trace.markers.filter(pl.col("end_ns") > pl.col("start_ns"))
    names = spans["name"].cast(pl.String)
    chosen = spans.filter(names == name)
    if chosen.is_empty():
        chosen = spans.filter(names.str.replace(NUMBER + "$", "") == name)
    if chosen.is_empty():
        most = names.value_counts(sort=True)["name"].head(MOST_NAMED)
        raise InputError(
            f"{trace.path}: no range is called {name!r} (`range`); "
            + (f"it has {', '.join(map(repr, most))}, …" if len(most) else "it has no ranges")
        )
    return chosen.sort("start_ns")


def _place(iteration: int, count: int, what: str, trace: Trace) -> int:
    if iteration > count:
        raise InputError(
            f"{trace.path}: `iteration` {iteration}: the trace has {count} {what}; give 1 to {count}"
        )
    return iteration - 1


def _unit(trace: T, iteration: int) -> T:
    every = units_of(trace)
    if not every:
        raise InputError(
            f"{trace.path}: `iteration`: nothing repeats; give `range` NAME or `window` START..END"
        )
    count = min(len(units.starts) for units in every)
    place, what = _place(iteration, count, "units of work", trace), f"`iteration` {iteration} of {count}"
    # A unit ends where the next one begins; the last one, with the trace.
    edges = [np.append(units.starts, _end(trace) + 1)[place : place + 2] for units in every]
    lanes = [units.operations | pl.lit(units.ranges is not None) for units in every]
    return _between(trace, [*zip(lanes, edges, strict=True)], what)


def _between(trace: T, parts: Sequence[tuple[pl.Expr, Times]], what: str) -> T:
    """The operations of lanes that begin between two times, and the calls from when the host launches the first operation
    or the first kernel of these lanes from each time on (copies in streams of their own run ahead), or from that time, if
    it is earlier.
    """
    lies, called = np.zeros(trace.operations.height, np.bool_), trace.calls["start_ns"].to_numpy()
    host = []
    for lanes, edges in parts:
        made = [edges]
        for rows in (trace.lanes.rows(lanes & is_work()), trace.lanes.rows(lanes)):
            call = first_pairs(trace.calls, trace.operations[rows])
            place = np.searchsorted(trace.lanes.starts[rows[call >= 0]], edges)
            made.append(np.append(called[call[call >= 0]], LARGEST)[place])
        first, behind = np.searchsorted(trace.lanes.starts[rows], edges)
        lies[rows[first:behind]] = True
        host.append(np.sort(np.min(made, axis=0)))
    during = Union.of(*np.array(host).T)
    return _cut(trace, lies, _within(trace.calls, during), during, what)


def _end(trace: Trace) -> int:
    """When the last operation or call ends; ns."""
    ends = [table["end_ns"].to_numpy() for table in (trace.operations, trace.calls)]
    return int(np.concatenate(ends).max(initial=0))


def _of_host(trace: T, starts: Times, ends: Times, what: str) -> T:
    """The calls that begin in these times, and the operations that they launch; others by their own time."""
    host = Union.of(starts, ends)
    called = _within(trace.calls, host)
    has_call = occurs(trace.calls.drop_nulls("correlation"), trace.operations)
    launched = occurs(trace.calls.filter(called).drop_nulls("correlation"), trace.operations)
    lies = np.where(has_call, launched, _within(trace.operations, host))
    return _cut(trace, lies, called, host, what)


def _within(frame: pl.DataFrame, host: Union) -> NDArray[np.bool_]:
    """Whether each row begins in one of these times; shape (rows,)."""
    begun = frame["start_ns"].to_numpy()
    at = np.searchsorted(host.starts, begun, side="right") - 1
    return np.asarray((at >= 0) & (begun < np.append(host.ends, 0)[at]))


def _caught_up(trace: Trace, operations: NDArray[np.bool_], tables: Tables) -> Tables:
    """The host's tables of a part, later if the host ran ahead of the GPUs.

    The part begins with its first call or, if GPUs still run earlier operations then, when these end, at most when its
    first operation begins. All calls are later by this lead, as far as none begins after an operation that it or a later
    call launches, and no wait for an operation of the part returns later.
    """
    starts, ends = trace.lanes.starts[operations], trace.lanes.ends[operations]
    begun = tables["calls"]["start_ns"].to_numpy()
    if not (len(starts) and len(begun)):
        return tables
    earlier = trace.lanes.ends[~operations & (trace.lanes.starts < starts[0])]
    lead = min(starts[0], earlier.max(initial=begun.min())) - begun.min()
    if lead <= 0:
        return tables
    call = first_pairs(tables["calls"], trace.operations.filter(operations))
    launched = (call >= 0) & (begun[call] <= starts)
    waits = (pl.col("waits_for") != "none") & (pl.col("end_ns") >= ends[0])
    returns = tables["calls"].filter(waits)["end_ns"].to_numpy()
    at, latest = np.append(begun[call[launched]], returns), np.append(starts[launched], returns)
    order = np.argsort(at, kind="stable")
    at, latest = at[order], np.append(latest[order], ends.max())
    latest = np.minimum.accumulate(latest[::-1])[::-1]
    leads = np.minimum.accumulate(np.append(lead, np.maximum(latest[:-1] - at, 0)))

    def later(times: pl.Series) -> pl.Series:
        recorded = times.fill_null(0).to_numpy()
        place = np.searchsorted(at, recorded)
        return times + pl.Series(np.minimum(leads[place], np.maximum(latest[place] - recorded, 0)))

    moved = pl.col("start_ns", "end_ns").map_batches(later, pl.Int64)
    return {name: table.with_columns(moved) for name, table in tables.items()}


def _cut(trace: T, operations: NDArray[np.bool_], calls: NDArray[np.bool_], host: Union, what: str) -> T:
    """What is kept of a trace, with its times from the first record on. Ranges around these times of the host stay."""
    kept = int(np.count_nonzero(operations)) + int(np.count_nonzero(calls))
    if not kept:
        raise _nothing(trace, what, "nothing begins there")
    markers = trace.markers
    begun, ended = markers["start_ns"].to_numpy(), markers["end_ns"].fill_null(strategy="zero").to_numpy()
    around = host.covered_within(begun, np.maximum(begun, ended)) > 0
    if "collective" in markers.columns:  # of which a part has those that begin in it, as of calls
        around &= markers["collective"].is_null().to_numpy()
    tables = {
        "calls": trace.calls.filter(calls),
        "events": trace.events.filter(_within(trace.events, host)),
        "markers": markers.filter(around | _within(markers, host)),
        "activity": trace.activity,
    }
    tables = _caught_up(trace, operations, tables)
    tables["operations"] = trace.operations.filter(operations)
    begun = np.concatenate([tables[name]["start_ns"].to_numpy() for name in ("operations", "calls")])
    first = int(begun.min())
    moved: dict[str, Any] = {
        name: table.with_columns(pl.col("start_ns", "end_ns") - first) for name, table in tables.items()
    }
    part = replace(trace, **moved, origin_ns=trace.origin_ns + first)
    omissions = Omissions.of(noted for noted in trace.omissions if noted.id != "cut-window")
    left_out = trace.operations.height + trace.calls.height - kept
    if left_out:
        omissions.add("part", left_out, part=what.replace("`", ""))
    omissions.count("cut-window", without_call(part))
    part.omissions = omissions.list()
    return part
