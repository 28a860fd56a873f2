from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

class UnreadableError(ValueError):
    """The table is damaged, or of a kind that is left to SQLite itself."""

class Kind(Enum):
    INTEGER = ...
    REAL = ...
    TEXT = ...
    SMALL = ...
    CODE8 = ...
    CODE32 = ...

class Codes:
    """What stands for the whole numbers from `least` on, and `otherwise` for all others and for null."""

    def __init__(self, least: int, of: NDArray[np.uint32], otherwise: int) -> None: ...

class Wanted:
    """A column by its place in the table's records.

    Whole numbers from `least` to `most` are read less `less`; then `bits` bits from `first_bit` on, if not all;
    then what stands for them among `codes`, if the kind is one of codes.
    """

    def __init__(
        self,
        index: int,
        kind: Kind,
        *,
        is_rowid: bool = False,
        real_affinity: bool = False,
        has_default: bool = False,
        less: int = 0,
        least: int = 0,
        most: int = 0,
        first_bit: int = 0,
        bits: int = 64,
        codes: Codes | None = None,
    ) -> None: ...

class Column:
    """Shared by Arrow's C interface, not copied."""

    def __len__(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

class Timed:
    """Places of a row's times, and of the global id and the correlation that make its pair.

    Times count from `less`, usable ones are from `least` to `most`; a process is `bits` bits of a global id.
    """

    def __init__(
        self,
        start: int,
        end: int,
        process: int,
        correlation: int,
        *,
        less: int,
        least: int,
        most: int,
        first_bit: int,
        bits: int,
    ) -> None: ...

def codes_of(ids: Column, most: int) -> Codes:
    """The row of each id; for all else the number of rows.

    Raises UnreadableError if an id is null, occurs twice, or they lie further apart than `most`.
    """

def texts_with(texts: Column, parts: list[str]) -> list[tuple[int, str]]:
    """Rows and texts of those that contain one of `parts`. Raises UnreadableError if there is a null."""

class PairMarks:
    """A byte of marks for each pair of a process and a correlation of 1 to `most`."""

    def __init__(self, most: int) -> None: ...
    def mark(self, processes: Column, correlations: Column) -> None:
        """Sets mark 1 of these pairs; not of those whose correlation is null or has no place.

        Raises UnreadableError if a process is null.
        """

class CallsWanted:
    """`name`: its place in the record. `marks_of`: by the code of a call's name, the marks of its pair.

    Rows are kept whose marks have 128.
    """

    def __init__(self, timed: Timed, name: int, names: Codes, marks_of: list[int]) -> None: ...

class OperationsWanted:
    """Places of the fields that tell lanes apart, beside the process, and of the bytes, which are `largest` at most.

    With `name`, the place of a name's id, rows are tallied by their name's code; `marks_of` by code: what is added to the
    marks of rows of that name.
    """

    def __init__(
        self,
        timed: Timed,
        keys: list[int],
        size: int | None,
        largest: int,
        name: int | None = None,
        names: Codes | None = None,
        marks_of: list[int] = ...,
    ) -> None: ...

class Stop:
    """Ends a scan from another thread."""

    def ask(self) -> None: ...

#: Starts, ends, processes, correlations, and codes of names.
Calls = tuple[Numbers, Numbers, Numbers, Numbers, NDArray[np.uint32]]

class CallScan:
    """A table of calls that was read through; it keeps its file open."""

    def __len__(self) -> int: ...
    @property
    def first(self) -> int:
        """The first start."""
    @property
    def last(self) -> int:
        """The last end."""
    @property
    def kept(self) -> Calls:
        """The rows that were to be kept, in the table's order."""
    def during(self, start: int, end: int) -> Calls:
        """All rows that begin before `end` and end behind `start`: read again. Raises UnreadableError."""

class OperationScan:
    """The rows of a table of operations, in order of time."""

    def __len__(self) -> int: ...
    @property
    def starts(self) -> Numbers: ...
    @property
    def ends(self) -> Numbers: ...
    @property
    def lane_of(self) -> NDArray[np.uint32]: ...
    @property
    def sizes(self) -> Numbers | None: ...
    @property
    def last(self) -> int:
        """The last end."""
    @property
    def names(self) -> tuple[Numbers, Numbers]:
        """By the code of a name: rows, and their nanoseconds; of no length where names are not tallied."""
    @property
    def lanes(self) -> tuple[list[Numbers], NDArray[np.uint32], NDArray[np.uint8], list[Numbers]]:
        """Keys, the process first, a column each; which of them are known, a bit each; marks; and first row, count,
        nanoseconds, bytes, and bytes and nanoseconds of rows that took time.
        """

class Scan:
    """It keeps its file open."""

    @property
    def calls(self) -> CallScan: ...
    @property
    def operations(self) -> list[OperationScan]: ...

class Database:
    """A file of UTF-8 text and no write-ahead log. Raises UnreadableError if `path` is none."""

    def __init__(self, path: str) -> None: ...
    def read(self, root: int, wanted: list[Wanted], threads: int) -> list[Column]:
        """The columns of the table whose tree starts at page `root`. Raises UnreadableError, KeyboardInterrupt."""
    def scan(
        self,
        root: int,
        calls: CallsWanted,
        operations: list[tuple[int, OperationsWanted]],
        asked: PairMarks,
        threads: int,
        stop: Stop,
    ) -> Scan:
        """Reads a table of calls through, and then tables of operations; `root` is the page where a table's tree starts.

        Of calls those are kept that are to be, and those of pairs that have marks in `asked`. Raises UnreadableError where
        a row is not sound, a name's code is `otherwise`, or operations are not in order of their starts;
        KeyboardInterrupt once `stop` is asked for.
        """
