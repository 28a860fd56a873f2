"""PyTorch's traces of AMD's GPUs: what roctracer calls work, and how HIP counts a grid."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.trace import Trace, read
from tests.trace.build_kineto import call, kernel, write_kineto
from tests.traces import omitted


def written(folder: Path, launch: str, name: str) -> Trace:
    events = [
        call(launch, 0, 5, 1),
        kernel(name, 10, 20, 1),
        call(launch, 30, 5, 2),
        kernel("gemm(float*)", 40, 20, 2),
    ]
    return read(write_kineto(folder / "trace.json", events))


@pytest.mark.parametrize(
    ("name", "direction", "source", "destination"),
    [
        ("CopyHostToDevice", "h2d", None, "device"),
        ("CopyDeviceToHost2D", "d2h", "device", None),
        ("CopyDeviceToDevice", "d2d", "device", "device"),
        ("hcMemcpyHostToDevice", "h2d", None, "device"),
    ],
)
def test_what_copies_is_no_kernel(
    name: str, direction: str, source: str | None, destination: str | None, tmp_path: Path
) -> None:
    trace = written(tmp_path, "hipMemcpyWithStream", name)
    wanted = ["kind", "direction", "source_memory", "destination_memory", "name"]
    assert trace.operations.select(wanted).rows() == [
        ("copy", direction, source, destination, None),
        ("kernel", None, None, None, "gemm(float*)"),
    ]
    assert omitted(trace).get("unknown-memory", 0) == (direction != "d2d")
    assert omitted(trace)["unknown-sizes"] == 1


def test_what_fills_is_a_set(tmp_path: Path) -> None:
    assert written(tmp_path, "hipMemsetAsync", "FillBuffer").operations["kind"].to_list() == ["set", "kernel"]


def test_a_kernel_of_cudas_may_be_called_so(tmp_path: Path) -> None:
    trace = written(tmp_path, "cudaLaunchKernel", "FillBuffer")
    assert trace.operations["kind"].to_list() == ["kernel", "kernel"]


@pytest.mark.parametrize(
    ("launch", "grid"),
    [
        ("hipLaunchKernel", 512),
        ("hipModuleLaunchKernel", 512),
        ("hipExtModuleLaunchKernel", 2),
        ("hipHccModuleLaunchKernel", 2),
    ],
)
def test_grids_that_a_launch_takes_in_work_items_are_counted_in_groups(
    launch: str, grid: int, tmp_path: Path
) -> None:
    shape = {"grid": [512, 3, 1], "block": [256, 1, 1]}
    events = [call(launch, 0, 5, 1), kernel("gemm", 10, 20, 1, **shape), kernel("copied", 40, 20, 2, **shape)]
    trace = read(write_kineto(tmp_path / "trace.json", events), launches=True)
    launches = trace.launches[trace.operations["launch"].to_list()]
    assert launches.select("grid_x", "grid_y", "block_x").rows() == [(grid, 3, 256), (512, 3, 256)]


def test_kernels_of_the_runtime_that_copy_are_told(tmp_path: Path) -> None:
    trace = written(tmp_path, "hipMemcpyAsync", "__amd_rocclr_copyBuffer")
    assert trace.operations["kind"].to_list() == ["kernel", "kernel"]
    assert omitted(trace)["copying-kernels"] == 1
