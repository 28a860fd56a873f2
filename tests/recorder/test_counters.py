"""Hardware counters of kernels, as the stand-in for CUPTI makes them up; no GPU."""

from __future__ import annotations

import polars as pl
import pytest

from busfare.trace import Trace, read

from .conftest import Built, Recorded, Run

ROUNDS = 5


def counted(recorded: Recorded, **options: object) -> tuple[Run, Trace]:
    run = recorded("counted", str(ROUNDS), counters=True, **options)
    return run, read(run.files[0])


def omissions(trace: Trace) -> dict[str, int]:
    return {omission.id: omission.count for omission in trace.omissions}


def test_each_distinct_kernel_is_counted_at_its_second_launch_or_its_only_one(recorded: Recorded) -> None:
    run, trace = counted(recorded)
    assert run.error == ""
    rows = {row["name"]: row for row in trace.counters.iter_rows(named=True)}
    # None of a capture, none of communication.
    assert {name: row["launch_number"] for name, row in rows.items()} == {
        "once()": 1,
        "scale(float*, int)": 2,
        "last()": 1,
    }
    scale = rows["scale(float*, int)"]
    assert [scale[f"{what}_{side}"] for what in ("grid", "block") for side in "xyz"] == [64, 1, 1, 256, 1, 1]
    assert (scale["registers"], scale["shared_bytes"], scale["device"]) == (24, 0, 0)
    # The stand-in gives the metric's place times 1000, and the number of kernels before.
    before = 3
    assert scale["seconds"] == pytest.approx((1000 + before) * 1e-9)
    assert (scale["dram_read_bytes"], scale["dram_write_bytes"], scale["l2_bytes"]) == (2003, 3003, 4003)
    assert scale["occupancy"] == pytest.approx(60.03)
    assert (scale["fp64_flops"], scale["fp64_cycles"]) == (
        64 * 9003,
        None,
    )  # no room for the other in one pass
    assert (scale["fp32_flops"], scale["fp16_flops"]) == (64 * (8003 - 10003), 128 * 10003)
    launch = trace.operations.filter(pl.col("correlation") == scale["correlation"])
    assert launch["name"].to_list() == ["scale(float*, int)"]
    assert omissions(trace) == {"counters": 4, "kernels-without-counters": 2}


def test_no_pcie_links_are_asked_for_since_cupti_would_refuse_its_profiler(recorded: Recorded) -> None:
    assert len(recorded("counted", str(ROUNDS)).only.table("pcie_links")) == 1
    assert len(counted(recorded)[0].only.table("pcie_links")) == 0


def test_more_passes_count_more(recorded: Recorded) -> None:
    run, trace = counted(recorded, counter_passes=2)
    assert trace.counters["fp64_cycles"].to_list() == [11001, 11003, 11008]
    assert set(run.only.table("counted_launches")["passes"].tolist()) == {2}


def test_no_more_kernels_than_asked_for(recorded: Recorded) -> None:
    _, trace = counted(recorded, counted_kernels=1)
    assert trace.counters["name"].to_list() == ["once()"]
    assert omissions(trace)["kernels-without-counters"] == 4


def test_without_being_asked_nothing_is_counted(recorded: Recorded) -> None:
    trace = read(recorded("counted").files[0])
    assert trace.counters.is_empty() and not omissions(trace)


def test_nothing_is_counted_outside_of_the_window(recorded: Recorded) -> None:
    trace = read(recorded("profiler-calls", "4", capture="profiler-calls", counters=True).files[0])
    inside = trace.operations.filter(kind="kernel")["correlation"]
    assert trace.counters["correlation"].to_list() == [inside[1]]


def test_threads_that_launch_at_once_are_counted_apart(recorded: Recorded) -> None:
    run = recorded("threads", "50", counters=True)
    assert (run.status, run.error) == (0, "")
    assert len(run.only.table("kernels")) == 400
    assert len(run.only.table("counted_launches")) == 2


def test_a_cupti_that_makes_no_ranges_of_kernels_gets_them_made(recorded: Recorded) -> None:
    run, trace = counted(recorded, counter_passes=2, extra={"FAKE_CUPTI_COUNTERS": "own-ranges"})
    assert run.error == ""
    # The first launch of all found it out; the rest is in one pass.
    assert trace.counters["name"].to_list() == ["scale(float*, int)", "last()"]
    assert trace.counters["fp64_cycles"].null_count() == 2


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("denied", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("no-nvperf", "libnvperf_host.so"),
        ("legacy", "legacy event API"),
        ("broken", "cuptiRangeProfilerSetConfig: CUPTI_ERROR_OF_THE_TEST"),
    ],
)
def test_where_counters_cannot_be_read_the_recording_goes_on(
    recorded: Recorded, how: str, words: str
) -> None:
    run, trace = counted(recorded, extra={"FAKE_CUPTI_COUNTERS": how})
    assert run.status == 0
    assert run.error.count("\n") == 1 and words in run.error
    assert trace.counters.is_empty()
    assert trace.operations.filter(kind="kernel").height == ROUNDS + 4
    assert any(words in omission.what for omission in trace.omissions if omission.id == "no-counters")


def test_an_old_cupti_has_none(recorded: Recorded, built: Built) -> None:
    old = {"LD_LIBRARY_PATH": built.search_path("cupti12-old"), "FAKE_DRIVER_VERSION": "12000"}
    run, trace = counted(recorded, extra={**old, "FAKE_CUPTI_VERSION": "18"})
    assert run.status == 0 and "CUPTI of CUDA 12.8 or newer is needed" in run.error
    assert trace.counters.is_empty()
