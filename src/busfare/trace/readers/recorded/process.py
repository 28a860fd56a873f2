"""A recording of one process, column by column, on the time line of a trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace.columns import distinct
from busfare.trace.readers.recorded.file import Recording, Table
from busfare.trace.tables import DEVICES, STREAMS, conform

__all__ = [
    "RecordedProcess",
    "at",
    "choice",
    "device_of_context",
    "devices",
    "identified",
    "nonzero",
    "streams",
]

NO_ID = 0xFFFFFFFF


class RecordedProcess:
    """One file's share of the trace's tables. `zero_ns` is when the trace begins, on the wall clock."""

    def __init__(self, recording: Recording, process: int) -> None:
        self.recording = recording
        self.process = process
        self.zero_ns = 0
        self._offset = recording.wall_clock_ns - recording.trace_clock_ns

    @property
    def shift_ns(self) -> int:
        """Takes the recording's clock to the trace's."""
        return self._offset - self.zero_ns

    def first_ns(self) -> int | None:
        """The earliest time in the file, on the wall clock."""
        times = [self.recording.table(name)["start"] for name in ("kernels", "copies", "sets", "calls")]
        times.append(self.recording.table("managed")["start"][self.managed_inside()])
        times.append(self.recording.table("markers")["time"])
        firsts = [int(time[time > 0].min()) for time in times if (time > 0).any()]
        return min(firsts) + self._offset if firsts else None

    def managed_inside(self) -> npt.NDArray[np.bool_]:
        """Which counters of managed memory lie in the window: CUPTI goes on counting outside of it."""
        start = self.recording.table("managed")["start"]
        inside = np.ones(len(start), np.bool_)
        if not self.recording.facts.keys() & {"capture", "delay", "duration"}:
            return inside
        # On and off take turns.
        turned = np.sort(self.recording.table("windows")["time"])
        turns_before = np.asarray(np.searchsorted(turned, start, side="right"), np.int64)
        return np.asarray(turns_before % 2 == 1, np.bool_)

    def frame(self, table: Table, names: Mapping[str, str], time: str = "start") -> pl.DataFrame:
        """Columns of `table` renamed, with the process; `start_ns` and `end_ns` where it has a start."""
        columns: dict[str, npt.NDArray[np.int64]] = {new: table.signed(old) for old, new in names.items()}
        if time in table.columns:
            start = table.signed(time)
            shift = self.shift_ns
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

    def texts(self, numbers: npt.NDArray[np.uint64]) -> tuple[pl.Series, npt.NDArray[np.int64]]:
        """The strings that occur, and the place of each number's string among them; null for 0."""
        strings = self.recording.strings
        used, places = distinct(numbers, max(strings, default=0))
        return pl.Series("name", [strings.get(number) for number in used.tolist()], dtype=pl.String), places

    def names(self, numbers: npt.NDArray[np.uint64]) -> pl.Series:
        """The strings of these numbers, as categories."""
        texts, places = self.texts(numbers)
        return texts.cast(pl.Categorical).gather(places)


def at(values: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The values of these rows; 0 for row -1."""
    if not len(values):
        return np.zeros(len(rows), np.uint64)
    return np.where(rows >= 0, values[rows], np.uint64(0))


def nonzero(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != 0).then(pl.col(name)).alias(name)


def identified(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != NO_ID).then(pl.col(name)).alias(name)


def choice(
    values: npt.NDArray[np.uint64], names: Mapping[int, str], categories: tuple[str, ...]
) -> pl.Series:
    """Numbers as an Enum; null where a number has no name."""
    kind = pl.Enum(categories)
    known = pl.Series(list(names), dtype=pl.UInt64)
    wanted = pl.Series(list(names.values()), dtype=kind)
    return pl.Series(values).replace_strict(known, wanted, default=None, return_dtype=kind)


def device_of_context(process: RecordedProcess) -> pl.DataFrame:
    """`context` and `of_context`, the device that it is on."""
    table = process.recording.table("contexts")
    frame = pl.DataFrame({"context": table.signed("context"), "of_context": table.signed("device")})
    return frame.unique("context", keep="last")


STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}


def devices(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `DEVICES`, each with its PCIe link."""
    table = process.recording.table("devices")
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
    frame = process.frame(table, names).with_columns(
        name=process.names(table["name"]).cast(pl.String),
        compute_capability=pl.Series(capability, dtype=pl.String),
        uuid=pl.Series(uuids, dtype=pl.String),
    )
    frame = frame.unique("device", keep="last", maintain_order=True)
    return conform(frame.join(_pcie_links(process), on="device", how="left"), DEVICES)


def _pcie_links(process: RecordedProcess) -> pl.DataFrame:
    table = process.recording.table("pcie_links")
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


def streams(process: RecordedProcess) -> pl.DataFrame:
    """Rows of `STREAMS`."""
    table = process.recording.table("streams")
    names = {name: name for name in ("context", "stream", "priority")}
    kind = pl.Series(table["flag"] & np.uint64(0xFFFF)).replace_strict(
        pl.Series(list(STREAM_KIND_OF), dtype=pl.UInt64),
        pl.Series(list(STREAM_KIND_OF.values())),
        default=None,
    )
    frame = process.frame(table, names).with_columns(kind=kind)
    frame = frame.join(device_of_context(process), on="context", how="left").with_columns(device="of_context")
    return conform(frame.unique(["context", "stream"], keep="last", maintain_order=True), STREAMS)


def _uuid(high: int, low: int) -> str:
    digits = f"{high:016x}{low:016x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
