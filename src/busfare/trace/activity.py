"""Activity of host threads between API calls: spans (ranges, operators, functions, system calls) and sampled stacks."""

import re
from typing import NamedTuple

import polars as pl

from busfare.trace.lanes import Union
from busfare.trace.sites import parents

THREAD = ("process", "thread")
#: The search continues inside a name that covers MOST of the time. A name that covers NEARLY_ALL explains nothing: the
#: search then accepts any name inside that covers LEAST.
LEAST, MOST, NEARLY_ALL = 0.2, 0.5, 0.9
#: Numbers in names distinguish instances: `ProfilerStep#5`, `batch 12`.
NUMBER = r"#?\b\d+\b"
#: Functions that only call their arguments.
WRAPPER = re.compile(r" (_\w*call_impl|__call__|wrapper\w*|_?wrapped\w*|decorate_context|_fn|inner)$")


class Activity(NamedTuple):
    """Kind and name of spans or of a sampled frame, its share of the time in question, and these spans or samples."""

    kind: str
    name: str
    share: float
    spans: pl.DataFrame


def deepest(spans: pl.DataFrame, gaps: pl.DataFrame) -> Activity | None:
    """The innermost name that still covers most of `gaps`, or the name that covers the largest part of them.

    `spans`: process, thread, start_ns, end_ns, kind, name; `gaps`: process, thread, start_ns, end_ns, disjoint on a thread.
    The search begins at the outermost spans. None if no span overlaps a gap.
    """
    total = int((gaps["end_ns"] - gaps["start_ns"]).sum())
    covered = [
        there.with_columns(_covered(there, gaps).alias("ns")).filter(pl.col("ns") > 0)
        for there, gaps in _by_thread(spans, gaps)
    ]
    if not covered:
        return None
    spans = _with_parents(pl.concat(covered))
    text = pl.col("name").cast(pl.String)
    numberless = pl.when(pl.col("kind") == "range").then(text.str.replace_all(NUMBER, "#"))
    spans = spans.with_columns(label=numberless.otherwise(text))
    inside, least, chosen = spans.filter(pl.col("parent").is_null()), 0.0, None
    while inside.height:
        names = inside.group_by("kind", "label").agg(pl.col("ns").sum(), pl.first("name"), count=pl.len())
        longest = names.sort("ns", "label", descending=[True, False]).row(0, named=True)
        share = min(longest["ns"] / total, 1.0)
        if share < least:
            break
        named = inside.filter(pl.col("label") == longest["label"], pl.col("kind") == longest["kind"])
        name = longest["label"] if longest["count"] > 1 else str(longest["name"])
        # A name within itself is the same work: what the outermost covers counts.
        if chosen is None or not (WRAPPER.search(name) or name == chosen.name):
            chosen = Activity(longest["kind"], name, share, named)
        least = LEAST if share >= NEARLY_ALL else MOST if share >= MOST else MOST * share
        inside = spans.filter(pl.col("parent").is_in(named["span"].implode()))
    return chosen


def most_sampled(samples: pl.DataFrame, gaps: pl.DataFrame) -> Activity | None:
    """The frame of most samples in `gaps`, or None. `samples`: process, thread, start_ns, name (null: not the program)."""
    samples = samples.with_columns(end_ns=pl.col("start_ns") + 1)
    names = [there.filter(_covered(there, gaps) > 0)["name"] for there, gaps in _by_thread(samples, gaps)]
    if not names:
        return None
    every = pl.concat(names)
    most = every.drop_nulls().value_counts(sort=True).head(1)
    activity = (
        Activity("sample", str(name), count / len(every), samples) for name, count in most.iter_rows()
    )
    return next(activity, None)


def outside(spans: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """The parts of `gaps` that no span of their thread covers, with the other columns of their gap."""
    gaps = gaps.with_row_index("gap")
    edges = pl.concat(
        rows.select(*THREAD, gap, at=time, gaps=step * of_gaps, spans=step * (1 - of_gaps))
        for rows, gap, of_gaps in ((gaps, "gap", 1), (spans, pl.lit(None, pl.UInt32).alias("gap"), 0))
        for time, step in (("start_ns", pl.lit(1)), ("end_ns", pl.lit(-1)))
    ).sort(*THREAD, "at", "gaps")
    within = edges.select(
        pl.col("gaps", "spans").cum_sum().over(THREAD),
        pl.col("gap").forward_fill().over(THREAD),
        start_ns="at",
        end_ns=pl.col("at").shift(-1).over(THREAD),
    ).filter(pl.col("gaps") > 0, pl.col("spans") == 0, pl.col("end_ns") > pl.col("start_ns"))
    rest = gaps.drop("start_ns", "end_ns")
    return within.join(rest, on="gap", maintain_order="left").drop("gap", "gaps", "spans")


def _by_thread(rows: pl.DataFrame, gaps: pl.DataFrame) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """The rows of each thread with gaps, and its gaps."""
    by_thread = gaps.partition_by(THREAD, as_dict=True)
    parts = rows.join(gaps, on=THREAD, how="semi", nulls_equal=True).partition_by(THREAD, as_dict=True)
    return [(part, by_thread[thread]) for thread, part in parts.items()]


def _covered(spans: pl.DataFrame, gaps: pl.DataFrame) -> pl.Series:
    """Nanoseconds of `gaps` within each span."""
    union = Union.of(gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy())
    return pl.Series(union.covered_within(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()))


def _with_parents(spans: pl.DataFrame) -> pl.DataFrame:
    """`spans`, numbered by `span`, with `parent`: the number of the innermost span around each on its thread, or null. Of
    two spans that overlap without nesting, such as a range and the function that opens it, the shorter is left out.
    """
    order = [*THREAD, "start_ns", "end_ns"]
    spans = spans.sort(order, descending=[False, False, False, True])
    while True:
        spans = _numbered_by_depth(spans)
        around = spans[spans["parent"].fill_null(0)]
        crossing = spans["parent"].is_not_null() & (spans["end_ns"] > around["end_ns"])
        if not crossing.any():
            return spans
        longer = (spans["end_ns"] - spans["start_ns"]) >= (around["end_ns"] - around["start_ns"])
        dropped = spans["parent"].zip_with(longer, spans["span"]).filter(crossing)
        spans = spans.filter(~pl.col("span").is_in(dropped.implode())).drop("span", "parent")


def _numbered_by_depth(spans: pl.DataFrame) -> pl.DataFrame:
    """Sorted `spans` with their number, `span`, and `parent`: the last that began one level above."""
    spans = spans.with_row_index("span")
    begins = spans.select("span", *THREAD, at="start_ns", deeper=1, order=1)
    ends = spans.select("span", *THREAD, at="end_ns", deeper=-1, order=0)
    edges = pl.concat([begins, ends]).sort(*THREAD, "at", "order", "span")
    begun = edges.with_columns(depth=pl.col("deeper").cum_sum()).filter(pl.col("deeper") > 0)
    return spans.join(parents(begun), on="span", how="left", maintain_order="left")
