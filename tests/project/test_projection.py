"""Projections and comparisons, on small traces worked out by hand and on two machines' recordings of one program."""

import json
from pathlib import Path

import msgspec
import pytest

from busfare.advise.amounts import percent
from busfare.answers.compare import compare
from busfare.answers.project import project
from busfare.answers.what_if import answer_what_if
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.questions import Scaled, WhatIf
from busfare.show.words import text, worded
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import read
from tests.trace.build_nsys import LAUNCH, NsysExport
from tests.traces import EXAMPLES, copy, kernel, trace

MIB = 1 << 20
LAUNCHED = dict(zip(LAUNCH, (1056, 1, 1, 256, 1, 1, 16, 0, 0), strict=True))
PCIE3, PCIE4 = load_node("pcie:3x16"), load_node("pcie:4x16")


@pytest.mark.parametrize(("graph_us", "hidden"), [(9_000, True), (500, False)])
def test_graphs_recorded_as_a_whole_keep_their_time_and_say_it(graph_us: float, hidden: bool) -> None:
    """Their time on another GPU is not known: where it is most of the GPU's, no whole run is predicted."""
    graph = kernel(2_000, 2_000 + graph_us, "CUDA graph 3") | {"kind": "graph"}
    recorded = trace(copy(0, 100, MIB), kernel(100, 1_100, "gemm"), graph, gpu="NVIDIA H100 80GB HBM3")
    h100, h200 = load_node("h100-sxm"), load_node("h200-sxm")
    result = project(recorded, h100, h200, "calibrated")
    share = graph_us / (graph_us + 1_100)
    kept = f"CUDA graphs recorded as a whole keep their recorded time, {percent(share)} of GPU time"
    assert kept in text(result.makespan.method)
    assert (result.makespan.predicted_seconds is None) is hidden
    assert (result.makespan.low_seconds is None) is hidden
    changes = changes_of(WhatIf(node="h200-sxm"), h100)
    outcome, _ = answer_what_if(recorded, changes, Setting(h100), False)
    assert (outcome.predicted_seconds is None, outcome.gain_seconds is None) == (hidden, hidden)
    assert [row.predicted_seconds is None for row in outcome.changes] == [hidden, hidden]
    linked, _ = answer_what_if(recorded, changes_of(WhatIf(link="pcie:5"), h100), Setting(h100), False)
    assert linked.predicted_seconds is not None
    if hidden:
        assert "--cuda-graph-trace=node" in text(result.makespan.reason) == text(outcome.reason)
        assert json.loads(msgspec.json.encode(worded(outcome)))["predicted_seconds"] is None
    # A rule for kernels that covers graphs, too, leaves nothing unknown.
    ruled = project(recorded, h100, h200, "calibrated", (Scaled(0.5, ""),))
    assert ruled.makespan.predicted_seconds is not None


def test_twice_the_link_halves_an_exposed_copy_and_shortens_the_run_by_as_much() -> None:
    recorded = trace(copy(0, 5500, 64 * MIB), kernel(5500, 6000))
    result = project(recorded, PCIE3, PCIE4, "calibrated")
    before, after = result.transfers.recorded_seconds, result.transfers.predicted_seconds
    assert before / after == pytest.approx(2.0, rel=0.1)
    saved = before - after
    assert result.makespan.predicted_seconds == pytest.approx(6000e-6 - saved)


def test_a_copy_behind_a_kernel_shortens_nothing() -> None:
    recorded = trace(copy(0, 5500, 64 * MIB), kernel(0, 6000))
    result = project(recorded, PCIE3, PCIE4, "calibrated")
    assert result.transfers.predicted_seconds < result.transfers.recorded_seconds
    assert result.makespan.predicted_seconds == pytest.approx(6000e-6)


def test_copies_side_by_side_are_not_saved_twice() -> None:
    # Slow enough for both to fit the new link's duplex rate.
    recorded = trace(copy(0, 6000, 64 * MIB), copy(0, 6000, 64 * MIB, "d2h"))
    result = project(recorded, PCIE3, PCIE4, "calibrated")
    # In one stream they would follow each other; recorded side by side, the longer decides, at its share of the link.
    longer = max(row.predicted_seconds for row in result.by_path)
    assert longer <= result.makespan.predicted_seconds <= 1.1 * longer


def test_kernel_times_follow_the_rule_that_is_given() -> None:
    recorded = trace(copy(0, 5500, 64 * MIB), kernel(5500, 6500), kernel(6500, 7500, name="other"))
    kept = project(recorded, PCIE3, PCIE3, "calibrated")
    halved = project(recorded, PCIE3, PCIE3, "calibrated", (Scaled(0.5, "work"),))
    assert kept.makespan.predicted_seconds == pytest.approx(7500e-6)
    assert halved.makespan.predicted_seconds == pytest.approx(7000e-6)
    assert "recorded times" in text(kept.makespan.method) and "0.5" in text(halved.makespan.method)


def test_kernels_scale_with_the_memory_of_two_nodes() -> None:
    h100, h200 = load_node("h100-sxm"), load_node("h200-sxm")
    result = project(trace(copy(0, 100, MIB), kernel(100, 1100)), h100, h200, "calibrated", ("bandwidth",))
    assert 100e-6 + 600e-6 < result.makespan.predicted_seconds < 100e-6 + 800e-6
    with pytest.raises(InputError, match="clock"):
        project(trace(copy(0, 100, MIB)), PCIE3, PCIE4, "calibrated", ("clock",))


def test_between_makers_kernels_and_the_run_have_a_range_and_no_time() -> None:
    run = trace(copy(0, 100, MIB), kernel(100, 1100))
    result = project(run, load_node("h100-sxm"), load_node("mi300x"), "calibrated")
    for row in (result.makespan, *result.kernels.by_class):
        assert row.predicted_seconds is None and row.rung == "not validated"
        assert 0 < row.low_seconds < row.high_seconds
    assert result.transfers.predicted_seconds > 0
    assert "not validated" in text(result.makespan.method)
    low, _, high = str(result.makespan).partition(" ")[0].partition("–")
    assert 0 < float(low) < float(high)
    same_maker = project(run, load_node("h100-sxm"), load_node("h200-sxm"), "calibrated")
    assert same_maker.makespan.predicted_seconds is not None


def test_what_if_between_makers_gives_the_bounds_of_project_alone() -> None:
    """Of rows that stay on the node the time is predicted."""
    run, h100 = trace(copy(0, 100, MIB), kernel(100, 1100)), load_node("h100-sxm")
    there = project(run, h100, load_node("mi300x"), "calibrated").makespan
    changes = changes_of(WhatIf(node="mi300x", copy_speed=2.0), h100)
    result, _ = answer_what_if(run, [changes[0], *changes[-2:]], Setting(h100), False)
    here = [row for row in result.changes if row.predicted_seconds is not None]
    assert [(text(row.title), row.rung) for row in here] == [("copies 2 times as fast", "calibrated")]
    for row in (result, *(row for row in result.changes if row is not here[0])):
        assert (row.predicted_seconds, row.gain_seconds, row.speedup) == (None, None, None)
        assert row.rung == "not validated" and 0 < row.low_seconds < row.high_seconds
    assert result.low_seconds < there.high_seconds and there.low_seconds < result.high_seconds
    assert result.range_seconds == [result.low_seconds, result.high_seconds] and not result.critical_path


def test_kernels_that_nothing_tells_of_say_what_would_and_then_go_by_what_is_allocated(
    tmp_path: Path,
) -> None:
    rows = []
    for name, allocated in (("without", []), ("with", [16 * MIB])):
        made = NsysExport()
        made.call("cuModuleGetLoadingMode", 1, 2, 1)
        for bytes_ in allocated:
            made.allocation(3, bytes_)
        made.kernel("step(Body*)", 10_000, 1_010_000, 2, **LAUNCHED)
        recorded = read(made.write(tmp_path / f"{name}.sqlite"), launches=True)
        result = project(recorded, load_node("h100-sxm"), load_node("h200-sxm"), "calibrated")
        (row,) = result.kernels.by_class
        rows.append((row.bound, "--cuda-memory-usage" in text(row.why), row.high_seconds / row.low_seconds))
    assert [row[:2] for row in rows] == [("between", True), ("allocated", False)]
    assert rows[1][2] < rows[0][2]


def test_a_trace_without_copies_and_kernels_has_nothing_to_project() -> None:
    with pytest.raises(InputError, match="no copies and no kernels"):
        project(trace(), PCIE3, PCIE4, "calibrated")


def test_kernels_without_copies_are_projected_and_those_on_unknown_gpus_say_that_they_are_kept() -> None:
    run = trace(kernel(0, 1000), kernel(2000, 5000))
    moved = project(run, load_node("t4"), load_node("h100-sxm"), "calibrated")
    assert moved.transfers.predicted_seconds == 0
    assert moved.kernels.not_predicted == 0
    assert moved.makespan.predicted_seconds < moved.makespan.recorded_seconds
    unknown = project(run, PCIE3, PCIE4, "calibrated")
    assert unknown.kernels.not_predicted == 2
    assert "kernels keep their recorded times, because" in text(unknown.makespan.method)
    assert unknown.makespan.predicted_seconds == pytest.approx(unknown.makespan.recorded_seconds)
    kept = project(run, load_node("t4"), load_node("h100-sxm"), "calibrated", ("keep",))
    assert text(kept.kernels.rule) == "kernels at their recorded times"
    assert kept.makespan.predicted_seconds == pytest.approx(kept.makespan.recorded_seconds)


def test_what_has_no_price_keeps_its_recorded_time() -> None:
    result = project(trace(copy(0, 10, None), copy(20, 30, 4096)), PCIE3, PCIE4, "envelope")
    assert result.transfers.unpriced == 1
    assert result.transfers.predicted_seconds > 10e-6


def test_a_projection_says_by_what_pageable_copies_change() -> None:
    recorded, h100, p100 = read(EXAMPLES / "smooth-out-of-core-h100.json.gz"), "h100-sxm", "dgx-1-p100"
    here, there = load_node(h100), load_node(p100)
    result = project(recorded, here, there, "calibrated")
    assert result.pageable_copies
    kept = f"the recorded speed, because staging was never measured on {h100}"
    assert text(result.pageable_copies) == kept
    # Its link is slower, and nobody knows its processor to be quicker.
    assert result.transfers.predicted_seconds > result.transfers.recorded_seconds
    assert project(recorded, here, there, "datasheet").pageable_copies is None
    pinned = trace(copy(0, 5500, 64 * MIB))
    assert project(pinned, here, there, "calibrated").pageable_copies is None


def test_a_perfect_prediction_has_no_error() -> None:
    recorded = trace(copy(0, 5500, 64 * MIB), copy(6000, 6020, 4096, "d2h"))
    result = compare(recorded, recorded, PCIE3, PCIE3, "calibrated")
    assert result.wmape_percent == pytest.approx(0.0, abs=1e-9)
    assert (result.count, result.unmatched) == (2, 0)


def test_errors_weigh_by_time() -> None:
    # [A19 §VI-C]: 100 · Σ|A−P| / ΣA. The model repeats the first run's times: 1000 and 10 µs; the second took 1100 and 20.
    first = trace(copy(0, 1000, 8 * MIB), copy(2000, 2010, 4096))
    second = trace(copy(0, 1100, 8 * MIB), copy(2000, 2020, 4096))
    result = compare(first, second, PCIE3, PCIE3, "calibrated")
    assert result.wmape_percent == pytest.approx(100 * (100 + 10) / (1100 + 20))


def test_copies_of_a_single_run_are_counted_and_left_out() -> None:
    first = trace(copy(0, 1000, 8 * MIB), copy(2000, 2010, 4096))
    second = trace(copy(0, 1000, 8 * MIB), copy(1000, 2000, 8 * MIB))
    result = compare(first, second, PCIE3, PCIE3, "calibrated")
    assert (result.count, result.unmatched) == (1, 2)


def test_two_programs_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="same program"):
        compare(trace(copy(0, 1, 1)), trace(copy(0, 1, 2)), PCIE3, PCIE3, "calibrated")


PROGRAMS = (
    "train-images", "train-images-pinned", "generate-text", "smooth-out-of-core",
    "smooth-out-of-core-streams",
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_h200s_copies_are_predicted_from_an_h100s_trace(program: str) -> None:
    # Recorded on both machines by the same program. Pageable copies depend on the host's threads that moment.
    first, second = (read(EXAMPLES / f"{program}-{gpu}.json.gz") for gpu in ("h100", "h200"))
    result = compare(first, second, load_node("h100-sxm"), load_node("h200-sxm"), "calibrated")
    assert result.unmatched == 0
    pinned = program in ("train-images-pinned", "smooth-out-of-core-streams")
    assert result.wmape_percent < (5.0 if pinned else 15.0)


def test_on_the_node_of_the_recording_nothing_is_predicted_and_no_range_is_shown() -> None:
    recorded = trace(
        copy(0, 5500, 64 * MIB, memory="pageable"), kernel(5500, 6000), copy(6000, 6010, 64, "d2h")
    )
    node = load_node("h100-sxm")
    for recorded_on in (PCIE3, node):
        result = project(recorded, recorded_on, recorded_on, "calibrated")
        for row in (result.transfers, result.makespan, *result.by_path, *result.kernels.by_class):
            assert row.low_seconds == row.predicted_seconds == row.high_seconds
            assert row.predicted_seconds == pytest.approx(row.recorded_seconds)
    elsewhere = project(recorded, node, load_node("h200-sxm"), "calibrated").makespan
    assert elsewhere.low_seconds is not None and elsewhere.low_seconds < elsewhere.predicted_seconds


def test_between_makers_copies_that_keep_their_recorded_times_have_no_time() -> None:
    run = trace(copy(0, 1000, MIB, source_memory="pageable"), kernel(1000, 1100))
    h100, mi300x = load_node("h100-sxm"), load_node("mi300x")
    result = project(run, h100, mi300x, "calibrated")
    for row in (result.transfers, *result.by_path):
        assert row.predicted_seconds is None
        assert row.low_seconds < row.recorded_seconds < row.high_seconds
    assert project(run, h100, load_node("h200-sxm"), "calibrated").transfers.predicted_seconds
