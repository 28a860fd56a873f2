"""Copies of several GPUs that begin together share what they share, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.nodes import Node, load_node
from busfare.nodes.contention import typical_memory
from busfare.timeline.build.links import copy_seconds_at_once
from tests.timeline.test_shared_links import node

SIZE = 1 << 28


def gigabytes_per_s(node: Node, *copies: tuple[str, int]) -> list[float]:
    return [SIZE / seconds / 1e9 for seconds in copy_seconds_at_once(node, copies, SIZE)]


def slow_memory(tmp_path: Path, **keys: object) -> Node:
    """Two GPUs on ports of their own, before a memory of which the node says so."""
    node(tmp_path, switched=False)
    file = tmp_path / "cpu0.toml"
    memory = 'kind = "memory"\nname = "memory0"\n'
    assert memory in file.read_text("utf-8")
    said = "".join(f"{key} = {value}\n" for key, value in keys.items())
    file.write_text(file.read_text("utf-8").replace(memory, memory + said))
    return load_node(str(file))


def test_gpus_with_ports_of_their_own_do_not_slow_each_other(tmp_path: Path) -> None:
    apart = node(tmp_path, switched=False)
    (alone,) = gigabytes_per_s(apart, ("h2d", 0))
    assert gigabytes_per_s(apart, ("h2d", 0), ("h2d", 1)) == pytest.approx([alone, alone], rel=1e-3)


def test_gpus_behind_one_uplink_have_half_of_it_each(tmp_path: Path) -> None:
    switched = node(tmp_path, switched=True)
    (alone,) = gigabytes_per_s(switched, ("h2d", 0))
    both = gigabytes_per_s(switched, ("h2d", 0), ("h2d", 1))
    assert both == pytest.approx([alone / 2, alone / 2], rel=1e-2)


def test_gpus_reach_a_typical_share_of_a_memory_that_nobody_measured(tmp_path: Path) -> None:
    slow, shares = slow_memory(tmp_path, bandwidth_bytes_per_s=26e9), typical_memory()
    assert gigabytes_per_s(slow, ("h2d", 0), ("h2d", 1)) == pytest.approx([13 * shares.read] * 2, rel=1e-2)
    assert gigabytes_per_s(slow, ("d2h", 0), ("d2h", 1)) == pytest.approx([13 * shares.write] * 2, rel=1e-2)


def test_what_a_memory_carries_at_once_is_as_measured(tmp_path: Path) -> None:
    rates = {"read": 20e9, "write": 16e9, "both_read": 8e9, "both_write": 12e9}
    slow = slow_memory(
        tmp_path, at_once=f"{{{', '.join(f'{name}_bytes_per_s = {rate}' for name, rate in rates.items())}}}"
    )
    assert gigabytes_per_s(slow, ("h2d", 0), ("h2d", 1)) == pytest.approx([10, 10], rel=1e-2)
    assert gigabytes_per_s(slow, ("d2h", 0), ("d2h", 1)) == pytest.approx([8, 8], rel=1e-2)
    both = gigabytes_per_s(slow, *((direction, gpu) for direction in ("h2d", "d2h") for gpu in (0, 1)))
    assert both[2:] == pytest.approx([6, 6], rel=1e-2)
    # At 4 until the writes are done, which takes a sixth of a second a gigabyte; then at 10.
    assert both[:2] == pytest.approx([1 / (1 / 6 + (1 - 4 / 6) / 10)] * 2, rel=1e-2)


def test_one_gpu_reaches_what_its_link_does(tmp_path: Path) -> None:
    slow = slow_memory(tmp_path, bandwidth_bytes_per_s=15e9)
    assert gigabytes_per_s(slow, ("d2h", 1))[0] > 15 * typical_memory().write


def test_a_memory_that_all_cannot_fill_limits_nobody(tmp_path: Path) -> None:
    ample = slow_memory(tmp_path, bandwidth_bytes_per_s=100e9)
    (alone,) = gigabytes_per_s(ample, ("d2h", 1))
    assert gigabytes_per_s(ample, ("d2h", 0), ("d2h", 1)) == pytest.approx([alone, alone], rel=1e-3)
