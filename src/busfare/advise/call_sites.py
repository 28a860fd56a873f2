"""Where in the program the calls are made that a finding is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.advise.amounts import several, size, time
from busfare.trace import Trace
from busfare.trace.columns import first_pairs, numbered
from busfare.trace.sites import stacks
from busfare.trace.tables import CALLS_LOCATED

if TYPE_CHECKING:
    from busfare.advise.finding import Finding

__all__ = ["CallSite", "call_sites"]

Rows = NDArray[np.int64]
NS = 1e-9
#: Of a finding so many are named.
MOST = 5
#: Numbers that count steps, batches or layers, and what PyTorch's `emit_nvtx` says of each call: ranges that differ in
#: nothing else are one.
COUNTED, OF_CALL = r"(\b|_)\d+\b", r", (seq|op_id|sizes) = .*$"


class CallSite(msgspec.Struct, frozen=True):
    """Calls from one place in the program, and what they caused; names as in docs/json.md."""

    site: str | None
    module: str | None
    ranges: list[str]
    count: int
    bytes: int | None
    seconds: float

    def __str__(self) -> str:
        """'At train.py:42 load_batch, in epoch › step: 6 copies, 231 MB, 20 ms'."""
        inside = " › ".join([*self.ranges, *([self.module] if self.module else [])])
        place = ", in ".join(filter(None, (self.site and f"At {self.site}", inside)))
        what = several(self.count, "call" if self.bytes is None else "copy")
        moved = f", {size(self.bytes)}" if self.bytes else ""
        return f"{place if self.site else f'In {place}'}: {what}{moved}, {time(self.seconds)}"


def call_sites(trace: Trace, found: Sequence[Finding]) -> list[tuple[CallSite, ...]]:
    """Of each finding the places that its operations, or else its calls, are called from; what takes longest first.

    None where the trace says nothing of where its calls are made, or not which call made which operation.
    """
    calls, ranges = trace.calls, trace.markers.drop_nulls("end_ns")
    if calls.is_empty() or ("site" not in calls.columns and ranges.is_empty()):
        return [()] * len(found)
    caused = [_caused(trace, finding) for finding in found]
    touched = np.zeros(calls.height, np.bool_)
    for rows, *_ in caused:
        touched[rows] = True
    if not touched.any():
        return [()] * len(found)
    names, name = _names(ranges)
    stack = np.zeros(calls.height, np.int64)
    around, stack[touched] = stacks(ranges, calls.filter(pl.Series(touched)), name)
    within = [[names[code] for code in codes] for codes in around]
    return [_grouped(calls, *what, stack, within) for what in caused]


def _caused(trace: Trace, finding: Finding) -> tuple[Rows, Rows, Rows | None]:
    """Rows of the calls, the nanoseconds that each took or caused, and the bytes that it moved."""
    touches, calls = finding.touches, finding.calls
    if touches is not None and touches.height:
        rows = first_pairs(trace.calls, touches.columns("process", "correlation"))
        known = rows >= 0
        return rows[known], (touches.ends - touches.starts)[known], np.maximum(touches.sizes[known], 0)
    rows = np.zeros(0, np.int64) if calls is None else calls.astype(np.int64)
    times = trace.calls.select("start_ns", "end_ns")[rows]
    return rows, (times["end_ns"] - times["start_ns"]).to_numpy(), None


def _grouped(
    calls: pl.DataFrame, rows: Rows, ns: Rows, sizes: Rows | None, stack: Rows, within: list[list[str]]
) -> tuple[CallSite, ...]:
    if not len(rows):
        return ()
    located = {name: calls[name][rows] for name in CALLS_LOCATED if name in calls.columns}
    codes = [column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for column in located.values()]
    number, first = numbered([stack[rows], *codes])
    count, total = np.bincount(number), np.bincount(number, ns)
    moved = None if sizes is None else np.bincount(number, sizes)
    found: list[CallSite] = []
    for group in np.argsort(-total, kind="stable").tolist():
        at = int(first[group])
        site, module = (located[name][at] if name in located else None for name in CALLS_LOCATED)
        ranges = within[stack[rows[at]]]
        if site is not None or ranges:
            bytes_ = None if moved is None else int(moved[group])
            found.append(CallSite(site, module, ranges, int(count[group]), bytes_, float(total[group]) * NS))
        if len(found) == MOST:
            break
    return tuple(found)


def _names(ranges: pl.DataFrame) -> tuple[list[str], Rows]:
    """The different names of ranges, with what counts them left out, and which one each range has."""
    names = ranges["name"].cast(pl.String).fill_null("(unnamed)")
    names = names.str.replace(OF_CALL, "").str.replace_all(COUNTED, "${1}*")
    texts = names.unique(maintain_order=True)
    return texts.to_list(), names.cast(pl.Enum(texts)).to_physical().cast(pl.Int64).to_numpy()
