"""Which rank of a job arrives last, and whether its own work is the reason: waits that a later start of its recording
explains are set apart, and so are delays for which its CPU and GPU did not work.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from busfare.jobs.matching import MESSAGES

NS = 1e-9
#: Whose work takes this much longer than the median's, and more than time stamps are off, is late.
LATE, LATE_NS = 1.02, 5_000
#: Level of significance: a rank like the others is late at so many collectives with less than this probability.
LEVEL = 0.01


class Straggler(Struct, kw_only=True):
    """The rank that arrives last because of its own work, on its CPU or GPU, at so many of the matched collectives; what
    that work took before these, what it took on the median of their ranks, and what the others waited for the difference.
    """

    rank: int
    count: int
    of: int
    work_seconds: float
    median_seconds: float
    awaited_seconds: float

    def causes_most(self, waited_seconds: float) -> bool:
        """Whether its work, at several collectives, is why the ranks waited more than half of so long."""
        return self.count > 1 and 2 * self.awaited_seconds > waited_seconds


def without_recording(members: pl.DataFrame, begun: Mapping[int, int]) -> pl.DataFrame:
    """`members` with `recording`, the part of `wait` that later recordings explain, which is taken off it: at a rank's first
    collective of all, as much as the recording of the last to come began later. Nobody is last where that is most of it.

    `begun`: when the recording of each rank begins, ns, by the clock of members.
    """
    matched = pl.col("joint").is_not_null()
    begin = pl.col("rank").replace_strict(begun, return_dtype=pl.Int64)
    later = (begin.filter("is_last").first().over("joint") - begin).clip(0).fill_null(0)
    recording = pl.when(matched & pl.col("first")).then(pl.min_horizontal("wait", later)).fill_null(0)
    members = members.with_columns(recording=recording)
    explained = 2 * pl.col("recording").sum().over("joint") > pl.col("wait").sum().over("joint")
    return members.with_columns(
        wait=pl.col("wait") - pl.col("recording"), is_last=pl.col("is_last") & ~(matched & explained)
    )


def late_joints(members: pl.DataFrame) -> pl.DataFrame:
    """One row per collective of all `members` (messages have no median). `last`: the rank that arrived last because its CPU
    or GPU worked longer than that of the median rank, or null. `work`, `usual`: the work of both, ns. `waited`: waiting of
    the others caused by the difference; `wait`: all their waiting, ns. `ranks`: list of the members.
    """
    members = members.filter(~pl.col("collective_kind").is_in(MESSAGES).fill_null(False))
    excess = {}
    for name in ("host_ns", "gpu_ns"):
        usual = pl.col(name).quantile(0.5, "lower").over("joint")
        late = pl.col("is_last") & (pl.col(name) > pl.max_horizontal(LATE * usual, usual + LATE_NS))
        excess[name] = pl.struct(
            more=pl.when(late).then(pl.col(name) - usual).fill_null(0).cast(pl.Int64),
            work=pl.col(name), usual=usual.cast(pl.Int64), last=pl.col("rank"),
        )  # fmt: skip
    excesses = members.select("joint", **excess).unpivot(index="joint", value_name="of").unnest("of")
    last = excesses.filter(pl.col("more") > 0).sort("more", descending=True, maintain_order=True)
    last = last.unique("joint", keep="first", maintain_order=True).drop("variable")
    waits = members.select("joint", "rank", "wait").join(last, on="joint", how="left")
    waited = pl.when(pl.col("last").is_not_null()).then(pl.min_horizontal("wait", "more")).sum()
    return waits.group_by("joint").agg(
        pl.col("last", "work", "usual").first(), pl.col("wait").sum(), waited=waited, ranks="rank"
    )


def straggler(late: Sequence[pl.DataFrame]) -> Straggler | None:
    """The rank that its own work makes last significantly more often than chance, over all joints of `late_joints`; of
    several, the rank that causes most waiting. Without such a rank: the rank that is late at the joint that has more than
    half of all waiting, with `count` 1. None if there is neither, for example if different ranks are last each time.
    """
    joints = pl.concat(late)
    delayed, half = joints.drop_nulls("last"), joints["wait"].sum() / 2
    ranks = delayed.group_by("last").agg(pl.len(), pl.col("work", "usual", "waited").sum())
    for row in ranks.sort("waited", "last", descending=[True, False]).iter_rows():
        # Of its joints, those at which some rank is late.
        sizes = delayed.filter(pl.col("ranks").list.contains(row[0]))["ranks"].list.len().to_numpy()
        tests = 1 if row[-1] > half else ranks.height
        if _at_least(row[1], len(sizes), float(np.mean(1 / sizes))) < LEVEL / tests:
            break
    else:
        single = delayed.filter(pl.col("waited") > half)
        if single.is_empty() or joints.height <= 2:  # of two, some joint always has half
            return None
        row = single.select("last", pl.lit(1), "work", "usual", "waited").row(0)
    rank, count, work, usual, waited = row
    times = {"work_seconds": work * NS, "median_seconds": usual * NS, "awaited_seconds": waited * NS}
    return Straggler(rank=rank, count=count, of=joints.height, **times)


def _at_least(count: int, of: int, chance: float) -> float:
    """The binomial probability of `count` (from 1) or more of so many; at most that where chances vary [Hoeffding 1956]."""
    k = np.arange(1, of + 1)
    ratios = (of - k + 1) / k * chance / (1 - chance)  # of the probability of k to that of k - 1
    return float(np.exp(of * np.log1p(-chance) + np.cumsum(np.log(ratios))[count - 1 :]).sum())
