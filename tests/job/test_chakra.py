"""Execution traces of Chakra hold what the run held, in an order that its dependencies allow."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import proto

from busfare.errors import InputError
from busfare.jobs.chakra import chakra_classes, export_chakra
from busfare.trace import read
from tests.job.kineto_job import write_ranks
from tests.trace.build_kineto import copy as kineto_copy
from tests.trace.build_kineto import write_kineto
from tests.traces import EXAMPLES

COMPUTE, LOAD, STORE, COLLECTIVE = 4, 2, 3, 7


def nodes_of(path: Path) -> list[Any]:
    """All nodes of a file, behind its metadata."""
    classes = chakra_classes()
    with path.open("rb") as file:
        assert proto.parse_length_prefixed(classes["GlobalMetadata"], file).version
        nodes = []
        while (node := proto.parse_length_prefixed(classes["Node"], file)) is not None:
            nodes.append(node)
    return nodes


def attributes(node: Any) -> dict[str, Any]:
    return {
        attribute.name: value
        for attribute in node.attr
        for field, value in attribute.ListFields()
        if field.name != "name"
    }


def run_length(nodes: list[Any]) -> int:
    """Microseconds from the first start to the last end where each begins when what it waits for has ended."""
    ends: dict[int, int] = {}
    waiting = {node.id: node for node in nodes}
    while waiting:
        ready = [node for node in waiting.values() if all(before in ends for before in node.data_deps)]
        assert ready, "a circle"
        for node in ready:
            ends[node.id] = max((ends[before] for before in node.data_deps), default=0) + node.duration_micros
            del waiting[node.id]
    return max(ends.values())


def test_a_run_is_in_the_file_of_its_rank(tmp_path: Path) -> None:
    source = EXAMPLES / "smooth-out-of-core-streams-h100.json.gz"
    assert export_chakra(source, tmp_path / "out") == []
    nodes, recorded = nodes_of(tmp_path / "out" / "rank.0.et"), read(source)
    assert len({node.id for node in nodes}) == len(nodes)
    of_gpu = [node for node in nodes if not attributes(node).get("is_cpu_op")]
    assert len(of_gpu) == recorded.operations.height
    for kind, direction in ((LOAD, "h2d"), (STORE, "d2h")):
        moved = recorded.operations.filter(recorded.operations["direction"] == direction)
        of_kind = [node for node in of_gpu if node.type == kind]
        assert sum(attributes(node)["tensor_size"] for node in of_kind) == moved["bytes"].sum()
        taken = (moved["end_ns"] - moved["start_ns"]).sum() / 1000
        assert sum(node.duration_micros for node in of_kind) == pytest.approx(taken, abs=len(of_kind))
    # Without gaps and launches' lags it is somewhat shorter, and no copy or kernel overtakes another.
    assert 0.8 < run_length(nodes) / (recorded.makespan_seconds * 1e6) <= 1.01


def test_ranks_of_a_job_share_their_groups(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job", [[200.0, 300.0], [250.0, 220.0]], elements=1 << 20)
    export_chakra(tmp_path / "job", tmp_path / "out")
    groups = json.loads((tmp_path / "out" / "groups.json").read_text())
    assert list(groups.values()) == [[0, 1]]
    for rank in range(2):
        collectives = [n for n in nodes_of(tmp_path / "out" / f"rank.{rank}.et") if n.type == COLLECTIVE]
        expected = {"is_cpu_op": False, "comm_size": 4 << 20, "pg_name": "1", "comm_type": 0}
        assert [attributes(node) for node in collectives] == [expected] * 2


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    with pytest.raises(InputError):
        export_chakra(tmp_path / "empty.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_trace_without_calls_holds_its_operations(tmp_path: Path) -> None:
    events = [
        kineto_copy("Memcpy HtoD (Pinned -> Device)", 8, 10, 5, 1),
        kineto_copy("Memcpy DtoH (Device -> Pinned)", 8, 20, 5, 2),
    ]
    source = write_kineto(tmp_path / "t.json", events)
    assert export_chakra(source, tmp_path / "out") == []
    nodes = nodes_of(tmp_path / "out" / "rank.0.et")
    assert [(node.type, node.duration_micros) for node in nodes] == [(LOAD, 5), (STORE, 5)]
