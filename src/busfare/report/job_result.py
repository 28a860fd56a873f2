"""The result of `report` on many traces: one dictionary that the terminal, the page and the JSON all show."""

from __future__ import annotations

from typing import Any

from busfare.cost.ranges import seconds_between
from busfare.job import Job
from busfare.job.bounded import Sampled
from busfare.job.health import SOUND
from busfare.job.partial import Found
from busfare.job.spread import RELATIVE_ERROR, Rank, Spread

__all__ = ["SCHEMA", "job_result"]

SCHEMA = "busfare.report-job/1"
NS = 1e-9
#: The figures spread over ranks: the reducer's name, ours, and what brings it to our unit.
SHOWN = (
    ("makespan_ns", "makespan_seconds", NS),
    ("kernel_ns", "kernel_seconds", NS),
    ("communication_ns", "communication_seconds", NS),
    ("transfer_ns", "transfer_seconds", NS),
    ("exposed_ns", "exposed_seconds", NS),
    ("transfer_bytes", "transfer_bytes", 1),
)
#: An outlier lies this far above the upper quartile, in spans between the quartiles [Tukey 1977], …
TUKEY = 1.5
#: … and this far above the median: quartiles that all but touch make no outliers.
ABOVE_MEDIAN = 1.1
FEWEST_FOR_OUTLIERS = 8
BARS = 40


def job_result(job: Job) -> dict[str, Any]:
    """Everything that `report` says of a job, ready for JSON; its keys are documented in docs/json.md.

    It depends on the traces alone: not on their order, nor on where, how often or by how many they were read.
    """
    sums = job.sums
    gpu_time = sum(sums[name] for name in ("transfer_ns", "kernel_ns", "communication_ns", "graph_ns"))
    slowest, by = job.spreads["makespan_ns"].most()[0]
    return {
        "schema": SCHEMA,
        "traces": {
            "read": job.traces,
            "failed": job.failed,
            "others": job.others,
            "duplicates": job.duplicates,
            "formats": dict(job.formats.items()),
        },
        "ranks": _counted(job.ranks) | {"unknown": job.unranked},
        "hosts": _counted(job.hosts),
        "gpus": [{"name": name, "traces": count} for name, count in _most_first(job.gpus)],
        "nodes": [{"name": name, "traces": count} for name, count in _most_first(job.nodes)],
        "nodes_guessed_from_gpu_name": job.guessed,
        "transfers": {
            "count": sums["transfers"],
            "bytes": sums["transfer_bytes"],
            "seconds": sums["transfer_ns"] * NS,
            "exposed_seconds": sums["exposed_ns"] * NS,
            "share_of_gpu_time": sums["transfer_ns"] / gpu_time if gpu_time else 0.0,
        },
        "kernels": {"count": sums["kernels"], "seconds": sums["kernel_ns"] * NS},
        "communication": {"count": sums["communication"], "seconds": sums["communication_ns"] * NS},
        "graph_work": {"count": sums["graph_work"], "seconds": sums["graph_ns"] * NS},
        "sets": {"count": sums["sets"], "seconds": sums["set_ns"] * NS},
        "makespan_seconds": {"sum": sums["makespan_ns"] * NS, "most": slowest * NS},
        "slowest": _rank(by) | {"makespan_seconds": slowest * NS},
        "quantiles_within": RELATIVE_ERROR,
        "spread": [_spread(name, job.spreads[figure], unit) for figure, name, unit in SHOWN],
        "strip": _strip(job),
        "by_path": _by_path(job),
        "size_histogram": [
            {
                "lower_bytes": sized.lower_bytes,
                "upper_bytes": sized.upper_bytes,
                "count": sized.count,
                "seconds": sized.ns * NS,
            }
            for sized in sorted(job.sizes.values(), key=lambda sized: sized.upper_bytes)
        ],
        "link_health": _health(job),
        "links": _links(job),
        "unrouted_bytes": sums["unrouted_bytes"],
        "findings": _findings(job),
        "omissions": _omissions(job),
        "failures": [{"path": failure.path, "why": failure.why} for failure in job.failures],
    }


def _rank(rank: Rank) -> dict[str, Any]:
    return {"path": rank.path, "rank": rank.rank, "host": rank.host}


def _counted(sample: Sampled[int]) -> dict[str, Any]:
    return {"count": sample.count(), "exact": sample.complete}


def _most_first(sample: Sampled[int]) -> list[tuple[str, int]]:
    return sorted(sample.items(), key=lambda item: (-item[1], item[0]))


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
    cells = job.strip.cells()
    return {
        "ranks_per_cell": cells[0].last - cells[0].first + 1 if cells else 1,
        "figures": [name for _, name, _ in SHOWN],
        "cells": [
            {
                "first_rank": cell.first,
                "last_rank": cell.last,
                "traces": cell.count,
                "mean": [
                    value * unit / cell.count for value, (_, _, unit) in zip(cell.sums, SHOWN, strict=True)
                ],
                "most": [value * unit for value, (_, _, unit) in zip(cell.most, SHOWN, strict=True)],
            }
            for cell in cells
        ],
    }


def _by_path(job: Job) -> list[dict[str, Any]]:
    moved = sorted(
        job.paths.values(),
        key=lambda m: (-m.ns, m.direction or "", m.source_memory or "", m.destination_memory or ""),
    )
    return [
        {
            "direction": m.direction,
            "source_memory": m.source_memory,
            "destination_memory": m.destination_memory,
            "count": m.count,
            "bytes": m.bytes,
            "seconds": m.ns * NS,
            "bytes_per_second": m.bytes / (m.ns * NS) if m.ns else None,
        }
        for m in moved
    ]


def _health(job: Job) -> dict[str, Any]:
    return {
        "links": job.health.links,
        "exact": job.health.complete,
        "slow_below": SOUND,
        "groups": [
            {
                "gpu": group.gpu,
                "direction": group.direction,
                "links": group.links,
                "least_bytes_per_second": group.least,
                "median_bytes_per_second": group.median,
                "most_bytes_per_second": group.most,
                "data_sheet_bytes_per_second": group.data_sheet,
            }
            for group in job.health.groups()
        ],
        "slow": [
            _rank(link.rank)
            | {
                "gpu": link.gpu,
                "device": link.device,
                "peer_device": link.peer,
                "direction": link.direction,
                "bytes_per_second": link.bytes_per_s,
                "share_of_peers": link.share_of_peers,
                "share_of_data_sheet": link.share_of_data_sheet,
                "peers": link.peers,
            }
            for link in job.health.slow()
        ],
    }


def _links(job: Job) -> list[dict[str, Any]]:
    def one_way(size: int, wire: int, rate: float | None) -> dict[str, Any]:
        return {"bytes": size, "wire_bytes": wire, "predicted_seconds": wire / rate if rate else None}

    return [
        {
            "node": link.node,
            "between": [link.first, link.second],
            "link": link.label,
            "copies": link.copies,
            "forward": one_way(link.forward_bytes, link.forward_wire_bytes, link.line_bytes_per_s),
            "back": one_way(link.back_bytes, link.back_wire_bytes, link.line_bytes_per_s),
        }
        for link in job.traffic.values()
    ]


def _findings(job: Job) -> list[dict[str, Any]]:
    found = sorted(
        job.findings.items(), key=lambda item: (-item[1].largest.gain_ns, -item[1].traces, item[0])
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


def _largest_range(found: Found) -> dict[str, Any]:
    low, high = (None if end is None else end * NS for end in (found.low_ns, found.high_ns))
    return seconds_between(low, high, "calibrated", "nothing in the trace bounds it")


def _omissions(job: Job) -> list[dict[str, Any]]:
    """What the job's report does not tell, then what its traces do not."""
    own = [
        ("unreadable", job.failed, "files could not be read and are in no figure here: see the failures"),
        ("not-traces", job.others, "files of the folders are no traces: passed over"),
        ("duplicates", job.duplicates, "paths lead to a file that has another path here: counted once"),
        (
            "idle-processes",
            job.apart,
            "traces of processes that gave the GPU no work, and that nobody called a rank: not in the spread",
        ),
        ("unknown-rank", job.unranked, "traces do not say which rank they are of: not in the strip of ranks"),
        (
            "several-of-a-rank",
            job.traces - job.unranked - job.ranks.count() if job.ranks.complete else 0,
            "traces are of a rank that has another trace here: each stands for itself",
        ),
        (
            "guessed-node",
            job.guessed,
            "traces' nodes were guessed from the GPU's name: set --from for gains, data-sheet rates and links",
        ),
        (
            "sampled-links",
            0 if job.health.complete else job.health.links,
            "links are more than are kept at once: link health looks at a fair sample of them",
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
    for id, left in sorted(job.omissions.items(), key=lambda item: (-item[1].traces, item[0])):
        what = left.what if left.traces == 1 else f"{left.what} (as the first says it)"
        omissions.append({"id": id, "count": left.count, "traces": left.traces, "what": what})
    return omissions
