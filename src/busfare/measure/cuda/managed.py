"""Managed memory on its way to the other side: touched, or prefetched."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from busfare.measure.case import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.kernels import LONG, POINTER
from busfare.measure.cuda.timing import record, seconds

__all__ = ["managed", "place", "prefer_gpu", "prefetch"]


def place(gpu: int | None) -> Any:
    """A place of managed memory: a GPU's, or the host's."""
    found, kinds = driver.CUmemLocation(), driver.CUmemLocationType
    found.type = kinds.CU_MEM_LOCATION_TYPE_HOST if gpu is None else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    found.id = gpu or 0
    return found


def prefetch(address: int, size: int, gpu: int | None, stream: Any) -> None:
    """Moves managed memory to a GPU or to the host. Raises CudaError."""
    checked(driver.cuMemPrefetchAsync(address, size, place(gpu), 0, stream), "cuMemPrefetchAsync")


def prefer_gpu(address: int, size: int, gpu: int, prefer: bool = True) -> None:
    """Advises managed memory to live on a GPU, or takes that back. Raises CudaError."""
    advice = driver.CUmem_advise
    name = "SET" if prefer else "UNSET"
    which = getattr(advice, f"CU_MEM_ADVISE_{name}_PREFERRED_LOCATION")
    checked(driver.cuMemAdvise(address, size, which, place(gpu)), "cuMemAdvise")


def managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address, size = board.buffer("managed", "source", case.bytes), case.bytes
    (stream,), (start, end) = board.streams(1), board.events(2)
    to, away = (board.ordinal, None) if case.direction == "h2d" else (None, board.ordinal)
    sink = board.buffer("device", "target", 16)
    view = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    by_host = (case.mode, case.direction) == ("touch", "d2h")

    def synchronise() -> None:
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")

    # Pages that were never on a side are made there first, untimed.
    prefetch(address, size, away, stream)
    prefetch(address, size, to, stream)
    synchronise()
    if case.mode == "prefetch":  # as `bench methods` has it; what is touched has no advice
        prefer_gpu(address, size, board.ordinal)
    device_s, api_s = [], []
    try:
        for _ in range(repeats):
            if by_host:
                # As in a program whose kernel writes it: what came by page faults goes back in smaller pieces than what
                # was prefetched.
                board.kernels.on_bytes("fill", stream, address, size, size, size)
            else:
                prefetch(address, size, away, stream)
            synchronise()
            before = time.perf_counter()
            if by_host:
                view[::4096].sum()
                api_s.append(time.perf_counter() - before)
                continue
            record(start, stream)
            if case.mode == "prefetch":
                prefetch(address, size, to, stream)
            else:
                board.kernels.launch_wide(
                    "read16", stream, (address, sink, size // 16), (POINTER, POINTER, LONG)
                )
            record(end, stream)
            synchronise()
            api_s.append(time.perf_counter() - before)
            device_s.append(seconds(start, end))
    finally:
        if case.mode == "prefetch":
            prefer_gpu(address, size, board.ordinal, prefer=False)
    return Samples(tuple(device_s), tuple(api_s))
