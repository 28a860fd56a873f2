"""Profiles of JAX and TensorFlow: XSpace files (`.xplane.pb`), decoded by Google's protobuf library, and the timelines that
JAX and TensorFlow make of them (`.trace.json.gz`, Chrome JSON).

The fields are those of the published schema [OpenXLA: tsl/profiler/protobuf/xplane.proto] that busfare has use for. Texts
are read as bytes, which no wrong UTF-8 makes unreadable.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.protobuf import message_classes
from busfare.trace.readers import Format, RecordAgain, Source
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.xla.rows import GPU, HOST, NUMBERS, PYTHON_FRAME, STATS, STREAM, TPU, Row, Rows

__all__ = ["FORMATS"]

#: How an XSpace protobuf begins: with a plane, which begins with its number and its name.
XSPACE = re.compile(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:[^\x00-\x1f]{0,60}/(?:host|device):|Task Environment)"
)
#: What names a process in the timeline that XLA's profiler makes, and TensorFlow's of old.
PROCESS = re.compile(rb'"(?:[\w.:-]{0,60} )?/(?:device:[A-Z]+:\d|host:CPU|job:\w)')
METADATA = "/host:metadata"
#: [OpenXLA: tsl/profiler/protobuf/xplane.proto].
MESSAGES = {
    "Stat": "metadata_id 1 int64, double_value 2 |double, uint64_value 3 |uint64, int64_value 4 |int64, "
    "str_value 5 |bytes, ref_value 7 |uint64",
    "Event": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 *Stat",
    "Line": "id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 *Event",
    "Metadata": "id 1 int64, name 2 bytes",
    "Entry": "key 1 int64, value 2 Metadata",
    "Plane": "name 2 bytes, lines 3 *Line, event_metadata 4 *Entry, stat_metadata 5 *Entry, stats 6 *Stat",
}
PLANE = message_classes("busfare.xla", MESSAGES)["Plane"]
#: Fields of XSpace.
PLANES, ERRORS, WARNINGS, HOSTNAMES = 1, 2, 3, 4
LENGTH_DELIMITED = 2
VARINT = re.compile(rb"[\x80-\xff]{0,9}[\0-\x7f]")


def read(source: Source) -> Trace:
    """Reads an XSpace. Raises InputError if no plane of it can be read, or it is of a TPU."""
    omissions, rows = Omissions(), Rows()
    about: Row = {}
    hosts, planes = [], 0
    with source.unpacked() as place:
        data = place.read_bytes()
    for field, value in _contents(data, omissions):
        if field == PLANES:
            planes += 1
            _take(value, rows, about)
        elif field in (ERRORS, WARNINGS):
            omissions.add("profiler-warning", 1, text=value[:200])
        elif field == HOSTNAMES:
            hosts.append(value)
    if not planes:
        raise InputError(f"{source.path}: unreadable profile; copy or record it again")
    for row in (*rows.on_host, *rows.ranges):
        row["process"] = about.get("process_id")
    version = about.get("jax_version")
    producer = f"JAX {version} (XLA's profiler)" if version else "JAX or TensorFlow (XLA's profiler)"
    trace = rows.trace(source.path, producer, omissions)
    trace.host = {"hostname": hosts[0]} if hosts else {}
    return trace


def _take(plane: Any, rows: Rows, about: Row) -> None:
    """Adds the rows of a plane, and what the metadata's plane says to `about`."""
    name = _text(plane.name)
    texts = _names(plane.stat_metadata)
    if gpu := GPU.fullmatch(name):
        stats = _values(plane.stats, texts)
        device = int(gpu[1])
        rows.gpus.append(_device(device, stats))
        rows.amd = rows.amd or stats.get("device_vendor") == "AMD"
        streams = [line for line in plane.lines if STREAM.match(_text(line.name))]
        for stream, row in _events(plane, texts, streams):
            rows.add_on_gpu(row | {"device": device, "stream": stream})
    elif name.endswith(METADATA):
        about.update(_values(plane.stats, texts))
    elif HOST.fullmatch(name):
        for thread, row in _events(plane, texts, plane.lines):
            rows.add_on_host(row | {"thread": thread})
    elif TPU.fullmatch(name):
        rows.tpus += 1


def _events(plane: Any, texts: dict[int, str], lines: Iterable[Any]) -> Iterator[tuple[int, Row]]:
    """The events of lines of a plane but frames of Python, as rows, each with the number of its line."""
    names = _names(plane.event_metadata)
    wanted = {number: STATS[text] for number, text in texts.items() if text in STATS}
    for line in lines:
        for event in line.events:
            name = names.get(event.metadata_id)
            if name and name.startswith(PYTHON_FRAME):
                continue
            begun = line.timestamp_ns * 1000 + event.offset_ps
            row: Row = {
                "name": name,
                "start_ns": begun // 1000,
                "end_ns": (begun + event.duration_ps) // 1000,
            }
            for stat in event.stats:
                if column := wanted.get(stat.metadata_id):
                    value = _value(stat, texts)
                    row[column] = value if column in NUMBERS else None if value is None else str(value)
            yield line.id, row


def _device(device: int, stats: Row) -> Row:
    """A row of `DEVICES`. Of AMD's GPUs the two numbers are those of their code: 9.4 of gfx942."""
    capability = [stats.get(f"compute_cap_{part}") for part in ("major", "minor")]
    complete = None not in capability
    clock = stats.get("clock_rate")  # kHz
    return {
        "device": device,
        "name": stats.get("gpu_device_name"),
        "clock_hz": clock * 1000.0 if isinstance(clock, int) else None,
        "multiprocessors": stats.get("core_count"),
        "memory_bandwidth_bytes_per_s": stats.get("memory_bandwidth"),
        "memory_bytes": stats.get("memory_size"),
        "compute_capability": f"{capability[0]}.{capability[1]}" if complete else None,
    }


def _contents(data: bytes, omissions: Omissions) -> Iterator[tuple[int, Any]]:
    """The fields of an XSpace: number and value, which is a decoded plane or a text. A file that ends in the middle gives
    what stands before its last plane; a plane that is damaged is left out.
    """
    at, whole = 0, memoryview(data)
    while at < len(data):
        tag, at = _number(data, at)
        if tag & 7 != LENGTH_DELIMITED:
            omissions.add("damaged/protobuf", at=at)
            return
        length, at = _number(data, at)
        if length < 0 or at + length > len(data):
            omissions.add("truncated")
            return
        if tag >> 3 == PLANES:
            plane = PLANE()
            try:
                plane.ParseFromString(whole[at : at + length])
            except DecodeError:
                omissions.add("damaged/plane", 1, at=at)
            else:
                yield PLANES, plane
        else:
            yield tag >> 3, _text(bytes(whole[at : at + length]))
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The varint at `at`, and where the next field begins; -1 where the file ends within it or it has no end."""
    varint = VARINT.match(data, at)
    if varint is None:
        return -1, at
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint[0])), varint.end()


def _names(entries: Any) -> dict[int, str]:
    """The texts of a plane's metadata by their numbers."""
    return {entry.key: _text(entry.value.name) for entry in entries}


def _value(stat: Any, texts: dict[int, str]) -> int | float | str | None:
    """What a stat says. Texts may be those that the plane's metadata number."""
    kind = stat.WhichOneof("value")
    value: Any = getattr(stat, kind) if kind else None
    if kind == "str_value":
        return _text(value)
    return texts.get(value) if kind == "ref_value" else value


def _values(stats: Any, texts: dict[int, str]) -> dict[str, int | float | str | None]:
    """What stats say, by their names."""
    return {texts.get(stat.metadata_id, ""): _value(stat, texts) for stat in stats}


def _text(encoded: bytes) -> str:
    """A text of the file, whatever its bytes."""
    return encoded.decode("utf-8", "replace")


#: Its writer leaves out what begins after so many events [OpenXLA: xplane_to_trace_events.cc].
MOST_EVENTS = 1_000_000
RECORD = "record with `jax.profiler.trace` or `tf.profiler`, and give the .xplane.pb"
#: Where the decoder stops; and how often a damaged file is cut before an object that it may have ended in.
DAMAGE, ATTEMPTS = re.compile(r"\(byte (\d+)\)"), 16


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


class _Timeline(msgspec.Struct):
    traceEvents: list[Event | str | float | bool | list[Any] | None] = []  # noqa: N815  as it stands there


def events_of(path: Path, omissions: Omissions) -> list[Event]:
    """The events of a file, plain or compressed; of one that ends in the middle, or is damaged, those before that."""
    text = b"".join(pieces(path, omissions)).decode("utf-8", "replace").encode()
    end, close = len(text) + 1, b""
    for _ in range(ATTEMPTS):
        try:
            listed = msgspec.json.decode(text[:end] + close, type=_Timeline).traceEvents
            break
        except (msgspec.MsgspecError, RecursionError) as error:
            damaged = DAMAGE.search(str(error))
            until = min(end - 1, int(damaged[1])) if damaged else end - 1
            end, close = text.rfind(b"}", 0, until) + 1, b"]}"
    else:
        listed = []
    if close:
        omissions.add("truncated")
    return [event for event in listed if isinstance(event, Event)]


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


def read_timeline(path: Path) -> Trace:
    """Reads a timeline. Raises InputError if it names no GPU, TPU or host as that profiler does, or is of a TPU alone. A
    file that ends in the middle, or is damaged from some point on, gives what it holds up to there, and an omission.
    """
    omissions, rows = Omissions(), Rows()
    events = events_of(path, omissions)
    places, threads = names_of(events)
    if not any(kind.fullmatch(name) for name in places.values() for kind in (HOST, GPU, TPU)):
        raise InputError(f"{path}: a timeline of another program, or of TensorFlow 1; {RECORD}")
    rows.tpus = sum(bool(TPU.fullmatch(name)) for name in places.values())
    rows.gpus = [{"device": int(gpu[1])} for name in places.values() if (gpu := GPU.fullmatch(name))]
    timed = unusable = 0
    for event in events:
        if event.ph != "X":
            continue
        timed += 1
        row = _timeline_row(event)
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
    return rows.trace(path, "JAX or TensorFlow (timeline of XLA's profiler)", omissions)


def _timeline_row(event: Event) -> Row | None:
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
    for key, value in event.args.items() if isinstance(event.args, dict) else ():
        if column := STATS.get(key):
            row[column] = _whole(value) if column in NUMBERS else str(value)
    return row


def _whole(value: object) -> int | None:
    """A number that may stand as text."""
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None


AGAIN = RecordAgain(gpu="`jax.profiler.trace` or `tf.profiler` with the GPU and CUPTI available")
#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "calls-named-by-work": "API calls recorded under the name of the work that they launch: shown under the name of the "
    "matching driver call",
    "cut/timeline": "the timeline has {events:,} events: the profiler drops events beyond a million; pass the .xplane.pb "
    "instead",
    "damaged/plane": "the plane at byte {at} is damaged: skipped",
    "damaged/protobuf": "damaged protobuf near byte {at}: the rest is skipped",
    "unknown-operations/xla": "events on GPU streams other than kernels, copies, sets and graphs: skipped",
}
FORMATS = (
    Format(
        name="xla",
        title="JAX and TensorFlow (.xplane.pb, .trace.json.gz)",
        read=read,
        begins=XSPACE,
        sentences=SENTENCES,
        suffixes=(".pb",),
        record_again=AGAIN,
    ),
    Format(
        name="xla",
        read=lambda source: read_timeline(source.path),
        json=PROCESS,
        suffixes=(".json",),
        record_again=AGAIN,
    ),
)
