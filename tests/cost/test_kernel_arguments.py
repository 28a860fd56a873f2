"""What a kernel's arguments and the place of its name say: which kernels are streams."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busfare.cost.kernels.arguments import array_bytes
from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS
from busfare.cost.kernels.price import KernelPrices, price_kernels
from busfare.node import load_node

H100, H200 = "h100-sxm", "h200-sxm"


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        ("void triad<double>(double*, double const*, double const*)", 24),
        ("scale(float*, float, int)", 4),
        ("void mix<__half, 4>(__half const* __restrict__, uchar4 volatile*, float3 const*)", 2 + 4 + 12),
        (
            "wide(longlong2*, ulong1 const*, std::complex<float>*, thrust::complex<double> const*)",
            16 + 8 + 8 + 16,
        ),
        ("void each<std::pair<int*, float*>, (bool)1>(unsigned long long*, void (*)(double*))", 8),
        ("(anonymous namespace)::step(float const*, float*)", 8),
        ("cupy_where__bool_float64_float_float64", 17),
        ("of_mine(Body*, float*)", None),
        ("rows(float**)", None),
        ("by_value(int, double)", None),
        ("of_a_library", None),
        ("cupy_add__of_mine", None),
        ("no_end(float*", None),
        ("no_start float*)", None),
        ("", None),
        ("f(" + "float*, " * 1000 + "float*)", None),
    ],
)
def test_arguments_tell_the_bytes_of_an_element_of_every_array(name: str, bytes_: int | None) -> None:
    assert array_bytes(name) == pytest.approx(math.nan if bytes_ is None else bytes_, nan_ok=True)


@given(st.text(alphabet="ab*,<>()[]{} :_", max_size=40))
def test_no_name_is_too_odd(name: str) -> None:
    assert math.isnan(array_bytes(name)) or array_bytes(name) > 0


def launched(name: str, seconds: list[float], blocks: int, threads: int = 256) -> KernelPrices:
    """Prices from the H100 to the H200 of a kernel so launched that took these times."""
    launches = {f"{of}_{axis}": [1] for of in ("grid", "block") for axis in "yz"}
    launches |= {"grid_x": [blocks], "block_x": [threads], "registers": [16], "shared_bytes": [0]}
    times = {"start_ns": [0] * len(seconds), "end_ns": [round(took * 1e9) for took in seconds]}
    launch = pl.lit(0, pl.UInt32).alias("launch")
    operations = pl.DataFrame(times).with_columns(launch, kind=pl.lit("kernel"), name=pl.lit(name))
    return price_kernels(operations, pl.DataFrame(launches), load_node(H100), load_node(H200))


def priced(name: str, seconds: float, blocks: int, threads: int = 256) -> tuple[float, str]:
    """The share of its time that such a kernel keeps, and by which bound it is priced."""
    prices = launched(name, [seconds], blocks, threads)
    return float(prices.seconds[0] / seconds), BOUNDS[prices.bounds[0]]


def test_a_kernel_whose_arrays_take_the_memory_its_time_is_a_stream() -> None:
    memory, blocks = limits_of(load_node(H100)).memory, 1 << 17
    ratio = memory / limits_of(load_node(H200)).memory
    fits = 24 * 256 * blocks / memory
    triad = "void triad<double>(double*, double const*, double const*)"
    kept, bound = priced(triad, 1.02 * fits, blocks)
    assert bound == "memory"
    assert ratio < kept < 1.05 * ratio
    # A time that two elements of each take may be a stream's, as that of any kernel without arguments; others seldom are.
    twice, odd, unknown = (
        priced(name, times * fits, blocks) for name, times in ((triad, 2.0), (triad, 2.6), ("triad", 1.02))
    )
    assert {twice[1], odd[1], unknown[1]} == {"between"}
    assert kept < twice[0] < odd[0] < 1.0
    assert kept < unknown[0] < odd[0]


def test_launches_of_one_kernel_are_of_one_kind_however_their_times_scatter() -> None:
    blocks = 1 << 17
    fits = 24 * 256 * blocks / limits_of(load_node(H100)).memory
    name = "void triad<double>(double*, double const*, double const*)"
    near = launched(name, [1.2 * fits, 1.25 * fits, 1.4 * fits], blocks)
    assert {BOUNDS[bound] for bound in near.bounds} == {"memory"}
    kept = near.seconds / near.recorded
    assert kept.tolist() == sorted(kept.tolist())
    assert launched(name, [], blocks).seconds.tolist() == []


def test_threads_that_do_little_leave_less_of_a_streams_time_to_the_memory() -> None:
    memory = limits_of(load_node(H100)).memory
    wide, narrow = (
        priced(f"void copy<{kind}>({kind} const*, {kind}*)", 1.1 * 2 * width * (256 << 17) / memory, 1 << 17)[
            0
        ]
        for kind, width in (("double2", 16), ("float", 4))
    )
    assert narrow > wide + 0.1


def test_words_that_anybody_may_use_make_no_stream_of_a_function_outside_any_namespace() -> None:
    # 512 blocks over 500 MB, as a loop of each thread: the words are a library's, the function need not be.
    own = priced("reduce(float const*, double*, unsigned long)", 168e-6, 512)
    library = priced("void cub::DeviceReduceKernel<float>(float const*, double*, unsigned long)", 168e-6, 512)
    assert (own[1], library[1]) == ("between", "memory")
    assert own[0] > 0.95
    assert library[0] < 0.8
    assert np.isfinite(own[0])
