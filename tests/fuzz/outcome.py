"""What reading may come to: a sound trace, or an InputError of one line, in bounded time and memory."""

import itertools
import resource
import signal
import time
from pathlib import Path
from types import FrameType

import numpy as np
import polars as pl
from msgspec.structs import replace

from busfare.advise.finding import call_sites, finding, rows_of
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.nodes.file import decode
from busfare.show.words import text
from busfare.trace import Trace, read, tables

__all__ = ["OutOfTime", "failure_of", "limit_memory"]

SECONDS = 2.0  # of processor time
STALLED_SECONDS = 30  # of waiting: a deadlock, on any machine
GIBIBYTE = 1 << 30

MAY_HAVE = {
    "operations": {**tables.OPERATIONS_OF_KERNELS, **tables.OPERATIONS_OF_COLLECTIVES},
    "calls": tables.CALLS_LOCATED,
}
NAMES = ("operations", "calls", "events", "markers", "devices", "streams", "launches")
SCHEMAS: dict[str, tables.Schema] = {name: getattr(tables, name.upper()) for name in NAMES}


class OutOfTime(BaseException):
    """Raised into the reader; not an Exception, so that no reader can take it for bad input."""


def limit_memory() -> None:
    """Lets the process grow by a gibibyte from here on; what needs more ends it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + GIBIBYTE
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def failure_of(path: Path) -> str:
    """Why reading `path` went wrong; empty if it went as it may."""
    before = {number: signal.signal(number, _out_of_time) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, STALLED_SECONDS)
    began = time.process_time()
    try:
        failure = _failure_of(path)
    except OutOfTime:
        return f"took more than {SECONDS} s of processor time, or waited for {STALLED_SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    taken = time.process_time() - began
    return failure or (f"took {taken:.1f} s" if taken > SECONDS else "")


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _failure_of(path: Path) -> str:
    try:
        if path.suffix == ".toml":
            node = decode(path.read_bytes().decode("utf-8", "replace"), path.name)
            return "" if isinstance(node, Node) else f"gave a {type(node).__name__}"
        return _unsound(read(path, launches=True))
    except InputError as error:
        message = str(error)
        return (
            "" if message and message.isprintable() else f"the message is not one line of text: {message!r}"
        )
    except OutOfTime:
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _unsound(trace: Trace) -> str:
    for name, schema in SCHEMAS.items():
        columns = getattr(trace, name).schema
        optional = {column: kind for column, kind in MAY_HAVE.get(name, {}).items() if column in columns}
        if dict(columns) != dict(schema) | optional:
            return f"{name}: columns {columns}"
    for name in ("operations", "calls"):
        frame: pl.DataFrame = getattr(trace, name)
        start, end = frame["start_ns"], frame["end_ns"]
        if start.null_count() or end.null_count():
            return f"{name}: null times"
        if (end < start).any() or (start < 0).any():
            return f"{name}: impossible times"
        if not start.is_sorted():
            return f"{name}: not in order"
    for name in ("events", "markers"):
        frame = getattr(trace, name)
        if frame["start_ns"].null_count() or (frame["end_ns"] < frame["start_ns"]).any():
            return f"{name}: impossible times"
    operations = trace.operations
    if (operations["bytes"] < 0).any() or (operations["copy_count"] < 1).any():
        return "operations: impossible sizes or counts"
    if operations["kind"].null_count() or trace.calls["waits_for"].null_count():
        return "a null kind, or a call that is not known to wait or not"
    of_kernels = operations.filter(pl.col("launch").is_not_null())
    if (of_kernels["kind"] != "kernel").any() or (of_kernels["launch"] >= trace.launches.height).any():
        return "operations: a launch of no kernel, or one that is not there"
    if (trace.launches["grid_x"] < 1).any() or (trace.launches["shared_bytes"] < 0).any():
        return "launches: impossible ones"
    every = finding("mostly-copies", "", 0.0, rows_of(trace, pl.lit(True)))
    called = replace(every, touches=None, calls=np.arange(trace.calls.height, dtype=np.uint32))
    for site in itertools.chain(*call_sites(trace, [every, called])):
        if not str(site).isprintable() or site.count < 1 or site.seconds < 0 or (site.bytes or 0) < 0:
            return f"call site {site!r}"
    for omission in trace.omissions:
        if omission.count < 0 or not text(omission.what).isprintable():
            return f"omission {omission!r}"
    return "" if trace.producer.isprintable() else f"producer {trace.producer!r}"
