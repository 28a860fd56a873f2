"""How Nsight Systems exports call their tables and columns.

No numpy and no Polars here: reading begins before they are imported.
"""

from __future__ import annotations

from typing import Protocol

from busfare.trace.bounds import LATEST

__all__ = [
    "CALLS_TABLE",
    "COPIES",
    "GRAPHS",
    "KERNELS",
    "OF_COPIES",
    "PROCESS_BITS",
    "RECORDS",
    "SETS",
    "STRINGS",
    "THREAD_BITS",
    "WAITS",
    "first_start",
]

STRINGS = "StringIds"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

#: What copies have beside place, time and size; all but the fourth of 64 bits.
OF_COPIES = ("copyKind", "srcKind", "dstKind", "dstDeviceId", "copyCount")
#: Where process and thread stand in a serialised global id: the first bit, and how many.
PROCESS_BITS, THREAD_BITS = (24, 24), (0, 24)


class _Firsts(Protocol):
    def first(self, table: str, column: str) -> int | None: ...


def first_start(tables: _Firsts) -> int:
    """About where the trace begins: the first row's start, in tables that are written in order, nearly."""
    begins = [tables.first(table, "start") for table in (CALLS_TABLE, KERNELS, COPIES, SETS, GRAPHS)]
    return min((begin for begin in begins if begin is not None and 0 <= begin <= LATEST), default=0)
