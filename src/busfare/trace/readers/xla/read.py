"""Profiles of JAX and TensorFlow as XSpace files (`.xplane.pb`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace, name_process
from busfare.trace.readers.cupti import with_graph_nodes
from busfare.trace.readers.xla import space, work
from busfare.trace.tables import DEVICES, MARKERS, Schema, conform

GPU = re.compile(r"/device:GPU:(\d{1,6})$")
TPU = re.compile(r"/device:TPU:\d+$")
#: Planes of the host: of older versions one of CUPTI's or ROCm's calls, too.
HOST = "/host:"
METADATA = "/host:metadata"
#: How a line of a GPU's plane is called that is one of its streams. The others (XLA Modules, XLA Ops, Steps, Framework Ops,
#: Source code …) are derived from those: nothing on them is work of its own.
STREAM = "Stream #"
#: Stats of events, and the columns of `work.ON_GPU` and `work.ON_HOST` that they are.
STATS = {
    "correlation_id": "correlation",
    "context_id": "context_id",
    "kernel_details": "kernel_details",
    "memcpy_details": "memcpy_details",
    "memset_details": "memset_details",
    "cuda_graph_node_id": "graph_node",
    "cuda_graph_exec_id": "graph",
}
#: The columns of those that are whole numbers.
NUMBERS = {name for name, kind in work.ON_GPU.items() if kind == pl.Int64()}
#: Frames of Python's functions, which are called so.
PYTHON_FRAME = "$"
NVTX = re.compile(r"^NVTX:")

Row = dict[str, Any]


def read(path: Path, file: Path) -> Trace:
    """Reads the XSpace `path`, which lies at `file`. Raises InputError if no plane of it can be read, or it is of a TPU."""
    omissions = Omissions()
    found = _Rows(omissions)
    hostnames = []
    for field, value in space.contents(file.read_bytes(), omissions):
        if field == space.PLANES:
            found.take(value)
        elif field in (space.ERRORS, space.WARNINGS):
            omissions.add("profiler-said", f"the profiler said: {value[:200]}", 1)
        elif field == space.HOSTNAMES:
            hostnames.append(value)
    if not found.planes:
        raise InputError(f"{path}: nothing of this profile can be read; copy or record it again")
    if found.tpus and not found.gpus:
        raise InputError(
            f"{path}: a profile of {found.tpus} TPU cores and no GPU; busfare reads what runs on GPUs"
        )
    return found.trace(path, hostnames)


class _Rows:
    """What the planes of a space hold, as rows."""

    def __init__(self, omissions: Omissions) -> None:
        self.omissions = omissions
        self.planes = self.tpus = 0
        self.gpus: list[Row] = []
        self.on_gpu: list[Row] = []
        self.on_host: list[Row] = []
        self.ranges: list[Row] = []
        self.about: Row = {}  # stats of the metadata's plane
        self.amd = False

    def take(self, plane: Any) -> None:
        """The rows of a plane."""
        self.planes += 1
        name = space.text(plane.name)
        texts = space.names(plane.stat_metadata)
        if gpu := GPU.search(name):
            stats = space.values(plane.stats, texts)
            device = int(gpu[1])
            self.gpus.append(_device(device, stats))
            self.amd = self.amd or stats.get("device_vendor") == "AMD"
            self._take_streams(plane, device, texts)
        elif name.endswith(METADATA):
            self.about = space.values(plane.stats, texts)
        elif HOST in name:
            self._take_host(plane, texts)
        elif TPU.search(name):
            self.tpus += 1

    def _take_streams(self, plane: Any, device: int, texts: dict[int, str]) -> None:
        names, wanted = space.names(plane.event_metadata), _wanted(texts)
        for line in plane.lines:
            if not space.text(line.name).startswith(STREAM):
                continue
            for event in line.events:
                row = {"device": device, "stream": line.id, "name": names.get(event.metadata_id)}
                _fill(row, line, event, wanted, texts)
                if "correlation" in row or len(row) > FILLED:  # else allocations, or overhead of the profiler
                    self.on_gpu.append(row)

    def _take_host(self, plane: Any, texts: dict[int, str]) -> None:
        names, wanted = space.names(plane.event_metadata), _wanted(texts)
        for line in plane.lines:
            for event in line.events:
                name = names.get(event.metadata_id, "")
                if name.startswith(PYTHON_FRAME):
                    continue
                row = {"thread": line.id, "name": name}
                _fill(row, line, event, wanted, texts)
                if "correlation" in row:
                    self.on_host.append(row)
                elif event.duration_ps:
                    self.ranges.append(row)

    def trace(self, path: Path, hostnames: list[str]) -> Trace:
        """The trace of these rows."""
        omissions = self.omissions
        process = self.about.get("process_id")
        gpu_rows = _frame(self.on_gpu, work.ON_GPU)
        operations = work.operations(gpu_rows, omissions)
        kernels = gpu_rows.filter(pl.col("kernel_details").is_not_null())["name"].unique()
        host_rows = _frame(self.on_host, work.ON_HOST)
        amd = self.amd or bool(host_rows["name"].str.starts_with("hip").any())
        calls = work.calls(host_rows.with_columns(process=pl.lit(process)), kernels, amd, omissions)
        ranges = _frame(self.ranges, work.ON_HOST).with_columns(
            pl.col("name").str.replace(NVTX.pattern, ""), process=pl.lit(process)
        )
        trace = Trace(
            path=path,
            format="xla",
            producer=_producer(self.about),
            operations=with_graph_nodes(operations, calls, omissions),
            calls=calls,
            markers=conform(ranges, MARKERS),
            devices=conform(pl.DataFrame(self.gpus, strict=False), DEVICES),
            host={"hostname": hostnames[0]} if hostnames else {},
        )
        name_process(trace)
        trace.omissions = omissions.list()
        return trace


#: Columns of a row before its stats.
FILLED = 5


def _wanted(texts: dict[int, str]) -> dict[int, str]:
    """The stats to read, by their numbers in the plane."""
    return {number: STATS[text] for number, text in texts.items() if text in STATS}


def _fill(row: Row, line: Any, event: Any, wanted: dict[int, str], texts: dict[int, str]) -> None:
    """Adds times and stats."""
    begun = line.timestamp_ns * 1000 + event.offset_ps
    row["start_ns"], row["end_ns"] = begun // 1000, (begun + event.duration_ps) // 1000
    for stat in event.stats:
        if column := wanted.get(stat.metadata_id):
            value = space.value(stat, texts)
            row[column] = value if column in NUMBERS else None if value is None else str(value)


def _frame(rows: list[Row], schema: Schema) -> pl.DataFrame:
    """`rows` as columns; null is a number that has no room in 64 bits, or is none."""
    return pl.DataFrame(
        {
            name: pl.Series([row.get(name) for row in rows], dtype=kind, strict=False)
            for name, kind in schema.items()
        }
    )


def _device(device: int, stats: Row) -> Row:
    """A row of `DEVICES`. Of AMD's GPUs the two numbers are no compute capability."""
    capability = [stats.get(f"compute_cap_{part}") for part in ("major", "minor")]
    known = stats.get("device_vendor") != "AMD" and None not in capability
    clock = stats.get("clock_rate")  # kHz
    return {
        "device": device,
        "name": stats.get("gpu_device_name"),
        "clock_hz": clock * 1000.0 if isinstance(clock, int) else None,
        "multiprocessors": stats.get("core_count"),
        "memory_bandwidth_bytes_per_s": stats.get("memory_bandwidth"),
        "memory_bytes": stats.get("memory_size"),
        "compute_capability": f"{capability[0]}.{capability[1]}" if known else None,
    }


def _producer(about: Row) -> str:
    """The program that was profiled, and its version where the file tells."""
    version = about.get("jax_version")
    return f"JAX {version} (XLA's profiler)" if version else "JAX or TensorFlow (XLA's profiler)"
