"""PyTorch profiler traces (Kineto, Chrome JSON), plain or gzip, read as they stream past."""

import re
from pathlib import Path
from typing import Any

import polars as pl

from busfare.errors import InputError
from busfare.trace._kineto_events import EventScanner
from busfare.trace.columns import decoded_json
from busfare.trace.launches import operators_of
from busfare.trace.model import Trace, name_process, number_graph_nodes
from busfare.trace.omissions import Omissions
from busfare.trace.readers import Format, RecordAgain
from busfare.trace.readers.compressed import HEAD, pieces
from busfare.trace.readers.kineto import rows
from busfare.trace.readers.tables import ints, texts, typed
from busfare.trace.tables import ACTIVITY, DEVICES, MARKERS, OPERATIONS_OF_COLLECTIVES, conform, empty

__all__ = ["FORMATS"]

#: Keys beside `traceEvents`, and categories of events that busfare has no use for, in files of PyTorch.
KEYS = {*b"schemaVersion deviceProperties computeProperties distributedInfo baseTimeNanoseconds".split()}
CATEGORIES = re.compile(rb'"cat":\s*"(?:cpu_op|Operator|python_function|cpu_instant_event|fwdbwd)"')


def read(path: Path, launches: bool = False, activity: bool = False) -> Trace:
    """Reads a Kineto trace, optionally with launches and host activity. If the file is truncated or damaged, reads up to
    that point and notes an omission. Raises InputError if it has no list of events, or the list of another program.
    """
    omissions = Omissions()
    scanner = EventScanner(launches=launches or activity)
    head = b""
    for piece in pieces(path, omissions):
        head = head or piece[:HEAD]
        scanner.feed(piece)
        if scanner.error:
            break
    scanner.finish()
    if reason := _no_trace(scanner, head):
        raise InputError(
            f"{path}: not a PyTorch profiler trace ({reason}); give the .json or .json.gz of `export_chrome_trace`"
        )
    if scanner.error:
        omissions.add("damaged/json", at=scanner.error_position, error=scanner.error)
    elif scanner.truncated:
        omissions.add("truncated")
    omissions.count("unusable-events", scanner.unusable)

    names = rows.names_of(scanner)
    events, about = rows.with_collectives(rows.events_of(scanner, names), scanner, names)
    header = {key.decode("utf-8", "replace"): value for key, value in scanner.header.items()}
    calls = rows.calls_of(events, names, scanner)
    operations = rows.operations_of(events, names, calls, omissions)
    if scanner.accelerator_events and operations.is_empty():
        raise InputError(
            f"{path}: a trace of an accelerator that is not a GPU ({scanner.accelerator_events:,} events); busfare "
            "reads GPU traces"
        )
    omissions.count("other-accelerator", scanner.accelerator_events)
    omissions.count("calls-left-out", scanner.foreign_calls)
    ranges = rows.named(events, names, rows.ANNOTATION)
    version = decoded_json(header.get("cupti_version"), int, strict=False)
    trace = Trace(
        path=path,
        format="kineto",
        producer="PyTorch profiler (Kineto" + (f", CUPTI {version})" if version else ")"),
        operations=operations,
        calls=calls,
        events=rows.dependencies(events, names, calls),
        markers=conform(ranges, MARKERS, OPERATIONS_OF_COLLECTIVES),
        activity=rows.activity_of(scanner) if activity else empty(ACTIVITY),
        devices=_devices(header),
        host=_host(header),
        origin_ns=decoded_json(header.get("baseTimeNanoseconds"), int, strict=False) or 0,
        described=about,
    )
    name_process(trace)
    number_graph_nodes(trace, omissions)
    trace.omissions = omissions.list()
    if launches or (activity and any(shapes for _, shapes, *_ in scanner.signatures)):
        external = events.filter(pl.col("category") <= rows.SET)["external"]
        launch, trace.launches = operators_of(scanner, trace.operations, external, calls)
        trace.operations = trace.operations.with_columns(launch)
    return trace


def _no_trace(scanner: EventScanner, head: bytes) -> str:
    """Why this is not a trace of PyTorch's profiler; '' if it is one."""
    if not scanner.saw_events:
        if scanner.error:
            return f"{scanner.error} at byte {scanner.error_position}"
        if scanner.truncated:
            return "the file is truncated before `traceEvents`"
        return "it has no `traceEvents`"
    if not KEYS.isdisjoint(scanner.header) or CATEGORIES.search(head) or len(scanner.columns["category"]):
        return ""
    if scanner.truncated:
        return "the file is truncated before the first event of the profiler"
    return "its events come from another program" if scanner.events else "it has no events"


#: What an entry of `deviceProperties` says.
PROPERTIES = texts("name") | ints("id totalGlobalMem computeMajor computeMinor numSms")


def _devices(header: dict[str, bytes]) -> pl.DataFrame:
    """Rows of `DEVICES`; none where the file lists no GPUs."""
    listed = decoded_json(header.get("deviceProperties"), list[dict[str, Any]], strict=False)
    rows = [tuple(map(gpu.get, PROPERTIES)) for gpu in listed or []]
    gpus = typed(rows, PROPERTIES).with_columns(
        pl.col("name").replace("", None),
        device="id",
        memory_bytes="totalGlobalMem",
        compute_capability=pl.format("{}.{}", "computeMajor", "computeMinor"),
        multiprocessors="numSms",
    )
    return conform(gpus, DEVICES).drop_nulls("device")


def _host(header: dict[str, bytes]) -> dict[str, str]:
    """`cuda`, `hostname`, `rank` and `world_size`, as far as the file has them."""
    keys = {"cuda_driver_version": "cuda", "hostname": "hostname"}
    values = {new: decoded_json(header.get(old), str | int, strict=False) for old, new in keys.items()}
    job = decoded_json(header.get("distributedInfo"), dict[str, Any], strict=False)
    for key in ("rank", "world_size"):
        if job and str(job.get(key)).isdecimal():
            values[key] = str(job[key])
    return {key: str(value) for key, value in values.items() if value}


AGAIN = RecordAgain("`ProfilerActivity.CUDA`", activity="`ProfilerActivity.CPU` and `with_stack=True`")
#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "calls-left-out": "host calls that belong to neither CUDA nor HIP: skipped, because their waits are unknown",
    "damaged/json": "damaged JSON at byte {at} ({error}): the rest is skipped",
    "other-accelerator": "events of an accelerator that is not a GPU: skipped",
}
FORMATS = (
    Format(
        name="kineto",
        title="PyTorch profiler (.json, .json.gz)",
        read=lambda source: read(source.path, source.launches, source.activity),
        any_json=True,
        sentences=SENTENCES,
        suffixes=(".json",),
        # Execution traces: operators without times.
        companions=re.compile(rb'\s*\{\s*"schema":\s*"\d'),
        record_again=AGAIN,
    ),
)
