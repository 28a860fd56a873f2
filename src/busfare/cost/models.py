"""What a cost model is, the models by name (built in, or registered by other packages), and one copy priced by all."""

import difflib
import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import polars as pl

from busfare.cost import batches, copies
from busfare.cost.batches import Batch, Seconds
from busfare.cost.ranges import LONG_COPY_BYTES, RUNGS, is_wide, ranged, seconds_between
from busfare.errors import InputError
from busfare.nodes import Cpu, Curve, FloatArray, Memory, Node
from busfare.nodes.contention import published
from busfare.nodes.transfers import DEFAULT_LATENCY_S, Direction, MemoryKind
from busfare.statements import Words, statement
from busfare.trace.tables import OPERATIONS

#: The entry-point group in which a package names its factories.
GROUP = "busfare.cost_models"
#: Bytes that cost less than this share of what the smallest copy takes are lost in it.
LEAST_SHARE = 0.1
#: A pageable copy that took less than so many times what its engine needs was staged before or after it.
STAGED_OUTSIDE = 1.3
#: Buffers of this size lie in the cache of every processor seen: they show how fast a processor copies.
CACHED_BYTES = float(8 << 20)
#: Exact as a float, and beyond any memory.
MOST_BYTES = 2**53


class CostModel(Protocol):
    """Anything that prices operations. Third parties register theirs under the entry-point group `busfare.cost_models`. An
    entry point names a callable `(latency_from: Node | None, recorded_on: Node | None) -> CostModel`.
    """

    @property
    def name(self) -> str:
        """The word that picks the model."""
        ...

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of each operation on `node`: shape (rows,), float64, NaN where the model does not apply."""
        ...


class Calibrated:
    """Re-prices a trace that was recorded on a known node: each copy's own recorded time, split into overhead, link and host
    share, each re-priced on the new node. Raises InputError where the old node is not given.

    The overhead is the trace's own L+o of that path. The link share is what the old data sheet says the wire needs (of
    pinned copies as much longer as the quickest long one took), at most all. The host share is the rest, as of a cold cache.
    On the new node the link share changes as the data sheets do, the host share as the processors do, and the overhead
    stays, or is that of `latency_from`.

    Where the path was measured on both nodes, the bytes change as what was measured of them: of pinned copies what keeps a
    copy engine busy, of pageable ones that were staged while they ran what the two processors take over cached buffers.
    """

    name = "calibrated"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        if recorded_on is None:
            raise InputError("model 'calibrated': name the node that recorded the trace with `recorded_on`")
        self._old = recorded_on
        self._latency_from = latency_from

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every recorded copy on `node`: its recorded time where that is the node it was recorded on."""
        recorded, path_batches = batches.recorded_seconds(operations), batches.batches(operations)
        before = copies.of_trace(operations, path_batches)
        after = copies.of_node(self._latency_from) if self._latency_from is not None else before

        def price(batch: Batch) -> Seconds | None:
            batch_recorded = recorded[batch.rows]
            overhead = np.minimum(batch_recorded, batch.copies * before.of(batch))
            if self._latency_from is None and node != self._old:
                carried = _carried(batch, batch_recorded, overhead, self._old, node)
                if carried is not None:
                    return carried
            moved = _by_shares(batch, batch_recorded - overhead, self._old, node)
            return None if moved is None else overhead * (after.of(batch) / before.of(batch)) + moved

        return batches.priced(operations.height, path_batches, price)


def _by_shares(batch: Batch, rest: FloatArray, old: Node, new: Node) -> FloatArray | None:
    """What is left of recorded times without their overhead, on another node: link and host share by the data sheets."""
    old_link, new_link = copies.moving_seconds(batch, old), copies.moving_seconds(batch, new)
    if old_link is None or new_link is None:
        return None
    # A link is as far from its data sheet with all pinned copies as with the quickest of the long ones.
    long = (batch.sizes >= LONG_COPY_BYTES) & (rest > 0) & (batch.memory == "pinned")
    slack = max(1.0, float(np.min(rest[long] / old_link[long]))) if long.any() else 1.0
    link = np.minimum(slack * old_link, rest)
    moved = link * np.divide(new_link, old_link, out=np.ones_like(old_link), where=old_link > 0)
    # What it lacked may be lanes: a slower link takes no longer than its data sheet says, or than was recorded.
    moved = np.asarray(np.minimum(moved, np.maximum(link, new_link)), float)
    if copies.is_staged(batch, new):
        sizes = np.maximum(batch.sizes, 1.0)
        if not copies.is_staged(batch, old):  # the recorded times hold no staging
            return copies.staged_seconds(sizes, moved / sizes, copies.copy_seconds_per_byte(sizes, new))
        copying = copies.copying_seconds_per_byte(sizes, rest, link / sizes)
        return copies.staged_seconds(sizes, moved / sizes, copying * copies.copy_ratio(sizes, old, new))
    in_place = copies.is_staged(batch, old) and not batch.stays_on_device(new)
    # By how much longer the new node's host memory takes over a byte; alike where either data sheet is silent.
    before, after = (
        next((c.bandwidth_bytes_per_s for c in node.components if isinstance(c, Memory)), None)
        for node in (old, new)
    )
    host = np.zeros_like(rest) if in_place else rest - link
    return moved + host * (before / after if before is not None and after is not None else 1.0)


def _curves(
    old: Node, new: Node, direction: str, memory: str, device: int = 0, peer: int | None = None
) -> tuple[Curve, Curve] | None:
    """The curves of one path on both nodes; None where either was not measured."""
    here, there = (node.curve(direction, memory, device, peer) for node in (old, new))
    return None if here is None or there is None else (here, there)


def _carried(
    batch: Batch, recorded: FloatArray, overhead: FloatArray, old: Node, new: Node
) -> FloatArray | None:
    """Seconds on the new node of recorded copies, shape (rows,); None where the path was not measured on both.

    What happened to one copy among its like (of the same path and size) does not happen to the same one elsewhere: each
    takes their mean.
    """
    if batch.kind not in ("copy", "migration"):
        return None
    by_host, path = batch.direction in ("h2d", "d2h"), (batch.device, batch.to_peer)
    mapped = batch.kind == "copy" and batch.memory == "mapped"
    memory = "device" if not by_host else "mapped" if mapped else "pinned"
    engines = _curves(old, new, batch.direction, memory, *path)
    if engines is None:
        return None
    recorded, overhead = (_mean_of_their_size(batch, seconds) for seconds in (recorded, overhead))
    bytes_taken = (recorded - overhead) * _bytes_ratio(batch.sizes, *engines)
    by_engine = np.maximum(overhead + bytes_taken, LEAST_SHARE * recorded)
    if batch.kind == "migration" or batch.memory != "pageable" or not by_host:
        return by_engine
    hosts = _curves(old, new, batch.direction, "pageable", *path)
    if hosts is None:
        return None
    staged = recorded > STAGED_OUTSIDE * engines[0].seconds(np.maximum(batch.sizes, 1.0))
    return np.where(staged, recorded + _staging_difference(batch.sizes, recorded, *hosts), by_engine)


def _mean_of_their_size(batch: Batch, seconds: FloatArray) -> FloatArray:
    """The mean of `seconds` over the rows that have a time and are of the same size; NaN where a row has none."""
    _, alike = np.unique(np.stack([batch.sizes, batch.copies]), axis=1, return_inverse=True)
    alike = alike.reshape(-1)
    timed = np.isfinite(seconds)
    sums = np.bincount(alike, np.where(timed, seconds, 0.0))
    means: FloatArray = sums / np.maximum(np.bincount(alike, timed), 1)
    return np.where(timed, means[alike], np.nan)


def _bytes_ratio(sizes: FloatArray, here: Curve, there: Curve) -> FloatArray:
    """What the bytes of such a copy were measured to take on the new node, over what they did on the old one."""
    sizes = np.maximum(sizes, 1.0)
    first = [curve.seconds(np.ones(1)) for curve in (here, there)]
    old, new = (curve.seconds(sizes) - start for curve, start in zip((here, there), first, strict=True))
    # Of a few bytes the difference of two latencies would say nothing.
    return np.divide(new, old, out=np.ones_like(old), where=(new > 0) & (old > LEAST_SHARE * first[0]))


def _staging_difference(sizes: FloatArray, recorded: FloatArray, here: Curve, there: Curve) -> FloatArray:
    """What copies that are staged while they run take longer on the new node (s), less than nothing where it is quicker: as
    long as the two processors take over what they have in their caches.

    What a copy took beyond that, in a cold cache or beside others' traffic, stays as it was: no probe of a quiet moment
    tells of it. Where one measurement leaves the cache and the other does not yet says nothing of the program's buffers.
    """
    sizes = np.maximum(sizes, 1.0)
    cached = np.minimum(sizes, CACHED_BYTES)
    old, new = (curve.seconds(cached) * sizes / cached for curve in (here, there))
    difference: FloatArray = (new / old - 1) * np.minimum(old, recorded)
    return difference


def how_staged(direction: str, old: Node, new: Node) -> Words:
    """By what pageable copies of one direction, recorded on `old`, change on `new`."""
    if old == new:
        return statement("project.staged-as-recorded")
    if all(_curves(old, new, direction, memory) for memory in ("pinned", "pageable")):
        return statement("project.staged-measured")
    rates = [(node.name, copies.measured_copy(node)) for node in (old, new)]
    if missing := [name for name, rate in rates if rate is None]:
        return statement("project.staged-unmeasured", nodes=tuple(missing))
    there = (
        statement("project.staged-rate", node=name, gigabytes_per_second=(rate or 0.0) / 1e9)
        for name, rate in rates
    )
    return statement("project.staged-changed", rates=tuple(there))


Factory = Callable[..., CostModel]
#: The one for machines that nobody measured first, then that for a recorded trace.
_BUILT_IN: dict[str, Factory] = dict.fromkeys(["datasheet", "calibrated"], Calibrated)
_BUILT_IN |= {name: partial(copies.ByFormula, name) for name in copies.FORMULAS}


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _BUILT_IN}


def model_names() -> list[str]:
    """The names of all models, built in first."""
    return [*_BUILT_IN, *sorted(_plugins())]


def model(name: str, *, latency_from: Node | None = None, recorded_on: Node | None = None) -> CostModel:
    """The model called `name`, with L+o from `latency_from` and, for a trace, the node it was recorded on. Raises InputError
    naming the known models, or saying why a plug-in cannot be used.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name](latency_from=latency_from, recorded_on=recorded_on)
    factory = _loaded(name)
    try:
        return factory(latency_from=latency_from, recorded_on=recorded_on)
    except Exception as error:
        raise InputError(f"model {name!r}: creating its plug-in fails ({error}); fix or remove it") from None


def _loaded(name: str) -> Factory:
    point = _plugins().get(name)
    if point is None:
        near = difflib.get_close_matches(name, model_names(), 1)
        fix = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(model_names())}"
        raise InputError(f"model {name!r}: not known; {fix}")
    try:
        factory = point.load()
    except Exception as error:
        raise InputError(
            f"model {name!r}: its plug-in {point.value} fails to load ({error}); fix or remove it"
        ) from None
    if not callable(factory):
        raise InputError(f"model {name!r}: its plug-in {point.value} is not a factory; see docs/models.md")
    return factory  # type: ignore[no-any-return]


def as_copies_of(operations: pl.DataFrame, memory: str) -> pl.DataFrame:
    """The operations as copies between host and device, with host memory of a kind."""
    kind = pl.lit(memory, dtype=operations.schema["source_memory"])
    h2d, d2h = (pl.col("direction") == direction for direction in ("h2d", "d2h"))
    return operations.with_columns(
        kind=pl.lit("copy", dtype=operations.schema["kind"]),
        source_memory=pl.when(h2d).then(kind).otherwise("source_memory"),
        destination_memory=pl.when(d2h).then(kind).otherwise("destination_memory"),
    )


def copy_operations(direction: str, memory: str, bytes_: Sequence[int]) -> pl.DataFrame:
    """Operations, one a size, that copy `bytes_` bytes between GPU 0 and the host, itself, or GPU 1."""
    host = direction in ("h2d", "d2h")
    return pl.DataFrame(
        {
            "kind": "copy",
            "direction": direction,
            "bytes": bytes_,
            "source_memory": memory if direction == "h2d" or not host else "device",
            "destination_memory": memory if direction == "d2h" or not host else "device",
            "device": 0,
            "peer_device": 1 if direction == "p2p" else None,
            "copy_count": 1,
            "start_ns": None,
            "end_ns": None,
        },
        schema_overrides=OPERATIONS,
    )


def trusted(
    node: Node,
    direction: str,
    memory: str,
    prices: Sequence[dict[str, Any]],
    latency_from: Node | None = None,
) -> tuple[str, Words] | None:
    """The model among `prices` to trust, and why; None if neither `loggp` nor `datasheet` has a price.

    The other models are a published one (`ahead`) and baselines without packets, staging or latency. `latency_from`: the
    node whose L+o the prices have.
    """
    names = {row["model"] for row in prices}
    if any((row["model"], row["rung"]) == ("loggp", "probed") for row in prices):
        return "loggp", statement("price.trust-measured")
    if "datasheet" not in names:
        return None
    if "loggp" in names:
        return "datasheet", statement("price.trust-long")
    gpu, cpu = node.gpu(0), next((c for c in node.components if isinstance(c, Cpu)), None)
    within = direction == "d2d" or (gpu.unified_memory and direction != "p2p")
    table, rate = (gpu, gpu.copy_bandwidth_bytes_per_s) if within else (cpu, copies.measured_copy(node))
    source = node.provenance(table, "copy_bandwidth_bytes_per_s") if table and rate else None
    hosted = memory == "pageable" and direction in ("h2d", "d2h")
    if source and (within or hosted):
        row = next(row for row in prices if row["model"] == "datasheet")
        figures = {"memory": memory, "bytes_per_second": row["bytes_per_second"], "source": source.cite}
        wide = row["low_seconds"] is not None and is_wide(row["low_seconds"], row["high_seconds"])
        return "datasheet", statement(f"price.trust-source{'-wide' * wide}", **figures)
    start = DEFAULT_LATENCY_S[direction]
    measured_start = copies.of_node(latency_from or node).measured(direction, memory)
    if not within and measured_start is None and prices[0]["seconds"] < 2 * start:
        return "datasheet", statement("price.trust-start", seconds=start)
    unmeasured = "price.trust-pageable" if hosted and not node.host_path(0).is_c2c else "price.trust-link"
    return "datasheet", statement("price.trust-within" if within else unmeasured)


class Seen(NamedTuple):
    """Seconds that a program sees, with the least and the most of them; `why`: where they are from."""

    seconds: float
    low_seconds: float
    high_seconds: float
    rung: str
    why: Words


def with_call(node: Node, direction: str, memory: str, row: dict[str, Any]) -> Seen | None:
    """A copy's price `row` with its call, and a wait until it is over: by the node's calls, else by what was published of
    small copies. None where GPU and host share one memory, where the price is of the whole call, or has no range.
    """
    gpu, curve = node.gpu(0), node.curve(direction, memory)
    low, high = row["low_seconds"], row["high_seconds"]
    whole = row["model"] == "loggp" and curve is not None and curve.timing == "call"
    if gpu.unified_memory or whole or low is None or high is None:
        return None
    calls = [node.call_cost(name) for name in ("copy", "synchronise")]
    if all(calls):
        added = sum(call.seconds() for call in calls if call)
        why = statement("price.why-calls-measured")
        return Seen(row["seconds"] + added, low + added, high + added, "probed", why)
    maker = "amd" if (gpu.compute_capability or "").startswith("gfx") else "nvidia"
    small, start = published(f"caller_{maker}"), DEFAULT_LATENCY_S[direction]
    least, most = (max(0.0, end - start) for end in (small.low, small.high))
    return Seen(row["seconds"] + (least * most) ** 0.5, low + least, high + most, "datasheet", small.sources)


def to_untouched(bytes_: int) -> Seen:
    """A copy to pageable host memory that nobody wrote yet, whose pages the host faults in meanwhile."""
    rates = published("first_touch")
    low, high = bytes_ / rates.high, bytes_ / rates.low
    return Seen((low * high) ** 0.5, low, high, "datasheet", rates.sources)


def price(
    node: Node, direction: str, memory: str, bytes_: int, latency_from: Node | None = None
) -> list[dict[str, Any]]:
    """`model`, `seconds` with their range and rung, and `bytes_per_second` of one copy, by every model that applies. Raises
    InputError for a direction, memory kind or size that no copy has.
    """
    for what, value, allowed in (("direction", direction, Direction), ("memory", memory, MemoryKind)):
        if value not in get_args(allowed):
            raise InputError(f"`{what}` {value!r}: unknown; choose one of {', '.join(get_args(allowed))}")
    if not 0 <= bytes_ <= MOST_BYTES:
        raise InputError(f"`bytes` {bytes_}: give a size from 0 to {MOST_BYTES}")
    operations = copy_operations(direction, memory, [bytes_])
    path = (direction, memory)
    only_long = any(curve.only_long for curve in node.curves if (curve.direction, curve.memory) == path)
    unmeasured = only_long and bytes_ < LONG_COPY_BYTES
    prices = []
    for name in model_names():
        try:
            candidate = model(name, latency_from=latency_from)
        except InputError:  # needs a trace, or is a plug-in that cannot be used: it does not apply here
            continue
        seconds = float(candidate.seconds(operations, node)[0])
        if math.isfinite(seconds):
            rate = bytes_ / seconds if seconds > 0 else None
            low, high = (float(factor[0]) * seconds for factor in ranged(operations, name, node))
            rung = "datasheet" if unmeasured and name == "loggp" else RUNGS.get(name)
            ranges = seconds_between(low, high, rung)
            prices.append({"model": name, "seconds": seconds, **ranges, "bytes_per_second": rate})
    return prices


def packing_seconds(sizes: FloatArray, node: Node | None) -> FloatArray:
    """Host time to pack these bytes: from staged copies within the cache on `node`, otherwise typical; s, shape (rows,)."""
    curve = node.curve("h2d", "pageable") if node is not None else None
    if curve is None:
        return sizes / copies.COPY_BYTES_PER_S
    small, large = curve.seconds(np.array([copies.SERIAL_BYTES, CACHED_BYTES]))
    return np.asarray(sizes * float(large - small) / (CACHED_BYTES - copies.SERIAL_BYTES))
