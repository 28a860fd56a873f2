"""Programs of strategies on plain arrays, in every order that their streams and events allow."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from busfare.measure.bench import program
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.ocean import water_column
from busfare.measure.bench.program import Span, Work
from tests.measure.bench.arrays_device import run

COUNTS = (1, 2, 3, 5, 6, 7, 11, 13, 24)


def inputs_of(work: Work) -> list[np.ndarray]:
    both = [np.empty((work.levels, work.level)) for _ in range(2)]
    for k in range(work.levels):
        water_column(k, [array[k] for array in both], 7)
    both = [array.reshape(-1) for array in both]
    return [both[n % 2] for n in range(work.kernel.inputs)]


def reference(work: Work, inputs: list[np.ndarray]) -> list[np.ndarray]:
    levels = [array.reshape(work.levels, work.level) for array in inputs]
    assert work.kernel.reference is not None
    of_levels = [work.kernel.reference(levels, k) for k in range(work.levels)]
    return [np.concatenate(parts) for parts in zip(*of_levels, strict=True)]


def programs(work: Work) -> list[program.Program]:
    found = [program.explicit(work), program.batched(work), program.mapped(work)]
    for count in COUNTS:
        found += [
            program.streams(work, count),
            program.hybrid(work, count),
            program.three_streams(work, count),
        ]
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_every_order_that_is_allowed_gives_the_result(name: str) -> None:
    work = Work(KERNELS[name], 6, 160)
    inputs = inputs_of(work)
    expected = reference(work, inputs)
    for made in programs(work):
        for seed in range(3):
            found = run(made, work, inputs, random.Random(seed))
            for got, want in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"{made.strategy} {made.streams}")


def test_without_its_events_buoydiff_is_wrong_in_some_order() -> None:
    work = Work(KERNELS["buoydiff"], 6, 160)
    inputs = inputs_of(work)
    expected = reference(work, inputs)
    made = program.streams(work, 6)
    bare = replace(made, operations=tuple(replace(op, after=()) for op in made.operations))
    wrong = [
        any(
            not np.array_equal(g, w)
            for g, w in zip(run(bare, work, inputs, random.Random(seed)), expected, strict=True)
        )
        for seed in range(10)
    ]
    assert any(wrong)


def test_two_gpus_share_the_work_and_copy_what_each_reads() -> None:
    work = Work(KERNELS["buoydiff"], 6, 160)
    inputs = inputs_of(work)
    expected = reference(work, inputs)
    shares = [program.streams(work, 6, own=own) for own in (range(3), range(3, 6))]
    whole = [np.full(work.elements, np.nan) for _ in expected]
    for share in shares:
        for target, found in zip(whole, run(share, work, inputs, random.Random(1)), strict=True):
            written = ~np.isnan(found)
            assert np.isnan(target[written]).all(), "an element was computed twice"
            target[written] = found[written]
    for got, want in zip(whole, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    # Levels 0, 1 and 2 on the one; 0, 2, 3, 4 and 5 on the other.
    copied = [{op.part.first // 160 for op in share.operations if op.kind == "h2d"} for share in shares]
    assert copied == [{0, 1, 2}, {0, 2, 3, 4, 5}]


@pytest.mark.parametrize("count", [*COUNTS, 48, 64, 256])
def test_chunks_cover_the_work_once(count: int) -> None:
    work = Work(KERNELS["scale"], 42, 4096)
    cut = work.cut(count)
    assert len(cut) == count
    assert [span.first for span in cut] == [0, *(span.end for span in cut[:-1])]
    assert cut[-1].end == work.elements
    sizes = [span.count for span in cut]
    assert max(sizes) - min(sizes) <= 32
    if 42 % count == 0:
        assert all(span.first % work.level == 0 for span in cut)


def test_a_part_within_a_level_reads_three_places() -> None:
    work = Work(KERNELS["buoydiff"], 4, 128)
    assert work.inputs_of(Span(256, 288)) == [Span(256, 288), Span(128, 160), Span(0, 32)]
    # Across the end of a level the surface is read at its end and at its start.
    assert work.inputs_of(Span(224, 288)) == [Span(224, 288), Span(96, 160), Span(96, 128), Span(0, 32)]
    assert work.inputs_of(Span(0, 64)) == [Span(0, 64), Span(0, 64)]


def test_copies_of_chunks_that_others_read_go_through_one_stream_in_order() -> None:
    made = program.streams(Work(KERNELS["buoydiff"], 6, 160), 6)
    into = [op for op in made.operations if op.kind == "h2d"]
    assert {op.stream for op in into} == {0}
    assert [op.part.first for op in into] == sorted(op.part.first for op in into)
    kernels = [op for op in made.operations if op.kind == "kernel"]
    # The second array of the chunk itself is the last of what a kernel reads.
    assert [op.after for op in kernels] == [(2 * chunk + 1,) for chunk in range(6)]
    assert made.streams == 7
    alone = program.streams(Work(KERNELS["state"], 6, 160), 6)
    assert {op.stream for op in alone.operations if op.kind == "h2d"} == set(range(6))
    assert not any(op.after for op in alone.operations)


def test_what_waits_for_the_first_stream_is_led_by_it() -> None:
    plain, reaching = Work(KERNELS["scale"], 6, 160), Work(KERNELS["buoydiff"], 6, 160)
    assert program.explicit(plain).led and program.three_streams(plain, 3).led
    # All copies in are in the first stream, and every kernel waits for one of them.
    assert program.streams(reaching, 3).led and program.hybrid(reaching, 3).led
    assert not program.streams(plain, 3).led
    assert not program.link_alone(plain).led


def test_three_streams_are_one_an_engine_depth_first() -> None:
    made = program.three_streams(Work(KERNELS["state"], 4, 64), 4)
    assert [op.kind for op in made.operations[:6]] == ["h2d", "h2d", "kernel", "d2h", "d2h", "d2h"]
    assert {op.kind: op.stream for op in made.operations} == {"h2d": 0, "kernel": 1, "d2h": 2}
