"""A run as execution traces of MLCommons' Chakra, which ASTRA-sim and other simulators of networks play: one a rank.

[Chakra: schema/protobuf/et_def.proto; the attributes are those that its feeder reads.] A node is what a call takes on its
thread, an operation, or the host's own time between calls. Times are whole microseconds: both ends of a node are rounded, so
that sums stay right. The format has no place for gaps between operations, nor for the time from a launch to its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import polars as pl
from google.protobuf import proto

from busfare.errors import InputError
from busfare.files import replacing
from busfare.jobs.model import Part
from busfare.jobs.parts import trace_paths
from busfare.jobs.ranks import ranks_of_all
from busfare.jobs.timeline import parts_of
from busfare.timeline import _core
from busfare.timeline.model import WAIT, Columns, Times
from busfare.timeline.play import core_columns
from busfare.trace import Trace, read
from busfare.trace.protobuf import message_classes

VERSION = "0.0.4"
MESSAGES = {
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
#: Nodes of a call: the host's time before it, itself, and its wait. Those of operations follow.
BEFORE, CALL, WAITED, NODES_A_CALL = range(4)
MESSAGE_KINDS = {"send": SEND, "receive": RECEIVE}


@cache
def chakra_classes() -> dict[str, Any]:
    """The classes of MESSAGES."""
    return message_classes("busfare.chakra", MESSAGES)


def export_chakra(path: Path, output: Path) -> list[str]:
    """`write_chakra` of the trace, or the folder of all ranks' traces, at `path`; nothing is left where it fails."""
    paths = trace_paths(path)
    with replacing(output) as place:
        return write_chakra([read(each) for each in paths], paths, place)


def write_chakra(traces: Sequence[Trace], paths: Sequence[Path], folder: Path) -> list[str]:
    """Writes `rank.0.et` and so on to `folder`, and `groups.json` with the ranks of each process group.

    Returns what of the run is not in them. Raises InputError where a process has several ranks.
    """
    ranks = ranks_of_all(traces, paths)
    parts = parts_of(traces, ranks, None)
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, int] = {}
    unsaid = 0
    for part in parts:
        if len(part.ranks) != 1:
            raise InputError(
                f"{paths[part.clock]}: one process drives several GPUs, but Chakra needs a file per GPU; record with "
                "one process per GPU"
            )
        described = _described(traces[part.clock], part, len(parts))
        unsaid += sum(one is not None and not _is_told(one) for one in described)
        with (folder / f"rank.{part.ranks[0]}.et").open("wb") as file:
            proto.serialize_length_prefixed(chakra_classes()["GlobalMetadata"](version=VERSION), file)
            _write(part, described, groups, file)
    members = {str(number): [int(rank) for rank in group.split(",")] for group, number in groups.items()}
    (folder / "groups.json").write_bytes(msgspec.json.encode(members))
    return [f"{unsaid} collectives of unknown kind or size: written as computation of the same duration"] * (
        unsaid > 0
    )


def _described(trace: Trace, part: Part, ranks: int) -> list[dict[str, Any] | None]:
    """What is told of the communication that each operation is; None of all others."""
    rows = trace.collectives.drop_nulls("operation").unique("operation", maintain_order=True)
    everyone = ",".join(map(str, range(ranks)))
    told: dict[int, dict[str, Any]] = {
        row["operation"]: row | {"members": row["members"] or everyone}
        for row in rows.with_columns(pl.col("collective_kind").cast(pl.String)).iter_rows(named=True)
    }
    return [told.get(row) for row in part.rows.tolist()]


def _is_told(one: dict[str, Any]) -> bool:
    kind = one["collective_kind"]
    return one["bytes"] is not None and (
        kind in COLLECTIVES or (kind in MESSAGE_KINDS and one["peer"] is not None)
    )


def _write(
    part: Part, described: list[dict[str, Any] | None], groups: dict[str, int], file: BinaryIO
) -> None:
    run = part.timeline
    node_class = chakra_classes()["Node"]
    calls = len(run.columns["call_own"])
    waits_for = _dependencies(part)
    for number, name, start, end in _host(part):
        node = node_class(id=number, name=name, type=COMPUTE, data_deps=waits_for.get(number, ()))
        node.attr.add(name="is_cpu_op", bool_val=True)
        _timed(node, start, end)
        proto.serialize_length_prefixed(node, file)
    starts, ends = (span - run.origin_ns for span in run.recorded_spans)
    rows = run.operations.select(pl.col("kind", "direction", "name").cast(pl.String), "bytes")
    for number, (kind, direction, name, moved) in enumerate(rows.iter_rows()):
        place = NODES_A_CALL * calls + number
        one = described[number]
        node = node_class(
            id=place, name=name or direction or kind, type=COMPUTE, data_deps=waits_for.get(place, ())
        )
        node.attr.add(name="is_cpu_op", bool_val=False)
        if one is not None and _is_told(one):
            _communication(node, one, groups)
        elif direction in ("h2d", "d2h"):
            node.type = LOAD if direction == "h2d" else STORE
            node.attr.add(name="tensor_size", uint64_val=moved or 0)
        _timed(node, int(starts[number]), int(ends[number]))
        proto.serialize_length_prefixed(node, file)


def _communication(node: Any, one: dict[str, Any], groups: dict[str, int]) -> None:
    kind = one["collective_kind"]
    node.attr.add(name="comm_size", int64_val=one["bytes"])
    node.attr.add(name="pg_name", string_val=str(groups.setdefault(one["members"], len(groups) + 1)))
    if kind in COLLECTIVES:
        node.type = COLLECTIVE
        node.attr.add(name="comm_type", int64_val=COLLECTIVES[kind])
        return
    node.type = MESSAGE_KINDS[kind]
    members = [int(rank) for rank in one["members"].split(",")]
    peer = members[one["peer"]] if one["place"] is not None else one["peer"]
    node.attr.add(name="comm_dst" if kind == "send" else "comm_src", int32_val=peer)
    node.attr.add(name="comm_tag", int32_val=one["tag"] or 0)


def _timed(node: Any, start: int, end: int) -> None:
    node.start_time_micros = round(start / 1000)
    node.duration_micros = round(end / 1000) - node.start_time_micros


def _host(part: Part) -> Iterator[tuple[int, str, int, int]]:
    """Number, name, start and end of what host threads do, in nanoseconds: waits take none of their own."""
    run = part.timeline
    gap, own, waits = (run.columns[name] for name in ("call_gap", "call_own", "call_wait"))
    starts = run.calls["start_ns"].to_numpy() - run.origin_ns
    for call in range(len(own)):
        name, first = run.call_names[run.call_name[call]] or "(unnamed)", NODES_A_CALL * call
        start = int(starts[call])
        end = start + int(own[call])
        yield first + BEFORE, "host", start - int(gap[call]), start
        yield first + CALL, name, start, end
        if waits[call] != WAIT["none"]:
            yield first + WAITED, f"{name}: wait", end, end


def _dependencies(part: Part) -> dict[int, list[int]]:
    """Of each node those that it waits for."""
    run = part.timeline
    calls, waits = len(run.columns["call_own"]), run.columns["call_wait"] != WAIT["none"]
    edges = _core.dependencies(core_columns(run))
    turns = _engine_turns(run.columns)
    source, target = (
        np.concatenate([edges[name].astype(np.int64), turns[name] + calls]) for name in ("from", "to")
    )
    to_call, from_call = target < calls, source < calls
    last = np.where(waits[source * from_call], WAITED, CALL)
    # A call begins when those before it have returned; its wait, and so it, ends with the operations that it waits for.
    into = np.where(from_call, BEFORE, WAITED)
    launches = from_call & ~to_call
    source_node = _node(source, np.where(launches, CALL, last), calls)
    target_node = _node(target, into, calls)
    found: dict[int, list[int]] = {}
    for call in range(calls):
        found[NODES_A_CALL * call + CALL] = [NODES_A_CALL * call + BEFORE]
        if waits[call]:
            found[NODES_A_CALL * call + WAITED] = [NODES_A_CALL * call + CALL]
    for before, behind in zip(source_node.tolist(), target_node.tolist(), strict=True):
        found.setdefault(behind, []).append(before)
    return found


def _engine_turns(columns: Columns) -> dict[str, Times]:
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
