"""Predictions for a machine, compared with a trace recorded on it; keys in docs/json.md."""

from collections.abc import Sequence

import polars as pl
from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec.structs import asdict

from busfare.answers.project import (
    ENDS,
    NS,
    PATH,
    KernelsPredicted,
    PathPredicted,
    by_counters,
    by_path,
    recorded_transfers,
    transfers_priced,
)
from busfare.cost import model_names
from busfare.cost.kernels.classes import CLASSES
from busfare.cost.kernels.move import BOUNDS
from busfare.cost.kernels.price import SIDES, KernelPrices, price_kernels
from busfare.cost.ranges import RUNGS
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.trace import Trace


class PathCompared(PathPredicted, kw_only=True):
    wmape_percent: float | None
    inside_percent: float | None


class KernelCompared(KernelsPredicted, kw_only=True):
    """A kernel, or all kernels of an operator: means per launch."""

    name: str
    actual_seconds: float


class Errors(Struct, kw_only=True):
    """Errors of predictions: `count` occur in both runs; others only in one of them."""

    wmape_percent: float | None = None
    inside_percent: float | None = None
    count: int = 0
    unmatched: int = 0


class KernelsCompared(Errors, kw_only=True):
    """Errors of the sum, and the median over kernels. `count`: launches in both runs. `counted`, `uncounted`: of all
    launches in the first run, as in KernelsThere.
    """

    counted: int | UnsetType = UNSET
    uncounted: dict[str, int] | UnsetType = UNSET
    median_percent: float | None = None
    by_kernel: list[KernelCompared] = []


class Comparison(Errors, kw_only=True):
    """One model compared with the recording; no error if no copy is in both runs."""

    model: str
    unpriced: int = 0
    by_path: list[PathCompared] = []


class Compared(Comparison, tag_field="schema", tag="busfare.compare/1", kw_only=True):
    """The errors of the best model, and of every model, best first."""

    predicted: str
    actual: str
    recorded_on: str = field(name="from")
    to: str
    kernels: KernelsCompared | None
    models: list[Comparison]


def wmape_percent(recorded: pl.Expr, predicted: pl.Expr) -> pl.Expr:
    """100 · Σ|A−P| / ΣA [A19 §VI-C]."""
    return 100.0 * (recorded - predicted).abs().sum() / recorded.sum()


def compare(trace: Trace, actual: Trace, recorded_on: Node, to: Node, model: str) -> Comparison:
    """Prices the transfers of `trace` on node `to` and compares each with its own in `actual`, recorded there.

    The n-th copy of a direction, memory kinds and size in one run is matched with the n-th such copy of the other;
    what only one of the runs has is counted as unmatched. Raises InputError if nothing matches or has a price.
    """
    priced = _numbered(transfers_priced(trace, recorded_on, to, model))
    taken = _numbered(recorded_transfers(actual))
    keys = [*PATH, "bytes", "number"]
    matched = priced.select(*keys, *ENDS).join(
        taken.select(*keys, "recorded_seconds"), on=keys, how="inner", nulls_equal=True
    )
    unmatched = priced.height + taken.height - 2 * matched.height
    if matched.is_empty():
        raise InputError(
            f"{actual.path}: no copy matches a copy of {trace.path} in direction, memory and size; compare two runs "
            "of the same program"
        )
    compared = matched.drop_nulls("predicted_seconds")
    if compared.is_empty() or not compared["recorded_seconds"].sum():
        raise InputError(
            f"model {model!r} cannot price any copy of {trace.path}; choose another with `model`"
        )
    error = wmape_percent(pl.col("recorded_seconds"), pl.col("predicted_seconds"))
    # A clock that counts nanoseconds tells no shorter times apart.
    within = pl.col("recorded_seconds").is_between(pl.col("low_seconds") - NS, pl.col("high_seconds") + NS)
    inside = (100.0 * within.mean()).alias("inside_percent")
    finite_error = pl.when(error.is_finite()).then(error).alias("wmape_percent")
    return Comparison(
        model=model,
        wmape_percent=float(compared.select(error).item()),
        inside_percent=compared.select(inside).item(),
        count=compared.height,
        unmatched=unmatched,
        unpriced=matched.height - compared.height,
        by_path=by_path(PathCompared, compared, RUNGS.get(model), finite_error, inside),
    )


def compared(
    trace: Trace, actual: Trace, recorded_on: Node, to: Node, models: Sequence[str] | None = None
) -> Compared:
    """The best model's errors at the top, every model's under `models`, best first; and those of kernels. Without `models`,
    every model that has a price for some copy. Raises InputError if there is none, and no kernel either.
    """
    kernels = compare_kernels(trace, actual, recorded_on, to)
    comparisons: list[Comparison] = []
    refused: list[str] = []
    for name in dict.fromkeys(models or model_names()):
        try:
            comparisons.append(compare(trace, actual, recorded_on, to, name))
        except InputError as error:
            if models:
                raise
            # Its text alone: a kept error holds this frame, and with it both traces, until the interpreter ends.
            refused.append(str(error))
    if not comparisons and not (kernels and kernels.count):
        raise InputError(refused[0])
    every = sorted(comparisons, key=lambda comparison: comparison.wmape_percent or 0.0)
    return Compared(
        **asdict(every[0] if every else Comparison(model="none")),
        predicted=str(trace.path),
        actual=str(actual.path),
        recorded_on=recorded_on.name,
        to=to.name,
        kernels=kernels,
        models=every,
    )


def _numbered(transfers: pl.DataFrame) -> pl.DataFrame:
    return transfers.sort("start_ns", maintain_order=True).with_columns(
        number=pl.int_range(pl.len()).over([*PATH, "bytes"])
    )


def compare_kernels(trace: Trace, actual: Trace, recorded_on: Node, to: Node) -> KernelsCompared | None:
    """The kernels of `trace`, priced on `to`, beside those of `actual`, recorded there: of an operator with the same inputs
    all its kernels together, else of the same name and launch. None where no price can be made.
    """
    try:
        prices = price_kernels(trace.operations, trace.launches, recorded_on, to, trace.counters)
        there = price_kernels(actual.operations, actual.launches, to, to)
    except InputError:
        return None
    counted = by_counters(trace, prices)
    priced = _named(trace, prices).with_columns(
        predicted_seconds=prices.seconds, low_seconds=prices.low, high_seconds=prices.high,
        bound=pl.Series([BOUNDS[bound] for bound in prices.bounds], dtype=pl.String),
        rung=pl.Series([prices.rung_of(int(bound)) for bound in prices.bounds], dtype=pl.String),
    )  # fmt: skip
    ours, theirs = (
        _summed(kernels_of_run)
        for kernels_of_run in (priced.filter(pl.col("predicted_seconds").is_not_nan()), _named(actual, there))
    )
    theirs = theirs.select("key", actual_seconds="recorded_seconds", kernels_there="kernels")
    matched, unmatched = ours.join(theirs, on="key"), prices.rows.size + there.rows.size
    if matched.is_empty():
        return KernelsCompared(unmatched=unmatched, **counted)
    recorded, launches = pl.col("actual_seconds"), pl.col("count")
    error = (pl.col("predicted_seconds") - recorded).abs()
    inside = recorded.is_between(pl.col("low_seconds") - 1e-9, pl.col("high_seconds") + 1e-9)
    figures = matched.select(
        count=launches.sum(),
        wmape_percent=100 * (error * launches).sum() / (recorded * launches).sum(),
        median_percent=100 * (error / recorded).median(),
        inside_percent=100 * inside.mean(),
        unmatched=unmatched - pl.sum("kernels") - pl.sum("kernels_there"),
    ).to_dicts()[0]
    rows = matched.sort(pl.col("recorded_seconds") * launches, descending=True).to_dicts()
    return KernelsCompared(**figures, **counted, by_kernel=convert(rows, list[KernelCompared]))


def _named(trace: Trace, prices: KernelPrices) -> pl.DataFrame:
    """The kernels with what they are matched by: `key`, and `part`, the kernel's own name and launch."""
    columns = [name for name in ("name", "launch") if name in trace.operations.columns]
    kernels = trace.operations[prices.rows].select(columns).with_columns(
        pl.Series("recorded_seconds", prices.recorded),
        pl.Series("class", [CLASSES[kind] for kind in prices.kinds], dtype=pl.String),
    )  # fmt: skip
    if "launch" in columns and not trace.launches.is_empty():
        launches = trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32))
        kernels = kernels.join(launches, on="launch", how="left", maintain_order="left")
    name = pl.col("name").cast(pl.String).fill_null("")
    sizes = [pl.col(side).cast(pl.String).fill_null("") for side in SIDES if side in kernels.columns]
    key = part = pl.concat_str(name, *sizes, separator=" ")
    if "operator" in kernels.columns:
        inputs = [pl.col(of).fill_null("") for of in ("shapes", "types")]
        key = pl.coalesce(pl.concat_str("operator", *inputs, separator=" "), part)
        name = pl.coalesce("operator", name)
    return kernels.select("recorded_seconds", "class", key=key, part=part, name=name)


def _summed(kernels: pl.DataFrame) -> pl.DataFrame:
    """By key: seconds a launch, where the kernel of an operator that is launched most says how often that was."""
    seconds = [name for name in kernels.columns if name.endswith("_seconds")]
    first = [name for name in kernels.columns if name not in ("key", "part", *seconds)]
    parts = kernels.group_by("key", "part").agg(
        pl.len().alias("count"), pl.col(seconds).sum(), pl.col(first).first()
    )
    by_key = parts.sort("recorded_seconds", descending=True).group_by("key")
    sums = by_key.agg(
        pl.col("count").max(), pl.col(seconds).sum(), pl.col(first).first(), kernels=pl.col("count").sum()
    )
    return sums.with_columns(pl.col(seconds) / pl.col("count"))
