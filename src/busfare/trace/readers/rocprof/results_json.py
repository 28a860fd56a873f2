"""JSON of rocprofv3 (`--output-format json`): one object a process, its records in `buffer_records`.

Fields are those that the serialisation of ROCprofiler-SDK writes [rocprofiler-sdk: cxx/serialization, generateJSON.cpp],
of ROCm 6.2 to 7.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.rocprof.records import ALLOCATIONS, COPIES, KERNELS, REGIONS, Records, of_agents
from busfare.trace.readers.tables import INT, TEXT, ints, texts
from busfare.trace.tables import DEVICES, conform

#: The columns of a table, and where in the file's objects each stands.
Paths = dict[str, str]
#: What all records have. Times in ns.
TIMED: Paths = {
    "start_ns": "start_timestamp",
    "end_ns": "end_timestamp",
    "correlation": "correlation_id.internal",
    "ancestor": "correlation_id.ancestor",
    "of_kind": "kind",
    "operation": "operation",
    "thread": "thread_id",
    "stream": "stream_id.handle",  # since ROCm 6.4
}
RECORDS: dict[str, Paths] = {
    "kernel_dispatch": TIMED
    | {
        "agent": "dispatch_info.agent_id.handle",
        "queue": "dispatch_info.queue_id.handle",
        "kernel": "dispatch_info.kernel_id",
        "shared_bytes": "dispatch_info.group_segment_size",
        **{f"grid_{side}": f"dispatch_info.grid_size.{side}" for side in "xyz"},
        **{f"block_{side}": f"dispatch_info.workgroup_size.{side}" for side in "xyz"},
    },
    "memory_copy": TIMED
    | {
        "source_agent": "src_agent_id.handle",
        "destination_agent": "dst_agent_id.handle",
        "source_address": "src_address",
        "destination_address": "dst_address",
        "size": "bytes",
    },
    "memory_allocation": TIMED
    | {"agent": "agent_id.handle", "address": "address", "size": "allocation_size"},
    **dict.fromkeys(("hip_api", "hsa_api", "rccl_api", "marker_api"), TIMED),
}
AGENTS: Paths = {
    "agent": "id.handle", "type": "type", "node": "node_id", "device": "logical_node_type_id",
    "product": "product_name", "name": "name", "multiprocessors": "cu_count",
    "copy_engines": "num_sdma_engines",
}  # fmt: skip
SYMBOLS: Paths = {
    "kernel": "kernel_id",
    "name": "formatted_kernel_name",
    "mangled": "kernel_name",
    "vgprs": "arch_vgpr_count",
    "accumulating": "accum_vgpr_count",
}
TYPES = {1: "CPU", 2: "GPU"}


class _Handle(msgspec.Struct):
    handle: int | None = None


def _struct(paths: Iterable[str]) -> Any:
    """A Struct of the fields at these paths, each null where an object lacks it."""
    inner: dict[str, list[str]] = {}
    for path in paths:
        field, _, rest = path.partition(".")
        inner.setdefault(field, []).append(rest)
    fields: list[tuple[str, Any, Any]] = []
    for field, rests in inner.items():
        if any(rests):
            kind = _struct(rests)
            fields.append((field, kind, msgspec.field(default_factory=kind)))
        else:
            kind = str if field.endswith("name") else int
            fields.append((field, kind | str | _Handle if "address" in field else kind | None, None))
    return msgspec.defstruct("Object", fields)


class _Kind(msgspec.Struct):
    """A kind of records, and the names of what their `operation` numbers."""

    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct):
    key: int
    value: str


class _Strings(msgspec.Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


def _lists(paths: Mapping[str, Paths]) -> list[tuple[str, Any, Any]]:
    """The fields of a Struct that are lists of objects, each with fields at these paths."""
    return [(name, GenericAlias(list, _struct(of.values())), []) for name, of in paths.items()]


#: An entry of `rocprofiler-sdk-tool`: a process.
Process: Any = msgspec.defstruct("Process", [
    *_lists({"agents": AGENTS, "kernel_symbols": SYMBOLS}),
    *((name, kind, msgspec.field(default_factory=kind)) for name, kind in (
        ("metadata", _struct(["pid"])),
        ("strings", _Strings),
        ("buffer_records", msgspec.defstruct("Records", _lists(RECORDS))),
    )),
])  # fmt: skip


class _File(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[Process] | Process


def read(path: Path, launches: bool = False) -> Trace:
    """Reads the file. Raises InputError if it is cut or damaged: its records cannot be told from their names then."""
    omissions = Omissions()
    text = b"".join(pieces(path, omissions)).removeprefix(b"\xef\xbb\xbf")  # of an editor
    try:
        processes = msgspec.json.decode(text, type=_File).processes
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged or cut JSON of rocprofv3 ({error}); copy it again, or record again, preferably with "
            "`--output-format rocpd`"
        ) from None
    del text
    listed = processes if isinstance(processes, list) else [processes]
    parts = [_records(process, number) for number, process in enumerate(listed)]
    records = Records(*map(pl.concat, zip(*parts, strict=True))) if parts else Records()
    records.devices = records.devices.unique("device", maintain_order=True)
    return records.trace(path, "rocprofv3-json", "rocprofv3 (JSON)", omissions, launches)


def _frame(objects: Sequence[object], paths: Paths) -> pl.DataFrame:
    """A row for each object; null is a number that has no room in its column."""
    made = []
    for name, path in paths.items():
        values = list(map(attrgetter(path), objects))
        if name.endswith("address"):
            values = list(map(_address, values))
        made.append(pl.Series(name, values, dtype=TEXT if path.endswith("name") else INT, strict=False))
    return pl.DataFrame(made)


def _records(process: Process, number: int) -> tuple[pl.DataFrame, ...]:
    """The tables of `Records`, of a process."""
    kinds = process.strings.buffer_records
    rows = [(kind, at, name) for kind, of in enumerate(kinds) for at, name in enumerate(of.operations)]
    operations = pl.DataFrame(rows, ints("of_kind operation") | texts("name"), orient="row")

    def table(*names: str) -> pl.DataFrame:
        """The records of these names; their `name` is that of their operation."""
        frame = pl.concat(_frame(getattr(process.buffer_records, name), RECORDS[name]) for name in names)
        pid = number if process.metadata.pid is None else process.metadata.pid
        frame = frame.with_columns(pl.col("correlation").replace(0, None), process=pl.lit(pid, INT))
        return frame.join(operations, on=["of_kind", "operation"], how="left", maintain_order="left")

    agents = _agents(process)
    symbols = _frame(process.kernel_symbols, SYMBOLS).unique("kernel", keep="first")
    name = pl.coalesce(pl.col("name", "mangled").replace("", None))
    kernels = table("kernel_dispatch").drop("name")
    # Before ROCm 6.4 the queue stands for the program's stream.
    kernels = kernels.join(symbols.with_columns(name=name), on="kernel", how="left", maintain_order="left")
    kernels = of_agents(kernels, "device", agents, {"agent": "agent"})
    kernels = kernels.with_columns(stream=pl.coalesce("stream", "queue"))
    copies = table("memory_copy")
    for end in ("source", "destination"):
        copies = of_agents(copies, end, agents, {"agent": f"{end}_agent"})
    allocations = of_agents(table("memory_allocation"), "device", agents, {"agent": "agent"})
    size = pl.when(~pl.col("name").str.contains("FREE").fill_null(False)).then("size")
    allocations = allocations.with_columns(size=size, agent_type="device_type")
    category_of = {number: of.kind for number, of in enumerate(kinds)}
    category = pl.col("of_kind").replace_strict(category_of, default=None, return_dtype=TEXT)
    called = table("hip_api", "hsa_api", "rccl_api").with_columns(category=category)
    messages = {message.key: message.value for message in process.strings.marker_api}
    spoken = pl.col("correlation").replace_strict(messages, default=None, return_dtype=TEXT).replace("", None)
    marks = table("marker_api").with_columns(name=pl.coalesce(spoken, "name"), category=pl.lit("MARKER"))
    gpus = agents.filter(type="GPU").unique("device", maintain_order=True).sort("device")
    return (
        conform(kernels, KERNELS),
        conform(copies, COPIES),
        conform(pl.concat([called, marks]), REGIONS),
        conform(allocations, ALLOCATIONS),
        conform(gpus, DEVICES),
    )


def _agents(process: Process) -> pl.DataFrame:
    """CPUs and GPUs, the latter numbered as HIP does where nothing hides one: in order of their nodes."""
    frame = _frame(process.agents, AGENTS).sort("node", nulls_last=False, maintain_order=True)
    frame = frame.unique("agent", keep="first", maintain_order=True).with_columns(
        pl.col("type").replace_strict(TYPES, default=None, return_dtype=TEXT),
        pl.col("multiprocessors", "copy_engines").replace(0, None),
        name=pl.coalesce(pl.col("product", "name").replace("", None)),
    )
    number = pl.when(pl.col("device") >= 0).then("device").otherwise(pl.int_range(pl.len()).over("type"))
    return frame.with_columns(device=pl.when(pl.col("type") == "GPU").then(number))


def _address(address: int | str | _Handle | None) -> int | None:
    """It as a number, however this version writes it: a number, hexadecimal text, or a handle."""
    if isinstance(address, _Handle):
        return address.handle
    if isinstance(address, str):
        try:
            return int(address, 16)
        except ValueError:
            return None
    return address
