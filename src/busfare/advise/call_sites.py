"""Where in the program the calls are made that a finding is about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.advise.amounts import several, size, time
from busfare.trace import Trace
from busfare.trace.columns import first_pairs, numbered
from busfare.trace.spans import stacks

if TYPE_CHECKING:
    from busfare.advise.finding import Chosen

__all__ = ["CallSite", "Sites"]

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


class Sites:
    """The sites of a trace's calls; nothing is looked at before it is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def _told(self) -> bool:
        """Whether the trace says anything of where its calls are made, and which call made which operation."""
        calls, markers = self._trace.calls, self._trace.markers
        located = "site" in calls.columns or markers["end_ns"].null_count() < markers.height
        return located and self._trace.sums is None and calls.height > 0

    def of(self, touched: Chosen | None, calls: NDArray[np.uint32] | None) -> tuple[CallSite, ...]:
        """Where these operations, or else these rows of the trace's calls, are called; what takes longest first."""
        if not self._told:
            return ()
        if touched is not None and touched.height:
            rows = first_pairs(self._trace.calls, touched.columns("process", "correlation"))
            return self._grouped(rows, touched.ends - touched.starts, touched.sizes)
        if calls is not None and len(calls):
            times = self._trace.calls.select("start_ns", "end_ns")[calls]
            return self._grouped(
                calls.astype(np.int64), (times["end_ns"] - times["start_ns"]).to_numpy(), None
            )
        return ()

    def _grouped(
        self, rows: NDArray[np.int64], ns: NDArray[np.int64], sizes: NDArray[np.int64] | None
    ) -> tuple[CallSite, ...]:
        known = rows >= 0
        rows, ns = rows[known], ns[known]
        if not len(rows):
            return ()
        calls = self._trace.calls[rows]
        ranges, within = self._ranges(calls)
        located = [calls[name] for name in ("site", "module") if name in calls.columns]
        codes = [column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for column in located]
        number, first = numbered([within, *codes])
        groups = len(first)
        total = np.bincount(number, ns, groups)
        moved = None if sizes is None else np.bincount(number, np.maximum(sizes[known], 0), groups)
        count = np.bincount(number, minlength=groups)
        found = []
        for group in np.argsort(-total, kind="stable").tolist():
            at = int(first[group])
            site, module = (calls[name][at] if name in calls.columns else None for name in ("site", "module"))
            around = ranges[within[at]]
            if site is not None or around:
                bytes_ = None if moved is None else int(moved[group])
                found.append(
                    CallSite(site, module, around, int(count[group]), bytes_, float(total[group]) * NS)
                )
            if len(found) == MOST:
                break
        return tuple(found)

    def _ranges(self, calls: pl.DataFrame) -> tuple[list[list[str]], NDArray[np.uint32]]:
        """The different stacks of ranges around the calls, outermost first, and which one each call has."""
        spans, texts, name = self._spans
        found, number = stacks(spans, calls, name)
        return [[texts[code] for code in stack] for stack in found], number

    @cached_property
    def _spans(self) -> tuple[pl.DataFrame, list[str], NDArray[np.int64]]:
        """Ranges, their different names with what counts them left out, and which one each range has."""
        spans = self._trace.markers.drop_nulls("end_ns")
        names = spans["name"].cast(pl.String).fill_null("(unnamed)")
        names = names.str.replace(OF_CALL, "").str.replace_all(COUNTED, "${1}*")
        texts = names.unique(maintain_order=True)
        codes = names.cast(pl.Enum(texts)).to_physical()
        return spans, texts.to_list(), codes.cast(pl.Int64).to_numpy()
