"""The probe, on virtual nodes: parameters come back, faults are named, budgets are kept."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from busfare.errors import BusfareError, InputError
from busfare.measure import probe as probing
from busfare.measure.case import Case, Samples
from busfare.measure.knees import jumps, locate
from busfare.measure.node_file import encode
from busfare.measure.plan import AROUND, full, is_held_out, quick
from busfare.measure.profile import profile
from busfare.measure.raw import Record, read, write
from busfare.measure.run import measure
from busfare.measure.virtual import FAULTS, VirtualDevice
from busfare.node import Measured, Node, Piece, load_node
from busfare.node.curve import Direction
from busfare.node.file import decode
from busfare.node.measured import piecewise
from busfare.plan import Problem, machine_of, plan

NODES = 200


def record_of(device: VirtualDevice, seed: int = 0) -> Record:
    return Record(True, "2026-01-01", "test", device.facts(), seed)


def random_node(seed: int) -> Node:
    """A PCIe node with parameters over all that machines have shown: one piece, or two with a knee."""
    drawn = random.Random(seed)
    measured = []
    for way in ("h2d", "d2h"):
        latency, gap = drawn.uniform(1e-6, 2e-5), 10 ** drawn.uniform(-11.5, -9)
        pieces = (Piece(latency_overhead_s=latency, gap_per_byte_s=gap),)
        if drawn.random() < 0.5:
            knee = 2 ** drawn.randrange(12, 22)
            first = Piece(latency_overhead_s=latency, gap_per_byte_s=1.5 * gap, up_to_bytes=knee)
            pieces = (first, Piece(latency_overhead_s=latency + 0.5 * gap * knee, gap_per_byte_s=gap))
        further = drawn.uniform(5e-7, 5e-6)
        measured.append(Measured(direction=way, memory="pinned", pieces=pieces, gap_s=further))  # type: ignore[arg-type]
    return dataclasses.replace(load_node("pcie:4x16"), measured=tuple(measured))


@pytest.mark.parametrize("first", range(0, NODES, 25))
def test_parameters_of_random_nodes_come_back_within_one_percent(first: int) -> None:
    cases = [c for c in full(0, []).fitted if c.memory == "pinned" and c.mode == "copies"]
    cases += [c for c in full(0, []).shown if c.memory == "pinned" and c.mode == "copies" and c.bytes == 64]
    for seed in range(first, first + 25):
        device = VirtualDevice(random_node(seed), seed)
        record = record_of(device, seed)
        measure(device, cases, record, 25, clock=device.clock)
        found = {m.direction: m for m in profile(record).measured}
        for true in device.node.measured:
            own = found[true.direction]
            assert own.latency_overhead_s == pytest.approx(true.latency_overhead_s, rel=0.01), seed
            assert own.pieces[-1].gap_per_byte_s == pytest.approx(true.pieces[-1].gap_per_byte_s, rel=0.01), (
                seed
            )
            assert own.gap_s == pytest.approx(
                (true.gap_s or 0) + 64 * true.pieces[-1].gap_per_byte_s, rel=0.05
            )


def test_waits_for_events_come_back() -> None:
    pieces = (Piece(latency_overhead_s=4e-6, gap_per_byte_s=1.8e-11),)
    waits: dict[Direction, float] = {"h2d": 6e-6, "d2h": 2.5e-6}
    true = [
        Measured(direction=way, memory="pinned", pieces=pieces, after_kernel_s=4e-6, event_wait_s=wait)
        for way, wait in waits.items()
    ]
    device = VirtualDevice(dataclasses.replace(load_node("pcie:4x16"), measured=tuple(true)))
    record = record_of(device)
    cases = [c for c in full(0, []).cases if c.mode in ("copies", *AROUND, "launch")]
    measure(device, [c for c in cases if c.memory in ("pinned", "none")], record, 25, clock=device.clock)
    into, out = (next(m for m in profile(record).measured if m.direction == way) for way in ("h2d", "d2h"))
    assert into.event_wait_s == pytest.approx(6e-6, rel=0.02)
    assert out.after_kernel_s == pytest.approx(4e-6, rel=0.02)
    assert out.event_wait_s == pytest.approx(2.5e-6, rel=0.02)


@pytest.mark.parametrize("added", [-3.3e-6, 1.5e-6])
def test_what_there_and_back_takes_more_or_less_comes_back(added: float) -> None:
    """Where two events take longer, what is measured between two of them holds more than a program does."""
    pieces = (Piece(latency_overhead_s=4e-6, gap_per_byte_s=1.8e-11),)
    true = [
        Measured(direction=way, memory="pinned", pieces=pieces, after_kernel_s=4e-6, after_copy_s=more)
        for way, more in (("h2d", added), ("d2h", None))
    ]  # fmt: skip
    device = VirtualDevice(dataclasses.replace(load_node("pcie:4x16"), measured=tuple(true)))
    record = record_of(device)
    modes = ("copies", "after-kernel", "there-and-back", "launch")
    cases = [c for c in full(0, []).cases if c.mode in modes and c.count == 1]
    measure(device, [c for c in cases if c.memory in ("pinned", "none")], record, 25, clock=device.clock)
    node = dataclasses.replace(device.node, measured=profile(record).measured)
    found = node.measurement("h2d", "pinned")
    assert found is not None and found.after_copy_s == pytest.approx(added, abs=1e-7)
    without = tuple(msgspec.structs.replace(m, after_copy_s=None) for m in node.measured)
    plain = dataclasses.replace(node, measured=without)
    problem = Problem("there and back", 1e6, 1e6, 5e-6, levels=16)
    rankings = [
        {p.strategy: p.seconds for p in plan(problem, machine_of(one)).ranking} for one in (node, plain)
    ]
    assert rankings[0]["explicit"] - rankings[1]["explicit"] == pytest.approx(found.after_copy_s, rel=1e-6)
    assert rankings[0]["mapped"] == rankings[1]["mapped"]


def test_what_copies_add_beside_others_comes_back() -> None:
    pieces = (Piece(latency_overhead_s=4e-6, gap_per_byte_s=1.8e-11),)
    true = Measured(
        direction="d2h", memory="pinned", pieces=pieces, gap_s=1.6e-6, both_directions_gap_per_byte_s=2e-11,
        both_directions_gap_s=6e-6,
    )  # fmt: skip
    node = dataclasses.replace(load_node("pcie:4x16"), measured=(true,))
    device, record = VirtualDevice(node, 3), record_of(VirtualDevice(node), 3)
    cases = [Case("d2h", "pinned", "copies", 1)]
    cases += [c for c in full(0, []).shown if c.mode == "both" and c.direction == "d2h"]
    measure(device, cases, record, 5, clock=device.clock)
    (found,) = (m for m in profile(record).measured if m.direction == "d2h" and m.memory == "pinned")
    assert found.both_directions_gap_per_byte_s == pytest.approx(2e-11, rel=0.01)
    assert found.both_directions_gap_s == pytest.approx(6e-6, rel=0.05)


def test_the_lull_of_hybrids_and_what_the_processor_wrote_come_back() -> None:
    def own(direction: str, memory: str, start: float, **more: object) -> Measured:
        piece = Piece(latency_overhead_s=start, gap_per_byte_s=1.9e-11)
        return Measured(direction=direction, memory=memory, pieces=(piece,), **more)  # type: ignore[arg-type]

    slower = (Piece(latency_overhead_s=2.7e-5, gap_per_byte_s=1.9e-11),)
    true = own(
        "h2d", "pinned", 4e-6, mapped_gap_per_byte_s=2.4e-10, mapped_lull_s=1.5e-5, written=slower, gap_s=2e-6
    )
    node = dataclasses.replace(
        load_node("pcie:4x16"), measured=(true, own("d2h", "pinned", 4e-6), own("d2h", "mapped", 3e-6))
    )
    device, record = VirtualDevice(node, 3), record_of(VirtualDevice(node), 3)
    pinned = [c for c in full(0, []).cases if (c.direction, c.memory) == ("h2d", "pinned")]
    cases = [c for c in pinned if c.mode in ("hybrid", "written", "streams", "beside-mapped")]
    cases += [c for c in pinned if c.mode == "copies" and c.count == 1]
    cases += [c for c in full(0, []).cases if (c.memory, c.mode) == ("mapped", "kernel")]
    measure(device, cases, record, 10, clock=device.clock)
    (found,) = (m for m in profile(record).measured if (m.direction, m.memory) == ("h2d", "pinned"))
    assert found.mapped_lull_s == pytest.approx(1.5e-5, rel=0.05)
    sizes = np.array([1e6, 3e7])
    assert piecewise(found.written, sizes) == pytest.approx(2.7e-5 + sizes * 1.9e-11, rel=0.02)


def test_rows_are_measured_where_they_differ_and_apart_from_what_they_are_judged_by() -> None:
    told = full(0, [])
    rows = [c for c in told.fitted if c.mode == "streams"]
    # Into the GPU what a copy adds depends no further on the number of streams.
    assert {c.direction for c in rows if c.count == 176} == {"d2h"}
    assert {c.direction for c in rows if c.count == 256} == {"h2d", "d2h"}
    judged = [c for c in told.held_out if c.mode == "streams"]
    assert not {c.count for c in rows} & {c.count for c in judged}
    assert not {c.bytes for c in rows} & {c.bytes for c in judged}


def test_the_quick_run_has_rows_of_whole_curves_alone() -> None:
    node = probing.probe(probing.open_device("h100-probed"), fast=True, seed=5).node
    for way in ("h2d", "d2h"):
        assert [row.copies for row in node.measurement(way, "pinned").rows] == [2, 8, 64]
    assert node.measurement("h2d", "pinned").mapped_lull_s is not None
    assert node.measurement("h2d", "pinned").mapped_wait_s is not None
    # Copies go on there hardly slower beside mapped writes than in their lull.
    slow = probing.probe(probing.open_device("gtx-titan"), fast=True, seed=5).node
    assert slow.measurement("h2d", "pinned").mapped_lull_s is None
    assert slow.measurement("h2d", "pinned").mapped_wait_s is None


@pytest.mark.parametrize("wait", [1.4e-5, 1.7e-5])
def test_a_kernels_wait_for_its_copy_among_many_comes_back(wait: float) -> None:
    plain = load_node("h100-probed")
    true = tuple(
        msgspec.structs.replace(m, mapped_wait_s=wait, mapped_lull_s=1.5e-5)
        if (m.direction, m.memory) == ("h2d", "pinned")
        else m
        for m in plain.measured
    )
    device = VirtualDevice(dataclasses.replace(plain, measured=true), 3)
    node = probing.probe(device, fast=True, seed=5).node
    found = node.measurement("h2d", "pinned").mapped_wait_s
    # Waits of a virtual node do not scatter, and its copies stand in one queue: what `plan` has more than that is less here.
    assert found == pytest.approx(wait, rel=0.12) and found < wait
    assert machine_of(node).h2d.kernel_wait == found


@pytest.fixture(scope="module")
def whole() -> probing.Probed:
    return probing.probe(probing.open_device("gtx-titan"), fast=False, seed=5)


def test_a_whole_virtual_probe_predicts_what_it_did_not_fit(whole: probing.Probed) -> None:
    result = probing.result(whole)
    assert result["virtual"] is True
    assert result["residuals"]["count"] == sum(
        is_held_out(c) and c.memory == "pinned" for c in full(0, []).cases
    )
    assert result["residuals"]["median_percent"] < 0.5
    assert result["residuals"]["max_percent"] < 3
    assert not result["disturbances"] and not result["left_out"]
    assert all(h["sound"] for h in result["health"])


def test_the_node_file_reads_back_as_the_node(whole: probing.Probed) -> None:
    read_back = decode(encode(whole.node), "probed.toml")
    assert read_back.measured == whole.node.measured
    assert read_back.costs == whole.node.costs
    assert read_back.components == whole.node.components
    assert read_back.links == whole.node.links
    assert {s.kind for tag, s in read_back.sources.items() if tag == "probe"} == {"estimated"}


def test_raw_samples_read_back_as_they_were(whole: probing.Probed, tmp_path: Path) -> None:
    for name in ("raw.json", "raw.json.gz"):
        write(whole.record, tmp_path / name)
        back = read(tmp_path / name)
        assert len(back.measurements) == len(whole.record.measurements)
        for ours, theirs in zip(whole.record.measurements, back.measurements, strict=True):
            assert (ours.case, ours.stopped, ours.visits) == (theirs.case, theirs.stopped, theirs.visits)
            assert len(theirs.moments) == len(ours.moments) == len(ours.visits)
            for one, other in zip(ours.moments, theirs.moments, strict=True):
                assert (other.at_s, other.took_s) == pytest.approx((one.at_s, one.took_s), abs=1e-4)
                assert other.processor == one.processor
            assert theirs.seconds == pytest.approx(ours.seconds, abs=1e-9)
    with pytest.raises(InputError, match="probe --raw"):
        (tmp_path / "other.json").write_text("{}")
        read(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("half-width", "half width (x8 of x16)"),
        ("slow-link", "carries half of what it should"),
        ("throttled", "throttled by heat"),
        ("stalled", "the blocking kernel waited"),
        ("busy", "busy: 1 other program"),
        ("drift", "during the run: probe again"),
        ("replays", "packets again"),
    ],
)
def test_each_fault_is_detected_and_named(fault: str, said: str) -> None:
    probed = probing.probe(probing.open_device("h100-sxm", faults=[fault]), fast=True, seed=1, gpus=[0])
    sentences = [*probed.record.disturbances, *(h.verdict for h in probed.health)]
    assert any(said in sentence for sentence in sentences), sentences


def test_a_sound_node_has_no_complaint() -> None:
    probed = probing.probe(probing.open_device("h100-sxm"), fast=True, seed=1, gpus=[0])
    assert not probed.record.disturbances
    assert all(h.sound for h in probed.health)


@pytest.mark.parametrize("fault", ["no-locked-memory", "little-memory"])
def test_what_cannot_be_had_is_left_out_with_the_reason(fault: str) -> None:
    probed = probing.probe(probing.open_device("h100-sxm", faults=[fault]), fast=True, seed=1, gpus=[0])
    assert all("refused" in row["why"] for row in probed.record.left_out)
    assert probed.record.left_out
    kinds = {(m.direction, m.memory) for m in probed.node.measured}
    assert ("h2d", "pageable") in kinds
    assert (("h2d", "pinned") in kinds) == (fault == "little-memory")


def test_all_faults_are_described() -> None:
    with pytest.raises(InputError, match="half-width"):
        VirtualDevice(load_node("h100-sxm"), faults=["no such"])
    assert all(FAULTS.values())


@pytest.mark.parametrize(("fast", "limit"), [(True, probing.QUICK_S), (False, probing.FULL_S)])
def test_the_time_budget_is_kept(fast: bool, limit: float) -> None:
    device: Any = probing.open_device("gtx-titan")
    probing.probe(device, fast, seed=2)
    assert limit / 3 < device.clock() <= limit


def test_every_case_has_a_reason_for_its_stop(whole: probing.Probed) -> None:
    assert {m.stopped for m in whole.record.measurements} <= {"settled", "enough", "time"}
    assert all(sum(m.visits) == len(m.samples.api_s) for m in whole.record.measurements)


def test_the_order_of_cases_is_not_that_of_their_sizes() -> None:
    seen: list[Case] = []

    class Watched(VirtualDevice):
        def run(self, case: Case, repeats: int) -> Samples:
            seen.append(case)
            return super().run(case, repeats)

    device = Watched(load_node("gtx-titan"))
    cases = [Case("h2d", "pinned", "copies", 1 << n) for n in range(20)]
    measure(device, cases, record_of(device), 0.1, clock=device.clock, warm_up=False)
    visits = [case.bytes for case in seen]
    assert any(later < earlier for earlier, later in pairwise(visits))
    assert len(set(visits)) == 20


def test_a_jump_is_located_by_halving() -> None:
    pieces = (
        Piece(latency_overhead_s=3e-6, gap_per_byte_s=4e-10, up_to_bytes=5000),
        Piece(latency_overhead_s=9e-6, gap_per_byte_s=2e-11),
    )
    measured = Measured(direction="h2d", memory="pinned", pieces=pieces)
    device = VirtualDevice(dataclasses.replace(load_node("pcie:4x16"), measured=(measured,)))
    record = record_of(device)
    like = Case("h2d", "pinned", "copies", 1)
    cases = [c for c in full(0, []).fitted if dataclasses.replace(c, bytes=1) == like]
    measure(device, cases, record, 2.0, clock=device.clock)
    (jump,) = locate(device, record, like, device.clock)
    assert jump.below <= 5000 < jump.above
    assert jump.above - jump.below <= 5000 // 32
    assert jumps([1, 2, 4, 8], [1e-6, 1e-6, 1e-6, 1e-6]) == []


def test_nothing_fitted_is_held_out() -> None:
    for chosen in (full(0, [1]), quick(0, [1])):
        assert not any(is_held_out(case) for case in chosen.fitted)
        assert all(is_held_out(case) for case in chosen.held_out)
        assert len(chosen.cases) == len(set(chosen.cases))


def test_with_nothing_measured_it_says_why() -> None:
    device = VirtualDevice(load_node("gtx-titan"), faults=["no-locked-memory"])
    record = record_of(device)
    measure(device, [Case("h2d", "pinned", "copies", 64)], record, 1, clock=device.clock)
    with pytest.raises(BusfareError, match="refused"):
        probing.evaluated(record)


def test_peers_are_measured_in_every_ordered_pair() -> None:
    probed = probing.probe(probing.open_device("summit"), fast=True, seed=1, gpus=[0, 1])
    pairs = {(m.gpu, m.peer) for m in probed.node.measured if m.direction == "p2p"}
    assert pairs == {(0, 1), (1, 0)}
    one = probed.node.measurement("p2p", "device", 1, 0)
    assert one is not None and (one.gpu, one.peer) == (1, 0)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_what_first_threads_move_one_way_after_the_other_comes_back(share: float) -> None:
    plain = load_node("h100-probed")
    true = tuple(
        msgspec.structs.replace(m, mapped_first_share=share)
        if (m.direction, m.memory) == ("h2d", "mapped")
        else m
        for m in plain.measured
    )
    device, record = (
        VirtualDevice(dataclasses.replace(plain, measured=true), 3),
        record_of(VirtualDevice(plain), 3),
    )
    cases = [c for c in full(0, []).cases if c.memory == "mapped" or c.mode in ("through", "beside-mapped")]
    cases += [c for c in full(0, []).cases if (c.memory, c.mode, c.count) == ("pinned", "copies", 1)]
    measure(device, cases, record, 10, clock=device.clock)
    node = probing.evaluated(record).node
    assert machine_of(node).h2d.first_share == pytest.approx(share, abs=0.06)
    # One megabyte is one round, whose first threads make it longer; a round in many hardly shows.
    short, long = (
        next(
            p.seconds
            for p in plan(Problem("both", size, size, 4e-6), machine_of(node)).ranking
            if p.strategy == "mapped"
        )
        for size in (float(1 << 20), float(1 << 28))
    )
    assert short > long / 256 * (1 + share / 4)
