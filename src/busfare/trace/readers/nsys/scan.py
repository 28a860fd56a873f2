"""Large Nsight Systems exports scanned: operations as times and lanes, and of the calls those that are asked for.

Only tables without anything to repair are read so: every time, process, correlation and name is sound.

No numpy and no Polars here: a scan begins before they are imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread

from busfare.errors import InputError
from busfare.trace._sqlite_columns import (
    CallsWanted,
    Codes,
    Column,
    Kind,
    OperationsWanted,
    PairMarks,
    Scan,
    Stop,
    Timed,
    UnreadableError,
    Wanted,
    codes_of,
    texts_with,
)
from busfare.trace.api_calls import ABI_SUFFIX, BLOCKING_COPY, COMMUNICATION, SYMBOL_COPY
from busfare.trace.large import EARLIEST, LATEST, SMALL, SPARSE
from busfare.trace.readers.nsys import STRINGS
from busfare.trace.readers.sqlite_file import DAMAGE, Pages, SqliteFile

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CALLCHAINS = "CUDA_CALLCHAINS"

#: What copies have beside place, time and size; all but the fourth of 64 bits.
OF_COPIES = ("copyKind", "srcKind", "dstKind", "dstDeviceId", "copyCount")
#: Where process and thread stand in a serialised global id: the first bit, and how many.
PROCESS_BITS, THREAD_BITS = (24, 24), (0, 24)

#: Of each table of operations the columns that tell lanes apart, beside the process, and the one of sizes.
LANES: dict[str, tuple[tuple[str, ...], str | None]] = {
    KERNELS: (("deviceId", "streamId"), None),
    COPIES: (("deviceId", "streamId", *OF_COPIES), "bytes"),
    SETS: (("deviceId", "streamId", "memKind"), "bytes"),
}
OPERATION = ("start", "end", "globalPid", "correlationId")
CALL = ("start", "end", "globalTid", "correlationId")
#: Calls whose operations may be asked for, with the mark of their pairs.
SUBMITTED = {SYMBOL_COPY: 2, BLOCKING_COPY: 4}
#: Of operations those with a call, and kernels that carry data between GPUs; of calls those that are kept.
HAS_CALL, CARRIES, KEPT = 1, 64, 128
#: Further calls that may be asked for.
SYNCHRONISING = "Synchronize"
#: What the names of all of them contain.
PARTS = ["Memcpy", SYNCHRONISING]
#: And the names of kernels that carry data.
PARTS_OF_CARRIERS = ["ccl", "shmem"]
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
        return None if file.most_rows(GRAPHS) else _begun(file, file.pages, above)
    except (*DAMAGE, UnreadableError, InputError):  # whoever reads the tables is told
        return None


def _begun(file: SqliteFile, pages: Pages, above: int) -> Scanning:
    rows = file.most_rows(CALLS_TABLE) or 0
    wanted = [_column(pages, STRINGS, "id"), _column(pages, STRINGS, "value", Kind.TEXT)]
    ids, texts = pages.file.read(pages.root(STRINGS), wanted, threads())
    names = codes_of(ids, SPARSE * (len(ids) + rows) + SMALL)
    call_name = _numbers(pages, CALLS_TABLE, ["nameId"])[0]
    calls = CallsWanted(_timed(pages, CALLS_TABLE, CALL), call_name, names, _marks(texts))
    carriers = _carriers(texts)
    keys = {
        table: [key for key in of_lanes if key in pages.layout(table)]
        for table, (of_lanes, _) in LANES.items()
        if table in file.names
    }
    operations = [
        (pages.root(table), _operations(pages, table, keys[table], names, carriers)) for table in keys
    ]
    pairs = _with_events(file, pages, SPARSE * rows + FAR)
    # The connection is this thread's; from here on only native code is needed.
    scan = partial(pages.file.scan, pages.root(CALLS_TABLE), calls, operations, pairs, threads())
    return Scanning(scan, keys, above)


def _operations(
    pages: Pages, table: str, keys: list[str], names: Codes, carriers: list[int]
) -> OperationsWanted:
    _, size = LANES[table]
    timed, of_lanes = _timed(pages, table, OPERATION), _numbers(pages, table, keys)
    if table == KERNELS:
        name = _numbers(pages, table, ["demangledName"])[0]
        return OperationsWanted(timed, of_lanes, None, LARGEST, name, names, carriers)
    at = None if size is None else _numbers(pages, table, [size])[0]
    return OperationsWanted(timed, of_lanes, at, LARGEST)


def _carriers(texts: Column) -> list[int]:
    """The marks of kernels by their names, and of one without a name."""
    marks = [0] * (len(texts) + 1)
    for row, text in texts_with(texts, PARTS_OF_CARRIERS):
        marks[row] = CARRIES if re.search(COMMUNICATION, text) else 0
    return marks


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


def _with_events(file: SqliteFile, pages: Pages, most: int) -> PairMarks:
    """The calls that events and waits name: these are kept."""
    pairs = PairMarks(most)
    for table in (WAITS, RECORDS):
        if file.most_rows(table) and "correlationId" in file.columns(table):
            wanted = [
                _column(pages, table, "globalPid", process=True),
                _column(pages, table, "correlationId"),
            ]
            pairs.mark(*pages.file.read(pages.root(table), wanted, threads()))
    return pairs


def threads() -> int:
    """How many native code starts: as many as Polars does."""
    setting = os.environ.get("POLARS_MAX_THREADS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _timed(pages: Pages, table: str, columns: Sequence[str]) -> Timed:
    """`columns`: start, end, global id, correlation."""
    first, bits = PROCESS_BITS
    places = _numbers(pages, table, columns)
    return Timed(*places, less=0, least=EARLIEST, most=LATEST, first_bit=first, bits=bits)


def _numbers(pages: Pages, table: str, columns: Sequence[str]) -> list[int]:
    """Places of whole numbers. Raises UnreadableError for what is not there as plain ones."""
    layout = pages.layout(table)
    places = [layout[name] for name in columns if name in layout]
    plain = [p.index for p in places if not (p.is_rowid or p.real_affinity or p.has_default)]
    if len(plain) < len(columns):
        raise UnreadableError("columns that are not there as plain numbers")
    return plain


def _column(pages: Pages, table: str, name: str, kind: Kind = Kind.INTEGER, process: bool = False) -> Wanted:
    """A whole column; `process`: that of its global ids. Raises UnreadableError if it is not there."""
    place = pages.layout(table).get(name)
    if place is None or (place.is_rowid and process):
        raise UnreadableError("a column that is not there, or is the rowid")
    return place.wanted(kind, *(PROCESS_BITS if process else (0, 64)))


class Scanning:
    """A scan that another thread makes. Whoever begins one ends it.

    `keys`: of each table of operations, in order, the columns that tell its lanes apart, beside the process. `above`: so
    many rows are not worth adding up.
    """

    def __init__(self, scan: Callable[[Stop], Scan], keys: dict[str, list[str]], above: int) -> None:
        self.keys, self.above = keys, above
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
