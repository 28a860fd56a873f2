"""The time line that JAX and TensorFlow make of a profile (`.trace.json.gz`, Chrome JSON)."""

from __future__ import annotations

from pathlib import Path

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.chrome_json import Event, events_of, names_of, times_of
from busfare.trace.readers.xla.rows import GPU, HOST, NUMBERS, PYTHON_FRAME, STATS, STREAM, TPU, Row, Rows

#: Its writer leaves out what begins after so many events [OpenXLA: xplane_to_trace_events.cc].
MOST_EVENTS = 1_000_000
RECORD = "record with `jax.profiler.trace` or `tf.profiler`, and give the .xplane.pb"


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
        omissions.add(
            "cut",
            f"the time line has {timed:,} events: its writer leaves out those after a million; give the .xplane.pb",
        )
    omissions.add_if(unusable, "unusable-events", "entries of the event list without usable times: left out")
    return rows.trace(path, "JAX or TensorFlow (time line of XLA's profiler)", omissions)


def _row(event: Event) -> Row | None:
    """Name, times in ns and stats; None where they cannot be used."""
    times = times_of(event)
    if times is None:
        return None
    row: Row = {"name": event.name, "start_ns": times[0], "end_ns": times[1]}
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
