"""Kernels by the memory that their arguments reach, or that is there at all: what is moved once, and what is not."""

from __future__ import annotations

import math

import polars as pl
import pytest

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS, KEPT_IN_L2, REACHED_TAKES
from busfare.cost.kernels.price import COUNTED, KernelPrices, price_kernels
from busfare.node import Node, load_node

H100, H200 = load_node("h100-sxm"), load_node("h200-sxm")
#: What a kernel of fp32 that is a stream keeps of its time.
MEMORY = limits_of(H100).memory / limits_of(H200).memory
SECONDS = 1e-3


def reaching(
    bytes_: float | None,
    name: str = "step(float*, Body*)",
    counters: pl.DataFrame | None = None,
    allocated: float | None = None,
    recorded_on: Node = H100,
    seconds: float = SECONDS,
) -> KernelPrices:
    """Prices from the H100, or `recorded_on`, to the H200 of a kernel of a millisecond, or `seconds`, whose arguments reach
    so much memory, of so much that is allocated.
    """
    reach = {"argument_bytes": bytes_, "allocated_bytes": allocated}
    launches = pl.DataFrame({f"{of}_{axis}": [1] for of in ("grid", "block") for axis in "yz"}).with_columns(
        grid_x=132 * 8, block_x=256, registers=16, shared_bytes=0,
        **{key: pl.lit(None if value is None else round(value), pl.Int64) for key, value in reach.items()},
    )  # fmt: skip
    operations = pl.DataFrame({"start_ns": [0], "end_ns": [round(seconds * 1e9)]}).with_columns(
        kind=pl.lit("kernel"), name=pl.lit(name), launch=pl.lit(0, pl.UInt32)
    )
    return price_kernels(operations, launches, recorded_on, H200, counters)


def priced(
    bytes_: float | None, name: str = "step(float*, Body*)", allocated: float | None = None
) -> tuple[float, str]:
    prices = reaching(bytes_, name, allocated=allocated)
    return float(prices.seconds[0]) / SECONDS, BOUNDS[prices.bounds[0]]


def whole(share: float) -> float:
    """So many bytes as the H100's memory moves in that share of the kernel's time."""
    return share * SECONDS * limits_of(H100).memory


def test_what_takes_the_memory_all_of_the_time_is_a_stream() -> None:
    kept, bound = priced(whole(1.0))
    assert bound == "reached" and kept == pytest.approx(MEMORY, rel=0.01)


def test_the_less_of_the_time_the_memory_takes_the_more_of_it_is_kept() -> None:
    shares = [priced(whole(share)) for share in (0.1, 0.5, 0.7, 0.9, 1.0)]
    assert {bound for _, bound in shares} == {"reached"}
    kept = [each for each, _ in shares]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 0.99


def test_what_the_memory_cannot_move_in_that_time_is_not_all_moved() -> None:
    assert priced(whole(0.99 * REACHED_TAKES))[1] == "reached"
    assert priced(whole(1.01 * REACHED_TAKES)) == priced(None)


def test_what_l2_holds_is_not_moved_again() -> None:
    l2 = limits_of(H100).l2_bytes
    kept = [priced(share * l2)[0] for share in (0.01, 0.3, KEPT_IN_L2[0])]
    assert kept == pytest.approx([kept[0]] * 3) and kept[0] > 0.99
    assert priced(KEPT_IN_L2[1] * l2)[0] < kept[0]


def test_more_comes_from_l2_where_it_is_larger() -> None:
    here, there = limits_of(H100), limits_of(H200)
    bytes_ = KEPT_IN_L2[1] * here.l2_bytes
    assert KEPT_IN_L2[0] * there.l2_bytes < bytes_ < KEPT_IN_L2[1] * there.l2_bytes
    took = bytes_ / here.memory
    assert reaching(bytes_, seconds=took).seconds[0] / took < MEMORY


def test_no_more_is_moved_than_the_program_has_allocated() -> None:
    by_arguments, by_allocations = priced(whole(0.8)), priced(None, allocated=whole(0.8))
    assert by_allocations[0] == by_arguments[0] and by_allocations[1] == "allocated"
    # Of a kernel without arrays, too: its data are variables of the GPU.
    assert priced(0, allocated=whole(0.8)) == by_allocations
    assert priced(None, allocated=whole(1.01 * REACHED_TAKES)) == priced(None)


def test_arguments_say_more_than_allocations() -> None:
    assert priced(whole(0.3), allocated=whole(0.9)) == priced(whole(0.3))


def test_where_the_gpu_reads_all_memory_of_the_host_allocations_say_nothing() -> None:
    grace = load_node("gh200")
    prices = reaching(whole(0.1), allocated=whole(0.2), recorded_on=grace)
    assert BOUNDS[prices.bounds[0]] == "between"
    assert prices.seconds[0] == reaching(None, recorded_on=grace).seconds[0]


def test_a_kernel_without_arrays_among_its_arguments_is_unknown() -> None:
    assert priced(0) == priced(None)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float)", "memory"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", "none"),
        ("reduce(float*, float*)", "reached"),
    ],
)  # fmt: skip
def test_what_is_known_better_stays(name: str, bound: str) -> None:
    assert priced(whole(0.2), name)[1] == bound


def test_counters_say_more() -> None:
    counted = pl.DataFrame(
        {"name": ["step(float*, Body*)"], **{side: [0.0] for side in COUNTED}}
    ).with_columns(grid_x=132 * 8, grid_y=1, grid_z=1, block_x=256, block_y=1, block_z=1)
    prices = reaching(whole(1.0), counters=counted)
    assert BOUNDS[prices.bounds[0]] == "counted"
    assert float(prices.seconds[0]) / SECONDS > 0.99


def test_the_range_is_that_of_such_kernels() -> None:
    prices = reaching(whole(1.0))
    assert prices.low[0] < prices.seconds[0] < prices.high[0]
    assert prices.high[0] / prices.low[0] < reaching(None).high[0] / reaching(None).low[0]
    assert not math.isnan(prices.seconds[0])
