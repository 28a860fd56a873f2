"""What a recorded process's allocations and fingerprints say of its copies and calls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.trace.columns import first_rows
from busfare.trace.readers.recorded.file import Recording, Table

ALLOCATED = 1


def held_up(recording: Recording) -> NDArray[np.int64]:
    """Before each call of the recording: ns that the recorder held its thread up since its call before.

    A buffer on its way to the GPU is hashed before its call begins, one from the GPU after its call has ended; counters
    of a launch are made ready before it and read after it.
    """
    calls = recording.table("calls")
    ns = np.zeros(len(calls), np.int64)
    held = [
        np.stack([table["correlation"], table[f"{when}_start"], table[f"{when}_duration"]])
        for name, when in (
            ("copy_addresses", "fingerprint"),
            ("counted_launches", "before"),
            ("counted_launches", "after"),
        )
        if len(table := recording.table(name))
    ]
    correlation, began, lasted = np.concatenate(held, axis=1) if held else np.zeros((3, 0), np.uint64)
    if not lasted.any() or not len(calls):
        return ns
    row = first_rows(calls["correlation"], correlation)
    known = (row >= 0) & (lasted > 0)
    row, began, lasted = row[known], began[known], lasted[known]
    in_turn = np.lexsort((calls["start"], calls["thread"]))
    following = np.full(len(calls), -1, np.int64)
    same_thread = calls["thread"][in_turn][1:] == calls["thread"][in_turn][:-1]
    following[in_turn[:-1]] = np.where(same_thread, in_turn[1:], -1)
    row = np.where(began <= calls["start"][row], row, following[row])
    np.add.at(ns, row[row >= 0], lasted[row >= 0].astype(np.int64))
    return ns


def allocation_sizes(
    allocations: Table, addresses: NDArray[np.uint64], times: NDArray[np.int64]
) -> NDArray[np.int64]:
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
