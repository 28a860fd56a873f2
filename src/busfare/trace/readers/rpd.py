"""AMD RPD files (rocmProfileData, SQLite)."""

from __future__ import annotations

import polars as pl

from busfare.trace import api_calls
from busfare.trace.launches import grid_side
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.tables import TableSource, ints, meant, texts
from busfare.trace.tables import CALLS, DIRECTIONS, LAUNCH_SHAPE, MARKERS, OPERATIONS, conform

#: hipMemcpyKind.
DIRECTION_OF = {0: "h2h", 1: "h2d", 2: "d2h", 3: "d2d"}
DIRECTION_OF_TYPE = {"CopyHostToDevice": "h2d", "CopyDeviceToHost": "d2h", "CopyDeviceToDevice": "d2d"}
KERNEL_TYPE = "KernelExecution"
GRAPH_LAUNCH = "hipGraphLaunch"
#: Calls that take the grid in work-items.
CALLS_IN_ITEMS = "^hip(Hcc|Ext)ModuleLaunchKernel"
#: The tracer's own work, recorded among the program's calls.
TRACER_CALLS = (
    r"^(ApiTable|CopyApiTable|KernelApiTable|MonitorTable|OpTable|StringTable)::"
    r"|^hcc_activity_callback$|^rpdflush$"
)
#: Columns that only copies have.
OF_COPIES = ("direction", "source_memory", "destination_memory", "bytes", "peer_device", "copy_count")
MARKER_CALL = "UserMarker"


def matches(tables: TableSource) -> bool:
    """Whether these tables are an RPD file."""
    return {"rocpd_op", "rocpd_api", "rocpd_string"} <= tables.names


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads an RPD file, with its launches or not. Raises InputError if a table that is there cannot be read."""
    omissions = Omissions()
    strings = tables.read("rocpd_string", ints("id") | texts("string")).unique("id", keep="first")
    version = dict(tables.read("rocpd_metadata", texts("tag value")).iter_rows()).get("schema_version")
    api = tables.read(
        "rocpd_api",
        ints("id pid tid start end apiName_id args_id"),
    ).unique("id", keep="first", maintain_order=True)
    api = api.join(
        strings.rename({"id": "apiName_id", "string": "name"}), on="apiName_id", how="left"
    ).with_columns(pl.col("name").fill_null("(unnamed call)"))
    trace = Trace(
        path=tables.path,
        format="rpd",
        producer="rocmProfileData" + (f" (schema {version})" if version else ""),
        operations=_operations(tables, strings, api, omissions, launches),
        calls=_calls(api, omissions),
        markers=_markers(api, strings),
    )
    trace.omissions = omissions.list()
    return trace


def _operations(
    tables: TableSource, strings: pl.DataFrame, api: pl.DataFrame, omissions: Omissions, launches: bool
) -> pl.DataFrame:
    operations = tables.read(
        "rocpd_op",
        ints("id gpuId queueId start end description_id opType_id"),
    )
    launched = tables.read("rocpd_api_ops", ints("api_id op_id")).unique("op_id", keep="first")
    copies = tables.read(
        "rocpd_copyapi",
        ints("api_ptr_id size kind dstDevice srcDevice pinned") | texts("stream"),
    ).unique("api_ptr_id", keep="first")
    frame = (
        operations.join(launched, left_on="id", right_on="op_id", how="left")
        .join(copies, left_on="api_id", right_on="api_ptr_id", how="left")
        .join(api.select("id", process="pid", call="name"), left_on="api_id", right_on="id", how="left")
    )
    for key, text in (("opType_id", "type"), ("description_id", "description")):
        frame = frame.join(strings.rename({"id": key, "string": text}), on=key, how="left")
    called = pl.col("type").fill_null("").str
    frame = frame.with_columns(
        direction=pl.coalesce(
            meant("type", DIRECTION_OF_TYPE, DIRECTIONS), meant("kind", DIRECTION_OF, DIRECTIONS)
        ),
        kind=pl.when(pl.col("call") == GRAPH_LAUNCH)
        .then(pl.lit("graph"))
        .when(called.starts_with("Copy"))
        .then(pl.lit("copy"))
        .when(called.contains("^(Fill|Memset)"))
        .then(pl.lit("set"))
        .otherwise(pl.lit("kernel")),
    )
    _note_unknown(frame, omissions)
    frame = _with_memory(frame, omissions)
    source, destination = pl.col("srcDevice"), pl.col("dstDevice")
    between = (pl.col("direction") == "d2d") & (source >= 0) & (destination >= 0) & (source != destination)
    is_copy = pl.col("kind") == "copy"
    frame = frame.with_columns(
        direction=pl.when(between).then(pl.lit("p2p", pl.Enum(DIRECTIONS))).otherwise("direction"),
        peer_device=pl.when(between).then("dstDevice"),
        bytes="size",
        copy_count=pl.lit(1),
        # Queues are numbered; the stream that the program used is a pointer, kept only where it is known.
        stream="queueId",
        name=pl.when(~is_copy).then(pl.col("description").replace("", None).fill_null(pl.col("type"))),
        device="gpuId",
        correlation="api_id",
        graph_node=pl.when(pl.col("kind") == "graph").then("id"),
        start_ns="start",
        end_ns="end",
    )
    if launches:
        frame = _with_launch(frame, tables)
    return conform(frame.with_columns(pl.when(is_copy).then(pl.col(OF_COPIES))), OPERATIONS, LAUNCH_SHAPE)


def _with_launch(frame: pl.DataFrame, tables: TableSource) -> pl.DataFrame:
    """`frame` with columns of `LAUNCH_SHAPE`, which stand with the call.

    What the tracer took from HIP's calls counts the grid in blocks but for two of them, and names dynamic shared memory
    alone; what it took from dispatches counts work-items, of whole groups, and names all. The file does not say which: it
    is of dispatches if no grid has a part of a group.
    """
    sides = [(f"grid{side}", f"workgroup{side}", side.lower()) for side in "XYZ"]
    wanted = ints(" ".join(name for grid, group, _ in sides for name in (grid, group)))
    kernels = tables.read("rocpd_kernelapi", ints("api_ptr_id groupSegmentSize") | wanted)
    frame = frame.join(
        kernels.unique("api_ptr_id", keep="first"),
        left_on="api_id", right_on="api_ptr_id", how="left", maintain_order="left",
    )  # fmt: skip
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


def _with_memory(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """`frame` with the memory kinds that a direction means; the host's is pinned where the trace tells it apart."""
    pinned = frame.filter(pl.col("kind") == "copy")["pinned"]
    known = bool((pinned != 0).any())
    host = pl.when(known & pl.col("pinned").is_not_null()).then(
        pl.when(pl.col("pinned") != 0).then(pl.lit("pinned")).otherwise(pl.lit("pageable"))
    )
    if len(pinned) and not known:
        omissions.add(
            "unknown-memory",
            "the trace does not say which host memory was pinned: advice on pinning cannot be given",
        )
    direction = pl.col("direction")
    return frame.with_columns(
        pl.when(direction.is_in(device))
        .then(pl.lit("device"))
        .when(direction == of_host)
        .then(host)
        .alias(memory)
        for memory, device, of_host in (
            ("source_memory", ["d2h", "d2d"], "h2d"),
            ("destination_memory", ["h2d", "d2d"], "d2h"),
        )
    )


def _note_unknown(frame: pl.DataFrame, omissions: Omissions) -> None:
    graphs = frame.filter(pl.col("kind") == "graph")
    copied = graphs.filter(pl.col("type").str.starts_with("Copy")).height
    omissions.add_if(
        graphs.height,
        "opaque-graphs",
        "operations inside graph launches: the trace says when they ran but not what they copied "
        f"({copied} of them are copies); they count as GPU work of kind `graph`, not as kernels or copies",
    )
    omissions.add_if(
        frame.filter((pl.col("kind") == "copy") & pl.col("direction").is_null()).height,
        "unknown-direction",
        "copies whose direction the trace does not say: counted, with no direction",
    )
    omissions.add_if(
        frame.filter((pl.col("kind") == "kernel") & pl.col("type").ne_missing(KERNEL_TYPE)).height,
        "unknown-operations",
        "operations that are no kernel, copy or fill: counted as kernels, by their time",
    )


def _calls(api: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    own = pl.col("name").str.contains(TRACER_CALLS)
    omissions.add_if(
        api.filter(own).height, "tracer-calls", "calls of the tracer's own among the program's: left out"
    )
    plain = api_calls.plain_name(pl.col("name"))
    calls = api.filter(~own & (pl.col("name") != MARKER_CALL)).with_columns(
        name=plain, waits_for=api_calls.waits_for(plain)
    )
    return conform(
        calls.rename(
            {"start": "start_ns", "end": "end_ns", "pid": "process", "tid": "thread", "id": "correlation"}
        ),
        CALLS,
    )


def _markers(api: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    marked = api.filter(pl.col("name") == MARKER_CALL).drop("name")
    marked = marked.join(strings.rename({"id": "args_id", "string": "name"}), on="args_id", how="left")
    return conform(
        marked.rename({"start": "start_ns", "end": "end_ns", "pid": "process", "tid": "thread"}), MARKERS
    )
