"""Moves the GPUs' times to the host's clock, where the two count from different moments or drift apart.

The records bound how far the clock of a GPU is ahead: no operation begins before its call, and no wait returns before what
it waits for has ended. If no single offset fits, the clock drifts; it is moved by the least that the bounds require.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import first_pairs
from busfare.trace.lanes import Times
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions

Floats = NDArray[np.float64]
#: Two clocks drift apart by no more: each is off by 300 ppm at most [PCI Express Base Specification: reference clock].
MOST_DRIFT = 600e-6
#: Launches this close together bound the clock at once: it drifts by no more than 60 ns meanwhile.
TOGETHER_NS = 100_000
TIMES = ("start_ns", "end_ns")
GPU = ("process", "device")


def join_clocks(trace: Trace, omissions: Omissions) -> None:
    """Moves the operations of `trace` to the clock of its calls; those of a clock that agrees stay as they are.

    Clocks count from different moments where the distance between calls and their operations is longer than all calls and
    all operations last together, as in files of nvprof whose host clock starts anew. The least distance then becomes none.
    """
    operations, calls = trace.operations, trace.calls
    caller = first_pairs(calls, operations)
    launched = np.flatnonzero(caller >= 0)
    if len(launched) == 0:
        return
    called = calls.select("waits_for", called="start_ns", returned="end_ns")[caller[launched]]
    (first, last), (first_call, last_call) = (
        frame.select(pl.min("start_ns"), pl.max("end_ns")).row(0) for frame in (operations, calls)
    )
    if first > last_call or first_call > last:  # else no distance is longer
        distances = operations["start_ns"].to_numpy()[launched] - called["called"].to_numpy()
        least, lasting = int(distances.min()), last - first + last_call - first_call
        if least > lasting or distances.max() < -lasting:
            omissions.add("two-clocks", operations.height, distance=abs(least) * 1e-9)
            operations = trace.operations = operations.with_columns(pl.col(*TIMES) - least)
    place = pl.col("process").fill_null(-1), pl.col("context")
    work = operations.select(*place, pl.col("device").fill_null(0), "stream", "direction", *TIMES)
    work_launched = work[launched] if len(launched) < work.height else work
    launches = pl.concat([work_launched, called], how="horizontal")
    launches = launches if launches["called"].is_sorted() else launches.sort("called")
    waits = calls.select(*place, "stream", "waits_for", called="start_ns", returned="end_ns")
    drift_ns, moved, zero = 0.0, 0, launches["called"][0]
    for process, device, at, ahead in _drifts(launches, waits):
        rows = work.select((pl.col("process") == process) & (pl.col("device") == device)).to_series()
        for name in TIMES:
            less = np.floor(np.interp((work[name] - zero).to_numpy(), at, ahead)).astype(np.int64)
            moved_back = pl.col(name) - pl.when(rows).then(pl.Series(less)).otherwise(0)
            trace.operations = trace.operations.with_columns(moved_back)
        drift_ns, moved = max(drift_ns, float(np.abs(ahead).max())), moved + int(rows.sum())
    if moved:
        omissions.add("clock-drift", moved, drift_ms=drift_ns * 1e-6)


def _drifts(launches: pl.DataFrame, calls: pl.DataFrame) -> Iterator[tuple[int, int, Floats, Floats]]:
    """Every GPU whose clock drifts: its process and device, times of its clock since the first call, its lead then; ns.

    `launches`: operations in the order of their calls, which were `called` and `returned` then. Differences below the time
    of a call that launches and returns are noise. A clock stays as it is if that leaves most contradictions.
    """
    waits, zero = _waits(launches, calls), launches["called"][0]
    most, took = pl.col("start_ns") - pl.col("called"), pl.col("returned") - pl.col("called")
    quickest = launches.group_by(GPU).agg(most=most.min())
    clocks = waits.group_by(GPU).agg(pl.max("least")).join(quickest, on=GPU)
    apart = clocks.select(*GPU, apart=pl.col("least") - pl.col("most")).filter(pl.col("apart") > 0)
    for process, device, apart_ns in apart.iter_rows():
        of_gpu = (pl.col("process") == process) & (pl.col("device") == device)
        launched = (
            launches.lazy().filter(of_gpu).select("called", "returned", "start_ns", "waits_for").collect()
        )
        noise_ns = launched.filter(pl.col("waits_for") == "none").select(took.median()).item() or 0.0
        since, most_ns = launched.select(pl.col("called") - zero, most).to_numpy().T
        until, least_ns = waits.filter(of_gpu).select(pl.col("returned") - zero, "least").to_numpy().T
        groups = np.flatnonzero(np.diff(since // TOGETHER_NS, prepend=-1))
        at, ahead = _ahead(since[groups], np.minimum.reduceat(most_ns, groups), until, least_ns)
        over = np.concatenate([-most_ns, least_ns])
        moved = np.concatenate([np.interp(since, at, ahead), -np.interp(until, at, ahead)])
        if apart_ns > noise_ns and 2 * (over + moved > noise_ns).sum() < (over > noise_ns).sum():
            yield process, device, at + ahead, ahead


def _waits(launches: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The process and device of waits, when they `returned`, and how far the clock is ahead at `least`, ns.

    Blocking copies to the host wait for their end; other waits for all that was launched before in their process, if that
    has a single GPU, or in the context or stream that they name.
    """
    copies = launches.filter(pl.col("waits_for") == "operation", pl.col("direction") == "d2h")
    waits = [copies.select(*GPU, "returned", latest="end_ns")]
    single = pl.col("device").n_unique().over("process") == 1
    for place in (["process"], ["process", "context"], ["process", "context", "stream"]):
        waits_for = "stream" if "stream" in place else "device"
        named = calls.filter(pl.col("waits_for") == waits_for).drop_nulls(place).sort("called")
        if named.is_empty():
            continue
        work = launches.drop_nulls(place) if "context" in place else launches.filter(single)
        work = work.select("called", *{*GPU, *place}, latest=pl.col("end_ns").cum_max().over(place))
        named = named.join_asof(work, on="called", by=place, check_sortedness=False)
        waits.append(named.drop_nulls("latest").select(*GPU, "returned", "latest"))
    return pl.concat(waits).select(*GPU, "returned", least=pl.col("latest") - pl.col("returned"))


def _ahead(called: Times, most: Times, returned: Times, least: Times) -> tuple[Floats, Floats]:
    """Times, and how far a clock is ahead at them: at `most` so far when `called`, at `least` so far when `returned`; ns.
    The line goes straight from bound to bound. Waits that return too early for any clock bound nothing.
    """
    sound = least <= _bound(called, most, returned)
    returned, least = returned[sound], least[sound]
    at, recorded = np.concatenate([called, returned]), np.concatenate([most, least])
    order = np.argsort(at, kind="stable")
    at, recorded = at[order], recorded[order]
    lower, upper = -_bound(returned, -least, at), _bound(called, most, at)
    required = np.clip(0.0, lower, upper)
    binds = (np.abs(required - recorded) < 1) & (required != 0)
    binds[0] = True
    return at, np.clip(np.interp(at, at[binds], required[binds]), lower, upper)


def _bound(since: Times, most: Times, at: Times) -> Floats:
    """How far a clock is ahead at most at the times `at`, if at `since` it is at `most` so far; ns."""
    order = np.argsort(since, kind="stable")
    since, most = since[order], most[order]
    before = np.minimum.accumulate(most - MOST_DRIFT * since)
    after = np.minimum.accumulate((most + MOST_DRIFT * since)[::-1])[::-1]
    place = np.searchsorted(since, at, side="right")
    passed, coming = np.append(np.inf, before)[place], np.append(after, np.inf)[place]
    return np.asarray(np.minimum(passed + MOST_DRIFT * at, coming - MOST_DRIFT * at))
