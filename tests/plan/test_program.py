"""Programs of copies and kernels in streams, by hand: what each rule of a GPU makes of them."""

import msgspec
import pytest

from busfare.nodes import Contention, Curve, Shares
from busfare.timeline.program import GpuRules, Mapped, Program

#: 10 GB/s; L+o 10 µs, g 2 µs in one stream and 4 in four.
IN, OUT = (
    Curve(
        direction=direction, memory="pinned", latency_overhead_s=(1e-5,), gap_per_byte_s=(1e-10,),
        issue_interval_s={1: 2e-6, 4: 4e-6},
    )
    for direction in ("h2d", "d2h")
)  # fmt: skip
MEGA = 1_000_000  # 100 µs


def streams(rules: GpuRules, count: int = 4, kernel: float = 1e-4) -> float:
    """Microseconds of `count` chunks of a megabyte each way, a stream a chunk, issued breadth first."""
    program = Program(rules)
    for n in range(count):
        program.copy("h2d", MEGA, IN, n)
    for n in range(count):
        program.kernel(kernel, n)
    for n in range(count):
        program.copy("d2h", MEGA, OUT, n)
    return program.play().seconds * 1e6


def test_what_waits_for_another_stream_or_follows_a_kernel_starts_later() -> None:
    into = msgspec.structs.replace(IN, event_wait_s=3e-6)
    out = msgspec.structs.replace(OUT, after_kernel_s=5e-6)
    seconds = []
    for streams in ((0, 0, 0), (0, 1, 1), (0, 1, 2)):
        program = Program()
        copied = program.copy("h2d", MEGA, into, streams[0])
        computed = program.kernel(1e-4, streams[1], (copied,))
        program.copy("d2h", MEGA, out, streams[2], (computed,))
        seconds.append(program.play().seconds)
    assert seconds == pytest.approx([325e-6, 328e-6, 328e-6])


def test_a_kernel_that_reads_and_writes_mapped_memory_takes_what_was_measured_of_it() -> None:
    rules = GpuRules(Contention(mapped_both=Shares(0.8, 0.8), mapped_both_start_s=45e-6))

    def micros(reads: float, writes: float) -> float:
        program = Program(rules)
        program.kernel(1e-9, 0, (), Mapped(reads, IN), Mapped(writes, OUT))
        return program.play().seconds * 1e6

    # L+o each way, the bytes slowed to 0.8 of their rate, and the start: half of it for half a mebibyte each, and where the
    # kernel writes half of what it reads.
    assert micros(8 * MEGA, 8 * MEGA) == pytest.approx(20 + 1000 + 45)
    assert micros(1 << 19, 1 << 19) == pytest.approx(20 + (1 << 19) * 1e-4 / 0.8 + 22.5, abs=0.1)
    assert micros(8 * MEGA, 4 * MEGA) == pytest.approx(20 + 800 * (1 + 0.25 / 4) + 22.5)


def test_copies_back_to_back_take_a_single_latency_and_the_gaps_between_them() -> None:
    train, apart = Program(), Program()
    for n in range(4):
        train.copy("h2d", MEGA, IN, 0)
        apart.copy("h2d", MEGA, IN, n)
    assert train.play().seconds == pytest.approx(10e-6 + 400e-6 + 3 * 2e-6)
    assert apart.play().seconds == pytest.approx(10e-6 + 400e-6 + 3 * 4e-6)


@pytest.mark.parametrize(
    ("rules", "kernel", "micros"),
    [
        # [W14 eq 5], transfers and the kernel leading; g is 4 µs each way, and copies both ways share it: 20 µs
        # between the four in, of which the second still goes alone, and as many between those out, as the last one does.
        (GpuRules(), 1e-4, 10 + 400 + 20 + 100 + 10 + 100),
        (GpuRules(), 4e-4, 10 + 100 + 1600 + 10 + 100),
        # eq 4 but for one L+o - g: the engine starts the first copy out as soon as it is free.
        (GpuRules(copy_engines=1), 1e-4, 400 + 20 + 8 + 10 + 400 + 20),
        # eq 1: no copy out before the last kernel.
        (GpuRules(implicit_synchronization=True), 4e-4, 10 + 100 + 1600 + 10 + 400 + 20),
        # The host takes 50 µs to issue each of twelve operations; the ninth is the first copy out.
        (GpuRules(call_s=5e-5), 1e-6, 9 * 50 + 10 + 400 + 20),
        # The second to the fourth copy in are alone for 50 µs, and beside a copy out for 100.
        (GpuRules(Contention(both=Shares(0.5, 1.0))), 1e-9, 110 + 20 + 3 * 150 + 110),
    ],
)
def test_streams_by_the_rules_of_the_gpu(rules: GpuRules, kernel: float, micros: float) -> None:
    assert streams(rules, kernel=kernel) == pytest.approx(micros, abs=0.1)


def test_a_copy_waits_for_events_of_its_stream_and_of_further_streams() -> None:
    program = Program()
    first, second = program.copy("h2d", MEGA, IN, 0), program.copy("d2h", MEGA, OUT, 1)
    kernel = program.kernel(1e-4, 2, after=(first, second))
    program.kernel(1e-4, 0, after=(kernel,))
    played = program.play()
    assert played.start[kernel] == pytest.approx(110e-6)
    assert played.seconds == pytest.approx(310e-6)


def test_the_host_waits_for_a_blocking_copy() -> None:
    program = Program(GpuRules(call_s=1e-6))
    program.copy("h2d", MEGA, IN, 0, blocks_host=True)
    program.kernel(1e-4, 1)
    assert program.play().seconds == pytest.approx(1e-6 + 110e-6 + 1e-6 + 100e-6)


@pytest.mark.parametrize(
    ("kernel", "share"),
    [
        # Of 100 µs of writes buffers take 13: copies keep a quarter of their rate for the rest of the kernel's time.
        (1e-5, 1 - 0.75 * 0.87),
        (1.25e-4, 1 - 0.75 * 0.87 / 1.25),
    ],
)
def test_copies_during_mapped_writes_keep_their_share(kernel: float, share: float) -> None:
    program = Program(GpuRules(Contention(copy_beside_mapped=Shares(0.25, 1.0))))
    program.kernel(kernel, 0, out=Mapped(MEGA, OUT))
    program.copy("h2d", MEGA, IN, 1)
    together = max(kernel, 1e-4)
    assert program.play().seconds == pytest.approx(together + 1e-4 - share * together + 1e-5)


def test_a_kernel_on_mapped_memory_slows_with_the_load_in_the_opposite_direction() -> None:
    program = Program(GpuRules(Contention(mapped_both=Shares(0.5, 0.8))))
    program.kernel(1e-5, 0, into=Mapped(MEGA, IN), out=Mapped(MEGA, OUT))
    assert program.play().seconds == pytest.approx(20e-6 + 100e-6 * (1 + (125 / 200) ** 2), rel=1e-4)


def test_a_program_of_nothing_takes_no_time() -> None:
    assert Program().play().seconds == 0
