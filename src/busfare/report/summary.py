"""The result of `report` on one trace."""

from __future__ import annotations

import polars as pl
from msgspec.structs import asdict

from busfare import advise
from busfare.errors import InputError
from busfare.job.results import Communication
from busfare.node import Node
from busfare.report import results
from busfare.report.results import Part, Report, Traced
from busfare.results import Sized, ranged, rows_of
from busfare.trace import Trace
from busfare.trace import totals as account
from busfare.trace.large import REPLAYED_ROWS, beside
from busfare.trace.model import INCOMPLETE

MOST_ROWS, MOST_GAPS = 10, 5
TOGETHER = ("collectives", "ranks", "clocks")
NS = 1e-9


def summarise(trace: Trace, node: Node | None = None, unrecorded_seconds: float | None = None) -> Report:
    """Everything that `report` says of `trace`.

    `node` is where it was recorded. Without it the catalogue's node with the GPU that the trace names is taken, and said to
    be a guess. With `unrecorded_seconds`, how long the run takes when it is not recorded, gains and the critical path are
    those of the run without its recorder. Raises InputError where the run cannot be replayed for that.
    """
    guessed = node is None
    node = node or advise.guess_node(trace)
    run, cost = advise.rebuilt(trace, node), None
    if unrecorded_seconds is not None:
        if run is None:
            raise InputError(
                f"{trace.path}: --unrecorded needs a run that can be replayed: one with its API calls, and no more than "
                f"{REPLAYED_ROWS:,} calls and operations"
            )
        from busfare.report.what_ifs import without_recorder

        run, cost = without_recorder(run, unrecorded_seconds)
    account.find_lengths(trace, advise.unions())
    findings = beside(trace.operations.height, lambda: advise.findings(trace, node, run))
    totals = account.totals(trace)
    path, unexplained = None, None
    if run is not None:
        from busfare.timeline import critical_path_shares, unexplained_seconds

        shares = critical_path_shares(run)
        path, unexplained = rows_of(Part, shares), unexplained_seconds(shares)
    run_seconds = cost.replayed_seconds if cost else totals.makespan_seconds
    bare = ["--unrecorded", f"{unrecorded_seconds:g}s"] if cost else []
    together = _together(trace)
    copies = account.top_copies(trace, MOST_ROWS).rename({"start_ns": "start_seconds"})
    return Report(
        trace=_traced(trace),
        node=results.RecordedOn(node.name, guessed, node.measured_both_ways("pinned")) if node else None,
        **asdict(totals),
        unexplained_seconds=unexplained,
        by_path=rows_of(results.RecordedPath, account.by_path(trace)),
        size_histogram=rows_of(Sized, account.size_histogram(trace)),
        engines=rows_of(results.Engine, account.engines(trace)),
        streams=rows_of(results.Stream, account.streams(trace, MOST_ROWS)),
        top_kernels=rows_of(results.TopKernel, account.top_kernels(trace, MOST_ROWS)),
        top_copies=rows_of(results.TopCopy, copies.with_columns(pl.col("start_seconds") * NS)),
        idle_gaps=account.idle_gaps(trace, MOST_GAPS),
        recording_cost=cost,
        critical_path=path,
        findings=[ranged(finding, run_seconds, node, bare) for finding in findings()],
        **({} if together is None else {name: getattr(together, name) for name in TOGETHER}),
        omissions=rows_of(results.Omission, [*trace.omissions, *(run.omissions if run is not None else [])]),
    )


def _together(trace: Trace) -> Communication | None:
    """What the ranks of one trace do together; None where it has one, or they do not communicate."""
    if (
        trace.sums is not None
        or trace.operations.select(pl.struct("process", "device").n_unique() < 2).item()
    ):
        return None
    from busfare.job.communication import communication
    from busfare.job.ranks import numbered, ranks_of, rows_of

    ranks = ranks_of(trace)
    if len(ranks) < 2 or trace.collectives.is_empty():
        return None
    return communication(
        [rows_of(trace)], numbered([(str(trace.path), None, trace.host.get("hostname"), ranks)])
    )


def _traced(trace: Trace) -> Traced:
    devices = trace.devices.select("device", "name", "memory_bytes", "copy_engines").unique(
        maintain_order=True
    )
    cut = next((o.what for o in trace.omissions if o.id in INCOMPLETE), None)
    rows = rows_of(results.Device, devices)
    return Traced(str(trace.path), trace.format, trace.producer, cut, trace.host, rows)
