"""Files of a single process, whose GPU records do not repeat which."""

from __future__ import annotations

import polars as pl

from busfare.trace.model import Trace

__all__ = ["name_process"]


def name_process(trace: Trace) -> None:
    """Gives operations, events and streams the process of the calls, if all calls are of one process."""
    processes = trace.calls["process"].drop_nulls().unique()
    if len(processes) != 1:
        return
    only = pl.lit(processes[0], dtype=pl.Int64).alias("process")
    trace.operations = trace.operations.with_columns(only)
    trace.events = trace.events.with_columns(only)
    trace.streams = trace.streams.with_columns(only)
