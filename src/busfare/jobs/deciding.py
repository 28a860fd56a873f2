"""The ranks of a job that decide how long it takes, where all of them together do not fit into memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from busfare.jobs.memory import free_memory
from busfare.jobs.parts import LEAST_RANKS
from busfare.jobs.results import JobReport, RankTimes
from busfare.jobs.work import stamp_of
from busfare.trace import Omission, Trace

#: What a call or an operation takes at most while a job is replayed: 636 in 49 ranks of benchmarks/large_job.py.
BYTES_A_ROW = 700
#: Of a job that does not fit, ranks of so many rows are replayed at most: 2.8 GB.
SOME_ROWS = 4_000_000
#: Of the ranks that are replayed, those that others wait for; the rest are spread over all others.
AWAITED = 1 / 3


@dataclass(frozen=True)
class Deciding:
    """Traces of some ranks, each with how many like it there are; `ranks`: the number of the rank that each is of, where it
    is of one alone; `size`: the ranks of the whole job; `left_out` says what is not there.
    """

    paths: dict[Path, float]
    ranks: dict[Path, int]
    size: int
    left_out: Omission


def rows_that_fit() -> int:
    """Rows of calls and operations that half of the free memory holds while they are replayed."""
    return free_memory() // 2 // BYTES_A_ROW


def rows_of_all(sample: Trace, paths: Sequence[Path]) -> int:
    """About how many calls and operations the traces at `paths` have, by the `sample` among them."""
    sizes = {path: stamp[0] if (stamp := stamp_of(str(path))) else 0 for path in paths}
    own = max(sizes.get(sample.path, 0), 1)
    return (sample.calls.height + sample.operations.height) * sum(sizes.values()) // own


def largest(paths: Sequence[Path]) -> Path:
    """The largest of the traces at `paths`: what the others take is told from it."""
    return max(paths, key=lambda path: stamp[0] if (stamp := stamp_of(str(path))) else 0)


def ranks_that_fit(ranks: int, rows: int) -> int | None:
    """Of a job's `ranks` with `rows` calls and operations how many are replayed; None where all are."""
    most = rows_that_fit()
    return None if rows <= most else min(most, SOME_ROWS) * ranks // rows


def deciding(report: JobReport, count: int, named: Collection[int] = ()) -> Deciding:
    """About `count` traces of the job that `report` is of: of the ranks `named`, of those that the others wait for most, and
    of some spread over all others by the time that they do not wait.
    """
    by_path: dict[str, list[RankTimes]] = {}
    for one in report.ranks:
        by_path.setdefault(one.path, []).append(one)
    awaited = {path: sum(one.awaited_seconds for one in ranks) for path, ranks in by_path.items()}
    busy = {
        path: max(one.makespan_seconds - one.waiting_seconds for one in ranks)
        for path, ranks in by_path.items()
    }
    count = min(max(count, LEAST_RANKS), len(by_path))
    most = sorted(awaited, key=lambda path: (-awaited[path], path))[: round(count * AWAITED)]
    alone = [path for path, ranks in by_path.items() if any(one.rank in named for one in ranks)]
    alone += [path for path in most if awaited[path] > 0]
    chosen = dict.fromkeys(alone, 1.0)
    others = sorted((path for path in by_path if path not in chosen), key=lambda path: (busy[path], path))
    left = max(0, count - len(chosen))
    spread = [others[(2 * place + 1) * len(others) // (2 * left)] for place in range(left)]
    chosen |= dict.fromkeys(spread, len(others) / max(left, 1))
    whole = sum(awaited.values())
    share = sum(awaited[path] for path in chosen) / whole if whole else 1.0
    some = [path for path in by_path if path in chosen]
    return Deciding(
        paths={Path(path): chosen[path] for path in some},
        ranks={Path(path): by_path[path][0].rank for path in some if len(by_path[path]) == 1},
        size=len(report.ranks),
        left_out=Omission(
            "ranks-left-out",
            len(by_path) - len(some),
            f"traces are too many to be replayed beside {len(some):,} others: those of ranks for which the others wait "
            f"({share:.0%} of all waiting), and of some spread over the rest; what these wait for the others stays",
        ),
    )
