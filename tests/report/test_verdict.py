"""The first lines of a report: what the largest part of a run is, and what owns it."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from busfare.answers.report import Report, summarise
from busfare.show.report import report_document
from busfare.show.terminal import render
from busfare.show.words import text
from busfare.trace import Trace, read
from busfare.trace.tables import ACTIVITY, MARKERS, conform
from tests.conftest import shown
from tests.published import published
from tests.trace import build_kineto as kineto
from tests.traces import EXAMPLES, call, copy, kernel, made, run


def verdict(recorded: Trace) -> tuple[Report, str]:
    """The report, and the sentences of its verdict."""
    report = summarise(recorded)
    return report, " ".join(map(text, report.verdict.text))


def with_spans(recorded: Trace, *spans: tuple[float, float, str, str]) -> Trace:
    """A trace with ranges and activity of its only thread; microseconds."""
    frame = pl.DataFrame(spans, schema=["start", "end", "kind", "name"], orient="row")
    frame = frame.select(
        "kind", "name", start_ns=pl.col("start") * 1000, end_ns=pl.col("end") * 1000, process=1, thread=1
    )
    is_range = pl.col("kind") == "range"
    markers, activity = frame.filter(is_range), frame.filter(~is_range)
    return replace(recorded, markers=conform(markers, MARKERS), activity=conform(activity, ACTIVITY))


#: Two kernels with 800 µs of CPU time between their launches; after them the host waits.
HOST_BOUND = (
    made(kernel(10, 60), 0, 5),
    made(kernel(810, 860), 800, 805),
    call(806, 861, "cudaDeviceSynchronize", "device"),
)


def test_cpu_time_belongs_to_the_range_around_it() -> None:
    spans = (6, 790, "range", "tokenize"), (10, 20, "operator", "aten::to")
    report, sentences = verdict(with_spans(run(*HOST_BOUND), *spans))
    largest = report.critical_path[0]
    expected = ("CPU time between API calls", "range", "tokenize")
    assert (largest.part, largest.owner.kind, largest.owner.name) == expected
    assert "The largest single item is CPU time in the range `tokenize`" in sentences
    assert report.verdict.gpu_busy_share == pytest.approx(100 / 861)


def test_profiler_steps_are_no_owners() -> None:
    spans = (0, 861, "range", "ProfilerStep#5"), (6, 700, "operator", "Optimizer.step#Adam.step")
    report, _ = verdict(with_spans(run(*HOST_BOUND), *spans))
    assert report.critical_path and report.critical_path[0].owner
    assert report.critical_path[0].owner.name == "Optimizer.step#Adam.step"


def test_cpu_time_of_which_nothing_is_recorded_lies_between_two_calls() -> None:
    _, sentences = verdict(run(*HOST_BOUND))
    assert "CPU time between `cudaLaunchKernel` calls" in sentences
    assert "record with `ProfilerActivity.CPU` and `with_stack=True`" in sentences


@pytest.mark.parametrize(("ranges_thread", "related"), [(1, True), (3, False)])
def test_cpu_time_is_never_that_of_an_unrelated_thread(ranges_thread: int, related: bool) -> None:
    """Thread 1 makes the first call and hands over to thread 2; thread 3 makes none."""
    recorded = with_spans(run(*HOST_BOUND), (0, 861, "range", "train"))
    recorded.markers = recorded.markers.with_columns(thread=pl.lit(ranges_thread, pl.Int64))
    later = pl.when(pl.col("start_ns") > 0).then(pl.lit(2, pl.Int64)).otherwise("thread")
    recorded.calls = recorded.calls.with_columns(thread=later)
    assert ("CPU time in the range `train`" in verdict(recorded)[1]) == related


def test_the_next_owner_may_be_of_the_same_part() -> None:
    """Kernels of 500 and 300 µs, 100 µs of CPU time; and spans of 500 and 300 µs of CPU time."""
    rows = (
        made(kernel(10, 510, "a"), 0, 5),
        made(kernel(511, 811, "b"), 6, 8),
        made(kernel(925, 930), 912, 915),
    )
    _, sentences = verdict(run(*rows, call(9, 812, "cudaDeviceSynchronize", "device")))
    expected = "is the kernel `a`: 500 µs (54 % of the run). The next is the kernel `b`: 300 µs (32 %)."
    assert expected in sentences
    spans = (5, 505, "function", "parse"), (505, 805, "function", "sort"), (0, 900, "function", "main")
    _, sentences = verdict(with_spans(run(*HOST_BOUND), *spans))
    assert "CPU time in `parse`: 500 µs" in sentences
    assert "The next is CPU time in `sort`: 295 µs" in sentences


def test_a_gpu_bound_run_names_its_kernel_and_counts_its_transfers() -> None:
    rows = (
        made(copy(10, 60, 1 << 20), 0, 5, "cudaMemcpyAsync"),
        made(kernel(60, 900, "void gemm<float>(int, float*)"), 6, 8),
        call(9, 901, "cudaDeviceSynchronize", "device"),
    )
    report, sentences = verdict(run(*rows))
    assert "The GPU is busy for 99 % of the run (901 µs)." in sentences
    assert "The largest single item is the kernel `gemm<float>`" in sentences
    assert "Transfers move 1.05 MB in 50 µs. No kernel overlaps them: kernels share stream 7." in sentences
    assert report.critical_path and sum(part.share for part in report.critical_path) == pytest.approx(1)


def test_without_advice_a_host_bound_run_says_what_to_look_at() -> None:
    shown = " ".join(line for line, _ in render(report_document(summarise(run(*HOST_BOUND))), 400))
    assert "Next: CPU time between `cudaLaunchKernel` calls; record it with `ProfilerActivity.CPU`" in shown
    assert "busfare project" not in shown
    gpu_bound = made(kernel(10, 900), 0, 5), call(6, 901, "cudaDeviceSynchronize", "device")
    shown = " ".join(line for line, _ in render(report_document(summarise(run(*gpu_bound))), 400))
    assert "Next: `busfare project TRACE --to NODE`" in shown


def test_copies_within_the_gpu_are_no_transfers() -> None:
    inside, back = made(copy(10, 60, 1 << 20, "d2d"), 0, 5), made(copy(61, 71, 64, "d2h"), 6, 8)
    report, sentences = verdict(run(inside, back))
    assert "Transfers move 64 B in 10 µs; 10 µs of that is exposed" in sentences
    moved = report.transfers, report.gpus[0].transfers
    assert [(of.count, of.bytes, of.exposed_seconds) for of in moved] == [(1, 64, pytest.approx(10e-6))] * 2
    assert {path.direction: path.count for path in report.by_path} == {"d2d": 1, "d2h": 1}


def test_scripts_read_the_largest_part_and_the_best_actions() -> None:
    report, _ = verdict(run(*HOST_BOUND))
    part = report.verdict.largest_part
    assert part is not None and part.seconds == pytest.approx(part.share * report.makespan_seconds)
    assert [action.finding for action in report.verdict.actions] == [f.id for f in report.findings[:3]]
    for action, finding in zip(report.verdict.actions, report.findings, strict=False):
        assert action.gain_seconds == finding.predicted_gain_seconds
        assert action.command.startswith("busfare what-if") == bool(finding.what_if)


def test_a_graph_that_was_recorded_as_a_whole_is_no_kernel() -> None:
    graph = kernel(5, 5000, "CUDA graph 1") | {"kind": "graph"}
    waiting = call(3, 5005, "cudaDeviceSynchronize", "device")
    result = summarise(run(made(graph, 0, 2, "cudaGraphLaunch"), waiting))
    shown = " ".join(line for line, _ in render(report_document(result), 200))
    assert "The largest single item is CUDA graph 1 (contents not recorded): 5 ms" in shown


def test_a_product_has_a_share_of_the_peak(tmp_path: Path) -> None:
    """2 · 8192³ operations in 2 ms on an H100, of 989.5 TFLOP/s in bf16."""
    sides = {"Input Dims": [[8192, 8192], [8192, 8192]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events = [
        kineto.event("cpu_op", "aten::mm", 0, 9, args={"External id": 7, **sides}),
        kineto.call("cudaLaunchKernel", 2, 3, 1),
        kineto.kernel("sm90_gemm_bf16", 20, 2000, 1, **{"External id": 7}),
        kineto.call("cudaDeviceSynchronize", 10, 2020, 2),
    ]
    gpu = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
    path = kineto.write_kineto(tmp_path / "mm.json", events, {"deviceProperties": [gpu]})
    report, sentences = verdict(read(path, activity=True))
    share = 2 * 8192**3 / 2e-3 / 989.5e12
    assert report.top_kernels[0].share_of_peak == pytest.approx(share, rel=1e-3)
    assert f"It runs at {share:.0%}".replace("%", " %") in sentences


@pytest.mark.conformance
@pytest.mark.parametrize("trace", published("nsys", "rodinia-gaussian-rtx3090.sqlite"))
def test_changes_that_save_little_name_what_takes_the_run(trace: Path) -> None:
    assert "These changes save little: 92 % of the run is the kernel `Fan2`." in shown("report", trace)
    assert "save little" not in shown("report", EXAMPLES / "train-images-h100.json.gz")
