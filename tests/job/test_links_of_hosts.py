"""Copies of ranks of one host share its memory; those of other hosts do not. Made-up jobs and nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from busfare.jobs.model import places_of
from busfare.jobs.ranks import Rank, TraceRank
from busfare.nodes import Node, load_node
from busfare.timeline import Timeline, timeline
from tests.job.kineto_job import write_ranks
from tests.job.test_job_what_if import changed
from tests.traces import copy, made, run

SIZE = 64 << 20
NODE = """
name = "slow-memory"
[[component]]
kind = "memory"
name = "memory0"
[component.at_once]
read_bytes_per_s = {rate}
write_bytes_per_s = {rate}
both_read_bytes_per_s = {rate}
both_write_bytes_per_s = {rate}
[[component]]
kind = "cpu"
name = "cpu0"
[[component]]
kind = "gpu"
name = "gpu[0-1]"
[[link]]
kind = "memory"
between = ["memory0", "cpu0"]
[[link]]
kind = "pcie"
between = ["cpu0", "gpu[0-1]"]
generation = 5
lanes = 16
"""


def node(folder: Path, bytes_per_s: float) -> Path:
    file = folder / "node.toml"
    file.write_text(NODE.format(rate=bytes_per_s), "utf-8")
    return file


@pytest.mark.parametrize(
    ("copied_on", "bytes_per_s", "expected"),
    [((0,), 60e9, None), ((0, 1), 60e9, 30e9), ((0, 1), 500e9, None)],
    ids=["one rank copies", "both share the memory", "the memory is ample"],
)
def test_pinned_copies_of_two_ranks_share_the_memory(
    tmp_path: Path, copied_on: tuple[int, ...], bytes_per_s: float, expected: float | None
) -> None:
    write_ranks(tmp_path / "job", [[500.0] * 4] * 2, copy_us=8000.0, copy_bytes=SIZE, copied_on=copied_on)
    file = node(tmp_path, bytes_per_s)
    result = changed(tmp_path / "job", "--pin=", "--from", str(file))
    alone = load_node(str(file)).host_path(0).bandwidth("read")
    gained = 4 * (8000e-6 - SIZE / (expected or alone))
    assert result["gain_seconds"] == pytest.approx(gained, rel=0.02)


def part(device: int = 0) -> Timeline:
    return timeline(run(made(copy(10, 20, 1 << 20, device=device), 0, 3, "cudaMemcpyAsync")))


def rank(number: int, host: str | None) -> list[Rank]:
    return [Rank(number, f"rank{number}", host, number, TraceRank(None, 0, 1, 0, 0))]


@pytest.fixture
def two_gpus(tmp_path: Path) -> Node:
    return load_node(str(node(tmp_path, 1e9)))


def test_ranks_that_call_their_gpus_the_same_have_one_each_where_nccl_runs(two_gpus: Node) -> None:
    parts = [(part(), rank(0, "a")), (part(), rank(1, "a")), (part(), rank(2, "b"))]
    assert places_of(parts, two_gpus, apart=True) == [(0, {0: 0}), (0, {0: 1}), (1, {0: 0})]
    assert places_of(parts, two_gpus, apart=False) == [(0, {0: 0}), (0, {0: 0}), (1, {0: 0})]
    named = [(part(1), rank(0, "a")), (part(0), rank(1, "a"))]
    assert places_of(named, two_gpus, apart=True) == [(0, {1: 1}), (0, {0: 0})]


def test_ranks_of_no_host_fill_nodes(two_gpus: Node) -> None:
    parts = [(part(number % 2), rank(number, None)) for number in range(4)]
    assert places_of(parts, two_gpus, apart=True) == [(0, {0: 0}), (0, {1: 1}), (1, {0: 0}), (1, {1: 1})]
    assert places_of(parts, None, apart=True) is None


def test_devices_that_nobody_knows_are_not_placed(two_gpus: Node) -> None:
    run = part()
    unknown = replace(run, operations=run.operations.with_columns(device=pl.lit(None, pl.Int32)))
    assert places_of([(unknown, rank(0, None))], two_gpus, apart=True) == [(0, {})]
