"""What CUPTI's numbers stand for; nvprof files and our own recordings hold them as they are."""

from __future__ import annotations

__all__ = ["DIRECTION_OF", "MEMORY_OF"]

#: CUpti_ActivityMemcpyKind; Nsight Systems numbers the same, and goes on from 11.
DIRECTION_OF = {
    1: "h2d",
    2: "d2h",
    3: "h2d",
    4: "d2h",
    5: "d2d",
    6: "d2d",
    7: "d2d",
    8: "d2d",
    9: "h2h",
    10: "p2p",
}
#: CUpti_ActivityMemoryKind; Nsight Systems has numbers of its own, one less.
MEMORY_OF = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "static", 7: "managed"}
