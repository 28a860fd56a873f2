"""What both files of XLA's profiler hold, as rows, and the trace of these."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace, name_process, note_copying_kernels, number_graph_nodes
from busfare.trace.readers.xla import work
from busfare.trace.tables import DEVICES, MARKERS, Schema, conform

#: Planes, or processes of the time line: where a file is of several hosts, behind the name of one.
GPU = re.compile(r"(?:\S+ )?/device:GPU:(\d{1,6})(?: \(pid \d+\))?")
TPU = re.compile(r"(?:\S+ )?/device:TPU:\d+(?: \(pid \d+\))?")
HOST = re.compile(r"(?:\S+ )?/host:(?!metadata).*")
#: How a line of a GPU is called that is one of its streams. The others (XLA Modules, XLA Ops, Steps, Framework Ops,
#: Source code …) are derived from those: nothing on them is work of its own.
STREAM = re.compile(r"(?:Stream )?#(\d+)")
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
NVTX = r"^NVTX:"

Row = dict[str, Any]


class Rows:
    """The rows of a profile. A row has columns of `work.ON_GPU` or `work.ON_HOST`, those that are known."""

    def __init__(self) -> None:
        self.tpus = 0
        self.gpus: list[Row] = []  # rows of `DEVICES`
        self.amd = False
        self.on_gpu: list[Row] = []
        self.on_host: list[Row] = []
        self.ranges: list[Row] = []

    def add_on_gpu(self, row: Row) -> None:
        """Takes an event of a stream, unless it is an allocation or overhead of the profiler."""
        if not DETAILS.isdisjoint(row):
            self.on_gpu.append(row)

    def add_on_host(self, row: Row) -> None:
        """Takes an event of a thread: a call, or a range."""
        if "correlation" in row:
            self.on_host.append(row)
        elif row["end_ns"] > row["start_ns"]:
            self.ranges.append(row)

    def trace(self, path: Path, producer: str, omissions: Omissions) -> Trace:
        """The trace of these rows. Raises InputError if they are of a TPU."""
        if self.tpus and not self.gpus:
            raise InputError(
                f"{path}: a profile of {self.tpus} TPU cores and no GPU; busfare reads what runs on GPUs"
            )
        gpu_rows, host_rows = _frame(self.on_gpu, work.ON_GPU), _frame(self.on_host, work.ON_HOST)
        operations = work.operations(gpu_rows, omissions)
        kernels = gpu_rows.filter(pl.col("kernel_details").is_not_null())["name"].unique()
        amd = self.amd or bool(host_rows["name"].str.starts_with("hip").any())
        calls = work.calls(host_rows, kernels, amd, omissions)
        ranges = _frame(self.ranges, work.ON_HOST).with_columns(pl.col("name").str.replace(NVTX, ""))
        trace = Trace(
            path=path,
            format="xla",
            producer=producer,
            operations=operations,
            calls=calls,
            markers=conform(ranges, MARKERS),
            devices=conform(pl.DataFrame(self.gpus, strict=False), DEVICES),
        )
        name_process(trace)
        number_graph_nodes(trace, omissions)
        note_copying_kernels(trace, omissions)
        trace.omissions = omissions.list()
        return trace


#: Of which a row has one that is work, or may be.
DETAILS = {*STATS.values()} - {"context_id"}


def _frame(rows: list[Row], schema: Schema) -> pl.DataFrame:
    """`rows` as columns; null is a number that has no room in 64 bits, or is none."""
    return pl.DataFrame(
        {
            name: pl.Series([row.get(name) for row in rows], dtype=kind, strict=False)
            for name, kind in schema.items()
        }
    )
