"""What `report` on many traces consists of; keys in docs/json.md."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from busfare.advise import CallSite
from busfare.results import Path, Ranged, Sized
from busfare.statements import Words
from busfare.trace.totals import Counted, MovedInAll

LONGEST_PATH = 48


class Read(Struct):
    """Files: traces, those that could not be read, those that are none, and second paths to one."""

    read: int
    failed: int
    others: int
    duplicates: int
    formats: dict[str, int]


class Different(Struct):
    """How many different ones; estimated where not `exact`."""

    count: int
    exact: bool


class Ranks(Different):
    unknown: int


class Named(Struct):
    name: str
    traces: int


class Makespans(Struct):
    sum: float
    most: float


class Ranked(Struct, kw_only=True):
    """One trace; rank and host are None where no trace says them."""

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


class Slowest(Ranked, kw_only=True):
    makespan_seconds: float


class Valued(Ranked, kw_only=True):
    value: float


class Outlier(Valued, kw_only=True):
    of_median: float


class Outliers(Struct):
    """`above` is None with too few traces to judge."""

    above: float | None
    count: int
    listed: list[Outlier]


class Bin(Struct):
    lower: float
    upper: float
    count: int


class Spreading(Struct, kw_only=True):
    """A figure over all traces."""

    figure: str
    sum: float
    mean: float
    least: float
    quartile: float
    median: float
    upper_quartile: float
    p95: float
    most: float
    outliers: Outliers
    largest: list[Valued]
    smallest: list[Valued]
    bars: list[Bin]


class StripCell(Struct):
    first_rank: int
    last_rank: int
    traces: int
    mean: list[float]
    most: list[float]


class RankStrip(Struct):
    ranks_per_cell: int
    figures: list[str]
    cells: list[StripCell]


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
    links: int
    exact: bool
    slow_below: float
    groups: list[Group]
    slow: list[Slow]


class Carried(Struct):
    """One direction of a link; predicted: at its full rate."""

    bytes: int
    wire_bytes: int
    predicted_seconds: float | None


class Traffic(Struct):
    node: str
    between: list[str]
    link: str
    copies: int
    forward: Carried
    back: Carried

    @property
    def bytes(self) -> int:
        return self.forward.bytes + self.back.bytes


class LargestFinding(Ranked, kw_only=True):
    """The trace that gains most, and what it gains."""

    evidence: Words
    change: Words
    predicted_gain_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    rung: str | None
    reason: str | UnsetType = UNSET
    by_replay: bool
    rests_on: list[Words]
    what_if: list[str]
    call_sites: list[CallSite] = []


class JobFinding(Ranged, kw_only=True):
    """A finding over all traces that have it. Ranks run side by side, so that of the job no more is saved than in the trace
    that gains most: gains are never summed.
    """

    id: str
    title: Words
    traces: int
    predicted_gain_seconds: float
    traces_without_gain: int  # 0: every gain has a bound
    traces_by_replay: int
    overlaps_with: list[str]
    largest: LargestFinding


class Left(Struct):
    """What is left out; `traces` is None of what the report itself leaves out."""

    id: str
    count: int | None
    traces: int | None
    what: str


class Failure(Struct):
    path: str
    why: str


class Last(Struct):
    """A rank that was the last to arrive, and how often."""

    rank: int
    count: int


class Collective(Struct, kw_only=True):
    """What the ranks of a communicator do together: sums over its ranks. `arrive`: until the last of them comes; `transfer`:
    from then on; both None of what no other trace has a part in. `bytes` as nccl-tests counts them, of one rank.
    """

    communicator: str
    kind: str | None
    ranks: int | None
    count: int
    bytes: int | None
    seconds: float
    arrive_seconds: float | None
    transfer_seconds: float | None
    last_rank: int | None
    last: list[Last]
    bus_bytes_per_second: float | None


class RankTimes(Struct, kw_only=True):
    """One rank; awaited: what all others waited for it, summed; exposed transfer: communication, after its wait, beside
    which no kernel of the rank computes.
    """

    rank: int
    path: str
    host: str | None
    makespan_seconds: float
    kernels_seconds: float
    communication_seconds: float
    waiting_seconds: float
    awaited_seconds: float
    exposed_transfer_seconds: float


class Clock(Struct, kw_only=True):
    """What is added to the times of a rank's file, at the middle of the run; None where nothing ties it to others."""

    rank: int
    offset_ns: int
    drift_ppm: float
    uncertainty_ns: int | None


class Communication(Struct, kw_only=True):
    """Who of a job's ranks waits for whom, and what the transfers take."""

    collectives: list[Collective]
    ranks: list[RankTimes]
    clocks: list[Clock]
    left_out: list[Left]


class JobReport(Struct, tag_field="schema", tag="busfare.report-job/1", kw_only=True):
    traces: Read
    ranks: list[RankTimes]
    ranks_seen: Ranks
    hosts: Different
    gpus: list[Named]
    nodes: list[Named]
    nodes_guessed_from_gpu_name: int
    transfers: MovedInAll
    kernels: Counted
    communication: Counted
    graph_work: Counted
    sets: Counted
    makespan_seconds: Makespans
    slowest: Slowest
    quantiles_within: float
    spread: list[Spreading]
    strip: RankStrip
    by_path: list[Path]
    size_histogram: list[Sized]
    link_health: LinkHealth
    links: list[Traffic]
    unrouted_bytes: int
    collectives: list[Collective]
    clocks: list[Clock]
    findings: list[JobFinding]
    gains_of_whole_job: bool = False  # by all ranks replayed together; else each of the trace that gains most
    omissions: list[Left]
    failures: list[Failure]
