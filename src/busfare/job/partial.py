"""What one trace adds to a job: a small summary of whole numbers, so that sums are the same in any order."""

from __future__ import annotations

from pathlib import Path

import msgspec

from busfare import account, advise
from busfare.cost.ranges import finding_between
from busfare.job.place import Place, place_of
from busfare.job.rates import LinkRate, best_rates
from busfare.job.traffic import LinkTraffic, link_traffic
from busfare.node import Node
from busfare.trace import Trace

__all__ = ["Found", "Left", "Moved", "Partial", "Sized", "partial"]

NS = 1e9
#: Texts of a trace are cut to this: a partial stays small whatever a file holds.
LONGEST_TEXT = 2000
MOST_GPUS = 64
MOST_RATES = 256


class Moved(msgspec.Struct, frozen=True):
    """Transfers of one direction between two kinds of memory."""

    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int
    bytes: int
    ns: int


class Sized(msgspec.Struct, frozen=True):
    """Transfers of one decade of sizes."""

    lower_bytes: int
    upper_bytes: int
    count: int
    ns: int


class Found(msgspec.Struct, frozen=True):
    """A finding; `gain_ns` is what the replayed run saves or an upper bound. `overlaps_with`: ids of findings that touch
    some of the same operations.
    """

    id: str
    title: str
    evidence: str
    change: str
    gain_ns: int
    by_replay: bool = False
    rests_on: tuple[str, ...] = ()
    what_if: tuple[str, ...] = ()
    overlaps_with: tuple[str, ...] = ()
    low_ns: int | None = None  # the 80 % range of the gain
    high_ns: int | None = None


class Left(msgspec.Struct, frozen=True):
    """An omission."""

    id: str
    count: int
    what: str


class Partial(msgspec.Struct, frozen=True):
    """One trace's share of a job. Times are whole nanoseconds, sizes bytes."""

    format: str
    place: Place
    node: str | None  # where it was recorded, for gains and data-sheet rates
    node_guessed: bool
    gpus: list[str]  # names of the GPUs that worked, each once
    makespan_ns: int
    transfers: int
    transfer_bytes: int
    transfer_ns: int
    exposed_ns: int
    kernels: int
    kernel_ns: int  # of kernels that compute; those that carry data between GPUs are communication
    communication: int
    communication_ns: int
    graph_work: int
    graph_ns: int
    sets: int
    set_ns: int
    by_path: list[Moved]
    sizes: list[Sized]
    findings: list[Found]
    rates: list[LinkRate]
    traffic: list[LinkTraffic]
    unrouted_bytes: int  # of copies whose path through the node is not known
    omissions: list[Left]


def partial(trace: Trace, path: Path, node: Node | None = None) -> Partial:
    """The share of `trace` in its job; a pure function of its arguments.

    `path` gives rank and host where the trace does not; `node` is where the job ran, guessed from the GPU's name
    otherwise.
    """
    guessed = node is None
    node = node or advise.guess_node(trace)
    totals = account.totals(trace)
    operations = trace.operations
    traffic, unrouted = link_traffic(operations, node)
    return Partial(
        format=trace.format,
        place=place_of(trace, path),
        node=node.name if node else None,
        node_guessed=guessed and node is not None,
        gpus=_gpus(trace),
        makespan_ns=_ns(totals.makespan_seconds),
        transfers=totals.transfers.count,
        transfer_bytes=totals.transfers.bytes,
        transfer_ns=_ns(totals.transfers.seconds),
        exposed_ns=_ns(totals.transfers.exposed_seconds),
        kernels=totals.kernels,
        kernel_ns=_ns(totals.kernel_seconds),
        communication=totals.communication,
        communication_ns=_ns(totals.communication_seconds),
        graph_work=totals.graph_work,
        graph_ns=_ns(totals.graph_seconds),
        sets=totals.sets,
        set_ns=_ns(totals.set_seconds),
        by_path=[
            Moved(
                row["direction"],
                row["source_memory"],
                row["destination_memory"],
                row["count"],
                row["bytes"],
                _ns(row["seconds"]),
            )
            for row in account.by_path(operations).iter_rows(named=True)
        ],
        sizes=[
            Sized(row["lower_bytes"], row["upper_bytes"], row["count"], _ns(row["seconds"]))
            for row in account.size_histogram(operations).iter_rows(named=True)
        ],
        findings=[
            Found(
                f.id,
                f.title,
                f.evidence,
                f.change,
                _ns(f.gain_seconds),
                f.by_replay,
                f.rests_on,
                f.what_if,
                f.overlaps_with,
                *(_ns(end) for end in _gain_between(f, totals, node) or ()),
            )
            for f in advise.findings(trace, node, advise.rebuilt(trace, node))
        ],
        rates=best_rates(trace, node)[:MOST_RATES],
        traffic=traffic,
        unrouted_bytes=unrouted,
        omissions=[Left(o.id, o.count, _text(o.what)) for o in trace.omissions],
    )


def _gain_between(f: advise.Finding, totals: account.Totals, node: Node | None) -> tuple[float, float] | None:
    return finding_between(f.gain_seconds, f.by_replay, f.what_if, totals.makespan_seconds, node)


def _ns(seconds: float) -> int:
    return round(seconds * NS)


def _text(text: str) -> str:
    return text[:LONGEST_TEXT]


def _gpus(trace: Trace) -> list[str]:
    used = trace.operations["device"].drop_nulls().unique()
    named = trace.devices.filter(trace.devices["device"].is_in(used.implode()))["name"].drop_nulls().unique()
    return sorted(_text(name)[:100] for name in named)[:MOST_GPUS]
