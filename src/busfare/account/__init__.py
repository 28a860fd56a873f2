"""What a trace adds up to: totals, exposed time, distributions, gaps. Nothing is predicted here."""

from busfare.account.intervals import Union
from busfare.account.totals import (
    CopyTotals,
    GpuTotals,
    IdleGap,
    Totals,
    by_path,
    engines,
    idle_gaps,
    is_transfer,
    is_work,
    kernel_union,
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
    "Totals",
    "Union",
    "by_path",
    "engines",
    "idle_gaps",
    "is_transfer",
    "is_work",
    "kernel_union",
    "size_histogram",
    "streams",
    "top_copies",
    "top_kernels",
    "totals",
    "union_of",
]
