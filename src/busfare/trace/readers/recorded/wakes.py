"""Who ended the waits of a recording's threads, where that was recorded."""

from __future__ import annotations

import polars as pl

from busfare.trace.readers.recorded.process import RecordedProcess
from busfare.trace.tables import WAKES, conform

#: What threads wait with, as the recorder names it.
WAITS = r"^(futex|pthread_cond_\w+|sem_\w+)$"


def wakes(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `WAKES`: those that `record --threads` noted."""
    table = process.recording.table("messages")
    noted = process.frame(table, "thread", "peer", "request", wall=True)
    noted = noted.filter(process.names(table["name"]).cast(pl.String).str.contains(WAITS).fill_null(False))
    ended = noted.drop_nulls("end_ns").with_columns(
        waker="peer", woken_ns=pl.col("request") - process.zero_ns
    )
    return conform(ended, WAKES)
