"""Which rank each process of a job is: as its recording says, whatever order processes have."""

from __future__ import annotations

from busfare.jobs.ranks import TraceRank, numbered


def held(rank: int | None, process: int) -> TraceRank:
    return TraceRank(process, 0, 1, 1, 0, rank=rank)


def test_a_file_of_several_processes_says_the_rank_of_each() -> None:
    ranks = numbered([("job", None, "host", [held(1, 459), held(0, 460)])])
    assert [(r.rank, r.times.process) for r in ranks] == [(1, 459), (0, 460)]


def test_what_says_no_rank_or_a_taken_one_gets_what_is_left() -> None:
    one = [TraceRank(7, 0, 1, 1, 0)]
    ranks = numbered(
        [
            ("a", 2, None, one),
            ("b", 2, None, one),
            ("c", None, None, one),
            ("d", 0, None, [held(None, 1), held(3, 2)]),
        ]
    )
    assert [(r.path, r.rank) for r in ranks] == [("a", 2), ("b", 0), ("c", 1), ("d", 4), ("d", 3)]
