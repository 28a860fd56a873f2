"""Databases of AMD's profilers: rocpd of rocprofv3 (schema 3, and 4 with its tracks and timestamps), and RPD.

The tables of rocpd carry a unique suffix, one set a process, and plainly named views unite them. Views are not
run: the tables are read and united here.
"""

import re
from collections.abc import Iterable

import polars as pl

from busfare.trace.launches import grids_in_blocks
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers.cupti import direction_named
from busfare.trace.readers.rocprof.records import Records, calls, copies, marked, of_agents
from busfare.trace.readers.tables import INT, TEXT, TableSource, ints, meant, texts
from busfare.trace.tables import DEVICES, DIRECTIONS, LAUNCH_SHAPE, MARKERS, OPERATIONS, Schema, conform
from busfare.trace.words import GRID_IN_ITEMS

#: What rocprofv3 puts behind the names of its tables, one set of them a process.
SUFFIX = r"(_[0-9a-fA-F_-]+)?"
ROCPD_KERNELS = "rocpd_kernel_dispatch"
#: Of a dispatch and of its kernel.
SIDES = {
    f"{theirs}_size_{side}": f"{ours}_{side}"
    for theirs, ours in (("grid", "grid"), ("workgroup", "block"))
    for side in "xyz"
}
REGISTERS = {"arch_vgpr_count": "vgprs", "accum_vgpr_count": "accumulating"}

#: RPD: hipMemcpyKind, and types of operations as roctracer, ROCprofiler-SDK and CUPTI give them.
DIRECTION_OF = {0: "h2h", 1: "h2d", 2: "d2h", 3: "d2d"}
COPY_TYPES = r"^(Copy|Memcpy|MEMORY_COPY|(HOST|DEVICE)_TO_)"
#: Of copies that name the nodes of their agents, and neither GPU nor queue [rocmProfileData: RocprofDataSource.cpp].
TYPES_BY_NODE = r"^(MEMORY_COPY|(HOST|DEVICE)_TO_)"
TIMES = {"start": "start_ns", "end": "end_ns"}
KERNEL_TYPES = ["KernelExecution", "Kernel", "ConcurrentKernel"]
GRAPH_LAUNCH = "hipGraphLaunch"
MARKER_CALL = "UserMarker"
#: The tracer's own work, recorded among the program's calls.
TRACER_CALLS = r"^(rpd_tracer|\w+Table|\w+DataSource)::|^hcc_activity_callback$|^rpdflush$"


def is_rocpd(names: Iterable[str]) -> bool:
    """Whether tables of these names are rocprofv3's."""
    return any(re.fullmatch(ROCPD_KERNELS + SUFFIX, name) for name in names)


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads either, with its launches or not. Raises InputError if a table that is there cannot be read."""
    return (_Rocpd if is_rocpd(tables.names) else _Rpd)(tables).trace(launches)


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
            self.tables.read(table, wanted).with_columns(part=pl.lit(matched.group(1) or ""))
            for table in sorted(self.tables.names)
            if (matched := re.fullmatch(re.escape(name) + SUFFIX, table))
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


class _Rocpd(_File):
    """A database of rocprofv3."""

    def __init__(self, tables: TableSource) -> None:
        super().__init__(tables)
        agents = self.lookup("rocpd_info_agent", ints("id type_index") | texts("type name product_name"))
        self.agents = agents.with_columns(pl.col("type").str.to_uppercase())
        self.events = self.lookup("rocpd_event", ints("id stack_id parent_stack_id category_id"))
        self.processes = self.lookup("rocpd_info_process", ints("id pid")).rename({"pid": "process"})

    def trace(self, launches: bool) -> Trace:
        producer = f"rocprofv3 (rocpd schema {self.schema or 'unknown'})"
        operations = self._kernels(launches), self._copies()
        records = Records(*operations, self._regions(), self._allocations(), self._devices())
        return records.trace(self.tables.path, "rocpd", producer, self.omissions, launches)

    def _timed(self, table: str, wanted: Schema) -> pl.DataFrame:
        """Rows of a timed table, with start_ns, end_ns, process, correlation and the suffix's `part`."""
        frame = self.all(table, {**ints("start end start_id end_id track_id pid tid event_id"), **wanted})
        if frame["start"].is_null().all() and frame["start_id"].is_not_null().any():
            times = self.lookup("rocpd_timestamp", ints("id value"))
            for side in ("start", "end"):
                frame = self.joined(frame.drop(side), f"{side}_id", times.rename({"value": side}))
        if frame["track_id"].is_not_null().any():
            tracked = ints("pid tid agent_id queue_id stream_id")
            shared = [name for name in tracked if name in frame.columns]
            frame = self.joined(frame, "track_id", self.lookup("rocpd_track", ints("id") | tracked))
            frame = frame.with_columns(pl.coalesce(name, f"{name}_right").alias(name) for name in shared)
        frame = self.joined(frame, "event_id", self.events)
        frame = self.joined(frame, "pid", self.processes)
        process = pl.coalesce("process", "pid")
        return frame.rename(TIMES).with_columns(correlation="stack_id", process=process)

    def _categorised(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with the text of its category, which 4.1 lists by themselves."""
        listed = self.lookup("rocpd_info_category", ints("id") | texts("name"))
        if listed.is_empty():
            return self.text(frame, "category_id", "category")
        return self.joined(frame, "category_id", listed.rename({"name": "category"}))

    def _kernels(self, launches: bool) -> pl.DataFrame:
        of_launch = dict.fromkeys([*SIDES, "group_segment_size"], INT) if launches else {}
        of_symbol = dict.fromkeys(REGISTERS, INT) if launches else {}
        wanted = ints("agent_id kernel_id queue_id stream_id dispatch_id replay_pass")
        frame = self._once(self._timed(ROCPD_KERNELS, wanted | of_launch))
        wanted = ints("id") | texts("display_name kernel_name") | of_symbol
        frame = self.joined(frame, "kernel_id", self.lookup("rocpd_info_kernel_symbol", wanted))
        frame = self.joined(frame, "agent_id", self.agents.select("id", "part", device="type_index"))
        name, stream = pl.coalesce("display_name", "kernel_name"), pl.coalesce("stream_id", "queue_id")
        frame = frame.with_columns(name=name, stream=stream)
        return frame.rename(SIDES | REGISTERS | {"group_segment_size": "shared_bytes"}, strict=False)

    def _once(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Dispatches without those that the profiler repeated to count more than fits at once."""
        if frame["replay_pass"].is_null().all():
            return frame
        of_dispatch = pl.col("replay_pass").min().over("part", "process", "dispatch_id")
        repeated = (pl.col("replay_pass") > of_dispatch).fill_null(False)
        self.omissions.count("repeated-kernels", frame.filter(repeated).height)
        return frame.filter(~repeated)

    def _copies(self) -> pl.DataFrame:
        wanted = ints("name_id src_agent_id dst_agent_id size queue_id stream_id src_address dst_address")
        frame = self.text(self._timed("rocpd_memory_copy", wanted), "name_id", "name")
        agents = self.agents.with_columns(device="type_index")
        for side, end in (("src", "source"), ("dst", "destination")):
            frame = of_agents(frame, end, agents, {"id": f"{side}_agent_id", "part": "part"})
        addresses = {"src_address": "source_address", "dst_address": "destination_address"}
        return frame.with_columns(stream=pl.coalesce("stream_id", "queue_id")).rename(addresses)

    def _allocations(self) -> pl.DataFrame:
        frame = self._timed("rocpd_memory_allocate", ints("agent_id address size") | texts("type level"))
        frame = self.joined(frame, "agent_id", self.agents.select("id", "part", agent_type="type"))
        given_back = pl.col("type").str.to_uppercase() == "FREE"
        real = pl.col("level").str.to_uppercase().ne_missing("SCRATCH")
        return self._threads(frame.filter(real)).with_columns(size=pl.when(~given_back).then("size"))

    def _regions(self) -> pl.DataFrame:
        """Calls and markers, which their category tells apart."""
        lasting = self.text(self._timed("rocpd_region", ints("name_id")), "name_id", "name")
        # What took no time: samples. Only the messages of marks are told of them, not which call one was.
        instants = self._timed("rocpd_sample", ints("timestamp name_id")).drop_nulls("timestamp")
        instants = self._categorised(self.text(instants, "name_id", "name"))
        instants = instants.with_columns(start_ns="timestamp", end_ns="timestamp")
        marks = instants.filter(marked(pl.col("category")))
        frame = pl.concat([self._categorised(lasting), marks], how="diagonal")
        return self._threads(self._with_messages(frame.with_columns(ancestor="parent_stack_id")))

    def _with_messages(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with what the program said as the name of a marker; else that is the name of ROCTx's function."""
        if not frame.select(marked(pl.col("category")).any()).item():
            return frame
        messages = self.lookup("rocpd_event", ints("id") | texts("extdata")).select(
            "id", "part", message=pl.col("extdata").str.json_path_match("$.message").replace("", None)
        )
        spoken = pl.when(marked(pl.col("category"))).then("message")
        return self.joined(frame, "event_id", messages).with_columns(name=pl.coalesce(spoken, "name"))

    def _threads(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with the number that the system gave the thread."""
        threads = self.lookup("rocpd_info_thread", ints("id tid")).rename({"tid": "thread"})
        return self.joined(frame, "tid", threads).with_columns(thread=pl.coalesce("thread", "tid"))

    def _devices(self) -> pl.DataFrame:
        gpus = self.agents.filter(type="GPU").unique("type_index").sort("type_index", nulls_last=True)
        name = pl.coalesce("product_name", "name")
        return conform(gpus.with_columns(device="type_index", name=name), DEVICES)


class _Rpd(_File):
    """An RPD file."""

    def trace(self, launches: bool) -> Trace:
        api = self.lookup("rocpd_api", ints("id pid tid start end apiName_id args_id"))
        api = self.text(api, "apiName_id", "name").with_columns(pl.col("name").fill_null("(unnamed call)"))
        api = api.rename(TIMES | {"pid": "process", "tid": "thread"}).with_columns(correlation="id")
        operations = self._operations(api, launches)
        name = pl.col("name")
        of_tracer = api.filter(name.str.contains(TRACER_CALLS))
        self.omissions.count("tracer-calls", of_tracer.height)
        theirs = api.filter(~name.str.contains(TRACER_CALLS))
        marks = theirs.filter(name == MARKER_CALL).drop("name")
        # What they say stands since schema 3 in a table of its own, with all arguments.
        spoken = self.strings
        if "rocpd_ustring" in self.tables.names:
            spoken = self.lookup("rocpd_ustring", ints("id") | texts("string"))
        marks = self.joined(marks, "args_id", spoken.rename({"string": "name"}))
        return Trace(
            path=self.tables.path,
            format="rpd",
            producer="rocmProfileData" + (f" (schema {self.schema})" if self.schema else ""),
            operations=operations,
            calls=calls(theirs.filter(name != MARKER_CALL)),
            markers=conform(marks, MARKERS),
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
        # The record is one a call: of several copies it does not say which size each had.
        alone = pl.len().over("part", "api_id", called.contains(COPY_TYPES)) == 1
        copy = pl.when(called.contains(COPY_TYPES)).then(pl.lit("copy"))
        typed = copy.when(called.contains("^(Fill|Memset)")).then(pl.lit("set")).otherwise(pl.lit("kernel"))
        by_call = meant("copy_kind", DIRECTION_OF, DIRECTIONS)
        frame = frame.with_columns(
            size=pl.when(alone).then("size"),
            direction=pl.coalesce(direction_named(pl.col("type")), by_call),
            kind=pl.when(pl.col("call") == GRAPH_LAUNCH).then(pl.lit("graph")).otherwise(typed),
        )
        self._note_unknown(frame)
        frame = self._placed(frame.rename({"srcDevice": "source", "dstDevice": "destination"}))
        frame = copies(frame, self.omissions, self._host_memory(frame))
        kind, of_copies = pl.col("kind"), ["direction", "source_memory", "destination_memory", "bytes"]
        frame = frame.with_columns(
            pl.when(kind == "copy").then(pl.col(*of_copies, "peer_device", "copy_count")),
            # Queues are numbered; the stream that the program used is a pointer, kept only where it is known.
            stream="queueId",
            name=pl.when(kind != "copy").then(pl.coalesce(pl.col("description").replace("", None), "type")),
            device="gpuId",
            correlation="api_id",
            graph_node=pl.when(kind == "graph").then("id"),
        ).rename(TIMES)
        return conform(self._with_launch(frame) if launches else frame, OPERATIONS, LAUNCH_SHAPE)

    def _placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with the GPUs of copies that only name nodes, CPUs among them. The file lists no agents, but kernels name
        GPUs: where copies are of as many, both are in order of one another.
        """
        by_node = pl.col("type").str.contains(TYPES_BY_NODE).fill_null(False) & (pl.col("kind") == "copy")
        placed = frame.filter(by_node)
        if placed.is_empty():
            return frame
        ends = (("source", ["d2h", "d2d"]), ("destination", ["h2d", "d2d"]))
        nodes = pl.concat(placed.filter(pl.col("direction").is_in(of))[end].alias("node") for end, of in ends)
        gpus = frame.filter(kind="kernel")["gpuId"].drop_nulls().unique().sort()
        nodes = nodes.drop_nulls().unique().sort()
        gpu_of = dict(zip(nodes, gpus, strict=True)) if len(nodes) == len(gpus) else {}
        self.omissions.count("unknown-gpus", 0 if gpu_of else placed.height)
        gpus_of = pl.col("source", "destination").replace_strict(gpu_of, default=None, return_dtype=INT)
        frame = frame.with_columns(pl.when(by_node).then(gpus_of).otherwise(pl.col("source", "destination")))
        gpu = pl.when(by_node, direction="h2d").then("destination").when(by_node).then("source")
        return frame.with_columns(gpuId=gpu.otherwise("gpuId"), queueId=pl.when(~by_node).then("queueId"))

    def _host_memory(self, frame: pl.DataFrame) -> pl.Expr:
        """The kind of the host's memory: pinned where the trace tells it apart."""
        pinned = frame.filter(pl.col("kind") == "copy")["pinned"]
        if (pinned != 0).any():
            memory = pl.when(pl.col("pinned") != 0).then(pl.lit("pinned")).otherwise(pl.lit("pageable"))
            return pl.when(pl.col("pinned").is_not_null()).then(memory)
        if len(pinned):
            self.omissions.add("unknown-memory/all")
        return pl.lit(None)

    def _note_unknown(self, frame: pl.DataFrame) -> None:
        graphs = frame.filter(pl.col("kind") == "graph")
        copied = graphs.filter(pl.col("type").str.contains(COPY_TYPES)).height
        self.omissions.count("opaque-graphs/amd", graphs.height, copied=copied)
        listed = pl.col("type").is_in(KERNEL_TYPES).fill_null(False)
        self.omissions.count("unknown-operations", frame.filter(~listed, kind="kernel").height)

    def _with_launch(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with columns of `LAUNCH_SHAPE`, which stand with the call.

        What the tracer took from HIP's calls counts the grid in blocks but for two of them, and names dynamic shared
        memory alone; what it took from dispatches counts work-items, of whole groups, and names all. The file does not
        say which: it is of dispatches if no grid has a part of a group.
        """
        sides = {f"grid{side}": f"grid_{side.lower()}" for side in "XYZ"}
        sides |= {f"workgroup{side}": f"block_{side.lower()}" for side in "XYZ"}
        wanted = ints(" ".join(sides))
        kernels = self.lookup("rocpd_kernelapi", ints("api_ptr_id groupSegmentSize") | wanted, "api_ptr_id")
        frame = self.joined(frame, "api_id", kernels.rename(sides), "api_ptr_id")
        in_items = pl.col("call").str.contains(GRID_IN_ITEMS).fill_null(False)
        whole = pl.all_horizontal(pl.col(f"grid_{side}") % pl.col(f"block_{side}") == 0 for side in "xyz")
        dispatched = bool(frame.select((whole | in_items).all()).item())
        frame = grids_in_blocks(frame, in_items | pl.lit(dispatched))
        return frame.with_columns(shared_bytes=pl.when(pl.lit(dispatched)).then("groupSegmentSize"))
