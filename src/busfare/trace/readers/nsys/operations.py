"""Kernels, copies, sets and graph launches of Nsight Systems exports as rows of `operations`."""

from __future__ import annotations

import polars as pl

from busfare.trace.cupti import DIRECTION_OF, GRID, with_blocks
from busfare.trace.model import Omissions
from busfare.trace.readers.nsys.columns import INT, PLACE, SMALL_INT, TIMES, Texts, placed
from busfare.trace.readers.nsys.scan import COPIES, GRAPHS, KERNELS, OF_COPIES, SETS
from busfare.trace.readers.tables.source import TableSource, ints, meant
from busfare.trace.tables import DIRECTIONS, KINDS, MEMORY_KINDS, OPERATIONS, empty

__all__ = ["copies", "copy_table", "graphs", "kernels", "set_table", "sets"]

#: ENUM_CUDA_MEMCPY_OPER, beyond CUPTI's own; the table that explains it is missing from exports before 2022.4.
MIGRATION_DIRECTION_OF = {11: "h2d", 12: "d2h", 13: "d2d"}
#: ENUM_CUDA_MEM_KIND: one less than CUPTI's own numbers.
MEMORY_OF = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "static", 6: "managed"}

PEER_COPY = 10

#: What kernels and copies have in common, and those of it that a caller may have no use for.
OF_OPERATIONS = TIMES | PLACE | ints("graphNodeId")
COPY_COLUMNS: dict[str, pl.DataType] = {
    name: SMALL_INT if name == "dstDeviceId" else INT for name in OF_COPIES
}
OF_SETS: dict[str, pl.DataType] = ints("bytes memKind")


def kernels(tables: TableSource, strings: pl.DataFrame) -> pl.DataFrame:
    """Kernels as rows of `operations`."""
    frame = tables.read(KERNELS, {**OF_OPERATIONS, **GRID, "demangledName": INT})
    if frame.is_empty():
        return empty(OPERATIONS)
    named = Texts.of(frame["demangledName"], strings, "(unnamed kernel)")
    if named.any_unknown:  # some versions and languages fill only another column
        others = tables.read(KERNELS, ints("demangledName shortName mangledName"))
        if others.height == frame.height:
            known = [
                pl.when(pl.col(name).is_in(strings["id"].implode())).then(name) for name in others.columns
            ]
            ids = others.select(pl.coalesce(*known)).to_series()
            named = Texts.of(ids, strings, "(unnamed kernel)")
    name = named.of_rows(named.texts.cast(pl.Categorical))
    frame = with_blocks(frame).drop("demangledName", strict=False)
    return placed(frame).with_columns(kind=pl.lit("kernel"), name=name)


def copy_table(tables: TableSource) -> pl.DataFrame:
    """The table of copies, for `copies`."""
    return tables.read(COPIES, {**OF_OPERATIONS, "bytes": INT, **COPY_COLUMNS})


def copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Copies and migrations as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    migration = pl.col("copyKind").is_in(list(MIGRATION_DIRECTION_OF)).fill_null(False)
    managed = pl.when(migration).then(pl.lit("managed", pl.Enum(MEMORY_KINDS)))
    frame = placed(frame).with_columns(
        kind=pl.when(migration).then(pl.lit("migration")).otherwise(pl.lit("copy")).cast(pl.Enum(KINDS)),
        direction=meant("copyKind", DIRECTION_OF | MIGRATION_DIRECTION_OF, DIRECTIONS),
        source_memory=managed.otherwise(meant("srcKind", MEMORY_OF, MEMORY_KINDS)),
        destination_memory=managed.otherwise(meant("dstKind", MEMORY_OF, MEMORY_KINDS)),
        peer_device=pl.when(pl.col("copyKind") == PEER_COPY).then("dstDeviceId"),
        copy_count=pl.col("copyCount").fill_null(1).clip(1),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    return frame


def set_table(tables: TableSource) -> pl.DataFrame:
    """The table of sets, for `sets`."""
    return tables.read(SETS, {**OF_OPERATIONS, **OF_SETS})


def sets(frame: pl.DataFrame) -> pl.DataFrame:
    """Sets as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    return placed(frame).with_columns(
        kind=pl.lit("set"),
        name=pl.lit("memset"),
        destination_memory=meant("memKind", MEMORY_OF, MEMORY_KINDS),
    )


def graphs(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    """Graph launches that were recorded as a whole, as rows of `operations`."""
    frame = tables.read(GRAPHS, TIMES | PLACE | ints("graphId"))
    if frame.is_empty():
        return empty(OPERATIONS)
    omissions.add(
        "opaque-graphs",
        "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the "
        "trace, and not in any count here; record with `nsys profile --cuda-graph-trace=node` to see them",
        frame.height,
    )
    name = pl.lit("CUDA graph ") + pl.col("graphId").cast(pl.String).fill_null("")
    return placed(frame).with_columns(kind=pl.lit("graph"), name=name.str.strip_chars())
