"""Reads and writes of files by a recorded process, and files that it mapped into memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import polars as pl

from busfare.trace.model import Omissions
from busfare.trace.readers.recorded.process import RecordedProcess
from busfare.trace.readers.tables import meant
from busfare.trace.tables import STORAGE, STORAGE_KINDS, conform

#: By the recording's number; behind the last one, that of memory which is a file's no more.
KIND = dict(enumerate(STORAGE_KINDS, start=1))
UNMAPPED = len(KIND) + 1


def storage(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `STORAGE`, those in the window; of mappings all."""
    table, name = process.recording.table("storage"), process.recording.path.name
    noted = process.frame(table, "thread", "kind", "bytes", "address", wall=True).with_columns(
        pl.col("address").reinterpret(signed=False), path=process.names(table["path"])
    )
    mapped = pl.col("kind").is_in([UNMAPPED - 1, UNMAPPED])
    inside = pl.Series(process.inside_window(noted["start_ns"].fill_null(0).to_numpy() - process.shift_ns))
    noted = pl.concat([noted.filter(inside & ~mapped), _mapped(noted.filter(mapped))])
    noted = conform(noted.with_columns(kind=meant("kind", KIND, STORAGE_KINDS)), STORAGE)
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


def _mapped(noted: pl.DataFrame) -> pl.DataFrame:
    """The mappings among rows of mappings and of what ended some; `end_ns`: when the memory, or a part of it, went."""
    noted = noted.drop_nulls("start_ns").sort("start_ns", maintain_order=True)
    ends: list[int | None] = [None] * noted.height
    begins: list[int] = []  # of what is there, ascending, and of each where it ends and its row
    there: list[tuple[int, int]] = []
    columns = (noted[name].to_list() for name in ("kind", "address", "bytes", "start_ns"))
    for row, (kind, begin, size, time) in enumerate(zip(*columns, strict=True)):
        first, behind = bisect_right(begins, begin), bisect_left(begins, begin + max(size, 0))
        first -= first > 0 and there[first - 1][0] > begin
        for _, gone in there[first:behind]:
            ends[gone] = time
        del begins[first:behind], there[first:behind]
        if kind != UNMAPPED:
            begins.insert(first, begin)
            there.insert(first, (begin + max(size, 0), row))
    made = noted.with_columns(end_ns=pl.Series(ends, dtype=pl.Int64))
    return made.filter(pl.col("kind") != UNMAPPED)
