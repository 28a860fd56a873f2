"""nvprof and the Visual Profiler: SQLite files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busfare.trace.readers.format import Format, RecordAgain, Source

if TYPE_CHECKING:
    from busfare.trace.model import Trace


def _read(source: Source) -> Trace:
    from busfare.trace.readers.nvprof import read
    from busfare.trace.readers.tables import SqliteTables

    assert source.database is not None
    return read.read(SqliteTables(source.database), source.launches)


FORMATS = (
    Format(
        name="nvprof",
        title="nvprof (its file)",
        read=_read,
        database=lambda file: {"StringTable", "Version"} <= file.names,
        suffixes=(".nvvp", ".nvprof"),
        record_again=RecordAgain(gpu="`nvprof -o FILE PROGRAM`"),
    ),
)
