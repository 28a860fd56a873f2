"""AMD rocprofv3 databases (rocpd, schema 3, and 4 with its table of timestamps).

The file's tables carry a unique suffix, one set a process, and plainly named views unite them. Views are not
run: the tables are read and united here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from busfare.trace import api_calls
from busfare.trace.launches import grid_side
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.tables import TEXT, TableSource, ints, texts
from busfare.trace.tables import (
    CALLS,
    DEVICES,
    DIRECTIONS,
    LAUNCH_SHAPE,
    MARKERS,
    OPERATIONS,
    STREAMS,
    Schema,
    conform,
    empty,
)

SUFFIX = r"(_[0-9a-fA-F_-]+)?"

DIRECTION_OF_NAME = {
    "HOST_TO_DEVICE": "h2d",
    "DEVICE_TO_HOST": "d2h",
    "DEVICE_TO_DEVICE": "d2d",
    "HOST_TO_HOST": "h2h",
}
#: Of a dispatch and of its kernel; vector registers, ordinary and accumulating ones, which share a file since CDNA 2.
LAUNCH = ints(
    "grid_size_x grid_size_y grid_size_z workgroup_size_x workgroup_size_y workgroup_size_z group_segment_size"
)
REGISTERS = ints("arch_vgpr_count accum_vgpr_count")
DIRECTION_OF_AGENTS = {"CPU>GPU": "h2d", "GPU>CPU": "d2h", "GPU>GPU": "d2d", "CPU>CPU": "h2h"}


def matches(tables: TableSource) -> bool:
    """Whether these tables are a rocprofv3 database."""
    return any(re.fullmatch("rocpd_kernel_dispatch" + SUFFIX, name) for name in tables.names)


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads a rocprofv3 database, with its launches or not. Raises InputError if a table that is there cannot be read."""
    omissions = Omissions()
    strings = _lookup(tables, "rocpd_string", ints("id") | texts("string"))
    agents = _agents(tables)
    events = _lookup(tables, "rocpd_event", ints("id stack_id category_id"))
    processes = _lookup(tables, "rocpd_info_process", ints("id pid")).rename({"pid": "process"})
    metadata = dict(_all(tables, "rocpd_metadata", texts("tag value")).select("tag", "value").iter_rows())

    context = _Context(tables, strings, agents, events, processes)
    operations = pl.concat([_kernels(context, launches), _copies(context, omissions)], how="diagonal")
    calls, markers = _calls_and_markers(context)
    if operations.filter(pl.col("kind") == "copy").height:
        omissions.add(
            "unknown-memory",
            "rocprofv3 does not record whether host memory was pinned: advice on pinning cannot be given",
        )
    trace = Trace(
        path=tables.path,
        format="rocpd",
        producer=f"rocprofv3 (rocpd schema {metadata.get('schema_version') or 'unknown'})",
        operations=operations,
        calls=calls,
        markers=markers,
        devices=_devices(agents),
        streams=empty(STREAMS),
    )
    trace.omissions = omissions.list()
    return trace


@dataclass(frozen=True)
class _Context:
    """The tables that every other one refers to."""

    tables: TableSource
    strings: pl.DataFrame
    agents: pl.DataFrame
    events: pl.DataFrame
    processes: pl.DataFrame

    def rows(self, table: str, wanted: Schema) -> pl.DataFrame:
        """Rows of a timed table, with start_ns, end_ns, process, correlation and the suffix's `part`."""
        timed = ints("start end start_id end_id track_id pid tid event_id")
        frame = _all(self.tables, table, {**timed, **wanted})
        if frame.get_column("start").is_null().all() and frame.get_column("start_id").is_not_null().any():
            frame = self._with_timestamps(frame)
        frame = frame.join(self.events, left_on=["event_id", "part"], right_on=["id", "part"], how="left")
        frame = frame.join(self.processes, left_on=["pid", "part"], right_on=["id", "part"], how="left")
        return frame.with_columns(
            start_ns="start", end_ns="end", correlation="stack_id", process=pl.coalesce("process", "pid")
        )

    def _with_timestamps(self, frame: pl.DataFrame) -> pl.DataFrame:
        times = _lookup(self.tables, "rocpd_timestamp", ints("id value"))
        for side in ("start", "end"):
            values = times.rename({"value": side, "id": f"{side}_id"})
            frame = frame.drop(side).join(values, on=[f"{side}_id", "part"], how="left")
        tracked = ints("pid tid agent_id queue_id stream_id")
        tracks = _lookup(self.tables, "rocpd_track", ints("id") | tracked)
        frame = frame.join(
            tracks, left_on=["track_id", "part"], right_on=["id", "part"], how="left", suffix="_of_track"
        )
        both = [name for name in tracked if f"{name}_of_track" in frame.columns]
        return frame.with_columns(pl.coalesce(name, f"{name}_of_track").alias(name) for name in both)

    def text(self, frame: pl.DataFrame, id_column: str, name: str) -> pl.DataFrame:
        strings = self.strings.rename({"id": id_column, "string": name})
        return frame.join(strings, on=[id_column, "part"], how="left")


def _all(tables: TableSource, name: str, wanted: Schema) -> pl.DataFrame:
    """The rows of `name` under every suffix, which is column `part`: ids are unique only within it."""
    parts = []
    for table in sorted(tables.names):
        found = re.fullmatch(re.escape(name) + SUFFIX, table)
        if found:
            parts.append(tables.read(table, wanted).with_columns(part=pl.lit(found.group(1) or "")))
    return pl.concat(parts) if parts else pl.DataFrame(schema={**wanted, "part": TEXT})


def _lookup(tables: TableSource, name: str, wanted: Schema) -> pl.DataFrame:
    """The rows of a table that others refer to by `id`: each id once, or a join would multiply rows."""
    return _all(tables, name, wanted).unique(["id", "part"], keep="first")


def _agents(tables: TableSource) -> pl.DataFrame:
    agents = _lookup(
        tables,
        "rocpd_info_agent",
        ints("id absolute_index type_index") | texts("type name product_name"),
    )
    return agents.with_columns(pl.col("type").str.to_uppercase())


def _devices(agents: pl.DataFrame) -> pl.DataFrame:
    gpus = agents.filter(pl.col("type") == "GPU").unique("type_index").sort("type_index", nulls_last=True)
    return conform(gpus.with_columns(device="type_index", name=pl.coalesce("product_name", "name")), DEVICES)


def _kernels(context: _Context, launches: bool) -> pl.DataFrame:
    of_launch, of_symbol = (LAUNCH, REGISTERS) if launches else ({}, {})
    frame = context.rows("rocpd_kernel_dispatch", ints("agent_id kernel_id queue_id stream_id") | of_launch)
    symbols = _lookup(
        context.tables,
        "rocpd_info_kernel_symbol",
        ints("id") | texts("display_name kernel_name") | of_symbol,
    )
    frame = frame.join(symbols, left_on=["kernel_id", "part"], right_on=["id", "part"], how="left")
    ordinals = context.agents.select("id", "part", device="type_index")
    frame = frame.join(ordinals, left_on=["agent_id", "part"], right_on=["id", "part"], how="left")
    if launches:
        frame = frame.with_columns(
            *(
                grid_side("grid_size_" + side, "workgroup_size_" + side).alias("grid_" + side)
                for side in "xyz"
            ),
            *(pl.col("workgroup_size_" + side).alias("block_" + side) for side in "xyz"),
            registers=pl.col("arch_vgpr_count") + pl.col("accum_vgpr_count").fill_null(0),
            shared_bytes="group_segment_size",
        )
    return conform(
        frame.with_columns(
            kind=pl.lit("kernel"),
            name=pl.coalesce("display_name", "kernel_name").fill_null("(unnamed kernel)"),
            stream=pl.coalesce("stream_id", "queue_id"),
        ),
        OPERATIONS,
        LAUNCH_SHAPE,
    )


def _copies(context: _Context, omissions: Omissions) -> pl.DataFrame:
    wanted = ints("name_id src_agent_id dst_agent_id size queue_id stream_id")
    frame = context.text(context.rows("rocpd_memory_copy", wanted), "name_id", "copy_name")
    for side in ("src", "dst"):
        agents = context.agents.select(
            pl.col("id").alias(f"{side}_agent_id"),
            "part",
            pl.col("type").alias(f"{side}_type"),
            pl.when(pl.col("type") == "GPU").then("type_index").alias(side),
        )
        frame = frame.join(agents, on=[f"{side}_agent_id", "part"], how="left")
    named = (
        pl.col("copy_name")
        .str.to_uppercase()
        .str.extract(r"(HOST_TO_DEVICE|DEVICE_TO_HOST|DEVICE_TO_DEVICE|HOST_TO_HOST)")
    )
    direction = pl.coalesce(
        named.replace_strict(DIRECTION_OF_NAME, default=None, return_dtype=TEXT),
        pl.concat_str("src_type", pl.lit(">"), "dst_type").replace_strict(
            DIRECTION_OF_AGENTS, default=None, return_dtype=TEXT
        ),
    )
    frame = frame.with_columns(direction=direction)
    between = (pl.col("direction") == "d2d") & (pl.col("src") != pl.col("dst"))
    frame = frame.with_columns(
        kind=pl.lit("copy"),
        direction=pl.when(between).then(pl.lit("p2p")).otherwise("direction").cast(pl.Enum(DIRECTIONS)),
        device=pl.when(pl.col("direction") == "h2d").then("dst").otherwise("src"),
        peer_device=pl.when(between).then("dst"),
        source_memory=pl.when(pl.col("direction").is_in(["d2h", "d2d"])).then(pl.lit("device")),
        destination_memory=pl.when(pl.col("direction").is_in(["h2d", "d2d"])).then(pl.lit("device")),
        bytes="size",
        stream=pl.coalesce("stream_id", "queue_id"),
        copy_count=pl.lit(1),
    )
    unknown = frame.filter(pl.col("direction").is_null()).height
    omissions.add_if(
        unknown,
        "unknown-direction",
        "copies whose direction the trace does not say: counted, with no direction",
    )
    return conform(frame, OPERATIONS)


def _calls_and_markers(context: _Context) -> tuple[pl.DataFrame, pl.DataFrame]:
    frame = context.text(context.rows("rocpd_region", ints("name_id")), "name_id", "name")
    frame = context.text(frame, "category_id", "category")
    threads = _lookup(context.tables, "rocpd_info_thread", ints("id tid")).rename({"tid": "thread"})
    frame = frame.join(threads, left_on=["tid", "part"], right_on=["id", "part"], how="left").with_columns(
        thread=pl.coalesce("thread", "tid")
    )
    marked = pl.col("category").str.contains("MARKER").fill_null(False)
    plain = api_calls.plain_name(pl.col("name").fill_null("(unnamed call)"))
    calls = frame.filter(~marked).with_columns(name=plain, waits_for=api_calls.waits_for(plain))
    return conform(calls, CALLS), conform(frame.filter(marked), MARKERS)
