"""Kernels by the memory that is allocated: what is moved once, and what is not."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS, memory_seconds
from busfare.cost.kernels.price import COUNTED, KernelPrices, price_kernels
from busfare.nodes import Node, load_node

H100, H200 = load_node("h100-sxm"), load_node("h200-sxm")
#: What a kernel of fp32 that is a stream keeps of its time.
MEMORY = limits_of(H100).memory / limits_of(H200).memory
SECONDS = 1e-3


def prices_of(
    allocated: float | None, name: str = "step(float*, Body*)", counters: pl.DataFrame | None = None,
    recorded_on: Node = H100, seconds: Sequence[float] = (SECONDS,), blocks: int = 132 * 8,
) -> KernelPrices:  # fmt: skip
    """Prices from the H100, or `recorded_on`, to the H200 of a kernel of those `seconds`, where so much is allocated."""
    launches = pl.DataFrame({f"{of}_{axis}": [1] for of in ("grid", "block") for axis in "yz"}).with_columns(
        grid_x=blocks, block_x=256, registers=16, shared_bytes=0,
        allocated_bytes=pl.lit(None if allocated is None else round(allocated), pl.Int64),
    )  # fmt: skip
    times = {"start_ns": [0] * len(seconds), "end_ns": [round(took * 1e9) for took in seconds]}
    operations = pl.DataFrame(times).with_columns(
        kind=pl.lit("kernel"), name=pl.lit(name), launch=pl.lit(0, pl.UInt32)
    )
    return price_kernels(operations, launches, recorded_on, H200, counters)


def priced(allocated: float | None, name: str = "step(float*, Body*)") -> tuple[float, str]:
    """The share of its time that such a kernel keeps, and by which bound it is priced."""
    prices = prices_of(allocated, name)
    return float(prices.seconds[0]) / SECONDS, BOUNDS[prices.bounds[0]]


def whole(share: float) -> float:
    """So many bytes as the H100's memory moves in that share of the kernel's time."""
    return share * SECONDS * limits_of(H100).memory


def test_what_takes_the_memory_all_of_the_time_is_a_stream() -> None:
    kept, bound = priced(whole(1.0))
    assert bound == "allocated" and kept == pytest.approx(MEMORY, rel=0.01)


def test_the_less_of_the_time_the_memory_takes_the_more_of_it_is_kept() -> None:
    shares = [priced(whole(share)) for share in (0.1, 0.5, 0.7, 0.9, 1.0)]
    assert {bound for _, bound in shares} == {"allocated"}
    kept = [seconds for seconds, _ in shares]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 0.99


def test_what_the_memory_cannot_move_in_that_time_is_not_all_moved() -> None:
    most = limits_of(H100).memory_peak / limits_of(H100).memory
    assert priced(whole(0.99 * most))[1] == "allocated"
    assert priced(whole(1.01 * most)) == priced(None)


def test_what_l2_holds_is_not_moved_again() -> None:
    l2 = limits_of(H100).l2_bytes
    kept = [priced(share * l2)[0] for share in (0.01, 0.25, 0.5, 1.0)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[-1]


def test_more_comes_from_l2_where_it_is_larger() -> None:
    here, there = limits_of(H100), limits_of(H200)
    bytes_ = here.l2_bytes
    assert there.l2_bytes > here.l2_bytes
    took = float(memory_seconds(np.array([bytes_]), here)[0])
    assert prices_of(bytes_, seconds=[took]).seconds[0] / took < MEMORY


def test_where_the_gpu_reads_all_memory_of_the_host_allocations_say_nothing() -> None:
    grace = load_node("gh200")
    prices = prices_of(whole(0.2), recorded_on=grace)
    assert BOUNDS[prices.bounds[0]] == "between"
    assert prices.seconds[0] == prices_of(None, recorded_on=grace).seconds[0]


def test_where_nothing_is_allocated_a_kernel_is_unknown() -> None:
    assert priced(0) == priced(None)


def test_launches_of_a_kernel_are_of_a_single_kind_however_their_times_scatter() -> None:
    prices = prices_of(whole(1.0), seconds=[0.8 * SECONDS, SECONDS, 1.4 * SECONDS])
    assert {BOUNDS[bound] for bound in prices.bounds} == {"allocated"}
    assert prices_of(whole(1.0), seconds=[]).seconds.tolist() == []


def test_words_that_anybody_may_use_make_no_stream_of_a_function_outside_any_namespace() -> None:
    # 512 blocks over 500 MB, as a loop of each thread: the words are a library's, the function need not be.
    program, library = (
        prices_of(None, name, seconds=[168e-6], blocks=512)
        for name in (
            "reduce(float const*, double*, unsigned long)",
            "void cub::DeviceReduceKernel<float>(float const*, double*, unsigned long)",
        )
    )
    assert [BOUNDS[prices.bounds[0]] for prices in (program, library)] == ["between", "memory"]
    assert program.seconds[0] > 0.95 * 168e-6
    assert library.seconds[0] < 0.8 * 168e-6


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float)", "memory"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", "none"),
        ("reduce(float*, float*)", "allocated"),
    ],
)  # fmt: skip
def test_better_evidence_stays(name: str, bound: str) -> None:
    assert priced(whole(0.2), name)[1] == bound


def test_counters_say_more() -> None:
    counted = pl.DataFrame(
        {"name": ["step(float*, Body*)"], **{side: [0.0] for side in COUNTED}}
    ).with_columns(grid_x=132 * 8, grid_y=1, grid_z=1, block_x=256, block_y=1, block_z=1)
    prices = prices_of(whole(1.0), counters=counted)
    assert BOUNDS[prices.bounds[0]] == "counted"
    assert float(prices.seconds[0]) / SECONDS > 0.99


def test_the_range_is_that_of_such_kernels() -> None:
    prices = prices_of(whole(1.0))
    assert prices.low[0] < prices.seconds[0] < prices.high[0]
    assert prices.high[0] / prices.low[0] < prices_of(None).high[0] / prices_of(None).low[0]
    assert not math.isnan(prices.seconds[0])
