"""PyTorch profiler traces (Kineto, Chrome JSON), plain or gzip, read as they stream past."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.trace import api_calls
from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.columns import first_rows
from busfare.trace.model import Omissions, Trace, name_process
from busfare.trace.readers.kineto.chrome_json import HEAD, by_another, by_pytorch
from busfare.trace.readers.kineto.text import devices, host, pieces, producer
from busfare.trace.tables import (
    CALLS,
    DIRECTIONS,
    EVENTS,
    KINDS,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_KERNELS,
    conform,
    empty,
)

__all__ = ["Events", "read", "with_nulls"]

#: `Category` of the event scanner.
KERNEL, COPY, SET, RUNTIME_CALL, DRIVER_CALL, SYNC, EVENT_RECORD, ANNOTATION = range(8)

DIRECTION_OF = {
    "HtoD": "h2d",
    "DtoH": "d2h",
    "DtoD": "d2d",
    "PtoP": "p2p",
    "HtoH": "h2h",
    "HtoA": "h2d",
    "AtoH": "d2h",
}
DIRECTION_OF |= {"AtoA": "d2d", "AtoD": "d2d", "DtoA": "d2d"}
MEMORY_OF = {
    "Pageable": "pageable",
    "Pinned": "pinned",
    "Device": "device",
    "Array": "array",
    "Managed": "managed",
}
MEMORY_OF |= {"Device Static": "static", "Managed Static": "managed"}
#: `Host` of AMD traces says neither pinned nor pageable.
COPY_NAME = re.compile(
    r"^Memcpy (?P<direction>\w+)(?: \((?P<source>[\w ]+) -> (?P<destination>[\w ]+)\))?", re.IGNORECASE
)

NO_ID = [-1, 4294967295]


def read(path: Path) -> Trace:
    """Reads a Kineto trace. Raises InputError if it holds no list of events, or another program's.

    A file that ends in the middle, or is damaged from some point on, gives what it holds up to there, and an
    omission.
    """
    omissions = Omissions()
    scanner = EventScanner()
    head = b""
    for piece in pieces(path, omissions):
        head = head or piece[:HEAD]
        scanner.feed(piece)
        if scanner.error:
            break
    scanner.finish()
    if other := by_another(head):
        raise InputError(f"{path}: {other}")
    if reason := _no_trace(scanner, head):
        raise InputError(
            f"{path}: not a PyTorch profiler trace ({reason}); "
            "give the .json or .json.gz of `export_chrome_trace`"
        )
    if scanner.error:
        omissions.add(
            "damaged",
            f"damaged JSON at byte {scanner.error_position} ({scanner.error}): what follows is left out",
        )
    elif scanner.truncated:
        omissions.add("truncated", "the file ends in the middle: what it held beyond is missing")
    omissions.add_if(
        scanner.unusable, "unusable-events", "entries of the event list without usable times: left out"
    )

    events = Events.of(scanner)
    header = {key.decode("utf-8", "replace"): value for key, value in scanner.header.items()}
    calls = _calls(events)
    operations = _with_graph_nodes(_operations(events, omissions), calls)
    trace = Trace(
        path=path,
        format="kineto",
        producer=producer(header),
        operations=operations,
        calls=calls,
        events=_dependencies(events, calls),
        markers=_markers(events),
        devices=devices(header),
        host=host(header),
    )
    name_process(trace)
    omissions.add_if(
        operations.height - operations["graph_node"].null_count(),
        "graph-nodes",
        "operations inside CUDA graph launches: seen, but not how they depend on each other; "
        "taken in the order observed",
    )
    trace.omissions = omissions.list()
    return trace


def _no_trace(scanner: EventScanner, head: bytes) -> str:
    """Why this is no trace of PyTorch's profiler; '' if it is one."""
    if not scanner.saw_events:
        if scanner.error:
            return f"{scanner.error} at byte {scanner.error_position}"
        cut = (
            "ends in the middle, before it has any `traceEvents`"
            if scanner.truncated
            else "has no `traceEvents`"
        )
        return f"it {cut}"
    known = len(scanner.columns["category"]) or by_pytorch(head, scanner.header)
    if known:
        return ""
    if scanner.truncated:
        return "it ends in the middle, before any event of that profiler"
    return "its events are of another program" if scanner.events else "it has no events"


def _operations(events: Events, omissions: Omissions) -> pl.DataFrame:
    rows = events.where(events["category"] <= SET)
    if len(rows) == 0:
        return empty(OPERATIONS)
    copy = rows["category"] == COPY
    texts, which = rows.each_text("name")
    parts = [COPY_NAME.search(text or "") for text in texts]
    direction = [found and DIRECTION_OF.get(found["direction"]) for found in parts]
    sides = [[found and found[side] for found in parts] for side in ("source", "destination")]
    host = pl.Series(["Host" in ends for ends in zip(*sides, strict=True)], dtype=pl.Boolean)
    source, destination = (
        pl.Series([side and MEMORY_OF.get(side) for side in of_texts], dtype=pl.Enum(MEMORY_KINDS))
        for of_texts in sides
    )
    other = pl.Series(~copy)
    kinds = pl.Series(KINDS[: SET + 1], dtype=pl.Enum(KINDS))

    def of_copies(values: pl.Series) -> pl.Series:
        return values[which].set(other, None)

    frame = pl.DataFrame(
        {
            "kind": kinds[rows["category"]],
            "direction": of_copies(pl.Series(direction, dtype=pl.Enum(DIRECTIONS))),
            "start_ns": rows["start_ns"],
            "end_ns": rows.ends(),
            "bytes": rows.numbers("bytes"),
            "source_memory": of_copies(source),
            "destination_memory": of_copies(destination),
            # Older traces give the device as the process, and the stream as the thread, of a GPU row.
            "device": _either(rows, "device", "process"),
            "context": rows.numbers("context"),
            "stream": _either(rows, "stream", "thread"),
            "correlation": rows.numbers("correlation", 1),
            "name": texts.fill_null("(unnamed)").cast(pl.Categorical)[which].set(~other, None),
            "graph_node": rows.numbers("graph_node", 1),
            "copy_count": with_nulls(np.ones(len(rows), np.int32), ~copy, "copy_count"),
        }
    )
    if (rows["blocks"] != MISSING).any():
        frame = frame.with_columns(rows.numbers("blocks"))
    omissions.add_if(
        int(copy.sum()) - frame["direction"].drop_nulls().len(),
        "unknown-direction",
        "copies whose name does not say their direction: counted, with no direction",
    )
    omissions.add_if(
        int(of_copies(host).sum()),
        "unknown-memory",
        "copies whose host memory is not told as pinned or pageable: advice on pinning cannot be given",
    )
    return conform(frame, OPERATIONS, OPERATIONS_OF_KERNELS)


def _either(events: Events, first: str, second: str) -> pl.Series:
    values = np.where(events[first] != MISSING, events[first], events[second])
    return with_nulls(values, values == MISSING, first)


def _with_graph_nodes(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Numbers the operations of each graph launch whose nodes the trace does not number itself."""
    names = calls["name"].unique().drop_nulls()
    launching = names.filter(names.cast(pl.String).str.contains(api_calls.GRAPH_LAUNCH))
    if launching.is_empty():
        return operations
    launches = calls["correlation"].filter(calls["name"].is_in(launching.implode()))
    launched = pl.col("correlation").is_in(launches.drop_nulls().unique().implode())
    number = pl.int_range(1, pl.len() + 1).over("correlation")
    return operations.with_columns(pl.coalesce("graph_node", pl.when(launched).then(number)))


def _calls(events: Events) -> pl.DataFrame:
    category = events["category"]
    found = events.where((category == RUNTIME_CALL) | (category == DRIVER_CALL))
    if len(found) == 0:
        return empty(CALLS)
    texts, which = found.each_text("name")
    meanings = [api_calls.meaning(text or "(unnamed)") for text in texts]
    stream, event = _waited_for(events, found["correlation"])
    return conform(
        pl.DataFrame(
            {
                "start_ns": found["start_ns"],
                "end_ns": found.ends(),
                "process": found.numbers("process"),
                "thread": found.numbers("thread"),
                "name": pl.Series([plain for plain, _ in meanings], dtype=pl.Categorical())[which],
                "correlation": found.numbers("correlation", 1),
                "waits_for": pl.Series([waits for _, waits in meanings], dtype=CALLS["waits_for"])[which],
                "stream": stream,
                "event": event,
            }
        ),
        CALLS,
    )


def _waited_for(events: Events, correlations: NDArray[np.int64]) -> tuple[pl.Series, pl.Series]:
    """The stream or the event that each call waits for, as the first synchronisation of its correlation says."""
    waits = events.where(
        (events["category"] == SYNC)
        & (events["correlation"] > 0)
        & events.is_text("sync_kind", "Stream Sync", "Event Sync")
    )
    rows = first_rows(waits["correlation"].astype(np.uint64), np.maximum(correlations, 0).astype(np.uint64))
    for_event = waits.is_text("sync_kind", "Event Sync")
    stream = ~for_event & (waits["stream"] != MISSING) & ~np.isin(waits["stream"], NO_ID)
    values = []
    for name, known in (("stream", stream), ("waited_event", for_event & (waits["waited_event"] >= 0))):
        # The last one answers for calls without such a row.
        given = np.append(waits[name], 0)[rows]
        values.append(with_nulls(given, ~np.append(known, False)[rows], name))
    return values[0], values[1]


def _dependencies(events: Events, calls: pl.DataFrame) -> pl.DataFrame:
    waiting = (events["category"] == SYNC) & events.is_text("sync_kind", "Stream Wait Event")
    recording = events["category"] == EVENT_RECORD
    if not waiting.any() and not recording.any():
        return empty(EVENTS)
    waits, records = _table(events.where(waiting)), _table(events.where(recording))
    known = pl.col("waited_correlation") > 0
    waits = waits.with_columns(
        kind=pl.lit("wait"),
        event=pl.when(pl.col("waited_event") >= 0).then("waited_event"),
        record_correlation=pl.when(known).then("waited_correlation"),
    )
    # A wait names the record that it waits for; where that has no row of its own, its call gives one.
    implied = waits.filter(known).select(
        correlation="waited_correlation",
        stream="waited_stream",
        event="event",
        device="device",
        context="context",
    )
    implied = implied.join(records.select("correlation"), on="correlation", how="anti").unique(
        "correlation", keep="first"
    )
    implied = implied.join(
        calls.select("correlation", "start_ns", "end_ns")
        .drop_nulls("correlation")
        .unique("correlation", keep="first"),
        on="correlation",
        how="inner",
    ).with_columns(kind=pl.lit("record"))
    records = records.with_columns(kind=pl.lit("record"), event="waited_event")
    cleaned = [
        frame.with_columns(process=pl.lit(None, dtype=pl.Int64)) for frame in (waits, records, implied)
    ]
    return pl.concat(conform(frame, EVENTS) for frame in cleaned)


def _table(events: Events) -> pl.DataFrame:
    names = ("start_ns", "device", "context", "stream", "correlation", "waited_stream", "waited_event")
    columns = {name: events.numbers(name) for name in (*names, "waited_correlation")}
    return pl.DataFrame(columns | {"end_ns": events.ends()})


def _markers(events: Events) -> pl.DataFrame:
    found = events.where(events["category"] == ANNOTATION)
    texts, which = found.each_text("name")
    columns = {"start_ns": found["start_ns"], "end_ns": found.ends()}
    columns |= {name: found.numbers(name) for name in ("process", "thread")}
    columns["name"] = texts.fill_null("(unnamed)").cast(pl.Categorical)[which]
    return conform(pl.DataFrame(columns), MARKERS)


class Events:
    """Rows of events: the scanner's columns, and the texts that `name` and `sync_kind` number (-1: none)."""

    def __init__(self, columns: dict[str, NDArray[Any]], texts: pl.Series) -> None:
        self._columns = columns
        self.texts = texts

    @staticmethod
    def of(scanner: EventScanner) -> Events:
        texts = [name.decode("utf-8", "replace") for name in scanner.names]
        # The last one is what -1 means.
        return Events(scanner.columns, pl.Series("text", [*texts, None], dtype=pl.String))

    def __len__(self) -> int:
        return len(self._columns["category"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def where(self, chosen: NDArray[np.bool_]) -> Events:
        rows = np.flatnonzero(chosen)
        return Events({name: values[rows] for name, values in self._columns.items()}, self.texts)

    def numbers(self, name: str, none_below: int = MISSING + 1) -> pl.Series:
        """A column; null where the event does not say, or says less than `none_below`."""
        return with_nulls(self[name], self[name] < none_below, name)

    def ends(self) -> pl.Series:
        lacking = self["duration_ns"] == MISSING
        return with_nulls(self["start_ns"] + np.where(lacking, 0, self["duration_ns"]), lacking, "end_ns")

    def each_text(self, name: str) -> tuple[pl.Series, pl.Series]:
        """The different texts of a column, and which of them each row has."""
        texts = np.where(self[name] < 0, len(self.texts) - 1, self[name])
        used = np.flatnonzero(np.bincount(texts, minlength=len(self.texts)))
        places = np.empty(len(self.texts), np.int64)
        places[used] = np.arange(len(used))
        return self.texts[used], pl.Series(places[texts])

    def is_text(self, name: str, *wanted: str) -> NDArray[np.bool_]:
        is_wanted = np.array([text in wanted for text in self.texts])  # -1 finds the last, which is none
        return np.asarray(is_wanted[self[name]])


def with_nulls(values: NDArray[Any], null: NDArray[np.bool_], name: str) -> pl.Series:
    made = pl.Series(name, values)
    return made.set(pl.Series(null), None) if null.any() else made
