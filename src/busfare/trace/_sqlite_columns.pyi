from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

class Database:
    """A file of UTF-8 text and no write-ahead log. Raises UnreadableError if `path` is none."""

    def __init__(self, path: str) -> None: ...
    def read(self, root: int, wanted: list[Wanted], threads: int) -> list[Column]:
        """The columns of the table whose tree starts at page `root`. Raises UnreadableError, KeyboardInterrupt."""
