"""The communication of a large job, looked at in blocks, is what it is when looked at as a whole. Made-up ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from busfare.jobs import communication, ranks
from busfare.jobs.ranks import MOMENTS, ROWS, Rank, TraceRank
from busfare.trace.tables import conform

RANKS = 4
CLOCK_NS = [0, 5_000_000, -40_000, 300]


def rows_of_ranks(seed: int, steps: int, skipped: int = 0) -> list[pl.DataFrame]:
    """Of each rank: a collective of all ranks, which the trace numbers, one of its half of them, which it does not, and a
    message to the next rank, whose send ends in a row of its own. Rank 2 is recorded from step `skipped` on.
    """
    generator = np.random.default_rng(seed)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    now = np.full(RANKS, 1_000_000)
    for step in range(steps):
        for name, groups in (("all", [range(RANKS)]), ("half", [(0, 1), (2, 3)])):
            begin = now + generator.integers(1_000, 90_000, RANKS)
            for group in groups:
                end = max(begin[list(group)]) + 20_000
                for rank in group:
                    said = {
                        "communicator": name, "members": ",".join(map(str, group)), "group_size": len(group),
                        "sequence": step if name == "all" else None, "stream": 7,
                    }  # fmt: skip
                    kind = "all_reduce" if step % 3 else "all_gather"
                    rows[rank].append(
                        said
                        | {"collective_kind": kind, "bytes": 1 << 20, "start_ns": begin[rank], "end_ns": end}
                    )
                    now[rank] = end + 500
        for rank in range(0, RANKS, 2):
            said = {"communicator": "pairs", "tag": 3, "sequence": step, "stream": 9, "bytes": 4096}
            sent, received = now[rank] + 100, now[rank + 1] + 700
            end = max(sent, received) + 5_000
            rows[rank] += [
                said | {"collective_kind": "send", "peer": rank + 1, "start_ns": sent, "end_ns": sent + 50},
                said
                | {
                    "collective_kind": "send",
                    "peer": rank + 1,
                    "start_ns": sent + 60,
                    "end_ns": end,
                    "ended": True,
                },
            ]
            rows[rank + 1].append(
                said | {"collective_kind": "receive", "peer": rank, "start_ns": received, "end_ns": end}
            )
            now[rank : rank + 2] = end + 900
    rows[2] = rows[2][4 * skipped :]  # four rows a step
    frames = []
    for rank, own in enumerate(rows):
        frame = pl.DataFrame(own, infer_schema_length=None).with_columns(
            pl.col("start_ns", "end_ns") + CLOCK_NS[rank], process=pl.lit(rank), device=pl.lit(0)
        )
        beside = pl.Series(np.zeros((frame.height, MOMENTS), np.int64), dtype=pl.Array(pl.Int64, MOMENTS))
        frames.append(conform(frame.with_columns(computing_ns=beside), ROWS))
    return frames


RANKED = [Rank(rank, f"rank{rank}", None, rank, TraceRank(rank, 0, 10, 5, 5)) for rank in range(RANKS)]


@pytest.mark.parametrize("skipped", [0, 11])
def test_blocks_say_what_the_whole_says(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    rows = rows_of_ranks(1, 150, skipped)
    whole = communication.communication(rows, RANKED)
    cut: list[int] = []

    def in_blocks(files: Any, count: int) -> list[list[bytes]]:
        cut.append(count)
        return ranks.in_blocks(files, count)

    monkeypatch.setattr(communication, "in_blocks", in_blocks)
    monkeypatch.setattr(communication, "BLOCK_ROWS", 100)
    monkeypatch.setattr(ranks, "TOGETHER_ROWS", 30)
    assert communication.communication(rows, RANKED) == whole
    assert cut == [-(-sum(frame.height for frame in rows) // 100)]
    matched = {(row.communicator, row.kind): row.count for row in whole.collectives if row.ranks}
    assert matched["all", "all_reduce"] == 100  # of those that rank 2 has not, three ranks are matched
    assert matched["pairs", "send_receive"] == 300 - skipped
    halves = [row.count for row in whole.collectives if row.communicator == "half" and row.ranks == 2]
    assert sum(halves) == 300 - skipped


def test_a_call_that_waits_for_several_messages_is_in_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them came last is known only where all are."""
    rows = [frame.with_columns(marker=pl.lit(5, pl.UInt32)) for frame in rows_of_ranks(2, 40)]
    whole = communication.communication(rows, RANKED)
    monkeypatch.setattr(communication, "BLOCK_ROWS", 10)
    monkeypatch.setattr(communication, "in_blocks", None)
    assert communication.communication(rows, RANKED) == whole
