"""Reads and writes of files by a recorded process."""

from __future__ import annotations

import polars as pl

from busfare.trace.model import Omissions
from busfare.trace.readers.recorded.rows import RecordedProcess
from busfare.trace.readers.tables import meant
from busfare.trace.tables import STORAGE, STORAGE_KINDS, conform

#: By the recording's number.
KIND = dict(enumerate(STORAGE_KINDS, start=1))


def storage(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `STORAGE`, those in the window."""
    table, name = process.recording.table("storage"), process.recording.path.name
    noted = process.frame(table, "thread", "kind", "bytes", "address", wall=True).with_columns(
        pl.col("address").reinterpret(signed=False),
        kind=meant("kind", KIND, STORAGE_KINDS),
        path=process.names(table["path"]),
    )
    inside = pl.Series(process.inside_window(noted["start_ns"].fill_null(0).to_numpy() - process.shift_ns))
    noted = conform(noted.filter(inside), STORAGE)
    unknown = noted["kind"].null_count()
    omissions.add_if(
        unknown, "unknown-storage", f"{name}: reads or writes of a kind that this version does not know"
    )
    noted = noted.drop_nulls("kind")
    omissions.add_if(
        noted["path"].null_count(),
        "files-unnamed",
        f"{name}: reads or writes of files whose path is not known",
    )
    return noted
