"""The whole job out of its traces' partials: exact sums, in whatever order they come."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import NamedTuple, TypeVar

import msgspec
import polars as pl
from msgspec.structs import astuple

from busfare.job.links import LinkRate, LinkTraffic
from busfare.job.partial import Advice, Moved, Partial

__all__ = ["FIGURES", "Cell", "Job", "JobFinding", "JobOmission", "Rank", "Spread"]

#: What is spread over ranks, by the names of a partial's sums.
FIGURES = (
    *("makespan_ns", "kernel_ns", "communication_ns", "transfers_ns", "transfers_exposed_ns"),
    "transfers_bytes",
)
#: What a process did with a GPU; one that did none of it, and that nobody called a rank, is a launcher.
WORK = ("transfers_count", "kernels", "communication", "graph_work", "sets")
LISTED = 16
MOST_CELLS = 256


class Rank(msgspec.Struct, frozen=True):
    """One trace of the job, as a user finds it again."""

    path: str
    rank: int | None = None
    host: str | None = None


class JobFinding(msgspec.Struct, frozen=True):
    """A finding over all traces that have it. Ranks run side by side, so that of the job no more is saved than in the trace
    that gains most, `largest`: gains are never summed.
    """

    traces: int
    replayed: int  # traces whose gain is by replay; that of the others is an upper bound
    largest: Advice
    rank: Rank

    @property
    def order(self) -> tuple[int, str]:
        return -self.largest.gain_ns, self.rank.path


class JobOmission(msgspec.Struct, frozen=True):
    """An omission over all traces that have it; `order`: path and words of the first of them."""

    traces: int
    count: int
    order: tuple[str, str]


class JobLink(msgspec.Struct, frozen=True):
    """The best rate seen of a link, whichever of the traces saw it."""

    rate: LinkRate
    rank: Rank

    @property
    def order(self) -> tuple[float, str]:
        return -self.rate.bytes_per_second, self.rank.path


T = TypeVar("T", Moved, LinkTraffic, JobFinding, JobOmission, JobLink)


def _join(into: dict[Hashable, T], name: Hashable, value: T) -> None:
    """Joins `value` to what stands under `name`: whole numbers add up, the rest is that of the first by `order`."""
    pair = (
        [value]
        if name not in into
        else sorted((into[name], value), key=lambda one: getattr(one, "order", ()))
    )
    columns = zip(*map(astuple, pair), strict=True)
    into[name] = type(value)(*(sum(column) if type(column[0]) is int else column[0] for column in columns))


class Cell(NamedTuple):
    """Ranks `first` to `last`: how many traces of them there are, and the sums and largest of each of FIGURES."""

    first: int
    last: int
    traces: int
    sums: list[int]
    most: list[int]


class Job:
    """What is known of the job so far; partials may come in any order."""

    def __init__(self) -> None:
        self.others = 0  # files of a folder that are no traces
        self.duplicates = 0  # paths that lead to a file that has its part already
        self.guessed = 0  # traces whose node was guessed from the GPU's name
        self.failures: list[tuple[str, str]] = []  # path and reason
        self.sums: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        self.gpus: Counter[str] = Counter()
        self.paths: dict[Hashable, Moved] = {}
        self.sizes: dict[Hashable, Moved] = {}
        self.findings: dict[Hashable, JobFinding] = {}
        self.omissions: dict[Hashable, JobOmission] = {}
        self.traffic: dict[Hashable, LinkTraffic] = {}
        self._links: dict[Hashable, JobLink] = {}
        self._working: list[tuple[Rank, list[int]]] = []
        self._idle: list[tuple[Rank, list[int]]] = []

    def add(self, path: str, part: Partial) -> None:
        """Takes in the partial of the trace at `path`."""
        rank = Rank(path, part.rank, part.host)
        idle = rank.rank is None and not any(part.sums[name] for name in WORK)
        (self._idle if idle else self._working).append((rank, [part.sums[name] for name in FIGURES]))
        self.guessed += part.node_guessed
        self.sums.update(part.sums)
        self.formats[part.format] += 1
        self.nodes.update([part.node] if part.node else [])
        self.gpus.update(part.gpus)
        for moved in part.by_path:
            _join(self.paths, moved.of, moved)
        for sized in part.sizes:
            _join(self.sizes, sized.of, sized)
        for traffic in part.traffic:
            _join(self.traffic, traffic.link, traffic)
        for rate in part.rates:
            # Ranks may each call another GPU 0: only an identity, or the rank, tells GPUs apart.
            gpu = rate.identity or (path if rank.rank is None else rank.rank, rate.device)
            _join(self._links, (rank.host, gpu, rate.peer_device, rate.direction), JobLink(rate, rank))
        for advice in part.findings:
            _join(self.findings, advice.id, JobFinding(1, int(advice.by_replay), advice, rank))
        said: set[str] = set()  # a trace counts once, however often it says the same
        for omission in part.omissions:
            omitted = JobOmission(int(omission.id not in said), omission.count, (path, omission.what))
            _join(self.omissions, omission.id, omitted)
            said.add(omission.id)

    def fail(self, path: str, why: str) -> None:
        """Notes a file that could not be read."""
        self.failures.append((path, why))

    @property
    def traces(self) -> int:
        return len(self._working) + len(self._idle)

    @property
    def apart(self) -> int:
        """How many traces are in no spread: those of idle processes, if others worked or are of a rank."""
        return len(self._idle) if self._working else 0

    def spread(self, figure: str) -> Spread:
        """Over the traces in which a GPU worked or that are of a rank; over all where there is no such trace."""
        at = FIGURES.index(figure)
        return Spread([(figures[at], rank) for rank, figures in self._working or self._idle])

    def ranks(self) -> list[int]:
        """The rank of each trace that is of one."""
        return [rank.rank for rank, _ in self._working if rank.rank is not None]

    def hosts(self) -> set[str]:
        return {rank.host for rank, _ in self._working + self._idle if rank.host is not None}

    def strip(self) -> list[Cell]:
        """FIGURES along the ranks, in at most MOST_CELLS cells, each of one rank or of as many neighbouring ones."""
        width = 1 << (max(self.ranks(), default=0) // MOST_CELLS).bit_length()
        cells: dict[int, list[list[int]]] = {}
        for rank, figures in self._working:
            if rank.rank is not None:
                cells.setdefault(rank.rank // width, []).append(figures)
        strip = []
        for number, held in sorted(cells.items()):
            columns = list(zip(*held, strict=True))
            sums, most = [sum(column) for column in columns], [max(column) for column in columns]
            strip.append(Cell(number * width, (number + 1) * width - 1, len(held), sums, most))
        return strip

    def links(self) -> pl.DataFrame:
        """The best rate of every link: columns of `LinkRate`, and path, rank and host of the trace that saw it."""
        kinds: dict[str, pl.DataType | type[pl.DataType]] = {
            "rank": pl.Int64,
            "device": pl.Int64,
            "peer_device": pl.Int64,
        }
        kinds |= {"bytes_per_second": pl.Float64, "data_sheet_bytes_per_second": pl.Float64}
        names = (*Rank.__struct_fields__, *LinkRate.__struct_fields__)
        rows = [(*astuple(one.rank), *astuple(one.rate)) for one in self._links.values()]
        return pl.DataFrame(rows, {name: kinds.get(name, pl.String) for name in names}, orient="row")


class Spread:
    """How one figure, a whole number from 0 up, spreads over traces; ties are broken by path."""

    def __init__(self, values: list[tuple[int, Rank]]) -> None:
        self._values = sorted(values, key=lambda held: (held[0], held[1].path))
        self.count = len(values)
        self.sum = sum(value for value, _ in values)

    def most(self) -> list[tuple[int, Rank]]:
        """The largest values, at most LISTED, largest first."""
        return sorted(self._values, key=lambda held: (-held[0], held[1].path))[:LISTED]

    def least(self) -> list[tuple[int, Rank]]:
        """The smallest values, at most LISTED, smallest first."""
        return self._values[:LISTED]

    def quantile(self, share: float) -> int:
        """The value below which `share` of all lie; 0 for none."""
        return self._values[int(share * (self.count - 1))][0] if self.count else 0

    def above(self, limit: float) -> int:
        """How many values lie above `limit`."""
        return sum(value > limit for value, _ in self._values)

    def bars(self, most: int) -> Iterator[tuple[float, float, int]]:
        """Lower and upper bound and count of at most `most` bars, alike by their logarithm; zero is left out."""
        logs = [math.log(value) for value, _ in self._values if value > 0]
        if not logs:
            return
        width = max((logs[-1] - logs[0]) / most, 0.01)  # values within a hundredth are one bar
        counts = [0] * most
        for log in logs:
            counts[min(most - 1, int((log - logs[0]) / width))] += 1
        while not counts[-1]:
            counts.pop()
        for number, count in enumerate(counts):
            yield math.exp(logs[0] + number * width), math.exp(logs[0] + (number + 1) * width), count
