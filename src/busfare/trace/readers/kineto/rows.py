"""Events of a Kineto trace as rows of a trace's tables: operations, calls, and what waits for what.

Calls tell what operations do not: whose these are in a file of several ranks, and of copies direction and size.
"""

import numpy as np
import polars as pl

from busfare.trace import sites, words
from busfare.trace import tables as schema
from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.collectives import all_described
from busfare.trace.launches import grids_in_blocks, scanned
from busfare.trace.omissions import Omissions
from busfare.trace.readers.cupti import DIRECTION_NAMED, MEMORY_NAMED, NO_ID
from busfare.trace.readers.tables import INT, meant
from busfare.trace.tables import conform, empty

#: hipMemcpyKind, of the kinds that have an end on the host and one on the GPU.
DIRECTION_OF_KIND = {1: "h2d", 2: "d2h"}
LAUNCH = ["process", "correlation"]
#: A number of a process is less, at most 2^22 on Linux: what is above tells processes apart that have one number.
RANK_BITS = 24
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


def names_of(scanner: EventScanner) -> pl.DataFrame:
    """Each text once, and what it means as the name of a call or copy; the last row is what is not named."""
    texts = [name.decode("utf-8", "replace") or None for name in scanner.names]
    name, plain = pl.col("name"), pl.col("plain")
    names = pl.DataFrame({"name": pl.Series([*texts, None], dtype=pl.String).fill_null("(unnamed)")})
    ends = name.str.extract(ROCTRACER_COPY)
    parts = name.str.extract_groups(COPY_NAME).struct.unnest()
    names = names.with_columns(parts, plain=words.plain_name(name)).with_columns(
        direction=pl.coalesce("direction", ends.replace_strict(WAYS, default=None)),
        source=pl.coalesce("source", ends.str.extract("^(.*)To")),
        destination=pl.coalesce("destination", ends.str.extract("To(.*)$")),
    )
    return names.select(
        name.cast(pl.Categorical),
        plain.cast(pl.Categorical),
        meant("direction", DIRECTION_OF, schema.DIRECTIONS),
        meant("source", MEMORY_OF, schema.MEMORY_KINDS).alias("source_memory"),
        meant("destination", MEMORY_OF, schema.MEMORY_KINDS).alias("destination_memory"),
        waits_for=words.waits_for(plain),
        of_host=pl.col("source").is_in(OF_HOST) | pl.col("destination").is_in(OF_HOST),
        no_kernel=pl.when(ends.is_not_null()).then(COPY).when(name == ROCTRACER_FILL).then(SET),
    )


def events_of(scanner: EventScanner, names: pl.DataFrame) -> pl.DataFrame:
    """The scanner's columns and the `owner` of operations, null where an event does not say; texts are rows of the names."""
    numbers = pl.all().exclude("name", "sync_kind", "place")
    texts = pl.col("name", "sync_kind")
    events = pl.DataFrame(scanner.columns).with_columns(
        pl.when(numbers != MISSING).then(numbers),
        pl.when(texts >= 0).then(texts).otherwise(names.height - 1),
        pl.when(pl.col("place") >= 0).then("place"),
    )
    above_0 = pl.col("correlation", "graph_node", "waited_correlation")
    events = events.with_columns(
        pl.when(above_0 > 0).then(above_0),
        pl.when(pl.col("waited_event") >= 0).then("waited_event"),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
    )
    return _with_owners(events, names)


def with_collectives(
    events: pl.DataFrame, scanner: EventScanner, names: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events with a column `collective`, rows of the second result, where their arguments tell of one."""
    if not scanner.collectives:
        return events, empty(schema.DESCRIBED)
    places, texts = zip(*scanner.collectives, strict=True)
    ranges = names["name"].cast(pl.String)[events["name"][places]]
    rows = np.full(events.height, -1, np.int64)
    rows[list(places)] = np.arange(len(places))
    table = all_described(texts, ranges.to_list())
    return events.with_columns(collective=pl.Series(rows).replace(-1, None)), table


def named(events: pl.DataFrame, names: pl.DataFrame, *categories: int) -> pl.DataFrame:
    """The events of these categories, and what their names mean."""
    some = events.filter(pl.col("category").is_in(categories))
    return pl.concat([some.drop("name"), names[some["name"]]], how="horizontal")


def operations_of(
    events: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame, omissions: Omissions
) -> pl.DataFrame:
    """Rows of `operations`, with how kernels were launched, and the row of `described` of those that communicate."""
    frame = named(events, names, KERNEL, COPY, SET)
    if names["plain"].cast(pl.String).str.starts_with("hip").any():
        frame = frame.with_columns(category=pl.coalesce("no_kernel", "category"))
    copy = pl.col("category") == COPY
    of_copies = pl.col("direction", "source_memory", "destination_memory", "of_host")
    frame = frame.with_columns(
        pl.when(copy).then(of_copies),
        kind=meant("category", dict(enumerate(schema.KINDS[: SET + 1])), schema.KINDS),
        # Older traces give the device as the process, and the stream as the thread, of a GPU row.
        device=pl.coalesce("device", "process"),
        stream=pl.coalesce("stream", "thread"),
        process="owner",
        name=pl.when(~copy).then("name"),
        copy_count=pl.when(copy).then(1),
    )
    frame = _as_called(frame, events.filter(CALL))
    omissions.count("unknown-direction", frame.filter(copy)["direction"].null_count())
    omissions.count("unknown-memory", int(frame["of_host"].sum()))
    frame = conform(frame, schema.OPERATIONS, {**schema.LAUNCH_SHAPE, **schema.OPERATIONS_OF_COLLECTIVES})
    if "grid_x" not in frame.columns:
        return frame
    # Where a launch takes work-items the trace tells these.
    in_items = calls["name"].cast(pl.String).str.contains(words.GRID_IN_ITEMS).fill_null(False)
    of_items = pl.col("correlation").is_in(calls["correlation"].filter(in_items).drop_nulls().implode())
    return grids_in_blocks(frame, of_items)


def _synchronised(events: pl.DataFrame, names: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    """The synchronisations of these kinds."""
    some = events.filter(pl.col("category") == SYNC)
    some = some.with_columns(sync_kind=names["name"].cast(pl.String)[some["sync_kind"]])
    return some.filter(pl.col("sync_kind").is_in(kinds))


def calls_of(events: pl.DataFrame, names: pl.DataFrame, scanner: EventScanner) -> pl.DataFrame:
    """Rows of `calls`, with the columns of `CALLS_LOCATED` where the trace tells of Python's functions."""
    kind = pl.col("sync_kind")
    waits = _synchronised(events, names, "Context Sync", "Stream Sync", "Event Sync").select(
        "correlation",
        "context",
        process="owner",
        stream=pl.when(kind == "Stream Sync").then("stream").replace(NO_ID, None),
        event=pl.when(kind == "Event Sync").then("waited_event"),
    )
    waits = waits.drop_nulls("correlation").unique(LAUNCH, keep="first", maintain_order=True)
    calls = named(events, names, RUNTIME_CALL, DRIVER_CALL).drop("context", "stream")
    calls = calls.with_columns(name="plain")
    calls = calls.join(waits, on=LAUNCH, how="left", nulls_equal=True, maintain_order="left")
    return _located(conform(calls, schema.CALLS), scanner)


def _located(calls: pl.DataFrame, scanner: EventScanner) -> pl.DataFrame:
    functions = scanned(scanner.functions)
    if functions.is_empty():
        return calls
    texts = [name.decode("utf-8", "replace") for name in scanner.function_names]
    for column, meaning in (("site", sites.of_python), ("module", sites.module_of)):
        means = pl.Series([meaning(text) for text in texts], dtype=pl.Categorical)
        meant = means[functions["name"]]
        around = sites.innermost(functions.filter(meant.is_not_null()), calls)
        calls = calls.with_columns(meant.drop_nulls().gather(around).alias(column))
    return calls


def activity_of(scanner: EventScanner) -> pl.DataFrame:
    """Rows of `activity`: operators and Python functions."""
    operators = [signature[0].decode("utf-8", "replace").strip('"') for signature in scanner.signatures]
    functions = [sites.first_frame(name.decode("utf-8", "replace")) for name in scanner.function_names]
    spans = []
    for kind, columns, texts, text_of in (
        ("operator", scanner.operators, operators, "signature"),
        ("function", scanner.functions, functions, "name"),
    ):
        frame = scanned(columns)
        names = pl.Series([*texts, None], dtype=pl.Categorical)
        frame = frame.with_columns(kind=pl.lit(kind), name=names.gather(frame[text_of]))
        spans.append(conform(frame.drop_nulls("name"), schema.ACTIVITY))
    return pl.concat(spans)


def dependencies(events: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Rows of `events`."""
    events, record = events.with_columns(process="owner", event="waited_event"), pl.lit("record")
    waits = _synchronised(events, names, "Stream Wait Event")
    waits = waits.with_columns(kind=pl.lit("wait"), record_correlation="waited_correlation")
    records = events.filter(pl.col("category") == EVENT_RECORD).with_columns(kind=record)
    # A wait names the record that it waits for; where that has no row of its own, its call gives one.
    place = ["process", "device", "context", "event"]
    implied = waits.select(*place, correlation="waited_correlation", stream="waited_stream")
    implied = implied.join(records, on=LAUNCH, how="anti", nulls_equal=True, maintain_order="left")
    times = calls.select(*LAUNCH, "start_ns", "end_ns").drop_nulls("correlation")
    implied, times = (frame.unique(LAUNCH, keep="first", maintain_order=True) for frame in (implied, times))
    implied = implied.join(times, on=LAUNCH, how="inner", nulls_equal=True, maintain_order="left")
    frames = waits, records, implied.with_columns(kind=record)
    return pl.concat(conform(frame, schema.EVENTS) for frame in frames)


def _with_owners(events: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The events with a column `owner`: the process whose call launched an operation, null where that is not known.

    The process of a GPU's row is the GPU's number. In a file into which several ranks were merged, each may use the same
    numbers for calls and what they launch: what the tool that merged them made of the numbers of processes decides, or,
    where it left them alone, whether only one process has made a call of that number.
    """
    events = _with_labels(events, names)
    calls = events.filter(CALL).select(*LAUNCH, "place", "label")
    processes = calls["process"].unique()
    if len(processes) <= 1:
        return events.with_columns(owner=pl.lit(processes.first() if len(processes) else None, INT))
    columns = []
    for key in ("place", "label", "correlation"):
        only = pl.when(pl.col("process").n_unique() == 1).then(pl.col("process").first())
        owners = calls.drop_nulls(key).group_by(key).agg(only.alias(f"of_{key}"))
        events = events.join(owners, on=key, how="left", maintain_order="left")
        columns.append(f"of_{key}")
    return events.with_columns(owner=pl.coalesce(columns)).drop(columns)


def _with_labels(events: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The events with a column `label`: of a process that is a text, that without its last number, which tells ranks.
    Processes of several texts that have one number get another each.
    """
    if events["place"].null_count() == events.height:
        return events.with_columns(label=pl.lit(None, pl.String))
    host = CALL | (pl.col("category") == ANNOTATION)
    texts = events.filter(host).select("place", "process").drop_nulls("place").unique(maintain_order=True)
    again = pl.int_range(pl.len()).over("process") * (1 << RANK_BITS)
    number = pl.col("process").fill_null(0) if texts.height > 1 else pl.col("process")
    texts = texts.select("place", apart=number + again)
    places = events["place"].drop_nulls().unique()
    label = names["name"].gather(places).cast(pl.String).str.replace(r"\d+(\D*)$", " ${1}")
    for of_place in (texts, pl.DataFrame({"place": places, "label": label})):
        events = events.join(of_place, on="place", how="left", maintain_order="left")
    process = pl.when(host).then(pl.coalesce("apart", "process")).otherwise("process")
    return events.with_columns(process=process).drop("apart")


def _as_called(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`operations`, copies with size and direction as their calls tell them, where they do not tell themselves.

    Profilers of HIP before 2025 write the size with the call alone. They call a copy 'DtoD', too, whose host memory
    HIP knows (pinned memory), as HIP itself treats that as a buffer like any other: the call has the true direction.
    """
    telling = calls.filter(pl.col("bytes").is_not_null() | pl.col("copy_kind").is_not_null())
    if telling.is_empty():
        return operations
    telling = telling.drop_nulls("correlation").unique(LAUNCH, keep="first", maintain_order=True)
    called_direction = meant("copy_kind", DIRECTION_OF_KIND, schema.DIRECTIONS)
    telling = telling.select(*LAUNCH, called_bytes="bytes", called_direction=called_direction)
    matched = operations.join(telling, on=LAUNCH, how="left", nulls_equal=True, maintain_order="left")
    # Several copies of one call share its size.
    alone = (pl.col("kind") == "copy") & (pl.len().over(LAUNCH) == 1)
    corrected = ((pl.col("direction") == "d2d") & pl.col("called_direction").is_not_null()).fill_null(False)
    to_gpu = corrected & (pl.col("called_direction") == "h2d")
    return matched.with_columns(
        bytes=pl.coalesce("bytes", pl.when(alone).then("called_bytes")),
        direction=pl.when(corrected).then("called_direction").otherwise("direction"),
        # What HIP knows of that memory beyond that it is the host's is not told.
        source_memory=pl.when(~to_gpu).then("source_memory"),
        destination_memory=pl.when(~corrected | to_gpu).then("destination_memory"),
        of_host=pl.col("of_host") | corrected,
    ).drop("called_bytes", "called_direction")
