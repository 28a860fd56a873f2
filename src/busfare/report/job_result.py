"""The result of `report` on many traces: one Struct that the terminal, the page and the JSON all show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from busfare.cost.ranges import seconds_between
from busfare.job import Job
from busfare.job.links import SOUND, peers, slow_links
from busfare.job.partial import Advice, Moved
from busfare.job.reduce import Rank, Spread
from busfare.report.job_results import (
    Bin,
    Carried,
    Different,
    Failure,
    Group,
    JobFound,
    JobReport,
    LargestFound,
    Left,
    LinkHealth,
    Makespans,
    Named,
    Outlier,
    Outliers,
    Ranks,
    RankStrip,
    Read,
    Slow,
    Slowest,
    Spreading,
    StripCell,
    Traffic,
    Valued,
)
from busfare.report.results import Counted, MovedInAll, Path, Sized, rows_of

__all__ = ["job_result"]

NS = 1e-9
#: The figures spread over ranks: the reducer's name, ours, and what brings it to our unit.
SHOWN = (
    ("makespan_ns", "makespan_seconds", NS),
    ("kernel_ns", "kernel_seconds", NS),
    ("communication_ns", "communication_seconds", NS),
    ("transfers_ns", "transfer_seconds", NS),
    ("transfers_exposed_ns", "exposed_seconds", NS),
    ("transfers_bytes", "transfer_bytes", 1),
)
#: An outlier lies this far above the upper quartile, in spans between the quartiles [Tukey 1977], …
TUKEY = 1.5
#: … and this far above the median: quartiles that all but touch make no outliers.
ABOVE_MEDIAN = 1.1
FEWEST_FOR_OUTLIERS = 8
BARS, FAILURES_LISTED = 40, 100


def job_result(job: Job) -> JobReport:
    """Everything that `report` says of a job.

    It depends on the traces alone: not on their order, nor on where, how often or by how many they were read.
    """
    sums, ranks = job.sums, job.ranks()
    gpu_time = sum(sums[name] for name in ("transfers_ns", "kernel_ns", "communication_ns", "graph_ns"))
    slowest, by = job.spread("makespan_ns").most()[0]
    paths = sorted(job.paths.values(), key=lambda m: (-m.ns, *(memory or "" for memory in m.of)))
    sizes = sorted(job.sizes.values(), key=lambda sized: sized.of)
    return JobReport(
        traces=Read(
            job.traces, len(job.failures), job.others, job.duplicates, dict(sorted(job.formats.items()))
        ),
        ranks=Ranks(len(set(ranks)), True, job.traces - len(ranks)),
        hosts=Different(len(job.hosts()), True),
        gpus=_most_first(job.gpus),
        nodes=_most_first(job.nodes),
        nodes_guessed_from_gpu_name=job.guessed,
        transfers=MovedInAll(
            count=sums["transfers_count"],
            bytes=sums["transfers_bytes"],
            seconds=sums["transfers_ns"] * NS,
            exposed_seconds=sums["transfers_exposed_ns"] * NS,
            share_of_gpu_time=sums["transfers_ns"] / gpu_time if gpu_time else 0.0,
        ),
        kernels=Counted(sums["kernels"], sums["kernel_ns"] * NS),
        communication=Counted(sums["communication"], sums["communication_ns"] * NS),
        graph_work=Counted(sums["graph_work"], sums["graph_ns"] * NS),
        sets=Counted(sums["sets"], sums["set_ns"] * NS),
        makespan_seconds=Makespans(sums["makespan_ns"] * NS, slowest * NS),
        slowest=Slowest(**_rank(by), makespan_seconds=slowest * NS),
        quantiles_within=0.0,
        spread=[_spread(name, job.spread(figure), unit) for figure, name, unit in SHOWN],
        strip=_strip(job),
        by_path=rows_of(Path, map(_path, paths)),
        size_histogram=rows_of(Sized, (_moved(("lower_bytes", "upper_bytes"), sized) for sized in sizes)),
        link_health=_health(job),
        links=_links(job),
        unrouted_bytes=sums["unrouted_bytes"],
        findings=_findings(job),
        omissions=list(_omissions(job)),
        failures=[Failure(*failure) for failure in sorted(job.failures)[:FAILURES_LISTED]],
    )


def _rank(rank: Rank) -> dict[str, Any]:
    return {"path": rank.path, "rank": rank.rank, "host": rank.host}


def _moved(keys: Sequence[str], moved: Moved) -> dict[str, Any]:
    return dict(zip(keys, moved.of, strict=True)) | {"count": moved.count, "seconds": moved.ns * NS}


def _path(moved: Moved) -> dict[str, Any]:
    rate = moved.bytes / (moved.ns * NS) if moved.ns else None
    row = _moved(("direction", "source_memory", "destination_memory"), moved)
    return row | {"bytes": moved.bytes, "bytes_per_second": rate}


def _most_first(counts: Counter[str]) -> list[Named]:
    return [Named(*item) for item in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _spread(name: str, spread: Spread, unit: float) -> Spreading:
    quartile, median, upper = (spread.quantile(part) for part in (0.25, 0.5, 0.75))
    limit = max(upper + TUKEY * (upper - quartile), ABOVE_MEDIAN * median)
    judged = spread.count >= FEWEST_FOR_OUTLIERS and median > 0
    most, least = spread.most(), spread.least()
    outlying = [
        Outlier(**_rank(rank), value=value * unit, of_median=value / median)
        for value, rank in most
        if judged and value > limit
    ]
    return Spreading(
        figure=name,
        sum=spread.sum * unit,
        mean=spread.sum * unit / spread.count,
        least=least[0][0] * unit,
        quartile=quartile * unit,
        median=median * unit,
        upper_quartile=upper * unit,
        p95=spread.quantile(0.95) * unit,
        most=most[0][0] * unit,
        outliers=Outliers(limit * unit if judged else None, spread.above(limit) if judged else 0, outlying),
        largest=[Valued(**_rank(rank), value=value * unit) for value, rank in most],
        smallest=[Valued(**_rank(rank), value=value * unit) for value, rank in least],
        bars=[Bin(lower * unit, upper * unit, count) for lower, upper, count in spread.bars(BARS)],
    )


def _strip(job: Job) -> RankStrip:
    cells, units = job.strip(), [unit for *_, unit in SHOWN]
    rows = [
        StripCell(
            cell.first,
            cell.last,
            cell.traces,
            mean=[value * unit / cell.traces for value, unit in zip(cell.sums, units, strict=True)],
            most=[value * unit for value, unit in zip(cell.most, units, strict=True)],
        )
        for cell in cells
    ]
    return RankStrip(cells[0].last - cells[0].first + 1 if cells else 1, [name for _, name, _ in SHOWN], rows)


def _health(job: Job) -> LinkHealth:
    links = job.links()
    return LinkHealth(
        links.height, True, SOUND, rows_of(Group, peers(links)), rows_of(Slow, slow_links(links))
    )


def _links(job: Job) -> list[Traffic]:
    def one_way(size: int, wire: int, rate: float | None) -> Carried:
        return Carried(size, wire, wire / rate if rate else None)

    return [
        Traffic(
            link.link[0],
            list(link.between),
            link.label,
            link.copies,
            forward=one_way(link.forward_bytes, link.forward_wire_bytes, link.line_bytes_per_s),
            back=one_way(link.back_bytes, link.back_wire_bytes, link.line_bytes_per_s),
        )
        for link in sorted(job.traffic.values(), key=lambda link: link.link)
    ]


def _findings(job: Job) -> list[JobFound]:
    by_gain = sorted(
        job.findings.items(), key=lambda item: (-item[1].largest.gain_ns, -item[1].traces, str(item[0]))
    )
    return [
        JobFound(
            id=str(id),
            title=finding.largest.title,
            traces=finding.traces,
            predicted_gain_seconds=finding.largest.gain_ns * NS,
            **_between(finding.largest),
            traces_without_gain=0,  # every gain has a bound
            traces_by_replay=finding.replayed,
            overlaps_with=list(finding.largest.overlaps_with),
            largest=LargestFound(
                **_rank(finding.rank),
                evidence=finding.largest.evidence,
                change=finding.largest.change,
                predicted_gain_seconds=finding.largest.gain_ns * NS,
                **_between(finding.largest),
                by_replay=finding.largest.by_replay,
                rests_on=list(finding.largest.rests_on),
                what_if=list(finding.largest.what_if),
            ),
        )
        for id, finding in by_gain
    ]


def _between(advice: Advice) -> dict[str, Any]:
    low, high = (None if end is None else end * NS for end in (advice.low_ns, advice.high_ns))
    return seconds_between(low, high, "calibrated", "nothing in the trace bounds it")


def _omissions(job: Job) -> Iterator[Left]:
    """What the job's report does not tell, then what its traces do not."""
    ranks = job.ranks()
    several = len(ranks) - len(set(ranks))
    for id, count, what in (
        (
            "unreadable",
            len(job.failures),
            "files could not be read and are in no figure here: see the failures",
        ),
        ("not-traces", job.others, "files of the folders are no traces: passed over"),
        ("duplicates", job.duplicates, "paths lead to a file that has another path here: counted once"),
        (
            "idle-processes",
            job.apart,
            "traces of processes that gave the GPU no work, and that nobody called a rank: not in the spread",
        ),
        (
            "unknown-rank",
            job.traces - len(ranks),
            "traces do not say which rank they are of: not in the strip of ranks",
        ),
        (
            "several-of-a-rank",
            several,
            "traces are of a rank that has another trace here: each stands for itself",
        ),
        (
            "guessed-node",
            job.guessed,
            "traces' nodes were guessed from the GPU's name: set --from for gains, data-sheet rates and links",
        ),
        (
            "unrouted",
            job.sums["unrouted_bytes"],
            "bytes were copied over paths that are not known (no node, or the peer GPU is not told): in no link's traffic",
        ),
    ):
        if count:
            yield Left(id, count, None, what)
    for name, left in sorted(job.omissions.items(), key=lambda item: (-item[1].traces, str(item[0]))):
        what = left.order[1] if left.traces == 1 else f"{left.order[1]} (as the first says it)"
        yield Left(str(name), left.count, left.traces, what)
