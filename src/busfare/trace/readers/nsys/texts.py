"""Texts that Nsight Systems exports name by ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace.bounds import SMALL, SPARSE
from busfare.trace.columns import occurring, places, taken
from busfare.trace.readers.tables.source import AS_THEY_ARE, Change, Changes, Codes, TableSource
from busfare.trace.words import of_codes

__all__ = ["Texts", "as_places"]


@dataclass(frozen=True)
class Texts:
    """Texts that a column of ids means: each once, and which one each row has."""

    texts: pl.Series  # the last one stands for whatever is not in the trace
    rows: npt.NDArray[np.uint32]  # where the row's text stands in the table of strings
    number: npt.NDArray[np.uint32]  # of each of those, its place in `texts`
    any_unknown: bool

    @staticmethod
    def of(ids: pl.Series, strings: pl.DataFrame, otherwise: str) -> Texts:
        """Of ids, or of their places in `strings` (`as_places`)."""
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


def as_places(tables: TableSource, table: str, column: str, strings: pl.DataFrame) -> Changes:
    """A column of ids is to be read as the places of their texts; as it is, where ids are too far apart."""
    ids = strings["id"]
    if ids.is_empty():
        return AS_THEY_ARE
    least, most = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
    if most - least >= SPARSE * (len(ids) + (tables.most_rows(table) or 0)) + SMALL:
        return AS_THEY_ARE
    of = np.full(most - least + 1, len(ids), np.uint32)
    of[ids.to_numpy() - least] = np.arange(len(ids), dtype=np.uint32)
    return {column: Change(codes=Codes(least, of, len(ids)))}
