"""What the GPU did in a recorded process: kernels, copies, sets, migrations of managed memory, whole graphs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace.columns import distinct, first_rows
from busfare.trace.cupti import DIRECTION_OF, MEMORY_OF, MOST_BLOCKS
from busfare.trace.model import Omissions
from busfare.trace.readers.recorded.file import Recording, Table
from busfare.trace.readers.recorded.process import RecordedProcess, choice, nonzero
from busfare.trace.tables import (
    DIRECTIONS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_KERNELS,
    OPERATIONS_RECORDED,
    conform,
    empty,
)

__all__ = ["allocation_sizes", "held_up", "operations", "with_addresses"]

#: CUpti_ActivityUnifiedMemoryCounterKind, those that move bytes.
MIGRATION_OF = {1: "h2d", 2: "d2h", 8: "d2d"}


def operations(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `OPERATIONS`, with what only recordings and kernels have."""
    parts = [
        _kernels(process),
        _copies(process, omissions),
        _sets(process),
        _migrations(process),
        _graphs(process, omissions),
    ]
    optional = {**OPERATIONS_RECORDED, **OPERATIONS_OF_KERNELS}
    frames = [conform(part, OPERATIONS, optional) for part in parts if part.height]
    frame = pl.concat(frames, how="diagonal") if frames else empty(OPERATIONS)
    omissions.add_if(
        frame["start_ns"].null_count(),
        "untimed",
        "operations whose times the GPU did not give: counted, with no times",
    )
    return frame


def _kernels(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("kernels")
    names = {name: name for name in ("correlation", "device", "context", "stream", "graph_node")}
    # Whatever stands in a damaged file.
    sides = zip("xyz", MOST_BLOCKS, strict=True)
    grid = [np.minimum(table[f"grid_{side}"], most).astype(np.int64) for side, most in sides]
    blocks = pl.Series("blocks", grid[0] * grid[1] * grid[2])
    demangled = process.recording.table("demangled")
    readable = dict(zip(demangled["mangled"].tolist(), demangled["readable"].tolist(), strict=True))
    numbers = table["name"]
    used, places = distinct(numbers, max(process.recording.strings, default=0))
    shown = np.array([readable.get(number, number) for number in used.tolist()], np.uint64)
    return process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("kernel"),
        name=process.names(shown[places]),
        copy_count=pl.lit(1),
        blocks=pl.when(blocks > 0).then(blocks),
    )


def _copies(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    table = process.recording.table("copies")
    names = {
        name: name
        for name in ("bytes", "correlation", "device", "context", "stream", "graph_node", "copy_count")
    } | {"destination_device": "peer_device"}
    frame = process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("copy"),
        direction=choice(table["copy_kind"], DIRECTION_OF, DIRECTIONS),
        source_memory=choice(table["source_kind"], MEMORY_OF, MEMORY_KINDS),
        destination_memory=choice(table["destination_kind"], MEMORY_OF, MEMORY_KINDS),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    frame = frame.with_columns(peer_device=pl.when(pl.col("direction") == "p2p").then("peer_device"))
    return with_addresses(frame, process.recording, process.shift_ns)


def _sets(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("sets")
    names = {name: name for name in ("bytes", "correlation", "device", "context", "stream", "graph_node")}
    return process.frame(table, names).with_columns(
        nonzero("correlation"),
        nonzero("graph_node"),
        kind=pl.lit("set"),
        name=pl.lit("memset", pl.Categorical),
        destination_memory=choice(table["memory_kind"], MEMORY_OF, MEMORY_KINDS),
        copy_count=pl.lit(1),
    )


def _migrations(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("managed")
    frame = process.frame(
        table, {"value": "bytes", "source": "source", "destination": "destination", "address": "address"}
    )
    frame = frame.with_columns(
        kind=pl.lit("migration"),
        direction=choice(table["counter"], MIGRATION_OF, DIRECTIONS),
        source_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
        destination_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
        source_address=pl.col("address").reinterpret(signed=False),
        destination_address=pl.col("address").reinterpret(signed=False),
        copy_count=pl.lit(1),
    ).filter(pl.col("direction").is_not_null() & pl.Series(process.managed_inside()))
    # The device is the side that is not the host.
    device = pl.when(pl.col("direction") == "h2d").then("destination").otherwise("source")
    return frame.with_columns(
        device=device, peer_device=pl.when(pl.col("direction") == "d2d").then("destination")
    )


def _graphs(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    table = process.recording.table("graph_launches")
    omissions.add_if(
        len(table),
        "opaque-graphs",
        "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the trace, and "
        "not in any count here; record without `graphs` among the kinds to see them",
    )
    names = {name: name for name in ("correlation", "device", "context", "stream", "graph")}
    return process.frame(table, names).with_columns(
        kind=pl.lit("graph"),
        name=("CUDA graph " + pl.col("graph").cast(pl.String)).cast(pl.Categorical),
        copy_count=pl.lit(1),
    )


ALLOCATED = 1
Numbers = npt.NDArray[np.uint64]


def with_addresses(copies: pl.DataFrame, recording: Recording, shift_ns: int) -> pl.DataFrame:
    """`copies` with the columns of `OPERATIONS_RECORDED`; null for copies whose addresses are not known.

    Copies inside graphs have none (their correlation is that of the launch). `shift_ns` takes the recording's clock
    to the frame's.
    """
    table = recording.table("copy_addresses")
    correlations = copies["correlation"].fill_null(0).to_numpy().astype(np.uint64)
    rows = first_rows(table["correlation"], correlations)
    rows[copies["graph_node"].is_not_null().to_numpy()] = -1
    known = rows >= 0
    found = copies.with_columns(
        pl.Series(
            name, np.where(known, table[column][rows], 0) if len(table) else np.zeros(len(rows), np.uint64)
        ).replace(0, None)
        for name, column in (
            ("source_address", "source"),
            ("destination_address", "destination"),
            ("fingerprint", "fingerprint"),
        )
    )
    times = (found["start_ns"].fill_null(0) - shift_ns).to_numpy()
    allocations = recording.table("allocations")
    for side in ("source", "destination"):
        sizes = allocation_sizes(allocations, found[f"{side}_address"].fill_null(0).to_numpy(), times)
        found = found.with_columns(pl.Series(f"{side}_allocation_bytes", sizes).replace(0, None))
    return found


def held_up(recording: Recording) -> npt.NDArray[np.int64]:
    """Before each call of the recording: ns that taking fingerprints held its thread up since its call before.

    A buffer on its way to the GPU is hashed before its call begins, one from the GPU after its call has ended.
    """
    table, calls = recording.table("copy_addresses"), recording.table("calls")
    ns = np.zeros(len(calls), np.int64)
    taken = table["fingerprint_duration"] > 0
    if not taken.any() or not len(calls):
        return ns
    row = first_rows(calls["correlation"], table["correlation"][taken])
    began, lasted = (table[name][taken][row >= 0] for name in ("fingerprint_start", "fingerprint_duration"))
    row = row[row >= 0]
    in_turn = np.lexsort((calls["start"], calls["thread"]))
    following = np.full(len(calls), -1, np.int64)
    same_thread = calls["thread"][in_turn][1:] == calls["thread"][in_turn][:-1]
    following[in_turn[:-1]] = np.where(same_thread, in_turn[1:], -1)
    row = np.where(began <= calls["start"][row], row, following[row])
    np.add.at(ns, row[row >= 0], lasted[row >= 0].astype(np.int64))
    return ns


def allocation_sizes(
    allocations: Table, addresses: Numbers, times: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Bytes of the allocation that holds each address at each time (the recording's clock, ns); 0 where none does.

    An address range is allocated again and again: the allocation that counts is the latest that began at the
    nearest base below the address before that time.
    """
    made = allocations["operation"] == ALLOCATED
    base, size, since = (allocations[name][made] for name in ("address", "bytes", "time"))
    result = np.zeros(len(addresses), np.int64)
    if not len(base):
        return result
    order = np.lexsort((since, base))
    base, size, since = base[order], size[order], since[order].astype(np.int64)
    bases = np.unique(base)
    nearest = np.searchsorted(bases, addresses, side="right") - 1
    below = nearest >= 0
    begin = np.searchsorted(base, bases, side="left")
    end = np.searchsorted(base, bases, side="right")
    # Times rank within one base: shifting each base's times by its index keeps one sorted key for all.
    span = np.int64(max(int(since.max()), int(times.max(initial=0))) + 1)
    rank = np.searchsorted(bases, base).astype(np.float64) * float(span) + since
    wanted = nearest[below].astype(np.float64) * float(span) + times[below]
    last = np.searchsorted(rank, wanted, side="right") - 1
    last = np.clip(last, begin[nearest[below]], end[nearest[below]] - 1)
    inside = addresses[below] - base[last] < size[last]
    result[below] = np.where(inside, size[last].astype(np.int64), 0)
    return result
