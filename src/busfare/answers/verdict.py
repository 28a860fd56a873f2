"""What decides how long a run takes: the parts of its critical path, and who owns most of each: a call, an operator, a range,
a function, a kernel or copies.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from busfare.timeline import Timeline
from busfare.timeline.engine import IN_CALLS, PART_NAMES, UNEXPLAINED, Decided
from busfare.trace.activity import LEAST, THREAD, deepest, most_sampled
from busfare.trace.lanes import is_transfer

#: What owns a part of a run; `gap` is the time between two API calls, of which nothing was recorded.
OwnerKind = Literal["call", "kernel", "copy", "range", "operator", "function", "os-call", "sample", "gap"]
BETWEEN_CALLS = "CPU time between API calls"
#: Steps that PyTorch's profiler counts: the unit of work, whose name says nothing of what it does.
STEP = r"^ProfilerStep#"
NS = 1e-9


class Owner(Struct):
    """`share`: of the part."""

    kind: OwnerKind
    name: str
    share: float


class PathOwner(Struct, kw_only=True):
    """A part of the critical path and what owns most of it; `share`: of the run."""

    part: str
    seconds: float
    share: float
    owner: Owner | None


def path_owners(run: Timeline, path: Decided) -> list[PathOwner]:
    """The parts of the critical path of `run`, longest first, and who owns most of each."""
    if not len(path.ends):
        return []
    steps = _steps(run, path)
    whole = int((path.ends - path.starts).sum())
    parts = steps.group_by("part").agg(pl.col("ns").sum()).sort("ns", "part", descending=[True, False])
    return [
        PathOwner(
            part=PART_NAMES[part],
            seconds=ns * NS,
            share=ns / whole,
            owner=_owner(run, PART_NAMES[part], steps.filter(pl.col("part") == part), ns),
        )
        for part, ns in parts.iter_rows()
    ]


def _steps(run: Timeline, path: Decided) -> pl.DataFrame:
    """The steps of the critical path, each once for every part that it counts as: part, whose, start_ns (of the trace), ns."""
    rest = path.ends - path.starts
    for ns in path.apart.values():
        rest = rest - ns
    numbers = {name: np.full(len(rest), PART_NAMES.index(name), np.uint8) for name in path.apart}
    starts = path.starts + run.origin_ns
    return pl.concat(
        pl.DataFrame({"part": part, "whose": path.whose, "start_ns": starts, "ns": ns}).filter(
            pl.col("ns") > 0
        )
        for part, ns in [(path.parts, rest), *((numbers[name], ns) for name, ns in path.apart.items())]
    )


def _owner(run: Timeline, part: str, steps: pl.DataFrame, whole: int) -> Owner | None:
    """Who owns most of a part, which lasts `whole` nanoseconds."""
    if part == BETWEEN_CALLS:
        return _of_gaps(run, steps)
    count, whose = run.operations.height, steps["whose"]
    if part in (IN_CALLS, UNEXPLAINED) and count:  # of an operation the call that launches it
        row = whose.clip(0, count - 1)
        launching = pl.Series(run.columns["operation_call"])[row] + count
        launched = pl.Series(run.launched)[row] & (whose < count)
        whose = launching.cast(whose.dtype).zip_with(launched, whose)
    of_call = whose >= count
    operations = run.operations[whose.filter(~of_call)].select(
        kind=pl.when(is_transfer()).then(pl.lit("copy")).otherwise(pl.lit("kernel")),
        name=pl.when(is_transfer())
        .then(pl.col("direction").cast(pl.String))
        .otherwise(pl.col("name").cast(pl.String)),
        ns=steps["ns"].filter(~of_call),
    )
    calls = run.calls[whose.filter(of_call) - count].select(
        kind=pl.lit("call"), name=pl.col("name").cast(pl.String), ns=steps["ns"].filter(of_call)
    )
    sums = pl.concat([operations, calls]).drop_nulls("name").group_by("kind", "name").agg(pl.col("ns").sum())
    if sums.is_empty():
        return None
    kind, name, ns = sums.sort("ns", "name", descending=[True, False]).row(0)
    return Owner(kind, name, ns / whole)


def _of_gaps(run: Timeline, steps: pl.DataFrame) -> Owner | None:
    """What the host did between calls: a range, an operator or a function; else what was sampled, or a call of the operating
    system; else the two calls between which most of the time lies.
    """
    count, trace = run.operations.height, run.trace
    of_call = steps["whose"] >= count
    rows, steps = steps["whose"].filter(of_call) - count, steps.filter(of_call)
    gaps = steps.select("start_ns", "ns", end_ns=pl.col("start_ns") + pl.col("ns"))
    gaps = pl.concat([gaps, run.calls.select(*THREAD, "name")[rows]], how="horizontal")
    ranges = trace.markers.filter(
        pl.col("end_ns") > pl.col("start_ns"), ~pl.col("name").cast(pl.String).str.contains(STEP).fill_null(True)
    )
    named = pl.concat(
        [
            trace.activity.filter(pl.col("end_ns").is_not_null()).with_columns(
                pl.col("kind").cast(pl.String)
            ),
            ranges.with_columns(kind=pl.lit("range")),
        ],
        how="diagonal",
    )
    of_program, samples = (
        named.filter(pl.col("kind") != "os-call"),
        trace.activity.filter(pl.col("end_ns").is_null()),
    )
    candidates = (
        deepest(of_program, gaps),
        most_sampled(samples, gaps),
        # A range of the main thread covers work that it hands to others, as PyTorch does the backward pass.
        deepest(_of_any_thread(of_program.filter(pl.col("kind") == "range")), _of_any_thread(gaps)),
        most_sampled(_of_any_thread(samples), _of_any_thread(gaps)),
        deepest(named.filter(pl.col("kind") == "os-call"), gaps),
    )
    for activity in candidates:
        if activity and activity.share >= LEAST:
            return Owner(*activity)
    before = _calls_before(run, rows)
    sums = gaps.with_columns(before=before).group_by("before", "name").agg(pl.col("ns").sum())
    first, then, ns = sums.sort("ns", descending=True).row(0)
    return Owner("gap", f"{first} → {then}" if first else f"→ {then}", ns / int(gaps["ns"].sum()))


def _of_any_thread(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows as if their processes had one thread each."""
    return rows.with_columns(thread=pl.lit(0, pl.Int64))


def _calls_before(run: Timeline, rows: pl.Series) -> pl.Series:
    """The names of the calls that came before these on their threads; null where there was none."""
    calls = run.calls.select(*THREAD, pl.col("name").cast(pl.String))
    return calls.select(pl.col("name").shift(1).over(THREAD)).to_series()[rows]
