"""What tables of Nsight Systems exports have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace.columns import occurring, places, taken
from busfare.trace.readers.nsys.scan import PROCESS_BITS, THREAD_BITS
from busfare.trace.readers.tables.source import INT, ints
from busfare.trace.words import of_codes

__all__ = ["INT", "PLACE", "SMALL_INT", "TIMES", "Texts", "placed", "process_of", "thread_of"]

SMALL_INT = pl.Int32()

PLACE: dict[str, pl.DataType] = {
    "deviceId": SMALL_INT,
    "contextId": INT,
    "streamId": INT,
    "correlationId": INT,
    "globalPid": INT,
}
TIMES: dict[str, pl.DataType] = ints("start end")


def _bits(column: str, first: int, bits: int) -> pl.Expr:
    # Of numbers below 0, too: Polars divides towards minus infinity.
    return (pl.col(column) // (1 << first)) & ((1 << bits) - 1)


def process_of(column: str) -> pl.Expr:
    """The process id within a serialised global id."""
    return _bits(column, *PROCESS_BITS).alias("process")


def thread_of(column: str) -> pl.Expr:
    """The thread id within a serialised global id."""
    return _bits(column, *THREAD_BITS).alias("thread")


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Renames the columns that say where and when an operation ran."""
    names = {
        "start": "start_ns",
        "end": "end_ns",
        "deviceId": "device",
        "contextId": "context",
        "streamId": "stream",
        "correlationId": "correlation",
        "graphNodeId": "graph_node",
    }
    if "globalPid" in frame.columns:
        frame = frame.with_columns(process_of("globalPid")).drop("globalPid")
    frame = frame.rename(names, strict=False)
    # 0 is nobody's correlation (migrations carry it), and no node of a graph.
    with_none = [
        pl.when(pl.col(name) != 0).then(name)
        for name in ("correlation", "graph_node")
        if name in frame.columns and (frame[name] == 0).any()
    ]
    return frame.with_columns(with_none)


@dataclass(frozen=True)
class Texts:
    """Texts that a column of ids means: each once, and which one each row has."""

    texts: pl.Series  # the last one stands for whatever is not in the trace
    rows: npt.NDArray[np.uint32]  # where the row's text stands in the table of strings
    number: npt.NDArray[np.uint32]  # of each of those, its place in `texts`
    any_unknown: bool

    @staticmethod
    def of(ids: pl.Series, strings: pl.DataFrame, otherwise: str) -> Texts:
        """Of ids, or of their places in `strings` (UInt32)."""
        known = ids.dtype == pl.UInt32
        rows = np.ascontiguousarray(ids.to_numpy()) if known else places(strings["id"], ids)
        used = occurring(rows, strings.height + 1)
        any_unknown, used[-1] = bool(used[-1]), False
        number = np.cumsum(used, dtype=np.uint32) - used
        texts = strings["value"].filter(used[:-1])
        number[-1] = len(texts)
        return Texts(texts.extend_constant(otherwise, 1), rows, number, any_unknown)

    def unknown(self) -> npt.NDArray[np.bool_]:
        """Which rows mean no text."""
        return np.equal(self.rows, len(self.number) - 1)

    def of_rows(self, values: pl.Series) -> pl.Series:
        """For each row, what `values` (words, none of them null) has for its text."""
        codes = values.to_physical().to_numpy()[self.number]
        return of_codes(taken([codes], self.rows), values)
