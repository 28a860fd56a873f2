"""`bench kv`: every layout on a stand-in driver, which computes and measures nothing."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.bindings import driver

from busfare.errors import BusfareError
from busfare.measure.bench import kv
from busfare.measure.bench.results import KvBenchResult
from busfare.measure.bench.run import bench
from busfare.measure.cuda import board
from busfare.measure.cuda import kv as cuda_kv
from busfare.measure.cuda.driver import checked
from busfare.plan.offload.kv import LAYOUTS
from tests.measure.stand_in_driver import StandIn


@pytest.fixture(autouse=True)
def small(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (cuda_kv, "POOL_BYTES", 1 << 17), (kv, "QUICK_PIECES", (64, 1024)), (kv, "QUICK_TOTALS", (4096, 1 << 15)),
        (kv, "EVICTED_PIECES", (64, 512, 1024)), (kv, "EVICTED_TOTAL", 1 << 13),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def measured() -> KvBenchResult:
    found = bench("kv", "h100-probed", True, None, None, lambda line: None)
    assert isinstance(found, KvBenchResult)
    return found


def test_every_layout_brings_every_word_to_its_place(stand_in: StandIn) -> None:
    found = measured()
    assert found.left_out == []
    assert [(c.piece_bytes, c.fetched_bytes, c.evicted_bytes) for c in found.cells] == [
        (64, 4096, 0), (1024, 4096, 0), (64, 1 << 15, 0), (1024, 1 << 15, 0), (512, 1 << 13, 1 << 13),
        (512, 1 << 13, 1 << 12),
    ]  # fmt: skip
    for cell in found.cells:
        assert {row.layout for row in cell.layouts} == set(LAYOUTS)
        for row in cell.layouts:
            assert row.checked
            assert row.predicted_seconds
            assert len(row.samples_seconds) == kv.RUNS
            # 512 copies are more than are held; what the host packs is never held.
            few = cell.fetched_bytes // cell.piece_bytes <= cuda_kv.MOST_HELD
            held = row.layout not in kv.PACKED and (few or row.layout in ("contiguous", "gather-kernel"))
            assert bool(row.device_samples_seconds) == (row.predicted_device_seconds is not None) == held


@pytest.mark.parametrize("broken", ["collect", "batch", "pack", "unpack"])
def test_a_layout_that_moves_wrong_data_is_left_out_by_name(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Nothing of a layout that lost or mixed up a piece is counted, and nothing else is lost."""
    wrong = {"collect": "gather-kernel", "batch": "batched", "pack": "gather-host", "unpack": "gather-host"}[
        broken
    ]
    if broken == "collect":
        launch = stand_in.cuLaunchKernel
        monkeypatch.setattr(
            driver, "cuLaunchKernel",
            lambda name, *rest: (driver.CUresult.CUDA_SUCCESS,) if name == "collect" else (
                launch(name, *rest), (driver.CUresult.CUDA_SUCCESS,))[1],
        )  # fmt: skip
    elif broken == "batch":
        batch = stand_in.cuMemcpyBatchAsync

        def short(targets: Any, sources: Any, sizes: Any, count: int, *rest: Any) -> Any:
            batch(targets[:-1], sources[:-1], sizes[:-1], count - 1, *rest)
            return (driver.CUresult.CUDA_SUCCESS,)

        monkeypatch.setattr(driver, "cuMemcpyBatchAsync", short)
    elif broken == "pack":
        monkeypatch.setattr(cuda_kv.np, "take", lambda *_, **more: None)
    else:
        monkeypatch.setattr(
            cuda_kv.CudaKv, "_words", lambda self, name, words: real(self, name, words).copy()
        )
    found = measured()
    named = {row.case.partition(",")[0] for row in found.left_out}
    assert wrong in named
    kept = {row.layout for cell in found.cells for row in cell.layouts}
    assert kept | named == set(LAYOUTS)
    assert {"contiguous", "per-block"} <= kept


real = cuda_kv.CudaKv._words


def test_what_the_driver_refuses_is_left_out(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
    monkeypatch.setattr(driver, "cuMemcpyBatchAsync", lambda *_: refused)
    first = measured()
    assert first.host is not None
    monkeypatch.setattr(cuda_kv, "_one_by_one", lambda *_: checked(refused, "a short copy"))
    found = measured()
    assert found.host is None
    assert {row.case.partition(",")[0] for row in first.left_out} == {"batched"}
    assert {row.case.partition(",")[0] for row in found.left_out} == {
        "batched", "per-block", "the host's own part",
    }  # fmt: skip
    assert all("CUDA_ERROR_NOT_SUPPORTED" in row.why for row in found.left_out)
    assert all(len(cell.layouts) == len(LAYOUTS) - 1 for cell in first.cells)


def test_with_little_memory_the_larger_cases_are_left_out(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "roomy_bytes", lambda: 87_750)  # 280,800 bytes may be taken
    found = measured()
    assert {cell.fetched_bytes for cell in found.cells} == {4096, 1 << 13}
    assert {row.case for row in found.left_out} == {"512 pieces of 0.0625 KiB", "32 pieces of 1 KiB"}
    monkeypatch.setattr(board, "roomy_bytes", lambda: 1 << 10)
    with pytest.raises(BusfareError, match="nothing could be measured"):
        measured()
