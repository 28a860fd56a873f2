"""JSON of rocprofv3 (`--output-format json`): one object a process, its records in `buffer_records`.

Fields are those that the serialisation of ROCprofiler-SDK writes [rocprofiler-sdk: cxx/serialization, generateJSON.cpp],
of ROCm 6.2 to 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.rocprof.records import ALLOCATIONS, COPIES, KERNELS, REGIONS, Records, of_agents
from busfare.trace.readers.tables import texts
from busfare.trace.tables import DEVICES, Schema, conform

TYPES = {1: "CPU", 2: "GPU"}


class _Handle(msgspec.Struct):
    handle: int = 0


class _Sides(msgspec.Struct):
    x: int = 0
    y: int = 0
    z: int = 0


class _Id(msgspec.Struct):
    internal: int
    ancestor: int = 0


class _Record(msgspec.Struct):
    """What all records have. Times in ns."""

    start_timestamp: int
    end_timestamp: int
    correlation_id: _Id
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    stream_id: _Handle | None = None


class _Launch(msgspec.Struct):
    agent_id: _Handle
    queue_id: _Handle
    kernel_id: int
    group_segment_size: int = 0
    workgroup_size: _Sides = msgspec.field(default_factory=_Sides)
    grid_size: _Sides = msgspec.field(default_factory=_Sides)


class _Dispatch(_Record):
    dispatch_info: _Launch = msgspec.field(default_factory=lambda: _Launch(_Handle(), _Handle(), 0))


class _Copy(_Record):
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: int | None = None
    src_address: int | str | _Handle | None = None
    dst_address: int | str | _Handle | None = None


class _Allocation(_Record):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    address: int | str | _Handle | None = None
    allocation_size: int = 0


class _BufferRecords(msgspec.Struct):
    kernel_dispatch: list[_Dispatch] = []
    memory_copy: list[_Copy] = []
    memory_allocation: list[_Allocation] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Agent(msgspec.Struct):
    id: _Handle
    type: int
    node_id: int = 0
    logical_node_type_id: int | None = None
    name: str = ""
    product_name: str = ""
    num_sdma_engines: int = 0
    cu_count: int = 0


class _Symbol(msgspec.Struct):
    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None


class _Kind(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct):
    key: int
    value: str


class _Strings(msgspec.Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Metadata(msgspec.Struct):
    pid: int | None = None


class _Process(msgspec.Struct):
    """An entry of `rocprofiler-sdk-tool`: a process."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: _BufferRecords = msgspec.field(default_factory=_BufferRecords)


class _File(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[_Process] | _Process


def read(path: Path, launches: bool = False) -> Trace:
    """Reads the file. Raises InputError if it is cut or damaged: its records cannot be told from their names then."""
    omissions = Omissions()
    text = b"".join(pieces(path, omissions)).removeprefix(b"\xef\xbb\xbf")  # of an editor
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged or cut JSON of rocprofv3 ({error}); copy it anew, or record again, best with "
            "`--output-format rocpd`"
        ) from None
    del text
    processes = file.processes if isinstance(file.processes, list) else [file.processes]
    each = [_records(process, number) for number, process in enumerate(processes)]
    found = Records(*(pl.concat(parts) for parts in zip(*each, strict=True))) if each else Records()
    found.devices = found.devices.unique("device", maintain_order=True)
    return found.trace(path, "rocprofv3-json", "rocprofv3 (JSON)", omissions, launches)


#: What a column holds of a record: an attribute, or what is made of it.
Column = str | Callable[[Any], object]
TIMED: dict[str, Column] = {
    "start_ns": "start_timestamp",
    "end_ns": "end_timestamp",
    "correlation": "correlation_id.internal",
    "ancestor": "correlation_id.ancestor",
    "thread": "thread_id",
}


def _frame(rows: Sequence[object], columns: dict[str, Column], types: Schema) -> pl.DataFrame:
    """The columns, of the types of `types`, whole numbers where that does not say."""
    made = []
    for name, column in columns.items():
        value = attrgetter(column) if isinstance(column, str) else column
        kind = types.get(name, pl.Int64())
        made.append(pl.Series(name, [value(row) for row in rows], dtype=kind, strict=False))
    return pl.DataFrame(made)


def _records(process: _Process, number: int) -> tuple[pl.DataFrame, ...]:
    """The tables of `Records`, of a process."""
    found = process.buffer_records
    agents = _agents(process.agents)
    pid = process.metadata.pid if process.metadata.pid is not None else number

    def own(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        known = pl.col("correlation").replace(0, None)
        return conform(frame.with_columns(known, process=pl.lit(pid, pl.Int64)), schema)

    copies = _copies(found.memory_copy, process)
    for end in ("source", "destination"):
        copies = of_agents(copies, end, agents, {"agent": f"{end}_agent"})
    allocations = _allocations(found.memory_allocation, process)
    types = agents.select("agent", agent_type="type")
    allocations = allocations.join(types, on="agent", how="left", maintain_order="left")
    kernels = _kernels(found.kernel_dispatch, process.kernel_symbols)
    numbers = agents.select("agent", "device")
    kernels = kernels.join(numbers, on="agent", how="left", maintain_order="left")
    gpus = agents.filter(pl.col("type") == "GPU").unique("device", maintain_order=True).sort("device")
    return (
        own(kernels, KERNELS),
        own(copies, COPIES),
        own(_regions(process), REGIONS),
        own(allocations, ALLOCATIONS),
        conform(gpus, DEVICES),
    )


def _agents(agents: Iterable[_Agent]) -> pl.DataFrame:
    """CPUs and GPUs, the latter numbered as HIP does where nothing hides one: in order of their nodes."""
    ordered = sorted(agents, key=attrgetter("node_id"))
    columns: dict[str, Column] = {
        "agent": "id.handle",
        "type": lambda agent: TYPES.get(agent.type),
        "device": "logical_node_type_id",
        "name": lambda agent: agent.product_name or agent.name,
        "multiprocessors": lambda agent: agent.cu_count or None,
        "copy_engines": lambda agent: agent.num_sdma_engines or None,
    }
    made = _frame(ordered, columns, texts("type name")).unique("agent", keep="first", maintain_order=True)
    number = pl.when(pl.col("device") >= 0).then("device").otherwise(pl.int_range(pl.len()).over("type"))
    return made.with_columns(device=pl.when(pl.col("type") == "GPU").then(number))


def _kernels(dispatches: list[_Dispatch], symbols: list[_Symbol]) -> pl.DataFrame:
    launch = "dispatch_info."
    columns: dict[str, Column] = TIMED | {
        "stream": _stream,
        "agent": f"{launch}agent_id.handle",
        "kernel": f"{launch}kernel_id",
        "shared_bytes": f"{launch}group_segment_size",
    }
    columns |= {f"grid_{side}": f"{launch}grid_size.{side}" for side in "xyz"}
    columns |= {f"block_{side}": f"{launch}workgroup_size.{side}" for side in "xyz"}
    of_symbols: dict[str, Column] = {
        "kernel": "kernel_id",
        "name": lambda symbol: symbol.formatted_kernel_name or symbol.kernel_name or None,
        "vgprs": "arch_vgpr_count",
        "accumulating": "accum_vgpr_count",
    }
    named = _frame(symbols, of_symbols, texts("name")).unique("kernel", keep="first")
    return _frame(dispatches, columns, {}).join(named, on="kernel", how="left", maintain_order="left")


def _stream(dispatch: _Dispatch) -> int:
    """The program's stream, which ROCm knows since 6.4; before that, the queue that stands for it."""
    known = dispatch.stream_id
    return dispatch.dispatch_info.queue_id.handle if known is None else known.handle


def _copies(copies: list[_Copy], process: _Process) -> pl.DataFrame:
    columns: dict[str, Column] = TIMED | {
        "stream": lambda copy: None if copy.stream_id is None else copy.stream_id.handle,
        "name": lambda copy: _operation(copy, process.strings.buffer_records),
        "source_agent": "src_agent_id.handle",
        "destination_agent": "dst_agent_id.handle",
        "source_address": lambda copy: _address(copy.src_address),
        "destination_address": lambda copy: _address(copy.dst_address),
        "size": "bytes",
    }
    return _frame(copies, columns, texts("name"))


def _allocations(allocations: list[_Allocation], process: _Process) -> pl.DataFrame:
    kinds = process.strings.buffer_records
    columns: dict[str, Column] = TIMED | {
        "agent": "agent_id.handle",
        "address": lambda one: _address(one.address),
        "size": lambda one: None if "FREE" in (_operation(one, kinds) or "") else one.allocation_size,
    }
    return _frame(allocations, columns, {})


def _regions(process: _Process) -> pl.DataFrame:
    found, kinds = process.buffer_records, process.strings.buffer_records
    messages = {message.key: message.value for message in process.strings.marker_api}
    columns: dict[str, Column] = TIMED | {
        "name": lambda call: _operation(call, kinds),
        "category": lambda call: kinds[call.kind].kind if 0 <= call.kind < len(kinds) else None,
    }
    marks = columns | {
        "name": lambda mark: messages.get(mark.correlation_id.internal) or _operation(mark, kinds),
        "category": lambda _: "MARKER",
    }
    called = [*found.hip_api, *found.hsa_api, *found.rccl_api]
    of_both = texts("name category")
    return pl.concat([_frame(called, columns, of_both), _frame(found.marker_api, marks, of_both)])


def _operation(record: _Record, kinds: list[_Kind]) -> str | None:
    """The name of what was done."""
    operations = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
    return operations[record.operation] if 0 <= record.operation < len(operations) else None


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
