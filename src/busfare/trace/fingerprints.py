"""What copies carried, told by another recording of the same program: taking fingerprints changes the times of its own."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.tables import OPERATIONS_RECORDED

__all__ = ["with_fingerprints_of"]

#: Copies that are alike in these are told apart by their order.
ALIKE = ["process_number", "device", "direction", "bytes"]
ADDED = ("fingerprint", "source_address", "destination_address")


def with_fingerprints_of(trace: Trace, other: Trace) -> Trace:
    """`trace` with the fingerprints of `other`: each copy those of the copy of its direction and size that came as the
    same one of all in order of their starts.

    Raises InputError where `other` has none, or another number of copies of a direction and size.
    """
    known = _numbered(other).filter(pl.col("fingerprint").is_not_null())
    if known.is_empty():
        raise InputError(
            f"{other.path}: holds no fingerprints; record it with `busfare record --fingerprint`"
        )
    own, theirs = _numbered(trace), _numbered(other)
    counts = known.select(ALIKE).unique()
    for name, copies in (("here", own), ("there", theirs)):
        counts = counts.join(copies.group_by(ALIKE).len(name), on=ALIKE, how="left", nulls_equal=True)
    unlike = counts.with_columns(pl.col("here", "there").fill_null(0)).filter(
        pl.col("here") != pl.col("there")
    )
    if unlike.height:
        row = unlike.sort(ALIKE).row(-1, named=True)
        raise InputError(
            f"{trace.path}: {row['here']} copies {row['direction']} of {row['bytes']} bytes, and {row['there']} in "
            f"{other.path}: not two recordings of the same work; record both alike but for --fingerprint"
        )
    told = known.select(*ALIKE, "number", told="fingerprint")
    found = own.join(told, on=[*ALIKE, "number"], how="left", nulls_equal=True).select("at", "told")
    operations = trace.operations.with_columns(
        pl.lit(None, dtype=OPERATIONS_RECORDED[name]).alias(name)
        for name in ADDED
        if name not in trace.operations.columns
    ).with_row_index("at")
    operations = operations.join(found, on="at", how="left", maintain_order="left")
    return replace(trace, operations=operations.with_columns(fingerprint="told").drop("at", "told"))


def _numbered(trace: Trace) -> pl.DataFrame:
    """The copies between host and GPU: `at` (row), `number` of those that are ALIKE, `fingerprint`."""
    rows = trace.operations.with_row_index("at")
    if "fingerprint" not in rows.columns:
        rows = rows.with_columns(fingerprint=pl.lit(None, dtype=pl.UInt64))
    copies = rows.filter(
        (pl.col("kind") == "copy") & pl.col("direction").is_in(["h2d", "d2h"]) & pl.col("bytes").is_not_null()
    ).sort("start_ns", maintain_order=True)
    copies = copies.with_columns(process_number=pl.col("process").rank("dense"))
    return copies.select("at", *ALIKE, "fingerprint", number=pl.int_range(pl.len()).over(ALIKE))
