"""Schedules of streamed layers, and what `plan offload` answers."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from busfare.answers.offload import PlanOffloadResult, answer_offload
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
from busfare.questions import Offload
from busfare.show.page import page
from busfare.show.plan_words import offload_words
from busfare.show.plans import offload_document
from tests.conftest import answer as command_answer

NODES = ("h100-probed", "rtx-3090", "gh200", "k20")
MIB = 1 << 20
#: Of these nothing goes back.
COPIED: tuple[Memory, ...] = ("pinned", "pageable", "mapped")
OPTIONS = {"node": "h100-probed", "layers": "16", "bytes_per_layer": "67108864", "seconds_per_layer": "1ms"}


def answered(**more: Any) -> PlanOffloadResult:
    return answer_offload(Offload.of(**(OPTIONS | more)))


def alike_layers(count: int, size: float, seconds: float, back_bytes: float = 0.0) -> Layers:
    return Layers((size,) * count, (seconds,) * count, (back_bytes,) * count if back_bytes else ())


@pytest.mark.parametrize("name", NODES)
def test_the_recurrence_is_what_the_engine_plays(name: str) -> None:
    """Of alike and of unlike layers, short and long copies, bound by the link and by the kernels."""
    machine, random = machine_of(load_node(name)), Random(1)
    for size, ratio in product((1e4, 1e6, 6.4e7), (0.02, 1.0, 2.0)):
        seconds = size * machine.h2d.copy.long_gap_per_byte_s * ratio + 2e-6
        unlike = [(random.uniform(0, 2) * size, random.uniform(0, 2) * seconds) for _ in range(12)]
        various = Layers(tuple(bytes_ for bytes_, _ in unlike), tuple(time for _, time in unlike))
        for layers in (alike_layers(12, size, seconds), various):
            for resident, depth, memory in product((0, 5, 12), (0, 1, 3), COPIED):
                schedule = Schedule(resident, depth, memory)
                played = program_of(layers, schedule, machine).play().seconds
                assert pass_seconds(layers, schedule, machine) == pytest.approx(played, rel=0.01), schedule


def test_depth_0_adds_copies_and_kernels_and_depth_1_takes_the_longer() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = alike_layers(16, 64 * MIB, 2e-3)
    copy = 64 * MIB * copy_curve(machine, "h2d", "pinned").long_gap_per_byte_s
    in_turns, ahead = (pass_seconds(layers, Schedule(0, depth), machine) for depth in (0, 1))
    assert in_turns == pytest.approx(16 * (copy + 2e-3), rel=0.01)
    assert ahead == pytest.approx(copy + 16 * 2e-3, rel=0.01)
    quick = alike_layers(16, 64 * MIB, 1e-4)
    assert pass_seconds(quick, Schedule(0, 1), machine) == pytest.approx(16 * copy + 1e-4, rel=0.01)
    assert share_hidden(layers, Schedule(0, 1), machine, ahead) == pytest.approx(15 / 16, abs=0.01)
    assert share_hidden(layers, Schedule(0, 0), machine, in_turns) == pytest.approx(0.0, abs=0.01)


def test_resident_layers_are_computed_during_the_first_copies() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = alike_layers(8, 64 * MIB, 1.3e-3)
    whole = pass_seconds(layers, Schedule(8), machine)
    assert whole == pytest.approx(8 * 1.3e-3)
    # Four layers are brought while four are computed, and a bit of the last ones shows.
    assert whole <= pass_seconds(layers, Schedule(4, 4), machine) < 1.02 * whole


def test_copies_back_take_the_opposite_direction_and_keep_their_buffer() -> None:
    machine = machine_of(load_node("h100-probed"))
    streamed = alike_layers(16, 64 * MIB, 1e-4)
    updated = alike_layers(16, 64 * MIB, 1e-4, back_bytes=64 * MIB)
    into, back_and_forth, in_turns = (
        program_of(layers, Schedule(0, depth), machine).play().seconds
        for layers, depth in ((streamed, 2), (updated, 2), (updated, 0))
    )
    assert 1.05 * into < back_and_forth < in_turns < 2.3 * into


def test_pageable_copies_hold_the_host_and_deeper_prefetch_is_no_cure() -> None:
    machine = machine_of(load_node("h100-probed"))
    layers = alike_layers(8, 64 * MIB, 1e-3)
    pinned, pageable = (pass_seconds(layers, Schedule(0, 1, memory), machine) for memory in COPIED[:2])
    assert pageable > 3 * pinned


def test_pageable_copies_may_hide_nothing() -> None:
    """A program that copies each layer before it launches the one before takes copies and kernels one after another."""
    answer = answered(memory="pageable", seconds_per_layer="10ms", resident="0", depth="1")
    assert answer.predicted_seconds < 0.8 * (answer.parts.copies_seconds + 160e-3) <= answer.high_seconds


@pytest.mark.parametrize(("tokens", "fastest"), [("1", True), ("256", True), ("257", False), (None, False)])
def test_mapped_weights_rank_behind_copies_if_rows_exceed_a_tile(tokens: str | None, fastest: bool) -> None:
    budget = "1KB" if fastest else "3MB"
    answer = answered(node="gh200", layers="4", bytes_per_layer="1MB", tokens=tokens, budget=budget)
    streamed = [row.memory for row in answer.ranking if row.resident < 4]
    if fastest:
        assert answer.memory == streamed[0] == "mapped"  # nothing else fits
    else:
        assert answer.memory != "mapped"
        assert streamed[-1] == "mapped"


def test_mapped_weights_are_read_once_per_tile_of_rows() -> None:
    machine = machine_of(load_node("h100-probed"))
    once, thrice = (replace(alike_layers(4, 64 * MIB, 1e-6), rows=rows) for rows in (256.0, 600.0))
    took = [pass_seconds(layers, Schedule(0, 0, "mapped"), machine) for layers in (once, thrice)]
    assert took[1] == pytest.approx(3 * took[0], rel=0.01)
    played = program_of(thrice, Schedule(0, 0, "mapped"), machine).play().seconds
    assert took[1] == pytest.approx(played, rel=0.01)
    words = offload_words(answered(memory="mapped", tokens="600", resident="0"))
    assert any("reads the mapped weights again" in sentence for sentence in words)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_pieces_and_routers_take_as_long_as_played(memory: Memory) -> None:
    machine = machine_of(load_node("h100-probed"))
    router = {"pieces": (4.0,) * 8, "call_seconds": 1e-6, "routed_seconds": 2e-5}
    routed = replace(alike_layers(8, 2 * MIB, 1e-4), **router)
    played = program_of(routed, Schedule(2, 0, memory), machine).play().seconds
    assert pass_seconds(routed, Schedule(2, 0, memory), machine) == pytest.approx(played, rel=0.05)
    assert {s.depth for s in schedules(routed, None, 3, memory)} == {0}


def test_gpu_memory_of_a_schedule() -> None:
    layers = alike_layers(10, 100.0, 1.0)
    some = (Schedule(4, 2), Schedule(9, 4), Schedule(4, 0, "mapped"), Schedule(10, 3))
    assert [schedule.device_bytes(layers) for schedule in some] == [700.0, 1000.0, 400.0, 1000.0]
    machine = machine_of(load_node("h100-probed"))
    for memory, depth in product(MEMORIES, (0, 1, 2)):
        residents = residents_of(layers, 650.0, depth, memory)
        fit = [s for n in range(11) for s in schedules(layers, 650.0, depth, memory, n)]
        assert residents[-1] == max(s.resident for s in fit)
        assert best_first(layers, machine, fit)[0].device_bytes <= 650.0


def test_gpus_share_what_their_paths_have_in_common() -> None:
    assert link_share(load_node("summit"), 1) == 1.0
    # Two GPUs of a DGX-1 behind one PCIe switch.
    assert link_share(load_node("dgx-1-v100"), 2) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(InputError, match="`gpus` 9: h100-sxm has 8"):
        link_share(load_node("h100-sxm"), 9)


def test_break_even_is_where_streaming_takes_as_long_as_computing() -> None:
    tokens, why = break_even(lambda n: 1.0 + 0.001 * n, lambda n: 0.101 * n)
    assert (tokens, why) == (pytest.approx(10.0, rel=1e-3), "")
    assert break_even(lambda n: 0.1, lambda n: n)[0] is None
    tokens, why = break_even(lambda n: 2.0 * n, lambda n: n)
    assert tokens is None
    assert why == "no break-even: streaming is still slower at 16,777,216 tokens, where the search ends"


def test_the_keys_that_scripts_rely_on() -> None:
    options = ["--resident", "4", "--depth", "2", "--memory", "pinned", "--tokens", "1"]
    options += [f"--{key.replace('_', '-')}={value}" for key, value in OPTIONS.items()]
    answer = command_answer("plan", "offload", *options)
    assert next(iter(answer)) == "schema"
    assert (answer["resident"], answer["depth"], answer["memory"]) == (4, 2, "pinned")
    assert answer["low_seconds"] <= answer["predicted_seconds"] <= answer["high_seconds"]
    assert answer["rung"] == "probed"
    assert 0.9 < answer["share_hidden"] <= 1.0
    assert answer["break_even_tokens"] is None
    assert "--cpu-seconds-per-layer" in answer["break_even_reason"]
    times = [row["predicted_seconds"] for row in answer["ranking"]]
    assert times == sorted(times)
    assert {row["memory"] for row in answer["ranking"]} == {"pinned", "pageable", "mapped", "managed"}
    # Whatever is ranked fits in what the asked schedule takes.
    assert max(row["device_bytes"] for row in answer["ranking"]) <= answer["device_bytes"] == 7 * 67108864


def test_a_budget_is_filled_with_what_is_fastest() -> None:
    few, many = (answered(budget=size) for size in ("400MB", "900MB"))
    assert few.device_bytes <= 400e6 < many.device_bytes <= 900e6
    assert few.resident < many.resident
    assert many.predicted_seconds < few.predicted_seconds
    everything = answered(seconds_per_layer="0.1ms")
    assert (everything.resident, everything.limited_by) == (16, "nothing is streamed")
    assert everything.predicted_seconds == pytest.approx(1.6e-3)
    # Where the kernels hide the copies, what streams takes no longer and leaves memory free.
    hidden = answered(seconds_per_layer="2ms")
    assert hidden.resident < 16
    assert hidden.predicted_seconds == pytest.approx(32e-3, rel=0.011)


def test_a_proposal_that_is_not_the_fastest_says_why() -> None:
    options = {"node": "rtx-4090", "model": "llama-3.1-70b", "type": "q4_0", "tokens": "512"}
    answer = answer_offload(Offload.of(**options))
    fastest = answer.ranking[0]
    assert (answer.resident, answer.depth) != (fastest.resident, fastest.depth)
    assert answer.predicted_seconds <= fastest.predicted_seconds * 1.01
    reason = f"within 1 % of the fastest, {fastest.resident} resident, depth {fastest.depth}, pinned memory"
    assert any(reason in words and "needs fewer buffers" in words for words in offload_words(answer))
    deep = answer_offload(Offload.of(**(options | {"depth": "4"})))
    assert not any("within 1 %" in words for words in offload_words(deep))


def test_tokens_say_from_where_streaming_pays() -> None:
    """A layer takes 1.21 ms to copy; on the processor 0.1 ms a token, on the GPU 1 ms a thousand tokens."""
    times = {"seconds_per_layer": "1=20us,1000=1ms,10000=10ms", "cpu_seconds_per_layer": "1=0.1ms,1000=100ms"}
    answer = answered(**times, tokens="1", resident="0", depth="1")
    assert answer.limited_by == "link"
    assert answer.break_even_tokens == pytest.approx(12.2, rel=0.03)
    assert answer.hidden_from_tokens == pytest.approx(1215, rel=0.03)
    assert [p.resident for p in answer.by_resident][:2] == [0, 2]
    seconds = [point.predicted_seconds for point in answer.by_resident]
    assert seconds == sorted(seconds, reverse=True)
    shown = page(offload_document(answer))
    assert "From 12 tokens per pass on, streaming is faster than the CPU." in shown


def test_a_page_shows_a_network_of_which_nothing_is_streamed() -> None:
    shown = page(offload_document(answered(node="h100-sxm", layers="4", bytes_per_layer="1MB", resident="4")))
    assert "nothing is streamed" in shown and 'id="resident"' in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"layers": "0"}, "`layers` '0' is not a whole number from 1 to 4096"),
        ({"layers": None}, "`layers`: the number of layers"),
        ({"bytes_per_layer": "1MB,2MB"}, "`bytes_per_layer`: 2 values for 16 layers"),
        ({"seconds_per_layer": "1=1ms,2ms"}, "`seconds_per_layer` '2ms' is not a point"),
        ({"seconds_per_layer": "1=1ms"}, "`tokens`: the times depend on the tokens"),
        ({"resident": "17"}, "`resident` 17: not a whole number from 0 to 16"),
        ({"memory": "tape"}, "`memory` 'tape' is unknown"),
        ({"node": None}, "`node`: the machine is missing"),
        ({"budget": "1KB", "depth": "1", "memory": "pinned"}, "`budget`"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_names_the_option(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        answered(**more)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_prediction_of_the_answer_has_a_range() -> None:
    answer = msgspec.to_builtins(answered(node="rtx-3090", resident="2", depth="1"))
    for row in (answer, *answer["ranking"]):
        assert row["low_seconds"] <= row["predicted_seconds"] <= row["high_seconds"]
        assert row["rung"] == "datasheet"
