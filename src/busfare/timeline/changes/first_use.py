"""Waits for copies back that come when the host first uses what came, where the recording tells when that is."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.timeline.changes.holding import REUSED
from busfare.timeline.edit import (
    ASYNC_COPY,
    Applied,
    Change,
    Setting,
    usual_call_ns,
    with_calls,
    without_waits,
)
from busfare.timeline.model import WAIT, Mask, Timeline
from busfare.timeline.prices import pageable
from busfare.timeline.touched import under_way

__all__ = ["FIRST_SEEN", "wait_at_first_use", "waited_for"]

#: Of copies alike, what the trace tells where one of them was watched.
ALIKE = ["process", "destination_address", "bytes"]
FIRST_SEEN = (
    "the host uses nothing of what comes back before the earliest touch that was seen of the few words that were watched, "
    "nor do system calls and devices that the recorder could not see"
)


def waited_for(
    operations: pl.DataFrame, calls: pl.DataFrame, waiting: Mask, first_uses: pl.DataFrame
) -> pl.DataFrame:
    """Copies to the host and the call that waited for each: `row` of the operations, `process`, `correlation`, `end_ns`,
    `wait` (row of the calls, null where none did), `later_ns`.

    `later_ns`: how long after its end the wait is first needed, by the first use of any copy that it is the first to wait
    for; null where that is not known of one of them. Copies of as many bytes to one place are taken to be used as soon
    after their wait as the earliest one of them that was watched: behind as many calls of the thread, and at the same part
    of its time until the next one, for watching slows the host. `waiting`: which calls wait, shape (calls,).
    """
    copies = operations.select(
        pl.int_range(pl.len()).alias("row"),
        *ALIKE,
        "kind",
        "direction",
        "correlation",
        "graph_node",
        "end_ns",
    )
    copies = copies.filter((pl.col("kind") == "copy") & (pl.col("direction") == "d2h")).drop_nulls("end_ns")
    numbered = _numbered_calls(calls)
    waits = numbered.select("process", "wait", "waiter", wait_number="number", wait_ns="done_ns").filter(
        pl.Series(waiting, dtype=pl.Boolean)
    )
    copies = copies.sort("end_ns").join_asof(
        waits.drop_nulls("wait_ns").sort("wait_ns"),
        left_on="end_ns",
        right_on="wait_ns",
        by="process",
        strategy="forward",
        check_sortedness=False,
    )
    uses = first_uses.filter(pl.col("until") == "touched").select(
        "process", "correlation", "thread", used_ns="end_ns", graph_node=pl.lit(None, pl.Int64)
    )
    alone = ["process", "correlation", "graph_node"]
    copies = copies.join(uses.unique(alone), on=alone, how="left", nulls_equal=True, maintain_order="left")
    after = (pl.col("used_ns") - pl.col("wait_ns")).min().over(ALIKE)
    same = (pl.col("thread") == pl.col("waiter")).all().over([*ALIKE, "waiter"])
    watched = pl.col("used_ns").is_not_null().any().over([*ALIKE, "waiter"])
    copies = copies.with_columns(after=pl.when(same & watched).then(after))
    copies = copies.with_columns(after=pl.coalesce(_between_the_same_calls(copies, numbered), "after"))
    later = pl.when(pl.col("after").is_not_null().all().over("wait")).then(pl.col("after").min().over("wait"))
    return copies.select(
        "row",
        "process",
        "correlation",
        "wait",
        "end_ns",
        later_ns=pl.when(pl.col("wait").is_not_null()).then(later),
    ).sort("row")


def _numbered_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Of each call, in their order: `wait` (its row), `waiter` (its thread), its number there, when it had ended, and when
    the next one there began.
    """
    rows = calls.select(
        "process", pl.int_range(pl.len()).alias("wait"), "start_ns", waiter="thread", done_ns="end_ns"
    )
    mine = ["process", "waiter"]
    return rows.with_columns(
        number=pl.int_range(pl.len()).over(mine, order_by="start_ns"),
        next_ns=pl.col("start_ns").shift(-1).over(mine, order_by="start_ns"),
    )


def _between_the_same_calls(copies: pl.DataFrame, numbered: pl.DataFrame) -> pl.Series:
    """How long after its wait each copy is used, by where between two calls the earliest watched one like it was; null where
    either has no such calls. Shape (copies,).
    """
    by = ["process", "waiter"]
    ended = numbered.drop_nulls("done_ns").sort("done_ns")
    uses = copies.with_row_index("copy").drop_nulls(["used_ns", "wait_number"]).sort("used_ns")
    uses = uses.join_asof(
        ended.select(*by, "number", "done_ns", "next_ns"),
        left_on="used_ns",
        right_on="done_ns",
        by=by,
        check_sortedness=False,
    )
    share = (pl.col("used_ns") - pl.col("done_ns")) / (pl.col("next_ns") - pl.col("done_ns"))
    place = pl.col("number") - pl.col("wait_number") + pl.when(share < 1).then(share)
    earliest = uses.group_by(ALIKE).agg(pl.when(place.is_not_null().all()).then(place.min()).alias("place"))
    placed = copies.join(earliest, on=ALIKE, how="left", nulls_equal=True, maintain_order="left")
    placed = placed.with_columns(number=pl.col("wait_number") + pl.col("place").floor().cast(pl.Int64))
    placed = placed.join(
        numbered.select(*by, "number", "done_ns", "next_ns"),
        on=[*by, "number"],
        how="left",
        maintain_order="left",
    )
    part = pl.col("place") - pl.col("place").floor()
    later = pl.col("done_ns") - pl.col("wait_ns") + part * (pl.col("next_ns") - pl.col("done_ns"))
    return placed.select(
        pl.when(pl.col("after").is_not_null()).then(later.round().cast(pl.Int64))
    ).to_series()


def wait_at_first_use() -> Change:
    """The host waits for what comes back when it first uses it."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        uses = timeline.trace.first_uses
        if uses.is_empty():
            raise InputError(
                f"{timeline.trace.path}: does not tell when the host first uses what comes back, for --wait-at-first-use; "
                "record with `busfare record --first-use`"
            )
        waited = waited_for(timeline.operations, timeline.calls, timeline.waiting(), uses)
        blocking = timeline.calls_of(timeline.copies("d2h"))
        movable = timeline.waiting() & (blocking | timeline.calls_named("Synchronize$"))
        staged = pl.Series(pageable(timeline.operations))[waited["row"]]
        waited = waited.with_columns(staged=staged).filter(
            (pl.col("later_ns") > 0) & ~pl.col("staged").any().over("wait")
        )
        waited = waited.filter(pl.Series(movable)[waited["wait"]])
        if waited.is_empty():
            return Applied(timeline, 0)
        moved = np.zeros(len(movable), bool)
        moved[waited["wait"].to_numpy()] = True
        own = np.minimum(timeline.columns["call_own"], usual_call_ns(timeline, ASYNC_COPY))
        changed = without_waits(timeline, moved, np.where(blocking, own, 0))
        # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
        extra = np.where(timeline.of_calls(moved & blocking), 0, timeline.columns["operation_extra"])
        changed = _with_waits(changed.with_columns(operation_extra=extra), timeline, waited)
        touched = under_way(timeline, calls=moved)
        sizes = timeline.sizes[waited["row"].to_numpy()]
        return Applied(changed, int(moved.sum()), int(sizes.sum()), [FIRST_SEEN, REUSED], touched=touched)

    return Change("--wait-at-first-use", "wait for what comes back at its first use", apply)


def _with_waits(changed: Timeline, before: Timeline, waited: pl.DataFrame) -> Timeline:
    """The run with a call more for each row of `waited`, on the thread of its `wait`, which waits for the operation `row`
    where the host, by the recording, was `later_ns` after the end of `wait`.
    """
    calls, columns = before.calls, changed.columns
    place = pl.int_range(pl.len()).alias("behind")
    wait = waited["wait"].to_numpy()
    added = waited.with_columns(
        use_ns=calls["end_ns"].gather(wait) + waited["later_ns"],
        thread_number=calls["thread_number"].gather(wait),
    ).sort("use_ns", "end_ns")
    # The last call that had ended on the thread by then.
    ended = calls.select("thread_number", place, behind_ns="end_ns").sort("behind_ns")
    added = added.join_asof(
        ended, left_on="use_ns", right_on="behind_ns", by="thread_number", check_sortedness=False
    ).sort("behind", "use_ns", "end_ns")
    following = calls.select(place, next_call=place.shift(-1).over("thread_number"))
    added = added.join(following, on="behind", how="left", maintain_order="left")
    # Behind a thread's last call nothing tells how long the host went on: the wait comes right there.
    since = pl.col("use_ns") - pl.col("use_ns").shift(1).over("behind").fill_null(pl.col("behind_ns"))
    gap = added.select(pl.when(pl.col("next_call").is_not_null()).then(since).otherwise(0)).to_series()
    last = (
        added.drop_nulls("next_call")
        .group_by("next_call")
        .agg(pl.col("use_ns").max(), pl.col("behind_ns").first())
    )
    shorter = columns["call_gap"].copy()
    next_call = last["next_call"].to_numpy()
    in_turn = columns["call_after"][next_call] < 0
    left = shorter[next_call] - (last["use_ns"] - last["behind_ns"]).to_numpy()
    shorter[next_call] = np.where(in_turn, np.maximum(left, 0), shorter[next_call])
    at, wait = added["behind"].to_numpy() + 1, added["wait"].to_numpy()
    new = {
        "call_thread": columns["call_thread"][wait],
        "call_gap": gap.to_numpy(),
        "call_wait": np.full(len(at), WAIT["given"]),
        "call_wait_key": added["row"].to_numpy(),
        "call_wait_lag": before.columns["call_wait_lag"][wait],
    }
    used = added["use_ns"].to_numpy()
    return with_calls(
        changed.with_columns(call_gap=shorter), at, wait, new, "cuStreamSynchronize", used, used
    )
