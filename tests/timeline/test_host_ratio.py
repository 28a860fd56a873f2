"""Host times on another machine, by what calls cost on both and by rule."""

import dataclasses

import pytest

from busfare.answers.project import project
from busfare.nodes import Cost, Node, Source, load_node
from busfare.nodes.contention import published
from busfare.show.words import text
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.durations import host_changes, host_ratio, host_times
from tests.traces import call, copy, kernel, trace

MIB = 1 << 20


def node(launch_us: float | None, synchronise_us: float = 2.0) -> Node:
    costs = () if launch_us is None else (
        Cost(call="launch", call_s=launch_us * 1e-6), Cost(call="synchronise", call_s=synchronise_us * 1e-6),
    )  # fmt: skip
    return dataclasses.replace(load_node("h100-sxm"), costs=costs)


#: A call of 4 µs, 100 µs of host work, a kernel that begins 11 µs after its launch does, and that the host waits for.
RUN = trace(
    kernel(115, 215, correlation=2),
    copy(5, 6, 64, correlation=1),
    calls=[
        call(0, 4, "cudaMemcpyAsync", correlation=1),
        call(104, 114, "cudaLaunchKernel", correlation=2),
        call(114, 220, "cudaDeviceSynchronize", "device"),
    ],
)


def test_the_ratio_is_the_geometric_mean_of_calls_measured_on_two_nodes() -> None:
    assert host_ratio(node(8.0, 2.0), node(4.0, 1.0)) == pytest.approx(0.5)
    assert host_ratio(node(8.0, 1.0), node(4.0, 2.0)) == pytest.approx(1.0)
    assert host_ratio(node(8.0), node(None)) is None


def test_only_calls_that_two_nodes_timed_count() -> None:
    def copying(node: Node, call_us: float) -> Node:
        return dataclasses.replace(node, costs=(*node.costs, Cost(call="copy", call_s=call_us * 1e-6)))

    slow, fast = node(8.0, 2.0), node(4.0, 1.0)
    assert host_ratio(copying(slow, 4.0), copying(fast, 16.0)) == pytest.approx(1.0)
    assert host_ratio(copying(slow, 4.0), fast) == pytest.approx(0.5)
    assert host_ratio(copying(node(None), 4.0), copying(fast, 3.0)) == pytest.approx(0.75)


def test_of_a_quick_probe_counts_what_exceeds_the_difference_of_machines_and_the_range_holds_it_all() -> None:
    def quick(probed: Node) -> Node:
        cite = "busfare probe --quick, 2026-11-29: measured on this machine"
        return dataclasses.replace(probed, name="quick", sources={"probe": Source("measured", cite)})

    most = published("host_calls").high
    recorded_on, slower, slow = node(4.0, 2.0), node(4.0 * 1.5, 2.0 * 1.5), node(16.0, 8.0)
    assert host_ratio(recorded_on, quick(slower)) == 1
    assert host_ratio(recorded_on, quick(slow)) == pytest.approx(4 / most)
    assert host_ratio(quick(slow), recorded_on) == pytest.approx(most / 4)
    nodes = (slower, quick(slower), quick(recorded_on))
    full, doubted, same = (project(RUN, recorded_on, there, "calibrated").makespan for there in nodes)
    assert full.predicted_seconds and doubted.predicted_seconds
    assert doubted.predicted_seconds == same.predicted_seconds < full.predicted_seconds
    assert doubted.low_seconds == same.low_seconds
    assert doubted.high_seconds and same.high_seconds and doubted.high_seconds >= full.predicted_seconds
    slowest = project(RUN, recorded_on, quick(slow), "calibrated").makespan
    kept = project(RUN, recorded_on, quick(slow), "calibrated", host="keep").makespan
    assert slowest.high_seconds and kept.high_seconds and slowest.high_seconds > 1.5 * kept.high_seconds


def test_a_host_twice_as_fast_halves_its_calls_and_what_is_between_but_nothing_that_it_waits_for() -> None:
    # The launch takes 5 µs in place of 10; the kernel begins 11 µs after its begin, and its end is noticed as before.
    changed = apply_all(timeline(RUN), [host_times(0.5)], Setting())
    assert play(changed.timeline).makespan_seconds == pytest.approx(220e-6 - 2e-6 - 50e-6, abs=0.1e-6)


def test_project_takes_the_calls_measured_on_two_nodes_and_states_it() -> None:
    slow, fast = node(8.0, 2.0), node(4.0, 1.0)
    result = project(RUN, slow, fast, "calibrated")
    assert result.makespan.predicted_seconds == pytest.approx(168e-6, abs=0.1e-6)
    assert "CPU times × 0.5 (measured on both)" in text(result.makespan.method)
    kept = project(RUN, slow, fast, "calibrated", host="keep")
    assert kept.makespan.predicted_seconds == pytest.approx(220e-6, abs=1e-6)
    assert "CPU times unchanged" in text(kept.makespan.method)


def test_a_node_whose_calls_were_not_measured_keeps_the_host() -> None:
    assert host_changes("measured", node(8.0), node(None)) == []
    assert host_changes("measured", None, node(8.0)) == []
    assert host_changes("measured", node(8.0), node(8.0)) == []


def test_a_factor_is_a_factor() -> None:
    (change,) = host_changes(0.8, None, None)
    assert (change.kind, text(change.title)) == ("host", "CPU times × 0.8")
