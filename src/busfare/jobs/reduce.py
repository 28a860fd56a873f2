"""The whole job out of its traces' partials: exact sums, in whatever order they come; how figures spread over the traces and
along the ranks, and which links are slower than their peers'. Ties go by path.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from statistics import median
from typing import Any, TypeVar

from msgspec import Struct, convert
from msgspec.structs import asdict, astuple

from busfare.jobs.communication import Communication, Left, communication
from busfare.jobs.partial import COUNTED, Advice, LinkRate, Moved, Partial
from busfare.jobs.ranks import Frames, Rank, TraceRank, numbered, original_of, separate_runs, unpacked
from busfare.statements import Words, statement
from busfare.trace.omissions import INCOMPLETE

NS = 1e-9
LONGEST_PATH = 48
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
#: An outlier lies this far above the upper quartile, in spans between the quartiles [Tukey 1977], …
TUKEY = 1.5
#: … and this far above the median: quartiles that all but touch make no outliers.
ABOVE_MEDIAN = 1.1
FEWEST_FOR_OUTLIERS = 8
QUANTILES = {"quartile": 0.25, "median": 0.5, "upper_quartile": 0.75, "p95": 0.95}
OUTERMOST = 16
#: Below this part of the peers' median, or of the data sheet, a link is named: the bound of the finding `slow-link`.
SOUND = 0.7
FEWEST_PEERS = 3
LINKS_LISTED, MOST_MISSING = 100, 4


class Called:
    """What a trace is called, by its path, rank and host."""

    __slots__ = ()
    path: str
    rank: int | None
    host: str | None

    @property
    def name(self) -> str:
        """'rank 3 on b12'; with as much of the file's path as is needed and fits, where that is not known."""
        return self.called(self.path)

    def called(self, file: str) -> str:
        """The same, with `file` in place of its path."""
        end = file if len(file) <= LONGEST_PATH else "…" + file[1 - LONGEST_PATH :]
        if self.rank is None:
            return end + (f" on {self.host}" if self.host else "")
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank} ({end})"


class Ranked(Struct, Called, kw_only=True):
    """One trace; rank and host are None where no trace says them."""

    path: str
    rank: int | None
    host: str | None


class Valued(Ranked, kw_only=True):
    value: float


class Outlier(Valued, kw_only=True):
    of_median: float


class Outliers(Struct):
    """`above` is None with too few traces to judge."""

    above: float | None
    count: int
    listed: list[Outlier]


class Spreading(Struct, kw_only=True):
    """A figure over all traces."""

    figure: str
    mean: float
    quartile: float
    median: float
    upper_quartile: float
    p95: float
    outliers: Outliers
    largest: list[Valued]
    smallest: list[Valued]

    @property
    def least(self) -> float:
        return self.smallest[0].value

    @property
    def most(self) -> float:
        return self.largest[0].value


class Group(Struct):
    """The links of one GPU model in one direction."""

    gpu: str | None
    direction: str
    links: int
    least_bytes_per_second: float
    median_bytes_per_second: float
    most_bytes_per_second: float
    data_sheet_bytes_per_second: float | None


class Slow(Ranked, kw_only=True):
    """A link that is slower than it should be."""

    gpu: str | None
    device: int
    peer_device: int | None
    direction: str
    bytes_per_second: float
    share_of_peers: float | None
    share_of_data_sheet: float | None
    peers: int


class LinkHealth(Struct):
    """Best rates of links; those that are `slow` are below SOUND of their peers' median or of the data sheet."""

    groups: list[Group]
    slow: list[Slow]


class Best(Struct, frozen=True):
    """A finding over all traces that have it; `value` and `rank` are the first by `order`."""

    traces: int
    replayed: int
    value: Advice
    rank: Ranked

    @classmethod
    def of(cls, advice: Advice, rank: Ranked, traces: int = 1) -> "Best":
        """Figures of the trace of `rank` alone; `traces`: 0 for a copy."""
        return cls(traces, traces * advice.by_replay, advice, rank)

    @property
    def order(self) -> tuple[float, str]:
        return -self.value.predicted_gain_seconds, self.rank.path


class Omitted(Struct, frozen=True):
    """An omission over all traces that have it, with the `order` (path, and number there) and the words of the first."""

    traces: int
    count: int
    order: tuple[str, int]
    what: Words


T = TypeVar("T", Moved, Best, Omitted)


def join(into: dict[Any, T], name: Any, value: T) -> None:
    """Joins `value` to what stands under `name`: whole numbers add up, the rest is that of the first by `order`."""
    pair = [value, into[name]] if name in into else [value]
    columns = zip(*map(astuple, sorted(pair, key=lambda part: getattr(part, "order", ()))), strict=True)
    into[name] = type(value)(*(sum(column) if type(column[0]) is int else column[0] for column in columns))


class Job:
    """What is known of the job so far; partials may come in any order. Its memory grows by a few numbers a trace. `working`,
    `idle`: traces in which a GPU worked or that are of a rank, and all others, with their FIGURES.
    """

    def __init__(self) -> None:
        self.foreign = 0  # files of a folder that are not traces
        self.duplicates = 0  # paths that lead to a file that has its part already
        self.copies: list[str] = []  # paths of copied traces
        self.incomplete: dict[str, Words] = {}  # by path of a trace, what of its file is missing
        self._seen: dict[tuple[TraceRank, ...], list[tuple[int | None, Ranked]]] = {}
        self.failures: list[tuple[str, str]] = []  # path and reason
        self.several: list[set[int]] = []  # ranks of each trace that names several
        self.guessed = 0  # traces whose node was guessed from the GPU's name
        self.sums: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        self.gpus: Counter[str] = Counter()
        self.by_path: dict[Any, Moved] = {}
        self.sizes: dict[Any, Moved] = {}
        self.findings: dict[Any, Best] = {}
        self.omissions: dict[Any, Omitted] = {}
        self._links: dict[Any, tuple[LinkRate, Ranked]] = {}
        self.working: list[tuple[Ranked, list[int]]] = []
        self.idle: list[tuple[Ranked, list[int]]] = []
        self._communicating: list[tuple[Ranked, list[TraceRank], bytes]] = []

    def add(self, path: str, part: Partial) -> None:
        """Takes in the partial of the trace at `path`."""
        rank = Ranked(path=path, rank=part.rank, host=part.host)
        idle = rank.rank is None and not any(part.sums[name] for name in WORK)
        ranks = [] if idle else part.ranks
        original = original_of(self._seen, rank.rank, ranks, rank)
        if original is rank:
            (self.idle if idle else self.working).append((rank, [part.sums[name] for name in FIGURES]))
            self._communicating.append((rank, ranks, part.communicating))
            self._count(part)
        else:
            original.path, copy = sorted((path, original.path), key=lambda path: (len(path), path))
            original.rank = rank.rank if original.rank is None else original.rank
            self.copies.append(copy)
        for rate in part.rates:
            # Several ranks may each number their GPU 0: only an identity or the rank distinguishes GPUs.
            gpu = rate.identity or (path if rank.rank is None else rank.rank, rate.device)
            link = rank.host, gpu, rate.peer_device, rate.direction
            seen = (rate, original), self._links.get(link, (rate, original))
            self._links[link] = min(seen, key=lambda pair: (-pair[0].bytes_per_second, pair[1].path))
        for finding in part.findings:
            join(self.findings, finding.id, Best.of(finding, original, int(original is rank)))
        cut = [omission.what for omission in part.omissions if omission.id in INCOMPLETE]
        if cut and original is rank:
            self.incomplete[path] = cut[0]
        counted: set[str] = set()  # a trace counts once per omission
        for number, omission in enumerate(part.omissions):
            first = int(original is rank and omission.id not in counted)
            count = omission.count * (original is rank)
            join(self.omissions, omission.id, Omitted(first, count, (path, number), omission.what))
            counted.add(omission.id)

    def _count(self, part: Partial) -> None:
        """Adds the counts of `part`."""
        named = {trace_rank.rank for trace_rank in part.ranks if trace_rank.rank is not None}
        self.several += [named] if named and part.rank is None else []
        self.guessed += part.node_guessed
        self.sums.update(part.sums)
        self.formats[part.format] += 1
        self.nodes.update([part.node] if part.node else [])
        self.gpus.update(part.gpus)
        for moved in part.by_path:
            join(self.by_path, moved.of, moved)
        for sized in part.sizes:
            join(self.sizes, sized.of, sized)

    @property
    def traces(self) -> int:
        return len(self.working) + len(self.idle)

    @property
    def figures(self) -> list[tuple[Ranked, list[int]]]:
        """Of the traces in which a GPU worked or that are of a rank; of all where there is no such trace."""
        return self.working or self.idle

    def communication(self) -> Communication:
        """What the ranks do together; each file has a clock."""
        files = sorted(self._communicating, key=lambda file: file[0].path)
        rows = Frames(len(files), lambda number: unpacked(files[number][-1]))
        placed = [(of.path, of.rank, of.host, held) for of, held, _ in files]
        together = communication(rows, ranks := numbered(placed))
        if later := separate_runs(placed):
            together.left_out.insert(0, Left.of_job("separate-runs", len(later)))
        elif missing := missing_ranks(ranks):
            together.left_out.insert(0, missing)
        return together

    def link_health(self) -> LinkHealth:
        """The best rates of its links by GPU model and direction; and links below SOUND of their peers' median or
        of the data sheet, slowest first by share, at most LINKS_LISTED.
        """
        models: dict[tuple[str, str], list[tuple[LinkRate, Ranked]]] = defaultdict(list)
        for link, rank in self._links.values():
            models[link.gpu or "", link.direction].append((link, rank))
        groups, slow = [], []
        for (gpu, direction), links in sorted(models.items()):
            rates = [link.bytes_per_second for link, _ in links]
            sheets = [rate for link, _ in links if (rate := link.data_sheet_bytes_per_second)]
            middle = median(rates)
            of_all = min(rates), middle, max(rates), max(sheets, default=None)
            groups.append(Group(gpu or None, direction, len(links), *of_all))
            comparable = gpu and len(links) > FEWEST_PEERS
            for link, rank in links:
                rate, sheet = link.bytes_per_second, link.data_sheet_bytes_per_second
                of_peers, of_sheet = rate / middle if comparable else None, rate / sheet if sheet else None
                share = min((share for share in (of_peers, of_sheet) if share is not None), default=SOUND)
                if share < SOUND:
                    figures = {
                        "share_of_peers": of_peers,
                        "share_of_data_sheet": of_sheet,
                        "peers": len(links) - 1,
                    }
                    peer = -1 if link.peer_device is None else link.peer_device
                    place = rank.path, link.device, direction, peer
                    slow.append((share, place, convert(asdict(rank) | asdict(link) | figures, Slow)))
        slow.sort(key=itemgetter(0, 1))
        listed = [link for *_, link in slow[:LINKS_LISTED]]
        return LinkHealth(groups, listed)


def missing_ranks(ranks: Sequence[Rank]) -> Left | None:
    """The omission for ranks without a trace: of the size that traces state, or below the highest number."""
    present = {rank.rank for rank in ranks}
    size = max((rank.times.world or rank.rank + 1 for rank in ranks), default=0)
    absent = (str(rank) for rank in range(size) if rank not in present)
    first, count = tuple(islice(absent, MOST_MISSING)), size - len(present)
    listed = first + ("…",) * (count > len(first))
    what = statement("omission.missing-ranks", count=count, of=size, ranks=listed)
    return Left("missing-ranks", count, what) if first else None


def spread(figure: str, values: Sequence[tuple[int, Ranked]], unit: float) -> Spreading:
    """Of `values`, at least one, each with the trace that it is of; `unit` brings them to the result's unit."""
    ordered = sorted(values, key=lambda held: (held[0], held[1].path))
    largest = sorted(values, key=lambda held: (-held[0], held[1].path))[:OUTERMOST]
    numbers = [value for value, _ in ordered]
    count = len(numbers)
    at = {name: numbers[int(share * (count - 1))] for name, share in QUANTILES.items()}
    middle, upper = at["median"], at["upper_quartile"]
    limit = max(upper + TUKEY * (upper - at["quartile"]), ABOVE_MEDIAN * middle)
    judged = count >= FEWEST_FOR_OUTLIERS and middle > 0
    outlying = [
        Outlier(**asdict(rank), value=value * unit, of_median=value / middle)
        for value, rank in largest
        if judged and value > limit
    ]
    return Spreading(
        figure=figure,
        mean=sum(numbers) * unit / count,
        **{name: value * unit for name, value in at.items()},
        outliers=Outliers(
            limit * unit if judged else None, judged * sum(value > limit for value in numbers), outlying
        ),
        largest=[Valued(**asdict(rank), value=value * unit) for value, rank in largest],
        smallest=[Valued(**asdict(rank), value=value * unit) for value, rank in ordered[:OUTERMOST]],
    )
