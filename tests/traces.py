"""Small traces written out by hand, for tests of what is computed from a trace."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.trace import Omission, Trace, tables

EXAMPLES = Path(str(files("busfare.examples")))


def omitted(trace: Trace) -> dict[str, int]:
    """How many records each omission concerns, by its id."""
    return {omission.id: omission.count for omission in trace.omissions}


def as_json(result: object) -> Any:
    """A result as those read it who asked for JSON."""
    return json.loads(msgspec.json.encode(result))


def copy(
    start_us: float, end_us: float, bytes_: int | None, direction: str = "h2d", memory: str | None = "pinned",
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A copy between host and device; `memory` is the kind on the host's side."""
    ends = {"h2d": (memory, "device"), "d2h": ("device", memory)}.get(direction, ("device", "device"))
    return _operation("copy", start_us, end_us, more) | {
        "bytes": bytes_, "direction": direction, "source_memory": more.get("source_memory", ends[0]),
        "destination_memory": more.get("destination_memory", ends[1]), "copy_count": 1,
    }  # fmt: skip


def kernel(start_us: float, end_us: float, name: str = "work", **more: Any) -> dict[str, Any]:
    return _operation("kernel", start_us, end_us, more) | {"name": name}


def call(start_us: float, end_us: float, name: str, waits_for: str = "none", **more: Any) -> dict[str, Any]:
    return {
        "start_ns": round(start_us * 1000), "end_ns": round(end_us * 1000), "process": 1, "thread": 1,
        "name": name, "waits_for": waits_for,
    } | more  # fmt: skip


def event(kind: str, at_us: float, stream: int, correlation: int, **more: Any) -> dict[str, Any]:
    """A record of an event in a stream, or a wait for one."""
    return {
        "kind": kind, "start_ns": round(at_us * 1000), "end_ns": round(at_us * 1000) + 500, "process": 1, "context": 1,
        "stream": stream, "event": 3, "correlation": correlation,
    } | more  # fmt: skip


def streams(kinds: dict[int, str]) -> list[dict[str, Any]]:
    """Streams of one context by their numbers."""
    return [{"process": 1, "context": 1, "stream": number, "kind": kind} for number, kind in kinds.items()]


def _operation(kind: str, start_us: float, end_us: float, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind, "start_ns": round(start_us * 1000), "end_ns": round(end_us * 1000), "device": 0,
        "stream": 7, "process": 1,
    } | more  # fmt: skip


def made(
    operation: dict[str, Any], start_us: float, end_us: float, name: str = "cudaLaunchKernel",
    waits_for: str = "none",
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """An operation, and the call that made it."""
    return operation, call(start_us, end_us, name, waits_for)


def run(*rows: dict[str, Any] | tuple[dict[str, Any], dict[str, Any]], **more: Any) -> Trace:
    """A trace of calls, of operations, and of both where one `made` the other."""
    operations, calls = [], []
    for number, row in enumerate(rows):
        parts = [part | {"correlation": number} for part in row] if isinstance(row, tuple) else [row]
        operations += [part for part in parts if "waits_for" not in part]
        calls += [part for part in parts if "waits_for" in part]
    return trace(*operations, calls=calls, **more)


def trace(
    *operations: dict[str, Any], calls: list[dict[str, Any]] | None = None,
    events: list[dict[str, Any]] | None = None, streams: list[dict[str, Any]] | None = None,
    gpu: str | None = None, omissions: list[Omission] | None = None,
) -> Trace:  # fmt: skip
    """A trace of these operations, calls, events and streams, on one GPU of name `gpu`."""
    devices = tables.empty(tables.DEVICES)
    if gpu:
        devices = tables.conform(pl.DataFrame({"device": [0], "name": [gpu]}), tables.DEVICES)
    return Trace(
        path=Path("built-by-hand"),
        format="kineto",
        producer="a test",
        operations=_table(operations, tables.OPERATIONS, tables.OPERATIONS_RECORDED),
        calls=_table(calls or [], tables.CALLS),
        events=_table(events or [], tables.EVENTS),
        streams=tables.conform(pl.DataFrame(streams), tables.STREAMS)
        if streams
        else tables.empty(tables.STREAMS),
        devices=devices,
        omissions=omissions or [],
    )


def _table(rows: Any, schema: tables.Schema, optional: tables.Schema | None = None) -> pl.DataFrame:
    if not rows:
        return tables.empty(schema)
    return tables.conform(pl.from_dicts(list(rows), infer_schema_length=None), schema, optional).sort(
        "start_ns"
    )
