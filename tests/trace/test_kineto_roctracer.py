"""PyTorch's traces of AMD's GPUs before PyTorch 2: roctracer's names, and all of them kernels."""

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
