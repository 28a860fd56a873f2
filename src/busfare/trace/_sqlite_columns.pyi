from enum import Enum
from typing import Any

class UnreadableError(ValueError):
    """The table is damaged, or of a kind that is left to SQLite itself."""

class Kind(Enum):
    INTEGER = ...
    REAL = ...
    TEXT = ...
    SMALL = ...

class Wanted:
    """A column by its place in the table's records."""

    def __init__(
        self,
        index: int,
        kind: Kind,
        *,
        is_rowid: bool = False,
        real_affinity: bool = False,
        has_default: bool = False,
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
