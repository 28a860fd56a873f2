"""The hardware and host tables of Nsight Systems exports."""

from __future__ import annotations

import polars as pl

from busfare.trace.missing_columns import with_missing
from busfare.trace.table_source import TableSource
from busfare.trace.tables import DEVICES, STREAMS, conform, empty

__all__ = ["devices", "host", "streams"]

INT = pl.Int64()
TEXT = pl.String()

#: ENUM_CUPTI_STREAM_TYPE.
STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}


def devices(tables: TableSource) -> pl.DataFrame:
    """The `devices` table. nsys numbers GPUs by itself: the program's ordinal comes from the best map there is."""
    gpus = tables.read(
        "TARGET_INFO_GPU",
        {"id": INT, "deviceId": INT, "name": TEXT, "busLocation": TEXT, "totalMemory": INT, "memoryBandwidth": INT}
        | {"clockRate": INT, "smCount": INT, "uuid": TEXT, "cuDevice": INT, "asyncEngines": INT}
        | {"computeMajor": INT, "computeMinor": INT},
    )
    if gpus.is_empty():
        return empty(DEVICES)
    if "id" not in gpus.columns:
        return _devices_of_2021(tables, gpus)
    gpus = with_missing(gpus, {"cuDevice": INT, "computeMajor": INT, "computeMinor": INT})
    gpus = gpus.unique("id", keep="first", maintain_order=True)
    ordinals = tables.read("TARGET_INFO_CUDA_DEVICE", {"gpuId": INT, "cudaId": INT, "pid": INT})
    if ordinals.width == 3 and ordinals.height:
        gpus = ordinals.unique(maintain_order=True).join(gpus, left_on="gpuId", right_on="id", how="left")
        gpus = gpus.with_columns(device="cudaId", process="pid")
    else:
        usable = gpus.filter(pl.col("cuDevice") >= 0)
        if usable.is_empty():
            usable = gpus
        gpus = usable.with_columns(device=pl.coalesce(pl.when(pl.col("cuDevice") >= 0).then("cuDevice"), "id"))
    return _conformed(gpus)


def _conformed(gpus: pl.DataFrame) -> pl.DataFrame:
    renames = {
        "busLocation": "bus_id",
        "totalMemory": "memory_bytes",
        "memoryBandwidth": "memory_bandwidth_bytes_per_s",
        "clockRate": "clock_hz",
        "smCount": "multiprocessors",
        "asyncEngines": "copy_engines",
    }
    gpus = gpus.rename({old: new for old, new in renames.items() if old in gpus.columns})
    capability = pl.col("computeMajor").cast(TEXT) + "." + pl.col("computeMinor").cast(TEXT)
    return conform(gpus.with_columns(compute_capability=capability), DEVICES)


def _devices_of_2021(tables: TableSource, gpus: pl.DataFrame) -> pl.DataFrame:
    facts = tables.read(
        "TARGET_INFO_CUDA_GPU",
        {"deviceId": INT, "globalMemoryBandwidth": INT, "coreClockRate": INT, "numMemcpyEngines": INT}
        | {"numMultiprocessors": INT, "computeCapabilityMajor": INT, "computeCapabilityMinor": INT},
    )
    if "deviceId" not in gpus.columns:
        return empty(DEVICES)
    if "deviceId" in facts.columns:
        gpus = gpus.join(facts.unique("deviceId"), on="deviceId", how="left")
    # These versions count in kB/s and kHz.
    scaled = [pl.col(c) * 1000 for c in ("globalMemoryBandwidth", "coreClockRate") if c in gpus.columns]
    renames = {
        "deviceId": "device",
        "globalMemoryBandwidth": "memoryBandwidth",
        "coreClockRate": "clockRate",
        "numMemcpyEngines": "asyncEngines",
        "numMultiprocessors": "smCount",
        "computeCapabilityMajor": "computeMajor",
        "computeCapabilityMinor": "computeMinor",
    }
    present = {old: new for old, new in renames.items() if old in gpus.columns}
    gpus = gpus.with_columns(scaled).drop([new for new in present.values() if new in gpus.columns])
    gpus = gpus.rename(present)
    return _conformed(with_missing(gpus, {"computeMajor": INT, "computeMinor": INT}))


def streams(tables: TableSource) -> pl.DataFrame:
    """The `streams` table: kind and priority of each stream that the profiler saw made."""
    frame = tables.read(
        "TARGET_INFO_CUDA_STREAM", {"streamId": INT, "processId": INT, "contextId": INT, "priority": INT, "flag": INT}
    )
    if frame.is_empty() or "streamId" not in frame.columns:
        return empty(STREAMS)
    renames = {"streamId": "stream", "processId": "process", "contextId": "context"}
    frame = frame.rename({old: new for old, new in renames.items() if old in frame.columns})
    if "flag" in frame.columns:
        frame = frame.with_columns(kind=pl.col("flag").replace_strict(STREAM_KIND_OF, default=None, return_dtype=TEXT))
    if "priority" in frame.columns:
        signed = pl.when(pl.col("priority") >= 1 << 31).then(pl.col("priority") - (1 << 32)).otherwise("priority")
        frame = frame.with_columns(priority=signed)
    return conform(frame, STREAMS)


def host(tables: TableSource) -> dict[str, str]:
    """What the export says of the host: cpu, driver, cuda and hostname, where known."""
    frame = tables.read("TARGET_INFO_SYSTEM_ENV", {"name": TEXT, "value": TEXT})
    wanted = {
        "CpuDescription": "cpu",
        "NvDriverVersion": "driver",
        "CudaDriverVersion": "cuda",
        "Hostname": "hostname",
    }
    found: dict[str, str] = {}
    if frame.width == 2:
        for name, value in frame.iter_rows():
            if name in wanted and value:
                found.setdefault(wanted[name], value)
    return found
