"""Databases of AMD's profilers: rocpd of rocprofv3 (schema 3, and 4 with its table of timestamps), and RPD.

The tables of rocpd carry a unique suffix, one set a process, and plainly named views unite them. Views are not
run: the tables are read and united here.
"""

from __future__ import annotations

import re

import polars as pl

from busfare.trace import api_calls
from busfare.trace.launches import grid_side
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.tables import TEXT, TableSource, ints, meant, texts
from busfare.trace.tables import (
    CALLS,
    DEVICES,
    DIRECTIONS,
    LAUNCH_SHAPE,
    MARKERS,
    OPERATIONS,
    Schema,
    conform,
)

SUFFIX = r"(_[0-9a-fA-F_-]+)?"
ROCPD_KERNELS = "rocpd_kernel_dispatch"
RPD_TABLES = {"rocpd_op", "rocpd_api", "rocpd_string"}

#: rocpd: names of copies, and the types of the agents that they are between.
DIRECTION_OF_NAME = {
    "HOST_TO_DEVICE": "h2d",
    "DEVICE_TO_HOST": "d2h",
    "DEVICE_TO_DEVICE": "d2d",
    "HOST_TO_HOST": "h2h",
}
DIRECTION_OF_AGENTS = {"CPU>GPU": "h2d", "GPU>CPU": "d2h", "GPU>GPU": "d2d", "CPU>CPU": "h2h"}
#: Of a dispatch and of its kernel; vector registers, ordinary and accumulating ones, which share a file since CDNA 2.
LAUNCH = ints(
    "grid_size_x grid_size_y grid_size_z workgroup_size_x workgroup_size_y workgroup_size_z group_segment_size"
)
REGISTERS = ints("arch_vgpr_count accum_vgpr_count")

#: RPD: hipMemcpyKind, and types of operations.
DIRECTION_OF = {0: "h2h", 1: "h2d", 2: "d2h", 3: "d2d"}
DIRECTION_OF_TYPE = {"CopyHostToDevice": "h2d", "CopyDeviceToHost": "d2h", "CopyDeviceToDevice": "d2d"}
KERNEL_TYPE = "KernelExecution"
GRAPH_LAUNCH = "hipGraphLaunch"
MARKER_CALL = "UserMarker"
#: Calls that take the grid in work-items.
CALLS_IN_ITEMS = "^hip(Hcc|Ext)ModuleLaunchKernel"
#: The tracer's own work, recorded among the program's calls.
TRACER_CALLS = (
    r"^(ApiTable|CopyApiTable|KernelApiTable|MonitorTable|OpTable|StringTable)::"
    r"|^hcc_activity_callback$|^rpdflush$"
)


def matches(tables: TableSource) -> bool:
    """Whether these tables are a database of rocprofv3, or an RPD file."""
    return tables.names >= RPD_TABLES or _is_rocpd(tables)


def _is_rocpd(tables: TableSource) -> bool:
    return any(re.fullmatch(ROCPD_KERNELS + SUFFIX, name) for name in tables.names)


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads either, with its launches or not. Raises InputError if a table that is there cannot be read."""
    return (_Rocpd if _is_rocpd(tables) else _Rpd)(tables).trace(launches)


class _File:
    """What both have in common: texts by their ids, and names of tables and columns."""

    def __init__(self, tables: TableSource) -> None:
        self.tables, self.omissions = tables, Omissions()
        self.strings = self.lookup("rocpd_string", ints("id") | texts("string"))
        metadata = dict(self.all("rocpd_metadata", texts("tag value")).select("tag", "value").iter_rows())
        self.schema: str | None = metadata.get("schema_version")

    def all(self, name: str, wanted: Schema) -> pl.DataFrame:
        """The rows of `name` under every suffix, which is column `part`: ids are unique only within it."""
        parts = [
            self.tables.read(table, wanted).with_columns(part=pl.lit(found.group(1) or ""))
            for table in sorted(self.tables.names)
            if (found := re.fullmatch(re.escape(name) + SUFFIX, table))
        ]
        return pl.concat(parts) if parts else pl.DataFrame(schema={**wanted, "part": TEXT})

    def lookup(self, name: str, wanted: Schema, id: str = "id") -> pl.DataFrame:
        """The rows of a table that others refer to by `id`: each id once, or a join would multiply rows."""
        return self.all(name, wanted).unique([id, "part"], keep="first", maintain_order=True)

    def joined(self, frame: pl.DataFrame, key: str, to: pl.DataFrame, id: str = "id") -> pl.DataFrame:
        """`frame` with the row of `to` whose `id` is in column `key`; columns that both have, of `to`, as `…_right`."""
        return frame.join(to, left_on=[key, "part"], right_on=[id, "part"], how="left", maintain_order="left")

    def text(self, frame: pl.DataFrame, key: str, name: str) -> pl.DataFrame:
        """`frame` with the text that column `key` numbers as column `name`."""
        return self.joined(frame, key, self.strings.rename({"string": name}))

    def copies(
        self, frame: pl.DataFrame, source: str, destination: str, host: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Copies with what directions and GPUs mean: `p2p`, and kinds of memory, that of the host as `host` says."""
        host = pl.lit(None) if host is None else host
        direction, ends = pl.col("direction"), (pl.col(source), pl.col(destination))
        between = (direction == "d2d") & (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1])
        self.omissions.add_if(
            frame.filter((pl.col("kind") == "copy") & direction.is_null()).height,
            "unknown-direction",
            "copies whose direction the trace does not say: counted, with no direction",
        )
        return frame.with_columns(
            direction=pl.when(between).then(pl.lit("p2p")).otherwise(direction).cast(pl.Enum(DIRECTIONS)),
            peer_device=pl.when(between).then(destination),
            source_memory=pl.when(direction.is_in(["d2h", "d2d"]))
            .then(pl.lit("device"))
            .when(direction == "h2d")
            .then(host),
            destination_memory=pl.when(direction.is_in(["h2d", "d2d"]))
            .then(pl.lit("device"))
            .when(direction == "d2h")
            .then(host),
            bytes="size",
            copy_count=pl.lit(1),
        )

    def calls(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows of `calls`."""
        plain = api_calls.plain_name(pl.col("name").fill_null("(unnamed call)"))
        return conform(frame.with_columns(name=plain, waits_for=api_calls.waits_for(plain)), CALLS)


class _Rocpd(_File):
    """A database of rocprofv3."""

    def __init__(self, tables: TableSource) -> None:
        super().__init__(tables)
        agents = self.lookup("rocpd_info_agent", ints("id type_index") | texts("type name product_name"))
        self.agents = agents.with_columns(pl.col("type").str.to_uppercase())
        self.events = self.lookup("rocpd_event", ints("id stack_id category_id"))
        self.processes = self.lookup("rocpd_info_process", ints("id pid")).rename({"pid": "process"})

    def trace(self, launches: bool) -> Trace:
        operations = pl.concat([self._kernels(launches), self._copies()], how="diagonal")
        if (operations["kind"] == "copy").any():
            self.omissions.add(
                "unknown-memory",
                "rocprofv3 does not record whether host memory was pinned: advice on pinning cannot be given",
            )
        regions = self._regions()
        marked = pl.col("category").str.contains("MARKER").fill_null(False)
        return Trace(
            path=self.tables.path,
            format="rocpd",
            producer=f"rocprofv3 (rocpd schema {self.schema or 'unknown'})",
            operations=operations,
            calls=self.calls(regions.filter(~marked)),
            markers=conform(regions.filter(marked), MARKERS),
            devices=self._devices(),
            omissions=self.omissions.list(),
        )

    def _timed(self, table: str, wanted: Schema) -> pl.DataFrame:
        """Rows of a timed table, with start_ns, end_ns, process, correlation and the suffix's `part`."""
        frame = self.all(table, {**ints("start end start_id end_id track_id pid tid event_id"), **wanted})
        if frame["start"].is_null().all() and frame["start_id"].is_not_null().any():
            frame = self._with_timestamps(frame)
        frame = self.joined(frame, "event_id", self.events)
        frame = self.joined(frame, "pid", self.processes)
        return frame.with_columns(
            start_ns="start", end_ns="end", correlation="stack_id", process=pl.coalesce("process", "pid")
        )

    def _with_timestamps(self, frame: pl.DataFrame) -> pl.DataFrame:
        times = self.lookup("rocpd_timestamp", ints("id value"))
        for side in ("start", "end"):
            frame = self.joined(frame.drop(side), f"{side}_id", times.rename({"value": side}))
        tracked = ints("pid tid agent_id queue_id stream_id")
        both = [name for name in tracked if name in frame.columns]
        frame = self.joined(frame, "track_id", self.lookup("rocpd_track", ints("id") | tracked))
        return frame.with_columns(pl.coalesce(name, f"{name}_right").alias(name) for name in both)

    def _kernels(self, launches: bool) -> pl.DataFrame:
        of_launch, of_symbol = (LAUNCH, REGISTERS) if launches else ({}, {})
        frame = self._timed(ROCPD_KERNELS, ints("agent_id kernel_id queue_id stream_id") | of_launch)
        wanted = ints("id") | texts("display_name kernel_name") | of_symbol
        frame = self.joined(frame, "kernel_id", self.lookup("rocpd_info_kernel_symbol", wanted))
        frame = self.joined(frame, "agent_id", self.agents.select("id", "part", device="type_index"))
        if launches:
            sides = {side: (f"grid_size_{side}", f"workgroup_size_{side}") for side in "xyz"}
            frame = frame.with_columns(
                *(grid_side(*both).alias(f"grid_{side}") for side, both in sides.items()),
                *(pl.col(group).alias(f"block_{side}") for side, (_, group) in sides.items()),
                registers=pl.col("arch_vgpr_count") + pl.col("accum_vgpr_count").fill_null(0),
                shared_bytes="group_segment_size",
            )
        frame = frame.with_columns(
            kind=pl.lit("kernel"),
            name=pl.coalesce("display_name", "kernel_name").fill_null("(unnamed kernel)"),
            stream=pl.coalesce("stream_id", "queue_id"),
        )
        return conform(frame, OPERATIONS, LAUNCH_SHAPE)

    def _copies(self) -> pl.DataFrame:
        wanted = ints("name_id src_agent_id dst_agent_id size queue_id stream_id")
        frame = self.text(self._timed("rocpd_memory_copy", wanted), "name_id", "copy_name")
        for side in ("src", "dst"):
            ordinal = pl.when(pl.col("type") == "GPU").then("type_index").alias(side)
            agents = self.agents.select("id", "part", ordinal, pl.col("type").alias(f"{side}_type"))
            frame = self.joined(frame, f"{side}_agent_id", agents)
        named = pl.col("copy_name").str.to_uppercase().str.extract(f"({'|'.join(DIRECTION_OF_NAME)})")
        frame = frame.with_columns(named=named, agents=pl.concat_str("src_type", pl.lit(">"), "dst_type"))
        directions = (
            meant("named", DIRECTION_OF_NAME, DIRECTIONS),
            meant("agents", DIRECTION_OF_AGENTS, DIRECTIONS),
        )
        frame = frame.with_columns(
            kind=pl.lit("copy"),
            stream=pl.coalesce("stream_id", "queue_id"),
            direction=pl.coalesce(*directions),
        )
        device = pl.when(pl.col("direction") == "h2d").then("dst").otherwise("src")
        return conform(self.copies(frame.with_columns(device=device), "src", "dst"), OPERATIONS)

    def _regions(self) -> pl.DataFrame:
        """Calls and markers, which their category tells apart."""
        frame = self.text(self._timed("rocpd_region", ints("name_id")), "name_id", "name")
        frame = self.text(frame, "category_id", "category")
        threads = self.lookup("rocpd_info_thread", ints("id tid")).rename({"tid": "thread"})
        return self.joined(frame, "tid", threads).with_columns(thread=pl.coalesce("thread", "tid"))

    def _devices(self) -> pl.DataFrame:
        gpus = self.agents.filter(pl.col("type") == "GPU").unique("type_index")
        gpus = gpus.sort("type_index", nulls_last=True).with_columns(
            device="type_index", name=pl.coalesce("product_name", "name")
        )
        return conform(gpus, DEVICES)


class _Rpd(_File):
    """An RPD file."""

    def trace(self, launches: bool) -> Trace:
        api = self.lookup("rocpd_api", ints("id pid tid start end apiName_id args_id"))
        api = self.text(api, "apiName_id", "name").with_columns(
            pl.col("name").fill_null("(unnamed call)"),
            start_ns="start",
            end_ns="end",
            process="pid",
            thread="tid",
            correlation="id",
        )
        operations = self._operations(api, launches)
        name = pl.col("name")
        own = api.filter(name.str.contains(TRACER_CALLS))
        what = "calls of the tracer's own among the program's: left out"
        self.omissions.add_if(own.height, "tracer-calls", what)
        theirs = api.filter(~name.str.contains(TRACER_CALLS))
        marked = self.text(theirs.filter(name == MARKER_CALL).drop("name"), "args_id", "name")
        return Trace(
            path=self.tables.path,
            format="rpd",
            producer="rocmProfileData" + (f" (schema {self.schema})" if self.schema else ""),
            operations=operations,
            calls=self.calls(theirs.filter(name != MARKER_CALL)),
            markers=conform(marked, MARKERS),
            omissions=self.omissions.list(),
        )

    def _operations(self, api: pl.DataFrame, launches: bool) -> pl.DataFrame:
        frame = self.all("rocpd_op", ints("id gpuId queueId start end description_id opType_id"))
        launched = self.lookup("rocpd_api_ops", ints("api_id op_id"), "op_id")
        wanted = ints("api_ptr_id size kind dstDevice srcDevice pinned")
        copied = self.lookup("rocpd_copyapi", wanted, "api_ptr_id").rename({"kind": "copy_kind"})
        frame = self.joined(self.joined(frame, "id", launched, "op_id"), "api_id", copied, "api_ptr_id")
        frame = self.joined(frame, "api_id", api.select("id", "part", "process", call="name"))
        frame = self.text(self.text(frame, "opType_id", "type"), "description_id", "description")
        called = pl.col("type").fill_null("").str
        frame = frame.with_columns(
            kind=pl.when(pl.col("call") == GRAPH_LAUNCH)
            .then(pl.lit("graph"))
            .when(called.starts_with("Copy"))
            .then(pl.lit("copy"))
            .when(called.contains("^(Fill|Memset)"))
            .then(pl.lit("set"))
            .otherwise(pl.lit("kernel")),
            direction=pl.coalesce(
                meant("type", DIRECTION_OF_TYPE, DIRECTIONS), meant("copy_kind", DIRECTION_OF, DIRECTIONS)
            ),
        )
        self._note_unknown(frame)
        frame = self.copies(frame, "srcDevice", "dstDevice", self._host_memory(frame))
        kind, of_copies = pl.col("kind"), ["direction", "source_memory", "destination_memory", "bytes"]
        frame = frame.with_columns(
            pl.when(kind == "copy").then(pl.col(*of_copies, "peer_device", "copy_count")),
            # Queues are numbered; the stream that the program used is a pointer, kept only where it is known.
            stream="queueId",
            name=pl.when(kind != "copy").then(
                pl.col("description").replace("", None).fill_null(pl.col("type"))
            ),
            device="gpuId",
            correlation="api_id",
            graph_node=pl.when(kind == "graph").then("id"),
            start_ns="start",
            end_ns="end",
        )
        return conform(self._with_launch(frame) if launches else frame, OPERATIONS, LAUNCH_SHAPE)

    def _host_memory(self, frame: pl.DataFrame) -> pl.Expr:
        """The kind of the host's memory: pinned where the trace tells it apart."""
        pinned = frame.filter(pl.col("kind") == "copy")["pinned"]
        if (pinned != 0).any():
            told = pl.when(pl.col("pinned") != 0).then(pl.lit("pinned")).otherwise(pl.lit("pageable"))
            return pl.when(pl.col("pinned").is_not_null()).then(told)
        if len(pinned):
            self.omissions.add(
                "unknown-memory",
                "the trace does not say which host memory was pinned: advice on pinning cannot be given",
            )
        return pl.lit(None)

    def _note_unknown(self, frame: pl.DataFrame) -> None:
        graphs = frame.filter(pl.col("kind") == "graph")
        copied = graphs.filter(pl.col("type").str.starts_with("Copy")).height
        self.omissions.add_if(
            graphs.height,
            "opaque-graphs",
            "operations inside graph launches: the trace says when they ran but not what they copied "
            f"({copied} of them are copies); they count as GPU work of kind `graph`, not as kernels or copies",
        )
        self.omissions.add_if(
            frame.filter((pl.col("kind") == "kernel") & pl.col("type").ne_missing(KERNEL_TYPE)).height,
            "unknown-operations",
            "operations that are no kernel, copy or fill: counted as kernels, by their time",
        )

    def _with_launch(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with columns of `LAUNCH_SHAPE`, which stand with the call.

        What the tracer took from HIP's calls counts the grid in blocks but for two of them, and names dynamic shared
        memory alone; what it took from dispatches counts work-items, of whole groups, and names all. The file does not
        say which: it is of dispatches if no grid has a part of a group.
        """
        sides = [(f"grid{side}", f"workgroup{side}", side.lower()) for side in "XYZ"]
        wanted = ints(" ".join(name for grid, group, _ in sides for name in (grid, group)))
        kernels = self.lookup("rocpd_kernelapi", ints("api_ptr_id groupSegmentSize") | wanted, "api_ptr_id")
        frame = self.joined(frame, "api_id", kernels, "api_ptr_id")
        in_items = pl.col("call").str.contains(CALLS_IN_ITEMS).fill_null(False)
        whole = pl.all_horizontal(pl.col(grid) % pl.col(group) == 0 for grid, group, _ in sides)
        dispatched = bool(frame.select((whole | in_items).all()).item())
        in_items |= pl.lit(dispatched)
        return frame.with_columns(
            *(
                pl.when(in_items).then(grid_side(grid, group)).otherwise(pl.col(grid)).alias(f"grid_{side}")
                for grid, group, side in sides
            ),
            *(pl.col(group).alias(f"block_{side}") for _, group, side in sides),
            shared_bytes=pl.when(pl.lit(dispatched)).then("groupSegmentSize"),
        )
