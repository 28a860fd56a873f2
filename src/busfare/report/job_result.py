"""The result of `report` on many traces: one dictionary that the terminal, the page and the JSON all show."""

from __future__ import annotations

from collections import Counter
from typing import Any

from busfare.cost.ranges import seconds_between
from busfare.job import Job
from busfare.job.links import SOUND, peers, slow_links
from busfare.job.partial import Advice
from busfare.job.reduce import Rank, Spread

__all__ = ["SCHEMA", "job_result"]

SCHEMA = "busfare.report-job/1"
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
BARS = 40
FAILURES_LISTED = 100


def job_result(job: Job) -> dict[str, Any]:
    """Everything that `report` says of a job, ready for JSON; its keys are documented in docs/json.md.

    It depends on the traces alone: not on their order, nor on where, how often or by how many they were read.
    """
    sums = job.sums
    gpu_time = sum(sums[name] for name in ("transfers_ns", "kernel_ns", "communication_ns", "graph_ns"))
    slowest, by = job.spread("makespan_ns").most()[0]
    return {
        "schema": SCHEMA,
        "traces": {
            "read": job.traces,
            "failed": len(job.failures),
            "others": job.others,
            "duplicates": job.duplicates,
            "formats": dict(sorted(job.formats.items())),
        },
        "ranks": {"count": len(set(job.ranks())), "exact": True, "unknown": job.traces - len(job.ranks())},
        "hosts": {"count": len(job.hosts()), "exact": True},
        "gpus": [{"name": name, "traces": count} for name, count in _most_first(job.gpus)],
        "nodes": [{"name": name, "traces": count} for name, count in _most_first(job.nodes)],
        "nodes_guessed_from_gpu_name": job.guessed,
        "transfers": {
            "count": sums["transfers_count"],
            "bytes": sums["transfers_bytes"],
            "seconds": sums["transfers_ns"] * NS,
            "exposed_seconds": sums["transfers_exposed_ns"] * NS,
            "share_of_gpu_time": sums["transfers_ns"] / gpu_time if gpu_time else 0.0,
        },
        "kernels": {"count": sums["kernels"], "seconds": sums["kernel_ns"] * NS},
        "communication": {"count": sums["communication"], "seconds": sums["communication_ns"] * NS},
        "graph_work": {"count": sums["graph_work"], "seconds": sums["graph_ns"] * NS},
        "sets": {"count": sums["sets"], "seconds": sums["set_ns"] * NS},
        "makespan_seconds": {"sum": sums["makespan_ns"] * NS, "most": slowest * NS},
        "slowest": _rank(by) | {"makespan_seconds": slowest * NS},
        "quantiles_within": 0.0,
        "spread": [_spread(name, job.spread(figure), unit) for figure, name, unit in SHOWN],
        "strip": _strip(job),
        "by_path": _by_path(job),
        "size_histogram": [
            {
                "lower_bytes": lower,
                "upper_bytes": upper,
                "count": sized.count,
                "seconds": sized.ns * NS,
            }
            for (lower, upper), sized in sorted((sized.of, sized) for sized in job.sizes.values())
        ],
        "link_health": _health(job),
        "links": _links(job),
        "unrouted_bytes": sums["unrouted_bytes"],
        "findings": _findings(job),
        "omissions": _omissions(job),
        "failures": [{"path": path, "why": why} for path, why in sorted(job.failures)[:FAILURES_LISTED]],
    }


def _rank(rank: Rank) -> dict[str, Any]:
    return {"path": rank.path, "rank": rank.rank, "host": rank.host}


def _most_first(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _spread(name: str, spread: Spread, unit: float) -> dict[str, Any]:
    median, upper = spread.quantile(0.5), spread.quantile(0.75)
    limit = max(upper + TUKEY * (upper - spread.quantile(0.25)), ABOVE_MEDIAN * median)
    judged = spread.count >= FEWEST_FOR_OUTLIERS and median > 0
    return {
        "figure": name,
        "sum": spread.sum * unit,
        "mean": spread.sum * unit / spread.count,
        "least": spread.least()[0][0] * unit,
        "quartile": spread.quantile(0.25) * unit,
        "median": median * unit,
        "upper_quartile": upper * unit,
        "p95": spread.quantile(0.95) * unit,
        "most": spread.most()[0][0] * unit,
        "outliers": {
            "above": limit * unit if judged else None,
            "count": spread.above(limit) if judged else 0,
            "listed": [
                _rank(rank) | {"value": value * unit, "of_median": value / median}
                for value, rank in spread.most()
                if judged and value > limit
            ],
        },
        "largest": [_rank(rank) | {"value": value * unit} for value, rank in spread.most()],
        "smallest": [_rank(rank) | {"value": value * unit} for value, rank in spread.least()],
        "bars": [
            {"lower": lower * unit, "upper": upper * unit, "count": count}
            for lower, upper, count in spread.bars(BARS)
        ],
    }


def _strip(job: Job) -> dict[str, Any]:
    cells = job.strip()
    return {
        "ranks_per_cell": cells[0].last - cells[0].first + 1 if cells else 1,
        "figures": [name for _, name, _ in SHOWN],
        "cells": [
            {
                "first_rank": cell.first,
                "last_rank": cell.last,
                "traces": cell.traces,
                "mean": [
                    value * unit / cell.traces for value, (_, _, unit) in zip(cell.sums, SHOWN, strict=True)
                ],
                "most": [value * unit for value, (_, _, unit) in zip(cell.most, SHOWN, strict=True)],
            }
            for cell in cells
        ],
    }


def _by_path(job: Job) -> list[dict[str, Any]]:
    moved = sorted(job.paths.values(), key=lambda m: (-m.ns, *(memory or "" for memory in m.of)))
    return [
        {
            **dict(zip(("direction", "source_memory", "destination_memory"), m.of, strict=True)),
            "count": m.count,
            "bytes": m.bytes,
            "seconds": m.ns * NS,
            "bytes_per_second": m.bytes / (m.ns * NS) if m.ns else None,
        }
        for m in moved
    ]


def _health(job: Job) -> dict[str, Any]:
    links = job.links()
    slow = (
        *("path", "rank", "host", "gpu", "device", "peer_device", "direction", "bytes_per_second"),
        *("share_of_peers", "share_of_data_sheet", "peers"),
    )
    return {
        "links": links.height,
        "exact": True,
        "slow_below": SOUND,
        "groups": peers(links).to_dicts(),
        "slow": slow_links(links).select(slow).to_dicts(),
    }


def _links(job: Job) -> list[dict[str, Any]]:
    def one_way(size: int, wire: int, rate: float | None) -> dict[str, Any]:
        return {"bytes": size, "wire_bytes": wire, "predicted_seconds": wire / rate if rate else None}

    return [
        {
            "node": link.link[0],
            "between": list(link.between),
            "link": link.label,
            "copies": link.copies,
            "forward": one_way(link.forward_bytes, link.forward_wire_bytes, link.line_bytes_per_s),
            "back": one_way(link.back_bytes, link.back_wire_bytes, link.line_bytes_per_s),
        }
        for _, link in sorted((link.link, link) for link in job.traffic.values())
    ]


def _findings(job: Job) -> list[dict[str, Any]]:
    found = sorted(
        job.findings.items(), key=lambda item: (-item[1].largest.gain_ns, -item[1].traces, str(item[0]))
    )
    return [
        {
            "id": id,
            "title": finding.largest.title,
            "traces": finding.traces,
            "predicted_gain_seconds": finding.largest.gain_ns * NS,
            **_largest_range(finding.largest),
            "traces_without_gain": 0,  # every gain has a bound
            "traces_by_replay": finding.replayed,
            "overlaps_with": list(finding.largest.overlaps_with),
            "largest": _rank(finding.rank)
            | {
                "evidence": finding.largest.evidence,
                "change": finding.largest.change,
                "predicted_gain_seconds": finding.largest.gain_ns * NS,
                **_largest_range(finding.largest),
                "by_replay": finding.largest.by_replay,
                "rests_on": list(finding.largest.rests_on),
                "what_if": list(finding.largest.what_if),
            },
        }
        for id, finding in found
    ]


def _largest_range(found: Advice) -> dict[str, Any]:
    low, high = (None if end is None else end * NS for end in (found.low_ns, found.high_ns))
    return seconds_between(low, high, "calibrated", "nothing in the trace bounds it")


def _omissions(job: Job) -> list[dict[str, Any]]:
    """What the job's report does not tell, then what its traces do not."""
    own = [
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
            job.traces - len(job.ranks()),
            "traces do not say which rank they are of: not in the strip of ranks",
        ),
        (
            "several-of-a-rank",
            len(job.ranks()) - len(set(job.ranks())),
            "traces are of a rank that has another trace here: each stands for itself",
        ),
        (
            "guessed-node",
            job.guessed,
            "traces' nodes were guessed from the GPU's name: set --from for gains, data-sheet rates and links",
        ),
    ]
    omissions: list[dict[str, Any]] = [
        {"id": id, "count": count, "traces": None, "what": what} for id, count, what in own if count
    ]
    if job.sums["unrouted_bytes"]:
        omissions.append(
            {
                "id": "unrouted",
                "count": job.sums["unrouted_bytes"],
                "traces": None,
                "what": "bytes were copied over paths that are not known (no node, or the peer GPU is not told): "
                "in no link's traffic",
            }
        )
    for id, left in sorted(job.omissions.items(), key=lambda item: (-item[1].traces, str(item[0]))):
        what = left.order[1] if left.traces == 1 else f"{left.order[1]} (as the first says it)"
        omissions.append({"id": id, "count": left.count, "traces": left.traces, "what": what})
    return omissions
