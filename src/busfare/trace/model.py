"""`Trace`: what happened, as tables, whatever program recorded it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import tables
from busfare.trace.api_calls import GRAPH_LAUNCH
from busfare.trace.collectives import collectives_of
from busfare.trace.columns import occurs
from busfare.trace.lanes import Lanes
from busfare.trace.words import Names, calls_named

#: What is said of ranges without an end.
OPEN_RANGES = "NVTX ranges that were still open when the trace ended: shown as marks"
#: Ids of omissions by which a part of the run is not in the file: a reader has to know before any number.
INCOMPLETE = frozenset(
    {"cut", "damaged", "damaged-compression", "missing", "torn", "truncated", "truncated-compression"}
)


@dataclass(slots=True)
class Omissions:
    """Omissions in the order in which they were found; the same one found again adds to its count."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, id: str, what: str, count: int = 0) -> None:
        """Note an omission. `count` is the number of records concerned, 0 where records cannot be counted."""
        self.counts[id, what] = self.counts.get((id, what), 0) + count

    def add_if(self, count: int, id: str, what: str) -> None:
        """Note an omission of `count` records, if there are any."""
        if count:
            self.add(id, what, count)

    def list(self) -> list[Omission]:
        return [Omission(id, count, what) for (id, what), count in self.counts.items()]


@dataclass(frozen=True, slots=True)
class Omission:
    """Something of the trace that was skipped, repaired or unknown.

    `id` is a short stable name; `count` how many records it concerns (0: not countable); `what` tells the
    user, and what follows from it.
    """

    id: str
    count: int
    what: str


@dataclass
class Trace:
    """A recorded run. Columns of the tables: `busfare.trace.tables`; times in ns from the first record.

    Lanes and names are made when they are first asked for, and kept: make another trace (`dataclasses.replace`) for other
    tables then.
    """

    path: Path
    format: (
        str  # nsys-sqlite, kineto, xla, nvprof, rocpd, rocprofv3-json, rocprof-csv, rocprof, rpd, recorded, …
    )
    producer: str  # the program and version that wrote the file, as far as the file says
    operations: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.CALLS))
    events: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.EVENTS))
    markers: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.MARKERS))
    devices: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.DEVICES))
    streams: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.STREAMS))
    launches: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.LAUNCHES))
    counters: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.COUNTERS))
    host: dict[str, str] = field(default_factory=dict)  # cpu, driver, cuda, hostname, rank
    omissions: list[Omission] = field(default_factory=list)
    described: pl.DataFrame = field(
        default_factory=lambda: tables.empty(tables.DESCRIBED)
    )  # of communication
    origin_ns: int = 0  # time 0 by the clock of the file

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """What communicates between ranks: columns of COLLECTIVES."""
        return collectives_of(self.operations, self.lanes, self.calls, self.markers, self.described)

    @cached_property
    def lanes(self) -> Lanes:
        """The operations grouped by kind, path, GPU, process and stream; a kernel's kind may be `communication`."""
        return Lanes.of(self.operations)

    @cached_property
    def names(self) -> Names:
        """The names of the calls, each once."""
        return Names.of_calls(self.calls)

    @cached_property
    def makespan_seconds(self) -> float:
        """From the start of the first operation or call to the end of the last, else of MPI's calls; 0 if there is none."""
        frames = [frame for frame in (self.operations, self.calls) if frame.height]
        if not frames and self.collectives.height:  # a rank that uses no GPU
            frames = [self.collectives]
        if not frames:
            return 0.0
        first = min(int(frame["start_ns"].min()) for frame in frames)  # type: ignore[arg-type]
        last = max(int(frame["end_ns"].max()) for frame in frames)  # type: ignore[arg-type]
        return (last - first) * 1e-9

    def calls_named(self, pattern: str) -> pl.DataFrame:
        """Process, correlation, times, waits_for and row of the calls whose name contains the expression `pattern`."""
        return calls_named(self.calls, pattern, self.names)

    def calls_during(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """Start, end and name of all calls that run then, in order of their starts."""
        begun = int(self.calls["start_ns"].search_sorted(end_ns))
        return self.calls.select("start_ns", "end_ns", "name")[:begun].filter(pl.col("end_ns") > start_ns)

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
    only = pl.lit(processes[0], dtype=pl.Int64).alias("process")
    trace.operations = trace.operations.with_columns(only)
    trace.events = trace.events.with_columns(only)
    trace.streams = trace.streams.with_columns(only)


def number_graph_nodes(trace: Trace, omissions: Omissions) -> None:
    """Numbers the operations of each graph launch whose nodes the trace does not number itself, and notes how many."""
    launching = calls_named(trace.calls, GRAPH_LAUNCH).drop_nulls("correlation")
    if launching.height:
        launched = pl.Series(occurs(launching, trace.operations)) & (trace.operations["kind"] != "graph")
        number = pl.int_range(1, pl.len() + 1).over("process", "correlation")
        numbered = pl.coalesce("graph_node", pl.when(launched).then(number))
        trace.operations = trace.operations.with_columns(graph_node=numbered)
    omissions.add_if(
        trace.operations.height - trace.operations["graph_node"].null_count(),
        "graph-nodes",
        "operations inside graph launches: seen, but not how they depend on each other; taken in the order observed",
    )
