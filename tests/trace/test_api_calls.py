"""What API calls wait for, over the names that CUDA and HIP have."""

from importlib import resources

import polars as pl
import pytest

from busfare.trace import words

BLOCKING_HIP = [
    "hipMemcpy", "hipMemcpy2D", "hipMemcpy3D", "hipMemcpyPeer", "hipMemcpyToSymbol",
    "hipMemcpyFromSymbol", "hipMemcpyToArray", "hipMemcpyFromArray", "hipMemcpy2DToArray",
    "hipMemcpy2DFromArray", "hipMemcpy2DArrayToArray", "hipMemcpyHtoD", "hipMemcpyDtoH", "hipMemcpyDtoD",
    "hipMemcpyHtoA", "hipMemcpyAtoH", "hipMemcpyAtoD", "hipMemcpyDtoA", "hipMemcpyAtoA",
    "hipMemcpyWithStream", "hipMemcpyParam2D", "hipDrvMemcpy3D", "hipDrvMemcpy2DUnaligned",
]  # fmt: skip
WAITING_FOR_DEVICE = [
    "cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize",
    "hipCtxSynchronize", "cudaFree", "cudaFreeHost", "cudaFreeArray", "cudaHostUnregister",
    "cudaDeviceReset", "cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "hipFree", "hipHostFree",
]  # fmt: skip
NOT_WAITING = [
    "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpy3DAsync", "cudaMemcpyPeerAsync",
    "cudaMemcpyToSymbolAsync", "cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync",
    "cudaMemcpyWithAttributesAsync", "cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyAtoHAsync",
    "cuMemcpy2DAsync", "cuMemcpyPeerAsync", "hipMemcpyAsync", "hipMemcpyHtoDAsync",
    "hipMemcpy2DToArrayAsync", "hipDrvMemcpy3DAsync", "cudaMemsetAsync", "cudaLaunchKernel",
    "cuLaunchKernel", "cudaEventRecord", "cudaEventQuery", "cudaStreamQuery", "cudaStreamWaitEvent",
    "cudaFreeAsync", "cuMemFreeAsync", "cudaMalloc", "cudaGraphLaunch", "cudaGraphAddMemcpyNode",
    "cudaGraphMemcpyNodeGetParams", "cudaMemcpyUnheardOf", "mycudaMemcpy",
]  # fmt: skip


def waits(*names: str) -> list[str]:
    plain = words.plain_name(pl.col("name"))
    return pl.DataFrame({"name": names}).select(words.waits_for(plain)).to_series().to_list()


@pytest.mark.parametrize("name", BLOCKING_HIP)
def test_a_blocking_copy_waits_for_its_operation(name: str) -> None:
    assert waits(name) == ["operation"]


@pytest.mark.parametrize("name", WAITING_FOR_DEVICE)
def test_calls_that_wait_for_the_whole_device(name: str) -> None:
    assert waits(name) == ["device"]


@pytest.mark.parametrize("interface", ["cuda", "cu", "hip"])
def test_waits_for_a_stream_and_for_an_event(interface: str) -> None:
    assert waits(f"{interface}StreamSynchronize", f"{interface}EventSynchronize") == ["stream", "event"]


@pytest.mark.parametrize("name", NOT_WAITING)
def test_calls_that_return_at_once(name: str) -> None:
    assert waits(name) == ["none"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("cudaMemcpy_v3020", "cudaMemcpy"),
        ("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync"),
        ("cudaMemcpy_ptds_v7000", "cudaMemcpy"),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        ("hipMemcpy_spt", "hipMemcpy"),
        ("cudaEventRecordWithFlags_v11010", "cudaEventRecordWithFlags"),
        ("cuCtxSynchronize", "cuCtxSynchronize"),
        ("my_v2_range", "my_v2_range"),
    ],
)
def test_the_abis_suffix_falls_off(name: str, plain: str) -> None:
    assert pl.DataFrame({"name": [name]}).select(words.plain_name(pl.col("name"))).item() == plain


def cuda_copies() -> list[str]:
    """Every call of CUDA's own enumerations whose name says that it copies."""
    text = resources.files("busfare.trace.readers.nvprof").joinpath("calls.tsv").read_text(encoding="utf-8")
    names = {line.split("\t")[2] for line in text.splitlines() if not line.startswith("#")}
    return sorted(name for name in names if "Memcpy" in name and "Graph" not in name)


def test_every_copy_of_cuda_is_blocking_unless_it_says_async() -> None:
    copies = cuda_copies()
    assert len(copies) == 82
    wrong = [
        n
        for n, wait in zip(copies, waits(*copies), strict=True)
        if wait != ("none" if "Async" in n else "operation")
    ]
    assert wrong == []


def test_copies_to_symbols_are_classified_by_name_and_those_from_them_are_not() -> None:
    names = pl.Series(["cudaMemcpyToSymbol", "cudaMemcpyFromSymbolAsync", "cudaMemcpy"])
    assert names.str.contains(words.SYMBOL_COPY).to_list() == [True, False, False]
