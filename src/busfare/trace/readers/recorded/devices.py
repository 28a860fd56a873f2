"""Where a recorded process ran: its GPUs with their links, and its streams."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace.readers.recorded.process import RecordedProcess, device_of_context
from busfare.trace.tables import DEVICES, STREAMS, conform

__all__ = ["devices", "streams"]

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
