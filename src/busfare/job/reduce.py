"""The whole job out of its traces' partials: memory does not grow with their number, nor does their order matter."""

from __future__ import annotations

import msgspec

from busfare.job.bounded import Least, Sampled
from busfare.job.health import Health
from busfare.job.partial import Found, Left, Moved, Partial, Sized
from busfare.job.spread import Rank, Spread
from busfare.job.strip import Strip
from busfare.job.traffic import LinkTraffic

__all__ = ["FIGURES", "Failure", "Job", "JobFinding", "JobOmission"]

#: What is spread over ranks; all are fields of `Partial`.
FIGURES = ("makespan_ns", "kernel_ns", "transfer_ns", "exposed_ns", "transfer_bytes")
#: Distinct hosts, ranks and GPU models beyond so many are estimated.
MOST_NAMES = 1024
MOST_KINDS = 256
MOST_LINKS = 4096
FAILURES_LISTED = 100


class Failure(msgspec.Struct, frozen=True):
    """A file that could not be read, and why."""

    path: str
    why: str


class JobFinding(msgspec.Struct, frozen=True):
    """A finding over all traces that have it; `gain_ns` sums their gains, `low_ns` and
    `high_ns` the ends of their ranges, for what is off in one trace is off in all; `unbounded` counts those without one."""

    traces: int
    gain_ns: int
    low_ns: int
    high_ns: int
    unbounded: int
    replayed: int  # traces whose gain is by replay; that of the others is an upper bound
    largest: Found
    rank: Rank


class JobOmission(msgspec.Struct, frozen=True):
    """An omission over all traces that have it; `what` is how the first of them (by path) says it."""

    traces: int
    count: int
    what: str
    path: str


class Job:
    """What is known of the job so far. `add` and `merge` may come in any order, and give the same."""

    def __init__(self) -> None:
        self.traces = 0
        self.failed = 0
        self.others = 0  # files of a folder that are no traces
        self.duplicates = 0  # paths that lead to a file that has its part already
        self.sums: dict[str, int] = {}
        self.guessed = 0  # traces whose node was guessed from the GPU's name
        self.working = {figure: Spread() for figure in FIGURES}
        self.idle = {
            figure: Spread() for figure in FIGURES
        }  # of processes that nobody called a rank, as launchers
        self.strip = Strip(len(FIGURES))
        self.unranked = 0
        self.health = Health()
        self.formats: Sampled[int] = Sampled(MOST_KINDS, _sum)
        self.nodes: Sampled[int] = Sampled(MOST_KINDS, _sum)
        self.gpus: Sampled[int] = Sampled(MOST_KINDS, _sum)
        self.hosts: Sampled[int] = Sampled(MOST_NAMES, _sum)
        self.ranks: Sampled[int] = Sampled(MOST_NAMES, _sum)
        self.paths: Sampled[Moved] = Sampled(MOST_KINDS, _moved)
        self.sizes: Sampled[Sized] = Sampled(MOST_KINDS, _sized)
        self.findings: Sampled[JobFinding] = Sampled(MOST_KINDS, _found)
        self.omissions: Sampled[JobOmission] = Sampled(MOST_KINDS, _left)
        self.traffic: Sampled[LinkTraffic] = Sampled(MOST_LINKS, _crossed)
        self.failures: Least[Failure] = Least(FAILURES_LISTED, lambda failure: (failure.path, failure.why))

    def add(self, path: str, part: Partial) -> None:
        """Takes in the partial of the trace at `path`."""
        place = part.place
        rank = Rank(path, place.rank, place.host)
        self.traces += 1
        self.guessed += part.node_guessed
        for name in SUMMED:
            self.sums[name] = self.sums.get(name, 0) + getattr(part, name)
        values = [getattr(part, figure) for figure in FIGURES]
        idle = place.rank is None and not part.transfers + part.kernels + part.graph_work + part.sets
        for figure, value in zip(FIGURES, values, strict=True):
            (self.idle if idle else self.working)[figure].add(value, rank)
        if place.rank is None:
            self.unranked += 1
        else:
            self.strip.add(place.rank, values)
            self.ranks.add(str(place.rank), 1)
        if place.host is not None:
            self.hosts.add(place.host, 1)
        self.health.add(part.rates, rank, place)
        self.formats.add(part.format, 1)
        if part.node:
            self.nodes.add(part.node, 1)
        for gpu in part.gpus:
            self.gpus.add(gpu, 1)
        for moved in part.by_path:
            self.paths.add(f"{moved.direction} {moved.source_memory} {moved.destination_memory}", moved)
        for sized in part.sizes:
            self.sizes.add(str(sized.upper_bytes), sized)
        for found in part.findings:
            gain = found.gain_ns
            gained = gain or 0, found.low_ns or 0, found.high_ns or 0
            job_wide = JobFinding(1, *gained, gain is None, found.by_replay, found, rank)
            self.findings.add(found.id, job_wide)
        for id, left in _by_id(part.omissions).items():
            self.omissions.add(id, JobOmission(1, left.count, left.what, path))
        for link in part.traffic:
            self.traffic.add(f"{link.node} {link.number:06}", link)

    @property
    def spreads(self) -> dict[str, Spread]:
        """By figure, over the traces in which a GPU worked or that are of a rank; over all where there is no such trace."""
        return self.working if self.working[FIGURES[0]].count else self.idle

    @property
    def apart(self) -> int:
        """How many traces are not in `spreads`."""
        return self.traces - self.spreads[FIGURES[0]].count

    def fail(self, path: str, why: str) -> None:
        """Notes a file that could not be read."""
        self.failed += 1
        self.failures.add(Failure(path, why))

    def merge(self, other: Job) -> None:
        """Takes in another part of the same job."""
        for name in ("traces", "failed", "others", "duplicates", "guessed", "unranked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0) + value
        for figure in FIGURES:
            self.working[figure].merge(other.working[figure])
            self.idle[figure].merge(other.idle[figure])
        self.strip.merge(other.strip)
        self.health.merge(other.health)
        for mine, others in zip(self._samples(), other._samples(), strict=True):
            mine.merge(others)
        self.failures.merge(other.failures)

    def _samples(self) -> tuple[Sampled, ...]:  # type: ignore[type-arg]
        return (
            *(self.formats, self.nodes, self.gpus, self.hosts, self.ranks),
            *(self.paths, self.sizes, self.findings, self.omissions, self.traffic),
        )


#: Fields of `Partial` that are summed over the job.
SUMMED = (
    *("transfers", "transfer_bytes", "transfer_ns", "exposed_ns", "kernels", "kernel_ns"),
    *("graph_work", "graph_ns", "sets", "set_ns", "makespan_ns", "unrouted_bytes"),
)


def _sum(a: int, b: int) -> int:
    return a + b


def _moved(a: Moved, b: Moved) -> Moved:
    return msgspec.structs.replace(a, count=a.count + b.count, bytes=a.bytes + b.bytes, ns=a.ns + b.ns)


def _sized(a: Sized, b: Sized) -> Sized:
    return Sized(min(a.lower_bytes, b.lower_bytes), a.upper_bytes, a.count + b.count, a.ns + b.ns)


def _found(a: JobFinding, b: JobFinding) -> JobFinding:
    first = min(
        a, b, key=lambda f: (-1 if f.largest.gain_ns is None else -2 - f.largest.gain_ns, f.rank.path)
    )
    return JobFinding(
        a.traces + b.traces,
        a.gain_ns + b.gain_ns,
        a.low_ns + b.low_ns,
        a.high_ns + b.high_ns,
        a.unbounded + b.unbounded,
        a.replayed + b.replayed,
        first.largest,
        first.rank,
    )


def _by_id(omissions: list[Left]) -> dict[str, Left]:
    """One of each id: a trace counts once, however often it says the same."""
    joined: dict[str, Left] = {}
    for left in omissions:
        held = joined.get(left.id)
        joined[left.id] = msgspec.structs.replace(held, count=held.count + left.count) if held else left
    return joined


def _left(a: JobOmission, b: JobOmission) -> JobOmission:
    first = min(a, b, key=lambda left: (left.path, left.what))
    return JobOmission(a.traces + b.traces, a.count + b.count, first.what, first.path)


def _crossed(a: LinkTraffic, b: LinkTraffic) -> LinkTraffic:
    added = ("copies", "forward_bytes", "back_bytes", "forward_wire_bytes", "back_wire_bytes")
    return msgspec.structs.replace(a, **{name: getattr(a, name) + getattr(b, name) for name in added})
