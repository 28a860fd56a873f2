"""PyTorch profiler traces (Kineto, Chrome JSON), plain or gzip, read as they stream past."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.trace import api_calls, sites
from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.collectives import all_described
from busfare.trace.launches import grid_side, operators_of
from busfare.trace.model import Omissions, Trace, name_process, number_graph_nodes
from busfare.trace.readers.compressed import HEAD, pieces
from busfare.trace.readers.cupti import DIRECTION_NAMED, MEMORY_NAMED, NO_ID
from busfare.trace.readers.kineto.calls import LAUNCH, of_calls, with_owners
from busfare.trace.readers.tables import meant
from busfare.trace.spans import innermost
from busfare.trace.tables import (
    CALLS,
    DESCRIBED,
    DEVICES,
    DIRECTIONS,
    EVENTS,
    KINDS,
    LAUNCH_SHAPE,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_COLLECTIVES,
    conform,
    empty,
)

#: `Category` of the event scanner.
KERNEL, COPY, SET, RUNTIME_CALL, DRIVER_CALL, SYNC, EVENT_RECORD, ANNOTATION = range(8)
CALL = pl.col("category").is_in([RUNTIME_CALL, DRIVER_CALL])

COPY_NAME = r"(?i)^Memcpy (?P<direction>\w+)(?: \((?P<source>.+?) -> (?P<destination>.+)\))?"
#: Intel's spellings: M is memory of the host. S, which both share, may be at either.
DIRECTION_OF = DIRECTION_NAMED | {"M2D": "h2d", "D2M": "d2h", "M2M": "h2h", "D2D": "d2d"}
MEMORY_OF = MEMORY_NAMED | {"DEVICE": "device"}
#: `HOST` is memory that the GPU's runtime gave, `MEMORY(Unknown)` any other.
OF_HOST = ["Host", "HOST", "MEMORY(Unknown)"]
#: Before PyTorch 2, all that ran on AMD's GPUs counts as kernels, copies and fills by roctracer's names for them
#: [kineto: RoctracerActivityInterface.cpp; rocclr: activity.hpp].
ROCTRACER_COPY = r"^(?:Copy|hcMemcpy)((?:Host|Device)To(?:Host|Device))(?:2D)?$"
ROCTRACER_FILL = "FillBuffer"
WAYS = {"HostToDevice": "HtoD", "DeviceToHost": "DtoH", "DeviceToDevice": "DtoD", "HostToHost": "HtoH"}

#: Keys beside `traceEvents`, and categories of events that busfare has no use for, in files of PyTorch.
KEYS = {
    b"schemaVersion",
    b"deviceProperties",
    b"computeProperties",
    b"distributedInfo",
    b"baseTimeNanoseconds",
}
CATEGORIES = re.compile(rb'"cat":\s*"(?:cpu_op|Operator|python_function|cpu_instant_event|fwdbwd)"')


def read(path: Path, launches: bool = False) -> Trace:
    """Reads a Kineto trace, with its launches or not.

    Raises InputError if it holds no list of events, or another program's.

    A file that ends in the middle, or is damaged from some point on, gives what it holds up to there, and an
    omission.
    """
    omissions = Omissions()
    scanner = EventScanner(launches=True) if launches else EventScanner()
    head = b""
    for piece in pieces(path, omissions):
        head = head or piece[:HEAD]
        scanner.feed(piece)
        if scanner.error:
            break
    scanner.finish()
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

    names = _names(scanner)
    events = with_owners(
        _events(scanner, none=names.height - 1), names, CALL, CALL | (pl.col("category") == ANNOTATION)
    )
    events, about = _with_collectives(events, scanner, names)
    header = {key.decode("utf-8", "replace"): value for key, value in scanner.header.items()}
    calls = _located(_calls(events, names), scanner)
    operations = _in_groups(_operations(events, names, omissions), calls)
    if scanner.accelerator_events and operations.is_empty():
        raise InputError(
            f"{path}: a trace of an accelerator that is no GPU ({scanner.accelerator_events:,} events of it); "
            "busfare reads what runs on GPUs"
        )
    omissions.add_if(
        scanner.accelerator_events,
        "other-accelerator",
        "events of an accelerator that is no GPU: left out",
    )
    omissions.add_if(
        scanner.other_calls,
        "calls-left-out",
        "calls of the host that are neither CUDA's nor HIP's: what they wait for is not known; left out",
    )
    trace = Trace(
        path=path,
        format="kineto",
        producer=_producer(header),
        operations=operations,
        calls=calls,
        events=_dependencies(events, names, calls),
        markers=conform(_named(events, names, ANNOTATION), MARKERS, OPERATIONS_OF_COLLECTIVES),
        devices=_devices(header),
        host=_host(header),
        described=about,
    )
    name_process(trace)
    number_graph_nodes(trace, omissions)
    trace.omissions = omissions.list()
    if launches:
        external = events.filter(pl.col("category") <= SET)["external"]
        launch, trace.launches = operators_of(scanner, trace.operations, external, calls)
        trace.operations = trace.operations.with_columns(launch)
    return trace


def _no_trace(scanner: EventScanner, head: bytes) -> str:
    """Why this is no trace of PyTorch's profiler; '' if it is one."""
    if not scanner.saw_events:
        if scanner.error:
            return f"{scanner.error} at byte {scanner.error_position}"
        if scanner.truncated:
            return "it ends in the middle, before it has any `traceEvents`"
        return "it has no `traceEvents`"
    if not KEYS.isdisjoint(scanner.header) or CATEGORIES.search(head) or len(scanner.columns["category"]):
        return ""
    if scanner.truncated:
        return "it ends in the middle, before any event of that profiler"
    return "its events are of another program" if scanner.events else "it has no events"


def _names(scanner: EventScanner) -> pl.DataFrame:
    """Each text once, and what it means as the name of a call or copy; the last row is what is not named."""
    texts = [name.decode("utf-8", "replace") or None for name in scanner.names]
    name, plain = pl.col("name"), pl.col("plain")
    names = pl.DataFrame({"name": pl.Series([*texts, None], dtype=pl.String).fill_null("(unnamed)")})
    way = name.str.extract(ROCTRACER_COPY)
    names = names.with_columns(
        name.str.extract_groups(COPY_NAME).struct.unnest(), plain=api_calls.plain_name(name)
    ).with_columns(
        direction=pl.coalesce("direction", way.replace_strict(WAYS, default=None)),
        source=pl.coalesce("source", way.str.extract("^(.*)To")),
        destination=pl.coalesce("destination", way.str.extract("To(.*)$")),
    )
    return names.select(
        name.cast(pl.Categorical),
        plain.cast(pl.Categorical),
        meant("direction", DIRECTION_OF, DIRECTIONS),
        meant("source", MEMORY_OF, MEMORY_KINDS).alias("source_memory"),
        meant("destination", MEMORY_OF, MEMORY_KINDS).alias("destination_memory"),
        waits_for=api_calls.waits_for(plain),
        of_host=pl.col("source").is_in(OF_HOST) | pl.col("destination").is_in(OF_HOST),
        no_kernel=pl.when(way.is_not_null()).then(COPY).when(name == ROCTRACER_FILL).then(SET),
    )


def _events(scanner: EventScanner, none: int) -> pl.DataFrame:
    """The scanner's columns, null where an event does not say; texts are rows of the names, `none` if there is none."""
    numbers = pl.all().exclude("name", "sync_kind", "place")
    texts = pl.col("name", "sync_kind")
    events = pl.DataFrame(scanner.columns).with_columns(
        pl.when(numbers != MISSING).then(numbers),
        pl.when(texts >= 0).then(texts).otherwise(none),
        pl.when(pl.col("place") >= 0).then("place"),
    )
    above_0 = pl.col("correlation", "graph_node", "waited_correlation")
    return events.with_columns(
        pl.when(above_0 > 0).then(above_0),
        pl.when(pl.col("waited_event") >= 0).then("waited_event"),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
    )


def _with_collectives(
    events: pl.DataFrame, scanner: EventScanner, names: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events with a column `collective`, rows of the second result, where their arguments tell of one."""
    if not scanner.collectives:
        return events, empty(DESCRIBED)
    found, texts = zip(*scanner.collectives, strict=True)
    ranges = names["name"].cast(pl.String)[events["name"][found]]
    rows = np.full(events.height, -1, np.int64)
    rows[list(found)] = np.arange(len(found))
    table = all_described(texts, ranges.to_list())
    return events.with_columns(collective=pl.Series(rows).replace(-1, None)), table


def _named(events: pl.DataFrame, names: pl.DataFrame, *categories: int) -> pl.DataFrame:
    """The events of these categories, and what their names mean."""
    some = events.filter(pl.col("category").is_in(categories))
    return pl.concat([some.drop("name"), names[some["name"]]], how="horizontal")


def _operations(events: pl.DataFrame, names: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = _named(events, names, KERNEL, COPY, SET)
    if names["plain"].cast(pl.String).str.starts_with("hip").any():
        frame = frame.with_columns(category=pl.coalesce("no_kernel", "category"))
    copy = pl.col("category") == COPY
    of_copies = pl.col("direction", "source_memory", "destination_memory", "of_host")
    frame = frame.with_columns(
        pl.when(copy).then(of_copies),
        kind=meant("category", dict(enumerate(KINDS[: SET + 1])), KINDS),
        # Older traces give the device as the process, and the stream as the thread, of a GPU row.
        device=pl.coalesce("device", "process"),
        stream=pl.coalesce("stream", "thread"),
        process="owner",
        name=pl.when(~copy).then("name"),
        copy_count=pl.when(copy).then(1),
    )
    frame = of_calls(frame, events.filter(CALL))
    omissions.add_if(
        frame.filter(copy)["direction"].null_count(),
        "unknown-direction",
        "copies whose name does not say their direction: counted, with no direction",
    )
    omissions.add_if(
        int(frame["of_host"].sum()),
        "unknown-memory",
        "copies whose host memory is not told as pinned or pageable: advice on pinning cannot be given",
    )
    return conform(frame, OPERATIONS, {**LAUNCH_SHAPE, **OPERATIONS_OF_COLLECTIVES})


def _in_groups(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The operations, their grids in groups where the launch took work-items: the trace tells what the call was given."""
    if "grid_x" not in operations.columns:
        return operations
    in_items = calls["name"].cast(pl.String).str.contains(api_calls.GRID_IN_ITEMS).fill_null(False)
    of_items = pl.col("correlation").is_in(calls["correlation"].filter(in_items).drop_nulls().implode())
    sides = [(f"grid_{side}", f"block_{side}") for side in "xyz"]
    return operations.with_columns(
        pl.when(of_items).then(grid_side(*both)).otherwise(both[0]).alias(both[0]) for both in sides
    )


def _synchronised(events: pl.DataFrame, names: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    """The synchronisations of these kinds."""
    some = events.filter(pl.col("category") == SYNC)
    some = some.with_columns(sync_kind=names["name"].cast(pl.String)[some["sync_kind"]])
    return some.filter(pl.col("sync_kind").is_in(kinds))


def _calls(events: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    for_event = pl.col("sync_kind") == "Event Sync"
    waits = _synchronised(events, names, "Stream Sync", "Event Sync").select(
        "correlation",
        process="owner",
        stream=pl.when(~for_event).then("stream").replace(NO_ID, None),
        event=pl.when(for_event).then("waited_event"),
    )
    waits = waits.drop_nulls("correlation").unique(LAUNCH, keep="first", maintain_order=True)
    calls = _named(events, names, RUNTIME_CALL, DRIVER_CALL).drop("stream").with_columns(name="plain")
    calls = calls.join(waits, on=LAUNCH, how="left", nulls_equal=True, maintain_order="left")
    return conform(calls, CALLS)


def _located(calls: pl.DataFrame, scanner: EventScanner) -> pl.DataFrame:
    """The calls with the columns of `CALLS_LOCATED`, where the trace tells of Python's functions."""
    functions = pl.DataFrame(scanner.functions)
    if functions.is_empty():
        return calls
    functions = functions.with_columns(pl.when(pl.all() != MISSING).then(pl.all()))
    functions = functions.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    texts = [name.decode("utf-8", "replace") for name in scanner.function_names]
    for column, meaning in (("site", sites.of_python), ("module", sites.module_of)):
        means = pl.Series([meaning(text) for text in texts], dtype=pl.Categorical)
        meant = means[functions["name"]]
        spans = functions.filter(meant.is_not_null())
        around = innermost(spans, calls)
        found = meant.drop_nulls().gather(around)
        calls = calls.with_columns(found.alias(column))
    return calls


def _dependencies(events: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    waits = _synchronised(events, names, "Stream Wait Event").with_columns(
        kind=pl.lit("wait"),
        event="waited_event",
        record_correlation="waited_correlation",
        process="owner",
    )
    record = pl.lit("record")
    records = events.filter(pl.col("category") == EVENT_RECORD).with_columns(
        kind=record, event="waited_event", process="owner"
    )
    # A wait names the record that it waits for; where that has no row of its own, its call gives one.
    place = ["process", "device", "context", "event"]
    implied = waits.select(*place, correlation="waited_correlation", stream="waited_stream")
    implied = implied.join(records, on=LAUNCH, how="anti", nulls_equal=True, maintain_order="left")
    times = calls.select(*LAUNCH, "start_ns", "end_ns").drop_nulls("correlation")
    implied, times = (frame.unique(LAUNCH, keep="first", maintain_order=True) for frame in (implied, times))
    implied = implied.join(times, on=LAUNCH, how="inner", nulls_equal=True, maintain_order="left")
    return pl.concat(conform(frame, EVENTS) for frame in (waits, records, implied.with_columns(kind=record)))


class _Device(
    msgspec.Struct,
    rename={
        "memory_bytes": "totalGlobalMem",
        "major": "computeMajor",
        "minor": "computeMinor",
        "multiprocessors": "numSms",
    },
):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    memory_bytes: int | None = None
    major: int | None = None
    minor: int | None = None
    multiprocessors: int | None = None


class _Job(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None


def _decoded(text: bytes | None, kind: type[object] | object) -> object:
    """`text` as `kind`, or None where the file says something else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _devices(header: dict[str, bytes]) -> pl.DataFrame:
    """Rows of `DEVICES`; none where the file lists no GPUs."""
    listed = _decoded(header.get("deviceProperties"), list[_Device])
    if not isinstance(listed, list):
        return empty(DEVICES)
    rows = [
        msgspec.structs.asdict(gpu)
        | {
            "device": gpu.id,
            "name": gpu.name or None,
            "compute_capability": None if gpu.major is None else f"{gpu.major}.{gpu.minor}",
        }
        for gpu in listed
        if gpu.id is not None and abs(gpu.id) < 1 << 31
    ]
    return conform(pl.DataFrame(rows, strict=False), DEVICES)


def _producer(header: dict[str, bytes]) -> str:
    """The profiler, and its CUPTI where the file tells."""
    version = _decoded(header.get("cupti_version"), int)
    return "PyTorch profiler (Kineto" + (f", CUPTI {version})" if version else ")")


def _host(header: dict[str, bytes]) -> dict[str, str]:
    """`cuda`, `hostname` and `rank`, those that the file tells."""
    keys = {"cuda_driver_version": "cuda", "hostname": "hostname"}
    values = {new: _decoded(header.get(old), str | int) for old, new in keys.items()}
    job = _decoded(header.get("distributedInfo"), _Job)
    if isinstance(job, _Job) and job.rank is not None:
        values["rank"] = str(job.rank)
    return {key: str(value) for key, value in values.items() if value}
