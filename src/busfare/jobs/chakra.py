"""A run as execution traces of MLCommons' Chakra, which ASTRA-sim and other simulators of networks play: one a rank.

[Chakra: schema/protobuf/et_def.proto; the attributes are those that its feeder reads.] A node is what a call takes on its
thread, an operation, or the host's own time between calls. Times are whole microseconds: both ends of a node are rounded, so
that sums stay right. The format has no place for gaps between operations, nor for the time from a launch to its start.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from google.protobuf import proto

from busfare.errors import InputError
from busfare.files import replacing
from busfare.jobs.model import Part
from busfare.jobs.parts import trace_paths
from busfare.jobs.timeline import parts_of, ranks_of_all
from busfare.timeline import _core
from busfare.timeline.engine import core_columns
from busfare.timeline.model import WAIT, Columns, Times
from busfare.trace import Omission, Trace, read
from busfare.trace.omissions import Omissions, readable
from busfare.trace.protobuf import message_classes

VERSION = "0.0.4"
SCHEMA = {
    "GlobalMetadata": "version 1 string",
    "AttributeProto": "name 1 string, int32_val 7 int32, int64_val 9 int64, uint64_val 13 uint64, bool_val 27 bool, "
    "string_val 29 string",
    "Node": "id 1 uint64, name 2 string, type 3 int32, data_deps 5 *uint64, start_time_micros 6 uint64, "
    "duration_micros 7 uint64, attr 10 *AttributeProto",
}
#: NodeType and CollectiveCommType.
LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(2, 8)
COLLECTIVES = {
    "all_reduce": 0, "reduce": 1, "all_gather": 2, "gather": 3, "scatter": 4, "broadcast": 5, "all_to_all": 6,
    "reduce_scatter": 7, "barrier": 9,
}  # fmt: skip
#: Types of messages, and the attribute that holds the peer.
MESSAGES = {"send": (SEND, "comm_dst"), "receive": (RECEIVE, "comm_src")}
#: The field of each attribute's value.
ATTRIBUTES = {
    "is_cpu_op": "bool_val", "tensor_size": "uint64_val", "pg_name": "string_val", "comm_size": "int64_val",
    "comm_type": "int64_val", "comm_dst": "int32_val", "comm_src": "int32_val", "comm_tag": "int32_val",
}  # fmt: skip
#: Type and attributes of a node of communication; its process group by its members, as in "0,1".
Attributes = dict[str, int | str]
Carried = tuple[int, Attributes]
#: Nodes of a call: the host's time before it, itself, and its wait. Those of operations follow.
BEFORE, CALL, WAITED, NODES_A_CALL = range(4)


@cache
def chakra_classes() -> dict[str, Any]:
    """The classes of SCHEMA."""
    return message_classes("busfare.chakra", SCHEMA)


def export_chakra(path: Path, output: Path) -> list[Omission]:
    """Writes the trace, or the folder of all ranks' traces, to `path`; nothing on failure. Returns what it lacks."""
    paths = trace_paths(path)
    left_out = Omissions()
    with replacing(output) as place:
        traces = [*readable(paths, read, left_out)]
        left_out.count("unknown-collectives", _write(traces, [trace.path for trace in traces], place))
    return left_out.list()


def _write(traces: Sequence[Trace], paths: Sequence[Path], folder: Path) -> int:
    """Writes `rank.0.et` and so on to `folder`, and `groups.json` with the ranks of each process group. Returns the number
    of collectives of unknown kind or size. Raises InputError if a process has several ranks.
    """
    parts = parts_of(traces, ranks_of_all(traces, paths), None)
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, int] = {}
    unknown = 0
    for part in parts:
        if len(part.ranks) != 1:
            raise InputError(
                f"{paths[part.clock]}: one process drives several GPUs, but Chakra needs a file per GPU; record with "
                "one process per GPU"
            )
        carried = _carried(traces[part.clock], len(parts))
        unknown += sum(row in carried and carried[row] is None for row in part.rows.tolist())
        with (folder / f"rank.{part.ranks[0]}.et").open("wb") as file:
            proto.serialize_length_prefixed(chakra_classes()["GlobalMetadata"](version=VERSION), file)
            for node in _nodes(part, carried, groups):
                proto.serialize_length_prefixed(node, file)
    members = {str(number): [int(rank) for rank in group.split(",")] for group, number in groups.items()}
    (folder / "groups.json").write_bytes(msgspec.json.encode(members))
    return unknown


def _carried(trace: Trace, ranks: int) -> dict[int, Carried | None]:
    """What operations carry between ranks, by their rows; None where the trace does not give its kind, size or peer."""
    rows = trace.collectives.drop_nulls("operation").unique("operation", maintain_order=True)
    rows = rows.with_columns(
        pl.col("collective_kind").cast(pl.String),
        pl.col("members").fill_null(",".join(map(str, range(ranks)))),
    ).select("operation", "collective_kind", "bytes", "members", "place", "peer", "tag")
    carried: dict[int, Carried | None] = {}
    for operation, kind, size, members, place, peer, tag in rows.iter_rows():
        attributes = {"comm_size": size, "pg_name": members}
        if size is not None and kind in COLLECTIVES:
            carried[operation] = COLLECTIVE, attributes | {"comm_type": COLLECTIVES[kind]}
        elif size is not None and kind in MESSAGES and peer is not None:
            node_type, end = MESSAGES[kind]
            rank = peer if place is None else int(members.split(",")[peer])
            carried[operation] = node_type, attributes | {end: rank, "comm_tag": tag or 0}
        else:
            carried[operation] = None
    return carried


def _nodes(part: Part, carried: dict[int, Carried | None], groups: dict[str, int]) -> Iterator[Any]:
    """The nodes of a rank; `groups`, the numbers of process groups by their members, grows."""
    run = part.timeline
    first = NODES_A_CALL * len(run.columns["call_own"])
    waits_for = _dependencies(part)

    def node(id: int, name: str, start_ns: int, end_ns: int, type: int, attributes: Attributes) -> Any:
        start, end = round(start_ns / 1000), round(end_ns / 1000)
        times = {"start_time_micros": start, "duration_micros": end - start}
        made = chakra_classes()["Node"](id=id, name=name, type=type, data_deps=waits_for.get(id, ()), **times)
        for key, value in attributes.items():
            made.attr.add(name=key, **{ATTRIBUTES[key]: value})
        return made

    for number, name, start, end in _host(part):
        yield node(number, name, start, end, COMPUTE, {"is_cpu_op": True})
    starts, ends = ((span - run.origin_ns).tolist() for span in run.recorded_spans)
    rows = run.operations.select(pl.col("kind", "direction", "name").cast(pl.String), "bytes")
    for number, (kind, direction, name, size) in enumerate(rows.iter_rows()):
        node_type, attributes = carried.get(int(part.rows[number])) or (COMPUTE, {})
        if "pg_name" in attributes:
            group = groups.setdefault(str(attributes["pg_name"]), len(groups) + 1)
            attributes = attributes | {"pg_name": str(group)}
        elif direction in ("h2d", "d2h"):
            node_type, attributes = LOAD if direction == "h2d" else STORE, {"tensor_size": size or 0}
        attributes = {"is_cpu_op": False} | attributes
        name = name or direction or kind
        yield node(first + number, name, starts[number], ends[number], node_type, attributes)


def _host(part: Part) -> Iterator[tuple[int, str, int, int]]:
    """Number, name, start and end of what host threads do, in nanoseconds: waits take none of their own."""
    run = part.timeline
    gap, startup, call_ns, waits = (run.columns[f"call_{name}"] for name in ("gap", "startup", "own", "wait"))
    starts = run.calls["start_ns"].to_numpy() - run.origin_ns
    for call in range(len(call_ns)):
        name, first = run.call_names[run.call_name[call]] or "(unnamed)", NODES_A_CALL * call
        start = int(starts[call])
        end = start + int(call_ns[call])
        yield first + BEFORE, "host", start - int(gap[call] + startup[call]), start
        yield first + CALL, name, start, end
        if waits[call] != WAIT["none"]:
            yield first + WAITED, f"{name}: wait", end, end


def _dependencies(part: Part) -> dict[int, list[int]]:
    """Of each node those that it waits for."""
    run = part.timeline
    calls, waits = len(run.columns["call_own"]), run.columns["call_wait"] != WAIT["none"]
    edges = _core.dependencies(core_columns(run))
    in_order = _engine_order(run.columns)
    source, target = (
        np.concatenate([edges[name].astype(np.int64), in_order[name] + calls]) for name in ("from", "to")
    )
    to_call, from_call = target < calls, source < calls
    last = np.where(np.append(waits, False)[np.where(from_call, source, calls)], WAITED, CALL)
    # A call begins when those before it have returned; its wait, and so it, ends with the operations that it waits for.
    into = np.where(from_call, BEFORE, WAITED)
    launches = from_call & ~to_call
    source_node = _node(source, np.where(launches, CALL, last), calls)
    target_node = _node(target, into, calls)
    dependencies: dict[int, list[int]] = {}
    for call in range(0, NODES_A_CALL * calls, NODES_A_CALL):
        dependencies |= {call + CALL: [call + BEFORE], call + WAITED: [call + CALL]}
    for before, behind in zip(source_node.tolist(), target_node.tolist(), strict=True):
        dependencies.setdefault(behind, []).append(before)
    return dependencies


def _engine_order(columns: Columns) -> dict[str, Times]:
    """Of operations that an engine does one after another, each and the next: the format knows no engines."""
    engine, slots = columns["operation_engine"], columns["engine_slots"]
    order = np.lexsort((columns["operation_turn"], engine)).astype(np.int64)
    held = engine[order]
    order = order[np.append(slots, 0)[held] == 1]
    same = engine[order[1:]] == engine[order[:-1]]
    return {"from": order[:-1][same], "to": order[1:][same]}


def _node(rows: Times, part: Times, calls: int) -> Times:
    """The numbers of nodes: of calls, the given one of theirs; of operations, behind all of those."""
    return np.where(rows < calls, NODES_A_CALL * rows + part, NODES_A_CALL * calls + rows - calls)
