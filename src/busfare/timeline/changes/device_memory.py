"""Device memory that a program frees and allocates again: taken from a pool instead."""

from functools import partial

import numpy as np
import polars as pl

from busfare.statements import statement
from busfare.timeline.edit import Applied, Setting, change, nanoseconds_from, with_durations, without_waits
from busfare.timeline.model import Mask, Timeline, activity, calls_touched
from busfare.trace.words import ALLOCATES_DEVICE_MEMORY, FREES_DEVICE_MEMORY, Names

#: `cudaMallocAsync` and `cudaFreeAsync` of a pool that keeps its memory took 4 to 34 µs for 16 MiB to 2 GiB, on an H200
#: with driver 580 (results/w14-programs.tar.xz, alloc_loop.txt); here the middle of it.
POOLED_CALL_NS = 15_000
LEAST = 10


def reallocations(calls: pl.DataFrame) -> Mask:
    """Calls that free device memory and calls that allocate as often again, of processes in which an allocation follows a
    free LEAST times; shape (calls,). `cudaFree(0)`, and frees of other memory than the process allocated, do not count.
    """
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    patterns = (ALLOCATES_DEVICE_MEMORY, FREES_DEVICE_MEMORY, r"^cu[A-Z]")
    allocates, frees, by_driver = (
        texts.str.contains(p).fill_null(False).to_numpy()[names.of] for p in patterns
    )
    rows = calls.select("process", "start_ns", by_driver=by_driver, allocates=allocates, frees=frees)
    rows = rows.with_row_index("row").filter(pl.col("allocates") | pl.col("frees")).sort("start_ns", "row")
    # The runtime's calls contain the driver's.
    rows = rows.filter(pl.col("by_driver") == pl.col("by_driver").min().over("process"))
    rows = rows.with_columns(freed=_served("allocates", "frees"))
    rows = rows.with_columns(again=_served("freed", "allocates"))
    count = pl.col("again").sum().over("process")
    matched = pl.col("again") | (pl.col("freed") & (pl.col("freed").cum_sum().over("process") <= count))
    turns = (pl.col("again") & pl.col("freed").shift(1).over("process")).sum().over("process")
    chosen = np.zeros(calls.height, bool)
    chosen[rows.filter(matched & (turns >= LEAST))["row"].to_numpy()] = True
    return chosen


def _served(arrives: str, leaves: str) -> pl.Expr:
    """Rows of `leaves` before which more `arrives` came in their process than left; in the order of time."""
    level = (pl.col(arrives).cast(pl.Int64) - pl.col(leaves).cast(pl.Int64)).cum_sum()
    least = pl.min_horizontal(level.cum_min(), pl.lit(0))
    return pl.col(leaves) & (least == least.shift(1, fill_value=0)).over("process")


@change("pool", partial(statement, "change.pool"))
def pool(timeline: Timeline, setting: Setting) -> Applied:
    """These calls take and give back memory of a pool: they are short, wait for nothing, and slow no copies."""
    calls = reallocations(timeline.calls)
    if not calls.any():
        return Applied(timeline)
    shorter = np.minimum(timeline.columns["call_own"], POOLED_CALL_NS)
    changed = without_waits(timeline, calls, shorter)
    rests_on = [statement("assumes.pool-room"), statement("assumes.no-wait-of-frees")]
    node, copies = setting.recorded_on, np.zeros(len(timeline.sizes), bool)
    if node and (cost := node.call_cost("allocate-device")):
        chosen, work = timeline.calls.filter(pl.Series(calls)), timeline.operations
        in_process = work["process"].is_in(chosen["process"].unique().implode()).fill_null(False)
        behind = (in_process & (work["start_ns"] > chosen["start_ns"].min())).to_numpy()
        copies = behind & timeline.copies("h2d") & timeline.among("source_memory", "pinned")
        took_ns, slowdown = timeline.columns["operation_duration"], cost.wait_per_byte_s
        # As many bytes were freed, at least; and no copy is shorter than it is on the node.
        longer_ns = np.clip(
            took_ns - nanoseconds_from("pinned", work, node), 0, timeline.sizes * slowdown * 1e9
        )
        changed = with_durations(changed, took_ns - np.where(copies, longer_ns, 0))
        rests_on[0] = statement("assumes.pool-room-and-copies", seconds=slowdown * 2**30, node=node.name)
    return Applied(changed, calls_touched(timeline, calls), rests_on, activity(timeline, copies, calls))
