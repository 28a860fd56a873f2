"""Other times of copies, kernels and the host: on another node or link, by factors, or with managed pages sent early."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import cost
from busfare.cost.kernels.price import NOT_VALIDATED, KernelPrices
from busfare.errors import InputError
from busfare.nodes import FloatArray, Node
from busfare.nodes.contention import published
from busfare.questions import HostRule, KernelRule, Scaled
from busfare.statements import Words, statement
from busfare.timeline.build.links import shared_links
from busfare.timeline.build.work import FAULT_NS
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    applied,
    change,
    host_slowed,
    nanoseconds_from,
    titled,
    with_durations,
    with_times,
    without_operations,
)
from busfare.timeline.model import (
    Mask,
    Timeline,
    Times,
    activity,
    calls_touched,
    matching,
    operations_touched,
)
from busfare.trace.lanes import Union

#: Rules for kernel times that compare two nodes: a rate of the GPU.
RATIOS = {"bandwidth": "memory_bandwidth_bytes_per_s", "clock": "clock_hz"}
#: Calls by which hosts compare: what programs call most.
HOST_CALLS = ("launch", "synchronise", "copy")


def on_node(node: Node) -> Change:
    """The copies run on another node, or over another link."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            raise InputError(
                f"{timeline.trace.path}: the trace does not name a GPU that busfare knows; name its node "
                "with `recorded_on` NODE"
            )
        kept, moved = timeline.columns["operation_duration"], timeline.among("kind", "copy", "migration")
        model = cost.model(setting.model, recorded_on=setting.recorded_on)
        priced = model.seconds(with_times(timeline), node) * 1e9
        duration = np.where(moved & np.isfinite(priced), priced, kept)  # without a price, the recorded time
        changed = with_durations(timeline, kernels_held(timeline, duration))
        links = shared_links(timeline.operations, node)
        if links and timeline.links and _host_link(setting.recorded_on) == _host_link(node):
            # Behind the same link, copies share it as the recording shows.
            links = timeline.links if links.lanes == timeline.links.lanes else links
        changed = replace(changed, node=node, links=links)
        return applied(timeline, changed, moved, statement("assumes.host-kept"))

    return Change("node", statement("change.on-node", node=node.name), apply, node)


def _host_link(node: Node) -> tuple[str, float]:
    """The kind of the link that limits copies between host and GPU, and its bytes/s."""
    link = node.host_path(0).narrowest("read")
    return type(link).__name__, link.bandwidth("read")


@change("copy_speed", lambda factor: statement("change.copy-speed", factor=factor))
def copy_speed(timeline: Timeline, setting: Setting, factor: float) -> Applied:
    """Every copy and migration takes `factor` times less."""
    moved = timeline.among("kind", "copy", "migration")
    duration = timeline.columns["operation_duration"] / np.where(moved, factor, 1.0)
    return applied(timeline, with_durations(timeline, kernels_held(timeline, duration)), moved)


def _scaled(factor: float, pattern: str = "", ratio: str = "") -> Words:
    scaled = titled("kernels", pattern, factor=factor)
    return statement("change.by", change=scaled, rate=ratio) if ratio else scaled


@change("kernels", _scaled)
def kernel_times(
    timeline: Timeline, setting: Setting, factor: float, pattern: str = "", ratio: str = ""
) -> Applied:
    """Every kernel whose name matches takes `factor` times its time; `ratio`: the rule of RATIOS that says so."""
    chosen = matching(timeline, pattern, timeline.among("kind", "kernel", "graph", "set"), "`kernels`")
    duration = timeline.columns["operation_duration"] * np.where(chosen, factor, 1.0)
    return Applied(with_durations(timeline, duration), operations_touched(timeline, chosen, sized=False))


def _predicted_kernels(to: Node) -> Change:
    """Kernels take what is predicted for `to`; those of which nothing is predicted keep their times."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            return Applied(timeline)
        try:
            prices = setting.kernel_prices(timeline, to)
        except InputError as error:
            return Applied(timeline, rests_on=[statement("assumes.kernels-kept", why=str(error))])
        priced = np.isfinite(prices.seconds)
        seconds = getattr(prices, setting.kernel_time)
        times = nanoseconds_of_kernels(timeline.columns["operation_duration"], prices, seconds)
        kept = int((~priced).sum())
        rests_on = [statement("assumes.some-kernels-kept", count=kept)] if kept else []
        rests_on += [statement("assumes.kernels-not-validated")] * (prices.rung == NOT_VALIDATED)
        moved = np.zeros(len(times), bool)
        moved[prices.rows[priced]] = True
        return Applied(
            with_durations(timeline, times), operations_touched(timeline, moved, sized=False), rests_on
        )

    return Change("kernels", statement("change.kernels-predicted", node=to.name), apply, to)


@change(
    "host", lambda factor, measured=False: statement(f"change.host{'-measured' * measured}", factor=factor)
)
def host_times(timeline: Timeline, setting: Setting, factor: float, measured: bool = False) -> Applied:
    """CPU time in and between calls times `factor`; waits follow their work. `measured`: measured on both nodes."""
    every_call = calls_touched(timeline, np.ones(timeline.calls.height, bool))
    return Applied(host_slowed(timeline, factor), every_call, [statement("assumes.host-alike")])


def nanoseconds_of_kernels(times: FloatArray, prices: KernelPrices, seconds: FloatArray) -> FloatArray:
    """The times of all operations, with kernel times from `seconds` where known; shape (operations,)."""
    changed = times.astype(np.float64)
    changed[prices.rows] = np.where(np.isfinite(seconds), seconds * 1e9, changed[prices.rows])
    return changed


def host_ratio(old: Node, new: Node, as_measured: bool = False) -> float | None:
    """Host seconds on `new` over those on `old`: the geometric mean of the HOST_CALLS that both nodes measured, or None. Of
    a quick probe, only the part beyond the difference of two machines of a kind counts, unless `as_measured`.
    """
    costs = [(old.call_cost(name), new.call_cost(name)) for name in HOST_CALLS]
    ratios = [
        there.call_s / here.call_s for here, there in costs if here and there and here.call_s and there.call_s
    ]
    sources = [*old.sources.values(), *new.sources.values()]
    quick = any(source.cite.startswith("busfare probe --quick") for source in sources)
    if not ratios or as_measured or not quick:
        return float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    ratio = float(np.mean(np.log(ratios)))
    return math.exp(math.copysign(max(abs(ratio) - math.log(published("host_calls").high), 0.0), ratio))


def host_doubt(old: Node, new: Node) -> float:
    """The factor beyond `host_ratio` by which a quick probe says the host is slower; 1 for full probes."""
    measured, counted = host_ratio(old, new, as_measured=True), host_ratio(old, new)
    return measured / counted if measured and counted else 1.0


def host_changes(rule: HostRule, recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Host times by rule: `measured` (kept where not both nodes were), `keep`, or a factor."""
    if rule == "keep":
        return []
    if rule != "measured":
        return [host_times(rule)]
    ratio = host_ratio(recorded_on, to) if recorded_on is not None and to is not None else None
    return [] if ratio is None or ratio == 1 else [host_times(ratio, measured=True)]


def kernel_changes(rules: Sequence[KernelRule], recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Kernel times by rule: `predicted` for the other node, where there is one, which goes without saying; `keep`,
    `bandwidth`, `clock`, or a factor. Raises InputError where a node that a rule compares is not known.
    """
    changes: list[Change] = []
    for rule in rules or ("predicted",):
        if rule == "predicted":
            changes += [] if to is None else [_predicted_kernels(to)]
        elif isinstance(rule, Scaled):
            changes.append(kernel_times(*rule))
        elif rule != "keep":
            changes.append(_by_ratio(rule, recorded_on, to))
    return changes


def _by_ratio(rule: str, recorded_on: Node | None, to: Node | None) -> Change:
    if recorded_on is None or to is None:
        raise InputError(
            f"`kernels` {rule}: compares two nodes; name the target with `node` and the recording node with `recorded_on`"
        )
    fact = RATIOS[rule]
    rates = []
    for node in (recorded_on, to):
        rates.append(float(getattr(node.gpu(0), fact) or math.nan))
        if math.isnan(rates[-1]):
            raise InputError(f"`kernels` {rule}: {node.name} lacks {fact} of its GPU; give a factor instead")
    return kernel_times(rates[0] / rates[1], ratio=rule)


@change("prefetch", partial(statement, "change.prefetch"))
def prefetch(timeline: Timeline, setting: Setting) -> Applied:
    """Migrations become one a kernel, before it, as fast as a prefetch; kernels no longer fault."""
    faults = _faults(timeline)
    if not faults.moved.any():
        return Applied(timeline)
    faulting = faults.standing > 0
    kernels = faults.kernels[faulting]
    duration = timeline.columns["operation_duration"].astype(np.float64)
    h2d = pl.lit("h2d", timeline.operations["direction"].dtype)
    like = timeline.operations[kernels].with_columns(direction=h2d)
    begins, ends = like["start_ns"].to_numpy(), like["end_ns"].to_numpy()
    sending = _sent(timeline, faults.moved, like, begins, ends, setting)
    resident = _resident(timeline, faults, duration)[faulting]
    duration[kernels] = np.minimum(duration[kernels], resident + sending)
    # What the host touches comes back in one piece, too, before it is touched.
    changed = _host_side(with_durations(timeline, duration), faults.moved, setting)
    touched = faults.moved.copy()
    touched[kernels] = True
    after = without_operations(changed, faults.moved)
    return replace(
        applied(timeline, after, faults.moved, statement("assumes.pages-used")),
        touched=activity(timeline, touched),
    )


class Faults(NamedTuple):
    """`moved`: the moves that nobody launched, shape (operations,). Of each kernel, how long pages move while it runs
    (`moving`), and how long it stands still for them, from each fault on (`standing`); ns, shape (kernels,).
    """

    moved: Mask
    kernels: Times
    moving: Times
    standing: Times


def _faults(timeline: Timeline) -> Faults:
    """The faults of a timeline's kernels, as recorded. Within a chain of faults a kernel stands still between the moves,
    too; the gap before the first is its own work.
    """
    moved = timeline.among("kind", "migration") & ~timeline.launched
    starts, ends = timeline.recorded_spans
    kernels = np.flatnonzero(timeline.among("kind", "kernel"))
    order = np.flatnonzero(moved)[np.argsort(starts[moved], kind="stable")]
    begins, latest_end = starts[order], np.maximum.accumulate(ends[order])
    chained = np.zeros(len(order), bool)
    chained[1:] = begins[1:] - latest_end[:-1] <= FAULT_NS
    since = np.where(chained, np.minimum(begins, np.concatenate([begins[:1], latest_end[:-1]])), begins)
    moving = Union.of(begins, ends[order]).covered_within(starts[kernels], ends[kernels])
    standing = Union.of(since, ends[order]).covered_within(starts[kernels], ends[kernels])
    return Faults(moved, kernels, moving, np.where(moving > 0, standing, 0))


def kernels_held(timeline: Timeline, duration: NDArray[Any]) -> NDArray[Any]:
    """`duration`, and where moves take another time than in `timeline`, the kernels that stand still for them with it.
    Nanoseconds, shape (operations,). Where nothing moves any more, nothing faults.
    """
    before = timeline.columns["operation_duration"]
    faults = _faults(timeline)
    if not faults.moved.any() or np.array_equal(duration[faults.moved], before[faults.moved]):
        return duration
    starts, ends = timeline.recorded_spans
    kernels = (starts[faults.kernels], ends[faults.kernels])
    took, takes = (
        _within(starts[faults.moved], values[faults.moved], *kernels) for values in (before, duration)
    )
    ratio = np.divide(takes, took, out=np.ones_like(took), where=took > 0)
    held = duration.astype(np.float64)
    held[faults.kernels] -= np.minimum(faults.moving * (1 - ratio), held[faults.kernels])
    gone = (took > 0) & (takes == 0)
    held[faults.kernels[gone]] = _resident(timeline, faults, duration.astype(np.float64))[gone]
    return held


def _within(starts: Times, values: NDArray[Any], begins: Times, ends: Times) -> FloatArray:
    """The sum of the values of what starts within each stretch of time; shape (stretches,)."""
    order = np.argsort(starts, kind="stable")
    total = np.append(0.0, np.cumsum(values[order]))
    first, last = (np.searchsorted(starts[order], times) for times in (begins, ends))
    return np.asarray(total[last] - total[first])


def _sent(
    timeline: Timeline, moved: Mask, like: pl.DataFrame, begins: Times, ends: Times, setting: Setting
) -> FloatArray:
    """What all pages moved in each stretch take in one piece, `like` these operations; ns, shape (stretches,)."""
    if like.is_empty():
        return np.zeros(0)
    moves = moved & timeline.among("direction", str(like["direction"].first()))
    size = _within(timeline.recorded_spans[0][moves], timeline.sizes[moves], begins, ends)
    whole = like.with_columns(bytes=pl.Series(size).cast(pl.Int64), copy_count=pl.lit(1, pl.Int32))
    return nanoseconds_from("managed", whole, setting.recorded_on)


def _resident(timeline: Timeline, faults: Faults, duration: FloatArray) -> FloatArray:
    """What each kernel takes with its pages there: as its own runs without faults show, or without the moving time."""
    names = timeline.operations["name"].cast(pl.String).gather(pl.Series(faults.kernels))
    within, taken = pl.col("within"), pl.col("taken")
    frame = pl.DataFrame({"name": names, "within": faults.standing, "taken": duration[faults.kernels]})
    quiet = pl.min_horizontal(taken.filter(within == 0).median().over("name"), taken)
    stalled = pl.max_horizontal(taken - within, 0.0)
    has_quiet = taken.filter(within == 0).len().over("name") > 0
    return frame.select(pl.when(has_quiet).then(quiet).otherwise(stalled)).to_series().to_numpy()


def _host_side(timeline: Timeline, moved: Mask, setting: Setting) -> Timeline:
    """Host gaps shrink by what pages took to come back while no kernel ran, less one copy of them."""
    back = timeline.operations.filter(pl.Series(moved & timeline.among("direction", "d2h")))
    ends = timeline.calls["start_ns"].to_numpy()
    gap = timeline.columns["call_gap"].copy()
    begins = ends - gap
    within = Union.of(back["start_ns"].to_numpy(), back["end_ns"].to_numpy()).covered_within(begins, ends)
    rows = np.flatnonzero(within > 0)
    if len(rows):
        like = back.sort("start_ns")[np.zeros(len(rows), np.int64)]
        sending = _sent(timeline, moved, like, begins[rows], ends[rows], setting)
        gap[rows] = np.maximum(0, gap[rows] - np.maximum(0, within[rows] - sending)).astype(np.int64)
    return timeline.with_columns(call_gap=gap)
