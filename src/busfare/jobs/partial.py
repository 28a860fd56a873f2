"""What a trace adds to its job: whole numbers whose sums do not depend on order, and the best rates of its links."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.jobs.parts import LEAST_RANKS, MOST_OPERATIONS
from busfare.jobs.ranks import TraceRank, packed, place_of, ranks_of, rows_of
from busfare.nodes import Node
from busfare.trace import Omission, Trace
from busfare.trace import totals as account

#: Texts of a trace are cut to this, and lists to that: a partial stays small whatever a file holds.
LONGEST_TEXT, LONGEST_NAME = 2000, 253
MOST_GPUS, MOST_RATES, MOST_RANKS = 64, 256, 4096
#: What tells rows of transfers apart.
PATH, SIZES = ("direction", "source_memory", "destination_memory"), ("lower_bytes", "upper_bytes")

#: Work that is counted, by its name in `account.Totals` and in results.
COUNTED = ("kernels", "communication", "graph_work", "sets")
#: The names of a partial's sums.
SUMS = (
    "makespan_ns", "transfers_bytes", "transfers_exposed_ns",
    *(f"{name}_{what}" for name in ("transfers", *COUNTED) for what in ("count", "ns")),
)  # fmt: skip
#: From here on a copy's rate is its link's.
LARGE_BYTES = 1 << 24


class LinkRate(msgspec.Struct, frozen=True):
    """A GPU's link in one direction: `h2d`, `d2h`, or `p2p` to GPU `peer_device`. `identity`: the GPU's uuid or bus id."""

    gpu: str | None
    identity: str | None
    device: int
    peer_device: int | None
    direction: str
    bytes_per_second: float
    data_sheet_bytes_per_second: float | None


class Moved(msgspec.Struct, frozen=True):
    """Transfers of one kind, `of`: values of PATH, or of SIZES."""

    of: tuple[str | int | None, ...]
    count: int
    bytes: int
    ns: int


class Advice(msgspec.Struct, frozen=True):
    """A finding in a trace as its job adds it up; `finding`: all of it, encoded by whoever advises."""

    id: str
    predicted_gain_seconds: float
    by_replay: bool
    finding: bytes


#: The node that a trace was recorded on, as named or else guessed, and what to do about the trace; with replays, or not.
Advise = Callable[[Trace, Node | None, bool], tuple[Node | None, list[Advice]]]


class Partial(msgspec.Struct, frozen=True):
    """One trace's share of a job. `node` is where it was recorded, perhaps guessed; `gpus` are models that worked. `sums`,
    by SUMS, are the trace's totals in whole nanoseconds and bytes.
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
    findings: list[Advice]
    rates: list[LinkRate]
    ranks: list[TraceRank]
    communicating: bytes  # `ranks.rows_of`, as Arrow IPC
    omissions: list[Omission]


def partial_of(
    trace: Trace, path: Path, node: Node | None = None, of_many: bool = False, advise: Advise | None = None
) -> Partial:
    """The share of `trace` in its job; a pure function of its arguments.

    `path` gives rank and host where the trace does not; `node` is where the job ran. `of_many`: gains of a rank that
    communicates are bounds, since some of the job are replayed together later.
    """
    communicating, named = rows_of(trace), node
    small = trace.operations.height <= MOST_OPERATIONS // LEAST_RANKS
    later = of_many and small and not communicating.is_empty()
    node, findings = advise(trace, node, not later) if advise else (node, [])
    totals = account.totals(trace)
    rank, host = place_of(trace, path)
    return Partial(
        format=trace.format,
        rank=rank,
        host=host,
        node=node.name if node else None,
        node_guessed=named is None and node is not None,
        gpus=_gpus(trace),
        sums=dict(zip(SUMS, _sums(totals), strict=True)),
        by_path=_moved(account.by_path(trace), PATH),
        sizes=_moved(account.size_histogram(trace), SIZES),
        findings=findings,
        rates=best_rates(trace, node)[:MOST_RATES],
        ranks=ranks_of(trace)[:MOST_RANKS],
        communicating=packed(communicating),
        omissions=[noted.with_texts(lambda text: text[:LONGEST_TEXT]) for noted in trace.omissions],
    )


def _sums(totals: account.Totals) -> Iterator[int]:
    """The values of SUMS."""
    moved = totals.transfers
    yield from (_ns(totals.makespan_seconds), moved.bytes, _ns(moved.exposed_seconds))
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


def best_rates(trace: Trace, node: Node | None) -> list[LinkRate]:
    """The fastest large copy of each GPU and direction: pinned ones between host and GPU, and those between GPUs."""
    towards = pl.col("direction")
    pinned = ((towards == "h2d") & (pl.col("source_memory") == "pinned")) | (
        (towards == "d2h") & (pl.col("destination_memory") == "pinned")
    )
    between_gpus = (towards == "p2p") & pl.col("peer_device").is_not_null()
    copies = trace.operations.filter(
        pl.col("kind") == "copy",
        pinned | between_gpus,
        pl.col("device") >= 0,
        pl.col("bytes") >= LARGE_BYTES,
        pl.col("end_ns") > pl.col("start_ns"),
        pl.col("copy_count").fill_null(1) == 1,
    )
    best = (
        copies.group_by("process", "device", "peer_device", "direction")
        .agg(rate=(pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns"))).max() * 1e9)
        .sort("process", "device", "peer_device", "direction", nulls_last=True)
    )
    rates = []
    for process, device, peer_device, direction, rate in best.iter_rows():
        peer = peer_device if direction == "p2p" else None
        sheet = _data_sheet(node, direction, device, peer)
        rates.append(LinkRate(*_gpu(trace, process, device), device, peer, direction, rate, sheet))
    return rates


def _gpu(trace: Trace, process: int | None, device: int) -> tuple[str | None, str | None]:
    """Model and identity of the GPU that `process` calls `device`."""
    rows = trace.devices.filter(pl.col("device") == device)
    of_process = rows.filter(pl.col("process").is_null() | pl.col("process").eq_missing(process))
    for row in (of_process if of_process.height else rows).iter_rows(named=True):
        return (row["name"] or "")[:100] or None, (row["uuid"] or row["bus_id"] or "")[:100] or None
    return None, None


def _data_sheet(node: Node | None, direction: str, device: int, peer: int | None) -> float | None:
    if node is None or (peer is None and node.link_is_estimated(device)):
        return None
    try:
        path = node.host_path(device) if peer is None else node.peer_path(device, peer)
        rate = path.bandwidth("read" if direction == "h2d" else "write")
    except (InputError, ValueError):
        return None
    return rate if rate < float("inf") else None
