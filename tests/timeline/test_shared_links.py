"""Copies that meet on a link slow each other down, as much as when they were recorded and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.node import Node, load_node
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.elsewhere import on_node
from busfare.timeline.changes.removal import remove
from busfare.trace import Trace
from tests.traces import call, copy, trace

MIB = 1 << 20
TWO_GPUS = """
name = "{name}"
[[component]]
kind = "cpu"
name = "cpu0"
[[component]]
kind = "memory"
name = "memory0"
[[component]]
kind = "switch"
name = "switch0"
[[component]]
kind = "gpu"
name = "gpu0"
[[component]]
kind = "gpu"
name = "gpu1"
[[link]]
kind = "memory"
between = ["memory0", "cpu0"]
[[link]]
kind = "pcie"
between = ["cpu0", "{up}"]
generation = 3
lanes = 16
[[link]]
kind = "pcie"
between = ["{up}", "gpu0"]
generation = 3
lanes = 16
[[link]]
kind = "pcie"
between = ["{up}", "gpu1"]
generation = 3
lanes = 16
"""


def node(tmp_path: Path, *, switched: bool) -> Node:
    """Two GPUs behind one switch with one uplink, or each on a port of its own."""
    text = TWO_GPUS.format(name="switched" if switched else "apart", up="switch0")
    if not switched:
        text = text.replace('"switch0", "gpu0"', '"cpu0", "gpu0"').replace(
            '"switch0", "gpu1"', '"cpu0", "gpu1"'
        )
    file = tmp_path / f"{'switched' if switched else 'apart'}.toml"
    file.write_text(text, encoding="utf-8")
    return load_node(str(file))


def two_copies(first_us: float, second_us: float) -> Trace:
    """64 MiB to each of two GPUs at the same time, taking so long."""
    calls = [call(0, 3, "cudaMemcpyAsync", correlation=1), call(4, 7, "cudaMemcpyAsync", correlation=2)]
    return trace(
        copy(10, 10 + first_us, 64 * MIB, correlation=1),
        copy(10, 10 + second_us, 64 * MIB, correlation=2, device=1),
        calls=calls,
    )


def test_two_gpus_behind_one_uplink_replay_as_recorded(tmp_path: Path) -> None:
    taken_apart = timeline(two_copies(10_900, 10_900), node(tmp_path, switched=True))
    # Each would have needed half that alone.
    assert taken_apart.columns["operation_duration"].tolist() == pytest.approx([5_450_000] * 2, rel=0.02)
    assert play(taken_apart).makespan_ns == pytest.approx(taken_apart.recorded_ns, abs=2)


def test_without_the_other_a_copy_has_the_link_to_itself(tmp_path: Path) -> None:
    switched = node(tmp_path, switched=True)
    recorded = two_copies(10_900, 10_900)
    recorded.operations = recorded.operations.head(1).vstack(
        recorded.operations.tail(1).with_columns(direction=recorded.operations["direction"].tail(1))
    )
    taken_apart = timeline(recorded, switched)
    columns = dict(taken_apart.columns)
    columns["operation_duration"] = columns["operation_duration"].copy()
    columns["operation_duration"][1] = 0
    assert play(taken_apart.with_columns(**columns)).operation_end[0] == pytest.approx(5_460_000, rel=0.02)


def test_copies_that_did_not_meet_meet_on_a_node_with_one_uplink(tmp_path: Path) -> None:
    apart, switched = node(tmp_path, switched=False), node(tmp_path, switched=True)
    taken_apart = timeline(two_copies(5_450, 5_450), apart)
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns
    found = apply_all(taken_apart, [on_node(switched)], Setting(apart))
    assert play(found.timeline).makespan_ns == pytest.approx(10_900_000, rel=0.02)
    back = apply_all(timeline(two_copies(10_900, 10_900), switched), [on_node(apart)], Setting(switched))
    assert play(back.timeline).makespan_ns == pytest.approx(5_450_000, rel=0.02)


def test_both_directions_at_once_cost_what_was_measured() -> None:
    probed = load_node("h100-probed")
    curve = probed.curve("h2d", "pinned")
    assert curve is not None
    gap = curve.long_gap_per_byte_s
    both = gap / probed.contention().both.h2d
    size = 256 * MIB
    recorded = trace(
        copy(10, 10 + size * both * 1e6, size, correlation=1, stream=13),
        copy(10, 10 + 4 * size * both * 1e6, 4 * size, "d2h", correlation=2, stream=14),
        calls=[call(0, 3, "cudaMemcpyAsync", correlation=1), call(4, 7, "cudaMemcpyAsync", correlation=2)],
    )
    run = timeline(recorded, probed)
    assert play(run).makespan_ns == pytest.approx(run.recorded_ns, abs=10)
    found = apply_all(run, [remove("d2h")], Setting(probed))
    assert play(found.timeline).makespan_seconds == pytest.approx(10e-6 + size * gap, rel=0.005)
