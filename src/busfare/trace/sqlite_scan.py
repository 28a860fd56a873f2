"""Tables of calls and operations of an SQLite file added up while they are read, by rows that are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._sqlite_columns import CallScan, Codes, Database, PairMarks, Timed, UnreadableError
from busfare.trace.sqlite_direct import DirectColumns
from busfare.trace.tables import EARLIEST, LATEST

__all__ = ["CallScan", "Lanes", "Operations", "PairMarks", "Scanner", "UnreadableError"]


@dataclass(frozen=True, eq=False)
class Lanes:
    """Column by column: of each lane, what tells it apart (a number or None each), and its sums."""

    keys: dict[str, list[int | None]]
    marks: NDArray[np.uint8]
    first_row: NDArray[np.int64]
    count: NDArray[np.int64]
    ns: NDArray[np.int64]
    bytes: NDArray[np.int64]
    rated_bytes: NDArray[np.int64]
    rated_ns: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Operations:
    """Of each row, in order of time: start and end, the number of its lane, and its bytes, if they were asked for."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lane_of: NDArray[np.uint16]
    sizes: NDArray[np.int64] | None
    lanes: Lanes


class Scanner:
    """Scans tables whose rows are sound; whatever is not raises UnreadableError, for another reader to sort out."""

    def __init__(self, direct: DirectColumns, less: int, bits_of_process: tuple[int, int]) -> None:
        """Times count from `less`; of a global id the process are so many bits from the first on."""
        self._direct = direct
        self._less = less
        self._process = bits_of_process

    def calls(
        self,
        table: str,
        columns: Sequence[str],
        names: tuple[int, NDArray[np.uint32], int],
        marks_of: NDArray[np.uint8],
        asked: PairMarks,
    ) -> CallScan:
        """`columns`: start, end, global id, correlation, name. `names`: the codes of names as in `Codes`.

        `marks_of`: by code, the marks of a pair with such a call. Rows whose marks have 128 are kept.
        """
        *timed, name = self._places(table, columns)
        return self._file.calls(
            self._direct.root(table),
            self._timed(timed),
            name,
            Codes(names[0], names[1], names[2]),
            marks_of.tolist(),
            asked,
            pl.thread_pool_size(),
        )

    def operations(
        self,
        table: str,
        columns: Sequence[str],
        keys: Sequence[str],
        size: str | None,
        largest: int,
        calls: PairMarks,
    ) -> Operations:
        """`columns`: start, end, global id, correlation. `keys`: those that tell lanes apart; may be lacking."""
        present = self._direct.layout(table)
        given = [key for key in keys if key in present]
        starts, ends, lane_of, sizes, lanes = self._file.operations(
            self._direct.root(table),
            self._timed(self._places(table, columns)),
            self._places(table, given),
            None if size is None else self._places(table, [size])[0],
            largest,
            calls,
            pl.thread_pool_size(),
        )
        return Operations(starts, ends, lane_of, sizes, _lanes(lanes, given, keys))

    @property
    def _file(self) -> Database:
        return self._direct.file

    def _timed(self, places: Sequence[int]) -> Timed:
        first, bits = self._process
        return Timed(*places, less=self._less, least=EARLIEST, most=LATEST, first_bit=first, bits=bits)

    def _places(self, table: str, columns: Sequence[str]) -> list[int]:
        layout = self._direct.layout(table)
        found = [layout.get(name) for name in columns]
        places = [
            place.index
            for place in found
            if place and not (place.is_rowid or place.real_affinity or place.has_default)
        ]
        if len(places) < len(columns):
            raise UnreadableError("columns that are not there as plain numbers")
        return places


def _lanes(lanes: list[tuple[Any, ...]], given: Sequence[str], keys: Sequence[str]) -> Lanes:
    values = [lane[0] for lane in lanes]
    known = {key: [one[at] for one in values] for at, key in enumerate(["process", *given])}
    lacking = {key: [None] * len(lanes) for key in keys if key not in known}
    sums = np.array([lane[2:] for lane in lanes], np.int64).reshape(-1, 6)
    return Lanes(known | lacking, np.array([lane[1] for lane in lanes], np.uint8), *sums.T)
