"""The GPU part without a GPU: its kernels compile for every architecture, and its calls do what they should on a
stand-in driver that runs streams in any order that their events allow.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from cuda.bindings import driver

from busfare.measure.bench import program as programs
from busfare.measure.bench.kernel import KERNELS, RELATIVE, Work, expected, fill, slacks
from busfare.measure.bench.methods import METHODS
from busfare.measure.bench.program import Program
from busfare.measure.cases import Case, Samples, at_once, copies
from busfare.measure.cuda.board import Flags, _differences
from busfare.measure.cuda.device import CudaDevice
from busfare.measure.cuda.driver import compiled, source_of
from busfare.measure.cuda.methods import CudaMethods, expected_value
from busfare.measure.cuda.strategies import CudaStrategies
from busfare.measure.run import StalledError, UnavailableError, WrongDataError
from tests.measure.stand_in_driver import StandIn

ARCHITECTURES = [(7, 5), (9, 0), (12, 0)]


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_every_kernel_compiles(capability: tuple[int, int]) -> None:
    for kernel in KERNELS.values():
        code = compiled(source_of("bench.cu"), "bench.cu", capability, (f"-DWORK={kernel.work}",))
        assert code[:4] == b"\x7fELF"
        assert kernel.function.encode() in code


def every_program(work: Work) -> list[Program]:
    single = [programs.explicit(work), programs.batched(work), programs.mapped(work)]
    for count in (1, 2, 4, 6, 9):
        single += [
            programs.streams(work, count),
            programs.streams(work, count, "hybrid"),
            programs.streams(work, count, "graph"),
            programs.three_streams(work, count),
        ]
    return single


def loaded(stand_in: StandIn, work: Work) -> tuple[CudaStrategies, list[np.ndarray]]:
    """A device with the inputs of `work`, which expects the reference; and the reference."""
    stand_in.work = work
    device = CudaStrategies(1)
    device.load(work)
    fill(work, device.inputs())
    right = expected(work, device.inputs())
    device.expect(right, RELATIVE, slacks(right))
    return device, right


@pytest.mark.parametrize("name", KERNELS)
def test_every_program_gives_the_result_in_every_order(name: str, stand_in: StandIn) -> None:
    work = Work(KERNELS[name], 6, 96)
    device, _ = loaded(stand_in, work)
    for made in every_program(work):
        for _ in range(2):
            device.clear()
            timing = device.run(made, 1)  # once: a second run would find what the first one copied
            assert device.compare().wrong == 0
            assert timing.held and timing.device_s[0] > 0
        timing = device.run(made, 2, 2)
        assert device.compare().wrong == 0
        assert len(timing.host_s) == 2 and min(timing.host_s) > 0
    device.close()


def test_without_its_events_buoydiff_is_wrong_in_some_order(stand_in: StandIn) -> None:
    work = Work(KERNELS["buoydiff"], 6, 96)
    device, _ = loaded(stand_in, work)
    made = programs.streams(work, 6)
    bare = replace(made, operations=tuple(replace(op, after=()) for op in made.operations))
    wrong = 0
    for _ in range(5):
        device.clear()
        device.run(bare, 1)
        wrong += device.compare().wrong
    assert wrong
    device.close()


def test_cleared_arrays_never_pass_the_check(stand_in: StandIn) -> None:
    work = Work(KERNELS["state"], 3, 64)
    device, right = loaded(stand_in, work)
    device.clear()
    assert device.compare().wrong == 3 * work.elements
    # A version that copies nothing out leaves them so; one that copies nothing in computes on NaN.
    whole = programs.explicit(work)
    for kind in ("h2d", "d2h"):
        kept = tuple(op for op in whole.operations if op.kind != kind)
        device.clear()
        device.run(Program("explicit", 1, kept), 1)
        assert device.compare().wrong == 3 * work.elements
    # The comparison sees one element that is off by little more than is allowed, and where.
    device.run(whole, 1)
    assert (device.compare().wrong, device.compare().first) == (0, None)
    allowed = RELATIVE * abs(right[1][70]) + slacks(right)[1]
    device.outputs()[1][70] = right[1][70] + 0.9 * allowed
    assert device.compare().wrong == 0 and device.compare().worst == pytest.approx(0.9, rel=0.01)
    device.outputs()[1][70] = right[1][70] + 1.1 * allowed
    assert (device.compare().wrong, device.compare().first) == (1, 70)
    device.close()


def test_what_does_not_fit_a_queue_is_run_at_once(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(self: Flags) -> None:
        raise StalledError("gave up")

    work = stand_in.work = Work(KERNELS["scale"], 6, 96)
    device = CudaStrategies(1)
    device.load(work)
    monkeypatch.setattr(Flags, "verify", verify)
    timing = device.run(programs.streams(work, 6), 3)
    assert not timing.held and len(timing.device_s) == 3
    device.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("accesses", [1, 50])
def test_every_method_gives_the_product(method: str, accesses: int, stand_in: StandIn) -> None:
    device = CudaMethods(1)
    device.start(method, 5000)
    runs = device.run(5000, accesses, 5)
    assert len(runs) == 5
    without = {"zero-copy", "managed"}
    for run in runs:
        assert list(run.ranges) == ["initialise", "h2d", "kernel", "d2h", "sum"]
        assert (run.ranges["h2d"] == 0) == (method in without)
        assert set(run.device) == ({"kernel"} if method in without else {"h2d", "kernel", "d2h"})
    assert device.kernel_seconds(5000, accesses) > 0
    device.close()


def test_a_wrong_product_is_seen(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaMethods(1)
    device.start("pinned", 1000)
    monkeypatch.setattr(driver, "cuMemcpyDtoHAsync", lambda *arguments: (driver.CUresult.CUDA_SUCCESS,))
    with pytest.raises(WrongDataError, match="1000 of 1000 elements"):
        device.run(1000, 1, 1)
    device.close()


@pytest.fixture
def device(stand_in: StandIn) -> Iterator[CudaDevice]:
    made = CudaDevice(2)
    made.most_bytes = 1 << 18
    yield made
    made.close()


SMALL = {
    (c.direction, c.memory, c.mode, min(c.count, 4)): replace(
        c, bytes=min(c.bytes, 4093 if c.mode in ("copies", "streams") else 4096), count=min(c.count, 4)
    )
    for c in (*copies(0, [1], False), *at_once(False))
}


def in_some_order(device: CudaDevice, case: Case, repeats: int) -> Samples:
    """The stand-in runs streams in a random order: of two GPUs, what should outlast the rest may end first now and then."""
    for _ in range(50):
        with contextlib.suppress(UnavailableError):
            return device.run(case, repeats)
    raise AssertionError("never outlasted")


@pytest.mark.parametrize("case", SMALL.values(), ids=str)
def test_every_case_of_the_probe_runs(case: Case, device: CudaDevice) -> None:
    samples = in_some_order(device, case, 3)
    assert len(samples.api_s) == 3 and min(samples.api_s) > 0
    on_gpu = case.direction != "none" or case.mode in ("empty", "launch")
    on_gpu &= (case.memory, case.mode, case.direction) != ("managed", "touch", "d2h")
    assert len(samples.device_s) == (3 if on_gpu else 0) and all(s > 0 for s in samples.device_s)


#: Where nothing moves, what runs the other way ends at any time.
MOVING = [
    c for c in SMALL.values()
    if c.memory in ("pinned", "device") and c.direction != "none"
    and c.mode not in ("both", "all-gpus-both")
]  # fmt: skip


@pytest.mark.parametrize("case", MOVING, ids=str)
def test_data_that_do_not_arrive_are_detected(case: Case, device: CudaDevice, stand_in: StandIn) -> None:
    stand_in._move = lambda *arguments: None  # type: ignore[method-assign]
    with pytest.raises(WrongDataError, match="corrupted"):
        device.run(case, 2)


def test_a_buffer_is_freed_and_allocated_before_every_copy_but_the_first(
    device: CudaDevice, stand_in: StandIn
) -> None:
    case, names = Case("h2d", "pinned", "reallocated", 4096), ("cuMemAlloc", "cuMemFree")
    device.run(case, 1)
    before = [stand_in.calls.get(name, 0) for name in names]
    device.run(case, 3)
    assert [stand_in.calls[name] - count for name, count in zip(names, before, strict=True)] == [3, 3]


@pytest.mark.parametrize("peers", [True, False])
def test_two_gpus_copy_to_their_peers(peers: bool, stand_in: StandIn) -> None:
    stand_in.peers = peers
    device = CudaDevice(2)
    device.most_bytes = 1 << 18
    for _ in range(2):
        for gpu, peer in ((0, 1), (1, 0)):
            assert len(device.run(Case("p2p", "device", "copies", 4097, 1, gpu, peer), 3).device_s) == 3
    assert stand_in.enabled == (["context 1", "context 0"] if peers else [])
    # What the host stages must not wait behind a kernel that waits for the host.
    held = stand_in.calls["cuLaunchKernel"]
    device.run(Case("p2p", "device", "copies", 4097, 1, 0, 1), 3)
    assert stand_in.calls["cuLaunchKernel"] - held == (3 if peers else 0) + 2  # poison and check
    device.close()


def test_pageable_data_of_several_parts_are_compared_whole() -> None:
    original = np.arange((1 << 24) + 5, dtype=np.uint8)
    altered = original.copy()
    assert _differences(original.ctypes.data, altered.ctypes.data, original.size) == 0
    altered[[3, original.size // 2, -1]] ^= 1
    assert _differences(original.ctypes.data, altered.ctypes.data, original.size) == 3


def test_the_expected_value_is_that_of_32_bits() -> None:
    assert (expected_value(0), expected_value(1)) == (7, 21)
    value = np.int32(7)
    with np.errstate(over="ignore"):
        for _ in range(50):
            value = np.int32(value * np.int32(3))
    assert expected_value(50) == int(value)
