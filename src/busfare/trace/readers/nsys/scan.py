"""Large Nsight Systems exports scanned: operations as times and lanes, and of the calls those that are asked for.

Only tables without anything to sort out are read so: every time, process, correlation and name is sound, operations
stand in order of time. No numpy and no Polars here: a scan begins before they are imported.
"""

from __future__ import annotations

import re
from functools import partial

from busfare.errors import InputError
from busfare.trace._sqlite_columns import (
    CallsWanted,
    Column,
    Kind,
    OperationsWanted,
    PairMarks,
    UnreadableError,
    codes_of,
    texts_with,
)
from busfare.trace.api_calls import ABI_SUFFIX, BLOCKING_COPY, SYMBOL_COPY
from busfare.trace.bounds import SMALL, SPARSE
from busfare.trace.readers.nsys.names import (
    CALLS_TABLE,
    COPIES,
    GRAPHS,
    KERNELS,
    OF_COPIES,
    PROCESS_BITS,
    RECORDS,
    SETS,
    STRINGS,
    WAITS,
    first_start,
)
from busfare.trace.readers.tables.sqlite_file import DAMAGE, SqliteFile
from busfare.trace.readers.tables.sqlite_pages import Pages
from busfare.trace.readers.tables.sqlite_scan import Places, Scanning, threads

__all__ = ["LANES", "SUBMITTED", "begin"]

#: Of each table of operations the columns that tell lanes apart, beside the process, and the one of sizes.
LANES: dict[str, tuple[tuple[str, ...], str | None]] = {
    KERNELS: (("deviceId", "streamId", "demangledName"), None),
    COPIES: (("deviceId", "streamId", *OF_COPIES), "bytes"),
    SETS: (("deviceId", "streamId", "memKind"), "bytes"),
}
OPERATION = ("start", "end", "globalPid", "correlationId")
CALL = ("start", "end", "globalTid", "correlationId")
#: Calls whose operations may be asked for, with the mark of their pairs.
SUBMITTED = {SYMBOL_COPY: 2, BLOCKING_COPY: 4}
HAS_CALL, KEPT = 1, 128
#: Further calls that may be asked for.
SYNCHRONISING = "Synchronize"
#: What the names of all of them contain.
PARTS = ["Memcpy", SYNCHRONISING]
LARGEST = 1 << 44
#: Correlations may begin as far on, for they go on counting between recordings.
FAR = 1 << 24


def begin(file: SqliteFile, above: int) -> Scanning | None:
    """Begins to scan an export; None if it is none, has no more than `above` rows, or something is to be sorted out."""
    if file.pages is None or not {STRINGS, CALLS_TABLE} <= file.names:
        return None
    try:
        if sum(file.most_rows(table) or 0 for table in (CALLS_TABLE, *LANES)) <= above:
            return None
        return None if file.most_rows(GRAPHS) else _begun(file, file.pages)
    except (*DAMAGE, UnreadableError, InputError):  # whoever reads the tables is told
        return None


def _begun(file: SqliteFile, pages: Pages) -> Scanning:
    places = Places(pages, first_start(file), PROCESS_BITS)
    rows = file.most_rows(CALLS_TABLE) or 0
    wanted = [places.column(STRINGS, "id"), places.column(STRINGS, "value", Kind.TEXT)]
    ids, texts = pages.file.read(pages.root(STRINGS), wanted, threads())
    calls = CallsWanted(
        places.timed(CALLS_TABLE, CALL),
        places.numbers(CALLS_TABLE, ["nameId"])[0],
        codes_of(ids, SPARSE * (len(ids) + rows) + SMALL),
        _marks(texts),
    )
    keys = {
        table: [key for key in of_lanes if key in pages.layout(table)]
        for table, (of_lanes, _) in LANES.items()
        if table in file.names
    }
    operations = [(pages.root(table), _operations(places, table, keys[table])) for table in keys]
    pairs = _with_events(file, pages, places, SPARSE * rows + FAR)
    # The connection is this thread's; from here on only native code is needed.
    scan = partial(pages.file.scan, pages.root(CALLS_TABLE), calls, operations, pairs, threads())
    return Scanning(scan, keys)


def _operations(places: Places, table: str, keys: list[str]) -> OperationsWanted:
    _, size = LANES[table]
    at = None if size is None else places.numbers(table, [size])[0]
    return OperationsWanted(places.timed(table, OPERATION), places.numbers(table, keys), at, LARGEST)


def _marks(texts: Column) -> list[int]:
    """Of each call by its name, and of one without a name."""
    marks = [HAS_CALL] * (len(texts) + 1)
    for row, text in texts_with(texts, PARTS):
        if "\n" in text:
            raise UnreadableError("a name of several lines")
        plain = re.sub(ABI_SUFFIX, "", text, count=1)
        for pattern, mark in (SUBMITTED | {SYNCHRONISING: 0}).items():
            if re.search(pattern, plain):
                marks[row] |= mark | KEPT
    return marks


def _with_events(file: SqliteFile, pages: Pages, places: Places, most: int) -> PairMarks:
    """The calls that events and waits name: these are kept."""
    pairs = PairMarks(most)
    for table in (WAITS, RECORDS):
        if file.most_rows(table) and "correlationId" in file.columns(table):
            wanted = [places.column(table, "globalPid", process=True), places.column(table, "correlationId")]
            pairs.mark(*pages.file.read(pages.root(table), wanted, threads()))
    return pairs
