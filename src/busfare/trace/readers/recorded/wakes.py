"""Who woke the threads of a recording before their calls, where their waits were recorded."""

from __future__ import annotations

import polars as pl

from busfare.trace.readers.recorded.rows import RecordedProcess
from busfare.trace.tables import CALLS_WOKEN, conform

#: What threads wait with, as the recorder names it.
WAITS = r"^(futex|pthread_cond_\w+|sem_\w+)$"
#: A thread is woken by one that was woken, and so on: so many are looked through for one that calls.
MOST_STEPS = 16


def woken(calls: pl.DataFrame, process: RecordedProcess) -> pl.DataFrame:
    """`calls` with `CALLS_WOKEN`, where `record --threads` noted any wait."""
    table = process.recording.table("messages")
    noted = process.frame(table, "thread", "peer", "request", wall=True)
    noted = noted.filter(process.names(table["name"]).cast(pl.String).str.contains(WAITS).fill_null(False))
    if noted.is_empty() or calls.is_empty():
        return calls
    waits = noted.drop_nulls("end_ns").select(
        "thread", waited="end_ns", waker="peer", woken_ns=pl.col("request") - process.zero_ns
    )
    waits = waits.sort("waited")
    called = calls.select("thread", called="end_ns", after="correlation").drop_nulls("called").sort("called")
    before = pl.col("end_ns").shift(1).over("thread")
    asking = calls.with_row_index("call").sort("start_ns").with_columns(before=before)
    asking = asking.select("call", "thread", "before", at="start_ns").drop_nulls("at")
    asking = asking.join_asof(
        waits, left_on="at", right_on="waited", by="thread", check_sortedness=False
    ).filter(pl.col("waited") >= pl.col("before").fill_null(pl.col("waited")))
    first = asking.select("call", awake_ns=pl.col("at") - pl.col("woken_ns"))
    asking, found = asking.select("call", thread="waker", at="woken_ns"), []
    for _ in range(MOST_STEPS):
        asking = asking.sort("at")
        for known, on in ((called, "called"), (waits, "waited")):
            asking = asking.join_asof(known, left_on="at", right_on=on, by="thread", check_sortedness=False)
        by_call = (pl.col("called") >= pl.col("waited")).fill_null(pl.col("called").is_not_null())
        found.append(asking.filter(by_call).select("call", woken_after="after"))
        asking = asking.filter(~by_call & pl.col("waited").is_not_null())
        asking = asking.select("call", thread="waker", at="woken_ns")
    told = first.join(pl.concat(found), on="call", how="left")
    rows = calls.with_row_index("call").join(told, on="call", how="left", maintain_order="left")
    return conform(rows, dict(calls.schema), CALLS_WOKEN)
