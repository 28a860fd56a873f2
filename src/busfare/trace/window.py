"""A part of a trace: what begins in a window of time, in the ranges of a name, or in one unit of work."""

from __future__ import annotations

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
NS = 1e-9
MOST_NAMED = 4


def part_of(
    trace: T, window: Sequence[float] | None = None, range: str | None = None, iteration: int | None = None
) -> T:
    """What of `trace` begins from the first to before the second second of `window`, counted from the start of the
    recording; in the ranges that are called `range`, or in the `iteration`-th of them; or in that unit of work.

    Operations and calls keep their whole time, also what lies outside. Of ranges, a part has the calls that begin in them,
    in whatever thread, and the operations that these launch; of windows, and of units of operations that repeat, the
    operations, and the calls from the one that launches the first to before the one that launches the first behind them.
    A host that ran ahead of its GPUs makes its calls later in a part (`_caught_up`). Raises InputError where nothing is left.
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
    lanes = [pl.lit(True) if units.ranges is not None else units.operations for units in every]
    return _between(trace, list(zip(lanes, edges, strict=True)), what)


def _between(trace: T, parts: Sequence[tuple[pl.Expr, Times]], what: str) -> T:
    """The operations of lanes that begin between two times, and the calls from when the host launches the first of them."""
    lies, called = np.zeros(trace.operations.height, np.bool_), []
    for lanes, edges in parts:
        rows = trace.lanes.rows(lanes)
        first, behind = np.searchsorted(trace.lanes.starts[rows], edges)
        lies[rows[first:behind]] = True
        called.append(_calling(trace, lanes, edges))
    host = Union.of(*np.array(called).T)
    return _cut(trace, lies, _within(trace.calls, host), host, what)


def _calling(trace: Trace, lanes: pl.Expr, times: Times) -> Times:
    """When the host launches the first operation and the first kernel of `lanes` that begin from each of `times` on, the
    earlier of these, or that time, if it is earlier still: copies of streams of their own run ahead of kernels.
    """
    edges = times
    for which in (lanes, lanes & is_work()):
        rows = trace.lanes.rows(which)
        call = first_pairs(trace.calls, trace.operations[rows])
        called = np.append(trace.calls["start_ns"].to_numpy()[call[call >= 0]], LARGEST)
        begun = trace.lanes.starts[rows[call >= 0]]
        edges = np.minimum(edges, called[np.searchsorted(begun, times)])
    return edges


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


def _caught_up(
    trace: Trace, operations: NDArray[np.bool_], tables: dict[str, pl.DataFrame]
) -> dict[str, pl.DataFrame]:
    """The host's tables of a part, later if the host ran ahead of the GPUs.

    The part begins with its first call or, if GPUs still run earlier operations then, when these end, at most when its
    first operation begins. All calls are later by this lead, as far as none begins after an operation that it or a later
    call launches, and no wait for an operation of the part returns later.
    """
    starts, ends = trace.lanes.starts[operations], trace.lanes.ends[operations]
    calls = tables["calls"]
    if calls.is_empty() or not len(starts):
        return tables
    begun = int(calls["start_ns"].min())  # type: ignore[arg-type]
    earlier = trace.lanes.ends[~operations & (trace.lanes.starts < starts[0])]
    lead = min(int(starts[0]), int(earlier.max(initial=begun))) - begun
    if lead <= 0:
        return tables
    call = first_pairs(calls, trace.operations.filter(operations))
    called = calls["start_ns"].to_numpy()[call]
    launched = (call >= 0) & (called <= starts)
    waits = calls.filter((pl.col("waits_for") != "none") & (pl.col("end_ns") >= ends[0]))["end_ns"]
    at, latest = np.append(called[launched], waits), np.append(starts[launched], waits)
    order = np.argsort(at, kind="stable")
    at, latest = at[order], np.append(latest[order], ends.max())
    latest = np.minimum.accumulate(latest[::-1])[::-1]
    leads = np.minimum.accumulate(np.append(lead, np.maximum(latest[:-1] - at, 0)))

    def later(times: pl.Series) -> pl.Series:
        recorded = times.fill_null(0).to_numpy()
        place = np.searchsorted(at, recorded)
        return times + np.minimum(leads[place], np.maximum(latest[place] - recorded, 0))

    return {
        name: table.with_columns(later(table["start_ns"]), later(table["end_ns"]))
        for name, table in tables.items()
    }


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
