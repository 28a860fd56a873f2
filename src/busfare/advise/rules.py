"""Rules that find by counting: what in this trace costs time on the bus, and what to do about it.

Each gain counted here is an upper bound: what the run as a whole would save if the change cost nothing and nothing else
got in the way. Where nothing prices the change, it is the time of the run that the copies themselves take. Where the run
can be replayed, the gain is what the replay saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from busfare.advise import amounts
from busfare.advise.chosen import Chosen, rows_of, rows_of_calls
from busfare.advise.directives import language_of
from busfare.advise.finding import Finding
from busfare.advise.recorded_on import one_memory
from busfare.cost.pageable import HANDED_OVER_SECONDS_PER_BYTE
from busfare.node import Node
from busfare.trace import Trace
from busfare.trace.api_calls import BLOCKING_COPY, SYMBOL_COPY
from busfare.trace.lanes import is_communication, is_transfer, is_work
from busfare.trace.tables import OPERATIONS_RECORDED
from busfare.trace.totals import union_of

__all__ = ["COPY", "ONE_WAY", "TO_OR_FROM_HOST", "WORTH_SAYING", "Rule", "mostly_copies", "rules_for"]

NS = 1e-9
#: A finding that could save less than this part of the run is not worth a reader's time.
WORTH_SAYING = 0.005
COPY = pl.col("kind") == "copy"
ONE_WAY = tuple(COPY & (pl.col("direction") == direction) for direction in ("h2d", "d2h"))
PAGEABLE = (pl.col("source_memory") == "pageable") | (pl.col("destination_memory") == "pageable")
TO_OR_FROM_HOST = pl.col("direction").is_in(["h2d", "d2h"])
#: Below this a copy costs its latency, whatever the memory.
LATENCY_BOUND_BYTES = 64 * 1024
SMALL_SAID = f"{LATENCY_BOUND_BYTES >> 10} KiB"
MANY = 50
MANY_WAITS = 10
MANY_RETURNS = 5
PLACED = ("kind", "direction", "process", "device", "bytes", "start_ns", "end_ns")
#: Pinned allocation runs at about 5 GB/s (rapidsai/dask-cuda#98, a V100-era host); used where a node says nothing.
PINNING_BYTES_PER_S = 5e9


def _seconds(calls: pl.DataFrame) -> float:
    return float((calls["end_ns"] - calls["start_ns"]).sum()) * NS


def _pinning(size: int, node: Node | None) -> tuple[float, str]:
    """Seconds that making a pinned buffer of `size` bytes takes, and where that is known from."""
    cost = None if node is None else node.call_cost("allocate-pinned")
    if node is None or cost is None:
        rate = amounts.rate(PINNING_BYTES_PER_S)
        return size / PINNING_BYTES_PER_S, f"at {rate}, published for a V100-era host"
    return cost.seconds(size), f"as measured on {node.name}"


def _pageable(trace: Trace, node: Node | None) -> Finding | None:
    large = rows_of(trace, COPY & PAGEABLE, least=LATENCY_BOUND_BYTES + 1)
    small = _handed_over(trace)
    copies = large.beside(small) if small else large
    if not copies.height:
        return None
    size, seconds = copies.bytes(), copies.seconds()
    prices = None if node is None else copies.repriced(node, "pinned")
    largest = int(copies.sizes.max())
    repaid = []
    if prices is not None and seconds > prices.sum():
        pinning, source = _pinning(largest, node)
        uses = pinning / ((seconds - prices.sum()) * largest / size)
        repaid.append(
            f"Allocating {amounts.size(largest)} of pinned memory takes about {amounts.time(pinning)} "
            f"({source}), repaid after {amounts.several(max(1, int(np.ceil(uses))), 'copy')} of it."
        )
    evidence = []
    if large.height:
        rate = amounts.rate(large.bytes() / large.seconds() if large.seconds() else None)
        evidence.append(
            f"{amounts.several(large.height, 'copy')} of more than {SMALL_SAID} moved {amounts.size(large.bytes())} in "
            f"{amounts.time(large.seconds())} ({rate}): the driver stages each through a buffer of its own."
        )
    if small:
        evidence.append(
            f"{amounts.several(small.height, 'copy')} of at most {SMALL_SAID} to the GPU moved "
            f"{amounts.size(small.bytes())}: the host itself writes these bytes into the commands, which its calls wait for."
        )
    return Finding(
        "pageable-copies",
        f"{'Copies' if small else 'Large copies'} from or to pageable memory",
        " ".join([*evidence, *repaid]),
        "Allocate those buffers once as pinned memory (cudaMallocHost, cudaHostRegister, pin_memory=True) and reuse them; "
        "then the copies can also be asynchronous.",
        copies.saved(prices),
        touches=copies,
    )


def _handed_over(trace: Trace) -> Chosen | None:
    """Small pageable copies to the GPU, where writing their bytes into commands may take the host a part of the run that is
    worth saying; None where it does not, or where the trace does not tell of the host.
    """
    if trace.calls.is_empty():
        return None
    small = rows_of(trace, COPY & PAGEABLE & (pl.col("direction") == "h2d"), most=LATENCY_BOUND_BYTES)
    taken = small.bytes() * HANDED_OVER_SECONDS_PER_BYTE if small.height >= MANY else 0.0
    return small if taken > WORTH_SAYING * trace.makespan_seconds else None


def _small(trace: Trace, node: Node | None) -> Finding | None:
    small = rows_of(trace, COPY & TO_OR_FROM_HOST, most=LATENCY_BOUND_BYTES - 1)
    if small.height < MANY:
        return None
    size, seconds = small.bytes(), small.seconds()
    return Finding(
        "small-copies",
        "Many small copies",
        f"{amounts.several(small.height, 'copy')} of less than {SMALL_SAID} took {amounts.time(seconds)} for "
        f"{amounts.size(size)} in all "
        f"({amounts.time(seconds / small.height)} each): they pay for latency, not for bytes."
        + ("" if _handed_over(trace) else " Pinning them gains nothing."),
        "Pack what travels together into one buffer and copy it once, or pass small values as kernel arguments; "
        "cudaMemcpyBatchAsync submits many copies in one call. Results that the host only reports can stay on the GPU "
        "and come back once.",
        max(0.0, min(small.of_run - (small.in_one(node) if node else 0.0), small.exposed)),
        touches=small,
    )


def _symbols(trace: Trace, node: Node | None) -> Finding | None:
    calls = trace.calls_named(SYMBOL_COPY)
    static = pl.col("destination_memory") == "static"
    called = rows_of_calls(trace, COPY & ~static.fill_null(False), SYMBOL_COPY)
    copies = called.beside(rows_of(trace, COPY & static.fill_null(False)))
    if max(copies.height, calls.height) < MANY:
        return None
    host = _seconds(calls)
    return Finding(
        "symbol-copies",
        "Copies to symbols in a loop",
        f"{amounts.several(max(copies.height, calls.height), 'copy')} to __constant__ or __device__ symbols took "
        f"{amounts.time(copies.seconds())} on the GPU and {amounts.time(host)} of the host's time.",
        "Pass the values as kernel arguments, or set the symbol once before the loop.",
        union_of(calls).length() * NS if calls.height else copies.exposed,
        touches=copies,
    )


def _synchronous(trace: Trace, node: Node | None) -> Finding | None:
    calls = trace.calls_named(BLOCKING_COPY)
    if calls.is_empty():
        return None
    copies = rows_of_calls(trace, is_transfer(), BLOCKING_COPY)
    if not copies.height:
        return None
    exposed = copies.exposed
    return Finding(
        "synchronous-copies",
        "Copies that hold the host up",
        f"{amounts.several(calls.height, 'blocking copy call')} kept host threads for "
        f"{amounts.time(_seconds(calls))}; their copies "
        f"ran {amounts.time(copies.seconds())}, {amounts.time(exposed)} of it with no kernel beside them.",
        "Use the asynchronous call on a stream of its own with pinned memory, and wait only where the result is needed.",
        min(exposed, _kernel_seconds_without_copies(trace)),
        touches=copies,
    )


def _kernel_seconds_without_copies(trace: Trace) -> float:
    """Kernel time that no copy uses yet: no more copy time than that can hide behind kernels."""
    either, transfers = trace.lanes.lengths(is_transfer() | is_work(), is_transfer())
    return (either - transfers) * NS


def _unoverlapped(trace: Trace, node: Node | None) -> Finding | None:
    lanes = trace.lanes
    copies = COPY & TO_OR_FROM_HOST
    copied, work, either = lanes.lengths(copies, is_work(), copies | is_work())
    total = copied * NS
    if total == 0 or work == 0:
        return None
    exposed = (either - work) * NS
    if exposed < 0.5 * total:
        return None
    # Behind kernels, and, with two engines, one direction behind the other.
    one_way = min(lanes.lengths(*ONE_WAY)) * NS
    kernels = _kernel_seconds_without_copies(trace)
    hideable = min(exposed, kernels + one_way)
    rest = f" At most {amounts.time(hideable)} can hide: behind kernels, and one direction behind the other."
    return Finding(
        "exposed-copies",
        "Copies that no kernel overlaps",
        f"copies between host and GPU run for {amounts.time(total)}, {amounts.time(exposed)} of it "
        f"({exposed / total:.0%}) while no kernel does.{rest if hideable < 0.5 * exposed else ''}",
        "Split the work into chunks, each with its copy in, kernel and copy out on a stream of its own (pinned memory, "
        "asynchronous copies), so that one chunk's copies run beside another's kernels. Where every kernel needs all of the "
        "data first, this cannot be done.",
        hideable,
        touches=rows_of(trace, copies),
    )


def _migrations(trace: Trace, node: Node | None) -> Finding | None:
    moved = rows_of(trace, pl.col("kind") == "migration")
    if moved.height < MANY:
        return None
    size, seconds = moved.bytes(), moved.seconds()
    directions = moved.columns("direction")["direction"]
    ways = {d: moved.where((directions == d).fill_null(False).to_numpy()).bytes() for d in ("h2d", "d2h")}
    turns = int((directions != directions.shift(1)).sum())
    return Finding(
        "managed-migrations",
        "Managed memory moves page by page",
        f"{amounts.several(moved.height, 'migration')} of {amounts.size(size / moved.height)} on average moved "
        f"{amounts.size(ways['h2d'])} to the GPU and {amounts.size(ways['d2h'])} back in {amounts.time(seconds)} "
        f"({amounts.rate(size / seconds if seconds else None)}), turning round {amounts.count(turns)} "
        "times; kernels wait for "
        "each fault.",
        "Prefetch each buffer before the side that needs it (cudaMemPrefetchAsync), advise where it should stay "
        "(cudaMemAdvise), or use explicit pinned copies.",
        # Kernels stall while pages move, so all of the time counts, exposed or not; at best one prefetch each way.
        max(0.0, moved.of_run - (moved.in_one(node, "pinned") if node else 0.0)),
        touches=moved,
    )


def _slow_link(trace: Trace, node: Node | None) -> Finding | None:
    if node is None or node.link_is_estimated(0):
        return None
    pinned = (pl.col("source_memory") == "pinned") | (pl.col("destination_memory") == "pinned")
    large = rows_of(trace, COPY & pinned, least=1 << 24)
    large = large.where(large.ends > large.starts)
    if not large.height:
        return None
    best = float((large.sizes / (large.ends - large.starts)).max()) / NS
    prices = large.repriced(node)
    expected, size = float(prices.sum()), large.bytes()
    if expected <= 0 or best > 0.7 * size / expected:
        return None
    return Finding(
        "slow-link",
        "The link is slower than it should be",
        f"the fastest of {amounts.several(large.height, 'large pinned copy')} ran at {amounts.rate(best)}; the data "
        f"sheet of {node.name} makes {amounts.rate(size / expected)}.",
        "Check the link's width and generation under load (nvidia-smi -q -d PCIE), the slot, and whether "
        "the process runs on "
        "the GPU's NUMA node.",
        large.saved(prices),
        touches=large,
    )


def _one_memory(trace: Trace, node: Node | None) -> Finding | None:
    """In place of what is advised about a link, where there is none."""
    copies = rows_of(trace, COPY & TO_OR_FROM_HOST)
    if not copies.height:
        return None
    return Finding(
        "one-memory",
        "Copies within one memory",
        f"GPU and host share one memory: {amounts.count(copies.height)} copies of {amounts.size(copies.bytes())} took "
        f"{amounts.time(copies.seconds())} to move data from one place in it to another, over no link.",
        "Let kernels use the host's buffers in place: mapped memory (cudaHostAlloc with cudaHostAllocMapped, "
        "cudaHostGetDevicePointer) or managed memory (cudaMallocManaged). Pinning alone saves no copy here.",
        copies.exposed,
        touches=copies,
    )


def _ping_pong(trace: Trace, node: Node | None) -> Finding | None:
    from busfare.timeline.changes.removal import KNOWN_BY, SMALLEST_BYTES, returned_copies

    # Sizes and order tell of chunks that pass through, too; regions of directives copy the same arrays each time.
    addresses = [name for name in OPERATIONS_RECORDED if name in trace.operations.columns]
    if not addresses and language_of(trace) is None:
        return None
    large = rows_of(trace, COPY & TO_OR_FROM_HOST, least=SMALLEST_BYTES + 1)
    returned, known_by = returned_copies(large.columns(*PLACED, *addresses), node)
    copies = large.where(returned)
    if copies.height < 2 * MANY_RETURNS:
        return None
    return Finding(
        "ping-pong",
        "Buffers that come back and go in again",
        f"What {amounts.count(copies.height // 2)} copies brought back to the host, up to "
        f"{amounts.size(int(copies.sizes.max()))} each, went in again before the host could have written it anew, as "
        f"{KNOWN_BY[known_by]} show: {amounts.size(copies.bytes())} in {amounts.time(copies.seconds())}, both directions.",
        "Keep these buffers on the GPU from one kernel to the next, and bring back what the host needs when it needs it.",
        copies.exposed,
        touches=copies,
    )


def _repeated(trace: Trace, node: Node | None) -> Finding | None:
    if "fingerprint" not in trace.operations.columns:
        return None
    from busfare.timeline.changes.removal import repeated_copies

    repeated = repeated_copies(trace.operations)
    if repeated is None or not repeated.again.any():
        return None
    copies = Chosen(trace, np.flatnonzero(repeated.again).astype(np.uint32))
    stood = (
        f"{amounts.count(copies.height - int(repeated.elsewhere.sum()))} of them where those stood already"
    )
    return Finding(
        "repeated-copies",
        "Buffers that are sent again unchanged",
        f"{amounts.count(copies.height)} of the copies to the GPU sent bytes that had been sent before, {stood} "
        f"({amounts.size(copies.bytes())} in {amounts.time(copies.seconds())}; the largest "
        f"{amounts.size(max(int(copies.sizes.max()), 0))}).",
        "Send such a buffer once and keep it on the GPU; send it again only when the host has changed it.",
        copies.exposed,
        touches=copies,
    )


def _synchronisations(trace: Trace, node: Node | None) -> Finding | None:
    waits = trace.calls_named("Synchronize").filter(pl.col("waits_for").is_in(["stream", "device", "event"]))
    if waits.height < MANY_WAITS:
        return None
    # What the GPU does not do while the host is on its way back from a wait, at most all of its idle time.
    idle = max(0.0, trace.makespan_seconds - trace.lanes.lengths(pl.lit(True))[0] * NS)
    return Finding(
        "synchronisations",
        "The host waits for the GPU again and again",
        f"{amounts.several(waits.height, 'synchronising call')} held host threads for {amounts.time(_seconds(waits))}; "
        "after each, the GPU has nothing to do until the host has sent more.",
        "Synchronise only where the host reads a result; let events and the order of streams do the rest.",
        min(idle, union_of(waits).length() * NS),
    )


def mostly_copies(trace: Trace, node: Node | None, others: Sequence[Finding]) -> Finding | None:
    """What is left to say where copies that nothing hides are most of the run, and no other finding gains half of them."""
    moved = COPY & TO_OR_FROM_HOST
    copied, work, either = trace.lanes.lengths(moved, is_work(), moved | is_work())
    exposed, makespan = (either - work) * NS, trace.makespan_seconds
    best = max(
        (finding.predicted_gain_seconds for finding in others if finding.touches is not None), default=0.0
    )
    if exposed <= 0 or exposed < max(0.5 * makespan, 2 * best):
        return None
    copies = rows_of(trace, moved)
    rate = amounts.rate(copies.bytes() / (copied * NS))
    link = "" if node else " With --node this report also holds their rate against the link's data sheet."
    return Finding(
        "mostly-copies",
        "Most of the run is copies",
        f"copies between host and GPU run for {amounts.time(copied * NS)}, and for {amounts.time(exposed)} of it "
        f"({exposed / makespan:.0%} of the run) no kernel computes: {amounts.size(copies.bytes())}, "
        f"{rate} over all GPUs.",
        "Move less: keep on the GPU what is used again, send smaller types or only what is read, or make on the GPU what is "
        f"sent.{link}",
        exposed,
        touches=copies,
    )


#: Rules about the link between host and GPU, and what stands in their place where both share one memory.
OF_A_LINK = (_pageable, _unoverlapped, _slow_link)
Rule = Callable[[Trace, "Node | None"], Finding | None]
RULES: tuple[Rule, ...] = (
    _ping_pong,
    _pageable,
    _small,
    _symbols,
    _synchronous,
    _unoverlapped,
    _migrations,
    _slow_link,
    _repeated,
    _synchronisations,
)


def rules_for(trace: Trace, node: Node | None) -> tuple[Rule, ...]:
    """The rules that apply; none where no GPU worked, as nothing can be gained there that the trace tells of."""
    lanes = trace.lanes
    if not lanes.chosen(is_work() | is_communication() | is_transfer()).any():
        return ()
    if not one_memory(trace, node):
        return RULES
    return (_one_memory, *(rule for rule in RULES if rule not in OF_A_LINK))
