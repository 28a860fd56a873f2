"""Columns of few words (kind, direction, memory) as codes and masks; names of calls, each once, and printable."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.printable import HARMFUL, printable
from busfare.trace.api_calls import COMMUNICATION
from busfare.trace.columns import numbered, rows_of
from busfare.trace.tables import KINDS

#: The code of a null.
NONE = 255
#: The number of a null among those of a Categorical column.
NO_NUMBER = 0xFFFFFFFF


class Words:
    """The columns of type Enum of a table; each is looked at once, however often it is asked."""

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


class Names(NamedTuple):
    """`texts`: each name once, in order of appearance; None for a null. `of`: which one each call has."""

    texts: list[str | None]
    of: NDArray[np.uint32]

    @staticmethod
    def of_calls(calls: pl.DataFrame) -> Names:
        """The names of a table of calls."""
        names = calls["name"]
        numbers = names.to_physical()
        if numbers.null_count():
            numbers = numbers.fill_null(NO_NUMBER)
        of, first_rows = numbered([np.ascontiguousarray(numbers.to_numpy())])
        return Names(names[first_rows].cast(pl.String).to_list(), of)


def calls_named(calls: pl.DataFrame, pattern: str, names: Names | None = None) -> pl.DataFrame:
    """Row, process, correlation, times and waits_for of the calls whose name contains the regular expression `pattern`.

    `names`: those of the calls, where they are known.
    """
    names = names or Names.of_calls(calls)
    named = pl.Series(names.texts, dtype=pl.String).str.contains(pattern).fill_null(False).to_numpy()
    columns = calls.select("process", "correlation", "start_ns", "end_ns", "waits_for")
    rows = rows_of(names.of, named) if named.any() else np.zeros(0, np.uint32)
    return columns[rows].with_columns(row=rows)


#: The kinds of operations as a trace's sums tell them apart.
CLASSES = pl.Enum([*KINDS, "communication"])


def is_communication(name: pl.Expr) -> pl.Expr:
    """Whether a kernel of this name carries data between GPUs; false for none."""
    return name.cast(pl.String).str.contains(COMMUNICATION).fill_null(False)


def kind_codes(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The place of each operation's kind among those of CLASSES; each name is looked at once. Shape (rows,)."""
    codes = Words(operations).codes("kind")
    numbers = operations["name"].to_physical()
    if numbers.null_count() == len(numbers):
        return codes
    every = np.arange(int(numbers.max()) + 1)  # type: ignore[arg-type]
    known = pl.Series(every, dtype=numbers.dtype).cat.to(operations.schema["name"])
    flags = known.to_frame("name").select(is_communication(pl.col("name"))).to_series().to_numpy()
    if not flags.any():
        return codes
    flags = np.append(flags, False)
    named = flags[(numbers.fill_null(len(flags) - 1) if numbers.null_count() else numbers).to_numpy()]
    named &= codes == KINDS.index("kernel")
    return np.where(named, np.uint8(len(KINDS)), codes)


def with_printable(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """`frame` with nothing in the texts of `column` that a terminal or a page would obey: names may hold anything."""
    texts = frame[column]
    known = texts_of(texts) if isinstance(texts.dtype, pl.Categorical) else texts
    bad = known.filter(known.str.contains(HARMFUL)).unique().drop_nulls()
    if bad.is_empty():
        return frame
    spelt = pl.Series([printable(text) for text in bad], dtype=pl.String)
    made = texts.cast(pl.String).replace(bad, spelt).cast(texts.dtype)
    return frame.with_columns(made.alias(column))


def texts_of(names: pl.Series) -> pl.Series:
    """All texts that a Categorical column may hold, its rows' among them: sooner known than each row's."""
    most = names.to_physical().max()
    codes = np.arange(most + 1 if isinstance(most, int) else 0, dtype=np.uint32)
    return of_codes(codes, names).cast(pl.String)
