"""Nsight Systems: its reports, and exports of them as SQLite files and as directories of Parquet or Arrow tables, of all
schemas since 2021. Only its own `nsys export` can read a report (.nsys-rep, .qdrep).

Tables and columns come and go with the version, so everything is looked up by name and may be missing.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Set as AbstractSet
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.launches import with_allocated
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers import RANK_VARIABLES, TORCHRUN_VARIABLES, Format, RecordAgain, Source, cupti
from busfare.trace.readers.nsys import mpi, rows
from busfare.trace.readers.nsys.rows import CALLS_TABLE, RECORDS, WAITS
from busfare.trace.readers.tables import INT, DirectoryTables, TableSource, ints, texts
from busfare.trace.tables import ACTIVITY, DEVICES, conform, empty

#: What reports are called.
REPORTS = (".nsys-rep", ".qdrep")
STRINGS = "StringIds"
FAMILIES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "META_DATA_", "EXPORT_META_DATA")
#: ENUM_DIAGNOSTIC_SEVERITY_LEVEL: unknown, information, verbose; between these are 2 warning and 3 error.
NOT_GRAVE = [0, 1, 4]
#: So many different warnings are shown.
MOST_WARNINGS = 5


def read(tables: TableSource, launches: bool = False, activity: bool = False) -> Trace:
    """Reads an export, optionally with launches and host activity. Raises InputError if it cannot read an existing table."""
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
        calls=cupti.with_waits(calls, waited, rows.IDS),
        events=events,
        markers=markers,
        activity=rows.activity_of(tables, strings) if activity else empty(ACTIVITY),
        devices=_devices(tables),
        streams=_streams(tables),
        host=_host(tables) | mpi.host(tables),
        described=described,
        omissions=omissions.list(),
    )


def _version(tables: TableSource) -> tuple[str, str]:
    frames = (tables.read(table, texts("name value")) for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"))
    entries = dict(next((frame for frame in frames if frame.height), empty(texts("name value"))).iter_rows())
    return entries.get("EXPORT_PRODUCT_VERSION") or "", entries.get("EXPORT_SCHEMA_VERSION") or ""


def _note_diagnostics(tables: TableSource, omissions: Omissions) -> None:
    """Its warnings and errors; those on records that are missing first."""
    frame = tables.read("DIAGNOSTIC_EVENT", ints("severity") | texts("text")).drop_nulls("text")
    lost = pl.col("text").str.contains(r"(?i)\bdropped\b|not collected|\blost\b|incomplete")
    of_gpu = pl.col("text").str.contains("CUDA|GPU|Unified Memory")
    grave = pl.col("severity").replace(NOT_GRAVE, 0).fill_null(0)
    rank = grave + 4 * lost.cast(INT) + 2 * of_gpu.cast(INT)
    by_text = frame.filter(lost | (grave > 0)).group_by("text", maintain_order=True)
    warnings = by_text.agg(pl.len(), rank=rank.max()).sort("rank", descending=True, maintain_order=True)
    for text, count in warnings.select("text", "len").head(MOST_WARNINGS).iter_rows():
        omissions.add("profiler-warning", count, text=" ".join(text[:200].split()))
    omissions.count("profiler-warning/more", int(warnings["len"].slice(MOST_WARNINGS).sum()))


#: No GPU of CUDA's has less memory; a smaller number counts MiB.
LEAST_MEMORY = 1 << 24
UNKNOWN_BUS = "<UNKNOWN_BUS_ID>"
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
RANK = re.compile(rf"(?:^|[;\s])({'|'.join([*RANK_VARIABLES, *TORCHRUN_VARIABLES])})=(\d{{1,9}})(?=[;\s]|$)")


def _devices(tables: TableSource) -> pl.DataFrame:
    """The `devices` table. nsys numbers GPUs itself; the program's ordinals come from the best map."""
    if "id" not in tables.columns("TARGET_INFO_GPU"):  # until 2021, and where CUDA alone names them
        named = tables.read("TARGET_INFO_GPU", ints("deviceId isDiscrete") | texts("name busLocation"))
        facts = ints("deviceId") | texts("name pciBusId") | cupti.OF_DEVICES
        named, of_cuda = (
            frame.drop_nulls("deviceId").unique("deviceId", keep="first", maintain_order=True)
            for frame in (named, tables.read("TARGET_INFO_CUDA_GPU", facts))
        )
        gpus = named.join(of_cuda, on="deviceId", how="full", coalesce=True, maintain_order="left_right")
        # Then its bandwidth is of no unit that is known.
        in_mib = (pl.col("globalMemorySize") < LEAST_MEMORY).fill_null(False)
        bandwidth = pl.col("memory_bandwidth_bytes_per_s")
        gpus = cupti.devices(gpus).with_columns(
            pl.coalesce("name", "name_right"),
            pl.coalesce("busLocation", pl.col("pciBusId").replace(UNKNOWN_BUS, None)),
            pl.when(in_mib).then(pl.col("memory_bytes") * (1 << 20)).otherwise("memory_bytes"),
            pl.when(~in_mib & (bandwidth > 0)).then(bandwidth),
            device="deviceId",
        )
    else:
        gpus = tables.read("TARGET_INFO_GPU", ints("id cuDevice") | OF_GPUS)
        gpus = gpus.unique("id", keep="first", maintain_order=True)
        ordinals = tables.read("TARGET_INFO_CUDA_DEVICE", ints("gpuId cudaId pid"))
        if ordinals.height:
            gpus = ordinals.unique(maintain_order=True).join(gpus, left_on="gpuId", right_on="id", how="left")
            gpus = gpus.with_columns(device="cudaId", process="pid")
        else:
            numbered = gpus.filter(pl.col("cuDevice") >= 0).with_columns(device="cuDevice")
            gpus = numbered if numbered.height else gpus.with_columns(device="id")
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
    facts: dict[str, str] = {}
    for name, value in frame.iter_rows():
        if name in wanted and value:
            facts.setdefault(wanted[name], value)
        elif name == "DeviceEnvironment" and value:
            named = dict(RANK.findall(value))
            nearest = ["RANK"] if named.keys() >= {*TORCHRUN_VARIABLES} else RANK_VARIABLES
            if rank := next((named[name] for name in nearest if name in named), None):
                facts.setdefault("rank", rank)
    return facts


#: How a report begins, of versions 2020 to 2026, and how it ends.
MAGIC, END = b"NVIDIA Tegra Profiler Report", b"[END]"
#: Where Nsight Systems and the toolkits put it, if not on the PATH.
PLACES = (
    ("/opt/nvidia/nsight-systems", "*/bin/nsys"),
    ("/opt/nvidia/nsight-systems-cli", "*/bin/nsys"),
    ("/opt/nvidia/hpc_sdk", "*/*/profilers/Nsight_Systems/bin/nsys"),
    ("/usr/local", "cuda*/bin/nsys"),
)
#: Exports that nobody read for so long go.
KEPT_S = 30 * 86_400


def exported(path: Path, place: Path) -> Path:
    """The SQLite export of the report `path`, which lies, unpacked, at `place`.

    One that lies beside it and is not older is taken; others are made by `nsys` once, and kept in `cache()`.
    Raises InputError, with the line to run, where there is no `nsys` or it fails.
    """
    sibling = path.with_suffix(".sqlite")
    status = path.stat()
    if sibling.is_file() and sibling.stat().st_mtime_ns >= status.st_mtime_ns:
        return sibling
    folder = cache()
    identity = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    kept = folder / f"{hashlib.sha256(identity.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.sqlite"):
            if time.time() - file.stat().st_mtime > KEPT_S:
                file.unlink(missing_ok=True)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as room:
                _export(path, place, Path(room, "export.sqlite")).replace(kept)
        os.utime(kept)
    except OSError as error:
        raise InputError(
            f"{path}: its export cannot be kept in {folder} ({error.strerror or error}); make room, or name another "
            "folder with XDG_CACHE_HOME"
        ) from None
    return kept


def cache() -> Path:
    """Where exports are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "busfare" / "nsys"


def installed() -> list[str]:
    """Every `nsys` of this machine: that on the PATH first, then the newest."""
    newest: list[str] = []
    for folder, pattern in PLACES:
        places = map(str, Path(folder).glob(pattern))
        newest += sorted(places, key=lambda place: [int(n) for n in re.findall(r"\d+", place)], reverse=True)
    first = shutil.which("nsys")
    return list({os.path.realpath(place): place for place in ([first] if first else []) + newest}.values())


def _export(path: Path, place: Path, export: Path) -> Path:
    with place.open("rb") as file:
        head = file.read(128)
        file.seek(max(place.stat().st_size - 16, 0))
        if head.startswith(MAGIC) and not file.read().endswith(END):
            why = "the report is truncated; copy it again from the machine that recorded it"
            raise InputError(f"{path}: {why}")
    version = re.match(re.escape(MAGIC) + rb" (\d{4}@\d+@\d+)@", head)  # since 2025
    named = f" of version {version[1].decode().replace('@', '.')}" if version else ""
    what = f"an Nsight Systems report{named}"
    line = f"`nsys export --type sqlite {path.name}`"
    programs = installed()
    if not programs:
        raise InputError(
            f"{path}: {what}, and this machine has no `nsys` to read it; run {line} on a machine with it, and give "
            "the .sqlite"
        )
    reasons = [reason for nsys in programs if (reason := _tried(nsys, place, export))]
    if len(reasons) == len(programs):
        raise InputError(
            f"{path}: {what}: {reasons[0]}; run {line} on the machine that recorded it, or with a later Nsight Systems, "
            "and give the .sqlite"
        )
    return export


def _tried(nsys: str, place: Path, export: Path) -> str:
    """Why this `nsys` makes no export; '' when it has."""
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(export)]
    done = subprocess.run([*command, str(place.resolve())], capture_output=True, text=True, errors="replace")
    if done.returncode == 0 and export.exists():
        return ""
    export.unlink(missing_ok=True)
    version = subprocess.run([nsys, "--version"], capture_output=True, text=True, errors="replace").stdout
    return f"{version.strip() or nsys} cannot export it ({_reason(done.stderr + done.stdout)})"


def _reason(text: str) -> str:
    """What nsys says is wrong, in a line, without libraries' own notes and bars of progress."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    what = [line.partition("::what: ")[2] for line in lines if "::what: " in line]
    plain = [line for line in lines if line and not line.startswith(("[", "Exporting ", "Processing "))]
    return next(iter(what + plain), "no reason given")[:160]


def _is_export(names: AbstractSet[str]) -> bool:
    """Whether tables of these names are an export."""
    return STRINGS in names and any(name.startswith(FAMILIES) for name in names)


def _read(source: Source) -> Trace:
    return read(source.database or DirectoryTables(source.path), source.launches, source.activity)


AGAIN = RecordAgain(
    gpu="`nsys profile --trace=cuda`",
    allocations="nsys --cuda-memory-usage=true",
    activity="`nsys profile --trace=cuda,nvtx,osrt --sample=process-tree` (Python: `--python-sampling=true`)",
)
#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "mpi-without-partners": "MPI calls without communicators, partners and bytes, as recorded by older versions of Nsight "
    "Systems: shown, but not matched across ranks; record with a newer version or with `busfare record`",
    "mpi-without-process": "MPI calls without a process: skipped",
    "profiler-warning/more": "more profiler warnings; see DIAGNOSTIC_EVENT in the file",
    "unknown-communicators": "MPI calls on communicators that the export does not describe: shown, but not matched across "
    "ranks (record with NSYS_MPI_STORE_TEAMS_PER_RANK=1)",
    "unknown-nvtx": "table {table} is newer than this version of busfare: its NVTX ranges are not read",
    "unknown-wait": "synchronisations without a recorded call, where either a stream or the host may have waited for an "
    "event: excluded from the dependencies",
    "unnamed-calls": "API calls without a name: assumed not to wait",
    "waits-without-records": "stream waits for events whose records are not in the trace: what they wait for is unknown",
}
FORMATS = (
    Format(
        name="nsys-sqlite",
        title="Nsight Systems (.nsys-rep, .sqlite, or a directory of .parquet/.arrow)",
        read=_read,
        begins=re.compile(re.escape(MAGIC)),
        database=lambda file: _is_export(file.names),
        sentences=SENTENCES,
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
