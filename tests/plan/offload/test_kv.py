"""KV caches on the host: the closed form beside the engine, what limits a layout, and where fetching beats prefill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import machine_of
from busfare.planning.offload.kv import (
    LAYOUTS,
    MOST_PLAYED,
    Blocks,
    Prefill,
    fetch,
    host_of,
    program_of,
    ranked,
    worth_fetching,
)

MACHINE = machine_of(load_node("h100-probed"))
HOST = host_of(MACHINE)
KIB = 1 << 10


@pytest.mark.parametrize("piece", [4 * KIB, 64 * KIB, 1024 * KIB])
@pytest.mark.parametrize("copy_s", [1e-7, 3e-6, 1e-5])
@pytest.mark.parametrize(("fetched", "evicted"), [(400, 0), (0, 400), (400, 400)])
def test_thousands_of_copies_take_what_the_engine_says(
    piece: int, copy_s: float, fetched: int, evicted: int
) -> None:
    host, blocks = replace(HOST, copy_s=copy_s), Blocks(piece, fetched, 1, evicted)
    assert max(fetched, evicted) > MOST_PLAYED
    played = program_of("per-block", blocks, MACHINE, host).play().seconds
    assert fetch("per-block", blocks, MACHINE, host).seconds - host.wait_s == pytest.approx(played, rel=0.01)


def test_what_is_evicted_beside_adds_no_more_than_it_takes_alone() -> None:
    """Copies that have no partner the other way pay for no partner."""
    host = replace(HOST, copy_s=1e-7)
    alone, pairs, few, one_out = (
        fetch("per-block", Blocks(4 * KIB, fetched, 1, evicted), MACHINE, host).seconds
        for fetched, evicted in ((500, 0), (500, 500), (500, 10), (10, 10))
    )
    assert alone < few < alone + one_out < pairs


def test_small_pieces_are_bound_by_submission_and_long_ones_by_the_link() -> None:
    by_size = {
        piece: fetch("per-block", Blocks(piece, (64 << 20) // piece), MACHINE, HOST)
        for piece in (4 * KIB, 64 * KIB, 4096 * KIB)
    }
    slow = fetch("per-block", Blocks(4 * KIB, 16384), MACHINE, replace(HOST, copy_s=5e-6))
    assert slow.limited_by == "submission"
    assert slow.seconds == pytest.approx(16384 * 5e-6, rel=0.01)
    assert [one.limited_by for one in by_size.values()] == ["copy engine", "copy engine", "link"]
    bound = fetch("contiguous", Blocks(64 << 20, 1), MACHINE, HOST).seconds
    assert bound == pytest.approx(0.81 * 3.033e-6 + 3.781e-6 + (64 << 20) * 1.81e-11 + 1.908e-6, rel=1e-3)
    assert bound < by_size[4096 * KIB].seconds < 1.1 * bound


def test_pieces_of_a_block_count_as_copies_of_their_own() -> None:
    whole = Blocks(2048 * KIB, 32)
    scattered = replace(whole, pieces=64)
    assert fetch("per-block", scattered, MACHINE, HOST).calls == 2048
    assert fetch("per-block", scattered, MACHINE, HOST).limited_by == "copy engine"
    assert fetch("contiguous", scattered, MACHINE, HOST).seconds == pytest.approx(
        fetch("contiguous", whole, MACHINE, HOST).seconds
    )


def test_a_gather_on_the_host_takes_its_memcpy_before_or_beside_the_copy() -> None:
    host = replace(HOST, pack_s_per_byte=1e-10)
    blocks = Blocks(64 * KIB, 1024)
    packed, copied = blocks.moved("h2d")[0] * 1e-10, fetch("contiguous", blocks, MACHINE, host).seconds
    serial, halves = (
        fetch(layout, blocks, MACHINE, host) for layout in ("gather-host", "gather-host-halves")
    )
    assert serial.limited_by == halves.limited_by == "host gather"
    assert serial.seconds == pytest.approx(packed + copied, rel=0.001)
    assert halves.seconds == pytest.approx(packed + copied / 2, rel=0.01)
    # What was evicted is taken apart by the same core, behind it.
    back = fetch("gather-host", replace(blocks, evicted=1024), MACHINE, host).seconds
    assert back == pytest.approx(2 * packed, rel=0.01)


def test_every_layout_is_ranked_and_none_beats_the_bound() -> None:
    found = ranked(Blocks(64 * KIB, 4096, evicted=2048), MACHINE, HOST)
    assert {one.layout for one in found} == set(LAYOUTS)
    assert found[0].layout == "contiguous"
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    with pytest.raises(InputError, match="--tokens"):
        ranked(Blocks(64 * KIB, 0), MACHINE, HOST)


def test_prefill_between_and_beyond_its_points() -> None:
    twice = Prefill(((1000.0, 0.1), (2000.0, 0.3)))
    assert twice.seconds(1000) == pytest.approx(0.1)
    assert twice.seconds(4000) == pytest.approx(0.9)
    assert Prefill(((1000.0, 0.1),)).seconds(250) == pytest.approx(0.025)


def test_break_even_is_where_both_take_as_long() -> None:
    blocks, prefill = Blocks(4 * KIB, 1), Prefill(((1.0, 1e-6),))
    ((tokens, end),) = worth_fetching("contiguous", blocks, 1, MACHINE, HOST, prefill)
    assert end is None
    assert fetch("contiguous", replace(blocks, count=tokens), MACHINE, HOST).seconds < prefill.seconds(tokens)
    assert fetch("contiguous", replace(blocks, count=tokens - 1), MACHINE, HOST).seconds >= prefill.seconds(
        tokens - 1
    )
    assert worth_fetching("per-block", blocks, 1, MACHINE, HOST, prefill) == []
    assert worth_fetching("per-block", blocks, 16, MACHINE, HOST, Prefill(((1.0, 1.0),))) == [(16, None)]


def test_short_and_long_prompts_may_be_worth_fetching_and_those_between_not() -> None:
    """Computing takes 5 ms at least, and grows by the square in the end; 64 copies a block from Python cost 0.64 ms."""
    host, blocks = replace(HOST, copy_s=1e-5), Blocks(2 << 20, 1, 64)
    prefill = Prefill(((16.0, 5e-3), (256.0, 5.5e-3), (8192.0, 0.2), (131072.0, 20.0)))
    (first, up_to), (again, end) = worth_fetching("per-block", blocks, 16, MACHINE, host, prefill)
    assert (first, end) == (16, None)
    assert up_to is not None
    assert up_to < 8192 < again
    for tokens, faster in ((up_to, True), (up_to + 16, False), (again * 0.999, False), (again, True)):
        count = round(tokens / 16)
        fetched = fetch("per-block", replace(blocks, count=count), MACHINE, host).seconds
        assert (fetched < prefill.seconds(16 * count)) == faster
