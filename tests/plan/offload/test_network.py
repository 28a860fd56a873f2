"""A network by the options of the command line: what is brought, what is there anyway, and options that do not hold."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.errors import InputError
from busfare.node import load_node
from busfare.plan.machine import machine_of
from busfare.plan.offload.layers import Layers
from busfare.plan.offload.network import Network, network_of
from busfare.plan.offload.rank import break_even, seconds_of
from busfare.plan.offload.schedule import Schedule

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
        return seconds_of(Layers(dense.bytes(tokens), dense.seconds(tokens)), schedule, machine)

    even, why = break_even(streamed, lambda tokens: sum(dense.cpu_seconds(tokens)))
    assert why == ""
    assert even == pytest.approx(12, abs=2)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"model": "llama-2-7b", "only_experts": True}, "has no experts"),
        ({"cached_experts": "4"}, "hold with --only-experts"),
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
