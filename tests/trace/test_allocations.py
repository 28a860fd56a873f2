"""What memory of the GPU a program holds when its kernels run, made up and from exports of Nsight Systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.trace import read
from busfare.trace.launches import ALLOCATIONS, with_allocated
from busfare.trace.tables import OPERATIONS, conform
from tests.trace.build_nsys import PROCESS, NsysExport

#: A call by which a program begins to use CUDA.
BEGINS = "cuModuleGetLoadingMode"


def kernels(*rows: dict[str, Any]) -> pl.DataFrame:
    """Operations, kernels of process 1 on GPU 0 where nothing else is said."""
    usual = {"kind": "kernel", "name": "k", "process": 1, "device": 0, "grid_x": 8}
    frame = pl.DataFrame([usual | row for row in rows])
    return conform(frame, OPERATIONS, {"grid_x": pl.Int32()})


def allocations(*rows: tuple[int, int], **same: Any) -> pl.DataFrame:
    """Bytes allocated, below 0 where they are freed, at a time."""
    frame = pl.DataFrame(rows, schema=["start_ns", "bytes"], orient="row")
    usual = {"process": 1, "device": 0, "in_stream": False}
    return conform(
        frame.with_columns(pl.lit(value).alias(name) for name, value in (usual | same).items()), ALLOCATIONS
    )


def allocated(operations: pl.DataFrame, *parts: pl.DataFrame) -> list[int | None]:
    """Of each operation, in the order that they have."""
    found = with_allocated(operations, pl.concat(parts))
    assert found.drop("allocated_bytes", strict=False).equals(operations)
    if "allocated_bytes" not in found.columns:
        return [None] * operations.height
    return found["allocated_bytes"].to_list()


def test_it_is_what_is_held_when_a_kernel_ends() -> None:
    held = allocations((0, 100), (10, 50), (20, -100))
    ran = kernels(*({"name": f"k{end}", "end_ns": end} for end in (25, 5, 15)))
    assert allocated(ran, held) == [50, 100, 150]


def test_launches_of_one_kernel_can_reach_the_most_of_any() -> None:
    held = allocations((0, 100), (10, 900), (20, -900))
    ran = kernels({"end_ns": 5}, {"end_ns": 15}, {"end_ns": 25}, {"end_ns": 25, "grid_x": 9})
    assert allocated(ran, held) == [1000, 1000, 1000, 100]


def test_of_what_a_stream_frees_the_most_counts() -> None:
    """The host gives it back before the kernel has begun."""
    held = allocations((0, 100)), allocations((1, 700), (2, -700), (3, 50), in_stream=True)
    assert allocated(kernels({"end_ns": 9}), *held) == [800]


def test_each_gpu_has_its_own_and_managed_memory_is_every_ones() -> None:
    held = allocations((0, 100)), allocations((0, 7), device=1), allocations((0, 1000), device=None)
    ran = kernels({"end_ns": 5}, {"end_ns": 5, "device": 1}, {"end_ns": 5, "process": 2})
    assert allocated(ran, *held) == [1100, 1007, None]


@pytest.mark.parametrize(
    "held",
    [
        allocations((0, 100), (1, -200), (2, 500)),  # freed, never allocated
        allocations((0, 100)).clear(),
        allocations((0, 1 << 50)),  # no GPU has as much
    ],
)
def test_allocations_that_cannot_be_all_say_nothing(held: pl.DataFrame) -> None:
    assert allocated(kernels({"end_ns": 5}), held) == [None]


def test_what_is_copied_at_once_was_allocated() -> None:
    for copied, expected in ((100, 100), (101, None)):
        copy = {"kind": "copy", "bytes": copied, "destination_memory": "device", "end_ns": 3}
        assert allocated(kernels(copy, {"end_ns": 5}), allocations((0, 100)))[1] == expected


def export(path: Path, begins: bool = True, generation: str = "2025.1") -> Path:
    """A process that holds 4000 bytes of the GPU and 3000 of the host, and has freed 500."""
    made = NsysExport(generation)
    if begins:
        made.call(BEGINS, 1, 2, 1)
    for start, size, memory in ((10, 1500, 2), (11, 500, 3), (12, 2000, 5), (13, 3000, 1), (14, 500, 2)):
        made.allocation(start, size, memory)
    made.allocation(15, 500, freed=True)
    made.kernel("k", 100, 200, 2)
    return made.write(path / f"{generation}-{begins}.sqlite")


@pytest.mark.parametrize("generation", ["2022.4", "2025.1"])
def test_nsys_tells_what_is_allocated(tmp_path: Path, generation: str) -> None:
    launches = read(export(tmp_path, generation=generation), launches=True).launches
    assert launches["allocated_bytes"].to_list() == [4000]


def test_nsys_that_began_later_does_not(tmp_path: Path) -> None:
    assert read(export(tmp_path, begins=False), launches=True).launches.is_empty()


def test_pools_and_managed_memory_of_nsys(tmp_path: Path) -> None:
    made = NsysExport()
    made.call(BEGINS, 1, 2, 1)
    made.allocation(10, 300, localMemoryPoolAddress=4096)
    made.allocation(11, 300, freed=True, localMemoryPoolAddress=4096)
    made.allocation(11, 5000, localMemoryPoolSize=8192)
    made.allocation(11, 5000, freed=True, localMemoryPoolSize=8192)
    made.allocation(12, 20, memory=4, deviceId=1)
    made.allocation(13, 1, memory=9)  # of no known kind
    made.kernel("k", 100, 200, 2)
    assert PROCESS in read(path := made.write(tmp_path / "run.sqlite")).operations["process"]
    assert read(path, launches=True).launches["allocated_bytes"].to_list() == [5020]
