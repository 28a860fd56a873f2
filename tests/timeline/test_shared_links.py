"""Copies that share links and memories, in a replay and begun at once."""

from pathlib import Path

import pytest

from busfare.nodes import Node, load_node
from busfare.nodes.contention import typical_memory
from busfare.timeline import play, timeline
from busfare.timeline.build.links import copy_seconds_at_once
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.durations import on_node
from busfare.timeline.changes.fewer_copies import remove
from busfare.trace import Trace
from tests.node.build_node import two_gpus
from tests.traces import copy, made, run

MIB = 1 << 20


def node(folder: Path, *, switched: bool) -> Node:
    return two_gpus(folder / f"{switched}.toml", switched=switched)


def slow_memory(folder: Path, **memory: float) -> Node:
    return two_gpus(folder / "slow.toml", **memory)


def two_copies(first_us: float, second_us: float) -> Trace:
    """64 MiB to each of two GPUs at the same time, taking so long."""
    return run(
        made(copy(10, 10 + first_us, 64 * MIB), 0, 3, "cudaMemcpyAsync"),
        made(copy(10, 10 + second_us, 64 * MIB, device=1), 4, 7, "cudaMemcpyAsync"),
    )


def test_two_gpus_behind_an_uplink_replay_as_recorded(tmp_path: Path) -> None:
    taken_apart = timeline(two_copies(10_900, 10_900), node(tmp_path, switched=True))
    # Each would have needed half that alone.
    assert taken_apart.columns["operation_duration"].tolist() == pytest.approx([5_450_000] * 2, rel=0.02)
    assert play(taken_apart).makespan_ns == pytest.approx(taken_apart.recorded_ns, abs=2)


def test_without_its_neighbour_a_copy_has_the_link_to_itself(tmp_path: Path) -> None:
    switched = node(tmp_path, switched=True)
    taken_apart = timeline(two_copies(10_900, 10_900), switched)
    duration = taken_apart.columns["operation_duration"].copy()
    duration[1] = 0
    alone = play(taken_apart.with_columns(operation_duration=duration))
    assert alone.operation_end[0] == pytest.approx(5_460_000, rel=0.02)


def test_copies_that_did_not_meet_meet_on_a_node_with_a_single_uplink(tmp_path: Path) -> None:
    apart, switched = node(tmp_path, switched=False), node(tmp_path, switched=True)
    taken_apart = timeline(two_copies(5_450, 5_450), apart)
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns
    moved = apply_all(taken_apart, [on_node(switched)], Setting(apart))
    assert play(moved.timeline).makespan_ns == pytest.approx(10_900_000, rel=0.02)
    back = apply_all(timeline(two_copies(10_900, 10_900), switched), [on_node(apart)], Setting(switched))
    assert play(back.timeline).makespan_ns == pytest.approx(5_450_000, rel=0.02)


def test_two_directions_at_once_cost_what_was_measured() -> None:
    probed = load_node("h100-probed")
    curve = probed.curve("h2d", "pinned")
    gap = curve.long_gap_per_byte_s
    duplex_gap = gap / probed.contention().both.h2d
    size = 256 * MIB
    recorded = run(
        made(copy(10, 10 + size * duplex_gap * 1e6, size, stream=13), 0, 3, "cudaMemcpyAsync"),
        made(copy(10, 10 + 4 * size * duplex_gap * 1e6, 4 * size, "d2h", stream=14), 4, 7, "cudaMemcpyAsync"),
    )
    taken_apart = timeline(recorded, probed)
    assert play(taken_apart).makespan_ns == pytest.approx(taken_apart.recorded_ns, abs=10)
    without_d2h = apply_all(taken_apart, [remove("d2h")], Setting(probed))
    assert play(without_d2h.timeline).makespan_seconds == pytest.approx(10e-6 + size * gap, rel=0.005)


SIZE = 1 << 28


def gigabytes_per_s(node: Node, *copies: tuple[str, int]) -> list[float]:
    return [SIZE / seconds / 1e9 for seconds in copy_seconds_at_once(node, copies, SIZE)]


@pytest.mark.parametrize(("switched", "share", "off"), [(False, 1, 1e-3), (True, 1 / 2, 1e-2)])
def test_gpus_behind_an_uplink_share_it(switched: bool, share: float, off: float, tmp_path: Path) -> None:
    two = node(tmp_path, switched=switched)
    (alone,) = gigabytes_per_s(two, ("h2d", 0))
    assert gigabytes_per_s(two, ("h2d", 0), ("h2d", 1)) == pytest.approx([share * alone] * 2, rel=off)


def test_gpus_reach_a_typical_share_of_a_memory_that_nobody_measured(tmp_path: Path) -> None:
    slow, shares = slow_memory(tmp_path, bandwidth_bytes_per_s=26e9), typical_memory()
    assert gigabytes_per_s(slow, ("h2d", 0), ("h2d", 1)) == pytest.approx([13 * shares.read] * 2, rel=1e-2)
    assert gigabytes_per_s(slow, ("d2h", 0), ("d2h", 1)) == pytest.approx([13 * shares.write] * 2, rel=1e-2)


def test_what_a_memory_carries_at_once_is_as_measured(tmp_path: Path) -> None:
    rates = {"read": 20e9, "write": 16e9, "both_read": 8e9, "both_write": 12e9}
    slow = slow_memory(tmp_path, **{f"at_once.{name}_bytes_per_s": rate for name, rate in rates.items()})
    assert gigabytes_per_s(slow, ("h2d", 0), ("h2d", 1)) == pytest.approx([10, 10], rel=1e-2)
    assert gigabytes_per_s(slow, ("d2h", 0), ("d2h", 1)) == pytest.approx([8, 8], rel=1e-2)
    duplex = gigabytes_per_s(slow, *((direction, gpu) for direction in ("h2d", "d2h") for gpu in (0, 1)))
    assert duplex[2:] == pytest.approx([6, 6], rel=1e-2)
    # At 4 until the writes are done, which takes a sixth of a second a gigabyte; then at 10.
    assert duplex[:2] == pytest.approx([1 / (1 / 6 + (1 - 4 / 6) / 10)] * 2, rel=1e-2)


def test_a_single_gpu_gets_the_rate_of_its_link(tmp_path: Path) -> None:
    slow = slow_memory(tmp_path, bandwidth_bytes_per_s=15e9)
    assert gigabytes_per_s(slow, ("d2h", 1))[0] > 15 * typical_memory().write


def test_a_memory_that_all_cannot_fill_limits_nobody(tmp_path: Path) -> None:
    ample = slow_memory(tmp_path, bandwidth_bytes_per_s=100e9)
    (alone,) = gigabytes_per_s(ample, ("d2h", 1))
    assert gigabytes_per_s(ample, ("d2h", 0), ("d2h", 1)) == pytest.approx([alone, alone], rel=1e-3)
