"""Tables of calls and operations of an SQLite file added up while they are read, by rows that are not kept.

No numpy and no Polars here: a scan begins before they are imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Thread

from busfare.trace._sqlite_columns import Kind, Scan, Stop, Timed, UnreadableError, Wanted
from busfare.trace.bounds import EARLIEST, LATEST
from busfare.trace.readers.tables.sqlite_pages import Pages

__all__ = ["Places", "Scanning", "threads"]


def threads() -> int:
    """How many native code starts: as many as Polars does."""
    said = os.environ.get("POLARS_MAX_THREADS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Places:
    """Where a scan finds the fields of rows; what is not there as plain numbers raises UnreadableError."""

    def __init__(self, pages: Pages, less: int, bits_of_process: tuple[int, int]) -> None:
        """Times count from `less`; of a global id the process are so many bits from the first on."""
        self._pages = pages
        self._less = less
        self._process = bits_of_process

    def timed(self, table: str, columns: Sequence[str]) -> Timed:
        """`columns`: start, end, global id, correlation."""
        first, bits = self._process
        places = self.numbers(table, columns)
        return Timed(*places, less=self._less, least=EARLIEST, most=LATEST, first_bit=first, bits=bits)

    def numbers(self, table: str, columns: Sequence[str]) -> list[int]:
        """Places of whole numbers."""
        layout = self._pages.layout(table)
        found = [layout.get(name) for name in columns]
        places = [
            place.index
            for place in found
            if place and not (place.is_rowid or place.real_affinity or place.has_default)
        ]
        if len(places) < len(columns):
            raise UnreadableError("columns that are not there as plain numbers")
        return places

    def column(self, table: str, name: str, kind: Kind = Kind.INTEGER, process: bool = False) -> Wanted:
        """A whole column; `process`: that of its global ids."""
        place = self._pages.layout(table).get(name)
        if place is None or (place.is_rowid and process):
            raise UnreadableError("a column that is not there, or is the rowid")
        first, bits = self._process if process else (0, 64)
        return Wanted(
            place.index,
            kind,
            is_rowid=place.is_rowid,
            real_affinity=place.real_affinity,
            has_default=place.has_default,
            first_bit=first,
            bits=bits,
        )


class Scanning:
    """A scan that another thread makes. Whoever begins one ends it.

    `keys`: of each table of operations, in order, the columns that tell its lanes apart, beside the process.
    """

    def __init__(self, scan: Callable[[Stop], Scan], keys: dict[str, list[str]]) -> None:
        self.keys = keys
        self._scan = scan
        self._stop = Stop()
        self._made: Scan | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="scan")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made = self._scan(self._stop)
        except UnreadableError:
            return
        except BaseException as error:
            self._error = error

    def result(self) -> Scan | None:
        """Waits for it. None if something in the tables is to be sorted out by others."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made

    def end(self) -> None:
        """Nobody waits for it any longer."""
        self._stop.ask()
        self._thread.join()
