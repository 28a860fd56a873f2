"""What a trace adds up to: totals, exposed time, distributions, gaps. Nothing is predicted here."""

from busfare.account.call_names import Names, calls_named, names_of
from busfare.account.engines import engines, find_lengths
from busfare.account.idle import IdleGap, idle_gaps
from busfare.account.intervals import Union
from busfare.account.lanes import Lanes, lanes_of
from busfare.account.totals import (
    CopyTotals,
    GpuTotals,
    Totals,
    by_path,
    is_communication,
    is_transfer,
    is_work,
    kernel_union,
    makespan_seconds,
    size_histogram,
    streams,
    top_copies,
    top_kernels,
    totals,
    union_of,
)

__all__ = [
    "CopyTotals",
    "GpuTotals",
    "IdleGap",
    "Lanes",
    "Names",
    "Totals",
    "Union",
    "by_path",
    "calls_named",
    "engines",
    "find_lengths",
    "idle_gaps",
    "is_communication",
    "is_transfer",
    "is_work",
    "kernel_union",
    "lanes_of",
    "makespan_seconds",
    "names_of",
    "size_histogram",
    "streams",
    "top_copies",
    "top_kernels",
    "totals",
    "union_of",
]
