"""Totals of small traces, worked out by hand."""

import pytest

from busfare.trace import totals as account
from tests.traces import EXAMPLES, call, copy, kernel, trace


def test_exposed_time_is_where_a_copy_runs_and_no_kernel_does() -> None:
    # Copies cover 0–10 and 20–30 µs, kernels 5–25: exposed are 0–5 and 25–30.
    totals = account.totals(trace(copy(0, 10, 1000), copy(20, 30, 3000), kernel(5, 25)))
    assert totals.transfers.count == 2
    assert totals.transfers.bytes == 4000
    assert totals.transfers.seconds == pytest.approx(20e-6)
    assert totals.transfers.exposed_seconds == pytest.approx(10e-6)
    assert totals.kernels.seconds == pytest.approx(20e-6)
    assert totals.transfers.share_of_gpu_time == pytest.approx(0.5)
    assert totals.makespan_seconds == pytest.approx(30e-6)


def test_overlapping_copies_are_exposed_once() -> None:
    totals = account.totals(trace(copy(0, 10, 1), copy(5, 15, 1, "d2h")))
    assert totals.transfers.seconds == pytest.approx(20e-6)
    assert totals.transfers.exposed_seconds == pytest.approx(15e-6)


def test_what_a_gpu_or_the_host_copies_within_its_memory_is_no_transfer() -> None:
    totals = account.totals(trace(*(copy(0, 10, 1, towards) for towards in ("h2d", "d2d", "h2h", None))))
    assert totals.transfers.count == 2


def test_exposed_time_is_counted_per_gpu() -> None:
    # GPU 1's copy hides behind GPU 0's kernel for the whole run, not for GPU 1.
    totals = account.totals(trace(kernel(0, 20), copy(5, 15, 1, device=1)))
    assert totals.transfers.exposed_seconds == 0
    assert [g.transfers.exposed_seconds for g in totals.gpus] == pytest.approx([0, 10e-6])


def test_the_makespan_spans_calls_and_operations() -> None:
    launched = trace(kernel(10, 20), calls=[call(2, 3, "cudaLaunchKernel")])
    assert account.totals(launched).makespan_seconds == pytest.approx(18e-6)


def test_migrations_count_as_transfers_and_graph_work_as_work() -> None:
    moved = copy(0, 10, 4096, memory="managed") | {"kind": "migration"}
    graph = kernel(5, 15) | {"kind": "graph"}
    totals = account.totals(trace(moved, graph))
    assert totals.transfers.count == 1
    assert (totals.graph_work.count, totals.kernels.count) == (1, 0)
    assert sum(gpu.kernels.count for gpu in totals.gpus) == 0
    assert totals.transfers.exposed_seconds == pytest.approx(5e-6)


def test_an_empty_trace_adds_up_to_nothing() -> None:
    totals = account.totals(trace())
    expected = (0, 0.0, 0.0)
    assert (totals.transfers.count, totals.makespan_seconds, totals.transfers.share_of_gpu_time) == expected
    assert account.by_path(trace()).is_empty()
    assert account.size_histogram(trace()).is_empty()
    assert account.idle_gaps(trace(), 5) == []


def test_rates_leave_out_copies_of_unknown_size() -> None:
    rows = account.by_path(trace(copy(0, 10, 10_000), copy(20, 30, None))).to_dicts()
    assert len(rows) == 1
    assert rows[0]["count"] == 2
    assert rows[0]["bytes_per_second"] == pytest.approx(1e9)


def test_a_path_without_any_size_has_no_rate() -> None:
    (row,) = account.by_path(trace(copy(0, 10, None))).to_dicts()
    assert row["bytes_per_second"] is None


def test_paths_differ_by_memory() -> None:
    rows = account.by_path(trace(copy(0, 1, 1), copy(1, 3, 1, memory="pageable"), copy(3, 4, 1, memory=None)))
    counts = {row["source_memory"]: row["count"] for row in rows.to_dicts()}
    assert counts == {"pageable": 1, "pinned": 1, None: 1}
    assert rows["source_memory"][0] == "pageable"  # the longest first


@pytest.mark.parametrize(
    ("size", "lower"), [(0, 0), (1, 0), (9, 0), (10, 10), (99, 10), (100, 100), (10**9, 10**9)]
)
def test_sizes_fall_into_their_decade(size: int, lower: int) -> None:
    (row,) = account.size_histogram(trace(copy(0, 5, size))).to_dicts()
    assert (row["lower_bytes"], row["upper_bytes"], row["count"]) == (lower, 10 * max(1, lower), 1)
    assert row["seconds"] == pytest.approx(5e-6)


def test_the_histogram_has_no_holes() -> None:
    rows = account.size_histogram(trace(copy(0, 1, 5), copy(1, 2, 50_000))).to_dicts()
    assert [r["lower_bytes"] for r in rows] == [0, 10, 100, 1000, 10_000]
    assert [r["count"] for r in rows] == [1, 0, 0, 0, 1]


def test_a_gap_names_the_call_that_the_host_was_in() -> None:
    calls = [call(8, 18, "cudaMalloc"), call(18, 19, "cudaLaunchKernel")]
    (gap,) = account.idle_gaps(trace(kernel(0, 10), kernel(20, 30), calls=calls), 5)
    assert (gap.start_seconds, gap.longest_call) == (pytest.approx(10e-6), "cudaMalloc")
    assert gap.seconds == pytest.approx(10e-6)
    assert gap.longest_call_seconds == pytest.approx(8e-6)


def test_the_longest_kernels_come_first_by_their_sum() -> None:
    kernels = account.top_kernels(trace(kernel(0, 5, "a"), kernel(5, 9, "b"), kernel(9, 13, "b")), 1)
    assert kernels.to_dicts() == [
        {"name": "b", "count": 2, "seconds": pytest.approx(8e-6), "class": "compute"}
    ]


def test_a_recorded_training_run_adds_up() -> None:
    # src/busfare/examples/train-images-h100.json.gz: six steps of 64 images of 3×224×224 floats, six labels of 64
    # integers of 8 bytes, six losses of 4 bytes.
    from busfare.trace import read

    totals = account.totals(read(EXAMPLES / "train-images-h100.json.gz"))
    assert totals.transfers.count == 18
    assert totals.transfers.bytes == 6 * (64 * 3 * 224 * 224 * 4 + 64 * 8 + 4)
    assert totals.kernels.count == 2310


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_kernels_that_carry_data_between_gpus_are_communication_and_no_work() -> None:
    recorded = trace(kernel(0, 10), kernel(10, 40, REDUCE), copy(20, 30, 64), copy(5, 15, 64), kernel(50, 51))
    totals = account.totals(recorded)
    assert (totals.kernels.count, totals.communication.count) == (2, 1)
    assert totals.kernels.seconds == pytest.approx(11e-6)
    assert totals.communication.seconds == pytest.approx(30e-6)
    # Beside a collective alone a copy is not hidden: all of one, and half of the other.
    assert totals.transfers.exposed_seconds == pytest.approx(15e-6)
    (gpu,) = totals.gpus
    assert (gpu.kernels.count, gpu.communication.count) == (2, 1)
    # But the GPU is not idle meanwhile.
    assert gpu.busy_seconds == pytest.approx(41e-6)
    assert [gap.seconds for gap in account.idle_gaps(recorded, 5)] == [pytest.approx(10e-6)]


@pytest.mark.parametrize(
    ("name", "carries"),
    [
        (REDUCE, True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", True),
        ("ncclSymkDevKernel_AllGather_LL", True),
        ("_Z22ncclDevKernel_SendRecvP11ncclDevCommmP8ncclWork", True),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", True),
        ("void nvshmemi_barrier_kernel<1>(int)", True),
        ("void mine::uses_nccl(ncclDevKernelArgs)", False),
        ("void at::native::type_specialized_broadcast_kernel<1>()", False),
        (None, False),
    ],
)
def test_the_kernels_name_identifies_communication(name: str | None, carries: bool) -> None:
    assert account.totals(trace(kernel(0, 10, name), kernel(10, 20, "work"))).communication.count == carries


def test_paths_that_took_equally_long_stand_in_a_fixed_order() -> None:
    rows = [copy(10 * i, 10 * i + 5, 100, direction) for i, direction in enumerate(["d2h", "h2d"] * 8)]
    assert account.by_path(trace(*rows))["direction"].to_list() == ["h2d", "d2h"]
