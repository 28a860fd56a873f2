"""Other GPUs on the same host, and processors that are not next to the GPU: on virtual nodes."""

from __future__ import annotations

import dataclasses
from itertools import product

import msgspec
import pytest

from busfare.measure import probe as probing
from busfare.measure.case import Case, Samples
from busfare.measure.neighbours import Neighbour, apart, neighbours
from busfare.measure.plan import full, quick
from busfare.measure.raw import Measurement, Record
from busfare.measure.virtual import VirtualDevice
from busfare.node import load_node
from busfare.plan.machine import beside_another_gpu, machine_of
from busfare.report.probe_page import probe_page
from busfare.report.probes import neighbour


def test_gpus_behind_one_link_share_it() -> None:
    """Two GPUs of dgx-1-p100 hang on one PCIe switch."""
    probed = probing.probe(probing.open_device("dgx-1-p100"), fast=True, seed=1, gpus=[0, 1])
    found = neighbours(probed.record)
    assert {(n.gpu, n.peer, n.direction) for n in found} == {
        (a, b, way) for a, b in ((0, 1), (1, 0)) for way in ("h2d", "d2h")
    }
    assert all(n.bytes_per_s == pytest.approx(n.alone_bytes_per_s / 2, rel=0.05) for n in found)
    result = probing.result(probed)
    assert len(result["neighbours"]) == 8
    told = {n["both_ways"]: neighbour(n) for n in result["neighbours"] if n["gpu"] == 0}
    assert "while GPU 1 copies too" in told[False] and "while GPU 1 copies both ways too" in told[True]
    page = probe_page(result)
    assert "Who else is on the host" in page and "GPU 1 copies too" in page


def test_gpus_with_links_of_their_own_do_not() -> None:
    probed = probing.probe(probing.open_device("summit"), fast=True, seed=1, gpus=[0, 1])
    found = neighbours(probed.record)
    assert found and all(n.bytes_per_s == pytest.approx(n.alone_bytes_per_s, rel=0.05) for n in found)


def test_what_two_gpus_leave_each_other_both_ways_is_measured_and_planned_with() -> None:
    """Two H200s: each has a link of its own, and the host does not serve both of them both ways."""
    host = {"h2d": 3e-11, "d2h": 1.95e-11}
    node = load_node("h200-x2-probed")
    measured = tuple(
        msgspec.structs.replace(m, both_directions_beside_gpu_gap_per_byte_s=host[m.direction])
        if m.memory == "pinned"
        else m
        for m in node.measured
    )
    device = VirtualDevice(dataclasses.replace(node, measured=measured), 1)
    probed = probing.probe(device, fast=True, seed=1, gpus=[0, 1])
    for gpu, (way, gap) in product((0, 1), host.items()):
        found = probed.node.measurement(way, "pinned", gpu)
        assert found is not None
        assert found.both_directions_beside_gpu_gap_per_byte_s == pytest.approx(gap, rel=0.05)
    both = [n for n in neighbours(probed.record) if n.both_ways]
    assert len(both) == 4
    assert all(n.bytes_per_s == pytest.approx(1 / host[n.direction], rel=0.05) for n in both)
    alone = machine_of(probed.node)
    beside = beside_another_gpu(alone)
    assert beside.h2d.beside_copy == pytest.approx(3e-11 / alone.h2d.copy.long_gap, rel=0.05)
    assert all(times >= beside.h2d.beside_copy for _, times in beside.h2d.beside_streams)
    # A node file that does not say: as if each had the host for itself.
    plain = machine_of(load_node("h200-probed"))
    assert beside_another_gpu(plain) == plain


def test_processors_are_apart_where_some_are_next_to_the_gpu() -> None:
    gpu = {"local_cpus": "0-15"}
    assert apart({"numa_nodes": 2, "cores": 32, "gpus": [gpu]}, 0)
    assert not apart({"numa_nodes": 1, "cores": 32, "gpus": [gpu]}, 0)
    assert not apart({"numa_nodes": 2, "cores": 16, "gpus": [gpu]}, 0)
    assert not apart({"numa_nodes": 2, "cores": 32, "gpus": [{"local_cpus": None}]}, 0)
    assert not apart({"gpus": [{}]}, 0)


@pytest.mark.parametrize("choose", [full, quick])
@pytest.mark.parametrize(("gpu", "beside"), [(0, {1, 4}), (3, {4, 7}), (7, {0, 3})])
def test_of_eight_gpus_two_are_tried_beside_each_both_ways(choose: type, gpu: int, beside: set[int]) -> None:
    cases = choose(gpu, [other for other in range(8) if other != gpu]).shown
    for mode in ("both-beside-gpu", "through-beside-gpu"):
        assert {c.peer for c in cases if c.mode == mode} == beside
    assert {c.peer for c in choose(0, [1]).shown if c.mode == "through-beside-gpu"} == {1}


@pytest.mark.parametrize("choose", [full, quick])
def test_a_bound_processor_is_measured_beside_any(choose: type) -> None:
    bound = [c for c in choose(0, [], bound=True).shown if c.mode == "bound"]
    assert {(c.direction, c.memory) for c in bound} == {
        (way, memory) for way in ("h2d", "d2h") for memory in ("pinned", "pageable")
    }
    assert not [c for c in choose(0, []).cases if c.mode == "bound"]


def test_a_bound_processor_is_compared_with_any() -> None:
    any_ = Case("h2d", "pinned", "copies", 1 << 26)
    record = Record(True, "2026-01-01", "test", {"gpus": [{"name": "none"}]}, 0)
    record.measurements = [
        Measurement(any_, Samples((2e-3,) * 3, (1e-6,) * 3)),
        Measurement(Case("h2d", "pinned", "bound", 1 << 26), Samples((1e-3,) * 3, (1e-6,) * 3)),
    ]
    (found,) = neighbours(record)
    assert found == Neighbour(0, None, "h2d", "pinned", 1 << 26, (1 << 26) / 2e-3, (1 << 26) / 1e-3)
