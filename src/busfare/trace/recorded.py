"""Recordings of `busfare record`: a file of one process, or the directory of a job, as one `Trace`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.errors import InputError
from busfare.trace import api_calls, recorded_copies
from busfare.trace.cupti_numbers import DIRECTION_OF, MEMORY_OF
from busfare.trace.grid import MOST_BLOCKS
from busfare.trace.omissions import Omissions
from busfare.trace.recording import Recording, Table, is_recording, read_recording
from busfare.trace.row_lookup import distinct, first_rows
from busfare.trace.tables import (
    CALLS,
    CALLS_RECORDED,
    DEVICES,
    DIRECTIONS,
    EVENTS,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_KERNELS,
    OPERATIONS_RECORDED,
    STREAMS,
    WAITS_FOR,
    conform,
    empty,
)
from busfare.trace.trace import Trace

__all__ = ["matches", "read"]

#: CUpti_ActivityUnifiedMemoryCounterKind, those that move bytes.
MIGRATION_OF = {1: "h2d", 2: "d2h", 8: "d2d"}
STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}
EVENT_WAIT, STREAM_WAIT_EVENT, STREAM_WAIT, CONTEXT_WAIT = 1, 2, 3, 4
WAIT_OF = {EVENT_WAIT: "event", STREAM_WAIT: "stream", CONTEXT_WAIT: "device"}
MARK, RANGE_START, RANGE_END = 1, 2, 4
NO_ID = 0xFFFFFFFF
#: Linux counts processes to 2**22; a second file of one (after exec, or of another host) differs in the bits above.
SAME_PROCESS_SHIFT = 24
LOSS_OF = {
    1: ("dropped", "records that CUPTI dropped for want of buffers: operations are missing"),
    2: ("no-buffer", "times that CUPTI asked for a buffer and got none: operations are missing"),
    3: (
        "calls-lost",
        "calls that came faster than they could be noted: they, or the addresses of their copies, are missing",
    ),
    4: ("unknown-records", "records of a kind that the recorder does not know"),
}


def matches(path: Path) -> bool:
    """Whether `path` is a recording, or a directory that holds some."""
    if path.is_dir():
        return any(is_recording(file) for file in path.iterdir() if file.is_file())
    return is_recording(path)


def read(path: Path) -> Trace:
    """Reads a recording, or all recordings of a directory on one time line.

    Raises InputError when there is none, or none that can be read.
    """
    files = (
        sorted(file for file in path.iterdir() if file.is_file() and is_recording(file))
        if path.is_dir()
        else [path]
    )
    if not files:
        raise InputError(
            f"{path}: the directory holds no recording; give the one that `busfare record -o` named"
        )
    omissions = Omissions()
    recordings = [read_recording(file) for file in files]
    parts = [
        _Process(recording, process)
        for recording, process in zip(recordings, _processes(recordings), strict=True)
    ]
    firsts = [part.first_ns() for part in parts]
    first = min((time for time in firsts if time is not None), default=0)
    for part in parts:
        part.zero_ns = first
        _note(part.recording, omissions)
    trace = Trace(
        path=path,
        format="recorded",
        producer=recordings[0].facts.get("producer", "busfare record"),
        operations=_together([part.operations(omissions) for part in parts]),
        calls=_together([part.calls() for part in parts]),
        events=_together([part.events(omissions) for part in parts]),
        markers=_together([part.markers(omissions) for part in parts]),
        devices=_together([part.devices() for part in parts]),
        streams=_together([part.streams() for part in parts]),
        host={key: recordings[0].facts.get(key, "") for key in ("cpu", "driver", "cuda", "hostname")}
        | _rank(recordings),
    )
    hosts = {recording.facts.get("hostname", "") for recording in recordings}
    if len(hosts) > 1:
        omissions.add(
            "several-clocks",
            f"the recordings come from {len(hosts)} hosts, whose clocks agree only as far as the hosts keep time",
        )
    trace.omissions = omissions.list()
    return trace


def _rank(recordings: list[Recording]) -> dict[str, str]:
    """The rank that all recordings are of, if they say one and the same."""
    ranks = {recording.facts.get("rank", "") for recording in recordings}
    return {"rank": ranks.pop()} if len(ranks) == 1 and "" not in ranks else {}


def _processes(recordings: list[Recording]) -> list[int]:
    """A number for each file: its process id, told apart where two files share one."""
    seen: dict[int, int] = {}
    numbers = []
    for recording in recordings:
        again = seen.get(recording.process, 0)
        seen[recording.process] = again + 1
        numbers.append(recording.process + (again << SAME_PROCESS_SHIFT))
    return numbers


def _note(recording: Recording, omissions: Omissions) -> None:
    name = recording.path.name
    if not recording.complete:
        omissions.add(
            "cut",
            f"{name}: the program ended without closing its recording; what it did after the last flush is missing",
        )
    if recording.torn_bytes:
        omissions.add(
            "torn", f"{name}: its last bytes are no whole chunk and were left out", recording.torn_bytes
        )
    if recording.damaged_chunks:
        omissions.add(
            "damaged", f"{name}: chunks fail their checksum and were left out", recording.damaged_chunks
        )
    if recording.missing_chunks > recording.damaged_chunks:
        omissions.add("missing", f"{name}: chunks are missing from its middle", recording.missing_chunks)
    if recording.header_damaged:
        omissions.add("damaged-header", f"{name}: its header is damaged: process and clock may be wrong", 1)
    if recording.unknown_chunks:
        omissions.add(
            "unknown-tables",
            f"{name}: holds tables that only a later version knows",
            recording.unknown_chunks,
        )
    losses = recording.table("losses")
    for loss, count in zip(losses["loss"].tolist(), losses["count"].tolist(), strict=True):
        id, what = LOSS_OF.get(loss, ("unknown-loss", "losses of a kind that this version does not know"))
        omissions.add(id, f"{name}: {what}", count)
    capture = [recording.facts[key] for key in ("capture", "delay", "duration") if key in recording.facts]
    if capture:
        omissions.add("window", f"{name}: only a part of the program was recorded ({', '.join(capture)})")


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")


def _at(values: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The values of these rows; 0 for row -1."""
    if not len(values):
        return np.zeros(len(rows), np.uint64)
    return np.where(rows >= 0, values[rows], np.uint64(0))


def _nonzero(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != 0).then(pl.col(name)).alias(name)


def _identified(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != NO_ID).then(pl.col(name)).alias(name)


def _choice(
    values: npt.NDArray[np.uint64], names: Mapping[int, str], categories: tuple[str, ...]
) -> pl.Series:
    """Numbers as an Enum; null where a number has no name."""
    kind = pl.Enum(categories)
    known = pl.Series(list(names), dtype=pl.UInt64)
    wanted = pl.Series(list(names.values()), dtype=kind)
    return pl.Series(values).replace_strict(known, wanted, default=None, return_dtype=kind)


class _Process:
    """One file's share of the trace's tables."""

    def __init__(self, recording: Recording, process: int) -> None:
        self.recording = recording
        self.process = process
        self.zero_ns = 0
        self._offset = recording.wall_clock_ns - recording.trace_clock_ns

    def first_ns(self) -> int | None:
        """The earliest time in the file, on the wall clock."""
        times = [self.recording.table(name)["start"] for name in ("kernels", "copies", "sets", "calls")]
        times.append(self.recording.table("managed")["start"][self._managed_inside()])
        times.append(self.recording.table("markers")["time"])
        firsts = [int(time[time > 0].min()) for time in times if (time > 0).any()]
        return min(firsts) + self._offset if firsts else None

    def _managed_inside(self) -> npt.NDArray[np.bool_]:
        """Which counters of managed memory lie in the window: CUPTI goes on counting outside of it."""
        start = self.recording.table("managed")["start"]
        inside = np.ones(len(start), np.bool_)
        if not self.recording.facts.keys() & {"capture", "delay", "duration"}:
            return inside
        # On and off take turns.
        turned = np.sort(self.recording.table("windows")["time"])
        turns_before = np.asarray(np.searchsorted(turned, start, side="right"), np.int64)
        return np.asarray(turns_before % 2 == 1, np.bool_)

    def _frame(self, table: Table, names: Mapping[str, str], time: str = "start") -> pl.DataFrame:
        """Columns of `table` renamed, with the process; `start_ns` and `end_ns` where it has a start."""
        columns: dict[str, npt.NDArray[np.int64]] = {new: table.signed(old) for old, new in names.items()}
        if time in table.columns:
            start = table.signed(time)
            shift = self._offset - self.zero_ns
            # CUPTI says 0 when it could not take the time; such rows keep their place but have no times.
            columns["start_ns"] = start + shift
            columns["timed"] = (start > 0).view(np.int8).astype(np.int64)
            columns["end_ns"] = (
                start + shift + table.signed("duration") if "duration" in table.columns else start + shift
            )
        frame = pl.DataFrame(columns).with_columns(process=pl.lit(self.process, pl.Int64))
        if "timed" not in frame.columns:
            return frame
        timed = pl.col("timed") == 1
        return frame.with_columns(
            start_ns=pl.when(timed).then("start_ns"), end_ns=pl.when(timed).then("end_ns")
        )

    def _texts(self, numbers: npt.NDArray[np.uint64]) -> tuple[pl.Series, npt.NDArray[np.int64]]:
        """The strings that occur, and the place of each number's string among them; null for 0."""
        strings = self.recording.strings
        used, places = distinct(numbers, max(strings, default=0))
        return pl.Series("name", [strings.get(number) for number in used.tolist()], dtype=pl.String), places

    def _names(self, numbers: npt.NDArray[np.uint64]) -> pl.Series:
        """The strings of these numbers, as categories."""
        texts, places = self._texts(numbers)
        return texts.cast(pl.Categorical).gather(places)

    def operations(self, omissions: Omissions) -> pl.DataFrame:
        parts = [
            self._kernels(),
            self._copies(omissions),
            self._sets(),
            self._migrations(),
            self._graphs(omissions),
        ]
        optional = {**OPERATIONS_RECORDED, **OPERATIONS_OF_KERNELS}
        frames = [conform(part, OPERATIONS, optional) for part in parts if part.height]
        frame = pl.concat(frames, how="diagonal") if frames else empty(OPERATIONS)
        omissions.add_if(
            frame["start_ns"].null_count(),
            "untimed",
            "operations whose times the GPU did not give: counted, with no times",
        )
        return frame

    def _kernels(self) -> pl.DataFrame:
        table = self.recording.table("kernels")
        names = {name: name for name in ("correlation", "device", "context", "stream", "graph_node")}
        # Whatever stands in a damaged file.
        sides = zip("xyz", MOST_BLOCKS, strict=True)
        grid = [np.minimum(table[f"grid_{side}"], most).astype(np.int64) for side, most in sides]
        blocks = pl.Series("blocks", grid[0] * grid[1] * grid[2])
        demangled = self.recording.table("demangled")
        readable = dict(zip(demangled["mangled"].tolist(), demangled["readable"].tolist(), strict=True))
        numbers = table["name"]
        used, places = distinct(numbers, max(self.recording.strings, default=0))
        shown = np.array([readable.get(number, number) for number in used.tolist()], np.uint64)
        return self._frame(table, names).with_columns(
            _nonzero("correlation"),
            _nonzero("graph_node"),
            kind=pl.lit("kernel"),
            name=self._names(shown[places]),
            copy_count=pl.lit(1),
            blocks=pl.when(blocks > 0).then(blocks),
        )

    def _copies(self, omissions: Omissions) -> pl.DataFrame:
        table = self.recording.table("copies")
        names = {
            name: name
            for name in ("bytes", "correlation", "device", "context", "stream", "graph_node", "copy_count")
        } | {"destination_device": "peer_device"}
        frame = self._frame(table, names).with_columns(
            _nonzero("correlation"),
            _nonzero("graph_node"),
            kind=pl.lit("copy"),
            direction=_choice(table["copy_kind"], DIRECTION_OF, DIRECTIONS),
            source_memory=_choice(table["source_kind"], MEMORY_OF, MEMORY_KINDS),
            destination_memory=_choice(table["destination_kind"], MEMORY_OF, MEMORY_KINDS),
        )
        omissions.add_if(
            frame["direction"].null_count(),
            "unknown-direction",
            "copies of a kind that this version does not know: counted, with no direction",
        )
        frame = frame.with_columns(peer_device=pl.when(pl.col("direction") == "p2p").then("peer_device"))
        return recorded_copies.with_addresses(frame, self.recording, self._offset - self.zero_ns)

    def _sets(self) -> pl.DataFrame:
        table = self.recording.table("sets")
        names = {name: name for name in ("bytes", "correlation", "device", "context", "stream", "graph_node")}
        return self._frame(table, names).with_columns(
            _nonzero("correlation"),
            _nonzero("graph_node"),
            kind=pl.lit("set"),
            name=pl.lit("memset", pl.Categorical),
            destination_memory=_choice(table["memory_kind"], MEMORY_OF, MEMORY_KINDS),
            copy_count=pl.lit(1),
        )

    def _migrations(self) -> pl.DataFrame:
        table = self.recording.table("managed")
        frame = self._frame(
            table, {"value": "bytes", "source": "source", "destination": "destination", "address": "address"}
        )
        frame = frame.with_columns(
            kind=pl.lit("migration"),
            direction=_choice(table["counter"], MIGRATION_OF, DIRECTIONS),
            source_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
            destination_memory=pl.lit("managed", pl.Enum(MEMORY_KINDS)),
            source_address=pl.col("address").reinterpret(signed=False),
            destination_address=pl.col("address").reinterpret(signed=False),
            copy_count=pl.lit(1),
        ).filter(pl.col("direction").is_not_null() & pl.Series(self._managed_inside()))
        # The device is the side that is not the host.
        device = pl.when(pl.col("direction") == "h2d").then("destination").otherwise("source")
        return frame.with_columns(
            device=device, peer_device=pl.when(pl.col("direction") == "d2d").then("destination")
        )

    def _graphs(self, omissions: Omissions) -> pl.DataFrame:
        table = self.recording.table("graph_launches")
        omissions.add_if(
            len(table),
            "opaque-graphs",
            "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the trace, and "
            "not in any count here; record without `graphs` among the kinds to see them",
        )
        names = {name: name for name in ("correlation", "device", "context", "stream", "graph")}
        return self._frame(table, names).with_columns(
            kind=pl.lit("graph"),
            name=("CUDA graph " + pl.col("graph").cast(pl.String)).cast(pl.Categorical),
            copy_count=pl.lit(1),
        )

    def calls(self) -> pl.DataFrame:
        table = self.recording.table("calls")
        # Each name is looked at once, however often it is called.
        texts, places = self._texts(table["name"])
        plain = texts.to_frame().select(api_calls.plain_name(pl.col("name")))
        by_name = plain.select(api_calls.waits_for(pl.col("name"))).to_series().gather(places)
        frame = self._frame(table, {"thread": "thread", "correlation": "correlation"}).with_columns(
            name=plain.to_series().cast(pl.Categorical).gather(places)
        )
        waits = self.recording.table("waits")
        on_host = waits["type"] != STREAM_WAIT_EVENT
        rows = first_rows(waits["correlation"][on_host], table["correlation"])
        said, stream, event = (_at(waits[name][on_host], rows) for name in ("type", "stream", "event"))
        frame = frame.with_columns(
            pl.Series("stream", stream.view(np.int64)), pl.Series("event", event.view(np.int64))
        ).with_columns(_identified("stream"), _identified("event"))
        frame = frame.with_columns(waits_for=pl.coalesce(_choice(said, WAIT_OF, WAITS_FOR), by_name))
        held_up = recorded_copies.held_up(self.recording)
        if held_up.any():
            frame = frame.with_columns(pl.Series("recorder_ns", held_up))
        return conform(
            frame.with_columns(
                stream=pl.when(pl.col("waits_for") == "stream").then("stream"),
                event=pl.when(pl.col("waits_for") == "event").then("event"),
            ),
            CALLS,
            CALLS_RECORDED,
        )

    def _waits(self) -> pl.DataFrame:
        names = {name: name for name in ("type", "correlation", "context", "stream", "event", "event_sync")}
        return self._frame(self.recording.table("waits"), names).with_columns(
            _identified("stream"), _identified("event"), _nonzero("event_sync")
        )

    def events(self, omissions: Omissions) -> pl.DataFrame:
        table = self.recording.table("events")
        names = {name: name for name in ("correlation", "device", "context", "stream", "event", "event_sync")}
        calls = self.recording.table("calls")
        rows = first_rows(calls["correlation"], table["correlation"])
        start = _at(calls["start"], rows).view(np.int64) + (self._offset - self.zero_ns)
        records = self._frame(table, names).with_columns(
            _identified("device"),
            _nonzero("event_sync"),
            kind=pl.lit("record"),
            start_ns=pl.when(pl.Series(rows >= 0)).then(pl.Series(start)),
            end_ns=pl.when(pl.Series(rows >= 0)).then(
                pl.Series(start + _at(calls["duration"], rows).view(np.int64))
            ),
        )
        without = records["start_ns"].null_count()
        omissions.add_if(
            without,
            "records-without-call",
            "event records whose call was not recorded: left out of the dependencies",
        )
        waits = self._waits().filter(pl.col("type") == STREAM_WAIT_EVENT).with_columns(kind=pl.lit("wait"))
        both = pl.concat([records.filter(pl.col("start_ns").is_not_null()), waits], how="diagonal")
        devices = self._device_of_context()
        if devices.height:
            both = both.join(devices, on="context", how="left").with_columns(
                device=pl.coalesce("device", "of_context")
            )
        return conform(both, EVENTS)

    def _device_of_context(self) -> pl.DataFrame:
        table = self.recording.table("contexts")
        frame = pl.DataFrame({"context": table.signed("context"), "of_context": table.signed("device")})
        return frame.unique("context", keep="last")

    def markers(self, omissions: Omissions) -> pl.DataFrame:
        table = self.recording.table("markers")
        names = {name: name for name in ("flags", "marker", "thread")}
        frame = self._frame(table, names, time="time").with_columns(
            name=self._names(table["name"]), domain=pl.Series(table.signed("domain"))
        )
        ends = (
            frame.filter(pl.col("flags") & RANGE_END != 0)
            .select("marker", ended_ns="start_ns")
            .unique("marker")
        )
        ranges = frame.filter(pl.col("flags") & RANGE_START != 0).join(ends, on="marker", how="left")
        omissions.add_if(
            ranges["ended_ns"].null_count(),
            "open-ranges",
            "NVTX ranges that were still open when the trace ended: shown as marks",
        )
        marks = frame.filter(pl.col("flags") & MARK != 0).with_columns(ended_ns=pl.lit(None, pl.Int64))
        both = pl.concat([ranges, marks], how="diagonal").with_columns(end_ns="ended_ns")
        return conform(both, MARKERS)

    def devices(self) -> pl.DataFrame:
        table = self.recording.table("devices")
        names = {name: name for name in ("device", "memory_bytes", "multiprocessors", "copy_engines")}
        names |= {"memory_bandwidth_bytes_per_s": "memory_bandwidth_bytes_per_s", "clock_hz": "clock_hz"}
        capability = [
            f"{major}.{minor}"
            for major, minor in zip(
                table["capability_major"].tolist(), table["capability_minor"].tolist(), strict=True
            )
        ]
        uuids = [
            _uuid(high, low)
            for high, low in zip(table["uuid_high"].tolist(), table["uuid_low"].tolist(), strict=True)
        ]
        frame = self._frame(table, names).with_columns(
            name=self._names(table["name"]).cast(pl.String),
            compute_capability=pl.Series(capability, dtype=pl.String),
            uuid=pl.Series(uuids, dtype=pl.String),
        )
        frame = frame.unique("device", keep="last", maintain_order=True)
        return conform(frame.join(self._pcie_links(), on="device", how="left"), DEVICES)

    def _pcie_links(self) -> pl.DataFrame:
        table = self.recording.table("pcie_links")
        gpu = table["type"] == 0
        buses = [
            f"{domain:04X}:{bus:02X}:00.0"
            for domain, bus in zip(
                table["domain"][gpu].tolist(), table["upstream_bus"][gpu].tolist(), strict=True
            )
        ]
        return pl.DataFrame(
            {
                "device": table.signed("device")[gpu],
                "pcie_generation": table.signed("generation")[gpu],
                "pcie_lanes": table.signed("lanes")[gpu],
                "bus_id": pl.Series(buses, dtype=pl.String),
            }
        ).unique("device", keep="last")

    def streams(self) -> pl.DataFrame:
        table = self.recording.table("streams")
        names = {name: name for name in ("context", "stream", "priority")}
        kind = pl.Series(table["flag"] & np.uint64(0xFFFF)).replace_strict(
            pl.Series(list(STREAM_KIND_OF), dtype=pl.UInt64),
            pl.Series(list(STREAM_KIND_OF.values())),
            default=None,
        )
        frame = self._frame(table, names).with_columns(kind=kind)
        frame = frame.join(self._device_of_context(), on="context", how="left").with_columns(
            device="of_context"
        )
        return conform(frame.unique(["context", "stream"], keep="last", maintain_order=True), STREAMS)


def _uuid(high: int, low: int) -> str:
    digits = f"{high:016x}{low:016x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
