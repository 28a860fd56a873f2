"""How Nsight Systems exports call their tables and columns.

No numpy and no Polars here: reading begins before they are imported.
"""

from __future__ import annotations

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
