"""API calls of Nsight Systems exports, and the processes and threads that their global ids stand for."""

from __future__ import annotations

import polars as pl

from busfare.trace import api_calls
from busfare.trace.omissions import Omissions
from busfare.trace.readers.nsys.names import PROCESS_BITS, THREAD_BITS
from busfare.trace.readers.nsys.texts import Texts
from busfare.trace.readers.tables.source import bits_of
from busfare.trace.tables import CALLS, conform, empty

__all__ = ["calls_of", "process_of", "thread_of"]


def process_of(ids: pl.Series) -> pl.Series:
    """The process id within a serialised global id."""
    return bits_of(ids, *PROCESS_BITS).alias("process")


def thread_of(ids: pl.Series) -> pl.Series:
    """The thread id within a serialised global id."""
    return bits_of(ids, *THREAD_BITS).alias("thread")


def calls_of(
    frame: pl.DataFrame, strings: pl.DataFrame, without_threads: bool, omissions: Omissions
) -> tuple[pl.DataFrame, pl.Series]:
    """The calls, and the plain name of each; null where it is lost.

    `without_threads`: the global ids are processes already.
    """
    if frame.is_empty():
        return empty(CALLS), pl.Series(dtype=pl.Categorical())
    named = Texts.of(frame["nameId"], strings, "(unnamed call)")
    meanings = [api_calls.meaning(text) for text in named.texts]
    names = pl.DataFrame(
        {
            "plain": pl.Series([plain for plain, _ in meanings], dtype=pl.Categorical()),
            "waits_for": pl.Series([waits for _, waits in meanings], dtype=CALLS["waits_for"]),
        }
    )
    unnamed = int(named.unknown().sum()) if named.any_unknown else 0
    omissions.add_if(unnamed, "unnamed-calls", "API calls whose name is lost: taken to wait for nothing")
    frame = frame.select(
        *(
            [pl.col("globalTid").alias("process")]
            if without_threads
            else [process_of(frame["globalTid"]), thread_of(frame["globalTid"])]
        ),
        start_ns="start",
        end_ns="end",
        correlation="correlationId",
        name=named.of_rows(names["plain"]),
        waits_for=named.of_rows(names["waits_for"]),
    )
    names_known = frame["name"]
    if unnamed:
        names_known = frame.select(pl.when(~pl.Series(named.unknown())).then("name")).to_series()
    return conform(frame, CALLS), names_known
