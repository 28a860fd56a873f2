"""Whether copied host memory was pinned, by the addresses of copies and of what the program allocated.

The program's own calls decide: memory of `hipHostMalloc` is pinned, that of `hipMallocManaged` managed. Any other is
pageable only where nothing can have been missed: the device side of every copy lies in memory whose allocation was
recorded, and no call registered memory of the host.
"""

from __future__ import annotations

import bisect

import polars as pl

from busfare.trace.columns import first_pairs
from busfare.trace.spans import innermost
from busfare.trace.tables import MEMORY_KINDS

PINNING = r"^hip(Host(Malloc|Alloc)|MallocHost|(Ext)?MemAllocHost|MemHostAlloc)"
MANAGING = r"^hipMallocManaged"
REGISTERING = r"^hip(Host|MemHost)Register"
#: What holds a piece of memory: a kind of MEMORY_KINDS, or memory that no call of the program's allocated itself.
OTHER = "other"

Piece = tuple[int, str]  # its end, and what holds it


def host_memory(copies: pl.DataFrame, allocations: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """The kind of the host's memory of each copy, null where it is not known; columns as in `records.py`."""
    none = pl.Series([None] * copies.height, dtype=pl.Enum(MEMORY_KINDS))
    named = calls["name"].fill_null("")
    if allocations.is_empty() or not named.str.starts_with("hip").any():
        return none
    ends = ("source_address", "destination_address")
    host, device = (
        pl.when(pl.col("direction") == "h2d").then(one).when(pl.col("direction") == "d2h").then(other)
        for one, other in (ends, reversed(ends))
    )
    addressed = copies.select(
        "process", start_ns=_called_ns(copies, calls), order=pl.lit(1), host=host, device=device
    )
    addressed = addressed.with_row_index("row").filter((pl.col("host") > 0) & (pl.col("device") > 0))
    if addressed.is_empty():
        return none
    held = _held(allocations, calls.filter(named.str.starts_with("hip")))
    found: dict[int, str | None] = {}
    complete = not named.str.contains(REGISTERING).any()
    events = pl.concat([held, addressed], how="diagonal").sort("start_ns", "order", maintain_order=True)
    live: dict[int | None, _Memory] = {}
    for event in events.iter_rows(named=True):
        memory = live.setdefault(event["process"], _Memory())
        if event["row"] is None:
            memory.change(event["address"], event["size"], event["holds"])
            continue
        complete &= memory.holds(event["device"]) == "device"
        found[event["row"]] = memory.holds(event["host"])
    kinds = {"pinned": "pinned", "managed": "managed"} | ({OTHER: "pageable"} if complete else {})
    told = [kinds.get(found[row] or OTHER) if row in found else None for row in range(copies.height)]
    return pl.Series(told, dtype=pl.Enum(MEMORY_KINDS))


def _called_ns(copies: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """When each copy was asked for: the clocks of GPU and host may differ."""
    rows = pl.Series(first_pairs(calls, copies)).replace(-1, None).cast(pl.UInt32)
    return calls["start_ns"].gather(rows).fill_null(copies["start_ns"])


def _held(allocations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Changes of what is allocated, in order: `holds` says by whom memory was taken; size null where it is given back."""
    around = innermost(calls, allocations)
    caller = calls["name"].gather(around)
    name = pl.lit(caller)
    holds = (
        pl.when(name.str.contains(PINNING)).then(pl.lit("pinned"))
        .when(name.str.contains(MANAGING)).then(pl.lit("managed"))
        .when(pl.col("agent_type") == "GPU").then(pl.lit("device"))
        .otherwise(pl.lit(OTHER))
    )  # fmt: skip
    # Memory is there once its call returns, and gone when the call that frees it begins.
    taken = pl.col("size").is_not_null()
    return allocations.with_columns(holds=holds).select(
        "process", "address", "size", "holds",
        start_ns=pl.when(taken).then("end_ns").otherwise("start_ns"),
        order=pl.lit(0),
    ).drop_nulls(["address", "start_ns"])  # fmt: skip


class _Memory:
    """What a process has allocated: pieces that lie apart, by address."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._pieces: dict[int, Piece] = {}

    def change(self, address: int, size: int | None, holds: str) -> None:
        """Memory is taken, or of no size given back."""
        if size is None:
            if self._pieces.pop(address, None):
                del self._bases[bisect.bisect_left(self._bases, address)]
        elif size > 0:
            if address not in self._pieces:
                bisect.insort(self._bases, address)
            self._pieces[address] = (address + size, holds)

    def holds(self, address: int) -> str | None:
        """What holds the memory at `address`; None where nothing was allocated there."""
        at = bisect.bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        end, holds = self._pieces[self._bases[at]]
        return holds if address < end else None
