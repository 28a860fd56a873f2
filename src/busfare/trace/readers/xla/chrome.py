"""Timelines that JAX and TensorFlow make of a profile (`.trace.json.gz`, Chrome JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.xla.rows import GPU, HOST, NUMBERS, PYTHON_FRAME, STATS, STREAM, TPU, Row, Rows

#: Its writer leaves out what begins after so many events [OpenXLA: xplane_to_trace_events.cc].
MOST_EVENTS = 1_000_000
RECORD = "record with `jax.profiler.trace` or `tf.profiler`, and give the .xplane.pb"
EVENT_LIST, BETWEEN = re.compile(r'"traceEvents"\s*:\s*\[\s*'), re.compile(r"\s*,?\s*")


class Event(msgspec.Struct):
    """An event, of which nothing is sure."""

    ph: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    name: Any = None
    cat: Any = None
    args: Any = None


class _File(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)


def events_of(path: Path, omissions: Omissions) -> list[Event]:
    """The events of a file, plain or compressed; of one that ends in the middle, or is damaged, those before that."""
    text = b"".join(pieces(path, omissions))
    try:
        return msgspec.json.decode(text, type=_File).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return list(_one_by_one(text.decode("utf-8", "replace"), omissions))


def _one_by_one(text: str, omissions: Omissions) -> Iterator[Event]:
    """The events up to where the text is damaged, or ends."""
    decoder = json.JSONDecoder()
    begun = EVENT_LIST.search(text)
    at = begun.end() if begun else len(text)
    while at < len(text) and text[at] != "]":
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if isinstance(entry, dict):
            yield Event(**{key: _sound(entry.get(key)) for key in Event.__struct_fields__})
        between = BETWEEN.match(text, at)
        at = between.end() if between else at
    if text[at : at + 1] != "]":
        omissions.add("truncated")


def _sound(value: Any) -> Any:
    """`value` with no half of a surrogate pair in its texts, which the standard library lets pass."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return {key: _sound(one) for key, one in value.items()} if isinstance(value, dict) else value


def names_of(events: list[Event]) -> tuple[dict[Any, str], dict[Any, str]]:
    """The names of processes, and of threads by process and number."""
    places: dict[Any, str] = {}
    threads: dict[Any, str] = {}
    for event in events:
        name = event.args.get("name") if event.ph == "M" and isinstance(event.args, dict) else None
        if isinstance(name, str) and isinstance(event.pid, int) and isinstance(event.tid, int | None):
            if event.name == "process_name":
                places[event.pid] = name
            elif event.name == "thread_name":
                threads[event.pid, event.tid] = name
    return places, threads


def read(path: Path) -> Trace:
    """Reads a time line. Raises InputError if it names no GPU, TPU or host as that profiler does, or is of a TPU alone.

    A file that ends in the middle, or is damaged from some point on, gives what it holds up to there, and an omission.
    """
    omissions, rows = Omissions(), Rows()
    events = events_of(path, omissions)
    places, threads = names_of(events)
    if not any(
        HOST.fullmatch(name) or GPU.fullmatch(name) or TPU.fullmatch(name) for name in places.values()
    ):
        raise InputError(f"{path}: a time line of another program, or of TensorFlow 1; {RECORD}")
    rows.tpus = sum(bool(TPU.fullmatch(name)) for name in places.values())
    rows.gpus = [{"device": int(gpu[1])} for name in places.values() if (gpu := GPU.fullmatch(name))]
    timed = unusable = 0
    for event in events:
        if event.ph != "X":
            continue
        timed += 1
        row = _row(event)
        if row is None:
            unusable += 1
            continue
        place = places.get(event.pid, "")
        if gpu := GPU.fullmatch(place):
            if stream := STREAM.match(threads.get((event.pid, event.tid), "")):
                rows.add_on_gpu(row | {"device": int(gpu[1]), "stream": int(stream[1])})
        elif HOST.fullmatch(place) and not row["name"].startswith(PYTHON_FRAME):
            rows.add_on_host(row | {"thread": event.tid})
    if timed >= MOST_EVENTS:
        omissions.add("cut/timeline", events=timed)
    omissions.count("unusable-events", unusable)
    return rows.trace(path, "JAX or TensorFlow (time line of XLA's profiler)", omissions)


def _row(event: Event) -> Row | None:
    """Name, times in ns and stats; None where they cannot be used, or process and thread are no numbers."""
    start, lasting = event.ts, 0 if event.dur is None else event.dur
    if not all(isinstance(time, int | float) and abs(time) < 1e15 for time in (start, lasting)):
        return None
    numbers = all(isinstance(number, int) and abs(number) < 1 << 63 for number in (event.pid, event.tid))
    if not (numbers and isinstance(event.name, str)):
        return None
    row: Row = {
        "name": event.name,
        "start_ns": round(start * 1000),
        "end_ns": round((start + lasting) * 1000),
    }
    for key, said in event.args.items() if isinstance(event.args, dict) else ():
        if column := STATS.get(key):
            row[column] = _whole(said) if column in NUMBERS else str(said)
    return row


def _whole(said: object) -> int | None:
    """A number that may stand as text."""
    try:
        return int(said) if isinstance(said, int | str) else None
    except ValueError:
        return None
