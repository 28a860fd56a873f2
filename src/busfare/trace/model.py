"""`Trace`: what happened, as tables, whatever program recorded it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from busfare.trace import tables

__all__ = ["Omission", "Trace"]


@dataclass(frozen=True, slots=True)
class Omission:
    """Something of the trace that was skipped, repaired or unknown.

    `id` is a short stable name; `count` how many records it concerns (0: not countable); `what` tells the
    user, and what follows from it.
    """

    id: str
    count: int
    what: str


@dataclass(slots=True)
class Trace:
    """A recorded run. Columns of the tables: `busfare.trace.tables`; times in ns from the first record."""

    path: Path
    format: str  # nsys-sqlite, nsys-directory, kineto, nvprof, rocpd, rpd, recorded
    producer: str  # the program and version that wrote the file, as far as the file says
    operations: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.CALLS))
    events: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.EVENTS))
    markers: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.MARKERS))
    devices: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.DEVICES))
    streams: pl.DataFrame = field(default_factory=lambda: tables.empty(tables.STREAMS))
    host: dict[str, str] = field(default_factory=dict)  # cpu, driver, cuda, hostname, rank
    omissions: list[Omission] = field(default_factory=list)
