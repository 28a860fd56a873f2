"""What a reader of profiler tables needs of the file that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import polars as pl

__all__ = ["TableSource"]


class TableSource(Protocol):
    """Named tables with named columns, any of which may be missing."""

    path: Path

    @property
    def names(self) -> set[str]:
        """The tables that are there."""

    def columns(self, table: str) -> list[str]:
        """Columns of `table`; none if it is not there."""

    def read(self, table: str, wanted: dict[str, pl.DataType]) -> pl.DataFrame:
        """Those columns of `wanted` that `table` has, as those types. Raises InputError if they cannot be read."""

    def close(self) -> None: ...
