"""How a probe's kernels and products are launched: sources for GPUs that are not here, and calls that are noted."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from busfare.measure.cases import Case
from busfare.measure.cuda import rates
from busfare.measure.cuda.driver import compiled, source_of
from busfare.measure.kernels import (
    LOOPS,
    PASS_BYTES,
    PASSES,
    ROW_BYTES,
    SOFTMAX_ROW_BYTES,
    TILE_BYTES,
    kernel_cases,
)
from busfare.measure.run import UnavailableError


@pytest.mark.parametrize(
    ("capability", "has"),
    [((7, 5), {"int8_tensor"}), ((8, 0), {"int8_tensor", "fp64_tensor", "tf32_tensor"}), ((9, 0), set(LOOPS))],
)  # fmt: skip
def test_the_kernels_of_every_generation_compile(capability: tuple[int, int], has: set[str]) -> None:
    code = compiled(source_of("rates.cu"), "rates.cu", capability)
    assert all(f".text.pass_{kind}\0".encode() in code for kind in PASSES if kind != "elementwise")
    assert b".text.stream_triad\0" in code
    assert {name for name in LOOPS if name.endswith("_tensor") and f".text.{name}\0".encode() in code} >= has - {
        "fp64", "fp32", "fp16",
    }  # fmt: skip
    assert (b".text.fp8_tensor\0" in code) == (capability >= (8, 9))


#: Bytes that a block of each pass reads or writes of an array; None where blocks share what there is.
A_BLOCK = {"elementwise": None, "norm": 1 << 13, "softmax": 4 << 12, "gather": None, "activation": 1 << 13}


def launched_passes(
    monkeypatch: pytest.MonkeyPatch, case: Case
) -> tuple[list[Any], dict[str, tuple[int, int]]]:
    """What a pass launches on a GPU of 132 multiprocessors, and address and bytes of its buffers by role."""
    launches: list[Any] = []
    buffers: dict[str, tuple[int, int]] = {}

    def launch(name: str, stream: Any, values: Sequence[Any], blocks: int, threads: int) -> None:
        launches.append((name, stream, tuple(values), blocks, threads))

    def buffer(kind: str, role: str, size: int) -> int:
        assert kind == "device"
        buffers[role] = (len(buffers) + 1) << 40, size
        return buffers[role][0]

    @contextmanager
    def captured(streams: Sequence[Any], issue: Any) -> Iterator[Any]:
        issue(streams)
        yield "graph"

    monkeypatch.setattr(rates, "_kernels", lambda board: SimpleNamespace(launch=launch))
    monkeypatch.setattr(rates, "captured", captured)
    monkeypatch.setattr(rates, "sampled", lambda board, issue, repeats: (issue, repeats))
    board: Any = SimpleNamespace(buffer=buffer, streams=lambda count: ["first"], multiprocessors=132)
    assert rates.RATES["pass"](case, board, 5) == ("graph", 5)
    return launches, buffers


def test_every_pass_covers_its_arrays_as_often_as_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [c for c in kernel_cases({}, 0, fast=True) if c.mode.startswith("pass-")]
    assert len(cases) == len(PASSES) * len(PASS_BYTES)
    for case in cases:
        kind = case.mode.removeprefix("pass-")
        launches, buffers = launched_passes(monkeypatch, case)
        assert len(launches) == case.count
        assert len(set(launches)) == 1, "the same arrays"
        name, stream, (to, first, second, *extent), blocks, threads = launches[0]
        assert name == ("stream_triad" if kind == "elementwise" else f"pass_{kind}") and stream == "first"
        (target, written), (source, read) = buffers["target"], buffers["source"]
        assert (to, first) == (target, source)
        assert written + read == case.bytes
        if kind in ("elementwise", "activation"):
            assert (read, second) == (2 * written, source + written)
        else:
            assert read == written
        if kind == "elementwise":
            assert extent == [written // TILE_BYTES] * 2 and blocks == written // TILE_BYTES
        else:
            assert extent == [written // (SOFTMAX_ROW_BYTES if kind == "softmax" else ROW_BYTES)]
        if (a_block := A_BLOCK[kind]) is not None:
            assert blocks * a_block == written
        assert threads in (128, 256, 1024) and blocks >= 16


class Library:
    """In place of cuBLAS: notes what it is called with."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls[name] = arguments
            return 7 if name == "cublasLtMatmul" else 0

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(rates, "_library", lambda name: made)
    monkeypatch.setattr(rates, "_handle", lambda board, name: ctypes.c_void_p(1))
    return made


def test_a_gemm_is_handed_over_by_columns_and_a_refusal_is_a_reason(library: Library) -> None:
    board: Any = SimpleNamespace(streams=lambda count: [2])
    rates._of_cublas(board, (1, 16, 4096, 8192), *rates._TYPES["fp16"][:3])(1 << 40, 1 << 41, 1 << 42)
    _, *transposed, rows, columns, deep = library.calls["cublasGemmEx"][:6]
    assert (transposed, rows, columns, deep) == ([1, 0], 4096, 16, 8192)
    addresses = [a.value for a in library.calls["cublasGemmEx"] if isinstance(a, ctypes.c_void_p)]
    assert addresses == [1, 1 << 40, 1 << 41, 1 << 42]
    with pytest.raises(UnavailableError, match="cublasLtMatmul answered 7"):
        rates._of_fp8(board, (1, 16, 4096, 8192), *rates._TYPES["fp8"][:3])(1 << 40, 1 << 41, 1 << 42)


def test_a_batch_of_gemms_goes_in_a_single_call_with_the_strides_of_its_matrices(library: Library) -> None:
    board: Any = SimpleNamespace(streams=lambda count: [2])
    m, n, k = 1024, 512, 64
    rates._of_cublas(board, (64, m, n, k), *rates._TYPES["fp16"][:3])(1 << 40, 1 << 41, 1 << 42)
    assert set(library.calls) == {"cublasGemmStridedBatchedEx"}
    called = [
        a.value if isinstance(a, (ctypes.c_void_p, ctypes.c_int64)) else a
        for a in library.calls["cublasGemmStridedBatchedEx"]
    ]
    # By columns: weights n × k (not transposed) by tokens k × m make n × m. Two scalars stand at 6 and 15.
    fp16, computed = rates._TYPES["fp16"][0], rates._TYPES["fp16"][2]
    assert called[:6] == [1, 0, 0, n, m, k]
    assert called[7:15] == [1 << 40, fp16, n, n * k, 1 << 41, fp16, k, m * k]
    assert called[16:] == [1 << 42, rates._TYPES["fp16"][1], n, m * n, 64, computed, rates._ANY]
