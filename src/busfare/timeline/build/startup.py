"""What a process pays once: how much longer its first calls take than their work and later calls of their kind.

A first call creates the context, loads a module, sets up a kernel or allocates staging buffers. No change to copies or
kernels removes that time. The rule uses the structure of the run, no fitted limit:

- A *kind* is the name of a call with what it launches: the kernel, or the direction of the copy, and the device.
- *Before its work* is the time from a call's beginning to its first operation, or to its return where it launches nothing.
  The time in which the GPU works is subtracted where the call waits for the GPU.
- The first call of a kind starts something up if that time is longer than in every later call, and far out among them: above
  the third quartile by three interquartile ranges [Tukey 1977, Exploratory Data Analysis]. Its start-up is the part above
  their median and, of a blocking copy, above the copy's own time. Later calls are those of the same name; if all calls of
  the name are first ones, those of any name.
- Calls that load code or create contexts are start-up as a whole, whenever they are made.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.build.work import DeviceWork, HostCalls, alike
from busfare.timeline.model import WAIT, Times
from busfare.trace.lanes import Union
from busfare.trace.words import Names

__all__ = ["startup"]

#: Tukey's fence for values that are far out, in interquartile ranges beyond the third quartile.
FAR_OUT = 3.0
#: Calls by their names: those of CUDA, HIP and HSA; those that load code or create a context; those whose only one may just
#: be large, since it pins memory or ends something; those that copy or set; those that launch work.
PATTERNS = {
    "of_gpu": r"^_*(cu|hip|hsa_)",
    "loads": r"^(cu|hip)(Init$|CtxCreate|DevicePrimaryCtxRetain|(Module|Library)Load|Link(Create|Add|Complete))|^cudaInitD",
    "may_be_large": r"HostM?Alloc|MallocHost|HostRegister|Free|Destroy|Unload|Unregister|Reset|Finalize",
    "copies": r"Memcpy|Memset",
    "launches": r"Memcpy|Memset|Launch",
}


def startup(host: HostCalls, work: DeviceWork, wait: NDArray[np.uint8]) -> Times:
    """How much of each outermost call, from its beginning, is start-up; ns, shape (calls,). `wait`: of WAIT, as long."""
    if host.calls.is_empty():
        return np.zeros(0, np.int64)
    rows = _before_work(host, work, wait)
    kind, _ = alike(rows.select("process", "call", "device", "kind", "direction", "operation"))
    # What begins before the first call of its kind has returned waits for that one.
    first = (pl.col("start") < pl.col("end").first().over("group")) | pl.col("group").is_first_distinct()
    rows = rows.with_columns(group=pl.Series(kind)).with_columns(first=first)
    later = rows.filter(pl.col("known") & ~pl.col("first"))
    before = pl.col("before")
    low, high = (before.quantile(part) for part in (0.25, 0.75))
    far_out = pl.max_horizontal(before.max(), high + FAR_OUT * (high - low))
    reference = [before.median().alias("usual"), far_out.alias("fence")]
    rows = rows.join(later.group_by("call").agg(reference), on="call", how="left", maintain_order="left")
    # Of names that have no later call: what any later call takes.
    judged = pl.col("known") & pl.col("first") & (pl.col("usual").is_not_null() | ~pl.col("may_be_large"))
    of_any = (later if later.height else rows.filter("known")).select(reference)
    usual, fence = (pl.col(name).fill_null(pl.lit(of_any[name][0], pl.Float64)) for name in of_any.columns)
    excess = pl.when(judged & (before > fence)).then(before - pl.max_horizontal(usual, "took"))
    part = pl.when("loads").then("before").otherwise(excess).clip(lower_bound=0).fill_null(0)
    return rows.select(part.cast(pl.Int64)).to_series().to_numpy()


def _before_work(host: HostCalls, work: DeviceWork, wait: NDArray[np.uint8]) -> pl.DataFrame:
    """Of each call its name (`call`, a number) and process, the operation that it launches first, how long the call lasts
    `before` that, what its copies `took` where it waits for them (ns), and whether `before` is `known`.
    """
    names, operations = Names.of_calls(host.calls), work.operations
    texts = pl.Series(names.texts, dtype=pl.String)
    words = pl.DataFrame(
        {name: texts.str.contains(pattern).fill_null(False) for name, pattern in PATTERNS.items()}
    )[names.of]
    launched = operations.filter("launched").select(
        "device", "kind", "direction", "call", begun="start_ns", operation=pl.col("name").to_physical(),
        took=pl.col("end_ns") - pl.col("start_ns"),
    ).group_by("call", maintain_order=True).agg(pl.exclude("took").first(), pl.col("took").sum())  # fmt: skip
    rows = host.calls.select("process", start="start_ns", end="end_ns").with_columns(
        row=pl.int_range(pl.len(), dtype=pl.Int32), call=names.of, wait=wait
    )
    rows = pl.concat([rows, words], how="horizontal")
    rows = rows.join(launched, left_on="row", right_on="call", how="left", maintain_order="left")
    until = pl.coalesce("begun", "end").clip("start", "end")
    rows = rows.with_columns(until=until, works=pl.col("begun").is_not_null())
    starts, ends = (rows[name].to_numpy() for name in ("start", "until"))
    busy = Union.of(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())
    waits, own = pl.col("wait") != WAIT["none"], pl.col("wait") == WAIT["operation"]
    # Calls that launch and do not wait return however busy the GPU is.
    beside = pl.when(waits | ~pl.col("works")).then(pl.Series(busy.covered_within(starts, ends))).otherwise(0)
    # Before anything was launched there is nothing to wait for.
    nothing_yet = pl.col("start") <= pl.col("start").filter("launches").min().over("process")
    known = pl.col("works") | (~pl.col("copies") & (~waits | nothing_yet.fill_null(True)))
    known &= pl.col("of_gpu")  # not MPI's
    return rows.with_columns(
        before=pl.col("until") - pl.col("start") - beside,
        took=pl.when(own).then("took").fill_null(0),
        known=known,
    )
