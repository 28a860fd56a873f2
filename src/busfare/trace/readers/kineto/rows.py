"""Events of a Kineto trace as rows: the scanner's columns, and what of them a trace says or leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._kineto_events import MISSING, EventScanner

__all__ = ["Events", "with_nulls"]


class Events:
    """Rows of events: the scanner's columns, and the texts that `name` and `sync_kind` number (-1: none)."""

    def __init__(self, columns: dict[str, NDArray[Any]], texts: pl.Series) -> None:
        self._columns = columns
        self.texts = texts

    @staticmethod
    def of(scanner: EventScanner) -> Events:
        texts = [name.decode("utf-8", "replace") for name in scanner.names]
        # The last one is what -1 means.
        return Events(scanner.columns, pl.Series("text", [*texts, None], dtype=pl.String))

    def __len__(self) -> int:
        return len(self._columns["category"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def where(self, chosen: NDArray[np.bool_]) -> Events:
        rows = np.flatnonzero(chosen)
        return Events({name: values[rows] for name, values in self._columns.items()}, self.texts)

    def numbers(self, name: str, none_below: int = MISSING + 1) -> pl.Series:
        """A column; null where the event does not say, or says less than `none_below`."""
        return with_nulls(self[name], self[name] < none_below, name)

    def ends(self) -> pl.Series:
        lacking = self["duration_ns"] == MISSING
        return with_nulls(self["start_ns"] + np.where(lacking, 0, self["duration_ns"]), lacking, "end_ns")

    def each_text(self, name: str) -> tuple[pl.Series, pl.Series]:
        """The different texts of a column, and which of them each row has."""
        texts = np.where(self[name] < 0, len(self.texts) - 1, self[name])
        used = np.flatnonzero(np.bincount(texts, minlength=len(self.texts)))
        places = np.empty(len(self.texts), np.int64)
        places[used] = np.arange(len(used))
        return self.texts[used], pl.Series(places[texts])

    def is_text(self, name: str, *wanted: str) -> NDArray[np.bool_]:
        is_wanted = np.array([text in wanted for text in self.texts])  # -1 finds the last, which is none
        return np.asarray(is_wanted[self[name]])


def with_nulls(values: NDArray[Any], null: NDArray[np.bool_], name: str) -> pl.Series:
    made = pl.Series(name, values)
    return made.set(pl.Series(null), None) if null.any() else made
