"""Files that are read by another thread, before the program needs what is in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.timeline.build.host_calls import before_in
from busfare.timeline.edit import Applied, Change, Setting, with_calls
from busfare.timeline.model import Timeline, Times

__all__ = ["read_ahead"]

KNOWN = "what is read next is known before the program needs it"
ROOM = "buffers for what is read ahead fit into the host's memory"


def read_ahead() -> Change:
    """A thread of its own reads the files that a thread reads between its calls, one read behind the other."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if timeline.trace.storage.is_empty():
            raise InputError(
                f"{timeline.trace.path}: does not tell of reads of files, for --read-ahead; record with "
                "`busfare record --storage`"
            )
        reads = _before_calls(timeline)
        if reads.is_empty():
            return Applied(timeline, 0)
        changed = _with_readers(timeline, reads)
        return Applied(changed, int(reads["count"].sum()), int(reads["bytes"].sum()), [KNOWN, ROOM])

    return Change("--read-ahead", "read files ahead, on another thread", apply)


def _before_calls(timeline: Timeline) -> pl.DataFrame:
    """Of each `call` (its row) before which its thread reads: `count`, `bytes`, `took` (ns, no longer than the time between
    the calls), and when the thread's call `before` had ended (ns; where there is none, when the run begins).

    What a thread reads before a call to which another one hands over stays: that call's time counts from there.
    """
    calls = timeline.calls.select(
        "process", "thread", "thread_number", "end_ns", call=pl.int_range(pl.len()), next_ns="start_ns"
    )
    before = pl.col("end_ns").shift(1).over("thread_number").fill_null(timeline.origin_ns)
    calls = calls.with_columns(before=before, gap=pl.Series(timeline.columns["call_gap"]))
    after = timeline.columns["call_after"]
    in_turn = (after < 0) | (after == before_in(timeline.calls["thread_number"].to_numpy()))
    calls = calls.filter(pl.Series(in_turn)).sort("next_ns")
    reads = timeline.trace.storage.filter(pl.col("kind") == "read").sort("start_ns")
    reads = reads.select("process", "thread", "start_ns", "bytes", took=pl.col("end_ns") - pl.col("start_ns"))
    placed = reads.join_asof(
        calls.drop("end_ns"),
        left_on="start_ns",
        right_on="next_ns",
        by=["process", "thread"],
        strategy="forward",
        check_sortedness=False,
    )
    placed = placed.filter(pl.col("start_ns") >= pl.col("before"))
    of_calls = placed.group_by("call").agg(
        pl.col("thread_number", "gap", "before").first(),
        pl.col("took", "bytes").sum(),
        count=pl.len(),
    )
    return (
        of_calls.with_columns(took=pl.min_horizontal("took", "gap")).filter(pl.col("took") > 0).sort("call")
    )


def _with_readers(timeline: Timeline, reads: pl.DataFrame) -> Timeline:
    """The run with two calls more before each of those: the read, on a thread beside theirs that begins where the program
    could read first, and one that waits for it; the time before the call is shorter by what reading took.
    """
    columns = timeline.columns
    call, took = (reads[name].to_numpy() for name in ("call", "took"))
    first = reads.select(pl.int_range(pl.len()).over("thread_number") == 0).to_series().to_numpy()
    reader = columns["call_thread"].max() + reads["thread_number"].rank("dense").to_numpy().astype(np.int64)
    at = np.repeat(call, 2)
    read = at[::2] + np.arange(0, len(at), 2)  # its row among all

    def turns(of_reads: Times | int, of_waits: Times | int) -> Times:
        return np.stack(
            [np.broadcast_to(of_reads, len(call)), np.broadcast_to(of_waits, len(call))], axis=1
        ).ravel()

    shorter = columns["call_gap"].copy()
    shorter[call] -= took
    after = columns["call_after"].copy()
    after[call] = -1  # behind its wait
    begun = np.where(first, reads["before"].to_numpy() - timeline.origin_ns, 0)
    new = {
        "call_thread": turns(reader, columns["call_thread"][call]),
        "call_gap": turns(begun, 0),
        "call_own": turns(took, 0),
        "call_after": turns(-1, read),
    }
    start = timeline.calls["start_ns"].to_numpy()[call]
    changed = with_calls(
        timeline.with_columns(call_gap=shorter, call_after=after),
        at,
        at,
        new,
        "read",
        turns(start - took, start),
        turns(start, start),
    )
    numbers = pl.Series("thread_number", changed.columns["call_thread"]).cast(
        timeline.calls["thread_number"].dtype
    )
    return replace(changed, calls=changed.calls.with_columns(numbers))
