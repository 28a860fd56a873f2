"""Chrome JSON of any program: its events, of which nothing is sure, as far as the text is sound."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from busfare.trace.model import Omissions
from busfare.trace.readers.compressed import pieces

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
        omissions.add(
            "truncated", "the file ends or is damaged in the middle: what it held beyond is missing"
        )


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
        if event.ph == "M" and isinstance(event.args, dict) and isinstance(event.args.get("name"), str):
            if not (isinstance(event.pid, int) and isinstance(event.tid, int | None)):
                continue
            if event.name == "process_name":
                places[event.pid] = event.args["name"]
            elif event.name == "thread_name":
                threads[event.pid, event.tid] = event.args["name"]
    return places, threads


def times_of(event: Event) -> tuple[int, int] | None:
    """Start and end in ns of an event that says both, and its process and thread as numbers; None otherwise."""
    begun, lasting = event.ts, 0 if event.dur is None else event.dur
    if not all(isinstance(time, int | float) and abs(time) < 1e15 for time in (begun, lasting)):
        return None
    numbers = all(isinstance(number, int) and abs(number) < 1 << 63 for number in (event.pid, event.tid))
    if not (numbers and isinstance(event.name, str)):
        return None
    return round(begun * 1000), round((begun + lasting) * 1000)
