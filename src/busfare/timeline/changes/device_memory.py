"""Device memory that a program frees and allocates again: taken from a pool instead."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl

from busfare.statements import statement
from busfare.timeline.edit import Applied, Setting, change, without_waits
from busfare.timeline.model import Mask, Timeline, activity, calls_touched
from busfare.trace.words import ALLOCATES_DEVICE_MEMORY, FREES_DEVICE_MEMORY, Names

#: `cudaMallocAsync` and `cudaFreeAsync` of a pool that keeps its memory took 4 to 34 µs for 16 MiB to 2 GiB, on an H200
#: with driver 580 (results/w14-programs.tar.xz, alloc_loop.txt); here the middle of it.
POOLED_CALL_NS = 15_000
LEAST = 10


def reallocations(calls: pl.DataFrame) -> Mask:
    """Calls that free device memory and allocate it again, of processes that do so LEAST times: from their first free to
    their last allocation; shape (calls,). Libraries free once or twice when they start.
    """
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    patterns = (ALLOCATES_DEVICE_MEMORY, FREES_DEVICE_MEMORY)
    allocates, frees = (texts.str.contains(p).fill_null(False).to_numpy()[names.of] for p in patterns)
    rows = calls.select("process", "start_ns", allocates=allocates, frees=frees)
    first = pl.col("start_ns").filter("frees").min().over("process")
    last = pl.col("start_ns").filter("allocates").max().over("process")
    between = pl.col("start_ns").is_between(first, last)
    again = (between & pl.col("frees")).sum().over("process") >= LEAST
    chosen = between & again & (pl.col("allocates") | pl.col("frees"))
    return np.asarray(rows.select(chosen.fill_null(False)).to_series().to_numpy())


@change("pool", partial(statement, "change.pool"))
def pool(timeline: Timeline, setting: Setting) -> Applied:
    """These calls take and give back memory of a pool: they are short, and wait for nothing."""
    calls = reallocations(timeline.calls)
    if not calls.any():
        return Applied(timeline)
    shorter = np.minimum(timeline.columns["call_own"], POOLED_CALL_NS)
    changed = without_waits(timeline, calls, shorter)
    rests_on = [statement("assumes.pool-room"), statement("assumes.no-wait-of-frees")]
    return Applied(changed, calls_touched(timeline, calls), rests_on, activity(timeline, calls=calls))
