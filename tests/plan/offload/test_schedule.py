"""One pass over layers that live on the host: against hand-made truths, and the recurrence against the engine."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import machine_of
from busfare.planning.offload.schedule import (
    MEMORIES,
    Layers,
    Memory,
    Schedule,
    best_first,
    break_even,
    copy_curve,
    link_share,
    pass_seconds,
    program_of,
    residents_of,
    schedules,
    share_hidden,
)

NODES = ("h100-probed", "rtx-3090", "gh200", "k20")
MIB = 1 << 20
#: Of these nothing goes back.
COPIED: tuple[Memory, ...] = ("pinned", "pageable", "mapped")


@pytest.mark.parametrize("name", NODES)
def test_the_recurrence_is_what_the_engine_plays(name: str) -> None:
    """Of alike and of unlike layers, short and long copies, bound by the link and by the kernels."""
    machine, random = machine_of(load_node(name)), Random(1)
    for size, ratio in product((1e4, 1e6, 6.4e7), (0.02, 1.0, 2.0)):
        seconds = size * machine.h2d.copy.long_gap_per_byte_s * ratio + 2e-6
        unlike = [(random.uniform(0, 2) * size, random.uniform(0, 2) * seconds) for _ in range(12)]
        various = Layers(tuple(bytes_ for bytes_, _ in unlike), tuple(time for _, time in unlike))
        for layers in (Layers.alike(12, size, seconds), various):
            for resident, depth, memory in product((0, 5, 12), (0, 1, 3), COPIED):
                schedule = Schedule(resident, depth, memory)
                played = program_of(layers, schedule, machine).play().seconds
                assert pass_seconds(layers, schedule, machine) == pytest.approx(played, rel=0.01), schedule


def test_depth_0_adds_copies_and_kernels_and_depth_1_takes_the_longer() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = Layers.alike(16, 64 * MIB, 2e-3)
    copy = 64 * MIB * copy_curve(machine, "h2d", "pinned").long_gap_per_byte_s
    in_turns, ahead = (pass_seconds(layers, Schedule(0, depth), machine) for depth in (0, 1))
    assert in_turns == pytest.approx(16 * (copy + 2e-3), rel=0.01)
    assert ahead == pytest.approx(copy + 16 * 2e-3, rel=0.01)
    quick = Layers.alike(16, 64 * MIB, 1e-4)
    assert pass_seconds(quick, Schedule(0, 1), machine) == pytest.approx(16 * copy + 1e-4, rel=0.01)
    assert share_hidden(layers, Schedule(0, 1), machine, ahead) == pytest.approx(15 / 16, abs=0.01)
    assert share_hidden(layers, Schedule(0, 0), machine, in_turns) == pytest.approx(0.0, abs=0.01)


def test_resident_layers_are_computed_beside_the_first_copies() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = Layers.alike(8, 64 * MIB, 1.3e-3)
    whole = pass_seconds(layers, Schedule(8), machine)
    assert whole == pytest.approx(8 * 1.3e-3)
    # Four layers are brought while four are computed, and a bit of the last ones shows.
    assert whole <= pass_seconds(layers, Schedule(4, 4), machine) < 1.02 * whole


def test_what_is_sent_back_takes_the_other_direction_and_keeps_its_buffer() -> None:
    machine = machine_of(load_node("h100-probed"))
    streamed = Layers.alike(16, 64 * MIB, 1e-4)
    updated = Layers.alike(16, 64 * MIB, 1e-4, back_bytes=64 * MIB)
    into, both = (
        program_of(layers, Schedule(0, 2), machine).play().seconds for layers in (streamed, updated)
    )
    in_turns = program_of(updated, Schedule(0, 0), machine).play().seconds
    assert 1.05 * into < both < in_turns < 2.3 * into


def test_pageable_copies_hold_the_host_and_deeper_prefetch_is_no_cure() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = Layers.alike(8, 64 * MIB, 1e-3)
    pinned, pageable = (pass_seconds(layers, Schedule(0, 1, memory), machine) for memory in COPIED[:2])
    assert pageable > 3 * pinned


def test_gpu_memory_of_a_schedule() -> None:
    layers = Layers.alike(10, 100.0, 1.0)
    held = {
        s: s.device_bytes(layers)
        for s in (Schedule(4, 2), Schedule(9, 4), Schedule(4, 0, "mapped"), Schedule(10, 3))
    }
    assert list(held.values()) == [700.0, 1000.0, 400.0, 1000.0]
    machine = machine_of(load_node("h100-probed"))
    for memory, depth in product(MEMORIES, (0, 1, 2)):
        residents = residents_of(layers, 650.0, depth, memory)
        fit = schedules(layers, 650.0, range(11), [depth], [memory])
        assert residents[-1] == max(s.resident for s in fit)
        assert best_first(layers, machine, fit)[0].device_bytes <= 650.0


def test_gpus_share_what_their_paths_have_in_common() -> None:
    assert link_share(load_node("summit"), 1) == 1.0
    # Two GPUs of a DGX-1 behind one PCIe switch.
    assert link_share(load_node("dgx-1-v100"), 2) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(InputError, match="--gpus 9: h100-sxm has 8"):
        link_share(load_node("h100-sxm"), 9)


def test_break_even_is_where_both_take_as_long() -> None:
    tokens, why = break_even(lambda n: 1.0 + 0.001 * n, lambda n: 0.101 * n)
    assert (tokens, why) == (pytest.approx(10.0, rel=1e-3), "")
    assert break_even(lambda n: 0.1, lambda n: n)[0] is None
    tokens, why = break_even(lambda n: 2.0 * n, lambda n: n)
    assert tokens is None
    assert "slower up to" in why
