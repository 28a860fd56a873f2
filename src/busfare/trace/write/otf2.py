"""A trace as an OTF2 archive, which Vampir, Score-P's tools and others of HPC read, through the library of its makers.

Of it: a location a host thread and a stream, a region a name, an attribute for what a copy moves. A stream whose
operations overlap is several locations.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from busfare.errors import InputError
from busfare.trace.lanes import is_transfer
from busfare.trace.model import Trace


class Span(NamedTuple):
    """Of a location: what runs from when to when, in nanoseconds, and the bytes that it moves."""

    start: int
    end: int
    name: str
    bytes: int | None


def write_otf2(trace: Trace, folder: Path) -> None:
    """Writes the archive's folder, times in nanoseconds from the first event.

    Raises InputError where the package otf2 is not installed.
    """
    if find_spec("otf2") is None:
        raise InputError("--to otf2: the package otf2 is missing; install it: pip install otf2")
    import otf2
    from otf2.enums import LocationGroupType, LocationType, Paradigm, RegionRole, Type

    origin = min([*trace.operations["start_ns"], *trace.calls["start_ns"]], default=0)
    with otf2.writer.open(str(folder), "traces", timer_resolution=1_000_000_000) as archive:
        known = archive.definitions
        moved = known.attribute(name="bytes", description="that a copy moves", type=Type.UINT64)
        node = known.system_tree_node(trace.host.get("hostname", "node"), class_name="machine")
        kinds = {
            "call": (LocationGroupType.PROCESS, LocationType.CPU_THREAD, RegionRole.WRAPPER),
            "operation": (
                LocationGroupType.ACCELERATOR,
                LocationType.ACCELERATOR_STREAM,
                RegionRole.FUNCTION,
            ),
        }
        for kind, group, name, spans in _locations(trace):
            of_group, of_location, role = kinds[kind]
            writer = archive.event_writer(
                name,
                type=of_location,
                group=known.location_group(group, location_group_type=of_group, system_tree_parent=node),
            )
            inside: list[tuple[int, Any]] = []
            for span in spans:
                start, end = span.start - origin, span.end - origin
                while inside and inside[-1][0] <= start:
                    writer.leave(*inside.pop())
                # Rounding may let a call outlast the one that makes it.
                end = min([end, *(outer for outer, _ in inside[-1:])])
                transfer = span.bytes is not None
                region = known.region(
                    span.name,
                    region_role=RegionRole.DATA_TRANSFER if transfer else role,
                    paradigm=Paradigm.CUDA,
                )
                writer.enter(start, region, attributes={moved: span.bytes} if transfer else None)
                inside.append((end, region))
            while inside:
                writer.leave(*inside.pop())


def _locations(trace: Trace) -> Iterator[tuple[str, str, str, list[Span]]]:
    """Of each location: whether of calls or operations, its group and name, and its spans in order of their starts."""
    calls = trace.calls.select(
        "process", "thread", "start_ns", "end_ns", pl.col("name").cast(pl.String)
    ).with_columns(bytes=pl.lit(None, pl.Int64))
    for (process, thread), rows in _by(calls, "process", "thread"):
        yield "call", f"process {process}", f"thread {thread}", list(_spans(rows))
    words = [
        pl.col(name).cast(pl.String).fill_null("unknown") for name in ("source_memory", "destination_memory")
    ]
    direction = pl.col("direction").cast(pl.String).fill_null("copy")
    copied = pl.concat_str(direction, pl.lit(" "), words[0], pl.lit(" → "), words[1])
    operations = trace.operations.select(
        "process",
        "device",
        "stream",
        "start_ns",
        "end_ns",
        name=pl.when(is_transfer())
        .then(copied)
        .otherwise(pl.coalesce(pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String))),
        bytes=pl.when(is_transfer()).then("bytes"),
    )
    for (process, device, stream), rows in _by(operations, "process", "device", "stream"):
        for number, spans in enumerate(_apart(_spans(rows))):
            more = f" ({number + 1})" if number else ""
            yield "operation", f"process {process} GPU {device}", f"stream {stream}{more}", spans


def _by(rows: pl.DataFrame, *place: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """The rows of each place, in order; what encloses another stands before it."""
    ordered = rows.sort([*place, "start_ns", "end_ns"], descending=[*(False for _ in place), False, True])
    yield from ordered.group_by(place, maintain_order=True)


def _spans(rows: pl.DataFrame) -> Iterator[Span]:
    named = rows["name"].fill_null("(unnamed)")
    yield from map(Span, rows["start_ns"], rows["end_ns"], named, rows["bytes"])


def _apart(spans: Iterator[Span]) -> list[list[Span]]:
    """The spans on as few rows as it takes for none to overlap another."""
    rows: list[list[Span]] = []
    for span in spans:
        free = next((row for row in rows if row[-1].end <= span.start), None)
        if free is None:
            rows.append(free := [])
        free.append(span)
    return rows
