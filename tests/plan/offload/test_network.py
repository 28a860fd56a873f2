"""A network by the options of the command line: what is brought, what is there anyway, and options that do not hold."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.answers.offload import answer_offload
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning.machine import machine_of
from busfare.planning.offload.network import Network, network_of
from busfare.planning.offload.schedule import Schedule, break_even, seconds_of

NODE = load_node("rtx-4090")


def network(**said: Any) -> Network:
    return network_of({"model": "mixtral-8x7b", "type": "q4_0", **said}, NODE)


def test_experts_alone_are_brought_as_far_as_they_are_touched_and_not_there() -> None:
    expert = 3 * 4096 * 14336 * 18 / 32
    whole = network().bytes(1)[0]
    assert network(only_experts=True).bytes(1)[0] == pytest.approx(2 * expert)
    assert network(only_experts=True).bytes(4096)[0] == pytest.approx(8 * expert)
    assert network(only_experts=True, cached_experts="6").bytes(4096)[0] == pytest.approx(2 * expert)
    assert network(only_experts=True, cached_experts="6", hit_rate="0.9").bytes(1)[0] == pytest.approx(
        0.2 * expert
    )
    assert network(only_experts=True).always_bytes(1) - network().always_bytes(1) == pytest.approx(
        32 * (whole - 8 * expert)
    )


def test_caches_take_memory_beside_the_layers() -> None:
    more = network(context="4096", batch="8").always_bytes(8) - network().always_bytes(8)
    assert more == 2 * 32 * 8 * 128 * 2 * 4096 * 8


def test_streaming_beats_the_processor_from_some_tokens_on() -> None:
    # Two channels of DDR5 and 1 TFLOP/s against PCIe 4 x16: a layer of 114 MB takes 1.8 ms to read here, 4.5 ms to bring,
    # and the processor computes n tokens of it in n · 0.4 ms: some 12 tokens.
    dense = network_of(
        {"model": "llama-2-7b", "type": "q4_0", "cpu_bandwidth": "64GB", "cpu_flops": "1T"}, NODE
    )
    machine, schedule = machine_of(NODE), Schedule(0, 1, "pinned")

    def streamed(tokens: float) -> float:
        return seconds_of(dense.ends(tokens)[1], schedule, machine)

    even, why = break_even(streamed, lambda tokens: sum(dense.cpu_seconds(tokens)))
    assert why == ""
    assert even == pytest.approx(12, abs=2)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"model": "llama-2-7b", "only_experts": True}, "has no experts"),
        ({"cached_experts": "4"}, "go with --only-experts"),
        ({"only_experts": True, "cached_experts": "9"}, "the model has 8 a layer"),
        ({"only_experts": True, "hit_rate": "2"}, "--hit-rate 2"),
        ({"batch": "0"}, "--batch 0: no whole number from 1"),
        ({"context": "1.5"}, "--context 1.5: no whole number"),
        ({"type": "fp5"}, "--type 'fp5'"),
        ({"cpu_bandwidth": "fast"}, "'fast' is not a size"),
    ],
)
def test_options_that_do_not_hold_are_refused(said: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        network(**said)


def test_a_processor_that_is_not_known_is_asked_for() -> None:
    with pytest.raises(InputError, match="reaches is not known; give --cpu-flops"):
        network().cpu_seconds(1)


def test_a_plan_of_a_network_leaves_room_for_what_is_there_anyway() -> None:
    plan = answer_offload({"node": "rtx-4090", "model": "llama-2-70b", "type": "q4_0", "tokens": "1"})
    known = network_of({"model": "llama-2-70b", "type": "q4_0"}, NODE)
    assert plan.beside_bytes == known.always_bytes(1)
    assert plan.device_bytes <= plan.budget_bytes == NODE.gpu(0).memory_bytes - known.always_bytes(1)
    layer = known.whole_bytes[0]
    streamed = (80 - plan.resident) * layer * machine_of(NODE).h2d.copy.long_gap_per_byte_s
    assert plan.predicted_seconds == pytest.approx(streamed, rel=0.05)


def test_resident_layers_hold_all_experts_and_a_pass_brings_those_it_needs() -> None:
    said = {"node": "rtx-4090", "model": "mixtral-8x7b", "type": "q4_0", "only_experts": True, "depth": "1"}
    plan = answer_offload({**said, "tokens": "1", "resident": "16"})
    expert = 3 * 4096 * 14336 * 18 / 32
    assert plan.device_bytes == pytest.approx(16 * 8 * expert + 2 * 2 * expert)
    assert plan.parts.copies_seconds == pytest.approx(16 * 2 * expert / 25.8e9, rel=0.01)


def test_ranges_hold_what_kernels_may_take_and_measured_times_have_none() -> None:
    said = {
        "node": "rtx-4090",
        "model": "llama-2-7b",
        "type": "q4_0",
        "tokens": "4096",
        "resident": "0",
        "depth": "1",
    }
    predicted = answer_offload(said)
    measured = answer_offload({**said, "seconds_per_layer": f"{predicted.parts.kernels_seconds / 32}s"})
    assert predicted.predicted_seconds == pytest.approx(measured.predicted_seconds, rel=1e-3)
    assert (
        predicted.high_seconds / predicted.predicted_seconds
        > 1.5 * measured.high_seconds / measured.predicted_seconds
    )


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"layers": "4"}, "--layers: --model says it already"),
        ({"from_trace": "x.json"}, "--from-trace, --model: both say"),
        ({"model": None, "type": "fp8"}, "--type: goes with --model"),
        (
            {"tokens": "64", "context": "1000000", "batch": "64"},
            "give a smaller type, fewer sequences or a shorter context",
        ),
    ],
)
def test_a_plan_says_which_options_do_not_go_together(said: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        answer_offload({"node": "rtx-4090", "model": "llama-2-7b", **said})
