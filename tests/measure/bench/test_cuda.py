"""The GPU part without a GPU: its kernels compile for every architecture, and its calls do what they should on a
stand-in driver that runs streams in any order that their events allow.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from busfare.errors import InputError
from busfare.measure.bench import program as programs
from busfare.measure.bench.checking import RELATIVE, expected, fill
from busfare.measure.bench.kernel import KERNELS, Kernel, source_text, user_kernel
from busfare.measure.bench.methods import METHODS
from busfare.measure.bench.program import Program
from busfare.measure.bench.strategies import Run, run_cells
from busfare.measure.bench.work import Work
from busfare.measure.case import Case
from busfare.measure.cuda import board as board_module
from busfare.measure.cuda import facts
from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.device import CudaDevice
from busfare.measure.cuda.driver import CudaError
from busfare.measure.cuda.methods import CudaMethods, expected_value
from busfare.measure.cuda.strategies import CudaStrategies
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.node import load_node
from busfare.plan import machine_of
from tests.measure.bench.stand_in_driver import StandIn

ARCHITECTURES = [(7, 5), (9, 0), (12, 0)]

MINE = """
extern "C" __global__ void mine(const double* a, const double* b, double* c, unsigned long long first,
                                unsigned long long count, unsigned long long level) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) c[first + i] = a[first + i] - b[first + i];
}
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    made.install(monkeypatch)
    monkeypatch.setattr(
        facts, "of_machine", lambda gpus: {"gpus": [{"name": "stand-in"}] * gpus, "driver": None}
    )
    return made


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_every_kernel_compiles(capability: tuple[int, int]) -> None:
    for kernel in KERNELS.values():
        code = compiled(source_text(kernel), "kernels.cu", capability, (f"-DWORK={kernel.work}",))
        assert code[:4] == b"\x7fELF"
        assert kernel.function.encode() in code


def test_the_probes_kernels_compile() -> None:
    source = resources.files("busfare.measure.cuda").joinpath("kernels.cu").read_text("utf-8")
    assert b"stream16" in compiled(source, "kernels.cu", (9, 0))


def test_a_kernel_that_does_not_compile_shows_the_compilers_log() -> None:
    with pytest.raises(
        InputError, match=r"mine\.cu: NVRTC refused it .*undeclared.* is undefined|mine\.cu.*undeclared"
    ):
        compiled(MINE.replace("a[first", "undeclared[first"), "mine.cu", (9, 0))


def test_a_kernel_of_ones_own_compiles(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(MINE)
    kernel = user_kernel(path, 2, 1)
    assert (kernel.function, kernel.inputs, kernel.outputs, kernel.reference) == ("mine", 2, 1, None)
    assert b"mine" in compiled(source_text(kernel), path.name, (9, 0))


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", (1, 1), "no kernel declared"),
        (MINE + MINE.replace("mine", "other"), (1, 1), "2 kernels"),
        (MINE, (0, 1), "--in 0"),
        (MINE, (1, 17), "--out 17"),
    ],
)
def test_a_file_without_one_kernel_is_refused(
    tmp_path: Path, text: str, arguments: tuple[int, int], message: str
) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        user_kernel(path, *arguments)


def test_one_of_several_kernels_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(MINE + MINE.replace("mine", "other"))
    assert user_kernel(path, 2, 1, "other").function == "other"
    with pytest.raises(InputError, match=r"no kernel 'third'.*it has mine, other"):
        user_kernel(path, 2, 1, "third")


def every_program(work: Work) -> list[tuple[Program, ...]]:
    single = [programs.explicit(work), programs.batched(work), programs.mapped(work)]
    for count in (1, 2, 4, 6, 9):
        single += [
            programs.streams(work, count),
            programs.hybrid(work, count),
            programs.streams(work, count, "graph", as_graph=True),
            programs.three_streams(work, count),
        ]
    return [(made,) for made in single]


@pytest.mark.parametrize("name", KERNELS)
def test_every_program_gives_the_result_in_every_order(name: str, stand_in: StandIn) -> None:
    work = stand_in.work = Work(KERNELS[name], 6, 96)
    device = CudaStrategies(1)
    device.load(work)
    fill(work, device.inputs())
    right = expected(work, device.inputs())
    for made in every_program(work):
        for _ in range(2):
            device.clear()
            timing = device.run(made, 1)  # once: a second run would find what the first one copied
            right.check(device.outputs())
            assert timing.held and timing.device_s[0] > 0
        timing = device.run(made, 2, 2)
        right.check(device.outputs())
        assert len(timing.host_s) == 2 and min(timing.host_s) > 0
    device.close()
    assert not stand_in.blocks, "memory was not given back"
    assert not stand_in.streams


def test_cleared_arrays_never_pass_the_check(stand_in: StandIn) -> None:
    work = stand_in.work = Work(KERNELS["state"], 3, 64)
    device = CudaStrategies(1)
    device.load(work)
    fill(work, device.inputs())
    right = expected(work, device.inputs())
    device.expect(right.arrays, RELATIVE, right.slacks)
    device.clear()
    with pytest.raises(WrongDataError, match="elements differ"):
        right.check(device.outputs())
    assert device.compare().wrong == 3 * work.elements
    # A version that copies nothing out leaves them so; one that copies nothing in computes on NaN.
    whole = programs.explicit(work)
    for kind in ("h2d", "d2h"):
        kept = tuple(op for op in whole.operations if op.kind != kind)
        device.clear()
        device.run((Program("explicit", 1, kept),), 1)
        with pytest.raises(WrongDataError):
            right.check(device.outputs())
        assert device.compare().wrong == 3 * work.elements
    # The comparison on the GPU sees one element that is off by little more than is allowed, and where.
    device.run((whole,), 1)
    assert (device.compare().wrong, device.compare().first) == (0, None)
    allowed = RELATIVE * abs(right.arrays[1][70]) + right.slacks[1]
    device.outputs()[1][70] = right.arrays[1][70] + 0.9 * allowed
    assert device.compare().wrong == 0 and device.compare().worst == pytest.approx(0.9, rel=0.01)
    device.outputs()[1][70] = right.arrays[1][70] + 1.1 * allowed
    assert (device.compare().wrong, device.compare().first) == (1, 70)
    device.close()


def test_two_gpus_give_the_result_together(stand_in: StandIn) -> None:
    work = stand_in.work = Work(KERNELS["buoydiff"], 6, 96)
    device = CudaStrategies(2)
    device.load(work)
    fill(work, device.inputs())
    right = expected(work, device.inputs())
    shares = tuple(programs.streams(work, 6, own=own) for own in (range(3), range(3, 6)))
    device.clear()
    device.run(shares, 1)
    right.check(device.outputs())
    device.close()


def test_what_does_not_fit_a_queue_is_run_without_being_held(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from busfare.measure.cuda.blocker import Flags
    from busfare.measure.device import StalledError

    def verify(self: Flags) -> None:
        raise StalledError("gave up")

    work = stand_in.work = Work(KERNELS["scale"], 6, 96)
    device = CudaStrategies(1)
    device.load(work)
    monkeypatch.setattr(Flags, "verify", verify)
    timing = device.run((programs.streams(work, 6),), 3)
    assert not timing.held and len(timing.device_s) == 3
    monkeypatch.undo()


def small(kernel: Kernel) -> Work:
    return Work(kernel, 6, 96)


def test_a_whole_run_checks_every_version(stand_in: StandIn) -> None:
    device = CudaStrategies(2)
    device_load = device.load

    def load(work: Work) -> None:
        stand_in.work = work
        device_load(work)

    device.load = load  # type: ignore[method-assign]
    machine = machine_of(load_node("h100-probed"))
    found: Run = run_cells(device, [small(KERNELS["state"]), small(KERNELS["buoydiff"])], machine, quick=True)
    assert not found.left_out
    for cell in found.cells:
        assert {v.strategy for v in cell.versions} >= {
            "explicit",
            "batched",
            "mapped",
            "streams",
            "hybrid",
            "graph",
        }
        assert all(v.error_share is not None and v.error_share <= 1 for v in cell.versions)
        assert "float64" in cell.against


def test_a_kernel_without_a_reference_is_held_against_its_explicit_version(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = small(KERNELS["scale"])
    stand_in.work = known
    device = CudaStrategies(1)
    own = replace(known, kernel=replace(known.kernel, name="mine", reference=None))
    machine = machine_of(load_node("h100-probed"))
    (cell,) = run_cells(device, [own], machine, quick=True).cells
    assert cell.against == "the explicit version, for want of a reference"
    assert all(v.error_share == 0 for v in cell.versions)
    # A version that gives something else is left out, and named.
    real = programs.mapped
    monkeypatch.setattr(
        programs,
        "mapped",
        lambda work: replace(real(work), operations=programs.kernels_alone(work, 2).operations[:1]),
    )
    run = run_cells(device, [own], machine, quick=True)
    assert not run.cells
    assert "mine 6×96 mapped 1" in {row["case"] for row in run.left_out}


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
    assert not stand_in.blocks


def test_a_wrong_product_is_seen(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaMethods(1)
    device.start("pinned", 1000)
    monkeypatch.setattr(driver, "cuMemcpyDtoHAsync", lambda *arguments: (driver.CUresult.CUDA_SUCCESS,))
    with pytest.raises(WrongDataError, match="1000 of 1000 elements"):
        device.run(1000, 1, 1)


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
@pytest.mark.parametrize("mode", ["kernel", "kernel-both", "kernel-beside-copies"])
def test_the_probe_moves_mapped_memory_both_ways(direction: str, mode: str, stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 16
    case = Case(direction, "mapped", mode, 1 << 14)  # type: ignore[arg-type]
    samples = device.run(case, 1)
    assert len(samples.device_s) == 1 and samples.device_s[0] > 0
    moved = {"h2d": 0, "d2h": 1}[direction] if mode != "kernel-both" else 1
    if moved:
        target = device._boards[0].buffer("pinned", "target", 1 << 14)
        assert bytes((ctypes.c_uint8 * 8).from_address(target)) == bytes.fromhex("00000000b179379e")
    device.close()
    assert not stand_in.blocks


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
@pytest.mark.parametrize(
    ("mode", "bytes_", "count"), [("copies", 10_001, 1), ("streams", 1500, 5), ("streams", 4, 3)]
)
@pytest.mark.parametrize("beside", [3, 1, 0])
def test_the_probe_moves_pinned_memory_at_other_places_in_several_contexts(
    direction: str, mode: str, bytes_: int, count: int, beside: int, stand_in: StandIn
) -> None:
    stand_in.contexts_most = beside
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    case = Case(direction, "pinned", mode, bytes_, count)  # type: ignore[arg-type]
    moved: list[tuple[int, int, str]] = []
    real = stand_in._move
    stand_in._move = lambda target, source, size, stream: (  # type: ignore[method-assign]
        moved.append((int(target), int(source), stand_in.in_context)),
        real(target, source, size, stream),
    )[1]
    turns = 8
    for _ in range(turns):
        assert len(device.run(case, 2).device_s) == 2
    kinds = ("pinned", "device") if direction == "h2d" else ("device", "pinned")
    boards = [device._boards[0], *device._beside[0]]
    assert len({context for _, _, context in moved}) == len(boards) == 1 + beside
    for board in boards:
        own = [(at, start) for at, start, context in moved if context == board.context]
        source, target = (board.buffer(k, r, 1) for k, r in zip(kinds, ("source", "target"), strict=True))
        assert own and all(at - target == start - source for at, start in own)
    # Every sample of a single copy has pages of its own; chunks of a few bytes share their visit's.
    own_places = 2 * turns if mode == "copies" else turns * count
    assert len({start for _, start, _ in moved}) >= 0.75 * own_places
    # A copy that moves nothing is found out, wherever it should have been, and in whichever context.
    stand_in._move = lambda *arguments: None  # type: ignore[method-assign]
    for _ in boards:
        with pytest.raises(WrongDataError):
            device.run(case, 2)
    device.close()
    assert not stand_in.contexts and not stand_in.blocks


def test_a_sample_that_arrives_changed_is_found_among_others(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    case = Case("h2d", "pinned", "copies", 5000)
    real, calls = stand_in._move, itertools.count()

    def move(*arguments: Any) -> None:
        # Of five samples, each with a copy before it, the third one's own and the one before it do not arrive.
        if next(calls) not in (4, 5):
            real(*arguments)

    monkeypatch.setattr(stand_in, "_move", move)
    with pytest.raises(WrongDataError, match="places of 25000 bytes"):
        device.run(case, 5)
    device.close()


def test_contexts_without_room_are_given_back_and_said(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    made = stand_in.cuMemAlloc

    def alloc(size: int) -> Any:
        if stand_in.in_context.endswith("beside 1") and size > 8:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")
        return driver.CUresult.CUDA_SUCCESS, made(size)

    monkeypatch.setattr(driver, "cuMemAlloc", alloc)
    for _ in range(4):
        assert len(device.run(Case("h2d", "pinned", "copies", 100), 2).device_s) == 2
    # The second further context found no memory: it is closed again, and the first one serves.
    assert stand_in.contexts == ["context 0 beside 0"]
    assert [row["case"] for row in device.left_out] == ["2 of 4 contexts for short copies on GPU 0"]
    assert "device memory were refused" in device.left_out[0]["why"]
    device.close()
    assert not stand_in.contexts and not stand_in.blocks


def test_what_the_probe_does_not_place_stays_in_the_first_context(stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    for case in (Case("h2d", "pageable", "copies", 100), Case("h2d", "write-combined", "copies", 100)):
        for _ in range(3):
            device.run(case, 2)
    assert not stand_in.contexts and not device._beside
    device.close()


@pytest.mark.parametrize(
    ("direction", "memory"),
    [("h2d", "pinned"), ("h2d", "pageable"), ("d2h", "pageable"), ("h2d", "managed")],
)
def test_the_probe_writes_what_it_copies_just_before(
    direction: str, memory: str, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    written: list[int] = []
    real = np.bitwise_or
    monkeypatch.setattr(
        np, "bitwise_or", lambda a, b, out: (written.append(out.nbytes), real(a, b, out=out))[1]
    )
    case = Case(direction, memory, "written", 1 << 16)  # type: ignore[arg-type]
    samples = device.run(case, 3)
    # Written before each sample, and the data arrive whole: `run` compares them.
    assert written == [1 << 16] * 3 and len(samples.api_s) == 3
    device.close()
    assert not stand_in.blocks


def test_the_probes_hybrid_writes_every_chunk_to_the_host(stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    assert len(device.run(Case("h2d", "pinned", "hybrid", 1 << 12, 5), 2).device_s) == 2
    board = device._boards[0]
    source, target = (board.buffer("pinned", role, 1) for role in ("source", "target"))
    # Chunks are a multiple of 256 bytes, so they lie side by side.
    assert ctypes.string_at(target, 5 << 12) == ctypes.string_at(source, 5 << 12)
    device.close()
    assert not stand_in.blocks


def test_the_probe_brings_every_chunk_in_and_out_in_a_stream_of_its_own(stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    assert len(device.run(Case("h2d", "pinned", "through", 1 << 12, 5), 2).device_s) == 2
    board = device._boards[0]
    sent, arrived = board.buffer("pinned", "source", 1), board.buffer("device", "target", 1)
    back, made = board.buffer("pinned", "target", 1), board.buffer("device", "source", 1)
    assert ctypes.string_at(arrived, 5 << 12) == ctypes.string_at(sent, 5 << 12)
    assert ctypes.string_at(back, 5 << 12) == ctypes.string_at(made, 5 << 12)
    device.close()
    assert not stand_in.blocks


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_the_probe_packs_rows_and_takes_them_apart(direction: str, stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    case = Case(direction, "pinned", "packed", 64, 8)  # type: ignore[arg-type]
    assert len(device.run(case, 2).device_s) == 2
    board = device._boards[0]
    kinds = ("pinned", "device") if direction == "h2d" else ("device", "pinned")
    source, target = (board.buffer(k, r, 1) for k, r in zip(kinds, ("source", "target"), strict=True))
    from_, to = (64, 128) if direction == "h2d" else (128, 64)
    for row in range(8):
        assert ctypes.string_at(target + row * to, 64) == ctypes.string_at(source + row * from_, 64)
    # Rows that arrive in each other's place are found out.
    stand_in._move = lambda *arguments: None  # type: ignore[method-assign]
    with pytest.raises(WrongDataError):
        device.run(case, 1)
    device.close()


@pytest.mark.parametrize("peers", [True, False])
def test_two_gpus_copy_to_each_other(peers: bool, stand_in: StandIn) -> None:
    stand_in.peers = peers
    device = CudaDevice(2)
    device._most_bytes = 1 << 18
    for _ in range(2):
        for gpu, peer in ((0, 1), (1, 0)):
            assert len(device.run(Case("p2p", "device", "copies", 4097, 1, gpu, peer), 3).device_s) == 3
    assert stand_in.enabled == (["context 1", "context 0"] if peers else [])
    # What the host stages must not wait behind a kernel that waits for the host.
    held = stand_in.calls["cuLaunchKernel"]
    device.run(Case("p2p", "device", "copies", 4097, 1, 0, 1), 3)
    assert stand_in.calls["cuLaunchKernel"] - held == (3 if peers else 0) + 2  # poison and check
    device.close()
    assert not stand_in.blocks


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_two_gpus_copy_at_once(direction: str, stand_in: StandIn) -> None:
    device = CudaDevice(2)
    device._most_bytes = 1 << 18
    case = Case(direction, "pinned", "beside-gpu", 5000, 4, 0, 1)  # type: ignore[arg-type]
    before = stand_in.calls.get(f"cuMemcpy{'HtoD' if direction == 'h2d' else 'DtoH'}Async", 0)
    assert len(device.run(case, 2).device_s) == 2
    copied = stand_in.calls[f"cuMemcpy{'HtoD' if direction == 'h2d' else 'DtoH'}Async"] - before
    assert copied == 2 * (4 + 10)
    assert stand_in.enabled == []
    device.close()
    assert not stand_in.blocks


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_two_gpus_copy_both_ways_at_once(direction: str, stand_in: StandIn) -> None:
    device = CudaDevice(2)
    device._most_bytes = 1 << 18
    case = Case(direction, "pinned", "both-beside-gpu", 5000, 4, 0, 1)  # type: ignore[arg-type]
    names = {way: f"cuMemcpy{way}Async" for way in ("HtoD", "DtoH")}
    before = {way: stand_in.calls.get(name, 0) for way, name in names.items()}
    assert len(device.run(case, 2).device_s) == 2
    copied = {way: stand_in.calls[name] - before[way] for way, name in names.items()}
    own = "HtoD" if direction == "h2d" else "DtoH"
    # The other GPU's both ways, this one's other way, and this way what is measured: 4 copies of it.
    assert copied == {way: 2 * (4 + 10 if way == own else 10 + 10) for way in names}
    device.close()
    assert not stand_in.blocks


def test_two_gpus_take_chunks_through_at_once(stand_in: StandIn) -> None:
    device = CudaDevice(2)
    device._most_bytes = 1 << 18
    names = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
    before = [stand_in.calls.get(name, 0) for name in names]
    samples = device.run(Case("h2d", "pinned", "through-beside-gpu", 5000, 8, 0, 1), 2)
    assert len(samples.device_s) == 2 and min(samples.device_s) > 0
    assert [stand_in.calls[name] - n for name, n in zip(names, before, strict=True)] == [2 * 2 * 8] * 2
    device.close()
    assert not stand_in.blocks


def test_there_and_back_is_one_copy_each_way(stand_in: StandIn) -> None:
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    before = [stand_in.calls.get(name, 0) for name in ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")]
    assert len(device.run(Case("h2d", "pinned", "there-and-back", 5000), 2).device_s) == 2
    into, out = (stand_in.calls[name] for name in ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"))
    # The copy in has a short one before it, which leads in.
    assert (into - before[0], out - before[1]) == (4, 2)
    device.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no threads")
def test_a_bound_processor_makes_and_moves_memory_of_its_own(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.sched_getaffinity(0)
    near = min(free)
    seen: list[set[int]] = []
    real = stand_in.cuMemHostAlloc
    monkeypatch.setattr(
        driver,
        "cuMemHostAlloc",
        lambda size, flags: (seen.append(os.sched_getaffinity(0)), (0, real(size, flags)))[1],
    )
    monkeypatch.setattr(facts, "local_processors", lambda gpu: f"{near}")
    device = CudaDevice(1)
    device._most_bytes = 1 << 18
    for memory in ("pinned", "pageable"):
        bound = Case("h2d", memory, "bound", 5000)  # type: ignore[arg-type]
        device.run(bound, 2)
        device.run(replace(bound, mode="copies"), 2)
    assert {near} in seen and free in seen
    assert device._near[0].buffer("pinned", "source", 1) != device._boards[0].buffer("pinned", "source", 1)
    assert os.sched_getaffinity(0) == free
    monkeypatch.setattr(facts, "local_processors", lambda gpu: None)
    with pytest.raises(UnavailableError, match="next to the GPU"):
        device.run(bound, 1)
    device.close()


def test_pageable_data_of_several_parts_are_compared_whole(stand_in: StandIn) -> None:
    device = CudaDevice(1)
    board = device._board(0)
    one = np.arange((1 << 24) + 5, dtype=np.uint8)
    other = one.copy()
    assert board_module._differences(one.ctypes.data, other.ctypes.data, one.size) == 0
    other[[3, one.size // 2, -1]] ^= 1
    assert board_module._differences(one.ctypes.data, other.ctypes.data, one.size) == 3
    board.close()


def test_the_expected_value_is_that_of_32_bits() -> None:
    assert (expected_value(0), expected_value(1)) == (7, 21)
    value = np.int32(7)
    with np.errstate(over="ignore"):
        for _ in range(50):
            value = np.int32(value * np.int32(3))
    assert expected_value(50) == int(value)
