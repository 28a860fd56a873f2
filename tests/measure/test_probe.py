"""The probe, on virtual nodes: parameters come back, disturbances are named, budgets are kept."""

import dataclasses
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare.errors import BusfareError, InputError
from busfare.measure import probe as probing
from busfare.measure.cases import Case, Record, Samples, copies, is_held_out, read_record, write_record
from busfare.measure.node_file import bare_node, encode
from busfare.measure.profile import profile
from busfare.measure.run import StalledError, UnavailableError, disturbances, measure
from busfare.measure.virtual import VirtualDevice
from busfare.nodes import Contention, Cost, Curve, Node, Shares, load_node
from busfare.nodes.component import AtOnce, Memory
from busfare.nodes.file import decode
from busfare.nodes.link import NvlinkLink
from busfare.questions import Probe
from tests.measure.conftest import STATE

NODES = 40


def record_of(device: VirtualDevice, seed: int = 0) -> Record:
    return Record(True, "2026-01-01", "test", device.facts(), seed)


def probed_of(name: str | VirtualDevice, fast: bool, **more: Any) -> probing.Probed:
    device = VirtualDevice(load_node(name)) if isinstance(name, str) else name
    return probing.evaluated(probing.measured(device, Probe(quick=fast), **more))


class SlowLink(VirtualDevice):
    """The host link carries half."""

    def truth(self, direction: str, memory: str, gpu: int = 0, peer: int | None = None) -> Curve:
        curve = super().truth(direction, memory, gpu, peer)
        return curve.scaled(2.0) if direction in ("h2d", "d2h") else curve


class HalfWidth(SlowLink):
    def state(self, gpu: int) -> dict[str, Any]:
        return super().state(gpu) | {"link_width": 8}


class Throttled(VirtualDevice):
    def state(self, gpu: int) -> dict[str, Any]:
        return super().state(gpu) | {"sm_clock_hz": 6e8, "throttle_reasons": 0x40}


class Busy(VirtualDevice):
    def state(self, gpu: int) -> dict[str, Any]:
        return super().state(gpu) | {"other_processes": 1}


class SendsAgain(VirtualDevice):
    def state(self, gpu: int) -> dict[str, Any]:
        return super().state(gpu) | {"link_replays": int(self.now_s * 3)}


class Stalled(VirtualDevice):
    def run(self, case: Case, repeats: int) -> Samples:
        if case.mode == "streams" and case.count >= 64:
            raise StalledError("the blocking kernel waited 3 s and gave up")
        return super().run(case, repeats)


class Drifting(VirtualDevice):
    def noisy(self, seconds: float) -> float:
        return super().noisy(seconds * (1.15 if self.now_s > 4 else 1.0))


class Refusing(VirtualDevice):
    """Memory for which `refused` holds cannot be had."""

    def __init__(self, node: Node, refused: Callable[[Case], bool]) -> None:
        super().__init__(node)
        self.refused = refused

    def run(self, case: Case, repeats: int) -> Samples:
        if self.refused(case):
            raise UnavailableError("memory was refused")
        return super().run(case, repeats)


def is_pinned(case: Case) -> bool:
    return case.memory in ("pinned", "mapped") or case.mode == "register"


def fitted() -> list[Case]:
    return [case for case in copies(0, [], False) if not is_held_out(case)]


def random_node(seed: int) -> Node:
    """A PCIe node with parameters over all that machines have shown: one piece, or two with a knee."""
    drawn = random.Random(seed)
    curves = []
    for direction in ("h2d", "d2h"):
        latency, gap = drawn.uniform(1e-6, 2e-5), 10 ** drawn.uniform(-11.5, -9)
        knee = 2 ** drawn.randrange(12, 22) if direction == "h2d" and drawn.random() < 0.5 else 0
        curve = Curve(
            direction=direction,  # type: ignore[arg-type]
            memory="pinned",
            up_to_bytes=(knee,) if knee else (),
            latency_overhead_s=(latency, latency + 0.5 * gap * knee) if knee else (latency,),
            gap_per_byte_s=(1.5 * gap, gap) if knee else (gap,),
            issue_interval_s={1: drawn.uniform(5e-7, 5e-6)},
        )
        curves.append(curve)
    return dataclasses.replace(load_node("pcie:4x16"), curves=tuple(curves))


@pytest.mark.parametrize("first", range(0, NODES, 10))
def test_parameters_of_random_nodes_come_back_within_a_percent(first: int) -> None:
    cases = [c for c in fitted() if c.memory == "pinned" and c.mode == "copies"]
    for seed in range(first, first + 10):
        device = VirtualDevice(random_node(seed), seed)
        record = record_of(device, seed)
        measure(device, cases, record, 25)
        fitted_curves = {c.direction: c for c in profile(record).curves}
        for true in device.node.curves:
            fitted_curve = fitted_curves[true.direction]
            for size in (1, 1 << 28):
                expected = pytest.approx(float(true.seconds(size)), rel=0.01)
                assert float(fitted_curve.seconds(size)) == expected, seed
            interval = true.issue_interval_s[1] + 64 * true.gap_per_byte_s[0]
            assert fitted_curve.issue_interval_s[1] == pytest.approx(interval, rel=0.1), seed


@pytest.mark.parametrize("kept", [0.8, 0.95, 1.0])
def test_what_chunks_of_many_streams_keep_comes_back(kept: float) -> None:
    duplex = Contention(both=Shares(0.9, 0.7), across_streams=kept)
    device = VirtualDevice(dataclasses.replace(random_node(3), contentions=(duplex,)), 3)
    record = record_of(device, 3)
    modes = ("copies", "streams", "both", "across-streams", "across-engines")
    measure(device, [c for c in fitted() if c.memory == "pinned" and c.mode in modes], record, 25)
    (fitted_shares,) = profile(record).contentions
    assert fitted_shares.across_streams == pytest.approx(kept, rel=0.01)
    record.measurements = [m for m in record.measurements if m.mode != "across-engines"]
    (fitted_shares,) = profile(record).contentions
    assert fitted_shares.across_streams is None


@pytest.fixture(scope="module")
def whole() -> probing.Probed:
    return probed_of("gtx-titan", fast=False, seed=5)


def test_a_whole_virtual_probe_predicts_what_it_did_not_fit(whole: probing.Probed) -> None:
    result = whole.result
    assert result.virtual
    held_out = [c for c in copies(0, [], False) if is_held_out(c) and c.memory == "pinned"]
    assert result.residuals.count == len(held_out)
    assert (result.residuals.median_percent or 0) < 0.5
    assert (result.residuals.max_percent or 0) < 3
    assert not result.disturbances
    assert {row.why for row in result.left_out} == {"node gtx-titan lacks the cost of device allocations"}
    assert all(h.sound for h in result.health)


@pytest.mark.parametrize("wait", [0.0, 2.2e-12, 2e-11])
def test_what_frees_and_allocations_cost_comes_back(wait: float) -> None:
    cost = Cost(call="allocate-device", call_s=2e-4, call_per_byte_s=7e-13, wait_per_byte_s=wait)
    device = VirtualDevice(dataclasses.replace(load_node("h100-probed"), costs=(cost,)), noise=0.001)
    node = probed_of(device, True, seed=4).node
    probed = node.call_cost("allocate-device")
    assert probed.seconds(1 << 29) == pytest.approx(cost.seconds(1 << 29), rel=0.02)
    assert probed.wait_per_byte_s == pytest.approx(wait, rel=0.03, abs=2e-14)
    assert decode(encode(node), "probed.toml").call_cost("allocate-device") is not None


def test_the_node_file_reads_back_as_the_node(whole: probing.Probed) -> None:
    read_back = decode(encode(whole.node), "probed.toml")
    sizes = [1, 5000, 1 << 20, 1 << 30]
    assert len(read_back.curves) == len(whole.node.curves)
    for read_curve, true in zip(read_back.curves, whole.node.curves, strict=True):
        expected = (true.direction, true.memory, true.faults)
        assert (read_curve.direction, read_curve.memory, read_curve.faults) == expected
        assert read_curve.seconds(sizes) == pytest.approx(true.seconds(sizes), rel=1e-3)
        assert read_curve.together(16, sizes) == pytest.approx(true.together(16, sizes), rel=1e-3)
    assert [c.call for c in read_back.costs] == [c.call for c in whole.node.costs]
    assert read_back.contention().both.h2d == pytest.approx(whole.node.contention().both.h2d, rel=1e-3)
    assert [c.name for c in read_back.components] == [c.name for c in whole.node.components]
    assert read_back.host_path(0).peak() == whole.node.host_path(0).peak()
    assert {s.kind for tag, s in read_back.sources.items() if tag == "probe"} == {"estimated"}


def test_raw_samples_read_back_as_they_were(whole: probing.Probed, tmp_path: Path) -> None:
    for name in ("raw.json", "raw.json.gz"):
        write_record(whole.record, tmp_path / name)
        back = read_record(tmp_path / name)
        assert back == whole.record
    with pytest.raises(InputError, match="probe --raw"):
        (tmp_path / "other.json").write_text("{}")
        read_record(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("played", "sentence"),
    [
        (VirtualDevice, ""),
        (HalfWidth, "half width (x8 of x16)"),
        (SlowLink, "of its expected rate: look for other traffic on it"),
        (Throttled, "throttled by heat"),
        (Stalled, "the blocking kernel waited"),
        (Busy, "busy: 1 other program"),
        (Drifting, "longer for half of the run"),
        (SendsAgain, "packets again"),
    ],
)
def test_disturbances_are_named_and_a_sound_node_has_none(played: type[VirtualDevice], sentence: str) -> None:
    probed = probed_of(played(load_node("h100-sxm")), fast=True, seed=1, gpus=[0])
    seen = [*probed.record.disturbances, *(h.verdict for h in probed.result.health if not h.sound)]
    assert any(sentence in message for message in seen) if sentence else not seen, seen


@pytest.mark.parametrize(("clock_hz", "reported"), [(1.965e9, False), (1.4e9, True), (None, True)])
def test_a_power_cap_that_costs_no_clock_disturbs_nothing(clock_hz: float | None, reported: bool) -> None:
    state = STATE | {"gpu": 0, "sm_clock_hz": clock_hz, "sm_clock_most_hz": 1.98e9, "throttle_reasons": 0x04}
    assert any("its power cap" in sentence for sentence in disturbances([state, state])) == reported


@pytest.mark.parametrize("large_alone", [False, True])
def test_what_cannot_be_had_is_left_out_with_the_reason(large_alone: bool) -> None:
    refused = (lambda case: case.total_bytes > 1 << 24) if large_alone else is_pinned
    device = Refusing(load_node("h100-sxm"), refused)
    probed = probed_of(device, fast=True, seed=1, gpus=[0])
    assert all("refused" in row.why for row in probed.record.left_out)
    assert probed.record.left_out
    kinds = {(m.direction, m.memory) for m in probed.node.curves}
    assert ("h2d", "pageable") in kinds
    assert (("h2d", "pinned") in kinds) == large_alone


@pytest.mark.parametrize(("fast", "limit"), [(True, probing.QUICK_S), (False, probing.FULL_S)])
def test_the_time_budget_is_kept(fast: bool, limit: float) -> None:
    device: Any = VirtualDevice(load_node("gtx-titan"))
    probing.evaluated(probing.measured(device, Probe(quick=fast), seed=2))
    assert limit / 3 < device.clock() <= limit


def test_every_case_has_a_reason_for_its_stop(whole: probing.Probed) -> None:
    assert {m.stopped for m in whole.record.measurements} <= {"settled", "enough", "time"}
    assert all(sum(m.visits) == len(m.api_ns) for m in whole.record.measurements)


def test_the_order_of_cases_is_not_that_of_their_sizes() -> None:
    seen: list[Case] = []

    class Watched(VirtualDevice):
        def run(self, case: Case, repeats: int) -> Samples:
            if repeats > 1:  # no warm-up
                seen.append(case)
            return super().run(case, repeats)

    device = Watched(load_node("gtx-titan"))
    cases = [Case("h2d", "pinned", "copies", 1 << n) for n in range(20)]
    measure(device, cases, record_of(device), 0.1)
    visits = [case.bytes for case in seen]
    assert any(later < earlier for earlier, later in pairwise(visits))
    assert len(set(visits)) == 20


@pytest.mark.parametrize("fast", [True, False])
def test_pinned_and_pageable_memory_are_held_out_and_no_case_is_there_twice(fast: bool) -> None:
    cases = copies(0, [1], fast)
    assert len(cases) == len(set(cases))
    assert {c.memory for c in cases if is_held_out(c)} == {"pinned", "pageable"}
    assert {c.mode for c in cases if is_held_out(c)} == {"copies", "streams"}


def test_with_nothing_measured_it_says_why() -> None:
    device = Refusing(load_node("gtx-titan"), is_pinned)
    record = record_of(device)
    measure(device, [Case("h2d", "pinned", "copies", 64)], record, 1)
    with pytest.raises(BusfareError, match="refused"):
        probing.evaluated(record)


def test_peers_are_measured_in_every_ordered_pair() -> None:
    probed = probed_of("summit", fast=True, seed=1, gpus=[0, 1])
    pairs = {(m.gpu, m.peer) for m in probed.node.curves if m.direction == "p2p"}
    assert pairs == {(0, 1), (1, 0)}
    curve = probed.node.curve("p2p", "device", 1, 0)
    assert curve is not None and (curve.gpu, curve.peer) == (1, 0)


def test_what_the_memory_carries_for_all_gpus_comes_back() -> None:
    node = load_node("a19-node-1")
    carried = AtOnce(9e9, 8e9, 5e9, 6e9)
    parts = tuple(
        msgspec.structs.replace(part, at_once=carried) if isinstance(part, Memory) else part
        for part in node.components
    )
    device = VirtualDevice(dataclasses.replace(node, components=parts), seed=3)
    record = probing.measured(device, Probe(quick=True, only="copies"), seed=3)
    fitted_rates = probing.evaluated(record).node.at_once("memory0")
    assert msgspec.structs.astuple(fitted_rates) == pytest.approx(msgspec.structs.astuple(carried), rel=0.02)


def test_gpus_of_several_memories_say_so() -> None:
    record = probing.measured(VirtualDevice(load_node("summit")), Probe(quick=True, only="copies"), seed=1)
    reasons = {row.case: row.why for row in record.left_out}
    assert "more than one memory" in reasons["h2d pinned all-gpus 4×16777216 B"]
    assert all(getattr(part, "at_once", None) is None for part in probing.evaluated(record).node.components)


#: As NVML numbers the far ends of links: another GPU, a switch, not told.
GPU, SWITCH, UNKNOWN = 0, 2, 255


def machine_of_links(links: list[list[dict[str, Any]]]) -> Record:
    """A machine of H200s with these NVLinks each."""
    gpus = [
        {
            "name": "NVIDIA H200", "bus_id": f"0000:0{n}:00.0", "compute_capability": [9, 0], "multiprocessors": 132,
            "copy_engines": 3, "memory_bytes": 150 << 30, "memory_clock_hz": 3_201_000_000, "memory_bus_bits": 6144,
            "clock_hz": 1_980_000_000, "coherent": False, "integrated": False, "nvlinks": gpu_links,
            "link_width": 16, "link_speed": "32.0 GT/s PCIe",
        }
        for n, gpu_links in enumerate(links)
    ]  # fmt: skip
    return Record(False, "2026-01-01", "test", {"gpus": gpus, "cores": 32}, 0)


@pytest.mark.parametrize(("kind", "far"), [(SWITCH, "0000:07:00.0"), (UNKNOWN, None), (None, None)])
def test_gpus_on_a_switch_reach_their_peers(kind: int | None, far: str | None) -> None:
    links = [{"link": n, "version": 7, "remote": far, "remote_type": kind} for n in range(18)]
    node = bare_node(machine_of_links([links, links]))
    assert {link.between for link in node.links if isinstance(link, NvlinkLink)} == {
        ("nvswitch", "gpu0"), ("nvswitch", "gpu1")
    }  # fmt: skip
    assert node.peer_path(0, 1).bandwidth("write") == pytest.approx(450e9, rel=0.15)


def test_gpus_that_are_joined_directly_have_direct_links() -> None:
    to = [
        [{"link": n, "version": 7, "remote": f"0000:0{peer}:00.0", "remote_type": GPU} for n in range(4)]
        for peer in (1, 0)
    ]
    node = bare_node(machine_of_links(to))
    (link,) = (link for link in node.links if isinstance(link, NvlinkLink))
    assert (link.between, link.links) == (("gpu1", "gpu0"), 4)


def test_gpus_without_nvlink_meet_at_the_host() -> None:
    node = bare_node(machine_of_links([[], []]))
    assert not any(isinstance(link, NvlinkLink) for link in node.links)
    assert node.peer_path(0, 1).bandwidth("write") < 64e9
