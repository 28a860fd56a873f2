"""What reads and writes of files add up to, and which of them are for copies to the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace import Trace
from busfare.trace.sound import make_sound
from busfare.trace.storage import read_into, storage_of
from tests.traces import copy, kernel, omitted, stored, trace

KIB = 1 << 10


def sent(start_us: float, address: int, bytes_: int, memory: str = "pinned", **more: Any) -> dict[str, Any]:
    return copy(start_us, start_us + 1, bytes_, "h2d", memory, source_address=address, **more)


def test_time_beside_the_gpu_exposed_and_outside_the_run() -> None:
    recorded = trace(
        kernel(0, 100),
        kernel(200, 300),
        storage=[
            stored(-50, 10, 1000),  # 50 µs before the run
            stored(50, 150, 2000),
            stored(60, 140, 3000, thread=2),  # at the same time
            stored(290, 400, 4000, "write", path="/out"),
        ],
    )
    found = storage_of(recorded)
    assert found is not None
    reads, writes = found.by_kind
    assert (reads.kind, reads.count, reads.bytes) == ("read", 3, 6000)
    assert reads.seconds == pytest.approx(160e-6)
    assert reads.bytes_per_second == pytest.approx(6000 / 160e-6)
    assert (reads.beside_gpu_seconds, reads.exposed_seconds, reads.outside_seconds) == pytest.approx(
        (60e-6, 50e-6, 50e-6)
    )
    assert (writes.beside_gpu_seconds, writes.exposed_seconds, writes.outside_seconds) == pytest.approx(
        (10e-6, 0, 100e-6)
    )
    assert [(file.path, file.count, file.bytes) for file in found.files] == [
        ("/data/0", 3, 6000),
        ("/out", 1, 4000),
    ]
    assert found.read_into == []  # addresses of copies are not known


def test_without_storage_there_is_nothing_to_say() -> None:
    assert storage_of(trace(kernel(0, 1))) is None


@pytest.mark.parametrize(
    ("copies", "memory"),
    [
        ([sent(20, 4096, 64 * KIB)], "pinned"),
        (
            [sent(20, 4096 + 32 * KIB, 64 * KIB, "pageable")],
            "pageable",
        ),  # its second half, and what is behind
        ([sent(20, 0, 4097)], "pinned"),  # its first byte
        ([sent(20, 0, 4096)], None),  # up to it
        ([sent(20, 4096 + 64 * KIB, 64 * KIB)], None),  # behind it
        ([sent(5, 4096, 64 * KIB)], None),  # before the read was over
        ([sent(5, 4096, 64 * KIB), sent(30, 4096, 64)], "pinned"),
        ([sent(20, 4096, 64 * KIB, process=2)], None),
        ([sent(20, 1 << 63, 64 * KIB), sent(20, 4096, 0)], None),
        ([copy(20, 21, 64 * KIB, "d2h", "pinned", source_address=4096)], None),
    ],
)
def test_memory_that_is_read_into_and_copied_to_the_gpu(
    copies: list[dict[str, Any]], memory: str | None
) -> None:
    recorded = trace(*copies, storage=[stored(0, 10, 64 * KIB)])
    assert read_into(recorded).to_list() == [memory]


def test_a_copy_takes_what_many_reads_brought() -> None:
    chunks = [stored(at, at + 1, 64 * KIB, address=1 << 20 | at * 64 * KIB) for at in range(8)]
    recorded = trace(sent(20, 1 << 20, 6 * 64 * KIB), storage=chunks)
    assert read_into(recorded).to_list() == ["pinned"] * 6 + [None] * 2
    found = storage_of(recorded)
    assert found is not None
    assert [(row.memory, row.count, row.bytes) for row in found.read_into] == [
        ("pinned", 6, 6 * 64 * KIB),
        (None, 2, 2 * 64 * KIB),
    ]


TIMES = st.integers(0, 20)
PLACES = st.integers(0, 12)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(TIMES, PLACES, st.integers(1, 4)), max_size=6),
    st.lists(st.tuples(TIMES, PLACES, st.integers(1, 4)), min_size=1, max_size=6),
)
def test_no_read_is_said_to_feed_a_copy_where_none_overlaps(
    copies: list[tuple[int, int, int]], reads: list[tuple[int, int, int]]
) -> None:
    """Compared pair by pair; stretches that copies share count as one, with the last copy of any of them."""
    recorded = trace(
        *[sent(at, place * KIB, size * KIB) for at, place, size in copies],
        storage=[stored(at, at + 1, size * KIB, address=place * KIB) for at, place, size in reads],
    )
    rows = recorded.storage.select("address", "bytes", "end_ns").rows()
    for (address, size, end), memory in zip(rows, read_into(recorded), strict=True):
        over = [
            at
            for at, place, bytes_ in copies
            if place * KIB < address + size and address < (place + bytes_) * KIB
        ]
        if any(at * 1000 >= end for at in over):
            assert memory == "pinned"
        if not over or max(at for at, _, _ in copies) * 1000 < end:
            assert memory is None


def sound(*storage: dict[str, Any]) -> Trace:
    recorded = trace(kernel(10, 20), storage=list(storage))
    make_sound(recorded)
    return recorded


def test_times_count_from_the_runs_first_moment() -> None:
    recorded = sound(stored(12, 15, 10), stored(5, 9, 10))
    assert recorded.storage["start_ns"].to_list() == [-5000, 2000]
    assert recorded.storage["end_ns"].to_list() == [-1000, 5000]


def test_what_cannot_be_is_left_out_and_counted() -> None:
    recorded = sound(
        stored(12, 11, 10),
        stored(12, 15, -1),
        stored(12, 15, 1 << 60),
        stored(1e18, 2e18, 1),
        stored(12, 15, 7),
    )
    assert recorded.storage["bytes"].to_list() == [7]
    assert omitted(recorded)["unsound-storage"] == 4


def test_paths_hold_nothing_that_a_terminal_obeys() -> None:
    path = sound(stored(12, 15, 10, path="/a\x1b[2J\n")).storage["path"][0]
    assert "\x1b" not in path and "\n" not in path
