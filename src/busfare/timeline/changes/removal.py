"""Copies that go: of a direction or kind, and of bytes that the GPU has, sent before or brought back from there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.nodes import Node
from busfare.statements import statement
from busfare.timeline.changes.prefetch import kernels_held
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    taken_out,
    with_durations,
)
from busfare.timeline.model import Mask, Timeline
from busfare.timeline.prices import packing_nanoseconds
from busfare.trace.totals import union_of

__all__ = [
    "KNOWN_BY", "SMALLEST_BYTES", "dedupe", "keep_on_gpu", "remove", "repeated_copies", "returned_copies",
]  # fmt: skip

REMOVABLE = ("h2d", "d2h", "d2d", "p2p", "copy", "set", "migration")
#: Smaller ones are flags and counters, which the host looks at and sets.
SMALLEST_BYTES = 64 * 1024
#: What shows that two copies carry the same bytes, the surest first, and the column that has it.
KNOWN_BY = {"fingerprint": "fingerprint", "address": "source_address", "bytes": "bytes"}


def remove(what: str) -> Change:
    """Operations of one direction or kind are gone, with their calls. Raises InputError for what cannot be removed."""
    if what not in REMOVABLE:
        raise InputError(f"--remove {what[:40]!r}: not known; one of {', '.join(REMOVABLE)}")

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        removed = timeline.among("direction", what) | timeline.among("kind", what)
        duration = np.where(removed, 0, timeline.columns["operation_duration"])
        return taken_out(with_durations(timeline, kernels_held(timeline, duration)), removed)

    return Change("--remove", statement("change.remove", what=what), apply)


def dedupe() -> Change:
    """Buffers that are sent again unchanged are sent once, and stay on the GPU."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        repeated = repeated_copies(timeline.operations)
        if repeated is None:
            raise InputError(
                f"{timeline.trace.path}: the trace does not say what was in the copied buffers; "
                "record it with `busfare record --fingerprint`"
            )
        rests_on = [statement("assumes.unwritten")]
        if repeated.elsewhere.any():
            kept = timeline.operations.filter(pl.Series(repeated.elsewhere)).unique(["bytes", "fingerprint"])
            rests_on.append(statement("assumes.room", megabytes=int(kept["bytes"].sum()) / 1e6))
        return taken_out(timeline, repeated.again, *rests_on)

    return Change("--dedupe", statement("change.dedupe"), apply)


def keep_on_gpu() -> Change:
    """Copies back whose bytes go in again, and those that bring them in, are gone: the last state comes back once."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        returned, known_by = returned_copies(timeline.operations, setting.recorded_on)
        if not returned.any() and known_by != "fingerprint":
            nothing = statement("assumes.none-shown", known_by=statement(f"known-by.{known_by}"))
            return Applied(timeline, 0, 0, [nothing])
        rests_on = [statement("assumes.unread")]
        if known_by != "fingerprint":
            rests_on.insert(0, statement("assumes.shown", known_by=statement(f"known-by.{known_by}")))
        return taken_out(timeline, returned, *rests_on)

    return Change("--keep-on-gpu", statement("change.keep-on-gpu"), apply)


class Repeated(NamedTuple):
    """Copies to the GPU whose bytes were sent before. Shape (operations,).

    `again`: such copies. `elsewhere`: those of them whose place on the GPU held other bytes meanwhile, or that went to
    another.
    """

    again: Mask
    elsewhere: Mask


def repeated_copies(operations: pl.DataFrame) -> Repeated | None:
    """None where the trace has no fingerprints."""
    if not {"fingerprint", "destination_address"}.issubset(operations.columns):
        return None
    fingerprint, address = pl.col("fingerprint"), pl.col("destination_address")
    if operations["fingerprint"].count() == 0:
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & fingerprint.is_not_null()
    place = ["process", "device", "bytes"]
    held = pl.when(address.is_not_null()).then(fingerprint.shift(1).over(*place, address))
    found = operations.with_row_index("at").filter(into)
    found = found.with_columns(elsewhere=held.ne(fingerprint).fill_null(True))
    found = found.filter(pl.int_range(pl.len()).over(*place, fingerprint) > 0)
    return Repeated(_mask(operations, found), _mask(operations, found.filter("elsewhere")))


def returned_copies(operations: pl.DataFrame, node: Node | None) -> tuple[Mask, str]:
    """Copies back whose bytes went in again and the copies that took them there, shape (operations,); and what shows it.

    Where no fingerprint shows it, a pair is one whose copy in begins before the host, free between the two, could have
    written the buffer anew.
    """
    to_host, into = (pl.col("direction") == direction for direction in ("d2h", "h2d"))
    copies = operations.with_row_index("at").filter(
        (pl.col("kind") == "copy") & (to_host | into) & (pl.col("bytes") > SMALLEST_BYTES)
    )
    known_by = next(
        by
        for by, column in KNOWN_BY.items()
        if column == "bytes" or (column in operations.columns and operations[column].count())
    )
    if known_by == "address":
        host = pl.when(to_host).then("destination_address").otherwise("source_address")
        copies = copies.with_columns(address=host)
    keys = list(dict.fromkeys(["process", "device", "bytes", known_by]))
    copies = copies.drop_nulls(known_by).sort("start_ns", "at")
    # Those that came back wait in a line of their key; one that goes in takes the first of it, where there is one.
    waiting = pl.when(to_host).then(1).otherwise(-1).cum_sum().over(keys)
    least = pl.min_horizontal(waiting.cum_min().over(keys), 0)
    matched = into & (least == least.shift(1).over(keys).fill_null(0))
    number = pl.when(to_host).then(to_host.cum_sum().over(keys)).otherwise(matched.cum_sum().over(keys))
    copies = copies.select("at", *keys, "direction", "start_ns", "end_ns", number=number, matched=matched)
    pairs = copies.filter(to_host).join(
        copies.filter("matched"), [*keys, "number"], suffix="_in", nulls_equal=True
    )
    if known_by != "fingerprint" and pairs.height:
        begin, end = pairs["end_ns"].to_numpy(), pairs["start_ns_in"].to_numpy()
        free = (end - begin) - union_of(copies).covered_within(begin, np.maximum(begin, end))
        sizes = pairs["bytes"].to_numpy().astype(np.float64)
        pairs = pairs.filter(pl.Series(free < packing_nanoseconds(sizes, node)))
    return _mask(operations, pairs) | _mask(operations, pairs.select(at="at_in")), known_by


def _mask(operations: pl.DataFrame, rows: pl.DataFrame) -> Mask:
    """Whether each operation is among `rows`, by their places `at`; shape (operations,)."""
    mask = np.zeros(operations.height, bool)
    mask[rows["at"].to_numpy()] = True
    return mask
