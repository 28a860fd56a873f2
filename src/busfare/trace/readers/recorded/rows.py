"""A recording of one process as rows of a trace's tables: what the GPU did, what the host did, and what there is."""

from uuid import UUID

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import tables as schema
from busfare.trace import words
from busfare.trace.columns import first_rows
from busfare.trace.launches import ALLOCATIONS, with_allocated
from busfare.trace.omissions import Omissions
from busfare.trace.readers import cupti
from busfare.trace.readers.cupti import NO_ID
from busfare.trace.readers.recorded.file import Recording
from busfare.trace.readers.recorded.process import RecordedProcess, at, readable_names
from busfare.trace.readers.tables import meant
from busfare.trace.tables import conform, empty

#: `operation` of allocations.
ALLOCATED = 1
#: What the table of kernels says of their launches.
SHARED = ("static_shared_bytes", "dynamic_shared_bytes")
LAUNCH = (*(name for name in schema.LAUNCH_SHAPE if name != "shared_bytes"), *SHARED)
WAIT_OF = {cupti.EVENT_SYNC: "event", cupti.STREAM_SYNC: "stream", cupti.CONTEXT_SYNC: "device"}


def _nonzero(*names: str) -> pl.Expr:
    return pl.when(pl.col(names) != 0).then(pl.col(names))


def _identified(*names: str) -> pl.Expr:
    return pl.col(names).replace(NO_ID, None)


def operations(process: RecordedProcess, omissions: Omissions, launches: bool) -> pl.DataFrame:
    """Rows of `OPERATIONS`, with what only recordings have, and how kernels are launched, if `launches`."""
    place = ("correlation", "device", "context", "stream", "graph")
    graphs = process.frame(process.recording.table("graph_launches"), *place)
    parts = [
        _kernels(process, launches),
        _copies(process, omissions),
        cupti.sets(_operations(process, "sets", "bytes", "memory_kind")),
        _migrations(process),
        cupti.graphs(graphs, omissions, "record without `graphs` among the kinds"),
    ]
    optional = {**schema.OPERATIONS_RECORDED, **schema.LAUNCH_SHAPE, **schema.REACH}
    frames = [conform(part, schema.OPERATIONS, optional) for part in parts if part.height]
    frame = pl.concat(frames, how="diagonal") if frames else empty(schema.OPERATIONS)
    omissions.count("untimed/recorded", frame["start_ns"].null_count())
    frame = frame.with_columns(pl.col("copy_count").fill_null(1))
    return with_allocated(frame, allocations(process)) if launches else frame


def allocations(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `ALLOCATIONS`; none where some may be missing."""
    table, recording = process.recording.table("allocations"), process.recording
    lost = recording.damaged_chunks or recording.missing_chunks or recording.torn_bytes
    if lost or len(recording.table("losses")):
        return empty(ALLOCATIONS)
    frame = process.frame(table, "operation", "memory_kind", "bytes", "device", "asynchronous")
    return cupti.allocations(
        frame.with_columns(freed=pl.col("operation") != ALLOCATED, in_stream=pl.col("asynchronous") == 1)
    )


def _operations(process: RecordedProcess, table: str, *columns: str) -> pl.DataFrame:
    """The rows of a table of operations."""
    place = ("correlation", "device", "context", "stream", "graph_node")
    frame = process.frame(process.recording.table(table), *place, *columns)
    return frame.with_columns(_nonzero("correlation", "graph_node"))


def _kernels(process: RecordedProcess, launches: bool) -> pl.DataFrame:
    names = readable_names(process, process.recording.table("kernels")["name"])
    frame = _operations(process, "kernels", *(LAUNCH if launches else ()))
    frame = frame.with_columns(kind=pl.lit("kernel"), name=names)
    return frame.with_columns(shared_bytes=cupti.shared_bytes(*SHARED)) if launches else frame


def _copies(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    ends = ("source_kind", "destination_kind", "source_device", "destination_device")
    frame = _operations(process, "copies", "bytes", "copy_count", "copy_kind", *ends)
    return _with_addresses(cupti.copies(frame, omissions), process)


def _with_addresses(copies: pl.DataFrame, process: RecordedProcess) -> pl.DataFrame:
    """`copies` with the columns of `OPERATIONS_RECORDED`; null in graphs, whose correlation is that of the launch."""
    table = process.recording.table("copy_addresses")
    rows = first_rows(table["correlation"], copies["correlation"].fill_null(0).to_numpy().astype(np.uint64))
    rows[copies["graph_node"].is_not_null().to_numpy()] = -1
    names = {"source_address": "source", "destination_address": "destination", "fingerprint": "fingerprint"}
    values = {name: pl.Series(at(table[column], rows)) for name, column in names.items()}
    return copies.with_columns(series.replace(0, None).alias(name) for name, series in values.items())


def _migrations(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("managed")
    frame = process.frame(table, "counter", "value", "source", "destination", "address")
    address = pl.col("address").reinterpret(signed=False)
    frame = frame.with_columns(bytes="value", source_address=address, destination_address=address)
    return cupti.migrations(frame.filter(pl.Series(process.inside_window(table["start"]))))


def calls(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `CALLS`: what each call waits for as its wait says, else as its name does."""
    table = process.recording.table("calls")
    # Each name is looked at once, however often it is called.
    texts, places = process.texts(table["name"])
    plain = texts.to_frame().select(words.plain_name(pl.col("name")))
    by_name = plain.select(words.waits_for(pl.col("name"))).to_series().gather(places)
    waits = process.recording.table("waits")
    on_host = waits["type"] != cupti.STREAM_WAIT_EVENT
    rows = first_rows(waits["correlation"][on_host], table["correlation"])
    columns = ("type", "context", "stream", "event")
    of_wait = {name: at(waits[name][on_host], rows).view(np.int64) for name in columns}
    frame = process.frame(table, "thread", "correlation", "result").with_columns(
        name=plain.to_series().cast(pl.Categorical).gather(places),
        **{n: pl.Series(v) for n, v in of_wait.items()},
    )
    frame = frame.with_columns(
        _nonzero("context"),
        _identified("stream", "event"),
        waits_for=pl.coalesce(meant("type", WAIT_OF, schema.WAITS_FOR), by_name),
    )
    held = held_up(process.recording)
    if held.any():
        frame = frame.with_columns(pl.Series("recorder_ns", held))
    for name in ("stream", "event"):
        frame = frame.with_columns(pl.when(pl.col("waits_for") == name).then(name))
    return conform(frame, schema.CALLS, {**schema.CALLS_RECORDED, **schema.CALLS_RETURNED})


def held_up(recording: Recording) -> NDArray[np.int64]:
    """Before each call of the recording: ns that the recorder held its thread up since its call before. A buffer on its way
    to the GPU is hashed before its call begins, one from the GPU after its call has ended.
    """
    calls, copies = recording.table("calls"), recording.table("copy_addresses")
    ns = np.zeros(len(calls), np.int64)
    began, lasted = copies["fingerprint_start"], copies["fingerprint_duration"]
    if not lasted.any() or not len(calls):
        return ns
    row = first_rows(calls["correlation"], copies["correlation"])
    hashed = (row >= 0) & (lasted > 0)
    row, began, lasted = row[hashed], began[hashed], lasted[hashed]
    in_order = np.lexsort((calls["start"], calls["thread"]))
    following = np.full(len(calls), -1, np.int64)
    same_thread = calls["thread"][in_order][1:] == calls["thread"][in_order][:-1]
    following[in_order[:-1]] = np.where(same_thread, in_order[1:], -1)
    row = np.where(began <= calls["start"][row], row, following[row])
    np.add.at(ns, row[row >= 0], lasted[row >= 0].astype(np.int64))
    return ns


def events(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `EVENTS`: records, with no times where their call was not recorded, and waits of streams for them."""
    table, calls = process.recording.table("events"), process.recording.table("calls")
    rows = first_rows(calls["correlation"], table["correlation"])
    start, lasted = (at(calls[name], rows).view(np.int64) for name in ("start", "duration"))
    place = ("correlation", "context", "stream", "event", "event_sync")
    called = pl.when(pl.Series(rows >= 0))
    records = process.frame(table, "device", *place).with_columns(
        _identified("device"),
        start_ns=called.then(pl.Series(start + process.shift_ns)),
        end_ns=called.then(pl.Series(start + lasted + process.shift_ns)),
        kind=pl.lit("record"),
    )
    waits = process.frame(process.recording.table("waits"), "type", *place)
    waits = waits.filter(pl.col("type") == cupti.STREAM_WAIT_EVENT).with_columns(
        _identified("stream", "event"), kind=pl.lit("wait")
    )
    combined = pl.concat([records, waits], how="diagonal").with_columns(_nonzero("event_sync"))
    combined = combined.join(process.device_of_context(), on="context", how="left", maintain_order="left")
    return conform(combined.with_columns(device=pl.coalesce("device", "of_context")), schema.EVENTS)


def markers(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `MARKERS`: NVTX ranges and marks."""
    table = process.recording.table("markers")
    frame = process.frame(table, "flags", "marker", "thread", "domain")
    return cupti.markers(frame.with_columns(name=process.names(table["name"])), omissions)


def devices(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `DEVICES`, each with its PCIe link."""
    table, links = process.recording.table("devices"), process.recording.table("pcie_links")
    facts = ("memory_bytes", "memory_bandwidth_bytes_per_s", "clock_hz", "multiprocessors", "copy_engines")
    uuids = zip(table["uuid_high"].tolist(), table["uuid_low"].tolist(), strict=True)
    frame = process.frame(table, "device", *facts, "capability_major", "capability_minor").with_columns(
        name=process.names(table["name"]).cast(pl.String),
        compute_capability=pl.format("{}.{}", "capability_major", "capability_minor"),
        uuid=pl.Series([f"GPU-{UUID(int=high << 64 | low)}" for high, low in uuids], dtype=pl.String),
    )
    gpu = links["type"] == 0
    buses = zip(links["domain"][gpu].tolist(), links["upstream_bus"][gpu].tolist(), strict=True)
    of_gpus = pl.DataFrame(
        {
            "device": links.signed("device")[gpu],
            "pcie_generation": links.signed("generation")[gpu],
            "pcie_lanes": links.signed("lanes")[gpu],
            "bus_id": pl.Series([f"{domain:04X}:{bus:02X}:00.0" for domain, bus in buses], dtype=pl.String),
        }
    ).unique("device", keep="last")
    frame = frame.unique("device", keep="last", maintain_order=True)
    return conform(frame.join(of_gpus, on="device", how="left", maintain_order="left"), schema.DEVICES)


def streams(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `STREAMS`."""
    frame = process.frame(process.recording.table("streams"), "context", "stream", "priority", "flag")
    frame = frame.unique(["context", "stream"], keep="last", maintain_order=True)
    frame = frame.join(process.device_of_context(), on="context", how="left", maintain_order="left")
    return cupti.streams(frame.with_columns(pl.col("flag") & 0xFFFF, device="of_context"))
