"""Kernels that several streams bring beside each other: how many multiprocessors each leaves to the others."""

from __future__ import annotations

import polars as pl
import pytest

from busfare.node import load_node
from busfare.timeline import timeline
from busfare.timeline.changes.change import Setting
from busfare.timeline.changes.streams import Streams
from busfare.timeline.changes.what_if import what_if
from busfare.trace import Trace, read, tables
from tests.traces import call, copy, kernel, trace
from validation.stored import unpacked

#: Of programs on an H100 and an H200.
MIB = 1 << 20
CHUNKS = 30
#: A copy, the turn to the kernel, the kernel, and the way to the next copy. Microseconds.
STEP = 118


def pipeline(blocks: int | None, multiprocessors: int | None = 10) -> Trace:
    """A stream of chunks: a copy of 10 µs, a kernel of 100 µs and so many blocks; the host waits at the end."""
    operations, calls = [], []
    for at in range(CHUNKS):
        start = 115.0 * at
        operations.append(copy(start + 5, start + 15, MIB, correlation=2 * at))
        operations.append(kernel(start + 16, start + 116, correlation=2 * at + 1))
        calls.append(call(3.0 * at, 3.0 * at + 1, "cudaMemcpyAsync", correlation=2 * at))
        calls.append(call(3.0 * at + 1.5, 3.0 * at + 2.5, "cudaLaunchKernel", correlation=2 * at + 1))
    calls.append(call(100, 115.0 * CHUNKS + 10, "cudaDeviceSynchronize", "device"))
    found = trace(*operations, calls=calls)
    if blocks is not None:
        of_kernels = pl.when(pl.col("kind") == "kernel").then(blocks)
        found.operations = found.operations.with_columns(blocks=of_kernels.cast(pl.Int64))
    devices = pl.DataFrame({"device": [0], "multiprocessors": [multiprocessors]})
    found.devices = tables.conform(devices, tables.DEVICES)
    return found


def in_three_streams(recorded: Trace, node: str = "pcie:5") -> float:
    where = load_node(node)
    found = what_if(timeline(recorded, where), [Streams(3)], Setting(where))
    return found.together.played.makespan_ns / 1000


def test_kernels_of_a_few_blocks_run_side_by_side() -> None:
    assert in_three_streams(pipeline(1)) == pytest.approx(CHUNKS / 3 * STEP, rel=0.05)


@pytest.mark.parametrize("blocks", [10, 1000, None])
def test_kernels_that_fill_the_gpu_or_may_run_one_at_a_time(blocks: int | None) -> None:
    assert in_three_streams(pipeline(blocks)) == pytest.approx(CHUNKS * 101, rel=0.05)


def test_kernels_that_fit_only_in_part_share_what_there_is() -> None:
    # Three times six of ten multiprocessors: as much work as 18 kernels that fill the GPU.
    assert in_three_streams(pipeline(6)) == pytest.approx(0.6 * CHUNKS * 100, rel=0.1)


def test_the_node_says_how_large_the_gpu_is_where_the_trace_does_not() -> None:
    assert in_three_streams(pipeline(44, None), "h100-sxm") == pytest.approx(CHUNKS / 3 * STEP, rel=0.05)
    assert in_three_streams(pipeline(132, None), "h100-sxm") == pytest.approx(CHUNKS * 101, rel=0.05)
    assert in_three_streams(pipeline(1, None)) == pytest.approx(CHUNKS * 101, rel=0.05)


def test_the_recording_itself_plays_as_it_was() -> None:
    recorded = pipeline(1)
    played = what_if(timeline(recorded), [Streams(1)], Setting()).baseline
    assert played.makespan_ns == timeline(recorded).recorded_ns


def test_recordings_say_how_many_blocks_their_kernels_have() -> None:
    folders = [unpacked(f"pairs/{gpu}") for gpu in ("h100", "h200")]
    paths = [folder / f"{name}-before.bf" for name in ("graph_ranks", "jacobi") for folder in folders]
    assert len(paths) >= 2
    for path in paths:
        operations = read(path).operations
        kernels = operations.filter(pl.col("kind") == "kernel")
        # A graph is ranked by one block; 2048 x 2048 points by blocks of 256.
        assert set(kernels["blocks"]) == {1 if path.name.startswith("graph") else 16384}
        assert (
            operations.filter(pl.col("kind") != "kernel")["blocks"].null_count()
            == operations.height - kernels.height
        )
