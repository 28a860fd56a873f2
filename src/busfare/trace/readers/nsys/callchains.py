"""Call chains of Nsight Systems (`--cudabacktrace`): where in the program each call is made."""

from __future__ import annotations

import polars as pl

from busfare.trace import sites
from busfare.trace.columns import first_pairs
from busfare.trace.readers.nsys.rows import CALLS_TABLE, process_of
from busfare.trace.readers.tables import TableSource, ints

CALLCHAINS = "CUDA_CALLCHAINS"
#: So many calls tell how they name their chains.
ENOUGH = 10_000


def located(calls: pl.DataFrame, tables: TableSource, strings: pl.DataFrame) -> pl.DataFrame:
    """`calls` with the column `site` of `CALLS_LOCATED`, where the export holds call chains."""
    frames = tables.read(CALLCHAINS, ints("id symbol module stackDepth")).drop_nulls(["id", "stackDepth"])
    of_calls = tables.read(CALLS_TABLE, ints("globalTid correlationId callchainId")).drop_nulls("callchainId")
    if frames.is_empty() or of_calls.is_empty():
        return calls
    of_calls = of_calls.select(process_of("globalTid"), correlation="correlationId", id="callchainId")
    row = pl.Series(first_pairs(of_calls, calls)).replace(-1, None)
    named = calls.select(pl.col("name").cast(pl.String), id=of_calls["id"].gather(row))
    for column in ("symbol", "module"):
        text = strings.rename({"id": column, "value": f"{column}_text"})
        frames = frames.join(text, on=column, how="left")
    frames = frames.select("id", "stackDepth", pl.col("symbol_text", "module_text").fill_null(""))
    kinds = frames.select("symbol_text", "module_text").unique()
    kinds = kinds.with_columns(
        site=pl.Series([sites.of_native(*pair) for pair in kinds.rows()], dtype=pl.String)
    )
    own = frames.join(kinds.drop_nulls("site"), on=["symbol_text", "module_text"], how="inner")
    own = (
        own.sort("id", "stackDepth")
        .unique("id", keep="first")
        .select("id", pl.col("site").cast(pl.Categorical))
    )
    asked = named.with_columns(pl.col("id") + _ahead(named, frames))
    return calls.with_columns(asked.join(own, on="id", how="left", maintain_order="left")["site"])


def _ahead(named: pl.DataFrame, frames: pl.DataFrame) -> int:
    """By how much numbers of chains are ahead of what calls say: 1 until 2022, as the functions in the chains tell."""
    some = named.drop_nulls("id").head(ENOUGH)
    symbols = frames.select("id", name="symbol_text").unique()
    same, next_ = (
        some.with_columns(pl.col("id") + ahead).join(symbols, on=["id", "name"], how="semi").height
        for ahead in (0, 1)
    )
    return int(next_ > same)
