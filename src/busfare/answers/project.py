"""A trace of node A, priced on node B: copies by any cost model, and the whole run; answers `project` and `compare`."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import polars as pl
from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec.structs import asdict

from busfare import cost
from busfare.advise.amounts import Predicted
from busfare.cost.kernels.classes import CLASSES
from busfare.cost.kernels.move import BOUNDS
from busfare.cost.kernels.price import NOT_VALIDATED, KernelPrices
from busfare.cost.models import how_staged
from busfare.cost.ranges import NO_HELD_OUT_DATA, RUNGS, figures_of, range_of, ranged, seconds_between
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.questions import HostRule, KernelRule
from busfare.statements import Words, sentences, statement
from busfare.timeline import Played, Timeline, critical_path_shares, limits, play, timeline
from busfare.timeline.changes import Change, Setting
from busfare.timeline.changes.durations import (
    host_changes,
    host_doubt,
    host_times,
    kernel_changes,
    nanoseconds_of_kernels,
    on_node,
)
from busfare.timeline.edit import with_durations
from busfare.trace import Trace
from busfare.trace.lanes import is_transfer
from busfare.trace.readers import record_again

NS = 1e-9
#: More than this part of the GPU's time is most of it.
MOST = 0.5
MOSTLY_GRAPHS = statement("no-range.mostly-graphs")
#: The least change of the whole run that counts as a change.
NOTICED = 0.005
#: Times nearer than this are the same but for rounding.
SAME_TIME = 1e-6
#: A predicted time and the ends of its range.
ENDS = ["predicted_seconds", "low_seconds", "high_seconds"]
PATH = ["direction", "source_memory", "destination_memory"]


def keeps_graphs(change: Change) -> bool:
    """Whether a change predicts kernels for another node, which what is hidden in graphs cannot be."""
    return change.kind == "kernels" and change.node is not None


class There(Predicted, kw_only=True):
    """A recorded time and its prediction for another node: None where only a range, or with a `reason` nothing, is known."""

    predicted_seconds: float | None  # type: ignore[assignment]
    recorded_seconds: float


class TransfersThere(There, kw_only=True):
    unpriced: int


class RunThere(There, kw_only=True):
    replayed_seconds: float
    method: Words


class PathPredicted(There, kw_only=True):
    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int


class PathThere(PathPredicted, kw_only=True):
    bytes: int


class KernelsPredicted(There, kw_only=True):
    """Kernels of a class, and the bound that their prediction went by."""

    kind: str = field(name="class")
    bound: str
    count: int


class KernelClassThere(KernelsPredicted, kw_only=True):
    """All kernels of a class with the same bound; only a range on another vendor's GPU."""

    why: Words


class KernelsThere(Struct, kw_only=True):
    """`rule`: how their times were had. `by_class` is empty where a rule of the user's was followed. `counted`: of `count`,
    those whose bytes were counted; `uncounted`: the others by the reason (UNCOUNTED); both left out without counters.
    """

    count: int
    counted: int | UnsetType = UNSET
    uncounted: dict[str, int] | UnsetType = UNSET
    recorded_seconds: float
    rule: Words
    not_predicted: int = 0
    by_class: list[KernelClassThere] = []


class Projection(Struct, kw_only=True):
    """A run on another node, by one model. `limited_by`: shares of the recorded run that `cpu`, `gpu` and `copies` limit."""

    recorded_on: str = field(name="from")
    to: str
    model: str
    limited_by: dict[str, float]
    transfers: TransfersThere
    makespan: RunThere
    kernels: KernelsThere
    pageable_copies: Words | None
    by_path: list[PathThere]


class Projected(Projection, tag_field="schema", tag="busfare.project/1", kw_only=True):
    """The first node's projection, and all of them."""

    from_guessed_from_gpu_name: bool
    verdict: Words
    projections: list[Projection]


def recorded_transfers(trace: Trace) -> pl.DataFrame:
    """The transfers of `trace` with `recorded_seconds`."""
    seconds = (pl.col("end_ns") - pl.col("start_ns")) * NS
    return trace.operations.filter(is_transfer()).with_columns(recorded_seconds=seconds)


def transfers_priced(trace: Trace, recorded_on: Node, to: Node, model: str) -> pl.DataFrame:
    """The transfers of `trace` with `recorded_seconds`, and `predicted_seconds` on `to` (null where `model` has none), with
    `low_seconds` and `high_seconds` (null where nothing is known of its errors). Raises InputError for an unknown model.
    """
    transfers = recorded_transfers(trace)
    predicted = cost.model(model, recorded_on=recorded_on).seconds(transfers, to)
    low, high = ranged(transfers, model, to, recorded_on)
    return transfers.with_columns(
        predicted_seconds=pl.Series(predicted).fill_nan(None),
        low_seconds=pl.Series(predicted * low).fill_nan(None),
        high_seconds=pl.Series(predicted * high).fill_nan(None),
    )


def project(
    trace: Trace,
    recorded_on: Node,
    to: Node,
    model: str,
    kernels: Sequence[KernelRule] = (),
    host: HostRule = "measured",
    rebuilt: Timeline | None = None,
) -> Projection:
    """Predicts copies and whole-run time of `trace` on node `to`; `kernels` are rules for kernel times.

    `host` is the rule for host times. `rebuilt` is the timeline of `trace`, where it was made before. Raises
    InputError for an unknown model.
    """
    transfers = transfers_priced(trace, recorded_on, to, model)
    if transfers.is_empty() and not (trace.operations["kind"] == "kernel").any():
        raise InputError(
            f"{trace.path}: the trace has no copies and no kernels, and there is nothing to project (see `busfare report`)"
        )
    unpriced = transfers["predicted_seconds"].null_count()
    kept = pl.col("predicted_seconds").is_null()
    transfers = transfers.with_columns(
        pl.when(kept).then("recorded_seconds").otherwise(name).alias(name) for name in ENDS
    )
    before = play(rebuilt or timeline(trace, recorded_on), path=True)
    rules = kernel_changes(kernels, recorded_on, to)
    host_rules = host_changes(host, recorded_on, to)
    changed = before.timeline
    rests_on: list[Words] = []
    setting = Setting(recorded_on, model)
    for change in (on_node(to), *rules, *host_rules):
        applied = change.apply(changed, setting)
        changed = applied.timeline
        rests_on += applied.rests_on if change in rules else []
    after = play(changed)
    prices = _prices(before.timeline, setting, to)
    rung = RUNGS.get(model)
    between_makers = prices is not None and prices.rung == NOT_VALIDATED
    if between_makers:  # nothing of one maker's GPUs tells that copies keep their times
        ratio = pl.col("predicted_seconds") / pl.col("recorded_seconds")
        point = pl.when((ratio - 1).abs() > SAME_TIME).then("predicted_seconds")
        transfers = transfers.with_columns(predicted_seconds=point)
    prices = prices if not kernels else None
    point_seconds, low, high = transfers.select(map(_whole_sum, ENDS)).row(0)
    host_rule = _clauses([rule.title for rule in host_rules]) or statement("project.host-kept")
    opaque = before.timeline.opaque_share if any(map(keeps_graphs, rules)) else 0.0
    kept_graphs = [statement("assumes.graphs-kept", share=opaque)] * bool(opaque)
    kernel_rule = _clauses([*(rests_on or [rule.title for rule in rules]), *kept_graphs])
    kernel_rule = kernel_rule or statement("project.kernels-kept")
    run_rung = NOT_VALIDATED if prices and between_makers else rung
    low_run, high_run = None, None
    if not (hidden := opaque > MOST):
        low_run, high_run = run_between(after, model, recorded_on, to, prices)
        if host == "measured" and (doubted := host_doubt(recorded_on, to)) != 1:
            slowed = play(host_times(doubted).apply(changed, setting).timeline).makespan_seconds
            low_run, high_run = min(low_run, slowed), max(high_run, slowed)
    return Projection(
        recorded_on=recorded_on.name,
        to=to.name,
        model=model,
        limited_by=limits(critical_path_shares(before)),
        transfers=TransfersThere(
            recorded_seconds=float(transfers["recorded_seconds"].sum()),
            predicted_seconds=point_seconds,
            **seconds_between(low, high, rung),
            unpriced=unpriced,
        ),
        makespan=RunThere(
            recorded_seconds=before.timeline.recorded_ns * NS,
            replayed_seconds=before.makespan_seconds,
            predicted_seconds=None if hidden or run_rung != rung else after.makespan_seconds,
            **seconds_between(low_run, high_run, run_rung, MOSTLY_GRAPHS if hidden else NO_HELD_OUT_DATA),
            method=statement("project.method", host=host_rule, kernels=kernel_rule),
        ),
        kernels=_kernels(trace, prices, kernel_rule),
        pageable_copies=_staging(transfers, recorded_on, to) if model == "calibrated" else None,
        by_path=by_path(PathThere, transfers, rung, pl.col("bytes").sum()),
    )


def projected(projections: Sequence[Projection], guessed: bool = False) -> Projected:
    """The first node's projection at the top, and all of them. `guessed`: where it was recorded, from the GPU's name."""
    every = list(projections)
    return Projected(
        **asdict(every[0]), from_guessed_from_gpu_name=guessed, verdict=_verdict(every), projections=every
    )


def _verdict(projections: Sequence[Projection]) -> Words:
    """What limits the recorded run, and which node shortens it most."""
    shares = projections[0].limited_by
    shares = shares | {"unexplained": 1.0 - sum(shares.values())}
    limiter = next((what for what in ("cpu", "gpu", "unexplained") if shares[what] >= MOST), "mixed")
    limit = statement(f"project.{limiter}-bound", **shares)
    runs = [
        (p.makespan.predicted_seconds, p) for p in projections if p.makespan.predicted_seconds is not None
    ]
    if not runs:
        return limit
    seconds, best = min(runs, key=lambda run: run[0])
    run = best.makespan
    ratio = seconds / run.recorded_seconds if run.recorded_seconds else 1.0
    figures = {
        "seconds": seconds,
        "recorded": run.recorded_seconds,
        "low": run.low_seconds,
        "high": run.high_seconds,
    }
    takes = statement(f"project.takes{'-between' * (run.low_seconds is not None)}", **figures)
    outcome = "same" if abs(1 - ratio) < NOTICED else "faster" if ratio < 1 else "slower"
    several = len(projections) > 1
    return sentences(
        limit, statement(f"project.{outcome}{'-best' * several}", node=best.to, ratio=ratio, takes=takes)
    )


def _clauses(parts: Sequence[Words]) -> Words | None:
    return statement("common.clauses", parts=tuple(parts)) if parts else None


def _prices(recorded: Timeline, setting: Setting, to: Node) -> KernelPrices | None:
    try:
        return setting.kernel_prices(recorded, to)
    except InputError:  # what cannot be known of one of the GPUs; the kernels' rule says so
        return None


def by_counters(trace: Trace, prices: KernelPrices) -> dict[str, Any]:
    """The keys `counted` and `uncounted` of KernelsThere."""
    if trace.counters is None:
        return {}
    left = trace.counters.drop_nulls("uncounted").group_by("uncounted").agg(pl.col("launches").sum())
    return {"counted": prices.counted, "uncounted": dict(left.sort("uncounted").iter_rows())}


def _kernels(trace: Trace, prices: KernelPrices | None, rule: Words) -> KernelsThere:
    kernels = trace.operations.filter(kind="kernel")
    return KernelsThere(
        count=kernels.height,
        **({} if prices is None else by_counters(trace, prices)),
        recorded_seconds=float((kernels["end_ns"] - kernels["start_ns"]).sum()) * NS,
        rule=rule,
        not_predicted=kernels.height if prices is None else int(np.isnan(prices.seconds).sum()),
        by_class=[] if prices is None else _kernel_classes(prices, _between(trace)),
    )


def _staging(transfers: pl.DataFrame, recorded_on: Node, to: Node) -> Words | None:
    """By what pageable copies change, each direction of them."""
    staged = transfers.filter(pl.any_horizontal(pl.col("source_memory", "destination_memory") == "pageable"))
    directions = staged["direction"].drop_nulls().cast(pl.String).unique().sort()
    changes = dict.fromkeys(how_staged(direction, recorded_on, to) for direction in directions)
    return statement("common.changes", parts=tuple(changes)) if changes else None


Row = TypeVar("Row", bound=PathPredicted)


def by_path(row: type[Row], transfers: pl.DataFrame, rung: str | None, *more: pl.Expr) -> list[Row]:
    """Sums of the transfers of each path, and `more` of them, with their ranges; the longest first."""
    sums = (pl.len().alias("count"), pl.col("recorded_seconds").sum(), *map(_whole_sum, ENDS), *more)
    paths = transfers.group_by(PATH).agg(sums).sort("recorded_seconds", "count", descending=True).to_dicts()
    ranged = [path | seconds_between(path["low_seconds"], path["high_seconds"], rung) for path in paths]
    return convert(ranged, list[row])  # type: ignore[valid-type]


def _whole_sum(name: str) -> pl.Expr:
    """The sum; null where a part is not known."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)


def run_between(
    run: Played, model: str, recorded_on: Node, to: Node, prices: KernelPrices | None = None
) -> tuple[float, float]:
    """The 80 % range of a run that was played with copies at their times on `to`, in seconds: the run with all copies, and
    kernels by their `prices`, at their lows and at their highs, or what whole runs on another node were off, where that is
    wider. No range on the node where it was recorded.
    """
    whole = None if recorded_on == to else range_of("run", "calibrated", figures_of(recorded_on, to))
    seconds = run.makespan_seconds
    ends = [seconds * factor for factor in whole or (1.0, 1.0)]
    limits = (None, None) if prices is None else (prices.low, prices.high)
    for factors, kernels in zip(ranged(run.timeline.operations, model, to, recorded_on), limits, strict=True):
        times = np.where(np.isfinite(factors), factors, 1.0) * run.timeline.columns["operation_duration"]
        if prices is not None and kernels is not None:
            times = nanoseconds_of_kernels(times, prices, kernels)
        ends.append(play(with_durations(run.timeline, times)).makespan_seconds)
    return min(*ends, seconds), max(*ends, seconds)


def _between(trace: Trace) -> Words:
    """Why kernels are not known better, with what would have told."""
    option = record_again(trace.format).allocations
    if not option or trace.launches["allocated_bytes"].is_not_null().any():
        return statement("project.why-between")
    return statement("project.why-between-unless-allocations", option=option)


def _kernel_classes(prices: KernelPrices, between: Words) -> list[KernelClassThere]:
    """A row for each class and bound, the longest first. `between`: why nothing better is known where nothing bounds."""
    priced = np.isfinite(prices.seconds)
    ends = {"predicted_seconds": prices.seconds, "low_seconds": prices.low, "high_seconds": prices.high}
    frame = pl.DataFrame(
        {"kind": prices.kinds, "place": prices.bounds, "recorded_seconds": prices.recorded}
        | {name: np.where(priced, value, prices.recorded) for name, value in ends.items()}
    )
    sums = frame.group_by("kind", "place").agg(pl.len().alias("count"), pl.exclude("kind", "place").sum())
    classes = []
    for row in sums.sort("recorded_seconds", descending=True).to_dicts():
        bound = BOUNDS[row["place"]]
        row |= {
            "class": CLASSES[row["kind"]],
            "bound": bound,
            "why": between if bound == "between" else statement(f"project.why-{bound}"),
            "rung": prices.rung_of(row["place"]),
        }
        if bound == "none":
            row |= {"low_seconds": None, "high_seconds": None}
        elif prices.rung == NOT_VALIDATED:
            row["predicted_seconds"] = None
        classes.append(convert(row, KernelClassThere))
    return classes
