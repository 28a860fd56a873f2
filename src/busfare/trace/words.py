"""Columns of few words (kind, direction, memory) as masks: each column is looked at once, however often it is asked."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["NONE", "Words", "of_codes", "words_of"]

#: The code of a null.
NONE = 255


class Words:
    """The columns of type Enum of a table."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._columns = {name: frame[name] for name, kind in frame.schema.items() if kind == pl.Enum}
        self._codes: dict[str, NDArray[np.uint8]] = {}
        self._masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def codes(self, name: str) -> NDArray[np.uint8]:
        """The place of each row's word among its column's words, 255 for null; shape (rows,)."""
        if name not in self._codes:
            numbers = self._columns[name].to_physical()
            if numbers.null_count():
                numbers = numbers.fill_null(NONE)
            self._codes[name] = numbers.to_numpy()
        return self._codes[name]

    def among(self, name: str, *words: str) -> NDArray[np.bool_]:
        """Whether each row's word is one of `words`; a null is none. Not to be written to. Shape (rows,)."""
        key = (name, *words)
        if key not in self._masks:
            wanted = np.zeros(NONE + 1, bool)
            wanted[: len(self.words(name))] = [word in words for word in self.words(name)]
            self._masks[key] = wanted[self.codes(name)]
        return self._masks[key]

    def words(self, name: str) -> list[str]:
        kind = self._columns[name].dtype
        assert isinstance(kind, pl.Enum)
        return kind.categories.to_list()


def of_codes(codes: NDArray[np.unsignedinteger[Any]], like: pl.Series) -> pl.Series:
    """A column of the type of `like`, words, by the places of its words; in Enums 255 stands for null."""
    made = pl.Series(codes)
    if isinstance(like.dtype, pl.Enum) and (codes == NONE).any():
        made = pl.select(pl.when(made != NONE).then(made)).to_series()
    return made.cat.to(like.dtype)


#: By the table's identity; an entry goes with its table.
_known: dict[int, Words] = {}


def words_of(frame: pl.DataFrame) -> Words:
    """The words of a table's columns; found once, however often they are asked for."""
    found = _known.get(id(frame))
    if found is None:
        found = _known[id(frame)] = Words(frame)
        weakref.finalize(frame, _known.pop, id(frame), None)
    return found
