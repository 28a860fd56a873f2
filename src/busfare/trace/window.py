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
from busfare.trace.lanes import Times, Union
from busfare.trace.launches import without_call
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.units import NUMBER, Units, units_of

T = TypeVar("T", bound=Trace)
NS = 1e-9
MOST_NAMED = 4


def part_of(
    trace: T, window: Sequence[float] | None = None, range: str | None = None, iteration: int | None = None
) -> T:
    """What of `trace` begins from the first to before the second second of `window`, counted from the start of the
    recording; in the ranges that are called `range`, or in the `iteration`-th of them; or in that unit of work.

    Operations and calls keep their whole time, also what lies outside. Of ranges, and of units on the host, a part has the
    calls that begin in them, in whatever thread, and the operations that these launch; of units on GPUs, their operations,
    and the calls from the one that launches the first. Raises InputError where nothing is left.
    """
    if window is not None:
        start, end = window
        what = f"`window` {start:g}s..{f'{end:g}s' * (end < MOST_SECONDS)}"
        if start < 0:
            raise _nothing(trace, what, "begins before the recording")
        if start >= end:
            raise _nothing(trace, what, "ends before it begins" if end < start else "is empty")
        inside = Union.of(*np.array([[round(min(time / NS, 1 << 62))] for time in window]))
        operations, calls = (_within(frame, inside) for frame in (trace.operations, trace.calls))
        trace = _cut(trace, operations, calls, inside, what)
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
    starts = np.array([units.starts[place] for units in every])
    ends = np.array([_ends(trace, units)[place] for units in every])
    if every[0].is_range:
        return _of_host(trace, starts, ends, what)
    lies = np.zeros(trace.operations.height, np.bool_)
    called = []
    for units, start, end in zip(every, starts, ends, strict=True):
        rows = trace.lanes.rows(units.operations)
        first, behind = np.searchsorted(trace.lanes.starts[rows], (start, end))
        lies[rows[first:behind]] = True
        edges = trace.operations[rows[[first, min(behind, len(rows) - 1)]]]
        calls = first_pairs(trace.calls, edges)
        times = np.append(trace.calls["start_ns"].to_numpy(), 0)[calls]
        called.append(np.where((calls < 0) | (np.array([first, behind]) == len(rows)), (start, end), times))
    host = Union.of(*np.array(called).T)
    return _cut(trace, lies, _within(trace.calls, host), host, what)


def _ends(trace: Trace, units: Units) -> Times:
    """A unit ends where the next one begins; the last one, with the trace. Shape (units,)."""
    return np.append(units.starts[1:], _end(trace) + 1)


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
        "operations": trace.operations.filter(operations),
        "calls": trace.calls.filter(calls),
        "events": trace.events.filter(_within(trace.events, host)),
        "markers": markers.filter(around | _within(markers, host)),
        "activity": trace.activity,
    }
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
