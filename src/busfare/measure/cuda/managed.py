"""Managed memory on its way to the other side: touched, or prefetched."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from busfare.measure.case import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import record, seconds, synchronised

__all__ = ["managed"]


def managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address = board.buffer("managed", "source", case.bytes)
    (stream,), (start, end) = board.streams(1), board.events(2)
    host, gpu = driver.CUmemLocation(), driver.CUmemLocation()
    host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    gpu.type, gpu.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, board.ordinal
    to, away = (gpu, host) if case.direction == "h2d" else (host, gpu)
    sink = board.buffer("device", "target", 16)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    view = np.ctypeslib.as_array((ctypes.c_uint8 * case.bytes).from_address(address))
    words = view.view(np.uint64)

    def prefetch(place: Any) -> None:
        checked(driver.cuMemPrefetchAsync(address, case.bytes, place, 0, stream), "cuMemPrefetchAsync")

    def driven_away() -> None:
        if (case.mode, case.direction) == ("touch", "d2h"):
            # As in a program whose kernel writes it: what came by page faults goes back in smaller pieces than what was
            # prefetched.
            board.kernels.on_bytes("fill", stream, address, case.bytes, case.bytes, case.bytes)
        else:
            prefetch(away)
        synchronised(stream)
        if case.mode == "written":
            # The processor maps every page, as a program does that fills its array: the GPU has to unmap them.
            np.bitwise_or(words, 0, out=words)

    # Pages that were never on a side are made there first: not timed, for a program's second time shows its pace.
    for place in (away, to):
        prefetch(place)
    synchronised(stream)
    clock = time.perf_counter
    device_s, api_s = [], []
    with _at_home(address, case, gpu):
        for _ in range(repeats):
            driven_away()
            before = clock()
            if case.mode == "touch" and case.direction == "d2h":
                view[::4096].sum()
                api_s.append(clock() - before)
                continue
            record(start, stream)
            if case.mode == "prefetch":
                prefetch(to)
            else:
                arguments = (address, sink, case.bytes // 16)
                board.kernels.launch_wide("read16", stream, arguments, (pointer, pointer, long))
            record(end, stream)
            synchronised(stream)
            api_s.append(clock() - before)
            device_s.append(seconds(start, end))
    return Samples(tuple(device_s), tuple(api_s))


@contextmanager
def _at_home(address: int, case: Case, gpu: Any) -> Iterator[None]:
    """What is prefetched is advised to live on the GPU meanwhile, as `bench methods` has it; what is touched is not."""
    if case.mode != "prefetch":
        yield
        return
    advice = driver.CUmem_advise
    set_, unset = advice.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, advice.CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION
    checked(driver.cuMemAdvise(address, case.bytes, set_, gpu), "cuMemAdvise")
    try:
        yield
    finally:
        checked(driver.cuMemAdvise(address, case.bytes, unset, gpu), "cuMemAdvise")
