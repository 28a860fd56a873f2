"""What made the threads of a run go on: calls of other threads, or the end of work on the GPU, by who woke whom.

A thread that waits is woken by another, that one perhaps by a third: the chain ends at a call of one of them, or at a
thread that never calls and never waits. That is the driver's own, which runs the functions that streams have for the host
(`cuLaunchHostFunc`): then it was work on the GPU that had ended.
"""

from __future__ import annotations

import polars as pl

from busfare.trace import Trace
from busfare.trace.api_calls import HOST_FUNCTION
from busfare.trace.tables import WAITS_FOR

__all__ = ["WOKEN", "calls_with_wakes"]

#: The name of calls that stand for a thread's wait for what the GPU did.
WOKEN = "(woken by the GPU)"
#: A thread is woken by one that was woken, and so on: so many are looked through.
MOST_STEPS = 16
#: The clocks of GPU and host agree to about this, as the core has it (`explain.cpp`), ns.
OFF_NS = 5_000
THREAD = ["process", "thread"]


def calls_with_wakes(trace: Trace) -> pl.DataFrame:
    """The calls of `trace` with their `row`; where wakes were recorded also with `awake_ns`, since the thread was last woken
    after its call before, and `woken_after`, the correlation of the call behind which who woke it went on.

    There, each wait that the end of work on the GPU ended is one more: of a correlation of its own below zero, `asleep_ns`
    when it began, `given` the correlation of that work, `row` that of the first call after it.
    """
    calls = trace.calls.with_row_index("row")
    if trace.wakes.is_empty() or calls.is_empty():
        return calls
    waits = trace.wakes.select(*THREAD, "start_ns", waited="end_ns", waker="waker", woken_ns="woken_ns").sort(
        "waited", maintain_order=True
    )
    calls = calls.rename({"row": "call"})
    asking = _asking(calls, waits)
    first = asking.select("call", awake_ns=pl.col("at") - pl.col("woken_ns"))
    steps, ends = _chains(calls, waits, asking)
    by_call = ends.drop_nulls("after").select("call", woken_after="after")
    functions = _functions(trace, calls)
    by_gpu = _by_work(calls, functions, ends.filter(pl.col("after").is_null()))
    added = _waits_for_work(trace, calls, functions, steps, by_gpu)
    told = pl.concat([by_call, added.explode("calls").select(call="calls", woken_after="correlation")])
    rows = calls.join(first, on="call", how="left", maintain_order="left")
    rows = rows.join(told, on="call", how="left", maintain_order="left").rename({"call": "row"})
    waiting = added.select(
        "process", "thread", "start_ns", "end_ns", "correlation", "given", "asleep_ns", "woken_after",
        row=pl.col("calls").list.min(), name=pl.lit(WOKEN).cast(pl.Categorical),
        waits_for=pl.lit("none", pl.Enum(WAITS_FOR)),
    )  # fmt: skip
    return pl.concat([rows, waiting], how="diagonal").sort("start_ns", maintain_order=True)


def _asking(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """The calls before which, and after the thread's call before, a wait of their thread was ended: with the last one."""
    before = pl.col("end_ns").shift(1).over(THREAD)
    asking = calls.sort("start_ns", maintain_order=True).with_columns(before=before)
    asking = asking.select("call", *THREAD, "before", at="start_ns").drop_nulls("at")
    asking = asking.join_asof(waits, left_on="at", right_on="waited", by=THREAD, check_sortedness=False)
    return asking.filter(pl.col("waited") >= pl.col("before").fill_null(pl.col("waited")))


def _chains(
    calls: pl.DataFrame, waits: pl.DataFrame, asking: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Who woke whom before each of `asking`: the waits looked through (call, step, process, thread, start_ns, woken_ns,
    waited), and how each chain ends (call, process, thread, at, after: the correlation of a call, or null).
    """
    called = calls.select(*THREAD, called="end_ns", after="correlation").drop_nulls("called")
    called = called.sort("called", maintain_order=True)
    step = ["call", "step", *THREAD, "start_ns", "woken_ns", "waited"]
    steps, ends = [asking.with_columns(step=0).select(step)], []
    asking = asking.select("call", "process", thread="waker", at="woken_ns")
    for number in range(1, MOST_STEPS):
        asking = asking.sort("at", maintain_order=True)
        for known, on in ((called, "called"), (waits, "waited")):
            asking = asking.join_asof(known, left_on="at", right_on=on, by=THREAD, check_sortedness=False)
        by_call = (pl.col("called") >= pl.col("waited")).fill_null(pl.col("called").is_not_null())
        ended = by_call | pl.col("waited").is_null()
        ends.append(asking.filter(ended).select("call", *THREAD, "at", after=pl.when(by_call).then("after")))
        asking = asking.filter(~ended).with_columns(step=number)
        steps.append(asking.select(step))
        asking = asking.select("call", "process", thread="waker", at="woken_ns")
        if asking.is_empty():
            break
    return pl.concat(steps), pl.concat(ends)


def _functions(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The functions of the host in streams: process, thread, when each could run (`ready`), the work before it (`given`, its
    correlation) and when that was `launched`. It runs behind what its thread launched last.
    """
    works = trace.operations.drop_nulls("correlation")
    done = works.group_by("process", "correlation").agg(done=pl.col("end_ns").max())
    launching = calls.join(done, on=["process", "correlation"], how="inner")
    launching = launching.select(*THREAD, "done", given="correlation", launched="start_ns")
    asked = calls.filter(pl.col("name").cast(pl.String).str.contains(HOST_FUNCTION)).select(
        *THREAD, at="end_ns"
    )
    functions = asked.sort("at", maintain_order=True).join_asof(
        launching.sort("launched", maintain_order=True),
        left_on="at", right_on="launched", by=THREAD, check_sortedness=False,
    )  # fmt: skip
    ready = pl.max_horizontal("done", "at") - OFF_NS
    return (
        functions.drop_nulls("given")
        .select(*THREAD, "given", "launched", ready=ready)
        .sort("ready", maintain_order=True)
    )


def _by_work(calls: pl.DataFrame, functions: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Of chains that end at a thread which never calls: the work (`given`) whose end let the stream's function run, when it
    was `launched`, and when the function was `ready`.
    """
    ends = ends.join(calls.select(THREAD).unique(), on=THREAD, how="anti").sort("at", maintain_order=True)
    found = ends.join_asof(
        functions.drop("thread"), left_on="at", right_on="ready", by="process", check_sortedness=False
    )
    return found.drop_nulls("given").select("call", "given", "launched", "ready")


def _waits_for_work(
    trace: Trace, calls: pl.DataFrame, functions: pl.DataFrame, steps: pl.DataFrame, by_work: pl.DataFrame
) -> pl.DataFrame:
    """The waits that work on the GPU ended, of the thread of the program that would go on without it: process, thread,
    start_ns, end_ns, `asleep_ns`, `given`, `correlation` of each, below zero, and the `calls` that were made after it.

    In a chain of threads that is the first of the program's own: those that launch kernels, and the process's first.
    Helpers of a library are woken for what such a thread wants; where none is in a chain, the caller itself waits.
    """
    kernels = trace.operations.filter(pl.col("kind").is_in(["kernel", "graph"])).drop_nulls("correlation")
    kernels = kernels.select("process", "correlation").unique()
    launching = calls.join(kernels, on=["process", "correlation"], how="semi").select(THREAD).unique()
    own = pl.struct(THREAD).is_in(launching.select(pl.struct(THREAD)).to_series().implode())
    steps = steps.join(by_work, on="call", how="inner").with_columns(
        own=own | (pl.col("thread") == pl.col("process"))
    )
    rank = pl.col("step") + pl.when("own").then(0).otherwise(MOST_STEPS)
    chosen = steps.sort(rank, maintain_order=True).unique("call", keep="first", maintain_order=True)
    chosen = _with_later_work(chosen, steps, functions)
    found = chosen.group_by("process", "thread", end_ns="waited", maintain_order=True).agg(
        pl.col("start_ns", "launched", "given", "own").first(), calls="call"
    )
    found = found.filter(pl.col("launched") < pl.col("end_ns"))
    # A row stands behind the call that launched what it waits for. What helpers do between their waits is nobody's time.
    behind = pl.min_horizontal(pl.max_horizontal("start_ns", pl.col("launched") + 1), "end_ns")
    return found.with_columns(
        asleep_ns="start_ns",
        start_ns=behind,
        woken_after=pl.when(~pl.col("own")).then("given"),
        correlation=-1 - pl.int_range(pl.len(), dtype=pl.Int64),
    )


def _with_later_work(chosen: pl.DataFrame, steps: pl.DataFrame, functions: pl.DataFrame) -> pl.DataFrame:
    """`chosen` waits, for work that threads of their chain launched once they were woken, where that ended before the wait.

    A pool's thread wakes another one first, and then does something itself that the other one is to tell of.
    """
    until = steps.join(chosen.select("call", ended="woken_ns"), on="call").sort("ended", maintain_order=True)
    later = until.join_asof(
        functions, left_on="ended", right_on="ready", by=THREAD, suffix="_then", check_sortedness=False
    ).filter((pl.col("launched_then") > pl.col("waited")) & (pl.col("ready_then") > pl.col("ready")))
    later = later.sort("ready_then", maintain_order=True).unique("call", keep="last", maintain_order=True)
    told = chosen.join(
        later.select("call", "given_then", "launched_then"), on="call", how="left", maintain_order="left"
    )
    return told.with_columns(
        given=pl.coalesce("given_then", "given"), launched=pl.coalesce("launched_then", "launched")
    )
