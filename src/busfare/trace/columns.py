"""Columns of whole numbers: rows numbered, chosen, sorted and looked up; texts matched; JSON decoded; work in threads."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.trace._columns import first_rows as find_pairs
from busfare.trace._columns import number_rows

Rows = NDArray[np.uint32]
T = TypeVar("T")
#: Numbers whose runs in order are this long in the mean are merged rather than sorted.
LONG_RUN = 64
#: Numbers need not be numbered anew while they lie no further apart than there are rows, and this.
SMALL = 1 << 20
#: A row that lasts longer, and so many times as long as all others together, is damaged.
LONG_NS, ENDLESS = 3600 * 10**9, 1000
#: From here on another thread is worth its start.
MANY_ROWS = 1 << 18


def decoded_json(text: str | bytes | None, kind: Any, strict: bool = True) -> Any:
    """JSON as `kind`; None where it is nothing, damaged or something else. Without `strict`, texts may stand for numbers."""
    try:
        return msgspec.json.decode(text or b"", type=kind, strict=strict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def numbered(columns: Sequence[NDArray[Any]]) -> tuple[Rows, NDArray[np.int64]]:
    """The number of each row, the same where all columns are equal, and the first row of each number. Columns are whole
    numbers, shape (rows,). Numbers are given in order of appearance.
    """
    rows = len(columns[0])
    if not rows:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    of = np.empty(rows, np.uint32)
    if (first := number_rows([*columns], of, SMALL + rows)) is not None:
        return of, first
    if len(columns) == 1:
        return numbered([np.unique(columns[0], return_inverse=True)[1]])
    codes, more = (numbered(part)[0] for part in (columns[:-1], columns[-1:]))
    if len(columns) > 2:
        return numbered([codes, more])
    return numbered([codes.astype(np.int64) * (int(more.max()) + 1) + more])


def plain(column: pl.Series) -> list[NDArray[np.int64]]:
    """A column's numbers, and where it has nulls, which those are."""
    numbers = column.to_physical()
    if not numbers.null_count():
        return [np.ascontiguousarray(numbers.to_numpy())]
    return [numbers.fill_null(0).to_numpy(), column.is_null().cast(pl.UInt8).to_numpy()]


def numbers_of(column: pl.Series, none: int) -> NDArray[Any]:
    """A column's numbers, of its type, with `none` for null."""
    return np.ascontiguousarray((column.fill_null(none) if column.null_count() else column).to_numpy())


def rows_of(number_of: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """The rows whose number is chosen, in order. Raises IndexError for a number that `chosen` does not have."""
    return np.flatnonzero(chosen[number_of]).astype(np.uint32)


def kept(frame: pl.DataFrame, chosen: pl.Series) -> pl.DataFrame:
    """The rows of `frame` that are chosen: itself, and no copy, where all are."""
    return frame if chosen.all() else frame.filter(chosen)


def lasts_as_the_rest(frame: pl.DataFrame, tables: Sequence[pl.DataFrame]) -> pl.Series:
    """Which rows last an hour at most, or no more than a thousand times as long as from the first to the last time of all
    rows of `tables` and of short ones of `frame`, or to its own start, if that is later. What lasts longer has a damaged
    start or end: a call that waits for a kernel of hours is in another table.
    """
    ns, start = frame["end_ns"] - frame["start_ns"], pl.col("start_ns")
    long = (ns > LONG_NS).fill_null(False)
    if not long.any():
        return ~long
    rest = pl.concat(part.select("start_ns", "end_ns") for part in (*tables, frame.filter(~long)))
    first, last = rest.select(start.min(), pl.max("end_ns")).row(0)
    span = frame.select(pl.max_horizontal(start, pl.lit(last)) - pl.lit(first)).to_series()
    return ~long | (ns <= (ns if first is None else ENDLESS * span))


def longest(lengths: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The places of the `most` greatest lengths and of those as great as the least of them, in order."""
    if not most:
        return np.zeros(0, np.int64)
    if len(lengths) <= most:
        return np.arange(len(lengths))
    return np.flatnonzero(lengths >= np.partition(lengths, -most)[-most])


def first_rows(keys: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int32]:
    """The first row of `keys`, whole numbers, that equals each of `wanted`; -1 where there is none."""
    rows = np.empty(len(wanted), np.int32)
    have, want = (np.ascontiguousarray(some).astype(np.int64, copy=False) for some in (keys, wanted))
    find_pairs(np.zeros(len(have), np.int32), have, np.zeros(len(want), np.int32), want, rows)
    return rows


def places(ids: pl.Series, wanted: pl.Series) -> Rows:
    """Where each of `wanted` stands in `ids`, whole numbers that are all unlike; len(ids) where it does not."""
    rows = first_rows(numbers_of(ids, 0), numbers_of(wanted, 0))
    rows[wanted.is_null().to_numpy()] = -1
    return np.where(rows < 0, len(ids), rows).astype(np.uint32)


def order_of(numbers: pl.Series) -> Rows:
    """The rows in order of their numbers, like ones as they stand. Parts that are in order are merged."""
    values = numbers.to_numpy()
    row_bits = len(values).bit_length()
    runs = np.count_nonzero(values[1:] < values[:-1])
    merged = runs * LONG_RUN <= len(values)
    if merged or (int(values.max()) - int(values.min())).bit_length() + row_bits > 63:
        return np.argsort(values, kind="stable").astype(np.uint32)
    # Sorting numbers with their rows behind them takes a fifth of the time that sorting rows by number takes.
    keyed: NDArray[np.int64] = (values - values.min()) << row_bits
    keyed |= np.arange(len(values))
    keyed.sort()
    return (keyed & ((1 << row_bits) - 1)).astype(np.uint32)


def _rows_of_pairs(have: pl.DataFrame, wanted: pl.DataFrame) -> NDArray[np.int32]:
    """The first row of `have` of the process and correlation of each row of `wanted`, nulls like nulls; -1: none."""
    rows = np.empty(wanted.height, np.int32)
    frames = have, wanted
    first, wanted_first = (numbers_of(f["process"], -(1 << 31)).astype(np.int32, copy=False) for f in frames)
    second, wanted_second = (numbers_of(f["correlation"], -(1 << 63)) for f in frames)
    find_pairs(first, second, wanted_first, wanted_second, rows)
    return rows


def occurs(have: pl.DataFrame, wanted: pl.DataFrame) -> NDArray[np.bool_]:
    """Of each row of `wanted`, whether a row of `have` has its process and correlation; nulls are like nulls."""
    return _rows_of_pairs(have, wanted) >= 0


def first_pairs(have: pl.DataFrame, wanted: pl.DataFrame) -> NDArray[np.int32]:
    """The first row of `have` of the process and correlation of each row of `wanted`; -1 where there is none. Nulls of
    processes are like nulls; a null correlation is nobody's.
    """
    rows = _rows_of_pairs(have, wanted)
    if wanted["correlation"].null_count():
        rows[wanted["correlation"].is_null().to_numpy()] = -1
    return rows


def in_background(rows: int, work: Callable[[], T]) -> Callable[[], T]:
    """Gives what waits for `work` and hands over its result; of few rows, it is then that the work is done."""
    if rows < MANY_ROWS:
        return work
    thread = ThreadPoolExecutor(1)
    done = thread.submit(work)
    thread.shutdown(wait=False)
    return done.result


def several(rows: int, works: Sequence[Callable[[], T]], at_once: int = 2) -> list[T]:
    """What each of `works` gives; of many rows, so many of them at once."""
    if rows < MANY_ROWS:
        return [work() for work in works]
    with ThreadPoolExecutor(at_once) as threads:
        return [done.result() for done in [threads.submit(work) for work in works]]


def matches(pattern: str, texts: pl.Series, option: str = "") -> pl.Series:
    """Whether `pattern` is found in each text; a null has none. Shape (len(texts),).

    It takes time linear in the texts, with any expression.

    The syntax is that of Rust's `regex`, without look-around and references back. Raises InputError for another, naming
    `option`.
    """
    try:
        return texts.cast(pl.String).str.contains(pattern).fill_null(False)
    except pl.exceptions.ComputeError as error:
        match = re.search(r"(?m)^(?:regex )?error: (?!regex parse)(.*)", str(error))
        why = match[1] if match else "it cannot be compiled"
        refused = f"{option} {pattern[:80]!r} is not a regular expression ({why}); correct it"
        raise InputError(refused.lstrip()) from None
