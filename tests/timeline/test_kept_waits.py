"""Waits that no change takes away: for results, for what times work, for memory that is allocated and freed."""

from typing import Any

import polars as pl
import pytest

from busfare.answers.what_if import answer_what_if
from busfare.nodes import load_node
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.fewer_copies import collect, remove
from busfare.timeline.changes.overlap import pin, streams, without_synchronisations
from busfare.timeline.changes.pinning import loading_seconds
from busfare.timeline.changes.pipelines import are_pipelines
from busfare.trace import Trace, tables
from tests.timeline.test_changes import predicted
from tests.traces import call, copy, kernel, made, run

MIB = 1 << 20
HERE = Setting(load_node("pcie:3x16"))


def chunks_of(size_back: int, memory_calls: bool = False, through: bool = False) -> Trace:
    """Eight times 1 ms in, a kernel of 1 ms and a copy back, each of which the host waits for; `memory_calls`: an
    allocation of 0.5 ms before and a free of 0.5 ms behind them; `through`: a last allocation returns under a kernel.
    """
    rows: list[Any] = []
    for at in (3200.0 * number for number in range(8)):
        back = copy(at + 2515, at + 2520, size_back, "d2h")
        rows += [
            *[call(at, at + 495, "cudaMallocPitch")] * memory_calls,
            made(copy(at + 505, at + 1505, 12 * MIB), at + 500, at + 1508, "cudaMemcpy", "operation"),
            made(kernel(at + 1512, at + 2512), at + 1509, at + 1511),
            made(back, at + 1512, at + 2523, "cudaMemcpy", "operation"),
            *[call(at + 2525, at + 3025, "cudaFree", "device")] * memory_calls,
        ]
    if through:
        rows += [
            made(kernel(25_610, 26_600), 25_601, 25_604),
            call(25_700, 26_200, "cudaMallocPitch"),
            call(26_210, 26_605, "cudaDeviceSynchronize", "device"),
        ]
    return run(*rows)


def test_allocations_and_frees_serialise_chunks_in_streams_too() -> None:
    saved = {
        how: predicted(recorded) - predicted(recorded, streams(3))
        for how, recorded in (
            ("without", chunks_of(MIB)),
            ("with", chunks_of(MIB, memory_calls=True)),
            ("through", chunks_of(MIB, memory_calls=True, through=True)),
        )
    }
    assert saved["with"] < 100 < 5_000 < saved["without"]
    # Allocations of a pool wait for nothing; the frees behind each chunk still do.
    assert saved["with"] <= saved["through"] < 7 * 600


def test_a_flag_that_comes_back_holds_the_next_chunk_up() -> None:
    for size, overlaps in ((4, False), (64 * 1024, True)):
        recorded = chunks_of(size)
        saved = predicted(recorded) - predicted(recorded, streams(3))
        assert saved > 5_000 if overlaps else saved < 50


def test_chunks_that_take_in_the_last_result_are_no_pipeline() -> None:
    recorded = chunks_of(12 * MIB)
    assert are_pipelines(timeline(recorded))
    into = pl.col("direction") == "h2d"
    sides = {"source_address": into, "destination_address": pl.col("direction") == "d2h"}
    recorded.operations = recorded.operations.with_columns(
        pl.when(side).then(pl.lit(64, pl.UInt64)).alias(name) for name, side in sides.items()
    )
    assert not are_pipelines(timeline(recorded))


def waits(*between: dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]) -> Trace:
    """Twenty kernels of 400 µs, each with a wait behind it, and what lies `between` as in the first millisecond."""
    rows: list[Any] = []
    for shift in (1_000_000 * number for number in range(20)):
        for row in between:
            parts = [
                part | {name: part[name] + shift for name in ("start_ns", "end_ns")}
                for part in (row if isinstance(row, tuple) else [row])
            ]
            rows.append(tuple(parts) if len(parts) > 1 else parts[0])
        at = shift / 1000
        rows.append(made(kernel(at + 10, at + 410), at, at + 5))
        rows.append(call(at + 60, at + 500, "cudaStreamSynchronize", "stream", stream=7))
    return run(*rows)


SENT = made(copy(415, 490, MIB, "d2h"), 6, 10, "cudaMemcpyAsync")
PREFETCHED = (
    call(6, 10, "cudaMemPrefetchAsync"),
    copy(415, 490, MIB, "d2h", stream=0) | {"kind": "migration"},
)
FETCHED = copy(520, 560, MIB, "d2h", stream=0) | {"kind": "migration"}
TALKS = call(510, 700, "MPI_Isend")
ELSEWHERE = TALKS | {"thread": 9}
LOOKS = call(12, 14, "cudaGetLastError")


@pytest.mark.parametrize(
    ("between", "dropped"),
    [
        *[((LOOKS,), 19), ((SENT, LOOKS), 0), ((*PREFETCHED, LOOKS), 0), ((FETCHED,), 0)],
        *[((TALKS,), 0), ((call(12, 14, "MPI_Isend"),), 0), ((ELSEWHERE,), 19)],
    ],
    ids=["nothing", "a copy", "a prefetch", "pages", "a message", "a later message", "another thread"],
)
def test_waits_stay_behind_which_the_host_or_a_message_reads_results(
    between: tuple[Any, ...], dropped: int
) -> None:
    assert apply_all(timeline(waits(*between)), [without_synchronisations()], HERE).count == dropped


def test_a_wait_between_two_kernels_goes_though_a_message_follows_the_next_wait() -> None:
    second = made(kernel(710, 900), 701, 705), call(706, 905, "cudaStreamSynchronize", "stream", stream=7)
    recorded = waits(TALKS, *second)
    assert apply_all(timeline(recorded), [without_synchronisations()], HERE).count == 19


@pytest.mark.parametrize(("ordered", "dropped"), [(True, 19), (False, 0)])
def test_waits_order_nccl_behind_kernels_where_no_event_does(ordered: bool, dropped: int) -> None:
    carried = made(kernel(520, 600, "ncclDevKernel_AllReduce", stream=7 if ordered else 9), 510, 515)
    assert apply_all(timeline(waits(carried)), [without_synchronisations()], HERE).count == dropped


def test_waits_may_all_be_needed_where_kernels_write_to_memory_of_the_host() -> None:
    for name, least in (("cudaHostAlloc", 1e-3), ("cudaHostGetDevicePointer", 0.0)):
        answer, _ = answer_what_if(waits(call(6, 8, name)), [without_synchronisations()], HERE, False)
        assert answer.gain_range_seconds is not None and answer.gain_range_seconds[0] >= least
        assert (answer.gain_range_seconds[0] > 0) == (least > 0)
        assert answer.high_seconds == pytest.approx(answer.baseline.replayed_seconds) or least


@pytest.mark.parametrize("waits_for", ["operation", "none"])
def test_what_a_stream_waits_for_on_the_host_stays_when_its_copies_go(waits_for: str) -> None:
    """Kernels of 1 ms, host functions of 5 ms and copies of 100 µs; without the functions, waits go with their copies."""
    saved = {}
    for name in ("cudaLaunchHostFunc", "cudaGetDevice"):
        rows: list[Any] = []
        for at in (7000.0 * number for number in range(12)):
            called = "cudaMemcpy" if waits_for == "operation" else "cudaMemcpyAsync"
            returned = at + 6110 if waits_for == "operation" else at + 12
            back = copy(at + 6005, at + 6105, MIB, "d2h")
            rows += [made(kernel(at + 5, at + 1005), at, at + 3), call(at + 4, at + 8, name)]
            rows += [made(back, at + 10, returned, called, waits_for)]
            rows += [call(returned + 2, at + 6120, "cudaStreamSynchronize", "stream", stream=7)]
        saved[name] = predicted(run(*rows)) - predicted(run(*rows), remove("copy"))
    assert 12 * 90 < saved["cudaLaunchHostFunc"] < 12 * 150 < 12 * 4_000 < saved["cudaGetDevice"]


def test_copies_are_removed_with_the_waits_right_behind_them() -> None:
    """As PyTorch's `item()`: an asynchronous copy and a wait for its stream. Collecting results gains no more."""
    recorded = waits(made(copy(412, 414, 4, "d2h"), 6, 59, "cudaMemcpyAsync"))
    assert predicted(recorded, remove("copy")) < predicted(recorded) - 19 * 300
    assert predicted(recorded, remove("copy")) <= predicted(recorded, collect(64 * 1024))


def test_what_a_loaders_thread_may_take_over_widens_the_range() -> None:
    large = copy(10, 16_010, 64 * MIB, memory="pageable")
    recorded = run(made(large, 5, 16_015, "cudaMemcpy", "operation"))
    alone, _ = answer_what_if(recorded, [pin()], HERE, guessed=False)
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    fetches = [{"start_ns": at * 100_000, "end_ns": at * 100_000 + long, "name": name} for at, long in
               enumerate((200_000, 200_000, 9_000_000))]  # fmt: skip
    recorded.markers = tables.conform(pl.DataFrame(fetches), tables.MARKERS)
    assert loading_seconds(recorded) == pytest.approx(600e-6)  # the long one waits for a worker
    loaded, _ = answer_what_if(recorded, [pin()], HERE, guessed=False)
    assert loaded.predicted_seconds == alone.predicted_seconds
    assert loaded.high_seconds == alone.high_seconds
    assert loaded.low_seconds == pytest.approx(alone.low_seconds - 600e-6)
