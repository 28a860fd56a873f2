"""Nsight Systems: its reports, and exports of them as SQLite files and as directories of Parquet or Arrow tables, of all
schemas since 2021.

Tables and columns come and go with the version, so everything is looked up by name and may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import polars as pl

from busfare.trace.launches import with_allocated
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers import Format, RecordAgain, Source, cupti
from busfare.trace.readers.nsys import mpi, rows
from busfare.trace.readers.nsys.report_file import MAGIC, exported
from busfare.trace.readers.nsys.rows import CALLS_TABLE, RECORDS, WAITS
from busfare.trace.readers.tables import INT, DirectoryTables, TableSource, ints, texts
from busfare.trace.tables import DEVICES, conform

#: What reports are called.
REPORTS = (".nsys-rep", ".qdrep")
STRINGS = "StringIds"
FAMILIES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "META_DATA_", "EXPORT_META_DATA")
#: ENUM_DIAGNOSTIC_SEVERITY_LEVEL: unknown, information, verbose; between these are 2 warning and 3 error.
NOT_GRAVE = [0, 1, 4]
#: So many different warnings are shown.
MOST_WARNINGS = 5


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads an export, with its launches or not. Raises InputError if a table that is there cannot be read."""
    strings = tables.read(STRINGS, ints("id") | texts("value"))
    strings = strings.unique("id", keep="first", maintain_order=True).drop_nulls()
    omissions = Omissions()
    waits, records = tables.read(WAITS, rows.WAIT_COLUMNS), tables.read(RECORDS, rows.RECORD_COLUMNS)
    product, schema = _version(tables)
    calls = rows.calls_of(tables.read(CALLS_TABLE, rows.CALL_COLUMNS), strings, omissions)
    calls = rows.located(calls, tables, strings)
    events, waited = rows.events_of(waits, records, calls, omissions)
    operations = rows.operations(tables, strings, launches, omissions)
    if launches:
        operations = with_allocated(operations, rows.allocations(tables, calls))
    markers = rows.markers(tables, strings, omissions)
    of_mpi, described = mpi.calls(tables, strings, omissions)
    if of_mpi.height:
        markers = pl.concat([markers, of_mpi], how="diagonal")
    _note_diagnostics(tables, omissions)
    return Trace(
        path=tables.path,
        format="nsys-sqlite" if tables.path.is_file() else "nsys-directory",
        producer=f"Nsight Systems {product}".strip() + (f" (schema {schema})" if schema else ""),
        operations=operations,
        calls=cupti.with_waits(calls, waited),
        events=events,
        markers=markers,
        devices=_devices(tables),
        streams=_streams(tables),
        host=_host(tables) | mpi.host(tables),
        described=described,
        omissions=omissions.list(),
    )


def _version(tables: TableSource) -> tuple[str, str]:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        frame = tables.read(table, texts("name value"))
        if frame.height:
            found = dict(zip(frame["name"], frame["value"], strict=True))
            return found.get("EXPORT_PRODUCT_VERSION") or "", found.get("EXPORT_SCHEMA_VERSION") or ""
    return "", ""


def _note_diagnostics(tables: TableSource, omissions: Omissions) -> None:
    """Its warnings and errors; those on records that are missing first."""
    frame = tables.read("DIAGNOSTIC_EVENT", ints("severity") | texts("text")).drop_nulls("text")
    lost = pl.col("text").str.contains(r"(?i)\bdropped\b|not collected|\blost\b|incomplete")
    of_gpu = pl.col("text").str.contains("CUDA|GPU|Unified Memory")
    grave = pl.col("severity").replace(NOT_GRAVE, 0).fill_null(0)
    rank = grave + 4 * lost.cast(INT) + 2 * of_gpu.cast(INT)
    warnings = (
        frame.filter(lost | (grave > 0))
        .group_by("text", maintain_order=True)
        .agg(pl.len(), rank.max().alias("rank"))
    )
    warnings = warnings.sort("rank", descending=True, maintain_order=True)
    for text, count in warnings.select("text", "len").head(MOST_WARNINGS).iter_rows():
        omissions.add("profiler-said", count, text=" ".join(text[:200].split()))
    omissions.count("profiler-said/more", int(warnings["len"].slice(MOST_WARNINGS).sum()))


OF_GPUS = ints(
    "totalMemory memoryBandwidth clockRate smCount asyncEngines computeMajor computeMinor isDiscrete"
) | texts("name busLocation uuid")
RENAMES_OF_GPUS = {
    "totalMemory": "memory_bytes",
    "memoryBandwidth": "memory_bandwidth_bytes_per_s",
    "clockRate": "clock_hz",
    "smCount": "multiprocessors",
    "asyncEngines": "copy_engines",
}
#: Where launchers tell a process its rank, the nearest to it first: a batch script's own stands in every environment.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID",
)  # fmt: skip
#: torchrun and its like set these together, in each of the processes that they start.
TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
RANK = re.compile(rf"(?:^|[;\s])({'|'.join([*RANK_VARIABLES, *TORCHRUN_VARIABLES])})=(\d{{1,9}})(?=[;\s]|$)")


def _devices(tables: TableSource) -> pl.DataFrame:
    """The `devices` table. nsys numbers GPUs itself; the program's ordinals come from the best map."""
    if "id" not in tables.columns("TARGET_INFO_GPU"):  # in 2021
        gpus = tables.read("TARGET_INFO_GPU", ints("deviceId isDiscrete") | texts("name busLocation"))
        facts = tables.read("TARGET_INFO_CUDA_GPU", ints("deviceId") | cupti.OF_DEVICES)
        facts = facts.unique("deviceId", keep="first")
        gpus = (
            gpus.drop_nulls("deviceId").join(facts, on="deviceId", how="left").with_columns(device="deviceId")
        )
        gpus = cupti.devices(gpus)
    else:
        gpus = tables.read("TARGET_INFO_GPU", ints("id cuDevice") | OF_GPUS)
        gpus = gpus.unique("id", keep="first", maintain_order=True)
        ordinals = tables.read("TARGET_INFO_CUDA_DEVICE", ints("gpuId cudaId pid"))
        if ordinals.height:
            gpus = ordinals.unique(maintain_order=True).join(gpus, left_on="gpuId", right_on="id", how="left")
            gpus = gpus.with_columns(device="cudaId", process="pid")
        else:
            numbered = gpus.filter(pl.col("cuDevice") >= 0)
            gpus = (
                numbered.with_columns(device="cuDevice")
                if numbered.height
                else gpus.with_columns(device="id")
            )
        capability = pl.format("{}.{}", "computeMajor", "computeMinor")
        gpus = gpus.rename(RENAMES_OF_GPUS).with_columns(compute_capability=capability)
    return conform(gpus.with_columns(bus_id="busLocation", integrated=pl.col("isDiscrete") == 0), DEVICES)


def _streams(tables: TableSource) -> pl.DataFrame:
    """The `streams` table: kind and priority of each stream that the profiler saw made."""
    frame = tables.read("TARGET_INFO_CUDA_STREAM", ints("streamId processId contextId priority flag"))
    priority = pl.col("priority")
    # Stored unsigned: 4294967291 is -5.
    signed = pl.when(priority >= 1 << 31).then(priority - (1 << 32)).otherwise(priority)
    return cupti.streams(cupti.record_columns(frame).with_columns(process="processId", priority=signed))


def _host(tables: TableSource) -> dict[str, str]:
    """What the export says of the host: cpu, driver, cuda, hostname, and the rank, where known."""
    frame = tables.read("TARGET_INFO_SYSTEM_ENV", texts("name value"))
    wanted = {
        "CpuDescription": "cpu",
        "NvDriverVersion": "driver",
        "CudaDriverVersion": "cuda",
        "Hostname": "hostname",
    }
    known: dict[str, str] = {}
    for name, value in frame.iter_rows():
        if name in wanted and value:
            known.setdefault(wanted[name], value)
        elif name == "DeviceEnvironment" and value:
            named = dict(RANK.findall(value))
            nearest = ["RANK"] if named.keys() >= {*TORCHRUN_VARIABLES} else RANK_VARIABLES
            if rank := next((named[name] for name in nearest if name in named), None):
                known.setdefault("rank", rank)
    return known


def _is_export(names: AbstractSet[str]) -> bool:
    """Whether tables of these names are an export."""
    return STRINGS in names and any(name.startswith(FAMILIES) for name in names)


def _read(source: Source) -> Trace:
    return read(source.database or DirectoryTables(source.path), source.launches)


AGAIN = RecordAgain(gpu="`nsys profile --trace=cuda`", allocations="nsys --cuda-memory-usage=true")
FORMATS = (
    Format(
        name="nsys-sqlite",
        title="Nsight Systems (.nsys-rep, .sqlite, or a directory of .parquet/.arrow)",
        read=_read,
        begins=re.compile(re.escape(MAGIC)),
        database=lambda file: _is_export(file.names),
        suffixes=(".sqlite",),
        sure_suffixes=REPORTS,
        export=exported,
        record_again=AGAIN,
    ),
    Format(
        name="nsys-directory",
        read=_read,
        directory=lambda path: _is_export(DirectoryTables(path).names),
        record_again=AGAIN,
    ),
)
