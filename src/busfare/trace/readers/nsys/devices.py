"""The hardware and host tables of Nsight Systems exports."""

from __future__ import annotations

import re

import polars as pl

from busfare.trace.readers.tables.source import TEXT, TableSource, ints, texts
from busfare.trace.tables import DEVICES, STREAMS, conform

__all__ = ["devices", "host", "streams"]


#: ENUM_CUPTI_STREAM_TYPE.
STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}
#: Where launchers tell a process its rank, the nearest to it first: a batch script's own stands in every environment.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID",
)  # fmt: skip
#: torchrun and its like set these together, in each of the processes that they start.
TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
RANK = re.compile(rf"(?:^|[;\s])({'|'.join([*RANK_VARIABLES, *TORCHRUN_VARIABLES])})=(\d{{1,9}})(?=[;\s]|$)")


def devices(tables: TableSource) -> pl.DataFrame:
    """The `devices` table. nsys numbers GPUs itself; the program's ordinals come from the best map."""
    if "id" not in tables.columns("TARGET_INFO_GPU"):
        return _devices_of_2021(tables)
    gpus = tables.read(
        "TARGET_INFO_GPU",
        ints("id totalMemory memoryBandwidth")
        | texts("name busLocation")
        | ints("clockRate smCount cuDevice asyncEngines")
        | texts("uuid")
        | ints("computeMajor computeMinor isDiscrete"),
    )
    gpus = gpus.unique("id", keep="first", maintain_order=True)
    ordinals = tables.read("TARGET_INFO_CUDA_DEVICE", ints("gpuId cudaId pid"))
    if ordinals.height:
        gpus = ordinals.unique(maintain_order=True).join(gpus, left_on="gpuId", right_on="id", how="left")
        gpus = gpus.with_columns(device="cudaId", process="pid")
    else:
        usable = gpus.filter(pl.col("cuDevice") >= 0)
        if usable.is_empty():
            usable = gpus
        gpus = usable.with_columns(
            device=pl.coalesce(pl.when(pl.col("cuDevice") >= 0).then("cuDevice"), "id")
        )
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
    gpus = gpus.rename(renames)
    capability = pl.col("computeMajor").cast(TEXT) + "." + pl.col("computeMinor").cast(TEXT)
    integrated = pl.col("isDiscrete") == 0
    return conform(gpus.with_columns(compute_capability=capability, integrated=integrated), DEVICES)


def _devices_of_2021(tables: TableSource) -> pl.DataFrame:
    gpus = tables.read("TARGET_INFO_GPU", ints("deviceId isDiscrete") | texts("name busLocation"))
    facts = tables.read(
        "TARGET_INFO_CUDA_GPU",
        ints("deviceId globalMemoryBandwidth coreClockRate numMemcpyEngines")
        | ints("numMultiprocessors computeCapabilityMajor computeCapabilityMinor"),
    )
    gpus = gpus.drop_nulls("deviceId").join(facts.unique("deviceId", keep="first"), on="deviceId", how="left")
    # These versions count in kB/s and kHz.
    return _conformed(
        gpus.select(
            "name",
            "busLocation",
            "isDiscrete",
            device="deviceId",
            totalMemory=None,
            memoryBandwidth=pl.col("globalMemoryBandwidth").cast(pl.Float64) * 1000,
            clockRate=pl.col("coreClockRate").cast(pl.Float64) * 1000,
            smCount="numMultiprocessors",
            asyncEngines="numMemcpyEngines",
            computeMajor="computeCapabilityMajor",
            computeMinor="computeCapabilityMinor",
        )
    )


def streams(tables: TableSource) -> pl.DataFrame:
    """The `streams` table: kind and priority of each stream that the profiler saw made."""
    frame = tables.read(
        "TARGET_INFO_CUDA_STREAM",
        ints("streamId processId contextId priority flag"),
    )
    priority = pl.col("priority")
    return conform(
        frame.with_columns(
            stream="streamId",
            process="processId",
            context="contextId",
            kind=pl.col("flag").replace_strict(STREAM_KIND_OF, default=None, return_dtype=TEXT),
            # Stored unsigned: 4294967291 is -5.
            priority=pl.when(priority >= 1 << 31).then(priority - (1 << 32)).otherwise(priority),
        ),
        STREAMS,
    )


def _rank(named: dict[str, str]) -> str | None:
    """The rank that the nearest launcher gave, of the variables of an environment."""
    if all(name in named for name in TORCHRUN_VARIABLES):
        return named["RANK"]
    return next((named[name] for name in RANK_VARIABLES if name in named), None)


def host(tables: TableSource) -> dict[str, str]:
    """What the export says of the host: cpu, driver, cuda, hostname, and the rank, where known."""
    frame = tables.read("TARGET_INFO_SYSTEM_ENV", texts("name value"))
    wanted = {
        "CpuDescription": "cpu",
        "NvDriverVersion": "driver",
        "CudaDriverVersion": "cuda",
        "Hostname": "hostname",
    }
    found: dict[str, str] = {}
    for name, value in frame.iter_rows():
        if name in wanted and value:
            found.setdefault(wanted[name], value)
        elif name == "DeviceEnvironment" and value and (rank := _rank(dict(RANK.findall(value)))):
            found.setdefault("rank", rank)
    return found
