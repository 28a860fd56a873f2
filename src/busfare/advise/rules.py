"""Rules that find by counting: what in this trace costs time on the bus, and what to do about it.

Each gain counted here is an upper bound: what the run as a whole would save if the change cost nothing and nothing else
got in the way. Where nothing prices the change, it is the time of the run that the copies themselves take. Where the run
can be replayed, the gain is what the replay saves.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from busfare.advise.finding import Chosen, Finding, finding, language_of, rows_of, rows_of_calls
from busfare.cost.copies import HANDED_OVER_SECONDS_PER_BYTE, in_place_share
from busfare.nodes import Gpu, Node, load_node
from busfare.nodes.contention import published
from busfare.statements import Statement, statement
from busfare.timeline.changes.device_memory import reallocations
from busfare.timeline.changes.fewer_copies import SMALLEST_BYTES, repeated_copies, returned_copies
from busfare.timeline.changes.overlap import timing_waits
from busfare.timeline.changes.pinning import pinning_of, untouched
from busfare.timeline.model import STAGED_ABOVE_BYTES
from busfare.trace import Trace
from busfare.trace.lanes import is_communication, is_transfer, is_work
from busfare.trace.tables import OPERATIONS_RECORDED
from busfare.trace.totals import union_of
from busfare.trace.words import BLOCKING_COPY, MAPS_HOST_MEMORY, SYMBOL_COPY

NS = 1e-9
#: GPUs inside a processor, where the trace does not say so itself: Tegra modules, Grace-Blackwell desktops, APUs.
INTEGRATED = r"\b(Orin|Xavier|Tegra|Jetson|Thor|GB10|MI300A)\b|Radeon.* Graphics$"
#: A finding that could save less than this part of the run is not worth a reader's time.
WORTH_SAYING = 0.005
COPY = pl.col("kind") == "copy"
DIRECTIONS = tuple(COPY & (pl.col("direction") == direction) for direction in ("h2d", "d2h"))
PAGEABLE = (pl.col("source_memory") == "pageable") | (pl.col("destination_memory") == "pageable")
TO_OR_FROM_HOST = pl.col("direction").is_in(["h2d", "d2h"])
#: What kernels of cuDNN, and of PyTorch's own convolutions, are called.
CONVOLUTIONS = r"(?i)cudnn|implicit_convolve|winograd|convolution"
MANY = 50
MANY_WAITS = 10
MANY_RETURNS = 5
MEMORIES = ("source_memory", "destination_memory")
PLACED = ("kind", "direction", "process", "device", "bytes", "start_ns", "end_ns")


def _seconds(calls: pl.DataFrame) -> float:
    return float((calls["end_ns"] - calls["start_ns"]).sum()) * NS


def _pinning(bytes_: int, node: Node | None) -> Statement:
    """What making a pinned buffer of so many bytes takes, and where that is known from."""
    cost = None if node is None else node.call_cost("allocate-pinned")
    if node is None or cost is None:
        rates = published("pinning")
        ends = {"low_seconds": bytes_ / rates.high, "high_seconds": bytes_ / rates.low}
        return Statement("pageable-copies.pinning-published", {"bytes": bytes_, **ends})
    seconds, id = float(cost.seconds(bytes_)), "pageable-copies.pinning-measured"
    return Statement(id, {"bytes": bytes_, "high_seconds": seconds, "node": node.name})


def _pageable(trace: Trace, node: Node | None) -> Finding | None:
    large = rows_of(trace, COPY & PAGEABLE, least=STAGED_ABOVE_BYTES + 1)
    small = _handed_over(trace)
    copies = large.and_then(small) if small else large
    if not copies.height:
        return None
    evidence = []
    share = None if node is None else in_place_share(node)
    if large.height:
        figures = {"limit_bytes": STAGED_ABOVE_BYTES, **large.figures()}
        staged = statement("pageable-copies.staged", **figures)
        evidence.append(staged if share is None else statement("pageable-copies.in-place", **figures))
    if small:
        evidence.append(
            statement("pageable-copies.handed-over", limit_bytes=STAGED_ABOVE_BYTES, **small.figures())
        )
    prices = None if node is None else copies.repriced(node, "pinned")
    if share is not None:
        prices = (copies.ends - copies.starts).astype(np.float64) * (NS * share)
    addresses = [name for name in OPERATIONS_RECORDED if name in trace.operations.columns]
    once = pinning_of(copies.columns(*PLACED, *MEMORIES, *addresses), node)
    cost = None
    if once is not None:
        ends = {"low_seconds": once.low, "high_seconds": once.high}
        cost = Statement("pageable-copies.pinning-once", {"bytes": once.bytes, **ends})
    elif prices is not None and copies.seconds() > float(prices.sum()):
        cost = _pinning(int(copies.sizes.max()), node)
    if node is not None and node.host_path(0).is_c2c:
        evidence.append(statement("pageable-copies.read-in-place"))
    title = "title-small" if small else "title"
    saved = copies.saved(prices) - (once.seconds if once else 0.0)
    return replace(finding("pageable-copies", evidence, max(0.0, saved), copies, title), cost=cost)


def _handed_over(trace: Trace) -> Chosen | None:
    """Small pageable copies to the GPU, where writing their bytes into commands may take the host a part of the run that is
    worth saying; None where it does not, or where the trace does not tell of the host.
    """
    if trace.calls.is_empty():
        return None
    small = rows_of(trace, COPY & PAGEABLE & (pl.col("direction") == "h2d"), most=STAGED_ABOVE_BYTES)
    taken = small.bytes() * HANDED_OVER_SECONDS_PER_BYTE if small.height >= MANY else 0.0
    return small if taken > WORTH_SAYING * trace.makespan_seconds else None


def _small(trace: Trace, node: Node | None) -> Finding | None:
    small = rows_of(trace, COPY & TO_OR_FROM_HOST, most=STAGED_ABOVE_BYTES - 1)
    if small.height < MANY:
        return None
    mean = small.seconds() / small.height
    figures = small.figures() | {"limit_bytes": STAGED_ABOVE_BYTES, "mean_seconds": mean}
    evidence = [statement("small-copies.evidence", **figures)]
    evidence += [] if _handed_over(trace) else [statement("small-copies.pinning-gains-nothing")]
    rows = _array_rows(small)
    evidence += [statement("small-copies.rows", count=rows)] if rows >= MANY else []
    saved = small.of_run - (small.merged_seconds(node) if node else 0.0)
    change = "change-rows" if rows >= MANY else "change"
    return finding("small-copies", evidence, max(0.0, min(saved, small.exposed)), small, change=change)


def _array_rows(copies: Chosen) -> int:
    """Number of copies that are rows of an array section, copied row by row: of equal size, with addresses that grow by
    equal steps on each side, by more than a row on at least one. 0 where the trace has no addresses.
    """
    addresses = ("source_address", "destination_address")
    if not {*addresses} <= {*copies.trace.operations.columns}:
        return 0
    alike = ("process", "direction", "bytes")
    steps = [pl.col(name).cast(pl.Int64, strict=False).diff().over(alike) for name in addresses]
    section = pl.min_horizontal(steps) >= pl.col("bytes")
    section &= pl.max_horizontal(steps) > pl.col("bytes")
    section &= pl.all_horizontal(step == step.shift(1).over(alike) for step in steps)
    return int(copies.columns(*alike, *addresses).select(section.sum()).item())


def _symbols(trace: Trace, node: Node | None) -> Finding | None:
    calls = trace.calls_named(SYMBOL_COPY)
    static = (pl.col("destination_memory") == "static").fill_null(False)
    copies = rows_of_calls(trace, COPY & ~static, SYMBOL_COPY).and_then(rows_of(trace, COPY & static))
    number = max(copies.height, calls.height)
    if number < MANY:
        return None
    figures = {"count": number, "seconds": copies.seconds(), "host_seconds": _seconds(calls)}
    evidence = [statement("symbol-copies.evidence", **figures)]
    gain = union_of(calls).length() * NS if calls.height else copies.exposed
    return finding("symbol-copies", evidence, gain, copies)


def _synchronous(trace: Trace, node: Node | None) -> Finding | None:
    calls = trace.calls_named(BLOCKING_COPY)
    if calls.is_empty() or not (copies := rows_of_calls(trace, is_transfer(), BLOCKING_COPY)).height:
        return None
    figures = {"calls": calls.height, "host_seconds": _seconds(calls), "exposed_seconds": copies.exposed}
    evidence = [statement("synchronous-copies.evidence", seconds=copies.seconds(), **figures)]
    gain = min(copies.exposed, _kernel_seconds_without_copies(trace))
    return finding("synchronous-copies", evidence, gain, copies)


def _kernel_seconds_without_copies(trace: Trace) -> float:
    """Kernel time that no copy uses yet: no more copy time than that can hide behind kernels."""
    either, transfers = trace.lanes.lengths(is_transfer() | is_work(), is_transfer())
    return (either - transfers) * NS


def _unoverlapped(trace: Trace, node: Node | None) -> Finding | None:
    copies = COPY & TO_OR_FROM_HOST
    copied, work, either = trace.lanes.lengths(copies, is_work(), copies | is_work())
    total, exposed = copied * NS, (either - work) * NS
    if total == 0 or work == 0 or exposed < 0.5 * total:
        return None
    # Behind kernels, and, with two engines, one direction behind the other.
    shorter_direction = min(trace.lanes.lengths(*DIRECTIONS)) * NS
    hideable = min(exposed, _kernel_seconds_without_copies(trace) + shorter_direction)
    share = exposed / total
    evidence = [
        statement("exposed-copies.evidence", seconds=total, exposed_seconds=exposed, exposed_share=share)
    ]
    if hideable < 0.5 * exposed:
        evidence.append(statement("exposed-copies.hideable", seconds=hideable))
    return finding("exposed-copies", evidence, hideable, rows_of(trace, copies))


def _migrations(trace: Trace, node: Node | None) -> Finding | None:
    moved = rows_of(trace, pl.col("kind") == "migration")
    if moved.height < MANY:
        return None
    directions = moved.columns("direction")["direction"]
    into, back = (
        moved.where((directions == direction).fill_null(False).to_numpy()).bytes()
        for direction in ("h2d", "d2h")
    )
    turns = int((directions != directions.shift(1)).sum())
    figures = {"mean_bytes": moved.bytes() / moved.height, "h2d_bytes": into, "d2h_bytes": back}
    evidence = [statement("managed-migrations.evidence", turns=turns, **figures, **moved.figures())]
    # Kernels stall while pages move, so all of the time counts, exposed or not; at best one prefetch each way.
    gain = moved.of_run - (moved.merged_seconds(node, "pinned") if node else 0.0)
    return finding("managed-migrations", evidence, max(0.0, gain), moved)


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
    expected = float(prices.sum())
    if expected <= 0 or best > 0.7 * large.bytes() / expected:
        return None
    rates = {"fastest": best, "data_sheet": large.bytes() / expected}
    evidence = statement("slow-link.evidence", count=large.height, node=node.name, **rates)
    return finding("slow-link", [evidence], large.saved(prices), large)


def _first_touch(trace: Trace, node: Node | None) -> Finding | None:
    """Copies to pageable memory at the rate of untouched memory that are the first into their address ranges (without
    addresses: the first of their size), if later copies of the same size were faster, or if no pageable copy is.
    """
    to_pageable = COPY & (pl.col("direction") == "d2h") & (pl.col("destination_memory") == "pageable")
    back = rows_of(trace, to_pageable, least=STAGED_ABOVE_BYTES + 1)
    addresses = ["destination_address"] if "destination_address" in trace.operations.columns else []
    place = addresses[0] if addresses else "bytes"
    copies = back.columns(*PLACED, *MEMORIES, *addresses).with_columns(
        first=pl.struct("process", place).is_first_distinct(),
        seconds=pl.Series((back.ends - back.starts) * NS, dtype=pl.Float64),
    )
    slow = pl.col("bytes") <= published("first_touch").high * pl.col("seconds")
    later = pl.col("seconds").filter(~pl.col("first") & ~slow).median().over("process", "bytes")
    usual = copies.select(pl.when(pl.col("first") & slow).then(later)).to_series().to_numpy()
    id, by_size = "first-touch.evidence", not addresses
    if np.isnan(usual).all():
        id, by_size = "first-touch.alone", False
        sent = rows_of(trace, COPY & PAGEABLE, least=STAGED_ABOVE_BYTES + 1)
        alone = sent.rows[untouched(sent.columns(*PLACED, *MEMORIES, *addresses))]
        usual = np.where(np.isin(back.rows, alone), back.repriced(node, "pageable") if node else 0.0, np.nan)
    first, seconds = back.where(~np.isnan(usual)), usual[~np.isnan(usual)]
    if not first.height:
        return None
    figures = first.figures() | {"usual_bytes_per_second": first.bytes() / max(NS, float(seconds.sum()))}
    evidence = [statement(id, **figures)] + [statement("first-touch.by-size")] * by_size
    return finding("first-touch", evidence, first.saved(seconds), first)


def _shared_memory(trace: Trace, node: Node | None) -> Finding | None:
    """In place of what is advised about a link, where there is none."""
    copies = rows_of(trace, COPY & TO_OR_FROM_HOST)
    if not copies.height:
        return None
    evidence = [statement("one-memory.evidence", **copies.figures())]
    return finding("one-memory", evidence, copies.exposed, copies)


def _ping_pong(trace: Trace, node: Node | None) -> Finding | None:
    # Sizes and order tell of chunks that pass through, too; regions of directives copy the same arrays each time.
    addresses = [name for name in OPERATIONS_RECORDED if name in trace.operations.columns]
    if not addresses and language_of(trace) is None:
        return None
    large = rows_of(trace, COPY & TO_OR_FROM_HOST, least=SMALLEST_BYTES + 1)
    returned, identified_by = returned_copies(large.columns(*PLACED, *addresses), node)
    copies = large.where(returned)
    if copies.height < 2 * MANY_RETURNS:
        return None
    figures = copies.figures() | {"count": copies.height // 2, "largest_bytes": int(copies.sizes.max())}
    evidence = [statement("ping-pong.evidence", known_by=statement(f"common.by-{identified_by}"), **figures)]
    return finding("ping-pong", evidence, copies.exposed, copies)


def _repeated(trace: Trace, node: Node | None) -> Finding | None:
    if "fingerprint" not in trace.operations.columns:
        return None
    repeated = repeated_copies(trace.operations)
    if repeated is None or not repeated.again.any():
        return None
    copies = Chosen(trace, np.flatnonzero(repeated.again).astype(np.uint32))
    largest, there = max(int(copies.sizes.max()), 0), copies.height - int(repeated.elsewhere.sum())
    figures = copies.figures() | {"there_already": there, "largest_bytes": largest}
    evidence = [statement("repeated-copies.evidence", **figures)]
    return finding("repeated-copies", evidence, copies.exposed, copies)


def _synchronisations(trace: Trace, node: Node | None) -> Finding | None:
    timing = np.flatnonzero(timing_waits(trace.calls))
    waits = trace.calls_named("Synchronize").filter(pl.col("waits_for").is_in(["stream", "device", "event"]))
    waits = waits.filter(~pl.col("row").is_in(timing))
    if waits.height < MANY_WAITS:
        return None
    evidence = [statement("synchronisations.evidence", calls=waits.height, host_seconds=_seconds(waits))]
    evidence += [statement("synchronisations.mapped")] * (trace.calls_named(MAPS_HOST_MEMORY).height > 0)
    # What the GPU does not do while the host is on its way back from a wait, at most all of its idle time.
    idle = max(0.0, trace.makespan_seconds - trace.lanes.lengths(pl.lit(True))[0] * NS)
    counted = finding("synchronisations", evidence, min(idle, union_of(waits).length() * NS))
    return replace(counted, calls=waits["row"].to_numpy())


def _reallocations(trace: Trace, node: Node | None) -> Finding | None:
    """Device memory that is freed and allocated again, but by PyTorch between the trials of cuDNN's autotuning."""
    chosen = np.flatnonzero(reallocations(trace.calls))
    if not len(chosen) or _autotuning(trace, node):
        return None
    calls = trace.calls.select("start_ns", "end_ns")[chosen]
    # Where the node does not say it, the figure of the GPU that was measured first.
    nodes = [n for n in (node, load_node("h200-sxm")) if n]
    name, cost = next((n.name, cost) for n in nodes if (cost := n.call_cost("allocate-device")))
    figures = {"host_seconds": _seconds(calls), "copy_seconds": cost.wait_per_byte_s * 2**30}
    evidence = [statement("device-allocations.evidence", calls=calls.height, node=name, **figures)]
    counted = finding("device-allocations", evidence, union_of(calls).length() * NS)
    return replace(counted, calls=chosen)


def _autotuning(trace: Trace, node: Node | None) -> Finding | None:
    timing = trace.calls.filter(pl.Series(timing_waits(trace.calls)))
    names = trace.operations["name"].unique().cast(pl.String)
    if timing.height < MANY_WAITS or not names.str.contains(CONVOLUTIONS).any():
        return None
    evidence = [statement("autotuning.evidence", calls=timing.height, host_seconds=_seconds(timing))]
    counted = finding("autotuning", evidence, union_of(timing).length() * NS)
    return replace(counted, calls=np.flatnonzero(timing_waits(trace.calls)))


def _small_results(trace: Trace, node: Node | None) -> Finding | None:
    small = rows_of(trace, COPY & (pl.col("direction") == "d2h"), most=STAGED_ABOVE_BYTES - 1)
    if small.height < MANY_WAITS:
        return None
    lanes = trace.lanes
    behind = np.searchsorted(lanes.rows(is_work()), small.rows)
    steps = len(np.unique(behind[behind > 0]))
    if steps < MANY_WAITS:
        return None
    following = np.append(lanes.starts[1:], lanes.starts[-1:])
    idle = np.maximum(following - np.maximum.accumulate(lanes.ends), 0)[small.rows] * NS
    figures = {"idle_seconds": float(idle.sum()), "median_idle_seconds": float(np.median(idle))}
    figures |= {"limit_bytes": STAGED_ABOVE_BYTES, "steps": steps}
    evidence = [statement("small-results.evidence", count=small.height, **figures)]
    return finding("small-results", evidence, float(idle.sum()) + small.exposed, small)


def mostly_copies(trace: Trace, node: Node | None, findings: Sequence[Finding]) -> Finding | None:
    """What is left to say where copies that nothing hides are most of the run, and no other finding gains half of them."""
    moved = COPY & TO_OR_FROM_HOST
    copied, work, either = trace.lanes.lengths(moved, is_work(), moved | is_work())
    exposed, makespan = (either - work) * NS, trace.makespan_seconds
    best = max((f.predicted_gain_seconds for f in findings if f.touches is not None), default=0.0)
    if exposed <= 0 or exposed < max(0.5 * makespan, 2 * best):
        return None
    copies = rows_of(trace, moved)
    figures = {"seconds": copied * NS, "exposed_seconds": exposed, "exposed_share": exposed / makespan}
    figures |= {"bytes": copies.bytes(), "bytes_per_second": copies.bytes() / (copied * NS)}
    evidence = [statement("mostly-copies.evidence", **figures)]
    change = "change" if node else "change-and-link"
    return finding("mostly-copies", evidence, exposed, copies, change=change)


#: Rules about the link between host and GPU, and what stands in their place where both share one memory.
OF_A_LINK = (_pageable, _unoverlapped, _slow_link, _first_touch)
#: Of these nothing can be said where some kernels are not recorded.
NEEDS_KERNELS = (_synchronous, _unoverlapped, _synchronisations)
Rule = Callable[[Trace, "Node | None"], Finding | None]
RULES: tuple[Rule, ...] = (
    *(_ping_pong, _pageable, _small, _symbols, _synchronous, _unoverlapped, _migrations, _slow_link),
    *(_repeated, _first_touch, _small_results, _synchronisations, _reallocations, _autotuning),
)


def shares_memory(trace: Trace, node: Node | None) -> bool:
    """Whether the GPUs of `trace` and their host share one memory, so that copies between them stay within it."""
    if node is not None and any(isinstance(part, Gpu) and part.unified_memory for part in node.components):
        return True
    gpus = trace.devices.select("name", "integrated").rows()
    integrated_gpus = [
        bool(re.search(INTEGRATED, name or "", re.IGNORECASE)) if integrated is None else integrated
        for name, integrated in gpus
    ]
    return bool(integrated_gpus) and all(integrated_gpus)


def rules_for(trace: Trace, node: Node | None) -> tuple[Rule, ...]:
    """The rules that apply; none where no GPU worked, as nothing can be gained there that the trace tells of."""
    lanes = trace.lanes
    if not lanes.chosen(is_work() | is_communication() | is_transfer()).any():
        return ()
    shared = shares_memory(trace, node)
    left_out = OF_A_LINK * shared + NEEDS_KERNELS * trace.lacks_kernels
    return (*(_shared_memory,) * shared, *(rule for rule in RULES if rule not in left_out))
