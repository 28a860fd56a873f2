"""The whole job out of its traces' partials: exact sums, in whatever order they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict, astuple

from busfare.jobs import results
from busfare.jobs.communication import communication
from busfare.jobs.links import LinkRate, LinkTraffic, link_health
from busfare.jobs.partial import COUNTED, PATH, SIZES, Moved, Partial
from busfare.jobs.ranks import TraceRank, Unpacked, numbered
from busfare.jobs.results import Carried, Communication, JobFinding, JobReport, Left, Named, Ranked
from busfare.jobs.spread import spread, strip
from busfare.results import Path, RangedFinding, Sized, rows_of
from busfare.trace.totals import Counted, MovedInAll

NS = 1e-9
#: What is spread over ranks: names of a partial's sums, and in the result, with the unit there.
FIGURES = {
    "makespan_ns": ("makespan_seconds", NS),
    "kernels_ns": ("kernel_seconds", NS),
    "communication_ns": ("communication_seconds", NS),
    "transfers_ns": ("transfer_seconds", NS),
    "transfers_exposed_ns": ("exposed_seconds", NS),
    "transfers_bytes": ("transfer_bytes", 1),
}
#: What a process did with a GPU; one that did none of it, and that nobody called a rank, is a launcher.
WORK = tuple(f"{name}_count" for name in ("transfers", *COUNTED))
FAILURES_LISTED = 100
#: What a report leaves out, beside what its traces do.
LEFT_OUT = {
    "unreadable": "files could not be read and are in no figure here: see the failures",
    "not-traces": "files of the folders are no traces: passed over",
    "duplicates": "paths lead to a run that has another path or file here: counted once",
    "idle-processes": "traces of processes that gave the GPU no work, and that nobody called a rank: not in the spread",
    "unknown-rank": "traces do not say which rank they are of: not in the strip of ranks",
    "several-of-a-rank": "traces are of a rank that has another trace here: each stands for itself",
    "guessed-node": "traces' nodes were guessed from what is told of the GPU: set --from for gains, data-sheet rates and "
    "links",
    "unrouted": "bytes were copied over paths that are not known (no node, or the peer GPU is not told): in no link's "
    "traffic",
}


class Best(Struct, frozen=True):
    """A finding over all traces that have it; `value` and `rank` are the first by `order`."""

    traces: int
    replayed: int
    value: RangedFinding
    rank: Ranked

    @property
    def order(self) -> tuple[float, str]:
        return -self.value.predicted_gain_seconds, self.rank.path


class Omitted(Struct, frozen=True):
    """An omission over all traces that have it; `order`: path and words of the first of them."""

    traces: int
    count: int
    order: tuple[str, str]


T = TypeVar("T", Moved, LinkTraffic, Best, Omitted)


def _join(into: dict[Hashable, T], name: Hashable, value: T) -> None:
    """Joins `value` to what stands under `name`: whole numbers add up, the rest is that of the first by `order`."""
    both = [value, into[name]] if name in into else [value]
    columns = zip(*map(astuple, sorted(both, key=lambda one: getattr(one, "order", ()))), strict=True)
    into[name] = type(value)(*(sum(column) if type(column[0]) is int else column[0] for column in columns))


class Job:
    """What is known of the job so far; partials may come in any order. Its memory grows by a few numbers a trace."""

    def __init__(self) -> None:
        self.others = 0  # files of a folder that are no traces
        self.duplicates = 0  # paths that lead to a file that has its part already
        self.failures: list[tuple[str, str]] = []  # path and reason
        self._guessed = 0  # traces whose node was guessed from the GPU's name
        self._sums: Counter[str] = Counter()
        self._formats: Counter[str] = Counter()
        self._nodes: Counter[str] = Counter()
        self._gpus: Counter[str] = Counter()
        self._paths: dict[Hashable, Moved] = {}
        self._sizes: dict[Hashable, Moved] = {}
        self._findings: dict[Hashable, Best] = {}
        self._omissions: dict[Hashable, Omitted] = {}
        self._traffic: dict[Hashable, LinkTraffic] = {}
        self._links: dict[Hashable, tuple[LinkRate, Ranked]] = {}
        self._working: list[tuple[Ranked, list[int]]] = []
        self._idle: list[tuple[Ranked, list[int]]] = []
        self._communicating: list[tuple[str, int | None, str | None, list[TraceRank], bytes]] = []

    def add(self, path: str, part: Partial) -> None:
        """Takes in the partial of the trace at `path`."""
        rank = Ranked(path=path, rank=part.rank, host=part.host)
        idle = rank.rank is None and not any(part.sums[name] for name in WORK)
        (self._idle if idle else self._working).append((rank, [part.sums[name] for name in FIGURES]))
        self._communicating.append(
            (path, part.rank, part.host, [] if idle else part.ranks, part.communicating)
        )
        self._guessed += part.node_guessed
        self._sums.update(part.sums)
        self._formats[part.format] += 1
        self._nodes.update([part.node] if part.node else [])
        self._gpus.update(part.gpus)
        for moved in part.by_path:
            _join(self._paths, moved.of, moved)
        for sized in part.sizes:
            _join(self._sizes, sized.of, sized)
        for crossed in part.traffic:
            _join(self._traffic, crossed.link, crossed)
        for rate in part.rates:
            # Ranks may each call another GPU 0: only an identity, or the rank, tells GPUs apart.
            gpu = rate.identity or (path if rank.rank is None else rank.rank, rate.device)
            link = rank.host, gpu, rate.peer_device, rate.direction
            seen = (rate, rank), self._links.get(link, (rate, rank))
            self._links[link] = min(seen, key=lambda one: (-one[0].bytes_per_second, one[1].path))
        for finding in part.findings:
            _join(self._findings, finding.id, _best(finding, rank))
        counted: set[str] = set()  # a trace counts once, however often it says the same
        for omission in part.omissions:
            omitted = Omitted(int(omission.id not in counted), omission.count, (path, omission.what))
            _join(self._omissions, omission.id, omitted)
            counted.add(omission.id)

    @property
    def traces(self) -> int:
        return len(self._working) + len(self._idle)

    def result(self) -> JobReport:
        """Everything that `report` says of the job, of at least one trace.

        It depends on the traces alone: not on their order, nor on where, how often or by how many they were read.
        """
        sums, every = self._sums, self._working + self._idle
        gpu_time = sum(sums[f"{name}_ns"] for name in ("transfers", "kernels", "communication", "graph_work"))
        ranked = [(rank.rank, figures) for rank, figures in self._working if rank.rank is not None]
        ranks = {rank for rank, _ in ranked}
        # Over the traces in which a GPU worked or that are of a rank; over all where there is no such trace.
        spreads = [
            spread(name, [(figures[at], rank) for rank, figures in self._working or self._idle], unit)
            for at, (name, unit) in enumerate(FIGURES.values())
        ]
        slowest = spreads[0].largest[0]
        together = self._together()
        return JobReport(
            traces=results.Read(
                self.traces,
                len(self.failures),
                self.others,
                self.duplicates,
                dict(sorted(self._formats.items())),
            ),
            ranks=together.ranks,
            ranks_seen=results.Ranks(len(ranks), True, self.traces - len(ranked)),
            hosts=results.Different(len({rank.host for rank, _ in every} - {None}), True),
            gpus=_most_first(self._gpus),
            nodes=_most_first(self._nodes),
            nodes_guessed_from_gpu_name=self._guessed,
            transfers=MovedInAll(
                count=sums["transfers_count"],
                bytes=sums["transfers_bytes"],
                seconds=sums["transfers_ns"] * NS,
                exposed_seconds=sums["transfers_exposed_ns"] * NS,
                share_of_gpu_time=sums["transfers_ns"] / gpu_time if gpu_time else 0.0,
            ),
            **{name: Counted(sums[f"{name}_count"], sums[f"{name}_ns"] * NS) for name in COUNTED},
            makespan_seconds=results.Makespans(sums["makespan_ns"] * NS, slowest.value),
            slowest=results.Slowest(
                path=slowest.path, rank=slowest.rank, host=slowest.host, makespan_seconds=slowest.value
            ),
            quantiles_within=0.0,
            spread=spreads,
            strip=strip(dict(FIGURES.values()), ranked),
            by_path=rows_of(Path, map(_moved, sorted(self._paths.values(), key=_by_time))),
            size_histogram=rows_of(Sized, map(_moved, sorted(self._sizes.values(), key=lambda one: one.of))),
            link_health=link_health(self._links.values()),
            links=[_traffic(link) for link in sorted(self._traffic.values(), key=lambda link: link.link)],
            unrouted_bytes=sums["unrouted_bytes"],
            collectives=together.collectives,
            clocks=together.clocks,
            findings=_listed(self._findings),
            gains_of_whole_job=False,
            omissions=[*together.left_out, *self._left_out(len(ranked), len(ranks))],
            failures=[results.Failure(*failure) for failure in sorted(self.failures)[:FAILURES_LISTED]],
        )

    def _together(self) -> Communication:
        """What the ranks do together; each file has a clock."""
        files = sorted(self._communicating, key=lambda file: file[0])
        return communication(Unpacked([file[-1] for file in files]), numbered([file[:-1] for file in files]))

    def _left_out(self, ranked: int, ranks: int) -> Iterator[Left]:
        """What the job's report does not tell, then what its traces do not."""
        idle = len(self._idle) if self._working else 0
        files = [len(self.failures), self.others, self.duplicates]
        traces = [idle, self.traces - ranked, ranked - ranks, self._guessed]
        counts = [*files, *traces, self._sums["unrouted_bytes"]]
        for (id, what), count in zip(LEFT_OUT.items(), counts, strict=True):
            if count:
                yield Left(id, count, None, what)
        for name, left in sorted(self._omissions.items(), key=lambda item: (-item[1].traces, str(item[0]))):
            what = left.order[1] if left.traces == 1 else f"{left.order[1]} (as the first says it)"
            yield Left(str(name), left.count, left.traces, what)


def _most_first(counts: Counter[str]) -> list[Named]:
    return [Named(*item) for item in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _by_time(moved: Moved) -> tuple[Any, ...]:
    return -moved.ns, *(memory or "" for memory in moved.of)


def _moved(moved: Moved) -> dict[str, Any]:
    """Of both kinds of rows: of a path, and of a decade of sizes."""
    of = PATH if len(moved.of) == len(PATH) else SIZES
    rate = moved.bytes / (moved.ns * NS) if moved.ns else None
    sums = {"count": moved.count, "bytes": moved.bytes, "seconds": moved.ns * NS, "bytes_per_second": rate}
    return dict(zip(of, moved.of, strict=True)) | sums


def _traffic(link: LinkTraffic) -> results.Traffic:
    def one_way(size: int, wire: int) -> Carried:
        rate = link.line_bytes_per_s
        return Carried(size, wire, wire / rate if rate else None)

    return results.Traffic(
        link.link[0],
        list(link.between),
        link.label,
        link.copies,
        forward=one_way(link.forward_bytes, link.forward_wire_bytes),
        back=one_way(link.back_bytes, link.back_wire_bytes),
    )


def _by_gain(best: Best) -> tuple[float, int, str]:
    return best.order[0], -best.traces, best.value.id


def over_traces(found: Iterable[tuple[Ranked, RangedFinding]]) -> list[JobFinding]:
    """Findings of single traces as those of all these traces, largest gain first."""
    joined: dict[Hashable, Best] = {}
    for rank, finding in found:
        _join(joined, finding.id, _best(finding, rank))
    return _listed(joined)


def _best(finding: RangedFinding, rank: Ranked) -> Best:
    return Best(1, int(finding.by_replay), finding, rank)


def _listed(findings: Mapping[Hashable, Best]) -> list[JobFinding]:
    return [_finding(best) for best in sorted(findings.values(), key=_by_gain)]


def _finding(best: Best) -> JobFinding:
    keys = to_builtins(best.value)
    more = {"traces": best.traces, "traces_without_gain": 0, "traces_by_replay": best.replayed}
    return convert(keys | more | {"largest": keys | asdict(best.rank)}, JobFinding)
