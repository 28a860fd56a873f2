"""`Trace`: what happened, as tables, whatever program recorded it."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import tables
from busfare.trace.collectives import collectives_of, mpi_calls
from busfare.trace.columns import occurs
from busfare.trace.lanes import Lanes
from busfare.trace.omissions import MISSING_KERNELS, Omission, Omissions
from busfare.trace.words import GRAPH_LAUNCH, Names, calls_named


@dataclass
class Trace:
    """A recorded run. Columns of the tables: `busfare.trace.tables`; times in ns from the first record. Lanes and names are
    made when they are first asked for, and kept: make another trace (`dataclasses.replace`) for other tables then.
    """

    path: Path
    format: str  # nsys-sqlite, kineto, xla, nvprof, rocpd, rocprofv3-json, rocprof-csv, rocprof, rpd, …
    producer: str  # the program and version that wrote the file, as far as the file says
    operations: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.CALLS))
    events: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.EVENTS))
    markers: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.MARKERS))
    activity: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.ACTIVITY))  # on request
    devices: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.DEVICES))
    streams: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.STREAMS))
    launches: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.LAUNCHES))
    counters: pl.DataFrame | None = None  # COUNTERS
    host: dict[str, str] = field(default_factory=dict)  # cpu, driver, cuda, hostname, rank
    omissions: list[Omission] = field(default_factory=list)
    described: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.DESCRIBED))  # communication
    origin_ns: int = 0  # time 0 by the clock of the file

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """What communicates between ranks, on GPUs and by MPI: columns of COLLECTIVES."""
        tables = self.operations, self.lanes, self.calls, self.markers, self.described
        return collectives_of(*tables, self.mpi_calls)

    @cached_property
    def mpi_calls(self) -> pl.DataFrame:
        """Of these, MPI's calls."""
        return mpi_calls(self.markers, self.described)

    @cached_property
    def lanes(self) -> Lanes:
        """The operations grouped by kind, path, GPU, process and stream; a kernel's kind may be `communication`."""
        return Lanes.of(self.operations)

    @cached_property
    def names(self) -> Names:
        """The names of the calls, each once."""
        return Names.of_calls(self.calls)

    @property
    def lacks_kernels(self) -> bool:
        """Whether kernels that ran are not recorded."""
        return any(noted.id in MISSING_KERNELS for noted in self.omissions)

    @cached_property
    def makespan_seconds(self) -> float:
        """From the first start to the last end of operations, API calls and communicating calls of MPI; 0 if none."""
        frames = [frame for frame in (self.operations, self.calls, self.mpi_calls) if frame.height]
        if not frames:
            return 0.0
        first = min(int(frame["start_ns"].min()) for frame in frames)  # type: ignore[arg-type]
        last = max(int(frame["end_ns"].max()) for frame in frames)  # type: ignore[arg-type]
        return (last - first) * 1e-9

    def calls_named(self, pattern: str) -> pl.DataFrame:
        """Process, correlation, times, waits_for and row of the calls whose name contains the expression `pattern`."""
        return calls_named(self.calls, pattern, self.names)

    def submitted(self, pattern: str, lanes: pl.Expr) -> NDArray[np.uint32]:
        """The operations of these lanes that a call submitted whose name contains the regular expression `pattern`."""
        calls = self.calls_named(pattern)
        if calls.is_empty():
            return np.zeros(0, np.uint32)
        rows = self.lanes.rows(lanes)
        ids = self.operations.select("process", "correlation")[rows]
        return rows[occurs(calls.drop_nulls("correlation"), ids)]


def name_process(trace: Trace) -> None:
    """Gives operations, events and streams the process of the calls, if all calls are of one process."""
    processes = trace.calls["process"].drop_nulls().unique()
    if len(processes) != 1:
        return
    only = pl.lit(processes[0], dtype=pl.Int32).alias("process")
    for table in ("operations", "events", "streams"):
        setattr(trace, table, getattr(trace, table).with_columns(only))


def number_graph_nodes(trace: Trace, omissions: Omissions) -> None:
    """Gives negative numbers to operations of graph launches without node numbers in the trace, and notes how many."""
    launching = calls_named(trace.calls, GRAPH_LAUNCH).drop_nulls("correlation")
    if launching.height:
        launched = pl.Series(occurs(launching, trace.operations)) & (trace.operations["kind"] != "graph")
        number = -1 - pl.int_range(pl.len()).over("process", "correlation")
        numbered = pl.coalesce("graph_node", pl.when(launched).then(number))
        trace.operations = trace.operations.with_columns(graph_node=numbered)
    omissions.count("graph-nodes", trace.operations.height - trace.operations["graph_node"].null_count())
