"""What host threads did between API calls: the spans that a trace has of them (ranges, operators, Python functions, calls of
the operating system) as a tree of names, and stacks that a profiler sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.lanes import Times, Union

__all__ = ["Activity", "deepest", "most_sampled"]

THREAD = ("process", "thread")
#: A span leads to one inside it that covers at least this share of it.
MOST = 0.5
#: Numbers in names of ranges tell instances apart: `ProfilerStep#5`, `batch 12`.
NUMBER = r"\d+"


class Activity(NamedTuple):
    """What a host thread did: the kind and the name of a span or of a sampled frame, and nanoseconds."""

    kind: str
    name: str
    ns: int


def deepest(spans: pl.DataFrame, waits: pl.DataFrame) -> Activity | None:
    """The innermost span name that still covers most of the time `waits`; where none does, the name that covers the most.

    `spans`: process, thread, start_ns, end_ns, kind, name. `waits`: process, thread, start_ns, end_ns. The search starts at
    the outermost spans and goes on into the name that covers at least MOST of its parent's time. None where no span
    overlaps.
    """
    tree = pl.concat([frame for frame in _with_paths(spans, waits)] or [_NOTHING])
    total = int((waits["end_ns"] - waits["start_ns"]).sum())
    if tree.is_empty() or not total:
        return None
    by_path = tree.group_by("path", "parent", "kind", "name", maintain_order=True).agg(pl.col("ns").sum())
    parent, activity = -1, None
    while True:
        inside = by_path.filter((pl.col("parent") == parent) & (pl.col("ns") > 0)).sort("ns", descending=True)
        if inside.is_empty():
            return activity
        path, _, kind, name, ns = inside.row(0)
        if activity is not None and ns < MOST * activity.ns:
            return activity
        parent, activity = path, Activity(kind, name, ns)
