"""Copies of several GPUs that begin together share what they share, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.node import Node, load_node
from busfare.timeline.at_once import copy_seconds_at_once
from tests.timeline.test_shared_links import node

SIZE = 1 << 28


def gigabytes_per_s(node: Node, *copies: tuple[str, int]) -> list[float]:
    return [SIZE / seconds / 1e9 for seconds in copy_seconds_at_once(node, copies, SIZE)]


def slow_memory(tmp_path: Path, bytes_per_s: float) -> Node:
    """Two GPUs on ports of their own, before a memory that carries so much."""
    node(tmp_path, switched=False)
    file = tmp_path / "cpu0.toml"
    memory = 'kind = "memory"\nname = "memory0"\n'
    assert memory in file.read_text("utf-8")
    file.write_text(
        file.read_text("utf-8").replace(memory, f"{memory}bandwidth_bytes_per_s = {bytes_per_s}\n")
    )
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


def test_reads_and_writes_of_a_slow_memory_share_its_bus(tmp_path: Path) -> None:
    slow = slow_memory(tmp_path, 20e9)
    assert gigabytes_per_s(slow, ("h2d", 0), ("h2d", 1)) == pytest.approx([10, 10], rel=1e-2)
    assert gigabytes_per_s(slow, ("h2d", 0), ("d2h", 1)) == pytest.approx([10, 10], rel=1e-2)


def test_a_memory_that_all_cannot_fill_limits_nobody(tmp_path: Path) -> None:
    ample = slow_memory(tmp_path, 100e9)
    (alone,) = gigabytes_per_s(ample, ("d2h", 1))
    assert gigabytes_per_s(ample, ("d2h", 0), ("d2h", 1)) == pytest.approx([alone, alone], rel=1e-3)
