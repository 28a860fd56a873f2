"""Whether host memory was pinned, by addresses of allocations and copies; told only where nothing can have been missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.trace import Trace, read
from tests.trace.build_rocprof import CPU, GPU_0, MEMORY, ProcessTables, write_rocpd
from tests.trace.build_rocprof_files import ALLOCATION, D2H, H2D, JsonRun, write_json
from tests.trace.build_rocprof_files import CPU as CPU_HANDLE
from tests.trace.build_rocprof_files import GPU_0 as GPU_HANDLE
from tests.traces import omitted

DEVICE, HOST, STACK = 0x7F0000000000, 0x7E0000000000, 0x7FFE00000000


class Run:
    """Allocations, calls and copies, for a database or for JSON."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int]] = []
        self.memory: list[tuple[int, bool, int | None, int]] = []  # address, of the GPU, size, when
        self.copied: list[tuple[int, int, int, int]] = []  # source, destination, when, id

    def allocate(self, call: str, address: int, at: int, size: int = 1 << 20) -> None:
        self.calls.append((call, at, at + 9, at))
        self.memory.append((address, call == "hipMalloc", size, at + 2))

    def free(self, call: str, address: int, at: int) -> None:
        self.calls.append((call, at, at + 9, at))
        self.memory.append((address, False, None, at + 2))

    def copy(self, source: int, destination: int, at: int) -> None:
        self.calls.append(("hipMemcpyAsync", at, at + 5, at))
        self.copied.append((source, destination, at + 20, at))

    def database(self, path: Path) -> Trace:
        tables = ProcessTables("_0001")
        tables.columns["rocpd_memory_allocate"] = [
            *[
                "id",
                "guid",
                "nid",
                "pid",
                "tid",
                "agent_id",
                "type",
                "level",
                "start",
                "end",
                "address",
                "size",
            ],
            *["queue_id", "stream_id", "event_id"],
        ]
        for name, start, end, id in self.calls:
            tables.call(name, start, end, id)
        for number, (address, on_gpu, size, at) in enumerate(self.memory):
            place = tables.place(at, at + 2, 5000 + number, MEMORY)
            what = {
                "type": "FREE" if size is None else "ALLOC",
                "level": "REAL",
                "address": address,
                "size": size,
            }
            tables.add("rocpd_memory_allocate", **place | what | {"agent_id": GPU_0 if on_gpu else CPU})
        for source, destination, at, id in self.copied:
            ends = (CPU, GPU_0) if destination >> 40 == DEVICE >> 40 else (GPU_0, CPU)
            tables.copy(None, *ends, 64, at, at + 5, id)
            tables.rows["rocpd_memory_copy"][-1] |= {"src_address": source, "dst_address": destination}
        return read(write_rocpd(path, tables))

    def json(self, path: Path) -> Trace:
        run = JsonRun()
        for name, start, end, id in self.calls:
            run.call(name, start, end, id)
        for number, (address, on_gpu, size, at) in enumerate(self.memory):
            agent = {"handle": GPU_HANDLE if on_gpu else CPU_HANDLE}
            what = {"agent_id": agent, "address": hex(address), "allocation_size": size or 0}
            run.add("memory_allocation", ALLOCATION, int(size is None), at, at + 2, 5000 + number, **what)
        for source, destination, at, id in self.copied:
            to_gpu = destination >> 40 == DEVICE >> 40
            ends = (CPU_HANDLE, GPU_HANDLE) if to_gpu else (GPU_HANDLE, CPU_HANDLE)
            addresses = {"src_address": {"handle": source}, "dst_address": {"handle": destination}}
            run.copy(H2D if to_gpu else D2H, *ends, 64, at, at + 5, id, **addresses)
        return read(write_json(path, run))

    def host_memory(self, folder: Path) -> list[str | None]:
        """Of each copy; the database and the JSON say the same."""
        found = []
        for trace in (self.database(folder / "results.db"), self.json(folder / "results.json")):
            operations = trace.operations
            columns = zip(operations["source_memory"], operations["destination_memory"], strict=True)
            found.append([next((kind for kind in both if kind != "device"), None) for both in columns])
            assert ("unknown-memory" in omitted(trace)) == (None in found[-1])
        assert found[0] == found[1]
        return found[0]


def ordinary() -> Run:
    run = Run()
    run.allocate("hipMalloc", DEVICE, 10)
    run.allocate("hipHostMalloc", HOST, 30)
    run.copy(HOST + 4096, DEVICE, 100)
    run.copy(STACK, DEVICE + 64, 200)
    run.copy(DEVICE, HOST, 300)
    return run


def test_memory_of_the_program_is_told_by_the_call_that_allocated_it(tmp_path: Path) -> None:
    assert ordinary().host_memory(tmp_path) == ["pinned", "pageable", "pinned"]


def test_memory_that_was_given_back_is_not_pinned_any_more(tmp_path: Path) -> None:
    run = ordinary()
    run.free("hipHostFree", HOST, 400)
    run.copy(HOST, DEVICE, 500)
    run.allocate("hipMallocManaged", HOST, 600, size=100)
    run.copy(HOST + 50, DEVICE, 700)
    run.copy(HOST + 100, DEVICE, 800)
    assert run.host_memory(tmp_path)[3:] == ["pageable", "managed", "pageable"]


def test_memory_of_the_runtime_is_where_pageable_copies_are_staged(tmp_path: Path) -> None:
    run = ordinary()
    run.memory.append((STACK, False, 1 << 20, 60))  # no call of the program's around it
    assert run.host_memory(tmp_path) == ["pinned", "pageable", "pinned"]


@pytest.mark.parametrize(
    "what", ["registered", "unknown device memory", "no calls", "no allocations", "no addresses"]
)
def test_pageable_is_not_told_where_something_may_be_missing(what: str, tmp_path: Path) -> None:
    run = ordinary()
    if what == "registered":
        run.calls.append(("hipHostRegister", 60, 65, 60))
    elif what == "unknown device memory":
        run.copy(HOST, DEVICE + (1 << 30), 900)
    elif what == "no calls":
        run.calls.clear()
    elif what == "no allocations":
        run.memory.clear()
    else:
        run.copied = [(0, DEVICE, at, id) for _, _, at, id in run.copied]
    told = ["pinned", None, "pinned"] if what in ("registered", "unknown device memory") else [None] * 3
    assert run.host_memory(tmp_path)[:3] == told
