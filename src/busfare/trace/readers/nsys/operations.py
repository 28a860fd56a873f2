"""Kernels, copies, sets and graph launches of Nsight Systems exports as rows of `operations`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from busfare.trace.cupti_numbers import DIRECTION_OF
from busfare.trace.grid import with_blocks
from busfare.trace.omissions import Omissions
from busfare.trace.readers.nsys.columns import INT, PLACE, SMALL_INT, TIMES, placed
from busfare.trace.readers.nsys.names import COPIES, GRAPHS, KERNELS, OF_COPIES
from busfare.trace.readers.nsys.texts import Texts, as_places
from busfare.trace.readers.tables.source import Change, Codes, TableSource
from busfare.trace.tables import DIRECTIONS, KINDS, MEMORY_KINDS, OPERATIONS, Schema, empty
from busfare.trace.words import NONE, of_codes

__all__ = ["OF_OPERATIONS", "OF_SETS", "PEER_COPY", "copies", "copy_table", "graphs", "kernels", "sets"]

#: ENUM_CUDA_MEMCPY_OPER, beyond CUPTI's own; the table that explains it is missing from exports before 2022.4.
MIGRATION_DIRECTION_OF = {11: "h2d", 12: "d2h", 13: "d2d"}
#: ENUM_CUDA_MEM_KIND: one less than CUPTI's own numbers.
MEMORY_OF = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "static", 6: "managed"}

#: Kinds of copies as they are; 255 for null and for what is none.
COPY_KINDS = Codes(0, np.arange(NONE, dtype=np.uint8), NONE)
PEER_COPY = 10
MIGRATIONS = np.isin(np.arange(NONE + 1), list(MIGRATION_DIRECTION_OF))

#: What kernels and copies have in common, and those of it that a caller may have no use for.
OF_OPERATIONS = TIMES | PLACE | {"graphNodeId": INT}
COPY_COLUMNS: dict[str, pl.DataType] = {
    name: SMALL_INT if name == "dstDeviceId" else INT for name in OF_COPIES
}
OF_SETS: dict[str, pl.DataType] = {"graphNodeId": INT, "bytes": INT, "memKind": INT}


def _words(words: Mapping[int, str], among: Sequence[str]) -> Codes:
    """Numbers as the places of the words that they mean; 255 for null and for any that is not listed."""
    of = np.full(max(words) + 1, NONE, np.uint8)
    for number, word in words.items():
        of[number] = among.index(word)
    return Codes(0, of, NONE)


MEMORY_CODES = _words(MEMORY_OF, MEMORY_KINDS)


def kernels(tables: TableSource, strings: pl.DataFrame, place: Schema) -> pl.DataFrame:
    """Rows of `operations` with the columns of `place`."""
    changes = as_places(tables, KERNELS, "demangledName", strings)
    frame = tables.read(KERNELS, {**place, "demangledName": INT}, changes)
    if frame.is_empty():
        return empty(OPERATIONS)
    named = Texts.of(frame["demangledName"], strings, "(unnamed kernel)")
    if named.any_unknown:  # some versions and languages fill only another column
        others = tables.read(KERNELS, {"demangledName": INT, "shortName": INT, "mangledName": INT})
        if others.height == frame.height:
            known = [
                pl.when(pl.col(name).is_in(strings["id"].implode())).then(name) for name in others.columns
            ]
            ids = others.select(pl.coalesce(*known)).to_series()
            named = Texts.of(ids, strings, "(unnamed kernel)")
    name = named.of_rows(named.texts.cast(pl.Categorical))
    frame = with_blocks(frame).drop("demangledName", strict=False)
    return placed(frame).with_columns(kind=pl.lit("kernel"), name=name)


def copy_table(tables: TableSource, place: Schema) -> pl.DataFrame:
    """The table of copies, for `copies`."""
    of_memory = {side: Change(codes=MEMORY_CODES) for side in ("srcKind", "dstKind")}
    changes = {"copyKind": Change(codes=COPY_KINDS), **of_memory}
    return tables.read(COPIES, {**place, "bytes": INT, **COPY_COLUMNS}, changes)


def copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Copies and migrations as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    frame = placed(frame)
    kinds = COPY_KINDS.column(frame["copyKind"]).to_numpy()
    migration = MIGRATIONS[kinds]
    memory = [MEMORY_CODES.column(frame[side]).to_numpy() for side in ("srcKind", "dstKind")]
    if migration.any():
        memory = [np.where(migration, np.uint8(MEMORY_KINDS.index("managed")), side) for side in memory]
    to_peer = pl.Series(kinds == PEER_COPY)
    directions = _words(DIRECTION_OF | MIGRATION_DIRECTION_OF, DIRECTIONS)
    kind = np.where(migration, np.uint8(KINDS.index("migration")), np.uint8(KINDS.index("copy")))
    frame = frame.with_columns(
        kind=of_codes(kind, pl.Series(dtype=pl.Enum(KINDS))),
        direction=of_codes(directions.of_codes(kinds), pl.Series(dtype=pl.Enum(DIRECTIONS))),
        source_memory=of_codes(memory[0], pl.Series(dtype=pl.Enum(MEMORY_KINDS))),
        destination_memory=of_codes(memory[1], pl.Series(dtype=pl.Enum(MEMORY_KINDS))),
        peer_device=pl.when(to_peer).then("dstDeviceId") if to_peer.any() else pl.lit(None, dtype=SMALL_INT),
        copy_count=pl.col("copyCount").fill_null(1).clip(1),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    return frame


def sets(frame: pl.DataFrame) -> pl.DataFrame:
    """Sets as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    return placed(frame).with_columns(
        kind=pl.lit("set"),
        name=pl.lit("memset"),
        destination_memory=pl.col("memKind").replace_strict(
            MEMORY_OF, default=None, return_dtype=pl.Enum(MEMORY_KINDS)
        ),
    )


def graphs(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    """Graph launches that were recorded as a whole, as rows of `operations`."""
    frame = tables.read(GRAPHS, TIMES | PLACE | {"graphId": INT})
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
