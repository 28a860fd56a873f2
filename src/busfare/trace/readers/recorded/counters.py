"""Hardware counters of a recorded process's kernels."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace.model import Omissions
from busfare.trace.readers.cupti import shared_bytes
from busfare.trace.readers.recorded.process import RecordedProcess, readable_names
from busfare.trace.tables import COUNTERS, conform, empty

#: The column that each of the recorder's metrics goes to, and in how many of its units one is counted.
COLUMN_OF = {
    "gpu__time_duration.sum": ("seconds", 1e-9),
    "dram__bytes_read.sum": ("dram_read_bytes", 1.0),
    "dram__bytes_write.sum": ("dram_write_bytes", 1.0),
    "lts__t_bytes.sum": ("l2_bytes", 1.0),
    "l1tex__t_bytes.sum": ("l1_bytes", 1.0),
    "sm__cycles_elapsed.max": ("cycles", 1.0),
    "sm__cycles_active.sum": ("active_cycles", 1.0),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("occupancy", 0.01),
    "sm__inst_executed_pipe_fma.sum": ("fp32_flops", 64.0),
    "sm__inst_executed_pipe_fma_type_fp16.sum": (
        "fp16_in_fma",
        64.0,
    ),  # GPUs whose FMA pipeline takes fp16 too
    "sm__inst_executed_pipe_fp16.sum": ("fp16_flops", 128.0),
    "sm__inst_executed_pipe_fp64.sum": ("fp64_flops", 64.0),
    "sm__pipe_fp64_cycles_active.sum": ("fp64_cycles", 1.0),
    "sm__pipe_tensor_cycles_active.sum": ("tensor_cycles", 1.0),
}
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
DISTURBED = "recorded with counters: their kernels ran alone, and calls took longer than they would have"


def counters(process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """Rows of `COUNTERS`."""
    recording = process.recording
    asked = recording.facts.get("counters", "")
    if not asked:
        return empty(COUNTERS)
    if asked != "read":
        omissions.add("no-counters", f"{recording.path.name}: hardware counters could not be read ({asked})")
    launches = _launches(process, "counted_launches", "dynamic_shared_bytes", "context", "launch", "passes")
    if launches.is_empty():
        return empty(COUNTERS)
    omissions.add("counters", DISTURBED, launches.height)
    kernels = _launches(
        process, "kernels", "device", "registers", "static_shared_bytes", "dynamic_shared_bytes"
    )
    of_kernel = ["name", *SHAPE, "dynamic_shared_bytes"]
    kinds = kernels.unique(of_kernel, keep="first", maintain_order=True).drop("correlation", "process")
    counted = launches.filter(pl.col("passes") > 0).sort("launch").unique(of_kernel, keep="last")
    omissions.add_if(
        kinds.join(counted, on=of_kernel, how="anti").height,
        "kernels-without-counters",
        "distinct kernels without counters: in graphs, of communication, or more than --counted-kernels",
    )
    counted = counted.join(kinds, on=of_kernel, how="left", maintain_order="left")
    counted = counted.join(process.device_of_context(), on="context", how="left", maintain_order="left")
    counted = counted.join(_values(process), on="correlation", how="left", maintain_order="left")
    return conform(
        counted.sort("correlation").with_columns(
            pl.col("device").fill_null(pl.col("of_context")),
            launch_number="launch",
            shared_bytes=shared_bytes("static_shared_bytes", "dynamic_shared_bytes"),
            fp16_flops=pl.coalesce("fp16_flops", 2.0 * pl.col("fp16_in_fma")),
            fp32_flops=pl.col("fp32_flops") - pl.col("fp16_in_fma").fill_null(0.0),
        ),
        COUNTERS,
    )


def _launches(process: RecordedProcess, table: str, *columns: str) -> pl.DataFrame:
    rows = process.recording.table(table)
    frame = process.frame(rows, "correlation", *SHAPE, *columns)
    return frame.with_columns(name=readable_names(process, rows["name"]).cast(pl.String))


def _values(process: RecordedProcess) -> pl.DataFrame:
    """`correlation`, and a column of each of `COLUMN_OF`."""
    table = process.recording.table("counters")
    made = pl.DataFrame(
        schema={"correlation": pl.Int64, **{name: pl.Float64 for name, _ in COLUMN_OF.values()}}
    )
    if not len(table):
        return made
    texts, places = process.texts(table["metric"])
    known = [COLUMN_OF.get(text or "", (None, 0.0)) for text in texts.to_list()]
    units = np.array([unit for _, unit in known])[places]
    frame = pl.DataFrame(
        {
            "correlation": table.signed("correlation"),
            "column": pl.Series([name for name, _ in known], dtype=pl.String).gather(places),
            "value": np.ascontiguousarray(table["value"]).view(np.float64) * units,
        }
    ).drop_nulls("column")
    wide = frame.pivot("column", index="correlation", values="value", aggregate_function="last")
    return pl.concat([made, wide], how="diagonal")
