"""What a probe measures of kernels: on virtual nodes, on samples made up here, and as sources for GPUs that are not here."""

from __future__ import annotations

import ctypes
import dataclasses
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.measure import probe as probing
from busfare.measure.cases import Case, Samples
from busfare.measure.kernels import KERNELS_S, LOOPS, QUICK_KERNELS_S, kernel_cases, kernels_of
from busfare.measure.node_file import encode
from busfare.measure.raw import Measurement, Moment, read, write
from busfare.measure.virtual import VirtualDevice
from busfare.node import Gemm, Kernels, Node, load_node
from busfare.node.file import decode

TRUE = Kernels(
    launch_s=1.2e-6,
    launch_interval_s=2.1e-6,
    memory_bytes_per_s={"read": 3.1e12, "write": 3.05e12, "copy": 3e12, "triad": 3.02e12},
    l2_bytes_per_s=5.6e12,
    flops_per_s={name: 1e13 * (n + 1) for n, name in enumerate(LOOPS)},
    gemm=(
        *(Gemm("fp16", *sides, 1e-4) for sides in ((1024,) * 3, (128, 8192, 8192), (16, 8192, 8192))),
        *(Gemm("tf32", *sides, 1.2e-4) for sides in ((1024,) * 3, (128, 8192, 8192))),
        Gemm("fp16", 8192, 8192, 8192, 0.02),
        Gemm("tf32", 8192, 8192, 8192, 0.025),
        Gemm("fp32", 1024, 1024, 1024, 1e-4),
        Gemm("fp32", 8192, 8192, 8192, 0.03),
    ),
)


def playing(kernels: Kernels = TRUE) -> Node:
    return dataclasses.replace(load_node("h100-probed"), kernels=(kernels,))


def probed(fast: bool) -> probing.Probed:
    device = VirtualDevice(playing(), seed=3)
    record, knees = probing.measured(device, fast, seed=5, only="kernels")
    return probing.evaluated(record, knees)


@pytest.mark.parametrize(("fast", "limit_s"), [(True, QUICK_KERNELS_S), (False, KERNELS_S)])
def test_a_node_that_is_played_comes_back(fast: bool, limit_s: float, tmp_path: Path) -> None:
    run = probed(fast)
    (own,) = run.node.kernels
    assert own.launch_s == pytest.approx(TRUE.launch_s, rel=0.01)
    assert own.launch_interval_s == pytest.approx(TRUE.launch_interval_s, rel=0.01)
    assert own.l2_bytes_per_s == pytest.approx(TRUE.l2_bytes_per_s, rel=0.02)
    assert own.memory_bytes_per_s == pytest.approx(TRUE.memory_bytes_per_s, rel=0.02)
    assert own.flops_per_s == pytest.approx(TRUE.flops_per_s, rel=0.01)
    assert {(g.type, g.m, g.n, g.k) for g in own.gemm} == {(g.type, g.m, g.n, g.k) for g in TRUE.gemm}
    figures = 3 + len(own.memory_bytes_per_s) + len(own.flops_per_s) + len(own.gemm)
    assert figures <= 25
    assert run.record.seconds < limit_s + 0.5
    assert not run.node.curves
    again = decode(encode(run.node), "probed.toml").probed_kernels()
    assert again is not None
    assert again.flops_per_s == pytest.approx(own.flops_per_s, rel=1e-3)
    write(run.record, tmp_path / "raw.json.gz")
    assert read(tmp_path / "raw.json.gz") == run.record
    assert probing.again(tmp_path / "raw.json.gz").node == run.node


def test_copies_alone_and_a_node_that_says_nothing_of_kernels() -> None:
    both, alone = (VirtualDevice(playing()) for _ in range(2))
    assert probing.evaluated(*probing.measured(both, fast=True)).node.kernels
    assert not probing.evaluated(*probing.measured(alone, fast=True, only="copies")).node.kernels
    bare = VirtualDevice(load_node("h100-sxm"))
    with pytest.raises(InputError, match="nothing of kernels"):
        probing.measured(bare, fast=True, only="kernels")


def measurements(seconds: dict[str, tuple[int, int, float]]) -> dict[Case, Measurement]:
    """One sample each of cases by mode: bytes, count and seconds."""
    made = {}
    for mode, (bytes_, count, s) in seconds.items():
        own = Measurement.of(Case("none", "device", mode, bytes_, count))
        own.add(Samples((s,), (s,)), Moment(0.0, 0))
        made[own.case] = own
    return made


def test_a_tensor_pipeline_reaches_the_larger_of_its_two_measurements() -> None:
    operations, loops = LOOPS["fp16_tensor"]
    registers_s = 132 * operations * loops / 600e12
    library_s = 2 * 8192**3 / 750e12
    own = measurements(
        {
            "pipeline-fp16_tensor": (0, loops, registers_s),
            "pipeline-fp32": (0, LOOPS["fp32"][1], 1e-3),
            "gemm-fp16-8192x8192x8192": (0, 1, library_s),
            "gemm-fp32-8192x8192x8192": (0, 1, 1e-9),
        }
    )
    (kernels,) = kernels_of(own, {"multiprocessors": 132})
    assert kernels.flops_per_s["fp16_tensor"] == pytest.approx(750e12, rel=1e-5)
    assert kernels.flops_per_s["fp32"] == pytest.approx(132 * LOOPS["fp32"][0] * LOOPS["fp32"][1] / 1e-3)
    assert (kernels.launch_s, kernels.l2_bytes_per_s) == (None, None)


def test_what_is_outside_of_kernels_is_in_no_rate() -> None:
    """Two microseconds go before the first kernel, of a chain as of a stream, whose largest size counts."""
    chains = {f"chain-{how}": each for how, each in (("graph", 1e-6), ("stream", 3e-6))}
    own: dict[Case, Measurement] = {}
    for mode, each in chains.items():
        for count in (16, 272):
            own |= measurements({mode: (0, count, 2e-6 + count * each)})
    for bytes_ in (48 << 20, 768 << 20):
        own |= measurements({"stream-copy": (bytes_, 1, 2e-6 + bytes_ / (1e12 if bytes_ < 1e8 else 2e12))})
    (kernels,) = kernels_of(own, {})
    assert kernels.launch_s == pytest.approx(1e-6, rel=0.01)
    assert kernels.launch_interval_s == pytest.approx(3e-6, rel=0.01)
    assert kernels.memory_bytes_per_s == {"copy": pytest.approx(2e12, rel=1e-3)}


def test_l2_is_read_in_a_quarter_of_it_and_every_stream_is_larger() -> None:
    cases = kernel_cases({"l2_bytes": 50 << 20}, 0, fast=False)
    (l2,) = (c for c in cases if c.mode == "l2-read")
    assert 12 << 20 < l2.bytes <= (50 << 20) // 4
    assert max(c.bytes for c in cases if c.mode == "stream-triad") > 8 * (50 << 20)
    assert len(set(cases)) == len(cases)


@pytest.mark.parametrize(
    ("capability", "has"),
    [
        ((7, 5), {"int8_tensor"}),
        ((8, 0), {"int8_tensor", "fp64_tensor", "tf32_tensor"}),
        ((9, 0), set(LOOPS)),
    ],
)
def test_the_kernels_of_every_generation_compile(capability: tuple[int, int], has: set[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from busfare.measure.cuda.driver import compiled

    source = resources.files("busfare.measure.cuda").joinpath("rates.cu").read_text("utf-8")
    code = compiled(source, "rates.cu", capability)
    assert {name for name in LOOPS if name.endswith("_tensor") and f".text.{name}\0".encode() in code} >= has - {
        "fp64", "fp32", "fp16",
    }  # fmt: skip
    assert (b".text.fp8_tensor\0" in code) == (capability >= (8, 9))


class Library:
    """In place of cuBLAS: notes what it is called with."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls[name] = arguments
            return 7 if name == "cublasLtMatmul" else 0

        return call


def test_a_gemm_is_handed_over_by_columns_and_a_refusal_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.driver")
    from busfare.measure.cuda import rates
    from busfare.measure.device import UnavailableError

    library = Library()
    monkeypatch.setattr(rates, "_library", lambda name: library)
    monkeypatch.setattr(rates, "_handle", lambda board, name: ctypes.c_void_p(1))
    board: Any = SimpleNamespace(streams=lambda count: [2])
    rates._of_others(board, (16, 4096, 8192), *rates._TYPES["fp16"][:3])(1 << 40, 1 << 41, 1 << 42)
    _, *transposed, rows, columns, deep = library.calls["cublasGemmEx"][:6]
    assert (transposed, rows, columns, deep) == ([1, 0], 4096, 16, 8192)
    addresses = [a.value for a in library.calls["cublasGemmEx"] if isinstance(a, ctypes.c_void_p)]
    assert addresses == [1, 1 << 40, 1 << 41, 1 << 42]
    with pytest.raises(UnavailableError, match="cublasLtMatmul answered 7"):
        rates._of_fp8(board, (16, 4096, 8192), *rates._TYPES["fp8"][:3])(1 << 40, 1 << 41, 1 << 42)
