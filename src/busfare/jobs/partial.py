"""What one trace adds to a job: a small summary of whole numbers, so that sums are the same in any order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import polars as pl

from busfare import advise
from busfare.jobs.links import LinkRate, LinkTraffic, best_rates, link_traffic
from busfare.jobs.parts import LEAST_RANKS, MOST_OPERATIONS
from busfare.jobs.ranks import Rank, TraceRank, numbered, packed, ranks_of, rows_of
from busfare.nodes import Node
from busfare.results import RangedFinding, ranged
from busfare.trace import Omission, Trace
from busfare.trace import totals as account

#: Texts of a trace are cut to this, and lists to that: a partial stays small whatever a file holds.
LONGEST_TEXT, LONGEST_NAME = 2000, 253
MOST_GPUS, MOST_RATES, MOST_RANKS = 64, 256, 4096
#: `rank0.json.gz`, `sampled_rank-12.json`, `rank_3/trace.sqlite`.
RANK_IN_NAME = re.compile(r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,9})(?!\d)", re.IGNORECASE)
#: What `torch.profiler.tensorboard_trace_handler` calls its files: HOST_PROCESS.TIME.pt.trace.json.
TORCH_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252})_\d+\.\d+\.pt\.trace\.json(?:\.gz)?$")
MOST_RANK = 1 << 31
#: What tells rows of transfers apart.
PATH, SIZES = ("direction", "source_memory", "destination_memory"), ("lower_bytes", "upper_bytes")

#: Work that is counted, by its name in `account.Totals` and in results.
COUNTED = ("kernels", "communication", "graph_work", "sets")
#: The names of a partial's sums.
SUMS = (
    "makespan_ns", "transfers_bytes", "transfers_exposed_ns", "unrouted_bytes",
    *(f"{name}_{what}" for name in ("transfers", *COUNTED) for what in ("count", "ns")),
)  # fmt: skip


class Moved(msgspec.Struct, frozen=True):
    """Transfers of one kind, `of`: values of PATH, or of SIZES."""

    of: tuple[str | int | None, ...]
    count: int
    bytes: int
    ns: int


class Partial(msgspec.Struct, frozen=True):
    """One trace's share of a job. `node` is where it was recorded, perhaps guessed; `gpus` are models that worked.

    `sums`, by SUMS, are the trace's totals in whole nanoseconds and bytes; `unrouted_bytes` are of copies whose path
    through the node is not known.
    """

    format: str
    rank: int | None
    host: str | None
    node: str | None
    node_guessed: bool
    gpus: list[str]
    sums: dict[str, int]
    by_path: list[Moved]
    sizes: list[Moved]
    findings: list[RangedFinding]
    rates: list[LinkRate]
    traffic: list[LinkTraffic]
    ranks: list[TraceRank]
    communicating: bytes  # `ranks.rows_of`, as Arrow IPC
    omissions: list[Omission]


def partial(trace: Trace, path: Path, node: Node | None = None, of_many: bool = False) -> Partial:
    """The share of `trace` in its job; a pure function of its arguments.

    `path` gives rank and host where the trace does not; `node` is where the job ran, guessed from the GPU's name
    otherwise. `of_many`: gains of a rank that communicates are bounds, since some of the job are replayed together later.
    """
    guessed = node is None
    node = node or advise.guess_node(trace)
    totals = account.totals(trace)
    traffic, unrouted = link_traffic(trace.operations, node)
    rank, host = place_of(trace, path)
    communicating = rows_of(trace)
    later = (
        of_many and not communicating.is_empty() and trace.operations.height <= MOST_OPERATIONS // LEAST_RANKS
    )
    run = None if later else lambda: advise.rebuilt(trace, node)
    return Partial(
        format=trace.format,
        rank=rank,
        host=host,
        node=node.name if node else None,
        node_guessed=guessed and node is not None,
        gpus=_gpus(trace),
        sums=dict(zip(SUMS, _sums(totals, unrouted), strict=True)),
        by_path=_moved(account.by_path(trace), PATH),
        sizes=_moved(account.size_histogram(trace), SIZES),
        findings=[
            ranged(finding, totals.makespan_seconds, node) for finding in advise.findings(trace, node, run)
        ],
        rates=best_rates(trace, node)[:MOST_RATES],
        traffic=traffic,
        ranks=ranks_of(trace)[:MOST_RANKS],
        communicating=packed(communicating),
        omissions=[Omission(o.id, o.count, o.what[:LONGEST_TEXT]) for o in trace.omissions],
    )


def _sums(totals: account.Totals, unrouted_bytes: int) -> Iterator[int]:
    """The values of SUMS."""
    moved = totals.transfers
    yield from (_ns(totals.makespan_seconds), moved.bytes, _ns(moved.exposed_seconds), unrouted_bytes)
    for counted in (moved, *(getattr(totals, name) for name in COUNTED)):
        yield from (counted.count, _ns(counted.seconds))


def _moved(rows: pl.DataFrame, names: tuple[str, ...]) -> list[Moved]:
    return [
        Moved(tuple(row[name] for name in names), row["count"], row.get("bytes", 0), _ns(row["seconds"]))
        for row in rows.iter_rows(named=True)
    ]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _gpus(trace: Trace) -> list[str]:
    used = trace.operations["device"].drop_nulls().unique()
    names = trace.devices.filter(pl.col("device").is_in(used.implode()))["name"].drop_nulls().unique()
    return sorted(name[:LONGEST_NAME] for name in names)[:MOST_GPUS]


def place_of(trace: Trace, path: Path) -> tuple[int | None, str | None]:
    """Rank and host from what the trace itself says; from the names of file and folder as a last resort."""
    host = trace.host.get("hostname") or next(iter(TORCH_NAME.findall(path.name)), None)
    text = trace.host.get("rank", "")
    # A trace of several processes has no one rank: the launcher's environment was recorded, not theirs.
    own = text.isascii() and text.isdigit() and trace.operations["process"].drop_nulls().n_unique() <= 1
    texts = (
        [text] if own else [n for name in (path.name, path.parent.name) for n in RANK_IN_NAME.findall(name)]
    )
    rank = int(texts[0][:20]) if texts else MOST_RANK
    return rank if rank < MOST_RANK else None, host[:LONGEST_NAME] if host else None


def ranks_of_all(traces: Sequence[Trace], paths: Sequence[Path]) -> list[Rank]:
    """The ranks of a job, by what its traces and their paths say."""
    return numbered(
        [
            (str(path), *place_of(trace, path), ranks_of(trace))
            for trace, path in zip(traces, paths, strict=True)
        ]
    )
